"""Quotes under way: what slots have submitted in the continuous market, and when it arrives.

At most four submissions of a market are under way, the oldest first. A market whose quotes all arrive in the interval
in which they are submitted has one place for them, which nobody keeps from call to call.
"""

import numpy as np

from kineticsim_env.engines.numpy.ladders import Arriving, ladders_arrive
from kineticsim_env.engines.numpy.state import NOW, WAY_STATE, Markets


def submit(m: Markets, quotes: np.ndarray, flags: np.ndarray | None = None, at_deadline: bool = False) -> None:
    """Submit what a decision begins with: quotes [m, K, N, 4], flags [m, K, N] as in `struct Launch`, None are zeros.

    N is no axis with one order per side. Orders `at_deadline` take the place of all that is under way, and come before
    the interval ends.
    """
    each, interval, latency = np.arange(len(m.rows)), m.params["interval"], m.params["quote_latency"]
    begin = m.first_event
    if m.has_lengths:  # then all are nanoseconds
        begin, interval, latency = m.flow[:, NOW], m.interval_length, 1000 * latency
    if at_deadline:
        drop(m)
        latency = np.minimum(latency, interval - 1)
    place = np.minimum((m.due > 0).sum(axis=1), m.due.shape[1] - 1)  # where all are taken the newest is replaced
    before = np.where(place > 0, m.due[each, place - 1], 0)
    m.due[each, place] = np.maximum(1 + begin + latency, before)  # none overtakes another
    m.due_quotes[each, place] = quotes.reshape(m.due_quotes[:, 0].shape)
    m.due_flags[each, place] = 0 if flags is None else flags.reshape(m.due_flags[:, 0].shape)


def arrive(m: Markets, g: np.ndarray, came: np.ndarray, fills: np.ndarray) -> None:
    """Let what is due at event g, [m], arrive, one submission after another.

    `came`, [m], counts those that have arrived in the interval, and `fills`, [m, K, 2], what slots trade.
    """
    while (now := m.due[:, 0] == 1 + g).any():
        arrive_now(m, now, came, fills)


def arrive_now(m: Markets, now: np.ndarray, came: np.ndarray, fills: np.ndarray) -> None:
    """Let the oldest submission arrive in some markets, bool [m]; the rest is as in `arrive`."""
    flags = m.due_flags[:, 0]
    sides = np.stack([flags & 255, flags >> 8 & 255], axis=-1)
    ladders_arrive(m, Arriving(m.due_quotes[:, 0], sides, came * m.cash.shape[1]), now, fills)
    came += now
    drop(m, now)


def drop(m: Markets, chosen: np.ndarray | None = None) -> None:
    """Forget the oldest submission of the chosen markets, bool [m], or, of None, all that is under way."""
    for name in WAY_STATE:
        places = getattr(m, name)
        if chosen is None:
            places[...] = 0
            continue
        places[chosen, :-1] = places[chosen, 1:]
        places[chosen, -1] = 0
