"""`fit`: the table of an order flow, of order events. Users call it as `OrderFlow.fit`."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, NamedTuple

import numpy as np

from kineticsim_env.data.books import in_lots
from kineticsim_env.data.events import ADD, EXECUTE, OrderEvents
from kineticsim_env.flow.clock import fit_clock
from kineticsim_env.flow.jumps import Jumps, find
from kineticsim_env.flow.lives import Lives, Seen, fit_lives, look
from kineticsim_env.flow.moments import MarketOrders, market_orders, mid_variance
from kineticsim_env.flow.simulating import simulate
from kineticsim_env.runtime.flow_table import EDGES, FIELDS, GROUPS, HAZARD, SHARE, SIZES, UNIT, FlowTable
from kineticsim_env.runtime.values import check_flag, check_instance, check_progress

JUMP_EVENTS = 96
_SPANS = (10, 20, 60)  # seconds over which the mid's variance is the data's
_ROUNDS, _MARKETS, _EVENTS = 2, 8, 20_000  # that are played for jumps
_FEW_EVENTS, _FEW_JUMPS = 20_000, 50
_FEWEST, _MOST_FAR = 1000, 0.2


def fit(events: OrderEvents, *, lot: float | None, symmetric: bool, progress: bool | None) -> FlowTable:
    """Fit a table; arguments and errors are those of `OrderFlow.fit`."""
    check_instance("events", events, OrderEvents)
    symmetric, progress = check_flag("symmetric", symmetric), check_progress(progress)
    lots = in_lots(events, lot_of(events) if lot is None else lot)
    seen = look(lots)
    orders, jumps = find(seen)
    _check(seen, orders)
    _warn(seen, jumps)
    lives = fit_lives(seen, jumps.fled, len(orders.size), symmetric)
    gaps, before = _gaps(seen, orders)
    if not gaps.any():
        raise ValueError("events: expected times that differ within a session, got one time for all events of each")
    gap, follow = fit_clock(gaps, before)
    counted = int(seen.near.sum())
    cumulated = whole(np.cumsum(follow, axis=2), SHARE)
    cumulated[..., -1] = SHARE
    found = {
        "limit": whole(lives.limit, UNIT),
        "cancel": whole(lives.cancel, UNIT),
        "market": whole(lives.market, UNIT),
        "market_same": whole(_same(orders.way), SHARE),
        "limit_size": _limit_sizes(seen, lives, symmetric),
        "market_size": size_classes(orders.size, np.ones(len(orders.size))),
        "fleeting": whole(lives.fleeting, SHARE),
        "resting": whole(lives.resting, SHARE),
        "jump_hazard": whole(jumps.alone / counted, HAZARD),
        "jump_after_trade": whole(jumps.with_trade.sum() / len(orders.size), SHARE),
        "jump_same": whole(jumps.same, SHARE),
        "jump_traded": whole(jumps.traded, SHARE),
        "jump_events": JUMP_EVENTS,
        "jump_size": size_classes(abs(jumps.size), np.ones(len(jumps.size))),
        "gap": whole(gap * np.log(2), 1),
        "follow": cumulated,
    }
    made: dict[str, Any] = {name: np.clip(found[name], low, high) for name, (_, low, high) in FIELDS.items()}
    about = {"events": counted, "market_orders": len(orders.size), "jumps": len(jumps.size)}
    table = FlowTable(**made, tick=lots.tick, lot=lots.lot, about=about)
    return with_jumps_as_seen(table, lots, progress) if len(jumps.size) else table


def whole(values: Any, unit: int) -> np.ndarray:
    """Return numbers in a unit, int64."""
    return np.rint(np.asarray(values) * unit).astype(np.int64)


def lot_of(events: OrderEvents) -> float:
    """Return the largest power of ten, in lots of the events, that is a fifth of the median limit order; 1 at least."""
    sizes = events.size[(events.kind == ADD) & ~events.opening]
    fifth = max(float(np.median(sizes)) / 5, 1) if len(sizes) else 1
    return float(f"{events.lot * 10 ** int(np.floor(np.log10(fifth))):.12g}")


def size_classes(sizes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return 16 sizes, each as likely: medians of sixteenths, and a last one by which the mean is the data's."""
    if not len(sizes) or weights.sum() <= 0:
        return np.ones(SIZES, np.int64)
    found = sixteenths(sizes, weights).astype(np.float64)
    found[-1] = SIZES * (sizes * weights).sum() / weights.sum() - found[:-1].sum()
    return np.clip(np.rint(found), 1, 2**20 - 1).astype(np.int64)


def sixteenths(sizes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the medians of sixteenths of sizes by weight, int64 `[16]`."""
    order = np.argsort(sizes, kind="stable")
    total = np.cumsum(weights[order])
    places = np.searchsorted(total, (np.arange(SIZES) + 0.5) / SIZES * total[-1])
    return sizes[order][np.minimum(places, len(sizes) - 1)]


def _limit_sizes(seen: Seen, lives: Lives, symmetric: bool) -> np.ndarray:
    """Return sizes by side, life and group of bands."""
    size, group = seen.events.size[seen.came], np.array(GROUPS)[seen.band]
    found = []
    for side in (0, 1):
        for weight in (lives.is_fleeting, 1 - lives.is_fleeting):
            for number in range(max(GROUPS) + 1):
                mine = seen.arrived & (group == number) & (symmetric | (seen.side == side))
                found.append(size_classes(size[mine], weight[mine]))
    return np.array(found).reshape(2, 2, max(GROUPS) + 1, SIZES)


def _same(way: np.ndarray) -> float:
    return float((way[1:] == way[:-1]).mean()) if len(way) > 1 else 0.5


def _gaps(seen: Seen, orders: MarketOrders) -> tuple[np.ndarray, np.ndarray]:
    """Return gaps between events that count, and what the event before each did. A market order is one event."""
    executed = seen.events.kind == EXECUTE
    after = np.where(executed, 2, (seen.best != seen.after).any(1)).astype(np.int64)
    counts = seen.near.copy()
    counts[executed] = False
    counts[orders.event] = True
    rows = np.flatnonzero(counts)
    session = np.searchsorted(seen.events.sessions[:, 0], seen.events.time[rows], side="right")
    together = np.flatnonzero(session[1:] == session[:-1])
    return np.diff(seen.events.time[rows])[together], after[rows[:-1]][together]


def with_jumps_as_seen(table: FlowTable, events: OrderEvents, progress: bool | None) -> FlowTable:
    """Return the table with jumps such that the mid of its markets varies, and orders trade, as much as the data's.

    The mid goes less far than a jump, and whatever flees in the markets was not seen to in the data: so the sizes of
    jumps, and the share of flights that trade, are scaled until what is seen of markets is what is seen of data, as in
    indirect inference (Gourieroux, Monfort and Renault 1993).
    """
    wanted, alone = seen_of_jumps(events), table.market / UNIT
    for _ in range(_ROUNDS):
        played = [seen_of_jumps(simulate(table, _EVENTS, seed, progress=progress)) for seed in range(_MARKETS)]
        varies = _ratio(wanted.varies, [one.varies for one in played])
        flights = _ratio(wanted.trades - alone, [one.trades - alone for one in played])
        table = dataclasses.replace(
            table,
            jump_traded=min(int(table.jump_traded * flights), SHARE),
            jump_size=np.clip(np.rint(table.jump_size * np.sqrt(varies)), 1, 2**15).astype(np.int64),
        )
    return table


class SeenOfJumps(NamedTuple):
    """What is seen of jumps."""

    varies: float  # the mid's variance per second over 10 to 60 seconds
    trades: float  # market orders per event, those in jumps too


def seen_of_jumps(events: OrderEvents) -> SeenOfJumps:
    """Return what is seen of jumps in events."""
    seen = look(events)
    varies = _mean([mid_variance(events, seconds) for seconds in _SPANS])
    return SeenOfJumps(varies, len(market_orders(events).size) / max(int(seen.near.sum()), 1))


def _mean(values: list[float]) -> float:
    """Return the mean of those that are not NaN; NaN of none."""
    there = [value for value in values if not np.isnan(value)]
    return sum(there) / len(there) if there else float("nan")


def _ratio(wanted: float, played: list[float]) -> float:
    """Return what a number is to be multiplied by, a quarter to four; 1 where that cannot be said."""
    found = wanted / max(_mean(played), 1e-12)
    return float(np.clip(found, 0.25, 4)) if np.isfinite(found) else 1.0


def _check(seen: Seen, orders: MarketOrders) -> None:
    counted = int(seen.near.sum())
    if counted < _FEWEST:
        raise ValueError(f"events: expected {_FEWEST} within {EDGES[-1] - 1} ticks of the best prices, got {counted}")
    if not len(orders.size):
        raise ValueError("events: expected executions, got none: are trades in another file?")
    if not seen.cancelled.any():
        raise ValueError("events: expected cancellations (DELETE), got none")
    crossed = ~seen.events.opening & (seen.best[:, 1] <= seen.best[:, 0])
    if crossed.any():
        raise ValueError(
            f"events: expected bids below asks, got a crossed book at {crossed.sum()} events, first at event "
            f"{int(crossed.argmax())}; read_orders cleans"
        )


def _warn(seen: Seen, jumps: Jumps) -> None:
    counted = int(seen.near.sum())
    if counted < _FEW_EVENTS or len(jumps.size) < _FEW_JUMPS:
        warnings.warn(
            f"OrderFlow.fit: {counted} events and {len(jumps.size)} jumps are few: the flow may be far from the "
            f"day's; take {_FEW_EVENTS} events and {_FEW_JUMPS} jumps at least, better a day",
            stacklevel=4,
        )
    came = int(((seen.events.kind == ADD) & ~seen.events.opening).sum())
    far = 1 - int(seen.arrived.sum()) / max(came, 1)
    if far > _MOST_FAR:
        warnings.warn(
            f"OrderFlow.fit: {far:.0%} of limit orders came more than {EDGES[-1] - 1} ticks from the other side's best "
            "price, and are left out: is the tick too small, or the spread that wide?",
            stacklevel=4,
        )
