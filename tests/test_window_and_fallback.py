"""Compiled engines sum orders in bins, and clear only ticks that can trade: where each shortcut ends, they agree."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import (
    ENGINES,
    PAIRS,
    Play,
    assert_moves_same,
    assert_same,
    fitting_slots,
    make_quotes,
    open_simulator,
    play_together,
)
from thorough import covering, examples

import kineticsim_env as ks
from kineticsim_env.runtime.build import cpu_unavailable

SHARES = {
    "noise only": dict(noise=1.0, momentum=0.0, maker=0.0),
    "no noise": dict(noise=0.0, momentum=0.5, maker=0.5),
    "makers only": dict(noise=0.0, momentum=0.0, maker=1.0),
    "all": dict(noise=0.4, momentum=0.2, maker=0.2, fundamental=0.2),
}
QUOTED = (("rollout", 2, 2, "near", 1), ("rollout", 2, 2, "wide", 2), ("rollout", 2, 1, "edge", 3), ("run", 5))
QUOTED += (("rollout", 2, 2, "border", 4), ("run", 2))
pytestmark = pytest.mark.skipif(cpu_unavailable() is not None, reason="no C++ compiler")


@st.composite
def thin_markets(draw: st.DrawFn) -> Play:
    """Draw a market that marketable orders sweep: few orders, shallow books, mids at the edges of the grid."""
    levels = draw(st.sampled_from([8, 16, 32, 64, 256, 1024]))
    spreads = [0, 1, 3, 14, 15, 31, levels // 2 - 2, levels // 2 - 1, levels // 2, levels]
    fields = dict(
        num_levels=levels,
        num_agents=draw(st.sampled_from([1, 2, 3, 5, 8, 13, 40])),
        init_price=draw(st.sampled_from([1, 2, levels // 2 - 1, levels // 2, levels - 3, levels - 2])),
        init_depth=draw(st.sampled_from([0, 1, 8, 200])),
        max_order_qty=draw(st.sampled_from([1, 4, 65535])),
        noise_spread=draw(st.sampled_from(spreads)),
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


@pytest.mark.parametrize("engines", PAIRS)
@settings(max_examples=examples(300), derandomize=True)
@given(play=thin_markets())
def test_swept_books(engines, play):
    play_together(play, engines)


@pytest.mark.parametrize("engines", PAIRS)
@settings(max_examples=examples(150), derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    levels=st.sampled_from([8, 32, 128, 256]),
    agents=st.sampled_from([1, 3, 20, 90]),
    spread=st.sampled_from([3, 15, 40]),
    marketable=st.sampled_from([0.0, 0.5, 1.0]),
    residue=st.sampled_from(["rest", "cancel"]),
)
def test_books_that_no_auction_leaves_behind(engines, seed, levels, agents, spread, marketable, residue):
    """Crossed, one-sided, with holes, deep and far from the mid: whatever may be written to a book."""
    config = ks.MarketConfig(
        num_levels=levels,
        init_price=levels // 2,
        num_agents=agents,
        noise_spread=spread,
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
    sims = [open_simulator(engine, play) for engine in engines]
    for sim in sims:
        for row, side in zip((sim.bid, sim.ask), sides, strict=True):
            row.copy_(torch.from_numpy(side.astype(np.int32)))
    assert_moves_same(*sims, play)


# C++ draws words 512 at a time, and copies bins from 64 noise agents on; CUDA goes through agents 32 and 64 at a time.
# Classes begin anywhere in such a block.
@covering
@pytest.mark.parametrize("engines", PAIRS)
@pytest.mark.parametrize("agents", [31, 32, 33, 63, 64, 65, 91, 97, 160, 511, 512, 513, 731, 1025, 2050])
@pytest.mark.parametrize("shares", SHARES)
def test_counts_at_the_edges_of_blocks(engines, agents, shares):
    for spread in (3, 7, 8, 15, 31, 63, 64):
        config = ks.MarketConfig(num_agents=agents, noise_spread=spread, market_order_prob=0.3, **SHARES[shares])
        slots = fitting_slots(config, 3, ["noise", "momentum", "maker", "fundamental"])
        play_together(Play(config, 3, slots, 5, (("run", 7), ("step", 2, "near", 1))), engines)


@covering
@pytest.mark.parametrize("engines", PAIRS)
@pytest.mark.parametrize("spread", [14, 15, 16, 30, 31, 47, 100, 511, 2000])
@pytest.mark.parametrize("price", [1, 14, 16, 33, 256, 480, 496, 510])
def test_mids_anywhere_with_any_window(engines, spread, price):
    """The cleared ticks end at the grid's edges, or 1 to 32 chunks apart around the mid."""
    config = ks.MarketConfig(
        num_levels=512, init_price=price, noise_spread=spread, num_agents=150, market_order_prob=0.6, cancel_prob=0.2
    )
    play_together(Play(config, 5, (None, None), price, (("run", 9), *QUOTED)), engines)


ONE_UNIT = dict(num_agents=1, max_order_qty=1, init_depth=0, market_order_prob=0.0, noise=1.0, momentum=0.0, maker=0.0)


@covering
@pytest.mark.parametrize("cancel", [0.0, 0.01])
@pytest.mark.parametrize("side", ["bid", "ask"])
def test_the_last_unit_before_2_to_the_31(cancel, side):
    """A side may hold 2^31 - 1 and not one more; both engines stop at the same auction."""
    config = ks.MarketConfig(num_levels=32, init_price=16, cancel_prob=cancel, **ONE_UNIT)
    tick = 3 if side == "bid" else 29
    stopped = set()
    for seed in range(20):
        ends = []
        for engine in ("numpy", "cpu"):
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


@pytest.mark.gpu
@pytest.mark.parametrize("bins", [0, 16])
@pytest.mark.parametrize("launches", [(14,), (1,) * 14, (5, 9)], ids=["one launch", "14 launches", "2 launches"])
@pytest.mark.parametrize(("levels", "tick"), [(8, 0), (32, 3), (256, 7), (256, 125)])
@pytest.mark.parametrize("side", ["bid", "ask"])
@pytest.mark.parametrize("slots", [0, 2])
def test_a_full_market_stops_alone_on_cuda(bins, launches, levels, tick, side, slots):
    """It stops where C++ does, and keeps its book as it was before that auction's orders; other markets go on."""
    markets = 24
    config = ks.MarketConfig(num_levels=levels, init_price=levels // 2, **ONE_UNIT)
    play = Play(config, markets, (None,) * slots, 0, ())
    full = open_simulator(f"cuda KS_BINS={bins}", play)
    quotes = make_quotes(full, "near", 3)[0]
    quotes[..., 1::2] = quotes[..., 1::2].clip(0, 1)
    book, at = (full.bid, tick) if side == "bid" else (full.ask, levels - 1 - tick)
    book[: markets // 2, at] = 2**31 - 3  # the second half of the markets has room
    if slots:
        full.step(quotes, auctions=launches[0])
    for auctions in launches[bool(slots) :]:
        full.run(auctions)
    stopped = 0
    for market in range(markets):
        one = ks.Simulator(config, 1, engine="cpu", seed=market, slots=slots)
        if market < markets // 2:
            (one.bid if side == "bid" else one.ask)[0, at] = 2**31 - 3
        try:
            if slots:
                one.step(quotes[market : market + 1])
            for _ in range(sum(launches) - bool(slots)):
                one.run(1)
            error = 0
        except ks.MarketError:
            error, stopped = 1, stopped + 1
        for name in ("bid", "ask", "last_tick", "t", "volume", "trades", "cash", "inventory"):
            got, wanted = full.tensors[name][market].cpu(), one.tensors[name][0]
            assert torch.equal(got, wanted), f"market {market}: {name} {got.tolist()} is not {wanted.tolist()}"
        assert int(full.tensors["error"][market]) == error
    assert 0 < stopped <= markets // 2
    with pytest.raises(ks.MarketError, match=r"2\^31"):
        full.check_errors()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_standing_quote_above_a_smaller_cap_fills_a_side(engine):
    """A saved state may hold quotes beyond the pre-trade limits of its new market; they stand, and they count."""
    config = ks.MarketConfig(num_levels=64, init_price=32, **ONE_UNIT)
    before = ks.Simulator(config, 1, engine="numpy", slots=1)
    before.step(np.array([[[3, 2**20, 60, 0]]], np.int32))
    saved = before.state_dict()
    saved["bid"][0, 2] = 2**31 - 1001
    after = ks.Simulator(config.replace(max_quote_qty=1), 1, engine=engine, slots=1)
    with pytest.warns(UserWarning, match="market.max_quote_qty is 1048576 there, 1 here"):
        after.load_state_dict(saved, strict=False)
    with pytest.raises(ks.MarketError, match=r"2\^31"):
        after.run(2)
        after.check_errors()
    assert int(after.bid.sum()) >= 2**31 - 1001


@pytest.mark.parametrize("engines", PAIRS)
@pytest.mark.parametrize("price", [1, 2, 1022, 1023])
def test_one_side_of_a_long_grid_stays_empty(engines, price):
    """All orders are sells or buys of makers at the edge, and the best price of the other side is sought in vain."""
    config = ks.MarketConfig(
        num_levels=1024, init_price=min(price, 1022), num_agents=3, noise=0.0, momentum=1.0, maker=0.0, init_depth=1
    )
    play_together(Play(config, 9, (None,), 3, (("run", 30), ("step", 2, "edge", 1), ("run", 30))), engines)
