"""Checks of the actions that users give, before anything is played."""

from __future__ import annotations

from typing import Any

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


def _dtype(limit: int) -> torch.dtype:
    return torch.int64 if limit else torch.float32
