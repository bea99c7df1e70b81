"""`TorchRLEnv` and `TorchRLGroupEnv`: the environments as TorchRL's `EnvBase`, of batch size `[M]`.

Nothing leaves the device: actions go to the engine as they come, results are tensors on the engine's device.
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces

from kineticsim_env.adapters.environments import check_batched_env, check_copied, flags_of, has_masks, open_vector_env
from kineticsim_env.envs.agent_results import joint_state
from kineticsim_env.runtime.values import check_count

try:
    from tensordict import TensorDict, TensorDictBase
    from torchrl.data import Binary, Bounded, Categorical, Composite, MultiCategorical, Unbounded
    from torchrl.envs import EnvBase
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "kineticsim_env.adapters.torchrl needs TorchRL: pip install 'kineticsim-env[torchrl]'", name="torchrl"
    ) from error


_EVENTS = "decision_events"  # of infos, and the key of tensordicts


class _MarketsEnv(EnvBase):
    """What both classes share: resets of an environment that begins new episodes by itself.

    The engine resets a market in the launch that ends its episode. TorchRL still sees what it expects: a step
    returns the last observation of the episode, and the reset that follows, with `_reset` set for just these
    markets, returns the first of the next without another launch. Markets that end and are not reset play on.

    Attributes:
        envs: The environment behind this one.
    """

    def __init__(self, envs: Any) -> None:
        device = envs.unwrapped.device if hasattr(envs, "unwrapped") else envs.device
        super().__init__(device=device, batch_size=(envs.num_envs,))
        self.envs, self._core = envs, getattr(envs, "unwrapped", envs).core
        self._seed: int | None = None
        self._first: Any = None  # what the next step starts from
        self._ended: torch.Tensor | None = None  # which markets ended in the last step, and were not asked for since

    def _start(self, observation: Any, infos: dict[str, Any]) -> dict[str, Any]:
        """Return what a tensordict holds at the start of a step; a dict in it is a group of learners, `[M, n]`."""
        raise NotImplementedError

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is None or self._first is None:
            self._first = self._start(*self.envs.reset(seed=self._seed))
            self._seed = self._ended = None
        else:
            self._reset_some(mask.view(self.batch_size))
        flags = self.full_done_spec.zero()
        return self._tensordict(self._first).update(flags)

    def _reset_some(self, mask: torch.Tensor) -> None:
        """Make sure that the markets of a mask are at the start of an episode."""
        others = mask if self._ended is None else mask & ~self._ended
        if self._ended is not None:
            self._ended = self._ended & ~mask
        if bool(others.any()):  # TorchRL has already waited for the device, to look at `done`
            self._first = self._start(*self.envs.reset(options={"reset_mask": others}))

    def _event_specs(self) -> dict[str, Any]:
        """Return the spec of how many events a decision had, where events end decisions."""
        core, shape = self._core, _column(self.batch_size)
        if not core.task.decides_at_events:
            return {}
        return {_EVENTS: Bounded(0, core.live_task.longest, shape=shape, dtype=torch.int32, device=self.device)}

    def _events_before(self) -> dict[str, Any]:
        """Return how many events the decision before the next one had, after a step or a reset."""
        if not self._core.task.decides_at_events:
            return {}
        begins = self._core.tensors["elapsed"] == 0  # the engine has begun its episode, and left the number
        return _events_of({_EVENTS: self._core.tensors[_EVENTS].masked_fill(begins, 0)})

    def _tensordict(self, values: dict[str, Any]) -> TensorDict:
        """Return a tensordict of a dict, in which a dict is a group of learners, `[M, n]`."""
        size = self.batch_size
        packed: Any = {
            key: TensorDict(value, batch_size=(*size, next(iter(value.values())).shape[1]), device=self.device)
            if isinstance(value, dict)
            else value
            for key, value in values.items()
        }
        return TensorDict(packed, batch_size=size, device=self.device)

    def _set_seed(self, seed: int | None) -> None:
        """Keep the seed, from 0, for the next reset of all markets; TorchRL derives its next seed from it.

        Seeds of several runs: `run_seed`.
        """
        self._seed = None if seed is None else check_count("seed", seed, 0, 2**63 - self.envs.num_envs)

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Close the environment; raises an error that a market has reported and nobody has read."""
        super().close(raise_if_closed=raise_if_closed)
        self.envs.close()


class TorchRLEnv(_MarketsEnv):
    """M markets with one learner each, as a batch-locked TorchRL environment on the engine's device.

    | key | dtype and shape |
    |---|---|
    | `observation` | float32 `[M, F]` |
    | `action_mask` | bool `[M, C]`, with `action_mask=True`: False where a choice is void |
    | `action` | float32 `[M, A]`, or int64 `[M]` (a `Categorical` spec) |
    | `reward` | float32 `[M, 1]` |
    | `done`, `terminated`, `truncated` | bool `[M, 1]` |
    | `decision_events` | int32 `[M, 1]`, where events end decisions: of the last one, 0 as an episode begins |

    In `next`, where an episode ended, the mask is all True: no decision follows, and a value of the best choice is to
    leave none out.

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
            num_envs: The number of markets if `env` is an id.
            **arguments: What `gymnasium.make_vec` takes for an id.

        Raises:
            TypeError, ValueError: If the environment has another output or autoreset mode.
        """
        super().__init__(open_vector_env("TorchRLEnv", env, num_envs, "torch", arguments))
        size, device = self.batch_size, self.device
        observation = {"observation": _spec(self.envs.single_observation_space, size, device)}
        if has_masks(self.envs):
            observation["action_mask"] = _mask_spec(self.envs.single_action_space, size, device)
        observation |= self._event_specs()
        self.observation_spec = Composite(observation, shape=size, device=device)
        self.action_spec = _spec(self.envs.single_action_space, size, device)
        self.reward_spec = Unbounded(_column(size), dtype=torch.float32, device=device)
        self.done_spec = Composite(_flag_specs(size, device), shape=size, device=device)

    def _start(self, observation: torch.Tensor, infos: dict[str, Any]) -> dict[str, Any]:
        check_copied("TorchRLEnv", self.envs.unwrapped.observation, observation)
        return {"observation": observation} | _masks_of(infos) | self._events_before()

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        observation, reward, terminated, truncated, infos = self.envs.step(tensordict.get("action"))
        check_copied("TorchRLEnv", self._first["observation"], observation)
        self._first, self._ended = self._start(observation, infos), infos["_final_obs"]
        return self._tensordict(
            {
                "observation": infos["final_obs"],
                **_masks_of(infos, self._ended),
                **_events_of(infos),
                "reward": reward.unsqueeze(-1),
                "done": infos["_final_obs"].unsqueeze(-1),
                "terminated": terminated.unsqueeze(-1),
                "truncated": truncated.unsqueeze(-1),
            }
        )


class TorchRLGroupEnv(_MarketsEnv):
    """M markets with many learners each, grouped by role, as a TorchRL environment on the engine's device.

    | key | dtype and shape |
    |---|---|
    | `(role, "observation")` | float32 `[M, n, F]` |
    | `(role, "active")` | bool `[M, n, 1]`: whose orders count; a learner may end before its market |
    | `(role, "action_mask")` | bool `[M, n, C]`, with `action_mask=True`, as in `TorchRLEnv` |
    | `(role, "action")` | float32 `[M, n, A]`, or int64 `[M, n]` (a `Categorical` spec) |
    | `(role, "reward")` | float32 `[M, n, 1]` |
    | `(role, "done")`, `(role, "terminated")`, `(role, "truncated")` | bool `[M, n, 1]` |
    | `state` | float32 `[M, S]`: what all learners see together, for centralised critics |
    | `decision_events` | int32 `[M, 1]`, as in `TorchRLEnv` |
    | `done`, `terminated`, `truncated` | bool `[M, 1]`: of the market, whose episode ends with its last learner's |

    A learner that ends before its market is inactive from then on, with rewards of 0, until the market ends, where its
    flags are set a second time; so an advantage estimate never reaches across a reset.

    ```python
    env = TorchRLGroupEnv(BatchedParallelEnv(64, {"maker": 2, "momentum": 1}))
    data = env.rollout(100, break_when_any_done=False)
    ```

    Attributes:
        envs: The `BatchedParallelEnv`.
        group_map: The names of the learners of each role.
    """

    def __init__(self, env: Any) -> None:
        """Take an environment.

        Args:
            env: A `BatchedParallelEnv` with SAME_STEP autoreset and `copy=True`.

        Raises:
            TypeError, ValueError: If it is something else, or has another autoreset mode.
        """
        super().__init__(check_batched_env("TorchRLGroupEnv", env))
        size, device = self.batch_size, self.device
        self.group_map = {role: list(names) for role, names in env.group_map.items()}
        groups = {role: torch.Size((*size, len(names))) for role, names in self.group_map.items()}

        def by_role(make: Any) -> dict[str, Any]:
            return {role: Composite(make(role, shape), shape=shape, device=device) for role, shape in groups.items()}

        observations, actions = env.single_observation_spaces, env.single_action_spaces

        def seen(role: str, shape: torch.Size) -> dict[str, Any]:
            active = Binary(1, shape=_column(shape), dtype=torch.bool, device=device)
            mask = {"action_mask": _mask_spec(actions[role], shape, device)} if has_masks(env) else {}
            return {"observation": _spec(observations[role], shape, device), "active": active} | mask

        def action(role: str, shape: torch.Size) -> dict[str, Any]:
            return {"action": _spec(actions[role], shape, device)}

        def reward(role: str, shape: torch.Size) -> dict[str, Any]:
            return {"reward": Unbounded(_column(shape), dtype=torch.float32, device=device)}

        def flags(role: str, shape: torch.Size) -> dict[str, Any]:
            return _flag_specs(shape, device)

        whole: dict[str, Any] = {"shape": size, "device": device}
        shared = {"state": _spec(env.state_space, size, device), **self._event_specs()}
        self.observation_spec = Composite(by_role(seen) | shared, **whole)
        self.action_spec = Composite(by_role(action), **whole)
        self.reward_spec = Composite(by_role(reward), **whole)
        self.done_spec = Composite(by_role(flags) | _flag_specs(size, device), **whole)

    def _start(self, observation: dict[str, torch.Tensor], infos: dict[str, Any]) -> dict[str, Any]:
        for role, rows in observation.items():
            live = self.envs.core.seen("observation", role, self.envs.groups[role])
            check_copied("TorchRLGroupEnv", live, rows)
        groups: dict[str, Any] = {
            role: {"observation": rows, "active": infos["active"][role].unsqueeze(-1), **_masks_of(infos, role=role)}
            for role, rows in observation.items()
        }
        return groups | {"state": joint_state(observation)} | self._events_before()

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        actions = {role: tensordict.get((role, "action")) for role in self.group_map}
        observation, reward, terminated, truncated, infos = self.envs.step(actions)
        self._first, self._ended = self._start(observation, infos), infos["_final_obs"]
        over = self._ended.unsqueeze(-1)
        values: dict[str, Any] = {"state": joint_state(infos["final_obs"]), **_events_of(infos)}
        for role, last in infos["final_obs"].items():
            final, done = flags_of(terminated[role], truncated[role], self._ended)
            values[role] = {
                "observation": last,
                "active": (infos["active"][role] & ~over).unsqueeze(-1),
                **_masks_of(infos, self._ended, role),
                "reward": reward[role].unsqueeze(-1),
                "done": done.unsqueeze(-1),
                "terminated": final.unsqueeze(-1),
                "truncated": truncated[role].unsqueeze(-1),
            }
        # The market is truncated where some learner is, in the step that ends it; else it terminates.
        cut = over & torch.cat(list(truncated.values()), dim=1).any(1, keepdim=True)
        return self._tensordict(values | {"done": over, "terminated": over & ~cut, "truncated": cut})


def _masks_of(infos: dict[str, Any], ended: torch.Tensor | None = None, role: str | None = None) -> dict[str, Any]:
    """Return the masks in infos, or a role's, as part of a tensordict; all True where an episode has `ended`."""
    if "action_mask" not in infos:
        return {}
    mask = infos["action_mask"] if role is None else infos["action_mask"][role]
    return {"action_mask": mask if ended is None else mask | ended.view(-1, *[1] * (mask.ndim - 1))}


def _events_of(infos: dict[str, Any]) -> dict[str, Any]:
    """Return how many events a decision had as part of a tensordict."""
    return {_EVENTS: infos[_EVENTS].unsqueeze(-1)} if _EVENTS in infos else {}


def _mask_spec(space: spaces.Discrete, size: torch.Size, device: torch.device) -> Any:
    """Return the TorchRL spec of the masks of a batch."""
    choices = int(space.n)
    return Binary(choices, shape=torch.Size((*size, choices)), dtype=torch.bool, device=device)


def _flag_specs(shape: torch.Size, device: torch.device) -> dict[str, Any]:
    """Return the specs of the three flags of a batch."""
    names = ("done", "terminated", "truncated")
    return {name: Binary(1, shape=_column(shape), dtype=torch.bool, device=device) for name in names}


def _column(shape: torch.Size) -> torch.Size:
    """Return the shape of a batch with a last axis of 1, as TorchRL has rewards and flags."""
    return torch.Size((*shape, 1))


def _spec(space: Any, size: torch.Size, device: torch.device) -> Any:
    """Return the TorchRL spec of a batch of a space."""
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n), shape=size, device=device, dtype=torch.int64)
    if isinstance(space, spaces.MultiDiscrete):  # of a user's own task
        wanted = torch.Size((*size, *space.shape))
        return MultiCategorical(space.nvec.tolist(), shape=wanted, device=device, dtype=torch.int64)
    shape = torch.Size((*size, *space.shape))
    if not space.is_bounded():
        return Unbounded(shape, dtype=torch.float32, device=device)
    low, high = (torch.as_tensor(bound, device=device).expand(shape) for bound in (space.low, space.high))
    return Bounded(low, high, shape=shape, dtype=torch.float32, device=device)
