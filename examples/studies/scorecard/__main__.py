"""`python -m examples.studies.scorecard --markets 4000` holds every preset to the stylised facts of real markets.

Null models are measured beside each, at several numbers of intervals taken together, and what market orders cause. It
writes results.json and the picture, and fills README.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.studies.scorecard.tables import SHOWN
from kineticsim_env.config import PRESETS, MarketConfig
from kineticsim_env.runtime.options import exit_code, whole
from kineticsim_env.runtime.seeds import run_seed
from kineticsim_env.scorecards import Scorecard, scorecard
from scripts.pages.command import make_page, page_parser

NAME = "scorecard"
SEED = run_seed(17)
AGGREGATES = (1, 5, 50)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw, and fill the page."""
    parser = page_parser(NAME, __doc__, 256, "of each preset")
    parser.add_argument("--intervals", type=whole(200), default=20_000, help="that are measured")
    options = parser.parse_args(arguments)
    cards: dict[str, Scorecard] = {}

    def measure() -> dict[str, Any]:
        run: dict[str, Any] = {"aggregate": AGGREGATES, "seed": SEED, "engine": options.engine}
        for preset in PRESETS:
            cards[preset] = scorecard(MarketConfig.preset(preset), options.intervals, markets=options.markets, **run)
            print(f"{preset}: {cards[preset].shown[0].within} within their ranges")
        kept = {preset: stored(card) for preset, card in cards.items()}
        return {"markets": options.markets, "intervals": options.intervals, "cards": kept}

    def draw(folder: Path, _: Any) -> None:
        if SHOWN in cards:  # of --results the picture stays as it is
            cards[SHOWN].draw(folder / "scorecard.png")

    make_page(options, NAME, measure, draw)


def stored(card: Scorecard) -> dict[str, Any]:
    """Return a card as JSON keeps it."""
    return {
        "columns": [
            {"name": column.name, "aggregate": column.aggregate, "null": column.null}
            | {what: [getattr(line, what) for line in column.lines] for what in ("value", "error", "count", "given")}
            for column in card.shown
        ],
        "impact": card.impact._asdict() if card.impact else None,
    }


if __name__ == "__main__":
    sys.exit(exit_code(main))
