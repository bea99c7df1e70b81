"""Queues of the continuous market: what quotes have ahead, matching, and what cancellation and the window do to them.

At a tick stand built-in units, one number, and learned quotes, each behind `queue` of these units; of quotes with the
same number ahead the earlier moment goes first. Arrays [m, J, 2] hold bids, then asks, of all standing quotes: those of
one slot, if it has a ladder, are quotes of their own here, and at the same moment go in the order of the array.
"""

from typing import NamedTuple

import numpy as np

from kineticsim_env.engines.numpy.orders import on_grid
from kineticsim_env.engines.numpy.rules import bits, clip, scatter
from kineticsim_env.engines.numpy.state import Markets


class Match(NamedTuple):
    """What an order has traded."""

    units: np.ndarray  # [m]
    money: np.ndarray  # [m], ticks x units
    fills: np.ndarray  # [m, J], of the quotes that it met,
    price: np.ndarray  # [m, J], at these absolute prices


def drop_empty(m: Markets) -> None:
    """Clear the places of sides without quantity."""
    stands = m.quotes[..., 1::2] > 0
    m.queue, m.moments = m.queue * stands, m.moments * stands


def built_in_at(m: Markets, tick: np.ndarray) -> np.ndarray:
    """Return the built-in units at the ticks of bids and asks [m, J, 2]; 0 off the grid."""
    book = np.stack([m.bid, m.ask], axis=-1)
    inside = (tick >= 0) & (tick < m.num_levels)
    return np.where(inside, np.take_along_axis(book, clip(tick, 0, m.num_levels - 1), axis=1), 0)


def quote_ticks(m: Markets) -> np.ndarray:
    """Return where standing bids and asks are, [m, J, 2]; perhaps off the grid."""
    return m.quotes[..., 0::2] - m.price_origin[:, None, None]


def cancel(m: Markets, loss: np.ndarray, word: np.ndarray) -> None:
    """Take what is cancelled, [m, 2, L], from built-in interest and what quotes have ahead, rounded by words [m]."""
    u32 = np.stack([bits(word, 0, 32), bits(word, 32, 32)], axis=1)[:, None]
    tick = quote_ticks(m)
    there = built_in_at(m, tick)
    lost = np.take_along_axis(loss.transpose(0, 2, 1), clip(tick, 0, m.num_levels - 1), axis=1) * (there > 0)
    m.queue = m.queue - (lost * m.queue + (u32 * there >> 32)) // np.maximum(there, 1)
    m.bid, m.ask = m.bid - loss[:, 0], m.ask - loss[:, 1]


def follow_grid(m: Markets, moved: np.ndarray) -> None:
    """After the window has moved the grid: its end takes along quotes that could cross later."""
    tick, stands = quote_ticks(m), m.quotes[..., 1::2] > 0
    beyond = np.stack([tick[..., 0] >= m.num_levels, tick[..., 1] < 0], axis=-1) & stands & moved[:, None, None]
    flat = tick.reshape(len(tick), tick.shape[1] * 2)
    end = on_grid(m, flat).reshape(tick.shape) + m.price_origin[:, None, None]
    m.quotes[..., 0::2] = np.where(beyond, end, m.quotes[..., 0::2])
    cut = np.minimum(m.queue, built_in_at(m, quote_ticks(m)))
    m.queue = np.where(moved[:, None, None], cut, m.queue)


def take(m: Markets, buys: np.ndarray, limit: np.ndarray, quantity: np.ndarray, own: np.ndarray) -> Match:
    """Match one order in each market with what rests.

    A sell is matched as a buy in a mirror, in which the best tick to trade at is the lowest, too.

    Args:
        m: the markets: their books, standing quotes and places in queues change, and the last price.
        buys: whether it buys, bool [m].
        limit: the worst tick it trades at, [m].
        quantity: [m]; 0 is no order.
        own: bool [m, J], which quotes are of the slot whose order it is; it stops before these.
    """
    last, each, side = m.num_levels - 1, np.arange(len(m.rows)), buys.astype(np.int64)  # of the quotes that it meets
    ticks = np.where(buys[:, None], np.arange(last + 1), np.arange(last, -1, -1))  # of the mirror's places
    built_in = np.where(buys[:, None], m.ask, m.bid[:, ::-1])
    price, standing = m.quotes[each, :, 2 * side], m.quotes[each, :, 2 * side + 1]
    tick = price - m.price_origin[:, None]
    standing = np.where((tick >= 0) & (tick <= last), standing, 0)
    at = clip(np.where(buys[:, None], tick, last - tick), 0, last)

    book, shape = each[:, None], built_in.shape
    there = built_in + scatter((book, at), standing, shape)
    there[np.arange(last + 1) > np.where(buys, limit, last - limit)[:, None]] = 0
    better = np.cumsum(there, axis=1) - there
    stand_before = before_each(at, m.queue[each, :, side], m.moments[each, :, side], standing)
    before_own = np.where(own & (standing > 0), better[book, at] + stand_before, quantity[:, None])
    quantity = np.minimum(quantity, before_own.min(axis=1, initial=2**62))
    taken = clip(quantity[:, None] - better, 0, there)
    fills = clip(taken[book, at] - stand_before, 0, standing)
    gone = taken - scatter((book, at), fills, shape)

    m.quotes[each, :, 2 * side + 1] -= fills
    m.queue[each, :, side] = np.maximum(0, m.queue[each, :, side] - gone[book, at])
    drop_empty(m)
    m.ask = np.where(buys[:, None], m.ask - gone, m.ask)
    m.bid = np.where(buys[:, None], m.bid, m.bid - gone[:, ::-1])
    units, worst = taken.sum(axis=1), last - np.argmax(taken[:, ::-1] > 0, axis=1)
    m.last_tick = np.where(units > 0, ticks[each, worst], m.last_tick)
    return Match(units, (taken * (ticks + m.price_origin[:, None])).sum(axis=1), fills, price)


def before_each(tick: np.ndarray, ahead: np.ndarray, moment: np.ndarray, quantity: np.ndarray) -> np.ndarray:
    """Return how many units, built-in and of other quotes, stand before each quote of one side; all are [m, J]."""
    place = np.arange(ahead.shape[1])
    ahead_of_me, ahead_of_other = ahead[:, :, None], ahead[:, None]
    same_moment = (moment[:, :, None] == moment[:, None]) & (place[:, None] > place)
    earlier = (moment[:, :, None] > moment[:, None]) | same_moment
    first = (ahead_of_other < ahead_of_me) | ((ahead_of_other == ahead_of_me) & earlier)
    first &= tick[:, :, None] == tick[:, None]
    return ahead + (first * quantity[:, None]).sum(axis=2)
