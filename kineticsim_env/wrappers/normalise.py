"""Observations and rewards, normalised by running statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

from kineticsim_env.runtime.checks import check_mapping, check_tensor
from kineticsim_env.runtime.values import check_number
from kineticsim_env.wrappers.base import TorchVectorWrapper
from kineticsim_env.wrappers.running import FLOATS, RunningMeanStd, running_statistics


class NormalizeObservation(TorchVectorWrapper):
    """Shifts and scales every feature to mean 0 and variance 1 over the observations seen so far.

    Its states are the statistics alone: those of the environment are saved beside them.

    Works under all three autoreset modes: under SAME_STEP `final_obs` is normalised too, by the same statistics, which
    it does not enter. Rows that a masked reset leaves alone do not enter them a second time.

    Attributes:
        statistics: The `RunningMeanStd`.
        update_running_mean: Whether observations enter the statistics; set it to False to evaluate.
    """

    _saves_env = False  # statistics go to other environments, too

    def __init__(
        self,
        env: VectorEnv,
        epsilon: float = 1e-8,
        clip: float | None = 10.0,
        statistics: RunningMeanStd | None = None,
    ) -> None:
        """Wrap an environment with torch output.

        Args:
            env: The environment.
            epsilon: Added to the variance.
            clip: Largest size of a normalised feature; None is no limit, as in Gymnasium.
            statistics: Those of another wrapper, shared with it; None begins new ones.
        """
        _check_scale(epsilon, clip)
        RecordConstructorArgs.__init__(self, epsilon=epsilon, clip=clip)
        super().__init__(env)
        shape = env.single_observation_space.shape or ()
        limit = np.inf if clip is None else float(clip)
        self.single_observation_space = spaces.Box(-limit, limit, shape, np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.statistics = running_statistics(statistics, shape, self.device)
        self.update_running_mean = True
        self._epsilon, self._clip = float(epsilon), clip

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[torch.Tensor, dict[str, Any]]:
        """Reset the environment."""
        observation, infos = self.env.reset(seed=seed, options=options)
        mask = self._reset_rows(options)
        if self.update_running_mean:
            self.statistics.update(observation, mask)
        return self.normalize(observation), infos

    def step(self, actions: Any) -> tuple[torch.Tensor, Any, Any, Any, dict[str, Any]]:
        """Step the environment."""
        observation, reward, terminated, truncated, infos = self.env.step(actions)
        if self.update_running_mean:
            self.statistics.update(observation)
        if "final_obs" in infos:
            infos = {**infos, "final_obs": self.normalize(infos["final_obs"])}
        return self.normalize(observation), reward, terminated, truncated, infos

    @property
    def observation(self) -> torch.Tensor:
        """The present observations, normalised by the present statistics."""
        return self.normalize(super().observation)

    def normalize(self, observation: torch.Tensor) -> torch.Tensor:
        """Return observations `[..., F]` by the present statistics, float32."""
        rms = self.statistics

        def fits(rows: torch.Tensor) -> bool:
            return rows.shape[-1:] == rms.mean.shape and rows.device == rms.mean.device

        allowed = f"floats [..., {len(rms.mean)}] on {rms.mean.device}"
        check_tensor("observation", observation, allowed, fits, FLOATS)
        scaled = ((observation.double() - rms.mean) / torch.sqrt(rms.var + self._epsilon)).float()
        return scaled if self._clip is None else scaled.clamp(-self._clip, self._clip)

    def _state(self) -> dict[str, torch.Tensor]:
        return self.statistics.tensors()


class NormalizeReward(TorchVectorWrapper):
    """Divides rewards by the standard deviation of the discounted return, as it was seen so far.

    Its states are the statistics and the running returns: those of the environment are saved beside them.

    A return starts anew with each episode, however the last one ended. (Gymnasium's drops what came before in the step
    that terminates an episode, and under NEXT_STEP carries returns on into the next episode.)

    Where events end decisions, a decision of `infos["decision_events"]` of its most events, n, discounts what came
    before it by `gamma ** (decision_events / n)`.

    Attributes:
        statistics: The `RunningMeanStd` of the discounted returns.
        update_running_mean: Whether rewards enter the statistics; set it to False to evaluate.
    """

    _saves_env = False

    @torch.inference_mode(False)
    def __init__(
        self,
        env: VectorEnv,
        gamma: float = 0.99,
        epsilon: float = 1e-8,
        clip: float | None = None,
        statistics: RunningMeanStd | None = None,
    ) -> None:
        """Wrap an environment with torch output.

        Args:
            env: The environment.
            gamma: The discount of a decision, where events end them of one of full length.
            epsilon: Added to the variance.
            clip: Largest size of a normalised reward; None is no limit.
            statistics: Those of another wrapper, shared with it; None begins new ones.
        """
        check_number("gamma", gamma, 0.0, 1.0)
        _check_scale(epsilon, clip)
        RecordConstructorArgs.__init__(self, gamma=gamma, epsilon=epsilon, clip=clip)
        super().__init__(env)
        self.statistics = running_statistics(statistics, (), self.device)
        self.update_running_mean = True
        self.discounted_return = torch.zeros(self.num_envs, dtype=torch.float64, device=self.device)
        self._gamma, self._epsilon, self._clip = float(gamma), float(epsilon), clip
        core = getattr(self.unwrapped, "core", None)
        self._longest = core.live_task.longest if core is not None and core.task.decides_at_events else 0

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[torch.Tensor, dict[str, Any]]:
        """Reset the environment, and the returns of the markets that are reset."""
        observation, infos = self.env.reset(seed=seed, options=options)
        mask = self._reset_rows(options)
        self.discounted_return.zero_() if mask is None else self.discounted_return.masked_fill_(mask, 0.0)
        return observation, infos

    def step(self, actions: Any) -> tuple[Any, torch.Tensor, Any, Any, dict[str, Any]]:
        """Step the environment."""
        observation, reward, terminated, truncated, infos = self.env.step(actions)
        ended = terminated | truncated
        active = self._note_ends(ended)
        gamma: Any = self._gamma
        if self._longest:
            gamma = gamma ** (infos["decision_events"].double() / self._longest)
        self.discounted_return.mul_(gamma).add_(reward)
        if self.update_running_mean:
            self.statistics.update(self.discounted_return, active)
        self.discounted_return.masked_fill_(ended if active is None else ended | ~active, 0.0)
        scaled = (reward.double() / torch.sqrt(self.statistics.var + self._epsilon)).float()
        if self._clip is not None:
            scaled = scaled.clamp(-self._clip, self._clip)
        return observation, scaled, terminated, truncated, infos

    def _state(self) -> dict[str, torch.Tensor]:
        return {**self.statistics.tensors(), "discounted_return": self.discounted_return, "ended": self._ended}

    def load_state_dict(self, saved: Mapping[str, Any], strict: bool = True) -> None:
        """Take over the state of a wrapper of this kind; running returns of another number of markets are left out."""
        check_mapping(saved)
        returns = saved.get("discounted_return")
        if returns is not None:
            allowed = "a tensor float64 [M] of running returns"
            check_tensor("state['discounted_return']", returns, allowed, lambda rows: rows.dim() == 1, (torch.float64,))
        if returns is None or returns.shape != self.discounted_return.shape:
            saved = {**saved, "discounted_return": self.discounted_return, "ended": self._ended}
        super().load_state_dict(saved, strict)


def _check_scale(epsilon: Any, clip: Any) -> None:
    """Refuse settings of a normalisation that are no finite numbers above 0."""
    check_number("epsilon", epsilon, 0.0, above=True)
    if clip is not None:
        check_number("clip", clip, 0.0, above=True)
