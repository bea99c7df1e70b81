"""Returns and lengths of episodes, added up on the device."""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv

from kineticsim_env.runtime.values import check_flag, check_instance
from kineticsim_env.wrappers.base import TorchVectorWrapper

_TOLD = ("value", "inventory", "fees", "filled")  # of `account_info`, how an episode ended


class RecordEpisodeStatistics(TorchVectorWrapper):
    """Adds up rewards and lengths of episodes, as Gymnasium's wrapper of that name, but on the device.

    Every step's infos get `episode`, a dict of `r` (float64 `[M]`, the episode's return) and `l` (int64 `[M]`, its
    length in decisions, whatever these lasted), both 0 where no episode ended, and `_episode` (bool `[M]`), where one
    did. In contrast to Gymnasium's they are present in every step, as a look for ends would have to wait for the
    device, and there is no `t`.

    Of an environment with `account_info=True` there are also `value`, `inventory`, `fees` and `filled`, float64 `[M]`,
    as they were when the episode ended, and `summary` has their means (of `inventory` that of its size). Returns are
    then the environment's own `episode_return`, whatever wrappers in between make of rewards.

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
        self._told = _TOLD if self._account_key else ()
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
            raise ValueError(f"stats_key: expected another name, got {self._key!r}, which the infos have already")
        ended = terminated | truncated
        active = self._note_ends(ended)
        if active is None:
            self.episode_returns += reward
            self.episode_lengths += 1
        else:
            self.episode_returns += torch.where(active, reward, 0.0)
            self.episode_lengths += active
            ended &= active  # under DISABLED the flags stand until the reset
        known = infos[self._account_key] if self._told else {}
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

    def _state(self) -> dict[str, torch.Tensor]:
        returns, lengths = self.episode_returns, self.episode_lengths
        return {"episode_returns": returns, "episode_lengths": lengths, "sums": self._sums, "ended": self._ended}

    def summary(self, clear: bool = True) -> dict[str, float]:
        """Return means over the episodes that ended since the last summary. Waits for the device, once.

        Args:
            clear: Begin anew after this.

        Returns:
            `episodes`, and over them the means `return` and `length` and the standard deviation `return_std`; NaN
            without an episode. With `account_info` also the means of the class's further numbers.
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
