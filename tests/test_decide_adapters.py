"""Libraries and checkers where decisions end at events: `decision_events` goes along, and they train."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from adapter_helpers import MAKER, actions_of, assert_bits
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import api_test, parallel_api_test
from test_decide_surface import EVENTS, SMALL, both, every_engine

import kineticsim_env as ks
from kineticsim_env.envs.parallel import aec_env
from kineticsim_env.wrappers import NormalizeReward

TASKS = ("MarketMaking", "Trading", "Execution")
both_forms = pytest.mark.parametrize("form", ["continuous", "discrete"])


def vector(engine, decide, num_envs=4, task="MarketMaking", **arguments):
    return gym.make_vec(
        f"KineticSim/{task}-v0", num_envs=num_envs, engine=engine, decide=decide, **{**SMALL, **arguments}
    )


def batch(engine, decide, learners=None, **arguments):
    learners = learners or {"maker": 2, "executor": 1}
    return ks.BatchedParallelEnv(3, learners, engine=engine, decide=decide, **{**SMALL, "block_qty": 8, **arguments})


def stepped(envs, steps, seed):
    """Actions, and what the environment without an adapter makes of them."""
    actions = actions_of(envs, steps)
    first, _ = envs.reset(seed=seed)
    results = [envs.step(action) for action in actions]
    assert np.stack([result[2] | result[3] for result in results]).sum(0).min() >= 2
    return actions, first, results


# Checkers -------------------------------------------------------------------------------------------------------------


@every_engine
@both
@both_forms
@pytest.mark.parametrize("task", TASKS)
def test_gymnasium_checkers(engine, decide, form, task):
    arguments = {"decide": decide, "action_type": form, "engine": engine, **SMALL}
    check_env(gym.make(f"KineticSim/{task}-v0", **arguments).unwrapped)
    envs = vector(engine, decide, 3, task, action_type=form)
    envs.action_space.seed(1)
    assert envs.reset(seed=1)[0] in envs.observation_space
    for _ in range(12):
        assert envs.step(envs.action_space.sample())[0] in envs.observation_space


@every_engine
@both
@both_forms
def test_pettingzoo_checkers(engine, decide, form):
    arguments = {"decide": decide, "action_type": form, "engine": engine, **SMALL, "block_qty": 8}
    learners = {"maker": 1, "trader": 1, "executor": 1}
    parallel_api_test(ks.parallel_env(learners, **arguments), num_cycles=60)
    api_test(aec_env(learners, **arguments), num_cycles=60)


# Stable-Baselines3 ----------------------------------------------------------------------------------------------------


@every_engine
@both
def test_stable_baselines(engine, decide):
    pytest.importorskip("stable_baselines3")
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy

    from kineticsim_env.adapters.sb3 import SB3GroupVecEnv, SB3VecEnv

    actions, first, results = stepped(vector(engine, decide), 120, 5)
    env = SB3VecEnv(vector(engine, decide))
    env.seed(5)
    assert_bits(env.reset(), first)
    for action, (seen, reward, *_, infos) in zip(actions, results, strict=True):
        found = env.step(action)
        assert_bits(found[0], seen), assert_bits(found[1], reward)
        assert [info["decision_events"] for info in found[3]] == infos["decision_events"].tolist()
        assert type(found[3][0]["decision_events"]) is int
    group = SB3GroupVecEnv(batch(engine, decide, {"maker": 2}))
    group.seed(1), group.reset()
    *_, infos = group.step(np.zeros((6, 4), np.float32))
    events = group.envs.core.tensors["decision_events"].tolist()
    assert [info["decision_events"] for info in infos] == [events[row // 2] for row in range(6)]
    for rows in (env, group):
        model = PPO("MlpPolicy", rows, n_steps=32, batch_size=64, device="cpu", seed=0).learn(256)
    mean, _ = evaluate_policy(model, group, n_eval_episodes=6)
    assert np.isfinite(mean)


# TorchRL --------------------------------------------------------------------------------------------------------------


@every_engine
@both
def test_torchrl(engine, decide):
    pytest.importorskip("torchrl")
    from torchrl.envs.utils import check_env_specs

    from kineticsim_env.adapters.torchrl import TorchRLEnv, TorchRLGroupEnv

    check_env_specs(TorchRLEnv(vector(engine, decide, output="torch")))
    group = TorchRLGroupEnv(batch(engine, decide))
    check_env_specs(group)
    for env in (TorchRLEnv(vector(engine, decide, output="torch")), group):
        spec = env.observation_spec["decision_events"]
        assert spec.dtype == torch.int32 and int(spec.high.max()) == EVENTS
        env.set_seed(3)
        data = env.rollout(120 if decide == "touch" else 50, break_when_any_done=False)
        before, events = data["decision_events"][..., 0], data["next", "decision_events"][..., 0]
        over = data["next", "done"][..., 0]
        assert int(events.min()) > 0 and over.any(1).all() and (before[:, 0] == 0).all()
        assert torch.equal(before[:, 1:], events[:, :-1].masked_fill(over[:, :-1], 0))
        seen = data["next", "observation"] if env is not group else data["next", "maker", "observation"][:, :, 0]
        assert torch.equal(seen[..., -1], events.float() / EVENTS)
        assert not env.reset()["decision_events"].any()
    one = TorchRLEnv(NormalizeReward(vector(engine, decide, output="torch")))
    one.set_seed(3)
    assert "decision_events" in one.rollout(4, break_when_any_done=False)["next"]


def test_torchrl_resets_of_markets_that_have_begun_anew_have_no_events():
    pytest.importorskip("torchrl")
    from tensordict import TensorDict

    from kineticsim_env.adapters.torchrl import TorchRLEnv

    env = TorchRLEnv(vector("cpu", "fill", 3, output="torch", stagger=True))
    env.set_seed(3)
    data = env.reset()
    while not (over := env.rand_step(data)["next", "done"][:, 0]).any() or over.all():
        data = env.reset(TensorDict({"_reset": over.unsqueeze(1)}, batch_size=3)) if over.any() else data
    all_of_them = TensorDict({"_reset": torch.ones(3, 1, dtype=torch.bool)}, batch_size=3)
    assert not env.reset(all_of_them)["decision_events"].any()


@every_engine
def test_torchrl_trains_on_targets_discounted_by_time(engine):
    pytest.importorskip("torchrl")
    from tensordict.nn import TensorDictModule
    from torchrl.collectors import Collector
    from torchrl.modules import MLP, NormalParamExtractor, ProbabilisticActor, TanhNormal

    from kineticsim_env.adapters.torchrl import TorchRLEnv

    env = TorchRLEnv(vector(engine, "fill", 8, output="torch"))
    n = env.envs.unwrapped.core.auctions_per_step
    torch.manual_seed(0)
    env.set_seed(3)
    network = torch.nn.Sequential(MLP(40, 8, num_cells=[16]), NormalParamExtractor())
    actor = ProbabilisticActor(
        TensorDictModule(network, ["observation"], ["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
    )
    value = MLP(40, 1, num_cells=[16])
    optimiser = torch.optim.Adam(value.parameters(), lr=3e-3)
    for data in Collector(env, actor, frames_per_batch=256, total_frames=256, auto_register_policy_transforms=False):
        after, losses = data["next"], []
        for _ in range(100):
            with torch.no_grad():
                discount = 0.99 ** (after["decision_events"] / n) * ~after["terminated"]
                target = after["reward"] + discount * value(after["observation"])
            losses.append(torch.nn.functional.mse_loss(value(data["observation"]), target))
            optimiser.zero_grad(), losses[-1].backward(), optimiser.step()
        assert sum(losses[-5:]) < sum(losses[:5])


# skrl -----------------------------------------------------------------------------------------------------------------


@every_engine
@both
def test_skrl(engine, decide):
    pytest.importorskip("skrl")
    from skrl.utils.runner.torch import Runner
    from test_adapters_skrl import settings

    from kineticsim_env.adapters.skrl import SkrlEnv, SkrlMultiEnv

    env = SkrlEnv(vector(engine, decide, output="torch"), seed=3)
    env.reset()
    for _ in range(8):
        seen, *_, infos = env.step(torch.zeros(4, 4))
        assert torch.equal(infos["decision_events"].float() / EVENTS, infos["final_obs"][:, -1])
    many = SkrlMultiEnv(batch(engine, decide), seed=3)
    many.reset()
    *_, infos = many.step({name: torch.zeros(3, 2 if "executor" in name else 4) for name in many.possible_agents})
    assert torch.equal(infos["decision_events"], many._env.core.tensors["decision_events"])
    Runner(env, settings("PPO", "GaussianMixin")).run()


# Minari ---------------------------------------------------------------------------------------------------------------


@every_engine
@both
@pytest.mark.parametrize("window", [1, 5, None])
def test_minari(engine, decide, window, tmp_path, monkeypatch):
    """Episodes have more steps than the horizon, and are whole whatever the window; how long steps were is observed."""
    minari = pytest.importorskip("minari")
    pytest.importorskip("h5py")
    from kineticsim_env.adapters.minari import RecordDataset

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    envs = RecordDataset(vector(engine, decide, output="torch", stagger=False), "kineticsim/events-v0", window)
    actions = torch.from_numpy(actions_of(envs, 150 if decide == "touch" else 60))
    envs.reset(seed=2)
    ends = sum(int((result[2] | result[3]).sum()) for result in map(envs.step, actions))
    envs.dataset()
    dataset = minari.load_dataset("kineticsim/events-v0")
    assert dataset.total_episodes == ends > 4
    steps = []
    for episode in dataset.iterate_episodes():
        events = np.rint(episode.observations[1:, -1] * EVENTS)
        assert events.sum() == SMALL["horizon"] * EVENTS and events.min() > 0 and episode.observations[0, -1] == 0
        steps.append(len(episode.rewards))
    assert min(steps) >= SMALL["horizon"] < max(steps)
    recovered = dataset.recover_environment().unwrapped
    assert recovered.core.task.decide == decide and recovered.observation_space == envs.single_observation_space


@every_engine
def test_ids_take_the_setting(engine):
    for library, module, name in (
        ("stable_baselines3", "sb3", "SB3VecEnv"),
        ("torchrl", "torchrl", "TorchRLEnv"),
        ("skrl", "skrl", "SkrlEnv"),
    ):
        pytest.importorskip(library)
        adapter = getattr(__import__(f"kineticsim_env.adapters.{module}", fromlist=[name]), name)
        made = adapter(MAKER, num_envs=2, engine=engine, decide="touch", **SMALL)
        space = made.observation_spec["observation"] if module == "torchrl" else made.observation_space
        assert space.shape[-1] == 40
