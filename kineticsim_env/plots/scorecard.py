"""The picture of a scorecard: each fact beside its range, and the curves that several of them are read from."""

from __future__ import annotations

from typing import Any

import numpy as np

from kineticsim_env import plots

_COLOURS = {"within": "#3c8a4e", "outside": plots.SELL, "unclear": "#d9912b"}
_NULLS = "1v^"  # markers of null models


def draw_scorecard(path: Any, card: Any) -> None:
    """Write the picture of a `Scorecard`."""
    plots.require_matplotlib()
    curves = {name.partition("(")[0]: value for name, value in card.measured.items() if value.labels is not None}
    panels = [lambda axes: _ranges(axes, card)]
    if "abs_autocorrelation" in curves and "sign_autocorrelation" in curves:
        panels.append(lambda axes: _memory(axes, curves))
    plots.save_panels(path, panels, columns=len(panels), size=(7.4, 5.6))


def _ranges(axes: Any, card: Any) -> None:
    """Draw every range as the same bar, and the values where they are beside it, cut a bar's length away."""
    names = [line.fact.name for line in card.lines]
    models = list(zip(_NULLS, card.null_models, strict=False))
    for place, line in enumerate(card.lines):
        fact, colour = line.fact, _COLOURS.get(line.place, plots.GREY)
        axes.barh(place, 1.0, color="#dfe7ee", height=0.6)
        for marker, model in models:
            axes.plot(_at(model.lines[place]), place + 0.25, marker, color=plots.GREY, ms=5)
        if np.isnan(line.value):
            axes.text(0.5, place, line.place, ha="center", va="center", fontsize=8, color=colour)
            continue
        at, reach = _at(line), np.nan_to_num(line.half_width) / (fact.high - fact.low)
        inside = -1 < at < 2
        if inside:
            axes.errorbar(at, place, xerr=min(reach, 1.0), color=colour, capsize=2, lw=1)
        marker = "o" if inside else ("<" if at < 0 else ">")
        axes.plot(at, place, marker, color=colour, ms=6, mfc=colour if line.at_scale else "white")
        axes.text(2.15, place, f"{line.value:.3g}   ({fact.low:g} to {fact.high:g})", va="center", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set(xlim=(-1.1, 3.4), xticks=(0, 1))
    axes.set_xticklabels(("low", "high"))
    axes.set_title(f"{card.met} of {card.known} stylised facts met that are known at this scale", fontsize=10)
    for place, colour in _COLOURS.items():
        axes.plot([], [], "o", color=colour, label=place)
    axes.plot([], [], "o", color=plots.GREY, mfc="white", label="known at another scale")
    for marker, model in models:
        axes.plot([], [], marker, color=plots.GREY, label=f"{model.name} ({model.met} met)")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(-0.3, -0.03), ncols=4)


def _at(line: Any) -> float:
    """Return where a value is, its range being from 0 to 1; NaN is nowhere."""
    return float(np.clip((line.value - line.fact.low) / (line.fact.high - line.fact.low), -1.0, 2.0))


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
