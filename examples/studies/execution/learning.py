"""An executor that is learned for a weight of risk, beside the schedules of `study.py`.

It follows a schedule of Almgren and Chriss with an urgency of its own, and departs from it by what it sees, as the
strategies of Almgren and Lorenz (2007), "Adaptive arrival price", do by gains and losses so far. CMA-ES
(`examples/studies/evolution.py`) finds nine numbers for one rule and one size, on training seeds; its goal is cost plus
a weight times risk. Beside it learns one that sees nothing, of the first two numbers: what looking is worth is the
difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from examples.studies import evolution
from examples.studies.execution.study import Outcome, environment, episodes, outcomes
from kineticsim_env.evaluation import HELD_OUT_SEED
from kineticsim_env.policies.base import decisions_left, order_action, remaining_of
from kineticsim_env.runtime.seeds import run_seed

START = (np.log(0.15), 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)  # see `Adaptive`; a schedule and nothing else
BLIND = 2  # how many of them are left to an executor that sees nothing: urgency and aggression
SEED = run_seed(31)  # of training
DEVIATION = 0.5  # of the first candidates, around it
_SIDE, _BID, _ASK, _SPREAD, _MOVE, _SINCE = 33, slice(0, 3), slice(10, 13), 20, 22, 36  # features, docs/environment.md


class Goal(NamedTuple):
    """What an executor learns for."""

    weight: float  # ticks of cost per unit that a tick of deviation is worth
    looks: bool  # whether it has all numbers, or sees nothing


class Adaptive:
    """P executors of nine numbers each, called with the observations of N markets for each, one after another.

    With the features v = (how far the mid is from the arrival price, its last move, how much more rests on the own side
    near the mid), each positive where it speaks for haste, and the spread s, all in [-1, 1]:

        left = sinh(exp(p0) (T - t)) / sinh(exp(p0) T) of the block should be left after a decision,
        aggression = 10 (p1 + p2 v1 + p3 v2 + p4 v3 + p5 s) ticks through the mid,
        size = (what exceeds left) * exp(p6 v1 + p7 v2 + p8 v3).

    The last decision orders what is left, as far through the mid as it may.
    """

    def __init__(self, task: Any, numbers: np.ndarray) -> None:
        """Take the task and the numbers, float64 `[P, 9]`."""
        self.task, self.numbers = task, torch.from_numpy(np.atleast_2d(numbers)).float()

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """Return actions float32 `[P * N, 2]`."""
        task, each = self.task.seen_in(observation), len(observation) // len(self.numbers)
        p = self.numbers.to(observation.device).repeat_interleave(each, 0).T
        side = observation[:, _SIDE]
        pressure = (observation[:, _BID] - observation[:, _ASK]).mean(1)
        views = torch.stack([side * observation[:, _SINCE], side * observation[:, _MOVE], side * pressure])
        left, remaining = decisions_left(task, observation), remaining_of(task, observation)
        urgency = p[0].clamp(-10.0, 3.0).exp()
        decay = torch.expm1(-2.0 * urgency * (left - 1)) / torch.expm1(-2.0 * urgency * task.horizon)
        share = torch.exp(urgency * (left - 1 - task.horizon)) * decay  # the ratio of sinh, neither of which overflows
        due = (remaining - share * task.block_qty).clamp(min=0.0) * (p[6:] * views).sum(0).clamp(-3.0, 3.0).exp()
        ticks = 10.0 * (p[1] + (p[2:5] * views).sum(0) + p[5] * observation[:, _SPREAD])
        last = left <= 1
        size = torch.where(last, remaining, torch.minimum(torch.round(due), remaining))
        return order_action(task, torch.where(last, float(task.max_offset), ticks), size)


def learn(
    rule: str,
    size: int,
    goals: Sequence[Goal],
    markets: int = 96,
    generations: int = 40,
    population: int = 16,
    engine: str = "auto",
    progress: bool = True,
) -> np.ndarray:
    """Search for the executors with the least cost plus weight times risk; returns numbers, float64 `[goals, 9]`.

    All goals search side by side, in the same markets: so many for each candidate, new ones in each generation; a block
    of the size is bought and sold in each. A goal has so many candidates, its `population`, per generation.

    Raises:
        ModuleNotFoundError: Without `cma`.
    """
    searches = [evolution.search(START[: None if goal.looks else BLIND], DEVIATION, population) for goal in goals]
    many = len(goals) * population
    envs = [
        environment(rule, side, markets, engine, (size,) * many, warm_seed=2**61)  # training's own warm starts
        for side in ("buy", "sell")
    ]
    for generation in tqdm(range(generations), unit="generation", disable=not progress, leave=False):
        asked = [each.ask() for each in searches]
        numbers = np.array([_all_of(values) for candidates in asked for values in candidates])
        seeds = np.tile(SEED + generation * markets + np.arange(markets), many)
        sides = [episodes(Adaptive(one.core.task, numbers), one, seeds) for one in envs]
        found = np.array_split(
            np.array([(each.cost.mean, each.risk.mean) for each in outcomes(*sides, many)]), len(goals)
        )
        for each, goal, candidates, costs in zip(searches, goals, asked, found, strict=True):
            each.tell(candidates, list(costs @ [1.0, goal.weight]))
    for one in envs:
        one.close()
    return np.array([_all_of(each.mean) for each in searches])


def play(rule: str, size: int, numbers: np.ndarray, markets: int, engine: str = "auto") -> list[Outcome]:
    """Play executors, of numbers float64 `[P, 9]`, on held-out seeds, those of `execution.play`."""
    sides, many = [], len(numbers)
    for side in ("buy", "sell"):
        envs = environment(rule, side, markets, engine, (size,) * many)
        seeds = np.tile(HELD_OUT_SEED + np.arange(markets), many)
        sides.append(episodes(Adaptive(envs.core.task, numbers), envs, seeds))
        envs.close()
    return outcomes(*sides, many)


def _all_of(numbers: Sequence[float]) -> np.ndarray:
    """Return nine numbers: those that an executor does not have are as it began, and see nothing."""
    return np.array([*numbers, *START[len(numbers) :]])
