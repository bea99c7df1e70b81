"""`python -m examples.studies.presets.news --markets 1024` holds the preset `"news"` to the goals of a default market.

It writes news.json and a picture, and fills README.md; `--results` does so without measuring. How the preset was looked
for: `news_search.py`.

    python -m examples.studies.presets.news --markets 16384 --engine cuda --no-page --output runs   # on a GPU
    python -m examples.studies.presets.news --results runs/news.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from examples.studies.attacks.study import ALONE, TOGETHER, Attack, Outcome, Owner, attack, attack_together
from examples.studies.presets.figures import draw_default
from examples.studies.presets.goals import choose, judge
from examples.studies.presets.news_search import changed
from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.files import check_folder
from kineticsim_env.runtime.options import exit_code
from kineticsim_env.statistics import mean_and_error
from scripts.pages.command import figures, make_page, page_parser
from scripts.pages.markdown import write_figures

NAME, PRESET = "presets.news", "news"


def rivals() -> dict[str, MarketConfig]:
    """Return the markets that the preset is compared with, by name."""
    news = MarketConfig.preset(PRESET)
    beats = int(news.interval or 1) / int(news.beat or np.max(news.num_agents))  # per interval
    quiet, loud = news.regimes[0], news.regimes[-1]
    return {
        "`continuous`": MarketConfig.preset("continuous"),
        "`trading`": MarketConfig.preset("trading"),
        "never news": news.replace(regimes=None, regime_switch_prob=0.0, **quiet),
        "always news": news.replace(regimes=None, regime_switch_prob=0.0, **loud),
        "news for three intervals": news.replace(regime_switch_prob=1 / (3 * beats)),
        "takers two ticks from the mid": news.replace(taker_offset=np.add(news.taker_offset, 1)),
        "20 orders per interval": news.replace(interval=20),
        "call auctions of the same orders": news.replace(mechanism="call", tie="mid", residue="cancel"),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return every figure of the page, as JSON keeps them."""
    engine = options.engine
    markets = {PRESET: MarketConfig.preset(PRESET)} | rivals()
    attacks = ALONE | TOGETHER
    bar = tqdm(total=len(markets) + len(attacks), unit="study")
    measured = {}
    for name, config in markets.items():
        many = options.markets if name == PRESET else max(2, options.markets // 4)
        found = judge(config, choose(config, many, engine), many, engine)
        measured[name] = {"market": changed(config), "markets": many, "found": found}
        bar.update()
    attacked = {}  # in more markets, as what an attack loses is little beside what chance makes of its inventory
    for name, how in attacks.items():
        pnl = mean_and_error(_attacked(markets[PRESET], how, 4 * options.markets, engine).pnl)
        attacked[f"`{name}`" if name in ALONE else name] = (pnl.mean, pnl.interval())
        bar.update()
    bar.close()
    return {"measured": measured, "attacks": attacked}


def _attacked(config: MarketConfig, how: Attack | Owner, markets: int, engine: str) -> Outcome:
    if isinstance(how, Owner):
        return attack_together(config, how, markets, engine)
    return attack(config, how, markets, engine)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or read what was measured; draw, and fill the page."""
    parser = page_parser(NAME, __doc__, 1024, "markets of each player; rivals a quarter", 8)
    parser.add_argument("--no-page", action="store_true", help="write the figures alone, which needs no matplotlib")
    options = parser.parse_args(arguments)
    if options.no_page:
        check_folder("--output", options.output)
        write_figures(options.output, PRESET, figures(options, NAME, lambda: measure(options)))
        return
    make_page(options, NAME, lambda: measure(options), draw_default)


if __name__ == "__main__":
    sys.exit(exit_code(main))
