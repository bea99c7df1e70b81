"""Environments of JAX have the bits of environments of torch, over resets and saved states, on CPU and GPU."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from slot_programs import patient
from thorough import slow

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
from jax_helpers import MARKETS, assert_same_state, both, play, same

import kineticsim_env as ks
from kineticsim_env.config import PRESET_NAMES
from kineticsim_env.jax.calls import numbers_of, words_of
from kineticsim_env.jax.making import IDS, MANY
from kineticsim_env.traders import order_splitter

MAKING, EXECUTION, TRADING, _ = IDS
CONTINUOUS = ks.MarketConfig.preset("continuous")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
CASES = {
    "default": (MAKING, {}),
    "paper": (MAKING, {"preset": "paper", "reward": "pnl"}),
    "discrete": (MAKING, {"action_type": "discrete"}),
    "next step": (MAKING, {"autoreset_mode": "NEXT_STEP", "account_info": True}),
    "disabled": (MAKING, {"autoreset_mode": "disabled"}),
    "execution": (EXECUTION, {"preset": "realistic"}),
    "execution of calls": (EXECUTION, {"preset": "paper", "block_qty": 20}),
    "continuous": (TRADING, {"preset": "continuous", "keep": True}),
    "ladders": (MAKING, {"config": CONTINUOUS.replace(orders_per_side=3), "inventory_limit": None}),
    "at events": (MAKING, {"config": CONTINUOUS, "decide": "fill", "keep": True}),
    "flow": (MAKING, {"preset": "btcusd", "see_fundamental": False}),
    "flow in time": (
        MAKING,
        {"config": ks.MarketConfig.preset("btcusd", interval=None, interval_ms=300.0, quote_latency_ms=400.0)},
    ),
    "scenarios": (MAKING, {"randomise": {"max_order_qty": (2, 6), "task.max_qty": (1, 5)}, "num_scenarios": 5}),
    "agents": (
        MAKING,
        {
            "config": CONTINUOUS.replace(agents={order_splitter: 3}),
            "randomise": {"order_splitter.largest": (20, 60)},
            "num_scenarios": 4,
        },
    ),
    "markets differ": (MAKING, {"config": ks.MarketConfig.preset("news", max_order_qty=[1, 2, 3, 4, 5, 6])}),
    "tasks differ": (EXECUTION, {"block_qty": np.arange(10, 10 + MARKETS), "horizon": np.arange(4, 4 + MARKETS)}),
    "opponents": (MAKING, {"opponents": {"trader": [patient]}, "preset": "continuous"}),
    "many learners": (MANY, {"learners": {"maker": 2, "noise": 1, "executor": 1}}),
    "many learners, continuous": (MANY, {"learners": {"maker": 1, "trader": 2}, "config": CONTINUOUS}),
    "unwinding": (MAKING, {"at_end": "unwind"}),
}


FIRST = ("default", "execution", "flow in time", "scenarios", "opponents", "many learners")  # others are slow


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", [pytest.param(one, marks=[] if one in FIRST else pytest.mark.slow) for one in CASES])
def test_the_same_bits(case, device):
    id, arguments = CASES[case]
    arguments = {"horizon": 7, **arguments}
    env, params, torch_env = both(id, device, **arguments)
    state = play(env, params, torch_env, 20)
    saved, expected = env.state_dict(state), torch_env.state_dict()
    assert set(saved) == set(expected) and all(torch.equal(saved[name], expected[name]) for name in expected)
    loaded = env.load_state_dict(expected)
    assert_same_state(torch_env, env, loaded)


@pytest.mark.gpu
@pytest.mark.parametrize("case", ["default", "execution", "flow", "scenarios", "many learners"])
def test_a_state_goes_from_a_gpu_to_a_cpu_and_plays_on(case):
    id, arguments = CASES[case]
    arguments = {"horizon": 7, **arguments}
    env, params, torch_env = both(id, "cuda", **arguments)
    state = play(env, params, torch_env, 10)
    on_cpu, tables, beside = both(id, "cpu", **arguments)
    beside.load_state_dict(env.state_dict(state))
    beside._was_reset = True
    moved = on_cpu.load_state_dict(env.state_dict(state))
    actions = jax.tree.map(lambda one: one * 0, _zero_actions(env))
    for _ in range(10):
        *found, state = _stepped(env, params, state, actions)
        *there, moved = _stepped(on_cpu, tables, moved, actions)
        assert all(np.array_equal(a, b) for a, b in zip(map(np.asarray, found), map(np.asarray, there), strict=True))


def _zero_actions(env):
    if hasattr(env, "agents"):
        return {agent: jnp.zeros((MARKETS, *env.action_space(agent).shape), jnp.float32) for agent in env.agents}
    return jnp.zeros((MARKETS, *env.action_space().shape), jnp.float32)


def _stepped(env, params, state, actions):
    observation, state, reward, done, _ = env.step(None, state, actions, params)
    return (*jax.tree.leaves((observation, reward, done)), state)


def test_reset_masks_and_scenarios_that_are_asked_for():
    env, params, torch_env = both(*("KineticSim/MarketMaking-v0", "cpu"), horizon=7, autoreset_mode="disabled",
                                  randomise={"max_order_qty": (2, 6)}, num_scenarios=5)  # fmt: skip
    state = play(env, params, torch_env, 4)
    mask = np.array([True, False, True, False, False, True])
    scenario = np.array([4, -1, -1, -1, -1, 0])
    observation, _ = torch_env.reset(options={"reset_mask": mask, "scenario": scenario})
    state = env.begin(state, mask, params, scenario)
    assert same(observation, env.observe(state))
    assert_same_state(torch_env, env, state)
    assert np.asarray(state["scenario"])[[0, 5]].tolist() == [4, 0]
    clipped = env.begin(state, mask, params, 99)
    assert np.asarray(clipped["scenario"])[mask].tolist() == [4, 4, 4]


def test_a_key_is_a_seed_of_torch():
    env, params = ks.jax.make(MAKING, 3, device="cpu", horizon=5)
    seen, state = env.reset(jax.random.key(7), params)
    seeds = np.asarray(state.arrays["seed"]).view(np.int64)[:, 0]
    assert 0 <= seeds[0] < 2**62 and seeds.tolist() == [seeds[0], seeds[0] + 1, seeds[0] + 2]
    again, _ = env.reset(None, params, seed=int(seeds[0]))
    assert np.array_equal(seen, again)
    raw, _ = env.reset(jax.random.PRNGKey(7), params)
    assert np.array_equal(seen, raw)
    other, _ = env.reset(jax.random.key(8), params)
    assert not np.array_equal(seen, other)
    each, _ = env.reset(None, params, seed=[5, 2**40, -1])
    alone, _ = env.reset(None, params, seed=2**40)
    assert np.array_equal(each[1], alone[0])


def test_seeds_carry_into_the_high_word():
    from kineticsim_env.jax.markets import _seeds_from

    words = _seeds_from(jnp.uint32(2**32 - 2), jnp.uint32(5), 4)
    numbers = np.asarray(words).view(np.int64)[:, 0]
    assert numbers.tolist() == [5 * 2**32 + 2**32 - 2 + place for place in range(4)]


def test_numbers_of_words():
    wide = np.array([0, 1, -1, 2**31, -(2**31), 2**40 + 12345, -(2**62)], np.int64)
    assert np.array_equal(numbers_of(jnp.asarray(words_of(wide)), torch.int64), wide.astype(np.float32))
    reals = np.array([0.0, 1.0, -1.5, np.pi, -1e30, 1e-30, 2.0**-126, np.inf, -np.inf, 1 / 3, 123456789.125])
    words = reals.reshape(-1, 1).view(np.int32)
    found = np.asarray(numbers_of(jnp.asarray(words), torch.float64))
    assert np.allclose(found, reals.astype(np.float32), rtol=2**-23, atol=0)
    assert np.isnan(np.asarray(numbers_of(jnp.asarray(np.array([[np.nan]]).view(np.int32)), torch.float64))).all()


# Functions of users ---------------------------------------------------------------------------------------------------


def earned(before, after):
    return after.cash - before.cash + after.inventory * after.mid - before.inventory * before.mid


def far(before, after):
    return after.inventory**2 >= 25


FUNCTIONS = {"reward": earned, "terminate": far}


@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP"])
@pytest.mark.parametrize("device", DEVICES)
def test_functions_of_users_as_in_torch(device, mode):
    own = {"horizon": 9, "account_info": True, "autoreset_mode": mode, **FUNCTIONS}
    env, params = ks.jax.make(MAKING, MARKETS, device=device, features=[lambda after: after.inventory / 8], **own)
    torch_env = gym.make_vec(
        MAKING, num_envs=MARKETS, output="torch", engine=device,
        features=[lambda after: (after.inventory / 8).float().unsqueeze(-1)], **own,
    )  # fmt: skip
    observation, _ = torch_env.reset(seed=3)
    seen, state = env.reset(None, params, seed=3)
    assert same(observation, seen) and env.observation_space().shape == observation.shape[1:]
    step, generator, ended = jax.jit(env.step), np.random.default_rng(1), 0
    for _ in range(30):
        actions = generator.uniform(-1, 1, (MARKETS, 4)).astype(np.float32)
        observation, reward, terminated, truncated, infos = torch_env.step(torch.from_numpy(actions).to(device))
        seen, state, paid, done, known = step(None, state, actions, params)
        assert same(observation, seen) and same(terminated, known["terminated"]) and same(truncated | terminated, done)
        assert np.allclose(reward.cpu(), paid, rtol=1e-5, atol=1e-3)  # float64 there, float32 here
        for name, array in known["account_info"].items():
            assert np.allclose(infos["account_info"][name].cpu(), array, rtol=1e-6, equal_nan=True), name
        assert "episode_return" not in known["account_info"]
        if mode == "SAME_STEP":
            assert same(infos["final_obs"], known["final_obs"])
        ended += int(terminated.sum())
    assert ended > 5


def test_features_see_no_events_as_an_episode_begins():
    own = {"horizon": 40, "config": CONTINUOUS, "decide": "fill", "keep": True}
    own["features"] = [lambda after: after.decision_events / 64.0]
    env, params = ks.jax.make(MAKING, MARKETS, device="cpu", **own)
    torch_env = gym.make_vec(MAKING, num_envs=MARKETS, output="torch", engine="cpu", **own)
    torch_env.reset(seed=3)
    _, state = env.reset(None, params, seed=3)
    step, generator, ended = jax.jit(env.step), np.random.default_rng(1), 0
    for _ in range(12):
        actions = generator.uniform(-1, 1, (MARKETS, *env.action_space().shape)).astype(np.float32)
        observation, *_, infos = torch_env.step(torch.from_numpy(actions))
        seen, state, _, done, known = step(None, state, actions, params)
        assert same(observation, seen) and same(infos["final_obs"], known["final_obs"])
        ended += int(np.asarray(done).sum())
    assert ended and np.asarray(seen)[:, -1].any()


@slow
@pytest.mark.parametrize("preset", PRESET_NAMES)
@pytest.mark.parametrize("id", [MAKING, EXECUTION, TRADING])
def test_one_market_of_every_preset(id, preset):
    env, params, torch_env = both(id, "cpu", 1, preset=preset, horizon=5)
    play(env, params, torch_env, 8)


@slow
def test_functions_by_role():
    paid = {"maker": lambda before, after: after.filled * 2.0}
    env, params = ks.jax.make(MANY, 4, device="cpu", learners={"maker": 1, "trader": 1}, reward=paid, horizon=5)
    built_in, tables = ks.jax.make(MANY, 4, device="cpu", learners={"maker": 1, "trader": 1}, horizon=5)
    (_, state), (_, beside) = env.reset(None, params, seed=1), built_in.reset(None, tables, seed=1)
    for _ in range(8):
        actions = {agent: jnp.full((4, *env.action_space(agent).shape), 0.3) for agent in env.agents}
        _, state, rewards, dones, _ = env.step(None, state, actions, params)
        _, beside, expected, ends, _ = built_in.step(None, beside, actions, tables)
        assert np.array_equal(rewards["trader_0"], expected["trader_0"])
        assert all(np.array_equal(dones[name], ends[name]) for name in dones)
        assert (np.asarray(rewards["maker_0"]) % 2 == 0).all()


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        ({"id": "Making"}, ValueError, "id: expected one of 'KineticSim/MarketMaking-v0', .*, got 'Making'"),
        ({"device": "tpu"}, ValueError, "device: expected one of 'cpu', 'cuda', got 'tpu'"),
        ({"output": "numpy"}, TypeError, "output: expected none in JAX, got 'numpy'"),
        ({"custom_task": 1}, TypeError, "custom_task: expected none in JAX, got 1"),
        ({"horizon": 0}, ValueError, "horizon: "),
        ({"num_envs": 0}, ValueError, "num_envs: "),
        ({"reward": 3}, ValueError, "reward: "),
        ({"opponents": {"trader": [lambda seen: seen[:, :2]]}}, TypeError, "opponents: expected programs"),
        (
            {"config": ks.MarketConfig.preset("news", population="multinomial")},
            ValueError,
            "population: expected 'fixed' in JAX, got 'multinomial'",
        ),
        ({"reward": lambda before, after: after.cash[:1]}, ValueError, r"reward: expected float32 \[2\] from the fun"),
        ({"terminate": lambda before, after: after.cash}, ValueError, "terminate: expected bool"),
        ({"features": [lambda after: after.bid]}, ValueError, "features: expected float32"),
        ({"reward": lambda before, after: after.wealth}, AttributeError, "after.wealth: there is no such thing"),
    ],
)
def test_arguments_that_are_refused(arguments, kind, said):
    with pytest.raises(kind, match=said):
        ks.jax.make(**{"id": MAKING, "num_envs": 2, "device": "cpu", **arguments})


def test_calls_that_are_refused():
    env, params = ks.jax.make(MAKING, 2, device="cpu")
    other, _ = ks.jax.make(MAKING, 3, device="cpu")
    _, state = env.reset(None, params, seed=0)
    right = np.zeros((2, 4), np.float32)
    for action in (right[:1], right[:, :3], right.astype(int), right[0]):
        with pytest.raises(ValueError, match=r"action: expected floating numbers \[2, 4\], got"):
            jax.jit(env.step)(None, state, action, params)
    with pytest.raises(ValueError, match=r"state: expected \w+ .*, got .* of another num_envs"):
        other.step(None, state, np.zeros((3, 4), np.float32), params)
    with pytest.raises(ValueError, match="state: expected quotes int32 .* got float32"):
        env.step(None, state.replace(quotes=state["quotes"].astype(float)), right, params)
    with pytest.raises(ValueError, match="params: expected what this environment has returned"):
        env.step(None, state, right, ks.jax.MarketParams({}, {}))
    with pytest.raises(KeyError, match="state: expected one of bid, ask"):
        state["depth"]
    with pytest.raises(ValueError, match=r"mask: expected bool \[2\], got float"):
        env.begin(state, np.zeros(2), params)
    with pytest.raises(ValueError, match="scenario: expected None without randomise"):
        env.begin(state, np.ones(2, bool), params, 0)
    with pytest.raises((TypeError, ValueError), match="seed"):
        env.reset(None, params, seed=0.5)
    many, tables = ks.jax.make(MANY, 2, device="cpu", learners={"maker": 1, "noise": 1})
    _, state = many.reset(None, tables, seed=0)
    with pytest.raises(ValueError, match=r"actions: expected one entry for each of \['maker_0', 'noise_0'\]"):
        many.step(None, state, {"maker_0": right}, tables)


def test_error_words_are_raised_by_check():
    env, params = ks.jax.make(MAKING, 2, device="cpu", preset="paper")  # in which nothing is cancelled
    _, state = env.reset(None, params, seed=0)
    ks.jax.check(state)
    actions = np.zeros((2, 4), np.float32)
    actions[1] = np.nan
    state = env.step(None, state, actions, params)[1]
    with pytest.raises(ks.MarketError, match=r"market 1: .* got a NaN action"):
        ks.jax.check(state)
    _, state = env.reset(None, params, seed=0)
    full = np.asarray(state["bid"]).copy()
    full[0] = 0
    full[0, :4] = [2**29, 2**29, 2**29, 2**29 - 1]  # one unit more is too much
    state = env.step(None, state.replace(bid=jnp.asarray(full)), np.zeros((2, 4), np.float32), params)[1]
    with pytest.raises(ks.MarketError, match=r"market 0: at t = \d+ the total quantity"):
        ks.jax.check(state)
    assert np.isfinite(np.asarray(env.begin(state, np.ones(2, bool), params)["reward"])).all()
    ks.jax.check(env.begin(state, np.ones(2, bool), params))


def test_states_of_other_scenarios_are_refused():
    how = {"horizon": 7, "num_scenarios": 5}
    env, _, _ = both(MAKING, "cpu", randomise={"max_order_qty": (2, 6)}, **how)
    *_, torch_env = both(MAKING, "cpu", randomise={"max_order_qty": (2, 9)}, scenario_seed=3, **how)
    torch_env.reset(seed=1)
    with pytest.raises(ValueError, match="saved: expected a state of this environment's scenarios"):
        env.load_state_dict(torch_env.state_dict())
