"""Continuous trading where lanes share a market: the kernel's source with a fiber per lane does what the C++ engine does."""

import gymnasium as gym
import pytest
import torch
from build_helpers import needs_compiler

import kineticsim_env as ks

pytestmark = needs_compiler


def run(config, seed, markets=3):
    sim = ks.Simulator(config, num_markets=markets, engine="cpu", seed=seed)
    series = sim.run(40, record=["last_price", "volume", "mid2", "fundamental", "best_bid", "bid_depth", "signed_volume"])
    return {**{name: tensor.clone() for name, tensor in sim.state_dict().items() if name != "about"}, **series}


@pytest.mark.parametrize("preset", ["news", "continuous", "realistic"])
def test_runs_agree(twice, preset):
    config = ks.MarketConfig.preset(preset, agents={}) if preset == "realistic" else ks.MarketConfig.preset(preset)
    one, two = twice("shared markets", lambda: run(config, 7))
    for name in one:
        assert torch.equal(one[name], two[name]), name


def steps(task, **settings):
    envs = gym.make_vec(f"KineticSim/{task}-v0", num_envs=4, engine="cpu", output="torch", bank_size=3, warmup=9, horizon=6, **settings)
    envs = envs.unwrapped
    envs.reset(seed=3)
    torch.manual_seed(0)
    results = []
    for _ in range(5 if settings["autoreset_mode"] == "disabled" else 14):
        action = torch.rand(4, *envs.single_action_space.shape) * 2 - 1
        results += [part.clone() for part in envs.step(action)[:4]]
    return results + [tensor.clone() for name, tensor in sorted(envs.state_dict().items()) if name != "about"]


@pytest.mark.parametrize("task", ["MarketMaking", "Execution", "Trading"])
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_steps_agree(twice, task, mode):
    one, two = twice("shared markets", lambda: steps(task, autoreset_mode=mode))
    for number, (a, b) in enumerate(zip(one, two, strict=True)):
        assert torch.equal(a, b), number
