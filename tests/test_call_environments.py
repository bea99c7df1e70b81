"""Environments of call auctions on the clock: the CUDA kernel of a warp per market, on a CPU, beside the other engines.

It has a fiber per thread (tests/warp_on_host.cpp), and every tensor is compared.
"""

import numpy as np
import pytest
import torch
from env_helpers import (
    SCENARIOS,
    assert_same,
    check_cores_agree,
    check_handed_on,
    check_trading_market,
    clock_environments,
    draw_actions,
    launch,
    make_cores,
    trading_market,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import fitting_slots
from test_added_agents_cuda import with_all_in
from test_warp_on_host import OFF, VARIANTS
from thorough import covering, examples, slow

import kineticsim_env as ks
from kineticsim_env.engines.cpu import CpuEngine
from kineticsim_env.runtime import build
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.base import ROLES

pytestmark = pytest.mark.skipif(build.cpu_unavailable() is not None, reason="no C++ compiler")
few_examples = settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
of_each_variant = pytest.mark.parametrize("variant", VARIANTS)
ONE_SLOT = "warp of one slot and levers"
WITHOUT_BINS = ("warp", "warp and rounding", "warp and levers", "warp and agents")
CALLS = {"arrivals": "clock", "mechanism": "call"}


@pytest.fixture
def pair(kernels, monkeypatch):
    """An environment on an engine and on a kernel."""

    def make(arguments, kwargs, kernel, engine="cpu"):
        (first,) = make_cores(arguments, kwargs, (engine,))
        with monkeypatch.context() as patch:
            patch.setattr(build, "load_cpu", lambda: kernels[kernel])
            (second,) = make_cores(arguments, kwargs, ("cpu",))
        return first, second

    return make


def of_calls(environment, kernel, slots=6):
    """Return an environment with call auctions, few slots, no levers that a kernel lacks, and offsets that fit bins."""
    (config, markets, task, roles), kwargs, seed, steps = environment
    if kernel not in WITHOUT_BINS:
        regimes = [{**one, "noise_spread": min(one.get("noise_spread", 3), 15)} for one in config.regimes or ()]
        config = config.replace(taker_offset=np.minimum(config.taker_offset, 15).tolist(), regimes=regimes or None)
    fields = CALLS | {"quote_latency": 0, "taker_fee": 0, "orders_per_side": 1}
    if "levers" not in kernel:
        fields |= OFF | {"regimes": None, "regime_switch_prob": 0.0}
        fields |= {} if "rounding" in kernel else {"rounding": "even"}
    if kwargs["randomise"]:
        kwargs = kwargs | {"randomise": SCENARIOS}
    config = config.replace(**fields)
    kwargs = kwargs | {"slots": fitting_slots(config, markets, kwargs["slots"][:slots])}
    return (config, markets, task.replace(keep=False), roles[:slots]), kwargs, seed, steps


@of_each_variant
@few_examples
@given(environment=clock_environments(), bad=st.sampled_from([0.0, 0.05]), engine=st.sampled_from(["cpu", "numpy"]))
def test_random_environments(pair, variant, environment, bad, engine):
    """Of any slots, tasks, levers, regimes, scenarios and warm starts, with resets between steps."""
    environment = of_calls(environment, variant)
    check_cores_agree(pair(*environment[:2], variant, engine), environment, bad)


@few_examples
@given(environment=clock_environments(), bad=st.sampled_from([0.0, 0.05]))
def test_random_environments_of_one_slot(pair, environment, bad):
    environment = of_calls(environment, ONE_SLOT, 1)
    check_cores_agree(pair(*environment[:2], ONE_SLOT), environment, bad)


@covering
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("beat", [None, 7, 50])
def test_the_trading_market(pair, role, beat):
    """Beats come with intervals, between their events, or seldom; blocks are forced at their deadlines."""
    (config, *rest), kwargs = trading_market(role, mark="liquidation" if beat == 7 else "fundamental")
    check_trading_market(pair((config.replace(**CALLS, beat=beat), *rest), kwargs, "warp with bins and rounding"))


@pytest.mark.parametrize("variant", ["warp", "warp with bins and levers"])
@few_examples
@given(environment=clock_environments(), seed=st.integers(0, 2**32))
def test_a_state_goes_on_in_another_engine(pair, variant, environment, seed):
    """One environment is played through; another one goes from the C++ engine to the kernel and back between steps."""
    arguments, kwargs, first_seed, steps = of_calls(environment, variant)
    (whole,) = make_cores(arguments, kwargs, ("cpu",))
    here, there = pair(arguments, kwargs, variant)
    check_handed_on(whole, here, there, first_seed, steps, seed)


@slow
@pytest.mark.parametrize(
    "kernel", ["warp and agents", "warp with bins and levers and agents", "warp of one slot and agents"]
)
@few_examples
@given(environment=clock_environments(), seed=st.integers(0, 2**32))
def test_environments_with_added_agents(pair, kernel, environment, seed):
    environment = of_calls(environment, kernel, 1 if "one slot" in kernel else 6)
    environment = with_all_in(environment, seed)
    check_cores_agree(pair(*environment[:2], kernel, "numpy"), environment, 0.05)


@pytest.mark.parametrize("kernel", [*VARIANTS, ONE_SLOT])
@pytest.mark.parametrize("role", ["maker", "executor"])
def test_a_market_stops_as_it_was_before_its_interval(pair, monkeypatch, kernel, role):
    """A side lacks little to 2^31: what earlier intervals of the decision did stays, and the other markets go on."""
    monkeypatch.setattr(CpuEngine, "_raise_stopped", lambda *_: None)  # as on a GPU: only the error word says so
    config = ks.MarketConfig(**CALLS, num_agents=20, beat=7, cancel_prob=0.0)
    task = ManyLearnersTask(horizon=4, block_qty=30, forced_qty=2, warmup=0, bank_size=0)
    cores = pair((config, 16, task, [role]), {"slots": [None], "auctions_per_step": 3}, kernel)
    for core in cores:
        core.reset(5)
        for m in range(1, 16):
            core.simulator.bid[m, 3] = 2**31 - 1 - int(core.simulator.bid[m].sum()) - 8 * m
        core._engine.state_changed()
    generator = np.random.default_rng(1)
    for step in range(3):
        launch(cores, draw_actions(cores[0], generator, 0.0))
        assert_same(cores, f"after step {step}")
    stopped = cores[0].simulator.t[cores[0].simulator.tensors["error"] > 0]
    assert len(stopped) > 9 and (stopped % 3 > 0).any() and cores[0].simulator.tensors["error"][0] == 0


@pytest.mark.parametrize("quantity", [2**30, 2**31 - 40])
def test_large_quotes_of_a_loaded_state_are_counted(pair, monkeypatch, quantity):
    """They are above what an engine takes: a side may hold more than is known beforehand."""
    monkeypatch.setattr(CpuEngine, "_raise_stopped", lambda *_: None)
    config = ks.MarketConfig(**CALLS, num_agents=8)
    task = ManyLearnersTask(horizon=50, warmup=0, bank_size=0, inventory_limit=None)
    cores = pair(
        (config, 2, task, ["maker", "trader"]), {"slots": [None, None], "auctions_per_step": 2}, "warp with bins"
    )
    for core in cores:
        core.reset(5)
        mid = int(core.tensors["mid_history"][0, 0]) // 2
        core.simulator.tensors["quotes"][0, 0] = torch.tensor([mid - 3, quantity, mid + 3, 2**30], dtype=torch.int32)
        core._engine.state_changed()
    generator = np.random.default_rng(1)
    for step in range(6):
        launch(cores, draw_actions(cores[0], generator, 0.0))
        assert_same(cores, f"after step {step}")
