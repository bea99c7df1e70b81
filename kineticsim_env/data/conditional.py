"""Scores of order events under conditions, and what events do to the mid."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kineticsim_env.data.distances import distances
from kineticsim_env.data.events import ADD, BID, EXECUTE
from kineticsim_env.data.measures import SECOND, Session

_TOGETHER = 500  # events over which volatility is measured
_PARTS = 10  # of a session, of volatilities, and of spreads
_MOST = 100  # different spreads that are told apart one by one
LAGS = (1, 2, 5, 10, 20, 50, 100, 200)  # events after which a response is measured
KINDS = tuple(f"{kind}, mid {moves}" for kind in ("market", "limit", "cancel") for moves in ("stays", "moves"))


def _touch_by_spread(of: Session) -> tuple[np.ndarray, np.ndarray]:
    """Lots at the best ask after each event, by the spread."""
    seen = of.books.both[of.first :]
    return of.books.sizes[of.first :, 1, 0][seen], of.books.spread[of.first :][seen]


def _spread_by_time(of: Session) -> tuple[np.ndarray, np.ndarray]:
    """The spread after each event, by the tenth of the session."""
    seen = of.books.both[of.first :]
    begin, end = of.events.sessions[0]
    part = (of.events.time[of.first :][seen] - begin) / max(end - begin, 1) * _PARTS
    return of.books.spread[of.first :][seen], np.minimum(part.astype(np.int64), _PARTS - 1)


def _spread_by_volatility(of: Session) -> tuple[np.ndarray, np.ndarray]:
    """The spread after each event, by the mid's variance per second over the 500 events it is among."""
    seen = np.flatnonzero(of.books.both[of.first :]) + of.first
    block = np.arange(len(seen)) // _TOGETHER
    moves = np.diff(of.books.mid2[seen], prepend=of.books.mid2[seen[:1]]) / 2
    time = of.events.time[seen]
    first = np.arange(0, len(seen), _TOGETHER)
    last = np.minimum(first + _TOGETHER, len(seen)) - 1
    lasted = np.maximum(time[last] - time[first], 1) / SECOND
    return of.books.spread[seen], (np.bincount(block, moves**2) / lasted)[block]


# What is measured, with the numbers that it is told apart by; whether these are parted at the tenths of both samples.
CONDITIONAL: dict[str, tuple[Callable[[Session], tuple[np.ndarray, np.ndarray]], bool]] = {
    "ask_volume_touch by spread": (_touch_by_spread, False),
    "spread by time": (_spread_by_time, False),
    "spread by volatility": (_spread_by_volatility, True),
}


def conditional_distances(
    name: str, real: Sequence[Session], simulated: Sequence[Session], resamples: int, generator: np.random.Generator
) -> np.ndarray:
    """Return the distances of a score under each condition, in the mean over the events of both samples.

    Where only one sample has a condition L1 is 1, and Wasserstein-1 is left out. Arguments and what is returned are
    those of `distances`.
    """
    measure, parted = CONDITIONAL[name]
    values, given = [], []
    for sample in (real, simulated):
        found = [measure(session) for session in sample]
        values.append(np.concatenate([np.empty(0), *(value for value, _ in found)]))
        given.append(np.concatenate([np.empty(0), *(condition for _, condition in found)]))
    both = np.concatenate(given)
    if len(both) and (parted or len(np.unique(both)) > _MOST):
        ends = np.quantile(both, np.arange(1, _PARTS) / _PARTS)
        given = [np.searchsorted(ends, condition, side="right") for condition in given]
    total, weight = np.zeros((2, 1 + resamples)), np.zeros((2, 1))
    for condition in np.unique(np.concatenate(given)):
        one, other = (value[own == condition] for value, own in zip(values, given, strict=True))
        found = distances(one, other, measure is not _touch_by_spread, resamples, generator)
        known = ~np.isnan(found[:, :1]) * (len(one) + len(other))
        total, weight = total + known * np.nan_to_num(found), weight + known
    return np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0)


def responses(sessions: Sequence[Session]) -> dict[str, np.ndarray]:
    """Return how the mid moves after events at the best prices: R(l) of six kinds of event and `LAGS`.

    R(l) is the mean of s * (m(t + l) - m(t)), in ticks (Eisler, Bouchaud and Kockelkoren 2012): m(t) is the mid before
    an event, m(t + l) after it and l - 1 more, and s the direction in which it pushes: of a purchase, a bid that comes
    or an ask that is cancelled 1, of their opposites -1. Executions of one time and side are one event. A kind is told
    apart by whether the event moves the mid itself.

    Returns:
        By `KINDS`, float64 `[8]`; NaN without such an event.
    """
    total, count = np.zeros((len(KINDS), len(LAGS))), np.zeros((len(KINDS), len(LAGS)), np.int64)
    for of in sessions:
        events, rows = of.events, np.arange(max(of.first, 1), len(of.events))
        same = (events.kind[rows] == EXECUTE) & (np.diff(events.kind, append=-1)[rows] == 0)
        for name in ("time", "side"):
            same &= np.diff(getattr(events, name), append=-1)[rows] == 0
        rows = rows[~same]  # the last of the executions of an order that came
        if not len(rows):
            continue
        after = np.concatenate([[max(of.first, 1) - 1], rows])  # and before the next of them
        before, mid = after[:-1], of.books.mid2[after] / 2
        mid[~of.books.both[after]] = np.nan
        kind, side = events.kind[rows], events.side[rows].astype(np.int64)
        best = of.books.prices[before, np.where(side == BID, 0, 1), 0]
        push = np.where(kind == ADD, side, -side)
        group = 2 * np.select([kind == EXECUTE, kind == ADD], [0, 1], 2) + (mid[1:] != mid[:-1])
        chosen = (side * (events.price[rows] - best) >= 0) | (kind == EXECUTE)
        for place, lag in enumerate(LAGS):
            moved = mid[lag:] - mid[: max(len(mid) - lag, 0)]
            known = chosen[: len(moved)] & ~np.isnan(moved)
            of_kind, pushed = group[: len(moved)][known], (push[: len(moved)] * moved)[known]
            total[:, place] += np.bincount(of_kind, pushed, len(KINDS))
            count[:, place] += np.bincount(of_kind, minlength=len(KINDS))
    means = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return dict(zip(KINDS, means, strict=True))
