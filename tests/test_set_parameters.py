"""`Simulator.set_parameters`: a running market goes on as one that was made with the new parameters."""

import random

import ensembles
import numpy as np
import pytest
import torch
from ensembles import KINDS, Ensemble, interval_of, random_ensemble
from reference.cases import random_fields
from strategies import assert_same, every_engine, make_quotes
from thorough import covering, examples

import kineticsim_env as ks
from kineticsim_env.config import CLASSES
from kineticsim_env.envs.vector import TradingVectorEnv
from kineticsim_env.runtime.fields import ENSEMBLE_WIDE as SHARED

M = 7
TRADING = ks.MarketConfig.preset("trading")
CHANGES = {
    "a fee": {"fee": 2500},
    "orders": {"max_order_qty": 40, "noise_spread": 20, "market_order_prob": 0.6},
    "the fundamental": {"walk_prob": 1.0, "jump_prob": 0.5, "jump_size": 9, "fundamental_price": 30},
    "the rules": {"tie": "lowest", "residue": "rest", "cancel_prob": 0.0, "window": 3},
    "limits": {"inventory_limit": 5, "max_quote_qty": 3},
    "per market": {"noise_spread": np.arange(1, M + 1), "tie": ["mid", "lowest", "mid"] * 2 + ["mid"], "fee": 3},
}
OLD = {"noise_spread": 9, "inventory_limit": None}


def opened(engine, population="fixed", auctions=60, **changes):
    config = ks.MarketConfig.preset("trading", population=population, **{**OLD, **changes})
    sim = ks.Simulator(config, M, engine=engine, seed=5, slots=("noise", None))
    sim.run(auctions)
    sim.step(make_quotes(sim, "near", 1)[0], auctions=3)
    return sim


def go_on(*sims, auctions=4):
    """Step all with the same quotes; return the fills of each, over a few decisions."""
    fills = [[] for _ in sims]
    for n in range(4):
        quotes = make_quotes(sims[0], "near", n)[0]
        for sim, found in zip(sims, fills, strict=True):
            found.append(sim.step(quotes, auctions))
    return [torch.stack(found) for found in fills]


def assert_same_markets(got, wanted, which=slice(None)):
    assert_same({n: t[which] for n, t in got.tensors.items()}, {n: t[which] for n, t in wanted.tensors.items()})


@covering
@every_engine
@pytest.mark.parametrize("population", ["fixed", "multinomial"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.filterwarnings("ignore:load_state_dict")
def test_a_market_goes_on_as_one_that_was_made_so(engine, population, change):
    sim = opened(engine, population)
    made = ks.Simulator(sim.config.replace(**CHANGES[change]), M, engine=engine, seed=5, slots=sim.slots)
    made.load_state_dict(sim.state_dict(), strict=False)
    control = sim.branch()
    sim.set_parameters(**CHANGES[change])
    assert sim.config == made.config and sim.about() == made.about()
    assert_same_markets(sim, control)  # no state has changed
    ours, theirs, without = go_on(sim, made, control)
    assert torch.equal(ours, theirs)
    assert_same_markets(sim, made)
    assert not torch.equal(sim.cash, control.cash) or not torch.equal(sim.fees, control.fees)
    for one in (sim, made):
        one.reset(seed=9)  # the opening book is the new one as well
        one.run(5)
    assert_same_markets(sim, made)
    assert bool(without.any())


@every_engine
def test_a_branch_has_what_it_was_branched_with(engine):
    before, control = opened(engine), opened(engine)
    branch = before.branch()
    branch.set_parameters(cancel_prob=0.9, fee=7)
    after = branch.branch()
    go_on(before, control)
    assert_same_markets(before, control)
    go_on(branch, after)
    assert_same_markets(branch, after)
    assert before.config.fee == 0 and after.config.fee == 7
    with pytest.raises(ValueError, match=r"market\.fee is 7 there, 0 here"):
        before.load_state_dict(branch.state_dict())
    after.load_state_dict(branch.state_dict())
    branch.set_parameters(cancel_prob=before.config.cancel_prob, fee=0)  # and back
    before.load_state_dict(branch.state_dict())
    go_on(branch, before)
    assert_same_markets(branch, before)


@covering
@every_engine
@pytest.mark.parametrize("population", ["fixed", "multinomial"])
@pytest.mark.parametrize("change", [name for name in CHANGES if name != "limits"])  # none cannot stand beside one
def test_a_mask_chooses_the_markets_that_change(engine, population, change):
    mask = torch.tensor([True, False, False, True, True, False, True])
    sim, all_changed, none_changed = (opened(engine, population) for _ in range(3))
    sim.set_parameters(mask=mask, **CHANGES[change])
    all_changed.set_parameters(**CHANGES[change])
    clone = sim.branch()
    go_on(sim, all_changed, none_changed, clone)
    assert_same_markets(sim, all_changed, mask)
    assert_same_markets(sim, none_changed, ~mask)
    assert_same_markets(sim, clone)
    for name, value in CHANGES[change].items():
        field = np.broadcast_to(getattr(sim.config, name), M)
        np.testing.assert_array_equal(field[mask], np.broadcast_to(value, M)[mask])
        old = getattr(none_changed.config, name)
        old = none_changed.config.init_price if old is None else old
        np.testing.assert_array_equal(field[~mask], np.broadcast_to(old, M)[~mask])


@pytest.mark.parametrize("engine", ["numpy", "cpu"])
def test_quotes_stand_at_their_prices_whatever_the_tick_size_becomes(engine):
    """Under continuous trading: a bid at 5 and an ask at 12 make a mid of 17 / 2, though neither is a multiple of 8."""
    fields = {"num_levels": 16, "init_price": 8, "init_depth": 0, "num_agents": 1, "interval": 1, "beat": 1}
    config = ks.MarketConfig(**fields, arrivals="clock", mechanism="continuous")
    sim = ks.Simulator(config, 1, engine=engine, seed=1, slots=1)
    sim.step([[[5, 4, 12, 4]]])
    sim.bid.zero_(), sim.ask.zero_(), sim.engine.state_changed()
    sim.set_parameters(tick_size=8)
    sim.run(1)
    assert sim.tensors["prev_mid2"].tolist() == [17] and sim.quotes.tolist() == [[[5, 4, 12, 4]]]


def test_none_is_the_opening_price_that_comes_with_it():
    sim = opened("numpy")
    sim.set_parameters(fundamental_price=40)
    sim.set_parameters(mask=[True] + [False] * (M - 1), fundamental_price=None, init_price=30)
    assert sim.config.fundamental_price.tolist() == [30] + [40] * (M - 1)


def test_masks_of_all_and_of_none():
    sim = opened("numpy")
    sim.set_parameters(mask=[True] * M, fee=3)
    assert sim.config.fee == 3 and not sim.config.per_market
    sim.set_parameters(mask=[False] * M, fee=4, inventory_limit=None)
    assert sim.config.fee.tolist() == [3] * M
    sim.set_parameters(fee=5)
    assert sim.config.fee == 5 and not sim.config.per_market


@covering
@pytest.mark.parametrize(("arrivals", "mechanism"), KINDS)
@pytest.mark.parametrize("seed", range(examples(60)))
def test_it_is_what_the_reference_does(seed, arrivals, mechanism):
    """Every lever and parameter changes on the way, in all markets or some; each market beside plain Python."""
    rng = random.Random(f"{seed} {arrivals} {mechanism}")
    markets = rng.choice([1, 2, 4])
    fields, slots = random_ensemble(rng, arrivals, mechanism, markets, markets > 1 and rng.random() < 0.5)
    both, changes = Ensemble(fields, slots, markets, rng.randrange(1 << 40)), 0
    for _ in range(8):
        both.move(rng)
        others = random_fields(rng, mechanism, arrivals)
        new = {name: others[name] for name in others if name not in (*SHARED, "num_agents", *CLASSES)}
        new = dict(rng.sample(sorted(new.items()), rng.randint(1, 5)))
        if "quote_latency" in new and not ensembles.LATE:
            new["quote_latency"] = min(new["quote_latency"], interval_of(both.config) - 1)
        mask = [rng.random() < 0.6 for _ in range(markets)] if rng.random() < 0.5 else None
        try:
            both.sim.set_parameters(mask=mask, **new)
        except ValueError:
            continue  # these do not fit the rest, or the grid
        both.config, changes = both.sim.config, changes + 1
        for m, market in enumerate(both.alone):
            if mask is None or mask[m]:
                market.set_parameters(**new)
            if isinstance(both.config.fundamental_price, np.ndarray):  # None is a number from then on
                market.set_parameters(fundamental_price=int(both.config.fundamental_price[m]))
        both.assert_same()
    both.move(rng)
    assert changes, "a case in which nothing changes shows nothing"


@pytest.mark.parametrize("engine", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_native_engine_does_what_the_reference_does(engine):
    moves = [{"noise_spread": 25, "max_order_qty": 3}, {"cancel_prob": 0.0, "tie": "lowest"}, {"window": 2, "fee": -3}]
    fields = {name: value for name, value in TRADING.to_dict().items() if value is not None}
    both, rng = Ensemble(fields, ("noise", None), M, 5, engine), random.Random(1)
    for new in moves:
        both.sim.set_parameters(**new)
        both.config = both.sim.config
        for market in both.alone:
            market.set_parameters(**new)
        for _ in range(4):
            both.move(rng)


WRONG = [
    ({}, TypeError, "set_parameters: expected one of init_price, init_depth, .*, got no field"),
    ({"spread": 3}, ValueError, "set_parameters: expected one of init_price, .*, got the field 'spread'"),
    *(
        (
            {name: 1},
            ValueError,
            f"set_parameters: expected .*got the field '{name}', which running markets cannot change",
        )
        for name in "num_levels population arrivals mechanism interval beat regimes num_agents noise maker".split()
    ),
    ({"fee": "a"}, TypeError, r"fee: expected a number, got 'a' \(str\)"),
    ({"fee": 2**21}, ValueError, "fee: expected -1048576 to 1048576, got 2097152"),
    ({"fee": 2**21, "mask": [False] * M}, ValueError, "fee: expected .*got 2097152"),
    ({"fee": [1, 2]}, ValueError, f"fee: expected one value, or {M} per-market values, got 2"),
    ({"init_price": 127}, ValueError, "init_price: expected 1 to num_levels - 2 = 126, got 127"),
    ({"max_order_qty": 65535, "fee": 0.5}, ValueError, "fee: expected a whole number.*got 0.5"),
    ({"window": 0}, ValueError, "window: expected a window above 0 when walk_prob or jump_prob.*got 0"),
    (
        {"window": 0, "walk_prob": 0, "jump_prob": 0},
        ValueError,
        "window: expected .*, got 0 for a market whose grid follows",
    ),
    ({"quote_latency": 3}, ValueError, "quote_latency: expected 0 where mechanism is 'call', got 3"),
    ({"regime_switch_prob": 0.5}, ValueError, "regime_switch_prob: expected 0 without regimes, got a number above 0"),
    (
        {"inventory_limit": 3, "mask": [True] + [False] * (M - 1)},
        ValueError,
        "inventory_limit: expected numbers in all markets, got 3 for some",
    ),
    ({"fee": 1, "mask": [True] * 3}, ValueError, r"mask: .*got"),
    ({"fee": 1, "mask": "all"}, ValueError, r"mask: .*got"),
]


@pytest.mark.parametrize(("call", "error", "said"), WRONG, ids=[str(call)[:50] for call, *_ in WRONG])
def test_wrong_calls_change_nothing(call, error, said):
    sim, control = opened("numpy", auctions=3), opened("numpy", auctions=3)
    with pytest.raises(error, match=said):
        sim.set_parameters(**call)
    assert sim.config == control.config
    go_on(sim, control)
    assert_same_markets(sim, control)


def test_native_engines_refuse_what_they_do_not_play_before_anything_changes():
    sim = opened("cpu", auctions=3)
    try:
        sim.set_parameters(tax=3)
    except ks.EngineUnavailable:
        assert sim.config.tax == 0
        sim.set_parameters(fee=3)
        assert sim.config.fee == 3


def test_a_config_is_not_assigned():
    sim = opened("numpy", auctions=1)
    with pytest.raises(AttributeError, match="config: expected set_parameters.*, got another config"):
        sim.config = ks.MarketConfig()
    assert sim.config.num_agents == 20
    sim.branch()


@every_engine
def test_an_environment_plays_on_with_them(engine):
    envs = TradingVectorEnv(4, engine=engine, bank_size=4, warmup=3, output="torch")
    envs.reset(seed=1)
    envs.simulator.set_parameters(fee=1000, cancel_prob=0.1)
    envs.action_space.seed(1)
    for _ in range(30):
        envs.step(torch.from_numpy(envs.action_space.sample()).to(envs.simulator.device))
    assert bool(envs.simulator.fees.any())


def test_scenarios_are_set_another_way():
    envs = TradingVectorEnv(
        4, engine="numpy", bank_size=4, warmup=3, randomise={"fee": {"values": [1, 2]}}, num_scenarios=2
    )
    with pytest.raises(
        ValueError, match=r"expected env\.set_scenarios.*, got an environment whose episodes draw scenarios"
    ):
        envs.simulator.set_parameters(fee=1)


@pytest.mark.gpu
@pytest.mark.parametrize("own", [False, True])
def test_a_captured_run_plays_the_old_parameters_or_the_new_ones(own):
    """Never a mixture, with a kernel that has them as constants or not; what is captured afterwards plays the new."""
    fields = {"noise_spread": 11, "fee": 3, "max_order_qty": 9}
    sim = opened("cuda")
    if own:
        sim.specialise()
    old = opened("cpu")
    old.load_state_dict(sim.state_dict())
    new = old.branch()
    new.set_parameters(**fields)
    captured = captured_run(sim)
    before = sim.state_dict()
    sim.set_parameters(**fields)
    sim.load_state_dict(before | {"about": sim.state_dict()["about"]})
    captured.replay()
    torch.cuda.synchronize()
    for one in (old, new):
        one.run(5)
    outcomes = [all(torch.equal(t.cpu(), one.tensors[n]) for n, t in sim.tensors.items()) for one in (old, new)]
    assert any(outcomes)
    sim.load_state_dict(new.state_dict())
    again = captured_run(sim)
    sim.load_state_dict(new.state_dict())
    again.replay()
    new.run(5)
    assert_same({n: t.cpu() for n, t in sim.tensors.items()}, dict(new.tensors))


def captured_run(sim):
    """Return a CUDA graph of five auctions; state is as it was before."""
    saved = sim.state_dict()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        sim.run(5)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sim.run(5)
    sim.load_state_dict(saved)
    return graph
