"""`RegisteredEnv`: what environments that Gymnasium's registry makes know of how they were made.

`EnvSpec.to_json` and back gives the same environment, and `max_episode_steps` of `gymnasium.make` is the horizon.
`single` and `vector` derive from it.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Mapping
from typing import Any

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
    whose block is never forced. Nothing but the frame of `make` has it while the environment is made.

    Args:
        env: The environment, whose `__init__` calls.
    """
    frame = sys._getframe(1)
    while frame is not None and frame.f_locals.get("self") is env:  # its class's, and those of classes of users
        frame = frame.f_back
    if frame is None or frame.f_code is not registration.make.__code__:
        return None
    limit = frame.f_locals.get("max_episode_steps")
    if limit is None:
        limit = getattr(frame.f_locals.get("env_spec"), "max_episode_steps", None)
    return None if limit == -1 else limit  # -1 asks for no limit
