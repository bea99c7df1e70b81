"""Call auctions on the clock in the C++ engine, where classes decide for blocks of events: bits and answers."""

from typing import Any

import pytest
import torch
from agent_classes import CLASSES, at_the_best, copied_noise, extreme, insider, trend_follower
from build_helpers import needs_compiler
from plain_rules import who_comes
from thorough import covering, examples, slow

import kineticsim_env as ks

pytestmark = needs_compiler
BOTH = ("numpy", "cpu")
ENGINE = pytest.mark.parametrize("engine", BOTH)
BLOCK = 256  # ArrivingAgents::kEvents
RECORDED = ("volume", "mid2", "signed_volume")
LEVERS: dict[str, Any] = {"tax": 1, "collar": 9, "tick_size": 2, "rounding": "coin", "reference": "fundamental"}


def market(agents, interval, beat, **fields):
    """Return a small market on the clock of these agents, and perhaps of built-in ones."""
    told: dict[str, Any] = {"num_agents": 0, "arrivals": "clock", "tie": "lowest", "residue": "rest", "num_levels": 64}
    told |= {"init_price": 32, "interval": interval, "beat": beat}
    return ks.MarketConfig.preset("trading").replace(**(told | fields), agents=agents)


def assert_same(config, intervals=3, markets=2, slots=(), seed=5):
    """Assert that both engines play the same, in a run of some intervals and a step; return the C++ engine's market."""
    sims = [ks.Simulator(config, markets, engine=engine, seed=seed, slots=slots) for engine in BOTH]
    recorded = [sim.run(intervals, record=RECORDED) for sim in sims]
    for name, values in recorded[0].items():
        assert torch.equal(values, recorded[1][name]), name
    for sim in sims:
        sim.run(1)
    for name, tensor in sims[0].tensors.items():
        assert torch.equal(tensor, sims[1].tensors[name]), name
    return sims[1]


def all_of(count, **fields):
    """Return the tests' classes, so many agents each, some with parameters of their own."""
    lookbacks = [2 + i % 7 for i in range(count)]
    return {kind: ks.mix(count, **({"lookback": lookbacks} if kind is trend_follower else {})) for kind in CLASSES}


@covering
@pytest.mark.parametrize(
    ("count", "built_in"), [(17, 0), *(pytest.param(*two, marks=slow) for two in ((1, 0), (17, 5)))]
)
@pytest.mark.parametrize(
    ("interval", "beat"),
    [(1, 1), (2, 3), (17, 5), (63, 64), (64, 63), (65, 1000), (BLOCK - 1, BLOCK), (BLOCK, BLOCK - 1), (BLOCK + 1, 513)],
)
def test_blocks_of_every_length(interval, beat, count, built_in):
    fields = {"num_agents": built_in, "walk_prob": 0.5, "jump_prob": 0.1, "jump_size": 3, "cancel_prob": 0.1}
    assert_same(market(all_of(count), interval, beat, **fields), intervals=1, markets=1 + (interval < 60))


@pytest.mark.parametrize("built_in", [0, 4])
@pytest.mark.parametrize("seed", range(examples(40)))
def test_levers_regimes_and_learners(seed, built_in):
    regimes = [{}, {"noise_spread": 1, "max_order_qty": 9, "market_order_prob": 0.5}]
    levers = {name: value for i, (name, value) in enumerate(LEVERS.items()) if seed >> i & 1}
    slots = [(), ("insider",), (None, "copied_noise", "extreme")][seed % 3]
    fields = {**levers, "num_agents": built_in, "regimes": regimes, "regime_switch_prob": 0.4, "walk_prob": 0.7}
    fields |= [{"num_levels": 8, "init_price": 4, "window": 3}, {}, {"num_levels": 512}][seed % 3]
    config = market(all_of(1 + seed % 4), 1 + 13 * seed % 90, 1 + 7 * seed % 50, **fields)
    assert_same(config, slots=slots, seed=seed)


@pytest.mark.parametrize("levels", [64, 2048])
@pytest.mark.parametrize("kind", [copied_noise, extreme, at_the_best, insider])
def test_orders_that_are_close_and_that_are_far_apart(kind, levels):
    """Where they wait is marked in one of two ways: by tick where they are close together, else by order."""
    sim = assert_same(market({kind: 9}, 100, 33, num_levels=levels, init_price=levels // 2))
    rest = (sim.tensors["bid"] + sim.tensors["ask"])[0].nonzero().flatten()
    if kind is extreme and levels == 2048:
        assert int(rest.max() - rest.min()) > 400  # twice the events
    assert int(sim.volume.sum()) > 0


@slow
@pytest.mark.parametrize("fields", [{}, {"num_agents": 40}, {"tick_size": 3, "tax": 2}])
@pytest.mark.parametrize("copies", [1, 15, 16, 17, 300])
def test_a_long_interval_of_many_or_few(copies, fields):
    assert_same(market({copied_noise: copies}, 2 * BLOCK + 3, 2 * BLOCK + 1, **fields), intervals=1, markets=1)


# Answers worked out by hand -------------------------------------------------------------------------------------------

# A market whose book is empty and in which nothing but these agents changes anything.
EMPTY: dict[str, Any] = {"init_depth": 0, "cancel_prob": 0.0, "window": 0, "noise": 1.0, "momentum": 0.0, "maker": 0.0}
EMPTY |= {"fundamental": 0.0, "walk_prob": 0.0, "jump_prob": 0.0}


@ks.agent(memory={"times": 0, "first": -1, "last": -1, "order": 1})
def diary(market, own, draw):
    """Buys a unit more each time; remembers when it came, and a number of all the times and their order."""
    own.times += 1
    own.first = market.t if own.first < 0 else own.first
    own.last = market.t
    own.order = own.order * 31 + market.t
    return ks.order(1, own.index, own.times)


@ks.agent(side=1, price=0, quantity=1, takes=0)
def told(market, own, draw):
    return ks.order(own.side, own.price, own.quantity, own.takes)


@ENGINE
@pytest.mark.parametrize("agents", [1, 2, 30])
@pytest.mark.parametrize(
    ("interval", "beat"),
    [(1, 1), (77, 5), pytest.param(BLOCK, BLOCK, marks=slow), pytest.param(2 * BLOCK + 3, 2 * BLOCK + 3, marks=slow)],
)
def test_who_comes_more_than_once_remembers_in_the_order_of_events(agents, interval, beat, engine):
    sim = ks.Simulator(market({diary: agents}, interval, beat, **EMPTY), 1, engine=engine, seed=3)
    sim.run(2)
    times, first, last, order = sim.tensors["agent_memory"][0].reshape(4, agents).tolist()
    wanted = [[0, -1, -1, 1] for _ in range(agents)]
    for t, agent in enumerate(who_comes(3, 2 * interval, agents)):
        one = wanted[agent]
        wanted[agent] = [one[0] + 1, t if one[1] < 0 else one[1], t, (one[3] * 31 + t) & 0xFFFFFFFF]
    assert [list(x) for x in zip(times, first, last, [n & 0xFFFFFFFF for n in order], strict=True)] == wanted
    assert sim.tensors["bid"][0, :agents].tolist() == [n * (n + 1) // 2 for n in times]
    assert not sim.tensors["bid"][0, agents:].any()


@ENGINE
@pytest.mark.parametrize("built_in", [0, 1])
@pytest.mark.parametrize("room", [-1, 0])
def test_a_side_stops_at_the_last_order_that_is_too_much(room, built_in, engine):
    """All of an interval's orders fit to the last unit, or it does not take place and memory is as it was."""
    events, agents = 100, {told: ks.mix(2, price=[5, 9], quantity=65535), diary: 1}
    config = market(agents, events, events, **EMPTY, num_agents=built_in)
    slots = ("noise",) * built_in
    ones = [agent - built_in for agent in who_comes(3, events, 3 + built_in)]
    times = ones.count(2)
    comes = 65535 * sum(agent in (0, 1) for agent in ones) + times * (times + 1) // 2
    sim = ks.Simulator(config, 1, engine=engine, seed=3, slots=slots)
    sim.tensors["bid"][0, 1] = 2**31 - 1 - comes - room
    sim.load_state_dict(sim.state_dict())  # so that the engine looks at what was written
    before = {name: tensor.clone() for name, tensor in sim.tensors.items()}
    if room < 0:
        with pytest.raises(ks.MarketError, match=r"2\^31"):
            sim.run(1)
        for name, tensor in sim.tensors.items():
            assert torch.equal(tensor, before[name]) or name == "error", name
        return
    sim.run(1)
    assert int(sim.tensors["bid"].sum()) == 2**31 - 1 and int(sim.tensors["agent_memory"][0, 0]) == times


@pytest.mark.parametrize("takes", [0, 1])
def test_nobody_comes_for_silent_agents_and_who_orders_nothing_leaves_no_trace(takes):
    config = market({told: ks.mix(3, side=[1, 0, 1], price=[5, 6, 7], takes=takes)}, 90, 90, **EMPTY)
    sim = ks.Simulator(config, 1, engine="cpu", seed=3, slots=("told",))
    sim.run(1)
    arriving = list(who_comes(3, 90, 3))
    rests = sim.tensors["bid"][0].nonzero().flatten().tolist()
    assert rests == [63 if takes else 5] and int(sim.tensors["bid"].sum()) == arriving.count(0)
    alone = ks.Simulator(config.replace(agents={told: ks.mix(1, side=0)}), 1, engine="cpu", seed=3)
    alone.run(5)
    assert not alone.tensors["bid"].any() and not alone.tensors["ask"].any() and not alone.volume.any()
