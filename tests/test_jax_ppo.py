"""examples/ppo_jax.py: its advantages by hand, that it learns, and that a seed is a result."""

import dataclasses
import logging.handlers
import queue
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")

import jax
import jax.numpy as jnp

import kineticsim_env as ks

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import ppo_jax

SMALL = {"device": "cpu", "num_envs": 32, "num_steps": 16, "calls": 2, "preset": "paper", "gamma": 0.9}


def test_advantages_are_those_of_a_loop():
    args, generator = ppo_jax.Args(gamma=0.9, gae_lambda=0.8), np.random.default_rng(0)
    steps, markets = 7, 3
    reward, value = generator.normal(size=(2, steps, markets)).astype(np.float32)
    going_on = (generator.random((steps, markets)) > 0.3).astype(np.float32)
    last = generator.normal(size=markets).astype(np.float32)
    nothing = jnp.zeros((steps, markets))
    decisions = ppo_jax.Decisions(nothing, nothing, nothing, *map(jnp.asarray, (value, reward, going_on)))
    expected, advantage, following = np.zeros((steps, markets)), np.zeros(markets), last
    for t in reversed(range(steps)):
        delta = reward[t] + 0.9 * going_on[t] * following - value[t]
        expected[t] = advantage = delta + 0.9 * 0.8 * going_on[t] * advantage
        following = value[t]
    assert np.allclose(ppo_jax.advantages(args, decisions, jnp.asarray(last)), expected, atol=1e-5)


@pytest.mark.slow
def test_a_truncated_episode_is_worth_what_was_seen_last():
    """Rewards of the batch have the value of the last observation where an episode was cut, and only there."""
    args = dataclasses.replace(ppo_jax.Args(**SMALL).filled(), num_steps=12)
    env, params = ks.jax.make(ppo_jax.ID, 32, device="cpu", preset="paper", horizon=5, reward_scale=50.0)
    networks = ppo_jax.make_networks(args, jax.random.key(0), env.observation_space(params).shape[0], 4)
    seen, state = env.reset(None, params, seed=1)
    learner = ppo_jax.Learner(networks, None, state, jax.random.key(1))
    _, decisions, mean = jax.jit(lambda one: ppo_jax.play(args, env, params, one))(learner)
    cut, paid, step = 0, [], jax.jit(env.step)
    for t in range(12):
        assert np.array_equal(seen, decisions.observation[t])
        action = jnp.clip(decisions.action[t], -1, 1)
        seen, state, reward, done, info = step(None, state, action, params)
        worth = np.asarray(ppo_jax.value_of(networks, info["final_obs"])) * np.asarray(info["truncated"])
        assert np.allclose(decisions.reward[t], reward + 0.9 * worth, atol=1e-5)
        assert np.array_equal(decisions.going_on[t], ~np.asarray(done))
        cut += int(np.asarray(info["truncated"]).sum())
        paid.append(reward)
    assert cut >= 32
    assert np.isclose(mean, np.mean(paid), atol=1e-6)


@pytest.mark.slow
def test_it_learns_to_be_paid():
    """The reward per decision of a trained policy is above that of the one it began with."""
    sizes = {**SMALL, "preset": "news", "gamma": 0.99, "num_envs": 128, "num_steps": 64, "calls": 1}
    args = ppo_jax.Args(**sizes, total_steps=400_000).filled()
    networks, _ = ppo_jax.train(args, progress=False)
    env, params = ks.jax.make(ppo_jax.ID, 256, device="cpu")
    _, key = jax.random.split(jax.random.key(args.seed))
    first = ppo_jax.make_networks(args, key, env.observation_space(params).shape[0], 4)

    @jax.jit
    def paid(networks):
        def one(carry, _):
            seen, state = carry
            action = jnp.clip(ppo_jax.apply(networks.actor, seen), -1, 1)
            seen, state, reward, _, _ = env.step(None, state, action, params)
            return (seen, state), reward.mean()

        return jax.lax.scan(one, env.reset(None, params, seed=10**6), None, length=100)[1].mean()

    assert float(paid(networks)) > float(paid(first)) + 0.2


@pytest.mark.slow
@pytest.mark.parametrize(
    "device",
    ["cpu", *(pytest.param(one, marks=pytest.mark.gpu, id=f"{one} of a GPU's machine") for one in ("cpu", "cuda"))],
)
def test_training_is_compiled_once(device):
    """What a call returns has the types and places of what it took, so that no later call compiles anew."""
    sizes = SMALL | {"calls": 3, "device": device}
    args = ppo_jax.Args(**sizes, total_steps=3 * 32 * 16).filled()
    assert args.updates == (3, 1)
    told = queue.SimpleQueue()
    handler, log = logging.handlers.QueueHandler(told), logging.getLogger("jax")
    log.addHandler(handler)
    try:
        with jax.log_compiles():
            networks, _ = ppo_jax.train(args, progress=False)
    finally:
        log.removeHandler(handler)
    said = [told.get().getMessage() for _ in range(told.qsize())]
    assert sum(one.startswith("Finished XLA compilation of jit(program)") for one in said) == 1
    assert all(np.isfinite(one).all() for one in jax.tree.leaves(networks))


@pytest.mark.slow
def test_a_seed_is_a_result():
    args = ppo_jax.Args(**SMALL, total_steps=3 * 32 * 16).filled()
    first, again = (jax.tree.leaves(ppo_jax.train(args, progress=False)[0]) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    other = jax.tree.leaves(ppo_jax.train(dataclasses.replace(args, seed=2), progress=False)[0])
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.slow
def test_the_policy_is_the_same_in_torch():
    import torch

    networks = ppo_jax.make_networks(ppo_jax.Args(), jax.random.key(3), 39, 4)
    rows = np.random.default_rng(0).normal(size=(10, 39)).astype(np.float32)
    means, values = ppo_jax.policy_of(networks)(torch.from_numpy(rows))
    assert np.allclose(ppo_jax.apply(networks.actor, rows), means.detach(), atol=1e-5)
    assert np.allclose(ppo_jax.value_of(networks, rows), values.detach(), atol=1e-5)


@pytest.mark.slow
def test_the_command_compares(capsys):
    found = ppo_jax.main(ppo_jax.Args(**SMALL, total_steps=2_000, eval_envs=16))
    assert set(found) == {"PPO (learned)", "fixed spread", "steps per second"}
    assert "16 held-out episodes" in capsys.readouterr().out
