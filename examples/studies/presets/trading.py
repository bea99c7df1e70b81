"""`python -m examples.studies.presets.trading --markets 4096` measures what the preset `"trading"` was chosen by.

It writes trading.json and pictures, and fills README.md. `continuous.py` measures another preset with it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from examples.studies.presets.figures import draw_makers
from examples.studies.presets.makers import (
    AUCTIONS,
    INVENTORY_LIMIT,
    SIZE,
    WARMUP,
    Game,
    Returns,
    play,
    returns_without_learners,
    without_learners,
)
from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.options import exit_code
from kineticsim_env.statistics import bootstrap_interval, deviation_and_error, mean_and_error
from scripts.pages.command import make_page, page_parser

Games = Mapping[tuple[float, int], Game]  # by skew and half-spread

HALF_SPREADS = (1, 2, 3, 4, 5, 6, 8)
SKEWS = (0.0, 0.04, 0.08, 0.12, 0.2)
SKEW = 0.08  # of the candidates' second row

# The design's candidates, two that lead from them to the preset, and the preset with the published model's rounding.
# All share the options of the preset.
CANDIDATES: dict[str, dict[str, Any]] = {
    "16 agents": dict(
        num_agents=16, noise=0.65, momentum=0.0, maker=0.05, noise_spread=12, walk_prob=0.2, jump_prob=0.01
    ),
    "32 agents": dict(
        num_agents=32, noise=0.65, momentum=0.0, maker=0.05, noise_spread=12, jump_prob=0.01, market_order_prob=0.2
    ),
    "20 agents, one momentum": dict(noise=0.55, momentum=0.05),
    "64 agents, close to the mid": dict(num_agents=64, noise_spread=3, maker_half_spread=1, market_order_prob=0.1),
    "half to even": dict(rounding="even"),
}


def measure(
    name: str,
    candidates: Mapping[str, MarketConfig],
    skews: Sequence[float],
    skew: float,
    options: argparse.Namespace,
) -> tuple[dict[str, Any], Games]:
    """Let all makers trade in a preset and in the candidates beside it; return the figures, and the preset's games.

    In the preset makers have all `skews`, 0 among them; in the candidates 0 and `skew`.
    """
    preset, few = MarketConfig.preset(name), max(2, options.markets // 4)
    played = {name: (preset, skews, options.markets)}
    played |= {rival: (config, (0.0, skew), few) for rival, config in candidates.items()}
    bar = tqdm(total=len(HALF_SPREADS) * sum(len(each) for _, each, _ in played.values()), unit="maker")
    games: dict[str, dict[tuple[float, int], Game]] = {}
    for market, (config, each, markets) in played.items():
        games[market] = {}
        for key in ((skew, half) for skew in each for half in HALF_SPREADS):
            games[market][key] = play(config, key[1], key[0], markets, options.engine)
            bar.update()
    bar.close()
    watched = {
        market: without_learners(config, options.markets, options.engine)._asdict()
        for market, (config, *_) in played.items()
    }
    rule = [SIZE, INVENTORY_LIMIT, WARMUP, AUCTIONS]
    setting = {"markets": options.markets, "rival_markets": few, "makers": rule, "skew": skew}
    rows = {market: _rows(each) for market, each in games.items()}
    return {"setting": setting, "makers": rows, "watched": watched}, games[name]


@np.errstate(invalid="ignore")  # the error of a deviation where nobody trades
def _rows(games: Games) -> list[dict[str, Any]]:
    """Return what every maker did, and its paired differences to the best one without a skew."""
    plain = games[best_of(games, [0.0])]
    return [
        {
            "skew": skew,
            "half": half,
            "pnl": mean_and_error(game.pnl),
            "sd": deviation_and_error(game.pnl),
            "low": float(np.quantile(game.pnl, 0.05)),
            "gain": mean_and_error(game.pnl - plain.pnl),
            "risk": deviation_and_error(game.pnl, plain.pnl),
            "bought": mean_and_error(game.bought),
            "sold": mean_and_error(game.sold),
            "surplus": mean_and_error(game.bought - game.sold),
            "held": mean_and_error(game.held),
        }
        for (skew, half), game in games.items()
    ]


def best_of(games: Games, skews: Sequence[float]) -> tuple[float, int]:
    """Return the skew, of some, and the half-spread of the maker that earns most."""
    return max((key for key in games if key[0] in skews), key=lambda key: games[key].pnl.mean())


def make_part(
    name: str, about: str | None, words: Sequence[str] | None, measured: Any, draw: Any = draw_makers
) -> None:
    """Measure a preset, or read what was measured; write its figures and pictures, and fill the page."""
    name_of = f"presets.{name}"
    options = page_parser(name_of, about, 4096, "markets of each maker; candidates get a quarter").parse_args(words)

    def drawn(folder: Any, figures: Any) -> None:
        draw(folder, name, figures, options.engine)

    make_page(options, name_of, lambda: measured(options), drawn, indent=None)


def _returns(found: Returns) -> dict[str, Any]:
    """Return what the changes of a price are like, over markets."""
    by_place = {what: values.T for what, values in found._asdict().items() if values.ndim == 2}
    return {
        **{what: [mean_and_error(each) for each in values] for what, values in by_place.items()},
        "kurtosis": bootstrap_interval(found.kurtosis),
        "away": mean_and_error(found.away),
    }


def measure_trading(options: argparse.Namespace) -> dict[str, Any]:
    """Return every figure of the preset `"trading"`, as JSON keeps them."""
    preset = MarketConfig.preset("trading")
    others = {name: preset.replace(**changes) for name, changes in CANDIDATES.items()}
    others["`paper`"] = MarketConfig.preset("paper")
    found, _ = measure("trading", others, SKEWS, SKEW, options)
    returns = returns_without_learners(preset, options.markets, options.engine)
    calm = preset.replace(momentum=0.0, noise=np.add(preset.noise, preset.momentum))
    without = returns_without_learners(calm, options.markets, options.engine)
    returns["last price, no momentum agents"] = without["last price"]
    return found | {"returns": {price: _returns(each) for price, each in returns.items()}}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw, and fill the page."""
    make_part("trading", __doc__, arguments, measure_trading)


if __name__ == "__main__":
    sys.exit(exit_code(main))
