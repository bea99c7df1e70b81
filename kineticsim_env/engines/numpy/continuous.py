"""The continuous market: orders are matched as they come, and what is left rests; quotes come after a latency."""

import numpy as np

from kineticsim_env.engines.numpy import beats, queues
from kineticsim_env.engines.numpy.auction import book_fills, observed_mid2, quotes_on_grid
from kineticsim_env.engines.numpy.clock import coming_order, events
from kineticsim_env.engines.numpy.orders import (
    apply_pre_trade_limits,
    limit_quote_prices,
    on_grid,
)
from kineticsim_env.engines.numpy.state import Markets


def continuous_interval(
    m: Markets, quotes: np.ndarray | None, number: int, intervals: int
) -> tuple[np.ndarray, np.ndarray]:
    """Trade through one interval; return volume [m] and fills [m, K, 2].

    Args:
        m: the markets, which change; on an error they are left half done.
        quotes: int [m, K, 4], the decision's fresh quotes, not yet limited, or None: standing quotes stay.
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
        if quotes is not None:
            quotes_arrive(m, quotes, latency == place, fills)
        sells, tick, quantity, fired = coming_order(m, g, b)
        left = quantity - trade(m, ~sells, tick, quantity, fills)
        rests = np.where(fired, 0, left)
        for side, book in ((~sells, m.bid), (sells, m.ask)):
            book[np.arange(len(m.rows)), tick] += rests * side
        check_resting(m, ~sells, rests)
    if quotes is not None and number == intervals - 1:
        quotes_arrive(m, quotes, latency == intervals * length, fills)
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
    match = queues.take(m, buys, tick, quantity)
    m.volume = m.volume + match.units
    m.signed_volume = m.signed_volume + np.where(buys, match.units, -match.units)
    own = np.zeros(m.cash.shape, bool) if taker is None else taker[:, None] == np.arange(m.cash.shape[1])
    took, side = match.units[:, None] * own, buys[:, None]
    bought, sold = np.where(side, took, match.fills), np.where(side, match.fills, took)
    paid = match.money[:, None] * own - match.fills * match.price
    book_fills(m, bought, sold, np.where(side, paid, -paid))
    m.fees = m.fees + took * m.params["taker_fee"][:, None]
    fills += np.stack([bought, sold], axis=-1)
    return match.units


def quotes_arrive(m: Markets, quotes: np.ndarray, arrive: np.ndarray, fills: np.ndarray) -> None:
    """Let fresh quotes come, where they `arrive` now, bool [m]: slot t mod K first."""
    slots = m.cash.shape[1]
    if not arrive.any():
        return
    for turn in range(slots):
        slot_arrives(m, quotes, (m.t + turn) % slots, turn, arrive, fills)


def slot_arrives(
    m: Markets, quotes: np.ndarray, slot: np.ndarray, turn: int, arrive: np.ndarray, fills: np.ndarray
) -> None:
    """Let one slot's quote come: sides keep their places or are withdrawn; then those that did not keep it trade."""
    each = np.arange(len(m.rows))
    fresh = limit_quote_prices(m, apply_pre_trade_limits(m, quotes), m.beat_price)[each, slot]
    price, quantity = fresh[:, 0::2], fresh[:, 1::2]  # [m, 2]: bid, ask
    tick = price - m.price_origin[:, None]
    beyond = np.stack([tick[:, 0] >= m.num_levels, tick[:, 1] < 0], axis=1)
    tick = np.where(beyond, on_grid(m, tick), tick)
    price = tick + m.price_origin[:, None]
    standing = m.quotes[each, slot]
    keeps = (price == standing[:, 0::2]) & (quantity > 0) & (quantity <= standing[:, 1::2])

    gone = np.where(keeps, quantity, 0)
    now = np.stack([price[:, 0], gone[:, 0], price[:, 1], gone[:, 1]], axis=1)
    m.quotes[each, slot] = np.where(arrive[:, None], now, standing)
    queues.drop_empty(m)
    comes = np.where(arrive[:, None] & ~keeps, quantity, 0)
    for side in (0, 1):
        buys = np.full(len(m.rows), side == 0)
        left = comes[:, side] - trade(m, buys, tick[:, side], comes[:, side], fills, slot)
        rests = left > 0
        m.quotes[each, slot, 2 * side + 1] += left
        behind = queues.built_in_at(m, queues.quote_ticks(m))[each, slot, side]
        m.queue[each, slot, side] = np.where(rests, behind, m.queue[each, slot, side])
        m.moments[each, slot, side] = np.where(rests, 256 * m.t + turn, m.moments[each, slot, side])
        check_resting(m, buys, left)


def check_resting(m: Markets, buys: np.ndarray, rests: np.ndarray) -> None:
    """Stop where an order has come to rest, `rests` > 0 [m], on a side that holds too much."""
    _, bid_qty, _, ask_qty = quotes_on_grid(m)
    total = np.where(buys, m.bid.sum(axis=1) + bid_qty.sum(axis=1), m.ask.sum(axis=1) + ask_qty.sum(axis=1))
    m.check_totals(np.where(rests > 0, total, 0))
