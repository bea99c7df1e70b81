"""Keep runs of examples/self_play_makers.py, draw the last one's payoffs, and fill docs/self_play.md with them.

    python -m scripts.pages.self_play runs/self_play_makers runs/self_play_seed2 runs/self_play_gpu

Without folders the page is filled from docs/self_play.json, which has every figure of the runs. The functions that
`__all__` names are for the page's blocks.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.pages.blocks import ROOT, fill
from scripts.pages.markdown import plus_minus, table, write_figures

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


def rounded(value: Any) -> Any:
    """Return a record with floats of five digits, and without the folder it was written to."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items() if name != "output"}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main(words: Sequence[str] | None = None) -> None:
    """Read the runs, keep them beside the page, draw the picture and fill the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="folders of runs; the last is shown in full")
    parser.add_argument("--output", type=Path, default=ROOT / "docs", help="folder of the page (default: docs)")
    options = parser.parse_args(words)
    sys.path.insert(0, str(ROOT / "examples"))
    from self_play_makers import draw  # noqa: PLC0415 - it needs what the examples need

    if options.runs:
        runs = [rounded(json.loads((folder / "results.json").read_text())) for folder in options.runs]
        write_figures(options.output, "self_play", runs, None)
    runs = json.loads((options.output / "self_play.json").read_text())
    draw(runs[-1]["cells"], options.output / "images" / "self_play.png")
    fill(options.output, "self_play")


if __name__ == "__main__":
    main()
