"""The clock, continuous trading, levers and regimes: the NumPy engine beside the plain reference, bit for bit."""

import random

import numpy as np
import pytest
import torch
from ensembles import KINDS, Ensemble, assert_market_is, random_ensemble, total_fills
from env_helpers import draw_actions
from reference import Reference
from reference.orders import BUY, SELL
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.engines import runs
from kineticsim_env.engines.numpy.actions import decode_actions
from kineticsim_env.engines.numpy.state import Markets
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.tasks import ManyLearnersTask

CASES = examples(150)
KIND = pytest.mark.parametrize(("arrivals", "mechanism"), KINDS)


@KIND
@pytest.mark.parametrize("seed", range(CASES))
def test_random_markets(seed, arrivals, mechanism):
    """Alike markets and different ones; every call of a simulator, in any order."""
    rng = random.Random(f"{seed} {arrivals} {mechanism}")
    markets = rng.choice([1, 2, 4])
    fields, slots = random_ensemble(rng, arrivals, mechanism, markets, markets > 1 and rng.random() < 0.6)
    both = Ensemble(fields, slots, markets, rng.randrange(1 << 40))
    both.assert_same()
    for _ in range(8):
        both.move(rng)


@KIND
@pytest.mark.parametrize("seed", range(examples(30)))
def test_calls_that_are_cut_into_pieces(seed, arrivals, mechanism, monkeypatch):
    """A launch is cut wherever no quotes are under way; nobody sees it."""
    monkeypatch.setitem(runs.EVENTS, "numpy", 1)
    rng = random.Random(f"pieces {seed} {arrivals} {mechanism}")
    fields, _ = random_ensemble(rng, arrivals, mechanism, 2, per_market=True)
    if mechanism == "continuous":
        fields["quote_latency"] = [rng.choice([0, 3, 20]), rng.choice([0, 1, 13])]
    both = Ensemble(fields, (None, None), 2, seed)
    for _ in range(3):
        both.move(rng)


@KIND
@pytest.mark.parametrize("seed", range(examples(60)))
def test_both_stop_in_the_same_interval(seed, arrivals, mechanism):
    """A side that lacks little to 2^31: the engine refuses the call in which the reference stops, and only that."""
    rng = random.Random(f"stop {seed} {arrivals} {mechanism}")
    fields, _ = random_ensemble(rng, arrivals, mechanism, 1, per_market=False)
    fields |= {"init_depth": 8, "max_order_qty": 30, "max_quote_qty": 60, "inventory_limit": None}
    if rng.random() < 0.7:
        fields["cancel_prob"] = 0.0
    both = Ensemble(fields, (None, None), 1, seed)
    missing, side = rng.randint(1, 300), rng.choice([BUY, SELL])
    fill_up(both, side, 2**31 - missing)
    for _ in range(12):
        quotes = both.quotes(rng)
        seen = both.alone[0].decision(quotes[0], 1)[0]
        if seen["error"]:
            with pytest.raises(ks.MarketError, match="2\\^31"):
                both.sim.step(both.tensor(quotes))
            assert [both.sim.t[0], *both.sim.bid[0].tolist()] == [seen["t"], *seen["bid"]]
            assert both.sim.quotes[0].tolist() == seen["quotes"] and both.sim.cash[0].tolist() == seen["cash"]
            return
        both.sim.step(both.tensor(quotes))
        both.assert_same()


@KIND
@pytest.mark.parametrize("seed", range(examples(40)))
def test_environment_steps(seed, arrivals, mechanism):
    """The quotes that actions ask for go to the references; an episode's end resets all that a market has."""
    rng, fields = random.Random(f"environment {seed} {arrivals} {mechanism}"), {"num_levels": 0}
    while fields["num_levels"] < 32:
        fields, _ = random_ensemble(rng, arrivals, mechanism, 2, per_market=False, ladders=False)
    roles, task = ["maker", "trader"], ManyLearnersTask(horizon=4, bank_size=0)
    settings = EnvSettings(config=ks.MarketConfig(**fields), engine="numpy", auctions_per_step=2)
    core = EnvCore(2, task, roles, (None, None), settings)
    core.reset(seed)
    alone = [Reference(core.config.to_dict(), 2, seed, m) for m in range(2)]
    generator = np.random.default_rng(seed)
    for _ in range(10):
        actions = draw_actions(core, generator, 0.0)
        args = core.simulator.engine._args | {"actions": actions["actions"].numpy()}
        quotes, _ = decode_actions(args, Markets(args, np.arange(2)))
        core.step(**actions)
        for m, market in enumerate(alone):
            assert core.fills[m].tolist() == total_fills(market.decision(quotes[m, :, 0].tolist(), 2))
            if core.tensors["over"][m].all():
                market.reset()
            assert_market_is(core.simulator, m, market)
    assert (core.simulator.tensors["episode"] >= 2).all()


def test_warm_starts_carry_their_regime():
    regimes = [{"noise_spread": spread} for spread in range(1, 9)]
    config = ks.MarketConfig(num_agents=20, arrivals="clock", regimes=regimes, regime_switch_prob=0.5)
    task = ManyLearnersTask(horizon=4, bank_size=16, warmup=9)
    core = EnvCore(64, task, ["maker"], (None,), EnvSettings(config=config, engine="numpy"))
    core.reset(3)
    bank, markets = core.live_task.warm_starts._bank, core.simulator.tensors
    assert len(set(bank["bank_regime"].tolist())) > 3
    for m in range(64):
        starts = [row for row in range(16) if torch.equal(bank["bank_bid"][row], markets["bid"][m])]
        assert markets["regime"][m] in bank["bank_regime"][starts]


def test_an_environment_refuses_episodes_of_too_many_events():
    config = ks.MarketConfig(arrivals="clock", interval=60000)
    with pytest.raises(ValueError, match="less than 2\\^32 events"):
        EnvCore(1, ManyLearnersTask(horizon=80000), ["maker"], (None,), EnvSettings(config=config, engine="numpy"))


def fill_up(both, side, depth):
    """Let so much rest at the opening's best price of one side of market 0."""
    book, price = both.alone[0].book, both.config.init_price - side
    if both.config.is_continuous:
        book.queue(side, price)[0].quantity = depth
    else:
        book.resting[side][price] = depth
    (both.sim.bid if side == BUY else both.sim.ask)[0, price] = depth


def test_an_episode_ends_before_event_numbers_repeat():
    sim = ks.Simulator(ks.MarketConfig(arrivals="clock", num_agents=20, interval=1000), 1, engine="numpy")
    last = 2**32 // 1000
    sim.load_state_dict(sim.state_dict() | {"t": torch.tensor([last - 1])})
    with pytest.raises(ks.MarketError, match=f"expected t below {last + 1}, got .*; reset first"):
        sim.run(2)
    sim.run(1)
    assert sim.t[0] == last
    with pytest.raises(ks.MarketError, match="reset first"):
        sim.run(1)


def test_only_continuous_trading_has_a_queue():
    sim = ks.Simulator(ks.MarketConfig(arrivals="clock", mechanism="continuous"), 3, engine="numpy", slots=2)
    assert sim.queue is sim.tensors["queue"] and sim.queue.shape == (3, 2, 2) and sim.queue.dtype == torch.int32
    call = ks.Simulator(ks.MarketConfig(), 1, engine="numpy")
    with pytest.raises(AttributeError, match="continuous"):
        print(call.queue)


BAD_STATES = [
    ("regime", 2, "0 to 1"),
    ("ret", 2, "-1, 0 or 1"),
    ("beat_price", 2**30, "within"),
    ("prev_mid2", 2**31 - 1, "within"),
    ("queue", 10**6, "built-in quantity"),
    ("moments", -1, "256 t"),
    ("moments", 10**12, "256 t"),
]


@pytest.mark.parametrize(("name", "value", "allowed"), BAD_STATES)
def test_states_that_no_market_can_be_in_are_refused(name, value, allowed):
    sim = quoted_market()
    saved = sim.state_dict()
    saved[name].view(-1)[0] = value
    with pytest.raises(ValueError, match=f"{name}.*{allowed}"):
        sim.load_state_dict(saved)


def test_crossed_quotes_are_refused():
    sim = quoted_market()
    for price in (200, 40):  # off the far end, and above the best ask
        saved = sim.state_dict()
        saved["quotes"][0, 0] = torch.tensor([price, 5, 300, 0])
        with pytest.raises(ValueError, match="quotes"):
            sim.load_state_dict(saved)


def quoted_market():
    regimes = [{}, {"noise_spread": 9}]
    clock = {"arrivals": "clock", "mechanism": "continuous", "regimes": regimes, "num_levels": 64, "init_price": 32}
    sim = ks.Simulator(ks.MarketConfig(num_agents=9, **clock), 2, engine="numpy", seed=5, slots=1)
    sim.step([[[28, 5, 36, 5]]] * 2, 3)
    return sim
