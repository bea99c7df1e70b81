"""The picture of a scorecard: each fact beside its range, and the curves that several of them are read from."""

from __future__ import annotations

from typing import Any

import numpy as np

from kineticsim_env.studies import plots

_COLOURS = {"met": "#3c8a4e", "not met": plots.SELL, "unclear": "#d9912b", "undefined": "#999999"}


def draw_scorecard(path: Any, card: Any) -> None:
    """Write the picture of a `Scorecard`."""
    plots.require_matplotlib()
    curves = {name.partition("(")[0]: value for name, value in card.measured.items() if value.labels is not None}
    panels = [lambda axes: _ranges(axes, card)]
    if "abs_autocorrelation" in curves and "sign_autocorrelation" in curves:
        panels.append(lambda axes: _memory(axes, curves))
    plots.save_panels(path, panels, columns=len(panels), size=(7.4, 5.6))


def _ranges(axes: Any, card: Any) -> None:
    """Draw every range as the same bar, and the value where it is beside it, cut a bar's length away."""
    names = [line.fact.name for line in card.lines]
    for place, line in enumerate(card.lines):
        fact, colour = line.fact, _COLOURS[line.verdict]
        axes.barh(place, 1.0, color="#dfe7ee", height=0.6)
        if np.isnan(line.value):
            axes.text(0.5, place, "undefined", ha="center", va="center", fontsize=8, color=colour)
            continue
        scale = fact.high - fact.low
        at, reach = (line.value - fact.low) / scale, np.nan_to_num(line.half_width) / scale
        shown = float(np.clip(at, -1.0, 2.0))
        if shown == at:
            axes.errorbar(at, place, xerr=min(reach, 1.0), color=colour, capsize=2, lw=1)
        axes.plot(shown, place, "o" if shown == at else ("<" if at < 0 else ">"), color=colour, ms=6)
        axes.text(2.15, place, f"{line.value:.3g}   ({fact.low:g} to {fact.high:g})", va="center", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set(xlim=(-1.1, 3.4), xticks=(0, 1))
    axes.set_xticklabels(("low", "high"))
    axes.set_title(f"{card.met} of {len(card.lines)} stylised facts met")
    for verdict in ("met", "not met", "unclear"):
        axes.plot([], [], "o", color=_COLOURS[verdict], label=verdict)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0.0, -0.03), ncols=3)


def _memory(axes: Any, curves: Any) -> None:
    """Draw autocorrelations of |returns| and of the sign of the flow, with 95% intervals."""
    for name, label, colour in (
        ("abs_autocorrelation", "|returns|", plots.BUY),
        ("sign_autocorrelation", "sign of takers' flow", plots.SELL),
    ):
        found = curves[name]
        reach = np.nan_to_num(found.half_width[0])
        axes.errorbar(found.labels, found.value[0], yerr=reach, color=colour, label=label, lw=1.2)
    axes.axhline(0, color=plots.GREY, lw=0.8)
    axes.set(title="Memory", xlabel="lag, intervals", ylabel="autocorrelation, mean over markets")
    axes.legend(fontsize=8)
