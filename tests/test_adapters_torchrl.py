"""The TorchRL adapter: TorchRL's check, the plain environment's bits across ends of episodes, resets of some, training."""

import gymnasium as gym
import pytest
import torch
from adapter_helpers import MAKER, SMALL, TASKS, assert_bits, check_missing, check_opening, ending, plain_run

pytest.importorskip("torchrl")

from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector
from torchrl.envs import check_env_specs
from torchrl.modules import MLP, NormalParamExtractor, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from kineticsim_env.adapters.torchrl import TorchRLEnv
from kineticsim_env.wrappers import NormalizeObservation, RecordEpisodeStatistics


@pytest.mark.parametrize("task", TASKS)
def test_check_env_specs(task):
    env = TorchRLEnv(task[0], num_envs=4, **task[1])
    check_env_specs(env, break_when_any_done="both")
    check_env_specs(env, seed=1)
    env.close()


@pytest.mark.parametrize("task", TASKS)
def test_the_plain_environments_bits(task):
    actions, first, results = plain_run(ending(task), 5, 20, seed=3)
    env = TorchRLEnv(task[0], num_envs=5, **ending(task)[1])
    env.set_seed(3)
    data = env.reset()
    assert_bits(data["observation"], first)
    for action, (observation, reward, terminated, truncated, infos) in zip(actions, results, strict=True):
        step, data = env.step_and_maybe_reset(data.set("action", torch.from_numpy(action)))
        after = step["next"]
        assert_bits(after["observation"], infos["final_obs"])
        assert_bits(after["reward"][:, 0], reward)
        assert_bits(after["terminated"][:, 0], terminated)
        assert_bits(after["truncated"][:, 0], truncated)
        assert_bits(after["done"][:, 0], infos["_final_obs"])
        assert_bits(data["observation"], observation)
        assert not data["done"].any() and not data["terminated"].any() and not data["truncated"].any()


def test_resets_of_some_markets():
    env = TorchRLEnv(MAKER, num_envs=4, **SMALL, stagger=False)
    plain = gym.make_vec(MAKER, num_envs=4, **SMALL, stagger=False, autoreset_mode="disabled")
    mask = torch.tensor([True, False, False, True])

    def reset_some(mask):
        return env.reset(data["next"].clone().set("_reset", mask[:, None]))["observation"]

    env.set_seed(1)
    data = env.reset()
    assert_bits(data["observation"], plain.reset(seed=1)[0])
    for _ in range(3):  # in the middle of an episode, twice behind each other
        data = env.rand_step(data)
        plain.step(data["action"].numpy())
        for _ in range(2):
            assert_bits(reset_some(mask), plain.reset(options={"reset_mask": mask.numpy()})[0])

    # Where an episode has ended, the reset that was due is not made a second time, but a further one is.
    data = env.reset()
    plain.reset()
    for _ in range(6):
        data = env.rand_step(data)
        plain.step(data["action"].numpy())
    assert data["next", "truncated"].all()
    for part in (mask, ~mask, mask):
        assert_bits(reset_some(part)[part], plain.reset(options={"reset_mask": part.numpy()})[0][part])


def test_rollouts():
    env = TorchRLEnv(MAKER, num_envs=4, **SMALL)
    assert env.rollout(20).shape[1] <= 6
    assert env.rollout(20, break_when_any_done=False, break_when_all_done=True)["next", "done"].any(1).all()
    data = env.rollout(20, break_when_any_done=False)
    assert data.shape == (4, 20) and data["next", "done"].sum() >= 8
    assert len({tuple(row.tolist()) for row in data["observation"].reshape(-1, 37)}) > 60  # not one live buffer


def test_wrapped_environments():
    envs = gym.make_vec(MAKER, num_envs=4, output="torch", **SMALL)
    env = TorchRLEnv(NormalizeObservation(RecordEpisodeStatistics(envs)))
    check_env_specs(env, break_when_any_done="both")
    assert env.envs.env.summary()["episodes"] >= 0


def test_it_trains():
    torch.manual_seed(0)
    env = TorchRLEnv(MAKER, num_envs=16, **{**SMALL, "horizon": 50})
    network = torch.nn.Sequential(MLP(37, 8, num_cells=[32]), NormalParamExtractor())
    actor = ProbabilisticActor(
        TensorDictModule(network, ["observation"], ["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        return_log_prob=True,
    )
    critic = ValueOperator(MLP(37, 1, num_cells=[32]))
    loss, advantage = ClipPPOLoss(actor, critic), GAE(gamma=0.99, lmbda=0.95, value_network=critic)
    before = [parameter.clone() for parameter in loss.parameters()]
    optimizer = torch.optim.Adam(loss.parameters(), lr=3e-4)
    batches = 0
    for data in Collector(
        env, actor, frames_per_batch=512, total_frames=1024, auto_register_policy_transforms=False
    ):
        advantage(data)
        losses = loss(data.reshape(-1))
        sum(value for name, value in losses.items() if name.startswith("loss_")).backward()
        optimizer.step()
        optimizer.zero_grad()
        batches += 1
    assert batches == 2
    assert all(torch.isfinite(parameter).all() for parameter in loss.parameters())
    assert any((one != two).any() for one, two in zip(before, loss.parameters(), strict=True))


def test_what_it_refuses():
    check_opening(TorchRLEnv, "torch")


def test_without_the_library(monkeypatch):
    check_missing(monkeypatch, "kineticsim_env.adapters.torchrl", "torchrl", "torchrl")
