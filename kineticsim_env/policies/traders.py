"""Scripted traders to beat: one order per decision on one side, or none.

A trader is called with observations float32 `[M, F]` and returns continuous actions float32 `[M, 2]`: a signed size
(-1 sells `max_qty` units, 0 holds, +1 buys them) and how far the order goes through the mid (-1 to 1 are
-`max_offset` to `max_offset` ticks).
"""

from __future__ import annotations

import dataclasses
import functools

import torch

from kineticsim_env.config import MAX_PRICE
from kineticsim_env.policies.base import (
    ScriptedPolicy,
    UniformActions,
    at_least,
    check_observation,
    inventory_in,
    mid_changes,
    or_none,
    towards,
    trade_action,
    whole_from,
)
from kineticsim_env.runtime.values import check_number
from kineticsim_env.tasks.base import ForProfit


class RandomTrader(UniformActions):
    """Draws size and aggression uniformly."""

    role = "trader"


class Hold(ScriptedPolicy):
    """Never trades: the zero that every PnL is measured from."""

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        idle = torch.zeros_like(observation[:, 0])
        return trade_action(self.task, idle, idle)


@dataclasses.dataclass(frozen=True)
class BuyAndHold(ScriptedPolicy):
    """Buys `position` units and keeps them; a negative position is sold short.

    Attributes:
        position: Units; None is the inventory limit, or `max_qty` without one.
        ticks: How far through the mid its orders go.
    """

    position: int | None = None
    ticks: float = 10.0

    _reads = ForProfit
    _checks = {"position": or_none(whole_from(-MAX_PRICE)), "ticks": check_number}

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        largest = self.task.max_qty if self.task.inventory_limit is None else self.task.inventory_limit
        wanted = 1.0 * (largest if self.position is None else self.position)
        units = torch.round(wanted - inventory_in(self.task, observation))
        return trade_action(self.task, units, torch.full_like(units, self.ticks))


@dataclasses.dataclass(frozen=True)
class MomentumTrader(ScriptedPolicy):
    """Goes with the mid where it has left its recent mean.

    The signal is the mid less its exponentially weighted mean over the four decisions before, in ticks: the observation
    has no older prices. Above `threshold` the trader wants `position` units, below `-threshold` as many short; once the
    signal has turned against what it holds it wants none, and else it keeps what it has.

    Attributes:
        threshold: Ticks.
        decay: Weight of each decision against the next newer one, in (0, 1].
        position: Units.
        ticks: How far through the mid its orders go; negative ones wait on their own side of it.
    """

    threshold: float = 1.0
    decay: float = 0.7
    position: int = 20
    ticks: float = 4.0

    _reads = ForProfit
    _checks = {
        "threshold": at_least(0),
        "decay": lambda name, value: check_number(name, value, 0.0, 1.0, above=True),
        "position": whole_from(0),
        "ticks": check_number,
    }
    _direction = 1.0

    def signal(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the mid less the weighted mean of the four mids before it, in ticks, `[M]`."""
        observation = check_observation(observation)
        weights, total = _weights(self.decay, observation.device)
        behind = mid_changes(observation).cumsum(1)  # the mid less that of 1, 2, 3, 4 decisions before
        return (behind * weights).sum(1) / total

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        push = self._direction * self.signal(observation)
        units = towards(self.task, observation, push, self.threshold, self.position)
        return trade_action(self.task, units, torch.full_like(units, self.ticks))


@functools.lru_cache(maxsize=64)
@torch.inference_mode(False)  # tensors made in inference mode are of no use to gradients
def _weights(decay: float, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weights of four decisions and their sum: made once, as numbers on their way to a GPU wait for it."""
    weights = torch.tensor([decay**i for i in range(4)], device=device)
    return weights, weights.sum()


class MeanReversionTrader(MomentumTrader):
    """Goes against the mid where it has left its recent mean; signal and parameters are those of `MomentumTrader`."""

    _direction = -1.0
