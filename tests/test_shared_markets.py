"""Continuous trading where the lanes of a warp share a market: the kernel's source does what the C++ engine does.

It has a fiber per lane. They take turns in either order from one place at which lanes wait to the next, so that a lane
that does not wait for what it needs gets another result.
"""

import random

import gymnasium as gym
import pytest
import torch
from build_helpers import needs_compiler
from ensembles import Ensemble, random_ensemble
from env_helpers import check_cores_agree, clock_environments, make_cores
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.runtime import build

pytestmark = needs_compiler
KERNEL = "shared markets"


def fields_of(rng, markets):
    """Return the fields of a random ensemble under continuous trading, and its slots."""
    return random_ensemble(rng, "clock", "continuous", markets, markets > 1 and rng.random() < 0.6)


@pytest.mark.parametrize("seed", range(examples(60)))
def test_random_markets(kernels, monkeypatch, seed):
    """Beside the independent reference: runs, steps, rollouts, resets, saved states, branches."""
    monkeypatch.setattr(build, "load_cpu", lambda: kernels[KERNEL])
    rng = random.Random(f"shared {seed}")
    markets = rng.randint(1, 3)
    fields, slots = fields_of(rng, markets)
    both = Ensemble(fields, slots, markets, rng.randrange(1 << 40), "cpu")
    for _ in range(5):
        both.move(rng)


@pytest.mark.parametrize("preset", ["news", "continuous"])
def test_runs_of_presets(twice, preset):
    sims = twice(KERNEL, lambda: ks.Simulator(ks.MarketConfig.preset(preset), 3, engine="cpu", seed=7))
    for intervals in (1, 40, 7):
        series = [sim.run(intervals, record=["last_price", "volume", "best_bid"]) for sim in sims]
        assert_alike(*series)
        assert_alike(*(sim.tensors for sim in sims))


def assert_alike(one, two):
    for name, tensor in one.items():
        assert torch.equal(tensor.cpu(), two[name].cpu()), name


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(environment=clock_environments(), bad=st.sampled_from([0.0, 0.05]))
def test_random_environments(kernels, monkeypatch, environment, bad):
    """Of any slots, tasks, levers, regimes and scenarios, with resets between steps."""
    environment = continuous(environment)
    (first,) = make_cores(*environment[:2], ("cpu",))
    with monkeypatch.context() as patch:
        patch.setattr(build, "load_cpu", lambda: kernels[KERNEL])
        (second,) = make_cores(*environment[:2], ("cpu",))
    check_cores_agree([first, second], environment, bad)


def continuous(environment):
    (config, *rest), *others = environment
    return (config.replace(mechanism="continuous"), *rest), *others


@pytest.mark.parametrize("task", ["MarketMaking", "Execution", "Trading"])
def test_steps_of_the_default_market(twice, task):
    """Over the ends of episodes, which come at different times."""
    kind = {"engine": "cpu", "output": "torch", "bank_size": 3, "warmup": 9, "horizon": 6}
    envs = twice(KERNEL, lambda: gym.make_vec(f"KineticSim/{task}-v0", num_envs=4, **kind).unwrapped)
    for one in envs:
        one.reset(seed=3)
    envs[0].action_space.seed(3)
    for _ in range(14):
        actions = envs[0].action_space.sample()
        for one, two in zip(*(env.step(torch.as_tensor(actions))[:4] for env in envs), strict=True):
            assert torch.equal(one, two)
    states = [{name: part for name, part in env.state_dict().items() if name != "about"} for env in envs]
    assert_alike(*states)


# Any number of lanes, several markets to a warp -----------------------------------------------------------------------

ENGINES = ("cpu", "cuda")
LANES = pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 32])


@pytest.mark.gpu
@LANES
@pytest.mark.parametrize("seed", range(3))
def test_runs_with_any_number_of_lanes(lanes, seed):
    rng = random.Random(f"lanes {seed}")
    fields, slots = fields_of(rng, 3)
    markets = 3 if any(isinstance(value, list) for name, value in fields.items() if name != "regimes") else 70
    sims = [
        ks.Simulator(ks.MarketConfig(**fields), markets, engine=name, seed=seed, slots=slots)
        for name in ("cpu", "cuda")
    ]
    sims[1].engine.force = {"KS_LANES_PER_MARKET": lanes}
    for intervals in (1, 5, 20):
        assert_alike(*(sim.run(intervals, record=["mid2", "volume", "best_ask"]) for sim in sims))
        assert_alike(*(sim.tensors for sim in sims))


@pytest.mark.gpu
@LANES
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow])
@given(environment=clock_environments())
def test_environments_with_any_number_of_lanes(lanes, environment):
    environment = continuous(environment)
    cores = make_cores(*environment[:2], ENGINES)
    cores[1].simulator.engine.force = {"KS_LANES_PER_MARKET": lanes}
    check_cores_agree(cores, environment, 0.0)


@pytest.mark.gpu
@LANES
def test_the_default_market_with_any_number_of_lanes(lanes):
    """Blocks are forced at the deadline, and some markets of a warp end while others go on."""
    kind = {"output": "torch", "bank_size": 16, "warmup": 50, "horizon": 12}
    envs = [
        gym.make_vec("KineticSim/Execution-v0", num_envs=75, engine=name, **kind).unwrapped for name in ("cpu", "cuda")
    ]
    envs[1].core.simulator.engine.force = {"KS_LANES_PER_MARKET": lanes}
    for one in envs:
        one.reset(seed=3)
    envs[0].action_space.seed(3)
    for _ in range(30):
        actions = torch.as_tensor(envs[0].action_space.sample())
        for one, two in zip(*(env.step(actions.to(env.device))[:4] for env in envs), strict=True):
            assert torch.equal(one, two.cpu())


@pytest.mark.gpu
def test_a_large_grid_has_all_lanes_of_a_warp():
    """Shared memory does not hold 32 such books."""
    config = ks.MarketConfig.preset("continuous", num_levels=8192, init_price=4096)
    sims = [ks.Simulator(config, 5, engine=name, seed=1) for name in ENGINES]
    for sim in sims:
        sim.run(20)
    assert_alike(*(sim.tensors for sim in sims))
