"""The environments on a GPU: the CPU's bits, no synchronisation in a step, CUDA graphs, the error word."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_helpers import check_agreement, environments
from hypothesis import given, settings
from hypothesis import strategies as st

import kineticsim_env as ks
from kineticsim_env.vector_env import MarketMakingVectorEnv

pytestmark = pytest.mark.gpu
SMALL = {"horizon": 6, "bank_size": 16, "warmup": 20}


def make(num_envs=4, **kwargs):
    return MarketMakingVectorEnv(num_envs, **{"engine": "cuda", **SMALL, **kwargs})


def tape(steps, num_envs=4):
    return np.random.default_rng(0).uniform(-1, 1, (steps, num_envs, 4)).astype(np.float32)


def host(result):
    observation, reward, terminated, truncated, infos = result
    values = [observation, reward, terminated, truncated, *infos.values()]
    return [value.cpu().numpy() if isinstance(value, torch.Tensor) else value for value in values]


@settings(max_examples=80)
@given(environments(), st.sampled_from((0.0, 0.0, 0.05)))
def test_engines_agree_on_every_tensor(environment, bad):
    check_agreement(environment, bad, ("cpu", "cuda"))


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("kwargs", [{"output": "numpy"}, {"output": "torch"}, {"output": "torch", "copy": False}])
def test_vector_environment_has_the_cpus_bits(mode, kwargs):
    one, two = make(300, autoreset_mode=mode, **kwargs), make(300, autoreset_mode=mode, engine="cpu")
    first, second = one.reset(seed=3)[0], two.reset(seed=3)[0]
    np.testing.assert_array_equal(first if kwargs["output"] == "numpy" else first.cpu().numpy(), second)
    for action in tape(15, 300):
        given_ = action if kwargs["output"] == "numpy" else torch.from_numpy(action).cuda()
        for mine, theirs in zip(host(one.step(given_)), host(two.step(action)), strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("num_envs", [2, 1027])  # the many have a kernel of their own from the start
def test_a_kernel_of_its_own_has_the_cpus_bits(num_envs):
    one, two = make(num_envs), make(num_envs, engine="cpu")
    one.simulator.specialise()
    np.testing.assert_array_equal(one.reset(seed=3)[0], two.reset(seed=3)[0])
    for action in tape(15, num_envs):
        for mine, theirs in zip(host(one.step(action)), host(two.step(action)), strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("force", [{"KS_SINGLE": 0}, {"KS_SLOTS": 2, "KS_SINGLE": 0}, {"KS_SINGLE": 1, "KS_BLOCKS": 2}])
@pytest.mark.parametrize("specialised", [False, True])
def test_ways_to_step_few_environments_agree(force, specialised):
    one, two = make(40), make(40, engine="cpu")
    one.simulator.engine.force = force
    if specialised:
        one.simulator.specialise()
    np.testing.assert_array_equal(one.reset(seed=3)[0], two.reset(seed=3)[0])
    for action in tape(15, 40):
        for mine, theirs in zip(host(one.step(action)), host(two.step(action)), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_settings_that_change_are_no_constants():
    one, two = make(3000, config=ks.MarketConfig.preset("trading")), make(3000, engine="cpu")
    np.testing.assert_array_equal(one.reset(seed=3)[0], two.reset(seed=3)[0])
    for reward, action in zip(("inventory", "pnl", "asymmetric", "per_unit"), tape(4, 3000), strict=True):
        for envs in (one, two):
            envs.set_task(reward=reward, mark="mid" if reward == "pnl" else "fundamental")
        for mine, theirs in zip(host(one.step(action)), host(two.step(action)), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_a_step_does_not_synchronise():
    envs = make(64, output="torch")
    envs.reset(seed=1)
    actions = torch.zeros(64, 4, device="cuda")
    envs.step(actions)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(10):
            envs.step(actions)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_captured_step_plays_on():
    captured, eager = make(64, output="torch", copy=False), make(64, output="torch")
    captured.reset(seed=5)
    eager.reset(seed=5)
    actions = torch.zeros(64, 4, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        captured.step(actions)  # compiles what is missing, which a capture must not
    torch.cuda.current_stream().wait_stream(stream)
    eager.step(actions)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = captured.step(actions)
    for action in tape(15, 64):
        actions.copy_(torch.from_numpy(action))
        graph.replay()
        for mine, theirs in zip(host(result), host(eager.step(actions)), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_bad_values_on_the_device_set_the_error_word():
    envs = make(output="torch")
    start, _ = envs.reset(seed=1)
    bad = torch.zeros(4, 4, device="cuda")
    bad[2] = torch.nan
    envs.step(bad)
    with pytest.raises(ks.MarketError, match="market 2: got a NaN action"):
        envs.reset(seed=1)
    assert torch.equal(envs.reset(seed=1)[0], start)
    envs.step(torch.full((4, 4), 2.0, device="cuda"))
    with pytest.raises(ks.MarketError, match="outside its space"):
        envs.close()
    envs = make(output="torch", validate=True)
    envs.reset(seed=1)
    envs.step(bad)
    with pytest.raises(ks.MarketError, match="market 2: got a NaN action"):
        envs.step(bad)


def test_bad_values_from_the_host_raise_at_once():
    envs = make(output="torch")
    envs.reset(seed=1)
    with pytest.raises(ValueError, match="got nan"):
        envs.step(np.full((4, 4), np.nan, np.float32))
    with pytest.raises(ValueError, match=r"\[4, 4\] on cpu, allowed is float32 \[4, 4\] on cuda:0"):
        envs.step(torch.zeros(4, 4))
    envs.check_errors()


def test_which_engine_auto_takes():
    assert make(8, engine="auto").device.type == "cpu"
    assert make(8, engine="auto", output="torch").device.type == "cuda"
    assert make(1024, engine="auto").device.type == "cuda"
    assert gym.make("KineticSim/MarketMaking-v0", **SMALL).unwrapped.simulator.device.type == "cpu"


def test_a_checkpoint_goes_on_on_another_engine():
    one, two = make(), make(engine="cpu")
    one.reset(seed=4)
    actions = tape(12)
    for action in actions[:4]:
        one.step(action)
    two.load_state_dict(one.state_dict())
    for action in actions[4:]:
        for mine, theirs in zip(host(one.step(action)), host(two.step(action)), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_single_and_parallel_environments_on_the_gpu():
    one, two = (gym.make("KineticSim/MarketMaking-v0", engine=engine, **SMALL).unwrapped for engine in ("cuda", "cpu"))
    np.testing.assert_array_equal(one.reset(seed=1)[0], two.reset(seed=1)[0])
    for action in tape(6, 1)[:, 0]:
        mine, theirs = one.step(action), two.step(action)
        np.testing.assert_array_equal(mine[0], theirs[0])
        assert mine[1:] == theirs[1:]
    pytest.importorskip("pettingzoo")
    one, two = (ks.parallel_env(engine=engine, **SMALL) for engine in ("cuda", "cpu"))
    one.reset(seed=1)
    two.reset(seed=1)
    while one.agents:
        actions = {agent: np.full(one.action_space(agent).shape, 0.3, np.float32) for agent in one.agents}
        mine, theirs = one.step(actions), two.step(actions)
        assert mine[1:] == theirs[1:]
        np.testing.assert_array_equal(one.state(), two.state())
