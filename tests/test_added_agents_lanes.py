"""Agents that users have added, in the CUDA environment step of a market per lane, on a CPU with a fiber per lane.

Every tensor is the oracle's, or the C++ engine's where markets are many. Kernels have the text of `CLASSES`, whose
orders may be of any size, so that lanes count in 32 bits, or of `SMALL_CLASSES`, with which they count in 16 while that
suffices.
"""

import numpy as np
import pytest
import torch
from agent_classes import SMALL_CLASSES, anywhere, at_the_best, careful, copied_noise
from build_helpers import ADDED
from env_helpers import check_cores_agree, environments, launch, make_cores, steps_alike, trading_market
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import fitting_slots
from test_added_agents_cuda import row, with_all
from thorough import examples, slow

import kineticsim_env as ks
from kineticsim_env.engines.cpu import CpuEngine
from kineticsim_env.runtime import build
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.base import ROLES

pytestmark = [slow, pytest.mark.skipif(build.cpu_unavailable() is not None, reason="no C++ compiler")]
FORMS = ["lanes of a warp and small agents", "lanes of a warp and agents", "lanes and deadlines and small agents"]
RANDOMISE = {"anywhere.shift": (-30, 30), "careful.patience": {"values": [1, 4, 30]}, "noise_spread": (0, 12)}


def kinds_of(form):
    """Return the classes that a kernel has the text of."""
    return ADDED[form.rpartition(" and ")[2]]


@pytest.fixture
def make_pair(kernels, monkeypatch):
    """Make an environment twice: on an engine, and on a kernel of lanes."""

    def make(arguments, kwargs, kernel, engine="cpu"):
        (first,) = make_cores(arguments, kwargs, (engine,))
        with monkeypatch.context() as patch:
            patch.setattr(build, "load_cpu", lambda: kernels[kernel])
            (second,) = make_cores(arguments, kwargs, ("cpu",))
        return first, second

    return make


def with_added(environment, seed, kinds):
    """Return an environment of one slot with agents of `kinds`; it may replace one, and scenarios may change them."""
    (config, markets, task, roles), kwargs, number, steps = environment
    rng = np.random.default_rng(seed)
    config = with_all(config.replace(num_agents=min(int(np.max(config.num_agents)), 16)), seed, markets, kinds)
    slots = fitting_slots(config, markets, kwargs["slots"])
    active = [kind.name for kind, made in config.agents.items() if made.count]
    if active and rng.random() < 0.4:
        slots = (active[rng.integers(len(active))],)
    if kwargs["randomise"]:  # of a row of parameters that is one for all markets
        alike = {
            kind: ks.mix(made.count, **{name: row(value) for name, value in made.parameters.items()})
            for kind, made in config.agents.items()
        }
        config = config.replace(agents=alike)
        if kinds == SMALL_CLASSES:
            kwargs = kwargs | {"randomise": RANDOMISE}
    if slots[0] is None and active and rng.random() < 0.3:
        config = config.replace(num_agents=0, agents=config.agents)
    return (config, markets, task, roles), kwargs | {"slots": slots}, number, min(steps, 8)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(environment=environments(most_slots=1), seed=st.integers(0, 2**32), bad=st.sampled_from((0.0, 0.0, 0.05)))
def test_lanes_agree_on_every_tensor(make_pair, form, environment, seed, bad):
    environment = with_added(environment, seed, kinds_of(form))
    check_cores_agree(make_pair(*environment[:2], form, "numpy"), environment, bad)


@pytest.mark.parametrize("role", ROLES)
def test_lanes_agree_in_the_trading_market(make_pair, role):
    """Seventy markets, of which the last warp has six; prices are rounded by a coin; blocks come to their deadlines."""
    (config, _, task, roles), kwargs = trading_market(role)
    config = config.replace(agents={anywhere: 3, copied_noise: 9, at_the_best: 2, careful: 4})
    cores = make_pair((config, 70, task, roles), kwargs, "lanes and deadlines and rounding and small agents")
    ended = 0
    for _ in steps_alike(cores, 11, 5, 16):
        ended += int((cores[0].tensors["truncated"] | cores[0].tensors["terminated"]).sum())
    assert ended > 0


@pytest.mark.parametrize("bank_size", [0, 4])
def test_episodes_begin_with_parameters_of_scenarios_and_with_memory(make_pair, bank_size):
    """Of warm starts, or of the opening book."""
    (config, _, _, roles), kwargs = trading_market("trader")
    config = config.replace(agents={anywhere: 3, copied_noise: 2, at_the_best: 2, careful: 4})
    task = ManyLearnersTask(horizon=4, bank_size=bank_size, warmup=5)
    kwargs |= {"randomise": RANDOMISE, "num_scenarios": 5}
    cores = make_pair((config, 40, task, roles), kwargs, "lanes and deadlines and rounding and small agents")
    played = set()
    for _ in steps_alike(cores, 11, 5, 14):
        first, second = (core.simulator.engine.agent_parameters() for core in cores)
        assert torch.equal(first, second)
        played |= {tuple(row) for row in first.tolist()}
    assert len(played) == 5 and "agent_memory" in cores[0].simulator.tensors


# Orders beyond the bins -----------------------------------------------------------------------------------------------

BELOW, ABOVE = -30, 30  # ticks from the mid, of which bins hold three either way


def play_far(make_pair, changes, of_agents, count=12, auctions=3, markets=40, steps=6, **settings):
    """Play markets of such agents on both and compare all; return the most that rested at a tick, and what traded."""
    config = ks.MarketConfig(**{"num_levels": 128, "num_agents": 4, "init_depth": 30, "noise_spread": 3, **changes})
    others = {kind: 0 for kind in SMALL_CLASSES if kind is not anywhere}
    config = config.replace(agents={anywhere: ks.mix(count, **of_agents), **others})
    task = ManyLearnersTask(horizon=25, bank_size=0, warmup=0, inventory_limit=None, **settings)
    kwargs = {"slots": (None,), "autoreset_mode": "same_step", "stagger": False, "auctions_per_step": auctions}
    cores = make_pair((config, markets, task, ["trader"]), kwargs, "lanes of a warp and small agents")
    deepest, traded = 0, 0
    for _ in steps_alike(cores, 3, 4, steps):
        deepest = max(deepest, int(cores[0].simulator.bid.max()), int(cores[0].simulator.ask.max()))
        traded += int(cores[0].simulator.tensors["volume"].sum())
    return deepest, traded


SIDES = {
    "what rests on both sides": {"side": [1, -1] * 6, "shift": [BELOW, ABOVE] * 6},
    "what takes from both sides": {"side": [1, -1] * 6, "shift": [ABOVE, BELOW] * 6},
    "more buys than anybody sells": {"side": 1, "shift": [BELOW, ABOVE] * 6},
    "sells far beyond the best bid": {"side": -1, "shift": BELOW},
    "both sides at one tick": {"side": [1, -1] * 6, "shift": ABOVE, "spread": 0},
    "off the grid": {"side": [1, 1, -1, -1] * 3, "shift": [-200, 200] * 6},
    "off the grid, at times": {"spread": 90},
    "one agent's alone": {"side": [1] + 11 * [0], "quantity": [40] + 11 * [0]},
}


@pytest.mark.parametrize("far", SIDES)
@pytest.mark.parametrize("max_order_qty", [4, 4000])  # with these, 32 bits
@pytest.mark.parametrize("options", [{}, {"cancel_prob": 0.3, "residue": "cancel", "tie": "mid", "window": 5}])
def test_orders_beyond_the_bins(make_pair, far, max_order_qty, options):
    deepest, traded = play_far(make_pair, {"max_order_qty": max_order_qty, **options}, SIDES[far], max_qty=8000)
    assert deepest > 30 and traded > 0


@pytest.mark.parametrize("built_in", [8031, 8032])  # with 160 of added agents: 8191, and one more
@pytest.mark.parametrize("init_depth", [16383, 16384])
def test_lanes_agree_where_numbers_stop_to_fit_in_16_bits(make_pair, built_in, init_depth):
    changes = {"num_agents": 1, "max_order_qty": built_in, "init_depth": init_depth, "num_levels": 32, "init_price": 16}
    deepest, _ = play_far(make_pair, changes, {"spread": 9}, count=4, max_qty=8192, markets=3, steps=20)
    assert deepest >= 16383


def test_orders_of_added_agents_count_among_those_that_16_bits_have_to_hold(make_pair):
    """Six hundred bids of up to 40 units where 16,000 rest, which alone would fit, and nobody else orders."""
    changes = {"num_agents": 1, "init_depth": 16000, "market_order_prob": 0.0}
    of_agents = {"side": 1, "shift": -1, "spread": 0}
    deepest, _ = play_far(make_pair, changes, of_agents, count=600, auctions=1, markets=2, steps=1, max_qty=8)
    assert deepest > 32767


def test_lanes_agree_where_what_rests_beyond_the_bins_stops_to_fit_within_a_step(make_pair):
    """Two hundred agents order up to 8,000 units at a few ticks in every auction, and nothing is cancelled."""
    of_agents = {"side": 1, "shift": BELOW, "spread": 0}
    deepest, _ = play_far(make_pair, {"num_agents": 1}, of_agents, count=200, auctions=9, markets=2, steps=2, max_qty=8)
    assert deepest > 33000


@pytest.mark.parametrize("shift", [BELOW, ABOVE])
@pytest.mark.parametrize("missing", [0, 1])
def test_a_market_whose_total_is_too_large_stops(make_pair, monkeypatch, shift, missing):
    """Nine buys of one unit beyond the bins bring bids to 2^31 - 1, or to one more: then the book stays as it was."""
    of_agents = ks.mix(9, side=1, shift=shift, spread=0, quantity=1)
    config = ks.MarketConfig(num_agents=0, agents={anywhere: of_agents, **dict.fromkeys(SMALL_CLASSES[1:], 0)})
    task = ManyLearnersTask(horizon=25, bank_size=0, warmup=0, max_qty=1, forced_qty=1)
    kwargs = {"slots": (None,), "autoreset_mode": "same_step", "stagger": False, "auctions_per_step": 1}
    cores = make_pair((config, 3, task, ["trader"]), kwargs, "lanes of a warp and small agents")
    monkeypatch.setattr(CpuEngine, "_raise_stopped", lambda *_: None)  # restores the state before the call, and raises
    for core in cores:
        core.reset(5)
        core.simulator.bid.zero_()
        core.simulator.ask.zero_()
        core.simulator.bid[:, 40] = rests = 2**31 - 1 - 9 + missing
    launch(cores, {"actions": torch.full((3, 1, 4), -1.0)})
    for core in cores:
        assert (core.simulator.tensors["error"] & 1).tolist() == [missing] * 3
        assert torch.equal(core.simulator.bid, cores[0].simulator.bid)
        assert not missing or core.simulator.bid.sum(1).tolist() == [rests] * 3


# On a GPU -------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("kinds", ADDED)
@settings(max_examples=examples(30), derandomize=True)
@given(environment=environments(most_slots=1), seed=st.integers(0, 2**32), bad=st.sampled_from((0.0, 0.05)))
def test_lanes_of_a_gpu_agree_on_every_tensor(kinds, environment, seed, bad):
    environment = with_added(environment, seed, ADDED[kinds])
    cores = make_cores(*environment[:2], ("cpu", "cuda"))
    cores[1].simulator.engine.force = {"KS_LANES": 32, "KS_BINS": 0}
    check_cores_agree(cores, environment, bad)


@pytest.mark.gpu
@pytest.mark.parametrize("role", ROLES)
def test_many_markets_on_lanes_of_a_gpu(role):
    """Of 5,000; blocks at their deadlines are stepped by whole warps."""
    (config, _, task, roles), kwargs = trading_market(role)
    config = config.replace(agents={anywhere: 3, copied_noise: 9, at_the_best: 2, careful: 4})
    cores = make_cores((config, 5000, task, roles), kwargs, ("cpu", "cuda"))
    engine = cores[1].simulator.engine
    engine.force = {"KS_LANES": 2 * engine._reach + 2}
    assert len(list(steps_alike(cores, 3, 4, 16))) == 16
    assert bool(engine._definitions(1).get("KS_DEADLINES")) == (role == "executor")
