"""What `ippo_many_learners.py` does after training: it compares each role with scripted policies, and draws a picture.

`play` and `held_out` also serve `self_play_makers.py`.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from ppo_comparison import machine_name
from tqdm import tqdm

from kineticsim_env import BatchedParallelEnv, policies, run_seed
from kineticsim_env.evaluation import HELD_OUT_SEED, HELD_OUT_WARM_SEED, confidence_interval, liquidate
from kineticsim_env.policies.base import order_action

BLOCKS = ("noise", "executor")  # roles with something to trade by a deadline, who keep what they have traded
MEASURES = {
    "maker": "liquidated PnL, ticks",
    "momentum": "liquidated PnL, ticks",
    "trader": "liquidated PnL, ticks",
    "noise": "minus the cost of its trades, ticks",
    "executor": "minus the shortfall, ticks per unit",
}
Policy = Callable[[torch.Tensor], torch.Tensor]


class BuiltIn:
    """The rule of the market's built-in noise or momentum agents (docs/model.md), as a learner's policy.

    It differs from theirs in three ways: the side is given, offsets end at `max_offset`, and a limit or target holds.
    """

    def __init__(self, task: Any, config: Any, role: str, seed: int = 0) -> None:
        """Seed the draws, which are made on the CPU so that every device sees the same ones."""
        self.task, self.config, self.role = task, config, role
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """Return actions float32 `[M, 2]`."""
        draws = torch.rand((3, len(observation)), generator=self._generator).to(observation.device)
        qty = 1 + torch.floor(draws[0] * self.config.max_order_qty)
        ticks = torch.ones_like(qty)
        if self.role == "noise":
            ticks = torch.floor((2 * draws[1] - 1) * (self.config.noise_spread + 0.5) + 0.5)
        marketable = draws[2] < self.config.market_order_prob
        return order_action(self.task, torch.where(marketable, float(self.task.max_offset), ticks), qty)


def stand_ins(envs: BatchedParallelEnv, role: str) -> dict[str, Policy]:
    """Return the policies to compare the learners of a role with: scripted ones, and `random`."""
    task, config = envs.core.task, envs.core.config
    grid: dict[str, Callable[[], Any]]
    if role == "maker":
        spread, stoikov = policies.FixedSpread, policies.AvellanedaStoikov
        grid = {f"fixed spread, half_spread={h}": partial(spread, task, h) for h in (2, 3, 4, 5)}
        for kappa in (0.15, 0.18, 0.25, 0.4):
            grid[f"Avellaneda-Stoikov, kappa={kappa}"] = partial(stoikov, task, risk=0.01, kappa=kappa)
    elif role == "executor":
        grid = {f"TWAP, ticks={t}": partial(policies.TimeWeighted, task, t) for t in (-4, -2, 0, 2, 10)}
        grid |= {f"VWAP, ticks={t}": partial(policies.VolumeWeighted, task, None, t) for t in (-2, 0, 10)}
        grid |= {f"Almgren-Chriss, ticks={t}": partial(policies.AlmgrenChriss, task, t) for t in (-2, 0, 10)}
    elif role == "trader":
        kinds = {"momentum": policies.MomentumTrader, "mean reversion": policies.MeanReversionTrader}
        grid = {f"{k}, threshold={x}": partial(kinds[k], task, x, ticks=1.0) for k in kinds for x in (0.5, 1, 2, 4)}
        grid["hold"] = partial(policies.Hold, task)
    else:
        grid = {"the built-in rule": partial(BuiltIn, task, config, role)}
    random = {"maker": policies.RandomQuotes, "trader": policies.RandomTrader}.get(role, policies.RandomOrders)
    made = {name: make() for name, make in grid.items()} | {"random": random(task)}
    if task.action_type == "discrete":
        return {name: policies.Discretised(policy, task, role) for name, policy in made.items()}
    return made


def held_out(num_envs: int, learners: Mapping[str, int], **task: Any) -> BatchedParallelEnv:
    """Make an environment for `play`: whole episodes, from warm starts of its own unless told otherwise."""
    arguments: dict[str, Any] = {"warm_seed": HELD_OUT_WARM_SEED, **task}
    arguments |= {"autoreset_mode": "DISABLED", "stagger": False, "copy": False}
    return BatchedParallelEnv(num_envs, learners, **arguments)


@torch.no_grad()
def play(
    envs: BatchedParallelEnv,
    chosen: Mapping[str, Sequence[Policy]],
    seed: int = HELD_OUT_SEED,
    watch: Callable[[], None] | None = None,
) -> dict[str, np.ndarray]:
    """Play one episode in every market.

    Args:
        envs: From `held_out`.
        chosen: A policy for each learner of each role, called with observations `[M, F]`.
        seed: Market m gets `seed + m`.
        watch: Called after every decision.

    Returns:
        By role the measure of each learner, float64 `[M, n]`: liquidated PnL, or the return of those with blocks.
    """
    simulator, task = envs.simulator, envs.core.task
    seen, infos = envs.reset(seed=seed)
    returns = {
        role: torch.zeros(row.shape, dtype=torch.float64, device=envs.device) for role, row in infos["active"].items()
    }
    first = torch.ones((envs.num_envs, 1), dtype=torch.bool, device=envs.device)  # still in its first episode
    for decision in range(1, task.horizon + 1):
        seen, rewards, _, _, infos = envs.step(
            {role: torch.stack([act(seen[role][:, k]) for k, act in enumerate(row)], 1) for role, row in chosen.items()}
        )
        if watch:
            watch()
        for role, total in returns.items():
            total += rewards[role] * first
        over = ~torch.cat(list(infos["active"].values()), 1).any(1)
        if decision < task.horizon and bool(over.any()):  # only where nobody but executors learns
            first &= ~over[:, None]
            envs.reset(options={"reset_mask": over})
    for role in set(BLOCKS) & set(envs.groups):
        simulator.inventory[:, envs.groups[role]] = 0  # their trades are meant to be kept
    liquidate(simulator)
    return {
        role: (total * task.reward_scale if role in BLOCKS else simulator.money[:, envs.groups[role]]).cpu().numpy()
        for role, total in returns.items()
    }


def compare(args: Any, learners: Mapping[str, int], trained: Mapping[str, Any], curve: list[dict]) -> dict[str, Any]:
    """Compare each role with its best scripted policy, while the other roles are learned; prints, writes and draws.

    Args:
        args: The `Args` of `ippo_many_learners.py`, filled in.
        learners: How many there are of each role.
        trained: The `ActorCritic` of each role.
        curve: The learning curve.

    Returns:
        By role: mean and half width of the 95% interval of `learned`, `scripted`, `random` and `lead`.
    """
    training = held_out(max(1, args.eval_envs // 4), learners, **{**args.task(), "warm_seed": 2**61})
    envs = held_out(args.eval_envs, learners, **args.task())

    def measure(role: str, policy: Policy, where: BatchedParallelEnv = envs, seed: int = HELD_OUT_SEED) -> np.ndarray:
        """Return the mean over a role's learners in each market, as these are no independent samples."""
        played = {other: [policy if other == role else trained[other].act] * n for other, n in learners.items() if n}
        return play(where, played, seed)[role].mean(1)

    results: dict[str, dict[str, Any]] = {}
    for role in tqdm(trained, desc="comparison", unit="role"):
        scripted = stand_ins(training, role)
        scores = {name: measure(role, scripted[name], training, run_seed(args.seed)).mean() for name in scripted}
        best = max((name for name in scores if name != "random"), key=scores.__getitem__)
        learned = measure(role, trained[role].act)
        rows = {"learned": learned} | {
            kind: measure(role, scripted[name]) for kind, name in (("scripted", best), ("random", "random"))
        }
        rows["lead"] = learned - rows["scripted"]
        results[role] = {"measure": MEASURES[role], "stand_in": best, "candidates": len(scores) - 1}
        results[role] |= {name: confidence_interval(values) for name, values in rows.items()}
    envs.check_errors()
    table = format_table(results)
    print(f"\n{args.eval_envs} held-out markets, the other roles learned, 95% confidence intervals\n\n{table}\n")
    (args.output / "table.md").write_text(table + "\n")
    record = {
        "args": dataclasses.asdict(args),
        "machine": machine_name(envs.device),
        "curve": curve,
        "results": results,
    }
    (args.output / "results.json").write_text(json.dumps(record, indent=1, default=str) + "\n")
    draw(curve, results, args.output / "many_learners.png")
    print(f"networks, table and picture are in {args.output}{os.sep}")
    return results


def format_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a Markdown table of `compare`'s results."""
    lines = [
        "| role | measure (more is better) | learned | scripted | random | lead, same markets | scripted is |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for role, row in results.items():
        cells = [interval(*row[name]) for name in ("learned", "scripted", "random", "lead")]
        note = f"{row['stand_in']} (best of {row['candidates']})" if row["candidates"] > 1 else row["stand_in"]
        lines.append(f"| {role} | {row['measure']} | {' | '.join(cells)} | {note} |")
    return "\n".join(lines)


def interval(mean: float, half: float) -> str:
    """Return `mean ± half` with as many places as the interval warrants."""
    places = 0 if not 0 < half < 10 else 1 if half >= 1 else 2 if half >= 0.1 else 3
    return f"{mean:.{places}f} ± {half:.{places}f}"


def draw(curve: list[dict], results: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw a column for each role: its returns over training, and how it compares."""
    figure, axes = plt.subplots(
        2, len(results), figsize=(3.4 * len(results) + 0.6, 6), layout="constrained", squeeze=False
    )
    for (upper, lower), (role, row) in zip(axes.T, results.items(), strict=True):
        points = [(point["steps"] / 1e6, point[f"{role}/return"]) for point in curve if f"{role}/return" in point]
        if points:
            steps, returns = np.array(points).T
            upper.plot(steps, returns, alpha=0.35, linewidth=1)
            width = max(1, len(points) // 10)
            middle = slice(width // 2, width // 2 + len(returns) - width + 1)
            upper.plot(steps[middle], np.convolve(returns, np.ones(width) / width, "valid"), color="C0")
        upper.set(title=role, xlabel="decisions of each role, millions")
        names = ["random", "scripted", "learned"]
        means, halves = zip(*(row[name] for name in names), strict=True)
        lower.bar(names, means, yerr=halves, color=["0.75", "C1", "C0"], capsize=4)
        lower.axhline(0, color="black", linewidth=0.8)
        lower.bar_label(lower.containers[-1], [interval(*row[name]) for name in names], fontsize=8, padding=3)
        lower.margins(y=0.15)
        lower.set_title(f"learned less scripted: {interval(*row['lead'])}", fontsize=9)
        lower.set(ylabel=row["measure"], xlabel=f"scripted: {row['stand_in']}")
        for axis in (upper, lower):
            axis.grid(alpha=0.3)
            axis.set_axisbelow(True)
    axes[0, 0].set_ylabel("return per episode, ticks")
    figure.suptitle(
        "Many learners in one market: returns while learning (above), and on held-out seeds (below, 95% intervals)"
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)
