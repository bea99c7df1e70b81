"""`OwnFunctions`: what users give as `reward`, `features` and `terminate`, or as a `CustomTask` that has all of it.

`own_functions` checks the arguments for the environments; `OwnStep` in own_step.py calls them. docs/custom_task.md
has the whole of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.envs.custom_tasks import CustomTask, check_custom_task, defines, memory_of
from kineticsim_env.runtime.values import show

Function = Callable[..., torch.Tensor]
_WHAT = {
    "reward": "a name of a built-in reward, or a function of before and after",
    "features": "a list of functions of after",
    "terminate": "a function of before and after",
}
_TASK = "a CustomTask"


@dataclasses.dataclass(frozen=True)
class OwnFunctions:
    """The functions of the learners of one role; None or empty is what the task has."""

    reward: Function | None = None
    features: tuple[Function, ...] = ()
    terminate: Function | None = None
    task: CustomTask | None = None  # whose methods may be among them

    def of_task(self, name: str) -> Function | None:
        """Return a method that the task has, or None."""
        return getattr(self.task, name) if self.task is not None and defines(self.task, name) else None

    def is_of_task(self, function: Function) -> bool:
        """Return whether a function is a method of the task, which is given its memory too."""
        return self.task is not None and getattr(function, "__self__", None) is self.task

    def of_opponent(self) -> OwnFunctions:
        """Return what an opponent of the same role has of it: what it sees, and what the task remembers of it."""
        return dataclasses.replace(self, reward=None, terminate=None)


@dataclasses.dataclass(frozen=True)
class Own:
    """All functions of an environment, by role; `many`: its tensors have an axis of learners."""

    by_role: Mapping[str, OwnFunctions]
    many: bool

    @property
    def pays(self) -> bool:
        """Whether any learner's reward is the user's."""
        return any(functions.reward for functions in self.by_role.values())

    @property
    def acts(self) -> tuple[str, ...]:
        """The roles whose actions are of the user's own space."""
        return tuple(role for role, functions in self.by_role.items() if functions.of_task("orders"))

    def about(self) -> dict[str, list[str]]:
        """Return which of them each role has, for saved states, and what its task remembers."""
        return {role: list(_told(functions)) for role, functions in self.by_role.items()}


def _told(functions: OwnFunctions) -> Iterator[str]:
    yield from (name for name in _WHAT if getattr(functions, name))
    if functions.task is not None:
        yield from (name for name in ("begin", "update", "orders") if functions.of_task(name))
        for name, (dtype, shape) in memory_of("custom_task", functions.task).items():
            yield f"memory {name} {str(dtype).removeprefix('torch.')} {list(shape)}"


def own_functions(
    task: Mapping[str, Any],
    features: Any,
    terminate: Any,
    custom_task: Any,
    roles: Sequence[str],
    *,
    many: bool = False,
    always: bool = False,
) -> tuple[Own | None, dict[str, Any]]:
    """Return the functions among an environment's arguments, None without any, and the task's own fields.

    With `many` learners arguments may be dicts by role. `always` returns functions, none of them the user's, also where
    there are none: steps are scored by the host.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed.
    """
    fields, reward = dict(task), None
    if callable(fields.get("reward")) or isinstance(fields.get("reward"), Mapping):
        reward = fields.pop("reward")  # the task checks names
    given = {"reward": reward, "features": features, "terminate": terminate}
    by_role: dict[str, dict[str, Any]] = {role: {} for role in dict.fromkeys(roles)}
    for name, value in given.items():
        for role, one in _each_role(name, value, by_role, many, _WHAT[name]).items():
            of = f"{name}[{role!r}]" if isinstance(value, Mapping) else name
            by_role[role][name] = _check_features(of, one) if name == "features" else _check(name, of, one)
    for role, one in _each_role("custom_task", custom_task, by_role, many, _TASK).items():
        _add_task(f"custom_task[{role!r}]" if isinstance(custom_task, Mapping) else "custom_task", one, by_role[role])
    own = Own({role: OwnFunctions(**functions) for role, functions in by_role.items()}, many)
    return (own if always or any(own.about().values()) else None), fields


def roles_in(learners: Any, config: MarketConfig) -> tuple[str, ...]:
    """Return the roles that there are learners of, each once; whoever makes the market checks the rest."""
    if not isinstance(learners, Mapping):
        return ()
    declared = {kind.name: kind.role for kind in config.agents}
    return tuple(dict.fromkeys(declared.get(name, name) for name, count in learners.items() if count))


def _add_task(called: str, given: Any, functions: dict[str, Any]) -> None:
    """Add a task, and those of its methods that stand for functions, to those of its role."""
    task = functions["task"] = check_custom_task(called, given)
    for name in (name for name in _WHAT if defines(task, name)):
        if functions.get(name):
            raise ValueError(f"{name}: expected None beside a {called} that has a method {name!r}, got a function too")
        functions[name] = (task.features,) if name == "features" else getattr(task, name)


def _each_role(name: str, value: Any, roles: Mapping[str, Any], many: bool, allowed: str) -> dict[str, Any]:
    """Return what is given for each role, without those for which nothing is."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        return dict.fromkeys(roles, value)
    if not many:
        raise TypeError(f"{name}: expected {allowed}, got a dict")
    odd = [role for role in value if role not in roles]
    if odd:
        raise ValueError(f"{name}: expected one of {', '.join(roles)}, got the role {show(odd[0])}")
    return dict(value)


def _check(name: str, called: str, function: Any) -> Function:
    if not callable(function):
        raise TypeError(f"{called}: expected {_WHAT[name]}, got {type(function).__name__} {show(function)}")
    return function


def _check_features(called: str, functions: Any) -> tuple[Function, ...]:
    if callable(functions) or isinstance(functions, (str, Mapping)) or not isinstance(functions, Sequence):
        raise TypeError(f"{called}: expected {_WHAT['features']}, got {type(functions).__name__}")
    return tuple(_check("features", f"{called}[{place}]", one) for place, one in enumerate(functions))
