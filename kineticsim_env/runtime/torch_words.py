"""The random words of docs/model.md as torch computes them, on any device: `seeds` has them in NumPy.

Opponents are drawn by them, and what tasks of users' own draw. torch has no shifts of unsigned words, so that they are
held in int64, whose arithmetic wraps.
"""

from __future__ import annotations

from typing import Any

import torch

from kineticsim_env.runtime.seeds import EPISODE, GOLDEN


def signed(number: Any) -> int:
    """Return an unsigned number of 64 bits as the signed one with the same bits, which torch computes with."""
    return (int(number) + 2**63) % 2**64 - 2**63


def numbers_of(first: int, count: int, device: torch.device) -> torch.Tensor:
    """Return what words `first` to `first + count - 1` add to a key at t = 0, int64 `[count]`."""
    added = [signed((first + place + 1) * GOLDEN) for place in range(count)]
    return torch.tensor(added, dtype=torch.int64, device=device)


def episode_keys(seed: torch.Tensor, episode: torch.Tensor) -> torch.Tensor:
    """Return the keys of episodes, int64 of the shape of seeds and episodes, both int64."""
    return _mix64(seed + signed(GOLDEN) + episode * signed(EPISODE))


def high_halves(keys: torch.Tensor) -> torch.Tensor:
    """Return the top 32 bits of words, int64 from 0 to 2^32 - 1; `keys` have what the words' numbers add to them."""
    return _shifted(_mix64(keys), 32)


def at_time(t: torch.Tensor) -> torch.Tensor:
    """Return what time t adds to a key, int64 of its shape."""
    return (t << 32) * signed(GOLDEN)


def _shifted(words: torch.Tensor, places: int) -> torch.Tensor:
    """Shift unsigned words, held in int64, to the right."""
    return (words >> places) & ((1 << (64 - places)) - 1)


def _mix64(words: torch.Tensor) -> torch.Tensor:
    """Return SplitMix64's finaliser of words held in int64; docs/model.md."""
    words = (words ^ _shifted(words, 30)) * signed(0xBF58476D1CE4E5B9)
    words = (words ^ _shifted(words, 27)) * signed(0x94D049BB133111EB)
    return words ^ _shifted(words, 31)
