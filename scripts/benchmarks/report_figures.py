"""The figures of a file of measurements, as PNG and SVG. report.py calls it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kineticsim_env import plots
from scripts.benchmarks.measured import Measured

_OURS = "#c8452f"
_COLOURS = "#1f6fb4 #2e8b57 #d98a1c #7b5aa6 #8c564b #555555 #17a2b8 #b5a40f #e377c2 #9aa5b1".split()
_MARKERS = "osD^vP*X<>h"
_PAPER_BARS = ("NumPy", "torch eager")

Panel = Callable[[Any], None]


def draw(measured: Measured, folder: Path) -> list[Path]:
    """Write every figure that the file has rows for; return the paths."""
    figures = {
        "throughput": _curves(measured, (("markets", "events_per_s"), ("agents", "events_per_s")), "agent-events/s"),
        "speedups": _speedups(measured),
        "memory_and_cost": [
            *_curves(measured, (("markets", "peak_bytes"),), "peak device memory, bytes"),
            *_curves(measured, (("markets", "ns_per_event"),), "ns per agent-event"),
        ],
        "latency": _latency(measured),
        "agreement": [
            *_curves(measured, (("markets", "mean_last_price"),), "mean last price, ticks", agreement=True),
            *_curves(measured, (("markets", "mean_volume"),), "mean volume per market", agreement=True),
        ],
        "levels_and_steps": _curves(
            measured, (("levels", "events_per_s"), ("steps", "events_per_s")), "agent-events/s"
        ),
        "environment": _curves(
            measured, (("env markets", "env_steps_per_s"), ("env agents", "env_steps_per_s")), "environment steps/s"
        ),
    }
    return [path for name, panels in figures.items() if panels for path in _save(folder / name, panels)]


def _save(stem: Path, panels: list[Panel]) -> list[Path]:
    import matplotlib

    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    with matplotlib.rc_context({"svg.hashsalt": "kineticsim_env", "svg.fonttype": "none"}):
        for path in paths:
            plots.save_panels(path, panels, columns=min(2, len(panels)), size=(6.2, 4.4))
    return paths


def _style(measured: Measured, name: str) -> dict[str, Any]:
    place = measured.backends.index(name)
    colour = _OURS if place == 0 else _COLOURS[(place - 1) % len(_COLOURS)]
    return {"color": colour, "marker": _MARKERS[place % len(_MARKERS)], "lw": 2.4 if place == 0 else 1.3, "ms": 5}


def _curves(
    measured: Measured, wanted: tuple[tuple[str, str], ...], label: str, agreement: bool = False
) -> list[Panel]:
    """Return a panel for each sweep and column that has values; `agreement` draws curves that lie on one another."""
    panels: list[Panel] = []
    for sweep, column in wanted:
        lines = {name: _curve(measured, sweep, name, column, agreement) for name in measured.names(sweep)}
        lines = {name: line for name, line in lines.items() if line[0]}
        if lines:
            panels.append(lambda axes, sweep=sweep, lines=lines: _lines(axes, measured, sweep, lines, label, agreement))
    return panels


def _curve(measured: Measured, sweep: str, name: str, column: str, agreement: bool) -> tuple[list[int], list[float]]:
    if not agreement:
        return measured.curve(sweep, name, column)
    rows = [(at, rows[name]) for at, rows in measured.by_point(sweep).items() if name in rows]
    full = [(at, row) for at, row in rows if row["steps"] == row["asked"]["steps"] and row.get(column) is not None]
    return [at for at, _ in full], [row[column] for _, row in full]  # fewer steps have another volume


def _lines(axes: Any, measured: Measured, sweep: str, lines: dict[str, Any], label: str, agreement: bool) -> None:
    for order, (name, (x, y)) in enumerate(lines.items()):
        style = _style(measured, name)
        if agreement:  # rings around one another, as all values are the same
            style |= {"ms": 5 + 2.2 * order, "lw": 0.8, "mfc": "none", "marker": "o"}
        axes.plot(x, y, label=name, **style)
    axes.set(xlabel=sweep.removeprefix("env "), ylabel=label, xscale="log")
    if not agreement:
        axes.set_yscale("log")
        low, high = (math.log10(limit) for limit in axes.get_ylim())
        if (
            math.floor(high) - math.ceil(low) < 1
        ):  # no two powers of ten: an axis without numbers, and all differences large
            axes.set_ylim(10 ** math.floor(low), 10 ** math.ceil(high))
    ticks = sorted({at for x, _ in lines.values() for at in x})
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], rotation=30 if len(ticks) > 6 else 0)
    axes.minorticks_off()
    axes.grid(alpha=0.25)
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 3}  # above: curves fill the panel
    axes.legend(fontsize=7, markerscale=0.5 if agreement else 1.0, **place)


def _speedups(measured: Measured) -> list[Panel]:
    panels: list[Panel] = []
    fixed = {row["backend"]: row["events_per_s"] for row in measured.of("fixed")}
    bases = [name for name in _PAPER_BARS if name in fixed] or list(fixed)[-1:]
    if len(fixed) > 1:
        panels.append(lambda axes: _bars(axes, measured, fixed, bases))
    ours = measured.ours("markets") or ""
    lines: dict[str, Any] = {}
    for name in measured.names("markets")[1:]:
        rows = [(at, rows) for at, rows in measured.by_point("markets").items() if ours in rows and name in rows]
        ratios = [rows[ours]["events_per_s"] / rows[name]["events_per_s"] for _, rows in rows]
        lines[name] = ([at for at, _ in rows], ratios)
    if lines:
        panels.append(lambda axes: _lines(axes, measured, "markets", lines, f"{ours} is faster by", False))
    return panels


def _bars(axes: Any, measured: Measured, rates: dict[str, float], bases: list[str]) -> None:
    names = [name for name in measured.backends if name in rates][::-1]
    height = 0.8 / len(bases)
    for place, base in enumerate(bases):
        values = [rates[name] / rates[base] for name in names]
        at = [index + (place - (len(bases) - 1) / 2) * height for index in range(len(names))]
        bars = axes.barh(at, values, height=height, label=f"over {base}", color=_COLOURS[place])
        axes.bar_label(bars, [f"{value:,.3g}" for value in values], fontsize=7, padding=2)
    axes.set_yticks(range(len(names)), names)
    axes.set(xscale="log", xlabel="speedup, fixed workload")
    axes.margins(x=0.15)
    axes.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def _latency(measured: Measured) -> list[Panel]:
    rows = {row["backend"]: row for row in measured.of("latency")}
    names = [name for name in measured.backends if name in rows][::-1]
    if not names:
        return []

    def panel(axes: Any) -> None:
        micro = {key: [1e6 * rows[n][f"seconds_{key}"] / rows[n]["steps"] for n in names] for key in ("min", "max")}
        middle = [rows[name]["us_per_step"] for name in names]
        low = [value - least for value, least in zip(middle, micro["min"], strict=True)]
        high = [most - value for value, most in zip(middle, micro["max"], strict=True)]
        colours = [_style(measured, name)["color"] for name in names]
        bars = axes.barh(names, middle, xerr=[low, high], color=colours, capsize=3, ecolor="black")
        axes.bar_label(bars, [f"{value:,.4g}" for value in middle], fontsize=7, padding=8)
        first = rows[names[0]]
        axes.set(xscale="log", xlabel=f"us per step, median and min to max; M={first['markets']:,} A={first['agents']}")
        axes.margins(x=0.15)

    return [panel]
