"""`run_seed`: seeds of several runs that have no market in common; and the random words of a seed (docs/model.md).

The package exports `run_seed`. Whatever draws on the host, beside the engines, draws words: populations, the regimes of
opening books, opponents. The NumPy engine has its own.
"""

from __future__ import annotations

import numpy as np

from kineticsim_env.runtime.values import check_count

GOLDEN, EPISODE = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03  # what a word's number, and an episode's, is multiplied by
_MARKETS = 2**32  # that a run may have; an ensemble has fewer than 2^31
_FIRST_WARM_START = 2**61  # seeds from here on are those of warm starts, and from 2^62 of evaluations


def run_seed(run: int) -> int:
    """Return the seed of a run whose markets no other run has: `run * 2^32`.

    Seeded s, market m has the random stream of seed s + m, as Gymnasium has it: seeds 1 and 2 share 255 of 256 markets,
    and what is learned from them is no two samples. Seeds of runs are further apart than an ensemble is large (at most
    2^31 - 1 markets). They end below those of warm starts (from 2^61) and of `kineticsim_env.evaluation` (from 2^62).

    Args:
        run: Which run, 0 to 2^29 - 1.

    Returns:
        A seed for `reset` and `Simulator`.

    Raises:
        TypeError, ValueError: If `run` is no whole number, or out of range.
    """
    return check_count("run", run, 0, _FIRST_WARM_START // _MARKETS - 1) * _MARKETS


def mix64(z: np.ndarray) -> np.ndarray:
    """Return SplitMix64's finaliser of a uint64 array."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def episode_key(seed: np.ndarray, episode: np.ndarray) -> np.ndarray:
    """Return the uint64 key of episodes, which their words are hashed from; both arrays int64."""
    return mix64(seed.astype(np.uint64) + np.uint64(GOLDEN) + episode.astype(np.uint64) * np.uint64(EPISODE))


def first_word(seed: np.ndarray, episode: np.ndarray, index: int) -> np.ndarray:
    """Return word `index` of episodes at t = 0, uint64; seeds and episodes are int64 of one shape."""
    with np.errstate(over="ignore"):
        return mix64(episode_key(seed, episode) + np.uint64((index + 1) * GOLDEN % 2**64))
