"""Ladders: laws, and what is around them: shapes, saved states, branches, books, tools that have none."""

import re

import numpy as np
import pytest
import torch
from ladder_markets import EVERY_ENGINE, ask, market, submit, topped_up
from thorough import examples

import kineticsim_env as ks


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
    with pytest.raises(ValueError, match="orders_per_side: expected 1 in a counterfactual"):
        ks.block_impact(config, num_markets=2, engine="numpy")
    with pytest.raises(ValueError, match="orders_per_side: expected 1 in causal_impact"):
        ks.causal_impact(config, num_markets=2, engine="numpy")
