"""Evaluation within wrappers, of policies with a memory, and of many learners: against episodes played by hand."""

import functools

import gymnasium as gym
import gymnasium.wrappers.vector as theirs
import numpy as np
import pytest
import torch
from markets import FEW_ORDERS
from thorough import covering

import kineticsim_env as ks
from kineticsim_env import policies
from kineticsim_env.errors import MarketError
from kineticsim_env.evaluation import evaluate, evaluation_env, evaluation_parallel_env, liquidate
from kineticsim_env.evaluation.results import Evaluation
from kineticsim_env.wrappers import NormalizeObservation, NormalizeReward, RecordEpisodeStatistics

SMALL = {"config": FEW_ORDERS, "horizon": 20, "bank_size": 8, "warmup": 8}
make = functools.partial(evaluation_env, **SMALL)
make_many = functools.partial(evaluation_parallel_env, **SMALL)
ENGINES = pytest.mark.parametrize("engine", ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)])


def linear(seed=0, inputs=39):
    """A policy that depends on all it sees."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(inputs, 4, dtype=torch.float64), torch.nn.Tanh())


class Gru(torch.nn.Module):
    """A policy with a memory, kept in the policy. Rows are computed one by one, so that no batch shows in the bits."""

    def __init__(self, seed=0, inputs=39, outputs=4):
        super().__init__()
        torch.manual_seed(seed)
        self.cell, self.head = torch.nn.GRUCell(inputs, 5), torch.nn.Linear(5, outputs)
        self.state, self.told = None, []

    def reset(self, mask):
        self.told.append(mask.clone())
        if self.state is None or len(self.state) != len(mask):
            self.state = torch.zeros(len(mask), 5, device=mask.device)
        self.state = self.state.masked_fill(mask[:, None], 0.0)

    def forward(self, observation):
        rows = [self.cell(row[None], state[None]) for row, state in zip(observation, self.state, strict=True)]
        self.state = torch.cat(rows)
        return torch.cat([torch.tanh(3 * self.head(row)) for row in rows])


def assert_same(one, other):
    for name, values in vars(one).items():
        np.testing.assert_array_equal(values, getattr(other, name), err_msg=name)


# Within wrappers ------------------------------------------------------------------------------------------------------


@covering
@ENGINES
@pytest.mark.parametrize("max_loss", [None, 3.0])
def test_wrappers_leave_accounts_and_rewards_as_they_are(engine, max_loss):
    bare, wrapped = (make(6, engine=engine, max_loss=max_loss) for _ in range(2))
    wrapped = NormalizeReward(RecordEpisodeStatistics(wrapped))
    policy = policies.RandomQuotes(bare.core.task, seed=4)
    again = policies.RandomQuotes(bare.core.task, seed=4)
    result = evaluate(again, wrapped, 5)
    assert_same(evaluate(policy, bare, 5), result)
    assert result.episode_return.any()


def test_observations_are_those_of_the_wrapper_and_its_statistics_stand_still():
    bare, envs = make(6, engine="cpu"), NormalizeObservation(NormalizeReward(make(6, engine="cpu")))
    envs.reset(seed=1)
    for _ in range(15):  # what was seen in training
        envs.step(torch.zeros(6, 4))
    known = envs.state_dict() | {f"reward {name}": value for name, value in envs.env.state_dict().items()}
    network = linear()
    expected = evaluate(lambda seen: network(envs.normalize(seen).double()).float(), bare, 5)
    assert_same(evaluate(lambda seen: network(seen.double()).float(), envs, 5), expected)
    assert_same(evaluate(lambda seen: network(seen.double()).float(), envs, 5), expected)
    now = envs.state_dict() | {f"reward {name}": value for name, value in envs.env.state_dict().items()}
    of_episodes = ("discounted_return", "ended")
    assert all(torch.equal(now[name], known[name]) for name in known if not name.endswith(of_episodes))
    assert envs.update_running_mean and envs.env.update_running_mean
    assert not np.array_equal(expected.pnl, evaluate(lambda seen: network(seen.double()).float(), bare, 5).pnl)


def test_a_wrapper_that_stood_still_before_does_so_afterwards_even_after_an_error():
    envs = NormalizeObservation(NormalizeReward(make(2, engine="cpu")))
    envs.update_running_mean = False
    with pytest.raises(ZeroDivisionError):
        evaluate(lambda seen: 1 / 0, envs)
    assert not envs.update_running_mean and envs.env.update_running_mean


@pytest.mark.parametrize("max_loss", [None, 3.0])
def test_gymnasiums_wrappers_go_around_torch(max_loss):
    arguments = {"engine": "cpu", "max_loss": max_loss}
    halved = theirs.TransformAction(make(6, **arguments), lambda action: action * 0.5)
    halved = theirs.TransformReward(halved, lambda reward: reward * 7)
    zeros = evaluate(lambda seen: torch.ones(6, 4), halved, 3)
    assert_same(zeros, evaluate(lambda seen: torch.full((6, 4), 0.5), make(6, **arguments), 3))
    pytest.importorskip("array_api_compat")
    arrays = theirs.ArrayConversion(make(6, **arguments), env_xp=torch, target_xp=np)
    arrays = theirs.RecordEpisodeStatistics(arrays)
    seen_kinds = set()

    def act(seen):
        seen_kinds.add(type(seen))
        return np.full((6, 4), 0.5, np.float32)

    assert_same(zeros, evaluate(act, arrays, 3))
    assert seen_kinds == {np.ndarray}


def test_other_environments_within_wrappers_are_refused():
    envs = RecordEpisodeStatistics(make(2, engine="cpu"))
    evaluate(policies.NoTrade(envs.unwrapped.core.task), envs)
    same_step = ks.BatchedParallelEnv(2, {"maker": 1}, engine="cpu", **SMALL)
    staggered = ks.BatchedParallelEnv(2, {"maker": 1}, engine="cpu", autoreset_mode="DISABLED", **SMALL)
    for wrong in (same_step, staggered, envs.unwrapped.core, None):
        with pytest.raises(ValueError, match="envs: expected what evaluation_env returns.*got"):
            evaluate({"maker": policies.NoTrade(envs.unwrapped.core.task)}, wrong)


# Policies with a memory -----------------------------------------------------------------------------------------------


def test_a_memory_begins_anew_and_stays_with_its_market():
    policy, other = Gru(), Gru()
    envs = make(4, engine="cpu")
    together = evaluate(policy, envs, 9)
    assert_same(evaluate(policy, envs, 9), together)  # nothing is left of the first time
    for market in range(4):
        alone = evaluate(other, make(1, engine="cpu"), 9 + market)
        assert alone.pnl[0] == together.pnl[market] and alone.episode_return[0] == together.episode_return[market]
    assert len(set(together.pnl.tolist())) == 4
    forgetful = Gru()
    forgetful.forward = lambda seen: (
        forgetful.reset(torch.ones(len(seen), dtype=torch.bool)),
        Gru.forward(forgetful, seen),
    )[1]
    assert not np.array_equal(evaluate(forgetful, envs, 9).pnl, together.pnl)


@ENGINES
def test_markets_whose_episodes_have_ended_stand_until_all_have(engine):
    envs, policy = make(8, engine=engine, max_loss=2.0), Gru()
    pump, step, ends = policies.attackers.PumpAndDump(envs.core.task, 8), envs.step, []
    state = {name: envs.simulator.tensors[name] for name in ("t", "bid", "ask", "cash", "inventory", "quotes")}

    def watched(actions):
        done, before = envs.core.tensors["done"].clone(), {name: tensor.clone() for name, tensor in state.items()}
        results = step(actions)
        assert all(torch.equal(tensor[done], before[name][done]) for name, tensor in state.items())
        ends.append(int(envs.core.tensors["done"].sum()))
        return results

    envs.step, policy.forward = watched, pump
    evaluate(policy, envs, 9)
    assert ends == sorted(ends) and len(set(ends)) > 2 and ends[0] < ends[-1] == 8
    (told,) = policy.told  # only where the one episode of each begins
    assert bool(told.all())
    envs.step = step
    envs.reset(seed=9)
    if engine != "cuda":
        with pytest.raises(gym.error.ResetNeeded):  # as ever, once the evaluation is over
            for _ in range(21):
                envs.step(pump(envs.observation))


# Many learners --------------------------------------------------------------------------------------------------------


@ENGINES
def test_one_learner_is_evaluated_as_in_its_own_environment(engine):
    maker = make(6, engine=engine, replace="maker")
    policy = policies.FixedSpread(maker.core.task, 2.0)
    played = evaluate({"maker": policy}, make_many(6, {"maker": 1}, engine=engine), 7)
    assert list(played) == ["maker_0"]
    assert_same(played["maker_0"], evaluate(policy, maker, 7))
    blocks = make(6, "Execution", engine=engine, block_qty=12)
    policy = policies.TimeWeighted(blocks.core.task, 1.0)
    many = make_many(6, {"executor": 1}, engine=engine, block_qty=12, reward_scale=1.0)
    assert_same(evaluate({"executor_0": policy}, many, 7)["executor_0"], evaluate(policy, blocks, 7))


def test_all_that_reach_the_horizon_are_unwound_together_and_blocks_are_kept():
    learners = {"maker": 2, "noise": 1, "executor": 1}
    envs, again = (make_many(6, learners, engine="cpu", block_qty=10) for _ in range(2))
    task = envs.core.task
    quiet, busy = policies.FixedSpread(task, 6.0), policies.FixedSpread(task, 2.0)
    orders = policies.TimeWeighted(task, 1.0)
    played = evaluate({"maker_0": quiet, "maker_1": busy, "noise": orders, "executor": orders}, envs, 3)
    assert list(played) == ["maker_0", "maker_1", "noise_0", "executor_0"]
    seen, _ = again.reset(seed=3)
    returns = torch.zeros(6, 4, dtype=torch.float64)
    for _ in range(task.horizon):
        makers = torch.stack([quiet(seen["maker"][:, 0]), busy(seen["maker"][:, 1])], 1)
        others = {role: orders(seen[role][:, 0])[:, None] for role in ("noise", "executor")}
        seen, rewards, *_ = again.step({"maker": makers, **others})
        returns += torch.cat(list(rewards.values()), 1)
    simulator = again.simulator
    kept = simulator.inventory[:, 2:].clone()
    assert bool((kept[:, 1].abs() == 10).all()) and bool(simulator.inventory[:, :2].any())
    simulator.inventory[:, 2:] = 0
    liquidate(simulator)
    for slot in (0, 1):
        assert played[f"maker_{slot}"].pnl.tolist() == simulator.money[:, slot].tolist()
    assert played["noise_0"].pnl == pytest.approx(returns[:, 2].numpy() * task.reward_scale)
    assert played["executor_0"].pnl == pytest.approx(returns[:, 3].numpy() * task.reward_scale, abs=1e-4)
    for slot, result in enumerate(played.values()):
        assert result.episode_return.tolist() == returns[:, slot].tolist()
    assert torch.equal(envs.simulator.inventory[:, 2:], kept)


def test_who_terminates_before_is_unwound_apart():
    envs, again = (make_many(24, {"maker": 2}, engine="cpu", config=None, max_loss=40.0, horizon=40) for _ in range(2))
    task = envs.core.task
    by_agent = {"maker_0": policies.attackers.PumpAndDump(task, 8), "maker_1": policies.FixedSpread(task, 2.0)}
    played = evaluate(by_agent, envs, 9)
    seen, _ = again.reset(seed=9)
    money, ended = torch.full((24, 2), torch.nan, dtype=torch.float64), torch.zeros(24, 2, dtype=torch.bool)
    for left in reversed(range(40)):
        actions = torch.stack([policy(seen["maker"][:, k]) for k, policy in enumerate(by_agent.values())], 1)
        seen, _, terminated, _, infos = again.step({"maker": actions})
        now = terminated["maker"] & ~ended
        if bool(now.any()):
            apart = again.simulator.branch()
            apart.inventory.masked_fill_(~now, 0)
            liquidate(apart)
            money, ended = torch.where(now, apart.money, money), ended | now
        over = ~infos["active"]["maker"].any(1)
        if left and bool(over.any()):
            again.reset(options={"reset_mask": over})
    one_of_two = ended[:, 0] != ended[:, 1]
    assert 2 < int(one_of_two.sum()) and bool(ended.any(0).all())
    again.simulator.inventory.masked_fill_(ended, 0)  # who has ended is not unwound again beside the others
    liquidate(again.simulator)
    money = torch.where(ended, money, again.simulator.money)
    for slot, result in enumerate(played.values()):
        assert result.pnl.tolist() == money[:, slot].tolist()


def test_policies_by_role_see_all_learners_of_it():
    learners = {"maker": 2, "trader": 1}
    network, trader = linear(), policies.MomentumTrader(make_many(1, learners, engine="cpu").core.task, 1.0)
    shapes = set()

    def maker(seen):
        shapes.add(tuple(seen.shape))
        return torch.stack([network(row.double()).float() for row in seen])

    shared = evaluate({"maker": maker, "trader": trader}, make_many(5, learners, engine="cpu"), 2)
    assert shapes == {(10, 39)}
    each = {"maker_0": maker, "maker_1": maker, "trader_0": trader}
    own = evaluate(each, make_many(5, learners, engine="cpu"), 2)
    assert shapes == {(10, 39), (5, 39)}
    for name, result in shared.items():
        assert_same(result, own[name])
    assert not np.array_equal(own["maker_0"].pnl, own["maker_1"].pnl)


def test_memories_of_many_learners():
    shared, first, second = Gru(3), Gru(3), Gru(3)
    envs = make_many(4, {"maker": 2}, engine="cpu")
    by_role = evaluate({"maker": shared}, envs, 2)
    by_agent = evaluate({"maker_0": first, "maker_1": second}, envs, 2)
    for name, result in by_role.items():
        assert_same(result, by_agent[name])
    assert [mask.shape for mask in shared.told] == [(8,)] and [mask.shape for mask in first.told] == [(4,)]


def test_discrete_actions_of_many_learners():
    envs = make_many(4, {"maker": 2}, engine="cpu", action_type="discrete")
    task = envs.core.task
    fixed = policies.FixedSpread(task, 3.0)
    chosen = evaluate({"maker": policies.Discretised(fixed, task, "maker")}, envs, 2)
    continuous = evaluate({"maker": fixed}, make_many(4, {"maker": 2}, engine="cpu"), 2)
    for name, result in chosen.items():
        assert_same(result, continuous[name])


def test_the_dict_of_policies_is_checked():
    envs = make_many(2, {"maker": 2, "noise": 1}, engine="cpu")
    hold = policies.NoTrade(envs.core.task)
    rest = {"noise": policies.RandomOrders(envs.core.task)}
    gru = Gru()
    wrong = [
        (TypeError, "policy: expected, with many learners, a dict .*, got NoTrade", hold),
        (ValueError, "expected one of maker, noise, maker_0.*got the entry 'executor'", {"executor": hold}),
        (ValueError, "got too few of noise, noise_0", {"maker": hold}),
        (ValueError, "got too few of maker, maker_0, maker_1", {"maker_0": hold, **rest}),
        (ValueError, "got both of maker, maker_0, maker_1", {"maker": hold, "maker_0": hold, **rest}),
        (TypeError, r"policy\['maker'\]: expected .*, got 3", {"maker": 3, **rest}),
        (ValueError, "a recurrent policy in several entries", {"maker_0": gru, "maker_1": gru, **rest}),
        (
            ValueError,
            r"policy\['maker'\]: expected 4 rows, got actions \[3, 4\]",
            {"maker": lambda x: x[:3, :4], **rest},
        ),
    ]
    for kind, message, given in wrong:
        with pytest.raises(kind, match=message):
            evaluate(given, envs)
    assert isinstance(evaluate({"maker": hold, **rest}, envs)["maker_1"], Evaluation)


# Unwinding some -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["trading", "continuous"])
def test_only_the_slots_asked_for_are_unwound(preset):
    simulator = ks.Simulator(ks.MarketConfig.preset(preset), 3, engine="cpu", slots=2, seed=2)
    simulator.run(30)
    simulator.inventory[:] = torch.tensor([[5, -4], [0, 7], [3, 3]])
    slots = torch.tensor([[True, False], [False, False], [True, True]])
    alone = simulator.branch()
    alone.inventory.masked_fill_(~slots, 0)
    expected = liquidate(alone)
    cash = liquidate(simulator, slots=slots)
    assert torch.equal(cash, expected) and bool(cash[0, 0] > 0)
    assert simulator.inventory.tolist() == [[0, -4], [0, 7], [0, 0]]
    with pytest.raises(MarketError, match="1 of 1 slots still hold"):
        liquidate(simulator, 0, torch.tensor([[False, True], [False, False], [False, False]]))
    for wrong in (slots[:, :1], slots.int(), [True], torch.ones(3, 2)):
        with pytest.raises((TypeError, ValueError), match=r"slots: expected bool \[3, 2\].*got"):
            liquidate(simulator, slots=wrong)
