"""Wrappers for torch output: episode statistics, normalised observations and rewards, features of decisions before.

Gymnasium's own need NumPy. These keep everything on the environment's device, never wait for it, and write their state
in place, so that a step through them can be captured in a `torch.cuda.CUDAGraph` (settings such as
`update_running_mean` are part of what is captured). The order that usually serves:

```python
envs = gymnasium.make_vec("KineticSim/MarketMaking-v0", num_envs=64, output="torch")
envs = RecordEpisodeStatistics(envs)  # first, so that it sees the rewards as they are
envs = NormalizeReward(NormalizeObservation(envs))
```
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from kineticsim_env.runtime.checks import check_like, check_mapping, check_mask, check_tensor
from kineticsim_env.runtime.values import check_count, check_flag, check_instance, check_number, is_one_of, show

_FLOATS = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))


class RunningMeanStd:
    """Mean and variance of all rows seen so far, in double, by Chan's parallel form of Welford's update.

    Attributes:
        mean: float64 `shape`, 0 at first.
        var: float64 `shape`, the variance of the population, 1 at first.
        count: float64, rows seen, `epsilon` at first.
    """

    @torch.inference_mode(False)  # tensors made in inference mode cannot be written to outside of it
    def __init__(self, shape: tuple[int, ...], device: torch.device, epsilon: float = 1e-4) -> None:
        """Start with no rows, mean 0 and variance 1 of weight `epsilon`, as Gymnasium does."""
        if not isinstance(shape, (tuple, list)):
            raise TypeError(f"shape: got {show(shape)}, allowed is a tuple of sizes")
        shape = tuple(check_count("shape", size, 0) for size in shape)
        check_count("shape", math.prod(max(size, 1) for size in shape), 0)  # strides are products of sizes
        epsilon = check_number("epsilon", epsilon, 0.0)
        try:
            device = torch.empty(0, device=device).device
        except Exception as error:  # torch raises many kinds of errors here
            raise ValueError(f"device: got {show(device)}, allowed is a device that torch has here") from error
        self.mean = torch.zeros(shape, dtype=torch.float64, device=device)
        self.var = torch.ones(shape, dtype=torch.float64, device=device)
        self.count = torch.full((), epsilon, dtype=torch.float64, device=device)

    @torch.no_grad()
    def update(self, rows: torch.Tensor, mask: torch.Tensor | None = None) -> None:
        """Take in a batch.

        Args:
            rows: `[M, *shape]`, any floating dtype, M from 1, on the device.
            mask: bool `[M]`, the rows that count; None is all.
        """
        wanted = self.mean

        def fits(rows: torch.Tensor) -> bool:
            return rows.dim() > 0 and len(rows) > 0 and rows.shape[1:] == wanted.shape and rows.device == wanted.device

        def fits_rows(mask: torch.Tensor) -> bool:
            return mask.shape == rows.shape[:1] and mask.device == wanted.device

        sizes = ", ".join(["M", *map(str, wanted.shape)])
        rows = check_tensor("rows", rows, f"floats [{sizes}] on {wanted.device}", fits, _FLOATS).double()
        if mask is not None:
            check_tensor("mask", mask, f"bool [{len(rows)}] on {wanted.device}, None", fits_rows, (torch.bool,))
        if mask is None:
            number = torch.full_like(self.count, len(rows))
            var, mean = torch.var_mean(rows, dim=0, correction=0)
        else:
            weight = mask.double().view(-1, *[1] * (rows.dim() - 1))
            number = weight.sum()
            divisor = number.clamp(min=1.0)
            mean = (rows * weight).sum(0) / divisor
            var = ((rows - mean).square() * weight).sum(0) / divisor
        delta, total = mean - self.mean, self.count + number
        spread = self.var * self.count + var * number + delta.square() * (self.count * number / total)
        self.var.copy_(spread / total)
        self.mean.add_(delta * (number / total))
        self.count.copy_(total)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return copies of mean, var and count."""
        return {name: getattr(self, name).clone() for name in ("mean", "var", "count")}

    def load_state_dict(self, saved: Mapping[str, torch.Tensor]) -> None:
        """Take over statistics of the same shape, from any device.

        Raises:
            TypeError, ValueError: Naming the entry, what came and what is allowed; nothing is changed then.
        """
        check_mapping(saved)
        present = {name: getattr(self, name) for name in ("mean", "var", "count")}
        check_like(saved, present)
        for name, tensor in present.items():
            tensor.copy_(saved[name])


class _TorchVectorWrapper(VectorWrapper, RecordConstructorArgs):
    """What the wrappers share: the check of the environment, and which markets are in an episode."""

    def __init__(self, env: VectorEnv) -> None:
        output = getattr(check_instance("env", env, VectorEnv).unwrapped, "output", None)
        if not is_one_of(output, ("torch",)):
            name = type(self).__name__
            raise ValueError(
                f"{name}: got an environment with output {show(output)}, allowed is output='torch' (for NumPy there is "
                f"gymnasium.wrappers.vector.{name})"
            )
        super().__init__(env)
        self._mode = env.metadata["autoreset_mode"]
        with torch.inference_mode(False):
            self._ended = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)

    @property
    def _tells(self) -> bool:
        """Whether infos say what was known before a reset; an environment of another make does not."""
        core = getattr(self.unwrapped, "core", None)
        return core is not None and core.settings.final_info

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        base: Any = self.unwrapped
        return base.device

    @torch.inference_mode(False)
    def clone(self) -> Self:
        """Return a copy of the wrapper, of its state and statistics, around a `clone` of the environment.

        Statistics that were shared with another wrapper are the copy's own. All wrappers around the environment have
        to be of this module.
        """
        inner: Any = getattr(self.env, "clone", None)
        if inner is None:
            raise TypeError(
                f"clone: got {type(self.env).__name__} inside, allowed are environments and wrappers that have it"
            )
        twin = copy.copy(self)
        twin.env = inner()
        kinds = (torch.Tensor, RunningMeanStd, spaces.Space)
        vars(twin).update(copy.deepcopy({name: held for name, held in vars(self).items() if isinstance(held, kinds)}))
        return twin

    def _reset_rows(self, options: dict[str, Any] | None) -> torch.Tensor | None:
        """Return the mask of the markets that a reset resets, None for all, and note that their episodes run."""
        mask = (options or {}).get("reset_mask")
        if mask is None:
            self._ended.zero_()
            return None
        mask = check_mask("reset_mask", mask, self.num_envs, self.device)
        self._ended &= ~mask
        return mask

    def _note_ends(self, done: torch.Tensor) -> torch.Tensor | None:
        """Note which episodes have ended; return whose step belongs to an episode, bool `[M]`, or None for all.

        That is all of them under SAME_STEP. Under NEXT_STEP the step after an end only resets, and under DISABLED an
        episode that has ended stands still until it is reset.
        """
        if self._mode == AutoresetMode.SAME_STEP:
            return None
        active = ~self._ended
        if self._mode == AutoresetMode.NEXT_STEP:
            self._ended.copy_(done)
        else:
            self._ended |= done
        return active


_TOLD = ("value", "inventory", "fees", "filled")  # of `final_info`, how an episode ended


class RecordEpisodeStatistics(_TorchVectorWrapper):
    """Adds up rewards and lengths of episodes, as Gymnasium's wrapper of that name, but on the device.

    Every step's infos get `episode`, a dict of `r` (float64 `[M]`, the episode's return) and `l` (int64 `[M]`, its
    length), both 0 where no episode ended, and `_episode` (bool `[M]`), where one did. In contrast to Gymnasium's they
    are present in every step, as a look for ends would have to wait for the device, and there is no `t`.

    Of an environment with `final_info=True` there are also `value`, `inventory`, `fees` and `filled`, float64 `[M]`, as
    they were when the episode ended, and `summary` has their means (of `inventory` that of its size). Returns are then
    the environment's own `episode_return`, whatever wrappers in between make of rewards.

    Attributes:
        episode_returns: float64 `[M]`, of the episodes that run, live.
        episode_lengths: int64 `[M]`, likewise.
    """

    @torch.inference_mode(False)
    def __init__(self, env: VectorEnv, stats_key: str = "episode") -> None:
        """Wrap an environment with torch output.

        Args:
            env: The environment.
            stats_key: The key in the infos.
        """
        check_instance("stats_key", stats_key, str)
        RecordConstructorArgs.__init__(self, stats_key=stats_key)
        super().__init__(env)
        self._key = stats_key
        self.episode_returns = torch.zeros(self.num_envs, dtype=torch.float64, device=self.device)
        self.episode_lengths = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        self._told = _TOLD if self._tells else ()
        self._sums = torch.zeros(
            4 + len(self._told), dtype=torch.float64, device=self.device
        )  # episodes, returns, squares, lengths

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[torch.Tensor, dict[str, Any]]:
        """Reset the environment, and the sums of the markets that are reset."""
        observation, infos = self.env.reset(seed=seed, options=options)
        mask = self._reset_rows(options)
        for tensor in (self.episode_returns, self.episode_lengths):
            tensor.zero_() if mask is None else tensor.masked_fill_(mask, 0)
        return observation, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environment and add to its infos."""
        observation, reward, terminated, truncated, infos = self.env.step(actions)
        if self._key in infos:
            raise ValueError(f"stats_key: got {self._key!r}, which the infos have already; allowed is another name")
        ended = terminated | truncated
        active = self._note_ends(ended)
        if active is None:
            self.episode_returns += reward
            self.episode_lengths += 1
        else:
            self.episode_returns += torch.where(active, reward, 0.0)
            self.episode_lengths += active
            ended &= active  # under DISABLED the flags stand until the reset
        known = infos["final_info"] if self._told else {}
        returns = torch.where(ended, known.get("episode_return", self.episode_returns), 0.0)
        lengths = torch.where(ended, self.episode_lengths, 0)
        told = {name: torch.where(ended, known[name], 0.0) for name in self._told}
        infos = {**infos, self._key: {"r": returns, "l": lengths, **told}, f"_{self._key}": ended}
        sums = [ended.double().sum(), returns.sum(), returns.square().sum(), lengths.double().sum()]
        sums += [(value.abs() if name == "inventory" else value).sum() for name, value in told.items()]
        self._sums += torch.stack(sums)
        self.episode_returns.masked_fill_(ended, 0.0)
        self.episode_lengths.masked_fill_(ended, 0)
        return observation, reward, terminated, truncated, infos

    def summary(self, clear: bool = True) -> dict[str, float]:
        """Return means over the episodes that ended since the last summary. Waits for the device, once.

        Args:
            clear: Begin anew after this.

        Returns:
            `episodes`, and over them the means `return` and `length` and the standard deviation `return_std`; NaN
            without an episode. With `final_info` also the means of the class's further numbers.
        """
        number, total, squares, length, *told = self._sums.tolist()
        clear = check_flag("clear", clear)
        if clear:
            self._sums.zero_()
        if not number:
            return {"episodes": 0, **dict.fromkeys(("return", "return_std", "length", *self._told), math.nan)}
        mean = total / number
        deviation = math.sqrt(max(squares / number - mean * mean, 0.0))
        means = {"return": mean, "return_std": deviation, "length": length / number}
        return {"episodes": int(number), **means} | {
            name: value / number for name, value in zip(self._told, told, strict=True)
        }


class NormalizeObservation(_TorchVectorWrapper):
    """Shifts and scales every feature to mean 0 and variance 1 over the observations seen so far.

    Works under all three autoreset modes: under SAME_STEP `final_obs` is normalised too, by the same statistics, which
    it does not enter. Rows that a masked reset leaves alone do not enter them a second time.

    Attributes:
        statistics: The `RunningMeanStd`.
        update_running_mean: Whether observations enter the statistics; set it to False to evaluate.
    """

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
        self.statistics = _statistics(statistics, shape, self.device)
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

    def normalize(self, observation: torch.Tensor) -> torch.Tensor:
        """Return observations `[..., F]` by the present statistics, float32."""
        rms = self.statistics

        def fits(rows: torch.Tensor) -> bool:
            return rows.shape[-1:] == rms.mean.shape and rows.device == rms.mean.device

        allowed = f"floats [..., {len(rms.mean)}] on {rms.mean.device}"
        check_tensor("observation", observation, allowed, fits, _FLOATS)
        scaled = ((observation.double() - rms.mean) / torch.sqrt(rms.var + self._epsilon)).float()
        return scaled if self._clip is None else scaled.clamp(-self._clip, self._clip)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return copies of the statistics."""
        return self.statistics.state_dict()

    def load_state_dict(self, saved: Mapping[str, torch.Tensor]) -> None:
        """Take over the statistics of a wrapper of this kind."""
        self.statistics.load_state_dict(saved)


class StackObservation(_TorchVectorWrapper):
    """Adds to every observation some of its features as they were at the decisions before, newest first.

    What lies before an episode's first decision is 0. Works under all three autoreset modes; under SAME_STEP
    `final_obs` has what came before it. In contrast to Gymnasium's `FrameStackObservation` the features are chosen, as
    the observation has the last four moves and volumes already, and rows stay flat.

    Attributes:
        observation: float32 `[M, F + (size - 1) * n]`, the present ones, live: written in place.
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
        self.observation = torch.zeros((self.num_envs, len(low)), dtype=torch.float32, device=self.device)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[torch.Tensor, dict[str, Any]]:
        """Reset the environment, and forget what came before in the markets that are reset."""
        observation, infos = self.env.reset(seed=seed, options=options)
        mask = self._reset_rows(options)
        earlier = self.observation[:, self._width :]
        earlier.zero_() if mask is None else earlier.masked_fill_(mask[:, None], 0.0)
        self.observation[:, : self._width] = observation
        return self.observation.clone(), infos

    def step(self, actions: Any) -> tuple[torch.Tensor, Any, Any, Any, dict[str, Any]]:
        """Step the environment."""
        earlier = self.observation[:, self._width : self._width + max(self._size - 2, 0) * self._number]
        earlier = torch.cat([self.observation[:, self._places], earlier], dim=1)[:, : (self._size - 1) * self._number]
        observation, reward, terminated, truncated, infos = self.env.step(actions)
        if "final_obs" in infos:
            infos = {**infos, "final_obs": torch.cat([infos["final_obs"], earlier], dim=1)}
        ended = terminated | truncated
        active = self._note_ends(ended)
        new = ended if active is None else ~active  # rows whose observation begins an episode
        if self._mode == AutoresetMode.DISABLED:  # none does: what has ended stands still
            earlier = torch.where(new[:, None], self.observation[:, self._width :], earlier)
        else:
            earlier = earlier.masked_fill(new[:, None], 0.0)
        self.observation.copy_(torch.cat([observation, earlier], dim=1))
        return self.observation.clone(), reward, terminated, truncated, infos

    def state_dict(self) -> dict[str, Any]:
        """Return the environment's state, with a copy of the observations, `stacked`."""
        inner: Any = self.env
        return {**inner.state_dict(), "stacked": self.observation.clone()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over the state of an environment that is wrapped likewise."""
        inner: Any = self.env
        check_like({"stacked": saved.get("stacked")}, {"stacked": self.observation})
        inner.load_state_dict({name: value for name, value in saved.items() if name != "stacked"})
        self.observation.copy_(saved["stacked"])


class NormalizeReward(_TorchVectorWrapper):
    """Divides rewards by the standard deviation of the discounted return, as it was seen so far.

    A return starts anew with each episode, however the last one ended. (Gymnasium's drops what came before in the step
    that terminates an episode, and under NEXT_STEP carries returns on into the next episode.)

    Attributes:
        statistics: The `RunningMeanStd` of the discounted returns.
        update_running_mean: Whether rewards enter the statistics; set it to False to evaluate.
    """

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
            gamma: The discount.
            epsilon: Added to the variance.
            clip: Largest size of a normalised reward; None is no limit.
            statistics: Those of another wrapper, shared with it; None begins new ones.
        """
        check_number("gamma", gamma, 0.0, 1.0)
        _check_scale(epsilon, clip)
        RecordConstructorArgs.__init__(self, gamma=gamma, epsilon=epsilon, clip=clip)
        super().__init__(env)
        self.statistics = _statistics(statistics, (), self.device)
        self.update_running_mean = True
        self.discounted_return = torch.zeros(self.num_envs, dtype=torch.float64, device=self.device)
        self._gamma, self._epsilon, self._clip = float(gamma), float(epsilon), clip

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
        self.discounted_return.mul_(self._gamma).add_(reward)
        if self.update_running_mean:
            self.statistics.update(self.discounted_return, active)
        self.discounted_return.masked_fill_(ended if active is None else ended | ~active, 0.0)
        scaled = (reward.double() / torch.sqrt(self.statistics.var + self._epsilon)).float()
        if self._clip is not None:
            scaled = scaled.clamp(-self._clip, self._clip)
        return observation, scaled, terminated, truncated, infos

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return copies of the statistics and of the running returns, float64 `[M]`."""
        return {**self.statistics.state_dict(), "discounted_return": self.discounted_return.clone()}

    def load_state_dict(self, saved: Mapping[str, torch.Tensor]) -> None:
        """Take over the state of a wrapper of this kind; running returns of another number of markets are left out."""
        check_mapping(saved)
        returns = saved.get("discounted_return")
        if returns is not None:
            allowed = "a tensor float64 [M] of running returns"
            check_tensor("state['discounted_return']", returns, allowed, lambda rows: rows.dim() == 1, (torch.float64,))
        self.statistics.load_state_dict(saved)
        if returns is not None and returns.shape == self.discounted_return.shape:
            self.discounted_return.copy_(returns)


def _check_scale(epsilon: Any, clip: Any) -> None:
    """Refuse settings of a normalisation that are no finite numbers above 0."""
    check_number("epsilon", epsilon, 0.0, above=True)
    if clip is not None:
        check_number("clip", clip, 0.0, above=True)


def _statistics(given: RunningMeanStd | None, shape: tuple[int, ...], device: torch.device) -> RunningMeanStd:
    """Return the statistics of another wrapper, if they are of the same shape and device, or new ones."""
    if given is None:
        return RunningMeanStd(shape, device)
    mean = check_instance("statistics", given, RunningMeanStd).mean
    if mean.shape != shape or mean.device != device:
        found = f"{list(mean.shape)} on {mean.device}"
        raise ValueError(f"statistics: got those of {found}, allowed are those of {list(shape)} on {device}")
    return given
