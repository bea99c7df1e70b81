"""Scripted policies that see the fundamental price: who quotes, who trades, who has a block.

Their environments are made with `see_fundamental=True`, or they play a fundamental learner (`parallel_env`). A policy's
`place` says where the observation has "fundamental price less mid": `LAST`, the last column (but for the events of the
last decision), where no other columns and no features of the user's follow it; of a fundamental learner also `OF_ROLE`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from kineticsim_env.policies.base import (
    OWN,
    SIDE,
    ScriptedPolicy,
    at_least,
    decisions_left,
    inventory_in,
    maker_action,
    order_action,
    remaining_of,
    towards,
    trade_action,
    unsquash,
    whole_from,
)
from kineticsim_env.runtime.values import check_count, check_number
from kineticsim_env.tasks.base import ForBlocks, ForProfit, Task

LAST, OF_ROLE = -1, OWN + 6


def _place(name: str, value: Any) -> int:
    return check_count(name, value, LAST, 2**31 - 1)


def _seen(task: Task, place: int, observation: torch.Tensor) -> torch.Tensor:
    """Read the fundamental price less the mid, in ticks, `[M]`."""
    if place == LAST and task.decides_at_events:  # behind it is how long the last decision was
        place = LAST - 1
    if place >= observation.shape[1]:
        raise ValueError(f"observation: expected more columns than place, {place}, got {observation.shape[1]}")
    return torch.round(unsquash(observation[:, place], 16.0)) / 2.0


@dataclasses.dataclass(frozen=True)
class InformedMaker(ScriptedPolicy):
    """Quotes around the mid, but no bid above the fundamental price and no ask below it.

    With the inventory q it quotes `qty` units on both sides, in ticks from the mid:

        bid at mid - max(half_spread + skew * q, margin - (fundamental - mid)),
        ask at mid + max(half_spread - skew * q, margin + (fundamental - mid)).

    So a bid is at most at `fundamental - margin`, and an ask at least at `fundamental + margin`. A quote further from
    the mid than `max_offset` is not shown.

    Attributes:
        half_spread: Ticks from the mid.
        margin: Ticks from the fundamental price.
        skew: Ticks per unit held.
        qty: Units on each side.
        place: Where the observation has the fundamental price less the mid.
    """

    half_spread: float = 0.0
    margin: float = 2.0
    skew: float = 0.0
    qty: int = 8
    place: int = LAST

    _reads = ForProfit
    _checks = {
        **dict.fromkeys(("half_spread", "margin"), check_number),
        **dict.fromkeys(("skew", "qty"), at_least(0)),
        "place": _place,
    }

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        rich = -_seen(self.task, self.place, observation)  # the mid above the fundamental price
        moved = self.skew * inventory_in(self.task, observation)
        bid = torch.maximum(self.half_spread + moved, self.margin + rich)
        ask = torch.maximum(self.half_spread - moved, self.margin - rich)
        sizes = [torch.where(away <= self.task.max_offset, float(self.qty), 0.0) for away in (bid, ask)]
        return maker_action(self.task, bid, ask, *sizes)


@dataclasses.dataclass(frozen=True)
class InformedTrader(ScriptedPolicy):
    """Trades towards the fundamental price, and never beyond it.

    With `gap = fundamental - mid` in ticks it wants `position` units where `gap > threshold`, as many short where
    `gap < -threshold`; once the gap has turned against what it holds it wants none, and else it keeps what it has. Its
    order is at most `ticks` through the mid, and no further than `|gap| - threshold`.

    Attributes:
        threshold: Ticks.
        position: Units.
        ticks: How far through the mid its orders go at most.
        place: Where the observation has the fundamental price less the mid.
    """

    threshold: float = 2.0
    position: int = 20
    ticks: float = 4.0
    place: int = LAST

    _reads = ForProfit
    _checks = {"threshold": at_least(0), "position": whole_from(0), "ticks": check_number, "place": _place}

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        gap = _seen(self.task, self.place, observation)
        units = towards(self.task, observation, gap, self.threshold, self.position)
        reach = torch.where(gap.abs() > self.threshold, gap.abs() - self.threshold, self.ticks).clamp(max=self.ticks)
        return trade_action(self.task, units, reach)


@dataclasses.dataclass(frozen=True)
class InformedExecutor(ScriptedPolicy):
    """Takes what is there while the price is good, and waits behind the mid while it is not.

    With `gap = side * (fundamental - mid)` in ticks, side 1 for a buy and -1 for a sale, its order is for all that is
    left of the block, `ticks` through the mid where `gap > threshold` and in the last `urgent` decisions, else `waits`.

    Attributes:
        threshold: Ticks.
        ticks: How far through the mid its orders go while the price is good.
        waits: How far while it is not; negative ones wait on their own side of the mid.
        urgent: Decisions before the deadline in which it no longer waits.
        place: Where the observation has the fundamental price less the mid.
    """

    threshold: float = 2.0
    ticks: float = 2.0
    waits: float = -3.0
    urgent: int = 1
    place: int = LAST

    _reads = ForBlocks
    _checks = {**dict.fromkeys(("threshold", "ticks", "waits"), check_number), "urgent": whole_from(0), "place": _place}

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        gap = observation[:, SIDE] * _seen(self.task, self.place, observation)
        now = (gap > self.threshold) | (decisions_left(self.task, observation) <= self.urgent)
        return order_action(self.task, torch.where(now, self.ticks, self.waits), remaining_of(self.task, observation))
