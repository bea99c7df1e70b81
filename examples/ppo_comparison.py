"""What `ppo_fast.py` does after training: a comparison with scripted policies, and pictures."""

import dataclasses
import json
import math
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
import tune_scripted_policies as tune

from kineticsim_env import policies
from kineticsim_env.evaluation import (
    HELD_OUT_SEED,
    MEASURES,
    Evaluation,
    confidence_interval,
    evaluate,
    evaluation_env,
    format_table,
)
from kineticsim_env.policies import NetworkPolicy
from kineticsim_env.policies.networks import HIDDEN
from kineticsim_env.tasks import TASK_WORDS

LEARNED = "PPO (learned)"
WORDS = {task: word for word, task in TASK_WORDS.items()}


def machine_name(device: torch.device) -> str:
    """Say what the figures were measured on."""
    software = f"torch {torch.__version__}, Python {platform.python_version()}"
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}, {software}"
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{usable} {platform.machine()} cores, {software}"


def scripted(task: str, envs: Any, *market: Any) -> tuple[dict[str, policies.Policy], dict[str, str]]:
    """Return the scripted policies of a task with the best parameters of their grids, and what to say of these.

    They are read from `scripted_policies.json`. If that file has not this market (other auctions per step, another
    block size), they are searched now.

    Args:
        task: As in `evaluation_env`.
        envs: An environment with the warm starts of training.
        *market: Its preset, and the changes of the preset's fields.
    """
    try:
        found = tune.load(task, envs, tune.FOUND, market or tune.DEFAULT)["policies"]
    except ValueError as error:
        print(f"{error}\nNow their parameters are searched for this market, which takes some minutes.")
        found = tune.search(task, envs, (market or tune.DEFAULT)[0])["policies"]
    return tune.make_all(found, envs.core.task), tune.notes_of(found)


def draw_curve(task: str, curve: list[dict], intervals: dict[str, tuple[float, float]], path: Path) -> None:
    """Draw what was learned against training steps, and the scripted policies as lines."""
    figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
    steps, pnl, half = (np.array([point[key] for point in curve]) for key in ("steps", "pnl", "half"))
    axis.fill_between(steps / 1e6, pnl - half, pnl + half, alpha=0.25)
    axis.plot(steps / 1e6, pnl, marker=".", label="PPO (training seeds)")
    for number, (name, (mean, _)) in enumerate(item for item in intervals.items() if item[0] != LEARNED):
        axis.axhline(mean, color=f"C{number + 1}", linestyle="--", linewidth=1, label=f"{name} (held-out seeds)")
    axis.set(xlabel="training steps, millions", ylabel=MEASURES[task])
    axis.set_title("Learning to make a market" if task == "MarketMaking" else f"Learning: {task.lower()}")
    ends = [float(pnl[-1]), *sorted((mean for mean, _ in intervals.values()), reverse=True)[:4]]
    axis.set_ylim(bottom=max(float(pnl.min()), min(ends) - 0.5 * (max(ends) - min(ends))), top=None)
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


@torch.no_grad()
def draw_episode(act: policies.Policy, envs: Any, path: Path) -> None:
    """Draw one held-out episode: prices and own orders, inventory, and marked PnL."""
    base = envs.unwrapped
    simulator, role = base.simulator, base.core.roles[0]
    observation, _ = envs.reset(seed=HELD_OUT_SEED)
    arrival = float(simulator.mid2[0]) / 2
    rows, standing, done = [], [], False
    while not done:
        mid = float(simulator.mid2[0]) / 2
        observation, _, terminated, truncated, _ = envs.step(act(observation))
        done = bool(terminated[0] | truncated[0])
        inventory, cash = int(simulator.inventory[0, 0]), int(simulator.cash[0, 0])
        value = int(simulator.fundamental_price[0])
        bought, sold = base.fills[0].tolist()
        quotes = simulator.quotes[0, 0].reshape(-1, 2, 2).double().cpu().numpy()  # of ladders all levels
        standing.append(np.where(quotes[..., 1] > 0, quotes[..., 0], np.nan))
        pnl = cash + inventory * (arrival if role == "executor" else value)
        rows.append((mid, value, inventory, pnl, float(simulator.last_price[0]), bought, sold))
    mid, value, inventory, pnl, price, bought, sold = np.array(rows).T
    time_axis = np.arange(len(mid))
    figure, axes = plt.subplots(3, 1, figsize=(9, 8), sharex=True, height_ratios=[3, 1, 1], layout="constrained")
    axes[0].plot(time_axis, mid, linewidth=1, label="mid")
    axes[0].plot(time_axis, value, linewidth=1, color="black", label="fundamental")
    for orders, name, colour in zip(np.transpose(standing), ("bid", "ask"), ("C2", "C3"), strict=True):
        level, when = np.nonzero(np.abs(orders - mid) < 50)  # forced orders stand at no price
        look = {"s": 6, "marker": "_", "color": colour, "alpha": 0.5}
        axes[0].scatter(when, orders[level, when], label=f"unfilled {name}", **look)
    axes[0].scatter(time_axis[bought > 0], price[bought > 0], s=14, marker="^", color="C2", label="bought")
    axes[0].scatter(time_axis[sold > 0], price[sold > 0], s=14, marker="v", color="C3", label="sold")
    axes[0].set(ylabel="price, ticks", title=f"One held-out episode of the learned {role}")
    axes[0].legend(ncols=6, fontsize=8)
    axes[1].step(time_axis, inventory, where="mid")
    axes[1].set(ylabel="inventory, units")
    axes[2].plot(time_axis, pnl)
    mark = "against arrival" if role == "executor" else "PnL at the\nfundamental"
    axes[2].set(ylabel=f"{mark}, ticks", xlabel="decision")
    for axis in axes:
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def snapshot(folder: Path, steps: int) -> Path:
    """Return where the networks of an evaluation during training are kept."""
    path = folder / "snapshots" / f"{steps}.pt"
    path.parent.mkdir(exist_ok=True)
    return path


def keep_best(networks: Any, curve: list[dict], folder: Path) -> dict:
    """Take up the networks of the evaluation in training that was best; returns that point of the curve.

    Its episodes are none of the held-out ones. Where rewards are mostly the noise of prices, as an executor's are,
    training on can unlearn what was there.
    """
    best = max((point for point in curve if snapshot(folder, point["steps"]).exists()), key=lambda point: point["pnl"])
    networks.load_state_dict(torch.load(snapshot(folder, best["steps"]), weights_only=True))
    return best


def save_policy(path: Path, networks: Any, args: Any, played: Evaluation, command: str) -> None:
    """Write the learned policy as a file that `kineticsim_env.load_policy` reads, if it can be one.

    Networks of stacked observations cannot, as environments return single rows, nor can those of other widths.

    Args:
        path: Of the file.
        networks: The trained `ActorCritic`.
        args: The `Args` of the example.
        played: Its evaluation on held-out episodes, whose figures the file tells.
        command: That made it.
    """
    if args.stack == 1 and args.hidden in HIDDEN:
        write_policy(path, networks.policy(), args.TASK, args.preset, played, command)


def write_policy(path: Path, policy: NetworkPolicy, task: str, preset: str, played: Evaluation, command: str) -> None:
    """Write a policy with what made it, the commit that is checked out, and the figures of its evaluation."""
    figures = {name: figure.mean for name, figure in played.figures().items() if math.isfinite(figure.mean)}
    figures |= {"episodes": len(played.pnl)}
    told = {"task": WORDS[task], "preset": preset, "command": command, "commit": commit(), "licence": "Apache-2.0"}
    policy.save(path, figures=figures, **told)


def commit() -> str:
    """Return the commit that is checked out, or nothing where that is not known."""
    words = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=8", "HEAD"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def first_ahead(networks: Any, curve: list[dict], rival: np.ndarray, held_out: Any, folder: Path) -> dict | None:
    """Return the first point of the curve whose policy is ahead of the rival, or None.

    Both play the same held-out episodes: ahead is where the mean of the differences is above 0 by its 95% interval.
    """
    last, found = {name: value.clone() for name, value in networks.state_dict().items()}, None
    for point in curve:
        if point["pnl"] + point["half"] < rival.mean() or not snapshot(folder, point["steps"]).exists():
            continue  # the curve's own seeds: a hint
        networks.load_state_dict(torch.load(snapshot(folder, point["steps"]), weights_only=True))
        result = evaluate(networks.act, held_out, HELD_OUT_SEED)
        lead, half = confidence_interval(result.pnl - rival)
        if lead > half:
            mean, half = result.pnl_interval()
            found = {**point, "pnl": mean, "half": half}
            break
    networks.load_state_dict(last)
    return found


def compare(args: Any, networks: Any, curve: list[dict], market: dict, training: dict) -> dict[str, float]:
    """Compare with scripted policies on held-out seeds; returns the mean of `Evaluation.pnl` by policy.

    The learned policy is the one that was best at an evaluation in training (`keep_best`).

    Args:
        args: The `Args` of the example, filled in.
        networks: The trained `ActorCritic`.
        curve: Its learning curve.
        market: Arguments of the environment.
        training: Those of the environment where scripted policies are fitted.
    """
    kept = keep_best(networks, curve, args.output)
    print(f"the learned policy is that after {kept['steps']:,} steps, the best in training")
    others, notes = scripted(
        args.TASK, evaluation_env(args.eval_envs // 2, args.TASK, **training), args.preset, args.set
    )
    held_out = evaluation_env(args.eval_envs, args.TASK, **market)
    results = {name: evaluate(policy, held_out, HELD_OUT_SEED) for name, policy in others.items()}
    acting: dict[str, Any] = {**market, "action_type": args.action_type}
    held_out = args.stacked(evaluation_env(args.eval_envs, args.TASK, **acting))
    results[LEARNED] = evaluate(networks.act, held_out, HELD_OUT_SEED)
    table = format_table(results, notes, args.TASK)
    print(f"\n{args.eval_envs} held-out episodes, 95% confidence intervals\n\n{table}\n")
    (args.output / "table.md").write_text(table + "\n")
    intervals = {name: result.pnl_interval() for name, result in results.items()}
    rival = max(others, key=lambda name: intervals[name][0])
    lead = confidence_interval(results[LEARNED].pnl - results[rival].pnl)
    print(f"on the same episodes the learned policy leads {rival} by {lead[0]:.4g} ± {lead[1]:.2g}")
    ahead = first_ahead(networks, curve, results[rival].pnl, held_out, args.output)
    if ahead:
        print(
            f"ahead of {rival} after {ahead['seconds']:.1f} s of training, {ahead['wall']:.1f} s with evaluations, "
            f"{ahead['steps']:,} steps"
        )
    record = {
        "task": args.TASK,
        "args": dataclasses.asdict(args),
        "rounding": held_out.unwrapped.simulator.config.rounding,
        "machine": machine_name(held_out.unwrapped.device),
        "curve": curve,
        "kept": kept,
        "pnl": intervals,
        "rival": rival,
        "lead": lead,
        "ahead": ahead,
        "notes": notes,
    }
    (args.output / "results.json").write_text(json.dumps(record, indent=1, default=str) + "\n")
    draw_curve(args.TASK, curve, intervals, args.output / "learning_curve.png")
    one = args.stacked(evaluation_env(1, args.TASK, **acting))
    draw_episode(networks.act, one, args.output / "episode.png")
    script, *words = sys.argv
    command = f"python examples/{shlex.join([Path(script).name, *words])}"
    save_policy(args.output / "policy.safetensors", networks, args, results[LEARNED], command)
    print(f"pictures, table and checkpoint are in {args.output}{os.sep}")
    return {name: mean for name, (mean, _) in intervals.items()}
