"""The one table of learners' roles: what the package knows of each, from the sizes of its spaces to its title.

Spaces, masks, saved states, evaluation and pictures read it. What a role is paid and sees is a rule, and stands in the
engines: `cuda/model/tasks.h`, and once more in `kineticsim_env/engines/numpy`.
"""

from __future__ import annotations

import dataclasses
import functools

from kineticsim_env.runtime import layout


@dataclasses.dataclass(frozen=True)
class ActionForm:
    """What an action says; roles share forms.

    Attributes:
        name: `"quotes"`, a bid and an ask; `"order"`, of one order the price and the size, on a side that is given;
            `"trade"`, of one order the signed size and the price.
        size: How many numbers a continuous action has: of all levels of a ladder, one after another.
        num_choices: How many discrete actions there are; 0 does nothing.
        idle: The continuous action that does nothing.
        quantities: Features of the observation that are quantities of standing orders.
        keeps: How many numbers of a level, the last ones, say what is kept: of either side, or of both at once.
        levels: Of a ladder.
    """

    name: str
    size: int
    num_choices: int
    idle: tuple[float, ...]
    quantities: tuple[int, ...]
    keeps: int = 0
    levels: int = 1

    @property
    def of_level(self) -> int:
        """How many numbers each level has."""
        return self.size // self.levels

    @property
    def empty(self) -> float:
        """The number that each of a level's may be for it to quote nothing, and to keep nothing."""
        return self.idle[0] if self.name == "trade" else -1.0


_BEHIND, _THROUGH = (len(layout.OFFSETS[name]) for name in ("kMakerOffsets", "kDirectionalOffsets"))
QUOTES = ActionForm("quotes", 4, _BEHIND**2, (-1.0, -1.0, -1.0, -1.0), (34, 36))
ORDER = ActionForm("order", 2, 1 + 2 * _THROUGH, (0.0, -1.0), (35,))
TRADE = ActionForm("trade", 2, 1 + 2 * _THROUGH, (0.0, 0.0), (35,))


def _with_keep(form: ActionForm, keeps: int, num_choices: int) -> ActionForm:
    idle = (*form.idle, *(keeps * (-1.0,)))
    return dataclasses.replace(form, size=form.size + keeps, num_choices=num_choices, idle=idle, keeps=keeps)


# The same where actions may keep standing quotes; to keep is the last choice, of a maker for each side.
_WITH_KEEP = {
    QUOTES: _with_keep(QUOTES, 2, (_BEHIND + 1) ** 2),
    ORDER: _with_keep(ORDER, 1, ORDER.num_choices + 1),
    TRADE: _with_keep(TRADE, 1, TRADE.num_choices + 1),
}


@dataclasses.dataclass(frozen=True)
class RoleSpec:
    """A role."""

    title: str  # what pictures call its task
    action: ActionForm  # what its actions say
    observation_size: int  # how many numbers it sees where there are no queues and no further columns
    # the setting of the task that says how much it has to trade in an episode; None trades for profit
    to_trade: str | None = None
    follows: bool = False  # whether its side is that of the mid's last move, drawn where the mid stood still

    @property
    def for_profit(self) -> bool:
        """Whether it may hold what it likes: it may begin with inventory, and what it has at the end is liquidated."""
        return self.to_trade is None

    @property
    def has_target(self) -> bool:
        """Whether an episode draws how much it has to trade, and on which side."""
        return self.to_trade == "max_target"

    @property
    def has_block(self) -> bool:
        """Whether it is measured by the arrival price, and what is left at the deadline is forced into the market."""
        return self.to_trade == "block_qty"


SPECS = {
    "maker": RoleSpec("market making", QUOTES, 37),
    "momentum": RoleSpec("momentum trading", ORDER, 36, follows=True),
    "noise": RoleSpec("working off an order", ORDER, 36, to_trade="max_target"),
    "executor": RoleSpec("execution", ORDER, 37, to_trade="block_qty"),
    "trader": RoleSpec("trading", TRADE, 36),
    "fundamental": RoleSpec("informed trading", TRADE, 37),
}
ROLES = tuple(SPECS)


@functools.cache
def action_form(role: str, keep: bool, orders_per_side: int = 1) -> ActionForm:
    """Return what an action of a role says.

    Args:
        role: One of `ROLES`.
        keep: Whether actions may keep standing quotes.
        orders_per_side: How many levels the ladder of a slot has.
    """
    form = _WITH_KEEP[SPECS[role].action] if keep else SPECS[role].action
    size, idle = form.size * orders_per_side, form.idle * orders_per_side
    return dataclasses.replace(form, size=size, idle=idle, levels=orders_per_side)


def action_length(keep: bool, orders_per_side: int = 1) -> int:
    """Return how many numbers a row has that continuous actions of any role fit in."""
    return max(action_form(role, keep, orders_per_side).size for role in SPECS)


assert ROLES == tuple(layout.ENUMS["Role"])
