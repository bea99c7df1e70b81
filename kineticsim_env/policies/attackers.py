"""Scripted attackers that must earn nothing: they move the price, wait for the last decision, or take all they can.

They see and do what any learner may, so the same ones attack call auctions and continuous trading; what they earn in
both, and what does pay, is in examples/studies/attacks. Of a ladder `Layering` and `QuoteStuffing` use all levels, the
others level 0 alone.
"""

from __future__ import annotations

import dataclasses

import torch

from kineticsim_env.policies.base import (
    ScriptedPolicy,
    at_least,
    between,
    check_observation,
    decisions_left,
    filled,
    inventory_in,
    ladder_action,
    levels_of,
    maker_action,
    mid_changes,
    order_action,
    remaining_of,
    trade_action,
    whole_from,
)
from kineticsim_env.runtime.values import check_number
from kineticsim_env.tasks.base import ForBlocks, ForProfit


class _Clocked(ScriptedPolicy):
    """An attacker with a plan over the episode; `elapsed` is read from the time left."""

    def elapsed(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the decisions since the episode began, `[M]`; where events end them, those of full length."""
        return self.task.horizon - decisions_left(self.task, check_observation(observation))

    def _quote(self, bid: tuple[float, torch.Tensor], ask: tuple[float, torch.Tensor]) -> torch.Tensor:
        """Build the action from (offset, quantity) per side."""
        offsets = (torch.full_like(qty, ticks) for ticks, qty in (bid, ask))
        return maker_action(self.task, *offsets, bid[1], ask[1])


@dataclasses.dataclass(frozen=True)
class PumpAndDump(_Clocked):
    """Buys as fast as it can so that momentum agents follow, then sells to them; over and over.

    Attributes:
        period: Decisions in a cycle, half of them buying.
    """

    period: int = 20

    _checks = {"period": whole_from(1)}

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        buying = (self.elapsed(observation) % self.period < self.period / 2).float() * self.task.max_qty
        return self._quote((0.0, buying), (0.0, self.task.max_qty - buying))


@dataclasses.dataclass(frozen=True)
class PriceWall(_Clocked):
    """Shows a wall of bids it hopes not to be filled on, to lift the mid, and sells one unit at a time above it.

    It swaps sides at half time. Inventory from fills of the wall is kept, as unwinding it would cost money. At a
    distance of about two ticks or more it is no longer an attack but a maker with unusual quotes, and earns like one:
    it then trades at a profit on either side.

    Attributes:
        distance: Of the wall from the mid, ticks.
    """

    distance: float = 1.0

    _checks = {"distance": check_number}

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        first_half = self.elapsed(observation) < self.task.horizon / 2
        wall = filled(observation[:, 0], self.task.max_qty)
        bait = torch.ones_like(wall)
        bids_wall = self._quote((self.distance, wall), (0.0, bait))
        asks_wall = self._quote((0.0, bait), (self.distance, wall))
        return torch.where(first_half[:, None], bids_wall, asks_wall)


class WashTrade(_Clocked):
    """Bids and offers as much as it can at the same price, to trade with itself."""

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        qty = filled(observation[:, 0], self.task.max_qty)
        return self._quote((0.0, qty), (0.0, qty))


class LastStep(_Clocked):
    """Does nothing until the episode's last decision, then takes the largest position it can."""

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        last = (self.elapsed(observation) >= self.task.horizon - 1).float() * self.task.max_qty
        return self._quote((0.0, last), (0.0, torch.zeros_like(last)))


@dataclasses.dataclass(frozen=True)
class QuoteStuffing(_Clocked):
    """Sends new quotes of the largest size on both sides in every decision, at prices that never stay.

    Each pair is a tick nearer to the mid or farther from it than the one before, so that none keeps a place in a queue,
    and other agents always see another book. With a ladder so is each level, a tick behind the one before it: all are
    withdrawn and placed anew in every decision. That many orders and cancellations confuse others is what annex II of
    the EU's regulation 2016/522 calls quote stuffing. From a distance of about two ticks on that is a maker without
    patience, and earns like one.

    Attributes:
        distance: Of level 0 from the mid when it is nearer, ticks.
    """

    distance: float = 0.0

    _checks = {"distance": at_least(0.0)}

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        qty = filled(observation[:, 0], self.task.max_qty)[:, None]
        away = self.distance + (self.elapsed(observation) % 2)[:, None] + levels_of(self.task, observation)
        return ladder_action(self.task, away, away, qty, qty)


@dataclasses.dataclass(frozen=True)
class Layering(_Clocked):
    """Shows layers of quotes on one side, to move the mid, trades on the other, and then withdraws them; over and over.

    In the first half of each period it bids the largest size at every level of its ladder, tick by tick, and offers at
    the mid what it lacks to be short of `position` units. Once it is, it quotes nothing until it buys in the second
    half, behind layers of asks. Annex II of the EU's regulation 2016/522 calls that layering and spoofing: orders on
    one side of the book, often away from the best price, for a trade on the other, after which they are removed. With
    `orders_per_side` of 1 there is one layer.

    Attributes:
        period: Decisions in a cycle, half of them selling.
        distance: Of the nearest layer from the mid, ticks.
        position: Units.
    """

    period: int = 20
    distance: float = 1.0
    position: int = 8

    _reads = ForProfit
    _checks = {"period": whole_from(1), "distance": check_number, "position": whole_from(0)}

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        selling = self.elapsed(observation) % self.period < self.period / 2
        side = torch.where(selling, 1.0, -1.0)
        most, held = filled(side, self.task.max_qty), torch.round(inventory_in(self.task, observation))
        lacking = between(self.position + side * held, 0.0, most)
        level = levels_of(self.task, observation)
        away, layer = self.distance + level, (most * (lacking > 0))[:, None]
        traded, selling = lacking[:, None] * (level == 0), selling[:, None]
        offsets = torch.where(selling, away, 0.0), torch.where(selling, 0.0, away)
        sizes = torch.where(selling, layer, traded), torch.where(selling, traded, layer)
        return ladder_action(self.task, *offsets, *sizes)


class FlashedWall(PriceWall):
    """Shows a wall of bids in every other decision, to lift the mid, and withdraws it to sell in those between.

    It swaps sides at half time. The wall stands for one decision, so that it trades with whoever comes in that time
    only; what it sells to are those who followed.
    """

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        elapsed = self.elapsed(observation)
        full = filled(elapsed, self.task.max_qty)
        bids = (elapsed % 2 == 0) == (elapsed < self.task.horizon / 2)  # the wall, or what follows a wall of asks
        wall = (elapsed % 2 == 0)[:, None]
        far, nothing = (self.distance, full), (0.0, torch.zeros_like(full))
        shown = torch.where(bids[:, None], self._quote(far, nothing), self._quote(nothing, far))
        traded = self._quote((0.0, full * bids), (0.0, full * ~bids))
        return torch.where(wall, shown, traded)


@dataclasses.dataclass(frozen=True)
class MarkTheClose(_Clocked):
    """Buys patiently, then bids all it can at the mid in the last decisions, to lift the price of what it holds.

    Attributes:
        last: Decisions at the end in which it lifts the price; it begins to buy three times as long before.
        distance: Of its patient bids from the mid, ticks.
    """

    last: int = 10
    distance: float = 3.0

    _reads = ForProfit
    _checks = {"last": whole_from(1), "distance": check_number}

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        lifting = self._lifting(observation)
        qty = torch.where(lifting, 1.0 * self.task.max_qty, self._missing(observation))
        nothing = torch.zeros_like(qty)
        lift, wait = (self._quote((ticks, qty), (0.0, nothing)) for ticks in (0.0, self.distance))
        return torch.where(lifting[:, None], lift, wait)

    def _lifting(self, observation: torch.Tensor) -> torch.Tensor:
        return self.elapsed(observation) >= self.task.horizon - self.last

    def _missing(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the units up to half of what it may hold, at most an order's; none before it begins."""
        limit = self.task.inventory_limit
        wanted = 2.0 * self.task.max_qty if limit is None else limit // 2
        missing = between(torch.round(wanted - inventory_in(self.task, observation)), 0.0, self.task.max_qty)
        return missing * (self.elapsed(observation) >= self.task.horizon - 4 * self.last)


class HugeQuantity(_Clocked):
    """Buys as much as the limits allow and holds it to the end."""

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        qty = filled(observation[:, 0], self.task.max_qty)
        return self._quote((0.0, qty), (0.0, torch.zeros_like(qty)))


# Attackers with an executor's action ----------------------------------------------------------------------------------
# A block has one side, so that neither a dump nor a trade with oneself is possible.


class ExecutorLastStep(_Clocked):
    """Waits for the episode's last decision, and orders what it may there; the engine executes the rest."""

    _reads = ForBlocks

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        last = self.elapsed(observation) >= self.task.horizon - 1
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
        period: Decisions from one burst to the next; a burst lasts a quarter of them.
    """

    period: int = 20

    _checks = {"period": whole_from(1)}

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        pressing = self.elapsed(observation) % self.period < self.period / 4
        reach = float(self.task.max_offset)
        ticks = torch.where(pressing, reach, -reach)
        return order_action(self.task, ticks, filled(ticks, self.task.max_qty))


# Attackers with a trader's action -------------------------------------------------------------------------------------


class TraderPumpAndDump(PumpAndDump):
    """Buys as fast as it can so that momentum agents follow, then sells to them; over and over, at the mid."""

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        buying = self.elapsed(observation) % self.period < self.period / 2
        units = torch.where(buying, 1.0, -1.0) * self.task.max_qty
        return trade_action(self.task, units, torch.zeros_like(units))


@dataclasses.dataclass(frozen=True)
class TraderPriceWall(PriceWall):
    """Shows a wall of bids in every other decision, to lift the mid, and sells one unit in those between.

    It swaps sides at half time, as `PriceWall` does; a trader has one order at a time, so wall and sale take turns. At
    two ticks and more it earns as a maker would: it then buys below and sells above the mid.
    """

    distance: float = 0.0

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        elapsed = self.elapsed(observation)
        wall = elapsed % 2 == 0
        side = torch.where(elapsed < self.task.horizon / 2, 1.0, -1.0)
        units = torch.where(wall, side * self.task.max_qty, -side)
        return trade_action(self.task, units, torch.where(wall, -self.distance, 0.0))


class TraderLastStep(_Clocked):
    """Does nothing until the episode's last decision, then buys as much as it can."""

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        last = (self.elapsed(observation) >= self.task.horizon - 1).float() * self.task.max_qty
        return trade_action(self.task, last, torch.full_like(last, self.task.max_offset))


class TraderMarkTheClose(MarkTheClose):
    """Buys patiently, then buys at any price in reach in the last decisions, to lift the price of what it holds."""

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        lifting, most = self._lifting(observation), 1.0 * self.task.max_qty
        units = torch.where(lifting, most, self._missing(observation))
        return trade_action(self.task, units, torch.where(lifting, float(self.task.max_offset), -self.distance))


@dataclasses.dataclass(frozen=True)
class TraderSniper(_Clocked):
    """Takes what is on offer at once when the mid has moved, before others can price around the new one, and unwinds.

    A game of latency: with `quote_latency=0` its order is the first that comes after what it has seen.

    Attributes:
        threshold: Ticks that the mid has to move in a decision.
    """

    threshold: float = 2.0

    _reads = ForProfit
    _checks = {"threshold": at_least(0.0)}

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        change, most = mid_changes(observation)[:, 0], 1.0 * self.task.max_qty
        moved = change.abs() >= self.threshold
        held = torch.round(inventory_in(self.task, observation))
        units = torch.where(moved, torch.sign(change) * most, between(-held, -most, most))
        return trade_action(self.task, units, torch.where(moved, float(self.task.max_offset), 0.0))


class TraderHugeQuantity(_Clocked):
    """Buys as much as the limits allow, at any price in reach, and holds it to the end."""

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        qty = filled(observation[:, 0], self.task.max_qty)
        return trade_action(self.task, qty, torch.full_like(qty, self.task.max_offset))


ATTACKERS = (
    PriceWall, FlashedWall, Layering, QuoteStuffing, PumpAndDump, WashTrade, LastStep, MarkTheClose, HugeQuantity,
)  # fmt: skip
EXECUTOR_ATTACKERS = (ExecutorLastStep, ExecutorHugeQuantity, ExecutorBursts)
TRADER_ATTACKERS = (
    TraderPriceWall, TraderPumpAndDump, TraderLastStep, TraderMarkTheClose, TraderSniper, TraderHugeQuantity,
)  # fmt: skip
_ALL = (*ATTACKERS, *EXECUTOR_ATTACKERS, *TRADER_ATTACKERS)
__all__ = ("ATTACKERS", "EXECUTOR_ATTACKERS", "TRADER_ATTACKERS", *(kind.__name__ for kind in _ALL))
