"""What the fit of an order flow knows of jumps: stretches in which the mid moves, and who leaves before it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kineticsim_env.data.books import NO_PRICE
from kineticsim_env.data.events import DELETE, EXECUTE
from kineticsim_env.flow.lives import Seen
from kineticsim_env.flow.moments import MarketOrders, market_orders

_QUIET = 100  # events without a change of the mid, after which the next one is another jump's
_AFTER_TRADE = 8  # a jump that begins within so many events of a market order begins with it


class Jumps(NamedTuple):
    """Jumps, of one tick at least."""

    first: np.ndarray  # int64 [j], events
    last: np.ndarray  # int64 [j]
    size: np.ndarray  # float64 [j], ticks, below 0 of those that go down
    with_trade: np.ndarray  # bool [j], whether it begins with a market order
    fled: np.ndarray  # bool [n], events by which orders in the way of a jump left, but for the trade it began with
    traded: float  # the share of those that were executions

    @property
    def alone(self) -> int:
        """How many begin without a market order."""
        return int((~self.with_trade).sum())

    @property
    def same(self) -> float:
        """The share that goes the way of the one before; a half of one jump."""
        way = np.sign(self.size)
        return float((way[1:] == way[:-1]).mean()) if len(way) > 1 else 0.5


def find(seen: Seen) -> tuple[MarketOrders, Jumps]:
    """Return jumps, and market orders but for those by which orders in the way of a jump went."""
    orders = market_orders(seen.events)
    jumps = find_jumps(seen, orders)
    own = ~jumps.fled[orders.event]
    return MarketOrders(*(x[own] for x in orders)), jumps


def find_jumps(seen: Seen, orders: MarketOrders) -> Jumps:
    """Find where the mid moves: changes with less than 100 quiet events between them, in a session, are one jump."""
    best, after, session = _prices(seen)
    moves = after.sum(1) - best.sum(1)
    changes = np.flatnonzero((moves != 0) & ~seen.events.opening)
    new = (np.diff(changes) > _QUIET) | (np.diff(session[changes]) != 0)
    parts = np.split(changes, np.flatnonzero(new) + 1) if len(changes) else []
    first, last = (np.array([part[end] for part in parts], np.int64) for end in (0, -1))
    size = (after[last].sum(1) - best[first].sum(1)) / 2
    first, last, size = (x[abs(size) >= 1] for x in (first, last, size))
    counted = np.cumsum(seen.near)
    latest = np.searchsorted(orders.event, first, side="right") - 1
    since = counted[first] - counted[orders.event[np.maximum(latest, 0)]] if len(orders.event) else first
    with_trade = (latest >= 0) & (since <= _AFTER_TRADE) & (len(orders.event) > 0)
    fled, kinds, prices = np.zeros(len(seen.events), bool), seen.events.kind, seen.events.price
    for begin, end, ticks in zip(first.tolist(), last.tolist(), size.tolist(), strict=True):
        side = int(ticks > 0)
        part, limit = slice(begin, end + 1), best[begin, side] + ticks
        in_the_way = prices[part] < limit if side else prices[part] > limit
        ours = seen.events.side[part] == (-1 if side else 1)
        gone = (kinds[part] == DELETE) | (
            (kinds[part] == EXECUTE) & (seen.events.time[part] != seen.events.time[begin])
        )
        fled[part] |= in_the_way & ours & gone
    traded = float((kinds[fled] == EXECUTE).mean()) if fled.any() else 0.0
    return Jumps(first, last, size, with_trade, fled, traded)


def _prices(seen: Seen) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return best prices before and after each event, and its session.

    While a side is empty they are those before it was; 0 where the session has had none.
    """
    session = np.searchsorted(seen.events.sessions[:, 0], seen.events.time, side="right")
    here, there = ((abs(prices) < NO_PRICE).all(1) for prices in (seen.best, seen.after))
    latest = np.maximum.accumulate(np.where(there, np.arange(len(there)), 0))
    earlier = np.r_[0, latest[:-1]]
    best = np.where(here[:, None], seen.best, seen.after[earlier])
    began, ended = (there[event] & (session[event] == session) for event in (earlier, latest))
    known = ((here | began) & ended)[:, None]
    return best * known, seen.after[latest] * known, session
