"""`python -m examples.studies.attacks --markets 1024` measures what attackers earn.

It writes results.json, and fills README.md.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from examples.studies.attacks.study import ALONE, TOGETHER, Attack, Owner, attack, attack_together
from kineticsim_env import policies
from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.options import exit_code
from scripts.pages.command import make_page, page_parser
from scripts.pages.markdown import means

NAME = "attacks"
MARKETS = {
    "call auctions": MarketConfig.preset("trading"),
    "continuous": MarketConfig.preset("continuous"),
}
# Not attacks: quotes and trades to compare with, and attacks so far from the mid that they are makers.
HONEST = {
    "`FixedSpread` at 4 ticks": Attack("MarketMaking", functools.partial(policies.FixedSpread, half_spread=4.0)),
    "`QuoteStuffing` at 4 ticks": Attack(
        "MarketMaking", functools.partial(policies.attackers.QuoteStuffing, distance=4.0)
    ),
    "`PriceWall` at 4 ticks": Attack("MarketMaking", functools.partial(policies.attackers.PriceWall, distance=4.0)),
    "`MeanReversionTrader`": Attack("Trading", policies.MeanReversionTrader),
}
LATE = ("`FlashedWall`", "`QuoteStuffing`", "`TraderSniper`", "`FixedSpread` at 4 ticks")  # games of latency, and none
SHARES = (0.0, 0.5, 1.0)  # of an interval, by which quotes are late
OF_LADDERS = {  # attacks that use all levels, and what no attack is
    "`Layering`": ALONE["Layering"],
    "`QuoteStuffing`": ALONE["QuoteStuffing"],
    "`LadderMaker` from 4 ticks on": Attack("MarketMaking", functools.partial(policies.LadderMaker, half_spread=4.0)),
}
LEVELS = (1, 3, 8)  # of ladders


def measure(markets: int, engine: str) -> dict[str, Any]:
    """Play every attack, and what it is compared with, in every market; return every figure of the page."""
    attacks = {f"`{name}`": how for name, how in ALONE.items()} | TOGETHER
    others = len(LATE) * len(SHARES) + len(OF_LADDERS) * len(LEVELS)
    bar = tqdm(total=len(MARKETS) * (len(attacks) + len(HONEST)) + others, unit="attack")

    def played(config: MarketConfig, how: Attack | Owner) -> dict[str, Any]:
        bar.update()
        if isinstance(how, Owner):
            return means(attack_together(config, how, markets, engine)._asdict())
        return means(attack(config, how, markets, engine)._asdict())

    found = {
        kind: {name: {market: played(config, how) for market, config in MARKETS.items()} for name, how in of.items()}
        for kind, of in {"attacks": attacks, "honest": HONEST}.items()
    }
    continuous = MARKETS["continuous"]
    events = int(continuous.interval or np.max(continuous.num_agents))
    late = {
        name: [
            played(continuous.replace(quote_latency=round(share * events)), (attacks | HONEST)[name])["pnl"]
            for share in SHARES
        ]
        for name in LATE
    }
    ladders = {
        name: [played(continuous.replace(orders_per_side=levels), how)["pnl"] for levels in LEVELS]
        for name, how in OF_LADDERS.items()
    }
    bar.close()
    return {"markets": markets, **found, "late": late, "ladders": ladders}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or read what was measured, and fill the page."""
    options = page_parser(NAME, __doc__, 1024, "markets of each attack").parse_args(arguments)
    make_page(options, NAME, lambda: measure(options.markets, options.engine), lambda *_: None, indent=None)


if __name__ == "__main__":
    sys.exit(exit_code(main))
