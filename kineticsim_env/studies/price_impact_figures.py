"""The pictures of price impact: those of docs/price_impact.md, and the one of `python -m kineticsim_env impact`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env.studies import plots

_GREEN = "#2e7d4f"


def draw_preset(
    path: Path, kinds: Mapping[str, Sequence[Any]], fits: Mapping[str, Any], middle: tuple[int, int]
) -> None:
    """Write the picture of one preset: paths, impact by size, cost by participation, and what pairing saves.

    Args:
        path: Where the PNG goes.
        kinds: Measured orders by sweep: by_length, by_rate, by_speed.
        fits: Their power laws, or None.
        middle: (block, units an auction) of the order whose arms are compared.
    """
    chosen = next(point for point in kinds["by_rate"] if (point.impact.block, point.impact.per_auction) == middle)
    plots.save_panels(
        path,
        [
            lambda axes: paths(axes, kinds["by_length"]),
            lambda axes: _by_size(axes, kinds, fits),
            lambda axes: _by_participation(axes, kinds["by_speed"]),
            lambda axes: _pairing(axes, chosen),
        ],
        size=(6.0, 4.1),
    )


def draw_orders(path: Path, points: Sequence[Any], fit: Any) -> None:
    """Write the picture of a few orders: their paths, and impact and cost by size."""

    def sizes(axes: Any) -> None:
        blocks = [point.impact.block for point in points]
        for name, label, colour in (
            ("at_end", "impact on the mid where the order ends", plots.BUY),
            ("impact_cost", "cost against the other arm's mid", plots.SELL),
            ("permanent", "impact that is left", plots.GREY),
        ):
            _means(axes, blocks, points, name, label, colour)
        if fit:
            _power(axes, fit, blocks, plots.BUY)
        axes.axhline(0, color=plots.GREY, lw=0.8)
        axes.set(title="By block size", xlabel="block, units", ylabel="ticks (a unit)", xscale="log")
        _plain_ticks(axes.xaxis)
        axes.legend(fontsize=8)

    plots.save_panels(path, [lambda axes: paths(axes, points), sizes], size=(6.0, 4.1))


def paths(axes: Any, points: Sequence[Any]) -> None:
    """Draw the mean impact after each auction, one line an order, darker with its size; dots where orders end."""
    from matplotlib import colormaps

    shades = colormaps["viridis_r"](np.linspace(0.08, 0.95, len(points)))
    axes.axhline(0, color=plots.GREY, lw=0.8)
    for point, shade in zip(points, shades, strict=True):
        found = point.impact
        auctions = np.arange(len(found.path))
        axes.fill_between(
            auctions,
            found.path - found.path_interval,
            found.path + found.path_interval,
            color=shade,
            alpha=0.18,
            lw=0,
        )
        label = f"{found.block:,} units in {found.duration}"
        axes.plot(auctions, found.path, color=shade, lw=1.5, label=label)
        axes.plot(found.duration, found.path[found.duration], "o", ms=5, color=shade)
    rates = {point.impact.per_auction for point in points}
    rate = f", {rates.pop()} units an auction" if len(rates) == 1 else ""
    axes.set(
        title=f"Impact on the mid{rate}", xlabel="auctions since arrival (dot: the order ends)", ylabel="impact, ticks"
    )
    axes.legend(fontsize=8, title="block, auctions", title_fontsize=8, loc="upper right")
    longest = max(point.impact.duration for point in points)
    axes.set_xlim(-0.02 * longest, 1.35 * longest + 45)


def _means(axes: Any, x: Sequence[float], points: Sequence[Any], name: str, label: str, colour: str) -> None:
    found = [getattr(point.impact, name) for point in points]
    axes.errorbar(
        x,
        [value.mean for value in found],
        yerr=[value.interval() for value in found],
        marker="o",
        ms=4,
        capsize=2,
        lw=1.4,
        color=colour,
        label=label,
    )


def _power(axes: Any, fit: Any, blocks: Sequence[int], colour: str) -> None:
    at = np.geomspace(min(blocks), max(blocks), 50)
    label = f"power {fit.exponent:.2f} [{fit.low:.2f}, {fit.high:.2f}]"
    axes.plot(at, fit.factor * at**fit.exponent, ls="--", lw=1.2, color=colour, label=label)


def _by_size(axes: Any, kinds: Mapping[str, Sequence[Any]], fits: Mapping[str, Any]) -> None:
    for kind, colour, text in (("by_rate", plots.SELL, "in {} auctions"), ("by_length", plots.BUY, "at {} an auction")):
        points = kinds[kind]
        first, fit = points[0].impact, fits[kind]
        label = text.format(first.duration if kind == "by_rate" else first.per_auction)
        if fit:
            label += f" (power {fit.exponent:.2f} [{fit.low:.2f}, {fit.high:.2f}])"
        _means(axes, [point.impact.block for point in points], points, "at_end", label, colour)
    axes.set(
        title="Impact where the order ends", xlabel="block, units", ylabel="impact, ticks", xscale="log", yscale="log"
    )
    limits = axes.get_ylim()
    start = kinds["by_rate"][0].impact
    at = np.geomspace(start.block, max(point.impact.block for point in kinds["by_length"]), 50)
    for power, style, label in ((1.0, ":", "linear"), (0.5, "--", "square root")):
        line = start.at_end.mean * (at / start.block) ** power
        axes.plot(at, line, ls=style, lw=1.0, color="#999999", label=label, zorder=0)
    axes.set_ylim(limits[0], limits[1] * 1.9)  # room for the legend
    _plain_ticks(axes.xaxis)
    _plain_ticks(axes.yaxis)
    axes.legend(fontsize=8, loc="upper left")


def _plain_ticks(axis: Any) -> None:
    """Write a logarithmic axis in plain numbers, at 1, 2 and 5."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _by_participation(axes: Any, points: Sequence[Any]) -> None:
    share = [100 * point.impact.participation.mean for point in points]
    _means(axes, share, points, "at_end", "impact on the mid where it ends", plots.BUY)
    _means(axes, share, points, "shortfall", "implementation shortfall", "#e8a79b")
    _means(axes, share, points, "impact_cost", "cost against the other arm's mid", plots.SELL)
    _means(axes, share, points, "permanent", "impact that is left", plots.GREY)
    top = axes.get_ylim()[1]
    for point, at in zip(points, share, strict=True):
        axes.annotate(str(point.impact.per_auction), (at, top), ha="center", va="top", fontsize=7, color=plots.GREY)
    axes.set_ylim(top=top)
    axes.set(
        title=f"{points[0].impact.block} units, ever faster (top: units an auction)",
        xlabel="own share of the volume while the order lasts, %",
        ylabel="ticks (a unit)",
    )
    rising = points[-1].impact.at_end.mean > 2 * points[len(points) // 2].impact.at_end.mean
    axes.legend(
        fontsize=8, **({"loc": "upper left", "bbox_to_anchor": (0.0, 0.94)} if rising else {"loc": (0.5, 0.12)})
    )


def _pairing(axes: Any, point: Any) -> None:
    found = point.impact
    auctions = np.arange(1, len(point.ratios) + 1)
    axes.axvspan(0, found.duration, color="#eeeeee", label="the order lasts")
    axes.plot(auctions, 100 * point.ratios, color=plots.BUY, lw=1.5, label="variance, paired / unpaired")
    axes.plot(auctions, 100 * point.apart, color=_GREEN, lw=1.5, label="markets whose mid is not the other arm's")
    axes.set(
        title=f"What pairing saves: {found.block} units, {found.per_auction} an auction",
        xlabel="auctions since arrival",
        ylabel="%",
        ylim=(0, 100),
    )
    axes.legend(fontsize=8)
