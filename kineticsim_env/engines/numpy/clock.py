"""The clock: events, one built-in agent each, and the call auction that clears what they left at an interval's end.

Events are numbered g through an episode; markets have come to different numbers, so each has beats of its own.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kineticsim_env.engines.numpy import beats
from kineticsim_env.engines.numpy.agents import added_order_at, look
from kineticsim_env.engines.numpy.auction import Waiting, clear, observed_mid2, quotes_on_grid
from kineticsim_env.engines.numpy.orders import (
    View,
    class_of,
    limit_quote_prices,
    marketable_ticks,
    order_of,
    who_comes,
)
from kineticsim_env.engines.numpy.rules import bits
from kineticsim_env.engines.numpy.state import WORD_WALK, Markets

AT_ONCE = 64  # events of an interval that are drawn together


class Event(NamedTuple):
    """What is drawn of one event of each market, [m] each, whatever its state."""

    g: np.ndarray  # its number
    b: np.ndarray  # that of its beat
    due: np.ndarray  # whether the beat comes first
    agent: np.ndarray  # who comes,
    kind: np.ndarray  # of which class, as `class_of`
    word: np.ndarray  # the order's random word
    coin: np.ndarray  # the beat's, for prices half way between ticks


def events(m: Markets) -> Iterator[Event]:
    """Yield the events of the present interval."""
    for places in np.split(np.arange(m.params["interval"][0]), range(AT_ONCE, m.params["interval"][0], AT_ONCE)):
        g, beat = m.first_event[:, None] + places, m.params["beat"][:, None]
        b, agent = g // beat, who_comes(m, g)
        coin = bits(m.words(WORD_WALK, b), 16, 1)
        of_all = (g, b, g % beat == 0, agent, class_of(m, agent), m.words(0, g), coin)
        yield from map(Event._make, zip(*(x.T for x in of_all), strict=True))


def coming_order(m: Markets, event: Event) -> tuple[np.ndarray, ...]:
    """Return the order of who comes, [m]: as `orders.order_of`."""
    view = View(observed_mid2(m), m.ret, m.beat_price, event.coin)
    built_in = order_of(m, event.agent + event.g, event.kind, event.word, view)
    if not m.groups:
        return built_in
    seen = look(m, view, event.g, quotes_on_grid(m))
    added, theirs = added_order_at(m, event.agent, event.word, view, seen), event.agent >= m.first_added
    return tuple(np.where(theirs, one, other) for one, other in zip(added, built_in, strict=True))


def call_on_the_clock(m: Markets, fresh: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Let an interval's agents come, whose orders wait, and clear; return volume [m] and fills [m, K, 2].

    Quotes and errors are as in `auction_of_each`.
    """
    book = np.arange(len(m.rows))
    beats.slide_window(m, observed_mid2(m), np.ones(len(m.rows), bool))
    m.beat_price = m.last_price
    waiting = np.zeros((len(m.rows), 2, m.num_levels), np.int64)
    marketable = np.zeros((len(m.rows), 2), np.int64)
    for event in events(m):
        if event.due.any():
            hold_beat(m, waiting, event.g, event.b, event.due)
        sells, tick, quantity, fired = coming_order(m, event)
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
