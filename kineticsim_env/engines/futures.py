"""Other futures of running markets: seeds with other words from now on, and the present episode's draws as they are.

What an episode has drawn is state, but for the few words that engines read again in later steps. They are listed as
`Held`; a market's new seed is one with which they say what they say now, so that no engine has to know of it. Which
seed that is: docs/environment.md. `Simulator.branch` and envs/futures.py call `seeds_with`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from kineticsim_env.runtime.words import EPISODE, GOLDEN, episode_keys, mix64, shifted, signed, unmix64

WORD_WALK, WORD_SLOT = 1 << 30, (1 << 30) + 64
MOST_TRIED = 1 << 20  # seeds of which one has to fit
_AT_ONCE = 1 << 22
_BITS = sum(1 << bit for bit in (16, *range(31, 48)))  # of a word all that is ever read of a `Held`


class Held(NamedTuple):
    """A word that engines read again in the present episode, and what they read of it: a bit, and a quantity."""

    t: Any  # the word's time, int64 [M], or of all,
    index: int  # and its index
    bit: int  # 31 a side, 16 a coin
    most: Any = 1  # the quantity is 1 + (bits 32-47 * most >> 16); int64 [M], or of all
    odds: int = 2  # of how many words, on average, one says the same
    idle: Any = False  # where it is not read, bool [M], or of all


def num_tried(held: Sequence[Held]) -> int:
    """Return how many seeds have to be looked at, on average, for one that fits: one word's bits are chosen."""
    odds = [one.odds for one in held]
    return math.prod(odds) // max(odds, default=1)


def seeds_with(wanted: torch.Tensor, seed: torch.Tensor, episode: torch.Tensor, held: Sequence[Held]) -> torch.Tensor:
    """Return the seeds that markets get: those wanted where what is held says the same with them, else others.

    Those are hashes of the wanted seed and 1, 2, ..., of which the first that fits is taken. Nothing waits for a GPU,
    unless very many are looked at.

    Args:
        wanted: int64 `[M]`, as are the present `seed` and `episode` of the markets.
        seed: See `wanted`.
        episode: See `wanted`.
        held: Words to hold, of which `num_tried` is at most `MOST_TRIED`.
    """
    if not held:
        return wanted
    if not wanted.is_cuda:  # arrays, for which the same takes a fifth of the time
        theirs = ((Held(*map(_as_array, one))) for one in held)
        return torch.from_numpy(_seeds_with(np, *map(_as_array, (wanted, seed, episode)), list(theirs)))
    return _seeds_with(torch, wanted, seed, episode, held, device=wanted.device)


def _as_array(given: Any) -> Any:
    return given.numpy() if isinstance(given, torch.Tensor) else given


def _seeds_with(library: Any, wanted: Any, seed: Any, episode: Any, held: Sequence[Held], **where: Any) -> Any:
    """Do it with NumPy or torch, whose calls here are alike; `where` is the device, if it is a GPU."""
    wanted, seed, episode = wanted[:, None], seed[:, None], episode[:, None]
    key, counters = episode_keys(seed, episode), [_counter(one) for one in held]
    words = [mix64(key + counter) for counter in counters]
    said = [_said(one, word) for one, word in zip(held, words, strict=True)]
    place = max(range(len(held)), key=lambda place: held[place].odds)
    chosen, kept = counters[place], words[place] & _BITS
    expected, rows = num_tried(held), library.arange(len(wanted), **where)
    size = 64 * expected if where else 2 if expected == 1 else 8 * expected
    size = min(size, max(2, _AT_ONCE // len(wanted)))
    first, found, fits = 0, wanted[:, 0], rows < 0
    while True:
        drawn = mix64(wanted + library.arange(first, first + size, **where) * GOLDEN) & ~_BITS | kept
        tried = unmix64(unmix64(drawn) - chosen) - GOLDEN - episode * EPISODE
        if first == 0:
            tried[:, :1] = wanted
        keys, good = episode_keys(tried, episode), tried == tried
        for one, counter, answer in zip(held, counters, said, strict=True):
            good = good & ((_said(one, mix64(keys + counter)) == answer) | _column(one.idle))
        taken = tried[rows, (good * 1).argmax(1)]  # the first that fits
        if where and size == 64 * expected:  # of which one does, but for one market in e^64
            return taken
        found, fits, first = library.where(fits, found, taken), fits | good.any(1), first + size
        if fits.all():
            return found


def _column(values: Any) -> Any:
    return values[:, None] if hasattr(values, "ndim") else values


def _counter(one: Held) -> Any:
    """Return what is added to a key for the word, int64 `[M, 1]`, or one number."""
    number = (_column(one.t) << 32) + one.index + 1
    return number * GOLDEN if hasattr(number, "ndim") else signed(number * GOLDEN)


def _said(one: Held, words: Any) -> Any:
    """Return what engines read of words `[M, n]`, as one number each."""
    side = words >> one.bit & 1
    if isinstance(one.most, int) and one.most == 1:
        return side
    return side + 2 * ((shifted(words, 32) & 0xFFFF) * _column(one.most) >> 16)
