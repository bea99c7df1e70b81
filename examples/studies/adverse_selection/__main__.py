"""`python -m examples.studies.adverse_selection` plays the markets of examples/traders/glosten_milgrom.py.

It writes results.json and the picture, and fills README.md.
"""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kineticsim_env.engines import choose_engine
from kineticsim_env.runtime.options import exit_code, whole
from kineticsim_env.statistics import Mean
from scripts.pages.command import command_of, make_page, page_parser
from scripts.pages.markdown import machine

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "traders"))

import glosten_milgrom  # noqa: E402

NAME = "adverse_selection"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or read what was measured; draw, and fill the page."""
    parser = page_parser(NAME, __doc__, 256, "of each kind")
    parser.add_argument("--intervals", type=whole(20), default=1000, help="of 48 orders each")
    options = parser.parse_args(arguments)

    def measure() -> dict[str, Any]:
        began = time.perf_counter()
        found = glosten_milgrom.measure(options.markets, options.intervals, options.engine)
        return {
            "studies": found,
            "agents": glosten_milgrom.AGENTS,
            "markets": options.markets,
            "intervals": options.intervals,
            "measured": f"{datetime.date.today().isoformat()} with `{command_of(parser, options)}`, "
            f"{choose_engine(options.engine)[0]} engine, {machine()}, in {time.perf_counter() - began:.0f} s",
        }

    make_page(options, NAME, measure, draw)


def draw(folder: Path, found: Mapping[str, Any]) -> None:
    """Draw spreads by the share of informed agents."""
    glosten_milgrom.draw_picture(str(folder / f"{NAME}.png"), studies(found))


def studies(found: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Mean]]]:
    """Return what was measured as `glosten_milgrom.measure` does, from JSON."""
    return {
        name: {count: {statistic: Mean(*value) for statistic, value in row.items()} for count, row in rows.items()}
        for name, rows in found["studies"].items()
    }


if __name__ == "__main__":
    sys.exit(exit_code(main))
