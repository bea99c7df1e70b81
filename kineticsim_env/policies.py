"""Scripted policies for the market-making task: makers to beat, and attackers that must earn nothing.

A policy is called with observations float32 `[M, 37]` and returns continuous actions float32 `[M, 4]` (bid offset, ask
offset, bid size, ask size in [-1, 1], docs/environment.md). It sees what a learner sees and acts through the same door.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol

import torch

from kineticsim_env.tasks import MarketMakingTask

_INVENTORY, _TIME_LEFT = 30, 32  # places in the observation


class Policy(Protocol):
    """Anything that maps observations `[M, 37]` to continuous actions `[M, 4]`."""

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the actions for a batch of observations."""
        ...


def quote_action(
    task: MarketMakingTask,
    bid_offset: torch.Tensor,
    ask_offset: torch.Tensor,
    bid_qty: torch.Tensor,
    ask_qty: torch.Tensor,
) -> torch.Tensor:
    """Return the action that quotes these offsets (ticks from the mid) and quantities, each `[M]`, cut to the space."""
    offsets = torch.stack([bid_offset, ask_offset], dim=1) * (2.0 / task.max_offset) - 1.0
    sizes = torch.stack([bid_qty, ask_qty], dim=1) * (2.0 / task.max_qty) - 1.0
    return torch.cat([offsets, sizes], dim=1).clamp(-1.0, 1.0).to(torch.float32)


def inventory_of(task: MarketMakingTask, observation: torch.Tensor) -> torch.Tensor:
    """Read the inventory, in units, back from observations; `[M]`."""
    share = observation[:, _INVENTORY]
    if task.inventory_limit is not None:
        return share * task.inventory_limit
    return share * 8 * task.max_qty / (1.0 - share.abs())  # the inverse of squash


# Makers ---------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class NoTrade:
    """Quotes nothing: the zero that every PnL is measured from."""

    task: MarketMakingTask

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """See `Policy`."""
        return torch.full((len(observation), 4), -1.0, device=observation.device)


class RandomQuotes:
    """Draws every component of its action uniformly."""

    def __init__(self, task: MarketMakingTask, seed: int = 0) -> None:
        """Seed the policy's own generator, which lives on the CPU so that every device sees the same draws."""
        self.task = task
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """See `Policy`."""
        draws = torch.rand((len(observation), 4), generator=self._generator)
        return (draws * 2.0 - 1.0).to(observation.device)


@dataclasses.dataclass(frozen=True)
class FixedSpread:
    """Quotes `qty` on both sides, `half_spread` ticks from the mid, whatever it holds."""

    task: MarketMakingTask
    half_spread: float = 4.0
    qty: int = 8

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """See `Policy`."""
        offset = torch.full((len(observation),), self.half_spread, device=observation.device)
        qty = torch.full_like(offset, self.qty)
        return quote_action(self.task, offset, offset, qty, qty)


@dataclasses.dataclass(frozen=True)
class AvellanedaStoikov:
    """The maker of Avellaneda and Stoikov (2008), "High-frequency trading in a limit order book", equations 29 and 30.

    It quotes around a reservation price that is moved against its inventory q, `mid - q * risk * tau`, at a half-spread
    of `risk * tau / 2 + ln(1 + gamma / kappa) / gamma`, where `risk` stands for their gamma * sigma^2 (ticks per unit
    and unit of time) and tau is the time left as a share of the episode. With `stationary` tau stays 1, as in their
    section on the infinite horizon, which does better in long episodes.
    """

    task: MarketMakingTask
    risk: float = 0.1
    kappa: float = 0.25
    gamma: float = 0.1
    qty: int = 8
    stationary: bool = True

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """See `Policy`."""
        tau = torch.ones_like(observation[:, 0]) if self.stationary else observation[:, _TIME_LEFT]
        half_spread = 0.5 * self.risk * tau + math.log1p(self.gamma / self.kappa) / self.gamma
        skew = inventory_of(self.task, observation) * self.risk * tau
        qty = torch.full_like(skew, self.qty)
        return quote_action(self.task, half_spread + skew, half_spread - skew, qty, qty)


# Attackers ------------------------------------------------------------------------------------------------------------


class _Clocked:
    """An attacker with a plan over the episode; `elapsed` is read from the time left."""

    def __init__(self, task: MarketMakingTask) -> None:
        """Remember the task."""
        self.task = task

    def elapsed(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the decisions since the episode began, `[M]`."""
        return torch.round((1.0 - observation[:, _TIME_LEFT]) * self.task.horizon)

    def _quote(
        self,
        bid: tuple[float, torch.Tensor],
        ask: tuple[float, torch.Tensor],
    ) -> torch.Tensor:
        """Build the action from (offset, quantity) a side."""
        (bid_offset, bid_qty), (ask_offset, ask_qty) = bid, ask
        return quote_action(
            self.task, torch.full_like(bid_qty, bid_offset), torch.full_like(ask_qty, ask_offset), bid_qty, ask_qty
        )


class PumpAndDump(_Clocked):
    """Buys as fast as it can so that momentum agents follow, then sells to them; over and over.

    Args:
        task: The task.
        period: Decisions in a cycle, half of them buying.
    """

    def __init__(self, task: MarketMakingTask, period: int = 20) -> None:
        """See the class."""
        super().__init__(task)
        self.period = period

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """See `Policy`."""
        buying = (self.elapsed(observation) % self.period < self.period / 2).float() * self.task.max_qty
        return self._quote((0.0, buying), (0.0, self.task.max_qty - buying))


class PriceWall(_Clocked):
    """Shows a wall of bids it hopes not to be filled on, to lift the mid, and sells one unit at a time above it.

    It swaps sides at half time. Any inventory that the wall brings is carried, as nobody would pay for unwinding it. At
    a distance from about two ticks it is no attack any more but an awkward maker, and earns like one: it then trades at
    a profit on either side.
    """

    def __init__(self, task: MarketMakingTask, distance: float = 1.0) -> None:
        """See the class; `distance` is that of the wall from the mid, in ticks."""
        super().__init__(task)
        self.distance = distance

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """See `Policy`."""
        first_half = self.elapsed(observation) < self.task.horizon / 2
        wall = torch.full_like(observation[:, 0], self.task.max_qty)
        bait = torch.ones_like(wall)
        bids_wall = self._quote((self.distance, wall), (0.0, bait))
        asks_wall = self._quote((0.0, bait), (self.distance, wall))
        return torch.where(first_half[:, None], bids_wall, asks_wall)


class WashTrade(_Clocked):
    """Bids and offers as much as it can at the same price, to trade with itself."""

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """See `Policy`."""
        qty = torch.full_like(observation[:, 0], self.task.max_qty)
        return self._quote((0.0, qty), (0.0, qty))


class LastStep(_Clocked):
    """Does nothing until the episode's last decision, then takes the largest position it can."""

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """See `Policy`."""
        last = (self.elapsed(observation) >= self.task.horizon - 1).float() * self.task.max_qty
        return self._quote((0.0, last), (0.0, torch.zeros_like(last)))


class HugeQuantity(_Clocked):
    """Buys as much as the limits allow and holds it to the end."""

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """See `Policy`."""
        qty = torch.full_like(observation[:, 0], self.task.max_qty)
        return self._quote((0.0, qty), (0.0, torch.zeros_like(qty)))


ATTACKERS = (PriceWall, PumpAndDump, WashTrade, LastStep, HugeQuantity)
