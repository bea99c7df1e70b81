"""Policies that play slots in the launch, as engines have them: where their numbers are, and their tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import torch

from kineticsim_env.agents.policies import ProgramPolicy, text_of_policy
from kineticsim_env.runtime import layout

PLAYED = ("played_quotes", "played_flags")  # of their tensors in `struct Launch`, those of the last decision


@dataclasses.dataclass(frozen=True)
class SlotPlace:
    """The policy of a slot; the names are those of `struct SlotPolicy`."""

    policy: ProgramPolicy
    number: int  # 1 + its place among different policies
    parameters: int
    memory: int
    words: int


@dataclasses.dataclass(frozen=True)
class SlotPolicies:
    """The policies of some slots.

    Attributes:
        places: By slot.
        different: The policies whose texts differ, in their order.
        tensors: By name in `struct Launch`.
    """

    places: Mapping[int, SlotPlace]
    different: tuple[ProgramPolicy, ...]
    tensors: Mapping[str, torch.Tensor]

    @property
    def key(self) -> object:
        """What is the same for those that the same kernel plays with tensors of the same shapes."""
        slots = tuple((slot, place.number) for slot, place in self.places.items())
        shapes = tuple(tuple(tensor.shape) for tensor in self.tensors.values())
        return slots, tuple(text_of_policy(one, 0) for one in self.different), shapes


@torch.inference_mode(False)  # tensors made in inference mode cannot be written to outside of it
def placed(policies: Mapping[int, ProgramPolicy], sizes: layout.Sizes, device: torch.device) -> SlotPolicies:
    """Return the policies of slots with tensors of their own.

    Raises:
        ValueError: If a ladder has more levels than the market's, or a parameter another number of markets.
    """
    levels, markets = layout.levels_of_ladders(sizes), sizes["M"]
    texts: dict[str, ProgramPolicy] = {}
    places: dict[int, SlotPlace] = {}
    columns: list[np.ndarray] = []
    memory = 0
    for slot, policy in policies.items():
        if policy.levels > levels:
            raise ValueError(
                f"{policy.name}: expected up to {levels} levels, the orders_per_side of the market, got {policy.levels}"
            )
        text = text_of_policy(policy, 0)
        texts.setdefault(text, policy)
        number, words = 1 + list(texts).index(text), len(policy.memory)
        places[slot] = SlotPlace(policy, number, len(columns), memory, words)
        memory += words
        for name, value in policy.parameters.items():
            if np.ndim(value) and len(value) != markets:
                raise ValueError(f"{policy.name}.{name}: expected {markets} values, one per market, got {len(value)}")
            columns.append(np.atleast_1d(np.asarray(value, np.int32)))
    rows = markets if any(len(column) > 1 for column in columns) else 1
    table = np.stack([np.broadcast_to(column, rows) for column in columns], 1) if columns else np.zeros((1, 1))
    tensors = {
        "policy_parameters": torch.from_numpy(np.ascontiguousarray(table, np.int32)).to(device),
        "policy_memory": torch.zeros((markets, max(1, memory)), dtype=torch.int32, device=device),
        **layout.allocate(PLAYED, sizes, device),
    }
    return SlotPolicies(places, tuple(texts.values()), tensors)
