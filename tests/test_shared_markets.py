"""Continuous trading where the lanes of a warp share a market: the kernel's source does what the C++ engine does.

It has a fiber per lane. They take turns in either order from one place at which lanes wait to the next, so that a lane
that does not wait for what it needs gets another result.
"""

import random

import gymnasium as gym
import pytest
import torch
from build_helpers import needs_compiler
from ensembles import random_ensemble
from env_helpers import check_cores_agree, clock_environments, make_cores
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thorough import covering, examples

import kineticsim_env as ks
from kineticsim_env.runtime import build

pytestmark = needs_compiler
KERNEL = "shared markets"
SERIES = [
    "last_price",
    "volume",
    "mid2",
    "fundamental",
    "best_bid",
    "best_ask",
    "bid_depth",
    "ask_depth",
    "signed_volume",
]


def played(make, moves):
    """Return all series and the state after each of some runs of a simulator."""
    sim, results = make(), []
    for auctions in moves:
        results.append(sim.run(auctions, record=SERIES) | {k: v.clone() for k, v in sim.tensors.items()})
    return results


def assert_alike(one, two):
    for number, (first, second) in enumerate(zip(one, two, strict=True)):
        for name, tensor in first.items():
            assert torch.equal(tensor, second[name]), f"run {number}, {name}"


@pytest.mark.parametrize("preset", ["news", "continuous"])
def test_runs_of_presets(twice, preset):
    config = ks.MarketConfig.preset(preset)
    assert_alike(*twice(KERNEL, lambda: played(lambda: ks.Simulator(config, 3, engine="cpu", seed=7), (1, 40, 7))))


@pytest.mark.parametrize("seed", range(12))
def test_random_markets(twice, seed):
    rng = random.Random(f"shared {seed}")
    markets = rng.randint(1, 3)
    fields, slots = random_ensemble(rng, "clock", "continuous", markets, markets > 1 and rng.random() < 0.6)
    config = ks.MarketConfig(**fields)

    def make():
        return ks.Simulator(config, markets, engine="cpu", seed=seed, slots=slots)

    assert_alike(*twice(KERNEL, lambda: played(make, (1, 9, 3))))


def steps(task, **more):
    """Return everything that some steps over two ends of episodes lead to."""
    kind = {"engine": "cpu", "output": "torch", "bank_size": 3, "warmup": 9, "horizon": 6}
    envs = gym.make_vec(f"KineticSim/{task}-v0", num_envs=4, **kind, **more).unwrapped
    envs.reset(seed=3)
    torch.manual_seed(0)
    results = []
    for _ in range(5 if more["autoreset_mode"] == "disabled" else 14):
        results += [part.clone() for part in envs.step(torch.rand(4, *envs.single_action_space.shape) * 2 - 1)[:4]]
    return results + [tensor.clone() for name, tensor in sorted(envs.state_dict().items()) if name != "about"]


@covering
@pytest.mark.parametrize("task", ["MarketMaking", "Execution", "Trading"])
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_steps_of_the_default_market(twice, task, mode):
    one, two = twice(KERNEL, lambda: steps(task, autoreset_mode=mode, stagger=mode != "disabled"))
    assert all(map(torch.equal, one, two))


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(environment=clock_environments(), bad=st.sampled_from([0.0, 0.05]))
def test_random_environments(kernels, monkeypatch, environment, bad):
    """Of any slots, tasks, levers, regimes and scenarios, with resets between steps."""
    (config, *rest), kwargs, seed, number = environment
    arguments = config.replace(mechanism="continuous"), *rest
    (first,) = make_cores(arguments, kwargs, ("cpu",))
    with monkeypatch.context() as patch:
        patch.setattr(build, "load_cpu", lambda: kernels[KERNEL])
        (second,) = make_cores(arguments, kwargs, ("cpu",))
    check_cores_agree([first, second], (arguments, kwargs, seed, number), bad)
