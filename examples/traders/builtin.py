"""The four built-in classes of agents, as users would write them, and a check that they are the same to the bit.

    python examples/traders/builtin.py
    python examples/traders/builtin.py --preset news --markets 64

A market whose built-in agents are replaced by so many of these has the same books, prices and accounts, on every
engine. Copy the class that is nearest to what you need, and change it.
"""

import argparse
import time

import torch

import kineticsim_env as ks
from kineticsim_env.config import PRESETS
from kineticsim_env.engines.parameters import class_counts


@ks.agent(role="noise")
def noise_agent(market, own, draw):
    """Buys or sells as a coin falls, at a price drawn around the mid; now and then at any price."""
    side = 1 if draw.coin() else -1
    price = market.near_mid(draw.offset(market.noise_spread))
    return ks.order(side, price, 1 + draw.below(market.max_order_qty), draw.chance(market.market_order_prob))


@ks.agent(role="momentum")
def momentum_agent(market, own, draw):
    """Goes where the mid went last, a tick beyond it; as a coin falls where it stood still."""
    side = market.ret
    if side == 0:
        side = 1 if draw.coin() else -1
    price = market.near_mid(side * market.taker_offset)
    return ks.order(side, price, 1 + draw.below(market.max_order_qty), draw.chance(market.market_order_prob))


@ks.agent(role="maker")
def maker_agent(market, own, draw):
    """Bids below the mid and offers above it, in turn."""
    side = 1 if (own.index + market.t) % 2 == 0 else -1
    price = market.near_mid(-side * market.maker_half_spread)
    return ks.order(side, price, 1 + draw.below(market.max_order_qty))


@ks.agent(role="fundamental", informed=True)
def fundamental_agent(market, own, draw):
    """Buys what is below the fundamental price, sells what is above it."""
    half = market.mid2 >> 1  # mid2 is twice the mid, so this is the mid, rounded down
    if market.fundamental > half:
        side = 1
    elif market.fundamental < half or market.mid2 % 2:
        side = -1
    else:
        side = 1 if draw.coin() else -1
    price = market.near_mid(side * market.taker_offset)
    return ks.order(side, price, 1 + draw.below(market.max_order_qty), draw.chance(market.market_order_prob))


COPIES = (noise_agent, momentum_agent, maker_agent, fundamental_agent)  # in the order of the built-in agents' indices


def with_copies(config: ks.MarketConfig) -> ks.MarketConfig:
    """Return a market that has copies in place of its built-in agents, which must be as many in all markets."""
    counts = class_counts(config, 1)[0].tolist()
    return config.replace(num_agents=0, agents=dict(zip(COPIES, counts, strict=True)))


def main(arguments: list[str] | None = None) -> None:
    """Play a preset with the built-in agents and with copies, and compare."""
    parser = argparse.ArgumentParser(description="The built-in agents, and copies of them.")
    parser.add_argument("--preset", choices=list(PRESETS), default="trading", help="the market")
    parser.add_argument("--markets", type=int, default=256)
    parser.add_argument("--auctions", type=int, default=500, help="per market; intervals under continuous trading")
    parser.add_argument("--engine", default="auto")
    options = parser.parse_args(arguments)

    built_in = ks.MarketConfig.preset(options.preset)
    played = []
    for config in (built_in, with_copies(built_in)):
        sim = ks.Simulator(config, options.markets, engine=options.engine, seed=1)
        sim.run(1)  # what is compiled is compiled now
        begin = time.perf_counter()
        prices = sim.run(options.auctions, record=("last_price",))["last_price"].cpu()
        played.append((sim, prices, time.perf_counter() - begin))
    (sim, prices, first), (copy, copied, second) = played
    same = torch.equal(prices, copied) and all(
        torch.equal(sim.tensors[name], copy.tensors[name]) for name in sim.tensors
    )
    counts = ", ".join(f"{made.count} {kind.name}" for kind, made in copy.config.agents.items())
    print(f"{options.preset}: {counts} per market")
    print(f"{options.markets} markets, {options.auctions} auctions: {'the same bits' if same else 'DIFFERENT'}")
    print(f"built-in {first:.2f} s, copies {second:.2f} s, on the engine {sim.engine_name}")
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
