"""What the learners of one market have together, and `AgentResults`: what each of them sees and is told, in NumPy.

`MarketParallelEnv` returns the latter from resets and steps; `BatchedParallelEnv` has the same names and joint state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from kineticsim_env.envs.action_masks import ActionMasks
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.infos import info_of_slots
from kineticsim_env.tasks.base import MARKET_FEATURES

_ACCOUNT = ("inventory", "cash", "fees", "bought", "sold")


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


class AgentResults:
    """Reads the tensors of a core of one market. All is by agent, of those in the slots that play."""

    def __init__(self, core: EnvCore, agents: Sequence[str], *, masked: bool) -> None:
        """Make the views of a core of one market; agents are named slot by slot, `masked` infos have masks."""
        self._core, self._agents = core, agents
        roles = core.roles
        slots = {role: slice(roles.index(role), roles.index(role) + roles.count(role)) for role in roles}
        self._by_role = {role: core.seen("observation", role, of_role) for role, of_role in slots.items()}
        self._seen = [row for rows in self._by_role.values() for row in rows[0].unbind(0)]
        masks = roles if masked else ()
        self._masks = [ActionMasks(core, role, slice(slot, slot + 1)) for slot, role in enumerate(masks)]

    def observations(self, playing: list[int]) -> dict[str, np.ndarray]:
        """Return what agents see, float32 `[F]` each."""
        return {self._agents[slot]: self._seen[slot].cpu().numpy().copy() for slot in playing}

    def state(self) -> np.ndarray:
        """Return what all agents see together, float32 `[S]`."""
        return joint_state(self._by_role)[0].cpu().numpy()

    def infos(self, playing: list[int]) -> dict[str, dict[str, Any]]:
        """Return agents' accounts, and what else infos always have."""
        core = self._core
        tensors = core.simulator.tensors
        columns = [tensors[name][0].tolist() for name in ("inventory", "cash", "fees")]
        columns += core.fills[0].T.tolist()
        infos: dict[str, dict[str, Any]] = {
            self._agents[slot]: {name: column[slot] for name, column in zip(_ACCOUNT, columns, strict=True)}
            for slot in playing
        }
        for name in core.market_infos:
            number = int(core.tensors[name])
            for info in infos.values():
                info[name] = number
        if self._masks:
            for slot in playing:
                mask = self._masks[slot].update()[0, 0].cpu().numpy().astype(np.int8)
                infos[self._agents[slot]]["action_mask"] = mask
        return infos

    def add_account(self, infos: dict[str, dict[str, Any]], playing: list[int]) -> None:
        """Add what is known of each agent after the decision."""
        tensors = self._core.tensors
        columns = info_of_slots(tensors["info"].cpu(), len(self._agents), slice(None))
        known = {name: column[0].expand(len(self._agents)).tolist() for name, column in columns.items()}
        over, key = tensors["over"][0].tolist(), self._core.settings.account_key
        for slot in playing:
            account = {name: column[slot] for name, column in known.items()}
            infos[self._agents[slot]] |= {key: account, f"_{key}": over[slot]}
