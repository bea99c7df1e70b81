"""Value targets of training libraries against a hand computation, for tests/test_value_targets.py.

Every library plays the same two rollouts: the environment plays given actions whatever it is told, and the value
function is linear with given weights. So one hand computation, from what the plain environment returns, holds for all.
`python tests/value_targets.py rl_games` prints the differences of that library, which changes torch for its process.
"""

import ast
import dataclasses
import json
import re
import sys
import tempfile
from pathlib import Path
from unittest import mock

import gymnasium as gym
import numpy as np
import torch
from adapter_helpers import MAKER, SMALL

import kineticsim_env as ks

PAGE = Path(__file__).parent.parent / "docs" / "libraries.md"
STEPS, MARKETS, GAMMA, LAMBDA = 24, 6, 0.99, 0.95  # steps of a rollout
SEED = 10  # some episodes end in the last step of a rollout
SHORT = {**SMALL, "horizon": 7}
LOSSES = {**SMALL, "horizon": 1000, "stagger": False}  # no episode reaches the horizon
# Kinds of ends: arguments, and the learners of many.
KINDS = {
    "horizon": ({**SHORT}, {"maker": 2}),
    "max_loss": ({**LOSSES, "max_loss": 6.0}, {"maker": 2}),
    "deadline": ({**SHORT, "block_qty": 40}, {"executor": 2}),
    "mixed": ({**SHORT, "horizon": 9, "max_loss": 6.0}, {"maker": 2, "executor": 1}),
}


def task_of(kind):
    """The id and arguments of one learner."""
    arguments, _ = KINDS[kind]
    return ("KineticSim/Execution-v0" if kind == "deadline" else MAKER), arguments


def weights(size):
    """Weights of the value function, float64."""
    return np.cos(1.7 * np.arange(size)) / 4


class Linear(torch.nn.Module):
    """The value function, as a module."""

    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(weights(size)[:, None], dtype=torch.float32))

    def forward(self, rows):
        return rows @ self.weight


def drawn(space, *shape):
    """The actions that are played, one set for each step."""
    rows = np.random.default_rng(5).uniform(-1, 1, (2 * STEPS, *shape, *space.shape))
    return rows.astype(np.float32)


class Played(gym.vector.VectorWrapper):
    """One learner per market, with given seeds and actions."""

    def __init__(self, env):
        super().__init__(env)
        self.given, self.t = drawn(env.single_action_space, env.num_envs), 0
        self.device, self.core = env.unwrapped.device, env.unwrapped.core  # which the recipe for rsl_rl asks for

    def reset(self, *, seed=None, options=None):
        assert not options
        self.t = 0
        return self.env.reset(seed=SEED)

    def step(self, actions):
        assert np.shape(actions) == self.given.shape[1:]
        self.t += 1
        given = self.given[self.t - 1]
        return self.env.step(given if self.env.unwrapped.output == "numpy" else torch.from_numpy(given))


def one(kind, markets, output):
    """An environment of one learner per market."""
    name, arguments = task_of(kind)
    return Played(gym.make_vec(name, num_envs=markets, output=output, **arguments))


class PlayedMany(ks.BatchedParallelEnv):
    """Many learners, with given seeds and actions."""

    def reset(self, *, seed=None, options=None):
        assert not options
        self.t = 0
        return super().reset(seed=SEED)

    def step(self, actions):
        self.t += 1
        return super().step({role: rows[self.t - 1] for role, rows in given_many(self).items()})


def given_many(env):
    spaces = env.single_action_spaces
    return {role: drawn(spaces[role], env.num_envs, len(names)) for role, names in env.group_map.items()}


def many(kind, markets, roles=None):
    """An environment of many learners, of the first `roles` roles."""
    arguments, learners = KINDS[kind]
    return PlayedMany(markets, dict(list(learners.items())[:roles]), **arguments)


# By hand --------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Learner:
    """What one learner of each market met in two rollouts of T steps.

    Attributes:
        seen: Values of observations, float64 `[2 T + 1, M]`.
        final: Values of the observations that each step led to, before any reset, `[2 T, M]`.
        reward: `[2 T, M]`.
        terminated: bool `[2 T, M]`; of a learner that is idle, with its market.
        truncated: bool `[2 T, M]`.
        own: bool `[2 T, M]`: whether its own episode was going on.
    """

    seen: np.ndarray
    final: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    own: np.ndarray

    def targets(self, bootstrap="final"):
        """Value targets TD(lambda) of the second rollout, `[T, M]`.

        Args:
            bootstrap: Where an episode was truncated: "final", the value of what the decision led to; "before", of the
                state that it was made in; "reset", of the first observation of the next episode.
        """
        advantage, found = 0.0, []
        for t in reversed(range(STEPS, 2 * STEPS)):
            at_end = {"final": self.final[t], "before": self.seen[t], "reset": self.seen[t + 1]}[bootstrap]
            after = np.where(self.truncated[t], at_end, self.final[t])
            delta = self.reward[t] + GAMMA * np.where(self.terminated[t], 0.0, after) - self.seen[t]
            advantage = delta + GAMMA * LAMBDA * np.where(self.terminated[t] | self.truncated[t], 0.0, advantage)
            found.append(advantage + self.seen[t])
        return np.stack(found[::-1])


def value_of(rows):
    rows = np.asarray(rows, dtype=np.float64)
    return rows @ weights(rows.shape[-1])


def by_hand(kind, markets):
    """The learner of each market, from the plain environment."""
    name, arguments = task_of(kind)
    env = gym.make_vec(name, num_envs=markets, **arguments)
    observation, _ = env.reset(seed=SEED)
    seen, rows = [observation], []
    for action in drawn(env.single_action_space, markets):
        observation, reward, terminated, truncated, infos = env.step(action)
        seen.append(observation)
        rows.append((infos["final_obs"], reward, terminated, truncated))
    final, reward, terminated, truncated = map(np.stack, zip(*rows, strict=True))
    own = np.ones_like(terminated)
    return Learner(value_of(np.stack(seen)), value_of(final), reward.astype(float), terminated, truncated, own)


def by_hand_many(kind, markets, roles=None, states=False):
    """The learners by name; with `states` the value function is one of what all see."""
    arguments, learners = KINDS[kind]
    env = ks.BatchedParallelEnv(markets, dict(list(learners.items())[:roles]), **arguments)
    actions = given_many(env)
    place = {name: (role, k) for role, names in env.group_map.items() for k, name in enumerate(names)}

    def values(groups, joint):
        rows = {name: joint if states else groups[role][:, k] for name, (role, k) in place.items()}
        return {name: value_of(row) for name, row in rows.items()}

    observation, infos = env.reset(seed=SEED)
    seen, final, rows = [values(observation, env.state())], [], []
    active = infos["active"]
    for t in range(2 * STEPS):
        observation, reward, terminated, truncated, infos = env.step({role: rows[t] for role, rows in actions.items()})
        seen.append(values(observation, env.state()))
        final.append(values(infos["final_obs"], env.state(final=True)))
        rows.append((reward, terminated, truncated, active, infos["_final_obs"].numpy()))
        active = infos["active"]
    learners = {}
    for name, (role, k) in place.items():
        reward, terminated, truncated, own = (
            np.stack([row[part][role][:, k].numpy() for row in rows]) for part in range(4)
        )
        over = np.stack([row[4] for row in rows])
        ends = terminated | (over & ~own)
        learners[name] = Learner(
            np.stack([row[name] for row in seen]),
            np.stack([row[name] for row in final]),
            reward.astype(float),
            ends,
            truncated,
            own,
        )
    return learners


# Libraries: each returns the targets of the second rollout, [T, M], or by name of learner -----------------------------


def sb3(kind, markets):
    from kineticsim_env.adapters.sb3 import SB3VecEnv

    return _sb3(SB3VecEnv(one(kind, markets, "numpy")))


def sb3_group(kind, markets):
    from kineticsim_env.adapters.sb3 import SB3GroupVecEnv

    env = SB3GroupVecEnv(many(kind, markets, 1))
    ((_, names),) = env.envs.group_map.items()
    rows = _sb3(env).reshape(STEPS, markets, len(names))
    return {name: rows[:, :, k] for k, name in enumerate(names)}


def _sb3(env):
    from stable_baselines3 import PPO

    size = STEPS * env.num_envs
    how = {"n_steps": STEPS, "batch_size": size, "n_epochs": 1, "learning_rate": 0.0, "device": "cpu", "seed": 0}
    model = PPO("MlpPolicy", env, policy_kwargs={"net_arch": []}, gamma=GAMMA, gae_lambda=LAMBDA, **how)
    with torch.no_grad():
        model.policy.value_net.weight.copy_(Linear(env.observation_space.shape[0]).weight.T)
        model.policy.value_net.bias.zero_()
    model.learn(2 * size)
    return model.rollout_buffer.returns.reshape(env.num_envs, STEPS).T  # the buffer has them in the order of training


def torchrl(kind, markets):
    from kineticsim_env.adapters.torchrl import TorchRLEnv

    env = TorchRLEnv(one(kind, markets, "torch"))
    return _torchrl(env, lambda key: key, env.observation_spec["observation"].shape[-1])[..., 0].T.numpy()


def torchrl_group(kind, markets):
    from kineticsim_env.adapters.torchrl import TorchRLGroupEnv

    found = {}
    for role in KINDS[kind][1]:
        env = TorchRLGroupEnv(many(kind, markets))  # a collector closes it
        names = env.group_map[role]
        size = env.observation_spec[role, "observation"].shape[-1]
        rows = _torchrl(env, lambda key, role=role: (role, key), size)
        found |= {name: rows[:, :, k, 0].T.numpy() for k, name in enumerate(names)}
    return found


def _torchrl(env, key, size):
    from tensordict.nn import TensorDictModule
    from torchrl.collectors import Collector
    from torchrl.objectives.value import GAE

    names = ("value", "reward", "done", "terminated", "advantage", "value_target")
    keys = {name: key({"value": "state_value"}.get(name, name)) for name in names}
    critic = TensorDictModule(Linear(size), [key("observation")], [keys["value"]])
    advantage = GAE(gamma=GAMMA, lmbda=LAMBDA, value_network=critic)
    advantage.set_keys(**keys)
    frames = STEPS * env.batch_size[0]
    options = {"frames_per_batch": frames, "total_frames": 2 * frames, "auto_register_policy_transforms": False}
    for data in Collector(env, None, **options):
        advantage(data)
    return data[keys["value_target"]]


def _skrl(env, agent, sized, learners=()):
    from skrl.utils.runner.torch import Runner

    network = {"network": [{"name": "net", "input": "OBSERVATIONS", "layers": [4], "activations": "tanh"}]}
    schedulers = {"learning_rate_scheduler_kwargs": {name: {} for name in learners}} if learners else {}
    how = {"rollouts": STEPS, "learning_epochs": 1, "mini_batches": 1, "learning_rate": 0.0}
    how |= {"discount_factor": GAMMA, "gae_lambda": LAMBDA, "time_limit_bootstrap": True}
    runner = Runner(
        env,
        {
            "models": {
                "separate": True,
                "policy": {"class": "GaussianMixin", **network, "output": "ACTIONS"},
                "value": {"class": "DeterministicMixin", **network, "output": "ONE"},
            },
            "memory": {"class": "RandomMemory", "memory_size": -1},
            "agent": {
                "class": agent,
                **how,
                "experiment": {"write_interval": 0, "checkpoint_interval": 0},
                **schedulers,
            },
            "trainer": {
                "class": "SequentialTrainer",
                "timesteps": 2 * STEPS,
                "disable_progressbar": True,
                "close_environment_at_exit": False,
                "headless": True,
            },
        },
    )
    for model, source, size in sized(runner.agent):
        linear = Linear(size)
        model.compute = lambda inputs, role="", linear=linear, source=source: (linear(inputs[source]), {})
    runner.run("train")
    return runner.agent


def skrl(kind, markets):
    from kineticsim_env.adapters.skrl import SkrlEnv

    env = SkrlEnv(one(kind, markets, "torch"))
    agent = _skrl(env, "PPO", lambda agent: [(agent.value, "observations", env.observation_space.shape[0])])
    return agent.memory.get_tensor_by_name("returns")[..., 0].numpy()


def _skrl_many(kind, markets, name, source):
    from kineticsim_env.adapters.skrl import SkrlMultiEnv

    env = SkrlMultiEnv(many(kind, markets))
    spaces = env.state_spaces if source == "states" else env.observation_spaces

    def sized(agent):
        return [(agent.values[uid], source, spaces[uid].shape[0]) for uid in env.possible_agents]

    memories = _skrl(env, name, sized, env.possible_agents).memories
    return {uid: memory.get_tensor_by_name("returns")[..., 0].numpy() for uid, memory in memories.items()}


def skrl_ippo(kind, markets):
    return _skrl_many(kind, markets, "IPPO", "observations")


def skrl_mappo(kind, markets):
    return _skrl_many(kind, markets, "MAPPO", "states")


def recipe(title):
    """The classes and settings of a recipe of docs/libraries.md, without what it runs."""
    text = PAGE.read_text().partition(f"\n## {title}\n")[2]
    block = re.search(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE).group(1)
    kept = [
        node
        for node in ast.parse(block).body
        if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef)
        or (isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict))
    ]
    names = {}
    exec(compile(ast.Module(kept, []), str(PAGE), "exec"), names)
    return names


def rsl_rl(kind, markets):
    names, (name, arguments) = recipe("rsl_rl"), task_of(kind)
    env = one(kind, markets, "torch")
    with mock.patch.object(gym, "make_vec", return_value=env):
        env = names["RslRlEnv"](name, num_envs=markets, **arguments)
    settings = names["settings"] | {"num_steps_per_env": STEPS}
    how = {"learning_rate": 0.0, "schedule": "fixed", "gamma": GAMMA, "lam": LAMBDA, "num_mini_batches": 1}
    settings["algorithm"] = settings["algorithm"] | how
    runner = names["OnPolicyRunner"](env, settings, device="cpu")
    linear = Linear(env.observation.shape[1])
    runner.alg.critic.forward = lambda seen, *args, **kwargs: linear(seen["policy"])
    runner.learn(2)
    return runner.alg.storage.returns[..., 0].numpy()


def rl_games(kind, markets):
    names, (name, arguments) = recipe("rl_games"), task_of(kind)
    names["vecenv"].register("KINETICSIM", names["RlGamesEnv"])
    names["env_configurations"].register("kineticsim", {"vecenv_type": "KINETICSIM"})
    size, env = STEPS * markets, one(kind, markets, "torch")
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(gym, "make_vec", return_value=env):
        how = {"env_config": {"id": name, **arguments}, "num_actors": markets, "horizon_length": STEPS}
        how |= {
            "minibatch_size": size,
            "mini_epochs": 1,
            "learning_rate": 0.0,
            "lr_schedule": None,
            "train_dir": folder,
        }
        how |= {"gamma": GAMMA, "tau": LAMBDA, "normalize_input": False, "normalize_value": False}
        algorithm = {"algo": {"name": "a2c_continuous"}, "model": {"name": "continuous_a2c_logstd"}}
        runner = names["Runner"]()
        config = names["config"] | how
        runner.load({"params": {"seed": 1, **algorithm, "network": names["network"], "config": config}})
        agent = runner.algo_factory.create(runner.algo_name, base_name="run", params=runner.params)
        network, linear = agent.model.a2c_network, Linear(env.single_observation_space.shape[0])
        plain, play, found = network.forward, agent.play_steps, []

        def forward(given):
            mu, sigma, _, states = plain(given)
            return mu, sigma, linear(given["obs"]), states

        def play_steps():
            batch = play()
            found.append(batch["returns"].view(markets, STEPS).T.numpy())
            return batch

        network.forward, agent.play_steps = forward, play_steps
        agent.train()
    return found[1]


LIBRARIES = {
    "Stable-Baselines3": sb3,
    "Stable-Baselines3, many": sb3_group,
    "TorchRL": torchrl,
    "TorchRL, many": torchrl_group,
    "skrl PPO": skrl,
    "skrl IPPO": skrl_ippo,
    "skrl MAPPO": skrl_mappo,
    "rsl_rl": rsl_rl,
    "rl_games": rl_games,
}
MANY_LEARNERS = {sb3_group: {"roles": 1}, torchrl_group: {}, skrl_ippo: {}, skrl_mappo: {"states": True}}


def differences(library, kind, markets):
    """The largest difference of a library's targets from those by hand, for each thing to bootstrap with."""
    found = library(kind, markets)
    if library in MANY_LEARNERS:
        learners = by_hand_many(kind, markets, **MANY_LEARNERS[library])
        assert set(found) == set(learners)
        pairs = [(found[name], learner) for name, learner in learners.items()]
    else:
        pairs = [(found, by_hand(kind, markets))]
    assert all(rows.shape == (STEPS, markets) for rows, _ in pairs)
    return {
        bootstrap: max(float(np.abs(rows - learner.targets(bootstrap)).max()) for rows, learner in pairs)
        for bootstrap in ("final", "before", "reset")
    }


if __name__ == "__main__":
    found = {
        kind: {markets: differences(LIBRARIES[sys.argv[1]], kind, markets) for markets in (MARKETS, 1)}
        for kind in KINDS
    }
    print("\n" + json.dumps(found))
