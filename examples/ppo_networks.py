"""The networks of `ppo_fast.py`, PPO's loss on them, and what a rollout does at each decision; all is compiled there.

The networks are those of a `kineticsim_env.policies.NetworkPolicy` where their sizes are some that it knows.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from kineticsim_env.policies import NetworkPolicy

LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    """Return a linear layer with orthogonal weights."""
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


def network(inputs: int, hidden: int, outputs: int, gain: float) -> nn.Sequential:
    """Return a network of two hidden layers, as a `NetworkPolicy` has them."""
    last = layer(hidden, outputs, gain)
    return nn.Sequential(layer(inputs, hidden), nn.Tanh(), layer(hidden, hidden), nn.Tanh(), last)


class ActorCritic(nn.Module):
    """A policy and a value network, of two hidden layers each.

    The policy is Gaussian, or, where actions are choices, categorical and without `log_std`. Both are evaluated as one
    network, in the number format of the observations: half the kernels, and wider products. Rows are padded
    to a multiple of 8 numbers, which tensor cores read at full speed.
    """

    def __init__(self, observations: int, actions: int, hidden: int, initial_std: float, choices: bool = False) -> None:
        super().__init__()
        self.observations, self.actions = observations, actions
        self.padding = 8 - observations % 8  # at least one, for the 1 behind the numbers of a row (see `PolicyRollout`)
        self.actor = network(observations, hidden, actions, 0.01)
        self.critic = network(observations, hidden, 1, 1.0)
        self.log_std = None if choices else nn.Parameter(torch.full((actions,), math.log(initial_std)))

    def policy(self, value: bool = False) -> NetworkPolicy:
        """Return the policy, with the value network if that is asked for, as one that shares its weights.

        Raises:
            ValueError: Of a width that no `NetworkPolicy` has, naming it.
        """
        return NetworkPolicy(self.actor, self.critic if value else None, log_std=self.log_std)

    def layers(self, kind: torch.dtype) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return weights and biases of both networks side by side, which only after the first layer read apart."""
        actor, critic = list(self.actor)[::2], list(self.critic)[::2]  # without the activations
        pairs: Any = zip(actor, critic, strict=True)
        result = []
        for number, pair in enumerate(pairs):
            weights, bias = [part.weight for part in pair], torch.cat([part.bias for part in pair])
            weight = torch.block_diag(*weights) if number else F.pad(torch.cat(weights), (0, self.padding))
            extra = -len(bias) % 8
            result.append((F.pad(weight, (0, 0, 0, extra)).to(kind), F.pad(bias, (0, extra)).to(kind)))
        return result

    def forward(self, observation: torch.Tensor, layers: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean actions, or logits, and values, float32, of a batch of padded observations."""
        first, second, third = layers or self.layers(observation.dtype)
        hidden = F.linear(observation, *first).tanh()
        hidden = F.linear(hidden, *second).tanh()
        both = F.linear(hidden, *third).float()
        return both[..., : self.actions], both[..., self.actions]

    def act(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the mean action, inside the space, or the likeliest choice: the policy that is evaluated."""
        outputs, _ = self(F.pad(observation, (0, self.padding)))
        return outputs.argmax(-1) if self.log_std is None else outputs.clamp(-1.0, 1.0)

    def draw(self, outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions that are drawn, and the logarithms of their probabilities."""
        if self.log_std is None:  # the largest of logits with Gumbel's noise has their probabilities
            action = (outputs - torch.empty_like(outputs).exponential_().log()).argmax(-1)
            return action, outputs.log_softmax(-1).gather(-1, action[:, None])[:, 0]
        noise = torch.randn_like(outputs)
        log_prob = (-0.5 * noise.square() - self.log_std - LOG_ROOT_2PI).sum(-1)
        return outputs + self.log_std.exp() * noise, log_prob

    def likelihood(self, outputs: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the logarithms of the actions' probabilities, and the policy's entropy."""
        if self.log_std is None:
            logs = outputs.log_softmax(-1)
            return logs.gather(-1, action[:, None])[:, 0], -(logs.exp() * logs).sum(-1).mean()
        # A product: its gradient is one too, and fast.
        squares = (action - outputs).square() @ (-2 * self.log_std).exp()
        log_prob = -0.5 * squares - (self.log_std + LOG_ROOT_2PI).sum()
        return log_prob, (0.5 + LOG_ROOT_2PI + self.log_std).sum()


class Loss(nn.Module):
    """PPO's loss on a minibatch; a module, as that is what DistributedDataParallel wraps."""

    def __init__(self, networks: ActorCritic, args: Any) -> None:
        super().__init__()
        self.networks, self.args = networks, args

    def forward(self, chosen: torch.Tensor, block: int, *batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of the chosen blocks of neighbouring markets, and its parts for the log.

        The batch is observations, actions, log-probabilities, advantages and targets, `[T, M, ...]` each.
        """
        args = self.args
        rows = [part.reshape(-1, block, *part.shape[2:])[chosen].flatten(0, 1) for part in batch]
        observation, action, log_prob, gain, target = rows
        outputs, value = self.networks(observation)
        now, entropy = self.networks.likelihood(outputs, action)
        log_ratio = now - log_prob
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
        policy_loss = -torch.min(gain * ratio, gain * clipped).mean()
        value_loss = 0.5 * (value - target).square().mean()
        loss = policy_loss + args.vf_coef * value_loss - args.ent_coef * entropy
        divergence = ((ratio - 1) - log_ratio).mean()
        return loss, torch.stack([policy_loss, value_loss, entropy, divergence]).detach()


def sample(
    networks: ActorCritic, layers: Any, live: torch.Tensor,
    observation: torch.Tensor, action: torch.Tensor, log_prob: torch.Tensor, value: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Write one decision into the rollout's buffers; returns the actions, inside the space."""
    observation[:, : live.shape[1]] = live
    outputs, estimate = networks(observation, layers)
    drawn, logarithm = networks.draw(outputs)
    action.copy_(drawn), log_prob.copy_(logarithm), value.copy_(estimate)
    return action.clone() if networks.log_std is None else action.clamp(-1.0, 1.0)


def record(results: tuple[torch.Tensor, ...], buffers: tuple[torch.Tensor, ...]) -> None:
    """Write events, where these are counted, reward, terminated, truncated and, if that, the last observation."""
    *parts, truncated, final = results
    for buffer, part in zip(buffers, [*parts, truncated], strict=False):
        buffer.copy_(part)
    size = final.shape[1]
    buffers[-1][:, :size] = torch.where(truncated[:, None], final, buffers[-1][:, :size])


def advantages(
    rewards: torch.Tensor, ends: torch.Tensor, terminated: torch.Tensor, values: torch.Tensor, nexts: torch.Tensor,
    gamma: float | torch.Tensor, gae_lambda: float,
) -> torch.Tensor:  # fmt: skip
    """Generalised advantage estimation (Schulman et al. 2016, equation 16) over `[T, M]`.

    `nexts` are the values of the observations before any reset, so an episode that is truncated at its horizon is
    bootstrapped, and only one that terminated is not. Decisions of unlike length have a discount each, `gamma` float32
    `[T, M]`, as in a semi-Markov decision process; `gae_lambda` is per decision all the same.
    """
    delta = rewards + gamma * nexts * ~terminated - values
    keep = gamma * gae_lambda * ~ends
    last, result = torch.zeros_like(delta[0]), []
    for t in reversed(range(len(delta))):
        last = delta[t] + keep[t] * last
        result.append(last)
    return torch.stack(result[::-1])
