"""The tables of the study of self-play, which the blocks of its page make of its results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scripts.pages.markdown import plus_minus, table

__all__ = ["ALONE", "NONE", "REPLY", "SELF", "STOIKOV", "above", "overview", "payoffs", "where"]
NONE, STOIKOV = "no trade", "Avellaneda-Stoikov"
ALONE, SELF, REPLY = "learned alone", "learned in self-play", "learned against self-play"
_COLUMNS = {  # of the table of all runs: who is paid, and against whom
    "alone, against nobody": (ALONE, NONE),
    "alone, against alone": (ALONE, ALONE),
    "self-play, against alone": (SELF, ALONE),
    "alone, against self-play": (ALONE, SELF),
    "self-play, against self-play": (SELF, SELF),
    "its exploiter, against self-play": (REPLY, SELF),
    "self-play, against its exploiter": (SELF, REPLY),
    "self-play, against A.-S.": (SELF, STOIKOV),
}


def above(one: Sequence[float], other: Sequence[float]) -> bool:
    """Say whether two intervals, each a mean and half a width, do not overlap, the first above the second."""
    return one[0] - one[1] > other[0] + other[1]


def where(run: dict[str, Any]) -> str:
    """Return what a run is called: its machine and its seed."""
    return f"{run['machine'].split(',')[0]}, seed {run['args']['seed']}"


def overview(runs: Sequence[dict[str, Any]]) -> str:
    """Return the table of what the policies of every run earn."""
    rows = []
    for run in runs:
        cells = run["cells"]
        earned = (plus_minus(cells[a][b]["pnl"]) for a, b in _COLUMNS.values())
        rows.append((where(run), *earned, plus_minus(cells[SELF][SELF]["spread"], 2)))
    return table(("run", *_COLUMNS, "spread, two from self-play"), rows)


def payoffs(run: dict[str, Any]) -> str:
    """Return the matrix of what the row's maker earns against the column's."""
    cells = run["cells"]
    rows = [(f"**{row}**", *(plus_minus(columns[b]["pnl"]) for b in cells)) for row, columns in cells.items()]
    return table(("maker_0, against maker_1:", *cells), rows, [False] + [True] * len(cells))
