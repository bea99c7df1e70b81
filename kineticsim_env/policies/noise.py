"""The noise of learned policies in rollouts: a hash of seed, market, episode and time, as cuda/policy/decide.cuh has.

Numbers that depend on nothing else are the same however a rollout is cut, and whoever evaluates the policy. In torch,
for the steps of envs/rollouts.py; integers of 64 bits wrap around.
"""

from __future__ import annotations

import math

import torch

from kineticsim_env.runtime.words import GOLDEN, episode_keys, mix64, shifted


def words_of(seed: torch.Tensor, markets: torch.Tensor, episodes: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """Return what each market's words come from, int64 `[M]`, of its seed, its episode and its time."""
    return mix64(episode_keys(markets, episodes) + seed * GOLDEN) + ((t << 32) + 1) * GOLDEN


def _words(words: torch.Tensor, pairs: int) -> torch.Tensor:
    """Return the words of so many pairs of numbers, int64 `[M, pairs]`."""
    return mix64(words[:, None] + torch.arange(pairs, device=words.device) * GOLDEN)


def _uniform(bits: torch.Tensor) -> torch.Tensor:
    """Return float32 above 0 and below 1, of 32 bits."""
    return ((bits >> 8).to(torch.float32) + 0.5) * 2.0**-24


def normals(words: torch.Tensor, count: int) -> torch.Tensor:
    """Return independent standard normal numbers, float32 `[M, count]`, two of each word (Box and Muller, 1958)."""
    word = _words(words, -(-count // 2))
    length = torch.sqrt(-2.0 * torch.log(_uniform(shifted(word, 32))))
    low = (word << 32) >> 32  # signed
    angle = low.to(torch.float32) * (math.pi * 2.0**-31)
    both = torch.stack([length * torch.cos(angle), length * torch.sin(angle)], dim=-1)
    return both.flatten(1)[:, :count]


def gumbels(words: torch.Tensor, count: int) -> torch.Tensor:
    """Return independent numbers of the standard Gumbel distribution, float32 `[M, count]`, two of each word."""
    word = _words(words, -(-count // 2))
    bits = torch.stack([shifted(word, 32), word & (2**32 - 1)], dim=-1)
    return -torch.log(-torch.log(_uniform(bits))).flatten(1)[:, :count]
