"""`OwnFunctions`: what users give as `reward`, `features` and `terminate`, and what such functions are given.

`own_functions` checks the arguments for the environments; `OwnStep` in own_step.py calls them. docs/custom_task.md
has the whole of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.values import show

Function = Callable[..., torch.Tensor]
_WHAT = {
    "reward": "a name of a built-in reward, or a function of before and after",
    "features": "a list of functions of after",
    "terminate": "a function of before and after",
}


class Moment:
    """What is known of markets and learners at a time: every name of `account_info` (docs/environment.md), live views.

    Each is float64: `[M]` with one learner per market; with n learners of a role `[M, n]`, and `[M, 1]` of the market.
    They are read only, and hold until the next step: clone what you keep.
    """

    name = "before"

    def __init__(self, known: Mapping[str, torch.Tensor]) -> None:
        """Take the views by name."""
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        """Say what there is instead."""
        if name.startswith("__"):
            raise AttributeError(name)
        allowed = ", ".join(self.__dict__)
        raise AttributeError(f"{self.name}.{name}: there is no such thing; there are {allowed}")


class After(Moment):
    """The same after a decision, or as an episode begins, and the book.

    Attributes:
        bid: Units that built-in agents have resting to buy, by tick of the grid, int32 `[M, L]`.
        ask: To sell, likewise.
        price_origin: The price of the grid's tick 0, int32 `[M]`.
        quotes: The learner's standing bid price, bid quantity, ask price, ask quantity, int32 `[M, 4]` or `[M, n, 4]`;
            of ladders at each place of each level, `[M, N, 2, 4]` or `[M, n, N, 2, 4]`.
        observation: The built-in features, float32 `[M, F]` or `[M, n, F]`.
        decision_events: How many events the decision had, int32 `[M]` or `[M, 1]`; 0 as an episode begins. Only where
            events end decisions.
    """

    name = "after"


class Outcome(After):
    """The same for `reward` and `terminate`, which may look at what the task itself says of the decision.

    Attributes:
        reward: The built-in reward, float32 `[M]` or `[M, n]`.
        terminated: Whether the learner's episode terminates with this decision, bool likewise; for `reward` the answer
            of `terminate` is in it.
        truncated: Whether it is truncated, likewise.
    """


@dataclasses.dataclass(frozen=True)
class OwnFunctions:
    """The functions of the learners of one role; None or empty is what the task has."""

    reward: Function | None = None
    features: tuple[Function, ...] = ()
    terminate: Function | None = None


@dataclasses.dataclass(frozen=True)
class Own:
    """All functions of an environment, by role; `many`: its tensors have an axis of learners."""

    by_role: Mapping[str, OwnFunctions]
    many: bool

    @property
    def pays(self) -> bool:
        """Whether any learner's reward is the user's."""
        return any(functions.reward for functions in self.by_role.values())

    def about(self) -> dict[str, list[str]]:
        """Return which of them each role has, for saved states."""
        return {role: [name for name in _WHAT if getattr(functions, name)] for role, functions in self.by_role.items()}


def own_functions(
    task: Mapping[str, Any],
    features: Any,
    terminate: Any,
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
        for role, one in _each_role(name, value, by_role, many).items():
            of = f"{name}[{role!r}]" if isinstance(value, Mapping) else name
            by_role[role][name] = _check_features(of, one) if name == "features" else _check(name, of, one)
    own = Own({role: OwnFunctions(**functions) for role, functions in by_role.items()}, many)
    return (own if always or any(own.about().values()) else None), fields


def roles_in(learners: Any, config: MarketConfig) -> tuple[str, ...]:
    """Return the roles that there are learners of, each once; whoever makes the market checks the rest."""
    if not isinstance(learners, Mapping):
        return ()
    declared = {kind.name: kind.role for kind in config.agents}
    return tuple(dict.fromkeys(declared.get(name, name) for name, count in learners.items() if count))


def _each_role(name: str, value: Any, roles: Mapping[str, Any], many: bool) -> dict[str, Any]:
    """Return what is given for each role, without those for which nothing is."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        return dict.fromkeys(roles, value)
    if not many:
        raise TypeError(f"{name}: expected {_WHAT[name]}, got a dict")
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
