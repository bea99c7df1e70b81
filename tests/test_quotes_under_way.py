"""Quotes that arrive in a later decision: answers by hand, and that what is under way is state like any other."""

import re

import gymnasium
import numpy as np
import pytest
import torch
from ladder_markets import market as ladder_market
from ladder_markets import submit
from pencil_markets import NEVER, ask, bid, inactive, lone_maker
from strategies import ENGINES
from test_ladder_states import random_ladders

import kineticsim_env as ks
from kineticsim_env.engines import runs
from kineticsim_env.evaluation import liquidate

EVERY_ENGINE = pytest.mark.parametrize("engine", ENGINES)
WAY = ("due", "due_quotes", "due_flags")
FAR = [0, 130, 300, 47]  # of four markets, where an interval is 48 events


def news(engine, latency=FAR, levels=1, **fields):
    latency = np.array(latency) if isinstance(latency, list) else latency
    config = ks.MarketConfig.preset("news", quote_latency=latency, orders_per_side=levels, **fields)
    return ks.Simulator(config, 4, engine=engine, seed=5, slots=2)


def due(sim, market=0):
    return sim.tensors["due"][market].tolist()


def is_empty(sim, market=slice(None)):
    return not any(bool(sim.tensors[name][market].any()) for name in WAY)


def assert_same(one, two):
    assert one.tensors.keys() == two.tensors.keys()
    for name, tensor in one.tensors.items():
        assert torch.equal(tensor, two.tensors[name]), name


# By hand --------------------------------------------------------------------------------------------------------------


@EVERY_ENGINE
@pytest.mark.parametrize("latency", [3, 4, 5, 7, 8, 11])
def test_a_quote_arrives_before_its_event(engine, latency):
    """Four events per interval: at every even one a unit joins the bids at 7."""
    market = lone_maker(engine=engine, interval=4, beat=NEVER, quote_latency=latency)
    for interval in range(4):
        seen = market.interval([bid(7, 1)] if interval == 0 else None)
        came = latency < 4 * (interval + 1)
        assert seen["quotes"] == [[7, 1, 0, 0] if came else [0, 0, 0, 0]]
        assert seen["ahead"] == [[8 + (latency + 1) // 2 if came else 0, 0]]
        if latency >= 4:
            assert due(market.sim) == [0 if came else 1 + latency, 0, 0, 0]
            assert market.sim.tensors["due_quotes"][0, 0, 0].tolist() == ([0] * 4 if came else [7, 1, 0, 0])


@EVERY_ENGINE
@pytest.mark.parametrize("intervals", [1, 2, 3, 6])
def test_a_decision_of_many_intervals_submits_once(engine, intervals):
    market = lone_maker(engine=engine, interval=4, beat=NEVER, quote_latency=9)
    market.decision([bid(7, 1)], intervals)
    assert (due(market.sim)[0] == 10) == (intervals < 3)
    assert market.decision(None, 6)[-1]["ahead"] == [[13, 0]]


@EVERY_ENGINE
def test_a_beat_comes_first(engine):
    market = inactive(0, engine=engine, init_depth=64, cancel_prob=0.5, interval=1, beat=4, quote_latency=4)
    seen = [market.interval([bid(7, 1)] if interval == 0 else None) for interval in range(5)]
    assert [one["bid"][7] for one in seen] == [32, 32, 32, 32, 16]
    assert [one["ahead"][0][0] for one in seen] == [0, 0, 0, 0, 16]


@EVERY_ENGINE
def test_none_overtakes_another(engine):
    """Two are due at event 20: the second would be at 8. It arrives right after the first, and replaces it."""
    market = inactive(1, engine=engine, interval=4, beat=NEVER, quote_latency=20)
    market.interval([ask(9, 2), bid(9, 6)])
    market.sim.set_parameters(quote_latency=4)
    market.interval([ask(9, 1), ask(9, 1)])
    assert due(market.sim) == [21, 21, 0, 0]
    seen = [market.interval() for _ in range(4)]
    assert is_empty(market.sim) and seen[2]["volume"] == 0
    assert seen[3]["fills"] == [[0, 0], [6, 0]]  # of the 8 built-in ones: at t = 5 slot 1 comes first
    assert [quote[2:] for quote in seen[3]["quotes"]] == [[9, 1], [9, 1]]
    # Slot 0's ask kept the place that it had from the first submission; slot 1's came with the second.
    assert market.sim.tensors["moments"][0, :, 1].tolist() == [256 * 5 + 1, 256 * 5 + 2]


@EVERY_ENGINE
def test_submissions_of_an_interval_are_told_apart(engine):
    market = inactive(1, engine=engine, interval=4, beat=NEVER, quote_latency=6)
    market.interval([bid(5, 1), bid(4, 1)])
    market.sim.set_parameters(quote_latency=3)
    market.interval([bid(3, 1), bid(2, 1)])
    assert is_empty(market.sim)
    assert market.sim.tensors["moments"][0, :, 0].tolist() == [256 + 2 + 1, 256 + 2]  # slot 1 was first


@EVERY_ENGINE
def test_a_fifth_replaces_the_newest(engine):
    market = inactive(0, engine=engine, interval=4, beat=NEVER, quote_latency=100)
    for quantity in range(1, 7):
        market.interval([bid(5, quantity)])
    assert due(market.sim) == [101, 105, 109, 121]
    assert market.sim.tensors["due_quotes"][0, :, 0, 1].tolist() == [1, 2, 3, 6]
    market.decision(None, 21)  # up to event 108
    assert due(market.sim) == [109, 121, 0, 0] and market.sim.quotes[0, 0, 1] == 2
    assert market.decision(None, 4)[-1]["quotes"] == [[5, 6, 0, 0]] and is_empty(market.sim)


@EVERY_ENGINE
def test_rejects_are_of_what_arrives(engine):
    sim = ladder_market(engine, levels=1, quote_latency=2)
    post_only = [((9, 1, "post-only"), (0, 0, ""))]
    assert submit(sim, post_only)[1] == {}
    assert submit(sim, None)[1] == {}
    assert sim.tensors["due_flags"].flatten().tolist() == [2, 257, 0, 0]
    assert submit(sim, None)[1] == {(0, 0, 0): 1}
    assert submit(sim, None)[1] == {}


@EVERY_ENGINE
def test_limits_and_keep_are_of_the_arrival(engine):
    """What is kept is what stands when it arrives, not when it was submitted."""
    sim = ladder_market(engine, 2, levels=1, quote_latency=2)
    for ladders in (([((7, 4, ""), (0, 0, ""))], None), (None, None), (None, None)):
        submit(sim, *ladders)
    assert sim.quotes[0, 0].tolist() == [7, 4, 0, 0]
    submit(sim, None, [((0, 0, ""), (7, 10, ""))])  # 8 built-in units, then 2 of slot 0
    for _ in range(3):
        submit(sim, None, None)
    assert sim.quotes[0, 0].tolist() == [7, 2, 0, 0] and sim.inventory[0].tolist() == [2, -10]


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
    sim, action = envs.core.simulator, torch.full((3, 4), 0.5)
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
    envs.step(torch.ones((1, 2)))
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
    action = torch.full((3, 4), 0.3)
    for _ in range(4):
        envs.step(action)
    assert not is_empty(envs.core.simulator)
    other.load_state_dict(envs.state_dict())
    for _ in range(8):
        assert torch.equal(envs.step(action)[0], other.step(action)[0])


# Tools ----------------------------------------------------------------------------------------------------------------


@EVERY_ENGINE
def test_unwinding_waits_for_its_orders(engine):
    sim = news(engine, [0, 60, 130, 300])
    mid = (sim.mid2 // 2)[:, None].expand(4, 2)
    quotes = torch.stack([mid + 20, 0 * mid + 9, mid, 0 * mid], -1).int()
    sim.step(quotes, 9)
    assert bool((sim.inventory > 0).all())
    liquidate(sim)
    assert not bool(sim.inventory.any())


@EVERY_ENGINE
def test_a_block_counts_what_is_under_way(engine):
    config = ks.MarketConfig.preset("news", quote_latency=130)
    found = ks.block_impact(config, "buy", block=12, per_auction=4, after=9, num_markets=16, engine=engine)
    held = found.arms.with_agent.inventory[:, 0]
    assert bool((held <= 12).all()) and found.filled.mean > 0.9
    bought, sold = found.arms.with_agent.fills.sum(0)[:, 0].T
    assert torch.equal(bought - sold, held)
