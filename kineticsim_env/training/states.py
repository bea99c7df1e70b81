"""Checks of what `PPO.load_state_dict` is given, before anything changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kineticsim_env.runtime.values import check_count, check_dict, show


def check_state(state: Any, here: Mapping[str, Any]) -> tuple[dict[int, dict[str, torch.Tensor]], float, int]:
    """Return Adam's tensors by parameter, its steps and the epochs of a state that has the form of the one here."""
    saved = check_dict("state", state, "a dict, as state_dict returns it")
    adam, epochs = saved.get("state"), check_count("state['epochs']", saved.get("epochs", 0), 0, 2**62)
    wanted = here["state"]
    if not isinstance(adam, Mapping) or set(adam) != set(wanted):
        raise ValueError(f"state['state']: expected parameters 0 to {len(wanted) - 1}, got {show(adam)}")
    for number, tensors in wanted.items():
        place = f"state['state'][{number}]"
        given = check_dict(place, adam[number], f"a dict of {', '.join(tensors)}")
        for name, tensor in tensors.items():
            found, asked = given.get(name), f"{place}['{name}']: expected finite numbers"
            if not isinstance(found, torch.Tensor) or found.shape != tensor.shape:
                got = list(found.shape) if isinstance(found, torch.Tensor) else show(found)
                raise ValueError(f"{asked} {list(tensor.shape)}, got {got}")
            if not bool(found.isfinite().all()):
                raise ValueError(f"{asked}, got some that are not")
    steps = {float(tensors["step"]) for tensors in adam.values()}
    if len(steps) > 1 or min(steps) < 0:
        raise ValueError(f"state['state']: expected one number of steps, from 0, got {sorted(steps)}")
    return dict(adam), steps.pop(), epochs
