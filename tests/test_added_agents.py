"""Agents of classes that users have written, in the C++ engine: the oracle's bits, and answers worked out by hand."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from agent_classes import CLASSES, copied_noise, extreme, trend_follower, with_agents
from build_helpers import needs_compiler
from env_helpers import check_agreement, clock_environments, environments
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_rules import who_comes
from strategies import (
    OPTIONS,
    Play,
    assert_same,
    fitting_slots,
    make_config,
    make_move,
    open_simulator,
    play_together,
    plays,
    under_levers,
)
from thorough import covering, examples, slow

import kineticsim_env as ks

pytestmark = needs_compiler
BOTH = ("numpy", "cpu")
ENGINE = pytest.mark.parametrize("engine", BOTH)
KINDS: dict[str, dict[str, Any]] = {
    "each": {},
    "call on the clock": {"arrivals": "clock"},
    "continuous": {"arrivals": "clock", "mechanism": "continuous"},
}
KIND = pytest.mark.parametrize("kind", KINDS)


# The oracle's bits ----------------------------------------------------------------------------------------------------


def with_slots_of_them(config, slots, seed):
    """Return slots of which one, now and then, replaces an agent that was added."""
    names = [kind.name for kind, made in config.agents.items() if made.count]
    if not slots or not names or seed % 2:
        return slots
    return (names[seed // 2 % len(names)], *slots[1:])


@settings(max_examples=examples(150), derandomize=True)
@given(play=plays(levels=(8, 32, 64, 256)), seed=st.integers(0, 2**32), levers=st.booleans())
def test_random_plays_of_each(play, seed, levers):
    agents = np.max(np.asarray(play.config.num_agents))
    markets = min(play.markets, 5) if not play.config.per_market else play.markets
    config = play.config if agents <= 100 or play.config.per_market else play.config.replace(num_agents=33)
    if markets > 33:
        return
    config = under_levers(config, seed) if levers and config.population == "fixed" else config
    config = with_agents(config, seed, markets)
    slots = fitting_slots(config, markets, list(play.slots))
    play_together(Play(config, markets, with_slots_of_them(config, slots, seed), play.seed, play.moves), BOTH)


@pytest.mark.parametrize("mechanism", ["call", "continuous"])
@pytest.mark.parametrize("seed", range(examples(100)))
def test_random_plays_on_the_clock(seed, mechanism):
    rng = np.random.default_rng(seed)
    markets, levels, agents = (int(rng.choice(of)) for of in ([1, 2, 3], [8, 16, 64, 128, 256], [1, 3, 7, 12]))
    options = frozenset(name for name in (*OPTIONS, "limit", "fee", "cap") if rng.random() < 0.4)
    config = make_config(seed, levels, agents, options, markets, bool(rng.random() < 0.5))
    if rng.random() < 0.6:
        config = under_levers(config, seed)
    fields: dict[str, Any] = {"interval": int(rng.choice([1, 2, 5, 17, 70])), "beat": int(rng.choice([1, 2, 7, 40]))}
    if mechanism == "continuous":
        fields |= {"quote_latency": int(rng.choice([0, 1, 5])), "tie": "lowest", "residue": "rest"}
    config = with_agents(config.replace(arrivals="clock", mechanism=mechanism, **fields), seed, markets)
    slots = fitting_slots(config, markets, [None, "noise", None][: int(rng.integers(0, 4))])
    moves: list[tuple] = [("run", int(rng.integers(1, 7))), ("run", 3)]
    moves += [("step", 3, "near", 5), ("rollout", 2, 2, "wide", 7)] if slots else []
    moves += [("reset", "many seeds", True, 5), ("run", 3), ("reload",), ("run", 2)]
    play_together(Play(config, markets, with_slots_of_them(config, slots, seed), seed, tuple(moves)), BOTH)


def and_agents(environment, seed):
    """Return arguments of `check_agreement` whose markets have such agents, and no warm starts."""
    (config, markets, task, roles), kwargs, actions_seed, steps = environment
    config, task = with_agents(config, seed, markets), dataclasses.replace(task, bank_size=0)
    if kwargs["randomise"]:  # nothing may differ from market to market then
        alike = {
            kind: {n: x for n, x in made.parameters.items() if np.ndim(x) < 2} for kind, made in config.agents.items()
        }
        config = config.replace(agents={kind: ks.mix(config.agents[kind].count, **alike[kind]) for kind in alike})
    return (config, markets, task, roles), kwargs, actions_seed, steps


@settings(max_examples=examples(60), derandomize=True)
@given(environment=environments(), seed=st.integers(0, 2**32))
def test_environments_of_each(environment, seed):
    check_agreement(and_agents(environment, seed), 0.1, BOTH)


@settings(max_examples=examples(60), derandomize=True)
@given(environment=clock_environments(), seed=st.integers(0, 2**32))
def test_environments_on_the_clock(environment, seed):
    check_agreement(and_agents(environment, seed), 0.1, BOTH)


def lively(kind, **fields):
    """Return a small market of that kind with all classes of the tests."""
    config = ks.MarketConfig.preset("trading", num_agents=12, **fields).replace(tie="lowest", residue="rest")
    parameters = {trend_follower: {"lookback": [2, 5, 9]}, extreme: {"scale": [[1], [7], [-3]]}}
    agents = {each: ks.mix(3, **parameters.get(each, {})) for each in CLASSES}
    return config.replace(agents=agents, **KINDS[kind])


@covering
@KIND
@pytest.mark.parametrize("engines", [BOTH, BOTH[::-1], ("cpu", "cpu")], ids="-".join)
def test_cut_anywhere_and_resumed_on_another_engine(kind, engines):
    moves = (("run", 3), ("step", 2, "near", 1), ("reset", "next episode", True, 3), ("run", 2), ("run", 1))
    play = Play(lively(kind), 3, ("noise", "trend_follower"), 21, moves)
    for cut in range(len(moves)):
        never_cut, before, after = (open_simulator(engines[i], play) for i in (0, 0, 1))
        after.run(5)
        for number, move in enumerate(moves):
            if number == cut:
                after.load_state_dict(before.state_dict())
            wanted = make_move(never_cut, move)
            assert_same(make_move(before if number < cut else after, move), wanted, f"cut at {cut}, move {number}:")


@KIND
def test_a_branch_has_the_memory_and_goes_on_alike(kind):
    sim = ks.Simulator(lively(kind), 3, engine="cpu", seed=5)
    sim.run(7)
    other = sim.branch()
    assert torch.equal(other.tensors["agent_memory"], sim.tensors["agent_memory"])
    assert len(sim.tensors["agent_memory"].unique()) > 5
    sim.run(4), other.run(4)
    for name, tensor in sim.tensors.items():
        assert torch.equal(tensor, other.tensors[name]), name


def test_a_large_grid_has_one_bin_per_tick():
    """On smaller ones an order is added to one of four bins, so that it need not wait for its neighbour's."""
    config = lively("each").replace(num_levels=1024, init_price=512, agents={copied_noise: ks.mix(9)})
    one, two = (ks.Simulator(config, 3, engine=engine, seed=5) for engine in BOTH)
    for _ in range(3):
        one.run(4), two.run(4)
        for name, tensor in one.tensors.items():
            assert torch.equal(tensor, two.tensors[name]), name


@KIND
def test_one_call_or_many_is_the_same(kind):
    whole, parts = (ks.Simulator(lively(kind), 3, engine="cpu", seed=5) for _ in range(2))
    whole.run(12)
    for length in (1, 4, 2, 5):
        parts.run(length)
    for name, tensor in whole.tensors.items():
        assert torch.equal(tensor, parts.tensors[name]), name


# A built-in class, copied ---------------------------------------------------------------------------------------------


@KIND
@pytest.mark.parametrize("copies", [1, 40, 299])
@pytest.mark.parametrize("fields", [{}, {"rounding": "coin", "tax": 1, "collar": 6, "tick_size": 2, "window": 3}])
def test_a_copy_of_the_noise_class_is_the_noise_class(kind, copies, fields):
    """An added agent comes behind built-in ones, as a noise agent more would."""
    own = ks.MarketConfig(noise=1.0, momentum=0.0, maker=0.0, num_agents=copies + 1, cancel_prob=0.05, **fields)
    own = own.replace(**KINDS[kind])
    copied = own.replace(num_agents=1, agents={copied_noise: copies})
    sims = [ks.Simulator(config, 3, engine="cpu", seed=4) for config in (own, copied)]
    for sim in sims:
        sim.run(30)
    assert int(sims[0].volume.sum()) > 0
    for name, tensor in sims[0].tensors.items():
        assert torch.equal(tensor, sims[1].tensors[name]), name


# Answers worked out by hand -------------------------------------------------------------------------------------------


@ks.agent(side=1, price=0, quantity=1, takes=0)
def told(market, own, draw):
    return ks.order(own.side, own.price, own.quantity, own.takes)


@ks.agent(price=10, memory={"times": 0})
def growing(market, own, draw):
    """One unit more each time."""
    own.times += 1
    return ks.order(1, own.price, own.times)


@ks.agent()
def climbing(market, own, draw):
    """A unit above the best bid."""
    if market.best_bid_qty == 0:
        return ks.order(1, 10, 1)
    return ks.order(1, market.best_bid + 1, 1)


def only(agents, kind, engine, markets=1, slots=(), **fields):
    """Return a simulator of an empty book in which these agents alone trade: a learner without quotes is the other."""
    told: dict[str, Any] = {"num_levels": 64, "init_price": 32, "init_depth": 0, "num_agents": 1, "noise": 1.0}
    config = ks.MarketConfig(momentum=0.0, maker=0.0, agents=agents, **(told | KINDS[kind] | fields))
    return ks.Simulator(config, markets, engine=engine, seed=3, slots=("noise", *slots))


ORDERS = {  # side, price, quantity, takes: where it rests, and how much
    (1, 10, 3, 0): ("bid", 10, 3),
    (-1, 50, 4, 0): ("ask", 50, 4),
    (1, 10**9, 3, 0): ("bid", 63, 3),
    (1, -(10**9), 3, 0): ("bid", 0, 3),
    (-1, 2**31 - 1, 2, 0): ("ask", 63, 2),
    (-1, -(2**31), 2, 0): ("ask", 0, 2),
    (2**31 - 1, 20, 65536, 0): ("bid", 20, 65535),
    (-(2**31), 20, 2**31 - 1, 0): ("ask", 20, 65535),
    (1, 20, 65535, 0): ("bid", 20, 65535),
    (1, 20, -4, 0): None,
    (1, 20, 0, 0): None,
    (1, 20, -(2**31), 1): None,
    (0, 20, 5, 0): None,
    (0, 20, 5, 1): None,
    (1, 5, 2, 9): ("bid", 63, 2),
    (-1, 5, 2, -1): ("ask", 0, 2),
}


@ENGINE
@KIND
def test_what_becomes_of_an_order(kind, engine):
    columns = [[[number] for number in column] for column in zip(*ORDERS, strict=True)]
    agents = {told: ks.mix(1, **dict(zip(("side", "price", "quantity", "takes"), columns, strict=True)))}
    sim = only(agents, kind, engine, len(ORDERS), **({} if kind == "each" else {"interval": 7}))
    sim.run(1)
    for m, (order, wanted) in enumerate(ORDERS.items()):
        books = {"bid": sim.tensors["bid"][m].numpy(), "ask": sim.tensors["ask"][m].numpy()}
        if wanted is None or (kind == "continuous" and order[3]):  # what takes does not rest there
            assert not books["bid"].any() and not books["ask"].any(), order
            continue
        side, tick, quantity = wanted
        found = books.pop(side)
        assert np.flatnonzero(found).tolist() == [tick] and not books.popitem()[1].any(), order
        assert found[tick] == quantity if kind == "each" else found[tick] in range(quantity, 8 * quantity, quantity), (
            order
        )


@ks.agent(largest_order=7, wanted=0)
def modest(market, own, draw):
    return ks.order(1, 20, own.wanted)


@ks.agent(largest_order=7, wanted=0, cxx="return order_of(1, 20, own.wanted, 0);")
def modest_in_cxx(market, own, draw):
    return ks.order(1, 20, own.wanted)


@ENGINE
@KIND
@pytest.mark.parametrize("of", [modest, modest_in_cxx], ids=["translated", "cxx"])
def test_orders_are_cut_to_what_the_class_says(kind, engine, of):
    wanted = [-1, 0, 6, 7, 8, 65535, 2**31 - 1, -(2**31)]
    agents = {of: ks.mix(1, wanted=[[number] for number in wanted])}
    sim = only(agents, kind, engine, len(wanted), **({} if kind == "each" else {"interval": 2}))
    sim.run(1)
    events = [1] * len(wanted)
    if kind != "each":
        events = [sum(agent == 1 for agent in _first_two(3 + m)) for m in range(len(wanted))]
    rests = [min(max(number, 0), 7) * times for number, times in zip(wanted, events, strict=True)]
    assert sim.tensors["bid"][:, 20].tolist() == rests and int(sim.tensors["bid"].sum()) == sum(rests)


def _first_two(seed):
    """Return which of two agents come at the first two events."""
    return list(who_comes(seed, 2, 2))


@pytest.mark.parametrize("wrong", [0, -1, 65536, 2.5, "4", None, True])
def test_other_sizes_are_refused(wrong):
    with pytest.raises((TypeError, ValueError), match="largest_order: expected .*, got"):
        ks.agent(largest_order=wrong)(modest.program.play)


@ENGINE
def test_prices_are_absolute_and_the_grid_may_have_moved(engine):
    """The window moves the grid by 20 ticks first, up or down."""
    agents = {told: ks.mix(1, side=1, price=[[30], [-100]], quantity=2)}
    sim = only(agents, "each", engine, 2, window=8, init_price=12, init_depth=5)
    sim.run(1)
    origin = int(sim.price_origin[0])
    assert origin == 12 - 32
    assert sim.tensors["bid"][0].nonzero().flatten().tolist() == [11 - origin, 30 - origin][:1]  # 30 met the ask at 13
    assert int(sim.volume[0]) == 2 and int(sim.tensors["bid"][1, 0]) == 2


@ENGINE
@KIND
def test_silent_agents(kind, engine):
    """A slot takes the place of the class's last agent; indices, and who comes, stay."""
    agents = {told: ks.mix(3, price=[5, 6, 7]), growing: ks.mix(1)}
    sim = only(agents, kind, engine, slots=("told",), **({} if kind == "each" else {"interval": 60}))
    sim.run(1)
    assert sim.tensors["bid"][0].nonzero().flatten().tolist() == [5, 6, 10]
    all_silent = only({told: 1, growing: 1}, kind, engine, slots=("growing", "told"))
    all_silent.run(5)
    assert not all_silent.tensors["bid"].any() and not all_silent.tensors["agent_memory"].any()


@ENGINE
@KIND
def test_memory_counts_every_event(kind, engine):
    """Agents of a class come several times between two beats, in any order; each remembers its own."""
    agents = {growing: ks.mix(3, price=[10, 11, 12])}
    sim = only(agents, kind, engine, **({} if kind == "each" else {"interval": 50, "beat": 25}))
    sim.run(2)
    times = sim.tensors["agent_memory"][0].tolist()
    assert times == [2, 2, 2] if kind == "each" else 40 < sum(times) < 100 and min(times) > 5
    assert sim.tensors["bid"][0, 10:13].tolist() == [n * (n + 1) // 2 for n in times]
    if kind != "each":  # all that does not come to the inactive agent
        words = [int(word) for word in who_comes(3, 100, 4)]
        assert times == [words.count(agent) for agent in (1, 2, 3)]


@ENGINE
def test_a_continuous_market_is_live_and_a_call_is_not(engine):
    """Whoever comes sees the order before it, where orders are matched as they come."""
    fields = {"interval": 20, "beat": 20}
    live, waits = (only({climbing: 3}, kind, engine, **fields) for kind in ("continuous", "call on the clock"))
    come = sum(agent > 0 for agent in who_comes(3, 20, 4))
    live.run(1), waits.run(1)
    assert live.tensors["bid"][0].nonzero().flatten().tolist() == list(range(10, 10 + come))
    assert waits.tensors["bid"][0].nonzero().flatten().tolist() == [10] and int(waits.tensors["bid"][0, 10]) == come
    assert int(live.tensors["bid"].max()) == 1


@ks.agent(informed=True, memory={
    "number": -7, "mid": "mid2", "ret": "ret", "last": "last_price", "bid": "best_bid", "ask": "best_ask",
    "bids": "best_bid_qty", "asks": "best_ask_qty", "value": "fundamental", "regime": "regime",
})  # fmt: skip
def beginner(market, own, draw):
    own.number += 1
    own.mid = 0
    own.bid = 0


@ENGINE
@KIND
@pytest.mark.parametrize("depth", [0, 6])
def test_memory_begins_with_what_is_seen(kind, engine, depth):
    fields = {"init_price": 40, "init_depth": depth, "fundamental_price": 44}
    sim = only({told: 1, beginner: 2}, kind, engine, 2, **fields)
    start = [-7, 80, 0, 40, *((39, 41, 6, 6) if depth else (-(2**31) + 1, 2**31 - 1, 0, 0)), 44, 0]
    wanted = [number for number in start for _ in range(2)]
    assert sim.tensors["agent_memory"].tolist() == [wanted] * 2
    sim.run(20)
    assert sim.tensors["agent_memory"][:, :4].max() > -7 and sim.tensors["agent_memory"].tolist() != [wanted] * 2
    sim.reset(mask=[True, False])
    assert sim.tensors["agent_memory"].tolist()[0] == wanted != sim.tensors["agent_memory"].tolist()[1]


# Compilation ----------------------------------------------------------------------------------------------------------


@slow
def test_hundreds_of_classes_in_one_library(monkeypatch, capfd):
    from kineticsim_env.runtime import agent_library

    kinds = []
    for number in range(200):

        def buyer(market, own, draw):
            return ks.order(1, own.price, own.units)

        kinds.append(ks.agent(price=3 + number % 40, units=number + 1, memory={f"word{number}": number})(buyer))
    agent_library.compile_classes(kinds)
    before = len(agent_library._libraries)
    monkeypatch.setattr(agent_library, "_load", None)  # all are found
    for number in (0, 77, 199):
        sim = only({kinds[number]: 1}, "each", "cpu")
        sim.run(1)
        assert int(sim.tensors["bid"][0, 3 + number % 40]) == number + 1
        assert sim.tensors["agent_memory"].tolist() == [[number]]
    assert len(agent_library._libraries) == before


def test_cxx_is_played_and_its_errors_are_told():
    own_text = "  own.seen = market.mid2 + 1;\n  return order_of(1, own.price, 2, 0);"

    @ks.agent(price=7, memory={"seen": 0}, cxx=own_text)
    def by_hand(market, own, draw):
        own.seen = market.mid2 + 1
        return ks.order(1, own.price, 2)

    for engine in BOTH:
        sim = only({by_hand: 1}, "each", engine)
        sim.run(1)
        assert int(sim.tensors["bid"][0, 7]) == 2 and int(sim.tensors["agent_memory"][0, 0]) == 65

    wrong = ks.agent(price=7, cxx="  int x = 1;\n  return ordr(1, own.price);")(_named("misspelt"))
    with pytest.raises(
        ValueError, match=r"^cxx: class 'misspelt' does not compile as C\+\+, line 2: .*ordr"
    ) as told_so:
        only({told: 1, wrong: 1, growing: 1}, "each", "cpu")
    assert "\n" not in str(told_so.value)
    open_brace = ks.agent(cxx="if (true) {\n  return no_order();")(_named("open_brace"))
    with pytest.raises(ValueError, match=r"^cxx: class 'open_brace' does not compile as C\+\+: a brace is not closed"):
        only({open_brace: 1}, "each", "cpu")


def _named(name):
    def function(market, own, draw):
        return None

    function.__name__ = name
    return function


def test_a_side_that_overflows_stops_the_market_and_memory_is_as_before():
    agents = {told: ks.mix(10, price=5, quantity=65535), growing: 1}
    config = only(agents, "each", "cpu").config
    sims = [ks.Simulator(config, 2, engine=engine, seed=3, slots=("noise",)) for engine in BOTH]
    for sim in sims:
        sim.run(2)
        sim.tensors["bid"][:, 5] = 2**31 - 700_000
        sim.load_state_dict(sim.state_dict())  # so that the engine looks at what was written
        sim.run(1)
        before = {name: tensor.clone() for name, tensor in sim.tensors.items()}
        with pytest.raises(ks.MarketError, match=r"2\^31"):
            sim.run(1)
        for name, tensor in sim.tensors.items():
            assert torch.equal(tensor, before[name]) or name == "error", name
