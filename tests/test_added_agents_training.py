"""Agents that users write, in what trainers use: adapters, programs that torch compiles, evaluation, own rewards."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from agent_classes import extreme, insider, trend_follower

import kineticsim_env as ks
from kineticsim_env.evaluation import evaluate, evaluation_env, evaluation_parallel_env
from kineticsim_env.runtime import build

ENGINES = ["numpy", "cpu"]
TRADING = "KineticSim/Trading-v0"
AGENTS = {trend_follower: ks.mix(4, lookback=range(2, 6), threshold=0), insider: 2, extreme: 1}
CONFIG = ks.MarketConfig.preset("news").replace(agents=AGENTS)
SMALL = {"config": CONFIG, "engine": "cpu", "warmup": 5, "bank_size": 4, "bank_per_market": 2, "horizon": 5}
RANDOM = {"randomise": {"trend_follower.lookback": (2, 30), "insider.patience": [1, 2, 3]}, "num_scenarios": 8}
LEARNERS = {"trend_follower": 2, "trader": 1}


def actions(steps, *shape):
    """Return random actions, float32 `[steps, *shape]`."""
    return 2 * torch.rand((steps, *shape), generator=torch.Generator().manual_seed(3)) - 1


def rewards_of(envs, given):
    """Return the rewards of a vector environment, seeded 3."""
    envs.reset(seed=3)
    return torch.stack([torch.as_tensor(envs.step(action)[1]) for action in given])


def test_torchrl_has_the_same_rewards():
    torchrl = pytest.importorskip("kineticsim_env.adapters.torchrl", exc_type=ImportError)
    given = actions(9, 3, 2)
    expected = rewards_of(gym.make_vec(TRADING, 3, output="torch", replace="insider", **SMALL, **RANDOM), given)
    env = torchrl.TorchRLEnv(TRADING, num_envs=3, replace="insider", **SMALL, **RANDOM)
    env.set_seed(3)
    data, found = env.reset(), []
    for action in given:
        step, data = env.step_and_maybe_reset(data.set("action", action))
        found.append(step["next"]["reward"][:, 0])
    assert torch.equal(torch.stack(found), expected)
    many = torchrl.TorchRLGroupEnv(ks.BatchedParallelEnv(2, LEARNERS, **SMALL))
    assert many.group_map == {"trader": ["trader_0", "trader_1", "trader_2"]}
    assert many.rollout(7, break_when_any_done=False).batch_size == (2, 7)


def test_skrl_and_sb3_have_the_same_rewards():
    skrl = pytest.importorskip("kineticsim_env.adapters.skrl", exc_type=ImportError)
    given = actions(9, 3, 2)
    expected = rewards_of(gym.make_vec(TRADING, 3, output="torch", replace="insider", **SMALL, **RANDOM), given)
    env = skrl.SkrlEnv(TRADING, num_envs=3, seed=3, replace="insider", **SMALL, **RANDOM)
    env.reset()
    assert torch.equal(torch.stack([env.step(action)[1][:, 0] for action in given]), expected)
    sb3 = pytest.importorskip("kineticsim_env.adapters.sb3", exc_type=ImportError)
    rows = sb3.SB3VecEnv(TRADING, num_envs=3, replace="insider", **SMALL, **RANDOM)
    rows.seed(3)
    rows.reset()
    assert np.array_equal(np.stack([rows.step(action.numpy())[1] for action in given]), expected.numpy())
    group = sb3.SB3GroupVecEnv(ks.BatchedParallelEnv(2, LEARNERS, **SMALL))
    group.reset()
    assert group.step(np.zeros((6, 2), np.float32))[0].shape[0] == 6


@pytest.mark.skipif(build.cpu_unavailable() is not None, reason="no C++ compiler")
@pytest.mark.parametrize("settings", [{}, RANDOM])
def test_compiled_steps_and_runs_have_the_same_bits(settings):
    torch.compiler.reset()
    given = actions(11, 3, 2)
    plain, other = (
        gym.make_vec(TRADING, 3, output="torch", copy=False, **SMALL, **settings).unwrapped for _ in range(2)
    )
    for envs in (plain, other):
        envs.reset(seed=3)
    step = torch.compile(lambda action: other.step(action)[:2], fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        for action in given:
            for mine, theirs in zip(plain.step(action)[:2], step(action), strict=True):
                assert torch.equal(mine, theirs)
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
    if settings:
        return
    one, two = (ks.Simulator(CONFIG, 3, engine="cpu", seed=1) for _ in range(2))
    for simulator in (one, two):
        simulator.run(1)
    run = torch.compile(lambda: two.run(3, ["mid2"])["mid2"], fullgraph=True, backend="aot_eager")
    for lookback in (None, 9, [1, 2, 3, 4]):
        if lookback is not None:
            for simulator in (one, two):
                simulator.set_parameters(**{"trend_follower.lookback": lookback, "noise_spread": 5})
        assert torch.equal(one.run(3, ["mid2"])["mid2"], run())
    for name, tensor in one.tensors.items():
        assert torch.equal(tensor, two.tensors[name]), name


@pytest.mark.parametrize("engine", ENGINES)
def test_evaluation_and_own_functions(engine):
    settings = {**SMALL, "engine": engine}
    result = evaluate(
        lambda seen: torch.zeros(len(seen), 2), evaluation_env(3, "Trading", replace="insider", **settings)
    )
    assert np.isfinite(result.pnl).all()
    many = evaluation_parallel_env(2, LEARNERS, **settings)
    results = evaluate({"trader": lambda seen: torch.full((len(seen), 2), 0.3)}, many)
    assert list(results) == ["trader_0", "trader_1", "trader_2"]

    def half(before, after):
        return torch.full_like(after.inventory, 0.5, dtype=torch.float32)

    envs = ks.BatchedParallelEnv(2, {"maker": 1, **LEARNERS}, reward={"trader": half}, **settings)
    envs.reset(seed=0)
    _, reward, *_ = envs.step({"maker": torch.zeros(2, 1, 4), "trader": torch.zeros(2, 3, 2)})
    assert (reward["trader"] == 0.5).all()
    assert reward["trader"].shape == (2, 3)
    seen = gym.make(TRADING, render_mode="ansi", replace="insider", **settings)
    seen.reset(seed=0)
    seen.step(np.zeros(2, np.float32))
    assert "inventory" in seen.render()
