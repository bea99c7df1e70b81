"""`python -m scripts.pages.mechanisms` measures one stream of orders under continuous trading and under call auctions.

It writes docs/mechanisms.md and its pictures.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from kineticsim_env.runtime.files import check_folder
from kineticsim_env.runtime.options import Parser, exit_code, whole
from kineticsim_env.simulator import Simulator
from kineticsim_env.studies import plots
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
from scripts.pages.mechanisms_figures import draw
from scripts.pages.mechanisms_text import page

INTERVALS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
FUNDAMENTALS = {"jumps seldom": 0.02, "jumps often": 0.2}  # per beat


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw, and write the page."""
    parser = Parser(description=__doc__)
    parser.add_argument("--markets", type=whole(2, 1 << 20), default=1024, help="markets per point")
    parser.add_argument("--engine", default="cpu", help="as in Simulator; the figures are the same on every engine")
    parser.add_argument("--output", type=Path, default=Path("docs"), help="folder of the page and of images/")
    options = parser.parse_args(arguments)
    plots.require_matplotlib()
    check_folder("--output", options.output / "images")
    begin = time.perf_counter()
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
    (options.output / "mechanisms.md").write_text(page(found, setting))
    print(f"wrote {options.output / 'mechanisms.md'} in {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    sys.exit(exit_code(main))
