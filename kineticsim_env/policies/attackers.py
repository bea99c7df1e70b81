"""Scripted attackers that must earn nothing: they move the price, wait for the last decision, or take all they can."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from kineticsim_env.policies.base import (
    TIME_LEFT,
    ScriptedPolicy,
    check_observation,
    maker_action,
    order_action,
    remaining_of,
    trade_action,
    whole_from,
)
from kineticsim_env.runtime.values import check_number
from kineticsim_env.tasks.base import ForBlocks


@dataclasses.dataclass(frozen=True)
class _Clocked(ScriptedPolicy):
    """An attacker with a plan over the episode; `elapsed` is read from the time left."""

    task: Any

    def elapsed(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the decisions since the episode began, `[M]`."""
        return self._elapsed(check_observation(observation))

    def _elapsed(self, observation: torch.Tensor) -> torch.Tensor:
        return torch.round((1.0 - observation[:, TIME_LEFT]) * self.task.horizon)

    def _quote(
        self,
        bid: tuple[float, torch.Tensor],
        ask: tuple[float, torch.Tensor],
    ) -> torch.Tensor:
        """Build the action from (offset, quantity) per side."""
        (bid_offset, bid_qty), (ask_offset, ask_qty) = bid, ask
        return maker_action(
            self.task, torch.full_like(bid_qty, bid_offset), torch.full_like(ask_qty, ask_offset), bid_qty, ask_qty
        )


@dataclasses.dataclass(frozen=True)
class PumpAndDump(_Clocked):
    """Buys as fast as it can so that momentum agents follow, then sells to them; over and over.

    Attributes:
        task: The task.
        period: Decisions in a cycle, half of them buying.
    """

    period: int = 20

    _checks = {"period": whole_from(1)}

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        buying = (self._elapsed(observation) % self.period < self.period / 2).float() * self.task.max_qty
        return self._quote((0.0, buying), (0.0, self.task.max_qty - buying))


@dataclasses.dataclass(frozen=True)
class PriceWall(_Clocked):
    """Shows a wall of bids it hopes not to be filled on, to lift the mid, and sells one unit at a time above it.

    It swaps sides at half time. Inventory from fills of the wall is kept, as unwinding it would cost money. At a
    distance of about two ticks or more it is no longer an attack but a maker with unusual quotes, and earns like one:
    it then trades at a profit on either side.

    Attributes:
        task: The task.
        distance: Of the wall from the mid, ticks.
    """

    distance: float = 1.0

    _checks = {"distance": check_number}

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        first_half = self._elapsed(observation) < self.task.horizon / 2
        wall = torch.full_like(observation[:, 0], self.task.max_qty)
        bait = torch.ones_like(wall)
        bids_wall = self._quote((self.distance, wall), (0.0, bait))
        asks_wall = self._quote((0.0, bait), (self.distance, wall))
        return torch.where(first_half[:, None], bids_wall, asks_wall)


class WashTrade(_Clocked):
    """Bids and offers as much as it can at the same price, to trade with itself."""

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        qty = torch.full_like(observation[:, 0], self.task.max_qty)
        return self._quote((0.0, qty), (0.0, qty))


class LastStep(_Clocked):
    """Does nothing until the episode's last decision, then takes the largest position it can."""

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        last = (self._elapsed(observation) >= self.task.horizon - 1).float() * self.task.max_qty
        return self._quote((0.0, last), (0.0, torch.zeros_like(last)))


class HugeQuantity(_Clocked):
    """Buys as much as the limits allow and holds it to the end."""

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        qty = torch.full_like(observation[:, 0], self.task.max_qty)
        return self._quote((0.0, qty), (0.0, torch.zeros_like(qty)))


# Attackers with an executor's action ----------------------------------------------------------------------------------
# A block has one side, so that neither a dump nor a trade with oneself is possible.


class ExecutorLastStep(_Clocked):
    """Waits for the episode's last decision, and orders what it may there; the engine executes the rest."""

    _reads = ForBlocks

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        last = self._elapsed(observation) >= self.task.horizon - 1
        qty = torch.where(last, remaining_of(self.task, observation), 0.0)
        return order_action(self.task, torch.full_like(qty, self.task.max_offset), qty)


class ExecutorHugeQuantity(_Clocked):
    """Orders the largest quantity at the most aggressive price, whatever remains."""

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        most = torch.ones_like(observation[:, 0])
        return order_action(self.task, most * self.task.max_offset, most * self.task.max_qty)


@dataclasses.dataclass(frozen=True)
class ExecutorBursts(_Clocked):
    """Orders as much as it can at any price, so that momentum agents follow, then waits with orders far from the mid.

    Attributes:
        task: The task.
        period: Decisions from one burst to the next; a burst lasts a quarter of them.
    """

    period: int = 20

    _checks = {"period": whole_from(1)}

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        pressing = self._elapsed(observation) % self.period < self.period / 4
        reach = float(self.task.max_offset)
        ticks = torch.where(pressing, reach, -reach)
        return order_action(self.task, ticks, torch.full_like(ticks, self.task.max_qty))


# Attackers with a trader's action -------------------------------------------------------------------------------------


class TraderPumpAndDump(PumpAndDump):
    """Buys as fast as it can so that momentum agents follow, then sells to them; over and over, at the mid."""

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        buying = self._elapsed(observation) % self.period < self.period / 2
        units = torch.where(buying, float(self.task.max_qty), -float(self.task.max_qty))
        return trade_action(self.task, units, torch.zeros_like(units))


@dataclasses.dataclass(frozen=True)
class TraderPriceWall(PriceWall):
    """Shows a wall of bids in every other decision, to lift the mid, and sells one unit in those between.

    It swaps sides at half time, as `PriceWall` does; a trader has one order at a time, so wall and sale take turns. At
    two ticks and more it earns as a maker would: it then buys below and sells above the mid.
    """

    distance: float = 0.0

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        elapsed = self._elapsed(observation)
        wall = elapsed % 2 == 0
        side = torch.where(elapsed < self.task.horizon / 2, 1.0, -1.0)
        units = torch.where(wall, side * self.task.max_qty, -side)
        return trade_action(self.task, units, torch.where(wall, -self.distance, 0.0))


class TraderLastStep(_Clocked):
    """Does nothing until the episode's last decision, then buys as much as it can."""

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        last = (self._elapsed(observation) >= self.task.horizon - 1).float() * self.task.max_qty
        return trade_action(self.task, last, torch.full_like(last, self.task.max_offset))


class TraderHugeQuantity(_Clocked):
    """Buys as much as the limits allow, at any price in reach, and holds it to the end."""

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        qty = torch.full_like(observation[:, 0], self.task.max_qty)
        return trade_action(self.task, qty, torch.full_like(qty, self.task.max_offset))


ATTACKERS = (PriceWall, PumpAndDump, WashTrade, LastStep, HugeQuantity)
EXECUTOR_ATTACKERS = (ExecutorLastStep, ExecutorHugeQuantity, ExecutorBursts)
TRADER_ATTACKERS = (TraderPriceWall, TraderPumpAndDump, TraderLastStep, TraderHugeQuantity)
