"""`python -m scripts.pages.realistic --markets 50000` measures the preset `"realistic"` and the search that found it.

It writes docs/realistic.md, its picture, and realistic.json with every figure, from which `--results` writes the page
again without measuring. The search looks at points of a Sobol sequence, then at as many close to the best of these.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.files import check_folder
from kineticsim_env.runtime.options import Parser, exit_code, whole
from kineticsim_env.simulator import Simulator
from kineticsim_env.studies import realistic as study
from scripts.pages.markdown import machine, write_figures, write_page
from scripts.pages.realistic_text import draw, page

NAME, BESIDE = "realistic", "news"


def look(preset: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a preset shows, as JSON keeps it."""
    found = study.look(MarketConfig.preset(preset), options.markets, options.intervals, engine=options.engine)
    return {
        "value": {name: np.asarray(value).tolist() for name, value in found.value.items()},
        "error": {name: np.asarray(error).tolist() for name, error in found.error.items()},
        "numbers": {name: asked.read(found.value) for name, asked in study.ASKED.items()},
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


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return every figure of the page, as JSON keeps them."""
    began = time.perf_counter()
    presets = {preset: look(preset, options) for preset in (NAME, BESIDE)}
    return {
        "command": f"python -m scripts.pages.{NAME} --markets {options.markets} --points {options.points} "
        f"--points-markets {options.points_markets}",
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
    """Measure or read what was measured, draw, and write the page."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markets", type=whole(2, 1 << 20), default=1000, help="markets of each preset")
    parser.add_argument("--intervals", type=whole(400, 1 << 20), default=study.INTERVALS, help="of each market")
    parser.add_argument("--points", type=whole(1, 1 << 16), default=64, help="points of each stage of the search")
    parser.add_argument("--points-markets", type=whole(2, 1 << 20), default=128, help="markets of each point")
    parser.add_argument("--engine", default="auto", help="as in Simulator")
    parser.add_argument("--results", type=Path, help="write the page from these figures, without measuring")
    parser.add_argument("--output", type=Path, default=Path("docs"), help="folder of the page")
    options = parser.parse_args(arguments)
    check_folder("--output", options.output)
    found = json.loads(options.results.read_text()) if options.results else measure(options)
    write_figures(options.output, NAME, found, indent=None)
    draw(options.output / "images" / f"{NAME}.png", found)
    write_page(options.output, NAME, page(json.loads(json.dumps(found))))


if __name__ == "__main__":
    sys.exit(exit_code(main))
