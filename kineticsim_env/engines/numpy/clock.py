"""The clock: events, one built-in agent each, and the call auction that clears what they left at an interval's end.

Events are numbered g through an episode; markets have come to different numbers, so each has beats of its own.
"""

from collections.abc import Iterator

import numpy as np

from kineticsim_env.engines.numpy import beats
from kineticsim_env.engines.numpy.agents import added_order_at, look
from kineticsim_env.engines.numpy.auction import Waiting, clear, observed_mid2, quotes_on_grid
from kineticsim_env.engines.numpy.orders import View, limit_quote_prices, marketable_ticks, order_of, who_comes
from kineticsim_env.engines.numpy.rules import bits
from kineticsim_env.engines.numpy.state import WORD_WALK, Markets


def events(m: Markets) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield, of each event of the present interval, its number g, its beat's b, and whether the beat is due, [m]."""
    for place in range(int(m.params["interval"][0])):
        g = m.first_event + place
        yield g, g // m.params["beat"], g % m.params["beat"] == 0


def view_at(m: Markets, b: np.ndarray) -> View:
    """Return what an agent knows who comes after beat b."""
    return View(observed_mid2(m), m.ret, m.beat_price, bits(m.word(WORD_WALK, b), 16, 1))


def coming_order(m: Markets, g: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the order of who comes at event g after beat b, [m]: as `orders.order_at`."""
    view = view_at(m, b)
    agent, word = who_comes(m, g), m.word(0, g)
    built_in = order_of(m, agent, word, g, view)
    if not m.groups:
        return built_in
    added = added_order_at(m, agent, word, view, look(m, view, g, quotes_on_grid(m)))
    return tuple(np.where(agent >= m.first_added, one, other) for one, other in zip(added, built_in, strict=True))


def call_on_the_clock(m: Markets, fresh: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Let an interval's agents come, whose orders wait, and clear; return volume [m] and fills [m, K, 2].

    Quotes and errors are as in `auction_of_each`.
    """
    book = np.arange(len(m.rows))
    beats.slide_window(m, observed_mid2(m), np.ones(len(m.rows), bool))
    m.beat_price = m.last_price
    waiting = np.zeros((len(m.rows), 2, m.num_levels), np.int64)
    marketable = np.zeros((len(m.rows), 2), np.int64)
    for g, b, due in events(m):
        if due.any():
            hold_beat(m, waiting, g, b, due)
        sells, tick, quantity, fired = coming_order(m, g, b)
        side = sells.astype(np.int64)
        waiting[book, side, tick] += quantity
        marketable[book, side] += quantity * fired
        m.check_totals(np.where(quantity > 0, side_totals(m, waiting)[book, side], 0))
    mid2 = observed_mid2(m)
    if fresh is not None:
        m.quotes = limit_quote_prices(m, fresh, m.beat_price)
    return clear(m, Waiting(waiting, marketable, marketable_ticks(m, m.beat_price)), mid2)


def hold_beat(m: Markets, waiting: np.ndarray, g: np.ndarray, b: np.ndarray, due: np.ndarray) -> None:
    """Hold beat b, before event g, where it is due; cancellation takes from what rests first, then from `waiting`."""
    beats.switch_regime(m, b, due)
    beats.walk_fundamental(m, b, due)
    resting = np.stack([m.bid, m.ask], axis=1)
    loss = beats.cancelled(m, resting + waiting, b, due)
    from_resting = np.minimum(loss, resting)
    m.bid, m.ask = m.bid - from_resting[:, 0], m.ask - from_resting[:, 1]
    waiting -= loss - from_resting
    interval, beat = m.params["interval"], m.params["beat"]
    beats.take_return(m, observed_mid2(m), due & ((g == 0) | (g // interval > (g - beat) // interval)))


def side_totals(m: Markets, waiting: np.ndarray) -> np.ndarray:
    """Return all that is wanted and offered, standing quotes included, [m, 2]."""
    _, bid_qty, _, ask_qty = quotes_on_grid(m)
    quoted = np.stack([bid_qty.sum(axis=1), ask_qty.sum(axis=1)], axis=1)
    return np.stack([m.bid.sum(axis=1), m.ask.sum(axis=1)], axis=1) + waiting.sum(axis=2) + quoted
