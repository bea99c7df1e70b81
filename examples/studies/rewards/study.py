"""Does a reward mean the score? Grids of scripted policies, ranked by what each reward pays them and by what they earn.

One play of a grid gives what every built-in reward would have paid, as rewards do not change what a scripted policy
does. All policies play the same markets, in one environment. `__main__.py` fills README.md with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.evaluation import HELD_OUT_SEED, evaluate, evaluation_env, liquidate
from kineticsim_env.policies.base import Policy, inventory_in, maker_action, mid_changes, order_action, trade_action
from kineticsim_env.statistics import Interval, Mean, mean_and_error
from kineticsim_env.tasks.base import CHOICES

PENALTIES = (0.0005, 0.002, 0.01)  # ticks per squared unit and decision
DAMPENING, IDLE = 0.5, 0.1  # the tasks' defaults
RISK_AVERSION = 0.05
RESAMPLES = 1000
DECAY = 0.7  # of the traders' signal, as in `MomentumTrader`

Grid = Mapping[str, Sequence[float]]  # values of each parameter; a policy is one of their combinations
GRIDS: dict[str, Grid] = {
    "MarketMaking": {"half_spread": (1, 2, 3, 4, 5, 6, 8, 10), "qty": (2, 4, 8), "skew": (0.0, 0.03, 0.06, 0.12)},
    "Trading": {"direction": (1, -1), "threshold": (0.5, 1, 2), "ticks": (-4, -2, 0, 2), "position": (8, 20, 40)},
    "Execution": {"ticks": (-6, -4, -2, -1, 0, 1, 2, 4), "qty": (1, 2, 4, 8)},
}


class Played(NamedTuple):
    """What P policies earned and were paid in M markets, float64 `[P, M]` each; money in ticks x units.

    Of executors all is per unit of the block, in ticks.
    """

    score: np.ndarray  # liquidated PnL, of executors minus the implementation shortfall
    returns: dict[tuple[str, str], np.ndarray]  # sums of rewards of an episode, by reward and mark ("" for executors)
    risk: dict[tuple[str, str], np.ndarray]  # what the reward takes off for risk, where it does, summed likewise


def policies_of(task: str) -> list[dict[str, float]]:
    """Return the parameters of every policy of a task's grid."""
    grid = GRIDS[task]
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def play(
    config: MarketConfig, task: str, markets: int, engine: str = "auto", seed: int = HELD_OUT_SEED, **settings: Any
) -> Played:
    """Let every policy of a task's grid play one episode of the same markets; market m is seeded `seed + m`."""
    count = len(policies_of(task))
    seeds = np.tile(seed + np.arange(markets, dtype=np.int64), count)
    parts = (_executors if task == "Execution" else _for_profit)(config, task, seeds, engine, settings)
    score, returns, risk = parts

    def by_policy(values: Any) -> np.ndarray:
        return torch.as_tensor(values).cpu().numpy().reshape(count, markets)

    return Played(
        by_policy(score),
        {name: by_policy(values) for name, values in returns.items()},
        {name: by_policy(values) for name, values in risk.items()},
    )


@torch.no_grad()
def _for_profit(
    config: MarketConfig, task: str, seeds: np.ndarray, engine: str, settings: Mapping[str, Any]
) -> tuple[Any, dict, dict]:
    """Play makers or traders; the formulas of rewards are those of docs/environment.md, and a test compares them."""
    settings = {**settings, "reward": "pnl", "mark": "liquidation"}  # `prev_value` is then what no other tensor says
    envs = evaluation_env(len(seeds), task, engine=engine, config=config, **settings)
    tensors, simulator = envs.core.tensors, envs.simulator
    policy = _policy(task, envs)

    def now() -> tuple[torch.Tensor, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Return inventory, the prices that mark it, and marked values."""
        held = simulator.inventory[:, 0].double()
        prices = {"fundamental": simulator.fundamental_price.double(), "mid": tensors["mid_history"][:, 0].double() / 2}
        values = {mark: simulator.money[:, 0] + held * price for mark, price in prices.items()}
        values["liquidation"] = tensors["prev_value"][:, 0].double() / 2000
        return held, prices | {"liquidation": prices["mid"]}, values

    observation, _ = envs.reset(seed=seeds)
    held, prices, values = now()
    squares, moves = torch.zeros_like(held), torch.zeros_like(held)
    gains = {mark: torch.zeros_like(held) for mark in CHOICES["mark"]}
    per_unit = {mark: torch.zeros_like(held) for mark in CHOICES["mark"]}
    for _ in range(envs.core.task.horizon):
        observation, *_ = envs.step(policy(observation))
        held_before, prices_before, values_before = held, prices, values
        held, prices, values = now()
        filled = envs.fills.sum(1).double()
        units = torch.maximum(filled, held_before.abs()).clamp(min=1)
        squares += held.square()
        moves += held_before * (prices["fundamental"] - prices_before["fundamental"])
        for mark in CHOICES["mark"]:
            gains[mark] += (DAMPENING * held_before * (prices[mark] - prices_before[mark])).clamp(min=0)
            per_unit[mark] += (values[mark] - values_before[mark]) / units - IDLE * (filled == 0)
    liquidate(simulator)
    returns, risk = {("edge", "fundamental"): values["fundamental"] - moves}, {}
    for mark in CHOICES["mark"]:
        takes_off = {f"inventory, {penalty:g}": penalty * squares for penalty in PENALTIES}
        takes_off |= {"asymmetric": gains[mark]}
        risk |= {(reward, mark): taken for reward, taken in takes_off.items()}
        returns |= {("pnl", mark): values[mark], ("per_unit", mark): per_unit[mark]}
        returns |= {(reward, mark): values[mark] - taken for reward, taken in takes_off.items()}
    return simulator.money[:, 0], returns, risk


def _executors(
    config: MarketConfig, task: str, seeds: Any, engine: str, settings: Mapping[str, Any]
) -> tuple[Any, dict, dict]:
    """Play executors, once for each of their rewards."""
    returns, score = {}, None
    for reward in CHOICES["execution_reward"]:
        named = {**settings, "reward": reward, "risk_aversion": RISK_AVERSION}
        envs = evaluation_env(len(seeds), task, engine=engine, config=config, **named)
        played = evaluate(_policy(task, envs), envs, seeds)
        returns[reward, ""] = played.episode_return * envs.core.task.reward_scale
        score = played.pnl
    risk = {("risk_averse", ""): returns["shortfall", ""] - returns["risk_averse", ""]}
    return score, returns, risk


def _policy(task: str, envs: Any) -> Policy:
    """Return the policy of an environment whose rows are the markets of one policy of the grid after the other."""
    rules, settings, grid = {"MarketMaking": _make, "Trading": _trade}, envs.core.task, policies_of(task)
    each = envs.num_envs // len(grid)
    rows = {
        name: torch.tensor([one[name] for one in grid], dtype=torch.float32, device=envs.device).repeat_interleave(each)
        for name in GRIDS[task]
    }
    rule = rules.get(task, _execute)
    return lambda observation: rule(settings, observation, **rows)


def _make(
    task: Any, observation: torch.Tensor, half_spread: torch.Tensor, qty: torch.Tensor, skew: torch.Tensor
) -> torch.Tensor:
    """Quote `qty` units `half_spread` ticks from the mid, both quotes moved by `skew` ticks per unit held."""
    offset = skew * inventory_in(task, observation)
    return maker_action(task, half_spread + offset, half_spread - offset, qty, qty)


def _trade(
    task: Any,
    observation: torch.Tensor,
    direction: torch.Tensor,
    threshold: torch.Tensor,
    ticks: torch.Tensor,
    position: torch.Tensor,
) -> torch.Tensor:
    """Go with the mid's recent moves or against them, as `MomentumTrader` and `MeanReversionTrader` do."""
    weights = torch.tensor([DECAY**i for i in range(4)], device=observation.device)
    push = direction * (mid_changes(observation).cumsum(1) * weights).sum(1) / weights.sum()
    held = torch.round(inventory_in(task, observation))
    keep = torch.where(push * held < 0, 0.0, held)
    return trade_action(task, torch.where(push.abs() > threshold, push.sign() * position, keep) - held, ticks)


def _execute(task: Any, observation: torch.Tensor, ticks: torch.Tensor, qty: torch.Tensor) -> torch.Tensor:
    """Order `qty` units in every decision, `ticks` through the mid, until the block is done."""
    return order_action(task, ticks, qty)


# Rankings -------------------------------------------------------------------------------------------------------------


def ranks(values: np.ndarray) -> np.ndarray:
    """Return the ranks of values `[P, R]` in their columns; equal ones share the mean of their ranks."""
    order = np.argsort(values, axis=0, kind="stable")
    found = np.empty(values.shape)
    places = np.broadcast_to(np.arange(len(values), dtype=np.float64)[:, None], values.shape)
    np.put_along_axis(found, order, places, axis=0)
    for column in np.flatnonzero((np.diff(np.take_along_axis(values, order, axis=0), axis=0) == 0).any(axis=0)):
        _, kind, counts = np.unique(values[:, column], return_inverse=True, return_counts=True)
        found[:, column] = (np.bincount(kind, found[:, column]) / counts)[kind]
    return found


def spearman(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return Spearman's rank correlation of the columns of two arrays `[P, R]`; `[R]`."""
    one, two = (ranks(values) - (len(values) - 1) / 2 for values in (first, second))
    return (one * two).sum(0) / np.sqrt((one**2).sum(0) * (two**2).sum(0))


def agreement(first: np.ndarray, second: np.ndarray, seed: int = 0) -> Interval:
    """Return the rank correlation of the means over markets of two arrays `[P, M]`.

    Its 95% interval is that of a bootstrap over markets, each drawn with all policies and both arrays.
    """
    markets = first.shape[1]
    drawn = np.random.default_rng(seed).multinomial(markets, np.full(markets, 1 / markets), RESAMPLES).T / markets
    low, high = np.quantile(spearman(first @ drawn, second @ drawn), (0.025, 0.975))
    value = spearman(first.mean(1, keepdims=True), second.mean(1, keepdims=True))
    return Interval(float(value[0]), float(low), float(high), markets)


class Verdict(NamedTuple):
    """What one reward makes of a grid; means are over held-out markets."""

    agrees: Interval  # rank correlation of mean returns with the measure's means
    best: int  # the policy that it pays best on training seeds
    earns: Mean  # what that one earns by the measure
    gap: Mean  # this less what the measure's best on training seeds earns, in the same markets


def judge(training: Played, held_out: Played, name: tuple[str, str], adjusted: bool = False) -> Verdict:
    """Hold a reward to the score, or with `adjusted` to the score less what the reward itself takes off for risk."""
    measure, held = (one.score - one.risk[name] if adjusted else one.score for one in (training, held_out))
    best, wanted = (int(values.mean(1).argmax()) for values in (training.returns[name], measure))
    gap = mean_and_error(held[best] - held[wanted])
    return Verdict(agreement(held, held_out.returns[name]), best, mean_and_error(held[best]), gap)
