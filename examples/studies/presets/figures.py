"""The pictures of README.md, from the figures of the commands that call this: `trading.py` and others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from examples.studies.presets.makers import AUCTIONS, SEED, WARMUP
from kineticsim_env import plots, statistics
from kineticsim_env.config import MarketConfig
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics import Mean

HALF, MONEY = "half-spread, ticks", "mean, ticks x units"
Line = tuple[list[float], list[float]]  # values and half-widths of their 95% intervals


def draw_makers(folder: Path, name: str, found: Mapping[str, Any], engine: str) -> None:
    """Write the two pictures of a preset in which makers were played, `name`_market.png and `name`_maker.png."""
    config = MarketConfig.preset(name)
    unit = plots.unit_of_time(config)
    simulator = Simulator(config, 512, engine=engine, seed=SEED)
    simulator.run(WARMUP, progress=False)
    series = simulator.run(AUCTIONS, ("last_price", "fundamental", "volume"), progress=False)
    host = {name: values.cpu().numpy() for name, values in series.items()}
    bid, ask, origin = (value.cpu().numpy() for value in (simulator.bid, simulator.ask, simulator.price_origin))
    books = [
        lambda axes, m=market: plots.book(axes, bid[m], ask[m], int(origin[m]), f"Book at the end, market {m}")
        for market in (0, 1)
    ]
    plots.save_panels(
        folder / f"{name}_market.png",
        [
            lambda axes: plots.price_paths(axes, host["last_price"], host["fundamental"], 2, unit),
            lambda axes: plots.traded_volume(axes, host["volume"], unit),
            *books,
            lambda axes: plots.return_histogram(axes, statistics.arrays.returns(host["last_price"]), unit),
            lambda axes: mean_book(axes, bid, ask, simulator.mid2.cpu().numpy() - 2 * origin),
        ],
    )
    rows = found["makers"][name]
    halves = sorted({row["half"] for row in rows})
    skews = {f"skew {row['skew']:g}": [each for each in rows if each["skew"] == row["skew"]] for row in rows}
    sides = {side: _line(row[side] for row in skews["skew 0"]) for side in ("bought", "sold")}

    def panel(what: str, title: str, ylabel: str) -> Any:
        lines = {skew: _line(row[what] for row in each) for skew, each in skews.items()}
        return lambda axes: curves(axes, halves, lines, title, HALF, ylabel)

    plots.save_panels(
        folder / f"{name}_maker.png",
        [
            lambda axes: curves(
                axes, halves, sides, "Fills without skew", HALF, f"units per {unit}", ("#b04a35", "#8fb8de")
            ),
            panel("pnl", "Liquidated PnL", MONEY),
            panel("sd", "Risk", "sd over markets, ticks x units"),
            panel("held", "Inventory", "mean of |inventory|, units"),
        ],
    )


def draw_time(folder: Path, found: Mapping[str, Any]) -> None:
    """Write what latency costs, and what a place in a queue is worth, of the preset `"continuous"`."""
    late, places = found["late"], found["places"]
    halves = [row["half"] for row in places]
    latencies = {
        f"{events} events late": _line(row["pnl"] for row in late if row["events"] == events)
        for events in sorted({row["events"] for row in late})
    }
    patient = {
        said: _line(row[what] for row in places) for said, what in (("keeps its place", "kept"), ("loses it", "lost"))
    }
    worth = {"liquidated PnL": _line(row["worth"] for row in places)}
    units = {"fills": _line(row["units"] for row in places)}
    paired = "kept less lost, paired"
    plots.save_panels(
        folder / "continuous_time.png",
        [
            lambda axes: curves(axes, halves, latencies, "Quotes that arrive late", HALF, MONEY),
            lambda axes: curves(axes, halves, patient, "Patient quotes", HALF, MONEY, (plots.BUY, plots.SELL)),
            lambda axes: curves(axes, halves, worth, "What a place is worth: PnL", HALF, paired),
            lambda axes: curves(
                axes, halves, units, "What a place is worth: fills", HALF, f"{paired}, units per interval"
            ),
        ],
    )


def draw_default(folder: Path, found: Mapping[str, Any]) -> None:
    """Write the picture of the preset `"news"`: a path with its news, makers by half-spread, the mid after a fill."""
    preset, figures = MarketConfig.preset("news"), found["measured"]["news"]["found"]
    simulator = Simulator(preset, 1, engine="cpu", seed=SEED)
    simulator.run(WARMUP, progress=False)
    price, fundamental, news = [], [], []
    for _ in range(AUCTIONS):
        series = simulator.run(1, ("mid2", "fundamental"), progress=False)
        price.append(float(series["mid2"][0, 0]) / 2)
        fundamental.append(float(series["fundamental"][0, 0]))
        news.append(preset.regimes[int(simulator.tensors["regime"][0])] == preset.regimes[-1])

    def path_of(axes: Any) -> None:
        time = np.arange(1, AUCTIONS + 1)
        axes.fill_between(time, 0, 1, where=news, transform=axes.get_xaxis_transform(), color="#f0d9b5", label="news")
        axes.plot(time, fundamental, color="#0d4377", lw=1.5, label="fundamental")
        axes.plot(time, price, color="#8fb8de", lw=0.9, label="mid")
        axes.set(title="A market", xlabel="interval", ylabel="ticks")
        axes.legend(fontsize=8, ncols=3)

    def after_fills(axes: Any) -> None:
        axes.axhline(figures["earned_per_unit"], color=plots.BUY, label="spread earned")
        axes.plot(range(len(figures["adverse_per_unit"])), figures["adverse_per_unit"], "o-", ms=3, color=plots.SELL)
        axes.set(title="The mid after a fill", xlabel="intervals after it", ylabel="ticks against the maker")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8)

    by_skew: dict[str, dict[int, Mapping[str, Any]]] = {}
    for name, game in figures["makers"].items():  # such as "2 ticks, skew 0.06"
        half, _, skew = name.partition(" ticks")
        by_skew.setdefault(skew.removeprefix(", ") or "skew 0", {})[int(half)] = game
    plain = by_skew["skew 0"]
    pnl = {skew: _pairs([game["pnl"] for game in games.values()]) for skew, games in by_skew.items()}
    made = {}
    for said, loud in (("quiet", False), ("news", True)):
        places = [i for i, regime in enumerate(preset.regimes) if (regime == preset.regimes[-1]) == loud]
        sums = [[sum(game["by_regime"][i][part] for i in places) for part in (0, 1)] for game in plain.values()]
        made[said] = _pairs(sums)
    colours = (plots.BUY, plots.SELL)
    plots.save_panels(
        folder / "default_market.png",
        [
            path_of,
            after_fills,
            lambda axes: curves(axes, list(plain), pnl, "Liquidated PnL", HALF, MONEY),
            lambda axes: curves(axes, list(plain), made, "Where it is made", HALF, MONEY, colours),
        ],
    )


def _line(values: Iterable[Any]) -> Line:
    """Return the line of means with their errors, as JSON keeps them."""
    means = [Mean(*value) for value in values]
    return [mean.mean for mean in means], [mean.interval() for mean in means]


def _pairs(values: Sequence[Sequence[float]]) -> Line:
    """Return the line of means with half-widths."""
    return [value[0] for value in values], [value[1] for value in values]


def curves(
    axes: Any,
    x: Sequence[float],
    lines: Mapping[str, tuple[Any, Any]],
    title: str,
    xlabel: str,
    ylabel: str,
    colours: Sequence[str] = ("#444444", "#8fb8de", "#1f6fb4", "#0d4377", "#d98a1c", "#c8452f"),
) -> None:
    """Draw named curves, each a pair of values and half-widths of their 95% intervals; earlier ones are wider."""
    width = 1.2 + 0.25 * len(lines)
    for (name, (values, widths)), colour in zip(lines.items(), colours, strict=False):
        axes.errorbar(x, values, yerr=widths, marker="o", ms=2 + width, lw=width, capsize=2, color=colour, label=name)
        width -= 0.25
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axes.set_xticks(list(x))
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.25 * (high - low))  # room for the legend
    axes.legend(fontsize=8, ncols=min(3, len(lines)), loc="upper center")


def mean_book(axes: Any, bid: np.ndarray, ask: np.ndarray, mid2: np.ndarray, reach: int = 24) -> None:
    """Draw the mean over markets of the resting quantity by distance from the mid.

    Books are `[M, L]`; `mid2` is twice the mid on the grid, `[M]`; `reach` is in ticks, to each side.
    """
    distance = np.arange(-reach, reach + 1)
    for side, name, colour, shift in ((bid, "bids", plots.BUY, -0.22), (ask, "asks", plots.SELL, 0.22)):
        middle = (mid2 >> 1) if name == "bids" else ((mid2 + 1) >> 1)  # a half tick counts as in a maker's quotes
        ticks = middle[:, None] + distance[None, :]
        inside = (ticks >= 0) & (ticks < side.shape[1])
        quantity = np.take_along_axis(side, np.clip(ticks, 0, side.shape[1] - 1), axis=1)
        mean = np.where(inside, quantity, 0).mean(0)
        axes.bar(distance + shift, mean, width=0.44, color=colour, label=name)
    axes.set(
        title=f"Mean book at the end, {len(bid):,} markets",
        xlabel="distance from the mid, ticks",
        ylabel="resting quantity, units",
    )
    axes.legend(fontsize=8)
