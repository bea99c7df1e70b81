"""Environments of JAX beside those of torch: the same actions, and whether all bits are the same."""

import gymnasium as gym
import jax
import numpy as np
import torch

import kineticsim_env as ks
from kineticsim_env.jax.calls import array_of
from kineticsim_env.jax.making import MANY

MARKETS = 6


def both(id, device, markets=MARKETS, **arguments):
    """Return an environment of JAX with its tables, and one of torch."""
    env, params = ks.jax.make(id, markets, device=device, **arguments)
    engine = {"engine": device}
    if id == MANY:
        return env, params, ks.BatchedParallelEnv(markets, **engine, **arguments)
    return env, params, gym.make_vec(id, num_envs=markets, output="torch", **engine, **arguments)


def drawn(torch_env, generator):
    """Return random actions, as environments of torch take them and as those of JAX do."""
    markets, device = torch_env.num_envs, torch_env.core.device
    if hasattr(torch_env, "group_map"):
        rows = {
            role: _rows(torch_env.single_action_spaces[role], (markets, len(names)), generator)
            for role, names in torch_env.group_map.items()
        }
        by_agent = {
            name: rows[role][:, place]
            for role, names in torch_env.group_map.items()
            for place, name in enumerate(names)
        }
        return {role: torch.from_numpy(row).to(device) for role, row in rows.items()}, by_agent
    rows = _rows(torch_env.single_action_space, (markets,), generator)
    return torch.from_numpy(rows).to(device), rows


def _rows(space, shape, generator):
    if isinstance(space, gym.spaces.Discrete):
        return generator.integers(space.n, size=shape)
    return generator.uniform(-1, 1, (*shape, *space.shape)).astype(np.float32)


def same(tensor, array):
    """Say whether a tensor and an array have the same numbers, bit for bit but for the sign of zero."""
    return np.array_equal(tensor.cpu().numpy(), np.asarray(array), equal_nan=tensor.is_floating_point())


def assert_same_state(torch_env, env, state):
    """Look at every array of a state."""
    core = torch_env.core
    held = {**core.simulator._state, **core.tensors, "fills": core.fills}
    compared = 0
    for name, array in state.arrays.items():
        if name in held:
            assert np.array_equal(array_of(held[name]).ravel(), np.asarray(array).ravel()), name
            compared += 1
    assert compared > 20


def assert_same_results(found, expected, env):
    """Look at what a step of JAX returned beside a step of torch."""
    observation, reward, terminated, truncated, infos = expected
    seen, _, paid, done, known = found
    if isinstance(observation, dict):
        agents = iter(env.agents)
        for role, rows in observation.items():
            for place in range(rows.shape[1]):
                agent = next(agents)
                assert same(rows[:, place], seen[agent]) and same(reward[role][:, place], paid[agent])
                over = terminated[role][:, place] | truncated[role][:, place]
                assert same(over, done[agent])
                assert same(infos["active"][role][:, place], known["active"][agent])
        assert same(infos["_final_obs"], done["__all__"])
        return
    assert same(observation, seen) and same(reward, paid) and same(terminated | truncated, done)
    assert same(terminated, known["terminated"]) and same(truncated, known["truncated"])
    assert ("final_obs" in infos) == ("final_obs" in known)
    if "final_obs" in infos:
        assert same(infos["final_obs"], known["final_obs"])
    if "decision_events" in infos:
        assert same(infos["decision_events"], known["decision_events"])


def play(env, params, torch_env, steps, seed=5):
    """Step both with the same random actions and compare everything; return the state."""
    generator = np.random.default_rng(seed)
    observation, _ = torch_env.reset(seed=seed)
    seen, state = jax.jit(lambda tables: env.reset(None, tables, seed=seed))(params)
    for role, rows in observation.items() if isinstance(observation, dict) else {"": observation}.items():
        first = next(agent for agent in env.agents if agent.startswith(role)) if role else None
        assert same(rows[:, 0], seen[first]) if first else same(rows, seen)
    step = jax.jit(env.step, donate_argnums=1)
    restarts = torch_env.autoreset_mode.name == "DISABLED"
    for _ in range(steps):
        done = torch_env.core.tensors["done"]
        if restarts and done.any():
            mask = done.clone()
            torch_env.reset(options={"reset_mask": mask})
            state = env.begin(state, mask.cpu().numpy(), params)
        tensor, array = drawn(torch_env, generator)
        found = step(None, state, array, params)
        assert_same_results(found, torch_env.step(tensor), env)
        state = found[1]
    assert_same_state(torch_env, env, state)
    return state
