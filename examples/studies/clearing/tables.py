"""What the blocks of README.md look up, and their tables; and the pictures, which `__main__.py` has drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.studies.clearing import learning, study
from kineticsim_env import plots
from kineticsim_env.statistics import Mean
from scripts.pages.markdown import joined, pm, table

Found = Mapping[str, Any]
PARTS = ("prices", "slots")  # of the results
EARNED = "ticks x units per 1,000 events"
KINDS = [(reference, news) for reference in study.REFERENCES for news in study.NEWS]  # of markets
OFTEN, SELDOM = ({role: learning.Kind(role, every) for role in learning.ROLES} for every in (study.OFTEN, study.SELDOM))
_BESIDE = {"maker": "maker", "informed": "sniper"}  # scripted slots that tables have beside those that learned
_COLOURS = dict(zip(study.NEWS, ("#0d4377", "#3f8f4f", "#d9661c"), strict=True))


def at(found: Found, reference: str, news: str, interval: int, name: str) -> Mean:
    """Return a figure of a rule in markets of a kind, from the part that has it."""
    wanted = (reference, news, interval)
    rows = [row for part in PARTS for row in found[part]["rows"]]
    return Mean(*next(r[name] for r in rows if name in r and (r["reference"], r["news"], r["interval"]) == wanted))


def best(found: Found, name: str) -> dict[tuple[str, str], list[int]]:
    """Return the rules that are best, or as good as the best, by kind of markets."""
    rows = next(found[part]["best"][name] for part in PARTS if name in found[part]["best"])
    return {(row["reference"], row["news"]): row["as_good"] for row in rows}


def rule(interval: int) -> str:
    """Return a rule as tables have it."""
    return "continuous" if interval == study.CONTINUOUS else f"{interval:,}"


def errors(found: Found, reference: str) -> str:
    """Return the table of pricing errors: by the mid, by the last price, and of waiting alone."""
    rows = [
        [rule(i), *(pm(at(found, reference, news, i, name), 2) for name in ("mid", "last") for news in study.NEWS)]
        + [f"{at(found, reference, 'fast', i, 'waiting').mean:.2f}"]
        for i in study.RULES
    ]
    heads = [f"{price}, {news}" for price in ("mid", "last price") for news in study.NEWS]
    return table(("interval", *heads, "waiting alone, fast"), rows, [False] + [True] * 7)


def best_by(found: Found, measures: Mapping[str, str]) -> str:
    """Return the table of the best rules by measures of the price: names in the figures, and in words."""
    rows = [
        [words, *(joined([rule(i) for i in best(found, name)[kind]]) for kind in KINDS)]
        for name, words in measures.items()
    ]
    return table(("measure", *(f"{reference}, {news}" for reference, news in KINDS)), rows)


def books(found: Found, reference: str) -> str:
    """Return the table of what a block costs, and of books and volume at medium news."""
    rows = [
        [rule(i), *(pm(at(found, reference, news, i, "cost"), 2) for news in study.NEWS)]
        + [pm(at(found, reference, "medium", i, name), 1) for name in ("spread", "depth", "volume")]
        for i in study.RULES
    ]
    return table(
        ("interval", *(f"cost, {n}" for n in study.NEWS), "spread", "depth", "volume"), rows, [False] + [True] * 6
    )


def earnings(found: Found, reference: str, columns: Sequence[tuple[learning.Kind, str]]) -> str:
    """Return a table of what slots earn, by rule; its columns are of kinds and paces of news, three of each."""
    heads, rows = [], []
    for kind, news in columns:
        heads += [f"{_BESIDE[kind.role]}, {news}", f"learned {kind.role}, {news}", "ahead"]
    for interval in study.RULES:
        if interval > max(kind.every for kind, _ in columns):
            continue  # a slot cannot decide as often
        row = [rule(interval)]
        for kind, news in columns:
            names = (f"{_BESIDE[kind.role]}_{kind.every}", kind.name, f"{kind.name}_lead")
            row += [pm(at(found, reference, news, interval, name), 1) for name in names]
        rows.append(row)
    return table(("interval", *heads), rows, [False] + [True] * len(heads))


def knowing(found: Found) -> str:
    """Return the table of what the learned informed slot earns more than the learned maker."""
    rules = [interval for interval in study.RULES if interval <= study.OFTEN]
    name = f"knowing_{study.OFTEN}"
    rows = [[rule(i), *(pm(at(found, *kind, i, name), 1) for kind in KINDS)] for i in rules]
    return table(("interval", *(f"{reference}, {news}" for reference, news in KINDS)), rows, [False] + [True] * 6)


def leads(found: Found) -> list[Mean]:
    """Return what every slot that learned earns more than the best scripted one."""
    rows = found["slots"]["rows"]
    return [Mean(*row[f"{kind.name}_lead"]) for row in rows for kind in learning.kinds(row["interval"])]


def draw(folder: Path, found: Found) -> None:
    """Write a picture for each reference."""
    panels = (
        ("mid", "Pricing error of the mid", "ticks"),
        ("last", "Pricing error of the last price", "ticks"),
        ("cost", f"Cost of a block of {study.BLOCK} units", "ticks per unit"),
        ("spread", "Spread of the resting book", "ticks"),
        (OFTEN["maker"].name, f"Maker that learns, decides every {study.OFTEN} events", EARNED),
        (OFTEN["informed"].name, f"Informed slot that learns, decides every {study.OFTEN} events", EARNED),
    )
    for reference in study.REFERENCES:
        plots.save_panels(
            folder / f"clearing_{reference}.png",
            [lambda axes, panel=panel, r=reference: _curves(axes, found, r, *panel) for panel in panels],
            size=(5.6, 3.6),
        )


def _curves(axes: Any, found: Found, reference: str, name: str, title: str, unit: str) -> None:
    most = study.OFTEN if name.endswith(f"_{study.OFTEN}") else study.INTERVALS[-1]
    intervals = [interval for interval in study.INTERVALS if interval <= most]
    kind = next((kind for kind in OFTEN.values() if kind.name == name), None)
    lines = "dashed: continuous trading" + "; dotted: scripted" * (kind is not None)
    for news, colour in _COLOURS.items():
        values = [at(found, reference, news, interval, name) for interval in intervals]
        plots.means(axes, intervals, values, colour, f"{news} news")
        flat = at(found, reference, news, study.CONTINUOUS, name)
        axes.axhline(flat.mean, ls="--", lw=1.2, color=colour)
        if kind:
            scripted = [at(found, reference, news, interval, kind.scripted).mean for interval in intervals]
            axes.plot(intervals, scripted, ":", lw=1.2, color=colour)
        axes.axhspan(flat.mean - flat.interval(), flat.mean + flat.interval(), color=colour, alpha=0.15, lw=0)
    axes.set(title=title, xlabel=f"interval, events ({lines})", ylabel=unit, xscale="log")
    if name in ("mid", "last"):
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        shown = [digit * 10**power for power in range(4) for digit in (1, 2, 5) if low <= digit * 10**power <= high]
        axes.set_yticks(shown, [f"{value:,}" for value in shown])
    axes.set_xticks(intervals, [f"{interval:,}" for interval in intervals], fontsize=8)
    axes.minorticks_off()
    axes.legend(fontsize=8)
