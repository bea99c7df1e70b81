"""`Quoting`: makers whose quotes stand at distances from the mid, moved against what they hold, in one form for all.

A maker of makers.py says its numbers, a `Form`. They are rounded once, to small decimal parts of a tick, and so both
ways to play it quote the same to the bit: `_act` on observations, in float64, which is exact on whole numbers of this
size, and `program` inside the launch of a step, in the language of traders.
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

MOST_TICKS = 8192  # of a distance, a spacing or what fades; `max_offset` is less
MOST = 1 << 29  # parts of a tick that an inventory moves quotes by: see `numbers`
TIME_BITS = 15
TIME = 1 << TIME_BITS  # a whole episode
LONGEST = 1 << 16  # decisions of an episode that are counted one by one; of longer ones the time left is coarser
NEVER = 2**31 - 1  # half ticks, which four moves of the mid do not add up to


@dataclasses.dataclass(frozen=True)
class Form:
    """Where a maker quotes.

    With the inventory q, levels n from 0 and the share tau of the episode's time that is left,

        bid n at mid - distance - fading * tau - n * spacing - skew * tau * q,
        ask n at mid + distance + fading * tau + n * spacing - skew * tau * q,

    in whole ticks, half to even, from 0 to the task's `max_offset`; tau is 1 unless the maker `fades`.

    Attributes:
        distance: Ticks, also below 0.
        skew: Ticks per unit of inventory; cut at what moves a quote through the whole space.
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

    def numbers(self, max_offset: int) -> dict[str, int]:
        """Return the parameters of the program, int32: distances in parts of a tick, a power of ten that fits.

        Bounds: the furthest quote without inventory and `max_offset` are together up to 2^28 parts, half of `MOST`. An
        inventory that moves quotes by that has them at the ends of the space: what is beyond is cut and changes none.
        """
        away = {
            name: max(-MOST_TICKS, min(getattr(self, name), MOST_TICKS)) for name in ("distance", "spacing", "fading")
        }
        reach = abs(away["distance"]) + (self.levels - 1) * away["spacing"] + away["fading"] + max_offset
        tick = 10 ** int(math.log10(MOST / 2 / reach))  # 0.05 ticks times 10 units are half a tick, and no more
        parts = {name: round(ticks * tick) for name, ticks in away.items()}
        return parts | {
            "tick": tick,
            "max_offset": max_offset,
            "skew": round(min(self.skew, MOST // tick) * tick),
            "fades": int(self.fades),
            "qty": round(min(self.qty, MAX_QUOTE_QTY)),
            "calm": NEVER if self.limit is None else math.ceil(min(8 * self.limit, NEVER)),  # half ticks of four moves
        }


class Quoting(ScriptedPolicy):
    """A maker that has a form."""

    def _form(self) -> Form:
        """Return where it quotes, whatever market it is in."""
        raise NotImplementedError

    def program(self) -> ks.ProgramPolicy | None:
        """Return the policy as a program that plays a slot inside the launch of a step, see `kineticsim_env.policy`.

        It submits, to the bit, what the actions ask for, unless more units are held than float32 observations can tell
        apart. None where there is no such program: with discrete actions, where events end decisions and the time left
        matters, and of a class that has changed how it acts.
        """
        form, own = self._form(), type(self)
        acts_so = own._act is Quoting._act and own.__call__ is ScriptedPolicy.__call__
        in_decisions = not (form.fades and self.task.decides_at_events)
        if not acts_so or not in_decisions or self.task.action_type != "continuous":
            return None
        return _program(form.levels).replace(**form.numbers(self.task.max_offset))

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        task, form = self.task, self._form()
        number = form.numbers(task.max_offset)
        near = torch.full_like(observation[:, :1], number["distance"], dtype=torch.float64)
        skew: Any = number["skew"]
        most: Any = MOST // max(skew, 1)  # units that are told apart
        if form.fades:
            left = _time_left(task, observation)[:, None]
            near, skew = near + _faded(number["fading"], left), _faded(skew, left)
            most = (MOST / skew.clamp(min=1)).floor()
        if form.levels > 1:
            near = near + number["spacing"] * levels_of(task, observation)
        bids = asks = near
        if form.skew:
            held = inventory_in(task, observation)[:, None].double().round()
            moved = skew * held.clamp(-most, most)
            bids, asks = near + moved, near - moved
        bids, asks = (torch.stack([bids, asks]) / number["tick"]).round().unbind()
        qty = torch.full_like(observation[:, :1], number["qty"])
        if form.limit is not None:
            qty = qty * ((2 * mid_changes(observation)).round().abs().sum(1, keepdim=True) < number["calm"])
        if form.levels < task.orders_per_side:
            return maker_action(task, bids[:, 0], asks[:, 0], qty[:, 0], qty[:, 0])
        return ladder_action(task, bids, asks, qty, qty)


def _time_left(task: Any, observation: torch.Tensor) -> torch.Tensor:
    """Return the share of the time that is left, of `TIME`, float64 `[M]`; whole decisions, unless events end them."""
    left = observation[:, TIME_LEFT].double() * task.horizon
    left = left if task.decides_at_events else left.round()
    scale = task.horizon // LONGEST + 1
    return ((left / scale).floor() * TIME / (task.horizon // scale)).floor()


def _faded(whole: int, left: torch.Tensor) -> torch.Tensor:
    return (whole * left / TIME).floor()


# The same as a program ------------------------------------------------------------------------------------------------


def faded(whole, left):  # noqa: ANN001, ANN201, D103 - of the program below, as what follows
    return (whole >> TIME_BITS) * left + ((whole & (TIME - 1)) * left >> TIME_BITS)


def ticks(away, tick, largest):  # noqa: ANN001, ANN201, D103
    cut = max(0, min(away, largest * tick))
    near = (cut + tick // 2) // tick
    return near - (near & (cut % tick == tick // 2))


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
        left = slot.left // scale * TIME // (horizon // scale)
        near += faded(own.fading, left)
        skew = faded(skew, left)
    most = MOST // max(skew, 1)
    moved = skew * max(-most, min(slot.inventory, most))
    low = market.mid2 >> 1
    high = (market.mid2 + 1) >> 1
    qty = min(own.qty, slot.max_qty)
    return ks.quotes({levels})
"""
_LEVEL = """ks.quote(
        low - ticks(near + {n} * own.spacing + moved, own.tick, own.max_offset), qty,
        high + ticks(near + {n} * own.spacing - moved, own.tick, own.max_offset), qty,
    )"""


@functools.cache
def _program(levels: int) -> ks.ProgramPolicy:
    """Return the program of ladders of so many levels, of which the language wants each to be written down."""
    text = _TEXT.format(levels=", ".join(_LEVEL.format(n=n) for n in range(levels)))
    name = f"<{__name__}, {levels} levels>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name  # where the language reads sources
    names = {**globals(), "no_order": no_order}
    exec(compile(text, name, "exec", dont_inherit=True), names)  # noqa: S102
    return ks.ProgramPolicy(names["quoting"], Form().numbers(1), memory={}, informed=False)
