"""The TorchRL adapters: TorchRL's own check, the plain environments' bits, partial resets, training."""

import gymnasium as gym
import pytest
import torch
from adapter_helpers import (
    MAKER,
    MANY,
    SMALL,
    TASKS,
    assert_bits,
    check_missing,
    check_opening,
    check_opening_many,
    ending,
    many_run,
    plain_run,
)

pytest.importorskip("torchrl")

from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector
from torchrl.envs import check_env_specs
from torchrl.modules import MLP, NormalParamExtractor, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from kineticsim_env import BatchedParallelEnv
from kineticsim_env.adapters.torchrl import TorchRLEnv, TorchRLGroupEnv
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
    for _ in range(3):  # in the middle of an episode, twice in a row
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
    assert len({tuple(row.tolist()) for row in data["observation"].reshape(-1, 39)}) > 60  # not one live buffer


def test_wrapped_environments():
    envs = gym.make_vec(MAKER, num_envs=4, output="torch", **SMALL)
    env = TorchRLEnv(NormalizeObservation(RecordEpisodeStatistics(envs)))
    check_env_specs(env, break_when_any_done="both")
    assert env.envs.env.summary()["episodes"] >= 0


def test_it_trains():
    torch.manual_seed(0)
    env = TorchRLEnv(MAKER, num_envs=16, **{**SMALL, "horizon": 50})
    network = torch.nn.Sequential(MLP(39, 8, num_cells=[32]), NormalParamExtractor())
    actor = ProbabilisticActor(
        TensorDictModule(network, ["observation"], ["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        return_log_prob=True,
    )
    critic = ValueOperator(MLP(39, 1, num_cells=[32]))
    loss, advantage = ClipPPOLoss(actor, critic), GAE(gamma=0.99, lmbda=0.95, value_network=critic)
    before = [parameter.clone() for parameter in loss.parameters()]
    optimizer = torch.optim.Adam(loss.parameters(), lr=3e-4)
    batches = 0
    for data in Collector(env, actor, frames_per_batch=512, total_frames=1024, auto_register_policy_transforms=False):
        advantage(data)
        losses = loss(data.reshape(-1))
        sum(value for name, value in losses.items() if name.startswith("loss_")).backward()
        optimizer.step()
        optimizer.zero_grad()
        batches += 1
    assert batches == 2
    assert all(torch.isfinite(parameter).all() for parameter in loss.parameters())
    assert any((one != two).any() for one, two in zip(before, loss.parameters(), strict=True))


# Many learners --------------------------------------------------------------------------------------------------------

LEARNERS = {"maker": 2, "momentum": 1, "executor": 2, "trader": 1}


@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
def test_check_env_specs_of_groups(action_type):
    env = TorchRLGroupEnv(BatchedParallelEnv(3, LEARNERS, action_type=action_type, **MANY))
    check_env_specs(env, break_when_any_done="both")
    check_env_specs(env, seed=1)
    assert env.group_map["executor"] == ["executor_0", "executor_1"]
    env.close()


@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
def test_the_plain_environments_bits_in_groups(action_type):
    actions, (first, infos), results = many_run(LEARNERS, 4, 40, 3, action_type=action_type)
    env = TorchRLGroupEnv(BatchedParallelEnv(4, LEARNERS, action_type=action_type, **MANY))
    env.set_seed(3)
    data = env.reset()
    for action, (observation, reward, terminated, truncated, infos, state) in zip(actions, results, strict=True):
        for role, rows in first.items():
            assert_bits(data[role, "observation"], rows)
        before = {role: data[role, "active"][..., 0].clone() for role in first}
        for role, rows in action.items():
            data.set((role, "action"), rows)
        step, data = env.step_and_maybe_reset(data)
        after, over = step["next"], infos["_final_obs"]
        assert_bits(after["done"][:, 0], over)
        assert_bits(after["done"], after["terminated"] | after["truncated"])
        assert_bits(data["state"], state)
        for role in first:
            rows = after[role]
            assert_bits(rows["observation"], infos["final_obs"][role])
            assert_bits(rows["reward"][..., 0], reward[role])
            assert_bits(rows["truncated"][..., 0], truncated[role])
            # A learner's own end is reported once; a learner that is idle already terminates with the market.
            assert_bits(rows["terminated"][..., 0], terminated[role] | (over[:, None] & ~before[role]))
            assert_bits(rows["done"], rows["terminated"] | rows["truncated"])
            assert rows["done"][over].all()
            assert_bits(rows["active"][~over][..., 0], infos["active"][role][~over])
            assert not rows["active"][over].any()
            assert_bits(data[role, "active"][..., 0], infos["active"][role])
            assert not data[role, "done"][over].any()
        first = observation


def test_groups_train():
    """A step of MAPPO for one role: actions of its own observations, values of the state."""
    from torchrl.modules import MultiAgentMLP

    torch.manual_seed(0)
    env = TorchRLGroupEnv(BatchedParallelEnv(8, {"maker": 2}, **{**MANY, "horizon": 20}))
    policy = MultiAgentMLP(39, 8, 2, centralized=False, share_params=True, num_cells=[32])
    actor = ProbabilisticActor(
        TensorDictModule(
            torch.nn.Sequential(policy, NormalParamExtractor()),
            [("maker", "observation")],
            [("maker", "loc"), ("maker", "scale")],
        ),
        in_keys=[("maker", "loc"), ("maker", "scale")],
        out_keys=[("maker", "action")],
        distribution_class=TanhNormal,
        return_log_prob=True,
        log_prob_key=("maker", "log_prob"),
    )
    critic = TensorDictModule(
        MultiAgentMLP(39, 1, 2, centralized=True, share_params=True, num_cells=[32]),
        [("maker", "observation")],
        [("maker", "state_value")],
    )
    loss = ClipPPOLoss(actor, critic, normalize_advantage=False)
    keys = {
        name: ("maker", name if name != "value" else "state_value")
        for name in ("reward", "action", "value", "done", "terminated")
    }
    loss.set_keys(**keys, sample_log_prob=("maker", "log_prob"))
    loss.make_value_estimator(gamma=0.99, lmbda=0.95)
    with torch.no_grad():
        data = env.rollout(40, actor, break_when_any_done=False)
    loss.value_estimator(data, params=loss.critic_network_params, target_params=loss.target_critic_network_params)
    losses = loss(data.reshape(-1))
    total = sum(value for name, value in losses.items() if name.startswith("loss_"))
    total.backward()
    assert torch.isfinite(total) and any(parameter.grad is not None for parameter in loss.parameters())


# Programs -------------------------------------------------------------------------------------------------------------


def open_one():
    return TorchRLEnv(MAKER, num_envs=5, **SMALL)


def open_many():
    return TorchRLGroupEnv(BatchedParallelEnv(5, {"maker": 1, "trader": 2}, **MANY))


def given(env, data, step):
    """Put actions of a step into its tensordict."""
    generator = torch.Generator().manual_seed(step)
    for key in env.action_keys:
        data = data.set(key, torch.rand(env.full_action_spec[key].shape, generator=generator) * 2 - 1)
    return data


def assert_alike(found, wanted):
    assert set(found.keys(True, True)) == set(wanted.keys(True, True))
    for key in wanted.keys(True, True):
        assert_bits(found[key], wanted[key])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's, of its own programs
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(  # a step of one learner alone is in test_a_step_in_one_graph
    "make", [pytest.param(open_one, id="one learner"), pytest.param(open_many, id="many")]
)
def test_compiled_steps(make, backend):
    """Over ends of episodes, with TorchRL's resets: a program gives the bits of a plain step."""
    torch.compiler.reset()
    one, two = make(), make()
    for env in (one, two):
        env.set_seed(3)
    step = torch.compile(two.step_and_maybe_reset, backend=backend)
    wanted, found, ended = one.reset(), two.reset(), 0
    for t in range(14):
        plain, wanted = one.step_and_maybe_reset(given(one, wanted, t))
        compiled, found = step(given(two, found, t))
        assert_alike(compiled, plain)
        assert_alike(found, wanted)
        ended += int(plain["next", "done"].sum())
    assert ended >= 5


def test_a_step_in_one_graph():
    torch.compiler.reset()
    one, two = open_one(), open_one()
    for env in (one, two):
        env.set_seed(3)
    step = torch.compile(two.step, fullgraph=True, backend="aot_eager")
    wanted, found = one.reset(), two.reset()
    for t in range(14):
        plain, compiled = one.step(given(one, wanted, t)), step(given(two, found, t))
        assert_alike(compiled, plain)
        wanted, found = one.maybe_reset(one.step_mdp(plain)), two.maybe_reset(two.step_mdp(compiled))
        assert_alike(found, wanted)


# Errors ---------------------------------------------------------------------------------------------------------------


def test_what_it_refuses():
    check_opening(TorchRLEnv, "torch")
    check_opening_many(TorchRLGroupEnv)


def test_live_results_are_refused():
    plain = gym.make_vec(MAKER, num_envs=2, output="torch", copy=False, **SMALL)
    many = BatchedParallelEnv(2, {"maker": 1}, copy=False, **SMALL)
    for env in (TorchRLEnv(plain), TorchRLGroupEnv(many)):
        with pytest.raises(ValueError, match="copy: expected .*got False"):
            env.rollout(2)
        with pytest.raises(ValueError, match="copy: expected .*got False"):  # before any program is compiled
            env.reset()


def test_without_the_library(monkeypatch):
    check_missing(monkeypatch, "kineticsim_env.adapters.torchrl", "torchrl", "torchrl")
