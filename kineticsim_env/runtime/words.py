"""The random words of docs/model.md, of torch tensors on any device, and of NumPy arrays: both are int64 here.

Populations and the regimes of opening books are drawn by them, opponents, what tasks of users' own draw, policies'
noise, and other futures (engines/futures.py). Neither has all operations of unsigned words, so that they are held in
int64, whose arithmetic wraps. The NumPy engine has its own.
"""

from __future__ import annotations

from typing import Any

import torch


def signed(number: Any) -> int:
    """Return the signed number of 64 bits that has the low 64 bits of a whole number."""
    return (int(number) + 2**63) % 2**64 - 2**63


# What a word's number, and an episode's, is multiplied by.
GOLDEN, EPISODE = signed(0x9E3779B97F4A7C15), signed(0xD1B54A32D192ED03)
MULTIPLIERS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # of SplitMix64's finaliser, between shifts by 30, 27 and 31
_FIRST, _SECOND = map(signed, MULTIPLIERS)
_UNDO_FIRST, _UNDO_SECOND = (signed(pow(factor, -1, 2**64)) for factor in MULTIPLIERS)


def numbers_of(first: int, count: int, device: torch.device) -> torch.Tensor:
    """Return what words `first` to `first + count - 1` add to a key at t = 0, int64 `[count]`."""
    added = [signed((first + place + 1) * GOLDEN) for place in range(count)]
    return torch.tensor(added, dtype=torch.int64, device=device)


def episode_keys(seed: Any, episode: Any) -> Any:
    """Return the keys of episodes, int64 of the shape of seeds and episodes, both int64."""
    return mix64(seed + GOLDEN + episode * EPISODE)


def high_halves(keys: Any) -> Any:
    """Return the top 32 bits of words, int64 from 0 to 2^32 - 1; `keys` have what the words' numbers add to them."""
    return shifted(mix64(keys), 32)


def at_time(t: Any) -> Any:
    """Return what time t adds to a key, int64 of its shape."""
    return (t << 32) * GOLDEN


def shifted(words: Any, places: int) -> Any:
    """Shift unsigned words, held in int64, to the right."""
    return (words >> places) & ((1 << (64 - places)) - 1)


def mix64(words: Any) -> Any:
    """Return SplitMix64's finaliser of words held in int64; docs/model.md."""
    words = (words ^ shifted(words, 30)) * _FIRST
    words = (words ^ shifted(words, 27)) * _SECOND
    return words ^ shifted(words, 31)


def unmix64(words: Any) -> Any:
    """Return what `mix64` makes these words of."""
    words = _unshifted(words, 31) * _UNDO_SECOND
    words = _unshifted(words, 27) * _UNDO_FIRST
    return _unshifted(words, 30)


def _unshifted(words: Any, places: int) -> Any:
    """Return x of words = x ^ (x >> places), for places above 64 / 3."""
    return words ^ shifted(words, places) ^ shifted(words, 2 * places)
