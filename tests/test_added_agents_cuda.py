"""Agents that users have added, in the CUDA kernels: a market per warp on a CPU, and on a GPU.

Kernels are compiled with the text of all `CLASSES` of agent_classes.py; configs have some agents of
each, or none.
"""

import contextlib
import dataclasses
import random
import re
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from agent_classes import CLASSES, anywhere, at_the_best, copied_noise, trend_follower, with_agents
from build_helpers import builders, compile_kernel, device_like
from env_helpers import check_agreement, check_cores_agree, clock_environments, environments, make_cores
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import Play, fitting_slots, make_config, play_together, play_twice, under_levers
from thorough import THOROUGH, examples, slow

import kineticsim_env as ks
from kineticsim_env.agents import programs
from kineticsim_env.config import CLASSES as BUILT_IN
from kineticsim_env.engines import variants
from kineticsim_env.engines.agents import agent_groups, parameter_table
from kineticsim_env.engines.cuda import CudaEngine
from kineticsim_env.engines.parameters import class_counts, parameter_rows
from kineticsim_env.runtime import build, layout
from kineticsim_env.runtime import kernels as kernels_of_package

needs_compiler = pytest.mark.skipif(build.cpu_unavailable() is not None, reason="no C++ compiler")
VARIANTS = [f"warp{bins}{levers} and agents" for bins in ("", " with bins") for levers in ("", " and levers")]
VARIANTS.append("warp with bins and rounding and agents")


def with_all(config: ks.MarketConfig, seed: int, markets: int, kinds: Sequence = CLASSES) -> ks.MarketConfig:
    """Return a config with agents of some of `kinds` and none of the others, in the order that kernels have."""
    found = with_agents(config, seed, markets, kinds)
    return found.replace(agents={kind: found.agents.get(kind, ks.mix(0)) for kind in kinds})


def random_play(seed: str, bins: bool, levers: str, clock: bool, markets: int = 0) -> Play:
    """Return a play of few small markets: with levers, with rounding alone ("rounding") or without ("")."""
    rng = random.Random(seed)
    markets = markets or rng.choice([1, 2, 3])
    agents = rng.choice([1, 3, 33, 70])
    reach = 15 if bins else rng.choice([3, 40, 32767])
    options = frozenset(name for name in ("walk", "cancel", "window", "tie", "residue", "fee") if rng.random() < 0.4)
    levels = rng.choice([8, 16, 32, 64, 128, 256])
    config = make_config(rng.randrange(1 << 30), levels, agents, options, markets, rng.random() < 0.4, reach)
    if levers == "levers":
        config = under_levers(config, rng.randrange(1 << 30), reach)
    elif levers:
        config = config.replace(rounding="coin")
    config = with_all(config, rng.randrange(1 << 30), markets)
    if clock:
        interval = rng.choice([1, 7, 40, 64, 150])
        config = config.replace(arrivals="clock", interval=interval, beat=rng.choice([interval, 3, 50, 200]))
    many = rng.choice([0, 1, 1, 3])
    slots = fitting_slots(config, markets, [rng.choice([None, *BUILT_IN]) for _ in range(many)])
    moves: list[tuple] = []
    for _ in range(4):
        style, number = rng.choice(["near", "wide", "one_tick", "crossed", "edge", "border"]), rng.randrange(1 << 30)
        kinds = [("run", rng.choice([1, 2, 5])), ("reset", "next episode", rng.random() < 0.5, number), ("reload",)]
        if many:
            kinds += [("step", rng.choice([1, 3]), style, number), ("rollout", 2, 1, style, number)]
        moves.append(rng.choice(kinds))
    return Play(config, markets, slots, rng.randrange(1 << 40), tuple(moves))


def play_for(variant: str, seed: int, clock: bool) -> Play:
    """Return a play that suits a kernel of `HOST_KERNELS`."""
    levers = next((name for name in ("levers", "rounding") if name in variant), "")
    return random_play(f"{variant} {seed} {clock}", "bins" in variant, levers, clock)


@slow
@needs_compiler
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", range(examples(60)))
def test_where_each_agent_comes_once(twice, variant, seed):
    play_twice(twice, variant, play_for(variant, seed, False))


@slow
@needs_compiler
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", range(examples(60)))
def test_calls_on_the_clock(twice, variant, seed):
    play_twice(twice, variant, play_for(variant, seed, True))


# Environments ---------------------------------------------------------------------------------------------------------


def row(value):
    """Return the first market's parameter."""
    return value if np.ndim(value) < 2 else value[0] if value.shape[1] != 1 else int(value[0, 0])


def with_all_in(environment, seed):
    """Return an environment's arguments with agents of `CLASSES` in its market."""
    (config, markets, task, roles), kwargs, number, steps = environment
    lanes = min(int(np.max(config.num_agents)), 16)
    config = with_all(config.replace(num_agents=lanes), seed, markets)
    alike = {  # of all markets
        kind: ks.mix(made.count, **{name: row(value) for name, value in made.parameters.items()})
        for kind, made in config.agents.items()
    }
    config = config.replace(agents=alike)
    slots = fitting_slots(config, markets, kwargs["slots"])
    return (config, markets, task, roles), kwargs | {"slots": slots}, number, min(steps, 8)


@slow
@needs_compiler
@pytest.mark.parametrize("variant", ["warp and agents", "warp with bins and agents", "warp of one slot and agents"])
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_environments(kernels, monkeypatch, variant, data, seed):
    environment = data.draw(environments(most_slots=1 if "slot" in variant else 6))
    environment = with_all_in(environment, seed)
    (oracle,) = make_cores(*environment[:2], ("numpy",))
    with monkeypatch.context() as patch:
        patch.setattr(build, "load_cpu", lambda: kernels[variant])
        (core,) = make_cores(*environment[:2], ("cpu",))
    check_cores_agree([oracle, core], environment, 0.05)


# Builders -------------------------------------------------------------------------------------------------------------

TEXT = programs.text_of_all(CLASSES)
EACH = {"KS_BINS": 16, "KS_OPTIONS": 1, "KS_SLOTS": 1, "KS_TASK": 0}
KERNELS = {
    "each": EACH,
    "each, with levers": {**EACH, "KS_BINS": 0, "KS_LEVERS": 2, "KS_SLOTS": 2},
    "calls on the clock": {**EACH, "KS_EVENTS": 1},
    "calls on the clock, environments": {**EACH, "KS_EVENTS": 1, "KS_TASK": 1},
    "continuous": {**EACH, "KS_EVENTS": 2},
    "continuous, environments at deadlines": {**EACH, "KS_EVENTS": 2, "KS_TASK": 1, "KS_DEADLINES": 1},
    "environments": {**EACH, "KS_TASK": 1},
    "environments on lanes": {**EACH, "KS_TASK": 1, "KS_BINS": 0, "KS_LANES": 30},
    "and at deadlines": {**EACH, "KS_TASK": 1, "KS_LANES": 30, "KS_DEADLINES": 1, "KS_LEVERS": 1},
}


@slow
@pytest.mark.parametrize("builder", builders())
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_compile_with_the_text_of_classes(builder, name):
    if name != "each" and builder == "nvcc" and not THOROUGH:
        pytest.skip("make test-all compiles it")
    with_agents_too = compile_kernel(builder, 90, {**KERNELS[name], "KS_AGENTS": len(CLASSES)}, agents=TEXT)
    assert with_agents_too.startswith(b"\x7fELF")


# Which kernels are asked for ------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """The definitions and the texts of every kernel that an engine without a GPU asked for."""
    found: list[tuple[dict, str]] = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: device_like())
    monkeypatch.setattr(
        kernels_of_package, "load_kernel", lambda _, defines, agents="": found.append((dict(defines), agents))
    )
    return found


def prepared(config: ks.MarketConfig, markets: int, mode: int) -> CudaEngine:
    """Return an engine that has asked for its kernel, of one slot, for a mode."""
    engine = CudaEngine(
        torch.device("cpu"), {"M": markets, "L": config.num_levels, "K": 1} | layout.ladder_sizes(1), {}
    )
    engine.set_ensemble(config)
    groups = agent_groups(config, {})
    engine.set_agents(groups)
    if any(np.ndim(value) == 2 for made in config.agents.values() for value in made.parameters.values()):
        engine.set_agent_parameters(parameter_table(config, groups, markets))
    engine.set_parameters(parameter_rows(config, 1, class_counts(config, 1), {}))
    engine.prepare(mode)
    return engine


@needs_compiler
def test_kernels_have_the_text_of_classes_if_there_are_agents_of_them(asked):
    config = ks.MarketConfig()
    prepared(config, 3, 0)
    prepared(config.replace(agents={copied_noise: 0}), 3, 0)
    prepared(config.replace(agents={copied_noise: 2, trend_follower: 0}), 3, 0)
    prepared(config.replace(agents={copied_noise: 5, trend_follower: 7}), 3, 0)
    assert [("KS_AGENTS" in defines, bool(text)) for defines, text in asked] == [(False,) * 2] * 2 + [(True,) * 2] * 2
    assert asked[0] == asked[1] and asked[2] == asked[3]
    assert asked[2][0]["KS_AGENTS"] == 2 and asked[2][1] == programs.text_of_all([copied_noise, trend_follower])


@needs_compiler
def test_environments_on_warps_have_the_memory_of_whole_rows(asked):
    tiles = [variants.plan_on_host(request(6000, added)) for added in (0, 2)]
    levers = layout.CONSTANTS["kTileLeverInts"]
    assert tiles[0].tile == tiles[1].tile and tiles[1].shared - tiles[0].shared == 16 * levers * tiles[0].tile


EACH_MARKET = {"shift": [[0]] * 65535 + [[1]]}  # of which every agent reads four parameters of its market's own
ON_LANES = {
    "without memory": ({copied_noise: 500}, True),
    "whose orders need more than 16 bits": ({at_the_best: 1, trend_follower: 1}, False),
    "with as much memory as lanes may have": ({anywhere: 32}, True),
    "with more": ({anywhere: 33}, False),
    "inactive, as there are none": ({trend_follower: 0}, True),
    "with parameters of each market, too": ({anywhere: ks.mix(16, **EACH_MARKET)}, True),
    "and a few more agents": ({anywhere: ks.mix(17, **EACH_MARKET)}, False),
}


@needs_compiler
@pytest.mark.parametrize("who", ON_LANES)
def test_environments_of_added_agents_have_a_lane_each(asked, who):
    """Where they would without such agents, unless these read or write much that is their market's own."""
    agents, on_lanes = ON_LANES[who]
    config = ks.MarketConfig.preset("trading")
    engine = prepared(config.replace(agents=agents), 65536, 1)
    assert ("KS_LANES" in asked[-1][0]) == on_lanes
    if on_lanes:
        assert engine._plans[1] == prepared(config, 65536, 1)._plans[1]  # as many lanes and as much shared memory


@needs_compiler
def test_a_plan_counts_what_is_a_markets_own():
    most = int(re.search(r"kMostOwnNumbers = (\d+);", variants._TEXT)[1])
    assert variants.plan_on_host(request(16895, 2)).lanes == 0 < variants.plan_on_host(request(16896, 2)).lanes
    plans = [variants.plan_on_host(request(65536, 2, own)) for own in (0, most, most + 1)]
    assert [plan.lanes > 0 for plan in plans] == [True, True, False]


def request(markets: int, added_agents: int, own_numbers: int = 0):
    """Return the request of a step of environments on an H200."""
    device = device_like()
    return variants.Request(
        markets=markets,
        levels=128,
        slots=1 if markets > 10000 else 2,
        task=1,
        reach=3,
        agents=20,
        orders=80,
        added_agents=added_agents,
        own_numbers=own_numbers,
        lanes=-1,
        multiprocessors=device.multi_processor_count,
        shared_of_block=device.shared_memory_per_block_optin,
        shared_of_multiprocessor=device.shared_memory_per_multiprocessor,
    )


@needs_compiler
def test_the_text_is_part_of_what_a_kernel_is_kept_under(monkeypatch):
    """Another program is another kernel; the same one is loaded once, and found again on disk."""
    built, keys = [], []
    monkeypatch.setattr(build, "_loaded", {})
    monkeypatch.setattr(kernels_of_package, "cuda_unavailable", lambda: None)
    monkeypatch.setattr(kernels_of_package, "choose_builder", lambda: kernels_of_package.Builder("nvrtc", (13, 0)))
    monkeypatch.setattr(kernels_of_package, "obtain", lambda name, *_: keys.append(name) or object())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)
    for text in ("", "one", "two", "one", ""):
        built.append(kernels_of_package.load_kernel(torch.device("cuda", 0), {"KS_TASK": 0}, agents=text))
    assert len(set(keys)) == len(keys) == 3
    assert built[1] is built[3] and built[0] is built[4] and len(set(map(id, built))) == 3


# On a GPU -------------------------------------------------------------------------------------------------------------

MECHANISMS = {
    "each": {},
    "calls on the clock": {"arrivals": "clock"},
    "continuous": {"arrivals": "clock", "mechanism": "continuous"},
}


def play_on_gpu(mechanism: str, seed: int) -> Play:
    """Return a play of 37 markets: the last warp of lanes has a few only. Every third has levers."""
    play = random_play(f"gpu {mechanism} {seed}", True, "levers" if seed % 3 == 0 else "", mechanism != "each", 37)
    return dataclasses.replace(play, config=play.config.replace(**MECHANISMS[mechanism]))


@pytest.mark.gpu
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("seed", range(examples(30)))
def test_runs_on_a_gpu(mechanism, seed):
    play_together(play_on_gpu(mechanism, seed), ("cpu", "cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kernels_of_their_own_on_a_gpu(mechanism):
    play_together(play_on_gpu(mechanism, 1), ("cpu", "cuda specialised"))


@pytest.mark.gpu
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_agents_of_the_oracle_on_a_gpu(mechanism):
    play_together(random_play(f"oracle {mechanism}", True, "", mechanism != "each", 3), ("numpy", "cuda"))


@pytest.mark.gpu
@settings(max_examples=examples(25), derandomize=True)
@given(environment=environments(most_slots=6), seed=st.integers(0, 2**32))
def test_environments_on_a_gpu(environment, seed):
    environment = with_all_in(environment, seed)
    check_agreement(environment, 0.05, ("cpu", "cuda"))


@pytest.mark.gpu
@settings(max_examples=examples(15), derandomize=True)
@given(environment=clock_environments(), seed=st.integers(0, 2**32))
def test_environments_on_the_clock_on_a_gpu(environment, seed):
    environment = with_all_in(environment, seed)
    check_agreement(environment, 0.05, ("cpu", "cuda"))


SMALL = (copied_noise, at_the_best)  # whose classes say how large their orders can be


@pytest.mark.gpu
@pytest.mark.parametrize("depth", [8, 31000, 40000])
@pytest.mark.parametrize("regimes", [None, [{"max_order_qty": 9}, {}]], ids=["", "regimes"])
def test_small_orders_on_lanes(depth, regimes):
    """Numbers of 16 bits suffice, until a side holds 32767 units: on the way, or from the beginning on."""
    config = ks.MarketConfig(
        agents={kind: 9 for kind in SMALL}, num_agents=9, init_depth=depth, regimes=regimes, arrivals="clock",
        mechanism="continuous", interval=150, regime_switch_prob=0.5 if regimes else 0.0,
    )  # fmt: skip
    sims = [ks.Simulator(config, 70, engine=engine, seed=3, slots=1) for engine in ("cpu", "cuda")]
    for intervals in (1, 30, 60):
        for sim in sims:
            sim.run(intervals)
        for name, tensor in sims[0].tensors.items():
            assert torch.equal(sims[1].tensors[name].cpu(), tensor), name
    assert depth != 31000 or int(sims[0].bid.sum(1).max()) > 2**15


@pytest.mark.gpu
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_memory_goes_from_engine_to_engine(mechanism):
    """Saved on one, loaded on the other, and branched: what agents remember is part of it."""
    config = ks.MarketConfig(num_agents=9, agents={kind: 3 for kind in CLASSES}, **MECHANISMS[mechanism])
    first, second = (ks.Simulator(config, 5, engine=engine, seed=3) for engine in ("cpu", "cuda"))
    first.run(7)
    second.load_state_dict(first.state_dict())
    branch = second.branch()
    second.run(5)
    branch.run(5)
    first.run(5)
    for name, tensor in first.tensors.items():
        assert torch.equal(second.tensors[name].cpu(), tensor), name
        assert torch.equal(branch.tensors[name].cpu(), tensor), name
