"""`RegisteredEnv`: what environments that Gymnasium's registry makes know of how they were made.

`EnvSpec.to_json` and back gives the same environment, and `max_episode_steps` of `gymnasium.make` is the horizon.
`single` and `vector` derive from it.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.envs import registration

from kineticsim_env.config import MarketConfig, plain_fields


class RegisteredEnv:
    """Base of the environments that Gymnasium registers."""

    _spec: registration.EnvSpec | None = None

    @property
    def spec(self) -> registration.EnvSpec | None:
        """How the environment was made, None where it was not by Gymnasium; its `kwargs` are as JSON keeps them."""
        return self._spec

    @spec.setter
    def spec(self, spec: registration.EnvSpec | None) -> None:
        self._spec = spec if spec is None else dataclasses.replace(spec, kwargs=pack_arguments(spec.kwargs))


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
        RuntimeError: If Gymnasium makes the environment, but in another way than that of `_MAKES`.
    """
    frame = sys._getframe(1)
    while frame is not None and _has(frame, env):  # its class's, and those of classes of users
        frame = frame.f_back
    if frame is None or not frame.f_globals.get("__name__", "").startswith("gymnasium.envs."):
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
    return None if limit == -1 else limit  # -1 asks for no limit


_MAKES = {"max_episode_steps", "env_spec"}  # the locals of `gymnasium.make` that say which limit it sets


def _has(frame: types.FrameType, env: object) -> bool:
    """Return whether a frame is of the making of an environment: nothing else has it yet."""
    held = list(frame.f_locals.values())
    return any(value is env or (type(value) is tuple and any(one is env for one in value)) for value in held)
