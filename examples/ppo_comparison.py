"""What `ppo_market_maker.py` does once it has trained: scripted makers to compare with, and pictures."""

import dataclasses
import json
import os
import platform
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch

from kineticsim_env import policies
from kineticsim_env.evaluation import HELD_OUT_SEED, evaluate, evaluation_env, format_table, grid_search
from kineticsim_env.vector_env import MarketMakingVectorEnv

GRIDS = {
    "fixed spread": (policies.FixedSpread, {"half_spread": [2, 3, 4, 5, 6, 7], "qty": [4, 6, 8]}),
    "Avellaneda-Stoikov": (
        policies.AvellanedaStoikov,
        {
            "risk": [0.01, 0.02, 0.04, 0.06, 0.08, 0.12],
            "kappa": [0.12, 0.15, 0.18, 0.21, 0.25, 0.3, 0.4],
            "stationary": [True, False],
        },
    ),
}


def machine_name(device: torch.device) -> str:
    """Say what the figures were measured on."""
    software = f"torch {torch.__version__}, Python {platform.python_version()}"
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}, {software}"
    return f"{os.cpu_count()} {platform.machine()} cores, {software}"


def scripted_makers(envs: MarketMakingVectorEnv, seed: int) -> tuple[dict[str, policies.Policy], dict[str, str]]:
    """Return the scripted makers, the best of each grid on training seeds, and how their grids went."""
    task = envs.core.task
    makers: dict[str, policies.Policy] = {
        "no trade": policies.NoTrade(task),
        "random quotes": policies.RandomQuotes(task),
    }
    notes = {}
    for name, (make, grid) in GRIDS.items():
        best, rows = grid_search(make, grid, envs, seed)
        makers[name] = make(task, **best)
        notes[name] = ", ".join(f"{key}={value}" for key, value in best.items()) + f" (best of {len(rows)})"
    return makers, notes


def draw_curve(curve: list[dict], intervals: dict[str, tuple[float, float]], path: Path) -> None:
    """Draw liquidated PnL against training steps, and the scripted makers as lines."""
    figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
    steps, pnl, half = (np.array([point[key] for point in curve]) for key in ("steps", "pnl", "half"))
    axis.fill_between(steps / 1e6, pnl - half, pnl + half, alpha=0.25)
    axis.plot(steps / 1e6, pnl, marker=".", label="PPO (training seeds)")
    for number, (name, (mean, _)) in enumerate(item for item in intervals.items() if item[0] != "PPO (learned)"):
        axis.axhline(mean, color=f"C{number + 1}", linestyle="--", linewidth=1, label=f"{name} (held-out seeds)")
    axis.set(xlabel="training steps, millions", ylabel="liquidated PnL an episode, ticks")
    axis.set_title("Learning to make a market")
    floor = min(mean for name, (mean, _) in intervals.items() if name != "random quotes")
    axis.set_ylim(bottom=max(float(pnl.min()), floor - 500), top=None)
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


@torch.no_grad()
def draw_episode(act: policies.Policy, envs: MarketMakingVectorEnv, path: Path) -> None:
    """Draw one held-out episode: prices and quotes, inventory, and marked PnL."""
    core, simulator = envs.core, envs.simulator
    observation, _ = envs.reset(seed=HELD_OUT_SEED)
    rows = []
    for _ in range(core.task.horizon):
        mid = float(simulator.mid2[0]) / 2
        action = act(observation)
        offset = torch.round((action[0, :2] + 1) * 0.5 * core.task.max_offset).tolist()
        observation = envs.step(action)[0]
        inventory, cash = int(simulator.inventory[0, 0]), int(simulator.cash[0, 0])
        value = int(simulator.fundamental_price[0])
        bought, sold = envs.fills[0].tolist()
        bid, ask, pnl = np.floor(mid) - offset[0], np.ceil(mid) + offset[1], cash + inventory * value
        rows.append((mid, bid, ask, value, inventory, pnl, float(simulator.last_price[0]), bought, sold))
    mid, bid, ask, value, inventory, pnl, price, bought, sold = np.array(rows).T
    time_axis = np.arange(len(mid))
    figure, axes = plt.subplots(3, 1, figsize=(9, 8), sharex=True, height_ratios=[3, 1, 1], layout="constrained")
    axes[0].fill_between(time_axis, bid, ask, alpha=0.2, step="mid", label="own bid to own ask")
    axes[0].plot(time_axis, mid, linewidth=1, label="mid")
    axes[0].plot(time_axis, value, linewidth=1, color="black", label="fundamental")
    axes[0].scatter(time_axis[bought > 0], price[bought > 0], s=9, marker="^", color="C2", label="bought")
    axes[0].scatter(time_axis[sold > 0], price[sold > 0], s=9, marker="v", color="C3", label="sold")
    axes[0].set(ylabel="price, ticks", title="One held-out episode of the learned maker")
    axes[0].legend(ncols=5, fontsize=8)
    axes[1].step(time_axis, inventory, where="mid")
    axes[1].set(ylabel="inventory, units")
    axes[2].plot(time_axis, pnl)
    axes[2].set(ylabel="PnL at the\nfundamental, ticks", xlabel="decision")
    for axis in axes:
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def snapshot(folder: Path, steps: int) -> Path:
    """Return where the agent of an evaluation during training is kept."""
    path = folder / "snapshots" / f"{steps}.pt"
    path.parent.mkdir(exist_ok=True)
    return path


def first_ahead(
    agent: Any, curve: list[dict], rival: tuple[float, float], held_out: MarketMakingVectorEnv, folder: Path
) -> dict | None:
    """Return the first point of the curve whose agent is ahead of the rival, or None: intervals on held-out seeds."""
    last, found = {name: value.clone() for name, value in agent.state_dict().items()}, None
    for point in curve:
        if point["pnl"] < rival[0] or not snapshot(folder, point["steps"]).exists():  # the curve's own seeds: a hint
            continue
        agent.load_state_dict(torch.load(snapshot(folder, point["steps"]), weights_only=True))
        mean, half = evaluate(agent.act, held_out, HELD_OUT_SEED).pnl_interval()
        if mean - half > rival[0] + rival[1]:
            found = {**point, "pnl": mean, "half": half}
            break
    agent.load_state_dict(last)
    return found


def compare(args: Any, agent: Any, curve: list[dict], market: dict, training: dict) -> dict[str, float]:
    """Compare with scripted makers on held-out seeds; returns mean liquidated PnL by policy.

    Args:
        args: The `Args` of `ppo_market_maker.py`, filled in.
        agent: What was trained.
        curve: Its learning curve.
        market: Arguments of the environment.
        training: Those of the environment where scripted makers are fitted.
    """
    makers, notes = scripted_makers(evaluation_env(args.eval_envs // 2, **training), args.seed << 32)
    held_out = evaluation_env(args.eval_envs, **market)
    results = {name: evaluate(maker, held_out, HELD_OUT_SEED) for name, maker in makers.items()}
    results["PPO (learned)"] = evaluate(agent.act, held_out, HELD_OUT_SEED)
    table = format_table(results, notes)
    print(f"\n{args.eval_envs} held-out episodes, 95% confidence intervals\n\n{table}\n")
    (args.output / "table.md").write_text(table + "\n")
    intervals = {name: result.pnl_interval() for name, result in results.items()}
    rival = max(makers, key=lambda name: intervals[name][0])
    ahead = first_ahead(agent, curve, intervals[rival], held_out, args.output)
    if ahead:
        print(
            f"ahead of {rival} after {ahead['seconds']:.1f} s of training, {ahead['wall']:.1f} s with evaluations, "
            f"{ahead['steps']:,} steps"
        )
    record = {
        "args": dataclasses.asdict(args),
        "machine": machine_name(held_out.device),
        "curve": curve,
        "pnl": intervals,
        "ahead": ahead,
        "notes": notes,
    }
    (args.output / "results.json").write_text(json.dumps(record, indent=1, default=str) + "\n")
    draw_curve(curve, intervals, args.output / "learning_curve.png")
    draw_episode(agent.act, evaluation_env(1, **market), args.output / "episode.png")
    print(f"pictures, table and checkpoint are in {args.output}{os.sep}")
    return {name: mean for name, (mean, _) in intervals.items()}
