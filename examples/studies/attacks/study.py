"""Attacks on one market design: what scripted attackers earn in it, alone, or as several learners of one owner.

What is counted is liquidated PnL: the money that is left when all they hold has been unwound through the market. Who
does nothing has 0. `__main__.py` fills README.md with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from kineticsim_env import policies
from kineticsim_env.config import MarketConfig
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.evaluation import HELD_OUT_SEED, HELD_OUT_WARM_SEED, evaluate, evaluation_env, liquidate
from kineticsim_env.tasks import ManyLearnersTask

Plan = Callable[[int], Sequence[Sequence[float]]]  # decision -> the actions of all learners, four numbers each
MAX_QTY, MAX_OFFSET = 8, 10  # the tasks' defaults, which plans are written for


class Attack(NamedTuple):
    """One learner that attacks."""

    task: str  # of `evaluation_env`
    make: Callable[[Any], Any]  # task -> policy


class Owner(NamedTuple):
    """Several learners of one owner in one market, which follow a plan."""

    roles: tuple[str, ...]
    plan: Plan


class Outcome(NamedTuple):
    """What an attack left, one value per market; of an owner all learners together."""

    pnl: np.ndarray  # liquidated, ticks x units
    at_mark: np.ndarray  # before that: money and inventory at the fundamental price
    traded: np.ndarray  # units bought and sold per decision


def attack(config: MarketConfig, how: Attack, markets: int, engine: str = "auto", **task: Any) -> Outcome:
    """Play one episode of an attacker in every market, and unwind it."""
    envs = evaluation_env(markets, how.task, engine=engine, config=config, reward="pnl", **task)
    played = evaluate(how.make(envs.core.task), envs)
    return Outcome(played.pnl, played.episode_return * envs.core.task.reward_scale, played.traded)


@torch.no_grad()
def attack_together(config: MarketConfig, how: Owner, markets: int, engine: str = "auto", **task: Any) -> Outcome:
    """Play one episode of an owner's learners in every market, and unwind them."""
    settings = EnvSettings(config=config, engine=engine, autoreset_mode="disabled", stagger=False)
    learners = ManyLearnersTask(reward="pnl", warm_seed=HELD_OUT_WARM_SEED, **task)
    core = EnvCore(markets, learners, how.roles, (None,) * len(how.roles), settings)
    core.reset(HELD_OUT_SEED)
    simulator, traded = core.simulator, torch.zeros(markets, dtype=torch.float64, device=core.simulator.device)
    for decision in range(core.task.horizon):
        rows = torch.tensor(how.plan(decision), dtype=torch.float32, device=simulator.device)
        core.step(actions=rows.expand(markets, -1, -1).contiguous())
        traded += core.fills.sum((1, 2))
    value = simulator.money.sum(1) + (simulator.inventory * simulator.fundamental_price[:, None]).sum(1).double()
    liquidate(simulator)
    parts = (simulator.money.sum(1), value, traded / core.task.horizon)
    return Outcome(*(part.cpu().numpy() for part in parts))


# Plans ----------------------------------------------------------------------------------------------------------------


def quotes(offset: float, bid: float = MAX_QTY, ask: float = MAX_QTY) -> tuple[float, ...]:
    """Return a maker's action: both quotes `offset` ticks from the mid, of these sizes."""
    ticks = 2 * offset / MAX_OFFSET - 1
    return (ticks, ticks, 2 * bid / MAX_QTY - 1, 2 * ask / MAX_QTY - 1)


def order(units: float, ticks: float = 0.0) -> tuple[float, ...]:
    """Return a trader's action: signed units, `ticks` through the mid."""
    return (units / MAX_QTY, ticks / MAX_OFFSET, 0.0, 0.0)


def wash(period: int = 1) -> Owner:
    """Two traders that trade with each other at the mid; sides change every `period` decisions."""
    pair = [order(MAX_QTY), order(-MAX_QTY)]
    return Owner(("trader", "trader"), lambda t: pair if t // period % 2 == 0 else pair[::-1])


def pump_and_sell(period: int = 20) -> Owner:
    """One buys at any price in reach, then sells, half a period each; the other is on the side that this should pay."""

    def plan(t: int) -> list[tuple[float, ...]]:
        up = t % period < period / 2
        return [order(MAX_QTY if up else -MAX_QTY, MAX_OFFSET), quotes(0, 0 if up else MAX_QTY, MAX_QTY if up else 0)]

    return Owner(("trader", "maker"), plan)


def wall_and_sell(offset: float = 1, period: int = 150) -> Owner:
    """One shows a wall of bids near the mid, the other sells a unit above it; sides change every `period` decisions."""

    def plan(t: int) -> list[tuple[float, ...]]:
        up = t // period % 2 == 0
        return [quotes(offset, MAX_QTY * up, MAX_QTY * (not up)), order(-1.0 if up else 1.0)]

    return Owner(("maker", "trader"), plan)


def helped_close(last: int = 10) -> Owner:
    """One buys patiently and holds; in the last decisions the other lifts the price for it."""

    def plan(t: int) -> list[tuple[float, ...]]:
        lift = t >= 300 - last
        return [order(1.0 if t < 20 else 0.0, -3.0), order(MAX_QTY if lift else 0.0, MAX_OFFSET)]

    return Owner(("trader", "trader"), plan)


ALONE = {
    **{policy.__name__: Attack("MarketMaking", policy) for policy in policies.attackers.ATTACKERS},
    **{policy.__name__: Attack("Trading", policy) for policy in policies.attackers.TRADER_ATTACKERS},
}
TOGETHER = {
    "wash trades": wash(),
    "wash trades, sides kept for long": wash(50),
    "pump with one, sell with the other": pump_and_sell(),
    "a wall of one, sales of the other": wall_and_sell(),
    "one lifts the close for the other": helped_close(),
}
