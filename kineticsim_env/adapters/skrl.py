"""`SkrlEnv`: the vector environments for skrl, as tensors that stay on the engine's device."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces

from kineticsim_env.adapters.opening import open_vector_env

try:
    from skrl.envs.wrappers.torch import Wrapper
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "kineticsim_env.adapters.skrl needs skrl: pip install 'kineticsim-env[skrl]'", name="skrl"
    ) from error


class SkrlEnv(Wrapper):
    """M markets with one learner each, as skrl's `Wrapper`.

    skrl's own wrapper for Gymnasium moves actions and results through NumPy; here nothing leaves the device. Continuous
    actions are clamped to [-1, 1], since skrl's Gaussian policies go beyond. Observations float32 `[M, F]`, rewards
    float32 `[M, 1]`, terminated and truncated bool `[M, 1]`.

    ```python
    env = SkrlEnv("KineticSim/MarketMaking-v0", num_envs=64)
    ```
    """

    def __init__(self, env: Any, num_envs: int | None = None, seed: int | None = None, **arguments: Any) -> None:
        """Open or take an environment.

        Args:
            env: An id such as `"KineticSim/MarketMaking-v0"`, or a vector environment with `output="torch"`, SAME_STEP
                autoreset and `copy=True`; it may be wrapped.
            num_envs: How many markets an id gets.
            seed: The seed of the first reset.
            **arguments: What `gymnasium.make_vec` takes for an id.

        Raises:
            TypeError, ValueError: If the environment has another output or autoreset mode.
        """
        super().__init__(open_vector_env("SkrlEnv", env, num_envs, "torch", arguments))
        self._seed = seed
        self._observation: torch.Tensor | None = None

    @property
    def observation_space(self) -> spaces.Space:
        """The observation space of one market."""
        return self._env.single_observation_space

    @property
    def action_space(self) -> spaces.Space:
        """The action space of one market."""
        return self._env.single_action_space

    @property
    def state_space(self) -> None:
        """None: there is no state beside the observation."""
        return None

    def reset(self) -> tuple[torch.Tensor, dict[str, Any]]:
        """Begin episodes the first time; later the environment has done so by itself, and this shows where it is."""
        if self._observation is None:
            self._observation, _ = self._env.reset(seed=self._seed)
        return self._observation, {}

    def step(
        self, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Play one decision in every market.

        Args:
            actions: float32 `[M, A]` or int64 `[M, 1]`, on the device.
        """
        given = as_actions(actions, self.action_space)
        self._observation, reward, terminated, truncated, infos = self._env.step(given)
        column = (self.num_envs, 1)
        return self._observation, reward.view(column), terminated.view(column), truncated.view(column), infos

    def state(self) -> None:
        """Return None: there is no state beside the observation."""

    def render(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the environment renders, None without a render mode (skrl's trainer asks unless `headless`)."""
        return None if self._env.render_mode is None else self._env.render()

    def close(self) -> None:
        """Close the environment, which raises what is left in the error words."""
        self._env.close()


def as_actions(actions: torch.Tensor, space: spaces.Space) -> torch.Tensor:
    """Return a policy's actions as the environments take them: clamped float32, or int64 without skrl's last axis."""
    if isinstance(space, spaces.Discrete):
        return actions.squeeze(-1).long()
    return actions.detach().float().clamp(-1.0, 1.0)
