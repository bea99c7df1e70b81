"""Continuous trading where the lanes of a warp share a market, or have one each: as the C++ engine does it.

It has a fiber per lane. They take turns in either order from one place at which lanes wait to the next, so that a lane
that does not wait for what it needs gets another result.
"""

import ctypes
import random

import gymnasium as gym
import pytest
import torch
from build_helpers import CLOCK_KERNELS, needs_compiler
from ensembles import Ensemble, random_ensemble
from env_helpers import check_cores_agree, clock_environments, make_cores, steps_alike
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.runtime import build
from kineticsim_env.tasks import ManyLearnersTask

pytestmark = needs_compiler
of_each_kernel = pytest.mark.parametrize("kernel", CLOCK_KERNELS)


def fields_of(rng, markets):
    """Return the fields of a random ensemble under continuous trading, and its slots."""
    return random_ensemble(rng, "clock", "continuous", markets, markets > 1 and rng.random() < 0.6)


@of_each_kernel
@pytest.mark.parametrize("seed", range(examples(60)))
def test_random_markets(kernels, monkeypatch, kernel, seed):
    """Beside the independent reference: runs, steps, rollouts, resets, saved states, branches."""
    monkeypatch.setattr(build, "load_cpu", lambda: kernels[kernel])
    rng = random.Random(f"shared {seed}")
    markets = rng.randint(1, 3)
    fields, slots = fields_of(rng, markets)
    both = Ensemble(fields, slots, markets, rng.randrange(1 << 40), "cpu")
    for _ in range(5):
        both.move(rng)


@of_each_kernel
@pytest.mark.parametrize("preset", ["news", "continuous"])
def test_runs_of_presets(twice, kernel, preset):
    sims = twice(kernel, lambda: ks.Simulator(ks.MarketConfig.preset(preset), 3, engine="cpu", seed=7))
    for intervals in (1, 40, 7):
        series = [sim.run(intervals, record=["last_price", "volume", "best_bid"]) for sim in sims]
        assert_alike(*series)
        assert_alike(*(sim.tensors for sim in sims))


def assert_alike(one, two):
    for name, tensor in one.items():
        assert torch.equal(tensor.cpu(), two[name].cpu()), name


@of_each_kernel
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(environment=clock_environments(), bad=st.sampled_from([0.0, 0.05]))
def test_random_environments(kernels, monkeypatch, kernel, environment, bad):
    """Of any slots, tasks, levers, regimes and scenarios, with resets between steps."""
    environment = continuous(environment)
    (first,) = make_cores(*environment[:2], ("cpu",))
    with monkeypatch.context() as patch:
        patch.setattr(build, "load_cpu", lambda: kernels[kernel])
        (second,) = make_cores(*environment[:2], ("cpu",))
    check_cores_agree([first, second], environment, bad)


def continuous(environment):
    (config, *rest), *others = environment
    return (config.replace(mechanism="continuous"), *rest), *others


@of_each_kernel
@pytest.mark.parametrize("task", ["MarketMaking", "Execution", "Trading"])
def test_steps_of_the_default_market(twice, kernel, task):
    """Over the ends of episodes, which come at different times."""
    kind = {"engine": "cpu", "output": "torch", "bank_size": 3, "warmup": 9, "horizon": 6}
    envs = twice(kernel, lambda: gym.make_vec(f"KineticSim/{task}-v0", num_envs=4, **kind).unwrapped)
    for one in envs:
        one.reset(seed=3)
    envs[0].action_space.seed(3)
    for _ in range(14):
        actions = envs[0].action_space.sample()
        for one, two in zip(*(env.step(torch.as_tensor(actions))[:4] for env in envs), strict=True):
            assert torch.equal(one, two)
    states = [{name: part for name, part in env.state_dict().items() if name != "about"} for env in envs]
    assert_alike(*states)


@of_each_kernel
def test_lanes_have_read_an_episode_before_the_next_one_overwrites_it(twice, kernel):
    """Its scenario and what its initial inventory was worth: a step ends an episode and begins one with others."""
    task = ManyLearnersTask(horizon=1, bank_size=0, initial_inventory=3)
    how = {"slots": (None, None), "autoreset_mode": "same_step", "account_info": True, "num_scenarios": 5}
    drawn = {"randomise": {"noise_spread": (2, 9), "task.initial_inventory": {"values": [-5, 2, 9]}}}
    arguments = (ks.MarketConfig.preset("news"), 6, task, ["maker", "trader"]), how | drawn
    cores = twice(kernel, lambda: make_cores(*arguments, ("cpu",))[0])
    for _ in steps_alike(cores, 3, 4, 6):
        assert len(set(cores[0].tensors["scenario"].tolist())) > 1


@of_each_kernel
def test_markets_whose_only_agent_is_replaced(twice, kernel):
    """Events come, but nobody with an order: the quote that stands alone is not traded with, and the price stays."""
    fields = {"num_agents": 1, "noise": 0.0, "momentum": 0.0, "maker": 0.0, "fundamental": 1.0, "init_depth": 0}
    config = ks.MarketConfig(arrivals="clock", mechanism="continuous", noise_spread=0, taker_offset=3, **fields)
    task = ManyLearnersTask(horizon=5, bank_size=0, warmup=0)
    arguments = (config, 4, task, ["fundamental"]), {"slots": ("fundamental",)}
    cores = twice(kernel, lambda: make_cores(*arguments, ("cpu",))[0])
    for _ in steps_alike(cores, 0, 0, 12):
        assert not bool(cores[0].simulator.tensors["volume"].any())


@given(place_of=st.lists(st.sampled_from([0, 0, 0, 1, 2]), min_size=32, max_size=32), gone=st.sets(st.integers(0, 31)))
def test_lanes_wait_for_each_other(kernels, place_of, gone):
    """A GPU runs lanes at one place together, or some of them: no lane may wait for one that does not wait for it."""
    lanes, mask_among = 8, kernels["four markets of a warp"].ks_mask_among
    fragments = [[lane for lane in range(32) if place_of[lane] == place and lane not in gone] for place in range(3)]
    masks = {}
    for fragment in fragments:
        here = ctypes.c_uint32(sum(1 << lane for lane in fragment))
        for lane in fragment:
            masks[lane] = mask_among(here, lane) & 0xFFFFFFFF
    for lane, mask in masks.items():
        whole = ((1 << lanes) - 1) << (lane // lanes * lanes)
        assert mask & whole == whole
        assert all(masks[other] == mask for other in masks if mask >> other & 1), f"lane {lane} waits for {mask:#x}"


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
@pytest.mark.parametrize("reach", [4095, 4096])
def test_orders_as_far_off_as_a_lane_can_say(reach):
    """Of more markets than lanes of whole warps would play, beside the C++ engine."""
    config = ks.MarketConfig.preset("continuous", noise_spread=reach, taker_offset=reach, maker_half_spread=reach)
    sims = [ks.Simulator(config, 5000, engine=name, seed=3) for name in ENGINES]
    for _ in range(2):
        assert_alike(*(sim.run(3, record=["mid2", "volume"]) for sim in sims))
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
