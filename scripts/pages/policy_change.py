"""`python -m scripts.pages.policy_change --markets 512` changes the rules of running markets, and says what it did.

It writes docs/policy_change.md, its pictures, and policy_change.json with every figure, from which `--results` writes
the page again without measuring.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from kineticsim_env.runtime.files import check_folder
from kineticsim_env.runtime.options import Parser, exit_code, whole
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics import mean_and_error
from kineticsim_env.studies import plots
from kineticsim_env.studies import policy_change as study
from scripts.pages.markdown import measured_on, write_figures, write_page
from scripts.pages.policy_change_text import WINDOWS, draw, page

NAME = "policy_change"
BIN = 5  # intervals per point of the pictures


def measure(markets: int, engine: str) -> dict[str, Any]:
    """Play every change in every market, and return every figure of the page."""
    begin = time.perf_counter()
    found = {}
    for name, config in tqdm(study.MARKETS.items(), unit="market"):
        series = study.play(config, markets, engine)
        found[name] = {measure: _of(values) for measure, values in series.items()}
    setting = {
        "command": f"python -m scripts.pages.{NAME} --markets {markets}",
        "engine": Simulator(next(iter(study.MARKETS.values())), 1, engine=engine, seed=0).engine_name,
        "markets": markets,
        "bin": BIN,
        "seconds": time.perf_counter() - begin,
    }
    return {"setting": setting | {"measured": measured_on(setting)}, "found": found}


def _of(values: np.ndarray) -> dict[str, Any]:
    """Return means of a measure, float64 `[change, seed, interval]`, and of the paired differences a change makes.

    A market's value is its mean over the intervals that have one. `moved` is the last window less the first.
    """
    differences = values - values[:1]
    after = {name: slice(study.BEFORE + low, study.BEFORE + high) for name, (low, high) in WINDOWS.items()}
    first, last = after.values()
    binned = differences.reshape(*values.shape[:2], -1, BIN)
    return {
        "level": mean_and_error(_mean(values[0, :, study.BEFORE :])),
        "change": {
            change: {name: mean_and_error(_mean(differences[place, :, part])) for name, part in after.items()}
            for place, change in enumerate(study.CHANGES)
        },
        "moved": {
            change: mean_and_error(_mean(differences[place, :, last]) - _mean(differences[place, :, first]))
            for place, change in enumerate(study.CHANGES)
        },
        "path": {
            change: [mean_and_error(column) for column in _mean(binned[place]).T]
            for place, change in enumerate(study.CHANGES)
        },
    }


def _mean(values: np.ndarray) -> np.ndarray:
    """Return means over the last axis, without NaN; NaN where there is nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanmean(values, axis=-1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or read what was measured; draw, and write the page."""
    parser = Parser(description=__doc__)
    parser.add_argument("--results", type=Path, help="write the page from this file, and measure nothing")
    parser.add_argument("--markets", type=whole(2, 1 << 20), default=512, help="seeds of each change")
    parser.add_argument("--engine", default="cpu", help="as in Simulator; the figures are the same on every engine")
    parser.add_argument("--output", type=Path, default=Path("docs"), help="folder of the page, images/ and the figures")
    options = parser.parse_args(arguments)
    plots.require_matplotlib()
    check_folder("--output", options.output / "images")
    if options.results:
        found = json.loads(options.results.read_text())
    else:
        found = json.loads(json.dumps(measure(options.markets, options.engine)))
    write_figures(options.output, NAME, found)
    draw(options.output / "images", found)
    write_page(options.output, NAME, page(found))


if __name__ == "__main__":
    sys.exit(exit_code(main))
