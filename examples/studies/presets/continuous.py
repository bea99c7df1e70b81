"""`python -m examples.studies.presets.continuous --markets 2048` measures what the preset `"continuous"` was chosen by.

It writes continuous.json and pictures, and fills README.md. What it shares with `"trading"` is in `trading.py`; here is
what only continuous trading asks: latency, queues, and makers that quote at random.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from examples.studies.presets import trading as trading_preset
from examples.studies.presets.figures import draw_makers, draw_time
from examples.studies.presets.makers import PATIENCE, REACH, Game, play, play_late, play_patient, play_random
from examples.studies.presets.trading import best_of, make_part, measure
from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.options import exit_code
from kineticsim_env.statistics import mean_and_error

SKEWS = (0.0, 0.02, 0.04, 0.08, 0.12)
SKEW = 0.04  # of the candidates' second row
IN_TRADING = (0.04, 5)  # skew and half-spread of the best maker in the preset `"trading"`

CANDIDATES: dict[str, dict[str, Any]] = {
    "the agents of `trading`": dict(
        num_agents=20, noise=0.45, momentum=0.15, maker=0.10, fundamental=0.30, noise_spread=14, maker_half_spread=8,
        taker_offset=1, market_order_prob=0.4, walk_prob=0.4, jump_prob=0.02, jump_size=4, cancel_prob=0.4,
    ),
    "takers one tick from the mid": dict(taker_offset=1),
    "jumps of 7 ticks": dict(jump_size=7),
    "twice the noise": dict(noise=0.40, fundamental=0.35),
}  # fmt: skip


def measure_continuous(options: argparse.Namespace) -> dict[str, Any]:
    """Return every figure of the preset `"continuous"`, as JSON keeps them."""
    preset, trading = MarketConfig.preset("continuous"), MarketConfig.preset("trading")
    others = {name: preset.replace(**changes) for name, changes in CANDIDATES.items()}
    found, games = measure("continuous", others, SKEWS, SKEW, options)
    markets, engine, halves = options.markets, options.engine, trading_preset.HALF_SPREADS
    skew, _ = best_of(games, [skew for skew in SKEWS if skew])
    interval, few = int(preset.interval or 0), found["setting"]["rival_markets"]
    late, places = [], []
    for half in tqdm(halves, unit="half-spread"):
        before = games[skew, half]
        for events in (0, interval // 2, interval):
            game = play_late(preset, half, skew, events, markets, engine) if events else before
            less = mean_and_error(game.pnl - before.pnl)  # than at the latency before it, paired
            late.append({"half": half, "events": events, "pnl": mean_and_error(game.pnl), "less": less})
            before = game
        kept, lost = (play_patient(preset, half, skew, keeps, markets, engine) for keeps in (True, False))
        places.append({"half": half, **_worth(kept, lost)})
    random = {"continuous": play_random(preset, markets, engine), "`trading`": play_random(trading, markets, engine)}
    random |= {name: play_random(config, few, engine) for name, config in others.items()}
    best = play(trading, IN_TRADING[1], IN_TRADING[0], markets, engine)
    found["setting"] |= {"late_skew": skew, "patience": PATIENCE, "reach": REACH, "in_trading": IN_TRADING}
    drawn = {name: {"pnl": mean_and_error(game.pnl), "fills": _fills(game).mean} for name, game in random.items()}
    return found | {"late": late, "places": places, "random": drawn, "best_in_trading": mean_and_error(best.pnl)}


def _worth(kept: Game, lost: Game) -> dict[str, Any]:
    """Return what a maker earns that keeps its places, one that loses them, and the paired differences."""
    units = mean_and_error(kept.bought + kept.sold - lost.bought - lost.sold)
    return {
        "kept": mean_and_error(kept.pnl),
        "lost": mean_and_error(lost.pnl),
        "worth": mean_and_error(kept.pnl - lost.pnl),
        "fills": _fills(kept),
        "units": units,
    }


def _fills(game: Game) -> Any:
    return mean_and_error(game.bought + game.sold)


def draw(folder: Path, name: str, found: Mapping[str, Any], engine: str) -> None:
    """Write the three pictures of the preset."""
    draw_makers(folder, name, found, engine)
    draw_time(folder, found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw, and fill the page."""
    make_part("continuous", __doc__, arguments, measure_continuous, draw)


if __name__ == "__main__":
    sys.exit(exit_code(main))
