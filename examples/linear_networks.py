"""The policies of `linear_policies.py` as networks, which `rollout` evaluates inside the market's kernel on a GPU.

An affine function is a difference of two rectified ones, and so is a size, `|x| = relu(x) + relu(-x)`. Which of two
functions is played, that of what is seen or that of its mirror image, a second layer decides: from the one that is not
it takes away so much that nothing is left. So a network of two hidden layers plays what a linear policy does, to the
rounding of its weights, of what it sees and of its hidden layers to bfloat16.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from kineticsim_env import NetworkPolicy
from kineticsim_env.evaluation import evaluate, liquidate, price_improvement

HIDDEN, CLOSED = 64, 256.0  # units of a layer; what is taken away, more than a linear function is worth
TOGETHER = 32  # markets that a network has in a launch, and multiples of them
SIDE = 33  # place of an executor's side, 1 or -1, in what it sees


def money(policies: Any, envs: Any, seeds: Any) -> np.ndarray:
    """Return the money of `evaluate` of P linear policies, float64 `[M]`; on a GPU of networks in their place.

    Args:
        policies: A `LinearPolicies`.
        envs: From `evaluation_env`.
        seeds: As `evaluate` takes them.
    """
    number, on_gpu = len(policies.weights), policies.features.device.type == "cuda"
    if on_gpu and (number == 1 or envs.num_envs // number % TOGETHER == 0):
        return rolled_out(networks_of(policies.features, policies.weights.mT, envs.core.task.max_qty), envs, seeds)
    return evaluate(policies, envs, seeds).pnl


def networks_of(features: Any, weights: torch.Tensor, max_qty: int) -> list[NetworkPolicy]:
    """Return a network for each of P linear policies.

    Args:
        features: The `Features` of linear_policies.py.
        weights: float64 `[P, 2, number]`, on their device.
        max_qty: The task's. A trader that would trade less than half a unit trades nothing, whatever its aggression.
    """
    policies, seen, turned = len(weights), len(features.places), features.turned
    scaled = weights[..., :-1] / features.scale
    constant = (weights[..., -1] - (scaled * features.mean).sum(-1)).repeat(1, 2)
    own, sizes = scaled[..., :seen], scaled[..., seen:].repeat(1, 2, 1)  # sizes are the same in a mirror
    image = torch.zeros_like(own)
    image[..., features.places] = own * features.signs
    functions = torch.cat([own, image], 1)  # [P, 4, F]: both numbers of an action from what is seen, and mirrored

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros((policies, *shape), dtype=torch.float64, device=features.device)

    first, bias, second = zeros(HIDDEN, seen), zeros(HIDDEN), zeros(HIDDEN, HIDDEN)
    first[:, 0:4], first[:, 4:8] = functions, -functions
    bias[:, 0:4], bias[:, 4:8] = constant, -constant
    count = len(turned) if features.sizes else 0
    of_sizes = 8 + torch.arange(count, device=features.device)
    first[:, of_sizes, turned[:count]], first[:, of_sizes + count, turned[:count]] = 1.0, -1.0
    gates = 8 + 2 * count  # 0 where what is seen is played, or, behind it, where the mirror image is
    if features.role == "executor":
        first[:, gates, SIDE], first[:, gates + 1, SIDE] = -1.0, 1.0
    elif features.role == "trader":
        size = max_qty * (functions[:, 0] - functions[:, 2])  # twice its units
        first[:, gates], first[:, gates + 1], bias[:, gates : gates + 2] = -size, size, 1.0

    for k in range(4):  # both signs of each function
        for unit, sign in ((k, 1.0), (4 + k, -1.0)):
            second[:, unit, k], second[:, unit, 4 + k] = sign, -sign
            second[:, unit, 8 : 8 + count] = second[:, unit, 8 + count : gates] = sign * sizes[:, k, :count]
            if features.role == "executor" or (features.role == "trader" and k % 2):
                second[:, unit, gates + k // 2] = -CLOSED
    last = zeros(4 if features.role == "maker" else 2, HIDDEN)
    for k, (output, share) in enumerate(_OUTPUTS[features.role]):
        last[:, output, k], last[:, output, 4 + k] = share, -share
    layers = (first, bias), (second, zeros(HIDDEN)), (last, zeros(last.shape[1]))
    floats = [[part.float() for part in layer] for layer in layers]
    return [_network([[part[number] for part in layer] for layer in floats]) for number in range(policies)]


_OUTPUTS = {  # to which number of an action each function goes, and its share
    "maker": ((0, 1.0), (2, 1.0), (1, 1.0), (3, 1.0)),
    "executor": ((0, 1.0), (1, 1.0), (0, 1.0), (1, 1.0)),
    "trader": ((0, 0.5), (1, 1.0), (0, -0.5), (1, 1.0)),
}


def _network(layers: Sequence[Sequence[torch.Tensor]]) -> NetworkPolicy:
    made: list[nn.Module] = []
    for weight, bias in layers:
        linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
        linear.weight, linear.bias = nn.Parameter(weight, False), nn.Parameter(bias, False)
        made += [linear, nn.ReLU()]
    return NetworkPolicy(nn.Sequential(*made[:-1]), log_std=torch.zeros(len(bias), device=bias.device))


def rolled_out(networks: Sequence[NetworkPolicy], envs: Any, seeds: Any) -> np.ndarray:
    """Return the money of `evaluate`, float64 `[M]`, of networks that have as many neighbouring markets each.

    Args:
        networks: Of one shape.
        envs: From `evaluation_env`.
        seeds: As `evaluate` takes them.
    """
    envs.reset(seed=seeds)
    envs.rollout(networks, envs.core.task.horizon, noise=False, observations=torch.bfloat16)
    if envs.core.roles == ("executor",):
        return price_improvement(envs).cpu().numpy()
    liquidate(envs.simulator)
    return envs.simulator.money[:, 0].cpu().numpy()
