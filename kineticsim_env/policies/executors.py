"""Scripted executors to beat: they have a block to buy or sell by a deadline.

An executor is called with observations float32 `[M, F]` and returns continuous actions float32 `[M, 2]`: how far its
order goes through the mid (-1 to 1 are -`max_offset` to `max_offset` ticks) and its size (-1 to 1 are 0 to `max_qty`
units). The side is the block's. What it does not execute by the deadline, the engine does, as marketable orders.

A schedule says how much of the block should be left after each decision; the policy orders what exceeds it, so the next
order contains what the last one did not fill. No policy has a memory: it reads the time and the remaining units.
"""

from __future__ import annotations

import dataclasses
import math

import torch

from kineticsim_env.policies.base import (
    FLOATS,
    ScriptedPolicy,
    UniformActions,
    at_least,
    decisions_left,
    elapsed_since,
    or_none,
    order_action,
    positive,
    recent_volumes,
    remaining_of,
    whole_from,
    whole_units,
)
from kineticsim_env.runtime.checks import check_tensor
from kineticsim_env.runtime.values import check_number
from kineticsim_env.tasks.base import ForBlocks


class DoNothing(ScriptedPolicy):
    """Orders nothing, and leaves the whole block to the deadline."""

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        idle = torch.zeros_like(observation[:, 0])
        return order_action(self.task, idle, idle)


class RandomOrders(UniformActions):
    """Draws aggression and size uniformly."""


@dataclasses.dataclass(frozen=True)
class ImmediateExecution(ScriptedPolicy):
    """Orders as much as it may at once, `ticks` through the mid, until the block is done."""

    ticks: float = 10.0

    _reads = ForBlocks
    _checks = {"ticks": check_number}

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        remaining = remaining_of(self.task, observation)
        return order_action(self.task, torch.full_like(remaining, self.ticks), remaining)


@dataclasses.dataclass(frozen=True)
class TimeWeighted(ScriptedPolicy):
    """Executes the block evenly over time (TWAP).

    Attributes:
        ticks: How far through the mid its orders go; negative ones wait on their own side of it.
        urgent: In the last so many decisions, and where it is a whole `max_qty` behind, orders go `max_offset` ticks
            through the mid whatever `ticks` says.
    """

    ticks: float = 10.0
    urgent: int = 1

    _reads = ForBlocks
    _checks = {"ticks": check_number, "urgent": whole_from(0)}

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        left, remaining = decisions_left(self.task, observation), remaining_of(self.task, observation)
        due = remaining - torch.round(self._share_left(left - 1.0) * self.task.block_qty)
        hurry = (left <= self.urgent) | (due > self.task.max_qty)
        ticks = torch.where(hurry, float(self.task.max_offset), self.ticks)
        return order_action(self.task, ticks, due.clamp(min=0.0))

    def share_left(self, left: torch.Tensor) -> torch.Tensor:
        """Return the share of the block that should remain with so many decisions to go, `[M]`."""
        check_tensor("left", left, "a tensor float32 [M]", lambda left: left.dim() == 1, FLOATS)
        return self._share_left(left)

    def _share_left(self, left: torch.Tensor) -> torch.Tensor:
        return left / self.task.horizon


@dataclasses.dataclass(frozen=True)
class AlmgrenChriss(TimeWeighted):
    """The optimal schedule of Almgren and Chriss (2000), "Optimal execution of portfolio transactions".

    With tau one decision and T the horizon, `sinh(kappa (T - t)) / sinh(kappa T)` of the block remains at t, where
    `cosh(kappa) = 1 + risk * sigma^2 / (2 eta)`: their discrete-time solution without permanent impact, which shifts
    every schedule's cost alike. With `risk` 0 it is TWAP; the more risk weighs, the earlier it trades.

    Attributes:
        ticks: As in `TimeWeighted`.
        urgent: As in `TimeWeighted`.
        risk: Their lambda: ticks of cost that a variance of one (tick x unit)^2 is worth.
        sigma: Deviation of the price's change in a decision, ticks.
        eta: Temporary impact: ticks that a unit costs more for each unit ordered in a decision.
    """

    risk: float = 1e-3
    sigma: float = 0.85
    eta: float = 0.6

    _checks = {**TimeWeighted._checks, "risk": at_least(0), "sigma": at_least(0), "eta": positive}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.kappa):
            given = f"risk {self.risk!r}, sigma {self.sigma!r}, eta {self.eta!r}"
            raise ValueError(f"eta: expected numbers that give a finite urgency, got {given}")

    @property
    def kappa(self) -> float:
        """The urgency, per decision."""
        return math.acosh(1.0 + self.risk * self.sigma**2 / (2.0 * self.eta))

    def _share_left(self, left: torch.Tensor) -> torch.Tensor:
        kappa, horizon = self.kappa, self.task.horizon
        if isinstance(horizon, torch.Tensor):  # of each market
            whole = horizon.double()
            decay = torch.expm1(-2.0 * kappa * left.double()) / torch.expm1(whole * (-2.0 * kappa))
            share = (torch.exp(kappa * (left.double() - whole)) * decay).to(left.dtype)
            return torch.where(whole * kappa < 1e-6, super()._share_left(left), share)
        if kappa * horizon < 1e-6:
            return super()._share_left(left)
        # sinh(a) / sinh(b) with neither overflowing: exp(a - b) (1 - exp(-2a)) / (1 - exp(-2b)).
        decay = torch.expm1(-2.0 * kappa * left.double()) / math.expm1(-2.0 * kappa * horizon)
        return (torch.exp(kappa * (left.double() - horizon)) * decay).to(left.dtype)


@dataclasses.dataclass(frozen=True)
class VolumeWeighted(ScriptedPolicy):
    """Executes the block along with the market's volume, as it was seen in the last four decisions.

    Attributes:
        rate: Units ordered per unit of volume in a decision ("percentage of volume"), which may leave units to the
            deadline. None is VWAP: what is left is spread over the decisions to come, more where the last decision's
            volume was above the mean of the last four.
        ticks: As in `TimeWeighted`.
        urgent: As in `TimeWeighted`; without effect where `rate` is given.
        slack: Share of the block that VWAP may be behind an even schedule, by little volume or orders that do not fill;
            where events end decisions also ahead of it, as an order that is filled is followed by the next at once.
    """

    rate: float | None = None
    ticks: float = 10.0
    urgent: int = 1
    slack: float = 0.1

    _reads = ForBlocks
    _checks = {**TimeWeighted._checks, "rate": or_none(positive), "slack": at_least(0)}

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        left, remaining = decisions_left(self.task, observation), remaining_of(self.task, observation)
        volumes, elapsed = recent_volumes(observation), elapsed_since(self.task, observation)
        if self.rate is not None:
            due = whole_units(self.rate * volumes.mean(1), elapsed)
            return order_action(self.task, torch.full_like(due, self.ticks), torch.minimum(due, remaining))
        mean = volumes.mean(1)
        activity = torch.where(mean > 0, volumes[:, 0] / mean.clamp(min=1e-6), 1.0)
        due = whole_units(remaining / left.clamp(min=1.0) * activity, elapsed)
        late, early = (
            torch.round(((left - 1.0) / self.task.horizon + slack) * self.task.block_qty)
            for slack in (self.slack, -self.slack)
        )
        due = torch.maximum(due, remaining - late)
        if self.task.decides_at_events:
            due = torch.minimum(due, (remaining - early).clamp(min=0.0))
        hurry = left <= self.urgent
        ticks = torch.where(hurry, float(self.task.max_offset), self.ticks)
        return order_action(self.task, ticks, torch.where(hurry, remaining, torch.minimum(due, remaining)))
