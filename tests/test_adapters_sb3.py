"""The Stable-Baselines3 adapter: the plain environment's bits, infos at ends of episodes, attributes, training."""

import gymnasium as gym
import numpy as np
import pytest
from adapter_helpers import (
    MAKER,
    MANY,
    SMALL,
    TASKS,
    assert_bits,
    check_missing,
    check_opening,
    check_opening_many,
    ending,
    many_run,
    plain_run,
)

pytest.importorskip("stable_baselines3")

from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecCheckNan, VecMonitor, VecNormalize

from kineticsim_env import BatchedParallelEnv
from kineticsim_env.adapters.sb3 import SB3GroupVecEnv, SB3VecEnv


@pytest.mark.parametrize("task", TASKS)
def test_the_plain_environments_bits(task):
    actions, first, results = plain_run(ending(task), 5, 20, seed=3)
    env = SB3VecEnv(task[0], num_envs=5, **ending(task)[1])
    assert env.seed(3) == [3, 4, 5, 6, 7]
    assert_bits(env.reset(), first)
    returns, lengths = np.zeros(5), np.zeros(5, int)
    for action, (observation, reward, terminated, truncated, infos) in zip(actions, results, strict=True):
        got, got_reward, done, got_infos = env.step(action)
        assert_bits(got, observation)
        assert_bits(got_reward, reward)
        assert_bits(done, terminated | truncated)
        returns, lengths = returns + reward, lengths + 1
        assert len(got_infos) == 5
        for row, info in enumerate(got_infos):
            if not done[row]:
                assert info == {}
                continue
            assert_bits(info["terminal_observation"], infos["final_obs"][row])
            assert info["TimeLimit.truncated"] is bool(truncated[row])
            assert info["episode"] == {"r": returns[row], "l": lengths[row], "t": info["episode"]["t"]}
            returns[row] = lengths[row] = 0


def test_it_agrees_with_dummy_vec_env():
    """SB3's own vector environment over `gym.make` plays the same episodes, infos included."""
    arguments = {**SMALL, "horizon": 5}
    ours = SB3VecEnv(MAKER, num_envs=3, stagger=False, **arguments)
    theirs = DummyVecEnv([lambda: Monitor(gym.make(MAKER, **arguments)) for _ in range(3)])
    for env in (ours, theirs):
        env.seed(4)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    ends = 0
    for action in np.random.default_rng(0).uniform(-1, 1, (12, 3, 4)).astype(np.float32):
        mine, other = ours.step(action), theirs.step(action)
        for one, two in zip(mine[:3], other[:3], strict=True):
            np.testing.assert_array_equal(one, two)
        for one, two in zip(mine[3], other[3], strict=True):
            assert one.get("TimeLimit.truncated", False) == two["TimeLimit.truncated"]
            assert ("episode" in one) == ("episode" in two) == ("terminal_observation" in two)
            if "episode" in one:
                ends += 1
                np.testing.assert_array_equal(one["terminal_observation"], two["terminal_observation"])
                assert one["episode"]["l"] == two["episode"]["l"]
                assert one["episode"]["r"] == pytest.approx(two["episode"]["r"], abs=1e-5)
    assert ends == 6


@pytest.mark.parametrize("task", TASKS)
def test_it_trains(task):
    env = VecCheckNan(SB3VecEnv(task[0], num_envs=8, **{**task[1], "horizon": 20}), raise_exception=True)
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=128, n_epochs=2, device="cpu", seed=0)
    before = [parameter.detach().clone() for parameter in model.policy.parameters()]
    model.learn(512)
    assert any((one != two).any() for one, two in zip(before, model.policy.parameters(), strict=True))
    assert len(model.ep_info_buffer) >= 8 and model.ep_info_buffer[-1]["l"] <= 20


def test_evaluation_and_wrappers_of_sb3(recwarn):
    env = SB3VecEnv(MAKER, num_envs=4, **SMALL, stagger=False)
    model = PPO("MlpPolicy", VecNormalize(env), n_steps=8, batch_size=32, device="cpu")
    _, lengths = evaluate_policy(model, env, n_eval_episodes=8, return_episode_rewards=True)
    assert lengths == [6] * 8
    assert not [warning for warning in recwarn if "Monitor" in str(warning.message)]
    monitor = VecMonitor(env)
    monitor.reset()
    for _ in range(6):
        *_, infos = monitor.step(np.zeros((4, 4), np.float32))
    assert infos[3]["episode"]["l"] == 6


def test_seeds_and_resets():
    env = SB3VecEnv(MAKER, num_envs=3, **SMALL)
    env.seed(1)
    first = env.reset()
    assert (env.reset() != first).any()  # the next episode
    env.seed(1)
    assert_bits(env.reset(), first)
    assert len(env.seed()) == 3  # one is drawn
    env.set_options({"reset_mask": np.ones(3, bool)})
    with pytest.raises(ValueError, match="options: expected .*, got .*reset_mask"):
        env.reset()


def test_attributes_and_methods():
    env = SB3VecEnv(MAKER, num_envs=3, **SMALL)
    env.reset()
    assert env.get_attr("output") == ["numpy"] * 3
    assert [tuple(row.shape) for row in env.get_attr("fills", [0, 2])] == [(2,), (2,)]
    assert env.env_method("check_errors", indices=1) == [None]
    assert env.has_attr("simulator") and not env.has_attr("no_such_thing")
    env.set_attr("note", 5)
    assert env.get_attr("note", 2) == [5] and env.unwrapped.envs.unwrapped.note == 5
    with pytest.raises(ValueError, match="indices: expected None, got 1"):
        env.set_attr("note", 6, 1)
    assert env.env_is_wrapped(Monitor) == [True] * 3 and env.env_is_wrapped(gym.Wrapper, 0) == [False]
    assert env.render_mode is None
    env.close()


@pytest.mark.parametrize("role", ["maker", "executor"])
@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
def test_many_learners_of_a_role(role, action_type):
    actions, (first, _), results = many_run({role: 2}, 4, 40, 3, action_type=action_type)
    env = SB3GroupVecEnv(BatchedParallelEnv(4, {role: 2}, action_type=action_type, **MANY))
    assert env.num_envs == 8 and env.seed(3) == [3, 3, 4, 4, 5, 5, 6, 6]
    assert_bits(env.reset(), first[role].flatten(0, 1))
    returns, lengths, ends = np.zeros(8), np.zeros(8, int), 0
    active = np.ones(8, bool)
    for action, (observation, reward, terminated, truncated, infos, _) in zip(actions, results, strict=True):
        got, rewards, done, got_infos = env.step(action[role].flatten(0, 1).numpy())
        assert_bits(got, observation[role].flatten(0, 1))
        assert_bits(rewards, reward[role].flatten())
        own = (terminated[role] | truncated[role]).flatten().numpy()
        assert_bits(done, own | infos["_final_obs"].repeat_interleave(2).numpy())
        returns, lengths = returns + rewards, lengths + active
        active = infos["active"][role].flatten().numpy()
        for row, info in enumerate(got_infos):
            assert bool(info) == done[row]
            if info:
                ends += own[row]
                assert_bits(info["terminal_observation"], infos["final_obs"][role].flatten(0, 1)[row])
                assert info["TimeLimit.truncated"] is bool(truncated[role].flatten()[row])
                assert ("episode" in info) == own[row]  # once, where its own episode ended
                if own[row]:
                    assert info["episode"] == {"r": returns[row], "l": lengths[row], "t": info["episode"]["t"]}
                returns[row] = lengths[row] = 0
    assert ends >= 16
    env.seed(3)
    assert_bits(env.reset(), first[role].flatten(0, 1))


def test_many_learners_train():
    env = SB3GroupVecEnv(BatchedParallelEnv(4, {"maker": 2}, **{**MANY, "horizon": 20}))
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=64, n_epochs=2, device="cpu", seed=0)
    model.learn(512)
    assert len(model.ep_info_buffer) >= 8
    assert env.get_attr("render_mode") == [None] * 8 and env.env_is_wrapped(gym.Wrapper, [1]) == [False]
    env.set_attr("note", 5)
    assert env.get_attr("note", [3]) == [5]
    env.close()


def test_rendering(monkeypatch):
    """A vector environment hands out the frame of one market, once for each of them."""
    env = SB3VecEnv(MAKER, num_envs=4, **SMALL)
    frame = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    monkeypatch.setattr(env.envs, "render", lambda: (frame,) * 4)
    env.render_mode = "rgb_array"
    np.testing.assert_array_equal(env.render("rgb_array"), frame)
    monkeypatch.setattr(env.envs, "render", lambda: None)
    assert env.get_images() == []


def test_what_it_refuses():
    check_opening(SB3VecEnv, "numpy")
    check_opening_many(SB3GroupVecEnv)
    with pytest.raises(ValueError, match="env: expected learners of one role, got the roles 'maker', 'trader'"):
        SB3GroupVecEnv(BatchedParallelEnv(2, {"maker": 1, "trader": 1}, **MANY))


def test_live_results_are_refused():
    plain = gym.make_vec(MAKER, num_envs=2, output="numpy", copy=False, **SMALL)
    many = BatchedParallelEnv(2, {"maker": 1}, copy=False, **SMALL)
    for env in (SB3VecEnv(plain), SB3GroupVecEnv(many)):
        env.reset()
        with pytest.raises(ValueError, match="copy: expected .*got False"):
            env.step(np.zeros((2, 4), np.float32))


def test_without_the_library(monkeypatch):
    check_missing(monkeypatch, "kineticsim_env.adapters.sb3", "stable_baselines3", "sb3")
