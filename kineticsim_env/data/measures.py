"""What order events are scored by: each function returns one score's numbers, of a session's events, orders or seconds.

They are the scores of LOB-Bench (Nagy et al. 2025, arXiv 2502.09172), and `log_limit_size`, which is ours. Prices are
in ticks and sizes in lots; what the opening adds is part of the book, and no event.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kineticsim_env.data.books import Books, follow_orders, replay, select
from kineticsim_env.data.events import ADD, ASK, BID, DELETE, EXECUTE, REDUCE, OrderEvents

LEVELS = 10  # of a book
WINDOW = 100  # events that order-flow imbalance is a mean of
CANCELLED = (REDUCE, DELETE)
SECOND = 10**9  # in nanoseconds


class Session(NamedTuple):
    """What one session showed, n events."""

    events: OrderEvents
    books: Books  # after each event
    added: np.ndarray  # int64 [n], the event that added the order
    first: int  # event after the opening

    def where(self, kinds: tuple[int, ...], side: int | None = None) -> np.ndarray:
        """Return the numbers of events after the opening, of some kinds and one side or both."""
        chosen = np.isin(self.events.kind, kinds) & (np.arange(len(self.events)) >= self.first)
        return np.flatnonzero(chosen if side is None else chosen & (self.events.side == side))


Measure = Callable[[Session], np.ndarray]


def sessions_of(events: OrderEvents) -> Iterator[Session]:
    """Replay events, and yield what each session showed."""
    books, orders = replay(events, LEVELS), follow_orders(events)
    ends = np.searchsorted(orders.session, np.arange(len(events.sessions) + 1))
    for number, (begin, end) in enumerate(zip(ends[:-1], ends[1:], strict=True)):
        one = select(events, slice(begin, end), events.sessions[[number]])
        opening = np.flatnonzero(one.opening)
        book = Books(books.prices[begin:end], books.sizes[begin:end])
        yield Session(one, book, orders.added[begin:end] - begin, int(opening[-1]) + 1 if len(opening) else 0)


def shown_by(name: str, events: OrderEvents) -> list[Session]:
    """Return what the sessions of an argument showed, whose name errors have."""
    try:
        return list(sessions_of(events))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def spread(of: Session) -> np.ndarray:
    """Best ask less best bid after each event, ticks."""
    return of.books.spread[of.first :][of.books.both[of.first :]]


def imbalance(of: Session) -> np.ndarray:
    """Of the lots at the best prices after each event: (bid - ask) / (bid + ask)."""
    bid, ask = of.books.sizes[of.first :, :, 0].T
    return ((bid - ask) / np.maximum(bid + ask, 1))[bid + ask > 0]


def log_inter_arrival_time(of: Session) -> np.ndarray:
    """Log of the seconds from one event to the next; at least a nanosecond."""
    return _log_seconds(np.diff(of.events.time[of.first :]))


def log_time_to_cancel(of: Session) -> np.ndarray:
    """Log of the seconds from an order's coming to its first cancellation, of a part or all; at least a nanosecond."""
    cancelled = of.where(CANCELLED)
    added, first = np.unique(of.added[cancelled], return_index=True)
    known = ~of.events.opening[added]  # of the others nobody knows when they came
    return _log_seconds(of.events.time[cancelled[first]][known] - of.events.time[added[known]])


def _volume(of: Session, side: int, levels: int) -> np.ndarray:
    """Lots in the best levels of a side after each event."""
    return of.books.sizes[of.first :, _column(side), :levels].sum(1)


def _depth(of: Session, side: int, kinds: tuple[int, ...]) -> np.ndarray:
    """Ticks from the mid, as it is after the event, to the price of each order that comes or is cancelled."""
    events = of.where(kinds, side)
    events = events[of.books.both[events]]
    return abs(of.events.price[events] - of.books.mid2[events] / 2)


def _level(of: Session, side: int, kinds: tuple[int, ...]) -> np.ndarray:
    """The level, 1 to 10, of each order that comes, or before it is cancelled; without those further away."""
    events = of.where(kinds, side)
    there = of.books.prices[events - (ADD not in kinds), _column(side)] == of.events.price[events, None]
    return there.argmax(1)[there.any(1)] + 1


def log_limit_size(of: Session) -> np.ndarray:
    """Log of the lots of each limit order."""
    return np.log(of.events.size[of.where((ADD,))])


def log_volume_per_minute(of: Session) -> np.ndarray:
    """Log of 60 times the lots traded, of each second of the session in which there are any."""
    trades = of.where((EXECUTE,))
    second = (of.events.time[trades] - of.events.sessions[0, 0]) // SECOND
    return np.log(60 * np.bincount(np.unique(second, return_inverse=True)[1], of.events.size[trades]))


def order_flow_imbalance(of: Session) -> np.ndarray:
    """Mean over 100 events of what each adds to the best bid less what it adds to the best ask, lots.

    Cont, Kukanov and Stoikov (2014): a better price counts with all its lots, a worse one with all that went.
    """
    begin = max(of.first, 1) - 1
    price, size = of.books.prices[begin:, :, 0] * [BID, ASK], of.books.sizes[begin:, :, 0]
    change = np.diff(price, axis=0)  # above 0 where a side's price becomes better
    flow = np.where(change >= 0, size[1:], 0) - np.where(change <= 0, size[:-1], 0)
    total = np.cumsum(np.r_[0, flow[:, 0] - flow[:, 1]])
    return (total[WINDOW:] - total[:-WINDOW]) / WINDOW


def _before_move(of: Session, move: int) -> np.ndarray:
    """Order-flow imbalance of the 100 events before each that raises the mid (1), leaves it (0) or lowers it (-1)."""
    flow, last = order_flow_imbalance(of), max(of.first, 1) + WINDOW - 1  # the event that its first number ends with
    mid, both = of.books.mid2[last:], of.books.both[last:]
    return flow[:-1][(np.sign(np.diff(mid)) == move) & both[1:] & both[:-1]]


def _column(side: int) -> int:
    return int(side != BID)


def _log_seconds(nanoseconds: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(nanoseconds, 1) / SECOND)


def _both(name: str, measure: Callable[..., np.ndarray], **what: Any) -> dict[str, Measure]:
    sides = (("bid", BID), ("ask", ASK))
    return {f"{word}_{name}": functools.partial(measure, side=side, **what) for word, side in sides}


SCORES: dict[str, Measure] = {
    "spread": spread,
    "imbalance": imbalance,
    "log_inter_arrival_time": log_inter_arrival_time,
    "log_time_to_cancel": log_time_to_cancel,
    **_both("volume_touch", _volume, levels=1),
    **_both("volume", _volume, levels=LEVELS),
    **_both("limit_depth", _depth, kinds=(ADD,)),
    **_both("cancel_depth", _depth, kinds=CANCELLED),
    **_both("limit_level", _level, kinds=(ADD,)),
    **_both("cancel_level", _level, kinds=CANCELLED),
    "log_limit_size": log_limit_size,
    "log_volume_per_minute": log_volume_per_minute,
    "order_flow_imbalance": order_flow_imbalance,
}
FURTHER: dict[str, Measure] = {  # LOB-Bench has them too, so its 21 are all of these but `log_limit_size`
    f"order_flow_imbalance before {name}": functools.partial(_before_move, move=move)
    for name, move in (("a rise", 1), ("no move", 0), ("a fall", -1))
}
DISCRETE = frozenset(name for name in SCORES if name == "spread" or name.endswith("level"))  # each number is a bin

_OF_SECONDS = ("log_inter_arrival_time", "log_time_to_cancel", "log_volume_per_minute")
WITHOUT_SECONDS = tuple(name for name in SCORES if name not in _OF_SECONDS)  # which an interval has none of


def values_of(name: str, sample: Sequence[Session]) -> np.ndarray:
    """Return the numbers of one of `SCORES` or `FURTHER`, of all sessions one after the other."""
    measure = (SCORES | FURTHER)[name]
    return np.concatenate([np.empty(0), *map(measure, sample)])
