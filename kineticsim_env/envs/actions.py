"""Checks of the actions that users give, before anything is played."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch

from kineticsim_env.runtime import layout
from kineticsim_env.runtime.checks import engine_input, host_array

MOST_ACTION = np.float32(1 + 1 / layout.CONSTANTS["kActionTolerance"])  # in size


def check_actions(
    actions: Any, shape: tuple[int, ...], device: torch.device, limit: int = 0, name: str = "actions"
) -> torch.Tensor:
    """Return actions as a contiguous tensor on the device, or raise and change nothing.

    Values are looked at where that needs no synchronisation: those that come in host memory. Engines clamp them.

    Args:
        actions: A tensor on the device, or anything that NumPy takes.
        shape: The shape they must have.
        device: Where the environment's tensors are.
        limit: 0 for continuous actions, float32 in [-1, 1], or outside by at most 0.001; else discrete ones, int64
            from 0 to limit - 1.
        name: What errors call them.
    """
    host = device.type == "cpu"
    if isinstance(actions, torch.Tensor) and not host:
        return engine_input(name, actions, _dtype(limit), shape, device)
    tensor = torch.from_numpy(check_host_actions(actions, shape, limit, name))
    return tensor if host else tensor.to(device)


def check_host_actions(actions: Any, shape: tuple[int, ...], limit: int, name: str = "actions") -> np.ndarray:
    """Return actions in host memory as a C-ordered array of the engine's dtype, or raise; see `check_actions`."""
    if isinstance(actions, torch.Tensor):
        given = engine_input(name, actions, _dtype(limit), shape, torch.device("cpu")).numpy()
    else:
        given = host_array(name, actions, _dtype(limit), shape)
    good = ((given >= 0) & (given < limit)) if limit else np.abs(given) <= MOST_ACTION  # False for NaN
    if not good.all():
        place = np.unravel_index(int(np.argmin(good)), shape)
        allowed = f"0 to {limit - 1}" if limit else "-1 to 1, give or take 0.001"
        where = f"{name}{[int(i) for i in place]}" if place else name
        raise ValueError(f"{where}: expected {allowed}, got {given[place]}")
    return given


def form_of(space: gym.Space) -> tuple[torch.dtype, tuple[int, ...]]:
    """Return the dtype and the shape of an action of a Box, a Discrete or a MultiDiscrete, as the engine takes it."""
    return torch.float32 if isinstance(space, gym.spaces.Box) else torch.int64, space.shape or ()


class SpaceCheck:
    """Checks actions of a user's own space: a Box, a Discrete or a MultiDiscrete of one learner.

    Its bounds are on the device from the start, as a step may neither wait for a GPU nor copy to it.
    """

    @torch.inference_mode(False)
    def __init__(self, space: gym.Space, device: torch.device) -> None:
        """Take the space."""
        self._space, self._device, self._form = space, device, form_of(space)
        if isinstance(space, gym.spaces.Box):
            low, high = torch.from_numpy(space.low), torch.from_numpy(space.high)
            slack = ((high - low) * (float(MOST_ACTION) - 1)).nan_to_num(posinf=0.0)
        else:
            high = torch.as_tensor(getattr(space, "nvec", getattr(space, "n", 0))) - 1
            low = slack = torch.zeros_like(high)
        self._low, self._high, self._slack = (bound.to(device, copy=True) for bound in (low, high, slack))

    def checked(self, actions: Any, batch: tuple[int, ...], name: str) -> torch.Tensor:
        """Return actions as a tensor on the device, `[*batch, *shape]`; see `check_actions`.

        Numbers of a Box up to 0.001 of its range outside of it are clamped, on a GPU whatever is outside.
        """
        dtype, shape = self._form
        given = engine_input(name, actions, dtype, (*batch, *shape), self._device)
        if self._device.type == "cpu":
            good = (given >= self._low - self._slack) & (given <= self._high + self._slack)  # False for NaN
            if not good.all():
                place = tuple(int(i) for i in (~good).nonzero()[0])
                where = f"{name}{list(place)}" if place else name
                raise ValueError(f"{where}: expected a number of {self._space}, got {given[place].item()}")
        return torch.clamp(given, self._low, self._high)


def _dtype(limit: int) -> torch.dtype:
    return torch.int64 if limit else torch.float32
