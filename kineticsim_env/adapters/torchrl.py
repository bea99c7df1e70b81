"""`TorchRLEnv`: the vector environments as a TorchRL `EnvBase` of batch size `[M]`.

Nothing leaves the device: actions go to the engine as they come, results are the tensors that it wrote.
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces

from kineticsim_env.adapters.opening import open_vector_env

try:
    from tensordict import TensorDict, TensorDictBase
    from torchrl.data import Binary, Bounded, Categorical, Composite, Unbounded
    from torchrl.envs import EnvBase
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "kineticsim_env.adapters.torchrl needs TorchRL: pip install 'kineticsim-env[torchrl]'", name="torchrl"
    ) from error


class TorchRLEnv(EnvBase):
    """M markets with one learner each, as a batch-locked TorchRL environment on the engine's device.

    | key | dtype and shape |
    |---|---|
    | `observation` | float32 `[M, F]` |
    | `action` | float32 `[M, A]`, or int64 `[M]` (a `Categorical` spec) |
    | `reward` | float32 `[M, 1]` |
    | `done`, `terminated`, `truncated` | bool `[M, 1]` |

    The engine resets a market in the launch that ends its episode. TorchRL sees what it expects all the same: a step
    hands out the last observation of the episode, and the reset that follows, with `_reset` set for just these
    markets, hands out the first of the next without another launch. Markets that end and are not reset play on.

    ```python
    env = TorchRLEnv("KineticSim/MarketMaking-v0", num_envs=64)
    data = env.rollout(100, break_when_any_done=False)
    ```

    Attributes:
        envs: The vector environment.
    """

    def __init__(self, env: Any, num_envs: int | None = None, **arguments: Any) -> None:
        """Open or take an environment.

        Args:
            env: An id such as `"KineticSim/MarketMaking-v0"`, or a vector environment with `output="torch"`, SAME_STEP
                autoreset and `copy=True`; it may be wrapped.
            num_envs: How many markets an id gets.
            **arguments: What `gymnasium.make_vec` takes for an id.

        Raises:
            TypeError, ValueError: If the environment has another output or autoreset mode.
        """
        envs = open_vector_env("TorchRLEnv", env, num_envs, "torch", arguments)
        device = envs.unwrapped.device  # ty: ignore[unresolved-attribute]
        super().__init__(device=device, batch_size=[envs.num_envs])
        self.envs = envs
        size = self.batch_size
        self.observation_spec = Composite(
            observation=_spec(envs.single_observation_space, size, device), shape=size, device=device
        )
        self.action_spec = _spec(envs.single_action_space, size, device)
        self.reward_spec = Unbounded((*size, 1), dtype=torch.float32, device=device)
        flag = Binary(1, shape=(*size, 1), dtype=torch.bool, device=device)
        self.done_spec = Composite(
            done=flag, terminated=flag.clone(), truncated=flag.clone(), shape=size, device=device
        )
        self._seed: int | None = None
        self._ended: torch.Tensor | None = None  # which markets ended in the last step and were not asked for since
        self._first: torch.Tensor | None = None  # their first observations

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is None or self._first is None:
            observation, _ = self.envs.reset(seed=self._seed)
            self._seed = None
            self._ended = None
        else:
            observation = self._reset_some(mask.view(self.batch_size))
        self._first = observation
        flags = torch.zeros((*self.batch_size, 1), dtype=torch.bool, device=self.device)
        results = {"observation": observation, "done": flags, "terminated": flags.clone(), "truncated": flags.clone()}
        return TensorDict(results, batch_size=self.batch_size, device=self.device)

    def _reset_some(self, mask: torch.Tensor) -> torch.Tensor:
        """Return observations in which the markets of a mask are at the start of an episode."""
        others = mask if self._ended is None else mask & ~self._ended
        if self._ended is not None:
            self._ended = self._ended & ~mask
        if bool(others.any()):  # TorchRL waited for the device already, to see that something is done
            return self.envs.reset(options={"reset_mask": others})[0]
        return self._first

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        observation, reward, terminated, truncated, infos = self.envs.step(tensordict.get("action"))
        self._first, self._ended = observation, infos["_final_obs"]
        results = {
            "observation": infos["final_obs"],
            "reward": reward.unsqueeze(-1),
            "done": self._ended.unsqueeze(-1),
            "terminated": terminated.unsqueeze(-1),
            "truncated": truncated.unsqueeze(-1),
        }
        return TensorDict(results, batch_size=self.batch_size, device=self.device)

    def _set_seed(self, seed: int | None) -> None:
        """Keep the seed for the next reset of all markets."""
        self._seed = seed

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Close the environment, which raises what is left in the error words."""
        super().close(raise_if_closed=raise_if_closed)
        self.envs.close()


def _spec(space: Any, size: torch.Size, device: torch.device) -> Any:
    """Return the TorchRL spec of a batch of a space."""
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n), shape=size, device=device, dtype=torch.int64)
    shape = (*size, *space.shape)
    if not space.is_bounded():
        return Unbounded(shape, dtype=torch.float32, device=device)
    low, high = (torch.as_tensor(bound, device=device).expand(shape) for bound in (space.low, space.high))
    return Bounded(low, high, shape=shape, dtype=torch.float32, device=device)
