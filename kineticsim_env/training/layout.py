"""`Layout`: where each weight of a `NetworkPolicy` is in the row of numbers that kernels work on.

`PPO` makes one, and a `Launch`. The row has, of each network (a trunk is one with two heads), in this order: the first
layer `[K, H]`, input by unit, whose row F is the bias; the second `[H, H]`, output by input; its bias `[H]`; of the
policy's head `[H, O]`, the bias `[O]` and the logarithms of standard deviations `[O]`; of the value's head `[H]` and
the bias, of 16 numbers. K and O are powers of two from 16 on; what is padding is 0 and stays 0, as its gradient is.
"""

from __future__ import annotations

import dataclasses

import torch

from kineticsim_env.policies.networks import NetworkPolicy, NetworkShape
from kineticsim_env.training.kernels import ROOM


def covering(number: int) -> int:
    """Return the least power of two that is at least 16 and this number: tensor cores take no fewer columns."""
    return max(16, 1 << (number - 1).bit_length())


@dataclasses.dataclass(frozen=True)
class Layout:
    """Sizes that kernels are compiled for.

    Attributes:
        width: Numbers of a row of observations, W: the least multiple of 8 that holds F and a 1.
        inputs: Rows of the first layer, K.
        hidden: H.
        outputs: Columns of the policy's head, O.
        critic_at: Where the value's network begins; on a trunk 0.
        value_at: Where its head begins, from there.
        size: Numbers of all weights, padded to a multiple of 64.
    """

    width: int
    inputs: int
    hidden: int
    outputs: int
    critic_at: int
    value_at: int
    size: int

    @classmethod
    def of(cls, shape: NetworkShape) -> Layout:
        """Return that of a policy's shape."""
        width, hidden, outputs = -(-(shape.inputs + 1) // 8) * 8, shape.hidden, covering(shape.outputs)
        inputs = covering(width)
        body = inputs * hidden + hidden * hidden + hidden
        actor = body + hidden * outputs + 2 * outputs
        critic_at, value_at = (0, actor) if shape.trunk else (actor, body)
        used = critic_at + value_at + hidden + 16
        return cls(width, inputs, hidden, outputs, critic_at, value_at, -(-used // 64) * 64)

    @property
    def row(self) -> int:
        """Numbers of a row of gradients: those of the weights, then statistics."""
        return self.size + ROOM.value

    def places(self, policy: NetworkPolicy) -> list[torch.Tensor]:
        """Return where the numbers of each of `policy.parameters()` are, int64 of its shape, in that order."""
        shape, found = policy.shape, {}
        layers = policy.linear_layers()
        for name, start in (("actor", 0), ("critic", self.critic_at)):
            second = start + self.inputs * self.hidden
            bias = second + self.hidden * self.hidden
            head = start + self.value_at if name == "critic" else bias + self.hidden
            columns = self.outputs if name == "actor" else 1
            first, middle, last = layers[name]
            along, across = torch.arange(self.hidden), torch.arange(shape.inputs)
            found[first.weight] = start + across[None, :] * self.hidden + along[:, None]
            found[first.bias] = start + shape.inputs * self.hidden + along
            found[middle.weight] = second + along[:, None] * self.hidden + along[None, :]
            found[middle.bias] = bias + along
            each = torch.arange(last.out_features)
            found[last.weight] = head + along[None, :] * columns + each[:, None]
            found[last.bias] = head + self.hidden * columns + each
            if name == "actor" and policy.log_std is not None:
                found[policy.log_std] = head + self.hidden * columns + columns + each
        return [found[parameter] for parameter in policy.parameters()]


@dataclasses.dataclass(frozen=True)
class Launch:
    """How gradients are launched; what is fastest differs by shape, what comes out by the order of sums.

    Attributes:
        rows: Samples of a tile, which are neighbours in memory and are shuffled together.
        programs: Per network, whatever the chip has: with as many the same bits come.
        warps: Of a program.
        stages: Tiles that are loaded ahead; more than one was slower.
    """

    rows: int = 64
    programs: int = 132
    warps: int = 4
    stages: int = 1

    @classmethod
    def of(cls, layout: Layout, trunk: bool) -> Launch:
        """Return what suits a shape: gradients are held in registers, and wide layers have many."""
        if layout.hidden == 64:
            return cls(programs=264) if trunk else cls()
        return cls(rows=32, warps=8)  # of 64 rows, ptxas spills ten times as much
