"""The skrl adapter: the plain environment's bits, tensors that are not moved, training."""

import copy
import pickle

import gymnasium as gym
import pytest
import torch
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

pytest.importorskip("skrl")

from skrl.agents.torch.ppo import PPO, PPO_RNN
from skrl.memories.torch import RandomMemory
from skrl.trainers.torch import SequentialTrainer
from skrl.utils.runner.torch import Runner

from kineticsim_env import BatchedParallelEnv
from kineticsim_env.adapters.skrl import SkrlEnv, SkrlMultiEnv

NETWORK = {"network": [{"name": "net", "input": "OBSERVATIONS", "layers": [32], "activations": "tanh"}]}


def settings(agent, policy, learners=(), timesteps=32):
    """A configuration of skrl's runner."""
    # Without it, the runner takes the empty default for one of no learner.
    schedulers = {"learning_rate_scheduler_kwargs": {name: {} for name in learners}} if learners else {}
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
            **schedulers,
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
    assert env.observation_space.shape == (39,) and env.action_space.shape == (4,)
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


# What agents record ---------------------------------------------------------------------------------------------------


def test_memories_of_off_policy_agents_have_what_a_decision_led_to():
    env = SkrlEnv(MAKER, num_envs=4, seed=3, **SMALL)
    config = settings("SAC", "GaussianMixin", timesteps=14)
    critic = {"network": [{"name": "net", "input": "concatenate([OBSERVATIONS, ACTIONS])", "layers": [8]}]}
    critic |= {"class": "DeterministicMixin", "output": "ONE"}
    names = ("critic_1", "critic_2", "target_critic_1", "target_critic_2")
    config["models"] = {
        "separate": True,
        "policy": config["models"]["policy"],
        **{name: dict(critic) for name in names},
    }
    config["memory"]["memory_size"] = 14
    experiment = config["agent"]["experiment"]
    config["agent"] = {"class": "SAC", "learning_starts": 100, "random_timesteps": 0, "experiment": experiment}
    runner = Runner(env, config)
    runner.run("train")
    actions, found, reset = (
        runner.agent.memory.get_tensor_by_name(name) for name in ("actions", "next_observations", "observations")
    )
    plain = gym.make_vec(MAKER, num_envs=4, output="torch", **SMALL)
    plain.reset(seed=3)
    ends = 0
    for t, action in enumerate(actions):
        *_, infos = plain.step(action.clamp(-1, 1))
        assert_bits(found[t], infos["final_obs"])
        if t < 13:
            ends += int((found[t] != reset[t + 1]).any(1).sum())
    assert ends >= 4


def test_agents_that_share_the_markets():
    """A trainer cuts the rows of each agent, and tells it of neither its rows nor those of others."""
    env = SkrlEnv(MAKER, num_envs=5, seed=3, **SMALL)
    agents = [Runner(env, settings("PPO", "GaussianMixin")).agent for _ in range(2)]
    kept = [[], []]
    for agent, rows in zip(agents, kept, strict=True):
        agent.cfg.rollouts = 100
        agent.memory.add_samples = lambda rows=rows, agent=agent, **given: rows.append(agent._current_next_observations)
    actions, final = [], []
    step = env._env.step

    def spied(given):
        actions.append(given)
        results = step(given)
        final.append(results[4]["final_obs"])
        return results

    env._env.step = spied
    trainer = {"timesteps": 14, "disable_progressbar": True, "close_environment_at_exit": False, "headless": True}
    SequentialTrainer(env=env, agents=agents, scopes=[2, 3], cfg=trainer).train()
    for agent_rows, part in zip(kept, (slice(0, 2), slice(2, 5)), strict=True):
        assert_bits(torch.stack(agent_rows), torch.stack(final)[:, part])


def test_copies_of_agents_record_alike():
    agent = PPO(models={}, cfg={"experiment": {"directory": "none"}})  # trainers in parallel send it to other processes
    for other in (copy.deepcopy(agent), pickle.loads(pickle.dumps(agent))):
        assert other is not agent and other.record_transition.args == (other,)


@pytest.mark.parametrize("many", [False, True])
def test_targets_that_reach_across_episodes_are_named(many):
    if many:
        env = SkrlMultiEnv(BatchedParallelEnv(2, {"maker": 2}, **SMALL))
        config = settings("IPPO", "GaussianMixin", env.possible_agents)
    else:
        env = SkrlEnv(MAKER, num_envs=2, **SMALL)
        config = settings("PPO", "GaussianMixin")
    config["agent"]["time_limit_bootstrap"] = False
    with pytest.warns(
        UserWarning, match="time_limit_bootstrap: expected True for exact value targets of I?PPO, got False"
    ):
        Runner(env, config).run("train")


def test_recurrent_agents_are_named():
    env = SkrlEnv(MAKER, num_envs=2, **SMALL)
    plain = Runner(env, settings("PPO", "GaussianMixin")).agent
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    config = {
        "rollouts": 16,
        "experiment": {"write_interval": 0, "checkpoint_interval": 0},
        "time_limit_bootstrap": True,
    }
    agent = PPO_RNN(models=plain.models, memory=RandomMemory(memory_size=16, num_envs=2), cfg=config, **spaces)
    trainer = {"timesteps": 2, "disable_progressbar": True, "close_environment_at_exit": False, "headless": True}
    with pytest.warns(
        UserWarning, match="PPO_RNN: skrl's recurrent agents bootstrap a time limit with the value of the"
    ):
        SequentialTrainer(env=env, agents=agent, cfg=trainer).train()


def test_masks_are_refused():
    masked = {**SMALL, "action_type": "discrete", "action_mask": True}
    with pytest.raises(ValueError, match="action_mask: expected False for SkrlEnv, got True"):
        SkrlEnv(MAKER, num_envs=2, **masked)
    with pytest.raises(ValueError, match="action_mask: expected False for SkrlMultiEnv, got True"):
        SkrlMultiEnv(BatchedParallelEnv(2, {"maker": 1}, **masked))


LEARNERS = {"maker": 2, "momentum": 1, "executor": 2}


@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
def test_many_learners(action_type):
    actions, (first, _), results = many_run(LEARNERS, 4, 40, 3, action_type=action_type)
    env = SkrlMultiEnv(BatchedParallelEnv(4, LEARNERS, action_type=action_type, **MANY), seed=3)
    place = {"maker_0": ("maker", 0), "maker_1": ("maker", 1), "momentum_0": ("momentum", 0)}
    place |= {"executor_0": ("executor", 0), "executor_1": ("executor", 1)}
    assert env.possible_agents == env.agents == list(place) and env.num_agents == env.max_num_agents == 5
    assert env.observation_space("executor_1").shape == (39,) and env.state_space("maker_0").shape == (30 + 5 * 9,)
    start, _ = env.reset()
    idle = {name: torch.zeros(4, dtype=torch.bool) for name in place}
    for name, (role, k) in place.items():
        assert_bits(start[name], first[role][:, k])
    for action, (observation, reward, terminated, truncated, infos, state) in zip(actions, results, strict=True):
        given = {name: action[role][:, k].reshape(4, -1) for name, (role, k) in place.items()}
        found, rewards, final, cut, _ = env.step(given)
        over = infos["_final_obs"]
        assert all(torch.equal(rows, state) for rows in env.state().values())
        for name, (role, k) in place.items():
            assert_bits(found[name], observation[role][:, k])
            assert_bits(rewards[name], reward[role][:, k : k + 1])
            assert_bits(cut[name], truncated[role][:, k : k + 1])
            assert_bits(final[name][:, 0], terminated[role][:, k] | (over & idle[name]))
            assert (final[name] | cut[name])[over].all()
            idle[name] = ~infos["active"][role][:, k]
        assert env.reset()[0] is found


@pytest.mark.parametrize("agent", ["IPPO", "MAPPO"])
@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
def test_many_learners_train(agent, action_type):
    env = SkrlMultiEnv(BatchedParallelEnv(4, {"maker": 2, "executor": 1}, action_type=action_type, **MANY))
    policy = "CategoricalMixin" if action_type == "discrete" else "GaussianMixin"
    runner = Runner(env, settings(agent, policy, env.possible_agents))
    parameters = [parameter for models in runner.agent.models.values() for parameter in models["policy"].parameters()]
    before = [parameter.detach().clone() for parameter in parameters]
    runner.run("train")
    assert any((one != two).any() for one, two in zip(before, parameters, strict=True))
    env.close()


def test_what_it_refuses():
    check_opening(SkrlEnv, "torch")
    check_opening_many(SkrlMultiEnv)


def test_live_results_are_refused():
    plain = gym.make_vec(MAKER, num_envs=2, output="torch", copy=False, **SMALL)
    many = BatchedParallelEnv(2, {"maker": 1}, copy=False, **SMALL)
    for env in (SkrlEnv(plain), SkrlMultiEnv(many)):
        env.reset()
        action = torch.zeros(2, 4)
        with pytest.raises(ValueError, match="copy: expected .*got False"):
            env.step(action if isinstance(env, SkrlEnv) else {"maker_0": action})


def test_without_the_library(monkeypatch):
    check_missing(monkeypatch, "kineticsim_env.adapters.skrl", "skrl", "skrl")
