"""Order records in the place of actions: what all learners submit in a step, checked and put together for the engine.

Environments call `joined` where they are given `ks.OrderRecords`, and `EnvCore.step_records` plays it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kineticsim_env.envs.core import EnvCore
from kineticsim_env.runtime.layout import LAUNCH_FIELDS
from kineticsim_env.runtime.orders import OrderRecords, check_records

Part = tuple[str, int | slice, Any, tuple[int, ...]]


def are_records(given: Mapping[str, Any]) -> bool:
    """Return whether each learner's entry is records. Raises TypeError where some are, and others are actions."""
    found = [isinstance(one, OrderRecords) for one in given.values()]
    if any(found) and not all(found):
        raise TypeError("actions: expected order records of all learners or of none, got actions of some")
    return any(found)


def joined(core: EnvCore, parts: Sequence[Part]) -> dict[str, torch.Tensor]:
    """Return what slots submit, by its names in `struct Launch`: those that no part is of submit nothing.

    Args:
        core: The environment's.
        parts: Of some slots what errors call it, which slots, the `OrderRecords`, and the axes before a record's own.

    Raises:
        TypeError, ValueError: Naming the part, what came and what is allowed.
    """
    checked = [(at, check_records(name, given, shape, core.device, core.config)) for name, at, given, shape in parts]
    sizes = core.simulator.sizes | {"T": 1}
    found: dict[str, torch.Tensor] = {}
    for at, of_slots in checked:
        for name, tensor in of_slots.items():
            if name not in found:
                shape = LAUNCH_FIELDS[name].shape(sizes)
                found[name] = torch.zeros(shape, dtype=torch.int32, device=core.device)
            rows = found[name][0, :, at]
            rows.copy_(tensor.reshape(rows.shape))
    return found
