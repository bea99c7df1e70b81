"""Order records: known answers and laws. `ensembles.py` draws flags for whatever holds engines against references."""

import random

import numpy as np
import pytest
import torch
from ensembles import Ensemble, bits_of, random_ensemble
from pencil_markets import GRID, NEVER
from strategies import ENGINES
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.runtime import layout

EVERY_ENGINE = pytest.mark.parametrize("engine", ENGINES)
NOTHING = (0, 0, "")


def market(engine, slots=1, **fields):
    """A market whose only agent is replaced by slot 0: 8 units rest at 7 and at 9, and only slots act."""
    fields = {**GRID, "noise": 1.0, "momentum": 0.0, "maker": 0.0, "mechanism": "continuous", "interval": 1, **fields}
    config = ks.MarketConfig(**{"beat": NEVER} | fields)
    return ks.Simulator(config, 1, engine=engine, slots=("noise", *[None] * (slots - 1)))


def submit(sim, *sides):
    """Submit bid and ask of each slot, (price, quantity, flags); return fills and rejects, each [K][2]."""
    record = [[price, quantity, bits_of(flags)] for price, quantity, flags in sides]
    shape = (1, 1, len(sim.slots), 1, 2, 3)
    played = sim.rollout(torch.tensor(record, dtype=torch.int32, device=sim.device).view(shape))
    return played.fills[0, 0].tolist(), played.rejects[0, 0, :, 0].tolist()


def quotes(sim):
    return sim.quotes[0].tolist()


@EVERY_ENGINE
def test_keep_leaves_what_stands_at_its_place(engine):
    """Slot 0 bids behind 8 units, slot 1 behind both; slot 1 sells 5 to the built-in units, and slot 0 keeps."""
    sim = market(engine, 2)
    submit(sim, (7, 4, ""), NOTHING, (7, 2, ""), NOTHING)
    assert sim.queue[0].tolist() == [[8, 0], [8, 0]]
    fills, _ = submit(sim, (99, 99, "keep"), (50, 99, "keep"), (0, 0, ""), (7, 5, "ioc"))
    assert fills == [[0, 0], [0, 5]] and quotes(sim)[0][:2] == [7, 4] and sim.queue[0, 0].tolist() == [3, 0]
    fills, _ = submit(sim, (0, 0, "keep"), NOTHING, NOTHING, (7, 5, "ioc"))
    assert fills == [[2, 0], [0, 5]] and quotes(sim)[0][:2] == [7, 2]  # 3 built-in units went first


@EVERY_ENGINE
def test_the_inventory_limit_cuts_what_is_kept(engine):
    """Of a bid of 4 one unit is bought elsewhere; with a limit of 4 there is room for 3, which keep their place."""
    sim = market(engine, inventory_limit=4)
    submit(sim, (7, 4, ""), NOTHING)
    sim.inventory[:] = 1
    assert submit(sim, (0, 0, "keep"), NOTHING) == ([[0, 0]], [[0, 0]])
    assert quotes(sim)[0][:2] == [7, 3] and sim.queue[0, 0, 0] == 8
    sim.inventory[:] = 4
    submit(sim, (0, 0, "keep"), NOTHING)
    assert quotes(sim)[0][1] == 0 and sim.queue[0, 0, 0] == 0 and sim.tensors["moments"][0, 0, 0] == 0


@EVERY_ENGINE
def test_levers_leave_what_is_kept_alone(engine):
    """A bid at 5; ticks of 4 and a collar come: a fresh bid at 5 is rounded to 4, a kept one stays."""
    for flags, price in (("keep", 5), ("", 4)):
        sim = market(engine)
        submit(sim, (5, 3, ""), NOTHING)
        sim.set_parameters(tick_size=4, collar=1)
        submit(sim, (5, 3, flags), NOTHING)
        assert quotes(sim)[0][:2] == [price, 3]


@EVERY_ENGINE
def test_keeping_nothing_is_nothing(engine):
    sim = market(engine)
    assert submit(sim, (9, 5, "keep"), (7, 5, "keep market")) == ([[0, 0]], [[0, 0]])
    assert quotes(sim) == [[0, 0, 0, 0]]


@EVERY_ENGINE
def test_post_only_is_not_placed_where_it_would_trade(engine):
    sim = market(engine)
    assert submit(sim, (9, 5, "post-only"), (8, 2, "post-only")) == ([[0, 0]], [[1, 0]])  # crosses itself: the larger
    sim = market(engine)
    assert submit(sim, (9, 5, "post-only"), NOTHING) == ([[0, 0]], [[1, 0]])
    assert quotes(sim)[0][1] == 0
    assert submit(sim, (8, 5, "post-only"), NOTHING) == ([[0, 0]], [[0, 0]])
    assert quotes(sim)[0][:2] == [8, 5]


@EVERY_ENGINE
def test_post_only_sees_the_slots_own_other_side(engine):
    sim = market(engine)
    submit(sim, NOTHING, (8, 3, ""))
    assert submit(sim, (8, 1, "post-only"), (0, 0, "keep")) == ([[0, 0]], [[1, 0]])
    assert quotes(sim)[0][1:] == [0, 8, 3]


@EVERY_ENGINE
def test_an_order_stops_before_the_slots_own(engine):
    """An ask of 3 behind 8 built-in ones at 9, kept: a bid of 20 at 12 takes the 8, and the rest of it disappears."""
    sim = market(engine)
    submit(sim, NOTHING, (9, 3, ""))
    fills, rejects = submit(sim, (12, 20, ""), (0, 0, "keep"))
    assert (fills, rejects) == ([[8, 0]], [[2, 0]])
    assert quotes(sim)[0] == [12, 0, 9, 3] and sim.queue[0, 0].tolist() == [0, 0] and int(sim.last_price[0]) == 9
    assert submit(sim, (12, 2, "ioc"), (0, 0, "keep")) == ([[0, 0]], [[2, 0]])
    assert int(sim.ask[0].sum()) == 0 and int(sim.last_price[0]) == 9


@EVERY_ENGINE
def test_slots_trade_with_each_other_up_to_their_own(engine):
    """Slot 1's ask of 2 stands before slot 0's of 3, at 8: slot 0 buys 2."""
    sim = market(engine, 2)
    submit(sim, NOTHING, NOTHING, NOTHING, (8, 2, ""))
    submit(sim, NOTHING, (8, 3, ""), NOTHING, (0, 0, "keep"))
    fills, rejects = submit(sim, (0, 9, "market"), (0, 0, "keep"), NOTHING, (0, 0, "keep"))
    assert fills == [[2, 0], [0, 2]] and rejects == [[2, 0], [0, 0]]


@EVERY_ENGINE
def test_what_is_to_trade_at_once_never_rests(engine):
    """And pays the taker's fee; at the price that stands it does not keep its place."""
    for flags, price in (("ioc", 9), ("market", -3), ("ioc market", 0)):
        sim = market(engine, taker_fee=100, fee=10)
        assert submit(sim, (price, 11, flags), NOTHING) == ([[8, 0]], [[0, 0]])
        assert quotes(sim)[0][1] == 0 and sim.fees[0].tolist() == [8 * 110] and sim.cash[0].tolist() == [-72]
    sim = market(engine)
    submit(sim, (7, 4, ""), NOTHING)
    submit(sim, (7, 4, "ioc"), NOTHING)
    assert quotes(sim)[0][1] == 0


@EVERY_ENGINE
def test_a_market_order_may_cross_the_slots_fresh_ask(engine):
    """The bid comes first, at any price, and then the ask at 8."""
    sim = market(engine)
    assert submit(sim, (0, 3, "market"), (8, 5, "")) == ([[3, 0]], [[0, 0]])
    assert quotes(sim)[0][2:] == [8, 5]


@EVERY_ENGINE
def test_flags_act_when_the_quote_arrives(engine):
    """A latency of 2 of 3 intervals: what is kept is what stands then, and the decision is one."""
    sim = market(engine, 2, quote_latency=2)
    record = torch.zeros((1, 1, 2, 1, 2, 3), dtype=torch.int32, device=sim.device)
    record[0, 0, 0, 0, 0] = torch.tensor([7, 4, 0])
    sim.rollout(record, 3)
    record[0, 0, 0, 0, 0] = torch.tensor([0, 0, 1])
    record[0, 0, 1, 0, 1] = torch.tensor([7, 10, 4])
    played = sim.rollout(record, 3)
    assert played.fills[0, 0].tolist() == [[2, 0], [0, 10]] and quotes(sim)[0][:2] == [7, 2]


@EVERY_ENGINE
@pytest.mark.parametrize("seed", range(examples(20)))
def test_laws(engine, seed):
    """No limit is passed, no slot stands across itself, nobody trades more than was traded, no place grows."""
    rng = random.Random(f"flags {seed}")
    fields, _ = random_ensemble(rng, "clock", "continuous", 2, per_market=False)
    both = Ensemble(fields | {"inventory_limit": 9}, (None,) * 3, 2, seed, engine)
    sim = both.sim
    for _ in range(10):
        volume, places, moments = sim.volume.clone(), sim.queue.clone(), sim.tensors["moments"].clone()
        result = sim.rollout(both.tensor(both.quotes(rng, flags=True))[None], 2)
        assert int(sim.inventory.abs().max()) <= 9
        standing = sim.quotes
        both_sides = (standing[..., 1] > 0) & (standing[..., 3] > 0)
        assert not bool((both_sides & (standing[..., 0] >= standing[..., 2])).any())
        traded = (sim.volume - volume)[:, None]
        assert bool((result.fills[0].sum(1) <= traded).all())
        assert bool((result.fills[0] >= 0).all())
        stayed = (sim.tensors["moments"] == moments) & (moments > 0)
        assert bool((sim.queue <= places)[stayed].all())


def test_without_flags_a_record_is_a_quote():
    config = ks.MarketConfig.preset("news")
    one, two = (ks.Simulator(config, 5, engine="cpu", seed=3, slots=2) for _ in range(2))
    generator = np.random.default_rng(1)
    for _ in range(6):
        plain = generator.integers(-4, 5, (3, 5, 2, 4)).astype(np.int32)
        plain[..., 0::2] += one.mid2.numpy()[:, None, None] // 2
        record = np.concatenate([plain.reshape(3, 5, 2, 1, 2, 2), np.zeros((3, 5, 2, 1, 2, 1), np.int32)], -1)
        first, second = one.rollout(plain, 2), two.rollout(record, 2)
        assert first.rejects is None and not bool(second.rejects.any()) and torch.equal(first.fills, second.fills)
        for name, tensor in one.tensors.items():
            assert torch.equal(tensor, two.tensors[name]), name


def test_pieces_of_a_call_add_up(monkeypatch):
    from kineticsim_env.engines import runs

    sims = [ks.Simulator(ks.MarketConfig.preset("news"), 3, engine="cpu", seed=3, slots=1) for _ in range(2)]
    record = np.zeros((4, 3, 1, 1, 2, 3), np.int32)
    record[..., 0, 0] = sims[0].mid2.numpy()[:, None, None] // 2 + 3
    record[..., 0, 1:] = 5, ks.OrderFlag.POST_ONLY
    whole = sims[0].rollout(record, 3)
    monkeypatch.setitem(runs.EVENTS, "cpu", 1)
    cut = sims[1].rollout(record, 3)
    assert torch.equal(whole.rejects, cut.rejects) and bool(whole.rejects.any()) and torch.equal(whole.fills, cut.fills)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda r: r | 16, ValueError, "quotes: expected flags from 0 to 15.*got 16"),
        (lambda r: r - 1, ValueError, "quotes: expected flags from 0 to 15.*got -1"),
        (lambda r: r | 6, ValueError, "POST_ONLY without IMMEDIATE_OR_CANCEL or MARKET"),
        (lambda r: r[:, :, :, :, :1], ValueError, r"quotes: expected int32 \[2, 1, 1, 2, 3\] on cpu, got"),
        (lambda r: np.repeat(r, 2, axis=2), ValueError, r"quotes: expected int32 \[2, 1, 1, 2, 3\]"),
        (lambda r: r.astype(float), TypeError, "quotes: expected int32"),
        (lambda r: [[[1, 2], [3]]], ValueError, "quotes: expected int32"),
    ],
)
def test_records_that_are_refused(change, error, said):
    sim = market("cpu")
    two = ks.Simulator(sim.config, 2, engine="cpu", slots=1)
    before = {name: tensor.clone() for name, tensor in two.tensors.items()}
    with pytest.raises(error, match=said):
        two.step(change(np.zeros((2, 1, 1, 2, 3), np.int32)))
    for name, tensor in two.tensors.items():
        assert torch.equal(tensor, before[name]), name


def test_only_continuous_trading_has_flags():
    sim = ks.Simulator(ks.MarketConfig(), 1, engine="cpu", slots=1)
    with pytest.raises(ValueError, match="mechanism='call'"):
        sim.step(np.zeros((1, 1, 1, 2, 3), np.int32))
    with pytest.raises(ValueError, match="no slots"):
        ks.Simulator(ks.MarketConfig.preset("news"), 1, engine="cpu").step(np.zeros((1, 0, 1, 2, 3), np.int32))


def test_names_are_those_of_the_header():
    for kind in (ks.OrderFlag, ks.Reject):
        assert {name.lower(): int(one) for name, one in kind.__members__.items()} == layout.ENUMS[kind.__name__]
