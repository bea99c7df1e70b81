"""Null models of a scorecard: markets and series without what a fact is about, measured by the same formulas.

What a null model shows as well says nothing for a market. The third one, the fundamental path alone, is the market's
own: `price="fundamental"` of the statistics of returns. `kineticsim_env/scorecards.py` puts them beside a market.
"""

from __future__ import annotations

import numpy as np

from kineticsim_env.config import MarketConfig


def zero_intelligence(config: MarketConfig) -> MarketConfig:
    """Return a market with the same rules, and order flow without structure.

    All its agents are noise agents, around the mid, with sides, prices and quantities drawn alone; the fundamental
    price stands, there are no regimes, and no agents of classes that users write.
    """
    return config.replace(
        noise=1.0,
        **dict.fromkeys(("momentum", "maker", "fundamental", "walk_prob", "jump_prob", "regime_switch_prob"), 0.0),
        reference="mid",
        regimes=None,
        agents=None,
    )


def random_walk(volatility: float, markets: int, intervals: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return the prices of walks with independent normal steps, rounded to ticks, and to half ticks as mids.

    Args:
        volatility: Standard deviation of a step, ticks.
        markets: M.
        intervals: S.
        seed: Of the draws; they are the host's, so that no walk depends on a device.

    Returns:
        `last_price` and `mid2`, int64 `[M, S]`.
    """
    walk = np.cumsum(volatility * np.random.default_rng(seed).standard_normal((markets, intervals)), axis=1)
    return {"last_price": np.rint(walk).astype(np.int64), "mid2": np.rint(2 * walk).astype(np.int64)}
