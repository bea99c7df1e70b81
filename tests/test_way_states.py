"""Quotes under way are state: they are saved, go along with branches, and end with their episode or book."""

import re

import gymnasium
import numpy as np
import pytest
import torch
from pencil_markets import NEVER, bid, inactive
from test_ladder_states import random_ladders
from test_quotes_under_way import EVERY_ENGINE, FAR, WAY, due, is_empty, news

import kineticsim_env as ks
from kineticsim_env.engines import runs


def assert_same(one, two):
    assert one.tensors.keys() == two.tensors.keys()
    for name, tensor in one.tensors.items():
        assert torch.equal(tensor, two.tensors[name]), name


# State ----------------------------------------------------------------------------------------------------------------


@EVERY_ENGINE
@pytest.mark.parametrize(("latency", "levels"), [(FAR, 1), (FAR, 3), ([0, 5, 20, 47], 1)])
def test_decisions_may_be_cut_anywhere(engine, latency, levels, monkeypatch):
    one, other = news(engine, latency, levels), news(engine, latency, levels)
    records = random_ladders(np.random.default_rng(1), one, 4)
    whole = one.rollout(records, 5, ("mid2", "signed_volume"))
    for events in (1, 500, 1200):  # intervals of 4 markets in a piece: 1, 2, 5 or so
        monkeypatch.setattr(runs, "EVENTS", dict.fromkeys(("cpu", "numpy", "cuda"), events))
        other = news(engine, latency, levels)
        cut = other.rollout(records, 5, ("mid2", "signed_volume"))
        assert torch.equal(cut.rejects, whole.rejects) and torch.equal(cut.fills, whole.fills)
        assert all(torch.equal(cut.series[name], whole.series[name]) for name in whole.series)
        assert_same(one, other)
    assert bool(whole.rejects.any()) and bool(whole.fills.any())


@EVERY_ENGINE
@pytest.mark.parametrize("levels", [1, 3])
def test_branches_and_saved_states_go_on(engine, levels):
    sim, generator = news(engine, levels=levels), np.random.default_rng(2)
    sim.rollout(random_ladders(generator, sim, 6))
    assert all(bool(sim.tensors[name].any()) for name in WAY)
    loaded = news(engine, levels=levels)
    loaded.load_state_dict(sim.state_dict())
    others, records = [sim.branch(), loaded], random_ladders(generator, sim, 6)
    played = sim.rollout(records, 2)
    for other in others:
        assert torch.equal(other.rollout(records, 2).fills, played.fills)
        assert_same(sim, other)


@EVERY_ENGINE
def test_only_markets_that_need_it_have_the_state(engine):
    assert not set(WAY) & news(engine, 47).tensors.keys()
    assert set(WAY) <= news(engine, [0, 0, 0, 48]).tensors.keys()
    alone = ks.Simulator(ks.MarketConfig.preset("news", quote_latency=90), 2, engine=engine)
    alone.run(3)
    assert not set(WAY) & alone.tensors.keys()


@EVERY_ENGINE
def test_a_state_without_it_has_nothing_under_way(engine):
    sim = news(engine)
    sim.rollout(random_ladders(np.random.default_rng(3), sim, 5))
    saved = sim.state_dict()
    before = {name: value for name, value in saved.items() if name not in WAY}
    other = sim.branch()
    other.load_state_dict(before)
    assert is_empty(other) and torch.equal(other.quotes, sim.quotes)
    for name in WAY:
        with pytest.raises(ValueError, match=f"missing or unknown names .*{name}"):
            other.load_state_dict({key: value for key, value in saved.items() if key != name})


@EVERY_ENGINE
@pytest.mark.parametrize(
    ("name", "place", "value", "said"),
    [
        ("due", (0, 0), -1, "0 or more, got -1"),
        ("due", (0, 0), 12, "no fall, and zeros last, got 11"),
        ("due", (0, 0), 0, "no fall, and zeros last, got 11"),
        ("due", (0, 3), 10, "no fall, and zeros last, got 10"),
        ("due", (0, 0), 8, "1 + t * interval or more, and up to 2^31 - 1 beyond that, got 8"),
        ("due", (0, 2), 2**31 + 9, f"1 + t * interval or more, and up to 2^31 - 1 beyond that, got {2**31 + 9}"),
        ("due_quotes", (0, 3, 0, 0), 5, "0 where nothing is due, got 5"),
        ("due_flags", (0, 3, 0), 1, "0 where nothing is due, got 1"),
        ("due_flags", (0, 1, 0), 16, "sums of OrderFlag, of bid and ask, got 16"),
        ("due_flags", (0, 1, 0), -1, "sums of OrderFlag, of bid and ask, got -1"),
    ],
)
def test_states_that_are_refused(engine, name, place, value, said):
    """After eight intervals of one event, the last three of which submitted: due at events 8, 9 and 10 or later."""
    sim = inactive(0, engine=engine, interval=1, beat=NEVER, quote_latency=3).sim
    sim.run(5)
    for _ in range(3):
        sim.step(torch.tensor([[bid(5, 1)]], dtype=torch.int32, device=sim.device))
    assert due(sim) == [9, 10, 11, 0]
    saved = sim.state_dict()
    if said.endswith("got 11"):  # what comes after it is named
        saved["due"][0, 1] = 11
    saved[name][place] = value
    with pytest.raises(ValueError, match=re.escape(f"state[{name!r}]: expected {said}")):
        sim.load_state_dict(saved)
    assert due(sim) == [9, 10, 11, 0]


@EVERY_ENGINE
@pytest.mark.parametrize("chosen", [[True, True, False, False], None])
def test_resets_and_books_begin_with_none(engine, chosen):
    sim = news(engine, 300)
    sim.rollout(random_ladders(np.random.default_rng(4), sim, 3))
    mask = None if chosen is None else torch.tensor(chosen, device=sim.device)
    for clear in (lambda one: one.reset(mask=mask), lambda one: one.set_book([[100, 5]], [[102, 5]], mask=mask)):
        other = sim.branch()
        clear(other)
        for market in range(4):
            assert is_empty(other, market) == (chosen is None or chosen[market])
    other.run(30)
    assert is_empty(other)


# Parameters -----------------------------------------------------------------------------------------------------------


@EVERY_ENGINE
def test_a_latency_that_has_no_place_is_refused(engine):
    sim = news(engine, 5)
    said = "quote_latency: expected up to 47, as the interval is 48 and the market began with less than that, got 60"
    for mask in (None, torch.tensor([True, False, False, False], device=sim.device)):
        with pytest.raises(ValueError, match=re.escape(said)):
            sim.set_parameters(mask, quote_latency=60)
    sim.set_parameters(quote_latency=47)
    assert sim.config.quote_latency == 47
    with pytest.raises(ValueError, match=re.escape(said)):
        envs_of(engine, config=ks.MarketConfig.preset("news"), randomise={"quote_latency": (60, 60)})


@EVERY_ENGINE
def test_what_is_under_way_outlives_a_lower_latency(engine):
    sim = news(engine, 300)
    records = random_ladders(np.random.default_rng(5), sim, 8)
    sim.rollout(records[:3])
    sim.set_parameters(quote_latency=0)
    branch = sim.branch()
    assert_same(sim, branch)
    assert branch.config == sim.config and not is_empty(branch)
    branch.set_parameters(quote_latency=60)  # as it began with more
    branch.set_parameters(quote_latency=0)
    assert torch.equal(sim.rollout(records[3:]).fills, branch.rollout(records[3:]).fills)
    assert_same(sim, branch)
    fresh = news(engine, 0)
    with pytest.raises(ValueError, match="unknown names"):
        fresh.load_state_dict(sim.state_dict())
    sim.run(10)
    fresh.load_state_dict(sim.state_dict())  # now nothing is under way, so there is nothing to lose
    assert_same(fresh.branch(), fresh)


# Environments ---------------------------------------------------------------------------------------------------------


def envs_of(engine, name="MarketMaking", envs=3, **kwargs):
    settings = {"bank_size": 0, "warmup": 0, "output": "torch", "engine": engine, **kwargs}
    return gymnasium.make_vec(f"KineticSim/{name}-v0", num_envs=envs, **settings).unwrapped


@EVERY_ENGINE
@pytest.mark.parametrize("mode", list(gymnasium.vector.AutoresetMode)[:2])
def test_a_new_episode_begins_with_none(engine, mode):
    config = ks.MarketConfig.preset("news", quote_latency=130)
    envs = envs_of(engine, config=config, horizon=3, autoreset_mode=mode, stagger=False)
    envs.reset(seed=3)
    sim, action = envs.core.simulator, torch.full((3, 4), 0.5, device=envs.core.device)
    for _ in range(2):
        envs.step(action)
    assert (sim.tensors["due"] > 0).sum(1).tolist() == [2, 2, 2] and not bool(sim.quotes.any())
    clone = envs.clone()
    for _ in range(2):
        one, two = envs.step(action), clone.step(action)
        assert torch.equal(one[0], two[0]) and torch.equal(one[1], two[1])
    assert_same(sim, clone.core.simulator)
    played = int(mode == gymnasium.vector.AutoresetMode.SAME_STEP)  # else the last step was the reset
    assert (sim.tensors["due"] > 0).sum(1).tolist() == [played] * 3
    again = envs_of(engine, config=config, horizon=3, autoreset_mode=mode, stagger=False)
    again.load_state_dict(envs.state_dict())
    assert torch.equal(again.step(action)[0], envs.step(action)[0])
    envs.reset()
    assert is_empty(sim)


@EVERY_ENGINE
def test_a_block_is_forced_within_its_interval(engine):
    """The decision's own quotes are dropped; forced ones arrive before the last event of their intervals."""
    config = ks.MarketConfig.preset("news", quote_latency=900)
    settings = {"horizon": 1, "side": "buy", "block_qty": 20, "autoreset_mode": gymnasium.vector.AutoresetMode.DISABLED}
    envs = envs_of(engine, "Execution", 1, config=config, **settings)
    envs.reset(seed=8)
    task, early = envs.core.task, envs.core.config.replace(quote_latency=47)
    sim = ks.Simulator(early, 1, seed=8, slots=1, engine=engine)
    envs.step(torch.ones((1, 2), device=envs.core.device))
    sim.run(1)
    while (left := 20 - int(sim.inventory)) > 0:
        quotes = [2**30, min(left, task.forced_qty), -(2**30), 0]
        sim.step(torch.tensor([[quotes]], dtype=torch.int32, device=sim.device))
    played = envs.core.simulator
    assert is_empty(played) and int(played.inventory) == 20 and int(played.t) == int(sim.t) > 1
    for name, tensor in sim.tensors.items():
        assert torch.equal(tensor, played.tensors[name]), name


@EVERY_ENGINE
def test_scenarios_may_wait_where_the_market_may(engine):
    config = ks.MarketConfig.preset("news", quote_latency=48)
    settings = {"config": config, "randomise": {"quote_latency": [0, 30, 60, 200]}, "horizon": 6, "num_scenarios": 8}
    envs, other = (envs_of(engine, **settings) for _ in range(2))
    envs.reset(seed=1)
    other.reset(seed=2)
    action = torch.full((3, 4), 0.3, device=envs.core.device)
    for _ in range(4):
        envs.step(action)
    assert not is_empty(envs.core.simulator)
    other.load_state_dict(envs.state_dict())
    for _ in range(8):
        assert torch.equal(envs.step(action)[0], other.step(action)[0])
