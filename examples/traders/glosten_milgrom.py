"""Adverse selection: does the spread widen with the share of informed traders, and whose spread?

    python examples/traders/glosten_milgrom.py
    python examples/traders/glosten_milgrom.py --markets 64 --picture glosten_milgrom.png

After L. Glosten and P. Milgrom, "Bid, ask and transaction prices in a specialist market with heterogeneously informed
traders", Journal of Financial Economics 14 (1985): 71-100. There, makers set all quotes, others take them, and a maker
asks for what it expects the price to be once somebody has bought. The makers here learn that from the order flow: how
far the mid has gone in a taker's direction some visits later. Beside them stand the preset `news` with built-in makers,
and null models in which the same orders know nothing.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from tqdm import tqdm

import kineticsim_env as ks
from kineticsim_env import plots
from kineticsim_env.statistics import Mean

AGENTS, COUNTS = 40, (2, 6, 10, 14, 18)  # in all, and of them informed; noise gives way
MAKERS, MOMENTUM = 11, 2  # as in `news`, everywhere
WARMUP = 200
MEASURED = {"spread": "spread", "volume": "volume", "response": "response(lag=10)", "one_sided": "one_sided"}


@ks.agent(floor=1, patience=8, lookback=16, learns=1, quantity=10,
          memory={"mid": "mid2", "took": 0, "waited": 0, "cost": 64})  # fmt: skip
def learning_maker(market, own, draw):
    """Quotes around the mid, as far away as takers turned out to be right, in 64ths of a tick, and a floor."""
    own.waited += 1
    if own.took == 0 or own.waited >= own.patience:
        if own.took != 0:
            right = 32 * own.took * (market.mid2 - own.mid)  # how far the mid has gone where that taker went
            own.cost += own.learns * ((right - own.cost) // own.lookback)
        gap = 2 * market.last_price - market.mid2  # the last taker bought if the last price is above the mid
        own.took = 1 if gap > 0 else (-1 if gap < 0 else 0)
        own.mid = market.mid2
        own.waited = 0
    half = 64 * own.floor + max(own.cost, 0)
    side = 1 if (own.index + market.t) % 2 == 0 else -1
    rounding = 0 if side > 0 else 63  # a bid is rounded down, an ask up
    return ks.order(side, (32 * market.mid2 - side * half + rounding) // 64, own.quantity)


@ks.agent(max_qty=4)
def noise_taker(market, own, draw):
    """Buys or sells as a coin falls, at any price."""
    return ks.order(1 if draw.coin() else -1, market.near_mid(0), 1 + draw.below(own.max_qty), marketable=1)


@ks.agent(max_qty=4, informed=True)
def informed_taker(market, own, draw):
    """Takes what is cheaper than the fundamental price, or dearer; else it does nothing."""
    if market.fundamental > market.best_ask:
        return ks.order(1, market.fundamental, 1 + draw.below(own.max_qty))
    if market.fundamental < market.best_bid:
        return ks.order(-1, market.fundamental, 1 + draw.below(own.max_qty))
    return ks.no_order()


@ks.agent(max_qty=4, reach=8)
def guessing_taker(market, own, draw):
    """The same by a guess around the mid in place of the fundamental price: as choosy, and it knows nothing."""
    guess = market.near_mid(draw.offset(own.reach))
    if guess > market.best_ask:
        return ks.order(1, guess, 1 + draw.below(own.max_qty))
    if guess < market.best_bid:
        return ks.order(-1, guess, 1 + draw.below(own.max_qty))
    return ks.no_order()


@ks.agent()
def coin_agent(market, own, draw):
    """A built-in informed agent whose side is a coin's: the same prices and sizes, and it knows nothing."""
    side = 1 if draw.coin() else -1
    price = market.near_mid(side * market.taker_offset)
    return ks.order(side, price, 1 + draw.below(market.max_order_qty), draw.chance(market.market_order_prob))


def news(informed: int, null: bool = False, learning: bool = False) -> ks.MarketConfig:
    """Return the preset `news` with so many informed agents or coins, and its own makers or learning ones."""
    agents: dict[Any, int] = {coin_agent: informed} if null else {}
    if learning:
        agents[learning_maker] = MAKERS
    counts = {"noise": AGENTS - MAKERS - MOMENTUM - informed, "momentum": MOMENTUM}
    counts |= {"maker": MAKERS * (not learning), "fundamental": informed * (not null)}
    built_in = sum(counts.values())
    shares = {name: count / built_in for name, count in counts.items()}
    return ks.MarketConfig.preset("news", num_agents=built_in, **shares, agents=agents or None)


def takers(informed: int, kind: Any = informed_taker, learns: int = 1) -> ks.MarketConfig:
    """Return a market where makers alone set quotes; news comes as in `news`, and as many agents come."""
    agents = {
        learning_maker: ks.mix(MAKERS, learns=learns),
        noise_taker: AGENTS - MAKERS - informed,
        kind: informed,
    }
    return ks.MarketConfig.preset("news", num_agents=0, agents=agents)


STUDIES: dict[str, Callable[[int], ks.MarketConfig]] = {
    "news, built-in makers": news,
    "news, coins for informed agents": lambda informed: news(informed, null=True),
    "news, makers that learn": lambda informed: news(informed, learning=True),
    "takers, makers that learn": takers,
    "takers, guesses for informed ones": lambda informed: takers(informed, guessing_taker),
    "takers, makers that do not learn": lambda informed: takers(informed, learns=0),
}


def measure(markets: int, intervals: int, engine: str = "auto") -> dict[str, dict[str, dict[str, Mean]]]:
    """Play every market; return statistics by study and by the number of informed agents.

    All have 48 orders per interval of 40 agents, 11 of them makers; spreads are of the book at the end of an interval.
    """
    found: dict[str, dict[str, dict[str, Mean]]] = {}
    for name, config in tqdm(STUDIES.items(), desc="studies", delay=2, leave=False):
        found[name] = {}
        for informed in COUNTS:
            measured = ks.measure(
                config(informed),
                intervals,
                MEASURED,
                markets=markets,
                warm_up=WARMUP,
                group=None,
                seed=1,
                engine=engine,
                progress=False,
            )
            found[name][str(informed)] = {
                statistic: Mean(
                    *(float(np.ravel(part)[0]) for part in (one.value, one.error)), int(np.ravel(one.count)[0])
                )
                for statistic, one in measured.items()
            }
    return found


def table(found: dict[str, dict[str, dict[str, Mean]]], statistic: str = "spread", digits: int = 2) -> str:
    """Return a statistic by study and by the share of informed agents, in Markdown."""
    counts = list(next(iter(found.values())))
    lines = [f"| informed | {' | '.join(f'{int(count) / AGENTS:.0%}' for count in counts)} |"]
    lines.append("| --- |" + " ---: |" * len(counts))
    for name, rows in found.items():
        shown = (
            f"{rows[count][statistic].mean:.{digits}f} ± {rows[count][statistic].interval():.{digits}f}"
            for count in counts
        )
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def draw_picture(path: str, found: dict[str, dict[str, dict[str, Mean]]]) -> None:
    """Draw spreads by the share of informed agents, in `news` and where makers alone set quotes."""

    def panel(kind: str, title: str):
        def draw(axes) -> None:
            names = [name for name in found if name.startswith(kind)]
            for name, colour in zip(names, (plots.BUY, plots.GREY, plots.SELL), strict=True):
                rows = found[name]
                shares = [100 * int(count) / AGENTS for count in rows]
                plots.means(axes, shares, [row["spread"] for row in rows.values()], colour, name.partition(", ")[2])
            axes.set(xlabel="informed agents, %", ylabel="spread of the book, ticks", title=title, ylim=(0, None))
            axes.legend(fontsize=8)

        return draw

    plots.save_panels(path, (panel("news", "The preset news"), panel("takers", "Makers alone set quotes")))


def main(arguments: list[str] | None = None) -> dict[str, dict[str, dict[str, Mean]]]:
    """Play the markets, print tables and draw a picture if one is asked for."""
    parser = argparse.ArgumentParser(description="The spread by the share of informed traders.")
    parser.add_argument("--markets", type=int, default=32)
    parser.add_argument("--intervals", type=int, default=400, help="of 48 orders each")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--picture", help="where a picture goes; needs matplotlib")
    options = parser.parse_args(arguments)
    if options.picture:
        plots.check_picture("--picture", options.picture)

    found = measure(options.markets, options.intervals, options.engine)
    print(f"{options.markets} markets, {options.intervals} intervals; spread, ticks; ± is half of a 95% interval")
    print(table(found))
    if options.picture:
        draw_picture(options.picture, found)
    return found


if __name__ == "__main__":
    main()
