"""`SB3VecEnv` and `SB3GroupVecEnv`: the environments as Stable-Baselines3's `VecEnv`, in NumPy."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.error import ResetNeeded

from kineticsim_env.adapters.environments import check_batched_env, check_copied, flags_of, has_masks, open_vector_env
from kineticsim_env.envs.actions import SpaceCheck
from kineticsim_env.runtime.values import check_count

try:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecEnv
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "kineticsim_env.adapters.sb3 needs Stable-Baselines3: pip install 'kineticsim-env[sb3]'",
        name="stable_baselines3",
    ) from error


_MASKS = "action_masks"  # the name by which sb3-contrib asks for them
_EVENTS = "decision_events"  # of infos


class _MarketsVecEnv(VecEnv):
    """What both classes share: infos, statistics of episodes, attributes; as `SB3VecEnv` describes them."""

    def __init__(self, envs: Any, rows: int, observation_space: Any, action_space: Any) -> None:
        self.envs = envs
        super().__init__(rows, observation_space, action_space)
        self._actions: np.ndarray | None = None
        self._observation: np.ndarray | None = None
        self._masks: np.ndarray | None = None
        self._returns = np.zeros(rows)
        self._lengths = np.zeros(rows, dtype=np.int64)
        self._began = time.perf_counter()

    def _take_seeds(self) -> np.ndarray | None:
        """Return the seeds of the rows for a reset; None if `seed` was not called since the last reset."""
        if any(self._options):
            raise ValueError(f"options: expected None, got {next(filter(None, self._options))}: a reset takes none")
        seeds = None if self._seeds[0] is None else np.array(self._seeds, dtype=np.int64)
        self._reset_seeds()
        self._returns[:] = 0.0
        self._lengths[:] = 0
        return seeds

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Keep a seed for the next reset: row r is seeded `seed + r`; None draws one. For several runs: `run_seed`.

        Returns:
            The seed of each row.
        """
        if seed is not None:
            seed = check_count("seed", seed, -(2**63), 2**63 - self.num_envs)
        return super().seed(seed)

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions, float32 `[rows, A]` or int `[rows]`, for `step_wait`."""
        self._actions = actions

    def _keep(self, observation: np.ndarray, stepped: bool) -> np.ndarray:
        """Return the observations, and keep them to check that the next step returns other tensors."""
        if stepped:
            check_copied(type(self).__name__, self._observation, observation)
        self._observation = observation
        return observation

    def _infos(self, done: np.ndarray, truncated: np.ndarray, last: np.ndarray, found: dict[str, Any]) -> list[dict]:
        """Return the infos of all rows, and restart the statistics of the rows whose episode ended.

        A learner that was idle has played no step since its own episode ended, and no further one to report. `found`
        are the environment's infos.
        """
        infos: list[dict] = [{} for _ in range(self.num_envs)]
        if _EVENTS in found:
            markets = found[_EVENTS].tolist()
            infos = [{_EVENTS: events} for events in markets for _ in range(self.num_envs // len(markets))]
        now = round(time.perf_counter() - self._began, 6)
        for row in np.flatnonzero(done):
            infos[row] |= {"terminal_observation": last[row], "TimeLimit.truncated": bool(truncated[row])}
            if self._lengths[row]:
                infos[row]["episode"] = {"r": float(self._returns[row]), "l": int(self._lengths[row]), "t": now}
        self._returns[done] = 0.0
        self._lengths[done] = 0
        return infos

    def close(self) -> None:
        """Close the environment; raises an error that a market has reported and nobody has read."""
        self.envs.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Return the rendered frames without repeats: of many markets the environment draws one."""
        frames = _find(self.envs, "render")() or ()
        return list({id(frame): np.asarray(frame) for frame in frames}.values())

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute for each of some markets: its row if it has one per market, else the whole attribute."""
        if attr_name == _MASKS:
            self._check_masked()
            return [functools.partial(self._mask, row) for row in self._get_indices(indices)]
        value = getattr(self.envs, "render_mode", None) if attr_name == "render_mode" else _find(self.envs, attr_name)
        rows = list(self._get_indices(indices))
        if isinstance(value, (np.ndarray, torch.Tensor)) and value.ndim and len(value) == self.num_envs:
            return [value[row] for row in rows]
        return [value for _ in rows]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the vector environment, which all markets share."""
        if sorted(self._get_indices(indices)) != list(range(self.num_envs)):
            raise ValueError(f"indices: expected None, got {indices!r}: all markets share {attr_name!r}")
        setattr(_innermost(self.envs), attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of the vector environment once; return its result for each of the markets asked for.

        `action_masks` is each row's own: bool `[C]`, of the next decision.
        """
        if method_name == _MASKS:
            self._check_masked()
            return [self._mask(row) for row in self._get_indices(indices)]
        result = _find(self.envs, method_name)(*method_args, **method_kwargs)
        return [result for _ in self._get_indices(indices)]

    def _check_masked(self) -> None:
        """Raise what Stable-Baselines3 expects of environments without masks."""
        if not has_masks(self.envs):
            raise AttributeError(
                f"{_MASKS}: expected an environment made with action_mask=True and action_type='discrete', got one "
                "without masks"
            )

    def _mask(self, row: int) -> np.ndarray:
        """Return the mask of a row's next decision, bool `[C]`, False where a choice is void."""
        if self._masks is None:
            raise ResetNeeded(f"{_MASKS}: the environment was never reset; call reset() first")
        return self._masks[row]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Return whether a wrapper is present; True for `Monitor`, as this class adds its infos."""
        env, found = self.envs, wrapper_class is Monitor
        while env is not _innermost(env) and not found:
            found, env = isinstance(env, wrapper_class), env.env
        return [found for _ in self._get_indices(indices)]

    def _get_indices(self, indices: Any) -> Iterable[int]:
        if indices is None:
            return range(self.num_envs)
        return [indices] if isinstance(indices, int) else indices


class SB3VecEnv(_MarketsVecEnv):
    """M markets with one learner each, as a Stable-Baselines3 `VecEnv`.

    Where an episode ends, that market's info has `terminal_observation`, `TimeLimit.truncated`, and `episode` with
    return `r`, length `l` and seconds since this object was made `t`, as Stable-Baselines3's `Monitor` adds it; so a
    `VecMonitor` is not needed. Where events end decisions every info has `decision_events`. All other infos are empty.
    With `action_mask=True` it has the `action_masks` that
    MaskablePPO of sb3-contrib asks for.

    ```python
    model = PPO("MlpPolicy", SB3VecEnv("KineticSim/MarketMaking-v0", num_envs=64))
    ```

    Attributes:
        envs: The vector environment.
    """

    def __init__(self, env: Any, num_envs: int | None = None, **arguments: Any) -> None:
        """Open or take an environment.

        Args:
            env: An id such as `"KineticSim/MarketMaking-v0"`, or a vector environment with NumPy output and SAME_STEP
                autoreset; it may be wrapped.
            num_envs: The number of markets if `env` is an id.
            **arguments: What `gymnasium.make_vec` takes for an id.

        Raises:
            TypeError, ValueError: If the environment has another output or autoreset mode.
        """
        envs = open_vector_env("SB3VecEnv", env, num_envs, "numpy", arguments)
        super().__init__(envs, envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> np.ndarray:
        """Begin episodes, with the seeds of `seed` if it was called since the last reset.

        Returns:
            Observations float32 `[M, F]`.
        """
        observation, infos = self.envs.reset(seed=self._take_seeds())
        self._masks = _masks_of(infos)
        return self._keep(observation, stepped=False)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict]]:
        """Play one decision in every market.

        Returns:
            Observations float32 `[M, F]`, rewards float32 `[M]`, dones bool `[M]`, and M infos.
        """
        observation, reward, terminated, truncated, found = self.envs.step(self._actions)
        self._returns += reward
        self._lengths += 1
        done = terminated | truncated
        infos = self._infos(done, truncated & ~terminated, found["final_obs"], found)
        self._masks = _masks_of(found)
        return self._keep(observation, stepped=True), reward, done, infos


class SB3GroupVecEnv(_MarketsVecEnv):
    """M markets with n learners of one role each, as a `VecEnv` of M * n rows that share one policy.

    Row `m * n + k` is learner k of market m. A learner that ends before its market is done there, idle with rewards of
    0 until the market ends, and done a second time then: terminated, without `episode` in its info. Infos and
    `action_masks` are those of `SB3VecEnv`. All learners learn; for one among policies that do not, see `opponents` of
    `SB3VecEnv`'s environments.

    ```python
    model = PPO("MlpPolicy", SB3GroupVecEnv(BatchedParallelEnv(32, {"maker": 2})))
    ```

    Attributes:
        envs: The `BatchedParallelEnv`.
    """

    def __init__(self, env: Any) -> None:
        """Take an environment.

        Args:
            env: A `BatchedParallelEnv` with learners of one role, SAME_STEP autoreset and `copy=True`.

        Raises:
            TypeError, ValueError: If it is something else, or has another autoreset mode, or more roles.
        """
        envs = check_batched_env("SB3GroupVecEnv", env)
        if len(envs.group_map) != 1:
            roles = ", ".join(map(repr, envs.group_map))
            raise ValueError(f"env: expected learners of one role, got the roles {roles}: all rows share a policy")
        ((self._role, names),) = envs.group_map.items()
        self._shape = (envs.num_envs, len(names))
        seen, taken = envs.single_observation_spaces[self._role], envs.single_action_spaces[self._role]
        super().__init__(envs, envs.num_envs * len(names), seen, taken)
        self._active = np.ones(self.num_envs, dtype=bool)
        self._space = SpaceCheck(taken, torch.device("cpu"))  # SB3's actions are arrays

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Keep a seed for the next reset: market m is seeded `seed + m`, as in `BatchedParallelEnv`.

        Returns:
            The seed of the market of each row.
        """
        first = super().seed(seed)[0]
        assert first is not None
        self._seeds = [first + row // self._shape[1] for row in range(self.num_envs)]
        return self._seeds

    def reset(self) -> np.ndarray:
        """Begin episodes, with the seeds of `seed` if it was called since the last reset.

        Returns:
            Observations float32 `[M * n, F]`.
        """
        seeds = self._take_seeds()
        observation, infos = self.envs.reset(seed=None if seeds is None else seeds[:: self._shape[1]])
        self._active = self._rows(infos["active"])
        self._masks = self._masks_of_rows(infos)
        return self._keep(self._rows(observation), stepped=False)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict]]:
        """Play one decision of all learners in every market.

        Returns:
            Observations float32 `[M * n, F]`, rewards float32 `[M * n]`, dones bool `[M * n]`, and M * n infos.
        """
        actions = self._space.checked(self._actions, (self.num_envs,), "actions")
        given = actions.view(*self._shape, *actions.shape[1:]).to(self.envs.device)
        observation, reward, terminated, truncated, found = self.envs.step({self._role: given})
        rewards = self._rows(reward)
        self._returns += rewards
        self._lengths += self._active
        self._active = self._rows(found["active"])
        self._masks = self._masks_of_rows(found)
        ends = flags_of(terminated[self._role], truncated[self._role], found["_final_obs"])[1]
        done = ends.flatten().cpu().numpy()
        infos = self._infos(done, self._rows(truncated), self._rows(found["final_obs"]), found)
        return self._keep(self._rows(observation), stepped=True), rewards, done, infos

    def _masks_of_rows(self, infos: dict[str, Any]) -> np.ndarray | None:
        return self._rows(infos["action_mask"]) if "action_mask" in infos else None

    def _rows(self, groups: dict[str, torch.Tensor]) -> np.ndarray:
        """Return the one group's tensor `[M, n, ...]` as rows `[M * n, ...]`."""
        return groups[self._role].flatten(0, 1).cpu().numpy()


def _masks_of(infos: dict[str, Any]) -> np.ndarray | None:
    """Return the masks in infos as bool `[M, C]`, which Gymnasium has as int8."""
    return infos["action_mask"].astype(bool) if "action_mask" in infos else None


def _find(env: Any, name: str) -> Any:
    """Return an attribute of an environment or, behind its wrappers, of what they wrap."""
    while True:
        if hasattr(env, name):
            return getattr(env, name)
        if env is _innermost(env):
            raise AttributeError(f"{type(env).__name__} has no attribute {name!r}")
        env = env.env


def _innermost(env: Any) -> Any:
    """Return an environment without its wrappers."""
    return getattr(env, "unwrapped", env)
