"""What is ordered: the orders of built-in agents, the door that quotes pass, and the levers on prices.

The levers' order: rounding, tax, the far end of marketable orders, collar, tick size, the nearest price on the grid.
"""

from typing import NamedTuple

import numpy as np

from kineticsim_env.engines.numpy.rules import bit_sign, bits, clip
from kineticsim_env.engines.numpy.state import CLASSES, MAX_PRICE, WORD_WHO, Markets

NOBODY = len(CLASSES)  # in place of a class


class View(NamedTuple):
    """What agents know when they come, [m] each: on the grid, but for the price."""

    mid2: np.ndarray  # doubled
    ret: np.ndarray
    collar_price: np.ndarray  # the last price, absolute, that collars are around
    coin: np.ndarray  # 1: a price half way between ticks goes up, where rounding is "coin"


# ------------------------------------------------------------------------------------------- levers on prices


def to_multiple(price: np.ndarray, size: np.ndarray, sells: np.ndarray | bool) -> np.ndarray:
    """Return absolute prices as multiples of the tick size: buys round down, sells up."""
    return np.where(sells, -(-price // size), price // size) * size


def grid_ends(m: Markets) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and the highest tick [m] that is a multiple of the tick size."""
    size, low = m.params["tick_size"], m.price_origin
    return to_multiple(low, size, True) - low, to_multiple(low + m.num_levels - 1, size, False) - low


def limited(m: Markets, tick: np.ndarray, sells: np.ndarray | bool, collar_price: np.ndarray) -> np.ndarray:
    """Return ticks [m, n] as collar and tick size leave them; they may be off the grid."""
    origin, collar, size = m.price_origin[:, None], m.params["collar"][:, None], m.params["tick_size"][:, None]
    if collar.any():
        last = collar_price[:, None] - origin
        within = np.where(sells, np.maximum(tick, last - collar), np.minimum(tick, last + collar))
        tick = np.where(collar > 0, within, tick)
    return to_multiple(tick + origin, size, sells) - origin if (size > 1).any() else tick


def on_grid(m: Markets, tick: np.ndarray) -> np.ndarray:
    """Return the nearest tick of the grid, a multiple of the tick size, to each of [m, n]."""
    if not (m.params["tick_size"] > 1).any():
        return clip(tick, 0, m.num_levels - 1)
    lowest, highest = grid_ends(m)
    return clip(tick, lowest[:, None], highest[:, None])


def marketable_ticks(m: Markets, collar_price: np.ndarray) -> np.ndarray:
    """Return where marketable orders go, buys and sells, [m, 2]."""
    ends = np.broadcast_to([m.num_levels - 1, 0], (len(m.rows), 2))
    return on_grid(m, limited(m, ends, np.array([False, True]), collar_price))


# ------------------------------------------------------------------------------------------------ new quotes


def apply_pre_trade_limits(m: Markets, new_quotes: np.ndarray) -> np.ndarray:
    """Return quotes [m, K, 4] as the pre-trade limits leave them."""
    return limit_ladders(m, new_quotes[:, :, None], m.inventory)[:, :, 0]


def limit_ladders(
    m: Markets, ladders: np.ndarray, inventory: np.ndarray, both_rest: np.ndarray | bool = True
) -> np.ndarray:
    """Return ladders [m, k, N, 4] of slots that hold `inventory`, [m, k], as the pre-trade limits leave them.

    Levels that cross themselves lose a side where `both_rest`, [m, k, N].
    """
    largest, limit = m.params["max_quote_qty"][:, None, None], m.params["inventory_limit"][:, None, None]
    held = inventory[..., None]
    bid_price, ask_price = (clip(ladders[..., i].astype(np.int64), -MAX_PRICE, MAX_PRICE) for i in (0, 2))
    bid_qty, ask_qty = (clip(ladders[..., i].astype(np.int64), 0, largest) for i in (1, 3))
    bid_qty = np.where(limit >= 0, share_room(limit - held, -bid_price, bid_qty), bid_qty)
    ask_qty = np.where(limit >= 0, share_room(limit + held, ask_price, ask_qty), ask_qty)
    crossed = both_rest & (bid_price >= ask_price) & (bid_qty > 0) & (ask_qty > 0)
    drop_bid, drop_ask = crossed & (bid_qty <= ask_qty), crossed & (ask_qty <= bid_qty)
    return np.stack([bid_price, np.where(drop_bid, 0, bid_qty), ask_price, np.where(drop_ask, 0, ask_qty)], axis=-1)


def share_room(room: np.ndarray, distance: np.ndarray, quantity: np.ndarray) -> np.ndarray:
    """Return what levels [m, k, N] get of the room [m, k, 1] of all: as much as they ask for, the nearest first."""
    order = np.argsort(distance, axis=-1, kind="stable")
    wanted = np.take_along_axis(quantity, order, axis=-1)
    given, before = np.empty_like(quantity), np.cumsum(wanted, axis=-1) - wanted
    np.put_along_axis(given, order, clip(room - before, 0, wanted), axis=-1)
    return given


def limit_quote_prices(m: Markets, quotes: np.ndarray, collar_price: np.ndarray) -> np.ndarray:
    """Return quotes [m, K, 4] whose prices collar and tick size have been applied to."""
    origin, quotes = m.price_origin[:, None], quotes.astype(np.int64)
    for place, sells in ((0, False), (2, True)):
        quotes[..., place] = limited(m, quotes[..., place] - origin, sells, collar_price) + origin
    return quotes


# ------------------------------------------------------------------------------------------- built-in orders


def side_and_offset(
    m: Markets, kind: str, word: np.ndarray, parity: np.ndarray, view: View
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sides (+1 buys) and the ticks from the middle that agents of one class price at, [m, n] each.

    `word` has the agents' words, [m, n]; `parity` their indices plus the number of the auction or event: makers buy if
    it is even.
    """
    side = bit_sign(word, 31)
    if kind == "noise":
        spread = m.now["noise_spread"][:, None]
        return side, ((word >> np.uint64(48)).astype(np.int64) * (2 * spread + 1) >> 16) - spread
    if kind == "maker":
        side = 1 - 2 * (parity & 1)
        return side, -side * m.now["maker_half_spread"][:, None]
    signal = view.ret if kind == "momentum" else np.sign(2 * (m.fundamental_price - m.price_origin) - view.mid2)
    side = np.where(signal[:, None] != 0, signal[:, None], side)
    return side, side * m.now["taker_offset"][:, None]


def limit_ticks(m: Markets, side: np.ndarray, offset: np.ndarray, view: View) -> np.ndarray:
    """Return the ticks [m, n] of limit orders: around the middle, rounded, with the tax priced in."""
    rounding, tax = m.params["rounding"][:, None], m.params["tax"][:, None]
    middle2 = np.where(m.params["reference"] == 1, 2 * (m.fundamental_price - m.price_origin), view.mid2)
    doubled = middle2[:, None] + 2 * offset
    floor = doubled >> 1
    upwards = np.where(rounding == 1, view.coin[:, None], floor) if rounding.any() else floor
    tick = floor + (doubled & 1 & upwards)
    return tick - side * tax if tax.any() else tick


def placed_ticks(
    m: Markets, tick: np.ndarray, sells: np.ndarray, fired: np.ndarray, collar_price: np.ndarray
) -> np.ndarray:
    """Return where orders go, [m, n]: those priced at `tick`, tax and all, and marketable ones, which have `fired`."""
    tick = np.where(fired, np.where(sells, 0, m.num_levels - 1), tick)
    return on_grid(m, limited(m, tick, sells, collar_price))


def orders_of(
    m: Markets, word: np.ndarray, side: np.ndarray, offset: np.ndarray, takes: np.ndarray | bool, view: View
) -> tuple[np.ndarray, ...]:
    """Return tick, quantity and whether each order is marketable, [m, n]; `takes`: whether it may be."""
    sells = side < 0
    quantity = 1 + (bits(word, 32, 16) * m.now["max_order_qty"][:, None] >> 16)
    fired = takes & (bits(word, 0, 24) < m.now["market_order_threshold"][:, None])
    tick = placed_ticks(m, limit_ticks(m, side, offset, view), sells, fired, view.collar_price)
    return tick, quantity, fired


def class_orders(m: Markets, kind: str, view: View) -> tuple[np.ndarray, ...]:
    """Return each order of one class, [m, n]: whether it sells, its tick, its quantity and whether it is marketable.

    n is the largest count of the class; an agent beyond its market's count has quantity 0.
    """
    count = m.params[f"num_{kind}"]
    member = np.arange(count.max(initial=0))
    agent = member if kind == "noise" else m.params[f"first_{kind}"][:, None] + member
    word = m.words(agent)
    side, offset = side_and_offset(m, kind, word, agent + m.t[:, None], view)
    tick, quantity, fired = orders_of(m, word, side, offset, kind != "maker", view)
    quantity[member >= count[:, None]] = 0
    return side < 0, tick, quantity, fired


def who_comes(m: Markets, g: np.ndarray) -> np.ndarray:
    """Return the indices of the agents that come at events g, [m, n]."""
    half = m.words(WORD_WHO, g >> 1)
    return (np.where(g & 1, bits(half, 32, 32), bits(half, 0, 32)) * m.params["num_agents"][:, None]) >> 32


def class_of(m: Markets, agent: np.ndarray) -> np.ndarray:
    """Return the classes of agents, [m, n], as places in CLASSES; NOBODY: a learner or a user's agent is instead."""
    first = [m.params[f"first_{name}"][:, None] if name != "noise" else 0 for name in CLASSES]
    count = [m.params[f"num_{name}"][:, None] for name in CLASSES]
    of_each = [(agent >= one) & (agent < one + many) for one, many in zip(first, count, strict=True)]
    return np.select(of_each, range(len(CLASSES)), NOBODY)


def order_of(m: Markets, parity: np.ndarray, kind: np.ndarray, word: np.ndarray, view: View) -> tuple[np.ndarray, ...]:
    """Return the order of a built-in agent, given its class and the event's word, [m]: as `class_orders`.

    `parity` is as in `side_and_offset`. The quantity is 0 where nobody comes.
    """
    word, parity = word[:, None], parity[:, None]
    side = offset = np.zeros_like(parity)
    for number in {*kind.tolist()} - {NOBODY}:
        of_class = side_and_offset(m, CLASSES[number], word, parity, view)
        here = (kind == number)[:, None]
        side, offset = (np.where(here, *parts) for parts in zip(of_class, (side, offset), strict=True))
    takes = (kind != CLASSES.index("maker"))[:, None]
    tick, quantity, fired = orders_of(m, word, side, offset, takes, view)
    return side[:, 0] < 0, tick[:, 0], np.where(kind == NOBODY, 0, quantity[:, 0]), fired[:, 0]
