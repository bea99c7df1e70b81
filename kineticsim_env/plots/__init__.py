"""Pictures, drawn with matplotlib (`pip install matplotlib`), which is loaded when first needed.

Here is what all have in common, and the picture of a run; commands, the calibration, studies and examples call it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.files import replacing
from kineticsim_env.runtime.values import load_optional
from kineticsim_env.statistics import Mean

BUY, SELL, GREY = "#1f6fb4", "#c8452f", "#555555"
_STYLE: dict[Any, Any] = dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False)
_STYLE["axes.titlesize"] = 11


def require_matplotlib() -> None:
    """Raise `ModuleNotFoundError` with the command that installs matplotlib, if it is missing."""
    load_optional("matplotlib.figure", "pictures need matplotlib: pip install matplotlib")


def check_picture(option: str, path: str) -> None:
    """Refuse a picture that matplotlib cannot draw, or no matplotlib; without an ending it is a PNG."""
    require_matplotlib()
    from matplotlib.backend_bases import FigureCanvasBase

    ending, kinds = Path(path).suffix[1:].lower(), FigureCanvasBase.get_supported_filetypes()
    if ending and ending not in kinds:
        raise ValueError(f"{option}: expected names that end in .{', .'.join(sorted(kinds))}, got {path!r}")


def means(axes: Any, x: Any, found: Sequence[Mean], colour: str, label: str, **line: Any) -> None:
    """Draw means against `x`, joined, each with its 95% interval; `line` is passed on to matplotlib."""
    middle, reach = [value.mean for value in found], [value.interval() for value in found]
    axes.errorbar(x, middle, yerr=reach, marker="o", ms=4, capsize=2, color=colour, label=label, **line)


def plain_ticks(axis: Any) -> None:
    """Label a logarithmic axis at 1, 2 and 5 of each power of ten, as plain numbers: others overlap."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    if axis.get_scale() == "log":
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_locator(NullLocator())


def save_panels(path: Any, draw: Sequence[Any], columns: int = 2, size: tuple[float, float] = (5.4, 3.5)) -> None:
    """Write a picture of several panels; each function in `draw` is given its axes.

    Drawn without pyplot, so that no window opens and the caller's settings stay as they are.
    """
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    rows = -(-len(draw) // columns)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for panel, function in zip(panels, draw, strict=False):
            function(panel)
        for panel in panels[len(draw) :]:
            panel.set_visible(False)
        with replacing(path) as part:
            figure.savefig(part, dpi=130, format=part.suffix[1:].lower() or "png")


def unit_of_time(config: MarketConfig) -> str:
    """Return what one column of a series is: an auction, or under continuous trading an interval."""
    return "interval" if config.is_continuous else "auction"


def price_paths(
    axes: Any, price: np.ndarray, fundamental: np.ndarray | None, markets: int = 3, unit: str = "auction"
) -> None:
    """Draw the last prices of the first markets, and their fundamentals behind them; `[M, S]` each, S of a unit.

    Markets of an order flow have no fundamental: None.
    """
    auctions = range(1, price.shape[1] + 1)
    shades = (("#8fb8de", "#0d4377"), ("#f0bd7d", "#9a5a05"), ("#a3d1ab", "#1f5f2d"))
    for market, (light, dark) in zip(range(min(markets, len(price))), shades, strict=False):
        axes.step(auctions, price[market], where="mid", lw=0.8, color=light, label=f"market {market}")
        if fundamental is not None:
            axes.plot(auctions, fundamental[market], lw=1.5, color=dark, label="its fundamental")
    axes.set(title="Price paths", xlabel=unit, ylabel="last price, ticks")
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.22 * (high - low), high)  # room for the legend
    axes.legend(fontsize=8, ncols=min(markets, len(price)), loc="lower left")


def traded_volume(axes: Any, volume: np.ndarray, unit: str = "auction") -> None:
    """Draw the volume of market 0 and the mean over markets; `[M, S]`, S of a unit."""
    auctions = np.arange(1, volume.shape[1] + 1)
    edges = np.linspace(0, len(auctions), min(150, len(auctions)) + 1).astype(int)  # at most 150 bars
    bars = np.add.reduceat(volume[0].astype(np.int64), edges[:-1]) / np.diff(edges)
    axes.bar(auctions[edges[:-1]], bars, width=np.diff(edges), align="edge", color="#b9c4cf", label="market 0")
    if len(volume) > 1:
        mean = np.add.reduceat(volume.mean(0), edges[:-1]) / np.diff(edges)
        axes.plot(auctions[edges[:-1]], mean, color=GREY, lw=1.2, label=f"mean of {len(volume):,} markets")
    axes.set(title="Volume", xlabel=unit, ylabel=f"units per {unit}", ylim=(0, 1.3 * max(bars.max(), 1)))
    axes.legend(fontsize=8)


def book(axes: Any, bid: np.ndarray, ask: np.ndarray, origin: int, title: str = "Book at the end, market 0") -> None:
    """Draw one market's resting quantities, `[L]` each, where there are any; `origin` is the price of tick 0."""
    filled = np.flatnonzero(bid + ask)
    low, high = (filled[0] - 2, filled[-1] + 2) if len(filled) else (0, len(bid) - 1)
    low, high = max(low, 0), min(high, len(bid) - 1)
    prices = np.arange(low, high + 1) + origin
    axes.bar(prices, bid[low : high + 1], color=BUY, label="bids")
    axes.bar(prices, ask[low : high + 1], color=SELL, label="asks")
    axes.set(title=title, xlabel="price, ticks", ylabel="resting quantity, units")
    axes.legend(fontsize=8)


def return_histogram(axes: Any, changes: np.ndarray, unit: str = "auction") -> None:
    """Draw how often each change of the price occurs, with the normal density of the same mean and deviation."""
    counts = np.bincount((changes - changes.min()).ravel()) if changes.size else np.zeros(1)
    values = np.arange(len(counts)) + (changes.min() if changes.size else 0)
    total = max(counts.sum(), 1)
    mean = float((values * counts).sum() / total)
    deviation = float(np.sqrt(((values - mean) ** 2 * counts).sum() / total))
    shown = counts > 0
    axes.semilogy(values[shown], counts[shown] / total, "o", ms=3, color=BUY, label="all markets")
    if deviation > 0:
        at = np.linspace(values[shown].min(), values[shown].max(), 400)
        density = np.exp(-0.5 * ((at - mean) / deviation) ** 2) / (deviation * np.sqrt(2 * np.pi))
        axes.semilogy(at, density, color=GREY, lw=1.2, label=f"normal, deviation {deviation:.2f}")
        axes.set_ylim(bottom=0.3 / total, top=2.0)
    axes.set(title="Returns", xlabel=f"change of the last price per {unit}, ticks", ylabel=f"share of {unit}s")
    axes.legend(fontsize=8)


def ensemble(
    path: Any, series: Mapping[str, np.ndarray], bid: np.ndarray, ask: np.ndarray, origin: int, unit: str = "auction"
) -> None:
    """Write the picture of a run: price paths, volume, the final book of market 0, and the returns.

    The series are `last_price`, `volume` and, where there is one, `fundamental`, int32 `[M, S]`, S of a unit; the rest
    is as in `book`.
    """
    price = np.asarray(series["last_price"])
    changes = np.diff(price[: max(1, 5_000_000 // max(1, price.shape[1]))].astype(np.int64), axis=1)
    save_panels(
        path,
        [
            lambda axes: price_paths(axes, price, series.get("fundamental"), unit=unit),
            lambda axes: traded_volume(axes, np.asarray(series["volume"]), unit),
            lambda axes: book(axes, bid, ask, origin),
            lambda axes: return_histogram(axes, changes, unit),
        ],
    )
