"""Environments of ladders: spaces, checkers, masks, infos, policies, pictures, saved states, adapters and errors."""

import re

import gymnasium as gym
import numpy as np
import pytest
import torch
from adapter_helpers import action_size, each_adapter
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test
from strategies import every_engine
from test_keep_actions import ONLY_SLOTS, SMALL, both_forms
from test_keep_spaces import VECTOR
from test_ladder_environments import level, pencil, step

import kineticsim_env as ks
from kineticsim_env import evaluation, policies
from kineticsim_env.envs.vector import ExecutionVectorEnv, MarketMakingVectorEnv
from kineticsim_env.render.recorder import MarketRecorder
from kineticsim_env.render.text import text_picture
from kineticsim_env.runtime import layout
from kineticsim_env.tasks import ExecutionTask, ManyLearnersTask, MarketMakingTask, TradingTask

LADDERS = ks.MarketConfig.preset("news", orders_per_side=3)
OF_LADDERS = {"config": LADDERS, "engine": "cpu", **SMALL}


def test_spaces_have_each_level():
    for task, numbers, choices in ((MarketMakingTask, 4, 49), (TradingTask, 2, 15), (ExecutionTask, 2, 15)):
        for keep, size in ((False, 3 * numbers), (True, 3 * numbers * 3 // 2)):
            made = task(keep=keep).of_market(LADDERS)
            assert made.action_space(task.role) == gym.spaces.Box(-1.0, 1.0, (size,), np.float32)
            assert made.replace(max_qty=7).orders_per_side == 3 and made == task(keep=keep)
        discrete = task(action_type="discrete").of_market(LADDERS)
        assert discrete.action_space(task.role) == gym.spaces.Discrete(choices)
        space = discrete.observation_space(task.role, queues=True, extras=("fundamental",))
        assert space.shape == (39 + 12 + 1,)
        assert space.low[39:].tolist() == [-1.0, 0.0, -1.0, 0.0, 0.0, 0.0] * 2 + [-1.0]
        assert task().observation_space(task.role, queues=True).shape == (39,)


@pytest.mark.parametrize("task", VECTOR)
@pytest.mark.parametrize("keep", [False, True])
@both_forms
def test_gymnasium_checkers(task, keep, form):
    arguments = OF_LADDERS | {"keep": keep, "action_type": form, "see_fundamental": keep}
    check_env(gym.make(f"KineticSim/{task}-v0", **arguments).unwrapped)
    envs = gym.make_vec(f"KineticSim/{task}-v0", num_envs=3, **arguments)
    envs.action_space.seed(1)
    envs.reset(seed=1)
    for _ in range(12):
        assert envs.step(envs.action_space.sample())[0] in envs.observation_space


@both_forms
def test_pettingzoo_checker(form):
    learners = {"maker": 1, "trader": 1, "executor": 1, "noise": 1}
    some = {"max_cycles": 9, "bank_size": 4, "warmup": 4, "engine": "cpu"}
    env = ks.parallel_env(learners, LADDERS, action_type=form, **some)
    task = ManyLearnersTask(action_type=form).of_market(LADDERS)
    assert [env.action_space(agent) for agent in env.possible_agents] == list(map(task.action_space, learners))
    parallel_api_test(env, num_cycles=30)
    batched = ks.BatchedParallelEnv(2, learners, LADDERS, action_type=form, engine="cpu", **SMALL)
    batched.reset(seed=1)
    assert {role: space.shape for role, space in batched.single_action_spaces.items()} == {
        role: task.action_space(role).shape for role in learners
    }


@every_engine
def test_masks_are_of_sides(engine):
    """All levels of a side are allowed, or none: the rule is that of one level."""
    fields = ONLY_SLOTS | {"num_agents": 2, "noise": 0.5, "maker": 0.5}
    config = ks.MarketConfig(**fields, orders_per_side=2)
    asked = {"action_type": "discrete", "action_mask": True, "bank_size": 0, "inventory_limit": 4}
    envs = ks.BatchedParallelEnv(1, {"maker": 1, "trader": 1}, config=config, engine=engine, **asked)
    envs.reset(seed=1)
    envs.simulator.inventory[:] = 4
    still = {role: torch.zeros(1, 1, dtype=torch.int64, device=envs.device) for role in ("maker", "trader")}
    masks = envs.step(still)[4]["action_mask"]
    assert torch.nonzero(masks["maker"][0, 0]).flatten().tolist() == list(range(7))  # no bid, and any ask
    assert torch.nonzero(masks["trader"][0, 0]).flatten().tolist() == [0, *range(8, 15)]


def test_infos_have_rejects():
    env = gym.make("KineticSim/MarketMaking-v0", account_info=True, **OF_LADDERS)
    env.reset(seed=1)
    known = env.step(env.action_space.sample())[4]["account_info"]
    more = {"rejected_bid", "rejected_ask"}
    assert set(known) == set(layout.ENUMS["MarketInfo"]) | set(layout.ENUMS["SlotInfo"]) | more


# Policies, opponents and functions of users' own ----------------------------------------------------------------------

PLAYERS = [
    ("MarketMaking", lambda task: policies.NoTrade(task)),
    ("MarketMaking", lambda task: policies.RandomQuotes(task, seed=3)),
    ("MarketMaking", lambda task: policies.FixedSpread(task, half_spread=2, qty=8)),
    ("MarketMaking", lambda task: policies.QuietQuotes(task)),
    ("Trading", lambda task: policies.Hold(task)),
    ("Trading", lambda task: policies.RandomTrader(task, seed=3)),
    ("Trading", lambda task: policies.MomentumTrader(task)),
    ("Execution", lambda task: policies.RandomOrders(task, seed=3)),
    ("Execution", lambda task: policies.TimeWeighted(task)),
]


@pytest.mark.parametrize(("task", "make"), PLAYERS)
@pytest.mark.parametrize("keep", [False, True])
def test_scripted_policies_leave_further_levels_empty(task, make, keep):
    envs = VECTOR[task](4, keep=keep, output="torch", **OF_LADDERS)
    policy, alone = make(envs.core.task), make(envs.core.task.of_market(LADDERS.replace(orders_per_side=1)))
    seen, _ = envs.reset(seed=1)
    for _ in range(5):
        action, first = policy(seen), alone(seen)
        assert torch.equal(action[:, : first.shape[1]], first)
        seen, *_ = envs.step(action)
        assert not envs.simulator.quotes[:, 0, 1:, :, 1::2].any()


@both_forms
@pytest.mark.parametrize("levels", [1, 2, 5])
def test_the_ladder_maker(form, levels):
    """Equal sizes at equal distances; as choices levels stand a tick apart, as all do."""
    config = ks.MarketConfig.preset("news", orders_per_side=levels)
    envs = MarketMakingVectorEnv(8, action_type=form, output="torch", **OF_LADDERS | {"config": config})
    task = envs.core.task
    maker = policies.LadderMaker(task, half_spread=2, spacing=2.0 if form == "continuous" else 1.0, qty=8)
    policy = policies.Discretised(maker, task) if form == "discrete" else maker
    seen, _ = envs.reset(seed=1)
    for _ in range(3):
        mid2 = envs.core.tensors["mid_history"][:, 0].clone()
        seen, *_ = envs.step(policy(seen))
    flat = envs.simulator.quotes.view(8, 1, levels, -1, 4)
    bids = torch.where(flat[:, 0, :, :, 1] > 0, flat[:, 0, :, :, 0], -(2**30)).amax(-1)
    for n in range(levels):
        away = 2 + 2 * n if form == "continuous" else 2 + n
        stands = bids[:, n] > -(2**30)
        assert (bids[stands, n] == (mid2[stands] >> 1) - away).all()
    assert int((bids[:, levels - 1] > -(2**30)).sum()) > 0


def test_the_ladder_maker_names_what_it_refuses():
    task = MarketMakingTask().of_market(LADDERS)
    with pytest.raises(ValueError, match="spacing: expected"):
        policies.LadderMaker(task, spacing=-1)
    with pytest.raises(TypeError, match="task: expected"):
        policies.LadderMaker(ExecutionTask())
    with pytest.raises(TypeError, match="config: expected"):
        MarketMakingTask().of_market(3)


def test_opponents_have_ladders():
    """A maker against an executor that plays two levels; it is evaluated as ever, with functions of a user's own."""
    task = ExecutionTask(**SMALL).of_market(LADDERS)
    rival = lambda seen: torch.tensor([0.2, 0.5, 0.1, 0.5, 0.0, -1.0]).expand(len(seen), -1)  # noqa: E731
    shape = {"opponents": {"executor": [policies.TimeWeighted(task), rival]}, "output": "torch", **OF_LADDERS}
    own = {"features": [lambda after: after.quotes.view(len(after.quotes), -1)[:, :4].double() * 0]}
    envs = MarketMakingVectorEnv(16, **shape, **own)
    assert envs.single_observation_space.shape == (39 + 12 + 4,)
    seen, _ = envs.reset(seed=1)
    for _ in range(12):
        seen, *_ = envs.step(policies.LadderMaker(envs.core.task)(seen[:, :51]))
    assert int(envs.simulator.quotes[:, 1, 1, :, 1::2].sum()) > 0


def test_ladders_are_evaluated():
    envs = evaluation.evaluation_env(16, **OF_LADDERS)
    found = evaluation.evaluate(policies.LadderMaker(envs.core.task), envs)
    assert np.isfinite(found.pnl).all() and found.traded.sum() > 0


# Pictures -------------------------------------------------------------------------------------------------------------


def test_pictures_show_all_levels():
    core = pencil("numpy")
    step(core, [level(1, 2, 4), level(3, None, 5), level(3, 1, 2)], [])
    step(core, [level(1, 2, 8), level(3, None, 5), level(3, 1, 2)], [])
    watched = MarketRecorder(core)
    moment = watched.record()
    assert moment.quotes == (7, 8, 10, 8) and moment.queue == (8, 0)
    assert list(moment.own("bid").items()) == [(7, (8, 8)), (5, (7, 0))]
    assert list(moment.own("ask").items()) == [(9, (2, 8)), (10, (8, 0))]
    rows = {int(line[29:37].strip(" =<")): line for line in text_picture(watched).split("\n")[5:]}
    shown = {price: (line[:8].strip(), line[59:67].strip()) for price, line in rows.items()}
    assert {price: own for price, own in shown.items() if any(own)} == {
        10: ("", "8 (0)"),
        9: ("", "2 (8)"),
        7: ("8 (8)", ""),
        5: ("7 (0)", ""),
    }


def test_frames_are_drawn():
    env = gym.make("KineticSim/MarketMaking-v0", render_mode="rgb_array", **OF_LADDERS)
    env.reset(seed=1)
    before = env.render()
    env.step(np.array([-0.6, -0.6, 1, 1, -0.2, -0.2, 1, 1, 0.9, 0.9, 1, 1], np.float32))
    assert not np.array_equal(env.render(), before)


# Saved states, clones and errors --------------------------------------------------------------------------------------


@every_engine
@pytest.mark.parametrize("keep", [False, True])
def test_saved_states_and_clones_go_on(engine, keep):
    make = lambda: VECTOR["MarketMaking"](3, keep=keep, **OF_LADDERS | {"engine": engine})  # noqa: E731
    one, two = make(), make()
    one.action_space.seed(2)
    one.reset(seed=1), two.reset(seed=2)
    for _ in range(4):
        one.step(one.action_space.sample())
    three, saved = one.clone(), one.state_dict()
    two.load_state_dict(saved)
    for _ in range(12):
        actions = one.action_space.sample()
        results = [each.step(actions)[:4] for each in (one, two, three)]
        for result in results[1:]:
            for first, second in zip(results[0], result, strict=True):
                np.testing.assert_array_equal(first, second)


def test_states_of_impossible_quotes_are_refused():
    """Both places of a level's side have `max_quote_qty` together."""
    envs = MarketMakingVectorEnv(2, **OF_LADDERS)
    envs.reset(seed=1)
    envs.step(np.full((2, 12), 0.5, np.float32))
    saved = envs.state_dict()
    saved["quotes"][0, 0, 2, :, 1] = 5
    with pytest.raises(ValueError, match=re.escape("quantities up to max_quote_qty")):
        envs.load_state_dict(saved)
    with pytest.raises(ValueError, match="orders_per_side"):
        envs.load_state_dict(MarketMakingVectorEnv(2, **OF_LADDERS | {"config": None}).state_dict())


def test_actions_of_another_length_are_refused():
    envs = ExecutionVectorEnv(2, **OF_LADDERS)
    envs.reset(seed=1)
    with pytest.raises(ValueError, match=r"actions: expected .*\[2, 6\]"):
        envs.step(np.zeros((2, 2), np.float32))


def test_a_market_has_room_for_32_levels():
    wide = LADDERS.replace(orders_per_side=8)
    with pytest.raises(ValueError, match="slots: expected up to 4 with orders_per_side=8"):
        ks.BatchedParallelEnv(2, {"maker": 5}, wide, engine="numpy")


@each_adapter
def test_adapters_have_the_spaces(adapter):
    assert action_size(adapter, **OF_LADDERS) == 12
