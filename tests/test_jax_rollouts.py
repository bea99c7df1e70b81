"""Rollouts of a network from JAX: by steps on a CPU, within the launch on a GPU, there with the bits of torch's."""

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
from jax_helpers import both

import kineticsim_env as ks
from kineticsim_env.envs.settings import MODES
from kineticsim_env.jax.making import IDS
from kineticsim_env.jax.rollouts import Weights
from kineticsim_env.policies import packing

MAKING = IDS[0]
MARKETS, STEPS, HORIZON = 32, 12, 5
ENDS = ("terminated", "truncated", "played")
LATE = ks.MarketConfig.preset("btcusd", quote_latency=60)
RECORDED = ("observation", "action", "log_prob", "value", "reward", *ENDS, "final_observation")


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


def weights_of(given):
    return Weights.of(*(given.get(name) for name in ("actor", "critic", "trunk", "log_std")), given["activation"])


FORMS = [
    {},
    {"hidden": 128, "activation": "relu"},
    {"trunk": True},
    {"critic": False, "categorical": True},
    {"trunk": True, "critic": False},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("sizes", [(39, 4), *(pytest.param(one, marks=pytest.mark.slow) for one in ((16, 9), (5, 1)))])
def test_weights_are_packed_as_torch_packs_them(form, sizes):
    policy, given = networks(*sizes, **form)
    weights = weights_of(given)
    shape = weights.checked(*sizes, form.get("categorical", False))
    assert shape == policy.shape
    expected = packing.packed([policy]).numpy()
    assert np.array_equal(jax.jit(lambda: weights.packed(shape))(), expected)
    with jax.enable_x64(True):
        assert np.array_equal(weights_of(given).packed(shape), expected)
    rows = np.random.default_rng(0).normal(size=(7, sizes[0])).astype(np.float32)
    expected = policy(torch.from_numpy(rows))
    for found, other in zip(weights.evaluated(rows), expected, strict=True):
        assert np.allclose(found, other.detach(), atol=1e-5)


def test_weights_that_are_no_ordinary_numbers_are_packed_as_torch_packs_them():
    """Halfway between two of bfloat16, beyond the largest, subnormal, signed zeros and infinite."""
    policy, given = networks(16, 9)
    odd = np.array([0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x7F7F7FFF, 0x00018000, 0x80000001, 0x80000000, 0x7F800000])
    numbers = odd.astype(np.uint32).view(np.float32)
    weight, bias = given["actor"][0]
    given["actor"][0] = (weight.at[0, :8].set(numbers), bias.at[:8].set(numbers[::-1]))
    with torch.no_grad():
        policy.actor[0].weight[:8, 0] = torch.from_numpy(numbers)
        policy.actor[0].bias[:8] = torch.from_numpy(numbers[::-1].copy())
    weights = weights_of(given)
    assert np.array_equal(jax.jit(lambda: weights.packed(policy.shape))(), packing.packed([policy]).numpy())


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
        pytest.param({"categorical": True, "trunk": True}, {"action_type": "discrete"}, marks=pytest.mark.slow),
        pytest.param({"hidden": 128}, {"preset": "paper"}, marks=pytest.mark.slow),
        ({}, {"preset": "btcusd"}),
        pytest.param({}, {"config": LATE, "randomise": {"fee": (0, 2)}, "account_info": True}, marks=pytest.mark.slow),
    ],
    ids=["default", "discrete", "paper", "flow", "flow of scenarios"],
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
    weights = weights_of(given | {"activation": "tanh"})
    outputs, values = weights.evaluated(still.observation)
    close = 2e-2 if device == "cuda" else 1e-5  # products of bfloat16
    assert np.allclose(still.value, values, atol=close)
    if still.action.ndim == 3:
        assert np.allclose(still.action, outputs, atol=close)


@pytest.mark.parametrize(
    "settings",
    [
        {"autoreset_mode": MODES[0]},
        {"action_type": "discrete", "autoreset_mode": MODES[1]},
        {"preset": "news", "decide": "fill"},
        {"preset": "btcusd", "autoreset_mode": MODES[2]},
    ],
    ids=["default", "choices", "events", "flow"],
)
def test_on_a_cpu_it_plays_what_torch_plays(settings):
    """From the same state one decision each; the recorded one of torch leads both on, so that roundings do not.

    Sums of 39 and 64 products, twice a tanh, and noise of up to 6 are within a few units in the last place of float32;
    2e-5 is a hundred of those of numbers around 1.
    """
    env, params, torch_env = both(MAKING, "cpu", MARKETS, horizon=HORIZON, **settings)
    discrete = "action_type" in settings
    policy, given = networks(env.observation_space().shape[0], env.num_actions, categorical=discrete)
    torch_env.reset(seed=7)
    _, state = env.reset(None, params, seed=7)
    torch_env.unwrapped.core.lets_stand = True
    del given["activation"]
    play = jax.jit(lambda one, given: env.rollout(None, one, params, steps=1, seed=-(2**40) - 3, **given)[1])
    step, ended = jax.jit(env.step), 0
    for _ in range(HORIZON + 3):
        found = play(state, given)
        expected = ks.rollout(torch_env, policy, 1, seed=-(2**40) - 3)
        assert np.array_equal(expected.observation.numpy(), found.observation)
        assert np.array_equal(expected.action.numpy(), found.action) if discrete else True
        for name in ("action", "log_prob", "value"):
            np.testing.assert_allclose(found._asdict()[name], getattr(expected, name).numpy(), rtol=0, atol=2e-5)
        assert np.array_equal(expected.played.numpy(), found.played)
        if found.decision_events is not None:
            own = step(None, state, jnp.clip(found.action[0], -1, 1), params)[4]
            assert np.array_equal(own["decision_events"], found.decision_events[0])
        action = jnp.asarray(expected.action[0].numpy())
        seen, state, reward, _, info = step(None, state, action if discrete else jnp.clip(action, -1, 1), params)
        assert np.array_equal(expected.reward[0].numpy(), reward)
        assert np.array_equal(expected.truncated[0].numpy(), info["truncated"])
        assert np.array_equal(expected.last_observation.numpy(), seen)
        ended += int(expected.truncated.sum())
        assert (found.decision_events is None) == ("decide" not in settings)
        if found.decision_events is not None:
            assert np.array_equal(expected.decision_events[0].numpy(), info["decision_events"])
    assert ended >= MARKETS // 2 or "decide" in settings


@pytest.mark.slow
def test_numbers_are_of_32_bits_whatever_jax_has():
    env, params = ks.jax.make(MAKING, 4, device="cpu", horizon=HORIZON)
    _, given = networks(39, 4, critic=False)
    _, state = env.reset(None, params, seed=7)
    _, expected = env.rollout(None, state, params, steps=3, seed=1, **given)
    with jax.enable_x64(True):
        _, found = env.rollout(None, state, params, steps=3, seed=1, **given)
    for name in ("observation", "action", "log_prob", "value", "reward", "final_observation"):
        assert getattr(found, name).dtype == np.float32
        np.testing.assert_allclose(getattr(found, name)[0], getattr(expected, name)[0], rtol=0, atol=2e-5)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"preset": "paper"},
        {"preset": "paper", "autoreset_mode": MODES[2]},
        {"preset": "news", "autoreset_mode": MODES[0]},
        {"preset": "news", "decide": "fill", "account_info": True},
        {"preset": "btcusd"},
        {"preset": "btcusd", "randomise": {"fee": (0, 2)}, "autoreset_mode": MODES[2]},
        {"action_type": "discrete"},
        {"action_type": "discrete", "preset": "news"},
    ],
    ids=str,
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
        for name in (*RECORDED, *["decision_events"] * ("decide" in settings)):
            assert np.array_equal(getattr(expected, name).cpu().numpy(), getattr(found, name)), name


@pytest.mark.slow
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
        ({"actor": []}, r"actor: expected a first layer \[39, 64 or 128\]"),
        (
            {"actor": {"params": {"kernel": jnp.zeros((39, 64))}}},
            "actor: expected a list .* no recurrent policies, got {",
        ),
        ({"trunk": [jnp.zeros((39, 64))]}, "trunk: expected a list of its linear layers"),
        (
            {"critic": [(jnp.zeros((39, 64), int), jnp.zeros(64))]},
            "critic: expected a list .* of floating numbers each",
        ),
        ({"log_std": jnp.zeros(4, int)}, "log_std: expected floating numbers, got int32"),
        ({"log_std": 0.1}, r"log_std: expected \[4\], got \(\)"),
        ({"noise": 2}, "noise: expected True or False, got 2"),
        ({"seed": 2**63}, r"seed: expected -2\^63 to 2\^63 - 1, got"),
        ({"key": None}, "key: expected a key of jax.random, or a seed, got None for both"),
    ],
)
def test_what_is_refused(changes, said):
    env, params = ks.jax.make(MAKING, 2, device="cpu")
    _, given = networks(39, 4)
    _, state = env.reset(None, params, seed=0)
    with pytest.raises((TypeError, ValueError), match=said):
        env.rollout(**{"key": jax.random.key(0), "state": state, "params": params, "steps": 2, **given, **changes})
