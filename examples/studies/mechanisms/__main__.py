"""`python -m examples.studies.mechanisms` measures one stream of orders under continuous trading and in auctions.

It writes results.json and the pictures, and fills README.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from examples.studies.mechanisms import study
from examples.studies.mechanisms.figures import draw, rule_key
from kineticsim_env.runtime.options import exit_code
from scripts.pages.command import make_page, page_parser
from scripts.pages.markdown import means

NAME = "mechanisms"
INTERVALS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
FUNDAMENTALS = {"jumps seldom": 0.02, "jumps often": 0.2}  # per beat


def measure(markets: int, engine: str) -> dict[str, Any]:
    """Play the stream under every rule, and return every figure of the page."""
    bar = tqdm(total=len(FUNDAMENTALS) * (1 + len(INTERVALS)), unit="rule")
    found: dict[str, dict[str, Any]] = {}
    for name, jump_prob in FUNDAMENTALS.items():
        fundamental = study.fundamental_at_looks(markets, jump_prob, engine)
        found[name] = {}
        for interval in (study.CONTINUOUS, *INTERVALS):
            path = study.play(interval, markets, jump_prob, engine)
            found[name][rule_key(interval)] = means(study.measure(path, fundamental)._asdict())
            bar.update()
    bar.close()
    return {"markets": markets, "found": found}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or read what was measured; draw, and fill the page."""
    options = page_parser(NAME, __doc__, 1024, "markets per point", engine="cpu").parse_args(arguments)
    make_page(
        options,
        NAME,
        lambda: measure(options.markets, options.engine),
        lambda folder, found: draw(folder, options.engine, found["found"]),
        indent=None,
    )


if __name__ == "__main__":
    sys.exit(exit_code(main))
