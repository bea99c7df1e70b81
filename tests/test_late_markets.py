"""Continuous trading with a lane per market: blocks at their deadline are left to whole warps, by a list.

On a CPU every lane of every warp is a fiber, and warps take turns at random, so any warp may be first at the list.
"""

import numpy as np
import pytest
import torch
from build_helpers import ADDED, needs_compiler
from deadline_helpers import Lists, late, most_listed
from env_helpers import assert_same, check_cores_agree, clock_environments, draw_actions, launch, make_cores
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_added_agents_cuda import with_all
from test_shared_markets import continuous
from thorough import covering, examples, slow

import kineticsim_env as ks
from kineticsim_env.engines.base import ENV_RESTART
from kineticsim_env.errors import MarketError
from kineticsim_env.runtime import layout
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.base import ROLES
from kineticsim_env.tasks.many_learners import slots_of

pytestmark = needs_compiler
KERNEL = "late markets"
HORIZON, MARKETS = 12, 70  # two full warps, one with lanes that have no market, and two spare ones
OVERFLOW = layout.CONSTANTS["kErrorOverflow"]


def default_market(
    markets, roles, mode="same_step", stagger=True, config=None, horizon=HORIZON, at_end="truncate", **changes
):
    """Arguments of `make_cores`: the default market with regimes and few events, and blocks that are seldom done."""
    fields = {"interval": 12, "beat": 7, **changes}
    config = config or ks.MarketConfig.preset("news", **fields)
    task = ManyLearnersTask(horizon=horizon, bank_size=4, warmup=5, block_qty=60, forced_qty=4, at_end=at_end)
    kwargs = {"slots": slots_of(roles), "autoreset_mode": mode, "stagger": stagger, "account_info": len(roles) > 1}
    return (config, markets, task, list(roles)), kwargs


def play(cores, lists, steps, seed=4):
    """Step under the same actions, compare all tensors and the list of each step; return how many were late in each."""
    generator, numbers = np.random.default_rng(seed), []
    for core in cores:
        core.reset(3)
    for t in range(steps):
        due = late(cores[0])
        assert lists.listed == due, f"before step {t}"
        numbers.append(len(due))
        launch(cores, draw_actions(cores[0], generator, 0.0))
        assert_same(cores, f"after step {t}")
    return np.array(numbers)


@pytest.fixture
def pair(twice):
    """Make an environment twice: on the C++ engine, and on the kernel's source."""
    return lambda arguments, kwargs, kernel=KERNEL: twice(kernel, lambda: make_cores(arguments, kwargs, ("cpu",))[0])


@pytest.fixture
def pair_and_lists(pair, kernels):
    """Make an environment twice, and find the lists of the second."""

    def make(arguments, kwargs, kernel=KERNEL):
        cores = pair(arguments, kwargs, kernel)
        return cores, Lists(cores[1], kernels[kernel])

    return make


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(environment=clock_environments(), bad=st.sampled_from([0.0, 0.05]))
def test_random_environments(pair, environment, bad):
    """Of any slots, tasks, levers, regimes and scenarios, with resets between steps."""
    environment = continuous(environment)
    check_cores_agree(pair(*environment[:2]), environment, bad)


@covering
@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
@pytest.mark.parametrize("stagger", [True, False])
@pytest.mark.parametrize(
    ("roles", "at_end"),
    [
        (("executor",), "truncate"),
        (("maker", "executor"), "truncate"),
        (ROLES, "truncate"),
        (("maker",), "unwind"),
        (("maker", "noise", "trader"), "unwind"),
        (ROLES, "unwind"),
    ],
    ids=str,
)
def test_none_few_or_all_are_late(pair_and_lists, mode, stagger, roles, at_end):
    numbers = play(*pair_and_lists(*default_market(MARKETS, roles, mode, stagger, at_end=at_end)), 2 * HORIZON + 2)
    few = (numbers > 2) & (numbers <= most_listed(MARKETS))  # more than there are spare warps
    assert few.any() if stagger else numbers.max() > most_listed(MARKETS), "or they stay in their lanes"
    assert (numbers == 0).any() or stagger


@pytest.mark.parametrize("length", [0, 1, 2, 9, 10, MARKETS])
@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
def test_whole_warps_step_any_markets_alike(pair_and_lists, length, mode):
    """On the list are any, in any order, as after a state was set: none, more than there are warps, or too many."""
    cores, lists = pair_and_lists(*default_market(MARKETS, ROLES, mode))
    play(cores, lists, 3)
    random = np.random.default_rng(length)
    for t in range(HORIZON):
        lists.replace(random.permutation(MARKETS)[:length])
        launch(cores, draw_actions(cores[0], random, 0.0))
        assert_same(cores, f"after step {t}")
        assert lists.listed == late(cores[0])
    assert cores[0].tensors["done"].bool().any() == (mode != "same_step")


@pytest.mark.parametrize("listed", [True, False])
def test_a_market_that_stopped_is_left_alone(pair_and_lists, listed):
    """A core's engine raises; other markets go on first."""
    cores, lists = pair_and_lists(*default_market(MARKETS, ("executor",)))
    play(cores, lists, 3)
    stops = 40
    others = np.delete(np.arange(MARKETS), stops)
    cores[1].simulator.tensors["error"][stops] |= OVERFLOW
    cores[1].tensors["elapsed"][stops] = HORIZON - 1
    lists.replace([stops, 1, 69] if listed else [1, 69])
    before = {name: tensor[stops].clone() for name, tensor in cores[1].simulator.tensors.items()}
    actions = draw_actions(cores[0], np.random.default_rng(0), 0.0)
    launch(cores[:1], actions)
    with pytest.raises(MarketError, match=f"market {stops}"):
        launch(cores[1:], actions)
    first, second = ({**core.tensors, **core.simulator.tensors} for core in cores)
    assert all(torch.equal(tensor[others], second[name][others]) for name, tensor in first.items())
    assert all(torch.equal(tensor[stops], before[name]) for name, tensor in cores[1].simulator.tensors.items())
    assert lists.listed == late(cores[1]) and stops not in lists.listed


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_resets_and_restarts_make_the_list_longer(pair_and_lists, mode):
    """What was on it stays there; what begins late comes to it, once."""
    cores, lists = pair_and_lists(*default_market(MARKETS, ("executor",), mode))
    play(cores, lists, 3)
    random, came = np.random.default_rng(0), 0
    for t in range(3 * HORIZON):
        before = lists.listed
        if t % 3 == 0:
            for core in cores:
                core._engine.launch(ENV_RESTART)
        else:
            mask = random.random(MARKETS) < 0.5
            for core in cores:
                core.reset(t if t % 3 == 1 else None, mask)
        assert_same(cores, f"before step {t}")
        assert lists.listed == sorted({*before, *late(cores[0])})
        came += len(lists.listed) - len(before)
        launch(cores, draw_actions(cores[0], random, 0.0))
        assert_same(cores, f"after step {t}")
        assert lists.listed == late(cores[0])
    assert came > 0


@pytest.mark.parametrize("max_order_qty", [60, 2000, 65535])
def test_numbers_leave_16_bits(pair_and_lists, max_order_qty):
    """Of markets in their lanes: before a step, or with the book that their episode begins with."""
    market = default_market(MARKETS, ("executor",), max_order_qty=max_order_qty, cancel_prob=0.0, market_order_prob=0.0)
    cores, lists = pair_and_lists(*market)
    play(cores, lists, HORIZON + 4)
    deepest = max(int(cores[0].simulator.bid.sum(1).max()), int(cores[0].simulator.ask.sum(1).max()))
    assert (deepest >= 2**15) == (max_order_qty > 60)


@pytest.mark.parametrize("horizon", [1, HORIZON])
def test_one_market(pair_and_lists, horizon):
    """Its deadline may come in each step: the next step's list is made while this one's is read."""
    for seed in range(5):
        numbers = play(*pair_and_lists(*default_market(1, ("executor",), horizon=horizon)), 2 * HORIZON, seed)
        assert numbers.max() == 1 and numbers.min() == (horizon == 1)


@pytest.mark.parametrize(("markets", "stagger"), [(5, True), (40, True), (5, False), (40, False)])
def test_only_few_late_markets_are_left_to_whole_warps(pair, kernels, markets, stagger):
    """A lane plays its market without waiting for others; lanes that share one wait at every order of a slot."""
    cores, turns = pair(*default_market(markets, ("executor",), stagger=stagger)), {True: [], False: []}
    Lists(cores[1], kernels[KERNEL])
    for core in cores:
        core.reset(3)
    for t in range(HORIZON):
        number = len(late(cores[1]))
        launch(cores, draw_actions(cores[0], np.random.default_rng(t), 0.0))
        turns[0 < number <= most_listed(markets)].append(kernels[KERNEL].ks_turns())
    assert bool(turns[True]) == stagger
    assert max(turns[False]) < 50 < 200 < min(turns[True], default=1000)


def test_forced_intervals_count_against_16_bits_only_at_the_deadline(pair, kernels):
    """A block of thousands: the orders of all intervals that it may take would not fit, those of one do."""
    (config, markets, task, roles), kwargs = default_market(33, ("executor",), stagger=False)
    turns = []
    for block in (1, 60000):
        task = ManyLearnersTask(horizon=HORIZON, bank_size=4, warmup=5, block_qty=block, forced_qty=1, max_qty=1)
        cores = pair((config, markets, task, roles), kwargs)
        for core in cores:
            core.reset(3)
        launch(cores, draw_actions(cores[0], np.random.default_rng(0), 0.0))
        turns.append(kernels[KERNEL].ks_turns())
    assert turns[0] == turns[1], "some markets went on in 32 bits"


@slow
@pytest.mark.parametrize("kinds", ["small agents", "agents"])
def test_custom_traders(pair_and_lists, kinds):
    config = with_all(ks.MarketConfig.preset("news", interval=12, beat=7), 5, MARKETS, ADDED[kinds])
    play(*pair_and_lists(*default_market(MARKETS, ("executor",), config=config), f"{KERNEL} and {kinds}"), HORIZON + 3)


# On a GPU -------------------------------------------------------------------------------------------------------------


LANES = pytest.mark.parametrize("lanes", [1, 8])  # as plans have them; test_shared_markets.py has others


def on_both(arguments, kwargs, lanes=1):
    """The same environment on the C++ engine and on a GPU, there with so many lanes per market."""
    cores = make_cores(arguments, kwargs, ("cpu", "cuda"))
    cores[1].simulator.engine.force = {"KS_LANES_PER_MARKET": lanes}
    return cores


@pytest.mark.gpu
@LANES
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow])
@given(environment=clock_environments(), bad=st.sampled_from([0.0, 0.05]))
def test_random_environments_on_a_gpu(lanes, environment, bad):
    environment = continuous(environment)
    check_cores_agree(on_both(*environment[:2], lanes), environment, bad)


@pytest.mark.gpu
@pytest.mark.parametrize(("markets", "lanes"), [(MARKETS, 1), (MARKETS, 4), (MARKETS, 16), (9000, 8)])
@pytest.mark.parametrize(
    ("mode", "stagger", "roles"),
    [
        ("same_step", True, ROLES),
        ("next_step", True, ("executor",)),
        ("next_step", False, ROLES),
        ("disabled", False, ("executor",)),
    ],
)
def test_late_markets_on_a_gpu(markets, lanes, mode, stagger, roles):
    """Of a few warps, or of more than run at a time."""
    cores = on_both(*default_market(markets, roles, mode, stagger), lanes)
    assert play(cores, Lists(cores[1]), HORIZON + 4).max() > 0
    assert cores[1].simulator.engine._definitions(1)["KS_DEADLINES"] == 1


@pytest.mark.gpu
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("markets", [MARKETS, 9000])
def test_whole_warps_step_any_markets_alike_on_a_gpu(markets, lanes):
    """Up to as many as are left to whole warps, or one more, which are not."""
    cores = on_both(*default_market(markets, ("executor",)), lanes)
    lists = Lists(cores[1])
    play(cores, lists, 3)
    random, most = np.random.default_rng(0), most_listed(markets)
    for length in (0, 1, most // 2, most, most, most + 1, markets):
        lists.replace(random.permutation(markets)[:length])
        launch(cores, draw_actions(cores[0], random, 0.0))
        assert_same(cores, f"with {length} on the list")
        assert lists.listed == late(cores[0])


@pytest.mark.gpu
def test_a_captured_step_makes_and_reads_the_list():
    """Replayed, with other steps and a reset between; a graph has the addresses of the lists alone."""
    cores = on_both(*default_market(MARKETS, ("executor",)))
    lists = Lists(cores[1])
    play(cores, lists, 2)
    actions = draw_actions(cores[0], np.random.default_rng(0), 0.0)
    on_gpu = {name: tensor.cuda() for name, tensor in actions.items()}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        cores[1]._engine.launch(1, auctions=1, **on_gpu)
    for t in range(2 * HORIZON):
        if t == HORIZON:
            for core in cores:
                core.reset(5)
        launch(cores[:1], actions)
        if t % 5 == 4:
            launch(cores[1:], actions)
        else:
            graph.replay()
        assert_same(cores, f"after step {t}")
        assert lists.listed == late(cores[0])


@pytest.mark.gpu
@pytest.mark.parametrize("max_order_qty", [60, 2000, 65535])
def test_numbers_leave_16_bits_on_a_gpu(max_order_qty):
    fields = {"max_order_qty": max_order_qty, "cancel_prob": 0.0, "market_order_prob": 0.0}
    cores = on_both(*default_market(MARKETS, ("executor",), **fields))
    play(cores, Lists(cores[1]), HORIZON + 4)


@pytest.mark.gpu
def test_custom_traders_on_a_gpu():
    kinds = ADDED["agents"]
    config = with_all(ks.MarketConfig.preset("news", interval=12, beat=7), 5, MARKETS, kinds)
    cores = on_both(*default_market(MARKETS, ("executor",), config=config))
    play(cores, Lists(cores[1]), HORIZON + 3)
