"""What tests of `kineticsim_env.training` share: rollouts of random numbers, and PPO's loss by torch in float64."""

import pytest
import torch

triton = pytest.importorskip("triton", reason="kineticsim_env.training needs Triton")
if not torch.cuda.is_available() and not triton.knobs.runtime.interpret:
    pytest.skip("Triton was loaded without its interpreter, and there is no GPU", allow_module_level=True)

from kineticsim_env.policies import NetworkPolicy  # noqa: E402
from kineticsim_env.training import PolicyRollout  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KIND = torch.bfloat16 if torch.cuda.is_available() else torch.float32  # float32 takes half a minute to compile


def policy_of(inputs, outputs, seed=0, device=DEVICE, **kind):
    """Return a policy whose weights are all of a size, so that each of them has a gradient that can be seen."""
    torch.manual_seed(seed)
    policy = NetworkPolicy.make(inputs, outputs, initial_std=1.5, **kind)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return policy.to(device)


def rollout_of(policy, steps, markets, *, every=3, ends=0.3, dtype=KIND, seed=1, played=False, **how):
    """Return random decisions, whose log-probabilities are near those that the policy has now."""
    torch.manual_seed(seed)
    shape, device = policy.shape, next(policy.parameters()).device
    rollout = PolicyRollout.empty(shape, steps, markets, every=every, device=device, dtype=dtype, played=played, **how)
    for rows in (rollout.rows, rollout.final_rows, rollout.last_rows):
        rows[..., : shape.inputs] = torch.randn(*rows.shape[:-1], shape.inputs)
    if shape.categorical:
        rollout.action.copy_(torch.randint(shape.outputs, rollout.action.shape))
    with torch.no_grad():
        outputs, value = policy(rollout.rows[..., : shape.inputs].float())
        if not shape.categorical:
            noise = torch.randn(rollout.action.shape).to(device)
            rollout.action.copy_(outputs + policy.log_std.exp() * noise)
        log_prob, _ = log_prob_and_entropy(policy, outputs, rollout.action)
    rollout.log_prob.copy_(log_prob + 0.3 * torch.randn(steps, markets).to(device))
    rollout.value.copy_(value + torch.randn(steps, markets).to(device))
    rollout.reward.copy_(torch.randn(steps, markets))
    over = torch.rand(steps, markets) < ends
    over[torch.arange(steps) % every != every - 1] = False  # at most once among so many decisions
    cut = torch.rand(steps, markets) < 0.5
    rollout.terminated.copy_(over & ~cut)
    rollout.truncated.copy_(over & cut)
    if rollout.decision_events is not None:
        rollout.decision_events.copy_(torch.randint(1, 9, (steps, markets)))
    if rollout.played is not None:
        rollout.played.copy_(torch.rand(steps, markets) < 0.8)
    return rollout


def log_prob_and_entropy(policy, outputs, action):
    """Return both of actions, of means or logits."""
    if policy.shape.categorical:
        chosen = torch.distributions.Categorical(logits=outputs)
        return chosen.log_prob(action), chosen.entropy()
    drawn = torch.distributions.Normal(outputs, policy.log_std.exp().expand_as(outputs))
    return drawn.log_prob(action).sum(-1), drawn.entropy().sum(-1)


class Rounded(torch.autograd.Function):
    """Rounds to a number format on the way forward, and lets gradients through as they are."""

    @staticmethod
    def forward(ctx, x, kind):
        return x.to(kind).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def forward(policy, rows, kind):
    """Return outputs and values in float64 of rows `[N, W]`, where weights and hidden layers are rounded to `kind`."""
    shape, act = policy.shape, {"tanh": torch.tanh, "relu": torch.relu}[policy.shape.activation]
    found = {}
    for name, layers in policy.linear_layers().items():
        first, second, last = layers
        x = rows[:, : shape.inputs].double() @ Rounded.apply(first.weight, kind).T + Rounded.apply(first.bias, kind)
        x = Rounded.apply(act(x), kind)
        x = Rounded.apply(act(x @ Rounded.apply(second.weight, kind).T + second.bias), kind)
        found[name] = x @ Rounded.apply(last.weight, kind).T + last.bias
    return found["actor"], found["critic"][:, 0]


def loss_of(policy, rollout, gain, target, kind, clip, value_weight, entropy_weight, chosen=slice(None)):
    """Return PPO's loss in float64 of samples, flattened, and its parts: a policy of float64 weights is asked for."""
    action = rollout.action.flatten(0, 1)[chosen]
    outputs, value = forward(policy, rollout.rows.flatten(0, 1)[chosen], kind)
    log_prob, entropy = log_prob_and_entropy(policy, outputs, action if policy.shape.categorical else action.double())
    weight = torch.ones_like(value) if rollout.played is None else rollout.played.flatten()[chosen].double()
    weight = weight / weight.sum()
    log_ratio = log_prob - rollout.log_prob.flatten()[chosen].double()
    ratio, gain = log_ratio.exp(), gain.flatten()[chosen]
    policy_loss = -(weight * torch.min(gain * ratio, gain * ratio.clamp(1 - clip, 1 + clip))).sum()
    value_loss = 0.5 * (weight * (value - target.flatten()[chosen]).square()).sum()
    entropy, divergence = (weight * entropy).sum(), (weight * (ratio - 1 - log_ratio)).sum()
    loss = policy_loss + value_weight * value_loss - entropy_weight * entropy
    return loss, torch.stack([policy_loss, value_loss, entropy, divergence])
