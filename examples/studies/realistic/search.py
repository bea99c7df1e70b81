"""`python -m examples.studies.realistic.search --points 128 --markets 4096` searches for markets like `"realistic"`.

It looks at points of a Sobol sequence, then at as many close to the best of these, writes search.json, and fills
README.md, which shows the best of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from examples.studies.realistic import study
from kineticsim_env.runtime.files import check_folder
from kineticsim_env.runtime.options import exit_code, whole
from scripts.pages.blocks import fill
from scripts.pages.command import figures, page_parser
from scripts.pages.markdown import write_figures

NAME = "realistic.search"


def search(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return every point that was looked at, its stage, and how far inside each fact is."""
    rows: list[dict[str, Any]] = []
    bar = tqdm(total=2 * options.points + 1, unit="point", desc="search")
    for stage in (1, 2):
        if stage == 1:
            tried = [study.POINT, *study.points(options.points)]
        else:
            best = study.Point(*max(rows, key=lambda row: row["worst"])["point"])
            tried = study.points(options.points, around=best, seed=1)
        for point, found in study.search(tried, options.markets, options.intervals, engine=options.engine):
            rows.append({"stage": stage, "point": list(point), "worst": found.worst, "inside": found.inside})
            bar.update()
    bar.close()
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, write what was found, and fill the page."""
    parser = page_parser(NAME, __doc__, 128, "of each point")
    parser.add_argument("--intervals", type=whole(400, 1 << 20), default=study.INTERVALS, help="of each market")
    parser.add_argument("--points", type=whole(1, 1 << 16), default=64, help="of each stage of the search")
    options = parser.parse_args(arguments)
    check_folder("--output", options.output)
    found = figures(options, NAME, lambda: {"markets": options.markets, "points": search(options)})
    write_figures(options.output, "search", found, indent=None)
    fill(options.output, "realistic")


if __name__ == "__main__":
    sys.exit(exit_code(main))
