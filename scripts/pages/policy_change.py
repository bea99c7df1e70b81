"""`python -m scripts.pages.policy_change --markets 512` changes the rules of running markets, and says what it did.

It writes docs/policy_change.md, its pictures, and policy_change.json with every figure, from which `--results` writes
the page again without measuring.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from kineticsim_env.runtime.options import exit_code
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics import mean_and_error
from kineticsim_env.studies import policy_change as study
from scripts.pages.command import make_page, page_parser
from scripts.pages.markdown import measured_on
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
    """Make the page."""
    options = page_parser(__doc__, 512, "seeds of each change", 2).parse_args(arguments)
    make_page(options, NAME, lambda: measure(options.markets, options.engine), draw, page)


if __name__ == "__main__":
    sys.exit(exit_code(main))
