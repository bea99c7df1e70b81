"""Environments whose actions may keep quotes: spaces, checkers, masks, infos, policies, saved states and errors."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from adapter_helpers import action_size, each_adapter
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test
from strategies import every_engine
from test_keep_actions import ONLY_SLOTS, SMALL, both_forms

import kineticsim_env as ks
from kineticsim_env import policies
from kineticsim_env.envs.vector import ExecutionVectorEnv, MarketMakingVectorEnv, TradingVectorEnv
from kineticsim_env.runtime import layout
from kineticsim_env.tasks import ExecutionTask, ManyLearnersTask, MarketMakingTask, TradingTask

VECTOR = {"MarketMaking": MarketMakingVectorEnv, "Trading": TradingVectorEnv, "Execution": ExecutionVectorEnv}


def test_spaces_say_what_is_kept():
    for task, numbers, choices in ((MarketMakingTask, 6, 64), (TradingTask, 3, 16), (ExecutionTask, 3, 16)):
        assert task(keep=True).action_space(task.role) == gym.spaces.Box(-1.0, 1.0, (numbers,), np.float32)
        assert task(keep=True, action_type="discrete").action_space(task.role) == gym.spaces.Discrete(choices)
        assert task(keep=True).observation_space(task.role) == task().observation_space(task.role)
        assert task().action_space(task.role).shape == (numbers * 2 // 3,)


@pytest.mark.parametrize("task", VECTOR)
@both_forms
def test_gymnasium_checkers(task, form):
    check_env(gym.make(f"KineticSim/{task}-v0", keep=True, action_type=form, engine="cpu", **SMALL).unwrapped)
    envs = gym.make_vec(f"KineticSim/{task}-v0", num_envs=3, keep=True, action_type=form, engine="cpu", **SMALL)
    envs.action_space.seed(1)
    envs.reset(seed=1)
    for _ in range(12):
        assert envs.step(envs.action_space.sample())[0] in envs.observation_space


@both_forms
def test_pettingzoo_checker(form):
    learners = {"maker": 1, "trader": 1, "executor": 1}
    env = ks.parallel_env(learners, keep=True, action_type=form, engine="cpu", max_cycles=9, bank_size=4, warmup=4)
    assert [env.action_space(agent) for agent in env.possible_agents] == [
        ManyLearnersTask(keep=True, action_type=form).action_space(role) for role in learners
    ]
    parallel_api_test(env, num_cycles=30)


@every_engine
def test_masks_know_what_may_be_kept(engine):
    config = ks.MarketConfig(**ONLY_SLOTS | {"num_agents": 2, "noise": 0.5, "maker": 0.5})
    asked = {"keep": True, "action_type": "discrete", "action_mask": True, "bank_size": 0, "inventory_limit": 4}
    envs = ks.BatchedParallelEnv(1, {"maker": 1, "trader": 1}, config=config, engine=engine, **asked)
    _, infos = envs.reset(seed=1)
    assert all(bool(mask.all()) for mask in infos["action_mask"].values())
    envs.simulator.inventory[:] = 4
    still = {role: torch.zeros(1, 1, dtype=torch.int64, device=envs.device) for role in ("maker", "trader")}
    masks = envs.step(still)[4]["action_mask"]
    assert torch.nonzero(masks["maker"][0, 0]).flatten().tolist() == list(range(8))  # no bid, and any ask
    assert torch.nonzero(masks["trader"][0, 0]).flatten().tolist() == [0, *range(8, 16)]


def test_infos_are_what_they_were_where_nothing_is_kept():
    for keep, more in ((False, set()), (True, {"rejected_bid", "rejected_ask"})):
        env = gym.make("KineticSim/MarketMaking-v0", keep=keep, account_info=True, engine="cpu", **SMALL)
        env.reset(seed=1)
        known = env.step(env.action_space.sample())[4]["account_info"]
        assert set(known) == set(layout.ENUMS["MarketInfo"]) | set(layout.ENUMS["SlotInfo"]) | more


# Policies and saved states --------------------------------------------------------------------------------------------

PLAYERS = [
    ("MarketMaking", lambda task: policies.NoTrade(task)),
    ("MarketMaking", lambda task: policies.RandomQuotes(task, seed=3)),
    ("MarketMaking", lambda task: policies.FixedSpread(task, half_spread=2, qty=8)),
    ("MarketMaking", lambda task: policies.AvellanedaStoikov(task)),
    ("Trading", lambda task: policies.Hold(task)),
    ("Trading", lambda task: policies.RandomTrader(task, seed=3)),
    ("Trading", lambda task: policies.MomentumTrader(task)),
    ("Execution", lambda task: policies.TimeWeighted(task)),
]


@pytest.mark.parametrize(("task", "make"), PLAYERS)
@both_forms
def test_scripted_policies_play_as_before(task, make, form):
    played = []
    for keep in (False, True):
        envs = VECTOR[task](4, keep=keep, action_type=form, engine="cpu", output="torch", **SMALL)
        policy = make(envs.core.task)
        policy = policies.Discretised(policy, envs.core.task) if form == "discrete" else policy
        seen, rewards = envs.reset(seed=1)[0], []
        for _ in range(20):
            seen, reward, *_ = envs.step(policy(seen))
            rewards.append(reward.clone())
        played.append(torch.stack([*rewards, seen.sum(1)]))
    assert torch.equal(*played)


def test_discretised_policies_keep_what_their_actions_keep():
    seen = torch.zeros(4, 39)
    rows = torch.tensor([[0.0, 0, 1, 1, 1, -1], [0, 0, 1, 1, -1, 1], [0, 0, -1, -1, 0.1, 0.1], [-1, -1, 1, 1, 0, 0]])
    maker = policies.Discretised(lambda _: rows, MarketMakingTask(keep=True))
    assert maker(seen).tolist() == [8 * 7 + 4, 8 * 4 + 7, 63, 8 + 1]
    trades = torch.tensor([[1.0, 0, 1], [1, 0, 0], [0, 0, -1], [-1, 0, 0.5]])
    assert policies.Discretised(lambda _: trades, TradingTask(keep=True))(seen).tolist() == [15, 4, 0, 15]


def test_saved_states_go_on_and_are_told_apart():
    make = lambda keep: MarketMakingVectorEnv(3, keep=keep, engine="cpu", account_info=True, **SMALL)  # noqa: E731
    one, two, other = make(True), make(True), make(False)
    one.action_space.seed(2)
    one.reset(seed=1), two.reset(seed=2), other.reset(seed=1)
    one.step(one.action_space.sample())
    two.load_state_dict(one.state_dict())
    actions = one.action_space.sample()
    for first, second in zip(one.step(actions)[:4], two.step(actions)[:4], strict=True):
        np.testing.assert_array_equal(first, second)
    with pytest.raises(ValueError, match="keep is True there, not there here"):
        other.load_state_dict(one.state_dict())


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: MarketMakingTask(keep="yes"), TypeError, "keep: expected True or False, got 'yes'"),
        (lambda: TradingTask(keep=1), TypeError, "keep: expected True or False, got 1"),
        (
            lambda: MarketMakingVectorEnv(2, preset="trading", keep=True, engine="cpu"),
            ValueError,
            "keep: expected False with mechanism='call', got True",
        ),
        (lambda: gym.make("KineticSim/Trading-v0", preset="paper", keep=True), ValueError, "keep: expected False with"),
        (
            lambda: ks.parallel_env(config=ks.MarketConfig.preset("paper"), keep=True),
            ValueError,
            "keep: expected False with mechanism='call', got True",
        ),
    ],
)
def test_errors_name_the_setting(make, error, said):
    with pytest.raises(error, match=said):
        make()


def test_actions_of_another_length_are_refused():
    envs = MarketMakingVectorEnv(2, keep=True, engine="cpu", **SMALL)
    envs.reset(seed=1)
    with pytest.raises(ValueError, match=r"actions: expected .*\[2, 6\]"):
        envs.step(np.zeros((2, 4), np.float32))
    with pytest.raises(ValueError, match="set_task: expected one of .*got the field 'keep'"):
        envs.set_task(keep=False)


@each_adapter
@both_forms
def test_adapters_have_the_spaces(adapter, form):
    size = action_size(adapter, keep=True, action_type=form, engine="cpu", **SMALL)
    assert size == (64 if form == "discrete" else 6)
