"""Levers and regimes where each agent comes once: the engines against the plain reference, and against each other."""

import dataclasses
import random

import pytest
from build_helpers import needs_compiler
from ensembles import Ensemble, random_ensemble
from env_helpers import check_agreement, check_cores_agree, environments, make_cores
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import play_together, play_twice, plays, under_levers
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.engines import variants
from kineticsim_env.engines.parameters import class_counts, parameter_rows
from kineticsim_env.envs.state_dict import load_state, state_of
from kineticsim_env.runtime import layout
from kineticsim_env.tasks import ManyLearnersTask

pytestmark = needs_compiler
ENGINES = ("cpu",)
SEEDS = st.integers(0, 2**32)
LEVERS = ("rounding", "reference", "taker_offset", "tax", "collar", "tick_size", "fee")
quiet = HealthCheck.function_scoped_fixture


def environment_under(environment, change):
    (config, *rest), *others = environment
    return (change(config), *rest), *others


# The C++ engine against the reference and the NumPy engine ------------------------------------------------------------


def random_plays(seed: int, engine: str) -> ks.MarketConfig:
    """Make random calls of a simulator, and all of them on one reference per market; return the config."""
    rng = random.Random(seed)
    markets = rng.choice([1, 2, 4])
    fields, slots = random_ensemble(rng, "each", "call", markets, markets > 1 and rng.random() < 0.6)
    both = Ensemble(fields, slots, markets, rng.randrange(1 << 40), engine)
    both.assert_same()
    for _ in range(8):
        both.move(rng)
    return both.config


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(examples(100)))
def test_engines_are_the_reference(engine, seed):
    random_plays(seed, engine)


def test_random_cases_have_every_lever():
    """Or the test above would say little."""
    drawn = [random_ensemble(random.Random(seed), "each", "call", 4, True)[0] for seed in range(60)]
    for name in LEVERS:
        assert len({value for fields in drawn for value in fields[name]}) > 1, name
    assert sum("regimes" in fields for fields in drawn) > 10


@settings(max_examples=examples(60), derandomize=True)
@given(play=plays(), levers=SEEDS)
def test_plays_on_the_numpy_engine_agree(play, levers):
    play_together(dataclasses.replace(play, config=under_levers(play.config, levers)), ("cpu", "numpy"))


@settings(max_examples=examples(60))
@given(environment=environments(), levers=SEEDS, bad=st.sampled_from((0.0, 0.05)))
def test_environments_on_the_numpy_engine_agree(environment, levers, bad):
    environment = environment_under(environment, lambda config: under_levers(config, levers))
    check_agreement(environment, bad, ("cpu", "numpy"))


@pytest.mark.gpu
@settings(max_examples=examples(100), derandomize=True)
@given(play=plays(), levers=SEEDS)
def test_plays_on_a_gpu_agree(play, levers):
    play_together(dataclasses.replace(play, config=under_levers(play.config, levers)), ("cpu", "cuda"))


@pytest.mark.gpu
@settings(max_examples=examples(60))
@given(environment=environments(), levers=SEEDS, bad=st.sampled_from((0.0, 0.05)))
def test_environments_on_a_gpu_agree(environment, levers, bad):
    environment = environment_under(environment, lambda config: under_levers(config, levers))
    check_agreement(environment, bad, ("cpu", "cuda"))


# Kernels on the CPU against the C++ engine ----------------------------------------------------------------------------


@settings(max_examples=examples(40), suppress_health_check=[quiet])
@given(play=plays(levels=(8, 32, 128)), levers=SEEDS)
def test_runs_of_warps_agree(twice, play, levers):
    play_twice(twice, "warp and levers", dataclasses.replace(play, config=under_levers(play.config, levers)))


@settings(max_examples=examples(40), suppress_health_check=[quiet])
@given(play=plays(levels=(64, 128), reach=15), levers=SEEDS)
def test_runs_of_warps_with_bins_agree(twice, play, levers):
    config = under_levers(play.config, levers, reach=15)
    play_twice(twice, "warp with bins and levers", dataclasses.replace(play, config=config))


def check_environment(twice, kernel, environment):
    check_cores_agree(twice(kernel, lambda: make_cores(*environment[:2], ("cpu",))[0]), environment, 0.05)


@pytest.mark.parametrize("variant", ["warp", pytest.param("warp with bins", marks=pytest.mark.slow)])
@settings(max_examples=examples(25), suppress_health_check=[quiet])
@given(environment=environments(), levers=SEEDS)
def test_environments_of_warps_agree(twice, variant, environment, levers):
    environment = environment_under(environment, lambda c: under_levers(c, levers, reach=12))
    check_environment(twice, f"{variant} and levers", environment)


@settings(max_examples=examples(25), suppress_health_check=[quiet])
@given(environment=environments(most_slots=1), levers=SEEDS)
def test_environments_of_one_slot_agree(twice, environment, levers):
    environment = environment_under(environment, lambda c: under_levers(c, levers, reach=12))
    check_environment(twice, "warp of one slot and levers", environment)


@pytest.mark.parametrize("variant", ["lanes", "lanes and deadlines", "warp of one slot"])
@settings(max_examples=examples(40), suppress_health_check=[quiet])
@given(environment=environments(most_slots=1), coin=st.lists(st.booleans(), min_size=4, max_size=4))
def test_environments_agree_under_the_coin_alone(twice, variant, environment, coin):
    def toss(config):
        markets = max(config.per_market.values(), default=0)
        return config.replace(rounding=[("even", "coin")[c] for c in coin[:markets]] if markets else "coin", fee=-7)

    check_environment(twice, f"{variant} and rounding", environment_under(environment, toss))


@settings(max_examples=examples(40), suppress_health_check=[quiet])
@given(play=plays(levels=(8, 32, 128)))
def test_runs_agree_under_the_coin_alone(twice, play):
    coin = dataclasses.replace(play, config=play.config.replace(rounding="coin"))
    play_twice(twice, "warp and rounding", coin)


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
    rows = parameter_rows(config, 2, class_counts(config, 2), {})
    assert variants.levers_of(rows) == levers


# Environments ---------------------------------------------------------------------------------------------------------


def regime_environment(engine: str, **settings):
    """An environment whose markets change their regime now and then, and differ in one parameter."""
    fields = {"regimes": [{}, {"noise_spread": 3}, {"max_order_qty": 9}], "regime_switch_prob": 0.5, "tick_size": 2}
    task = ManyLearnersTask(horizon=5, **settings)
    kwargs = {"slots": [None], "autoreset_mode": "same_step", "randomise": {"fee": (-9, 9)}, "num_scenarios": 3}
    arguments = (ks.MarketConfig.preset("trading", **fields), 40, task, ["trader"])
    return make_cores(arguments, kwargs, (engine,))[0]


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_a_warm_start_carries_its_regime(engine):
    """All episodes begin from the same snapshot here; without one each draws its own regime."""
    warm = regime_environment(engine, bank_size=1, bank_per_market=1, warmup=7)
    bank = warm.live_task.warm_starts._bank
    warm.reset(3)
    rows = warm.tensors["scenario"].long()
    assert warm.simulator.tensors["regime"].tolist() == bank["bank_regime"][rows].tolist()
    cold = regime_environment(engine, bank_size=0)
    cold.reset(3)
    assert len(set(cold.simulator.tensors["regime"].tolist())) == 3


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
@pytest.mark.parametrize(("name", "value"), [("regimes", 64), ("regimes", 0), ("tick_size", 65)])
def test_saved_parameters_name_no_regime_that_is_not_there(engine, name, value):
    core = regime_environment(engine, bank_size=0)
    core.reset(1)
    saved = state_of(core)
    saved["parameters"] = saved["parameters"].clone()
    saved["parameters"][2, list(layout.PARAMS_FIELDS).index(name)] = value
    with pytest.raises(ValueError, match=f"expected {name} from .*, got {value}"):
        load_state(core, saved, strict=True)


@pytest.mark.parametrize("number", [-1, 3, 2**31 - 1, -(2**31)])
def test_any_number_in_a_live_regime_is_safe(number):
    sim = ks.Simulator(ks.MarketConfig(regimes=[{}, {"noise_spread": 9}]), 4, engine="cpu")
    sim.tensors["regime"].fill_(number)
    sim.run(3)
    assert bool((sim.trades > 0).all())
