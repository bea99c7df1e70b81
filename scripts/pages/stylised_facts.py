"""`python -m scripts.pages.stylised_facts --markets 4096` measures the market's own behaviour by its mix of agents.

The published sweep over the share of momentum agents, at its size and with many markets per point; the latter with its
rounding and with a coin's; then the plane momentum x maker. It writes docs/stylised_facts.md and its pictures.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.options import exit_code
from kineticsim_env.simulator import Simulator
from kineticsim_env.studies.stylised_facts import AUCTIONS, EDGE, measure, populations
from scripts.pages.command import check_place, page_parser
from scripts.pages.markdown import write_page
from scripts.pages.stylised_facts_figures import draw
from scripts.pages.stylised_facts_text import page

MOMENTUM = tuple(round(0.05 * step, 2) for step in range(15))
MAKER = 0.15  # the published sweep's
MAKERS = tuple(round(0.05 * step, 2) for step in range(8))  # of the plane
PUBLISHED_MARKETS, PLANE_MARKETS = 64, 128
OTHERS: dict[str, dict[str, Any]] = {  # what else the published text leaves open, at its number of markets
    "as published": {},
    '`population="fixed"`': {"population": "fixed"},
    '`tie="mid"`': {"tie": "mid"},
    '`residue="cancel"`': {"residue": "cancel"},
    '`rounding="coin"`': {"rounding": "coin"},
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw, and write the page."""
    parser = page_parser(__doc__, 4096, "markets per point of the large sweep", engine="cpu", kept=False)
    options = parser.parse_args(arguments)
    check_place(options)
    begin = time.perf_counter()
    line, plane = populations(MOMENTUM, (MAKER,)), populations(MOMENTUM, MAKERS)
    small = {
        name: measure(line, PUBLISHED_MARKETS, engine=options.engine, **changes) for name, changes in OTHERS.items()
    }
    large = measure(line, options.markets, engine=options.engine)
    coin = measure(line, options.markets, engine=options.engine, rounding="coin")
    grid = measure(plane, min(PLANE_MARKETS, options.markets), lags=1, engine=options.engine)
    draw(options.output / "images", small["as published"], large, coin, grid)
    setting = {
        "command": f"python -m scripts.pages.stylised_facts --markets {options.markets}",
        "engine": Simulator(MarketConfig(), 2, engine=options.engine).engine_name,
        "markets": options.markets,
        "plane_markets": min(PLANE_MARKETS, options.markets),
        "auctions": AUCTIONS,
        "edge": EDGE,
        "seconds": time.perf_counter() - begin,
    }
    write_page(options.output, "stylised_facts", page(small, large, coin, grid, setting))


if __name__ == "__main__":
    sys.exit(exit_code(main))
