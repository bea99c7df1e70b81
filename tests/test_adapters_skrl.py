"""The skrl adapter: the plain environment's bits, tensors that are not moved, training."""

import pytest
import torch
from adapter_helpers import MAKER, SMALL, TASKS, assert_bits, check_missing, check_opening, ending, plain_run

pytest.importorskip("skrl")

from skrl.utils.runner.torch import Runner

from kineticsim_env.adapters.skrl import SkrlEnv

NETWORK = {"network": [{"name": "net", "input": "OBSERVATIONS", "layers": [32], "activations": "tanh"}]}


def settings(agent, policy, timesteps=32):
    """A configuration of skrl's runner."""
    return {
        "models": {
            "separate": True,
            "policy": {"class": policy, **NETWORK, "output": "ACTIONS"},
            "value": {"class": "DeterministicMixin", **NETWORK, "output": "ONE"},
        },
        "memory": {"class": "RandomMemory", "memory_size": -1},
        "agent": {
            "class": agent,
            "rollouts": 16,
            "learning_epochs": 2,
            "time_limit_bootstrap": True,
            "experiment": {"write_interval": 0, "checkpoint_interval": 0},
        },
        "trainer": {
            "class": "SequentialTrainer",
            "timesteps": timesteps,
            "disable_progressbar": True,
            "close_environment_at_exit": False,
        },
    }


@pytest.mark.parametrize("task", TASKS)
def test_the_plain_environments_bits(task):
    actions, first, results = plain_run(ending(task), 5, 20, seed=3)
    env = SkrlEnv(task[0], num_envs=5, seed=3, **ending(task)[1])
    assert_bits(env.reset()[0], first)
    for action, (observation, reward, terminated, truncated, infos) in zip(actions, results, strict=True):
        given = torch.from_numpy(action)
        got, got_reward, got_terminated, got_truncated, got_infos = env.step(given.view(5, -1))
        assert_bits(got, observation)
        assert_bits(got_reward, reward[:, None])
        assert_bits(got_terminated, terminated[:, None])
        assert_bits(got_truncated, truncated[:, None])
        assert_bits(got_infos["final_obs"], infos["final_obs"])
        assert_bits(env.reset()[0], observation)  # shows where it is, and resets nothing
    env.close()


def test_actions_beyond_the_space_are_clamped():
    one, two = (SkrlEnv(MAKER, num_envs=3, seed=1, **SMALL) for _ in range(2))
    one.reset()
    two.reset()
    actions = torch.randn(3, 4) * 3
    assert_bits(one.step(actions)[0], two.step(actions.clamp(-1, 1))[0])


def test_properties():
    env = SkrlEnv(MAKER, num_envs=3, **SMALL)
    assert env.num_envs == 3 and env.num_agents == 1 and env.device == torch.device("cpu")
    assert env.observation_space.shape == (37,) and env.action_space.shape == (4,)
    assert env.state_space is None and env.state() is None and env.render() is None
    assert env.simulator.num_markets == 3  # what skrl does not know is the environment's


@pytest.mark.parametrize("task", TASKS)
def test_it_trains(task):
    env = SkrlEnv(task[0], num_envs=8, **{**task[1], "horizon": 20})
    policy = "CategoricalMixin" if task[1]["action_type"] == "discrete" else "GaussianMixin"
    runner = Runner(env, settings("PPO", policy))
    parameters = list(runner.agent.policy.parameters())
    before = [parameter.detach().clone() for parameter in parameters]
    runner.run("train")
    assert any((one != two).any() for one, two in zip(before, parameters, strict=True))
    assert all(torch.isfinite(parameter).all() for parameter in parameters)


def test_what_it_refuses():
    check_opening(SkrlEnv, "torch")


def test_without_the_library(monkeypatch):
    check_missing(monkeypatch, "kineticsim_env.adapters.skrl", "skrl", "skrl")
