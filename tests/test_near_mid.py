"""Continuous trading near the mid, which the C++ engine plays with a word of the book in a register.

Markets as cuda/cpu/continuous.h has them, beside the plain reference, bit for bit: few marketable orders, small
offsets, 64 ticks or more. And whole rows, which cuda/cpu/rows.h takes up, stores and cancels in.
"""

import random

import pytest
import torch
from build_helpers import needs_compiler
from ensembles import Ensemble
from thorough import examples

import kineticsim_env as ks

pytestmark = needs_compiler
SHOWN = ("bid", "ask", "last_tick", "volume", "price_origin")
PLAIN = {"arrivals": "clock", "mechanism": "continuous"}


def fields_near_mid(rng: random.Random) -> dict:
    """Fields of such markets: thin and deep ones, trends to the grid's end, jumps, grids that follow or stay."""
    pick = rng.choice
    levels = pick([64, 64, 128, 256, 1024])
    weights = [rng.random() * pick([0, 1, 1]) for _ in range(3)] + [0.1]
    fields = dict(zip(("noise", "momentum", "maker", "fundamental"), (w / sum(weights) for w in weights), strict=True))
    window = pick([0, 1, 8, levels // 4])
    fields |= PLAIN | {
        "num_levels": levels,
        "init_price": pick([1, levels // 2, levels // 2, levels - 2]),
        "init_depth": pick([0, 1, 8, 200]),
        "num_agents": pick([2, 20, 60]),
        "max_order_qty": pick([1, 4, 30, 65535]),
        "noise_spread": pick([0, 3, 12, 24]),
        "maker_half_spread": pick([0, 1, 4, 24]),
        "market_order_prob": pick([0.0, 0.01, 0.06]),
        "cancel_prob": pick([0.0, 0.3, 0.9, 1.0]),
        "taker_offset": pick([0, 1, 1, 30]),
        "rounding": pick(["even", "coin"]),
        "window": window,
        "interval": pick([1, 7, 48, 200]),
        "beat": pick([1, 3, 24, 100]),
        "quote_latency": pick([0, 0, 5]),
    }
    if window:
        fields |= {"walk_prob": pick([0.0, 0.3]), "jump_prob": pick([0.0, 0.3]), "jump_size": pick([1, 9, levels // 2])}
    return fields


@pytest.mark.parametrize("seed", range(examples(200)))
def test_random_markets_near_the_mid(seed):
    """Every call of a simulator; quotes stand at the mid, at the grid's ends and beyond them."""
    rng = random.Random(f"near the mid {seed}")
    both = Ensemble(fields_near_mid(rng), (None,) * rng.choice([0, 1, 1, 3]), 2, rng.randrange(1 << 40), "cpu")
    both.assert_same()
    for _ in range(8):
        both.move(rng)


@pytest.mark.parametrize("side", ["bid", "ask"])
def test_the_last_trade_is_far_from_the_only_side(side):
    """The mid is the last price where a side is empty: the other side's best price is then more than 64 ticks away."""
    config = ks.MarketConfig.preset(
        "news",
        num_levels=256,
        init_price=128,
        init_depth=0,
        cancel_prob=0.0,
        window=0,
        regimes=None,
        regime_switch_prob=0.0,
        walk_prob=0.0,
        fundamental_price=128,
    )
    ends = []
    for engine in ("numpy", "cpu"):
        sim = ks.Simulator(config, 64, engine=engine, seed=1)
        far, last = (200, 60) if side == "bid" else (50, 190)
        getattr(sim, side)[:, far] = 7
        getattr(sim, side)[:, last] = 3  # near the last price, too
        sim.tensors["last_tick"][:] = last
        sim.engine.state_changed()
        sim.run(3)
        ends.append([sim.tensors[name].clone() for name in SHOWN])
    assert all(torch.equal(one, other) for one, other in zip(*ends, strict=True))


@pytest.mark.parametrize("levels", [8, 32, 64, 128, 8192])
@pytest.mark.parametrize("cancel_prob", [0.37, 1.0])
def test_cancellation_of_any_quantity(levels, cancel_prob):
    """Quantities of 1 to 30 bits at every tick, on grids of one chunk and of many."""
    config = ks.MarketConfig(
        **PLAIN,
        num_levels=levels,
        init_price=levels // 2,
        cancel_prob=cancel_prob,
        num_agents=2,
        interval=1,
        beat=1,
        max_order_qty=1,
    )
    generator = torch.Generator().manual_seed(levels)
    bits = torch.randint(0, 30 - levels.bit_length(), (4, levels), generator=generator)
    units = torch.randint(0, 1 << 30, (4, levels), generator=generator) >> (29 - bits)
    ends = []
    for engine in ("numpy", "cpu"):
        sim = ks.Simulator(config, 4, engine=engine, seed=3)
        sim.bid[:, : levels // 2] = units[:, : levels // 2].int()
        sim.ask[:, levels // 2 :] = units[:, levels // 2 :].int()
        sim.ask[1] = 0  # a side that is empty, and a book that is
        sim.bid[2] = sim.ask[2] = 0
        sim.engine.state_changed()
        sim.run(2)
        ends.append([sim.tensors[name].clone() for name in SHOWN])
    assert all(torch.equal(one, other) for one, other in zip(*ends, strict=True))


@pytest.mark.parametrize("start", [12, 51])
def test_orders_at_the_first_and_the_last_tick(start):
    """Orders that take all that a side has, priced at the ends of a grid of 64 ticks: a word has no further bit."""
    config = ks.MarketConfig(
        **PLAIN,
        num_levels=64,
        init_price=start,
        num_agents=30,
        noise=1.0,
        momentum=0.0,
        maker=0.0,
        fundamental=0.0,
        noise_spread=24,
        max_order_qty=200,
        market_order_prob=0.0,
        cancel_prob=0.9,
    )
    ends = []
    for engine in ("numpy", "cpu"):
        sim = ks.Simulator(config, 64, engine=engine, seed=5)
        sim.run(20)
        ends.append([sim.tensors[name].clone() for name in SHOWN])
    assert all(torch.equal(one, other) for one, other in zip(*ends, strict=True))
