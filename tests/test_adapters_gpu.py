"""Wrappers and adapters on a GPU: the CPU's bits, no synchronisation, steps through the wrappers in a CUDA graph."""

import gymnasium as gym
import pytest
import torch
from adapter_helpers import MAKER, MANY, SMALL, TASKS, assert_bits, ending, many_run, plain_run
from env_helpers import capture_step

from kineticsim_env import BatchedParallelEnv
from kineticsim_env.wrappers import NormalizeObservation, NormalizeReward, RecordEpisodeStatistics

pytestmark = pytest.mark.gpu


def wrap(envs):
    return NormalizeReward(NormalizeObservation(RecordEpisodeStatistics(envs)))


def make(engine="cuda", **arguments):
    return wrap(gym.make_vec(MAKER, num_envs=64, output="torch", **{**SMALL, "engine": engine, **arguments}))


def assert_close(first, second):
    """Compare the results of two steps; sums over markets are rounded in another order on a GPU."""
    for one, two in zip(first[:4], second[:4], strict=True):
        torch.testing.assert_close(one.cpu(), two.cpu(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(first[4]["final_obs"].cpu(), second[4]["final_obs"].cpu(), rtol=1e-5, atol=1e-6)
    for name in ("r", "l"):
        assert_bits(first[4]["episode"][name].cpu(), second[4]["episode"][name].cpu())


def test_the_wrappers_results_are_the_cpus_and_nothing_waits():
    gpu, cpu = make(), make("cpu")
    torch.testing.assert_close(gpu.reset(seed=1)[0].cpu(), cpu.reset(seed=1)[0], rtol=1e-5, atol=1e-6)
    actions = torch.rand(15, 64, 4) * 2 - 1
    on_gpu = actions.cuda()
    gpu.step(on_gpu[0])
    cpu.step(actions[0])
    for t in range(1, 15):
        torch.cuda.set_sync_debug_mode("error")
        try:
            result = gpu.step(on_gpu[t])
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert_close(result, cpu.step(actions[t]))


def test_a_captured_step_through_the_wrappers_plays_on():
    captured, eager = make(copy=False), make()
    captured.reset(seed=5)
    eager.reset(seed=5)
    actions = torch.zeros(64, 4, device="cuda")
    eager.step(actions)
    graph, result = capture_step(captured, actions)
    for action in torch.rand(15, 64, 4) * 2 - 1:
        actions.copy_(action)
        graph.replay()
        assert_close(result, eager.step(actions))
    assert captured.env.env.summary() == pytest.approx(eager.env.env.summary())


@pytest.mark.parametrize("task", TASKS)
def test_torchrl_has_the_cpus_bits(task):
    pytest.importorskip("torchrl")
    from kineticsim_env.adapters.torchrl import TorchRLEnv

    actions, first, results = plain_run(ending(task), 5, 20, seed=3)
    env = TorchRLEnv(task[0], num_envs=5, **{**ending(task)[1], "engine": "cuda"})
    env.set_seed(3)
    data = env.reset()
    assert data["observation"].is_cuda
    assert_bits(data["observation"].cpu(), first)
    for action, (observation, reward, terminated, truncated, infos) in zip(actions, results, strict=True):
        step, data = env.step_and_maybe_reset(data.set("action", torch.from_numpy(action).cuda()))
        after = step["next"].cpu()
        assert_bits(after["observation"], infos["final_obs"])
        assert_bits(after["reward"][:, 0], reward)
        assert_bits(after["terminated"][:, 0], terminated)
        assert_bits(after["truncated"][:, 0], truncated)
        assert_bits(data["observation"].cpu(), observation)


def test_skrl_and_groups_have_the_cpus_bits():
    pytest.importorskip("skrl")
    from kineticsim_env.adapters.skrl import SkrlMultiEnv

    learners = {"maker": 2, "executor": 1}
    actions, (first, _), results = many_run(learners, 4, 40, 3)
    env = SkrlMultiEnv(BatchedParallelEnv(4, learners, **{**MANY, "engine": "cuda"}), seed=3)
    assert env.device.type == "cuda"
    assert_bits(env.reset()[0]["maker_1"].cpu(), first["maker"][:, 1])
    for action, (observation, reward, *_) in zip(actions, results, strict=True):
        given = {
            name: action[role][:, k].cuda() for name, role, k in (("maker_0", "maker", 0), ("maker_1", "maker", 1))
        }
        found, rewards, *_ = env.step(given | {"executor_0": action["executor"][:, 0].cuda()})
        assert_bits(found["executor_0"].cpu(), observation["executor"][:, 0])
        assert_bits(rewards["maker_1"].cpu(), reward["maker"][:, 1:])
