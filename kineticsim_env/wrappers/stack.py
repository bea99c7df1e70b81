"""Features of decisions before, behind those of this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from kineticsim_env.runtime.checks import check_mapping
from kineticsim_env.runtime.values import check_count
from kineticsim_env.wrappers.base import TorchVectorWrapper


class StackObservation(TorchVectorWrapper):
    """Adds to every observation some of its features as they were at the decisions before, newest first.

    What lies before an episode's first decision is 0. Works under all three autoreset modes; under SAME_STEP
    `final_obs` has what came before it. In contrast to Gymnasium's `FrameStackObservation` the features are chosen, as
    the observation has the last four moves and volumes already, and rows stay flat. Decisions that events end last as
    long as they do; how long is a feature, too.

    """

    @torch.inference_mode(False)
    def __init__(self, env: VectorEnv, size: int, features: Sequence[int] | None = None) -> None:
        """Wrap an environment with torch output and observations of one dimension.

        Args:
            env: The environment.
            size: Decisions, the present one included.
            features: Places of the n features of earlier decisions; None is all F.
        """
        size = check_count("size", size, 1)
        RecordConstructorArgs.__init__(self, size=size, features=features)
        super().__init__(env)
        space: Any = env.single_observation_space
        width = space.shape[0]
        places = [
            check_count("features", one, 0, width - 1) for one in (range(width) if features is None else features)
        ]
        self._width, self._number, self._size = width, len(places), size
        self._places = torch.tensor(places, dtype=torch.int64, device=self.device)
        low, high = (np.minimum(space.low[places], 0.0), np.maximum(space.high[places], 0.0))
        low, high = (
            np.concatenate([one, np.tile(part, size - 1)]) for one, part in ((space.low, low), (space.high, high))
        )
        self.single_observation_space = spaces.Box(low, high, dtype=np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self._observation = torch.zeros((self.num_envs, len(low)), dtype=torch.float32, device=self.device)

    @property
    def observation(self) -> torch.Tensor:
        """The present observations, float32 `[M, F + (size - 1) * n]`, live: written in place."""
        return self._observation

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[torch.Tensor, dict[str, Any]]:
        """Reset the environment, and forget what came before in the markets that are reset."""
        observation, infos = self.env.reset(seed=seed, options=options)
        mask = self._reset_rows(options)
        earlier = self._observation[:, self._width :]
        earlier.zero_() if mask is None else earlier.masked_fill_(mask[:, None], 0.0)
        self._observation[:, : self._width] = observation
        return self._observation.clone(), infos

    def step(self, actions: Any) -> tuple[torch.Tensor, Any, Any, Any, dict[str, Any]]:
        """Step the environment."""
        earlier = self._observation[:, self._width : self._width + max(self._size - 2, 0) * self._number]
        earlier = torch.cat([self._observation[:, self._places], earlier], dim=1)[:, : (self._size - 1) * self._number]
        observation, reward, terminated, truncated, infos = self.env.step(actions)
        if "final_obs" in infos:
            infos = {**infos, "final_obs": torch.cat([infos["final_obs"], earlier], dim=1)}
        ended = terminated | truncated
        active = self._note_ends(ended)
        new = ended if active is None else ~active  # rows whose observation begins an episode
        if self._mode == AutoresetMode.DISABLED:  # none does: what has ended stands still
            earlier = torch.where(new[:, None], self._observation[:, self._width :], earlier)
        else:
            earlier = earlier.masked_fill(new[:, None], 0.0)
        self._observation.copy_(torch.cat([observation, earlier], dim=1))
        return self._observation.clone(), reward, terminated, truncated, infos

    def _state(self) -> dict[str, torch.Tensor]:
        return {"stacked": self._observation, "ended": self._ended}

    def load_state_dict(self, saved: Mapping[str, Any], strict: bool = True) -> None:
        """Take over the state of an environment that is wrapped likewise; see the base."""
        check_mapping(saved)
        if "env" not in saved and "stacked" in saved:  # states of before have the names of both side by side
            inside = {name: value for name, value in saved.items() if name != "stacked"}
            saved = {"stacked": saved["stacked"], "env": inside}
        super().load_state_dict(saved, strict)
