"""`python -m scripts.pages.realistic --markets 50000` measures the preset `"realistic"` and the search that found it.

It writes docs/realistic.md, its picture, and realistic.json with every figure, from which `--results` writes the page
again without measuring. The search looks at points of a Sobol sequence, then at as many close to the best of these.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.options import exit_code, whole
from kineticsim_env.simulator import Simulator
from kineticsim_env.studies import realistic as study
from scripts.pages.command import command_of, make_page, page_parser
from scripts.pages.markdown import machine
from scripts.pages.realistic_text import draw, page

NAME, BESIDE = "realistic", "news"


def look(preset: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a preset shows, as JSON keeps it."""
    found = study.look(MarketConfig.preset(preset), options.markets, options.intervals, engine=options.engine)
    return {
        "value": {name: np.asarray(value).tolist() for name, value in found.value.items()},
        "error": {name: np.asarray(error).tolist() for name, error in found.error.items()},
        "numbers": found.numbers,
        "inside": found.inside,
    }


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
        for point, found in study.search(tried, options.points_markets, options.intervals, engine=options.engine):
            rows.append({"stage": stage, "point": list(point), "worst": found.worst, "inside": found.inside})
            bar.update()
    bar.close()
    return rows


def measure(options: argparse.Namespace, command: str) -> dict[str, Any]:
    """Return every figure of the page, as JSON keeps them."""
    began = time.perf_counter()
    presets = {preset: look(preset, options) for preset in (NAME, BESIDE)}
    return {
        "command": command,
        "date": datetime.date.today().isoformat(),
        "engine": Simulator(MarketConfig(), 2, engine=options.engine).engine_name,
        "machine": machine(),
        "markets": options.markets,
        "intervals": options.intervals,
        "points_markets": options.points_markets,
        "presets": presets,
        "search": search(options),
        "seconds": time.perf_counter() - began,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the page."""
    parser = page_parser(__doc__, 1000, "markets of each preset")
    parser.add_argument("--intervals", type=whole(400, 1 << 20), default=study.INTERVALS, help="of each market")
    parser.add_argument("--points", type=whole(1, 1 << 16), default=64, help="points of each stage of the search")
    parser.add_argument("--points-markets", type=whole(2, 1 << 20), default=128, help="markets of each point")
    options = parser.parse_args(arguments)
    make_page(
        options,
        NAME,
        lambda: measure(options, command_of(parser, options, NAME)),
        lambda folder, found: draw(folder / f"{NAME}.png", found),
        page,
        indent=None,
    )


if __name__ == "__main__":
    sys.exit(exit_code(main))
