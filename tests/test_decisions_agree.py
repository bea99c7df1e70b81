"""Decisions at events: engines agree, bit for bit, a state goes on in the other engine, and a stop undoes a whole step.

Known answers: test_decisions_at_events.py.
"""

import gymnasium
import numpy as np
import pytest
import torch
from build_helpers import needs_compiler
from env_helpers import (
    CLOCK_SCENARIOS,
    assert_same,
    check_agreement,
    check_handed_on,
    clock_environments,
    draw_actions,
    launch,
    make_cores,
    steps_alike,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from test_task_values_agree import varied
from thorough import covering, examples

import kineticsim_env as ks
from kineticsim_env.runtime import layout
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.base import ROLES

pytestmark = needs_compiler
ENGINES = ("numpy", "cpu")
both_rules = pytest.mark.parametrize("decide", ["fill", "touch"])


@st.composite
def environments_at_events(draw):
    """Environments of `clock_environments` in which events end decisions; quotes may be under way over several."""
    (config, _, task, roles), kwargs, *_ = environment = draw(clock_environments())
    pick = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    latency = pick(0, 0, 1, 5, 60)
    levels = min(pick(1, 1, 2, 3, 8), layout.CONSTANTS["kMaxOrders"] // len(roles))
    config = config.replace(mechanism="continuous", quote_latency=latency, orders_per_side=levels)
    if kwargs["randomise"]:  # where nothing may be under way at first, scenarios may not have it so, either
        late = {"quote_latency": (0, 9) if latency else {"values": [0]}}
        kwargs = kwargs | {"randomise": CLOCK_SCENARIOS["continuous"] | late}
    task = task.replace(decide=pick("fill", "touch"), keep=draw(st.booleans()))
    return (config, environment[0][1], task, roles), kwargs | {"auctions_per_step": pick(1, 1, 3)}, *environment[2:]


@settings(max_examples=examples(120))
@given(environments_at_events(), st.sampled_from((0.0, 0.0, 0.05)))
def test_engines_agree(environment, bad):
    check_agreement(environment, bad, ENGINES)


@settings(max_examples=examples(60))
@given(varied(environments_at_events()), st.sampled_from((0.0, 0.0, 0.05)))
def test_engines_agree_where_settings_differ(environment, bad):
    """The horizon, too: from market to market, or drawn with the scenario."""
    check_agreement(environment, bad, ENGINES)


@covering
@both_rules
@pytest.mark.parametrize("preset", ["continuous", "news", "realistic"])  # the last has agents that users could write
@pytest.mark.parametrize("latency", [0, 1, 5, 60])
@pytest.mark.parametrize("roles", [("maker",), ("executor",), ("trader",), ("maker", *ROLES)], ids=len)
@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
@pytest.mark.parametrize(("auctions", "levels", "keep"), [(1, 1, False), (3, 1, True), (1, 3, True), (3, 2, False)])
def test_engines_agree_in_presets(decide, preset, latency, roles, mode, auctions, levels, keep):
    """Over ends of episodes, in markets that come to their decisions at different events."""
    config = ks.MarketConfig.preset(preset, interval=10, quote_latency=latency, orders_per_side=levels)
    task = ManyLearnersTask(
        decide=decide, keep=keep, horizon=np.array([[1], [2], [2]]), bank_size=4, warmup=20, max_offset=4
    )
    kwargs = {"slots": (None,) * len(roles), "auctions_per_step": auctions, "autoreset_mode": mode}
    cores = make_cores((config, 3, task, list(roles)), kwargs | {"account_info": True}, ENGINES)
    lengths, ended = set(), 0
    for _ in steps_alike(cores, 11, 5, 40):
        now = cores[0].tensors["decision_events"].tolist()
        lengths |= {*now}
        ended += int(cores[0].tensors["done"].any() | cores[0].tensors["over"].any())
        if ended > 2 or (mode == "disabled" and ended):
            break
    assert max(lengths) <= 10 * auctions
    assert ended > 0 or mode != "disabled"
    assert len(lengths) > 2 or latency == 60 or mode == "disabled"


def leaning(observation):
    """A maker's quotes, wider where its last decision took longer."""
    return torch.stack([observation[:, -1] - 0.5, observation[:, 22], observation[:, 0], -observation[:, 8]], 1)


def reward(before, after):
    return after.value - before.value + torch.where(after.terminated | after.truncated, after.elapsed, before.elapsed)


OTHERS = {
    "opponents": {"opponents": {"maker": [leaning, leaning], "trader": [lambda seen: seen[:, 20:22]]}},
    "own functions": {"reward": reward, "features": [lambda after: after.elapsed + after.observation[..., -1]]},
}


@both_rules
@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP", "DISABLED"])
def test_engines_agree_with_what_a_host_adds(decide, others, mode):
    """Opponents, who end an episode with the learner's, and functions of users' own, after which markets restart."""
    small = {"horizon": 2, "bank_size": 4, "warmup": 2, "block_qty": 6, "forced_qty": 2}
    settings = {"decide": decide, "autoreset_mode": mode, "output": "torch", "account_info": True, **small}
    name = "KineticSim/Execution-v0"
    config = ks.MarketConfig.preset("continuous", interval=6, quote_latency=2)
    envs = [
        gymnasium.make_vec(name, num_envs=4, engine=e, config=config, **settings, **OTHERS[others]) for e in ENGINES
    ]
    cores = [one.unwrapped.core for one in envs]
    for one in envs:
        one.reset(seed=3)
    generator, ended = np.random.default_rng(1), 0
    for step in range(20):
        action = torch.from_numpy(generator.uniform(-1, 1, (4, 2)).astype(np.float32))
        results = [one.step(action) for one in envs]
        assert all(torch.equal(*of_both) for of_both in list(zip(*results, strict=True))[:4])
        assert_same(cores, f"after step {step}")
        over = results[0][2] | results[0][3]
        ended += int(over.sum())
        if mode == "DISABLED" and bool(over.any()):
            for one in envs:
                one.reset(options={"reset_mask": over})
    assert ended > 4


# States ---------------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(environments_at_events(), st.integers(0, 2**32))
def test_a_state_goes_on_in_another_engine(environment, seed):
    """One environment is played through; another one is handed on between the engines before every step."""
    arguments, kwargs, first_seed, steps = environment
    whole, here, there = make_cores(arguments, kwargs, ("cpu", "numpy", "cpu"))
    check_handed_on(whole, here, there, first_seed, steps, seed)


@both_rules
def test_a_stop_leaves_everything_as_it_was(decide):
    """A side of one market lacks little to 2^31: nothing of the others, which have come further, has changed either."""
    config = ks.MarketConfig(arrivals="clock", mechanism="continuous", num_agents=20, cancel_prob=0.0)
    horizon = np.array([[1], [50], [50]])  # the first market's episodes end, and are reset in a step of their own
    task = ManyLearnersTask(decide=decide, horizon=horizon, block_qty=30, warmup=0, bank_size=0)
    kwargs = {"slots": [None, None], "account_info": True, "stagger": False, "autoreset_mode": "next_step"}
    cores = make_cores((config, 3, task, ["maker", "executor"]), kwargs, ENGINES)
    for core in cores:
        core.reset(5)
    generator, stopped, played = np.random.default_rng(1), 0, 0
    for step in range(40):
        actions, resets = draw_actions(cores[0], generator, 0.0), bool(cores[0].tensors["done"][0])
        for core in cores:
            core.simulator.bid[1, 3] += 2**31 - (1 if resets else 9) - core.simulator.bid[1].sum()
            core._engine.state_changed()
        before = [everything(core) for core in cores]
        errors = [raised(core, actions) for core in cores]
        assert errors[0] == errors[1]
        stopped, played = stopped + (errors[0] and resets), played + (not errors[0])
        for core, was in zip(cores, before, strict=True):
            now = everything(core)
            assert not errors[0] or all(np.array_equal(now[name], was[name], equal_nan=True) for name in was)
        assert_same(cores, f"after step {step}")
    assert stopped > 0 and played > 2


def everything(core):
    tensors = {**core.tensors, **core.simulator.tensors, "fills": core.fills}
    return {name: tensor.numpy().copy() for name, tensor in tensors.items()}


def raised(core, actions):
    try:
        launch([core], actions)
    except ks.MarketError as error:
        assert "2^31" in str(error)
        return True
    return False
