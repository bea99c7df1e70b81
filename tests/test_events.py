"""Markets on the clock in the C++ engine (cuda/events/), beside the plain reference, bit for bit."""

import random

import pytest
import torch
from build_helpers import needs_compiler
from ensembles import KINDS, Ensemble, random_ensemble
from reference.orders import BUY, SELL
from test_second_model import fill_up
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.engines import runs

pytestmark = needs_compiler
KIND = pytest.mark.parametrize(("arrivals", "mechanism"), [kind for kind in KINDS if kind[0] == "clock"])


@KIND
@pytest.mark.parametrize("seed", range(examples(150)))
def test_random_markets(seed, arrivals, mechanism):
    """Alike markets and different ones; every call of a simulator, in any order."""
    rng = random.Random(f"cpu {seed} {arrivals} {mechanism}")
    markets = rng.choice([1, 2, 4])
    fields, slots = random_ensemble(rng, arrivals, mechanism, markets, markets > 1 and rng.random() < 0.6)
    both = Ensemble(fields, slots, markets, rng.randrange(1 << 40), engine="cpu")
    both.assert_same()
    for _ in range(8):
        both.move(rng)


@KIND
@pytest.mark.parametrize("levels", [128, 512])
def test_many_ticks_and_slots(levels, arrivals, mechanism):
    """More ticks than a word has bits, and slots as many as a launch can have."""
    rng = random.Random(f"{levels} {mechanism}")
    fields = {"arrivals": arrivals, "mechanism": mechanism, "num_levels": levels, "init_price": levels // 2}
    fields |= {"num_agents": 40, "noise_spread": levels // 3, "cancel_prob": 0.1, "window": levels // 4}
    fields |= {"walk_prob": 0.5, "jump_prob": 0.1, "jump_size": levels // 5, "reference": "fundamental"}
    both = Ensemble(fields, (None,) * 32, 1, levels, engine="cpu")
    for _ in range(20):
        both._step(rng)
        both.assert_same()
    assert both.alone[0].grid.low != 0


@KIND
@pytest.mark.parametrize("seed", range(examples(30)))
def test_calls_that_are_cut_into_pieces(seed, arrivals, mechanism, monkeypatch):
    """Launches end between beats and begin there."""
    monkeypatch.setitem(runs.EVENTS, "cpu", 1)
    rng = random.Random(f"pieces {seed} {arrivals} {mechanism}")
    fields, _ = random_ensemble(rng, arrivals, mechanism, 2, per_market=True)
    if mechanism == "continuous":
        fields["quote_latency"] = [rng.choice([0, 3, 20]), rng.choice([0, 1, 13])]
    both = Ensemble(fields, (None, None), 2, seed, engine="cpu")
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
    both = Ensemble(fields, (None, None), 1, seed, engine="cpu")
    fill_up(both, rng.choice([BUY, SELL]), 2**31 - rng.randint(1, 300))
    both.sim.engine.state_changed()
    for _ in range(12):
        quotes = both.quotes(rng)
        if both.alone[0].decision(quotes[0], 1)[0]["error"]:
            with pytest.raises(ks.MarketError, match="2\\^31"):
                both.sim.step(both.tensor(quotes))
            return
        both.sim.step(both.tensor(quotes))
        both.assert_same()


@KIND
@pytest.mark.parametrize("seed", range(examples(10)))
def test_a_state_goes_on_in_another_engine(seed, arrivals, mechanism):
    """Moments and all else that is hidden means the same in both."""
    rng = random.Random(f"engines {seed} {mechanism}")
    fields, _ = random_ensemble(rng, arrivals, mechanism, 2, per_market=True)
    both = Ensemble(fields, (None,) * 3, 2, seed, engine="cpu")
    for number in range(10):
        engine = ("numpy", "cpu")[number % 2]
        other = ks.Simulator(both.config, 2, engine=engine, seed=1, slots=3)
        other.load_state_dict(both.sim.state_dict())
        both.sim = other
        both._step(rng)
        both.assert_same()


def test_a_book_that_was_written_by_hand_cannot_hang_a_launch():
    """Asks among bids are no state that an engine leaves; what becomes of them is nobody's, but a launch ends."""
    sim = ks.Simulator(
        ks.MarketConfig(arrivals="clock", mechanism="continuous", num_levels=16, init_price=8), 2, engine="cpu"
    )
    sim.bid[:] = torch.arange(16, dtype=torch.int32) % 3
    sim.ask[:] = torch.arange(16, dtype=torch.int32) % 2
    sim.run(50)
    assert sim.t.tolist() == [50, 50]
