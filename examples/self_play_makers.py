"""Two makers in the same market: learned alone, against a scripted rival and in self-play, and a payoff matrix of all.

Both built-in makers of the preset `trading` are replaced; all other agents are built in. Policies are trained with the
PPO of `ippo_many_learners.py`, each against one rival: none; the scripted maker of Avellaneda and Stoikov; the learner
itself (two learners that share a policy); and the policy from this self-play, to see how far it can be exploited.
Then every ordered pair of learned and scripted makers plays the same held-out markets, and counts liquidated PnL.
`python -m examples.studies.self_play` makes a page of it.

    python examples/self_play_makers.py
"""

import dataclasses
import itertools
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import matplotlib

matplotlib.use("Agg")
import ippo_many_learners as ippo
import matplotlib.pyplot as plt
import numpy as np
import torch
import tyro
from ippo_comparison import Policy, held_out, interval, play
from ppo_comparison import machine_name
from tqdm import tqdm

from kineticsim_env import BatchedParallelEnv, policies, run_seed
from kineticsim_env.engines import choose_engine
from kineticsim_env.evaluation import confidence_interval
from kineticsim_env.statistics.arrays import best_prices

NO_TRADE, STOIKOV = "no trade", "Avellaneda-Stoikov"
ALONE, RIVAL, SELF_PLAY = "learned alone", "learned with a rival", "learned in self-play"
REPLY = "learned against self-play"
GRIDS: dict[str, tuple[Any, dict[str, list]]] = {
    STOIKOV: (policies.AvellanedaStoikov, {"risk": [0.01, 0.02, 0.04, 0.08], "kappa": [0.12, 0.18, 0.25, 0.35, 0.5]}),
    "fixed spread": (policies.FixedSpread, {"half_spread": [1, 2, 3, 4, 5], "qty": [4, 8]}),
    "Gueant-Lehalle-F.-T.": (
        policies.GueantLehalleFernandezTapia,
        {"gamma": [0.003, 0.01, 0.03], "kappa": [0.18, 0.25, 0.35, 0.5]},
    ),
}
MARKET = {"preset": "trading"}  # call auctions, with two built-in makers
QUALITY = {
    "spread": "best ask less best bid after an auction, makers' quotes included, ticks",
    "volume": "units traded per auction",
    "mispricing": "distance of the mid from the fundamental price, ticks",
}


@dataclasses.dataclass
class Args:
    """Train makers in four ways and play every pair of makers against each other."""

    seed: int = 1
    """seed of the networks, and run r of the training markets (run_seed)"""
    engine: Literal["auto", "cuda", "cpu", "numpy"] = "auto"
    """where the markets run"""
    output: Path = Path("runs/self_play_makers")
    """folder of the networks, the TensorBoard logs, the results and the pictures"""
    horizon: int = 300
    """decisions in an episode"""
    total_steps: int = 0
    """decisions of whole markets to train each policy for; 0 takes 2 million on a CPU and 200 million on a GPU"""
    num_envs: int = 0
    """training markets; 0 takes 256 on a CPU and 16384 on a GPU"""
    markets: int = 0
    """held-out markets that every pair plays; 0 takes 2048 on a CPU and 16384 on a GPU"""

    def fill_in(self, on_gpu: bool) -> None:
        """Fill in the values that depend on the machine."""
        self.total_steps = self.total_steps or (200_000_000 if on_gpu else 2_000_000)
        self.num_envs = self.num_envs or (16384 if on_gpu else 256)
        self.markets = self.markets or (16384 if on_gpu else 2048)

    def folder(self, name: str) -> Path:
        """Return where a policy is kept."""
        return self.output / name.replace(" ", "_")

    def training(self, name: str) -> ippo.Args:
        """Return the settings of PPO; a policy that learns against self-play begins as a copy of its rival."""
        names = ("seed", "engine", "horizon", "total_steps", "num_envs")
        settings: dict[str, Any] = {**MARKET, **{field: getattr(self, field) for field in names}}
        settings["start"] = self.folder(SELF_PLAY) if name == REPLY else None
        return ippo.Args(learners=("maker=2",), output=self.folder(name), initial_std=0.4, **settings)


class Quality:
    """Adds up, decision by decision, the market's spread, volume and distance from the fundamental price."""

    def __init__(self, envs: BatchedParallelEnv) -> None:
        self.simulator, self.sums, self.counts = envs.simulator, {}, {}

    def watch(self) -> None:
        """Look at all markets; nothing waits for a GPU."""
        simulator, none = self.simulator, 1 << 20
        origin, quotes = simulator.price_origin, simulator.quotes.long()
        bid, ask = best_prices(simulator.bid, simulator.ask)
        levels = simulator.bid.shape[1]
        bid = torch.where(bid >= 0, bid + origin, -none)
        ask = torch.where(ask < levels, ask + origin, none)
        bid = torch.maximum(bid, torch.where(quotes[..., 1] > 0, quotes[..., 0], -none).amax(1))
        ask = torch.minimum(ask, torch.where(quotes[..., 3] > 0, quotes[..., 2], none).amin(1))
        both = (bid > -none) & (ask < none)
        every = torch.ones_like(both)
        self._add("spread", ask - bid, both)
        self._add("mispricing", (simulator.mid2 / 2 - simulator.fundamental_price).abs(), every)
        self._add("volume", simulator.volume - getattr(self, "_volume", 0), every)
        self._volume = simulator.volume.clone()

    def _add(self, name: str, values: torch.Tensor, where: torch.Tensor) -> None:
        self.sums[name] = self.sums.get(name, 0) + (values * where).double()
        self.counts[name] = self.counts.get(name, 0) + where

    def means(self) -> dict[str, tuple[float, float]]:
        """Return the mean of each over markets, and the half width of its 95% interval."""
        shares = {name: (self.sums[name] / self.counts[name].clamp(min=1)).cpu().numpy() for name in QUALITY}
        return {name: confidence_interval(values) for name, values in shares.items()}


# Policies -------------------------------------------------------------------------------------------------------------


def fit(args: Args) -> tuple[dict[str, Policy], dict[str, str]]:
    """Return the scripted makers, with the parameters that do best on training seeds, and notes on these.

    The maker of Avellaneda and Stoikov is fitted to a market of its own, then to that fit as its rival; the others to
    this rival.
    """
    markets = {**MARKET, "engine": args.engine, "horizon": args.horizon, "warm_seed": 2**61}
    envs = held_out(max(64, args.markets // 8), {"maker": 2}, **markets)
    task, rival = envs.core.task, policies.NoTrade(envs.core.task)
    made: dict[str, Policy] = {NO_TRADE: rival}
    notes = {NO_TRADE: ""}
    for name in (STOIKOV, *GRIDS):
        make, grid = GRIDS[name]
        choices = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
        scores = []
        for choice in tqdm(choices, desc=f"fitting {name}", leave=False):
            scores.append(
                play(envs, {"maker": [make(task, **choice), rival]}, run_seed(args.seed))["maker"][:, 0].mean()
            )
        best = choices[int(np.argmax(scores))]
        made[name] = make(task, **best)
        notes[name] = ", ".join(f"{key}={value}" for key, value in best.items()) + f" (best of {len(choices)})"
        rival = made[STOIKOV]
    return made, notes


def learn(args: Args, rival: Policy | None, name: str) -> tuple[Policy, dict[str, Any]]:
    """Train a maker; returns its policy, and how training went. Without a rival it is its own."""
    settings = args.training(name)
    settings.output.mkdir(parents=True, exist_ok=True)
    envs = BatchedParallelEnv(args.num_envs, {"maker": 2}, **settings.task())
    trained, curve = ippo.train(settings, envs, {"maker": {1: rival}} if rival else None, name)
    torch.save(trained["maker"].state_dict(), settings.output / "maker.pt")
    points = [[point["steps"], point["maker/return"]] for point in curve if "maker/return" in point]
    return trained["maker"].act, {"seconds": curve[-1]["seconds"], "steps": curve[-1]["steps"], "curve": points}


# Payoffs --------------------------------------------------------------------------------------------------------------


def payoffs(makers: Mapping[str, Policy], envs: BatchedParallelEnv) -> tuple[dict[str, Any], dict[str, Any]]:
    """Play every ordered pair of makers; returns the cells by row and column, and the best reply to each column.

    All pairs play the same markets, so that differences between rows are of paired samples.
    """
    money: dict[tuple[str, str], np.ndarray] = {}
    cells: dict[str, Any] = {row: {} for row in makers}
    for row, column in tqdm(list(itertools.product(makers, makers)), desc="payoff matrix", unit="pair"):
        quality = Quality(envs)
        money[row, column] = pnl = play(envs, {"maker": [makers[row], makers[column]]}, watch=quality.watch)["maker"]
        samples = {"pnl": pnl[:, 0], "rival_pnl": pnl[:, 1], "total": pnl.sum(1), "seat": pnl[:, 0] - pnl[:, 1]}
        cells[row][column] = {name: confidence_interval(x) for name, x in samples.items()} | quality.means()
    envs.check_errors()
    replies = {}
    for column in makers:
        best, second = sorted(makers, key=lambda row: -money[row, column][:, 0].mean())[:2]
        lead = confidence_interval(money[best, column][:, 0] - money[second, column][:, 0])
        replies[column] = {"best": best, "second": second, "lead": lead}
    return cells, replies


def format_matrix(cells: Mapping[str, Any], name: str = "pnl") -> str:
    """Return a Markdown table of one figure of every cell, with its interval."""
    lines = [f"| maker_0 \\ maker_1 | {' | '.join(cells)} |", "|---|" + "---:|" * len(cells)]
    for row, columns in cells.items():
        lines.append(f"| **{row}** | {' | '.join(interval(*columns[column][name]) for column in columns)} |")
    return "\n".join(lines)


def draw(cells: Mapping[str, Any], path: Path) -> None:
    """Draw the matrix: the row's PnL, that of both together, spread and volume."""
    panels = {
        "pnl": "liquidated PnL of the row's maker, ticks per episode",
        "total": "liquidated PnL of both makers together, ticks per episode",
        "spread": "spread, makers' quotes included, ticks",
        "volume": "volume, units per auction",
    }
    names = list(cells)
    figure, axes = plt.subplots(2, 2, figsize=(15, 13), layout="constrained")
    for axis, (name, title) in zip(axes.flat, panels.items(), strict=True):
        means, halves = np.moveaxis(np.array([[cells[row][column][name] for column in names] for row in names]), 2, 0)
        money = name in ("pnl", "total")
        limit = max(abs(means).max(), 1e-9)
        scale = {"cmap": "RdBu", "vmin": -limit, "vmax": limit} if money else {"cmap": "viridis"}
        image = axis.imshow(means, **scale)
        for i, j in itertools.product(range(len(names)), repeat=2):
            red, green, blue, _ = image.cmap(image.norm(means[i, j]))
            colour = "black" if 0.3 * red + 0.6 * green + 0.1 * blue > 0.5 else "white"
            text = f"{means[i, j]:.0f}\n±{halves[i, j]:.0f}" if money else f"{means[i, j]:.2f}\n±{halves[i, j]:.2f}"
            axis.text(j, i, text, ha="center", va="center", color=colour, fontsize=9)
        if name == "pnl":  # the best reply in each column
            for j, i in enumerate(means.argmax(0)):
                axis.add_patch(
                    plt.Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, fill=False, edgecolor="black", linewidth=2)
                )
            title += "\n(framed: the best reply in each column)"
        axis.set_title(title, fontsize=11)
        axis.set_xticks(range(len(names)), names, rotation=30, ha="right")
        axis.set_yticks(range(len(names)), names)
        axis.set(xlabel="maker_1", ylabel="maker_0")
    figure.savefig(path, dpi=90)
    plt.close(figure)


def main(args: Args) -> dict[str, Any]:
    """Fit, train, play and draw; returns the record that is written as JSON."""
    args.fill_in(choose_engine(args.engine)[1].type == "cuda")
    args.output.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    makers, notes = fit(args)
    trained: dict[str, Any] = {}
    for name, rival in {ALONE: NO_TRADE, RIVAL: STOIKOV, SELF_PLAY: "", REPLY: SELF_PLAY}.items():
        makers[name], trained[name] = learn(args, makers.get(rival), name)
        notes[name] = f"{trained[name]['steps']:,} decisions in {trained[name]['seconds']:.0f} s"
    envs = held_out(args.markets, {"maker": 2}, engine=args.engine, horizon=args.horizon, **MARKET)
    cells, replies = payoffs(makers, envs)
    record = {
        "args": dataclasses.asdict(args),
        "rounding": envs.core.simulator.config.rounding,
        "machine": machine_name(envs.device),
        "seconds": time.perf_counter() - started,
        "notes": notes,
        "trained": trained,
        "cells": cells,
        "replies": replies,
    }
    (args.output / "results.json").write_text(json.dumps(record, indent=1, default=str) + "\n")
    table = format_matrix(cells)
    (args.output / "table.md").write_text(table + "\n")
    draw(cells, args.output / "payoffs.png")
    print(f"\nliquidated PnL of maker_0, {args.markets} held-out markets, 95% intervals\n\n{table}\n")
    print(f"results, networks and picture are in {args.output}{os.sep}")
    return record


if __name__ == "__main__":
    main(tyro.cli(Args))
