"""Which scenario an episode has: drawn by weights, or asked for in a reset; on all engines, in all autoreset modes."""

import itertools
import json
from fractions import Fraction

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plain_rules import word

import kineticsim_env as ks
from kineticsim_env.envs.scenario_weights import thresholds_of
from kineticsim_env.envs.single import MarketMakingEnv
from kineticsim_env.envs.vector import TradingVectorEnv

SMALL = {"preset": "trading", "engine": "cpu", "horizon": 3, "bank_size": 4, "warmup": 3, "bank_per_market": 2}
FIVE = {"randomise": {"fee": {"values": [1, 2, 3]}, "noise_spread": (6, 20)}, "num_scenarios": 5}
SCENARIO_WORD = 2**30 + 4
both_engines = pytest.mark.parametrize("engine", ["cpu", "numpy"])
all_modes = pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])


def make(num_envs=8, **kwargs):
    return TradingVectorEnv(num_envs, **{**SMALL, **FIVE, "stagger": False, **kwargs})


def act(envs, t=0):
    shape = envs.action_space.shape
    return envs.step(np.random.default_rng(t).uniform(-1, 1, shape).astype(np.float32))


def high(seed, episode):
    return word(seed, episode, 0, SCENARIO_WORD) >> 32


def by_hand(weights, number):
    """The scenario of a word's high half, as docs/environment.md says, in whole numbers and one after the other."""
    shares, total = [Fraction(float(weight)) for weight in weights], Fraction(0)
    for scenario, share in enumerate(shares):
        total += share
        if number < -(-(total * 2**32) // sum(shares)):  # rounded up
            return scenario
    raise AssertionError("no scenario")


# Thresholds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "wanted"),
    [
        ([1, 0, 3], [2**30, 2**30, 2**32]),
        ([0, 1, 0], [0, 2**32, 2**32]),
        ([1, 1, 1], [1431655766, 2863311531, 2**32]),  # 2^32 / 3 = 1431655765.3
        ([0.5, 0.25, 0.25], [2**31, 3 * 2**30, 2**32]),
        ([1e300, 1e308, 1e308], [22, 2147483659, 2**32]),  # a sum beyond the largest double: 2^32 / (2e8 + 1) = 21.5
        ([0, 2.0**-1074, 0], [0, 2**32, 2**32]),
        ([2.0**-40, 1], [1, 2**32]),  # rounded up
        ([7], [2**32]),
    ],
)
def test_thresholds_by_hand(weights, wanted):
    assert thresholds_of(np.array(weights, np.float64)).tolist() == wanted


@pytest.mark.parametrize("scenarios", [1, 2, 3, 7, 255, 256, 257, 1000, 65535, 65536])
@pytest.mark.parametrize("weight", [1.0, 0.1, 3e-200])
def test_equal_weights_are_the_draw_without_weights(scenarios, weight):
    """(u * S) >> 32 is below s just where u is below s * 2^32 / S, rounded up."""
    wanted = [-(-(s << 32) // scenarios) for s in range(1, scenarios + 1)]
    assert thresholds_of(np.full(scenarios, weight)).tolist() == wanted


@given(st.lists(st.one_of(st.just(0.0), st.floats(0, 1e12), st.floats(1e-9, 1)), min_size=1, max_size=40).filter(any))
def test_thresholds_are_shares(weights):
    thresholds = [0, *thresholds_of(np.array(weights)).tolist()]
    assert thresholds[-1] == 2**32
    total = sum(map(Fraction, weights))
    for weight, before, after in zip(weights, thresholds, thresholds[1:], strict=False):
        room = after - before
        assert room >= 0 and (weight > 0 or room == 0)
        assert abs(room - Fraction(weight) * 2**32 / total) < 1 + Fraction(1, 10**4)


# Draws ----------------------------------------------------------------------------------------------------------------


@both_engines
@all_modes
def test_episodes_draw_by_weights_from_their_next_one_on(engine, mode):
    """Running episodes keep theirs, when weights are set, changed and taken back."""
    envs, plan = make(16, engine=engine, autoreset_mode=mode), {4: [2, 0, 1, 0, 5], 13: [0, 0, 0, 1, 0], 22: None}
    envs.reset(seed=31)
    weights = dict.fromkeys(range(16), [1] * 5)  # by which each market's present episode was drawn
    now, episodes, seen = [1] * 5, [0] * 16, set()
    for t in range(30):
        if t in plan:
            envs.set_scenario_weights(plan[t])
            now = plan[t] or [1] * 5
        _, _, terminated, truncated, _ = act(envs, t)
        over = terminated | truncated
        if mode == "disabled" and over.any():
            envs.reset(options={"reset_mask": over})
        for m, episode in enumerate(envs.simulator.tensors["episode"].tolist()):
            if episode != episodes[m]:
                weights[m], episodes[m] = now, episode
            assert int(envs.scenario[m]) == by_hand(weights[m], high(31 + m, episode))
            seen.add((tuple(weights[m]), int(envs.scenario[m])))
    assert len(seen) >= 4 + 3 + 1 and min(episodes) >= 6
    table = envs.core.live_task.scenarios
    for name in ("fee", "noise_spread"):  # parameters follow
        np.testing.assert_array_equal(envs.simulator.parameter(name).numpy(), getattr(table, name)[envs.scenario])


@both_engines
def test_frequencies_are_the_weights(engine):
    envs = make(4096, engine=engine, bank_size=0)
    weights = np.array([0.0, 1.0, 0.0, 2.0, 5.0])
    envs.set_scenario_weights(weights)
    envs.reset(seed=3)
    counts = np.bincount(envs.scenario.numpy(), minlength=5)
    assert counts[0] == counts[2] == 0
    expected = 4096 * weights[weights > 0] / 8
    assert ((counts[weights > 0] - expected) ** 2 / expected).sum() < 13.8  # chi squared with 2 degrees, 0.1%
    first = envs.scenario.clone()
    envs.reset()
    alike = float((first == envs.scenario).double().mean())  # independent of the episode before
    assert abs(alike - (1 + 4 + 25) / 64) < 0.03


def test_no_word_draws_a_scenario_of_weight_0():
    """The first and the last words of what a scenario has, and of 2^32: seeds were searched for them by hand."""
    envs = make(6, bank_size=0)
    numbers = [high(50 + m, 0) for m in range(6)]
    thresholds = envs.core._engine.scenario_thresholds
    for m, number in enumerate(numbers):  # the word is the last one of scenario 1, then the first one of scenario 3
        thresholds.copy_(torch.tensor([0, number + 1, number + 1, 2**32, 2**32]))
        envs.reset(seed=50)
        assert int(envs.scenario[m]) == 1
        thresholds.copy_(torch.tensor([0, number, number, 2**32, 2**32]))
        envs.reset(seed=50)
        assert int(envs.scenario[m]) == 3


@both_engines
def test_equal_weights_and_none_draw_what_no_weights_draw(engine):
    plain, equal, back = (make(64, engine=engine, num_scenarios=37) for _ in range(3))
    equal.set_scenario_weights(np.full(37, 0.3))
    back.set_scenario_weights(np.arange(37))
    back.set_scenario_weights(None)
    for t in range(8):
        for envs in (plain, equal, back):
            envs.reset(seed=1) if t == 0 else act(envs, t)
        assert torch.equal(plain.scenario, equal.scenario) and torch.equal(plain.scenario, back.scenario)
    assert torch.equal(plain.scenario_weights, equal.scenario_weights)


def test_weights_may_be_of_any_kind():
    envs, wanted = make(), [0.25, 0, 0.5, 0.25, 0]
    for kind in (
        [1, 0, 2, 1, 0], (1.0, 0.0, 2.0, 1.0, 0.0), np.array([1, 0, 2, 1, 0], np.uint8), np.float16([1, 0, 2, 1, 0]),
        torch.tensor([1, 0, 2, 1, 0]), torch.tensor([1, 0, 2, 1, 0], dtype=torch.bfloat16),
        torch.tensor([4.0, 0, 8, 4, 0], requires_grad=True), np.array([1, 9, 0, 9, 2, 9, 1, 9, 0, 9])[::2],
    ):  # fmt: skip
        envs.set_scenario_weights(None)
        envs.set_scenario_weights(kind)
        assert envs.scenario_weights.tolist() == wanted
    envs.set_scenario_weights(np.array([True, False, False, True, False]))
    assert envs.scenario_weights.tolist() == [0.5, 0, 0, 0.5, 0]
    assert make(randomise=None).scenario_weights is None
    assert envs.scenario_weights.dtype == torch.float64


@both_engines
def test_whatever_the_table_holds_an_episode_has_a_scenario_there_is(engine):
    """The engines' memory does not depend on what callers write into a live tensor."""
    envs = make(64, engine=engine)
    thresholds, numbers = envs.core._engine.scenario_thresholds, (-(2**63), -1, 0, 1, 2**31, 2**32, 2**63 - 1)
    for values in itertools.islice(itertools.product(numbers, repeat=5), 0, 7**5, 131):
        thresholds.copy_(torch.tensor(values))
        envs.reset(seed=1)
        assert 0 <= int(envs.scenario.min()) and int(envs.scenario.max()) <= 4
    asked = torch.tensor([5, -7, 2**31 - 1, -(2**31)] * 16, dtype=torch.int32)
    if engine == "cpu":
        envs.core._engine.launch(2, reset_scenario=asked)
        assert 0 <= int(envs.scenario.min()) and int(envs.scenario.max()) <= 4


# Asked for ------------------------------------------------------------------------------------------------------------


@both_engines
@all_modes
def test_a_reset_asks_for_scenarios(engine, mode):
    """For that episode alone, and where it resets; -1 is drawn as ever, and nothing else differs."""
    envs, plain = make(engine=engine, autoreset_mode=mode), make(engine=engine, autoreset_mode=mode)
    plain.reset(seed=9)
    drawn = plain.scenario.tolist()
    envs.reset(seed=9, options={"scenario": 3})
    assert envs.scenario.tolist() == [3] * 8
    assert envs.simulator.parameter("noise_spread").tolist() == [envs.core.live_task.scenarios.noise_spread[3]] * 8
    asked = [0, -1, 1, -1, 2, -1, 4, -1]
    for given_as in (asked, np.array(asked, np.int8), torch.tensor(asked), torch.tensor(asked, dtype=torch.int32)):
        envs.reset(seed=9, options={"scenario": given_as})
        assert envs.scenario.tolist() == [one if one >= 0 else other for one, other in zip(asked, drawn, strict=True)]
    mask = np.arange(8) < 4
    envs.reset(options={"scenario": np.full(8, 4), "reset_mask": mask})
    assert envs.scenario.tolist() == [4, 4, 4, 4, 2, drawn[5], 4, drawn[7]]
    envs.reset(seed=9, options={"scenario": None})
    assert envs.scenario.tolist() == drawn
    envs.reset(seed=9, options={"scenario": 2})
    for t in range(12):
        over = [act(each, t)[3] for each in (envs, plain)]
        if mode == "disabled" and over[0].any():
            for each in (envs, plain):
                each.reset(options={"reset_mask": over[0]})
    assert torch.equal(envs.scenario, plain.scenario) and int(envs.simulator.tensors["episode"].min()) >= 3
    assert torch.equal(envs.simulator.bid, plain.simulator.bid)  # the next episodes are as if nobody had asked


def test_what_is_asked_for_is_drawn_by_no_weights():
    envs = make()
    envs.set_scenario_weights([0, 1, 0, 0, 0])
    envs.reset(seed=1, options={"scenario": [0, -1, 2, -1, 4, -1, -1, 3]})
    assert envs.scenario.tolist() == [0, 1, 2, 1, 4, 1, 1, 3]


def test_single_parallel_and_batched_environments():
    more = {**SMALL, **FIVE}
    env = gym.make("KineticSim/MarketMaking-v0", **more)
    _, infos = env.reset(seed=1, options={"scenario": 3})
    assert infos["scenario"] == 3 == int(env.unwrapped.scenario)
    assert env.step(env.action_space.sample())[4]["scenario"] == 3
    env.unwrapped.set_scenario_weights(np.eye(5)[2])
    assert env.reset()[1]["scenario"] == 2
    assert "scenario" not in MarketMakingEnv(**SMALL).reset(seed=1)[1]
    market = ks.parallel_env({"maker": 1, "trader": 1}, **more)
    _, infos = market.reset(seed=1, options={"scenario": 4, "other": 1})
    assert {agent: info["scenario"] for agent, info in infos.items()} == {"maker_0": 4, "trader_0": 4}
    many = ks.BatchedParallelEnv(3, {"maker": 1}, **more)
    many.reset(seed=1, options={"scenario": [1, 0, 4]})
    assert many.scenario.tolist() == [1, 0, 4]
    many.reset(options={"scenario": 2, "reset_mask": [False, True, False]})
    assert many.scenario.tolist() == [1, 2, 4]


@both_engines
@all_modes
@pytest.mark.parametrize("own", [False, True], ids=["built in", "own reward"])
@pytest.mark.parametrize("markets", [1, 16])
def test_the_ended_episodes_scenario_is_in_the_infos(engine, mode, own, markets):
    """A market of its own for each: what its scenario was before the step in which it ended."""
    more = {"reward": lambda before, after: after.cash - before.cash} if own else {}
    envs = make(markets, engine=engine, autoreset_mode=mode, account_info=True, output="torch", stagger=True, **more)
    envs.set_scenario_weights([1, 0, 2, 3, 4])
    envs.reset(seed=2)
    checked, changed = 0, 0
    for t in range(16):
        before = envs.scenario.clone()
        waits = envs.core.tensors["done"].clone()
        *_, infos = envs.step(torch.rand(markets, 2, generator=torch.Generator().manual_seed(t)))
        ended = infos["_account_info"]
        assert not bool((ended & waits).any())
        assert torch.equal(infos["account_info"]["scenario"][ended], before[ended].double())
        if mode == "disabled" and bool(ended.any()):
            envs.reset(options={"reset_mask": ended})
        checked += int(ended.sum())
        changed += int((envs.scenario != before)[ended].sum())
    assert checked >= 3 * markets - 1 and (changed > markets // 2 or mode == "next_step")


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "error", "match"),
    [
        ([1, 2], ValueError, r"weights: expected 5 finite numbers from 0, one of them above it, or None, got \[2\]"),
        (np.ones((5, 1)), ValueError, r"weights: expected .*got \[5, 1\]"),
        (3, ValueError, r"weights: expected .*got \[\]"),
        ([0, 0, 0, 0, 0], ValueError, "weights: expected .*got 0 for all scenarios"),
        ([1, 1, -1, 1, 1], ValueError, "weights: expected .*got -1.0 for scenario 2"),
        ([1, 1, 1, np.nan, 1], ValueError, "weights: expected .*, got nan for scenario 3"),
        (torch.tensor([1, 1, 1, 1, torch.inf]), ValueError, "weights: expected .*, got inf for scenario 4"),
        (["a"] * 5, TypeError, "weights: .*got"),
        (np.ones(5, complex), TypeError, "weights: .*got"),
        (torch.ones(5, dtype=torch.complex64), TypeError, "weights: .*got"),
        (torch.ones(5, device="meta"), TypeError, "weights: .*got"),
        (torch.ones(5).to_sparse(), TypeError, "weights: .*got"),
        ({0: 1}, TypeError, "weights: .*got"),
    ],
)
def test_weights_are_refused_at_the_door(weights, error, match):
    envs = make()
    envs.set_scenario_weights([1, 0, 0, 0, 0])
    with pytest.raises(error, match=match):
        envs.set_scenario_weights(weights)
    assert envs.scenario_weights.tolist() == [1, 0, 0, 0, 0]
    with pytest.raises(
        ValueError,
        match="set_scenario_weights: expected an environment made with randomise=..., got one without scenarios",
    ):
        make(randomise=None).set_scenario_weights(None)


@pytest.mark.parametrize(
    ("scenario", "error", "match"),
    [
        (5, ValueError, "scenario: expected -1 to 4, an int or 8 of them, got 5"),
        (-2, ValueError, "scenario: expected .*got -2"),
        (2**70, ValueError, "scenario: expected .*, got 118"),
        (True, TypeError, "scenario: expected .*got True"),
        (1.0, TypeError, "scenario: expected .*got 1.0"),
        ("1", TypeError, "scenario: expected .*got '1'"),
        ([1, 2], ValueError, r"scenario: expected .*got \[1, 2\]"),
        (np.arange(8), ValueError, "scenario: expected .*got 5"),
        (np.arange(8.0), TypeError, "scenario: expected .*, got array"),
        (torch.arange(8.0), TypeError, "scenario: expected .*, got torch.float32"),
        (torch.full((8,), -5), ValueError, "scenario: expected .*got -5"),
        (torch.ones(8, dtype=torch.int64, device="meta"), TypeError, "scenario: expected .*, got torch.int64"),
    ],
)
def test_scenarios_are_refused_at_the_door(scenario, error, match):
    envs = make()
    envs.reset(seed=1)
    act(envs)
    before = envs.state_dict()
    with pytest.raises(error, match=match):
        envs.reset(seed=4, options={"scenario": scenario})
    assert all(torch.equal(value, envs.state_dict()[name]) for name, value in before.items())


def test_other_errors_of_resets():
    envs = make()
    with pytest.raises(ValueError, match="expected 'reset_mask' and 'scenario', got the unknown key 'scenarios'"):
        envs.reset(options={"scenarios": 1})
    for kind in (make(randomise=None), MarketMakingEnv(**SMALL), ks.parallel_env({"maker": 1}, **SMALL)):
        with pytest.raises(ValueError, match="scenario: expected an environment made with randomise=.*got 0"):
            kind.reset(seed=1, options={"scenario": 0})
    with pytest.raises(ValueError, match="got the unknown key 'mask'"):
        MarketMakingEnv(**SMALL).reset(options={"mask": 0})


# State ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engines", [("cpu", "numpy"), ("numpy", "cpu")])
def test_weights_are_saved_and_loaded(engines):
    """Into an environment with another table, of another length, and other weights."""
    envs = make(16, engine=engines[0])
    envs.set_scenario_weights([1, 0, 0, 2, 0])
    envs.reset(seed=1)
    saved = envs.state_dict()
    assert saved["scenario_thresholds"].tolist() == thresholds_of(np.array([1, 0, 0, 2.0, 0])).tolist()
    other = make(16, engine=engines[1], num_scenarios=9)
    other.set_scenario_weights(np.eye(9)[8])
    other.load_state_dict(saved)
    assert torch.equal(other.scenario_weights, envs.scenario_weights)
    for t in range(12):
        for mine, theirs in zip(act(envs, t)[:4], act(other, t)[:4], strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert torch.equal(envs.scenario, other.scenario)
    assert set(envs.scenario.tolist()) == {0, 3}
    envs.set_scenario_weights(None)
    other.load_state_dict(envs.state_dict())
    assert other.scenario_weights.tolist() == pytest.approx([0.2] * 5)


@both_engines
def test_thresholds_that_no_weights_have_are_refused(engine):
    envs = make(engine=engine)
    envs.set_scenario_weights([1, 0, 0, 2, 0])
    envs.reset(seed=1)
    saved = envs.state_dict()
    good = saved["scenario_thresholds"]
    for wrong in (good - 1, good.flip(0), good * 2, torch.tensor([-1, 0, 0, 0, 2**32]), torch.tensor([0, 0, 0, 1, 0])):
        with pytest.raises(ValueError, match=r"state\['scenario_thresholds'\]: expected rising numbers.*got"):
            envs.load_state_dict({**saved, "scenario_thresholds": wrong})
    for wrong in (good[:4], good.int(), None):
        with pytest.raises((TypeError, ValueError), match=r"state\['scenario_thresholds'\]: expected .*, got"):
            envs.load_state_dict({**saved, "scenario_thresholds": wrong})
    without = {name: value for name, value in saved.items() if name != "scenario_thresholds"}
    with pytest.raises(ValueError, match="missing or unknown names .*scenario_thresholds"):
        envs.load_state_dict(without)
    assert all(torch.equal(value, envs.state_dict()[name]) for name, value in saved.items())


@both_engines
def test_a_clone_has_the_weights_and_its_own(engine):
    envs = make(64, engine=engine)
    envs.set_scenario_weights([0, 1, 1, 0, 0])
    envs.reset(seed=1)
    clone = envs.clone()
    assert torch.equal(clone.scenario_weights, envs.scenario_weights)
    clone.reset()
    envs.reset()
    assert torch.equal(clone.scenario, envs.scenario) and set(clone.scenario.tolist()) == {1, 2}
    clone.set_scenario_weights([0, 0, 0, 0, 1])
    envs.reset()
    clone.reset()
    assert set(envs.scenario.tolist()) == {1, 2} and set(clone.scenario.tolist()) == {4}


@both_engines
@pytest.mark.parametrize("rows", [5, 7])
def test_another_table_has_no_weights(engine, rows):
    envs = make(64, engine=engine)
    envs.set_scenario_weights([0, 1, 0, 0, 0])
    envs.reset(seed=1)
    envs.set_scenarios(ks.MarketConfig.preset("trading", fee=list(range(rows))))
    assert envs.scenario_weights.tolist() == pytest.approx([1 / rows] * rows)
    envs.reset()
    assert set(envs.scenario.tolist()) == set(range(rows))
    envs.set_scenario_weights(np.eye(rows)[rows - 1])
    envs.reset()
    assert set(envs.scenario.tolist()) == {rows - 1}
    with pytest.raises(ValueError, match="fee"):
        envs.set_scenarios({"fee": (3, 1)})
    assert envs.scenario_weights[-1] == 1  # a refused table changes nothing


def test_the_table_of_thresholds_stays_where_it_is():
    """A captured CUDA graph has its address, from before the first weights on."""
    envs = make()
    thresholds = envs.core._engine.scenario_thresholds
    place = thresholds.data_ptr()
    for weights in ([1, 2, 3, 4, 5], None, [0, 0, 1, 0, 0]):
        envs.set_scenario_weights(weights)
        assert envs.core._engine.scenario_thresholds is thresholds
    envs.set_scenarios({"fee": (5, 9)})
    assert envs.core._engine.scenario_thresholds.data_ptr() == place and not thresholds.any()


# Levels by their scores -----------------------------------------------------------------------------------------------


@all_modes
def test_scores_of_a_scripted_policy_move_the_weights_to_hard_scenarios(mode):
    """Prioritised level replay without a learner: a trader that always pays a fee, which some scenarios have higher."""
    fees = [0, 50_000, 1_000, 100_000, 0, 10_000]
    table = ks.MarketConfig.preset("trading", fee=fees)
    envs = TradingVectorEnv(
        256, **{**SMALL, "horizon": 5, "randomise": table, "autoreset_mode": mode}, account_info=True, output="torch",
        reward="pnl", mark="mid", stagger=False,
    )  # fmt: skip
    envs.reset(seed=0)
    total, count = torch.zeros(6, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)
    actions = torch.ones(256, 2)
    drawn = []
    for _ in range(8 * 6):
        *_, infos = envs.step(actions)
        ended, final = infos["_account_info"], infos["account_info"]
        if not bool(ended.any()):
            continue
        played = final["scenario"][ended].long()
        drawn.append(torch.bincount(played, minlength=6))
        total.index_add_(0, played, -final["episode_return"][ended])
        count.index_add_(0, played, torch.ones(len(played), dtype=torch.float64))
        ranks = (-(total / count.clamp(min=1))).argsort().argsort() + 1  # 1: the most lost
        envs.set_scenario_weights(torch.where(count > 0, 1.0 / ranks, 1.0) ** 2)
        if mode == "disabled":
            envs.reset(options={"reset_mask": ended})
    assert envs.scenario_weights.argsort(descending=True)[:3].tolist() == [3, 1, 5]
    first, last = drawn[0].double() / drawn[0].sum(), sum(drawn[-3:]).double() / sum(drawn[-3:]).sum()
    assert 0.1 < float(first[3]) < 0.25 and float(last[3]) > 0.5


def test_a_state_says_its_scenarios_in_full():
    """The table and the thresholds of a saved state are of one length."""
    saved = make().state_dict()
    assert len(json.loads(saved["scenarios"].numpy().tobytes())["fee"]) == len(saved["scenario_thresholds"]) == 5
