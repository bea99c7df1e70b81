"""The rows that `scripts/benchmarks/performance.py` measured, and how the pages of performance write them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kineticsim_env.config import PRESETS
from scripts.pages.markdown import table

Figures = Mapping[tuple[str, str], Mapping[str, Any]]  # by group and name of a row
PLAYED = "paper", "trading"  # presets of the rows


def load(path: Path) -> Figures:
    """Return the rows of a file by group and name.

    To each row's figures come those of the run that measured it: `source` is its day and machine, `cpu` the processor,
    and `current` says whether presets were then as they are today.
    """
    data = json.loads(path.read_text())
    runs = {None: data} | data.get("runs", {})
    rows = {}
    for row in data["rows"]:
        if "failed" in row:
            continue
        run = runs[row.get("run")]
        machine, presets = run["machine"], run.get("presets", {})
        text = (
            f"{machine['date'][:10]}; {machine['gpu']}, driver {machine['driver']}; C++ and NumPy on {machine['cpu']}"
        )
        current = all(presets.get(name) == PRESETS[name] for name in PLAYED)
        rows[row["group"], row["name"]] = row | {"source": text, "cpu": machine["cpu"], "current": current}
    return rows


def source(figures: Figures, group: str) -> str:
    """Return when and on what the rows of a group were measured."""
    return " and ".join(sorted({row["source"] for (where, _), row in figures.items() if where == group}))


def rate(value: float, unit: float = 0.0) -> str:
    """Return a number per second with three digits, in G, M or k."""
    units = {1e9: "G", 1e6: "M", 1e3: "k"}
    unit = unit or next((unit for unit in units if value >= unit), 1.0)
    scaled = value / unit
    digits = max(0, 2 - math.floor(math.log10(scaled))) if scaled else 0
    return f"{scaled:,.{digits}f} {units.get(unit, '')}".strip()


def micro(value: float) -> str:
    """Return microseconds."""
    return f"{value:.2f} us" if value < 1 else f"{value:.1f} us"


def met(text: str, reached: bool) -> str:
    """Print what reaches its target in bold."""
    return f"**{text}**" if reached else text


def number_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose columns but the first, and `bound by`, are numbers."""
    return table(heads, rows, [at > 0 and head != "bound by" for at, head in enumerate(heads)])


def events(figures: Figures, name: str, group: str = "engine") -> float:
    """Return the agent-events per second of a row."""
    return figures[group, name]["events_per_s"]
