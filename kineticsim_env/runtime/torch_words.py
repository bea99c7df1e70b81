"""The random words of docs/model.md as torch computes them, on any device: `seeds` has them in NumPy.

Opponents are drawn by them, what tasks of users' own draw, policies' noise, and other futures (engines/futures.py),
which call some of it with NumPy's arrays. torch has no shifts of unsigned words, so that they are held in int64, whose
arithmetic wraps.
"""

from __future__ import annotations

from typing import Any

import torch

from kineticsim_env.runtime import seeds


def signed(number: Any) -> int:
    """Return an unsigned number of 64 bits as the signed one with the same bits, which torch computes with."""
    return (int(number) + 2**63) % 2**64 - 2**63


GOLDEN, EPISODE = signed(seeds.GOLDEN), signed(seeds.EPISODE)
_FACTORS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_FIRST, _SECOND = map(signed, _FACTORS)
_UNDO_FIRST, _UNDO_SECOND = (signed(pow(factor, -1, 2**64)) for factor in _FACTORS)


def numbers_of(first: int, count: int, device: torch.device) -> torch.Tensor:
    """Return what words `first` to `first + count - 1` add to a key at t = 0, int64 `[count]`."""
    added = [signed((first + place + 1) * seeds.GOLDEN) for place in range(count)]
    return torch.tensor(added, dtype=torch.int64, device=device)


def episode_keys(seed: torch.Tensor, episode: torch.Tensor) -> torch.Tensor:
    """Return the keys of episodes, int64 of the shape of seeds and episodes, both int64."""
    return mix64(seed + GOLDEN + episode * EPISODE)


def high_halves(keys: torch.Tensor) -> torch.Tensor:
    """Return the top 32 bits of words, int64 from 0 to 2^32 - 1; `keys` have what the words' numbers add to them."""
    return shifted(mix64(keys), 32)


def at_time(t: torch.Tensor) -> torch.Tensor:
    """Return what time t adds to a key, int64 of its shape."""
    return (t << 32) * GOLDEN


def shifted(words: torch.Tensor, places: int) -> torch.Tensor:
    """Shift unsigned words, held in int64, to the right."""
    return (words >> places) & ((1 << (64 - places)) - 1)


def mix64(words: torch.Tensor) -> torch.Tensor:
    """Return SplitMix64's finaliser of words held in int64; docs/model.md."""
    words = (words ^ shifted(words, 30)) * _FIRST
    words = (words ^ shifted(words, 27)) * _SECOND
    return words ^ shifted(words, 31)


def unmix64(words: torch.Tensor) -> torch.Tensor:
    """Return what `mix64` makes these words of."""
    words = _unshifted(words, 31) * _UNDO_SECOND
    words = _unshifted(words, 27) * _UNDO_FIRST
    return _unshifted(words, 30)


def _unshifted(words: torch.Tensor, places: int) -> torch.Tensor:
    """Return x of words = x ^ (x >> places), for places above 64 / 3."""
    return words ^ shifted(words, places) ^ shifted(words, 2 * places)
