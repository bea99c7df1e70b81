"""`python -m examples.studies.stylised_facts --markets 4096` measures the market's own behaviour by its mix of agents.

The published sweep over the share of momentum agents, at its size and with many markets per point; the latter with its
rounding and with a coin's; then the plane momentum x maker. It writes results.json and the pictures, and fills
README.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from examples.studies.stylised_facts.figures import draw
from examples.studies.stylised_facts.study import AUCTIONS, EDGE, LAGS, Sweep, measure, populations
from kineticsim_env.runtime.options import exit_code
from scripts.pages.command import make_page, page_parser

NAME = "stylised_facts"
MOMENTUM = tuple(round(0.05 * step, 2) for step in range(15))
MAKER = 0.15  # the published sweep's
MAKERS = tuple(round(0.05 * step, 2) for step in range(8))  # of the plane
PUBLISHED_MARKETS, PLANE_MARKETS = 64, 128
JUMP = 10  # ticks: a return of this size is counted as a jump
SHOWN_LAGS = (1, 2, 3, 5, 10, 20)
OTHERS: dict[str, dict[str, Any]] = {  # what else the published text leaves open, at its number of markets
    "as published": {},
    '`population="fixed"`': {"population": "fixed"},
    '`tie="mid"`': {"tie": "mid"},
    '`residue="cancel"`': {"residue": "cancel"},
    '`rounding="coin"`': {"rounding": "coin"},
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and draw, or read what was measured; fill the page."""
    parser = page_parser(NAME, __doc__, 4096, "markets per point of the large sweep", engine="cpu")
    options = parser.parse_args(arguments)
    drawn: list[Sweep] = []

    def figures() -> dict[str, Any]:
        engine = options.engine
        line, plane = populations(MOMENTUM, (MAKER,)), populations(MOMENTUM, MAKERS)
        small = {name: measure(line, PUBLISHED_MARKETS, engine=engine, **changes) for name, changes in OTHERS.items()}
        large = measure(line, options.markets, engine=engine)
        coin = measure(line, options.markets, engine=engine, rounding="coin")
        grid = measure(plane, min(PLANE_MARKETS, options.markets), lags=1, engine=engine)
        drawn.extend((small["as published"], large, coin, grid))
        return {
            "auctions": AUCTIONS,
            "edge": EDGE,
            "jump": JUMP,
            "small": {name: figures_of(sweep) for name, sweep in small.items()},
            "large": figures_of(large),
            "coin": figures_of(coin),
            "plane": figures_of(grid, ("price_sd", "reached_edge")),
        }

    def pictures(folder: Path, _: Any) -> None:
        if drawn:  # of --results they stay as they are
            draw(folder, *drawn)

    make_page(options, NAME, figures, pictures, indent=None)


def figures_of(sweep: Sweep, names: Sequence[str] = ()) -> dict[str, Any]:
    """Return means over markets by statistic and point, of those named; else of all, with what kurtosis is made of."""
    points = range(len(sweep.shares))

    def means(name: str, lag: int | None = None) -> list[list[float]]:
        return [_short(sweep.mean(name, point, lag)) for point in points]

    scalars = names or [name for name, values in sweep.values.items() if values.ndim == 2]
    found = {
        "shares": sweep.shares.tolist(),
        "markets": sweep.values[scalars[0]].shape[1],
        "means": {name: means(name) for name in scalars},
    }
    if names:
        return found
    lags = [lag for lag in SHOWN_LAGS if lag <= LAGS]
    kurtosis, largest = sweep.values["kurtosis"], sweep.values["largest"]
    return found | {
        "lags": {name: {lag: means(name, lag) for lag in lags} for name in ("acf", "acf_abs", "acf_abs_late")},
        "kurtosis": [_short(sweep.kurtosis(point)) for point in points],
        "mid_kurtosis": _short(sweep.kurtosis(0, "mid_kurtosis")),
        "pooled_kurtosis": _short(sweep.pooled_kurtosis(len(points) - 1)),
        "median_kurtosis": _short(np.nanmedian(kurtosis, axis=1)),
        "negative": _short(np.mean(kurtosis < 0, axis=1)),
        "largest": _short(largest.max(1)),
        "jumps": _short(np.mean(largest >= JUMP, axis=1)),
    }


def _short(values: Any) -> list[float]:
    return [float(f"{value:.7g}") for value in values]


if __name__ == "__main__":
    sys.exit(exit_code(main))
