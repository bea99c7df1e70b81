"""What the learners of one market have together: their names, and a state of all that they see.

Used by the environments of many learners, `parallel` and `batched`.
"""

from __future__ import annotations

from collections.abc import Mapping

import gymnasium as gym
import numpy as np
import torch

from kineticsim_env.tasks.base import MARKET_FEATURES


def agent_names(roles: tuple[str, ...]) -> list[str]:
    """Return the names of agents, numbered within their role: `maker_0`, `maker_1`, `noise_0`."""
    return [f"{role}_{roles[:slot].count(role)}" for slot, role in enumerate(roles)]


def state_space(spaces: list[gym.spaces.Box]) -> gym.spaces.Box:
    """Return the space of what all agents see together: the market's features once, then each agent's own."""
    low = [space.low[0 if slot == 0 else MARKET_FEATURES :] for slot, space in enumerate(spaces)]
    return gym.spaces.Box(np.concatenate(low), 1.0, dtype=np.float32)


def joint_state(observation: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return what all learners of a market see together, float32 `[M, S]`, of observations `[M, n, F]` by role."""
    market = next(iter(observation.values()))[:, 0, :MARKET_FEATURES]
    return torch.cat([market, *(rows[..., MARKET_FEATURES:].flatten(1) for rows in observation.values())], dim=1)
