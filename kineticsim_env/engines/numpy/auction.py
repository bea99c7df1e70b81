"""The call auction: what is seen before it, every agent's order in "each", clearing, and what follows from it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kineticsim_env.engines.numpy import beats
from kineticsim_env.engines.numpy.agents import Seen, added_orders, look
from kineticsim_env.engines.numpy.orders import (
    View,
    class_orders,
    limit_quote_prices,
    marketable_ticks,
    on_grid,
    to_multiple,
)
from kineticsim_env.engines.numpy.rules import best_with_quotes, bits, clear_auction, clip, ration, scatter
from kineticsim_env.engines.numpy.state import CLASSES, WORD_RATIONING, WORD_WALK, Markets


def quotes_on_grid(m: Markets) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return tick and quantity of the standing bids, then asks, [m, K]; the quantity is 0 off the grid.

    In an auction a quote beyond the grid's far end is at the last multiple of the tick size there; in the continuous
    market it took such a price for good when it came, and stands at its price whatever the tick size is now.
    """
    last = m.num_levels - 1
    bid_tick, ask_tick = m.quotes[..., 0] - m.price_origin[:, None], m.quotes[..., 2] - m.price_origin[:, None]
    bid_qty = np.where(bid_tick >= 0, m.quotes[..., 1], 0)
    ask_qty = np.where(ask_tick <= last, m.quotes[..., 3], 0)
    if m.continuous:
        return clip(bid_tick, 0, last), bid_qty, clip(ask_tick, 0, last), ask_qty
    return on_grid(m, bid_tick), bid_qty, on_grid(m, ask_tick), ask_qty


def observed_mid2(m: Markets) -> np.ndarray:
    """The doubled mid of the resting book and the standing quotes, on the grid."""
    best_bid, best_ask = best_with_quotes(m.bid, m.ask, quotes_on_grid(m))
    return np.where((best_bid >= 0) & (best_ask < m.num_levels), best_bid + best_ask, 2 * m.last_tick)


class Waiting(NamedTuple):
    """Orders that an auction will clear, buys first."""

    quantity: np.ndarray  # [m, 2, L]
    marketable: np.ndarray  # [m, 2], the marketable part of it
    marketable_tick: np.ndarray  # [m, 2], where that is


def submit_orders(m: Markets, view: View, seen: Sequence[Seen]) -> Waiting:
    """Return the orders of every agent; `seen`: what those see that users have added."""
    shape = (len(m.rows), 2, m.num_levels)
    ends = marketable_ticks(m, view.collar_price)
    classes = [class_orders(m, kind, view) for kind in CLASSES if m.params[f"num_{kind}"].any()]
    if m.groups:
        classes.append(added_orders(m, view, seen))
    if not classes:
        return Waiting(np.zeros(shape, np.int64), np.zeros(shape[:2], np.int64), ends)
    sells, tick, quantity, fired = (np.concatenate(parts, axis=1) for parts in zip(*classes, strict=True))
    orders = scatter((2 * np.arange(shape[0])[:, None] + sells, tick), quantity, shape)
    marketable = np.where(fired, quantity, 0)
    sold = marketable.sum(axis=1, where=sells)
    return Waiting(orders, np.stack([marketable.sum(axis=1) - sold, sold], axis=1), ends)


def book_fills(m: Markets, bought: np.ndarray, sold: np.ndarray, paid: np.ndarray) -> None:
    """Book fills [m, K] that cost so much, ticks x units [m, K]; fees and tax come on top."""
    m.cash = m.cash - paid
    m.inventory = m.inventory + bought - sold
    m.fees = m.fees + (bought + sold) * (m.params["fee"] + 1000 * m.params["tax"])[:, None]


def clear(m: Markets, waiting: Waiting, mid2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Clear what waits, rests and is quoted; return the volume [m] and the fills (bought, sold) [m, K, 2].

    Ties may go to `mid2`, the mid on the grid, [m]. The markets' time goes on.
    """
    bid_tick, bid_qty, ask_tick, ask_qty = quotes_on_grid(m)
    book, shape = np.arange(len(m.rows)), m.bid.shape
    buy = m.bid + waiting.quantity[:, 0] + scatter((book[:, None], bid_tick), bid_qty, shape)
    sell = m.ask + waiting.quantity[:, 1] + scatter((book[:, None], ask_tick), ask_qty, shape)
    m.check_totals(np.maximum(buy.sum(axis=1), sell.sum(axis=1)))

    mid_price = (mid2 >> 1) + (mid2 & m.t & 1) + m.price_origin
    mid_tick = to_multiple(mid_price, m.params["tick_size"], False) - m.price_origin
    target = np.where(m.params["tie"] == 1, mid_tick, -1)
    price, volume, traded_buy, traded_sell = clear_auction(buy, sell, target)
    rationing_word = m.word(WORD_RATIONING)
    bought = ration(bid_tick, bid_qty, buy, traded_buy, bits(rationing_word, 0, 32))
    sold = ration(ask_tick, ask_qty, sell, traded_sell, bits(rationing_word, 32, 32))
    m.bid = buy - traded_buy - scatter((book[:, None], bid_tick), bid_qty - bought, shape)
    m.ask = sell - traded_sell - scatter((book[:, None], ask_tick), ask_qty - sold, shape)
    m.quotes[..., 1::2] -= np.stack([bought, sold], axis=-1)
    book_fills(m, bought, sold, (bought - sold) * (price + m.price_origin)[:, None])

    m.signed_volume = waiting.marketable[:, 0] - waiting.marketable[:, 1]
    gone = waiting.marketable * (m.params["residue"] == 1)[:, None]
    for side, resting in enumerate((m.bid, m.ask)):
        end = waiting.marketable_tick[:, side]
        resting[book, end] = np.maximum(0, resting[book, end] - gone[:, side])
    m.last_tick = np.where(volume > 0, price, m.last_tick)
    m.trades = m.trades + (volume > 0)
    m.volume = m.volume + volume
    m.t = m.t + 1
    return volume, np.stack([bought, sold], axis=-1)


def auction_of_each(m: Markets, new_quotes: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Hold one auction to which every agent comes; return its volume [m] and the fills (bought, sold) [m, K, 2].

    Quotes are int [m, K, 4] already within the pre-trade limits, or None: standing ones stay. On an error the markets
    are left half done.
    """
    always = np.ones(len(m.rows), bool)
    beats.switch_regime(m, m.t, always)
    beats.walk_fundamental(m, m.t, always)
    loss = beats.cancelled(m, np.stack([m.bid, m.ask], axis=1), m.t, always)
    m.bid, m.ask = m.bid - loss[:, 0], m.ask - loss[:, 1]

    beats.take_return(m, observed_mid2(m), always)
    beats.slide_window(m, m.prev_mid2, always)
    view = View(m.prev_mid2, m.ret, m.last_price, bits(m.word(WORD_WALK), 16, 1))
    seen = look(m, view, m.t, quotes_on_grid(m))
    if new_quotes is not None:
        m.quotes = limit_quote_prices(m, new_quotes, view.collar_price)
    return clear(m, submit_orders(m, view, seen), m.prev_mid2)
