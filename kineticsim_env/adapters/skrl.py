"""`SkrlEnv` and `SkrlMultiEnv`: the environments for skrl, as tensors that stay on the engine's device.

What agents record at the ends of episodes: `skrl_recording.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces

from kineticsim_env.adapters.environments import (
    check_batched_env,
    check_copied,
    check_first_seed,
    check_unmasked,
    flags_of,
    open_vector_env,
)
from kineticsim_env.runtime.checks import check_tensor
from kineticsim_env.runtime.values import show

try:
    from skrl.envs.wrappers.torch import MultiAgentEnvWrapper, Wrapper

    from kineticsim_env.adapters.skrl_recording import KEY, Final
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "kineticsim_env.adapters.skrl needs skrl: pip install 'kineticsim-env[skrl]'", name="skrl"
    ) from error


_REAL = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8))
_REAL |= {torch.int8, torch.int16, torch.int32, torch.int64}


class SkrlEnv(Wrapper):
    """M markets with one learner each, as skrl's `Wrapper`.

    skrl's own wrapper for Gymnasium moves actions and results through NumPy; here nothing leaves the device. Continuous
    actions are clamped to [-1, 1], since skrl's Gaussian policies go beyond. Observations float32 `[M, F]`, rewards
    float32 `[M, 1]`, terminated and truncated bool `[M, 1]`.

    A step that ends an episode returns the first observation of the next one. skrl's agents, made after this module was
    imported, record the last one of the episode in its place, which infos have; other learners read
    `infos["final_obs"]`, as Gymnasium has it.

    ```python
    env = SkrlEnv("KineticSim/MarketMaking-v0", num_envs=64)
    ```
    """

    def __init__(self, env: Any, num_envs: int | None = None, seed: int | None = None, **arguments: Any) -> None:
        """Open or take an environment.

        Args:
            env: An id such as `"KineticSim/MarketMaking-v0"`, or a vector environment with `output="torch"`, SAME_STEP
                autoreset and `copy=True`; it may be wrapped.
            num_envs: The number of markets if `env` is an id.
            seed: The seed of the first reset; for several runs see `run_seed`.
            **arguments: What `gymnasium.make_vec` takes for an id.

        Raises:
            TypeError, ValueError: If the environment has another output or autoreset mode, or action masks, which
                skrl's policies do not take.
        """
        super().__init__(check_unmasked("SkrlEnv", open_vector_env("SkrlEnv", env, num_envs, "torch", arguments)))
        self._seed = check_first_seed(seed, self._env.num_envs, self._env.unwrapped.device)
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
        """Begin episodes on the first call; later calls return the present observations: markets reset themselves."""
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
        observation, reward, terminated, truncated, infos = self._env.step(given)
        check_copied("SkrlEnv", self._observation, observation)
        self._observation = observation
        infos[KEY] = Final(observation, infos["final_obs"], None)
        column = (self.num_envs, 1)
        return observation, reward.view(column), terminated.view(column), truncated.view(column), infos

    def state(self) -> None:
        """Return None: there is no state beside the observation."""

    def render(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the environment renders, None without a render mode (skrl's trainer asks unless `headless`)."""
        return None if self._env.render_mode is None else self._env.render()

    def close(self) -> None:
        """Close the environment; raises an error that a market has reported and nobody has read."""
        self._env.close()


def as_actions(actions: torch.Tensor, space: spaces.Space, name: str = "actions") -> torch.Tensor:
    """Return a policy's actions `[M, A]` or `[M, 1]` as environments take them: float32, clamped, or int64."""
    discrete = isinstance(space, spaces.Discrete)
    size = 1 if discrete else (space.shape or (0,))[0]
    check_tensor(name, actions, f"a real tensor [M, {size}]", lambda rows: rows.shape[1:] == (size,), _REAL)
    if discrete:
        return actions.squeeze(-1).long()
    if not isinstance(space, spaces.Box):  # of a user's own task
        return actions.long()
    low, high = float(space.low.min()), float(space.high.max())
    if (space.low == low).all() and (space.high == high).all():  # else each number's bounds are copied to the device
        return actions.detach().float().clamp(low, high)
    return (
        actions.detach()
        .float()
        .clamp(*(torch.from_numpy(bound).to(actions.device) for bound in (space.low, space.high)))
    )


class SkrlMultiEnv(MultiAgentEnvWrapper):
    """M markets with many learners each, as skrl's `MultiAgentEnvWrapper`, for IPPO and MAPPO.

    Results are dicts by name of learner (`maker_0`): observations float32 `[M, F]`, rewards float32 `[M, 1]`,
    terminated and truncated bool `[M, 1]`. Continuous actions are clamped to [-1, 1]. A learner that ends before its
    market has rewards of 0 from then on, and terminates a second time where the market ends. What agents record where a
    market's episode ends: `SkrlEnv`.

    ```python
    env = SkrlMultiEnv(BatchedParallelEnv(64, {"maker": 2, "momentum": 1}))
    ```
    """

    def __init__(self, env: Any, seed: int | None = None) -> None:
        """Take an environment.

        Args:
            env: A `BatchedParallelEnv` with SAME_STEP autoreset and `copy=True`.
            seed: The seed of the first reset; for several runs see `run_seed`.

        Raises:
            TypeError, ValueError: If it is something else, or has another autoreset mode, or action masks, which
                skrl's policies do not take.
        """
        super().__init__(check_unmasked("SkrlMultiEnv", check_batched_env("SkrlMultiEnv", env)))
        self._device = env.device
        self._seed = check_first_seed(seed, env.num_envs, env.device)
        self._observation: dict[str, torch.Tensor] | None = None
        self._place = {name: (role, k) for role, names in env.group_map.items() for k, name in enumerate(names)}
        self._observation_spaces = {
            name: env.single_observation_spaces[role] for name, (role, _) in self._place.items()
        }
        self._action_spaces = {name: env.single_action_spaces[role] for name, (role, _) in self._place.items()}

    @property
    def agents(self) -> list[str]:
        """The names of the learners; all, as a market's episode goes on until its last learner's has ended."""
        return self.possible_agents

    @property
    def observation_spaces(self) -> dict[str, spaces.Space]:
        """The observation space of each learner."""
        return self._observation_spaces

    @property
    def action_spaces(self) -> dict[str, spaces.Space]:
        """The action space of each learner."""
        return self._action_spaces

    def reset(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Begin episodes on the first call; later calls return the present observations: markets reset themselves."""
        if self._observation is None:
            observation, _ = self._env.reset(seed=self._seed)
            self._observation = self._by_name(observation)
        return self._observation, {}

    def step(
        self, actions: dict[str, torch.Tensor]
    ) -> tuple[
        dict[str, torch.Tensor],
        dict[str, torch.Tensor],
        dict[str, torch.Tensor],
        dict[str, torch.Tensor],
        dict[str, Any],
    ]:
        """Play one decision of all learners.

        Args:
            actions: By name, float32 `[M, A]` or int64 `[M, 1]`, on the device.
        """
        if not isinstance(actions, Mapping) or set(actions) != set(self._place):
            found = show(sorted(actions, key=show) if isinstance(actions, Mapping) else actions)
            kind = ValueError if isinstance(actions, Mapping) else TypeError
            raise kind(f"actions: expected a dict with one entry for each of {list(self._place)}, got {found}")
        given = {
            role: torch.stack([self._given(actions[name], name) for name in names], dim=1)
            for role, names in self._env.group_map.items()
        }
        observation, reward, terminated, truncated, infos = self._env.step(given)
        over = infos["_final_obs"]
        final = {role: flags_of(flag, truncated[role], over)[0] for role, flag in terminated.items()}
        found = self._by_name(observation)
        for name, rows in (self._observation or {}).items():
            check_copied("SkrlMultiEnv", rows, found[name])
        self._observation = found
        infos[KEY] = Final(found, self._by_name(infos["final_obs"]), self._states(final=True))
        rewards, ends, cuts = (
            self._by_name({role: rows.unsqueeze(-1) for role, rows in part.items()})
            for part in (reward, final, truncated)
        )
        return found, rewards, ends, cuts, infos

    def _given(self, actions: Any, name: str) -> torch.Tensor:
        """Return a learner's actions, which must have the shape and the device of the others'."""
        label = f"actions[{name!r}]"
        rows = as_actions(actions, self._action_spaces[name], label)
        markets, device = self._env.num_envs, self._env.device
        if len(rows) != markets or rows.device != device:
            raise ValueError(f"{label}: expected {markets} rows on {device}, got {len(rows)} rows on {rows.device}")
        return rows

    def state(self) -> dict[str, torch.Tensor | None]:
        """Return, for each learner, what all of them see together, float32 `[M, S]`."""
        return self._states()

    def _states(self, final: bool = False) -> dict[str, torch.Tensor | None]:
        """Return the state of the present, or of before any reset in the last step."""
        return dict.fromkeys(self._place, self._env.state(final))

    def render(self, *args: Any, **kwargs: Any) -> None:
        """Return None: many learners are not rendered."""

    def close(self) -> None:
        """Close the environment; raises an error that a market has reported and nobody has read."""
        self._env.close()

    def _by_name(self, rows: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the rows `[M, ...]` of each learner."""
        return {name: rows[role][:, k] for name, (role, k) in self._place.items()}
