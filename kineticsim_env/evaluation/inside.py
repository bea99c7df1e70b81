"""What plays an evaluation inside the launch of a step: programs, and the makers that can be played as one.

`programs_in` says which, for `evaluate`: where nothing stands between a policy and the market that its program would
pass by, that is wrappers, functions of the user's, and functions as opponents.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from kineticsim_env.agents.policies import ProgramPolicy
from kineticsim_env.envs.batched import BatchedParallelEnv
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.vector import MarketVectorEnv
from kineticsim_env.policies.quoting import Quoting
from kineticsim_env.runtime.calls import Uninterrupted
from kineticsim_env.tasks.base import Task

Programs = dict[int, ProgramPolicy]  # by slot
# What makers read of their task; other settings of it may be another's.
_READ = ("max_offset", "max_qty", "horizon", "inventory_limit", "orders_per_side", "keep", "decide", "columns")


def _no_action(_: torch.Tensor) -> None:
    """Stand for the program of the one learner: return what its `step` takes."""


class PlayedInside:
    """Stands for a program among several: returns actions that nobody looks at, the same tensor every time."""

    def __init__(self, core: EnvCore, slot: int) -> None:
        """Know what actions of a slot are like."""
        role = core.roles[slot]
        discrete = bool(core.task.num_choices(role))
        self._width = () if discrete else (core.task.action_form(role).size,)
        self._actions = torch.zeros((0, *self._width), dtype=torch.int64 if discrete else torch.float32)

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """Return float32 `[M, A]`, or choices int64 `[M]`, for observations `[M, F]`."""
        if len(self._actions) != len(observation):
            shape = (len(observation), *self._width)
            self._actions = torch.zeros(shape, dtype=self._actions.dtype, device=observation.device)
        return self._actions


def programs_in(given: Any, envs: Any, base: MarketVectorEnv | BatchedParallelEnv) -> tuple[Any, Programs]:
    """Return the policies that were given to `evaluate`, with a stand-in for each that plays inside, and the programs.

    Raises:
        ValueError: Naming a program that cannot play inside, and why.
    """
    core = base.core
    if not isinstance(base, BatchedParallelEnv):
        program = _program_of("policy", given, envs, core, 0)
        return (given, {}) if program is None else (_no_action, {0: program})
    if not isinstance(given, Mapping):
        return given, {}
    played: Programs = {}
    policies = dict(given)
    slots_of = {name: range(core.learners)[slots] for name, slots in base.groups.items()}
    slots_of |= {name: range(slot, slot + 1) for slot, name in enumerate(base.possible_agents)}
    for name, policy in given.items():
        slots = slots_of.get(name, range(0))
        program = _program_of(f"policy[{name!r}]", policy, envs, core, slots[0]) if slots else None
        if program is not None:
            policies[name] = PlayedInside(core, slots[0])
            played |= dict.fromkeys(slots, program)
    return policies, played


def _program_of(name: str, policy: Any, envs: Any, core: EnvCore, slot: int) -> ProgramPolicy | None:
    """Return what plays inside in the place of a policy, None where it is to be called."""
    where = _passed_by(envs, core)
    if isinstance(policy, ProgramPolicy):
        if where:
            raise ValueError(
                f"{name}: expected a function of observations {where}, which a program would pass by, got {policy!r}; "
                "give evaluate what evaluation_env returns, without them"
            )
        return policy
    quotes = core.task.action_form(core.roles[slot]).name == "quotes"
    if where or not isinstance(policy, Quoting) or not quotes or not _seen_alike(policy.task, core):
        return None
    return policy.program()


def _passed_by(envs: Any, core: EnvCore) -> str:
    """Return what a program would pass by, as messages have it; nothing where it may play."""
    if isinstance(envs, (MarketVectorEnv, BatchedParallelEnv)):
        if core.own is None:
            return ""
        return "beside opponents that are functions" if core.opponents else "beside features or rewards of your own"
    return "within wrappers"


def _seen_alike(task: Task, core: EnvCore) -> bool:
    """Return whether a maker of this task reads observations right, and so acts as its program does."""
    limits = (core.live_task.scenarios or core.config).inventory_limit
    shown = limits is None or isinstance(limits, int) or "inventory_limit" in core.task.columns
    return shown and all(getattr(task, name, None) == getattr(core.task, name, None) for name in _READ)


@contextmanager
def playing(core: EnvCore, programs: Programs) -> Generator[None]:
    """Let programs play slots inside, and in the end whoever played them before."""
    if not programs:
        yield
        return
    before = core.slot_programs
    try:
        core.set_slot_policies({**before, **programs})
        yield
    finally:
        with Uninterrupted():
            core.set_slot_policies(before)
