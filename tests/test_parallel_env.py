"""The PettingZoo environment: the checkers, and what they are blind to: whole-episode replay, roles, targets."""

import numpy as np
import pytest
import torch
from markets import FEW_ORDERS
from pettingzoo.test import api_test, max_cycles_test, parallel_api_test, parallel_seed_test, seed_test
from pettingzoo.utils.conversions import parallel_to_aec

import kineticsim_env as ks
from kineticsim_env.config import CLASSES
from kineticsim_env.envs.settings import EnvSettings

SMALL = {"engine": "cpu", "horizon": 15, "bank_size": 16, "warmup": 20}
ALL = {"maker": 2, "momentum": 1, "noise": 1, "executor": 1, "trader": 1}
AGENTS = ["maker_0", "maker_1", "momentum_0", "noise_0"]
both_actions = pytest.mark.parametrize("action_type", ["continuous", "discrete"])


def make(learners=None, **kwargs):
    return ks.parallel_env(learners, **{**SMALL, **kwargs})


def sample(env, generator):
    """One action for each living agent, drawn by a generator of ours."""
    actions = {}
    for agent in env.agents:
        space = env.action_space(agent)
        if space.shape:
            actions[agent] = generator.uniform(-1, 1, space.shape).astype(np.float32)
        else:
            actions[agent] = int(generator.integers(space.n))
    return actions


def play(env, seed, episodes=2):
    """All results over whole episodes."""
    generator, results = np.random.default_rng(seed), []
    for episode in range(episodes):
        results.append(env.reset(seed=seed if episode == 0 else None))
        while env.agents:
            results.append(env.step(sample(env, generator)))
    return results


# All that the checkers may say about agents of different roles.
only_known_warnings = pytest.mark.filterwarnings(
    "error", "ignore:Agents have different", "ignore:Observations are different"
)
every_role = pytest.mark.parametrize("learners", [None, ALL, {"executor": 1}, {"trader": 2}])


@both_actions
@every_role
@only_known_warnings
def test_pettingzoo_checkers(learners, action_type):
    kwargs = {"action_type": action_type, "block_qty": 10}
    parallel_api_test(make(learners, **kwargs), num_cycles=40)
    parallel_seed_test(lambda: make(learners, **kwargs), num_cycles=20)
    api_test(parallel_to_aec(make(learners, **kwargs)), num_cycles=40)
    seed_test(lambda: parallel_to_aec(make(learners, **kwargs)), num_cycles=20)


@both_actions
@only_known_warnings
@pytest.mark.filterwarnings("ignore:The old environment creation API")
def test_the_registry_makes_what_the_checkers_take(action_type):
    pettingzoo = pytest.importorskip("pettingzoo", minversion="1.27")

    def made(api):
        kwargs = {**SMALL, "action_type": action_type, "block_qty": 10}
        return pettingzoo.make(api, "KineticSim/Market-v0", learners=ALL, **kwargs)

    parallel_api_test(made("parallel"), num_cycles=40)
    parallel_seed_test(lambda: made("parallel"), num_cycles=20)
    api_test(made("aec"), num_cycles=40)
    seed_test(lambda: made("aec"), num_cycles=20)


@pytest.mark.parametrize("learners", [None, {"maker": 1, "trader": 1, "noise": 1}])
def test_max_cycles(learners):
    class Module:
        parallel_env = staticmethod(lambda max_cycles: make(learners, max_cycles=max_cycles))
        env = staticmethod(lambda max_cycles: parallel_to_aec(make(learners, max_cycles=max_cycles)))

    max_cycles_test(Module)


@both_actions
def test_replay_with_all_roles(action_type):
    kwargs = {"action_type": action_type, "block_qty": 8, "max_loss": 60.0, "reward": "per_unit", "config": FEW_ORDERS}
    first, *others = (play(make(ALL, engine=engine, **kwargs), 4, 3) for engine in ("cpu", "cpu", "numpy"))
    for again in others:
        for one, two in zip(first, again, strict=True):
            assert list(one[0]) == list(two[0]) and one[1:] == two[1:]
            for agent in one[0]:
                np.testing.assert_array_equal(one[0][agent], two[0][agent])
    assert len({tuple(step[0]) for step in first}) > 2  # agents left one by one


# Each agent's own end -------------------------------------------------------------------------------------------------


def test_an_executor_leaves_when_its_block_is_done():
    env = make({"maker": 1, "executor": 1, "trader": 1}, block_qty=5, reward="pnl")
    observations, _ = env.reset(seed=1)
    assert env.agents == env.possible_agents == ["maker_0", "executor_0", "trader_0"]
    side, gone, steps = observations["executor_0"][33], 0, 0
    far = np.array([1, 1, 1, 1], np.float32)
    while env.agents:
        alive = list(env.agents)
        actions = {"maker_0": far, "executor_0": np.ones(2, np.float32), "trader_0": np.zeros(2, np.float32)}
        observations, rewards, terminated, truncated, infos = env.step({agent: actions[agent] for agent in alive})
        steps += 1
        for result in (observations, rewards, terminated, truncated, infos):
            assert list(result) == alive
        assert env.state_space.contains(env.state())
        if "executor_0" in alive:
            gone = steps
            done = abs(infos["executor_0"]["inventory"]) == 5
            assert terminated["executor_0"] is done and truncated["executor_0"] is False
            assert ("executor_0" in env.agents) is not done
            last = observations["executor_0"]
            with pytest.raises(ValueError, match=r"missing or unknown agents \['(executor|nobody)_0'\]"):
                env.step({agent: actions.get(agent) for agent in (*env.agents, "executor_0" if done else "nobody_0")})
        else:
            assert not env.simulator.quotes[0, 1, 1::2].any() and env.core.tensors["reward"][0, 1] == 0
            assert int(env.simulator.inventory[0, 1]) == 5 * side
        for agent in ("maker_0", "trader_0"):
            assert terminated[agent] is False and truncated[agent] is (steps == 15)
    assert 1 <= gone < 15 and steps == 15 and last[30] == 0
    env.reset()
    assert env.agents == env.possible_agents


def test_max_loss_takes_out_one_learner_and_the_others_go_on():
    env = make({"trader": 2}, horizon=200, max_loss=150.0, reward="pnl", reward_scale=1.0)
    env.reset(seed=3)
    total, steps, ended = 0.0, 0, 0
    while env.agents:
        sign = np.float32(1 if steps % 2 else -1)
        both = {"trader_0": np.array([sign, 1.0], np.float32), "trader_1": np.zeros(2, np.float32)}
        alive = list(env.agents)
        _, rewards, terminated, truncated, _ = env.step({agent: both[agent] for agent in alive})
        steps += 1
        if "trader_0" in alive:
            total += rewards["trader_0"]
            assert terminated["trader_0"] is (total <= -150) and not truncated["trader_0"]
            ended = steps
        else:
            assert not env.simulator.quotes[0, 0, 1::2].any() and not env.core.fills[0, 0].any()
        assert rewards["trader_1"] == 0 and terminated["trader_1"] is False and truncated["trader_1"] is (steps == 200)
    assert 1 < ended < 100 and steps == 200
    with pytest.raises(Exception, match="no agent is alive"):
        env.step({})


def test_the_deadline_terminates_executors_and_truncates_the_others():
    env = make(ALL, max_cycles=4)
    env.reset(seed=2)
    for t in range(4):
        actions = {agent: np.zeros(env.action_space(agent).shape, np.float32) for agent in env.agents}
        _, _, terminated, truncated, infos = env.step(actions)
        for agent in env.possible_agents:
            assert terminated[agent] is (t == 3 and agent == "executor_0")
            assert truncated[agent] is (t == 3 and agent != "executor_0")
    assert env.agents == [] and abs(infos["executor_0"]["inventory"]) == 40
    assert int(env.simulator.t) > 4 + 5


def test_a_checkpoint_knows_who_has_left():
    settings = {"block_qty": 4, "config": FEW_ORDERS}
    env, other = (make({"maker": 1, "executor": 1}, engine=engine, **settings) for engine in ("cpu", "numpy"))
    env.reset(seed=1)
    while "executor_0" in env.agents:
        env.step({agent: np.ones(env.action_space(agent).shape, np.float32) for agent in env.agents})
    other.load_state_dict(env.state_dict())
    assert other.agents == env.agents == ["maker_0"]
    while env.agents:
        one, two = (each.step({"maker_0": np.zeros(4, np.float32)}) for each in (env, other))
        np.testing.assert_array_equal(one[0]["maker_0"], two[0]["maker_0"])
        assert one[1:] == two[1:]
        np.testing.assert_array_equal(env.state(), other.state())


def test_a_reset_that_is_refused_changes_nothing():
    env = make()
    with pytest.raises(ValueError, match="seed: expected .*, got 9223372036854775808"):
        env.reset(seed=2**63)
    assert env.agents == []
    env.reset()  # draws a seed, as it is the first one
    assert int(env.simulator.tensors["seed"]) != 0


# The rest -------------------------------------------------------------------------------------------------------------


@both_actions
def test_replay_over_whole_episodes(action_type):
    settings = {"action_type": action_type, "config": FEW_ORDERS}
    first = play(make(**settings), 4)
    assert len(first) == 2 * 16
    for again in (play(make(**settings, engine=engine), 4) for engine in ("cpu", "numpy")):
        for one, two in zip(first, again, strict=True):
            for agent in AGENTS:
                np.testing.assert_array_equal(one[0][agent], two[0][agent])
            assert one[1:] == two[1:]
    other = play(make(**settings), 5)
    assert (first[0][0]["maker_0"] != other[0][0]["maker_0"]).any()


@both_actions
def test_spaces_types_and_end(action_type):
    env = make(action_type=action_type, max_cycles=7)
    assert env.possible_agents == AGENTS and env.agents == []
    observations, infos = env.reset(seed=1)
    generator, steps = np.random.default_rng(0), 0
    while env.agents:
        assert env.agents == AGENTS
        observations, rewards, terminated, truncated, infos = env.step(sample(env, generator))
        steps += 1
        for agent in AGENTS:
            assert env.observation_space(agent) is env.observation_space(agent)
            assert env.observation_space(agent).contains(observations[agent])
            assert observations[agent].shape == (39,)
            assert type(rewards[agent]) is float and type(terminated[agent]) is bool
            assert truncated[agent] is (steps == 7)
            assert set(infos[agent]) == {"inventory", "cash", "fees", "bought", "sold"}
        assert env.state_space.contains(env.state())
        np.testing.assert_array_equal(env.state()[:39], observations["maker_0"])
        np.testing.assert_array_equal(env.state()[-9:], observations["noise_0"][30:])
    assert steps == 7
    with pytest.raises(Exception, match="no agent is alive"):
        env.step({})


def test_learners_replace_built_in_agents():
    rows = make().simulator.rows
    whole = ks.Simulator(ks.MarketConfig.preset(EnvSettings.preset), 1, engine="cpu").rows
    for role in CLASSES:
        taken = {"maker": 2, "momentum": 1, "noise": 1, "fundamental": 0}[role]
        assert rows[f"num_{role}"][0] == whole[f"num_{role}"][0] - taken


def test_a_momentum_learner_keeps_its_side():
    """It trades only in the direction of the last return, whatever it does."""
    env = make({"momentum": 1}, horizon=200, preset="trading")  # where an interval has one beat
    env.reset(seed=2)
    mids, generator, traded = [int(env.simulator.mid2)] * 2, np.random.default_rng(1), 0
    while env.agents:
        trend = np.sign(mids[-1] - mids[-2])
        observations, _, _, _, infos = env.step({"momentum_0": np.array([1.0, generator.uniform(-1, 1)], np.float32)})
        bought, sold = infos["momentum_0"]["bought"], infos["momentum_0"]["sold"]
        if trend:
            assert (sold if trend > 0 else bought) == 0
        traded += bought + sold
        mids.append(int(env.simulator.mid2))
    assert traded > 50


def test_a_noise_learner_trades_its_target_and_no_more():
    env = make({"noise": 2}, horizon=120, leftover_penalty=10.0, reward_scale=1.0)
    for seed in range(4):
        first, _ = env.reset(seed=seed)
        target = {agent: int(np.rint(first[agent][30] * 40)) for agent in env.agents}
        assert all(1 <= abs(value) <= 40 for value in target.values())
        busy = np.ones(2, np.float32)
        idle = -np.ones(2, np.float32)
        while env.agents:
            observations, rewards, _, _, infos = env.step({"noise_0": busy, "noise_1": idle})
            assert observations["noise_0"][33] == np.sign(target["noise_0"])
            left = target["noise_0"] - infos["noise_0"]["inventory"]
            assert left * np.sign(target["noise_0"]) >= 0
            assert observations["noise_0"][30] == np.float32(left) / np.float32(40)
        assert left == 0 and infos["noise_1"]["inventory"] == 0
        assert rewards["noise_1"] == -10.0 * abs(target["noise_1"])


def test_learners_never_trade_more_than_the_market():
    env = make({"maker": 1, "noise": 4}, horizon=50)
    env.reset(seed=3)
    generator = np.random.default_rng(2)
    while env.agents:
        volume = int(env.simulator.volume)
        _, _, _, _, infos = env.step(sample(env, generator))
        bought = sum(info["bought"] for info in infos.values())
        sold = sum(info["sold"] for info in infos.values())
        assert max(bought, sold) <= int(env.simulator.volume) - volume


def test_bad_actions_leave_the_state_untouched():
    for action_type, bad in (("continuous", np.full(4, np.nan, np.float32)), ("discrete", 49)):
        env = make(action_type=action_type)
        env.reset(seed=1)
        before = env.state_dict()
        actions = sample(env, np.random.default_rng(0))
        for wrong, match in (
            ({**actions, "maker_1": bad}, r"actions\['maker_1'\].*: expected .*, got"),
            (
                {**actions, "momentum_0": np.zeros(4, np.float32)},
                r"actions\['momentum_0'\]: expected .*, got float32 \[4\]",
            ),
            ({"maker_0": actions["maker_0"]}, "missing or unknown agents"),
            ({**actions, "maker_9": actions["maker_0"]}, r"unknown agents \['maker_9'\]"),
            (None, "actions: expected a dict with one for each of.*got NoneType"),
            (list(actions.values()), "actions: expected a dict.*got list"),
        ):
            with pytest.raises((ValueError, TypeError), match=match):
                env.step(wrong)
        assert all(torch.equal(before[name], value) for name, value in env.state_dict().items())


@pytest.mark.parametrize(
    ("learners", "kwargs", "match"),
    [
        ({"maker": 12}, {}, r"learners\['maker'\]: expected up to 11, the built-in maker agents.*got 12"),
        ({"informed": 1}, {}, "expected one of 'maker', .*, got the role 'informed'"),
        ({"maker": -1}, {}, r"learners\['maker'\]: expected .*, got -1"),
        ({}, {}, "learners: expected 1 to 32 in all, got 0"),
        (["maker"], {}, "expected a dict such as"),
        ({"executor": 33}, {}, "learners: expected 1 to 32 in all, got 33"),
        ({"executor": 1}, {"block_qty": 50}, "block_qty: expected up to the config's inventory_limit, 40, got 50"),
        ({"executor": 1}, {"forced_qty": 9}, "forced_qty: expected 1 to max_qty = 8.*got 9"),
        ({"trader": True}, {}, r"learners\['trader'\]: expected a whole number from 0, got True"),
        (
            {"maker": 2},
            {"randomise": {"num_agents": (4, 20)}},
            "randomise: expected at least 2, as many as learners replace, got a scenario with 1 maker agents",
        ),
        ({"noise": 1}, {"inventory_limit": 10}, "max_target: expected .* with a noise learner, got 40"),
        ({"maker": 1}, {"preset": "calm"}, "preset: expected .*, got 'calm'"),
    ],
)
def test_bad_arguments(learners, kwargs, match):
    with pytest.raises((ValueError, TypeError), match=match):
        make(learners, **kwargs)


def test_a_checkpoint_goes_on():
    env, other = make(), make()
    generator = np.random.default_rng(0)
    env.reset(seed=8)
    for _ in range(5):
        env.step(sample(env, generator))
    other.load_state_dict(env.state_dict())
    assert other.agents == AGENTS
    while env.agents:
        actions = sample(env, generator)
        one, two = env.step(actions), other.step(actions)
        for agent in AGENTS:
            np.testing.assert_array_equal(one[0][agent], two[0][agent])
        assert one[1:] == two[1:]
