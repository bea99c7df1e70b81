"""`python -m scripts.pages.attacks --markets 1024` measures what attackers earn; it writes docs/attacks.md."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence

from tqdm import tqdm

from kineticsim_env import policies
from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.files import check_folder
from kineticsim_env.runtime.options import exit_code
from kineticsim_env.simulator import Simulator
from kineticsim_env.studies.attacks import ALONE, TOGETHER, Attack, Outcome, Owner, attack, attack_together
from scripts.pages.attacks_text import page
from scripts.pages.command import page_parser
from scripts.pages.markdown import write_page

MARKETS = {
    "call auctions": MarketConfig.preset("trading"),
    "continuous": MarketConfig.preset("continuous"),
}
# Not attacks: quotes and trades to compare with, and attacks so far from the mid that they are makers.
HONEST = {
    "`FixedSpread` at 4 ticks": Attack("MarketMaking", functools.partial(policies.FixedSpread, half_spread=4.0)),
    "`QuoteStuffing` at 4 ticks": Attack("MarketMaking", functools.partial(policies.QuoteStuffing, distance=4.0)),
    "`PriceWall` at 4 ticks": Attack("MarketMaking", functools.partial(policies.PriceWall, distance=4.0)),
    "`MeanReversionTrader`": Attack("Trading", policies.MeanReversionTrader),
}
LATE = ("`FlashedWall`", "`QuoteStuffing`", "`TraderSniper`", "`FixedSpread` at 4 ticks")  # games of latency, and none
SHARES = (0.0, 0.5, 1.0)  # of an interval, by which quotes are late


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the page."""
    options = page_parser(__doc__, 1024, "markets of each attack", kept=False).parse_args(arguments)
    check_folder("--output", options.output)
    attacks = {f"`{name}`": how for name, how in ALONE.items()} | TOGETHER
    bar = tqdm(total=len(MARKETS) * (len(attacks) + len(HONEST)) + len(LATE) * len(SHARES), unit="attack")

    def played(config: MarketConfig, how: Attack | Owner) -> Outcome:
        bar.update()
        if isinstance(how, Owner):
            return attack_together(config, how, options.markets, options.engine)
        return attack(config, how, options.markets, options.engine)

    found = {
        market: {name: played(config, how) for name, how in (attacks | HONEST).items()}
        for market, config in MARKETS.items()
    }
    continuous = MARKETS["continuous"]
    events = int(continuous.interval or continuous.num_agents)
    late = {
        (name, share): played(continuous.replace(quote_latency=round(share * events)), (attacks | HONEST)[name])
        for name in LATE
        for share in SHARES
    }
    bar.close()
    setting = {
        "engine": Simulator(MarketConfig(), 2, engine=options.engine).engine_name,
        "command": f"python -m scripts.pages.attacks --markets {options.markets}",
        "markets": options.markets,
        "attacks": list(attacks),
        "honest": list(HONEST),
    }
    write_page(options.output, "attacks", page(found, late, setting))


if __name__ == "__main__":
    sys.exit(exit_code(main))
