"""The pictures of README.md; `__main__.py` measures what they show."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from examples.studies.mechanisms.study import CONTINUOUS, SEED, market
from kineticsim_env import plots, statistics
from kineticsim_env.simulator import Simulator

SHOWN = (CONTINUOUS, 5, 20, 100)  # rules of the first two pictures
BEGIN, LENGTH = 1000, 600  # events that these show, of market 0
_DARK, _ORANGE = "#0d4377", "#d98a1c"


def rule_name(interval: int | None) -> str:
    """Return a rule in words."""
    if interval is CONTINUOUS:
        return "continuous trading"
    return f"call auctions, interval {interval:,}"


def rule_key(interval: int | None) -> str:
    """Return a rule as the results have it."""
    return "continuous" if interval is CONTINUOUS else str(interval)


def draw(folder: Path, engine: str, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the pictures; `found` has means of `Measures` of each rule, by the name of the fundamental price."""
    runs = {interval: _run(interval, engine) for interval in SHOWN}
    fundamental = runs[CONTINUOUS]["fundamental"]
    prices = [run["last_price"] for run in runs.values()]
    low, high = min(map(np.min, prices)) - 2, max(map(np.max, prices)) + 2
    plots.save_panels(
        folder / "mechanisms_paths.png",
        [lambda axes, i=interval: _path(axes, i, runs[i], fundamental, (low, high)) for interval in SHOWN],
    )
    shown = _reach(list(runs.values()))
    plots.save_panels(
        folder / "mechanisms_books.png",
        [lambda axes, i=interval: _book(axes, i, runs[i], shown) for interval in SHOWN],
    )
    plots.save_panels(
        folder / "mechanisms_interval.png",
        [
            lambda axes: _curves(axes, found, "error", "Pricing error, all events alike", "ticks"),
            lambda axes: _curves(axes, found, "volatility", "Volatility over 1,000 events", "ticks"),
            lambda axes: _curves(axes, found, "spread", "Spread of the book", "ticks"),
            lambda axes: _curves(axes, found, "volume", "Volume", "units per 100 events"),
        ],
        size=(5.8, 3.9),
    )


def _run(interval: int | None, engine: str) -> dict[str, Any]:
    """Return one market's series over the events that are shown and the 100 before, and its book after them."""
    simulator = Simulator(market(interval), 1, engine=engine, seed=SEED)
    length = simulator.config.interval
    assert length
    simulator.run((BEGIN - 100) // length, progress=False)
    series = simulator.run((LENGTH + 100) // length, ("last_price", "fundamental"), progress=False)
    host = {name: part[0].cpu().numpy() for name, part in series.items()}
    sides = {"bid": simulator.bid[0].cpu().numpy(), "ask": simulator.ask[0].cpu().numpy()}
    return host | sides | {"origin": int(simulator.price_origin[0]), "length": length}


def _path(
    axes: Any, interval: int | None, run: Mapping[str, Any], fundamental: np.ndarray, prices: tuple[int, int]
) -> None:
    times = BEGIN - 100 + run["length"] * np.arange(1, len(run["last_price"]) + 1)
    axes.step(times, run["last_price"], where="post", lw=1.0, color="#8fb8de", label="last price")
    if interval is not CONTINUOUS and interval > 5:
        axes.plot(times, run["last_price"], "o", ms=4, color=plots.BUY, label="auction")
    events = BEGIN - 100 + np.arange(1, len(fundamental) + 1)
    axes.step(events, fundamental, where="post", lw=1.5, color=_ORANGE, label="fundamental price")
    name = rule_name(interval)
    axes.set(title=name[0].upper() + name[1:], xlabel="event", ylabel="price, ticks")
    axes.set_xlim(BEGIN, BEGIN + LENGTH)
    low, high = prices
    axes.set_ylim(low, high + 0.2 * (high - low))  # room for the legend
    axes.legend(fontsize=8, ncols=3, loc="upper left")


def _reach(runs: list[dict[str, Any]]) -> tuple[int, int, int]:
    """Return the lowest and the highest price at which anything rests under any rule, and the most that does."""
    at = [np.flatnonzero(run["bid"] + run["ask"]) + run["origin"] for run in runs]
    most = max(int(np.maximum(run["bid"], run["ask"]).max()) for run in runs)
    return min(part.min() for part in at) - 2, max(part.max() for part in at) + 2, most


def _book(axes: Any, interval: int | None, run: Mapping[str, Any], shown: tuple[int, int, int]) -> None:
    prices = np.arange(len(run["bid"])) + run["origin"]
    axes.bar(prices, run["bid"], color=plots.BUY, label="bids")
    axes.bar(prices, run["ask"], color=plots.SELL, label="asks")
    low, high, most = shown
    axes.vlines(run["fundamental"][-1], 0, most, color=_ORANGE, lw=1.5, label="fundamental price")
    name = rule_name(interval)
    axes.set(title=name[0].upper() + name[1:], xlabel="price, ticks", ylabel="resting quantity, units")
    axes.set_xlim(low, high)
    axes.set_ylim(0, 1.2 * most)  # room for the legend
    axes.legend(fontsize=8, ncols=3, loc="upper left")


def _curves(axes: Any, found: Mapping[str, Mapping[str, Any]], name: str, title: str, unit: str) -> None:
    """Draw a statistic over the interval, and that of continuous trading as a band across."""
    for (label, rules), colour in zip(found.items(), (_DARK, _ORANGE), strict=True):
        values = {rule: statistics.Mean(*measures[name]) for rule, measures in rules.items()}
        flat = values.pop(rule_key(CONTINUOUS))
        intervals = [int(rule) for rule in values]
        plots.means(axes, intervals, list(values.values()), colour, f"calls, {label}")
        axes.axhline(flat.mean, ls="--", lw=1.2, color=colour, label=f"continuous, {label}")
        axes.axhspan(flat.mean - flat.interval(), flat.mean + flat.interval(), color=colour, alpha=0.15, lw=0)
    axes.set(title=title, xlabel="interval, events", ylabel=unit, xscale="log")
    axes.set_xticks(intervals, [f"{interval:,}" for interval in intervals], fontsize=8)
    axes.minorticks_off()
    axes.set_ylim(bottom=0, top=1.32 * axes.get_ylim()[1])  # room for the legend
    axes.legend(fontsize=8, ncols=2, loc="upper center")
