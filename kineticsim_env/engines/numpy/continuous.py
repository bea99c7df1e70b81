"""The continuous market: orders are matched as they come, and what is left rests; quotes come after a latency."""

from typing import NamedTuple

import numpy as np

from kineticsim_env.engines.numpy import beats, queues
from kineticsim_env.engines.numpy.auction import book_fills, observed_mid2, quotes_on_grid
from kineticsim_env.engines.numpy.clock import coming_order, events
from kineticsim_env.engines.numpy.orders import (
    apply_pre_trade_limits,
    limit_quote_prices,
    on_grid,
)
from kineticsim_env.engines.numpy.rules import best_with_quotes
from kineticsim_env.engines.numpy.state import MAX_PRICE, Markets

KEEP, POST_ONLY, IMMEDIATE_OR_CANCEL, MARKET = 1, 2, 4, 8  # flags of a side of an arriving quote
REJECT_POST_ONLY, REJECT_OWN_ORDER = 1, 2


class Arriving(NamedTuple):
    """What a decision submits, until it has arrived."""

    quotes: np.ndarray  # [m, K, 4], before the pre-trade limits
    flags: np.ndarray  # [m, K, 2]: of bids, then asks
    rejects: np.ndarray  # [m, K, 2], which the arrival writes


def arriving(quotes: np.ndarray | None, flags: np.ndarray | None = None) -> Arriving | None:
    """Return what a decision submits; `flags` [m, K] as in `struct Launch`, None for none."""
    if quotes is None:
        return None
    words = np.zeros(quotes.shape[:2], np.int64) if flags is None else flags.astype(np.int64)
    sides = np.stack([words & 255, words >> 8 & 255], axis=-1)
    return Arriving(quotes, sides, np.zeros_like(sides))


def continuous_interval(
    m: Markets, fresh: Arriving | None, number: int, intervals: int
) -> tuple[np.ndarray, np.ndarray]:
    """Trade through one interval; return volume [m] and fills [m, K, 2].

    Args:
        m: the markets, which change; on an error they are left half done.
        fresh: the decision's fresh quotes, or None: standing quotes stay.
        number: which of the decision's intervals it is.
        intervals: how many it has.
    """
    volume, fills = m.volume, np.zeros((*m.cash.shape, 2), np.int64)
    m.signed_volume = np.zeros_like(volume)
    length = int(m.params["interval"][0])
    latency = np.minimum(m.params["quote_latency"], intervals * length)
    for place, (g, b, due) in enumerate(events(m), number * length):
        if due.any():
            hold_beat(m, b, due)
        if fresh is not None:
            quotes_arrive(m, fresh, latency == place, fills)
        sells, tick, quantity, fired = coming_order(m, g, b)
        left = quantity - trade(m, ~sells, tick, quantity, fills)
        rests = np.where(fired, 0, left)
        for side, book in ((~sells, m.bid), (sells, m.ask)):
            book[np.arange(len(m.rows)), tick] += rests * side
        check_resting(m, ~sells, rests)
    if fresh is not None and number == intervals - 1:
        quotes_arrive(m, fresh, latency == intervals * length, fills)
    m.t = m.t + 1
    m.trades = m.trades + (m.volume > volume)
    return m.volume - volume, fills


def hold_beat(m: Markets, b: np.ndarray, due: np.ndarray) -> None:
    """Hold beat b where it is due."""
    shift = beats.slide_window(m, observed_mid2(m), due)
    queues.follow_grid(m, shift != 0)
    beats.switch_regime(m, b, due)
    beats.walk_fundamental(m, b, due)
    queues.cancel(m, beats.cancelled(m, np.stack([m.bid, m.ask], axis=1), b, due), b)
    beats.take_return(m, observed_mid2(m), due)
    m.beat_price = np.where(due, m.last_price, m.beat_price)


def trade(
    m: Markets,
    buys: np.ndarray,
    tick: np.ndarray,
    quantity: np.ndarray,
    fills: np.ndarray,
    taker: np.ndarray | None = None,
) -> np.ndarray:
    """Match one order in each market, book who traded, and return how many units, [m].

    Args:
        m: the markets.
        buys: whether it buys, bool [m].
        tick: the worst tick it trades at, [m].
        quantity: [m]; 0 is no order.
        fills: [m, K, 2], which this adds to.
        taker: the slot whose order it is, [m]; None: a built-in agent's.
    """
    if not quantity.any():
        return np.zeros_like(quantity)
    own = np.zeros(m.cash.shape, bool) if taker is None else taker[:, None] == np.arange(m.cash.shape[1])
    match = queues.take(m, buys, tick, quantity, own)
    m.volume = m.volume + match.units
    m.signed_volume = m.signed_volume + np.where(buys, match.units, -match.units)
    took, side = match.units[:, None] * own, buys[:, None]
    bought, sold = np.where(side, took, match.fills), np.where(side, match.fills, took)
    paid = match.money[:, None] * own - match.fills * match.price
    book_fills(m, bought, sold, np.where(side, paid, -paid))
    m.fees = m.fees + took * m.params["taker_fee"][:, None]
    fills += np.stack([bought, sold], axis=-1)
    return match.units


def quotes_arrive(m: Markets, fresh: Arriving, arrive: np.ndarray, fills: np.ndarray) -> None:
    """Let fresh quotes come, where they `arrive` now, bool [m]: slot t mod K first."""
    slots = m.cash.shape[1]
    if not arrive.any():
        return
    for turn in range(slots):
        slot_arrives(m, fresh, (m.t + turn) % slots, turn, arrive, fills)


def slot_arrives(
    m: Markets, fresh: Arriving, slot: np.ndarray, turn: int, arrive: np.ndarray, fills: np.ndarray
) -> None:
    """Let one slot's quote come: sides keep their places or are withdrawn; then those that did not keep it trade."""
    each = np.arange(len(m.rows))
    flags = fresh.flags[each, slot]  # [m, 2]: bid, ask, as all that follows
    kept = (flags & KEEP) != 0
    rests = kept | ((flags & (IMMEDIATE_OR_CANCEL | MARKET)) == 0)
    asked = asked_quotes(m, fresh)
    both_rest = ((fresh.flags & (KEEP | IMMEDIATE_OR_CANCEL | MARKET)) == 0).all(axis=-1)
    limited = apply_pre_trade_limits(m, asked, both_rest)
    tick = limit_quote_prices(m, limited, m.beat_price)[each, slot, 0::2] - m.price_origin[:, None]
    beyond = np.stack([tick[:, 0] >= m.num_levels, tick[:, 1] < 0], axis=1)
    tick = np.where(beyond, on_grid(m, tick), tick)
    price = np.where(kept, limited[each, slot, 0::2], tick + m.price_origin[:, None])
    quantity, was = limited[each, slot, 1::2], m.quotes[each, slot]
    keeps = (price == was[:, 0::2]) & (quantity > 0) & (quantity <= was[:, 1::2]) & rests

    gone = np.where(keeps, quantity, 0)
    now = np.stack([price[:, 0], gone[:, 0], price[:, 1], gone[:, 1]], axis=1)
    m.quotes[each, slot] = np.where(arrive[:, None], now, was)
    queues.drop_empty(m)
    comes = np.where(arrive[:, None] & ~keeps, quantity, 0)
    for side in (0, 1):
        buys = np.full(len(m.rows), side == 0)
        crosses = (comes[:, side] > 0) & would_trade(m, side, tick[:, side])
        refused = crosses & ((flags[:, side] & POST_ONLY) != 0)
        units = np.where(refused, 0, comes[:, side])
        left = units - trade(m, buys, tick[:, side], units, fills, slot)
        met_own = (left > 0) & would_trade(m, side, tick[:, side])
        fresh.rejects[each, slot, side] |= refused * REJECT_POST_ONLY + met_own * REJECT_OWN_ORDER
        left = np.where(met_own | ~rests[:, side], 0, left)
        m.quotes[each, slot, 2 * side + 1] += left
        behind = queues.built_in_at(m, queues.quote_ticks(m))[each, slot, side]
        m.queue[each, slot, side] = np.where(left > 0, behind, m.queue[each, slot, side])
        m.moments[each, slot, side] = np.where(left > 0, 256 * m.t + turn, m.moments[each, slot, side])
        check_resting(m, buys, left)


def asked_quotes(m: Markets, fresh: Arriving) -> np.ndarray:
    """Return what is asked for, [m, K, 4], before the pre-trade limits: what stands where that is kept."""
    asked = fresh.quotes.astype(np.int64)
    for side, at_any_price in ((0, MAX_PRICE), (1, -MAX_PRICE)):
        flags, place = fresh.flags[..., side], 2 * side
        asked[..., place] = np.where(flags & MARKET, at_any_price, asked[..., place])
        for part in (place, place + 1):
            asked[..., part] = np.where(flags & KEEP, m.quotes[..., part], asked[..., part])
    return asked


def would_trade(m: Markets, side: int, limit: np.ndarray) -> np.ndarray:
    """Return whether orders on a side, up to tick `limit` [m], meet built-in interest or quotes of any slot."""
    best_bid, best_ask = best_with_quotes(m.bid, m.ask, quotes_on_grid(m))
    return best_ask <= np.minimum(limit, m.num_levels - 1) if side == 0 else best_bid >= np.maximum(limit, 0)


def check_resting(m: Markets, buys: np.ndarray, rests: np.ndarray) -> None:
    """Stop where an order has come to rest, `rests` > 0 [m], on a side that holds too much."""
    _, bid_qty, _, ask_qty = quotes_on_grid(m)
    total = np.where(buys, m.bid.sum(axis=1) + bid_qty.sum(axis=1), m.ask.sum(axis=1) + ask_qty.sum(axis=1))
    m.check_totals(np.where(rests > 0, total, 0))
