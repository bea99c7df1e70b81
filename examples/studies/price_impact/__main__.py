"""`python -m examples.studies.price_impact` measures what orders do to every preset's price, and what follows them.

It fills README.md and writes its pictures, and results.json with every figure, from which `--results` fills the page
again without measuring.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from kineticsim_env import plots
from kineticsim_env.config import PRESETS, MarketConfig
from kineticsim_env.counterfactuals import block_impact, causal_impact
from kineticsim_env.runtime.options import exit_code
from kineticsim_env.runtime.seeds import run_seed
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics import Mean, mean_and_error
from scripts.pages.command import make_page, page_parser

NAME = "price_impact"
SEED, OBSERVED_SEED = run_seed(13), run_seed(14)
INTERVALS, AFTER = 400, 20  # that are watched, and after which a response is taken
SIZES, LAGS = (1, 2, 4, 8, 16, 32), (0, 1, 2, 5, 10, 20, 50)
PACE = {"paper": 32, "trading": 4, "continuous": 4, "news": 16, "realistic": 32}  # units: about a fifth of the volume
FASTER = (0.25, 0.5, 1, 2, 4)  # times that pace
LONG, LONGER = 20, (1, 4, 16, 64)  # intervals of metaorders
WHOLE = 1024  # units of a block that no book can fill at once
_NOISE_ONLY = {"noise": 1.0, "momentum": 0.0, "maker": 0.0}
# What holds the price: a preset, what is taken from it, and the sizes of its orders.
HELD_BY: dict[str, tuple[str, dict[str, Any], tuple[int, int]]] = {
    "`trading`": ("trading", {}, (4, 8)),
    "`trading`, nobody knows the fundamental": ("trading", {"fundamental": 0.0, "noise": 0.75}, (4, 8)),
    "`trading` without momentum agents": ("trading", {"momentum": 0.0, "noise": 0.60}, (4, 8)),
    "`trading`, nothing is cancelled": ("trading", {"cancel_prob": 0.0}, (4, 8)),
    "`continuous`": ("continuous", {}, (2, 4)),
    "`continuous`, nobody knows the fundamental": ("continuous", {"fundamental": 0.0, "noise": 0.75}, (2, 4)),
    "`news`": ("news", {}, (8, 16)),
    "`news`, nobody knows the fundamental": ("news", {"fundamental": 0.0, "noise": 0.675}, (8, 16)),
    "`realistic`": ("realistic", {}, (8, 16)),
    "`realistic`, agents price around the mid": ("realistic", {"reference": "mid"}, (8, 16)),
    "`paper`": ("paper", {}, (32, 64)),
    "`paper`, noise agents only, 30% cancelled": ("paper", {**_NOISE_ONLY, "cancel_prob": 0.3}, (32, 64)),
}


def measure(markets: int, engine: str) -> dict[str, Any]:
    """Measure every order in every preset; returns every figure of the page."""
    common: dict[str, Any] = {"num_markets": markets, "seed": SEED, "engine": engine}
    found = {}
    for name in tqdm(PRESETS, unit="preset"):
        pace, observed = PACE[name], observe(name, markets, engine)
        fast = [max(1, round(pace * LONG * times)) for times in FASTER]
        long = [causal_impact(name, [pace * pieces], (0, LONG), pieces=pieces, **common) for pieces in LONGER]
        found[name] = {
            "observed": observed,
            "alike": causal_impact(name, [observed["size"]], (0, 1, AFTER), **common)._asdict(),
            "single": causal_impact(name, SIZES, LAGS, **common)._asdict(),
            "sold": causal_impact(name, [SIZES[-2]], (0, 1, AFTER), side="sell", **common)._asdict(),
            "fast": causal_impact(name, fast, (0, 1, AFTER, 100), pieces=LONG, **common)._asdict(),
            "long": [each._asdict() for each in long],
            "events": _events(name, common),
        }
    held = {
        label: causal_impact(MarketConfig.preset(preset, **changes), sizes, (0, 1, 20, 100), **common)._asdict()
        for label, (preset, changes, sizes) in tqdm(HELD_BY.items(), unit="market")
    }
    realistic = MarketConfig.preset("realistic")
    standing = block_impact(realistic, block=WHOLE, per_auction=WHOLE, after=1, num_markets=markets, engine=engine)
    taken = causal_impact(realistic, [WHOLE], [0], **common)
    whole = {
        "size": WHOLE,
        "standing": [standing.impact_cost, standing.filled],
        "taken": [taken.cost[0], taken.filled[0]],
    }
    setting = {
        "markets": markets,
        "intervals": INTERVALS,
        "after": AFTER,
        "long": LONG,
        "pace": PACE,
        "faster": FASTER,
    }
    return {"setting": setting, "found": found, "held": held, "whole": whole}


def observe(preset: str, markets: int, engine: str) -> dict[str, Any]:
    """Return what prices do after takers' net flow, in its direction: nobody's orders are added.

    `mid` is the statistic `response`, after 1 interval and after `AFTER`. It is the sum of what the fundamental price
    did in the same time, of how far it was already ahead of the mid before, and of how far the mid is off afterwards.
    """
    simulator = Simulator(MarketConfig.preset(preset), markets, engine=engine, seed=OBSERVED_SEED)
    simulator.run(100, progress=False)
    run = simulator.run(INTERVALS, ("mid2", "fundamental", "signed_volume", "volume"), False)
    mid, value = run["mid2"].double() / 2, run["fundamental"].double()
    sign = run["signed_volume"].sign().double()

    def towards(move: torch.Tensor) -> Mean:
        """Return the mean of a move, of the intervals from the second on, in the direction of their takers."""
        side = sign[:, 1 : move.shape[1] + 1]
        return mean_and_error((side * move).sum(1) / side.abs().sum(1))

    def moved(price: torch.Tensor, lag: int) -> torch.Tensor:
        return price[:, lag:] - price[:, :-lag]

    flow = run["signed_volume"].double().abs()
    return {
        "size": max(1, round((flow.sum() / (flow > 0).sum()).item())),
        "volume": mean_and_error(run["volume"].double().mean(1)),
        "mid": [towards(moved(mid, lag)) for lag in (1, AFTER)],
        "fundamental": towards(moved(value, AFTER)),
        "ahead": towards((value - mid)[:, :-AFTER]),
        "off": towards((mid - value)[:, AFTER:]),
    }


def _events(name: str, common: dict[str, Any]) -> dict[str, Any] | None:
    """Return how a market order's impact goes event by event, over two intervals; None without a continuous market."""
    config = MarketConfig.preset(name)
    if not config.is_continuous:
        return None
    interval = int(config.interval or np.max(config.num_agents))
    lags = range(1, 2 * interval + 1)
    found = causal_impact(config.replace(interval=1), [PACE[name]], lags, warmup=100 * interval, **common)
    return {"interval": interval, "size": PACE[name], "path": found.moved[0]}


def draw(folder: Path, found: Any) -> None:
    """Write the pictures: impact by size, and by time."""
    presets = found["found"]
    plots.save_panels(
        folder / "price_impact_size.png",
        [
            lambda axes: _by_size(axes, presets, "single", "Right after one market order", "units"),
            lambda axes: _by_size(axes, presets, "fast", f"After metaorders of {LONG} intervals", "units"),
        ],
        size=(6.0, 4.1),
    )
    plots.save_panels(
        folder / "price_impact_time.png",
        [
            lambda axes: _by_event(axes, presets),
            lambda axes: _by_interval(axes, presets),
        ],
        size=(6.0, 4.1),
    )


_COLOURS = dict(zip(PRESETS, ("#555555", "#1f6fb4", "#2e7d4f", "#c8452f", "#7a4fa3"), strict=True))


def _by_size(axes: Any, presets: Any, kind: str, title: str, unit: str) -> None:
    for name, figures in presets.items():
        one = figures[kind]
        shown = [
            (size, Mean(*moved[0]))
            for size, moved, filled in zip(one["sizes"], one["moved"], one["filled"], strict=True)
            if filled[0] >= 0.95 and moved[0][0] > 0
        ]
        if shown:
            plots.means(axes, [size for size, _ in shown], [mean for _, mean in shown], _COLOURS[name], name, lw=1.4)
    axes.set(title=title, xlabel=unit, ylabel="move of the mid, ticks", xscale="log", yscale="log")
    plots.plain_ticks(axes.xaxis)
    axes.legend(fontsize=8)


def _by_event(axes: Any, presets: Any) -> None:
    for name, figures in presets.items():
        if (events := figures["events"]) is None:
            continue
        path = [Mean(*value) for value in events["path"]]
        mean, half = np.array([each.mean for each in path]), np.array([each.interval() for each in path])
        at = np.arange(1, len(mean) + 1) / events["interval"]
        axes.plot(at, mean, color=_COLOURS[name], lw=1.4, label=f"{name}: {events['size']} units")
        axes.fill_between(at, mean - half, mean + half, color=_COLOURS[name], alpha=0.15, lw=0)
    axes.axhline(0, color=plots.GREY, lw=0.8)
    axes.set(
        title="One market order, event by event", xlabel="intervals since it came", ylabel="move of the mid, ticks"
    )
    axes.legend(fontsize=8)


def _by_interval(axes: Any, presets: Any) -> None:
    for name, figures in presets.items():
        one = figures["single"]
        moved = [Mean(*value) for value in one["moved"][one["sizes"].index(8)]]
        plots.means(axes, one["lags"][1:], moved[1:], _COLOURS[name], name, lw=1.4)
    axes.axhline(0, color=plots.GREY, lw=0.8)
    axes.set(title="8 units, interval by interval", xlabel="intervals since", ylabel="move of the mid, ticks")
    axes.set_xscale("log")
    plots.plain_ticks(axes.xaxis)
    axes.legend(fontsize=8)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the page."""
    options = page_parser(NAME, __doc__, 16384, "markets, the same for every order").parse_args(arguments)
    make_page(options, NAME, lambda: measure(options.markets, options.engine), draw, indent=None)


if __name__ == "__main__":
    sys.exit(exit_code(main))
