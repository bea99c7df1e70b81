"""`CustomTask`: a task of a user's own, with memory, random draws and actions, all of it in docs/question_to_task.md.

Users derive from it and give an instance as `custom_task=` to an environment. What it returns is checked and called by
`OwnStep` (own_step.py), as plain functions are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch

from kineticsim_env.envs.moments import After, Moment, Outcome
from kineticsim_env.runtime.orders import OrderRecords
from kineticsim_env.runtime.values import check_count, show

_DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)
_MOST_DRAWS = 1 << 20  # words of a slot's stream at one time
_SPACES = "a Box of float32, a Discrete or a MultiDiscrete of int64 that begin at 0"


class Memory(Mapping[str, torch.Tensor]):
    """What a task remembers, by name, as attributes: tensors `[M, *shape]`, or `[M, n, *shape]` of n learners.

    They are read only: new values are what `begin` and `update` return. They hold until the next call of these.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take the tensors."""
        self.__dict__.update(tensors)

    def __getitem__(self, name: str) -> torch.Tensor:
        """Return one by its name."""
        return self.__dict__[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self.__dict__)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.__dict__)

    def __getattr__(self, name: str) -> Any:
        """Say what there is instead."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"memory.{name}: there is no such thing; there are {', '.join(self) or 'none'}")


class Draws(NamedTuple):
    """Random words of a task's own stream, the same on every engine and device.

    Attributes:
        words: int64 `[M, d]`, or `[M, n, d]` of n learners, each from 0 to 2^32 - 1.
    """

    words: torch.Tensor

    @property
    def uniform(self) -> torch.Tensor:
        """The top 24 bits of each word as a number from 0 to below 1, float32 of the same shape."""
        return (self.words >> 8).float() * 2.0**-24


class CustomTask:
    """A task with memory, random draws and actions of its own: derive from it, and define what you need.

    Whatever is not defined is the built-in task's. Methods are given tensors of all M markets, `[M]` with one learner
    per market, `[M, n]` with n learners of a role, and return tensors of the same shape; nothing waits for a GPU if
    they do not. A decision goes so: `orders`, the market, `update`, `terminate`, `reward`, `features`; then, where an
    episode ended and the next one begins, `begin` and `features` again. Clones and environments share an object of the
    class: keep nothing in it that changes, but in `memory`.

    Attributes:
        memory: What is remembered, by name: a dtype (float32, float64, int32, int64, bool), or a pair of dtype and
            shape per market, such as `(torch.float32, (5,))`. It is 0 until `begin` says otherwise; clones and saved
            states have it.
        episode_draws: How many random words `begin` is given, each market and learner its own.
        decision_draws: How many `update` is given, others in every decision.
        action_space: The space of one learner's action in place of the built-in one, with `orders`; None is that one.
    """

    memory: Mapping[str, Any] = {}
    episode_draws: int = 0
    decision_draws: int = 0
    action_space: gym.Space | None = None

    def begin(self, after: After, draws: Draws) -> Mapping[str, torch.Tensor]:
        """Return what is remembered as an episode begins, by name; what is left out is 0.

        Called with all markets when some begin: only these are changed. `after` is the market's opening.
        """
        raise NotImplementedError

    def update(self, before: Moment, after: Outcome, memory: Memory, draws: Draws) -> Mapping[str, torch.Tensor]:
        """Return new values of what is remembered, by name; what is left out stays.

        Called once per decision, before anything else looks at it. Learners that took no part keep what they have.
        """
        raise NotImplementedError

    def reward(self, before: Moment, after: Outcome, memory: Memory) -> torch.Tensor:
        """Return rewards, float32 or float64; memory is that after `update`."""
        raise NotImplementedError

    def terminate(self, before: Moment, after: Outcome, memory: Memory) -> torch.Tensor:
        """Return where episodes terminate with this decision, bool."""
        raise NotImplementedError

    def features(self, after: After, memory: Memory) -> Any:
        """Return further features: float32 or float64 `[M]` or `[M, g]`, or a list of such."""
        raise NotImplementedError

    def orders(self, action: torch.Tensor, view: After, memory: Memory) -> torch.Tensor | OrderRecords:
        """Return what an action of `action_space`, `[M, *shape]`, submits: the built-in action, or `ks.OrderRecords`.

        `view` is the market as it stands. Nothing has been played if it raises.
        """
        raise NotImplementedError


def defines(task: CustomTask, name: str) -> bool:
    """Return whether a task has a method of its own."""
    return getattr(type(task), name) is not getattr(CustomTask, name)


def check_custom_task(name: str, given: Any) -> CustomTask:
    """Return a task whose declarations are right.

    Raises:
        TypeError, ValueError: Naming the attribute, what came and what is allowed.
    """
    if not isinstance(given, CustomTask):
        hint = f"; write {given.__name__}()" if isinstance(given, type) and issubclass(given, CustomTask) else ""
        raise TypeError(f"{name}: expected an object of a class derived from CustomTask, got {show(given)}{hint}")
    for attribute, method in (("episode_draws", "begin"), ("decision_draws", "update")):
        count = check_count(f"{name}.{attribute}", getattr(given, attribute), 0, _MOST_DRAWS)
        if count and not defines(given, method):
            raise ValueError(f"{name}.{attribute}: expected 0 without a method {method!r}, got {count}")
    declared = memory_of(name, given)
    for method in ("begin", "update"):
        if defines(given, method) and not declared:
            raise ValueError(f"{name}.memory: expected names of what {method!r} returns, got none")
    if declared and not (defines(given, "begin") or defines(given, "update")):
        raise ValueError(f"{name}.memory: expected a method 'begin' or 'update' that returns it, got neither")
    if (given.action_space is None) == defines(given, "orders"):
        found = "'orders' alone" if given.action_space is None else "'action_space' alone"
        raise ValueError(f"{name}: expected both 'action_space' and 'orders' or neither, got {found}")
    if given.action_space is not None:
        _check_space(f"{name}.action_space", given.action_space)
    return given


def memory_of(name: str, task: CustomTask) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Return what a task declares that it remembers: dtype and shape by name."""
    allowed = "a dict of dtypes, or pairs of dtype and shape, by name"
    if not isinstance(task.memory, Mapping):
        raise TypeError(f"{name}.memory: expected {allowed}, got {show(task.memory)}")
    found = {}
    for key, given in task.memory.items():
        dtype, shape = given if isinstance(given, tuple) and len(given) == 2 else (given, ())
        whole = isinstance(shape, (tuple, list)) and all(type(size) is int and size > 0 for size in shape)
        if not (isinstance(key, str) and key.isidentifier() and dtype in _DTYPES and whole):
            kinds = ", ".join(str(one) for one in _DTYPES)
            raise ValueError(f"{name}.memory[{key!r}]: expected {allowed}, of {kinds}, got {show(given)}")
        if hasattr(Memory, key):
            raise ValueError(f"{name}.memory[{key!r}]: expected a name that no method of a Mapping has, got {key!r}")
        found[key] = (dtype, tuple(shape))
    return found


def _check_space(name: str, space: Any) -> None:
    boxed = isinstance(space, gym.spaces.Box) and space.dtype == np.float32
    counted = isinstance(space, gym.spaces.Discrete) and space.start == 0 and space.dtype == np.int64
    listed = (
        isinstance(space, gym.spaces.MultiDiscrete)
        and space.nvec.ndim == 1
        and space.dtype == np.int64
        and not np.any(space.start)
    )
    if not (boxed or counted or listed):
        raise ValueError(f"{name}: expected {_SPACES}, got {show(space)}")
