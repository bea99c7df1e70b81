"""`RegisteredEnv`: what environments that Gymnasium's registry makes know of how they were made.

`EnvSpec.to_json` and back gives the same environment, and `max_episode_steps` is the horizon: that of `gymnasium.make`
sets it, that of a spec says it. `single` and `vector` derive from it.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.envs import registration

from kineticsim_env.config import MarketConfig, plain_fields
from kineticsim_env.runtime.values import show

if TYPE_CHECKING:
    from kineticsim_env.envs.core import EnvCore


class RegisteredEnv:
    """Base of the environments that Gymnasium registers."""

    core: EnvCore
    _spec: registration.EnvSpec | None = None

    @property
    def spec(self) -> registration.EnvSpec | None:
        """How the environment was made, None where it was not by Gymnasium.

        Its `kwargs` are as JSON keeps them. Its `max_episode_steps` is the horizon, for wrappers that look for it;
        where episodes differ in length, or events end decisions, it is left as it came: there is no one number.
        """
        return self._spec

    @spec.setter
    def spec(self, spec: registration.EnvSpec | None) -> None:
        if spec is not None:
            kwargs, limit, core = pack_arguments(spec.kwargs), spec.max_episode_steps, self.core
            if not core.task.decides_at_events and "horizon" not in core.live_task.values.names:
                kwargs.pop("max_episode_steps", None)  # an argument of environments of many markets
                limit = core.task.horizon
            spec = dataclasses.replace(spec, kwargs=kwargs, max_episode_steps=limit)
        self._spec = spec


def pack_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of an environment in forms that JSON keeps, of which the same environment is made."""
    return {name: _pack_randomise(value) if name == "randomise" else _pack(value) for name, value in arguments.items()}


def _pack_randomise(given: Any) -> Any:
    """Return the argument `randomise`, as `make_scenarios` takes it too."""
    if isinstance(given, MarketConfig):
        return {"scenarios": _pack(given)}
    if given is None or set(given) == {"scenarios"}:
        return _pack(given)
    return {name: _pack_choice(choice) for name, choice in given.items()}


def _pack_choice(choice: Any) -> Any:
    if isinstance(choice, Mapping):
        return _pack(choice)
    packed = [_pack(value) for value in choice]
    return dict(zip(("low", "high"), packed, strict=True)) if isinstance(choice, tuple) else {"values": packed}


def _pack(value: Any) -> Any:
    """Return one argument; what nothing is known of stays as it is."""
    if isinstance(value, MarketConfig):
        value = plain_fields(value)
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, (np.ndarray, np.generic, torch.Tensor)):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _pack(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_pack(entry) for entry in value]
    return value


def limit_of_make(env: object) -> Any:
    """Return the `max_episode_steps` of the `gymnasium.make` that makes this environment, None without one.

    `make` hands it to the wrapper `TimeLimit` alone, which cuts episodes from outside: one of another horizon, or one
    whose block is never forced. Gymnasium has no documented way to ask for it while an environment is made, so it is
    read from the frame of `make`; a `make` that does not have it there is an error, not an environment without a limit.

    Args:
        env: The environment, whose `__init__` calls.

    Raises:
        ValueError: If the call of `make` has another horizon than the spec that it is given.
        RuntimeError: If Gymnasium makes the environment, but in another way than that of `_MAKES`.
    """
    frame = _maker_of(env, sys._getframe(1))
    if frame is None:
        return None
    if frame.f_code.co_name != "make" or not _MAKES.issubset(frame.f_locals):
        found = f"{frame.f_code.co_name!r} of {frame.f_globals['__name__']}"
        raise RuntimeError(
            f"gymnasium {gym.__version__}: expected a 'make' with {' and '.join(sorted(_MAKES))}, as in versions 1.1 "
            f"to 1.4, got a call by {found}, which hides max_episode_steps; install one of these, or call "
            f"{type(env).__name__}(horizon=...) or gymnasium.make_vec"
        )
    limit = frame.f_locals["max_episode_steps"]
    if limit is None:
        limit = frame.f_locals["env_spec"].max_episode_steps
        _check_horizon(limit, frame)
    return None if limit == -1 else limit  # -1 asks for no limit


def check_limit_of_spec(env: object) -> None:
    """Refuse a `gymnasium.make_vec` with another horizon than the spec that it is given.

    Args:
        env: The environment, whose `__init__` calls.

    Raises:
        ValueError: If there is one.
    """
    frame = _maker_of(env, sys._getframe(1))
    if frame is not None and "max_episode_steps" not in frame.f_locals.get("kwargs", {}):
        _check_horizon(getattr(frame.f_locals.get("env_spec"), "max_episode_steps", None), frame)


def _check_horizon(limit: Any, frame: types.FrameType) -> None:
    """Refuse a horizon among the arguments of a call that the limit of its spec would override in silence."""
    horizon = frame.f_locals.get("kwargs", {}).get("horizon", limit)
    if limit is not None and not np.array_equal(horizon, limit):
        raise ValueError(
            f"horizon: expected {limit}, the max_episode_steps of the spec, got {show(horizon)}; "
            f"give max_episode_steps instead"
        )


_MAKES = {"max_episode_steps", "env_spec"}  # the locals of `gymnasium.make` that say which limit it sets


def _maker_of(env: object, frame: types.FrameType | None) -> types.FrameType | None:
    """Return the frame of Gymnasium's that makes an environment, from one of its constructor; None if there is none."""
    while frame is not None and _has(frame, env):  # its class's, and those of classes of users
        frame = frame.f_back
    if frame is None or not frame.f_globals.get("__name__", "").startswith("gymnasium.envs."):
        return None
    return frame


def _has(frame: types.FrameType, env: object) -> bool:
    """Return whether a frame is of the making of an environment: nothing else has it yet."""
    held = list(frame.f_locals.values())
    return any(value is env or (type(value) is tuple and any(one is env for one in value)) for value in held)
