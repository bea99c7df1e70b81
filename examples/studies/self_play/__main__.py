"""`python -m examples.studies.self_play RUN ...` keeps runs of examples/self_play_makers.py, and fills README.md.

It draws the last one's payoffs. Without folders it fills the page from results.json, which has all figures of the runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.pages.blocks import STUDIES, fill
from scripts.pages.markdown import write_figures
from scripts.pages.provenance import stamp

NAME = "self_play"


def rounded(value: Any) -> Any:
    """Return a record with floats of five digits, and without the folder it was written to."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items() if name != "output"}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main(words: Sequence[str] | None = None) -> None:
    """Read the runs, keep them beside the page, draw the picture and fill the page."""
    prog, kind = f"python -m examples.studies.{NAME}", argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=prog, description=__doc__, formatter_class=kind)
    parser.add_argument("runs", nargs="*", type=Path, help="folders of runs; the last is shown in full")
    parser.add_argument("--output", type=Path, default=STUDIES / NAME, help="folder of the page (default: the study's)")
    options = parser.parse_args(words)
    sys.path.insert(0, str(STUDIES.parent))
    from self_play_makers import draw  # noqa: PLC0415 - it needs what the examples need

    if options.runs:
        runs = [json.loads((folder / "results.json").read_text()) for folder in options.runs]
        runs = [{"rules": stamp(NAME)} | rounded(run) for run in runs]
        write_figures(options.output, "results", runs, None)
    runs = json.loads((options.output / "results.json").read_text())
    draw(runs[-1]["cells"], options.output / "images" / "self_play.png")
    fill(options.output, NAME)


if __name__ == "__main__":
    main()
