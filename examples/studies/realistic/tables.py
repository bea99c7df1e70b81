"""The tables of README.md, which its blocks make of its results, and its picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from examples.studies.realistic import study
from kineticsim_env import plots
from kineticsim_env.config import MarketConfig
from scripts.pages.blocks import table

COLOURS = {"realistic": plots.BUY, "fundamental path alone": "#d9912b", "no splitters": "#3c8a4e", "news": plots.SELL}
SHOWN = 8  # points of the search in its table
_ERRORS = {"ratio": "ratio", "tails": "tails 1", "with volume": "with volume", "impact": "impact"}


def lasts() -> float:
    """Return how many intervals a regime lasts in the mean; one that is drawn anew may be the same."""
    preset = MarketConfig.preset("realistic")
    others = 1 - 1 / len(preset.regimes)
    return int(preset.beat or 0) / int(preset.interval or 1) / (float(np.max(preset.regime_switch_prob)) * others)


def fact_table(found: Mapping[str, Any]) -> str:
    """Return the table of what is asked for, and what the preset and what it is made of show."""
    presets = found["presets"]
    rows = [
        [asked.measured, _bounds(asked), *(_cell(presets[each], name) for each in presets)]
        for name, asked in study.ASKED.items()
    ]
    counts = [sum(far >= 0 for far in each["inside"].values()) for each in presets.values()]
    rows.append(["**within**", f"of {len(rows)}", *(f"**{count}**" for count in counts)])
    heads = [f"`{each}`" if each in ("realistic", "news") else each for each in presets]
    return table(["fact", "asked", *heads], rows, [False, False] + [True] * len(heads))


def _cell(found: Mapping[str, Any], name: str) -> str:
    """Return a number, bold within its bounds, with its standard error where it is one value."""
    if name not in found["numbers"]:
        return "-"
    number, error = found["numbers"][name], ""
    if number != number:
        return "undefined"
    if name == "clusters":
        error = f" ({found['error']['clusters'][19]:.4f})"
    elif name in _ERRORS:
        error = f" ({found['error'][_ERRORS[name]]:.4f})"
    return f"**{number:z.3f}**{error}" if found["inside"][name] >= 0 else f"{number:z.3f}{error}"


def _bounds(asked: study.Asked) -> str:
    low, high = (f"{bound:g}" for bound in (asked.low, asked.high))
    if asked.low <= -1:
        return f"below {high}"
    return f"above {low}" if asked.high == 1.0 and asked.low > 0 else f"{low} to {high}"


def search_table(found: Mapping[str, Any]) -> str:
    """Return the table of the best points, the preset's own first."""
    rows = found["points"]
    best = sorted(rows[1:], key=lambda row: -row["worst"])[:SHOWN]
    lines = []
    for row in (rows[0], *best):
        worst = min(row["inside"], key=row["inside"].get)
        numbers = [f"{number:.3g}" for number in study.rounded(study.Point(*row["point"]))]
        stage = "preset" if row is rows[0] else str(row["stage"])
        lines.append([stage, *numbers, f"{row['worst']:.2f}", study.ASKED[worst].measured])
    heads = ["stage", *(name.replace("_", " ") for name in study.Point._fields), "worst", "which"]
    return table(heads, lines, (False, *[True] * 9, False))


def hardest(found: Mapping[str, Any]) -> str:
    """Return what fails most often in the search, in words."""
    rows = found["points"]
    failed = {name: sum(row["inside"][name] < 0 for row in rows) for name in study.ASKED}
    names = sorted(failed, key=lambda name: -failed[name])[:3]
    return "; ".join(f"{study.ASKED[name].measured} ({failed[name]} of {len(rows)})" for name in names)


def draw(folder: Path, found: Mapping[str, Any]) -> None:
    """Write the page's picture; of the fundamental path alone there are prices only."""
    values = {name: found["presets"][name]["value"] for name in COLOURS}
    trading = {name: value for name, value in values.items() if "curve" in value}

    def correlations(axes: Any) -> None:
        for name, value in values.items():
            lags = range(1, len(value["clusters"]) + 1)
            axes.semilogx(lags, value["clusters"], color=COLOURS[name], label=f"absolute returns, {name}")
            axes.semilogx(lags, value["white"], color=COLOURS[name], lw=0.8, ls=":")
        axes.axhline(0, color=plots.GREY, lw=0.6)
        axes.set(title="Autocorrelation; dotted: of returns", xlabel="lag, intervals")
        axes.legend(fontsize=8)

    def tails(axes: Any) -> None:
        for name, value in values.items():
            kurtosis = [value[f"tails {span}"] for span in study.SPANS]
            axes.semilogx(study.SPANS, kurtosis, "o-", color=COLOURS[name], label=name)
        axes.axhline(0, color=plots.GREY, lw=0.6)
        axes.set(title="Excess kurtosis of returns", xlabel="span, intervals")
        axes.legend(fontsize=8)

    def signs(axes: Any) -> None:
        for name, value in trading.items():
            axes.semilogx(study.SIGN_LAGS, value["signs"], "o-", ms=3, color=COLOURS[name], label=name)
        axes.axhline(0, color=plots.GREY, lw=0.6)
        axes.set(title="Autocorrelation of the signs of takers' volume", xlabel="lag, intervals")
        axes.legend(fontsize=8)

    def moves(axes: Any) -> None:
        for name, value in trading.items():
            shown = [(1.5 * 2**i, move) for i, move in enumerate(value["curve"]) if move and move == move and move > 0]
            if shown:
                axes.loglog(*zip(*shown, strict=True), "o-", ms=3, color=COLOURS[name], label=name)
        axes.set(title="Observed move of the mid with takers", xlabel="takers' net volume, units", ylabel="ticks")
        axes.legend(fontsize=8)

    plots.save_panels(folder / "realistic.png", [correlations, tails, signs, moves])
