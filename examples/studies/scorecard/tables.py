"""The tables of README.md, which its blocks make of results.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kineticsim_env.scorecards import Column, Line, Scorecard
from kineticsim_env.statistics.facts import FACTS
from scripts.pages.blocks import Mean, pm, table

SHOWN = "realistic"  # the preset whose null models are shown fact by fact
_EMPTY: Any = None  # statistics that JSON has not kept


def cards(found: Mapping[str, Any], interval: float | str = "events") -> dict[str, Scorecard]:
    """Return the cards of all presets, an interval standing for so much."""
    return {
        preset: Scorecard(tuple(_column(each, interval) for each in card["columns"]), "last", interval)
        for preset, card in found["cards"].items()
    }


def _column(stored: Mapping[str, Any], interval: float | str) -> Column:
    size = stored["aggregate"]
    numbers = zip(FACTS, *(stored[name] for name in ("value", "error", "count", "given")), strict=True)
    lines = (
        Line(fact, value, error, count, at_scale=fact.known_at(interval, size), given=given)
        for fact, value, error, count, given in numbers
    )
    return Column(stored["name"], size, tuple(lines), _EMPTY, stored["null"])


def fact_table(columns: Mapping[str, Column]) -> str:
    """Return the numbers of columns, those within their ranges bold."""
    rows = []
    for i, fact in enumerate(FACTS):
        ends = f"{fact.low:g} to {fact.high:g}{'' if fact.bounds == 'source' else '*'}"
        rows.append((fact.name, fact.time_scale, ends, *(_cell(column.lines[i]) for column in columns.values())))
    rows.append(("**within**", "", f"of {len(FACTS)}", *(f"**{column.within}**" for column in columns.values())))
    return table(("fact", "known at", "range", *columns), rows, [False, False] + [True] * (len(columns) + 1))


def count_table(shown: Mapping[str, Scorecard]) -> str:
    """Return how many facts are within their ranges in each preset and its null models."""
    rows = []
    for preset, card in shown.items():
        for size in dict.fromkeys(column.aggregate for column in card.shown):
            counts = [str(column.within) for column in card.shown if column.aggregate == size]
            rows.append((f"`{preset}`", str(size), *counts))
    names = list(dict.fromkeys(column.name for column in next(iter(shown.values())).shown))
    return table(("preset", "intervals together", *names), rows, [False] + [True] * (len(names) + 1))


def met_table(found: Mapping[str, Any], scales: Mapping[str, float | str]) -> str:
    """Return how many facts are met of those that are known at a scale, the preset's and its null models'."""
    rows = []
    for said, interval in scales.items():
        for preset, card in cards(found, interval).items():
            models = [str(model.met) for model in card.null_models]
            rows.append((said, f"`{preset}`", str(card.known), str(card.met), *models))
    names = [model.name for model in next(iter(cards(found).values())).null_models]
    return table(("an interval is", "preset", "known", "met", *names), rows, [False, False] + [True] * (len(names) + 2))


def alone_table(shown: Mapping[str, Scorecard]) -> str:
    """Return the facts that tell each preset from its null models."""
    rows = [(f"`{preset}`", "; ".join(card.distinguishing) or "none") for preset, card in shown.items()]
    return table(("preset", "within their ranges in it, and in no null model"), rows)


def impact_table(found: Mapping[str, Any]) -> str:
    """Return what market orders cause, by preset, size and time."""
    sizes, lags = (1, 4, 16), (0, 1, 5, 20)
    rows = []
    for preset, card in found["cards"].items():
        impact = card["impact"]
        for size in sizes:
            moves = impact["moved"][impact["sizes"].index(size)]
            shown = [moves[impact["lags"].index(lag)] for lag in lags]
            rows.append((f"`{preset}`", str(size), *(_move(*move) for move in shown)))
    heads = ("preset", "units bought", *(f"{lag} later" if lag else "at once" for lag in lags))
    return table(heads, rows, [False] + [True] * (len(lags) + 1))


def law_table(found: Mapping[str, Any]) -> str:
    """Return exponent and permanence of what market orders cause, beside the observed exponent and response."""
    names = [fact.name for fact in FACTS]
    rows = []
    for preset, card in found["cards"].items():
        values = card["columns"][0]["value"]
        observed = [values[names.index(name)] for name in names if name.startswith("observed")]
        laws = [_ends(*card["impact"][name][:3]) for name in ("exponent", "permanence")]
        rows.append((f"`{preset}`", *(f"{value:z.2f}" for value in observed), *laws))
    heads = (
        "preset",
        "observed exponent",
        "response, 20 over 1",
        "caused exponent",
        "caused share that stays",
    )
    return table(heads, rows, [False] + [True] * 4)


def source_table() -> str:
    """Return what each fact's number is, and where it was found."""
    rows = [(fact.name, fact.measured.replace("|", "\\|"), fact.time_scale, fact.source) for fact in FACTS]
    return table(("fact", "the number", "known at", "source"), rows)


def _cell(line: Line) -> str:
    if math.isnan(line.value):
        return "-" if not line.given else "undefined"
    digits = 2 if abs(line.value) >= 0.1 or line.value == 0 else 3
    error = "" if math.isnan(line.error) else f" ± {line.error:.{digits}f}"
    shown = f"{line.value:z.{digits}f}{error}"
    return {"within": f"**{shown}**", "unclear": f"{shown}, unclear"}.get(line.place, shown)


def _move(mean: float, error: float, count: int) -> str:
    return pm(Mean(mean, error, count), 2)


def _ends(value: float, low: float, high: float) -> str:
    return "undefined" if math.isnan(value + low) else f"{value:z.2f} ({low:z.2f} to {high:z.2f})"
