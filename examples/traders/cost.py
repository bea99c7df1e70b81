"""What a trader's lines cost: how fast markets of noise agents are, built in and as variants of a class of one's own.

    python examples/traders/cost.py
    python examples/traders/cost.py --engine cuda --markets 8192

Every variant is played in turn, several times, and the fastest run of each counts: on a CPU on one core.
"""

import argparse
import time
from typing import Any

import torch
from tqdm import tqdm

import kineticsim_env as ks

AGENTS = 256
MECHANISMS: dict[str, dict[str, Any]] = {
    "call auctions": {},
    "continuous trading": {"arrivals": "clock", "mechanism": "continuous", "interval": AGENTS},
}


@ks.agent()
def of_any_size(market, own, draw):
    """The built-in noise class; nothing is said of how large its orders can be."""
    side = 1 if draw.coin() else -1
    price = market.near_mid(draw.offset(market.noise_spread))
    return ks.order(side, price, 1 + draw.below(market.max_order_qty), draw.chance(market.market_order_prob))


@ks.agent(largest_order=4)
def plain(market, own, draw):
    """The same, of up to four units."""
    side = 1 if draw.coin() else -1
    price = market.near_mid(draw.offset(market.noise_spread))
    return ks.order(side, price, 1 + draw.below(market.max_order_qty), draw.chance(market.market_order_prob))


@ks.agent(largest_order=4)
def second_word(market, own, draw):
    """The same with a second random word."""
    side = 1 if draw.coin() else -1
    price = market.near_mid(draw.offset(market.noise_spread, word=1))
    return ks.order(side, price, 1 + draw.below(market.max_order_qty), draw.chance(market.market_order_prob))


@ks.agent(largest_order=4)
def sees_the_book(market, own, draw):
    """The same, and it looks at the best prices."""
    side = 1 if draw.coin() else -1
    price = market.near_mid(draw.offset(market.noise_spread)) + (market.best_bid > market.best_ask)
    return ks.order(side, price, 1 + draw.below(market.max_order_qty), draw.chance(market.market_order_prob))


@ks.agent(largest_order=4)
def loops(market, own, draw):
    """The same after eight turns of a loop."""
    x = market.t
    for i in range(8):
        x = x * 31 + i
    side = 1 if draw.coin() else -1
    price = market.near_mid(draw.offset(market.noise_spread)) + (x == 1)
    return ks.order(side, price, 1 + draw.below(market.max_order_qty), draw.chance(market.market_order_prob))


@ks.agent(max_qty=4, largest_order=4)
def parameter(market, own, draw):
    """The same with a parameter of its own."""
    side = 1 if draw.coin() else -1
    price = market.near_mid(draw.offset(market.noise_spread))
    return ks.order(side, price, 1 + draw.below(own.max_qty), draw.chance(market.market_order_prob))


@ks.agent(memory={"decisions": 0}, largest_order=4)
def remembers(market, own, draw):
    """The same with a word of memory, which it writes every time."""
    own.decisions += 1
    side = 1 if draw.coin() else -1
    price = market.near_mid(draw.offset(market.noise_spread))
    return ks.order(side, price, 1 + draw.below(market.max_order_qty), draw.chance(market.market_order_prob))


VARIANTS = {
    "built in": None,
    "the same, written as a class": {plain: AGENTS},
    "without `largest_order=4`": {of_any_size: AGENTS},
    "with a second random word": {second_word: AGENTS},
    "looks at best prices": {sees_the_book: AGENTS},
    "with eight turns of a loop": {loops: AGENTS},
    "with a parameter, one for all agents": {parameter: AGENTS},
    "with a parameter of each agent": {parameter: ks.mix(AGENTS, max_qty=[4] * AGENTS)},
    "with a word of memory": {remembers: AGENTS},
}


def rates(mechanism: str, markets: int, auctions: int, rounds: int, engine: str = "auto") -> dict[str, float]:
    """Return the orders per second of every variant."""
    sims = {}
    for name, agents in VARIANTS.items():
        config = ks.MarketConfig(
            num_agents=0 if agents else AGENTS, agents=agents, noise=1.0, momentum=0.0, maker=0.0, fundamental=0.0,
            cancel_prob=0.3, residue="cancel", **MECHANISMS[mechanism],
        )  # fmt: skip
        sims[name] = ks.Simulator(config, markets, engine=engine, seed=1)
        sims[name].run(auctions)
    best = dict.fromkeys(sims, 0.0)
    for _ in tqdm(range(rounds), desc=mechanism, delay=2, leave=False):
        for name, sim in sims.items():
            begin = time.perf_counter()
            int(sim.run(auctions, record=("volume",))["volume"].sum())  # waits for a GPU
            best[name] = max(best[name], markets * AGENTS * auctions / (time.perf_counter() - begin))
    return best


def table(found: dict[str, dict[str, float]]) -> str:
    """Return the rates, and what share of the built-in class's they are, in Markdown."""
    lines = [f"| noise agents | {' | '.join(f'{name}, M orders/s | of built in' for name in found)} |"]
    lines.append("| --- |" + " ---: |" * (2 * len(found)))
    for variant in VARIANTS:
        shown = [
            f"{values[variant] / 1e6:,.0f} | {values[variant] / values['built in']:.2f}" for values in found.values()
        ]
        lines.append(f"| {variant} | {' | '.join(shown)} |")
    return "\n".join(lines)


def measure(markets: int, auctions: int, rounds: int, engine: str = "auto") -> dict[str, dict[str, float]]:
    """Return the rates by mechanism and variant, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {mechanism: rates(mechanism, markets, auctions, rounds, engine) for mechanism in MECHANISMS}
    finally:
        torch.set_num_threads(threads)


def main(arguments: list[str] | None = None) -> dict[str, dict[str, float]]:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description="What a trader's lines cost.")
    parser.add_argument("--markets", type=int, default=64)
    parser.add_argument("--auctions", type=int, default=50, help="of one run; intervals under continuous trading")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--engine", default="auto")
    options = parser.parse_args(arguments)
    found = measure(options.markets, options.auctions, options.rounds, options.engine)
    print(f"{options.markets} markets, {AGENTS} agents")
    print(table(found))
    return found


if __name__ == "__main__":
    main()
