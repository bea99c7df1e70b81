"""Orders of a fitted flow at their ticks: docs/model.md, "Order flow", but for its events, which are in flow.py.

Of each tick `m.lives`, [m, 2, L], counts fleeting and lasting orders, and `m.fleeting_units`, [m, L], are the former's
part of its units; a tick holds bids or asks. Axes: side (bid, ask) [2], life (fleeting, lasting) [2], tick [L].
"""

import numpy as np

from kineticsim_env.engines.numpy import queues
from kineticsim_env.engines.numpy.auction import quotes_on_grid
from kineticsim_env.engines.numpy.beats import slid
from kineticsim_env.engines.numpy.rules import best_with_quotes, bits, clip
from kineticsim_env.engines.numpy.state import WORD_FLOW, Markets

MOST_ORDERS = 2**15 - 1  # of a life at a tick
WORD_NEW_TICKS, WORD_OPENING = 2**13, 2**14  # plus the tick
# Bands of distances begin at these ticks; their groups have sizes of orders in common. So has runtime/flow_table.py.
EDGES = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257])
GROUP_OF = np.repeat([0, 1, 2, 3], [1, 4, 6, 7])
SIZES = 16  # that an order may have


def best(m: Markets) -> tuple[np.ndarray, np.ndarray]:
    """Return the ticks of the best bid and ask, [m], quotes included; next to the last price where a side is empty."""
    bid, ask = best_with_quotes(m.bid, m.ask, quotes_on_grid(m))
    no_bid, no_ask = bid < 0, ask >= m.num_levels
    above = np.where(no_bid, m.last_tick, np.maximum(m.last_tick, bid)) + 1
    below = np.where(no_ask, m.last_tick, np.minimum(m.last_tick, ask)) - 1
    return np.where(no_bid, below, bid), np.where(no_ask, above, ask)


def band_of(distance: np.ndarray) -> np.ndarray:
    """Return the bands of distances from the best price of the other side."""
    return np.searchsorted(EDGES, clip(distance, EDGES[0], EDGES[-1] - 1), side="right") - 1


def bands(m: Markets) -> np.ndarray:
    """Return the bands that bids and asks at each tick have, [m, 2, L]."""
    (bid, ask), tick = best(m), np.arange(m.num_levels)
    return band_of(np.stack([ask[:, None] - tick, tick - bid[:, None]], axis=1))


def orders(m: Markets) -> np.ndarray:
    """Return the orders of each side, life and tick, [m, 2, 2, L]."""
    return (np.stack([m.bid, m.ask], axis=1) > 0)[:, :, None] * m.lives[:, None]


def open_book(m: Markets, init_price: np.ndarray) -> None:
    """Fill the books of markets that begin at these prices, [m], and their `flow`."""
    for name in ("bid", "ask", "lives", "fleeting_units"):
        setattr(m, name, np.zeros_like(getattr(m, name)))
    tick, init = np.arange(m.num_levels), init_price[:, None]
    chosen = np.stack([tick < init, tick >= init], axis=1)
    of_bids_and_asks = band_of(np.stack([init - tick, tick - init + 1], axis=1))
    make_up(m, np.zeros_like(m.t), WORD_OPENING, chosen, of_bids_and_asks, (tick == init - 1) | (tick == init))
    m.last_tick, m.prev_mid2, m.price_origin = init_price, 2 * init_price - 1, np.zeros_like(init_price)
    m.flow = np.zeros_like(m.flow)
    m.flow[:, :2] = 1


def follow_grid(m: Markets, g: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """After the window has moved the books by `shift`, [m], at event g: lives follow, and new ticks get orders.

    Return the units that these have, bids and asks, [m, 2].
    """
    if not shift.any():
        return np.zeros((len(m.rows), 2), np.int64)
    m.lives = np.stack([slid(m.lives[:, life], shift) for life in range(2)], axis=1)
    m.fleeting_units = slid(m.fleeting_units, shift)
    tick, last = np.arange(m.num_levels), m.num_levels - 1
    chosen = np.stack([tick < -shift[:, None], tick > last - shift[:, None]], axis=1)
    return make_up(m, g, WORD_NEW_TICKS, chosen, bands(m), False)


def make_up(
    m: Markets, g: np.ndarray, first_word: int, chosen: np.ndarray, band: np.ndarray, never_empty: np.ndarray | bool
) -> np.ndarray:
    """Let orders rest at empty ticks, and return their units of bids and asks, [m, 2].

    Args:
        m: the markets.
        g: the event whose words draw them, [m].
        first_word: the number of its word of tick 0.
        chosen: the ticks that get bids, and those that get asks, bool [m, 2, L].
        band: that of bids and asks at each tick, [m, 2, L].
        never_empty: ticks that get a lasting order if they have got none, bool [m, L].
    """
    word = m.words(WORD_FLOW + first_word + np.arange(m.num_levels), g)
    side, here = chosen[:, 1].astype(np.int64), chosen[:, 0] | chosen[:, 1]
    band = np.where(chosen[:, 1], band[:, 1], band[:, 0])
    orders = [m.table("resting", side, life, band) + bits(word, 16 * life, 16) >> 16 for life in range(2)]
    count = np.stack(orders, axis=1)
    count *= here[:, None]
    count[:, 1] += here & never_empty & ~count.any(axis=1)
    units, all_orders = np.zeros_like(count), count.sum(axis=1)
    for k in range(all_orders.max(initial=0)):
        life = (k >= count[:, 0]).astype(np.int64)
        size = m.table("limit_size", side, life, GROUP_OF[band], bits(word, 32 + 4 * (k % 8), 4)) * (k < all_orders)
        units += np.stack([size * (life == 0), size * (life == 1)], axis=1)
    m.lives = m.lives + count
    m.fleeting_units = m.fleeting_units + units[:, 0]
    made = chosen * units.sum(axis=1, keepdims=True)
    m.bid, m.ask = m.bid + made[:, 0], m.ask + made[:, 1]
    check_sides(m)
    return made.sum(axis=2)


def check_sides(m: Markets) -> None:
    """Stop where a side, quotes on the grid included, holds too much."""
    _, bid_qty, _, ask_qty = quotes_on_grid(m)
    m.check_totals(np.maximum(m.bid.sum(axis=1) + bid_qty.sum(axis=1), m.ask.sum(axis=1) + ask_qty.sum(axis=1)))


def follow_trade(m: Markets, before: np.ndarray) -> None:
    """After an order has traded at ticks that had so many units before, [m, L]: lasting units have gone first."""
    fleeting, traded = m.fleeting_units, before - (m.bid + m.ask)
    had = np.stack([fleeting, before - fleeting], axis=1)
    from_lasting = np.minimum(traded, had[:, 1])
    left = had - np.stack([traded - from_lasting, from_lasting], axis=1)
    m.lives = -(-m.lives * left // np.maximum(had, 1))
    m.fleeting_units = left[:, 0]


def units_that_go(m: Markets, side: np.ndarray, tick: np.ndarray, life: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Return the units of an order that goes, [m], with its size number; of no meaning where there is none."""
    each = np.arange(len(m.rows))
    n, fleeting = m.lives[each, life, tick], m.fleeting_units[each, tick]
    q = np.where(life == 0, fleeting, m.bid[each, tick] + m.ask[each, tick] - fleeting)
    sizes = m.table("limit_size", side, life, GROUP_OF[bands(m)[each, side, tick]])
    share = SIZES * sizes[each, number] * q // (np.maximum(n, 1) * sizes.sum(axis=1))
    return np.where(n == 1, q, clip(share, 1, q - (n - 1)))


def remove(
    m: Markets, g: np.ndarray, goes: np.ndarray, side: np.ndarray, tick: np.ndarray, life: np.ndarray, units: np.ndarray
) -> None:
    """Cancel an order of so many units in the markets where one `goes`, bool [m], at event g."""
    each, units = np.arange(len(m.rows)), units * goes
    m.lives[each, life, tick] -= goes
    m.fleeting_units[each, tick] -= units * (life == 0)
    loss = np.zeros((len(each), 2, m.num_levels), np.int64)
    loss[each, side, tick] = units
    queues.cancel(m, loss, m.word(WORD_FLOW + 4, g))


def rest(
    m: Markets, rests: np.ndarray, side: np.ndarray, tick: np.ndarray, life: np.ndarray, units: np.ndarray
) -> None:
    """Let an order of so many units rest in the markets where one `rests`, bool [m]."""
    each, units = np.arange(len(m.rows)), units * rests
    m.lives[each, life, tick] += rests
    m.fleeting_units[each, tick] += units * (life == 0)
    m.bid[each, tick] += units * (side == 0)
    m.ask[each, tick] += units * (side == 1)
