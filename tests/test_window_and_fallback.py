"""The C++ engine sums orders in bins, and looks only at ticks that can trade: where each shortcut ends, it agrees."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Play, assert_same, fitting_slots, make_move, open_simulator, play_together

import kineticsim_env as ks
from kineticsim_env.build import cpu_unavailable

ENGINES = ("numpy", "cpu")
SHARES = {
    "noise only": dict(noise=1.0, momentum=0.0, maker=0.0),
    "no noise": dict(noise=0.0, momentum=0.5, maker=0.5),
    "makers only": dict(noise=0.0, momentum=0.0, maker=1.0),
    "all": dict(noise=0.4, momentum=0.2, maker=0.2, fundamental=0.2),
}
QUOTED = (("rollout", 2, 2, "near", 1), ("rollout", 2, 2, "wide", 2), ("rollout", 2, 1, "edge", 3), ("run", 5))
pytestmark = pytest.mark.skipif(cpu_unavailable() is not None, reason="no C++ compiler")


@st.composite
def thin_markets(draw: st.DrawFn) -> Play:
    """Draw a market that marketable orders sweep: few orders, shallow books, mids at the edges of the grid."""
    levels = draw(st.sampled_from([8, 16, 32, 64, 256]))
    fields = dict(
        num_levels=levels,
        num_agents=draw(st.sampled_from([1, 2, 3, 5, 8, 13, 40])),
        init_price=draw(st.sampled_from([1, 2, levels // 2 - 1, levels // 2, levels - 3, levels - 2])),
        init_depth=draw(st.sampled_from([0, 1, 8, 200])),
        max_order_qty=draw(st.sampled_from([1, 4, 65535])),
        noise_spread=draw(st.sampled_from([0, 1, 3, levels // 2 - 2, levels // 2 - 1, levels // 2, levels])),
        market_order_prob=draw(st.sampled_from([0.0, 0.3, 0.7, 0.9, 1.0])),
        maker_half_spread=draw(st.sampled_from([0, 1, 5, levels])),
        cancel_prob=draw(st.sampled_from([0.0, 0.0, 0.1, 0.9, 1.0])),
        tie=draw(st.sampled_from(["lowest", "mid"])),
        residue=draw(st.sampled_from(["rest", "cancel"])),
        window=draw(st.sampled_from([0, 0, 1, levels // 2 - 1])),
        **SHARES[draw(st.sampled_from(sorted(SHARES)))],
    )
    config = ks.MarketConfig(**fields)
    slots = draw(st.sampled_from([(), (None,), (None, None, None)]))
    moves = (("run", 25), *QUOTED, ("run", 10)) if slots else (("run", 40),)
    return Play(config, 12, slots, draw(st.integers(0, 2**40)), moves)


@settings(max_examples=400, derandomize=True)
@given(play=thin_markets())
def test_swept_books(play):
    play_together(play, ENGINES)


@settings(max_examples=150, derandomize=True)
@given(
    st.integers(0, 2**32),
    st.sampled_from([8, 32, 128]),
    st.sampled_from([1, 3, 20, 90]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from(["rest", "cancel"]),
)
def test_books_that_no_auction_leaves_behind(seed, levels, agents, marketable, residue):
    """Crossed, one-sided, with holes, deep and far from the mid: whatever may be written to a book."""
    config = ks.MarketConfig(
        num_levels=levels,
        init_price=levels // 2,
        num_agents=agents,
        market_order_prob=marketable,
        residue=residue,
        cancel_prob=0.3,
        window=levels // 2 - 1,
    )
    rng = np.random.default_rng(seed)
    markets = 24
    sides = rng.integers(0, 40, (2, markets, levels)) * (rng.random((2, markets, levels)) < rng.random((2, markets, 1)))
    sides *= rng.random((2, markets, 1)) < 0.8
    apart = rng.random((markets, 1)) < 0.7
    middle = rng.integers(0, levels, (markets, 1))
    sides[0] *= ~apart | (np.arange(levels) < middle)
    sides[1] *= ~apart | (np.arange(levels) > middle)
    play = Play(config, markets, (None,), seed, (("run", 1), ("run", 6), *QUOTED))
    sims = [open_simulator(engine, play) for engine in ENGINES]
    for sim in sims:
        for row, side in zip((sim.bid, sim.ask), sides, strict=True):
            row.copy_(torch.from_numpy(side.astype(np.int32)))
    for number, move in enumerate(play.moves):
        wanted, got = (make_move(sim, move) for sim in sims)
        assert_same(got, wanted, f"move {number} {move}:")


# Words are drawn 512 at a time, classes begin anywhere in such a block, and bins are copied from 64 noise agents on.
@pytest.mark.parametrize("agents", [63, 64, 65, 91, 511, 512, 513, 731, 1025, 2050])
@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("spread", [3, 7, 8, 63, 64])
def test_counts_at_the_edges_of_blocks(agents, shares, spread):
    config = ks.MarketConfig(num_agents=agents, noise_spread=spread, market_order_prob=0.3, **SHARES[shares])
    wanted = ["noise", "momentum", "maker", "fundamental"]
    slots = fitting_slots(config, 3, wanted)
    play_together(Play(config, 3, slots, 5, (("run", 7), ("step", 2, "near", 1))), ENGINES)


@pytest.mark.parametrize("cancel", [0.0, 0.01])
@pytest.mark.parametrize("side", ["bid", "ask"])
def test_the_last_unit_before_2_to_the_31(cancel, side):
    """A side may hold 2^31 - 1 and not one more; both engines stop at the same auction."""
    config = ks.MarketConfig(
        num_levels=32,
        init_price=16,
        num_agents=1,
        max_order_qty=1,
        noise=1.0,
        momentum=0.0,
        maker=0.0,
        init_depth=0,
        market_order_prob=0.0,
        cancel_prob=cancel,
    )
    tick = 3 if side == "bid" else 29
    stopped = set()
    for seed in range(20):
        ends = []
        for engine in ENGINES:
            sim = ks.Simulator(config, 1, engine=engine, seed=seed)
            (sim.bid if side == "bid" else sim.ask)[0, tick] = 2**31 - 3
            auctions = 0
            try:
                for _ in range(12):
                    sim.run(1)
                    auctions += 1
            except ks.MarketError:
                pass
            ends.append((auctions, {name: value.clone() for name, value in sim.state_dict().items()}))
        assert ends[0][0] == ends[1][0]
        assert_same(ends[1][1], ends[0][1], f"seed {seed}:")
        stopped.add(ends[0][0])
    assert cancel > 0 or len(stopped) > 1, "no market stopped"


@pytest.mark.parametrize("price", [1, 2, 1022, 1023])
def test_one_side_of_a_long_grid_stays_empty(price):
    """All orders are sells or buys of makers at the edge, and the best price of the other side is sought in vain."""
    config = ks.MarketConfig(
        num_levels=1024, init_price=min(price, 1022), num_agents=3, noise=0.0, momentum=1.0, maker=0.0, init_depth=1
    )
    play_together(Play(config, 9, (None,), 3, (("run", 30), ("step", 2, "edge", 1), ("run", 30))), ENGINES)
