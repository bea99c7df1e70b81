"""PPO's update in Triton: gradients, sums, Adam, advantages and shuffling, against torch in float64.

Without a GPU the kernels run in Triton's interpreter, in float32.
"""

import copy

import pytest
import torch
from messages import mentions
from training_helpers import DEVICE, forward, loss_of, policy_of, rollout_of, triton

from kineticsim_env.policies import NetworkPolicy
from kineticsim_env.training import PPO, Launch, Rollout, kernels

tl = triton.language
SHAPES = {  # inputs, outputs, the policy's kind, decisions, markets, the rollout's kind
    "as in the examples": (39, 4, {}, 3, 70, {}),
    "a trunk": (37, 4, {"trunk": True}, 3, 50, {}),
    "choices": (9, 7, {"categorical": True}, 5, 33, {"played": True}),
    "choices on a trunk": (20, 64, {"categorical": True, "trunk": True, "activation": "relu"}, 1, 129, {}),
    "wide": (39, 3, {"hidden": 128, "activation": "relu"}, 2, 65, {}),
    "all at its widest": (127, 64, {"hidden": 128, "trunk": True}, 1, 67, {"played": True}),
    "the least": (1, 1, {}, 4, 17, {}),
    "many actions": (71, 33, {"activation": "relu"}, 2, 40, {"played": True}),
}


def normalised(ppo, rollout):
    """Return advantages in float64 with mean 0 and deviation 1 over the decisions that were played."""
    gain = ppo.advantage.double()
    some = gain if rollout.played is None else gain[rollout.played]
    return (gain - some.mean()) / (some.std(correction=0) + 1e-8)


def relative(found, wanted):
    """Return the size of the difference, in the size of what is wanted."""
    found, wanted = (torch.cat([part.flatten().double() for part in parts]) for parts in (found, wanted))
    return float((found - wanted).norm() / wanted.norm())


def compare_gradients(shape, dtype, bound):
    inputs, outputs, kind, steps, markets, how = SHAPES[shape]
    policy = policy_of(inputs, outputs, **kind)
    rollout = rollout_of(policy, steps, markets, dtype=dtype, **how)
    ppo = PPO(policy, minibatches=1, entropy_weight=0.03, value_weight=0.7, clip=0.15)
    ppo.estimate(rollout)
    ppo._sum_gradients(rollout, 0, -(-steps * markets // ppo._launch.rows), ends_epoch=True)
    exact = copy.deepcopy(policy).double()
    gain, target = normalised(ppo, rollout), ppo.target.double()
    loss, parts = loss_of(exact, rollout, gain, target, dtype, 0.15, 0.7, 0.03)
    loss.backward()
    wanted = [parameter.grad for parameter in exact.parameters()]
    assert all(part.any() for part in wanted)
    assert relative(ppo.gradients(), wanted) < bound
    for found, part in zip(ppo.gradients(), wanted, strict=True):
        assert relative([found], [part]) < 10 * bound
    assert torch.allclose(ppo.losses().double(), parts.detach(), rtol=30 * bound, atol=30 * bound)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_float64(shape):
    """Of a Gaussian policy of many actions the probability's rounding counts, in torch's float32 as much."""
    _, outputs, kind, *_ = SHAPES[shape]
    many = outputs > 16 and "categorical" not in kind
    compare_gradients(shape, torch.float32, 1e-5 if many else 5e-7)
