"""The noise of learned policies in rollouts: a hash of seed, market, episode and time, as cuda/policy/decide.cuh has.

Numbers that depend on nothing else are the same however a rollout is cut, and whoever evaluates the policy. In torch,
for the steps of envs/rollouts.py; integers of 64 bits wrap around.
"""

from __future__ import annotations

import math

import torch


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


_GOLDEN, _EPISODE = _signed(0x9E3779B97F4A7C15), _signed(0xD1B54A32D192ED03)
_FIRST, _SECOND = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)


def _right(x: torch.Tensor, count: int) -> torch.Tensor:
    """Shift right, as unsigned numbers."""
    return (x >> count) & (2 ** (64 - count) - 1)


def mix64(x: torch.Tensor) -> torch.Tensor:
    """Return SplitMix64's finaliser of int64, taken as unsigned."""
    x = (x ^ _right(x, 30)) * _FIRST
    x = (x ^ _right(x, 27)) * _SECOND
    return x ^ _right(x, 31)


def words_of(seed: torch.Tensor, markets: torch.Tensor, episodes: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """Return what each market's words come from, int64 `[M]`, of its seed, its episode and its time."""
    key = mix64(markets + _GOLDEN + episodes * _EPISODE)
    return mix64(key + seed * _GOLDEN) + ((t << 32) + 1) * _GOLDEN


def _words(words: torch.Tensor, pairs: int) -> torch.Tensor:
    """Return the words of so many pairs of numbers, int64 `[M, pairs]`."""
    return mix64(words[:, None] + torch.arange(pairs, device=words.device) * _GOLDEN)


def _uniform(bits: torch.Tensor) -> torch.Tensor:
    """Return float32 above 0 and below 1, of 32 bits."""
    return ((bits >> 8).to(torch.float32) + 0.5) * 2.0**-24


def normals(words: torch.Tensor, count: int) -> torch.Tensor:
    """Return independent standard normal numbers, float32 `[M, count]`, two of each word (Box and Muller, 1958)."""
    word = _words(words, -(-count // 2))
    length = torch.sqrt(-2.0 * torch.log(_uniform(_right(word, 32))))
    low = (word << 32) >> 32  # signed
    angle = low.to(torch.float32) * (math.pi * 2.0**-31)
    both = torch.stack([length * torch.cos(angle), length * torch.sin(angle)], dim=-1)
    return both.flatten(1)[:, :count]


def gumbels(words: torch.Tensor, count: int) -> torch.Tensor:
    """Return independent numbers of the standard Gumbel distribution, float32 `[M, count]`, two of each word."""
    word = _words(words, -(-count // 2))
    bits = torch.stack([_right(word, 32), word & (2**32 - 1)], dim=-1)
    return -torch.log(-torch.log(_uniform(bits))).flatten(1)[:, :count]
