"""The pictures of a preset's page: the market, and what a scripted maker earns; `trading_preset.py` calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env import statistics
from kineticsim_env.config import MarketConfig
from kineticsim_env.simulator import Simulator
from kineticsim_env.studies import plots
from kineticsim_env.studies.trading_preset import AUCTIONS, SEED, WARMUP, Game


def draw(folder: Path, name: str, config: MarketConfig, games: Mapping[tuple[float, int], Game], engine: str) -> None:
    """Write the two pictures of the page, `name`_market.png and `name`_maker.png."""
    skews, halves = sorted({skew for skew, _ in games}), sorted({half for _, half in games})
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
            lambda axes: plots.return_histogram(axes, statistics.returns(host["last_price"]), unit),
            lambda axes: mean_book(axes, bid, ask, simulator.mid2.cpu().numpy() - 2 * origin),
        ],
    )

    def lines(measure: Any, skews: Sequence[float] = skews) -> dict[str, tuple[list[float], list[float]]]:
        found = {skew: [measure(games[skew, half]) for half in halves] for skew in skews}
        return {
            f"skew {skew:g}": ([value.mean for value in values], [value.interval() for value in values])
            for skew, values in found.items()
        }

    fills = {
        "bought": lines(lambda game: statistics.mean_and_error(game.bought), (0.0,))["skew 0"],
        "sold": lines(lambda game: statistics.mean_and_error(game.sold), (0.0,))["skew 0"],
    }
    half = "half-spread, ticks"
    pnl = lines(lambda game: statistics.mean_and_error(game.pnl))
    risk = lines(lambda game: statistics.deviation_and_error(game.pnl))
    held = lines(lambda game: statistics.mean_and_error(game.held))
    plots.save_panels(
        folder / f"{name}_maker.png",
        [
            lambda axes: curves(
                axes, halves, fills, "Fills without skew", half, f"units per {unit}", ("#b04a35", "#8fb8de")
            ),
            lambda axes: curves(axes, halves, pnl, "Liquidated PnL", half, "mean, ticks x units"),
            lambda axes: curves(axes, halves, risk, "Risk", half, "sd over markets, ticks x units"),
            lambda axes: curves(axes, halves, held, "Inventory", half, "mean of |inventory|, units"),
        ],
    )


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

    Args:
        axes: Where to.
        bid: Resting bids `[M, L]`.
        ask: Resting asks.
        mid2: Twice the mid on the grid, `[M]`.
        reach: How many ticks to each side.
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
