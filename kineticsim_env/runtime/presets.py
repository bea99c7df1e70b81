"""The presets of `MarketConfig`: markets by name, as the fields in which each differs from the default, `"paper"`."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

_REGIMES = 8  # of `jump_regimes`
REALISTIC_JUMPS = {"jump_prob": 0.25, "jump_size": 8.0, "spread_of_jumps": 0.8}  # of the preset "realistic"


def jump_regimes(jump_prob: float, jump_size: float, spread_of_jumps: float) -> tuple[dict[str, Any], ...]:
    """Return regimes whose jump sizes are quantiles of a lognormal distribution, rounded to ticks.

    `jump_size` is the median, `spread_of_jumps` the standard deviation of the logarithm.
    """
    normal = NormalDist()
    quantiles = [normal.inv_cdf((i + 0.5) / _REGIMES) for i in range(_REGIMES)]
    sizes = [max(1, round(jump_size * math.exp(spread_of_jumps * each))) for each in quantiles]
    return tuple({"jump_prob": jump_prob, "jump_size": size} for size in sizes)


# How they were chosen, and what they measure: examples/studies/presets and examples/studies/realistic. The default of
# environments is "news", as envs/settings.py says.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "trading": {
        "num_agents": 20,
        "noise": 0.45,
        "momentum": 0.15,
        "maker": 0.10,
        "fundamental": 0.30,
        "noise_spread": 14,
        "maker_half_spread": 8,
        "market_order_prob": 0.4,
        "walk_prob": 0.4,
        "jump_prob": 0.02,
        "jump_size": 4,
        "cancel_prob": 0.4,
        "window": 16,
        "tie": "mid",
        "residue": "cancel",
        "rounding": "coin",
    },
    "continuous": {
        "arrivals": "clock",
        "mechanism": "continuous",
        "interval": 20,
        "num_agents": 40,
        "noise": 0.20,
        "momentum": 0.05,
        "maker": 0.20,
        "fundamental": 0.55,
        "noise_spread": 16,
        "maker_half_spread": 6,
        "taker_offset": 2,
        "market_order_prob": 0.02,
        "walk_prob": 0.8,
        "jump_prob": 0.5,
        "jump_size": 5,
        "cancel_prob": 0.6,
        "window": 16,
        "rounding": "coin",
    },
    "news": {
        "arrivals": "clock",
        "mechanism": "continuous",
        "interval": 48,
        "beat": 24,
        "num_agents": 40,
        "noise": 0.425,
        "momentum": 0.05,
        "maker": 0.275,
        "fundamental": 0.25,
        "max_order_qty": 10,
        "noise_spread": 12,
        "maker_half_spread": 4,
        "market_order_prob": 0.01,
        "cancel_prob": 0.3,
        "walk_prob": 0.3,
        "window": 16,
        "rounding": "coin",
        "regimes": ({"jump_prob": 0.0}, {"jump_prob": 0.0}, {"jump_prob": 0.6, "jump_size": 9}),
        "regime_switch_prob": 0.05,
    },
    "realistic": {
        "arrivals": "clock",
        "mechanism": "continuous",
        "interval": 48,
        "beat": 24,
        "num_agents": 40,
        "noise": 0.5,
        "momentum": 0.0,
        "maker": 0.5,
        "max_order_qty": 10,
        "noise_spread": 12,
        "maker_half_spread": 4,
        "market_order_prob": 0.01,
        "cancel_prob": 0.4,
        "walk_prob": 0.3,
        "window": 16,
        "rounding": "coin",
        "reference": "fundamental",
        "regimes": jump_regimes(**REALISTIC_JUMPS),
        "regime_switch_prob": 0.003,
        "agents": {"kineticsim_env.traders:order_splitter": {"count": 4, "size": 20}},
    },
}
