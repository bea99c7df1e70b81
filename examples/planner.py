"""A planner: of some first actions it plays the one that earns most, on average over rollouts in forks of the market.

docs/planning.md has what it earns, by what it is let know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class RolloutPlanner:
    """A policy of one learner per market, with torch output: call it with the observations of `envs`, as they are now.

    Args:
        envs: The environment that it plays; episodes that have ended have to stand still (`autoreset_mode="DISABLED"`).
        base: The policy that it asks for one of the first actions, and for all further ones.
        first: The other first actions, float32 `[C - 1, A]`.
        depth: How many decisions each rollout has.
        futures: How many other futures each first action is tried in, the same ones for all; 0 is the market's own.
        seed: Of these futures, new ones in every decision; no market of `envs` may have a seed from here to 2^31 above.
        guess: Called with the forks before they are played, to hide from them what no learner knows.
    """

    def __init__(
        self,
        envs: Any,
        base: Callable[[torch.Tensor], torch.Tensor],
        first: torch.Tensor,
        *,
        depth: int = 8,
        futures: int = 8,
        seed: int = 2**50,
        guess: Callable[[Any], None] | None = None,
    ) -> None:
        """See the class."""
        self.envs, self.base, self.first, self.depth = envs, base, first, depth
        self.futures, self.next_seed, self.guess = futures, seed, guess

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the best of the first actions for each market, float32 `[M, A]`."""
        actions = self.base(observation).clone()
        for market in range(len(actions)):
            if not self.envs.core.tensors["done"][market]:
                actions[market] = self.best(market, torch.cat([self.first, actions[market : market + 1]]))
        return actions

    def best(self, market: int, first: torch.Tensor) -> torch.Tensor:
        """Return the best of some first actions, `[C, A]`, for a market as it is now."""
        times = max(1, self.futures)
        seeds = None
        if self.futures:
            seeds = torch.arange(self.next_seed, self.next_seed + times).repeat(len(first))
            self.next_seed += times
        rows = self.envs.fork(market, len(first) * times, seeds)
        if self.guess is not None:
            self.guess(rows)
        action, earned = first.repeat_interleave(times, 0), torch.zeros(len(first) * times, dtype=torch.float64)
        for decision in range(self.depth):
            observation, reward, *_ = rows.step(action)
            earned += reward
            if decision + 1 < self.depth:
                action = self.base(observation)
        return first[earned.view(len(first), times).mean(1).argmax()]
