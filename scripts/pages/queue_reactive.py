"""The queue-reactive model of Huang, Lehalle and Rosenbaum (2015), a null model of scripts/pages/order_flow.py.

Orders of one size come, are cancelled and trade at rates by distance from the other side's best price and by how many
such orders already rest at the tick; trades, by how many rest at the best price. Nothing else matters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kineticsim_env.data.events import ADD, BID, EXECUTE, OrderEvents
from kineticsim_env.flow.lives import look
from kineticsim_env.flow.moments import market_orders
from kineticsim_env.runtime.flow_table import BANDS, EDGES, GROUPS, FlowTable, band_of
from tests.reference.flow import LASTING, FlowMarket  # order by order, in Python

QUEUES = (0, 1, 2, 3, 4, 5, 6, 8, 11, 16, 23, 32)  # orders at a tick with which classes of queues begin
_PSEUDO = 3  # events that each rate has beside the data's, at its band's mean rate per tick, or per order
_ROUNDS = 4  # of weights
_AWAY = np.arange(1, EDGES[-1])
_BAND = band_of(_AWAY)
_CELLS = (BANDS, len(QUEUES))


class Rates(NamedTuple):
    """Per tick and event."""

    limit: np.ndarray  # float64 [band, queue], limit orders
    cancel: np.ndarray  # float64 [band, queue], cancellations
    market: np.ndarray  # float64 [queue], market orders against a best price


class Queues:
    """Which class the queue at a tick is of."""

    def __init__(self, table: FlowTable) -> None:
        """Take the size of all orders from a table in which they have one."""
        size = table.limit_size[0, LASTING, :, 0]
        self.size_away = size[np.array(GROUPS)[_BAND]]  # int64 [256], of orders at each distance, from 1 on
        self._class = np.searchsorted(QUEUES, np.arange(QUEUES[-1] + 1), side="right") - 1

    def orders(self, units: np.ndarray) -> np.ndarray:
        """Return how many orders units are, rounded up, at distances from 1 on; `units` is int64 `[256]`."""
        return -(-units // self.size_away)

    def classes(self, units: np.ndarray) -> np.ndarray:
        """Return the classes."""
        return self._class[np.minimum(self.orders(units), QUEUES[-1])]


def away_from(units: np.ndarray, best: int, way: int) -> np.ndarray:
    """Return what rests 1, 2, ... ticks from a price, upwards or downwards (way -1); 0 beyond the grid."""
    ticks = best + way * _AWAY
    inside = (ticks >= 0) & (ticks < len(units))
    return np.where(inside, units[np.clip(ticks, 0, len(units) - 1)], 0)


class _Counted(NamedTuple):
    """What n events found, both sides together, and of which kind they were."""

    ticks: np.ndarray  # int16 [n, bands * queues], ticks of each cell before the event
    orders: np.ndarray  # int32 [n, bands], that rest there
    best: np.ndarray  # int8 [n, queues], best prices
    came: np.ndarray  # int64 [band, queue], limit orders
    went: np.ndarray  # int64 [band, queue], cancellations
    hit: np.ndarray  # int64 [queue], market orders


def _count(events: OrderEvents, queues: Queues) -> _Counted:
    """Replay the book, and look at it before each event that the flow's fit counts."""
    seen, trades = look(events), set(market_orders(events).event.tolist())
    low, high = int(events.price.min()), int(events.price.max())
    book = np.zeros((2, high - low + 1), np.int64)
    rows: list[tuple[np.ndarray, ...]] = []
    found, hit = np.zeros((2, *_CELLS), np.int64), np.zeros(len(QUEUES), np.int64)
    columns = (
        events.kind,
        (events.side != BID).astype(int),
        events.price - low,
        events.size,
        seen.near,
        seen.best - low,
    )
    for i, (kind, side, price, size, near, best) in enumerate(zip(*(x.tolist() for x in columns), strict=True)):
        if near and (kind != EXECUTE or i in trades):
            units = [away_from(book[one], best[1 - one], 1 if one else -1) for one in (0, 1)]
            classes = [queues.classes(one) for one in units]
            here = [one[min(best[1] - best[0], len(_AWAY)) - 1] for one in classes]
            cells = np.concatenate([_BAND * len(QUEUES) + one for one in classes])
            orders = queues.orders(units[0]) + queues.orders(units[1])
            rows.append((np.bincount(cells, minlength=found[0].size).astype(np.int16),
                         np.bincount(_BAND, orders, BANDS).astype(np.int32),
                         np.bincount(here, minlength=len(QUEUES)).astype(np.int8)))  # fmt: skip
            away = abs(best[1 - side] - price)
            if kind == EXECUTE:
                hit[here[side]] += 1
            elif 1 <= away <= len(_AWAY):
                found[int(kind != ADD), _BAND[away - 1], classes[side][away - 1]] += 1
        book[side, price] += size if kind == ADD else -size
    return _Counted(*map(np.array, zip(*rows, strict=True)), *found, hit)


def fit(events: OrderEvents, table: FlowTable) -> Rates:
    """Count events over exposures in events, weighed as the flow's own are (`kineticsim_env.flow.lives`).

    Args:
        events: In the table's lots.
        table: With one size of orders, which is the unit of queues.
    """
    seen = _count(events, Queues(table))
    weight = np.ones(len(seen.ticks))
    for _ in range(_ROUNDS):
        ticks, best = (weight @ seen.ticks).reshape(_CELLS), weight @ seen.best
        of_band = seen.came.sum(1) / ticks.sum(1)
        of_order = seen.went.sum(1) / (weight @ seen.orders)
        of_best = seen.hit.sum() / best.sum()
        limit = _shrunk(seen.came, ticks, of_band[:, None])
        cancel = _shrunk(seen.went, ticks, np.maximum(of_order[:, None] * QUEUES, 1e-12))
        cancel[:, 0] = 0  # of no order
        market = _shrunk(seen.hit, best, of_best)
        weight = 1 / (seen.ticks @ (limit + cancel).ravel() + seen.best @ market)
    return Rates(limit, cancel, market)


def _shrunk(events: np.ndarray, exposure: np.ndarray, mean: Any) -> np.ndarray:
    """Return rates that have some events more, as their mean has them."""
    return (events + _PSEUDO) / (exposure + _PSEUDO / mean)


class QueueReactive(FlowMarket):
    """A market whose choices are by queues; its book, its words and its clock are the flow's."""

    def __init__(self, table: FlowTable, rates: Rates, seed: int, levels: int = 512) -> None:
        """Open the book as the flow does."""
        self._rates, self._queues = rates, Queues(table)
        super().__init__(table, seed, levels, 32, 16, levels // 2)

    def _take_choice(self, best: Any, choice: int, word: int) -> int:
        weights = []
        for side in (0, 1):
            units = away_from(self.units[side].sum(0), best[1 - side], 1 if side else -1)
            classes = self._queues.classes(units)
            here = classes[min(max(best.ask - best.bid, 1), EDGES[-1] - 1) - 1]
            weights += [
                self._rates.market[here : here + 1],
                self._rates.limit[_BAND, classes],
                self._rates.cancel[_BAND, classes],
            ]
        cumulated = np.cumsum(np.concatenate(weights))
        place = int(np.searchsorted(cumulated, choice / 2**64 * cumulated[-1], side="right"))
        side, place = divmod(min(place, len(cumulated) - 1), 1 + 2 * len(_AWAY))
        if place == 0:
            self.last_trade = 1 if side else -1
            return self.trade(side, int(self.table.market_size[0]))
        cancels, away = divmod(place - 1, len(_AWAY))
        away += 1
        tick = best.bid + away if side else best.ask - away
        if not 0 <= tick < self.levels:
            return 0
        if not cancels:
            self._add(side, tick, LASTING, self._of(side, LASTING, away)[0])
        elif self._number[side] != 1 and self.count[side, LASTING, tick]:
            self._cancel_order(side, tick, LASTING, 0, best)
        return 0


def simulate(table: FlowTable, rates: Rates, events: int, seed: int) -> OrderEvents:
    """Play one market, and return what happened to its orders."""
    market = QueueReactive(table, rates, seed)
    for first in range(0, events, 4096):
        market.play(min(4096, events - first))
    return market.events()
