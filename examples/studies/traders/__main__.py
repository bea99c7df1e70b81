"""`python -m examples.studies.traders` runs the examples of examples/traders.

It writes results.json and the pictures, and fills README.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kineticsim_env.runtime.options import exit_code
from kineticsim_env.statistics import bootstrap_interval
from scripts.pages.command import make_page, page_parser
from scripts.pages.markdown import means

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "traders"))

import chiarella  # noqa: E402
import cost  # noqa: E402
import private_values  # noqa: E402
import trend_follower  # noqa: E402

NAME = "traders"
AUCTIONS, PERIODS, INTERVALS = 1000, 500, 2000  # of trend followers, private values, chartists
TIMED = (64, 50, 15)  # markets, auctions and rounds that are timed
SERIES = ("price", "fundamental", "change")  # which only the pictures show


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and draw, or read what was measured; fill the page."""
    options = page_parser(NAME, __doc__, 256, "of every kind", engine="cpu").parse_args(arguments)
    played: dict[Any, Any] = {}

    def measure() -> dict[str, Any]:
        markets, engine = options.markets, options.engine
        followers = {count: trend_follower.measure(count, markets, AUCTIONS, engine) for count in (0, 2, 4, 6)}
        values = private_values.measure(markets, PERIODS, engine)
        mixtures = chiarella.measure(markets, INTERVALS, engine)
        played.update({trend_follower: followers, private_values: values, chiarella: mixtures})
        return {
            "markets": markets,
            "auctions": AUCTIONS,
            "periods": PERIODS,
            "intervals": INTERVALS,
            "followers": {count: _of(found) for count, found in followers.items()},
            "values": {", ".join(pair): means(found) for pair, found in values.items()},
            "mixtures": {
                kind: _of(found) | {name: bootstrap_interval(found[name]) for name in ("kurtosis", "long")}
                for kind, found in mixtures.items()
            },
            "tables": {example.__name__: example.table(found) for example, found in played.items()}
            | {"cost": cost.table(cost.measure(*TIMED, engine))},
        }

    def draw(folder: Path, _: Any) -> None:
        for example, found in played.items():  # of --results the pictures stay as they are
            example.draw_picture(str(folder / f"traders_{example.__name__}.png"), found)

    make_page(options, NAME, measure, draw, indent=None)


def _of(found: dict[str, Any]) -> dict[str, Any]:
    return means({name: values for name, values in found.items() if name not in SERIES})


if __name__ == "__main__":
    sys.exit(exit_code(main))
