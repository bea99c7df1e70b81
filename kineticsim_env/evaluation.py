"""Evaluation of policies by liquidated PnL: inventory is unwound through the market before profit is counted.

The measure of an executor is the price improvement of its block on the arrival price, per unit.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from tqdm import tqdm

from kineticsim_env.config import MAX_PRICE
from kineticsim_env.envs.vector import ExecutionVectorEnv, MarketMakingVectorEnv, MarketVectorEnv, TradingVectorEnv
from kineticsim_env.errors import MarketError
from kineticsim_env.policies import Policy
from kineticsim_env.runtime.values import (
    check_array,
    check_callable,
    check_choice,
    check_count,
    check_dict,
    check_instance,
    check_progress,
    show,
)
from kineticsim_env.simulator import Simulator

HELD_OUT_SEED = 2**62  # run r is evaluated from HELD_OUT_SEED + run_seed(r), and trains from run_seed(r)
HELD_OUT_WARM_SEED = 2**61 + 2**60  # warm starts that no training run has seen
ENVIRONMENTS = {"MarketMaking": MarketMakingVectorEnv, "Execution": ExecutionVectorEnv, "Trading": TradingVectorEnv}
MEASURES = {  # what `Evaluation.pnl` is
    "MarketMaking": "liquidated PnL, ticks",
    "Execution": "made against arrival, ticks per unit",
    "Trading": "liquidated PnL, ticks",
}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Whole episodes of one policy in M markets."""

    # float64 [M]: cash after unwinding, less fees, in ticks; of an executor its price improvement, in ticks per unit of
    # its block
    pnl: np.ndarray
    episode_return: np.ndarray  # float64 [M]: sum of rewards
    traded: np.ndarray  # float64 [M]: units bought and sold per decision
    inventory: np.ndarray  # float64 [M]: mean absolute inventory at decisions

    def pnl_interval(self) -> tuple[float, float]:
        """Return the mean liquidated PnL and the half width of its 95% confidence interval."""
        return confidence_interval(self.pnl)


def confidence_interval(values: np.ndarray) -> tuple[float, float]:
    """Return the mean and the half width of its 95% interval, from the normal approximation; of one value nan."""
    values = check_array("values", values, "an array [M] of numbers")
    if values.ndim != 1 or not len(values):
        raise ValueError(f"values: got the shape {list(values.shape)}, allowed is [M] with M from 1")
    return float(values.mean()), 1.96 * _deviation(values) / len(values) ** 0.5


def _deviation(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def evaluation_env(num_envs: int, task: str = "MarketMaking", **kwargs: Any) -> MarketVectorEnv:
    """Make an environment for `evaluate`: torch output, whole episodes from the start, warm starts of its own.

    Args:
        num_envs: M, one episode each.
        task: `"MarketMaking"`, `"Execution"` or `"Trading"`.
        **kwargs: As in `MarketVectorEnv`; the learner's own, so that everyone trades in its market.
    """
    check_choice("task", task, ENVIRONMENTS)
    defaults: dict[str, Any] = {"warm_seed": HELD_OUT_WARM_SEED}
    fixed: dict[str, Any] = {"output": "torch", "autoreset_mode": "DISABLED", "stagger": False, "copy": False}
    return ENVIRONMENTS[task](num_envs=num_envs, **{**defaults, **kwargs, **fixed})


@torch.no_grad()
def evaluate(policy: Policy, envs: MarketVectorEnv, seed: int = HELD_OUT_SEED) -> Evaluation:
    """Play one episode in every market, unwind, and count.

    An episode ends at the horizon, or where it terminates; its inventory is unwound from there. An executor's block is
    not unwound.

    Args:
        policy: Maps observations `[M, F]` to actions.
        envs: From `evaluation_env`.
        seed: Of the episodes; market m gets `seed + m`.

    Raises:
        TypeError, ValueError: Naming the argument; the environment has to be one of `evaluation_env`.
    """
    check_callable("policy", policy, "a function of observations that returns actions")
    _check_envs(envs)
    simulator, task = envs.simulator, envs.core.task
    may_terminate = task.role == "executor" or task.max_loss is not None or envs.core.own is not None
    observation, _ = envs.reset(seed=seed)
    pnl = torch.zeros(envs.num_envs, dtype=torch.float64, device=envs.device)
    total, traded, held, lived = (torch.zeros_like(pnl) for _ in range(4))
    alive = torch.ones_like(pnl, dtype=torch.bool)
    for _ in range(task.horizon):
        held += simulator.inventory[:, 0].abs() * alive
        lived += alive
        observation, reward, terminated, truncated, _ = envs.step(policy(observation))
        total += reward * alive
        traded += envs.fills.sum(1) * alive
        if may_terminate and bool(terminated.any()):
            # Such an episode ends here: its account is taken, unwound in a copy of the market. The market itself must
            # start anew to take further steps; they no longer count.
            settled = price_improvement(envs) if task.role == "executor" else _liquidated_pnl(simulator.branch())
            pnl = torch.where(terminated & alive, settled, pnl)
            alive &= ~terminated
            envs.reset(options={"reset_mask": terminated})
            if not bool(alive.any()):
                break
    if bool(alive.any()):
        pnl = torch.where(alive, _liquidated_pnl(simulator), pnl)
    return Evaluation(*(value.cpu().numpy() for value in (pnl, total, traded / lived, held / lived)))


def price_improvement(envs: MarketVectorEnv) -> torch.Tensor:
    """Return executors' price improvement after fees and the penalty for leftovers, ticks per unit, float64 `[M]`."""
    simulator, task = envs.simulator, envs.core.task
    inventory = simulator.inventory[:, 0].double()
    money = simulator.money[:, 0] + inventory * envs.core.tensors["arrival2"] / 2
    return (money - task.leftover_penalty * (task.block_qty - inventory.abs())) / task.block_qty


def _check_envs(envs: MarketVectorEnv) -> None:
    """Refuse environments whose accounts at the horizon are reset already, or are not of whole episodes."""
    fits = isinstance(envs, MarketVectorEnv) and envs.autoreset_mode is AutoresetMode.DISABLED
    if not fits or envs.output != "torch" or envs.core.settings.stagger:
        raise ValueError(
            f"envs: got {show(envs)}, allowed is what evaluation_env returns (DISABLED, torch output, no stagger)"
        )


def _liquidated_pnl(simulator: Simulator) -> torch.Tensor:
    """Unwind, and return the learner's money in ticks, float64 `[M]`."""
    liquidate(simulator)
    return simulator.money[:, 0]


def grid_search(
    make: Callable[..., Policy],
    grid: Mapping[str, Sequence[Any]],
    envs: MarketVectorEnv,
    seed: int = 0,
    progress: bool | None = True,
) -> tuple[dict[str, Any], list[tuple[dict[str, Any], float, float]]]:
    """Find the parameters of a scripted policy with the best liquidated PnL on training seeds.

    Args:
        make: Called as `make(task, **parameters)`.
        grid: The values to try of each parameter.
        envs: From `evaluation_env`.
        seed: Training seeds begin here.
        progress: True or False shows or hides the bar, as None does after two seconds.

    Returns:
        The best parameters, and every (parameters, mean PnL, half width of its 95% interval), best first.
    """
    check_callable("make", make, "a function of a task and parameters that returns a policy")
    _check_grid(grid)
    _check_envs(envs)
    hidden = check_progress(progress) is False
    rows = []
    combinations = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    name = getattr(make, "__name__", "policy")
    for parameters in tqdm(combinations, desc=f"grid search {name}", leave=False, disable=hidden, delay=2):
        result = evaluate(make(envs.core.task, **parameters), envs, seed)
        rows.append((parameters, *result.pnl_interval()))
    rows.sort(key=lambda row: -row[1])
    return rows[0][0], rows


def _check_grid(grid: Any) -> None:
    """Refuse what is not at least one value for each of some parameters."""
    for key, values in check_dict("grid", grid, "a dict such as {'half_spread': [2, 3]}").items():
        if not isinstance(key, str):
            raise TypeError(f"grid: got the key {show(key)}, allowed are names of parameters")
        rows = isinstance(values, np.ndarray) and values.ndim == 1
        if not rows and (not isinstance(values, Sequence) or isinstance(values, (str, bytes, bytearray, memoryview))):
            raise TypeError(f"grid[{key!r}]: got {show(values)}, allowed is a sequence of values")
        if not len(values):
            raise ValueError(f"grid[{key!r}]: got no values, allowed is at least one")


def format_table(
    results: Mapping[str, Evaluation], notes: Mapping[str, str] | None = None, task: str = "MarketMaking"
) -> str:
    """Return a Markdown table of evaluations, best first, with 95% confidence intervals.

    Args:
        results: Evaluations by the policy's name.
        notes: What else to say about a policy, such as its parameters.
        task: As in `evaluation_env`.
    """
    for name, result in check_dict("results", results, "a dict of Evaluations").items():
        check_instance(f"results[{show(name)}]", result, Evaluation)
    notes = check_dict("notes", {} if notes is None else notes, "a dict of texts, None")
    check_choice("task", task, MEASURES)
    digits = 3 if task == "Execution" else 0
    lines = [
        f"| policy | {MEASURES[task]} | its sd | units per decision | mean inventory | return | parameters |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for name, result in sorted(results.items(), key=lambda item: -item[1].pnl.mean()):
        mean, half = result.pnl_interval()
        score = f"{mean:.{digits}f} ± {half:.{digits}f} | {_deviation(result.pnl):.{digits}f}"
        lines.append(
            f"| {name} | {score} | {result.traded.mean():.2f} | {result.inventory.mean():.1f} "
            f"| {result.episode_return.mean():.1f} | {notes.get(name, '')} |"
        )
    return "\n".join(lines)


def liquidate(simulator: Simulator, max_auctions: int = 10_000) -> torch.Tensor:
    """Unwind every slot's inventory with marketable orders, at most `max_order_qty` units per auction.

    Under continuous trading, per interval; and an order is priced no further than the opposite side has the units for
    it, as what it did not find would stand at the grid's end, and be traded there. The simulator moves on, and its
    standing quotes are replaced; give it a `branch()` to keep the original.

    Args:
        simulator: With at least one slot.
        max_auctions: After how many auctions, or intervals, to give up.

    Returns:
        int64 `[M, K]`, the cash of each slot once it is flat; less fees it is `simulator.money`.

    Raises:
        MarketError: If inventory is left after `max_auctions`; says in how many slots.
    """
    check_instance("simulator", simulator, Simulator)
    max_auctions = check_count("max_auctions", max_auctions, 0)
    markets, slots = simulator.inventory.shape
    device = simulator.device
    largest = simulator.parameter("max_order_qty")[:, None].long()
    quotes = torch.zeros((markets, slots, 4), dtype=torch.int32, device=device)
    quotes[..., 0], quotes[..., 2] = MAX_PRICE, -MAX_PRICE
    for _ in range(max_auctions):
        inventory = simulator.inventory
        if not bool(inventory.any()):
            break
        quotes[..., 1] = torch.minimum((-inventory).clamp(min=0), largest)
        quotes[..., 3] = torch.minimum(inventory.clamp(min=0), largest)
        if simulator.config.is_continuous:
            _price_to_the_book(simulator, quotes)
        simulator.step(quotes)
    simulator.check_errors()
    left = int(torch.count_nonzero(simulator.inventory))
    if left:
        raise MarketError(f"{left} of {markets * slots} slots still hold inventory after {max_auctions} auctions")
    return simulator.cash.clone()


def _price_to_the_book(simulator: Simulator, quotes: torch.Tensor) -> None:
    """Price marketable quotes, in place, at the tick down to which their units rest on the other side.

    Each slot is priced as if it came alone. Where nothing rests it has no quote.
    """
    origin, top = simulator.price_origin[:, None], simulator.config.num_levels - 1
    asks, bids = simulator.ask.long().cumsum(1), simulator.bid.long().flip(1).cumsum(1)
    for place, resting in ((0, asks), (2, bids)):
        there = resting[:, -1:]
        wanted = torch.minimum(quotes[..., place + 1].long(), there)
        ticks = torch.searchsorted(resting, wanted.clamp(min=1)).clamp(max=top)
        quotes[..., place] = origin + (ticks if place == 0 else top - ticks)
        quotes[..., place + 1] *= there > 0
