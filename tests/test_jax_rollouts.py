"""Rollouts of a network from JAX: by steps on a CPU, within the launch on a GPU, there with the bits of torch's."""

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("jax")

import jax
import jax.numpy as jnp

import kineticsim_env as ks
from kineticsim_env.jax.making import IDS
from kineticsim_env.jax.rollouts import Weights
from kineticsim_env.policies import packing

MAKING = IDS[0]
MARKETS, STEPS, HORIZON = 32, 12, 5


def networks(inputs, outputs, *, hidden=64, trunk=False, critic=True, categorical=False, activation="tanh"):
    """Return the same network twice: as a policy of torch, and as arguments of a rollout in JAX."""
    torch.manual_seed(inputs + outputs)
    kind = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[activation]

    def made(*sizes, last=True):
        layers = [part for pair in zip(sizes, sizes[1:], strict=False) for part in (torch.nn.Linear(*pair), kind())]
        return torch.nn.Sequential(*(layers[:-1] if last else layers))

    def heads(count):
        return torch.nn.Linear(hidden, count) if trunk else made(inputs, hidden, hidden, count)

    body = made(inputs, hidden, hidden, last=False) if trunk else None
    log_std = None if categorical else torch.linspace(-1, 0.2, outputs)
    policy = ks.NetworkPolicy(heads(outputs), heads(1) if critic else None, trunk=body, log_std=log_std)

    def arrays(module):
        linear = [one for one in module.modules() if isinstance(one, torch.nn.Linear)]
        pairs = [(one.weight.detach().numpy().T.copy(), one.bias.detach().numpy().copy()) for one in linear]
        return [tuple(map(jnp.asarray, pair)) for pair in pairs]

    given = {"actor": arrays(policy.actor), "activation": activation}
    given |= {"critic": arrays(policy.critic)} if critic else {}
    given |= {"trunk": arrays(policy.trunk)} if trunk else {}
    given |= {} if categorical else {"log_std": jnp.asarray(log_std.numpy())}
    return policy, given


FORMS = [
    {},
    {"hidden": 128, "activation": "relu"},
    {"trunk": True},
    {"critic": False, "categorical": True},
    {"trunk": True, "critic": False},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("sizes", [(39, 4), (16, 9), (5, 1)])
def test_weights_are_packed_as_torch_packs_them(form, sizes):
    policy, given = networks(*sizes, **form)
    weights = Weights(
        given["actor"], given.get("critic"), given.get("trunk"), given.get("log_std"), given["activation"]
    )
    shape = weights.checked(*sizes, form.get("categorical", False))
    assert shape == policy.shape
    assert np.array_equal(jax.jit(lambda: weights.packed(shape))(), packing.packed([policy]).numpy())
    rows = np.random.default_rng(0).normal(size=(7, sizes[0])).astype(np.float32)
    expected = policy(torch.from_numpy(rows))
    for found, other in zip(weights.evaluated(rows), expected, strict=True):
        assert np.allclose(found, other.detach(), atol=1e-5)


def recorded_again(env, params, state, rollout):
    """Step the recorded actions, and compare what comes of them."""
    step, seen = jax.jit(env.step), env.observe(state)
    finals = np.zeros(rollout.final_observation.shape, np.float32)
    for t, action in enumerate(rollout.action):
        assert np.array_equal(seen, rollout.observation[t])
        played = action if action.ndim == 1 else jnp.clip(action, -1, 1)
        seen, state, reward, done, info = step(None, state, played, params)
        assert np.array_equal(reward, rollout.reward[t])
        assert np.array_equal(info["terminated"], rollout.terminated[t])
        assert np.array_equal(info["truncated"], rollout.truncated[t])
        cut = np.asarray(info["truncated"])
        finals[t // HORIZON][cut] = np.asarray(info["final_obs"])[cut]
    assert np.array_equal(finals, rollout.final_observation)
    return state


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    ("form", "settings"),
    [
        ({}, {}),
        ({"categorical": True, "trunk": True}, {"action_type": "discrete"}),
        ({"hidden": 128}, {"preset": "paper"}),
        ({}, {"preset": "btcusd"}),
    ],
    ids=["default", "discrete", "paper", "flow"],
)
def test_a_rollout_is_the_steps_of_its_actions(device, form, settings):
    env, params = ks.jax.make(MAKING, MARKETS, device=device, horizon=HORIZON, **settings)
    _, given = networks(env.observation_space().shape[0], env.num_actions, **form)
    _, state = env.reset(None, params, seed=7)
    program = jax.jit(lambda key, one, given: env.rollout(key, one, params, steps=STEPS, **given))
    del given["activation"]
    last, found = program(jax.random.key(1), state, given)
    again = recorded_again(env, params, state, found)
    assert all(np.array_equal(last.arrays[name], again.arrays[name]) for name in ("bid", "inventory", "cash", "seed"))
    assert np.asarray(found.played).all() and int(np.asarray(found.truncated).sum()) >= 2 * MARKETS
    other = program(jax.random.key(2), state, given)[1]
    assert not np.array_equal(found.action, other.action)
    still = env.rollout(None, state, params, steps=3, noise=False, **given)[1]
    weights = Weights(given["actor"], given.get("critic"), given.get("trunk"), given.get("log_std"), "tanh")
    outputs, values = weights.evaluated(still.observation)
    close = 2e-2 if device == "cuda" else 1e-5  # products of bfloat16
    assert np.allclose(still.value, values, atol=close)
    if still.action.ndim == 3:
        assert np.allclose(still.action, outputs, atol=close)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "settings", [{}, {"preset": "paper"}, {"preset": "btcusd"}, {"action_type": "discrete"}], ids=str
)
def test_the_bits_of_torch(settings):
    env, params = ks.jax.make(MAKING, MARKETS, device="cuda", horizon=HORIZON, **settings)
    torch_env = gym.make_vec(MAKING, num_envs=MARKETS, output="torch", engine="cuda", horizon=HORIZON, **settings)
    discrete = "action_type" in settings
    policy, given = networks(env.observation_space().shape[0], env.num_actions, categorical=discrete)
    torch_env.reset(seed=7)
    _, state = env.reset(None, params, seed=7)
    for seed in (3, -(2**40)):
        expected = ks.rollout(torch_env, policy.cuda(), STEPS, seed=seed)
        state, found = env.rollout(None, state, params, steps=STEPS, seed=seed, **given)
        for name in ("observation", "action", "log_prob", "value", "reward", "terminated", "truncated", "played"):
            assert np.array_equal(getattr(expected, name).cpu().numpy(), getattr(found, name)), name
        assert np.array_equal(expected.final_observation.cpu().numpy(), found.final_observation)


def test_functions_of_users_are_played_by_steps():
    env, params = ks.jax.make(
        MAKING, MARKETS, device="cpu", horizon=HORIZON, features=[lambda after: after.inventory / 8],
        reward=lambda before, after: after.value - before.value,
    )  # fmt: skip
    _, given = networks(env.observation_space().shape[0], 4)
    _, state = env.reset(None, params, seed=7)
    _, found = env.rollout(jax.random.key(0), state, params, steps=STEPS, **given)
    recorded_again(env, params, state, found)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 0}, "steps: expected"),
        ({"log_std": None}, "log_std: expected an array, as actions are numbers, got None"),
        ({"log_std": jnp.zeros(3)}, r"log_std: expected \[4\], got \(3,\)"),
        ({"activation": "gelu"}, "activation: expected one of 'tanh', 'relu', got 'gelu'"),
        ({"actor": [(jnp.zeros((39, 32)), jnp.zeros(32))] * 3}, r"actor: expected a first layer \[39, 64 or 128\]"),
        ({"actor": [(jnp.zeros((39, 64)), jnp.zeros(64))] * 3}, "actor: expected weights .* got"),
        ({"critic": [(jnp.zeros((39, 64)), jnp.zeros(64))]}, "critic: expected weights .* got"),
        ({"seed": 1}, "seed: expected None where no policy is within the launch"),
    ],
)
def test_what_is_refused(changes, said):
    env, params = ks.jax.make(MAKING, 2, device="cpu")
    _, given = networks(39, 4)
    _, state = env.reset(None, params, seed=0)
    with pytest.raises((TypeError, ValueError), match=said):
        env.rollout(jax.random.key(0), state, params, **{"steps": 2, **given, **changes})
