"""Ladders: known answers and laws. `ensembles.py` holds engines against references."""

import re

import gymnasium
import numpy as np
import pytest
import torch
from ensembles import bits_of
from pencil_markets import GRID, NEVER
from strategies import ENGINES
from thorough import examples

import kineticsim_env as ks

EVERY_ENGINE = pytest.mark.parametrize("engine", ENGINES)
NOTHING = (0, 0, "")


def market(engine, slots=1, levels=3, **fields):
    """A market whose only agent is replaced by slot 0: 8 units rest at 7 and at 9, and only slots act."""
    fields = {**GRID, "noise": 1.0, "momentum": 0.0, "maker": 0.0, "mechanism": "continuous", "interval": 1, **fields}
    config = ks.MarketConfig(**{"beat": NEVER} | fields, orders_per_side=levels)
    return ks.Simulator(config, 1, engine=engine, slots=("noise", *[None] * (slots - 1)))


def bid(price, quantity, flags=""):
    """A level of one side."""
    return (price, quantity, flags), NOTHING


def ask(price, quantity, flags=""):
    return NOTHING, (price, quantity, flags)


KEPT = ((0, 0, "keep"), (0, 0, "keep"))


def submit(sim, *ladders):
    """Submit ladders, one per slot: levels from the first on, or None, which keeps all; return fills and rejects.

    Fills are [K][2], rejects {(slot, level, side): reject}.
    """
    levels = sim.config.orders_per_side
    records = [[KEPT] * levels if one is None else [*one, *[(NOTHING,) * 2] * (levels - len(one))] for one in ladders]
    flat = [[price, quantity, bits_of(flags)] for one in records for both in one for price, quantity, flags in both]
    shape = (1, 1, len(sim.slots), levels, 2, 3)
    played = sim.rollout(torch.tensor(flat, dtype=torch.int32, device=sim.device).view(shape))
    rejects = played.rejects[0, 0]
    return played.fills[0, 0].tolist(), {tuple(at.tolist()): int(rejects[tuple(at)]) for at in rejects.nonzero()}


def standing(sim, side, slot=0):
    """What stands of each level, place by place: price, quantity, built-in units ahead."""
    quotes, queue = sim.quotes[0, slot].tolist(), sim.queue[0, slot].tolist()
    return [
        [
            (*quote[2 * side : 2 * side + 2], ahead[side])
            for quote, ahead in zip(*level, strict=True)
            if quote[2 * side + 1]
        ]
        for level in zip(quotes, queue, strict=True)
    ]


def bids(sim, slot=0):
    return standing(sim, 0, slot)


def asks(sim, slot=0):
    return standing(sim, 1, slot)


def topped_up(engine):
    """Slot 0 bids 4 at 7 behind 8 built-in units, slot 1 bids 3 there, and slot 0 then asks for 6; slot 2 sells."""
    sim = market(engine, 3)
    submit(sim, [bid(7, 4)], None, None)
    submit(sim, None, [bid(7, 3)], None)
    assert submit(sim, [bid(7, 6)], None, None) == ([[0, 0]] * 3, {})
    return sim


# Top-ups --------------------------------------------------------------------------------------------------------------


@EVERY_ENGINE
def test_a_top_up_stands_behind(engine):
    sim = topped_up(engine)
    assert bids(sim) == [[(7, 4, 8), (7, 2, 8)], [], []] and bids(sim, 1)[0] == [(7, 3, 8)]
    fills, _ = submit(sim, None, None, [ask(7, 13, "ioc")])
    assert fills == [[4, 0], [1, 0], [0, 13]]
    fills, _ = submit(sim, None, None, [ask(7, 3, "ioc")])
    assert fills == [[1, 0], [2, 0], [0, 3]] and bids(sim)[0] == [(7, 1, 0)]


@EVERY_ENGINE
def test_a_further_top_up_takes_the_second_place_to_the_back(engine):
    sim = topped_up(engine)
    submit(sim, None, [bid(7, 3), bid(7, 1)], None)  # slot 1 comes behind the top-up,
    submit(sim, [bid(7, 7)], None, None)  # and slot 0 with 3, 2 of which stood before it
    assert bids(sim) == [[(7, 4, 8), (7, 3, 8)], [], []]
    fills, _ = submit(sim, None, None, [ask(7, 17, "ioc")])
    assert fills == [[5, 0], [4, 0], [0, 17]] and bids(sim)[0] == [(7, 2, 0)]


@EVERY_ENGINE
@pytest.mark.parametrize(("quantity", "left"), [(6, [4, 2]), (5, [4, 1]), (4, [4]), (3, [3])])
def test_a_reduction_takes_the_newest_first(engine, quantity, left):
    sim = topped_up(engine)
    moments = sim.tensors["moments"][0, 0, 0, :, 0].clone()
    submit(sim, [bid(7, quantity)], None, None)
    assert bids(sim)[0] == [(7, units, 8) for units in left]
    assert sim.tensors["moments"][0, 0, 0, :, 0].tolist() == [*moments[: len(left)].tolist(), 0, 0][:2]


@EVERY_ENGINE
def test_the_second_place_becomes_the_first_and_there_is_room_for_a_top_up(engine):
    sim = topped_up(engine)
    submit(sim, None, None, [ask(7, 13, "ioc")])
    assert sim.quotes[0, 0, 0].tolist() == [[7, 0, 0, 0], [7, 2, 0, 0]]
    moment = int(sim.tensors["moments"][0, 0, 0, 1, 0])
    submit(sim, None, None, [ask(7, 1, "ioc")])  # the turn of a slot that keeps all
    assert sim.quotes[0, 0, 0].tolist() == [[7, 2, 0, 0], [7, 0, 0, 0]]
    assert sim.tensors["moments"][0, 0, 0, :, 0].tolist() == [moment, 0]
    submit(sim, [bid(7, 5)], None, None)
    assert bids(sim)[0] == [(7, 2, 0), (7, 3, 0)]


@EVERY_ENGINE
def test_a_top_up_that_trades_or_is_refused_leaves_what_stands(engine):
    """A bid of 4 at 8 stands; asks come down to 8 behind no one, as the slot's own bid would be met by none of them."""
    sim = market(engine, 2)
    submit(sim, [bid(8, 4)], None)
    assert submit(sim, [bid(8, 9, "post-only")], None) == ([[0, 0]] * 2, {})  # nobody sells at 8
    assert bids(sim)[0] == [(8, 4, 0), (8, 5, 0)]
    submit(sim, [bid(8, 9, "ioc")], None)  # never keeps its place
    assert bids(sim) == [[], [], []]


@EVERY_ENGINE
def test_another_price_brings_all_of_a_level(engine):
    sim = topped_up(engine)
    submit(sim, [bid(6, 6)], None, None)
    assert bids(sim) == [[(6, 6, 0)], [], []] and sim.quotes[0, 0, 0, :, 0].tolist() == [6, 6]


# Levels ---------------------------------------------------------------------------------------------------------------


@EVERY_ENGINE
def test_the_inventory_limit_cuts_the_farthest_first(engine):
    sim = market(engine, inventory_limit=10)
    submit(sim, [bid(5, 6), bid(7, 6), bid(6, 6)])
    assert bids(sim) == [[], [(7, 6, 8)], [(6, 4, 0)]]
    sim = market(engine, inventory_limit=10)
    submit(sim, [ask(12, 9), ask(11, 6), ask(11, 6)])  # of equal prices the lower level is nearer
    assert asks(sim) == [[], [(11, 6, 0)], [(11, 4, 0)]]
    sim = market(engine, inventory_limit=10)
    assert submit(sim, [bid(8, 9), bid(0, 3, "market")])[0] == [[3, 0]]  # a market order is the nearest of all
    assert bids(sim)[0] == [(8, 7, 0)]


@EVERY_ENGINE
def test_the_inventory_limit_cuts_what_is_kept_from_the_back(engine):
    sim = market(engine, inventory_limit=10)
    submit(sim, [bid(7, 4), bid(6, 5)])
    submit(sim, [bid(7, 5), bid(6, 5)])
    sim.inventory[:] = 2
    submit(sim, None)
    assert bids(sim) == [[(7, 4, 8), (7, 1, 8)], [(6, 3, 0)], []]
    sim.inventory[:] = 6
    submit(sim, None)
    assert bids(sim) == [[(7, 4, 8)], [], []]


@EVERY_ENGINE
def test_sizes_are_cut_and_crossed_sides_lost_level_by_level(engine):
    sim = market(engine, max_quote_qty=5)
    submit(sim, [((6, 9, ""), (6, 3, "")), ((5, 9, ""), (10, 9, ""))])
    assert bids(sim) == [[(6, 5, 0)], [(5, 5, 0)], []] and asks(sim) == [[], [(10, 5, 0)], []]


@EVERY_ENGINE
def test_levels_are_kept_one_by_one(engine):
    sim = market(engine, 2)
    submit(sim, [bid(7, 4), bid(6, 5)], [ask(7, 2, "ioc")])
    before = sim.tensors["moments"].clone()
    submit(sim, [((50, 9, "keep"), NOTHING), ((5, 5, ""), NOTHING)], None)
    assert bids(sim) == [[(7, 4, 6)], [(5, 5, 0)], []]
    assert sim.tensors["moments"][0, 0, 0, 0, 0] == before[0, 0, 0, 0, 0]
    assert sim.tensors["moments"][0, 0, 1, 0, 0] > before[0, 0, 1, 0, 0]


@EVERY_ENGINE
def test_a_level_stops_at_another_of_the_slot(engine):
    """Slot 1's 2 at 8 stand before slot 0's; the ask takes these, and then comes upon the slot's own bid."""
    sim = market(engine, 2)
    submit(sim, [bid(8, 3), ask(8, 2)], None)
    assert bids(sim)[0] == [(8, 3, 0)] and asks(sim) == [[], [], []]
    sim = market(engine, 2)
    submit(sim, None, [bid(8, 2)])
    fills, rejects = submit(sim, [bid(8, 3), ask(8, 7)], None)
    assert fills == [[0, 2], [2, 0]] and rejects == {(0, 1, 1): 2}
    assert bids(sim)[0] == [(8, 3, 0)] and asks(sim) == [[], [], []]


@EVERY_ENGINE
def test_post_only_is_of_a_level(engine):
    sim = market(engine)
    _, rejects = submit(sim, [bid(9, 1, "post-only"), bid(8, 1, "post-only"), ask(8, 1, "post-only")])
    assert rejects == {(0, 0, 0): 1, (0, 2, 1): 1}
    assert bids(sim) == [[], [(8, 1, 0)], []] and asks(sim) == [[], [], []]


@EVERY_ENGINE
def test_of_levels_at_one_price_the_lower_one_goes_first(engine):
    sim = market(engine, 2)
    submit(sim, [bid(7, 2), bid(7, 2)], None)
    submit(sim, None, [ask(7, 9, "ioc")])
    assert bids(sim) == [[(7, 1, 0)], [(7, 2, 0)], []]


@EVERY_ENGINE
def test_of_levels_at_one_price_the_earlier_one_goes_before(engine):
    sim = market(engine, 2)
    submit(sim, [bid(5, 1), bid(7, 2)], None)
    submit(sim, [bid(7, 2), bid(7, 2)], None)
    submit(sim, None, [ask(7, 9, "ioc")])
    assert bids(sim) == [[(7, 2, 0)], [(7, 1, 0)], []]


@EVERY_ENGINE
def test_levels_off_the_grid_follow_it(engine):
    """Slot 1 takes all asks, and quotes around 14: the grid moves by 6, and what was beyond its end is on it."""
    sim = market(engine, 2, window=2, beat=1)
    submit(sim, [((-3, 2, ""), (20, 3, "")), ((7, 1, ""), (15, 0, ""))], None)
    assert bids(sim) == [[(-3, 2, 0)], [(7, 1, 8)], []] and asks(sim)[0] == [(20, 3, 0)]
    submit(sim, [((-3, 4, ""), (20, 4, "")), ((7, 1, ""), NOTHING)], [bid(9, 8, "ioc")])
    submit(sim, None, [((13, 1, ""), (15, 1, ""))])
    submit(sim, None, None)
    assert sim.price_origin.tolist() == [6]
    assert bids(sim) == [[(-3, 2, 0), (-3, 2, 0)], [(7, 1, 8)], []] and asks(sim)[0] == [(20, 3, 0), (20, 1, 0)]
    fills, _ = submit(sim, None, [((13, 1, "keep"), NOTHING), bid(20, 4, "ioc")])
    assert fills == [[0, 4], [4, 0]] and asks(sim)[0] == []


@EVERY_ENGINE
def test_a_level_beyond_the_far_end_takes_its_price_for_good(engine):
    sim = market(engine)
    submit(sim, [bid(40, 10), bid(-1, 2)])
    assert bids(sim) == [[(15, 2, 0)], [(-1, 2, 0)], []] and int(sim.inventory[0, 0]) == 8
    submit(sim, [bid(40, 3), bid(-1, 2)])  # the price that stands, so that there is a top-up
    assert bids(sim)[0] == [(15, 2, 0), (15, 1, 0)]


@EVERY_ENGINE
def test_accounts_are_of_all_levels(engine):
    sim = market(engine, 2, fee=10, taker_fee=100)
    submit(sim, [bid(7, 1), bid(6, 2), ((0, 0, ""), (10, 1, ""))], None)
    fills, _ = submit(sim, None, [ask(0, 11, "market")])
    assert fills == [[3, 0], [0, 11]] and sim.inventory.tolist() == [[3, -11]]
    assert sim.cash.tolist() == [[-19, 8 * 7 + 19]] and sim.fees.tolist() == [[30, 11 * 110]]


# Around them ----------------------------------------------------------------------------------------------------------


def random_ladders(generator, sim, decisions, flags=True):
    """Records near the mid, with a repeated price now and then."""
    shape = (decisions, sim.num_markets, len(sim.slots), sim.config.orders_per_side, 2)
    records = np.zeros((*shape, 3), np.int32)
    records[..., 0] = generator.integers(-4, 5, shape) + sim.mid2.cpu().numpy()[:, None, None, None] // 2
    records[..., 1] = generator.integers(-1, 6, shape)
    records[..., 2] = generator.choice([0, 0, 0, 1, 2, 4, 8], shape) if flags else 0
    return torch.from_numpy(records).to(sim.device)


def news(engine, levels=3, markets=4, slots=2, **fields):
    config = ks.MarketConfig.preset("news", orders_per_side=levels, **fields)
    return ks.Simulator(config, markets, engine=engine, seed=5, slots=slots)


@EVERY_ENGINE
@pytest.mark.parametrize("seed", range(examples(4)))
def test_laws(engine, seed):
    """No limit is passed, no slot stands across itself, both places have one price, no place grows."""
    generator = np.random.default_rng(seed)
    sim = news(engine, slots=3, inventory_limit=9)
    for _ in range(8):
        volume, places, moments = sim.volume.clone(), sim.queue.clone(), sim.tensors["moments"].clone()
        result = sim.rollout(random_ladders(generator, sim, 1), 2)
        sim.load_state_dict(sim.state_dict())  # which tests the ranges
        held, quantity = sim.inventory, sim.quotes[..., 1::2].sum((2, 3))
        assert int(held.abs().max()) <= 9
        assert bool((held + quantity[..., 0] <= 9).all()) and bool((held - quantity[..., 1] >= -9).all())
        traded = (sim.volume - volume)[:, None]
        assert bool((result.fills[0].sum(-1) <= traded).all()) and bool((result.fills[0] >= 0).all())
        stayed = (sim.tensors["moments"] == moments) & (moments > 0)
        assert bool((sim.queue <= places)[stayed].all())


@EVERY_ENGINE
def test_one_level_that_never_grows_is_a_quote(engine):
    """Every decision has another price than the one before, so that there are no top-ups."""
    one, two = news(engine, 1), news(engine, 2)
    generator = np.random.default_rng(1)
    plain = generator.integers(-2, 3, (12, 4, 2, 4)).astype(np.int32)
    plain[..., 0::2] = 2 * plain[..., 0::2] + one.mid2.cpu().numpy()[:, None, None] // 2
    plain[1::2, ..., 0::2] += 1
    ladders = np.stack([plain, np.zeros_like(plain)], -2)
    first, second = one.rollout(plain, 2), two.rollout(ladders, 2)
    assert torch.equal(first.fills, second.fills) and int(first.fills.sum()) > 0
    for name, tensor in one.tensors.items():
        first_place = two.tensors[name][:, :, 0, 0] if name in ("quotes", "queue", "moments") else two.tensors[name]
        assert torch.equal(tensor, first_place), name


@EVERY_ENGINE
def test_quotes_are_records_without_flags(engine):
    one, two = news(engine), news(engine)
    records = random_ladders(np.random.default_rng(2), one, 6, flags=False)
    plain, full = one.rollout(records[..., :2].flatten(-2), 2), two.rollout(records, 2)
    assert plain.rejects is None and tuple(full.rejects.shape) == (6, 4, 2, 3, 2)
    assert torch.equal(plain.fills, full.fills)
    assert all(torch.equal(tensor, two.tensors[name]) for name, tensor in one.tensors.items())


@EVERY_ENGINE
def test_branches_and_saved_states_go_on(engine):
    sim = news(engine)
    generator = np.random.default_rng(3)
    sim.rollout(random_ladders(generator, sim, 5), 2)
    loaded = news(engine)
    loaded.load_state_dict(sim.state_dict())
    others = [sim.branch(), loaded]
    records = random_ladders(generator, sim, 5)
    played = sim.rollout(records, 2)
    for other in others:
        again = other.rollout(records, 2)
        assert torch.equal(again.fills, played.fills) and torch.equal(again.rejects, played.rejects)
        assert all(torch.equal(tensor, other.tensors[name]) for name, tensor in sim.tensors.items())


@EVERY_ENGINE
@pytest.mark.parametrize(
    ("name", "place", "value", "said"),
    [
        ("quotes", (0, 0, 1, 0, 2), 7, "a bid below the ask of the same slot, got 7"),
        ("quotes", (0, 0, 0, 1, 0), 6, "one price at both places of a level's side, got 7"),
        ("quotes", (0, 0, 0, 1, 1), -1, "quantities from 0 to 2^20, got -1"),
        ("quotes", (0, 0, 1, 0, 0), 2**30 + 1, f"prices within 2^30, got {2**30 + 1}"),
        ("queue", (0, 0, 0, 1, 0), 9, "0 to the built-in quantity at the quote, got 9"),
        ("moments", (0, 0, 2, 0, 0), 1, "0 to 256 t, 0 without a quote, got 1"),
    ],
)
def test_states_that_are_refused(engine, name, place, value, said):
    sim = market(engine)
    submit(sim, [((7, 4, ""), (10, 1, "")), ask(12, 2)])
    submit(sim, [((7, 6, ""), (10, 1, "")), ask(12, 2)])
    saved = sim.state_dict()
    saved[name][place] = value
    with pytest.raises(ValueError, match=re.escape(f"state[{name!r}]: expected {said}")):
        sim.load_state_dict(saved)


@EVERY_ENGINE
def test_a_state_of_other_ladders_is_refused(engine):
    with pytest.raises(ValueError, match="orders_per_side"):
        market(engine).load_state_dict(market(engine, levels=2).state_dict())


@EVERY_ENGINE
def test_a_new_book_withdraws_all(engine):
    sim = topped_up(engine)
    sim.set_book([[100, 5]], [[102, 5]])
    assert not bool(sim.quotes.any()) and not bool(sim.queue.any()) and not bool(sim.tensors["moments"].any())


@pytest.mark.parametrize(
    ("shape", "allowed"),
    [
        ((4, 2, 4), "4, 2, 3, 4"),
        ((4, 2, 2, 4), "4, 2, 3, 4"),
        ((4, 2, 1, 2, 3), "4, 2, 3, 2, 3"),
        ((4, 1, 3, 2, 3), "4, 2, 3, 2, 3"),
    ],
)
def test_shapes_that_are_refused(shape, allowed):
    sim, came = news("numpy"), ", ".join(map(str, shape))
    with pytest.raises(ValueError, match=re.escape(f"quotes: expected int32 [{allowed}] on cpu, got int32 [{came}]")):
        sim.step(np.zeros(shape, np.int32))
    with pytest.raises(ValueError, match=re.escape(f"expected int32 [T, {allowed}] on cpu, got int32 [1, {came}]")):
        sim.rollout(np.zeros((1, *shape), np.int32))
    with pytest.raises(ValueError, match="no slots"):
        news("numpy", slots=0).step(np.zeros((4, 0, 3, 4), np.int32))
    assert not bool(sim.t.any())


def test_tools_of_one_order_refuse_ladders():
    config = ks.MarketConfig.preset("news", orders_per_side=3)
    said = "orders_per_side: expected 1 in an environment, whose actions have one order per side, got 3"
    with pytest.raises(ValueError, match=said):
        gymnasium.make_vec("KineticSim/MarketMaking-v0", num_envs=2, config=config, engine="numpy")
    with pytest.raises(ValueError, match=said):
        gymnasium.make("KineticSim/Execution-v0", config=config, engine="numpy")
    with pytest.raises(ValueError, match=said):
        ks.BatchedParallelEnv(2, learners={"maker": 2}, config=config, engine="numpy")
    with pytest.raises(ValueError, match="orders_per_side: expected 1 in a counterfactual"):
        ks.block_impact(config, num_markets=2, engine="numpy")
    with pytest.raises(ValueError, match="orders_per_side: expected 1 in causal_impact"):
        ks.causal_impact(config, num_markets=2, engine="numpy")
