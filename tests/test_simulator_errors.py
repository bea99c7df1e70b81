"""Wrong calls of `Simulator`: the error names what came and what is allowed, and the state is as it was before."""

import bisect

import gymnasium as gym
import numpy as np
import pytest
import torch
from strategies import assert_same, every_engine

import kineticsim_env as ks
from kineticsim_env.engines.runs import EVENTS
from kineticsim_env.errors import EngineUnavailable, MarketError

CONFIG = ks.MarketConfig(num_levels=16, init_price=8, num_agents=12)  # 8 noise, 2 momentum and 2 makers
GOOD = np.zeros((3, 2, 4), np.int32)

OPENINGS = [
    (dict(config={"num_agents": 3}), TypeError, r"config: expected a MarketConfig, got {'num_agents': 3}"),
    (dict(config="paper"), TypeError, r"config: .*got 'paper'"),
    (dict(num_markets=0), ValueError, r"num_markets: expected 1 to.*got 0"),
    (dict(num_markets=-3), ValueError, r"num_markets: expected .*, got -3"),
    (dict(num_markets=2**31), ValueError, r"num_markets: .*got 2147483648"),
    (dict(num_markets=2.0), TypeError, r"num_markets: expected a whole number from 1, got 2\.0"),
    (dict(num_markets=True), TypeError, r"num_markets: expected .*, got True"),
    (dict(num_markets="3"), TypeError, r"num_markets: expected .*, got '3'"),
    (dict(engine="gpu"), ValueError, r"engine: expected one of 'auto', 'cuda', 'cpu', 'numpy', got 'gpu'"),
    (dict(engine=None), ValueError, r"engine: expected .*, got None"),
    (dict(device="cuda"), ValueError, r"device: expected .*, got 'cuda' with engine='numpy'"),
    (dict(device="abc"), ValueError, r"device: expected None, 'cpu', 'cuda' or 'cuda:N', got 'abc'"),
    (dict(device="meta"), ValueError, r"device: expected .*, got 'meta'"),
    (dict(slots=33), ValueError, r"slots: expected up to 32.*got 33"),
    (dict(slots=(None,) * 33), ValueError, r"slots: expected up to 32.*got 33"),
    (dict(slots=-1), ValueError, r"slots: .*got -1"),
    (dict(slots=1.0), TypeError, r"slots: expected a count.*got 1\.0"),
    (dict(slots=True), TypeError, r"slots: expected .*, got True"),
    (dict(slots=None), TypeError, r"slots: expected .*, got None"),
    (dict(slots="maker"), TypeError, r"slots: expected .* such as \('maker',\), got the string 'maker'"),
    (dict(slots=("maker", "taker")), ValueError, r"slots: expected one of None, 'noise', 'momentum'.*got 'taker'"),
    (dict(slots=(["noise"],)), ValueError, r"slots: expected .*, got \['noise'\]"),
    (dict(slots=("maker",) * 3), ValueError, r"slots: expected up to 2.*got 3 that replace a maker agent"),
    (dict(slots=("fundamental",)), ValueError, r"slots: expected up to 0.*got 1 that replace a fundamental agent"),
    (dict(seed=None), TypeError, r"seed: .*got None"),
]
SEEDS = [
    (1.5, TypeError, r"seed: expected an int, or 3 of them, got 1\.5"),
    (True, TypeError, r"seed: expected .*, got True"),
    ("7", TypeError, r"seed: .*got '7'"),
    ([1, 2], ValueError, r"seed: expected an int, or 3 of them, got \[1, 2\]"),
    ([[1, 2, 3]], ValueError, r"seed: expected .*, got \[\[1, 2, 3\]\]"),
    ([1, 2, 3.5], TypeError, r"seed: expected .*, got \[1, 2, 3\.5\]"),
    (torch.ones(3), TypeError, r"seed: expected .*, got torch.float32 \[3\]"),
    (2**63 - 2, ValueError, r"seed: expected -2\^63 to 2\^63 - num_markets, got 9223372036854775806"),
    (-(2**63) - 1, ValueError, r"seed: expected .*, got -9223372036854775809"),
    (np.array([1, 2, 2**63], np.uint64), ValueError, r"seed: expected .*, got array.*uint64"),
]
CALLS = [
    (lambda sim: sim.run(-1), ValueError, r"auctions: expected 0 to.*got -1"),
    (lambda sim: sim.run(1.0), TypeError, r"auctions: expected a whole number.*got 1\.0"),
    (lambda sim: sim.run(True), TypeError, r"auctions: expected .*, got True"),
    (lambda sim: sim.run(2**31), ValueError, r"auctions: expected .*, got 2147483648"),
    (lambda sim: sim.run(3, record="volume"), TypeError, r"record: expected a sequence of last_price.*got 'volume'"),
    (lambda sim: sim.run(3, record=("price",)), ValueError, r"record: expected one of last_price, volume.*got 'price'"),
    (lambda sim: sim.run(3, record=7), TypeError, r"record: .*got 7"),
    (lambda sim: sim.step(GOOD, auctions="2"), TypeError, r"auctions: expected .*, got '2'"),
    (lambda sim: sim.step(GOOD, auctions=-1), ValueError, r"auctions: expected .*, got -1"),
    (lambda sim: sim.step(GOOD[0]), ValueError, r"quotes: expected int32 \[3, 2, 4\].*got int32 \[2, 4\]"),
    (lambda sim: sim.step(GOOD[:2]), ValueError, r"quotes: expected .*, got int32 \[2, 2, 4\]"),
    (lambda sim: sim.step(GOOD[..., :3]), ValueError, r"quotes: expected .*, got int32 \[3, 2, 3\]"),
    (lambda sim: sim.step(GOOD.astype(float)), TypeError, r"quotes: expected int32.*got float64 \[3, 2, 4\]"),
    (lambda sim: sim.step(GOOD * np.nan), TypeError, r"quotes: expected .*, got float64"),
    (lambda sim: sim.step(GOOD > 0), TypeError, r"quotes: expected .*, got bool"),
    (lambda sim: sim.step(GOOD + np.int64(2**31)), ValueError, r"quotes: expected .* fit int32, got 2147483648"),
    (lambda sim: sim.step(GOOD - np.int64(2**31 + 1)), ValueError, r"quotes: expected .*, got -2147483649"),
    (
        lambda sim: sim.step([[[1, 2], [3]]]),
        ValueError,
        r"quotes: expected .*, got nested sequences of unequal lengths",
    ),
    (lambda sim: sim.step("buy"), TypeError, r"quotes: expected .*, got <U3"),
    (
        lambda sim: sim.step(torch.zeros(3, 2, 4, device=sim.device)),
        TypeError,
        r"quotes: expected .*, got torch.float32",
    ),
    (lambda sim: sim.step(torch.zeros(3, 2, 4, dtype=torch.int64)), TypeError, r"quotes: expected .*, got torch.int64"),
    (lambda sim: sim.step(torch.zeros(3, 2, 4, dtype=torch.int32, device="meta")), TypeError, r"int32 .* on meta"),
    (lambda sim: sim.rollout(GOOD), ValueError, r"quotes: expected int32 \[T, 3, 2, 4\].*got int32 \[3, 2, 4\]"),
    (lambda sim: sim.rollout(None), TypeError, r"quotes: expected .*, got NoneType"),
    (lambda sim: sim.rollout(GOOD[None], auctions=0), ValueError, r"auctions: expected 1 to.*got 0"),
    (lambda sim: sim.rollout(GOOD[None], record=("x",)), ValueError, r"record: expected .*, got 'x'"),
    (
        lambda sim: sim.reset(mask=[1, 0, 1]),
        ValueError,
        r"mask: expected bool \[3\] on \w+(:0)?, or None, got int64 \[3\]",
    ),
    (lambda sim: sim.reset(mask=[True]), ValueError, r"mask: expected .*, got bool \[1\]"),
    (lambda sim: sim.reset(seed=1, mask="all"), ValueError, r"mask: expected .*, got <U3 \[\]"),
    (lambda sim: sim.reset(mask=torch.ones(3)), ValueError, r"mask: expected .*, got torch.float32 \[3\]"),
]
STATES = [
    ("bid", lambda x: x[:2], r"state\['bid'\]: expected int32 \[3, 16\].*got torch.int32 \[2, 16\] "),
    ("bid", lambda x: x.long(), r"state\['bid'\]: expected .*, got torch.int64"),
    ("bid", lambda x: x.numpy(force=True), r"state\['bid'\]: expected .*, got ndarray"),
    ("bid", lambda x: x - 1, r"state\['bid'\]: expected 0 or more, got -1"),
    ("ask", lambda x: x + 2**28, r"state\['ask'\]: expected a side's total below 2\^31, got"),
    ("ask", lambda x: x + 1, r"state\['ask'\]: expected above every bid \(the book is crossed\), got 1"),
    ("bid", lambda x: x.roll(2, 1), r"state\['ask'\]: .*crossed"),  # locked at one tick
    ("price_origin", lambda x: x + 2**29 + 1, r"state\['price_origin'\]: expected -2\^29 to 2\^29, got 536870913"),
    ("price_origin", lambda x: torch.full_like(x, -(2**31)), r"state\['price_origin'\]: expected .*, got -2147483648"),
    ("fundamental_price", lambda x: x - 2**31, r"state\['fundamental_price'\]: expected -2\^30.*got -21474836\d\d"),
    ("last_tick", lambda x: torch.full_like(x, -(2**31)), r"state\['last_tick'\]: expected .*, got -2147483648"),
    ("last_tick", lambda x: x + 2**30, r"state\['last_tick'\]: expected .*, got 10737418\d\d"),
    ("t", lambda x: x - 100, r"state\['t'\]: expected 0 to 2\^32 - 1, got -\d+"),
    ("t", lambda x: x + 2**32, r"state\['t'\]: expected 0 to 2\^32 - 1, got 4294967300"),
    ("episode", lambda x: x - 1, r"state\['episode'\]: expected .*, got -1"),
    ("volume", lambda x: x - 2**40, r"state\['volume'\]: expected .*, got -\d+"),
    ("trades", lambda x: x - 2**40, r"state\['trades'\]: expected .*, got -\d+"),
    ("error", lambda x: x + 1, r"state\['error'\]: expected 0.*got 1"),
    ("quotes", lambda x: x * 0 - 1, r"state\['quotes'\]: expected quantities from 0 to 2\^20, got -1"),
    ("quotes", lambda x: x * 0 + 2**20 + 1, r"state\['quotes'\]: expected .*, got 1048577"),
    ("quotes", lambda x: torch.full_like(x, -(2**31)), r"state\['quotes'\]: expected .*, got -2147483648"),
]  # fmt: skip


def open_three(engine, **changes):
    sim = ks.Simulator(CONFIG.replace(**changes), 3, engine=engine, slots=("noise", None))
    sim.run(4)
    return sim


def refused(sim, call, error, match):
    """Check that a call raises, and that neither the state nor what follows has changed."""
    before, clone = {name: tensor.clone() for name, tensor in sim.tensors.items()}, sim.branch()
    with pytest.raises(error, match=match):
        call(sim)
    assert_same({k: v.cpu() for k, v in sim.tensors.items()}, {k: v.cpu() for k, v in before.items()})
    sim.run(2)
    clone.run(2)
    assert_same({k: v.cpu() for k, v in sim.tensors.items()}, {k: v.cpu() for k, v in clone.tensors.items()})


@pytest.mark.parametrize(("arguments", "error", "match"), OPENINGS, ids=str)
def test_wrong_openings(arguments, error, match):
    with pytest.raises(error, match=match):
        ks.Simulator(**{"config": CONFIG, "num_markets": 3, "engine": "numpy", **arguments})


@every_engine
@pytest.mark.parametrize(("seed", "error", "match"), SEEDS, ids=lambda x: str(x)[:30])
def test_wrong_seeds(engine, seed, error, match):
    with pytest.raises(error, match=match):
        ks.Simulator(CONFIG, 3, engine=engine, seed=seed)
    refused(open_three(engine), lambda sim: sim.reset(seed=seed, mask=[True, False, True]), error, match)


@every_engine
@pytest.mark.parametrize(("call", "error", "match"), CALLS, ids=[match[:30] for *_, match in CALLS])
def test_wrong_calls(engine, call, error, match):
    refused(open_three(engine), call, error, match)


@every_engine
@pytest.mark.parametrize(("name", "change", "match"), STATES, ids=[f"{n} {m[-25:]}" for n, _, m in STATES])
def test_wrong_states(engine, name, change, match):
    sim = open_three(engine)
    saved = sim.state_dict()
    refused(sim, lambda sim: sim.load_state_dict({**saved, name: change(saved[name])}), (TypeError, ValueError), match)


@every_engine
def test_wrong_names_of_a_state(engine):
    sim = open_three(engine)
    saved = sim.state_dict()
    less = {name: value for name, value in saved.items() if name != "trades"}
    refused(sim, lambda sim: sim.load_state_dict(less), ValueError, r"missing or unknown names \['trades'\]")
    more = {**saved, "spread": saved["t"]}
    refused(sim, lambda sim: sim.load_state_dict(more), ValueError, r"missing or unknown names \['spread'\]")
    refused(sim, lambda sim: sim.load_state_dict(None), TypeError, r"state: expected a mapping.*got NoneType")


@every_engine
def test_quotes_without_slots(engine):
    sim = ks.Simulator(CONFIG, 3, engine=engine)
    refused(
        sim, lambda sim: sim.step(GOOD), ValueError, r"quotes: expected .*, got quotes, but this simulator has no slots"
    )


def test_wrong_lengths_of_per_market_fields():
    config = CONFIG.replace(noise_spread=[1, 2, 3, 4])
    with pytest.raises(ValueError, match=r"noise_spread: expected num_markets = 3 per-market values, got 4"):
        ks.Simulator(config, 3, engine="numpy")
    few = ks.MarketConfig(num_agents=[256, 10])
    with pytest.raises(ValueError, match=r"slots: expected up to 1.*got 3 that replace a maker agent"):
        ks.Simulator(few, 2, engine="numpy", slots=("maker",) * 3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu():
    with pytest.raises(EngineUnavailable, match=r"engine 'cuda' cannot run: .+"):
        ks.Simulator(CONFIG, 3, engine="cuda")


@pytest.mark.gpu
def test_wrong_devices():
    sim = open_three("cuda")
    refused(
        sim,
        lambda sim: sim.step(torch.from_numpy(GOOD)),
        ValueError,
        r"quotes: expected .* on cuda:0.*got torch.int32 .* on cpu",
    )
    with pytest.raises(ValueError, match=r"device: expected an index below.*got 'cuda:99'"):
        ks.Simulator(CONFIG, 3, engine="cuda", device="cuda:99")
    with pytest.raises(ValueError, match=r"device: .*got 'cpu' with engine='cuda'"):
        ks.Simulator(CONFIG, 3, engine="cuda", device="cpu")


# Markets that have to stop --------------------------------------------------------------------------------------------

HEAVY = dict(noise=0, maker=1, momentum=0, max_order_qty=65535, maker_half_spread=3)  # nothing trades, books grow
on_the_host = pytest.mark.parametrize("engine", ["numpy", "cpu"])


def open_heavy(engine, markets, full):
    """Open markets of which one, `full`, has room for some auctions only."""
    sim = ks.Simulator(CONFIG.replace(**HEAVY), markets, engine=engine, seed=5)
    saved = sim.state_dict()
    saved["bid"][full, 0] = 2**31 - 2_000_000
    sim.load_state_dict(saved)
    return sim


def auctions_left(markets, full):
    sim = open_heavy("numpy", markets, full)
    for n in range(100):
        try:
            sim.run(1)
        except MarketError:
            return n
    raise AssertionError("the market never overflows")


@on_the_host
@pytest.mark.parametrize(("markets", "full"), [(3, 1), (1, 0), (1500, 1400)])
def test_overflow_leaves_every_market_as_it_was(engine, markets, full):
    left = auctions_left(markets, full)
    assert left >= 3
    sim = open_heavy(engine, markets, full)
    match = rf"market {full}\b.*\bt ?= ?{left}\b.*2\^31"
    refused_runs = (lambda sim: sim.run(left + 1), lambda sim: sim.run(left + 50, record=("volume",)))
    for call in refused_runs:
        before = sim.state_dict()
        with pytest.raises(MarketError, match=match):
            call(sim)
        assert_same(sim.state_dict(), before)
    sim.run(left)
    with pytest.raises(MarketError, match=match):
        sim.run(1)
    assert sim.t.tolist() == [left] * markets
    sim.reset()
    sim.run(left + 1)  # an opening book has room again


@on_the_host
def test_a_long_run_that_fails_late_is_undone(engine, monkeypatch):
    left = auctions_left(3, 1)
    sim = open_heavy(engine, 3, 1)
    before = sim.state_dict()
    monkeypatch.setitem(EVENTS, engine, 1)  # pieces of one auction
    with pytest.raises(MarketError, match=r"market 1\b"):
        sim.run(left + 1, progress=False)
    assert_same(sim.state_dict(), before)


@on_the_host
@pytest.mark.parametrize("side", ["bid", "ask"])
def test_a_sides_total_stays_below_2_to_31(engine, side):
    """To the unit: 2^31 - 1 clears, 2^31 does not."""
    lone = CONFIG.replace(num_agents=1, noise=1, momentum=0, maker=0, init_depth=0)
    sim = ks.Simulator(lone, 1, engine=engine, slots=("noise",))
    saved = sim.state_dict()
    saved[side][0, 4] = 2**31 - 10
    sim.load_state_dict(saved)
    quote = np.array([[[3, 10, 0, 0] if side == "bid" else [0, 0, 5, 10]]], np.int32)
    refused(sim, lambda sim: sim.step(quote), MarketError, r"market 0\b")
    sim.step(quote * [1, 9, 1, 9] // [1, 10, 1, 10])
    assert sim.quotes.sum() == (12 if side == "bid" else 14)


def test_an_episode_from_a_full_warm_start_is_undone():
    """The first step after a reset looks at the books that the reset has brought."""
    settings = {"preset": "paper", "engine": "cpu", "output": "torch", "bank_size": 3, "warmup": 2}
    envs = gym.make_vec("KineticSim/MarketMaking-v0", 2, **settings).unwrapped
    envs.reset(seed=1)
    engine = envs.simulator.engine
    bank = engine._tensors["bank_bid"]
    bank[:, 0] += (2**31 - 1 - bank.sum(1)).int()
    engine.state_changed()
    envs.reset(seed=1)
    before = {name: tensor.clone() for name, tensor in engine._tensors.items()}
    with pytest.raises(MarketError, match=r"t = 0 .*2\^31.*reset earlier$"):
        envs.step(torch.zeros(2, 4))
    for name, tensor in engine._tensors.items():
        assert torch.equal(tensor, before[name]), name


def least_room(engine, config, side):
    """Return how many units a side must have left below 2^31 for an auction of its agents to be held."""

    def is_held(room):
        sim = ks.Simulator(config, 1, engine=engine, seed=2)
        saved = sim.state_dict()
        saved["bid"][0, 0], saved["ask"][0, -1] = 1, 1  # the mid is between them
        saved[side][0, 0 if side == "bid" else -1] = 2**31 - 1 - room
        sim.load_state_dict(saved)
        try:
            sim.run(1, progress=False)
        except MarketError:
            return False
        return True

    return bisect.bisect_left(range(1 << 16), True, key=is_held)


@pytest.mark.parametrize("side", ["bid", "ask"])
@pytest.mark.parametrize("kind", [{"noise": 1, "noise_spread": 3}, {"noise": 1, "noise_spread": 40}, {"maker": 1}])
def test_engines_count_what_every_class_adds_to_a_side(kind, side):
    """To the unit; noise orders are counted apart where their spread is wider than the grid."""
    config = CONFIG.replace(
        **{"noise": 0, "momentum": 0, "maker": 0, "num_agents": 9, "init_depth": 0, "max_order_qty": 1000, **kind}
    )
    assert least_room("cpu", config, side) == least_room("numpy", config, side) > 500


@on_the_host
def test_overflow_by_quotes(engine):
    """Learned quotes count: 32 slots of the largest size, on a book that has little room left."""
    sim = ks.Simulator(CONFIG, 2, engine=engine, slots=32)
    saved = sim.state_dict()
    saved["bid"][1, 0] = 2**31 - 2**24
    sim.load_state_dict(saved)
    quotes = np.broadcast_to(np.array([0, 2**20, 0, 0], np.int32), (2, 32, 4))
    before = sim.state_dict()
    with pytest.raises(MarketError, match=r"market 1\b"):
        sim.step(quotes)
    assert_same(sim.state_dict(), before)
    sim.run(1)
    assert not sim.quotes.any(), "the quotes of the call that failed are forgotten"
    sim.step(quotes // 4)
    assert sim.t.tolist() == [2, 2]


@on_the_host
def test_a_window_that_leaves_its_range(engine):
    sim = ks.Simulator(CONFIG.replace(window=2), 3, engine=engine)
    saved = sim.state_dict()
    saved["price_origin"][2] = 2**29
    saved["bid"][2], saved["ask"][2] = torch.eye(16)[13] * 8, torch.eye(16)[15] * 8
    sim.load_state_dict(saved)
    before = sim.state_dict()
    with pytest.raises(MarketError, match=r"market 2\b.*2\^29"):
        sim.run(1)
    assert_same(sim.state_dict(), before)


@pytest.mark.gpu
@pytest.mark.parametrize(("markets", "full"), [(3, 1), (1500, 1400)])
@pytest.mark.parametrize("look", ["check_errors", "state_dict", "reset", "branch", "close"])
def test_a_market_stops_alone_on_cuda(markets, full, look):
    left = auctions_left(markets, full)
    sim, host = open_heavy("cuda", markets, full), open_heavy("cpu", markets, full)
    sim.run(left + 4)
    host.run(left)
    stopped = {name: tensor[full].clone() for name, tensor in sim.tensors.items() if name != "error"}
    assert_same({k: v.cpu() for k, v in stopped.items()}, {name: host.tensors[name][full] for name in stopped})
    with pytest.raises(MarketError, match=rf"market {full}: at t = {left} .*2\^31"):
        getattr(sim, look)()
    sim.check_errors()  # raises once
    sim.run(3)
    others = [m for m in range(markets) if m != full]
    healthy = ks.Simulator(sim.config, markets, engine="cpu", seed=5)
    healthy.run(left + 7)
    assert torch.equal(sim.bid.cpu()[others], healthy.bid[others]) and int(sim.t[full]) == left
    mask = torch.arange(markets) == full
    sim.reset(seed=5, mask=mask)
    sim.run(left + 7)
    assert torch.equal(sim.bid[full].cpu(), healthy.bid[full]) and not sim.tensors["error"].any()


@pytest.mark.parametrize("engine", ["numpy", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_error_words(engine):
    """A stopped market is raised for once and stays stopped until its reset; a bad action is forgotten then."""
    sim = open_three(engine)
    sim.tensors["error"][1] = 1
    with pytest.raises(MarketError, match=r"market 1: at t = 4 "):
        sim.check_errors()
    sim.check_errors()
    sim.run(2)
    assert sim.t.tolist() == [6, 4, 6]
    sim.tensors["error"][2] = 2
    with pytest.raises(MarketError, match=r"market 2: .*got a NaN action"):
        sim.check_errors()
    sim.tensors["error"][0] = 4
    with pytest.raises(MarketError, match=r"market 0: .*got an action outside its space"):
        sim.reset()
    assert sim.t.tolist() == [6, 4, 6], "a reset that raises resets nothing"
    sim.reset()
    assert not sim.tensors["error"].any() and sim.t.tolist() == [0, 0, 0]
    sim.run(2)
    assert sim.t.tolist() == [2, 2, 2]


def test_validate_looks_before_every_call():
    sim = ks.Simulator(CONFIG, 3, engine="numpy", slots=1, validate=True)
    for call in (lambda: sim.run(1), sim.step, lambda: sim.rollout(GOOD[None, :, :1])):
        sim.tensors["error"][2] = 8
        with pytest.raises(MarketError, match=r"market 2: .*2\^29"):
            call()
        sim.reset()
        call()
