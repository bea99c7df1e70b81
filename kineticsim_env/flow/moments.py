"""What scores of single events do not see: how the mid varies, and whether events and trades come in clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kineticsim_env.data.books import replay
from kineticsim_env.data.events import EXECUTE, OrderEvents

_SECOND = 10**9


class MarketOrders(NamedTuple):
    """Market orders: executions of one time and side are one."""

    event: np.ndarray  # int64 [k], the first of its executions
    way: np.ndarray  # int64 [k], 1 of those that buy, -1
    size: np.ndarray  # int64 [k], lots


def market_orders(events: OrderEvents) -> MarketOrders:
    """Group executions."""
    rows = np.flatnonzero(events.kind == EXECUTE)
    new = np.ones(len(rows), bool)
    new[1:] = (np.diff(events.time[rows]) != 0) | (np.diff(events.side[rows]) != 0)
    first = np.flatnonzero(new)
    size = np.add.reduceat(events.size[rows], first) if len(first) else np.zeros(0, np.int64)
    return MarketOrders(rows[first], -events.side[rows[first]].astype(np.int64), size)


def mid_variance(events: OrderEvents, seconds: float) -> float:
    """Return the variance of the mid over so many seconds, per second, square ticks; NaN of less than two.

    Where a side is empty the mid is the last one that there was; a session counts from its first one on.
    """
    changes = [np.zeros(0)]
    for (first, last), time, mid in _mids(events):
        times = np.arange(first, last + 1, int(seconds * _SECOND))
        times = times[times >= time[0]]
        changes.append(np.diff(mid[np.searchsorted(time, times, side="right") - 1]))
    joined = np.concatenate(changes)
    return float(joined.var() / seconds) if len(joined) > 1 else float("nan")


def mid_drift(events: OrderEvents) -> float:
    """Return how far the mid goes up per second, ticks, from the first one of each session to the last."""
    total = 0.0
    for (first, _), time, mid in _mids(events):
        begin = np.searchsorted(time, max(first, time[0]), side="right") - 1
        total += float(mid[-1] - mid[begin])
    return total / float(np.diff(events.sessions, axis=1).sum() / _SECOND)


def _mids(events: OrderEvents) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield each session that has a mid: its span, the times of events that both sides have a price after, the mid."""
    books = replay(events, 1)
    there = np.flatnonzero(books.both)
    time, mid = events.time[there], books.mid2[there] / 2
    for span in events.sessions:
        mine = slice(*np.searchsorted(time, (span[0], span[1] + 1)))
        if len(time[mine]):
            yield span, time[mine], mid[mine]


def event_rate(events: OrderEvents) -> float:
    """Return the events per second, without openings."""
    return float((~events.opening).sum() / (np.diff(events.sessions, axis=1).sum() / _SECOND))


def fano_factor(events: OrderEvents) -> float:
    """Return the variance of the number of events in a second over its mean: 1 where they come independently."""
    counts = [np.zeros(0, np.int64)]
    for first, last in events.sessions:
        whole = (last - first) // _SECOND
        mine = events.time[(events.time >= first) & (events.time < first + whole * _SECOND) & ~events.opening]
        counts.append(np.bincount((mine - first) // _SECOND, minlength=whole))
    joined = np.concatenate(counts)
    return float(joined.var() / joined.mean()) if joined.sum() else float("nan")


def trade_sign_correlation(events: OrderEvents) -> float:
    """Return the mean product of the signs of successive market orders; executions of one time and side are one."""
    sign = market_orders(events).way
    return float((sign[1:] * sign[:-1]).mean()) if len(sign) > 1 else float("nan")


MOMENTS = {
    "events per second": event_rate,
    "Fano factor of counts, 1 s": fano_factor,
    "sign correlation of trades": trade_sign_correlation,
    "mid drift per second": mid_drift,
    **{
        f"mid variance, {seconds} s": lambda events, seconds=seconds: mid_variance(events, seconds)
        for seconds in (1, 10, 60)
    },
}
