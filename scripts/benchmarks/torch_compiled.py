"""A PyTorch baseline whose step is compiled by `torch.compile`; torch_backends.py has the others.

What it computes is in array_form.py.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable

import torch

from kineticsim_env.runtime.words import MULTIPLIERS, signed
from scripts.benchmarks.array_form import ArrayForm
from scripts.benchmarks.torch_backends import TorchBackend

_FIRST, _SECOND = (signed(multiplier) for multiplier in MULTIPLIERS)

int32, int64 = torch.int32, torch.int64


class TorchCompile(TorchBackend):
    """A step as two fused kernels, one over agents and one over ticks; on a GPU they are captured in CUDA graphs.

    Instead of a scatter, each market's bins are summed in a few int64, several bins each, by one reduction; and instead
    of a cumulative sum, each tick compares itself with the prices of the bins. So nothing is [M, A] in memory.
    """

    name = "torch.compile"
    _state = ("base", "prev_mid2", "last2", "volume", "trades", "demand", "supply", "time")

    def unavailable(self) -> str | None:
        """Say why it cannot run here and how to get it, or None."""
        missing = super().unavailable()
        if missing is None and self.device == "cpu" and not any(map(shutil.which, ("g++", "clang++", "c++"))):
            return "torch.compile needs a C++ compiler (apt install g++)"
        return missing

    def _allocate(self, form: ArrayForm) -> None:
        self._statistics(form)
        demand, supply = form.opening()
        self._stateful("demand", demand, int32, form.markets, form.levels)
        self._stateful("supply", supply, int32, form.markets, form.levels)
        self._stateful("time", 0, int32, 1)  # only its parity counts
        self._constant("agent_steps", form.agent_steps(), int64)

    def _sides(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._tensors["demand"], self._tensors["supply"]

    def _make_calls(self, form: ArrayForm) -> list[tuple[int, Callable[[], object]]]:
        torch.compiler.reset()  # shapes before this one count towards torch's limit on recompilations of one function
        compiled = torch.compile(_compiled_step(form), fullgraph=True, dynamic=False)
        names = (*self._state, "agent_steps")
        step = functools.partial(compiled, *(self._tensors[name] for name in names))
        step()
        self._step = step
        return self._capture(step) if self.device == "cuda" else [(1, step)]


def _logical_shift(x: torch.Tensor, by: int) -> torch.Tensor:
    return (x >> by) & ((1 << (64 - by)) - 1)


def _compiled_step(form: ArrayForm) -> Callable[..., None]:
    """Return the function that `torch.compile` traces: it advances its arguments by a step."""
    reach, width, levels, bins = form.reach, form.width, form.levels, form.bins
    per_integer, sum_bits = form.per_integer, form.sum_bits
    agents, noise, takers, max_quantity = form.agents, form.noise, form.takers, form.max_quantity
    spread, half_spread, threshold, key_step = form.spread, form.half_spread, form.threshold, form.key_step

    def step(
        base: torch.Tensor,
        prev_mid2: torch.Tensor,
        last2: torch.Tensor,
        volume: torch.Tensor,
        trades: torch.Tensor,
        demand: torch.Tensor,
        supply: torch.Tensor,
        time: torch.Tensor,
        agent_steps: torch.Tensor,
    ) -> None:
        buys, sells = ((side > volume[:, None]).sum(1, dtype=int32) for side in (demand, supply))
        mid2 = torch.where((buys > 0) & (sells > 0), buys - sells + (levels - 1), last2)
        move = (mid2 - prev_mid2)[:, None]

        word = base[:, None] + agent_steps
        word = (word ^ _logical_shift(word, 30)) * _FIRST
        word = (word ^ _logical_shift(word, 27)) * _SECOND
        word = word ^ _logical_shift(word, 31)
        low, high = word.to(int32), (word >> 32).to(int32)
        quantity = 1 + ((high & 0xFFFF) * max_quantity >> 16)
        agent = torch.arange(agents, dtype=int32, device=base.device)
        sells_by_chance = low >= 0
        sells_makers = ((agent + time) & 1) == 1
        is_noise, is_maker = agent < noise, agent >= takers
        momentum_sells = torch.where(move == 0, sells_by_chance, move < 0)
        side = torch.where(is_noise, sells_by_chance, torch.where(is_maker, sells_makers, momentum_sells)).to(int32)
        noise_place = (((high >> 16) & 0xFFFF) * (2 * spread + 1) >> 16) + (reach - spread)
        other_place = reach + (2 * side - 1) * torch.where(is_maker, half_spread, -1)
        fired = ((low & 0xFFFFFF) < threshold) & ~is_maker
        place = torch.where(fired, width, torch.where(is_noise, noise_place, other_place)) + (width + 1) * side
        position, integer = place & (per_integer - 1), place >> (per_integer.bit_length() - 1)
        packed = quantity.to(int64) << (position * sum_bits)
        integers = [torch.where(integer == i, packed, 0).sum(1) for i in range(-(-bins // per_integer))]

        def bin_sum(i: int) -> torch.Tensor:
            shifted = integers[i // per_integer] >> (i % per_integer * sum_bits)
            return (shifted & ((1 << sum_bits) - 1)).to(int32)[:, None]

        tick = torch.arange(levels, dtype=int32, device=base.device)
        higher, more = demand + bin_sum(width), supply + bin_sum(2 * width + 1)
        for j in range(width):
            floor = (mid2 >> 1) + (j - reach)
            price = (floor + (mid2 & floor & 1)).clamp(0, levels - 1)[:, None]
            higher = higher + torch.where(tick <= price, bin_sum(j), 0)
            more = more + torch.where(tick >= price, bin_sum(width + 1 + j), 0)
        new_volume = torch.minimum(higher, more).amax(1)
        lowest = (more < new_volume[:, None]).sum(1, dtype=int32)
        traded = new_volume > volume

        demand.copy_(torch.maximum(higher, new_volume[:, None]))
        supply.copy_(torch.maximum(more, new_volume[:, None]))
        last2.copy_(torch.where(traded, 2 * lowest, last2))
        trades.add_(traded)
        volume.copy_(new_volume)
        prev_mid2.copy_(mid2)
        base.add_(key_step)
        time.add_(1)

    return step
