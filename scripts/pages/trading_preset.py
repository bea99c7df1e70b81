"""`python -m scripts.pages.trading_preset --markets 4096` measures what the preset `"trading"` was chosen by.

It writes docs/trading_preset.md and its pictures. `continuous_preset.py` measures another preset with it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tqdm import tqdm

from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.options import exit_code
from kineticsim_env.simulator import Simulator
from kineticsim_env.studies.trading_preset import (
    AUCTIONS,
    INVENTORY_LIMIT,
    SIZE,
    WARMUP,
    Game,
    Market,
    play,
    returns_without_learners,
    without_learners,
)
from scripts.pages.command import check_place, page_parser
from scripts.pages.markdown import write_page
from scripts.pages.trading_preset_figures import draw
from scripts.pages.trading_preset_text import NO_MOMENTUM, page

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
VERDICTS = {
    "16 agents": "a maker earns somewhat more, but there is one built-in maker and no momentum agent: learners in "
    "these roles would have nobody to replace, or would leave the role empty.",
    "32 agents": "the spread is below 3 ticks, and a maker earns less than half.",
    "20 agents, one momentum": "close to the preset, but a learner that takes the place of the one momentum agent "
    "leaves no other; with three of them the herd is there whoever learns.",
    "64 agents, close to the mid": "what one would try first: a spread of hardly more than one tick leaves nothing to "
    "earn and nothing to learn.",
    "half to even": "the published model's rounding, which [makes facts of its own](stylised_facts.md"
    "#what-rounding-makes-of-it) where prices hardly move. Here they move by six ticks per auction, and little depends "
    "on it: what is earned within two ticks of the mid.",
}


class Measured(NamedTuple):
    """What the page of a preset is written from."""

    preset: MarketConfig
    games: dict[tuple[float, int], Game]  # by skew and half-spread
    rivals: dict[str, dict[tuple[float, int], Game]]  # of each candidate, without skew and with one
    watched: dict[str, Market]  # without learners: the preset and each candidate
    setting: dict[str, Any]  # what else the text names


def take_options(arguments: Sequence[str] | None, about: str | None) -> argparse.Namespace:
    """Return the command's options; its folders are there then."""
    parser = page_parser(about, 4096, "markets of each maker; candidates get a quarter", kept=False)
    options = parser.parse_args(arguments)
    check_place(options)
    return options


def measure(
    name: str,
    candidates: Mapping[str, MarketConfig],
    skews: Sequence[float],
    skew: float,
    options: argparse.Namespace,
) -> Measured:
    """Let all makers trade in a preset and in the candidates beside it, and draw the two pictures.

    Args:
        name: The preset.
        candidates: Other markets by their names.
        skews: Those of the makers in the preset, 0 among them.
        skew: That of the makers in the candidates.
        options: Of the command.
    """
    preset = MarketConfig.preset(name)
    few = max(2, options.markets // 4)
    todo = [(skew, half) for skew in skews for half in HALF_SPREADS]
    bar = tqdm(total=len(todo) + len(candidates) * 2 * len(HALF_SPREADS), unit="maker")

    def played(config: MarketConfig, half: int, skew: float, markets: int) -> Game:
        bar.update()
        return play(config, half, skew, markets, options.engine)

    games = {(skew, half): played(preset, half, skew, options.markets) for skew, half in todo}
    rivals = {
        rival: {(s, half): played(config, half, s, few) for s in (0.0, skew) for half in HALF_SPREADS}
        for rival, config in candidates.items()
    }
    bar.close()
    watched = {
        market: without_learners(config, options.markets, options.engine)
        for market, config in {name: preset, **candidates}.items()
    }
    draw(options.output / "images", name, preset, games, options.engine)
    setting = {
        "engine": Simulator(preset, 2, engine=options.engine).engine_name,
        "command": f"python -m scripts.pages.{name}_preset --markets {options.markets}",
        "markets": options.markets,
        "rival_markets": few,
        "seed": "7 * 2^32",
        "size": SIZE,
        "limit": INVENTORY_LIMIT,
        "warmup": WARMUP,
        "auctions": AUCTIONS,
        "skew": skew,
    }
    return Measured(preset, games, rivals, watched, setting)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw, and write the page."""
    options = take_options(arguments, __doc__)
    preset = MarketConfig.preset("trading")
    others = {name: preset.replace(**changes) for name, changes in CANDIDATES.items()}
    found = measure("trading", others, SKEWS, SKEW, options)
    returns = returns_without_learners(preset, options.markets, options.engine)
    calm = preset.replace(momentum=0.0, noise=preset.noise + preset.momentum)
    returns[NO_MOMENTUM] = returns_without_learners(calm, options.markets, options.engine)["last price"]
    setting = {**found.setting, "verdicts": VERDICTS}
    text = page(found.games, found.rivals, found.watched, returns, preset, setting)
    write_page(options.output, "trading_preset", text)


if __name__ == "__main__":
    sys.exit(exit_code(main))
