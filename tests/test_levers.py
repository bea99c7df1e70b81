"""Levers and regimes where each agent comes once: the engines against the plain reference, and against each other."""

import dataclasses
import random

import numpy as np
import pytest
import torch
from build_helpers import needs_compiler
from env_helpers import check_cores_agree, environments, make_cores
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference import Reference
from reference.cases import random_fields, random_quotes, random_slots
from strategies import Play, assert_same, make_move, open_simulator, plays, under_levers
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.engines import variants
from kineticsim_env.runtime import build

pytestmark = needs_compiler
ENGINES = ("cpu",)
SEEDS = st.integers(0, 2**32)
LEVERS = ("rounding", "reference", "taker_offset", "tax", "collar", "tick_size", "fee")
quiet = HealthCheck.function_scoped_fixture


# Against the reference ------------------------------------------------------------------------------------------------


def ensemble_fields(rng: random.Random, markets: int) -> dict:
    """Fields of an ensemble whose levers differ from market to market."""
    fields = random_fields(rng, "call", "each")
    for name in LEVERS:
        own = [random_fields(rng, "call", "each")[name] for _ in range(markets)]
        fields[name] = own if rng.random() < 0.5 else own[0]
    return fields


def assert_market_is(sim: ks.Simulator, m: int, seen: dict) -> None:
    got = {name: tensor[m].tolist() for name, tensor in sim.tensors.items() if name != "about"}
    got |= {"last_price": int(sim.last_price[m]), "mid2": int(sim.mid2[m]), "fundamental": got["fundamental_price"]}
    for name in got.keys() & seen.keys() - {"prev_mid2"}:
        assert got[name] == seen[name], name
    assert seen["prev_mid2"] == got["prev_mid2"] + 2 * got["price_origin"]


def play_beside(engine: str, number: int, decisions: int = 8, markets: int = 3) -> ks.MarketConfig:
    """Play random decisions on an engine and on one reference per market; go on from a saved state in between."""
    rng = random.Random(number)
    fields = ensemble_fields(rng, markets)
    slots, seed = random_slots(rng, fields), rng.randrange(10**6)
    config = ks.MarketConfig(**fields)
    sim = ks.Simulator(config, markets, engine=engine, seed=seed, slots=slots)
    alone = [Reference(config.to_dict(), slots, seed, m) for m in range(markets)]
    for decision in range(decisions):
        if decision == decisions // 2:
            mask = np.array([rng.random() < 0.5 for _ in alone])
            sim.reset(mask=mask)
            for chosen, reference in zip(mask, alone, strict=True):
                if chosen:
                    reference.reset()
        quotes = [random_quotes(rng, reference.observe(), len(slots)) for reference in alone]
        fresh, n = slots and rng.random() < 0.8, rng.choice([1, 1, 2, 5])
        fills = sim.step(torch.tensor(quotes, dtype=torch.int32) if fresh else None, n)
        for m, reference in enumerate(alone):
            seen = reference.decision(quotes[m] if fresh else None, n)
            assert_market_is(sim, m, seen[-1])
            for k in range(len(slots)):
                assert fills[m, k].tolist() == np.sum([one["fills"][k] for one in seen], axis=0).tolist()
        sim = sim.branch()
    return config


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("number", range(examples(60)))
def test_engines_are_the_reference(engine, number):
    play_beside(engine, number)


def test_random_cases_have_every_lever():
    configs = [ks.MarketConfig(**ensemble_fields(random.Random(number), 3)) for number in range(60)]
    for name in LEVERS:
        values = {value for config in configs for value in np.atleast_1d(getattr(config, name)).tolist()}
        assert len(values) > 1, name
    assert sum(config.regimes is not None for config in configs) > 10


# Kernels on the CPU against the C++ engine ----------------------------------------------------------------------------


@pytest.fixture
def twice(kernels, monkeypatch):
    """Make something with the C++ engine, and again with a variant of the kernel."""

    def make(variant, what):
        with monkeypatch.context() as patch:
            patch.setattr(build, "load_cpu", lambda: kernels[f"{variant} and levers"])
            kernel = what()
        return what(), kernel

    return make


def play_twice(twice, variant: str, play: Play) -> None:
    first, second = twice(variant, lambda: open_simulator("cpu", play))
    for number, move in enumerate(play.moves):
        assert_same(make_move(second, move), make_move(first, move), f"move {number} {move}:")


@settings(max_examples=examples(40), suppress_health_check=[quiet])
@given(play=plays(levels=(8, 32, 128)), levers=SEEDS)
def test_runs_of_warps_agree(twice, play, levers):
    play_twice(twice, "warp", dataclasses.replace(play, config=under_levers(play.config, levers)))


@settings(max_examples=examples(40), suppress_health_check=[quiet])
@given(play=plays(levels=(64, 128), reach=15), levers=SEEDS)
def test_runs_of_warps_with_bins_agree(twice, play, levers):
    play_twice(twice, "warp with bins", dataclasses.replace(play, config=under_levers(play.config, levers, reach=15)))


def environment_under(environment, change):
    (config, *rest), *others = environment
    return (change(config), *rest), *others


def check_environment(twice, variant, environment):
    check_cores_agree(twice(variant, lambda: make_cores(*environment[:2], ("cpu",))[0]), environment, 0.05)


@pytest.mark.parametrize("variant", ["warp", "warp with bins"])
@settings(max_examples=examples(25), suppress_health_check=[quiet])
@given(environment=environments(), levers=SEEDS)
def test_environments_of_warps_agree(twice, variant, environment, levers):
    check_environment(twice, variant, environment_under(environment, lambda c: under_levers(c, levers, reach=12)))


@settings(max_examples=examples(25), suppress_health_check=[quiet])
@given(environment=environments(most_slots=1), levers=SEEDS)
def test_environments_of_one_slot_agree(twice, environment, levers):
    environment = environment_under(environment, lambda c: under_levers(c, levers, reach=12))
    check_environment(twice, "warp of one slot", environment)


@pytest.mark.parametrize("variant", ["lanes", "lanes and deadlines"])
@settings(max_examples=examples(40), suppress_health_check=[quiet])
@given(environment=environments(most_slots=1), coin=st.lists(st.booleans(), min_size=4, max_size=4))
def test_environments_of_lanes_agree_under_the_coin(twice, variant, environment, coin):
    def toss(config):
        markets = max(config.per_market.values(), default=0)
        return config.replace(rounding=[("even", "coin")[c] for c in coin[:markets]] if markets else "coin", fee=-7)

    check_environment(twice, variant, environment_under(environment, toss))


# The plan -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "levers"),
    [
        ({}, 0),
        ({"fee": -5}, 0),
        ({"rounding": ["even", "coin"]}, 1),
        ({"rounding": "coin", "tax": [0, 1]}, 2),
        ({"taker_offset": 0}, 2),
        ({"tick_size": 2}, 2),
        ({"collar": 1}, 2),
        ({"reference": "fundamental"}, 2),
        ({"regimes": [{}]}, 2),
    ],
)
def test_levers_are_told_apart(fields, levers):
    config = ks.MarketConfig(**fields)
    rows = ks.config.parameter_rows(config, 2, ks.config.class_counts(config, 2), {})
    assert variants.levers_of(rows) == levers
