"""The picture of `python -m kineticsim_env impact`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env import plots


def draw_orders(path: Path, points: Sequence[Any], fit: Any) -> None:
    """Write the picture of a few orders: their paths, and impact and cost by size."""

    def sizes(axes: Any) -> None:
        blocks = [point.impact.block for point in points]
        for name, label, colour in (
            ("at_end", "impact on the mid where the order ends", plots.BUY),
            ("impact_cost", "cost against the other arm's mid", plots.SELL),
            ("permanent", "impact that is left", plots.GREY),
        ):
            means(axes, blocks, points, name, label, colour)
        if fit:
            power(axes, fit, blocks, plots.BUY)
        axes.axhline(0, color=plots.GREY, lw=0.8)
        axes.set(title="By block size", xlabel="block, units", ylabel="ticks (per unit)", xscale="log")
        plots.plain_ticks(axes.xaxis)
        axes.legend(fontsize=8)

    plots.save_panels(path, [lambda axes: paths(axes, points), sizes], size=(6.0, 4.1))


def paths(axes: Any, points: Sequence[Any]) -> None:
    """Draw the mean impact after each auction, one line per order, darker with its size; dots where orders end."""
    from matplotlib import colormaps

    shades = colormaps["viridis_r"](np.linspace(0.08, 0.95, len(points)))
    axes.axhline(0, color=plots.GREY, lw=0.8)
    for point, shade in zip(points, shades, strict=True):
        found = point.impact
        auctions = np.arange(len(found.path))
        low, high = found.path - found.path_interval, found.path + found.path_interval
        axes.fill_between(auctions, low, high, color=shade, alpha=0.18, lw=0)
        axes.plot(auctions, found.path, color=shade, lw=1.5, label=f"{found.block:,} units in {found.duration}")
        axes.plot(found.duration, found.path[found.duration], "o", ms=5, color=shade)
    rates = {point.impact.per_auction for point in points}
    rate = f", {rates.pop()} units per auction" if len(rates) == 1 else ""
    axes.set(
        title=f"Impact on the mid{rate}", xlabel="auctions since arrival (dot: the order ends)", ylabel="impact, ticks"
    )
    axes.legend(fontsize=8, title="block, auctions", title_fontsize=8, loc="upper right")
    longest = max(point.impact.duration for point in points)
    axes.set_xlim(-0.02 * longest, 1.35 * longest + 45)


def means(axes: Any, x: Sequence[float], points: Sequence[Any], name: str, label: str, colour: str) -> None:
    """Draw a figure of each order against `x`, with its 95% interval."""
    found = [getattr(point.impact, name) for point in points]
    plots.means(axes, x, found, colour, label, lw=1.4)


def power(axes: Any, fit: Any, blocks: Sequence[int], colour: str) -> None:
    """Draw a fitted power law over the range of the blocks."""
    at = np.geomspace(min(blocks), max(blocks), 50)
    label = f"power {fit.exponent:.2f} [{fit.low:.2f}, {fit.high:.2f}]"
    axes.plot(at, fit.factor * at**fit.exponent, ls="--", lw=1.2, color=colour, label=label)
