"""Agents that users have added, in the CUDA kernels: a market per warp on a CPU, and on a GPU.

Kernels are compiled with the text of all `CLASSES` of agent_classes.py; configs have some agents of
each, or none.
"""

import random

import pytest
from agent_classes import CLASSES, with_agents
from build_helpers import builders, compile_kernel
from strategies import Play, assert_moves_same, fitting_slots, make_config, open_simulator, under_levers
from thorough import THOROUGH, examples

import kineticsim_env as ks
from kineticsim_env.agents import programs
from kineticsim_env.config import CLASSES as BUILT_IN
from kineticsim_env.runtime import build

needs_compiler = pytest.mark.skipif(build.cpu_unavailable() is not None, reason="no C++ compiler")
VARIANTS = [f"warp{bins}{levers} and agents" for bins in ("", " with bins") for levers in ("", " and levers")]
VARIANTS.append("warp with bins and rounding and agents")


def with_all(config: ks.MarketConfig, seed: int, markets: int) -> ks.MarketConfig:
    """Return a config with agents of some of `CLASSES` and none of the others, in the order that kernels have."""
    chosen = with_agents(config, seed, markets).agents
    return with_agents(config, seed, markets).replace(agents={kind: chosen.get(kind, ks.mix(0)) for kind in CLASSES})


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


@pytest.fixture
def against_numpy(kernels, monkeypatch):
    """A function that makes the moves of a play with a kernel of `HOST_KERNELS` and with NumPy, and compares."""

    def check(variant, play):
        monkeypatch.setattr(build, "load_cpu", lambda: kernels[variant])
        assert_moves_same(open_simulator("numpy", play), open_simulator("cpu", play), play)

    return check


@needs_compiler
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", range(examples(12)))
def test_where_each_agent_comes_once(against_numpy, variant, seed):
    against_numpy(variant, play_for(variant, seed, False))


@needs_compiler
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", range(examples(10)))
def test_calls_on_the_clock(against_numpy, variant, seed):
    against_numpy(variant, play_for(variant, seed, True))


# Builders -------------------------------------------------------------------------------------------------------------

TEXT = programs.text_of_all(CLASSES)
EACH = {"KS_BINS": 16, "KS_OPTIONS": 1, "KS_SLOTS": 1, "KS_TASK": 0}
KERNELS = {
    "each": EACH,
    "each, with levers": {**EACH, "KS_BINS": 0, "KS_LEVERS": 2, "KS_SLOTS": 2},
    "calls on the clock": {**EACH, "KS_EVENTS": 1},
    "environments": {**EACH, "KS_TASK": 1},
}


@pytest.mark.parametrize("builder", builders())
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_compile_with_the_text_of_classes(builder, name):
    if name != "each" and builder == "nvcc" and not THOROUGH:
        pytest.skip("make test-all compiles it")
    with_agents_too = compile_kernel(builder, 90, {**KERNELS[name], "KS_AGENTS": len(CLASSES)}, agents=TEXT)
    assert with_agents_too.startswith(b"\x7fELF")
