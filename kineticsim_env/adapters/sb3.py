"""`SB3VecEnv`: the vector environments as a Stable-Baselines3 `VecEnv`, in NumPy."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from kineticsim_env.adapters.opening import open_vector_env

try:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecEnv
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "kineticsim_env.adapters.sb3 needs Stable-Baselines3: pip install 'kineticsim-env[sb3]'",
        name="stable_baselines3",
    ) from error


class SB3VecEnv(VecEnv):
    """M markets with one learner each, as a Stable-Baselines3 `VecEnv`.

    Where an episode ends, that market's info has `terminal_observation`, `TimeLimit.truncated`, and `episode` with
    return `r`, length `l` and seconds since this object was made `t`, as Stable-Baselines3's `Monitor` adds it; so a
    `VecMonitor` is not needed. All other infos are empty.

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
            num_envs: How many markets an id gets.
            **arguments: What `gymnasium.make_vec` takes for an id.

        Raises:
            TypeError, ValueError: If the environment has another output or autoreset mode.
        """
        self.envs = open_vector_env("SB3VecEnv", env, num_envs, "numpy", arguments)
        super().__init__(self.envs.num_envs, self.envs.single_observation_space, self.envs.single_action_space)
        self._actions: np.ndarray | None = None
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, dtype=np.int64)
        self._began = time.perf_counter()

    def reset(self) -> np.ndarray:
        """Begin episodes, with the seeds of `seed` if it was called since the last reset.

        Returns:
            Observations float32 `[M, F]`.
        """
        if any(self._options):
            raise ValueError(f"options: got {next(filter(None, self._options))}, allowed is None: a reset takes none")
        # A first reset without a seed leaves it to the environment to draw one.
        seeds = None if self._seeds[0] is None else np.array(self._seeds, dtype=np.int64)
        observation, _ = self.envs.reset(seed=seeds)
        self._reset_seeds()
        self._returns[:] = 0.0
        self._lengths[:] = 0
        return observation

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions, float32 `[M, A]` or int `[M]`, for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict]]:
        """Play one decision in every market.

        Returns:
            Observations float32 `[M, F]`, rewards float32 `[M]`, dones bool `[M]`, and M infos.
        """
        observation, reward, terminated, truncated, found = self.envs.step(self._actions)
        self._returns += reward
        self._lengths += 1
        done = terminated | truncated
        infos: list[dict] = [{} for _ in range(self.num_envs)]
        now = round(time.perf_counter() - self._began, 6)
        for row in np.flatnonzero(done):
            infos[row] = {
                "terminal_observation": found["final_obs"][row],
                "TimeLimit.truncated": bool(truncated[row] and not terminated[row]),
                "episode": {"r": float(self._returns[row]), "l": int(self._lengths[row]), "t": now},
            }
        self._returns[done] = 0.0
        self._lengths[done] = 0
        return observation, reward, done, infos

    def close(self) -> None:
        """Close the environment, which raises what is left in the error words."""
        self.envs.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Return the frames that the environment renders."""
        frames = self.envs.render()
        return [] if frames is None else [np.asarray(frame) for frame in frames]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the vector environment for some markets: its row, where it has one a market."""
        value = _find(self.envs, attr_name)
        rows = list(self._get_indices(indices))
        if isinstance(value, (np.ndarray, torch.Tensor)) and value.ndim and len(value) == self.num_envs:
            return [value[row] for row in rows]
        return [value for _ in rows]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the vector environment, which all markets share."""
        if sorted(self._get_indices(indices)) != list(range(self.num_envs)):
            raise ValueError(f"indices: got {indices!r}, allowed is None: all markets share {attr_name!r}")
        setattr(self.envs.unwrapped, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of the vector environment once; return its result for each of the markets asked for."""
        result = _find(self.envs, method_name)(*method_args, **method_kwargs)
        return [result for _ in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Say whether a wrapper is there; of `Monitor`, whose infos this class gives, it says True."""
        env, found = self.envs, wrapper_class is Monitor
        while env is not env.unwrapped and not found:
            found, env = isinstance(env, wrapper_class), env.env  # ty: ignore[unresolved-attribute]
        return [found for _ in self._get_indices(indices)]

    def _get_indices(self, indices: Any) -> Iterable[int]:
        if indices is None:
            return range(self.num_envs)
        return [indices] if isinstance(indices, int) else indices


def _find(env: Any, name: str) -> Any:
    """Return an attribute of an environment or, behind its wrappers, of what they wrap."""
    while True:
        if hasattr(env, name):
            return getattr(env, name)
        if env is env.unwrapped:
            raise AttributeError(f"{type(env).__name__} has no attribute {name!r}")
        env = env.env
