"""Decisions that events end: the part "Decisions at events" of docs/environment.md; `decide` of tasks.py calls it.

An interval is one event then. Markets of a batch need different numbers of events to their next decisions: those that
have come to it are left alone, and the others go on.
"""

from typing import Any

import numpy as np

from kineticsim_env.engines.numpy.market import best_of_sides, decision
from kineticsim_env.engines.numpy.state import Markets

INTERVAL, FILL, TOUCH = range(3)  # of enum Decide


def play_to_event(
    args: dict[str, Any], m: Markets, quotes: np.ndarray, flags: np.ndarray, volume: np.ndarray, fills: np.ndarray
) -> tuple[Markets, np.ndarray]:
    """Submit quotes [m, K, N, 4] with flags [m, K, N], and let each market go on to the event that ends its decision.

    Volume [m] and fills [m, K, 2] are added to what the caller gives.

    Returns:
        The markets then, which `args` have as well, and how many events it took, [m].
    """
    task, touch, rejects = args["task"], best_of_sides(m), np.zeros_like(m.rejects)
    left = np.broadcast_to(m.task_of(task, 0)["horizon"] - m.elapsed, m.elapsed.shape)  # events of the episode
    events = np.zeros_like(m.elapsed)
    m.store(args)
    going = np.arange(len(m.rows))
    for event in range(args["auctions"]):
        some = Markets(args, m.rows[going])
        submitted = (quotes[going], flags[going]) if event == 0 else (None, None)
        for volume_of_event, filled in decision(some, 1, *submitted):
            volume[going] += volume_of_event
            fills[going] += filled
        rejects[going] |= some.rejects
        some.store(args)
        events[going] += 1
        if task["decide"] == FILL:
            happened = fills[going].any(axis=(1, 2))
        else:
            happened = (best_of_sides(some) != touch[going]).any(axis=1)
        going = going[~happened & (events[going] < left[going])]
        if not going.size:
            break
    m = Markets(args, m.rows)
    m.rejects = rejects
    return m, events
