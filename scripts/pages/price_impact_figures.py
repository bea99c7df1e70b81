"""The pictures of docs/price_impact.md, one per preset; `price_impact.py` measures what they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env.studies import plots
from kineticsim_env.studies.price_impact_figures import means, paths, plain_ticks

_GREEN = "#2e7d4f"


def draw_preset(
    path: Path, kinds: Mapping[str, Sequence[Any]], fits: Mapping[str, Any], middle: tuple[int, int]
) -> None:
    """Write the picture of one preset: paths, impact by size, cost by participation, and what pairing saves.

    Args:
        path: Where the PNG goes.
        kinds: Measured orders by sweep: by_length, by_rate, by_speed.
        fits: Their power laws, or None.
        middle: (block, units per auction) of the order whose arms are compared.
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


def _by_size(axes: Any, kinds: Mapping[str, Sequence[Any]], fits: Mapping[str, Any]) -> None:
    for kind, colour, text in (
        ("by_rate", plots.SELL, "in {} auctions"),
        ("by_length", plots.BUY, "at {} per auction"),
    ):
        points = kinds[kind]
        first, fit = points[0].impact, fits[kind]
        label = text.format(first.duration if kind == "by_rate" else first.per_auction)
        if fit:
            label += f" (power {fit.exponent:.2f} [{fit.low:.2f}, {fit.high:.2f}])"
        means(axes, [point.impact.block for point in points], points, "at_end", label, colour)
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
    plain_ticks(axes.xaxis)
    plain_ticks(axes.yaxis)
    axes.legend(fontsize=8, loc="upper left")


def _by_participation(axes: Any, points: Sequence[Any]) -> None:
    share = [100 * point.impact.participation.mean for point in points]
    means(axes, share, points, "at_end", "impact on the mid where it ends", plots.BUY)
    means(axes, share, points, "shortfall", "implementation shortfall", "#e8a79b")
    means(axes, share, points, "impact_cost", "cost against the other arm's mid", plots.SELL)
    means(axes, share, points, "permanent", "impact that is left", plots.GREY)
    top = axes.get_ylim()[1]
    for point, at in zip(points, share, strict=True):
        axes.annotate(str(point.impact.per_auction), (at, top), ha="center", va="top", fontsize=7, color=plots.GREY)
    axes.set_ylim(top=top)
    axes.set(
        title=f"{points[0].impact.block} units, ever faster (top: units per auction)",
        xlabel="own share of the volume while the order lasts, %",
        ylabel="ticks (per unit)",
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
        title=f"What pairing saves: {found.block} units, {found.per_auction} per auction",
        xlabel="auctions since arrival",
        ylabel="%",
        ylim=(0, 100),
    )
    axes.legend(fontsize=8)
