"""`python -m scripts.pages.mechanisms` measures one stream of orders under continuous trading and under call auctions.

It writes docs/mechanisms.md and its pictures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tqdm import tqdm

from kineticsim_env.runtime.options import exit_code
from kineticsim_env.simulator import Simulator
from kineticsim_env.studies.mechanisms import (
    CONTINUOUS,
    EVENTS,
    SEED,
    WARMUP,
    Measures,
    fundamental_at_looks,
    market,
    measure,
    play,
)
from scripts.pages.command import check_place, page_parser
from scripts.pages.markdown import write_page
from scripts.pages.mechanisms_figures import draw
from scripts.pages.mechanisms_text import page

INTERVALS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
FUNDAMENTALS = {"jumps seldom": 0.02, "jumps often": 0.2}  # per beat


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw, and write the page."""
    options = page_parser(__doc__, 1024, "markets per point", engine="cpu", kept=False).parse_args(arguments)
    check_place(options)
    bar = tqdm(total=len(FUNDAMENTALS) * (1 + len(INTERVALS)), unit="rule")
    found: dict[str, dict[int | None, Measures]] = {}
    for name, jump_prob in FUNDAMENTALS.items():
        fundamental = fundamental_at_looks(options.markets, jump_prob, options.engine)
        found[name] = {}
        for interval in (CONTINUOUS, *INTERVALS):
            found[name][interval] = measure(play(interval, options.markets, jump_prob, options.engine), fundamental)
            bar.update()
    bar.close()
    draw(options.output / "images", options.engine, found)
    setting = {
        "command": f"python -m scripts.pages.mechanisms --markets {options.markets}",
        "engine": Simulator(market(CONTINUOUS), 2, engine=options.engine).engine_name,
        "markets": options.markets,
        "warmup": WARMUP,
        "events": EVENTS,
        "seed": f"{SEED >> 32} * 2^32",
    }
    write_page(options.output, "mechanisms", page(found, setting))


if __name__ == "__main__":
    sys.exit(exit_code(main))
