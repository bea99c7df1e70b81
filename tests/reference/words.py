"""Random words: SplitMix64's finaliser over a counter, in Python ints. All arithmetic is mod 2^64."""

from __future__ import annotations

MASK = (1 << 64) - 1
G = 0x9E3779B97F4A7C15
EPISODE = 0xD1B54A32D192ED03

# What is drawn at which index of w_n(index); n is an interval t, a beat b, or an event g (or half of one).
WALK = 1 << 30  # beat: fundamental's walk and jump, and the coin of prices half way between ticks
RATION = (1 << 30) + 1  # interval: rationing of the call auction
PLACE = (1 << 30) + 6  # beat: what quotes lose of their `ahead` to cancellation
SWITCH = (1 << 30) + 7  # beat: whether and where the regime switches
FIRST_REGIME = (1 << 30) + 8  # w_0: the regime at a reset
CANCEL = 1 << 31  # beat: cancellation, two ticks per word
WHO = (1 << 31) + (1 << 29)  # half an event's number: which agents come at two events
CLASS = 3 << 30  # w_0 of episode 0: classes of a multinomial population


def mix64(z: int) -> int:
    z &= MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def episode_key(seed: int, episode: int) -> int:
    return mix64(seed + G + episode * EPISODE)


def word(key: int, number: int, index: int) -> int:
    """w_number(index)."""
    return mix64(key + ((number << 32) + index + 1) * G)


def bits(value: int, first: int, count: int) -> int:
    return (value >> first) & ((1 << count) - 1)


def scaled(u: int, size: int, width: int) -> int:
    """A number from 0 to size - 1, from `width` random bits."""
    return (u * size) >> width
