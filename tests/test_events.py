"""Markets on the clock in the compiled engines (cuda/events/), beside the plain reference, bit for bit."""

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
ENGINE = pytest.mark.parametrize("engine", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
KIND = pytest.mark.parametrize(("arrivals", "mechanism"), [kind for kind in KINDS if kind[0] == "clock"])


@ENGINE
@KIND
@pytest.mark.parametrize("seed", range(examples(150)))
def test_random_markets(seed, arrivals, mechanism, engine):
    """Alike markets and different ones; every call of a simulator, in any order."""
    rng = random.Random(f"cpu {seed} {arrivals} {mechanism}")
    markets = rng.choice([1, 2, 4])
    fields, slots = random_ensemble(rng, arrivals, mechanism, markets, markets > 1 and rng.random() < 0.6)
    both = Ensemble(fields, slots, markets, rng.randrange(1 << 40), engine)
    both.assert_same()
    for _ in range(8):
        both.move(rng)


@pytest.mark.gpu
@KIND
@pytest.mark.parametrize("seed", range(3))
def test_kernels_with_constants(seed, arrivals, mechanism):
    """Some parameters differ between markets, and are still read."""
    rng = random.Random(f"constants {seed} {arrivals} {mechanism}")
    fields, slots = random_ensemble(rng, arrivals, mechanism, 4, per_market=False)
    fields["max_order_qty"] = [2, 3, 9, 1]
    both = Ensemble(fields, slots, 4, seed, "cuda")
    both.sim.run(1)
    both.sim.engine.specialise()
    both.sim.reset(seed=seed)
    for _ in range(8):
        both._step(rng)
        both.assert_same()


@ENGINE
@KIND
@pytest.mark.parametrize("levels", [128, 512])
def test_many_ticks_and_slots(levels, arrivals, mechanism, engine):
    """More ticks than a word has bits, and slots as many as a launch can have."""
    rng = random.Random(f"{levels} {mechanism}")
    fields = {"arrivals": arrivals, "mechanism": mechanism, "num_levels": levels, "init_price": levels // 2}
    fields |= {"num_agents": 40, "noise_spread": levels // 3, "cancel_prob": 0.1, "window": levels // 4}
    fields |= {"walk_prob": 0.5, "jump_prob": 0.1, "jump_size": levels // 5, "reference": "fundamental"}
    both = Ensemble(fields, (None,) * 32, 1, levels, engine)
    for _ in range(20):
        both._step(rng)
        both.assert_same()
    assert both.alone[0].grid.low != 0


@ENGINE
@KIND
@pytest.mark.parametrize("seed", range(examples(30)))
def test_calls_that_are_cut_into_pieces(seed, arrivals, mechanism, engine, monkeypatch):
    """Launches end between beats and begin there."""
    monkeypatch.setitem(runs.EVENTS, engine, 1)
    rng = random.Random(f"pieces {seed} {arrivals} {mechanism}")
    fields, _ = random_ensemble(rng, arrivals, mechanism, 2, per_market=True)
    if mechanism == "continuous":
        fields["quote_latency"] = [rng.choice([0, 3, 20]), rng.choice([0, 1, 13])]
    both = Ensemble(fields, (None, None), 2, seed, engine)
    for _ in range(3):
        both.move(rng)


def test_a_tick_that_reaches_the_end_stops_its_market():
    """2^31 - 1 units are at a tick when an order to sell joins them: its interval is refused, not a later one."""
    fields = {"noise": 0.0, "momentum": 0.0, "maker": 1.0, "num_agents": 7, "max_order_qty": 30, "init_depth": 0}
    config = ks.MarketConfig(
        **fields, arrivals="clock", mechanism="continuous", interval=1, num_levels=16, init_price=8
    )
    reached = []
    for engine in ("numpy", "cpu"):
        sim = ks.Simulator(config, 1, engine=engine, seed=1)
        sim.ask[0, 9] = 2**31 - 1
        sim.engine.state_changed()
        with pytest.raises(ks.MarketError, match="2\\^31"):
            for _ in range(50):
                sim.run(1)
        reached.append(int(sim.t[0]))
    assert reached[0] == reached[1]


@ENGINE
@KIND
@pytest.mark.parametrize("seed", range(examples(60)))
def test_both_stop_in_the_same_interval(seed, arrivals, mechanism, engine):
    """A side that lacks little to 2^31: the C++ engine refuses the call in which the reference stops, and only that.

    A GPU's market stays as it was before the interval, as the reference's.
    """
    rng = random.Random(f"stop {seed} {arrivals} {mechanism}")
    fields, _ = random_ensemble(rng, arrivals, mechanism, 1, per_market=False)
    fields |= {"init_depth": 8, "max_order_qty": 30, "max_quote_qty": 60, "inventory_limit": None}
    if rng.random() < 0.7:
        fields["cancel_prob"] = 0.0
    both = Ensemble(fields, (None, None), 1, seed, engine)
    fill_up(both, rng.choice([BUY, SELL]), 2**31 - rng.randint(1, 300))
    both.sim.engine.state_changed()
    for _ in range(12):
        quotes = both.quotes(rng)
        stops = both.alone[0].decision(quotes[0], 1)[0]["error"]
        if stops and engine == "cpu":
            with pytest.raises(ks.MarketError, match="2\\^31"):
                both.sim.step(both.tensor(quotes))
            return
        both.sim.step(both.tensor(quotes))
        both.assert_same()
        if stops:
            with pytest.raises(ks.MarketError, match="2\\^31"):
                both.sim.check_errors()
            return


@ENGINE
@KIND
@pytest.mark.parametrize("seed", range(examples(10)))
def test_a_state_goes_on_in_another_engine(seed, arrivals, mechanism, engine):
    """Moments and all else that is hidden means the same in both."""
    rng = random.Random(f"engines {seed} {mechanism}")
    fields, _ = random_ensemble(rng, arrivals, mechanism, 2, per_market=True)
    both = Ensemble(fields, (None,) * 3, 2, seed, engine)
    for number in range(10):
        other = ks.Simulator(both.config, 2, engine=("numpy", engine)[number % 2], seed=1, slots=3)
        other.load_state_dict(both.sim.state_dict())
        both.sim = other
        both._step(rng)
        both.assert_same()


@ENGINE
def test_a_book_that_was_written_by_hand_cannot_hang_a_launch(engine):
    """Asks among bids are no state that an engine leaves; what becomes of them is nobody's, but a launch ends."""
    sim = ks.Simulator(
        ks.MarketConfig(arrivals="clock", mechanism="continuous", num_levels=16, init_price=8), 2, engine=engine
    )
    sim.bid[:] = torch.arange(16, dtype=torch.int32) % 3
    sim.ask[:] = torch.arange(16, dtype=torch.int32) % 2
    sim.run(50)
    assert sim.t.tolist() == [50, 50]


@ks.agent()
def careful(market, own, draw):
    """Take what is best on either side but for a unit, as long as there is that much."""
    side = 1 - 2 * draw.below(2)
    there = market.best_ask_qty if side > 0 else market.best_bid_qty
    return ks.order(side, market.best_ask if side > 0 else market.best_bid, 1 + there // 3)


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("rounding", ["even", "coin"])
def test_agents_see_what_is_left_of_a_quote(slots, rounding):
    """Between two updates: in one stretch of events a quote is filled in parts, and who comes then sees the rest."""
    fields = {"num_agents": 0, "interval": 24, "beat": 24, "init_depth": 3, "rounding": rounding, "max_quote_qty": 40}
    config = ks.MarketConfig.preset("continuous").replace(agents={careful: 5}, **fields)
    sims = [ks.Simulator(config, 2, engine=engine, seed=1, slots=slots) for engine in ("numpy", "cpu")]
    for sim in sims:
        sim.run(3)
    mid = sims[0].last_price.view(2, 1).expand(2, slots)
    size = torch.full_like(mid, 40)
    quotes = torch.stack([mid - 1, size, mid + 1, size], dim=-1).to(torch.int32)
    fills = [sim.step(quotes) for sim in sims]
    assert torch.equal(*fills) and 0 < int(fills[0].max()) < 40 * slots * 24
    for name, tensor in sims[0].tensors.items():
        assert torch.equal(tensor, sims[1].tensors[name]), name
