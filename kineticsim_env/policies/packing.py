"""Networks as the kernel takes them (cuda/policy/network.cuh): its definitions, and weights in its lanes' order.

envs/rollouts.py hands both to the engine.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch

from kineticsim_env.policies.networks import NetworkPolicy, NetworkShape

_LANES, _TILE, _COLUMNS = 32, 16, 8  # of a warp; rows and depth of a product, and its outputs


def definitions(shape: NetworkShape, *, rows16: bool) -> dict[str, int | str]:
    """Return the preprocessor definitions of a kernel with such a policy inside, which records bfloat16 or float32."""
    return {
        "KS_POLICY": 1,
        "KS_POLICY_INPUTS": shape.inputs,
        "KS_POLICY_HIDDEN": shape.hidden,
        "KS_POLICY_OUTPUTS": shape.outputs,
        "KS_POLICY_RELU": int(shape.activation == "relu"),
        "KS_POLICY_TRUNK": int(shape.trunk),
        "KS_POLICY_CRITIC": int(shape.has_critic),
        "KS_POLICY_CATEGORICAL": int(shape.categorical),
        "KS_POLICY_ROWS16": int(rows16),
    }


def definitions_of_programs(inputs: int, *, rows16: bool) -> dict[str, int | str]:
    """Return those of a kernel in which programs play, and observations of so many numbers are recorded."""
    return {"KS_POLICY": 2, "KS_POLICY_INPUTS": inputs, "KS_POLICY_ROWS16": int(rows16)}


@torch.no_grad()
def packed(networks: Sequence[NetworkPolicy]) -> torch.Tensor:
    """Return the weights of networks of one shape, int32 `[G, n]`, on their device. Waits for nothing."""
    pieces, numbers = _places_on(networks[0].shape, networks[0].linear_layers()["actor"][0].weight.device)
    flat = torch.stack([torch.cat([part.reshape(-1) for part in _parameters(network)]) for network in networks])
    products = flat[:, pieces].to(torch.bfloat16).view(torch.int32)
    return torch.cat([products, flat[:, numbers].view(torch.int32)], dim=1)


def _parameters(network: NetworkPolicy) -> list[torch.Tensor]:
    """Return all numbers of a network, in the order in which `places_of` counts them, and a 0."""
    layers = network.linear_layers()
    bodies = [layers["actor"]] if network.shape.trunk else list(layers.values())
    found = [part for body in bodies for layer in body[:2] for part in (layer.weight, layer.bias)]
    found += [part for own in layers.values() for part in (own[2].weight, own[2].bias)]
    found += [] if network.log_std is None else [network.log_std]
    return [*found, found[0].new_zeros(1)]


class _Layer:
    """Places of a linear layer's numbers: its weights `[outputs, inputs]` from `first` on, then its biases."""

    def __init__(self, first: int, inputs: int, outputs: int, nothing: int) -> None:
        self.first, self.inputs, self.outputs, self.nothing = first, inputs, outputs, nothing
        self.end = first + inputs * outputs + outputs

    def weights(self, given: np.ndarray, output: np.ndarray, *, biased: bool) -> np.ndarray:
        """Return the places of weights; behind the last input is, perhaps, the bias, and beyond that a zero."""
        place = np.where(given < self.inputs, self.first + output * self.inputs + given, self.nothing)
        if biased:
            place = np.where(given == self.inputs, self.biases(output), place)
        return np.where(output < self.outputs, place, self.nothing)

    def biases(self, output: np.ndarray) -> np.ndarray:
        """Return the places of biases, and beyond the last one of zeros."""
        return np.where(output < self.outputs, self.first + self.inputs * self.outputs + output, self.nothing)


@functools.cache
def _places_on(shape: NetworkShape, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    pieces, numbers = places_of(shape)
    return pieces.to(device), numbers.to(device)


@functools.cache
def places_of(shape: NetworkShape) -> tuple[torch.Tensor, torch.Tensor]:
    """Return where in `_parameters` the kernel's weights and its float32 numbers come from, int64 each."""
    hidden, bodies = shape.hidden, 1 if shape.trunk or not shape.has_critic else 2
    outputs = [shape.outputs] + [1] * shape.has_critic
    sizes = [(shape.inputs, hidden), (hidden, hidden)] * bodies + [(hidden, count) for count in outputs]
    firsts = np.cumsum([0] + [(inputs + 1) * count for inputs, count in sizes])
    deviations = int(firsts[-1])
    nothing = deviations + (0 if shape.categorical else shape.outputs)
    layers = [_Layer(int(first), *size, nothing) for first, size in zip(firsts[:-1], sizes, strict=True)]
    below, heads = layers[: 2 * bodies], layers[2 * bodies :]

    # Lane 4 g + t has, of a product's right factor [16, 8], rows 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of column g.
    lane = np.arange(_LANES)
    rows = 2 * (lane % 4)[:, None] + np.array([0, 1, 8, 9])
    columns = np.broadcast_to((lane // 4)[:, None], rows.shape)
    pieces: list[np.ndarray] = []
    for number, layer in enumerate(below):
        depths = layer.inputs // _TILE + 1 if number % 2 == 0 else layer.inputs // _TILE
        for n in range(hidden // _TILE):
            for k in range(depths):
                halves = [
                    layer.weights(rows + k * _TILE, columns + (2 * n + half) * _COLUMNS, biased=number % 2 == 0)
                    for half in range(2)
                ]
                pieces.append(np.concatenate(halves, axis=1))
    tiles = [(head, n) for head in heads for n in range(-(-head.outputs // _COLUMNS))]
    for head, n in tiles:
        for k in range(0, hidden // _TILE, 2):
            parts = [head.weights(rows + (k + i) * _TILE, columns + n * _COLUMNS, biased=False) for i in range(2)]
            pieces.append(np.concatenate(parts, axis=1))

    eight, wide = np.arange(_COLUMNS), np.arange(-(-shape.outputs // _COLUMNS) * _COLUMNS)
    numbers = [layer.biases(np.arange(hidden)) for layer in below[1::2]]
    numbers += [head.biases(eight + n * _COLUMNS) for head, n in tiles]
    numbers.append(np.where((wide < shape.outputs) & (not shape.categorical), deviations + wide, nothing))
    return torch.from_numpy(np.concatenate(pieces).reshape(-1)), torch.from_numpy(np.concatenate(numbers))
