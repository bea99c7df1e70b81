"""How to execute a block: cost against risk, and call auctions against continuous trading at the same pace.

Cost is the mean implementation shortfall over episodes, risk its standard deviation, both in ticks per unit of the
block, so a policy is a point and a family of policies a frontier, as in Almgren and Chriss (2000), "Optimal execution
of portfolio transactions". Every rule gives the block the same number of events, warm starts of the same number of
events and the same largest order per event, and every block is bought and sold in the same markets: what the price does
anyway then leaves the mean cost. Rules are compared by `paced` alone, where a block is spread evenly over the same
events. `__main__.py` fills README.md with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from kineticsim_env import policies
from kineticsim_env.config import MarketConfig
from kineticsim_env.envs.vector import MarketVectorEnv
from kineticsim_env.evaluation import HELD_OUT_SEED, evaluate, evaluation_env
from kineticsim_env.policies.base import decisions_left, order_action, remaining_of
from kineticsim_env.runtime.seeds import run_seed
from kineticsim_env.statistics import Mean, mean_and_error
from kineticsim_env.statistics.measuring import measure

EVENTS = 3840  # from the arrival of a block to its deadline
WARMUP = 4800  # events that a warm start has behind it
SIZES = (40, 160, 640)  # units
LARGEST, PER = 64, 48  # units per order, and at the deadline per interval, for so many events between two of these
TIMES = (960, 1920, 3840)  # events over which `paced` spreads a block
FINE, COARSE = 24, 192  # events between its pieces: the former where the rule has auctions as often
TAKE, AT_MID, WAIT = 10, 0, -2  # ticks through the mid that its pieces are priced; negative ones wait behind it
LATE = 192  # events that a piece waits at most, where it is priced behind the mid
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
    """What a schedule is made from, and what a block can be held to, measured in the market without a block."""

    sigma: float  # deviation of the mid's change per decision, ticks
    eta: float  # ticks that a unit costs more for each unit ordered in a decision
    half_spread: float  # mean over time, ticks


class Outcome(NamedTuple):
    """A policy under one rule and one size, in ticks per unit."""

    cost: Mean  # implementation shortfall, fees and all
    risk: Mean  # its standard deviation over episodes
    time: Mean  # events from the block's arrival to the decision that traded a unit, mean over units
    each: np.ndarray  # float64 [M]: the shortfall in each market, the mean of a purchase and a sale
    effect: np.ndarray  # float64 [M]: each market's influence on the risk, likewise


class Played(NamedTuple):
    """Episodes on one side, float64 `[M]` each."""

    shortfall: np.ndarray  # ticks per unit
    time: np.ndarray  # as in `Outcome`


def market(rule: str) -> MarketConfig:
    """Return the market of a rule."""
    return MarketConfig.preset("news", **RULES[rule])


def environment(
    rule: str,
    side: str,
    markets: int,
    engine: str = "auto",
    sizes: Sequence[int] = SIZES,
    *,
    events: int = EVENTS,
    every: int | None = None,
    largest: int | None = None,
    **settings: Any,
) -> MarketVectorEnv:
    """Return the environment of a rule: all sizes side by side, `markets` episodes of each.

    Args:
        rule: Of `RULES`.
        side: Of the block.
        markets: Episodes of each size.
        engine: As in `Simulator`.
        sizes: Units.
        events: Until the deadline.
        every: Events between decisions; `decision` of the rule if None.
        largest: Units per order, and per interval at the deadline; `LARGEST` for every `PER` events if None.
        **settings: Of the environment.
    """
    config, every = market(rule), every or decision(rule)
    if config.is_continuous:
        config = config.replace(interval=every)  # which only decisions, and forced orders, know there
    interval = int(config.interval or 1)
    return evaluation_env(
        len(sizes) * markets,
        "Execution",
        config=config,
        engine=engine,
        side=side,
        horizon=events // every,
        block_qty=np.repeat(sizes, markets),
        max_qty=largest or LARGEST * every // PER,
        forced_qty=largest or LARGEST * interval // PER,
        auctions_per_step=every // interval,
        warmup=WARMUP // interval,
        **settings,
    )


def decision(rule: str) -> int:
    """Return the events between two decisions under a rule: `PER`, or an auction where it has more."""
    return max(PER, int(market(rule).interval or 1))


def piece(rule: str, every: int) -> int:
    """Return the events between two pieces of a block: so many, or an auction where it has more."""
    config = market(rule)
    return every if config.is_continuous else max(every, int(config.interval or 1))


def calibrate(rule: str, markets: int, engine: str = "auto") -> Setting:
    """Measure what Almgren and Chriss's schedule is made from, on seeds of its own."""
    config, every = market(rule), decision(rule)
    intervals = every // int(config.interval or 1)
    found = measure(
        config,
        40 * intervals,
        {"sigma": f"volatility(price='mid', span={intervals})", "spread": "spread"},
        markets=markets,
        warm_up=WARMUP // int(config.interval or 1),
        seed=SEED,
        engine=engine,
    )
    settings = {"sizes": [rate * PROBED for rate in PROBES], "events": PROBED * every, "warm_seed": SEED}
    costs = [each.cost.mean for each in _evenly(rule, TAKE, markets, engine, SEED, **settings)]
    return Setting(
        sigma=float(found["sigma"].value[0]),
        eta=max((costs[1] - costs[0]) / (PROBES[1] - PROBES[0]), 1e-3),
        half_spread=float(found["spread"].value[0]) / 2,
    )


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

    A block is bought and sold in each of the `markets` of a size; schedules have a `setting`, measured here if None.
    """
    setting = calibrate(rule, markets, engine) if setting is None else setting
    seeds = np.tile(HELD_OUT_SEED + np.arange(markets), len(SIZES))
    played: dict[str, list[Played]] = {name: [] for name in executors(setting)}
    for side in ("buy", "sell"):
        envs = environment(rule, side, markets, engine)
        for name, make in executors(setting).items():
            played[name].append(episodes(make(envs.core.task), envs, seeds))
        envs.close()
    return {name: outcomes(*sides, len(SIZES)) for name, sides in played.items()}


def paced(rule: str, events: int, every: int, ticks: float, markets: int, engine: str = "auto") -> list[Outcome]:
    """Play blocks that are spread evenly over some events; returns outcomes, one for each size.

    What is left at the end is forced through at once. Pieces come `every` so many events, or by auction where the rule
    has more, and are priced `ticks` through the mid; those `LATE` events late and those of the end are taken.
    """
    settings = {"sizes": SIZES, "events": events, "every": piece(rule, every), "largest": max(SIZES)}
    return _evenly(rule, ticks, markets, engine, HELD_OUT_SEED, **settings)


@dataclasses.dataclass(frozen=True)
class Paced(policies.TimeWeighted):
    """TWAP that takes what is late, so that its pace is the same wherever it is priced.

    Attributes:
        late: The most of a block that may be due before it takes, as a share.
    """

    late: float = 1.0

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        left, remaining = decisions_left(self.task, observation), remaining_of(self.task, observation)
        due = remaining - torch.round(self._share_left(left - 1.0) * self.task.block_qty)
        hurry = (left <= self.urgent) | (due > self.late * self.task.block_qty)
        return order_action(self.task, torch.where(hurry, float(self.task.max_offset), self.ticks), due.clamp(min=0.0))


def _evenly(rule: str, ticks: float, markets: int, engine: str, first: int, **settings: Any) -> list[Outcome]:
    """Play `Paced` on seeds from the first on; returns outcomes, one for each size."""
    count = len(settings["sizes"])
    sides = []
    for side in ("buy", "sell"):
        envs = environment(rule, side, markets, engine, **settings)
        late = (events_of(envs) + LATE) / settings["events"]
        policy = Paced(envs.core.task, ticks, urgent=max(1, LATE // events_of(envs)), late=late)
        sides.append(episodes(policy, envs, np.tile(first + np.arange(markets), count)))
        envs.close()
    return outcomes(*sides, count)


def episodes(policy: policies.Policy, envs: MarketVectorEnv, seeds: np.ndarray) -> Played:
    """Play an episode of each seed, int64 `[M]`."""
    task, found = envs.core.task, evaluate(policy, envs, seeds)
    size = np.broadcast_to(task.each.get("block_qty", task.block_qty), found.traded.shape)
    lasted = np.minimum(size / np.maximum(found.traded, 1e-9), task.horizon)  # decisions; a block is traded once
    return Played(-found.pnl, events_of(envs) * (lasted * (1 - found.inventory / size) - 1))


def events_of(envs: MarketVectorEnv) -> int:
    """Return the events between two decisions."""
    return envs.core.auctions_per_step * int(envs.core.simulator.config.interval or 1)


def outcomes(bought: Played, sold: Played, count: int) -> list[Outcome]:
    """Return outcomes of equally many markets each, which follow one another."""
    parts = zip(*(np.split(values, count) for side in (bought, sold) for values in side), strict=True)
    return [outcome(cost, other, (time + later) / 2) for cost, time, other, later in parts]


def outcome(bought: np.ndarray, sold: np.ndarray, time: np.ndarray) -> Outcome:
    """Return what blocks cost and risk, from shortfalls in ticks per unit, float64 `[M]`, of both sides.

    The errors are of the means over markets of a purchase and a sale together; the risk's is that of the deviation's
    influence function. `time` is float64 `[M]`, the mean of both sides.
    """
    both = np.stack([bought, sold])
    pair, deviation = both.mean(0), float(both.std())
    effect = (((both - both.mean()) ** 2 - deviation**2) / (2 * deviation or 1.0)).mean(0)
    error = float(effect.std(ddof=1) / len(effect) ** 0.5)
    return Outcome(mean_and_error(pair), Mean(deviation, error, len(pair)), mean_and_error(time), pair, effect)


def goal_less(one: Outcome, other: Outcome, weight: float) -> Mean:
    """Return how much less cost + weight * risk the first has, market by market; the markets are the same."""
    apart = (one.each - other.each) + weight * (one.effect - other.effect)
    less = one.cost.mean - other.cost.mean + weight * (one.risk.mean - other.risk.mean)
    return Mean(less, float(apart.std(ddof=1) / len(apart) ** 0.5), len(apart))
