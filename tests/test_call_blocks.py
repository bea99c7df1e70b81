"""Call auctions on the clock in the C++ engine, where built-in agents' orders wait in blocks: the oracle's bits."""

from typing import Any

import pytest
import torch
from build_helpers import needs_compiler
from thorough import covering, examples, slow

import kineticsim_env as ks

pytestmark = needs_compiler
FEW, BLOCK = 8, 256  # less than kPadding, and ArrivingAgents::kEvents
RECORDED = ("volume", "mid2", "signed_volume")


def market(interval, beat, **fields):
    """Return a small market of all four classes."""
    told: dict[str, Any] = {"arrivals": "clock", "interval": interval, "beat": beat, "num_levels": 64, "init_price": 32}
    told |= {"num_agents": 30, "walk_prob": 0.5, "jump_prob": 0.1, "jump_size": 3, "residue": "cancel"}
    return ks.MarketConfig.preset("trading").replace(**(told | fields))


def assert_same(config, intervals=3, markets=2, slots=(), seed=5):
    """Assert that the oracle and the C++ engine play the same, on one thread; return the C++ engine's market."""
    sims = [ks.Simulator(config, markets, engine=engine, seed=seed, slots=slots) for engine in ("numpy", "cpu")]
    recorded = [sim.run(intervals, record=RECORDED) for sim in sims]
    for name, values in recorded[0].items():
        assert torch.equal(values, recorded[1][name]), name
    for name, tensor in sims[0].tensors.items():
        assert torch.equal(tensor, sims[1].tensors[name]), name
    return sims[1]


@covering
@pytest.mark.parametrize("slots", [(), (None, "momentum")])
@pytest.mark.parametrize(
    ("interval", "beat"),
    [
        (1, 3), (FEW, FEW), (FEW + 1, FEW + 1), (17, 5), (2 * FEW + 3, FEW + 2), (16, 15), (33, 1000),
        (BLOCK - 1, BLOCK), (BLOCK, BLOCK - 1), (BLOCK + 1, 2 * BLOCK + 1), (BLOCK + FEW, 3 * BLOCK),
        (2 * BLOCK + 3, 2 * BLOCK + 1),
    ],
)  # fmt: skip
def test_blocks_of_every_length(interval, beat, slots):
    """Of few events, of all that a block has and of one more; many begin at an odd event."""
    assert_same(market(interval, beat), slots=slots, markets=1 + (interval < 60))


@covering
@pytest.mark.parametrize("spread", [0, 3, 40, 1000])
@pytest.mark.parametrize("levels", [8, 32, 64, 128, 2048])
@pytest.mark.parametrize("taken", [0.0, 0.2, 1.0])
def test_orders_that_are_close_together_and_that_are_far_apart(levels, spread, taken):
    """Their ticks are marked in one of two ways: word by word where they are close together, else one by one."""
    fields = {"num_levels": levels, "init_price": levels // 2, "noise_spread": spread, "market_order_prob": taken}
    fields |= {"window": min(16, levels // 2 - 1), "rounding": "even" if spread == 3 else "coin"}
    sim = assert_same(market(40, 23, **fields))
    if spread == 1000 and levels == 2048 and taken == 0.0:
        rest = (sim.tensors["bid"] + sim.tensors["ask"])[0].nonzero().flatten()
        assert int(rest.max() - rest.min()) > 16 * 40


@slow
@pytest.mark.parametrize("seed", range(examples(60)))
def test_levers_regimes_and_counts_of_agents(seed):
    regimes = [{}, {"noise_spread": 1, "max_order_qty": 9, "market_order_prob": 0.5, "taker_offset": 3}]
    levers: dict[str, Any] = {"tax": 1, "collar": 9, "tick_size": 2, "reference": "fundamental"}
    fields = {name: value for i, (name, value) in enumerate(levers.items()) if seed >> i & 1}
    fields |= {"regimes": regimes, "regime_switch_prob": 0.4, "num_agents": 1 + seed % 50}
    config = market(1 + 37 * seed % 300, 1 + 23 * seed % 200, **fields)
    assert_same(config, slots=[(), ("noise",), (None, None, "noise")][seed % 3], seed=seed)


@pytest.mark.parametrize("room", [-1, 0])
def test_a_side_stops_at_the_last_order_that_is_too_much(room):
    """A block's orders fit to the last unit, or the interval does not take place."""
    fields = {"cancel_prob": 0.0, "init_depth": 0, "market_order_prob": 1.0, "residue": "rest", "max_order_qty": 65535}
    config = market(100, 100, **fields)
    probe = ks.Simulator(config, 1, engine="cpu", seed=3)
    probe.run(1)
    comes = int(probe.volume[0]) + int(probe.tensors["bid"].sum())  # all that is bought
    outcomes = []
    for engine in ("numpy", "cpu"):
        sim = ks.Simulator(config, 1, engine=engine, seed=3)
        sim.tensors["bid"][0, 1] = 2**31 - 1 - comes - room
        sim.load_state_dict(sim.state_dict())  # so that the engine looks at what was written
        if room < 0:
            with pytest.raises(ks.MarketError, match=r"2\^31"):
                sim.run(1)
        else:
            sim.run(1)
        outcomes.append({name: tensor for name, tensor in sim.tensors.items() if name != "error"})
    for name, tensor in outcomes[0].items():
        assert torch.equal(tensor, outcomes[1][name]), name


@pytest.mark.parametrize("events", [5, 40])
@pytest.mark.parametrize("tax", [0, 1])
def test_a_side_that_is_too_full_stops_no_market_while_no_order_comes_to_it(events, tax):
    """A standing bid is withdrawn at the end of an interval in which all others sell."""
    shares = {"noise": 0.0, "momentum": 0.0, "maker": 0.0, "fundamental": 1.0}
    fields = {"fundamental_price": 3, "walk_prob": 0.0, "jump_prob": 0.0, "cancel_prob": 0.0, "market_order_prob": 0.0}
    config = market(events, events, **shares, **fields, tax=tax)
    played = []
    for engine in ("numpy", "cpu"):
        sim = ks.Simulator(config, 1, engine=engine, seed=3, slots=(None,))
        sim.step(torch.tensor([[[2, 9, 0, 0]]], dtype=torch.int32))
        sim.tensors["bid"][0, 1] += 2**31 - 5 - int(sim.tensors["bid"].sum())
        sim.load_state_dict(sim.state_dict())  # so that the engine looks at what was written
        sim.step(torch.zeros((1, 1, 4), dtype=torch.int32))
        played.append(sim.tensors)
    assert played[0]["t"].tolist() == [2]
    for name, tensor in played[0].items():
        assert torch.equal(tensor, played[1][name]), name


def test_a_market_that_had_to_stop_leaves_nothing_to_one_of_a_smaller_grid():
    """Whole words of ticks are looked at, of which a small grid has only the first."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        large = ks.Simulator(market(40, 40, cancel_prob=0.0), 1, engine="cpu", seed=3)
        large.tensors["bid"][0, 1] = 2**31 - 1 - large.tensors["bid"].sum()
        large.load_state_dict(large.state_dict())
        with pytest.raises(ks.MarketError, match=r"2\^31"):
            large.run(1)
        assert_same(market(40, 40, num_levels=16, init_price=8, window=3), intervals=5)
    finally:
        torch.set_num_threads(threads)
