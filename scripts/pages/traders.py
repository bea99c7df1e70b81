"""`python -m scripts.pages.traders` runs the examples of examples/traders; it writes docs/traders.md and pictures."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kineticsim_env.runtime.options import exit_code
from kineticsim_env.simulator import Simulator
from scripts.pages.command import check_place, page_parser
from scripts.pages.markdown import write_page
from scripts.pages.traders_text import Sizes, page

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "examples" / "traders"))

import chiarella  # noqa: E402
import cost  # noqa: E402
import private_values  # noqa: E402
import trend_follower  # noqa: E402

AUCTIONS, PERIODS, INTERVALS = 1000, 500, 2000  # of trend followers, private values, chartists
TIMED = (64, 50, 15)  # markets, auctions and rounds that are timed


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw, and write the page."""
    options = page_parser(__doc__, 256, "of every kind", engine="cpu", kept=False).parse_args(arguments)
    check_place(options)

    def picture(name: str) -> str:
        return str(options.output / "images" / f"traders_{name}.png")

    begin = time.perf_counter()
    followers = {
        count: trend_follower.measure(count, options.markets, AUCTIONS, options.engine) for count in (0, 2, 4, 6)
    }
    trend_follower.draw_picture(picture("trend_follower"), followers)
    values = private_values.measure(options.markets, PERIODS, options.engine)
    private_values.draw_picture(picture("private_values"), values)
    mixtures = chiarella.measure(options.markets, INTERVALS, options.engine)
    chiarella.draw_picture(picture("chiarella"), mixtures)
    setting = {
        "command": f"python -m scripts.pages.traders --markets {options.markets}",
        "engine": Simulator(num_markets=2, engine=options.engine).engine_name,
        "seconds": time.perf_counter() - begin,
    }
    sizes = Sizes(options.markets, AUCTIONS, PERIODS, INTERVALS)
    tables = {
        "trend_follower": trend_follower.table(followers),
        "private_values": private_values.table(values),
        "chiarella": chiarella.table(mixtures),
        "cost": cost.table(cost.measure(*TIMED, options.engine)),
    }
    write_page(options.output, "traders", page(tables, followers, values, mixtures, sizes, setting))


if __name__ == "__main__":
    sys.exit(exit_code(main))
