"""Action masks in the adapters: the environments' own at every decision, and learners that keep to them."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from adapter_helpers import MAKER, MANY, SMALL, assert_bits

import kineticsim_env as ks

MASKED = {"action_type": "discrete", "action_mask": True, "inventory_limit": 4, "max_qty": 4}
ONE = {**SMALL, **MASKED, "max_loss": 20.0}
GROUP = {**MANY, **MASKED, "block_qty": 4}
SIZES = pytest.mark.parametrize("markets", [1, 5])


def played(markets, steps, mode):
    """Masks of all decisions that count, by market, of the plain environment; and how many are void."""
    envs = gym.make_vec(MAKER, num_envs=markets, autoreset_mode=mode, **ONE)
    rows = np.random.default_rng(0).integers(0, 49, (markets, steps))
    _, infos = envs.reset(seed=3)
    found, ended = [[] for _ in range(markets)], np.zeros(markets, bool)
    while min(map(len, found)) < steps:
        action = np.zeros(markets, np.int64)
        for market in np.flatnonzero(~ended):  # a step that only resets plays no action
            found[market].append(infos["action_mask"][market].astype(bool))
            action[market] = rows[market, min(len(found[market]), steps) - 1]
        *_, terminated, truncated, infos = envs.step(action)
        if mode == "NEXT_STEP":
            ended = terminated | truncated
    return rows, np.stack([rows[:steps] for rows in found])


@SIZES
def test_masks_of_the_plain_environment_in_all_adapters(markets):
    """Across ends of episodes; NEXT_STEP, which adapters refuse, has the same masks at the same decisions."""
    pytest.importorskip("stable_baselines3")
    pytest.importorskip("torchrl")
    from kineticsim_env.adapters.sb3 import SB3VecEnv
    from kineticsim_env.adapters.torchrl import TorchRLEnv

    steps = 20
    actions, masks = played(markets, steps, "SAME_STEP")
    assert_bits(played(markets, steps, "NEXT_STEP")[1], masks)
    assert (~masks).any(axis=(1, 2)).all()
    one, two = SB3VecEnv(MAKER, num_envs=markets, **ONE), TorchRLEnv(MAKER, num_envs=markets, **ONE)
    one.seed(3)
    two.set_seed(3)
    one.reset()
    data, ends = two.reset(), 0
    for t in range(steps):
        assert_bits(np.stack(one.env_method("action_masks")), masks[:, t])
        assert_bits(np.stack([mask() for mask in one.get_attr("action_masks", [markets - 1])]), masks[-1:, t])
        assert_bits(data["action_mask"], masks[:, t])
        one.step(actions[:, t])
        step, data = two.step_and_maybe_reset(data.set("action", torch.from_numpy(actions[:, t])))
        over = step["next", "done"][:, 0]
        assert step["next", "action_mask"][over].all()
        assert_bits(step["next", "action_mask"][~over], data["action_mask"][~over])
        ends += int(over.sum())
    assert ends >= 2 * markets
    for kind, output in ((SB3VecEnv, "numpy"), (TorchRLEnv, "torch")):
        with pytest.raises(
            ValueError,
            match="expected autoreset mode SAME_STEP for .*, got an environment with AutoresetMode.NEXT_STEP",
        ):
            kind(gym.make_vec(MAKER, num_envs=markets, output=output, autoreset_mode="NEXT_STEP", **ONE))


@SIZES
def test_masks_of_groups(markets):
    pytest.importorskip("stable_baselines3")
    pytest.importorskip("torchrl")
    from kineticsim_env.adapters.sb3 import SB3GroupVecEnv
    from kineticsim_env.adapters.torchrl import TorchRLGroupEnv

    def make():
        return ks.BatchedParallelEnv(markets, {"executor": 2}, **GROUP)

    plain, rows, group = make(), SB3GroupVecEnv(make()), TorchRLGroupEnv(make())
    rows.seed(3)
    group.set_seed(3)
    rows.reset()
    _, infos = plain.reset(seed=3)
    data, generator, void, ends = group.reset(), np.random.default_rng(0), 0, 0
    for _ in range(24):
        mask = infos["action_mask"]["executor"]
        void += int((~mask).sum())
        assert_bits(np.stack(rows.env_method("action_masks")), mask.flatten(0, 1))
        assert_bits(data["executor", "action_mask"], mask)
        action = torch.from_numpy(generator.integers(0, 15, (markets, 2)))
        *_, infos = plain.step({"executor": action})
        rows.step(action.flatten().numpy())
        step, data = group.step_and_maybe_reset(data.set(("executor", "action"), action))
        ends += int(infos["_final_obs"].sum())
        assert step["next", "executor", "action_mask"][infos["_final_obs"]].all()
    assert void and ends >= 2 * markets


@SIZES
@pytest.mark.parametrize("grouped", [False, True])
def test_maskable_ppo_trains(markets, grouped):
    contrib = pytest.importorskip("sb3_contrib")
    from sb3_contrib.common.maskable.evaluation import evaluate_policy
    from sb3_contrib.common.maskable.utils import is_masking_supported
    from stable_baselines3.common.vec_env import VecNormalize

    from kineticsim_env.adapters.sb3 import SB3GroupVecEnv, SB3VecEnv

    if grouped:
        env = SB3GroupVecEnv(ks.BatchedParallelEnv(markets, {"maker": 2}, **GROUP))
    else:
        env = VecNormalize(SB3VecEnv(MAKER, num_envs=markets, **ONE))
    assert is_masking_supported(env)
    model = contrib.MaskablePPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=2, device="cpu", seed=0)
    before = [parameter.detach().clone() for parameter in model.policy.parameters()]
    model.learn(64 * env.num_envs)
    buffer = model.rollout_buffer
    taken = buffer.actions.astype(int).reshape(-1, 1)
    assert (buffer.action_masks == 0).any() and np.take_along_axis(buffer.action_masks, taken, 1).all()
    assert any((one != two).any() for one, two in zip(before, model.policy.parameters(), strict=True))
    rewards, _ = evaluate_policy(model, env, n_eval_episodes=2, return_episode_rewards=True)
    assert len(rewards) >= 2


def test_what_stable_baselines_is_told_without_masks():
    pytest.importorskip("stable_baselines3")
    from kineticsim_env.adapters.sb3 import SB3VecEnv

    env = SB3VecEnv(MAKER, num_envs=2, **{**ONE, "action_mask": False})
    assert not env.has_attr("action_masks")
    for ask in (env.get_attr, env.env_method):
        with pytest.raises(
            AttributeError,
            match="action_masks: expected an environment made with action_mask=True .*, got one without masks",
        ):
            ask("action_masks")
    env = SB3VecEnv(MAKER, num_envs=2, **ONE)
    assert env.has_attr("action_masks")
    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        env.env_method("action_masks")


@SIZES
def test_torchrl_checks_and_random_actions(markets):
    """TorchRL's own transform masks random actions by the specs, of one learner and of groups."""
    pytest.importorskip("torchrl")
    from torchrl.envs import TransformedEnv, check_env_specs
    from torchrl.envs.transforms import ActionMask, Compose

    from kineticsim_env.adapters.torchrl import TorchRLEnv, TorchRLGroupEnv

    def group():
        return TorchRLGroupEnv(ks.BatchedParallelEnv(markets, {"maker": 2, "executor": 1}, **GROUP))

    cases = [(lambda: TorchRLEnv(MAKER, num_envs=markets, **ONE), [()]), (group, [("maker",), ("executor",)])]
    for make, parts in cases:
        check_env_specs(make(), break_when_any_done="both")
        masks = (ActionMask(action_key=(*part, "action"), mask_key=(*part, "action_mask")) for part in parts)
        env = TransformedEnv(make(), Compose(*masks))
        data = env.rollout(30, break_when_any_done=False)
        for part in parts:
            mask, action = data.get((*part, "action_mask")), data.get((*part, "action"))
            assert (~mask).any() and mask.gather(-1, action[..., None]).all()
    assert "action_mask" not in TorchRLEnv(MAKER, num_envs=markets, **SMALL, action_type="discrete").reset().keys()


@SIZES
def test_a_masked_policy_of_torchrl(markets):
    pytest.importorskip("torchrl")
    from tensordict.nn import TensorDictModule
    from torchrl.collectors import Collector
    from torchrl.modules import MLP, MaskedCategorical, ProbabilisticActor, ValueOperator
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE

    from kineticsim_env.adapters.torchrl import TorchRLEnv

    torch.manual_seed(0)
    env = TorchRLEnv(MAKER, num_envs=markets, **ONE)
    actor = ProbabilisticActor(
        TensorDictModule(MLP(39, 49, num_cells=[16]), ["observation"], ["logits"]),
        in_keys={"logits": "logits", "mask": "action_mask"},
        distribution_class=MaskedCategorical,
        return_log_prob=True,
    )
    critic = ValueOperator(MLP(39, 1, num_cells=[16]))
    loss, advantage = ClipPPOLoss(actor, critic), GAE(gamma=0.99, lmbda=0.95, value_network=critic)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-2)
    before = [parameter.clone() for parameter in actor.parameters()]
    options = {"frames_per_batch": 24 * markets, "total_frames": 48 * markets, "auto_register_policy_transforms": False}
    for data in Collector(env, actor, **options):
        assert (~data["action_mask"]).any() and data["next", "done"].any()
        assert data["action_mask"].gather(-1, data["action"][..., None]).all()
        advantage(data)
        losses = loss(data.reshape(-1))
        sum(value for name, value in losses.items() if name.startswith("loss_")).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert all(torch.isfinite(parameter).all() for parameter in actor.parameters())
    assert any((one != two).any() for one, two in zip(before, actor.parameters(), strict=True))
