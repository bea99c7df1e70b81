"""Quotes that arrive in a later decision: answers by hand, and tools that must know. As state: test_way_states.py."""

import numpy as np
import pytest
import torch
from ladder_markets import market as ladder_market
from ladder_markets import submit
from pencil_markets import NEVER, ask, bid, inactive, lone_maker
from strategies import ENGINES

import kineticsim_env as ks
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


def quicker(engine, latencies, *quotes):
    """Two slots of a market of four events per interval, which submit twice, the second time with less latency."""
    market = inactive(1, engine=engine, interval=4, beat=NEVER, quote_latency=latencies[0])
    market.interval(quotes[0])
    market.sim.set_parameters(quote_latency=latencies[1])
    market.interval(quotes[1])
    return market


@EVERY_ENGINE
def test_none_overtakes_another(engine):
    """Two are due at event 20: the second would be at 8. It arrives right after the first, and replaces it."""
    market = quicker(engine, (20, 4), [ask(9, 2), bid(9, 6)], [ask(9, 1), ask(9, 1)])
    assert due(market.sim) == [21, 21, 0, 0]
    seen = [market.interval() for _ in range(4)]
    assert is_empty(market.sim) and seen[2]["volume"] == 0
    assert seen[3]["fills"] == [[0, 0], [6, 0]]  # of the 8 built-in ones: at t = 5 slot 1 comes first
    assert [quote[2:] for quote in seen[3]["quotes"]] == [[9, 1], [9, 1]]
    # Slot 0's ask kept the place that it had from the first submission; slot 1's came with the second.
    assert market.sim.tensors["moments"][0, :, 1].tolist() == [256 * 5 + 1, 256 * 5 + 2]


@EVERY_ENGINE
def test_submissions_of_an_interval_are_told_apart(engine):
    market = quicker(engine, (6, 3), [bid(5, 1), bid(4, 1)], [bid(3, 1), bid(2, 1)])
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
    found = ks.block_impact(config, "buy", block=12, per_auction=4, after=9, num_markets=16, warmup=20, engine=engine)
    held = found.arms.with_agent.inventory[:, 0]
    assert bool((held <= 12).all()) and found.filled.mean > 0.9
    bought, sold = found.arms.with_agent.fills.sum(0)[:, 0].T
    assert torch.equal(bought - sold, held)
