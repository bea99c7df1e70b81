"""Limits that hold whatever is done: the clock, memory that was swapped, inference mode, and the words of rationing."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from markets import FEW_ORDERS
from plain_rules import word

import kineticsim_env as ks

SILENT = {
    "num_agents": 1,
    "noise": 1.0,
    "momentum": 0.0,
    "maker": 0.0,
    "init_depth": 0,
    "num_levels": 32,
    "init_price": 16,
}


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_time_stays_below_2_to_the_32(engine):
    sim = ks.Simulator(ks.MarketConfig(**SILENT), 2, engine=engine)
    saved = sim.state_dict()
    saved["t"][1] = 2**32 - 3
    sim.load_state_dict(saved)
    sim.run(2)
    before = sim.state_dict()
    for call in (lambda: sim.run(1), lambda: sim.run(10**6)):
        with pytest.raises(ks.MarketError, match="expected t below 2\\^32, got .* at t = 4294967295"):
            call()
    assert all(torch.equal(before[name], value) for name, value in sim.state_dict().items())
    sim.reset()
    sim.run(1)


def test_an_episode_may_not_outlast_the_clock():
    with pytest.raises(ValueError, match="horizon: .*got 2147483647 decisions of 3 auctions"):
        gym.make_vec("KineticSim/MarketMaking-v0", num_envs=2, engine="cpu", horizon=2**31 - 1, auctions_per_step=3)


@pytest.mark.parametrize("how", ["data", "resize"])
def test_replaced_memory_is_refused(how):
    sim = ks.Simulator(ks.MarketConfig(**SILENT), 3, engine="cpu")
    if how == "data":
        sim.bid.data = torch.zeros_like(sim.bid)
    else:
        sim.bid.resize_(4096, 4096)
    with pytest.raises(RuntimeError, match="bid: its memory was replaced"):
        sim.run(1)


def test_what_is_made_in_inference_mode_lives_outside_of_it():
    with torch.inference_mode():
        envs = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=2, engine="cpu", output="torch", horizon=2)
        sim = ks.Simulator(ks.MarketConfig(**SILENT), 2, engine="cpu", slots=1)
        clone = sim.branch()
    envs.reset(seed=0)
    envs.step(torch.zeros(2, 4))
    for one in (sim, clone):
        one.run(2)
        one.reset(seed=5)


@pytest.mark.parametrize("engine", ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_rationing_reads_the_low_half_for_bids_and_the_high_half_for_asks(engine):
    config = ks.MarketConfig(**SILENT)
    for seed in range(40):
        for side in (0, 1):  # slots 0 and 1 share a tick on this side, slot 2 is opposite and too small for both
            sim = ks.Simulator(config, 1, engine=engine, seed=seed, slots=("noise", None, None))
            quotes = np.zeros((1, 3, 4), np.int32)
            quotes[0, :2, 2 * side : 2 * side + 2] = (16, 10), (16, 7)
            quotes[0, 2, 2 - 2 * side : 4 - 2 * side] = 16, 9
            fills = sim.step(quotes)[0, :, side].tolist()
            half = word(seed, 0, 0, 2**30 + 1) >> (32 * side) & (2**32 - 1)
            r = half * 17 >> 32
            first = (10 * 9 + r) // 17 - r // 17
            assert fills[:2] == [first, 9 - first]


@pytest.mark.parametrize("engine", ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_step_that_only_resets_has_no_fills(engine):
    envs = gym.make_vec(
        "KineticSim/MarketMaking-v0", num_envs=64, engine=engine, autoreset_mode="NEXT_STEP", horizon=2, stagger=False,
        config=FEW_ORDERS, bank_size=8, warmup=5,
    ).unwrapped  # fmt: skip
    envs.reset(seed=1)
    actions = np.zeros((64, 4), np.float32)
    for _ in range(2):
        envs.step(actions)
    assert envs.fills.any()
    envs.step(actions)
    assert not envs.fills.any()
