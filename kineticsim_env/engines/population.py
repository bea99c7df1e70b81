"""Populations drawn per market, as the published runs do: `population="multinomial"`.

Agent i's class is the first whose cumulative share exceeds the top 32 bits of word 3 * 2^30 + i at episode 0, step 0
(docs/model.md), so the counts depend on the market's seed alone. Drawn on the host, when a market is seeded.
"""

from __future__ import annotations

import numpy as np

from kineticsim_env.config import CLASSES, MarketConfig
from kineticsim_env.runtime.seeds import GOLDEN, episode_key, mix64

_FIRST_WORD = 3 << 30
_BLOCK = 1 << 20  # words hashed at once


def multinomial_counts(config: MarketConfig, seeds: np.ndarray, markets: np.ndarray) -> np.ndarray:
    """Draw how many agents of each class the given markets have.

    Args:
        config: The market; shares and `num_agents` may be per market.
        seeds: int64 `[n]`, the seeds of the markets.
        markets: int64 `[n]`, their indices, which pick per-market shares.

    Returns:
        int64 `[n, 4]` in the order of `CLASSES`.
    """

    def pick(value: object) -> np.ndarray:
        array = np.asarray(value)
        return array[markets] if array.ndim else np.broadcast_to(array, (len(seeds),))

    cumulative = np.cumsum([pick(getattr(config, name)).astype(np.float64) for name in CLASSES], axis=0)
    bounds = np.rint(cumulative * 2.0**32).astype(np.uint64)  # [4, n]
    bounds[-1] = 1 << 32
    agents = pick(config.num_agents)
    with np.errstate(over="ignore"):
        keys = episode_key(seeds, np.zeros_like(seeds))
        counts = np.zeros((len(seeds), len(CLASSES)), dtype=np.int64)
        step = max(1, _BLOCK // max(1, len(seeds)))
        for begin in range(0, int(agents.max()), step):
            index = np.arange(begin, min(begin + step, int(agents.max())), dtype=np.int64)
            offset = (index + _FIRST_WORD + 1).astype(np.uint64) * np.uint64(GOLDEN)
            top = mix64(keys[:, None] + offset[None, :]) >> np.uint64(32)
            living = index[None, :] < agents[:, None]
            below = np.zeros(len(seeds), dtype=np.int64)
            for number in range(len(CLASSES)):
                upto = np.sum(living & (top < bounds[number][:, None]), axis=1)
                counts[:, number] += np.maximum(upto - below, 0)
                below = np.maximum(below, upto)
    return counts
