"""What the tests of adapters share: every task with both action types, and what the plain vector environment plays."""

import importlib
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch

import kineticsim_env  # noqa: F401  registers the environments
from kineticsim_env import BatchedParallelEnv
from kineticsim_env.envs.vector import MarketMakingVectorEnv

IDS = sorted(name for name in gym.registry if name.startswith("KineticSim/"))
SMALL = {"engine": "cpu", "horizon": 6, "bank_size": 16, "warmup": 20}
TASKS = [
    pytest.param((task, {**SMALL, "action_type": action_type}), id=f"{task.partition('/')[2]}-{action_type}")
    for task in IDS
    for action_type in ("continuous", "discrete")
]
MAKER = "KineticSim/MarketMaking-v0"
ADAPTERS = {
    "sb3": ("stable_baselines3", "SB3VecEnv"),
    "torchrl": ("torchrl", "TorchRLEnv"),
    "skrl": ("skrl", "SkrlEnv"),
}
each_adapter = pytest.mark.parametrize("adapter", ADAPTERS)


def action_size(adapter, **arguments):
    """How many numbers, or choices, a maker's action has in an adapter's environment; skips without its library."""
    library, name = ADAPTERS[adapter]
    pytest.importorskip(library)
    make = getattr(importlib.import_module(f"kineticsim_env.adapters.{adapter}"), name)
    made = make(MarketMakingVectorEnv(3, output="numpy" if adapter == "sb3" else "torch", **arguments))
    space = made.action_spec if adapter == "torchrl" else made.action_space
    choices = getattr(getattr(space, "space", space), "n", None)
    return space.shape[-1] if choices is None else int(choices)


def ending(task):
    """A task with arguments that let episodes end both ways, where it has them."""
    name, arguments = task
    return name, arguments | ({} if "Execution" in name else {"max_loss": 20.0})


def actions_of(envs, steps, seed=0):
    """Actions that a space allows, `[T, M, ...]`."""
    generator = np.random.default_rng(seed)
    space = envs.single_action_space
    if isinstance(space, gym.spaces.Discrete):
        return generator.integers(0, space.n, (steps, envs.num_envs))
    return generator.uniform(-1, 1, (steps, envs.num_envs, *space.shape)).astype(np.float32)


def plain_run(task, num_envs, steps, seed):
    """Actions, and what the plain vector environment makes of them: the first observations, then results of steps."""
    name, arguments = task
    envs = gym.make_vec(name, num_envs=num_envs, **arguments)
    actions = actions_of(envs, steps)
    first, _ = envs.reset(seed=seed)
    results = [envs.step(action) for action in actions]
    ends = np.stack([result[2] | result[3] for result in results])
    assert ends.sum(0).min() >= 2, "every market must end more than once for the test to mean something"
    return actions, first, results


def assert_bits(first, second):
    """Compare two arrays or tensors, bit for bit."""
    first, second = np.asarray(first), np.asarray(second)
    assert first.dtype == second.dtype and first.shape == second.shape
    assert first.tobytes() == second.tobytes()


def check_missing(monkeypatch, module, library, extra):
    """See that a module, imported where its library is not installed, says which extra has it."""
    for name in list(sys.modules):
        if name.partition(".")[0] == library:
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'kineticsim-env\[{extra}\]'") as caught:
        importlib.import_module(module)
    assert caught.value.name == library


def check_opening(adapter, output):
    """See that an adapter refuses environments that it cannot serve."""
    other = {"numpy": "torch", "torch": "numpy"}[output]
    with pytest.raises(
        ValueError, match=f"expected output='{output}' for .*, got an environment with output '{other}'"
    ):
        adapter(gym.make_vec(MAKER, num_envs=2, output=other, **SMALL))
    with pytest.raises(
        ValueError, match="expected autoreset mode SAME_STEP for .*, got an environment with AutoresetMode.DISABLED"
    ):
        adapter(gym.make_vec(MAKER, num_envs=2, output=output, autoreset_mode="disabled", **SMALL))
    with pytest.raises(TypeError, match="num_envs: expected an id .* with it, got an open environment"):
        adapter(gym.make_vec(MAKER, num_envs=2, output=output, **SMALL), num_envs=2)
    with pytest.raises(TypeError, match="env: .*got int"):
        adapter(3)
    with pytest.raises(TypeError, match="output: expected it left out, got 'numpy'"):
        adapter(MAKER, num_envs=2, output="numpy")


MANY = {**SMALL, "horizon": 8, "block_qty": 8, "max_loss": 20.0}  # some learners end before their market


def check_opening_many(adapter):
    """See that an adapter for many learners refuses environments that it cannot serve."""
    with pytest.raises(
        ValueError, match="expected autoreset mode SAME_STEP for .*, got an environment with AutoresetMode.DISABLED"
    ):
        adapter(BatchedParallelEnv(2, {"maker": 1}, autoreset_mode="disabled", **SMALL))
    with pytest.raises(TypeError, match="env: .*got str"):
        adapter(MAKER)


def many_run(learners, num_envs, steps, seed, **arguments):
    """Actions by role, and what the plain environment makes of them: the first results, then those of steps."""
    envs = BatchedParallelEnv(num_envs, learners, **{**MANY, **arguments})
    generator = np.random.default_rng(0)

    def draw(role):
        space, shape = envs.single_action_spaces[role], (num_envs, len(envs.group_map[role]))
        if isinstance(space, gym.spaces.Discrete):
            return torch.from_numpy(generator.integers(0, space.n, shape))
        return torch.from_numpy(generator.uniform(-1, 1, (*shape, *space.shape)).astype(np.float32))

    actions = [{role: draw(role) for role in envs.group_map} for _ in range(steps)]
    first = envs.reset(seed=seed)
    results = [(*envs.step(action), envs.state()) for action in actions]
    assert torch.stack([result[4]["_final_obs"] for result in results]).sum(0).min() >= 2
    idle = torch.stack([~torch.cat(list(result[4]["active"].values()), 1) for result in results])
    assert idle.any(), "some learner must end before its market for the test to mean something"
    return actions, first, results
