"""What the present episode has drawn for its slots and reads again at every step: what other futures have to hold.

Clones and forks call this. All else that an episode draws is state (engines/futures.py).
"""

from __future__ import annotations

import torch

from kineticsim_env.engines.futures import MOST_TRIED, WORD_SLOT, Held, num_tried
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.roles import SPECS

_MAX_TARGET = layout.ENUMS["TaskValue"]["max_target"]


def slots_draws(core: EnvCore) -> list[Held]:
    """Return the words of slots: targets of noise learners, sides of executors, and those of momentum learners now.

    The last are of the next decision, where the mid stood still; observations show them.
    """
    task, mids, held = core.live_task.task_of_all(), core.tensors["mid_history"], []
    for slot, role in enumerate(core.roles):
        index, spec = WORD_SLOT + slot, SPECS[role]
        if spec.has_target:
            values = core.tensors.get("task_values")
            most = task.max_target if values is None else values[:, slot, _MAX_TARGET].long()
            held.append(Held(0, index, bit=31, most=most, odds=2 * task.max_target))
        elif spec.has_block and task.side == "random":
            held.append(Held(0, index, bit=31))
        elif spec.follows:
            held.append(Held(core.simulator.tensors["t"], index, bit=31, idle=mids[:, 0] != mids[:, 1]))
    return held


def check_draws(name: str, core: EnvCore) -> None:
    """Raise ValueError where hardly any seed draws the same for the slots; `name` is the argument's."""
    tried = num_tried(slots_draws(core))
    if tried > MOST_TRIED:
        learners = sum(SPECS[role].has_target for role in core.roles)
        raise ValueError(
            f"{name}: expected an environment of whose episodes one seed of 2^20 draws the same sides and targets, got "
            f"one of {tried:,}: it has {learners} noise learners"
        )


def take_future(core: EnvCore, seeds: torch.Tensor) -> None:
    """Go on with the words of other seeds, int64 `[M]`, with which slots' draws stay as they are."""
    core.simulator._take_future(seeds, slots_draws(core))
    core.simulator.engine.state_changed()
