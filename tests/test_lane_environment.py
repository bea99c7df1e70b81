"""The CUDA environment step of a market per lane, run on a CPU: every tensor the C++ engine's, bit for bit."""

import pytest
from deadline_helpers import Lists, late, most_listed
from env_helpers import (
    check_cores_agree,
    check_trading_market,
    environments,
    make_cores,
    steps_alike,
    trading_market,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thorough import covering, examples

from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime import build
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.base import ROLES
from kineticsim_env.tasks.many_learners import slots_of

pytestmark = pytest.mark.skipif(build.cpu_unavailable() is not None, reason="no C++ compiler")


@pytest.fixture
def make_pair(twice):
    """Make an environment twice: on the C++ engine, and on the lanes' step."""

    def make(arguments, kwargs, kernel="lanes"):
        return twice(kernel, lambda: make_cores(arguments, kwargs, ("cpu",))[0])

    return make


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(environment=environments(most_slots=1), bad=st.sampled_from((0.0, 0.0, 0.05)))
def test_lanes_agree_on_every_tensor(make_pair, environment, bad):
    check_cores_agree(make_pair(*environment[:2]), environment, bad)


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(environment=environments(most_slots=1), bad=st.sampled_from((0.0, 0.0, 0.05)))
def test_a_warp_of_lanes_agrees_on_every_tensor(make_pair, environment, bad):
    check_cores_agree(make_pair(*environment[:2], "lanes and deadlines"), environment, bad)


@covering
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("stagger", [True, False])
@pytest.mark.parametrize("changes", [{}, {"max_order_qty": 4000}])
@pytest.mark.parametrize(("role", "at_end"), [("executor", "truncate"), ("maker", "unwind")])
def test_whole_warps_step_blocks_at_their_deadline(make_pair, kernels, mode, stagger, changes, role, at_end):
    """Few deadlines come at a time, or all; a warp has lanes without a market, and two have none."""
    kernel = "lanes and deadlines and rounding"
    (config, _, task, roles), kwargs = trading_market(role, at_end=at_end)
    kwargs |= {"autoreset_mode": mode, "stagger": stagger}
    cores = make_pair((config.replace(**changes), 70, task, roles), kwargs, kernel)
    lists, listed, at_once = Lists(cores[1], kernels[kernel]), [], [0]
    for _ in steps_alike(cores, 3, 4, 16):
        assert lists.listed == late(cores[0])
        listed.append(len(lists.listed))
        at_once.append(int(cores[0].tensors["terminated"][:32].sum()))
    assert 0 < max(at_once) and (max(at_once) < 12) == stagger == any(2 < n <= most_listed(70) for n in listed)


@covering
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("mark", ["fundamental", "mid", "liquidation"])
def test_lanes_agree_in_the_trading_market(make_pair, role, mark):
    check_trading_market(make_pair(*trading_market(role, mark=mark), "lanes and rounding"))


def play_until_deep(make_pair, config, role, auctions, **settings):
    """Play on both, compare all tensors, and return the most that rested at a tick."""
    task = ManyLearnersTask(horizon=25, bank_size=0, warmup=0, inventory_limit=None, **settings)
    kwargs = {
        "slots": slots_of((role,)),
        "autoreset_mode": "same_step",
        "stagger": False,
        "auctions_per_step": auctions,
    }
    cores = make_pair((config, 3, task, [role]), kwargs)
    deepest = 0
    for _ in steps_alike(cores, 2, 1, 30):
        deepest = max(deepest, int(cores[0].simulator.bid.max()), int(cores[0].simulator.ask.max()))
    return deepest


@pytest.mark.parametrize("role", ["trader", "executor"])
@pytest.mark.parametrize("max_qty", [8192, 8193, 60000])
@pytest.mark.parametrize("max_order_qty", [2730, 2731])  # of three agents: 8190 and 8193
@pytest.mark.parametrize("init_depth", [16383, 16384, 30000])
def test_lanes_agree_where_numbers_stop_to_fit_in_16_bits(make_pair, role, max_qty, max_order_qty, init_depth):
    """What rests at a tick grows past 16 bits while it is played, too, as nothing is cancelled."""
    config = MarketConfig(
        num_levels=32, init_price=16, num_agents=3, max_order_qty=max_order_qty, init_depth=init_depth, noise_spread=2
    )
    settings = {"max_qty": max_qty, "block_qty": 9 * max_qty, "forced_qty": 8192}
    assert play_until_deep(make_pair, config, role, 2, **settings) >= 16383


@pytest.mark.parametrize("role", ["trader", "executor"])
def test_lanes_agree_where_numbers_stop_to_fit_within_a_step(make_pair, role):
    """One agent's orders all lie at one tick, so that in a hundred auctions what rests there wanders far."""
    config = MarketConfig(
        num_levels=32, init_price=16, num_agents=1, noise=1.0, momentum=0.0, maker=0.0, max_order_qty=8191,
        init_depth=0, noise_spread=0, market_order_prob=0.0,
    )  # fmt: skip
    assert play_until_deep(make_pair, config, role, 100, max_qty=8, block_qty=9) > 40000
