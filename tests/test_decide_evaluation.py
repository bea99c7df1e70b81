"""Evaluation and scripted policies where decisions end at events: by hand, market by market, and beside intervals."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from markets import FEW_ORDERS
from test_decide_surface import EVENTS, SMALL, both, every_engine, make

import kineticsim_env as ks
from kineticsim_env import policies
from kineticsim_env.evaluation import evaluate, evaluation_env, evaluation_parallel_env, grid_search, liquidate
from kineticsim_env.policies.base import decisions_left
from kineticsim_env.tasks import ExecutionTask, MarketMakingTask

# Evaluation -----------------------------------------------------------------------------------------------------------


def same(one, other, markets=slice(None), leave=()):
    for name, values in vars(one).items():
        if name in leave:
            continue
        np.testing.assert_allclose(getattr(other, name), values[markets], rtol=1e-6, err_msg=name)


@every_engine
@both
def test_an_evaluation_is_what_is_played_by_hand(engine, decide):
    settings = {"engine": engine, "decide": decide, **SMALL, "max_loss": 60.0, "horizon": 12}
    envs = evaluation_env(4, **settings)
    policy = policies.FixedSpread(envs.core.task, half_spread=1.0, qty=8)
    found, lengths = evaluate(policy, envs, 7), set()
    for market in range(4):
        alone = evaluation_env(1, **settings)
        seen, _ = alone.reset(seed=7 + market)
        total = traded = held = passed = steps = offered = turnover = full = fallen = highest = 0
        limit, core = int(alone.simulator.parameter("inventory_limit")), alone.core
        over = False
        while not over:
            inventory = int(alone.simulator.inventory.abs())
            seen, reward, terminated, truncated, infos = alone.step(policy(seen))
            events = int(infos["decision_events"])
            total, traded = total + float(reward), traded + int(alone.fills.sum())
            held, passed, steps = held + inventory * events, passed + events, steps + 1
            offered += int(alone.fills.sum()) + int(alone.simulator.quotes[..., 1::2].sum())
            turnover += int(alone.fills.sum()) * int(core.tensors["mid_history"][0, 0]) / 2
            full += events * (inventory >= limit >= 0)
            highest = max(highest, int(core.tensors["prev_value"]))
            fallen = max(fallen, highest - int(core.tensors["prev_value"]))
            over = bool(terminated | truncated)
        lengths.add(steps)
        left = float(alone.simulator.inventory)
        liquidate(alone.simulator, 10**6, pace=FEW_ORDERS.interval)
        wanted = (float(alone.simulator.money), total, traded / passed * EVENTS, held / passed, left)
        wanted += (fallen / 2000, offered / passed * EVENTS, turnover, full / passed)
        got = [values[market] for values in vars(found).values()]
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert len(lengths) > 1


@every_engine
def test_markets_in_which_nobody_trades_are_evaluated_alike(engine):
    """What is held from the first on is sold as fast as under intervals, and counts by time."""
    found = []
    for decide in ("interval", "fill", "touch"):
        envs = evaluation_env(5, engine=engine, decide=decide, initial_inventory=20, **SMALL)
        found.append(evaluate(policies.NoTrade(envs.core.task), envs, 2))
    same(found[0], found[1]), same(found[0], found[2], leave=("drawdown",))  # which is looked at as decisions end
    assert (found[0].inventory == 20).all() and found[0].pnl.any()


@every_engine
def test_each_of_many_learners_is_evaluated_as_in_a_market_alone(engine):
    settings = {"engine": engine, "decide": "fill", **SMALL, "block_qty": 6, "max_loss": 40.0, "horizon": 8}
    roles, envs = {"maker": 2, "executor": 1}, evaluation_parallel_env(4, {"maker": 2, "executor": 1}, **settings)
    task = envs.core.task
    players = {"maker": policies.FixedSpread(task, 1.0, 8), "executor": policies.TimeWeighted(task)}
    found = evaluate(players, envs, 5)
    for market in range(4):
        alone = evaluate(players, evaluation_parallel_env(1, roles, **settings), 5 + market)
        for name, result in alone.items():
            same(found[name], result, slice(market, market + 1))
    assert found["executor_0"].pnl.any() and found["maker_1"].traded.min() > 0


@every_engine
@pytest.mark.parametrize("latency", [0, 5, 60])
def test_the_pace_of_unwinding_does_not_depend_on_the_interval(engine, latency):
    config, events = ks.MarketConfig.preset("news", quote_latency=latency), 12
    cash = []
    for interval, pace in ((events, 1), (1, events)):
        simulator = ks.Simulator(config.replace(interval=interval), 4, engine=engine, seed=3, slots=1)
        simulator.run(10 * pace)
        simulator.inventory[:] = torch.tensor([[-30], [7], [0], [45]])
        cash.append(liquidate(simulator, 10_000 * pace, pace=pace))
    assert torch.equal(*cash)


# Policies -------------------------------------------------------------------------------------------------------------


def test_decisions_left_are_of_full_length():
    seen = torch.zeros(6, 40)
    seen[:, 32] = torch.tensor([48, 47, 37, 36, 11, 1]) / 48
    assert decisions_left(MarketMakingTask(horizon=4, decide="touch"), seen).tolist() == [4, 4, 4, 3, 1, 1]
    seen[:, 32] = torch.tensor([4, 3, 2, 1, 0, 4]) / 4
    assert decisions_left(MarketMakingTask(horizon=4), seen).tolist() == [4, 3, 2, 1, 0, 4]


PLAYERS = {
    "MarketMaking": [policies.RandomQuotes, policies.AvellanedaStoikov, *policies.attackers.ATTACKERS],
    "Trading": [policies.MomentumTrader, policies.BuyAndHold, *policies.attackers.TRADER_ATTACKERS],
    "Execution": [policies.AlmgrenChriss, policies.VolumeWeighted, *policies.attackers.EXECUTOR_ATTACKERS],
}


@every_engine
@both
@pytest.mark.parametrize("task", PLAYERS)
@pytest.mark.parametrize("form", ["continuous", "discrete"])
def test_scripted_policies_play(engine, decide, task, form):
    for kind in PLAYERS[task]:
        envs = make(engine, decide, 4, task, action_type=form, action_mask=form == "discrete", keep=True)
        policy = kind(envs.core.task)
        policy = policies.Discretised(policy, envs.core.task) if form == "discrete" else policy
        seen, infos = envs.reset(seed=1)
        for _ in range(12):
            seen, reward, *_, infos = envs.step(policy(seen))
            assert bool(torch.isfinite(reward).all()) and bool((seen.abs() <= 1).all())
        envs.check_errors()
        assert form == "continuous" or infos["action_mask"].shape == (4, envs.single_action_space.n)


@every_engine
@both
def test_schedules_are_those_of_time(engine, decide):
    """TWAP has never more behind it than is due at the end of the decision of full length; VWAP its slack besides."""
    for slack in (None, 0.1):
        envs = evaluation_env(6, "Execution", engine=engine, decide=decide, **SMALL | {"horizon": 20})
        task: ExecutionTask = envs.core.task
        policy = policies.TimeWeighted(task) if slack is None else policies.VolumeWeighted(task, slack=slack)
        seen, _ = envs.reset(seed=4)
        for _ in range(60):
            due = 1.0 - (decisions_left(task, seen) - 1.0) / task.horizon + (slack or 0.0)
            seen, _, terminated, *_ = envs.step(policy(seen))
            done = envs.simulator.inventory[:, 0].abs()
            assert bool((done <= torch.ceil(due * task.block_qty))[~terminated].all())
            if bool(terminated.any()):
                break
        assert int(done.min()) > 0


@every_engine
def test_parameters_are_searched_and_arms_refused(engine):
    envs = evaluation_env(4, engine=engine, decide="touch", **SMALL)
    best, rows = grid_search(policies.FixedSpread, {"half_spread": [1.0, 3.0]}, envs, progress=False)
    assert len(rows) == 2 and best in [row[0] for row in rows]
    with pytest.raises(ValueError, match="make: expected an environment with decide='interval', got one with 'touch'"):
        ks.env_counterfactual(lambda: envs, policies.NoTrade(envs.core.task))
    with pytest.raises(ValueError, match="max_episode_steps: expected None with decide='fill', got 9"):
        gym.make("KineticSim/Trading-v0", decide="fill", max_episode_steps=9, engine=engine)
    with pytest.raises(ValueError, match="randomise: expected the config's interval, 6, got 20"):
        make(engine, randomise=FEW_ORDERS.replace(interval=20, noise_spread=[5, 6]))
    for wrong in ("fills", None, True, 1):
        with pytest.raises((TypeError, ValueError), match="decide: expected one of 'interval', 'fill', 'touch', got"):
            make(engine, wrong)


@both
def test_who_is_informed_finds_the_fundamental_price_before_the_events(decide):
    envs = evaluation_env(64, "Trading", decide=decide, see_fundamental=True, horizon=10, engine="cpu")
    here = evaluate(policies.InformedTrader(envs.core.task), envs)
    there = evaluate(policies.InformedTrader(envs.core.task, place=39), envs)
    assert np.array_equal(here.pnl, there.pnl) and here.traded.any()


def test_nobody_is_paid_for_more_than_the_block():
    config = ks.MarketConfig.preset("news", quote_latency=47)
    envs = evaluation_env(64, "Execution", config=config, horizon=20, block_qty=8, engine="cpu")
    result = evaluate(policies.ImmediateExecution(envs.core.task, ticks=-1), envs)
    assert bool((envs.core.simulator.inventory.abs() > 8).any())
    assert result.pnl == pytest.approx(result.episode_return * envs.core.task.reward_scale, abs=1e-4)


@every_engine
def test_opponents_end_decisions_too(engine):
    maker = policies.FixedSpread(MarketMakingTask(decide="fill"), 1.0, 8)
    envs = make(engine, opponents={"maker": [maker]}, stagger=False)
    idle = torch.tensor([[-1.0, -1, -1, -1]]).expand(3, 4).contiguous()
    envs.reset(seed=1)
    short = 0
    for _ in range(12):
        *_, infos = envs.step(idle)
        filled, events = envs.core.fills.sum((1, 2)) > 0, infos["decision_events"]
        assert not bool(envs.fills.any()) and bool((filled | (events == EVENTS)).all())
        short += int((events < EVENTS).sum())
    assert short > 0
