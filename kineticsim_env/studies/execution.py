"""How to execute a block: cost against risk, by size, clearing interval and mechanism.

Cost is the mean implementation shortfall over episodes, risk its standard deviation, both in ticks per unit of the
block, so a policy is a point and a family of policies a frontier, as in Almgren and Chriss (2000), "Optimal execution
of portfolio transactions". Every rule gives the block the same number of events, and every block is bought and sold in
the same markets: what the price does anyway then leaves the mean cost. `scripts/pages/execution.py` writes
docs/execution.md with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kineticsim_env import policies
from kineticsim_env.config import MarketConfig
from kineticsim_env.counterfactual import block_impact
from kineticsim_env.envs.vector import MarketVectorEnv
from kineticsim_env.evaluation import HELD_OUT_SEED, evaluate, evaluation_env
from kineticsim_env.runtime.seeds import run_seed
from kineticsim_env.statistics import Mean, mean_and_error
from kineticsim_env.statistics.measuring import measure

EVENTS = 3840  # from the arrival of a block to its deadline
SIZES = (40, 160, 640)  # units
LARGEST = 64  # units per order, and per interval at the deadline
RISKS = (1e-5, 1e-4, 1e-3, 1e-2)  # lambda of Almgren and Chriss, per tick and unit
SEED = run_seed(29)
RULES: dict[str, dict[str, Any]] = {  # the preset "news" under other rules
    "continuous trading": {},
    "auctions of 24": {"mechanism": "call", "interval": 24},
    "auctions of 48": {"mechanism": "call"},
    "auctions of 192": {"mechanism": "call", "interval": 192},
}
PROBES = (1, 8)  # units per decision, whose costs give the temporary impact
PROBED = 16  # decisions of a probe


class Setting(NamedTuple):
    """What a schedule is made from, measured in the market without the block."""

    sigma: float  # deviation of the mid's change per decision, ticks
    eta: float  # ticks that a unit costs more for each unit ordered in a decision


class Outcome(NamedTuple):
    """A policy under one rule and one size, in ticks per unit."""

    cost: Mean  # implementation shortfall, fees and all
    risk: Mean  # its standard deviation over episodes
    each: np.ndarray  # float64 [M]: the shortfall in each market, the mean of a purchase and a sale
    effect: np.ndarray  # float64 [M]: each market's influence on the risk, likewise


def market(rule: str) -> MarketConfig:
    """Return the market of a rule."""
    return MarketConfig.preset("news", **RULES[rule])


def environment(
    rule: str, side: str, markets: int, engine: str = "auto", sizes: Sequence[int] = SIZES, **settings: Any
) -> MarketVectorEnv:
    """Return the environment of a rule: all sizes side by side, `markets` episodes of each."""
    config = market(rule)
    horizon = EVENTS // decision(rule)
    return evaluation_env(
        len(sizes) * markets,
        "Execution",
        config=config,
        engine=engine,
        side=side,
        horizon=horizon,
        block_qty=np.repeat(sizes, markets),
        max_qty=LARGEST,
        forced_qty=LARGEST,
        auctions_per_step=decision(rule) // int(config.interval or 1),
        **settings,
    )


def decision(rule: str) -> int:
    """Return the events between two decisions under a rule: 48, or an auction where it has more."""
    return max(48, int(market(rule).interval or 1))


def calibrate(rule: str, markets: int, engine: str = "auto") -> Setting:
    """Measure what Almgren and Chriss's schedule is made from."""
    config = market(rule)
    intervals = decision(rule) // int(config.interval or 1)
    sigma = measure(
        config,
        40 * intervals,
        {"sigma": f"volatility(price='mid', span={intervals})"},
        markets=markets,
        warm_up=100,
        seed=SEED,
        engine=engine,
    )["sigma"].value[0]
    costs = [
        block_impact(
            config.replace(interval=decision(rule)),  # a piece per decision
            block=rate * PROBED,
            per_auction=rate,
            after=1,
            num_markets=markets,
            seed=SEED,
            engine=engine,
            progress=False,
        ).impact_cost.mean
        for rate in PROBES
    ]
    return Setting(float(sigma), max((costs[1] - costs[0]) / (PROBES[1] - PROBES[0]), 1e-3))


def executors(setting: Setting) -> dict[str, Callable[[Any], policies.Policy]]:
    """Return the scheduled executors by name; each is called with the task."""
    schedules = {
        f"Almgren-Chriss {risk:g}": lambda task, risk=risk: policies.AlmgrenChriss(
            task, risk=risk, sigma=setting.sigma, eta=setting.eta
        )
        for risk in RISKS
    }
    at_the_mid = {
        f"Almgren-Chriss {risk:g} at the mid": lambda task, risk=risk: policies.AlmgrenChriss(
            task, ticks=0.0, urgent=4, risk=risk, sigma=setting.sigma, eta=setting.eta
        )
        for risk in RISKS[1:3]
    }
    return {
        "at once": policies.ImmediateExecution,
        **schedules,
        **at_the_mid,
        "TWAP": policies.TimeWeighted,
        "TWAP at the mid": lambda task: policies.TimeWeighted(task, ticks=0.0, urgent=4),
        "TWAP 2 ticks behind": lambda task: policies.TimeWeighted(task, ticks=-2.0, urgent=4),
        "VWAP": policies.VolumeWeighted,
        "at the deadline": policies.DoNothing,
    }


def play(rule: str, markets: int, engine: str = "auto", setting: Setting | None = None) -> dict[str, list[Outcome]]:
    """Play every executor under a rule; returns outcomes by name, one for each size.

    Args:
        rule: Of `RULES`.
        markets: Of each size; a block is bought and sold in each.
        engine: As in `Simulator`.
        setting: Of the schedules; measured here if None.
    """
    setting = calibrate(rule, markets, engine) if setting is None else setting
    seeds = np.tile(HELD_OUT_SEED + np.arange(markets), len(SIZES))
    shortfalls: dict[str, list[np.ndarray]] = {name: [] for name in executors(setting)}
    for side in ("buy", "sell"):
        envs = environment(rule, side, markets, engine)
        for name, make in executors(setting).items():
            shortfalls[name].append(-evaluate(make(envs.core.task), envs, seeds).pnl.reshape(len(SIZES), markets))
        envs.close()
    return {name: [outcome(*pair) for pair in zip(*sides, strict=True)] for name, sides in shortfalls.items()}


def outcome(bought: np.ndarray, sold: np.ndarray) -> Outcome:
    """Return what blocks cost and risk, from shortfalls in ticks per unit, float64 `[M]`, of both sides.

    The errors are of the means over markets of a purchase and a sale together; the risk's is that of the deviation's
    influence function.
    """
    both = np.stack([bought, sold])
    pair, deviation = both.mean(0), float(both.std())
    effect = (((both - both.mean()) ** 2 - deviation**2) / (2 * deviation or 1.0)).mean(0)
    error = float(effect.std(ddof=1) / len(effect) ** 0.5)
    return Outcome(mean_and_error(pair), Mean(deviation, error, len(pair)), pair, effect)


def goal_less(one: Outcome, other: Outcome, weight: float) -> Mean:
    """Return how much less cost + weight * risk the first has, market by market; the markets are the same."""
    apart = (one.each - other.each) + weight * (one.effect - other.effect)
    less = one.cost.mean - other.cost.mean + weight * (one.risk.mean - other.risk.mean)
    return Mean(less, float(apart.std(ddof=1) / len(apart) ** 0.5), len(apart))
