"""`Quoting`: makers whose quotes stand at distances from the mid, moved against what they hold, in one form for all.

A maker of makers.py says its numbers, a `Form`. They are rounded to whole numbers once, 2^-15 ticks each, and so both
ways to play it quote the same to the bit: `_act` on observations, in float64, which is exact on whole numbers so small,
and `program` inside the launch of a step, in the language of traders. What comes beyond a bound stays at it.
"""

from __future__ import annotations

import dataclasses
import functools
import linecache
import math
from typing import Any

import torch

import kineticsim_env.agents.policies as ks
from kineticsim_env.agents.vocabulary import no_order
from kineticsim_env.config import MAX_QUOTE_QTY
from kineticsim_env.policies.base import (
    TIME_LEFT,
    ScriptedPolicy,
    inventory_in,
    ladder_action,
    levels_of,
    maker_action,
    mid_changes,
)

BITS = 15
ONE = 1 << BITS  # a tick, or the time of a whole episode
MASK = ONE - 1
HALF = ONE // 2
MOST_TICKS = 8192  # of a distance, of a skew per unit, and of what an inventory moves quotes by; `max_offset` is less
MOST_SPACING = 4096  # ticks between levels, of which there are up to 8: sums of all these are below 2^31
NEVER = 2**31 - 1  # half ticks, which four moves of the mid do not add up to
LONGEST = 1 << 16  # decisions of an episode that are counted one by one; in longer ones the time left has 16 bits


@dataclasses.dataclass(frozen=True)
class Form:
    """Where a maker quotes. With the inventory q, levels n from 0 and the share tau of the episode's time that is left,

        bid n at mid - distance - fading * tau - n * spacing - skew * tau * q,
        ask n at mid + distance + fading * tau + n * spacing - skew * tau * q,

    in whole ticks, half to even, from 0 to the task's `max_offset`; tau is 1 unless it `fades`.

    Attributes:
        distance: Ticks, also below 0.
        skew: Ticks per unit of inventory.
        spacing: Ticks from one level to the next.
        fading: Ticks that go with the time left.
        fades: Whether `fading` and `skew` go with the time left.
        levels: Of a ladder; those behind are empty.
        qty: Units of each level, on each side, cut to the task's `max_qty`.
        limit: Ticks: nothing is quoted unless the last four moves of the mid are smaller in the mean; None is always.
    """

    distance: float = 0.0
    skew: float = 0.0
    spacing: float = 0.0
    fading: float = 0.0
    fades: bool = False
    levels: int = 1
    qty: float = 0
    limit: float | None = None

    @property
    def numbers(self) -> dict[str, int]:
        """The parameters of the program, int32: ticks times `ONE`, units, and half ticks that four moves add up to."""
        skew = _whole(self.skew, MOST_TICKS)
        return {
            "distance": _whole(self.distance, MOST_TICKS),
            "skew": skew,
            "spacing": _whole(self.spacing, MOST_SPACING),
            "fading": _whole(self.fading, MOST_TICKS),
            "fades": int(self.fades),
            "most": MOST_TICKS * ONE // max(skew, 1),  # units that are told apart
            "qty": round(min(self.qty, MAX_QUOTE_QTY)),
            "calm": NEVER if self.limit is None else math.ceil(min(8 * self.limit, NEVER)),
        }


def _whole(away: float, most: int) -> int:
    return round(max(-most, min(away, most)) * ONE)


def on_grid(away: float) -> float:
    """Return a distance or a skew, ticks, as it is played."""
    return _whole(away, MOST_TICKS) / ONE


class Quoting(ScriptedPolicy):
    """A maker that has a form."""

    def _form(self) -> Form:
        """Return where it quotes, whatever market it is in."""
        raise NotImplementedError

    def program(self) -> ks.ProgramPolicy | None:
        """Return the policy as a program that plays a slot inside the launch of a step, see `kineticsim_env.policy`.

        It submits, to the bit, what the actions ask for; where observations cannot say how many units are held, beyond
        some millions, what is held. None where it has no such program: with discrete actions, where events end decisions
        and the time left matters, and of a class that has changed how it acts.
        """
        form, own = self._form(), type(self)
        acts_so = own._act is Quoting._act and own.__call__ is ScriptedPolicy.__call__
        in_decisions = not (form.fades and self.task.decides_at_events)
        if not acts_so or not in_decisions or self.task.action_type != "continuous":
            return None
        return _program(form.levels).replace(**form.numbers)

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        task, form = self.task, self._form()
        number = form.numbers
        near, skew = torch.full_like(observation[:, :1], number["distance"], dtype=torch.float64), number["skew"]
        if form.fades:
            left = _time_left(task, observation)[:, None]
            near, skew = near + _faded(number["fading"], left), _faded(skew, left)
        if form.levels > 1:
            near = near + number["spacing"] * levels_of(task, observation)
        bids = asks = near
        if form.skew:
            held = inventory_in(task, observation)[:, None].double().round()
            moved = skew * held.clamp(-number["most"], number["most"])
            bids, asks = near + moved, near - moved
        bids, asks = (torch.stack([bids, asks]) / ONE).round().unbind()
        qty = torch.full_like(observation[:, :1], number["qty"])
        if form.limit is not None:
            qty = qty * ((2 * mid_changes(observation)).round().abs().sum(1, keepdim=True) < number["calm"])
        if form.levels < task.orders_per_side:
            return maker_action(task, bids[:, 0], asks[:, 0], qty[:, 0], qty[:, 0])
        return ladder_action(task, bids, asks, qty, qty)


def _time_left(task: Any, observation: torch.Tensor) -> torch.Tensor:
    """Return the share of the time that is left, in `ONE`, float64 `[M]`; of whole decisions, unless events end them."""
    left = observation[:, TIME_LEFT].double() * task.horizon
    left = left if task.decides_at_events else left.round()
    scale = task.horizon // LONGEST + 1
    return ((left / scale).floor() * ONE / (task.horizon // scale)).floor()


def _faded(whole: int, left: torch.Tensor) -> torch.Tensor:
    return (whole * left / ONE).floor()


# The same as a program ------------------------------------------------------------------------------------------------


def faded(whole, left):  # noqa: ANN001, ANN201, D103 - of the program below, as what follows
    return (whole >> BITS) * left + ((whole & MASK) * left >> BITS)


def ticks(away, most):  # noqa: ANN001, ANN201, D103
    cut = max(0, min(away, most << BITS))
    near = (cut + HALF) >> BITS
    return near - (near & ((cut & MASK) == HALF))


_TEXT = """
def quoting(market, slot, own, draw):
    moves = abs(slot.mid_change(0)) + abs(slot.mid_change(1)) + abs(slot.mid_change(2)) + abs(slot.mid_change(3))
    if moves >= own.calm:
        return no_order()
    near = own.distance
    skew = own.skew
    if own.fades:
        horizon = slot.elapsed + slot.left
        scale = horizon // LONGEST + 1
        left = slot.left // scale * ONE // (horizon // scale)
        near += faded(own.fading, left)
        skew = faded(skew, left)
    moved = skew * max(-own.most, min(slot.inventory, own.most))
    low = (market.mid2 >> 1)
    high = ((market.mid2 + 1) >> 1)
    most = slot.max_offset
    qty = min(own.qty, slot.max_qty)
    return ks.quotes({levels})
"""
_LEVEL = "ks.quote(low - ticks(near + {n} * own.spacing + moved, most), qty,"
_LEVEL += " high + ticks(near + {n} * own.spacing - moved, most), qty)"


@functools.cache
def _program(levels: int) -> ks.ProgramPolicy:
    """Return the program of ladders of so many levels, of which the language wants each to be written down."""
    text = _TEXT.format(levels=", ".join(_LEVEL.format(n=n) for n in range(levels)))
    name = f"<{__name__}, {levels} levels>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name  # where the language reads sources
    names = {**globals(), "no_order": no_order}
    exec(compile(text, name, "exec", dont_inherit=True), names)  # noqa: S102
    return ks.policy(**Form().numbers)(names["quoting"])
