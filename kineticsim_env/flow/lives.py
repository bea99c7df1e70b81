"""What the fit of an order flow knows of orders: where they stood while they lived, and of which life each is.

Time is counted in events here, each weighed by one over the flow's total rate as it came: then rates are counts over
exposures, and are those of the most likely choices (the MM algorithm of Hunter 2004 for Luce's model of choice).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kineticsim_env.data.books import follow_orders, replay
from kineticsim_env.data.events import ADD, BID, DELETE, REDUCE, OrderEvents
from kineticsim_env.runtime.flow_table import BANDS, EDGES, SPREADS, band_of

_PSEUDO = 3  # cancellations that each rate has beside the data's, at the mean rate of its life
_PSEUDO_SHARE = 2  # limit orders likewise
_FIRST_GUESS = np.array([0.02, 0.0005])  # cancellations per event, of fleeting and lasting orders
_ROUNDS, _STEPS = 4, 12  # of weights, and of expectation and maximisation in each


class Seen(NamedTuple):
    """Order events as the fit sees them: n events, and N orders within the last band when they came."""

    events: OrderEvents
    best: np.ndarray  # int64 [n, 2], bid and ask before each event
    after: np.ndarray  # int64 [n, 2], and after it
    near: np.ndarray  # bool [n], whether it counts: of one of the N orders, but for openings and REDUCE
    spread: np.ndarray  # int64 [n], class of the spread before each event
    came: np.ndarray  # int64 [N], the event that added each order
    ended: np.ndarray  # int64 [N], its last event, or the one after the last of its session
    cancelled: np.ndarray  # bool [N], whether that is a cancellation
    side: np.ndarray  # int64 [N], 0 of bids, 1 of asks
    band: np.ndarray  # int64 [N], as it came
    last_band: np.ndarray  # int64 [N], as it ended
    arrived: np.ndarray  # bool [N], whether we saw it come


class Stretches(NamedTuple):
    """Events during which an order stood in one band."""

    order: np.ndarray  # int64 [s], of the N
    first: np.ndarray  # int64 [s], events
    last: np.ndarray  # int64 [s], one more
    band: np.ndarray  # int64 [s]


class Lives(NamedTuple):
    """What is found of lives. Rates are per event of weight 1."""

    cancel: np.ndarray  # float64 [2, B], cancellations per order
    limit: np.ndarray  # float64 [2, SPREADS, B], limit orders by side
    market: float
    fleeting: np.ndarray  # float64 [B], the share of limit orders
    is_fleeting: np.ndarray  # float64 [N], the probability that an order is
    resting: np.ndarray  # float64 [2, 2, B], orders per tick in the mean, by side and life


def look(events: OrderEvents) -> Seen:
    """Replay events, and find the orders that the fit counts."""
    orders = follow_orders(events)
    after = replay(events, 1).prices[:, :, 0]
    n, number = len(events), np.arange(len(events))
    begin, end = (np.searchsorted(orders.session, orders.session, side) for side in ("left", "right"))
    opening = np.bincount(orders.session, events.opening)[orders.session].astype(np.int64)
    opened = begin + np.maximum(opening, 1) - 1  # the event by which the session's book is there
    best = after[np.where(number <= opened, opened, number - 1)]
    side = (events.side != BID).astype(np.int64)
    distance = _distance(side, events.price, best)
    adds = np.flatnonzero((events.kind == ADD) & (distance >= 1) & (distance < EDGES[-1]))
    of_event = np.full(n, -1)
    of_event[adds] = np.arange(len(adds))
    of_event = of_event[orders.added]
    ends = np.flatnonzero((orders.left == 0) & (of_event >= 0))
    ended, cancelled = end[adds], np.zeros(len(adds), bool)
    ended[of_event[ends]], cancelled[of_event[ends]] = ends, events.kind[ends] == DELETE
    at_end = np.minimum(ended, n - 1)
    return Seen(
        events=events,
        best=best,
        after=after,
        near=(of_event >= 0) & ~events.opening & (events.kind != REDUCE),
        spread=np.clip(best[:, 1] - best[:, 0], 1, SPREADS) - 1,
        came=adds,
        ended=ended,
        cancelled=cancelled,
        side=side[adds],
        band=band_of(distance[adds]),
        last_band=band_of(_distance(side[adds], events.price[adds], best[at_end])),
        arrived=~events.opening[adds],
    )


def _distance(side: np.ndarray, price: np.ndarray, best: np.ndarray) -> np.ndarray:
    return np.where(side == 0, best[:, 1] - price, price - best[:, 0])


def stretches(seen: Seen) -> Stretches:
    """Cut each order's life where the other side's best price changes."""
    parts = []
    n = len(seen.events)
    for side in (0, 1):
        other = seen.best[:, 1 - side]
        cuts = np.r_[0, np.flatnonzero(np.diff(other)) + 1, n]
        mine = np.flatnonzero(seen.side == side)
        begin, end = seen.came[mine] + 1, np.minimum(seen.ended[mine] + 1, n)
        first, last = np.searchsorted(cuts, begin, side="right") - 1, np.searchsorted(cuts, end, side="left")
        count = np.maximum(last - first, 0)
        who = np.repeat(np.arange(len(mine)), count)
        piece = np.repeat(first, count) + np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        away = abs(other[np.minimum(cuts[piece], n - 1)] - seen.events.price[seen.came[mine[who]]])
        parts.append(
            (mine[who], np.maximum(cuts[piece], begin[who]), np.minimum(cuts[piece + 1], end[who]), band_of(away))
        )
    return Stretches(*map(np.concatenate, zip(*parts, strict=True)))


def fit_lives(seen: Seen, fled: np.ndarray, market_orders: int, symmetric: bool) -> Lives:
    """Find rates and lives: two exponentials by band, of orders that may outlive the data.

    Lives are found by expectation and maximisation (Dempster, Laird and Rubin 1977). Sums are `einsum`'s: the matrix
    products of BLAS wait for its threads, for seconds where others use the cores.

    Args:
        seen: As `look` returns it.
        fled: bool `[n]`, cancellations that are a jump's, and no others'.
        market_orders: How many there were.
        symmetric: Whether both sides have the same rates.
    """
    where, orders = stretches(seen), len(seen.came)
    ends = seen.cancelled & ~fled[np.minimum(seen.ended, len(fled) - 1)]
    arrived = np.zeros((2, SPREADS, BANDS))
    spread = seen.spread[seen.came]
    np.add.at(arrived, (seen.side[seen.arrived], spread[seen.arrived], seen.band[seen.arrived]), 1)
    arrived = np.broadcast_to(arrived.mean(0), arrived.shape) if symmetric else arrived
    by_band = np.bincount(seen.band[seen.arrived], minlength=BANDS)
    weight = seen.near.astype(np.float64)
    cancel, share = np.repeat(_FIRST_GUESS[:, None], BANDS, axis=1), np.full(BANDS, 0.6)
    found = None
    for _ in range(_ROUNDS):
        total = np.r_[0, np.cumsum(weight)]
        exposure = np.zeros((orders, BANDS))
        np.add.at(exposure, (where.order, where.band), total[where.last] - total[where.first])
        for _ in range(_STEPS):
            logs = [
                np.log(odds[seen.band])
                - np.einsum("nb,b->n", exposure, rates)
                + np.where(ends, np.log(rates[seen.last_band]), 0)
                for odds, rates in ((share, cancel[0]), (1 - share, cancel[1]))
            ]
            is_fleeting = 1 / (1 + np.exp(np.clip(logs[1] - logs[0], -50, 50)))
            both = np.stack([is_fleeting, 1 - is_fleeting])
            gone = np.stack([np.bincount(seen.last_band[ends], one[ends], BANDS) for one in both])
            stood = np.einsum("ln,nb->lb", both, exposure)
            mean = gone.sum(1, keepdims=True) / stood.sum(1, keepdims=True)
            cancel = (gone + _PSEUDO) / (stood + _PSEUDO / mean)
            fleeting = np.bincount(seen.band[seen.arrived], is_fleeting[seen.arrived], BANDS)
            share = (fleeting + _PSEUDO_SHARE * 0.6) / (by_band + _PSEUDO_SHARE)
        time_at = np.bincount(seen.spread, weight, SPREADS)
        limit = (arrived + 0.025) / (time_at[:, None] + 1)
        market = market_orders / weight.sum()
        resting = np.stack([np.einsum("ln,nb->lb", both[:, mine], exposure[mine]) for mine in _sides(seen, symmetric)])
        resting = resting / weight.sum() / np.diff(EDGES) / (2 if symmetric else 1)
        found = Lives(cancel, limit, market, share, is_fleeting, resting)
        rates = is_fleeting[where.order] * cancel[0, where.band]
        rates += (1 - is_fleeting[where.order]) * cancel[1, where.band]
        steps = np.bincount(where.first, rates, len(weight) + 1) - np.bincount(where.last, rates, len(weight) + 1)
        going = np.cumsum(steps)[: len(weight)]
        rate = going + limit.sum((0, 2))[seen.spread] + market
        weight = seen.near / np.maximum(rate, 1e-3)
    assert found is not None
    return found


def _sides(seen: Seen, symmetric: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return which orders count for bids and for asks."""
    everybody = np.ones(len(seen.side), bool)
    return (everybody, everybody) if symmetric else (seen.side == 0, seen.side == 1)
