"""`python -m scripts.pages.price_impact --markets 4096` measures the price impact of block orders.

It writes docs/price_impact.md and its pictures.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from kineticsim_env.config import MarketConfig
from kineticsim_env.counterfactual.causal import RESAMPLES
from kineticsim_env.runtime.options import exit_code
from kineticsim_env.runtime.seeds import run_seed
from kineticsim_env.simulator import Simulator
from kineticsim_env.studies.price_impact import Point, fit_impact, half_life, measure
from scripts.pages.command import check_place, page_parser
from scripts.pages.markdown import write_page
from scripts.pages.price_impact_figures import draw_preset
from scripts.pages.price_impact_text import page

SEED, DURATION, AFTER = run_seed(13), 10, 60
SMALL = 3  # orders of a sweep over rates that are fitted on their own: those before the curve bends


class Sweeps(NamedTuple):
    """The orders of one preset: (block, units per auction) of each."""

    by_length: tuple[tuple[int, int], ...]  # one rate, ever longer
    by_rate: tuple[tuple[int, int], ...]  # one duration, ever faster
    by_speed: tuple[tuple[int, int], ...]  # one block, ever faster


SWEEPS = {
    "trading": Sweeps(
        tuple((4 * n, 4) for n in (1, 2, 4, 8, 16, 32, 64)),
        tuple((DURATION * rate, rate) for rate in (1, 2, 3, 4, 6, 8, 10, 12, 14)),
        tuple((48, rate) for rate in (1, 2, 3, 4, 6, 8, 12, 16)),
    ),
    "paper": Sweeps(
        tuple((32 * n, 32) for n in (1, 2, 4, 8, 16, 32, 64)),
        tuple((DURATION * rate, rate) for rate in (2, 4, 8, 16, 32, 64, 96, 128)),
        tuple((480, rate) for rate in (8, 16, 32, 48, 80, 120, 160)),
    ),
}


OTHERS: dict[str, dict[str, Any]] = {  # variants of the preset "trading"; noise agents take the place of others
    "as it is": {},
    "without momentum agents": {"momentum": 0.0, "noise": 0.60},
    "without fundamental agents": {"fundamental": 0.0, "noise": 0.75},
    "without makers": {"maker": 0.0, "noise": 0.55},
    "nothing is cancelled": {"cancel_prob": 0.0},
}
OTHER_ORDERS = ((40, 4), (120, 12))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw, and write the page."""
    parser = page_parser(__doc__, 4096, "markets, the same for every order", engine="cpu", kept=False)
    options = parser.parse_args(arguments)
    check_place(options)
    begin = time.perf_counter()
    common: dict[str, Any] = {"num_markets": options.markets, "seed": SEED, "after": AFTER, "engine": options.engine}
    found: dict[str, dict[str, list[Point]]] = {}
    for name, sweeps in SWEEPS.items():
        config = MarketConfig.preset(name)
        found[name] = {
            kind: measure(config, orders, label=f"{name}, {kind}", **common)
            for kind, orders in sweeps._asdict().items()
        }
    sold = {name: measure(MarketConfig.preset(name), [_middle(name)], side="sell", **common)[0] for name in SWEEPS}
    others = {
        name: measure(MarketConfig.preset("trading", **changes), OTHER_ORDERS, label=name, **common)
        for name, changes in OTHERS.items()
    }
    even = {
        side: measure(MarketConfig.preset("paper", tie="mid"), [_middle("paper")], side=side, **common)[0]
        for side in ("buy", "sell")
    }
    fits = {
        name: {kind: fit_impact(points) for kind, points in kinds.items()}
        | {"small": fit_impact(kinds["by_rate"][:SMALL])}
        for name, kinds in found.items()
    }
    half = {
        name: {point.impact.block: half_life(point) for point in kinds["by_length"]} for name, kinds in found.items()
    }
    for name, kinds in found.items():
        draw_preset(options.output / "images" / f"price_impact_{name}.png", kinds, fits[name], _middle(name))
    setting = {
        "command": f"python -m scripts.pages.price_impact --markets {options.markets}",
        "engine": Simulator(MarketConfig(), 2, engine=options.engine).engine_name,
        "markets": options.markets,
        "duration": DURATION,
        "after": AFTER,
        "resamples": RESAMPLES,
        "small": SMALL,
        "middle": {name: _middle(name) for name in SWEEPS},
        "seconds": time.perf_counter() - begin,
    }
    write_page(options.output, "price_impact", page(found, sold, others, even, fits, half, setting))


def _middle(name: str) -> tuple[int, int]:
    """Return the order that pictures of one order show: the duration of the second sweep at the rate of the first."""
    rate = SWEEPS[name].by_length[0][1]
    return DURATION * rate, rate


if __name__ == "__main__":
    sys.exit(exit_code(main))
