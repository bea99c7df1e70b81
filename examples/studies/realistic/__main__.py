"""`python -m examples.studies.realistic --markets 50000` measures the preset `"realistic"` and what it is made of.

Beside the preset it measures its fundamental path alone, the preset without its order splitters, order flow without
structure, and `"news"`. It writes results.json and the picture, and fills README.md, which also shows the search that
found the preset: `search.py`, which is measured again only if the preset changes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from examples.studies.realistic import study
from examples.studies.realistic.tables import draw
from kineticsim_env.config import MarketConfig
from kineticsim_env.counterfactuals.causal import causal_impact
from kineticsim_env.runtime.options import exit_code, whole
from kineticsim_env.statistics.null_models import zero_intelligence
from scripts.pages.command import make_page, page_parser

NAME, BESIDE, PATH = "realistic", "news", "fundamental path alone"


def look(config: MarketConfig, options: argparse.Namespace, price: str = "last") -> dict[str, Any]:
    """Return what a market shows, as JSON keeps it."""
    found = study.look(config, options.markets, options.intervals, price, engine=options.engine)
    return {
        "value": {name: np.asarray(value).tolist() for name, value in found.value.items()},
        "error": {name: np.asarray(error).tolist() for name, error in found.error.items()},
        "numbers": found.numbers,
        "inside": found.inside,
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return every figure of the page but those of the search, as JSON keeps them."""
    preset = MarketConfig.preset(NAME)
    return {
        "markets": options.markets,
        "intervals": options.intervals,
        "presets": {
            NAME: look(preset, options),
            PATH: look(preset, options, "fundamental"),
            "no splitters": look(study.without(splitters=True), options),
            "no moving fundamental": look(study.without(fundamental=True), options),
            "zero intelligence": look(zero_intelligence(preset), options),
            BESIDE: look(MarketConfig.preset(BESIDE), options),
        },
        "impact": causal_impact(NAME, num_markets=min(options.markets, 4096), engine=options.engine)._asdict(),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw, and fill the page."""
    parser = page_parser(NAME, __doc__, 1000, "of each market")
    parser.add_argument("--intervals", type=whole(400, 1 << 20), default=study.INTERVALS, help="of each market")
    options = parser.parse_args(arguments)
    make_page(options, NAME, lambda: measure(options), draw, indent=None)


if __name__ == "__main__":
    sys.exit(exit_code(main))
