"""Rewards and the score: the default's best policy is the one that earns most; what rewards add up to; the study."""

import numpy as np
import pytest

import kineticsim_env as ks
from examples.studies.rewards import study
from kineticsim_env.evaluation import evaluate, evaluation_env
from kineticsim_env.policies import FixedSpread, MomentumTrader
from kineticsim_env.policies.base import order_action
from kineticsim_env.tasks import ExecutionTask, ManyLearnersTask, MarketMakingTask, TradingTask

SMALL = {
    "MarketMaking": {"half_spread": (2, 4, 6), "qty": (4, 8), "skew": (0.0, 0.06)},
    "Trading": {"direction": (1, -1), "threshold": (0.5, 2), "ticks": (-4, 0), "position": (8, 40)},
    "Execution": {"ticks": (-4, 0, 4), "qty": (1, 4)},
}


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(study, "GRIDS", SMALL)


# The default ----------------------------------------------------------------------------------------------------------


def test_all_roles_have_one_default():
    for task in (MarketMakingTask(), TradingTask(), ManyLearnersTask()):
        assert (task.reward, task.mark) == ("edge", "fundamental")
    assert ExecutionTask().reward == ManyLearnersTask().execution_reward == "shortfall"


@pytest.mark.covering
@pytest.mark.parametrize("preset", ["trading", "news"])
@pytest.mark.parametrize("task", ["MarketMaking", "Trading"])
def test_the_default_pays_best_what_earns_most(small, preset, task):
    settings = {"MarketMaking": MarketMakingTask(), "Trading": TradingTask()}[task]
    played = study.play(ks.MarketConfig.preset(preset), task, 192, "cpu")
    paid, earned = played.returns[settings.reward, settings.mark], played.score
    gap = earned[paid.mean(1).argmax()] - earned[earned.mean(1).argmax()]
    assert gap.mean() + 2 * gap.std() / len(gap) ** 0.5 >= 0  # within what chance makes of so many markets
    assert gap.mean() > -0.15 * earned.mean(1).max()
    assert study.spearman(paid.mean(1)[:, None], earned.mean(1)[:, None])[0] > 0.95


@pytest.mark.parametrize("preset", ["trading", pytest.param("news", marks=pytest.mark.slow)])
def test_the_edge_is_pnl_with_less_noise(small, preset):
    """What the inventory gains as the fundamental price moves is 0 in the mean, whatever the policy."""
    for task in ("MarketMaking", "Trading"):
        played = study.play(ks.MarketConfig.preset(preset), task, 128, "cpu", seed=11)
        edge, pnl = (played.returns[reward, "fundamental"] for reward in ("edge", "pnl"))
        held = pnl - edge
        assert (np.abs(held.mean(1)) < 4 * held.std(1) / held.shape[1] ** 0.5).all() and (held.std(1) > 50).all()
        assert (edge.std(1) < pnl.std(1)).all()


def test_the_former_default_pays_best_what_earns_less():
    """Without it the property above would say nothing about rewards."""
    envs = evaluation_env(256, engine="cpu", config=ks.MarketConfig.preset("trading"), reward="inventory")
    assert envs.core.task.inventory_penalty == 0.01
    played = [evaluate(FixedSpread(envs.core.task, half_spread=half), envs) for half in (4, 5, 6, 7)]
    best = max(played, key=lambda one: one.episode_return.mean())
    most = max(played, key=lambda one: one.pnl.mean())
    lost = best.pnl - most.pnl
    assert lost.mean() + 3 * lost.std() / len(lost) ** 0.5 < 0


# What rewards add up to -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["trading", "news"])
@pytest.mark.parametrize("mark", ["fundamental", "mid", "liquidation"])
def test_pnl_adds_up_to_the_value_at_the_end_and_of_who_is_flat_to_liquidated_pnl(preset, mark):
    config = ks.MarketConfig.preset(preset)
    settings = {"reward": "pnl", "mark": mark, "reward_scale": 1.0, "inventory_limit": 2, "horizon": 60}
    envs = evaluation_env(64, engine="cpu", config=config, **settings)
    simulator = envs.simulator
    observation, _ = envs.reset(seed=5)
    policy, total = FixedSpread(envs.core.task, half_spread=2, qty=1), np.zeros(64)
    for _ in range(60):
        observation, reward, *_ = envs.step(policy(observation))
        total += reward.double().numpy()
    held, money = simulator.inventory[:, 0].clone().numpy(), simulator.money[:, 0].numpy()
    prices = {"fundamental": simulator.fundamental_price, "mid": envs.core.tensors["mid_history"][:, 0].double() / 2}
    if mark in prices:
        np.testing.assert_array_equal(total, money + held * prices[mark].double().numpy())
    earned = evaluate(policy, envs, seed=5)
    np.testing.assert_array_equal(earned.episode_return, total)
    flat = held == 0
    assert 5 < flat.sum() < 60
    np.testing.assert_array_equal(total[flat], earned.pnl[flat])
    assert (total[~flat] != earned.pnl[~flat]).any()


def waiting(envs):
    """An executor whose orders of 4 units wait 2 ticks behind the mid."""
    return lambda seen: order_action(envs.core.task, seen[:, 0] * 0 - 2, seen[:, 0] * 0 + 4)


@pytest.mark.parametrize("reward", ["shortfall", "terminal"])
def test_executors_are_paid_their_score(reward):
    envs = evaluation_env(16, "Execution", engine="cpu", config=ks.MarketConfig.preset("news"), reward=reward)
    played = evaluate(waiting(envs), envs, seed=3)
    np.testing.assert_allclose(played.episode_return * envs.core.task.reward_scale, played.pnl, atol=1e-5)


def test_the_edge_of_a_block_is_its_shortfall_with_less_noise():
    """What is left of a block, times the moves of the fundamental price: 0 in the mean."""
    played = {}
    for reward in ("edge", "shortfall"):
        envs = evaluation_env(512, "Execution", engine="cpu", reward=reward, preset="trading")
        played[reward] = evaluate(waiting(envs), envs, seed=3).episode_return
    np.testing.assert_array_less(played["edge"].std(), 0.7 * played["shortfall"].std())
    difference = played["edge"] - played["shortfall"]  # and the opening price's distance from the mid, once
    assert abs(difference.mean()) < 4 * difference.std() / 512**0.5


# The study ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "policy"), [("MarketMaking", FixedSpread), ("Trading", MomentumTrader)])
def test_returns_are_those_of_the_engine(small, monkeypatch, task, policy):
    """One play gives what every reward would pay, and the score is that of `evaluate`."""
    one = {"half_spread": (4,), "qty": (8,), "skew": (0.0,)} if task == "MarketMaking" else None
    one = one or {"direction": (1,), "threshold": (1,), "ticks": (4,), "position": (20,)}
    monkeypatch.setitem(study.GRIDS, task, one)
    config = ks.MarketConfig.preset("trading", fee=120)
    played = study.play(config, task, 8, "cpu", seed=7, horizon=80)
    assert len(played.returns) == 1 + 3 * (3 + len(study.PENALTIES))
    for (name, mark), returns in played.returns.items():
        reward, _, penalty = name.partition(", ")
        settings = {"reward": reward, "mark": mark, "horizon": 80, "reward_scale": 1.0}
        settings |= {"inventory_penalty": float(penalty)} if penalty else {}
        envs = evaluation_env(8, task, engine="cpu", config=config, **settings)
        assert (envs.core.task.dampening, envs.core.task.idle_penalty) == (study.DAMPENING, study.IDLE)
        wanted = evaluate(policy(envs.core.task), envs, seed=7)
        np.testing.assert_allclose(returns[0], wanted.episode_return, rtol=1e-5, atol=1e-2)
        np.testing.assert_allclose(played.score[0], wanted.pnl)
        if (name, mark) in played.risk:
            np.testing.assert_allclose(played.risk[name, mark] + returns, played.returns["pnl", mark])
            assert (played.risk[name, mark] > 0).all()


def test_every_policy_plays_the_same_markets(small, monkeypatch):
    config = ks.MarketConfig.preset("trading")
    whole = study.play(config, "Execution", 3, "cpu", seed=9, horizon=30, block_qty=20)
    assert whole.score.shape == (6, 3) and study.policies_of("Execution")[4] == {"ticks": 4, "qty": 1}
    monkeypatch.setitem(study.GRIDS, "Execution", {"ticks": (4,), "qty": (1,)})
    alone = study.play(config, "Execution", 3, "cpu", seed=9, horizon=30, block_qty=20)
    np.testing.assert_array_equal(whole.score[4], alone.score[0])
    np.testing.assert_array_equal(whole.returns["risk_averse", ""][4], alone.returns["risk_averse", ""][0])
    assert (whole.risk["risk_averse", ""] > 0).all()


def test_ranks_and_their_correlation():
    values = np.array([[3.0, 1.0], [1.0, 1.0], [2.0, 5.0], [9.0, 1.0]])
    assert study.ranks(values).T.tolist() == [[2, 0, 1, 3], [1, 1, 3, 1]]
    ordered = np.arange(4.0)[:, None]
    assert study.spearman(values[:, :1], ordered)[0] == pytest.approx(0.4)  # 1 - 6 * (4 + 1 + 1 + 0) / 60
    assert study.spearman(np.exp(ordered), ordered)[0] == 1 and study.spearman(-ordered, ordered)[0] == -1


def test_agreement_draws_markets_with_all_policies():
    generator = np.random.default_rng(1)
    noise = generator.normal(size=(1, 200)) * 100  # of a market, the same for all policies and both measures
    skill = np.linspace(0, 1, 20)[:, None]
    same = study.agreement(skill + noise, 3 * skill + noise)
    assert same[:3] == (1, 1, 1) and same.count == 200
    blurred = study.agreement(skill + noise, skill + generator.normal(size=(20, 200)) * 4)
    assert 0 < blurred.low < blurred.value < blurred.high < 1


def test_the_choice_is_made_in_other_markets():
    name = ("pnl", "mid")
    score = np.array([[1.0, 3.0], [4.0, 6.0], [0.0, 0.0]])
    training = study.Played(score, {name: score[::-1].copy()}, {name: np.array([[0.0], [9.0], [0.0]]) + 0 * score})
    held_out = study.Played(2 * score, {name: 2 * score}, {name: 0 * score})
    verdict = study.judge(training, held_out, name)
    assert verdict.best == 1 and (verdict.earns.mean, verdict.gap.mean) == (10, 0) and verdict.agrees.value == 1
    training.returns[name][:] = [[9, 9], [0, 0], [1, 1]]
    assert study.judge(training, held_out, name)[1:3] == (0, (4, pytest.approx(2), 2))
    assert study.judge(training, held_out, name).gap == (-6, 0, 2)
    assert study.judge(training, held_out, name, adjusted=True).gap == (0, 0, 2)  # less risk, the first is the best
