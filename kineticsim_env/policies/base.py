"""What scripted policies share: reading observations back into units and ticks, and writing actions.

Places and scales are those of docs/environment.md. All functions work row by row on tensors of any device.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import torch

from kineticsim_env.runtime import layout
from kineticsim_env.runtime.checks import check_tensor
from kineticsim_env.runtime.roles import SPECS, ActionForm, action_form
from kineticsim_env.runtime.values import check_callable, check_choice, check_count, check_number, show
from kineticsim_env.tasks.base import MARKET_FEATURES, ForBlocks, ForProfit, Task

MID_CHANGES, VOLUMES = slice(22, 26), slice(26, 30)  # places in the observation, newest first
OWN = MARKET_FEATURES  # a learner's own first feature: inventory, or what remains of a block
TIME_LEFT, SIDE = OWN + 2, OWN + 3  # time; side of an executor's block
MAKER_OFFSETS = layout.OFFSETS["kMakerOffsets"][1:]  # of discrete actions; the first choice is no order
ORDER_OFFSETS = layout.OFFSETS["kDirectionalOffsets"]
_SMALL = 1e-4  # decisions by which float32 features may be off a whole number


class Policy(Protocol):
    """Anything that maps observations `[M, F]` to actions `[M, A]`, continuous ones unless it says otherwise."""

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the actions for a batch of observations."""
        ...


@dataclasses.dataclass(frozen=True)
class ScriptedPolicy:
    """What scripted policies share: settings are checked once, observations at every call, before `_act`.

    Settings of the task that differ from market to market are `[M]` in `_act`: what the observation says of them.

    Attributes:
        task: The environment's.
    """

    task: Any
    _reads: ClassVar[type] = Task  # what settings of the task it needs: any task's, or those of one of `_TASKS`
    _checks: ClassVar[Mapping[str, Callable[[str, Any], Any]]] = {}  # of its own fields

    def __post_init__(self) -> None:
        """Check every field; raise `TypeError` or `ValueError` naming the field, the value and what is allowed."""
        for name, check in self._checks.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        check_task(self.task, self._reads)

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """See `Policy`."""
        checked = check_observation(observation)
        if not self.task.columns:
            return self._act(checked)
        own = copy.copy(self)
        object.__setattr__(own, "task", self.task.seen_in(checked))
        return own._act(checked)

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the actions for checked observations."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class UniformActions(ScriptedPolicy):
    """Draws every component of its actions uniformly, those of a ladder's level 0, and keeps no quotes."""

    seed: int = 0
    _generator: torch.Generator = dataclasses.field(init=False, repr=False, compare=False)

    _checks = {"seed": lambda name, value: check_count(name, value, -(2**63), 2**64 - 1)}  # what torch takes
    role: ClassVar[str] = "executor"

    def __post_init__(self) -> None:
        """Seed the policy's own generator, which lives on the CPU so that every device sees the same draws."""
        super().__post_init__()
        object.__setattr__(self, "_generator", torch.Generator().manual_seed(self.seed))

    def _act(self, observation: torch.Tensor) -> torch.Tensor:
        form = self.task.action_form(self.role)
        draws = torch.rand((len(observation), form.of_level - form.keeps), generator=self._generator)
        return _written((draws * 2.0 - 1.0).to(observation.device), form)


# Checks ---------------------------------------------------------------------------------------------------------------

_FEATURES = min(spec.observation_size for spec in SPECS.values())  # what policies read is within all observations
FLOATS = frozenset((torch.float32, torch.float64))  # quantities and prices do not fit narrower ones
_TASKS: dict[type, str] = {
    Task: "a task, such as MarketMakingTask()",
    ForProfit: "a MarketMakingTask, TradingTask or ManyLearnersTask",
    ForBlocks: "an ExecutionTask or ManyLearnersTask",
}


def check_task(task: Any, kind: type = Task) -> Any:
    """Return a task that has the settings of a kind."""
    if not (isinstance(task, Task) and isinstance(task, kind)):
        raise TypeError(f"task: expected {_TASKS[kind]}, got {show(task)}")
    return task


def check_observation(observation: Any) -> torch.Tensor:
    """Return observations `[M, F]` as they are."""
    return check_tensor("observation", observation, _OBSERVATIONS, _has_features, FLOATS)


_OBSERVATIONS = f"a tensor float32 [M, F] of observations, F from {_FEATURES}"


def _has_features(observation: torch.Tensor) -> bool:
    return observation.dim() == 2 and observation.shape[1] >= _FEATURES


def at_least(low: float) -> Callable[[str, Any], Any]:
    """Return the check of a finite number from `low`."""
    return lambda name, value: check_number(name, value, low)


def positive(name: str, value: Any) -> Any:
    """Return a finite number above 0."""
    return check_number(name, value, 0.0, above=True)


def whole_from(least: int) -> Callable[[str, Any], int]:
    """Return the check of a whole number from `least`."""
    return lambda name, value: check_count(name, value, least)


def or_none(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """Return a check that None passes."""
    return lambda name, value: None if value is None else check(name, value)


# Reading --------------------------------------------------------------------------------------------------------------


def unsquash(feature: torch.Tensor, scale: float) -> torch.Tensor:
    """Return x of a feature `x / (|x| + scale)`."""
    return feature * scale / (1.0 - feature.abs()).clamp(min=1e-7)


def inventory_of(task: Any, observation: torch.Tensor) -> torch.Tensor:
    """Read the inventory of a role that trades for profit, in units, back from observations; `[M]`."""
    seen = check_observation(observation)
    return inventory_in(check_task(task, ForProfit).seen_in(seen), seen)


def inventory_in(task: Any, observation: torch.Tensor) -> torch.Tensor:
    """Read an inventory back from checked observations; `[M]`."""
    share = observation[:, OWN]
    if task.inventory_limit is not None:
        return share * task.inventory_limit
    return share * 8 * task.max_qty / (1.0 - share.abs())  # the inverse of squash


def remaining_of(task: Any, observation: torch.Tensor) -> torch.Tensor:
    """Read what remains of an executor's block, whole units as float32 `[M]`."""
    return torch.round(observation[:, OWN].abs() * task.block_qty)


def decisions_left(task: Any, observation: torch.Tensor) -> torch.Tensor:
    """Read how many decisions the episode still has, the present one included, as float32 `[M]`.

    Where events end decisions they are of full length, and the last of them may be over in part.
    """
    left = observation[:, TIME_LEFT] * task.horizon
    return torch.ceil(left - _SMALL) if task.decides_at_events else torch.round(left)


def elapsed_since(task: Any, observation: torch.Tensor) -> torch.Tensor:
    """Read the time since the episode began as float32 `[M]`: decisions, of full length where events end them."""
    if task.decides_at_events:
        return (1.0 - observation[:, TIME_LEFT]) * task.horizon
    return task.horizon - decisions_left(task, observation)


def mid_changes(observation: torch.Tensor) -> torch.Tensor:
    """Read the changes of the mid in the last 4 decisions, ticks, newest first; `[M, 4]`."""
    return unsquash(observation[:, MID_CHANGES], 8.0) / 2.0


def recent_volumes(observation: torch.Tensor) -> torch.Tensor:
    """Read the volumes of the last 4 decisions, units, newest first; `[M, 4]`."""
    return unsquash(observation[:, VOLUMES], 32.0)


def whole_units(rate: torch.Tensor, elapsed: torch.Tensor) -> torch.Tensor:
    """Round units per decision so that a steady rate is met exactly over time, with no memory but the time `[M]`."""
    return torch.floor(rate * (elapsed + 1) + _SMALL) - torch.floor(rate * elapsed + _SMALL)


def towards(
    task: Any, observation: torch.Tensor, signal: torch.Tensor, threshold: float, position: int
) -> torch.Tensor:
    """Return the units, `[M]`, that lack to `position` on the signal's side where it is beyond a threshold.

    What is held is kept elsewhere, but given up where the signal has turned against it.
    """
    held = torch.round(inventory_in(task, observation))
    keep = torch.where(signal * held < 0, 0.0, held)
    return torch.where(signal.abs() > threshold, torch.sign(signal) * position, keep) - held


def levels_of(task: Any, observation: torch.Tensor) -> torch.Tensor:
    """Return the numbers of a ladder's levels, from 0 on, float `[N]`."""
    return torch.arange(task.orders_per_side, device=observation.device, dtype=observation.dtype)


def filled(like: torch.Tensor, value: Any) -> torch.Tensor:
    """Return a tensor like another, of one number, or of one for each of its elements."""
    return torch.zeros_like(like) + value


def between(values: torch.Tensor, low: Any, high: Any) -> torch.Tensor:
    """Return values cut to bounds, which may be one for each."""
    return torch.minimum(torch.maximum(values, filled(values, low)), filled(values, high))


# Writing --------------------------------------------------------------------------------------------------------------


def quote_action(
    task: Any, bid_offset: torch.Tensor, ask_offset: torch.Tensor, bid_qty: torch.Tensor, ask_qty: torch.Tensor
) -> torch.Tensor:
    """Return the action that quotes these offsets (ticks from the mid) and quantities, each `[M]`, cut to the space."""
    check_task(task)

    def fits(part: torch.Tensor) -> bool:
        return part.dim() == 1 and part.shape == bid_offset.shape and part.device == bid_offset.device

    given = {"bid_offset": bid_offset, "ask_offset": ask_offset, "bid_qty": bid_qty, "ask_qty": ask_qty}
    for name, part in given.items():
        check_tensor(name, part, "a tensor float32 [M], M and the device the same for all four", fits, FLOATS)
    return maker_action(task, bid_offset, ask_offset, bid_qty, ask_qty)


def maker_action(
    task: Any, bid_offset: torch.Tensor, ask_offset: torch.Tensor, bid_qty: torch.Tensor, ask_qty: torch.Tensor
) -> torch.Tensor:
    """Return the maker's action for offsets and quantities that are checked, each `[M]`, cut to the space."""
    return _written(_quotes(task, bid_offset, ask_offset, bid_qty, ask_qty), task.action_form("maker"))


def ladder_action(
    task: Any, bid_offset: torch.Tensor, ask_offset: torch.Tensor, bid_qty: torch.Tensor, ask_qty: torch.Tensor
) -> torch.Tensor:
    """Return the same for offsets and quantities of each level, `[M, N]` together, N the levels of the task's ladders.

    Of those with fewer axes or elements all levels, or all markets, have the same.
    """
    parts = torch.broadcast_tensors(bid_offset, ask_offset, bid_qty, ask_qty)
    levels = _quotes(task, *(part.T for part in parts))  # settings that differ are [M]: the last axis
    return _written(levels, action_form("maker", task.keep)).transpose(0, 1).flatten(1)


def _quotes(
    task: Any, bid_offset: torch.Tensor, ask_offset: torch.Tensor, bid_qty: torch.Tensor, ask_qty: torch.Tensor
) -> torch.Tensor:
    offsets = torch.stack([bid_offset, ask_offset], dim=-1) * (2.0 / task.max_offset) - 1.0
    per_unit = 2.0 / task.max_qty
    sizes = torch.stack([bid_qty * per_unit, ask_qty * per_unit], dim=-1) - 1.0
    return torch.cat([offsets, sizes], dim=-1)


def order_action(task: Any, ticks: torch.Tensor, qty: torch.Tensor) -> torch.Tensor:
    """Return the executor's action: an order `ticks` through the mid, of `qty` units, each `[M]`, cut to the space."""
    order = torch.stack([ticks / task.max_offset, qty * (2.0 / task.max_qty) - 1.0], dim=1)
    return _written(order, task.action_form("executor"))


def trade_action(task: Any, units: torch.Tensor, ticks: torch.Tensor) -> torch.Tensor:
    """Return the trader's action: an order of signed `units`, `ticks` through the mid, each `[M]`, cut to the space."""
    return _written(torch.stack([units / task.max_qty, ticks / task.max_offset], dim=1), task.action_form("trader"))


def _written(quotes: torch.Tensor, form: ActionForm) -> torch.Tensor:
    """Return numbers that say what to quote, cut to the space, as an action that keeps nothing.

    In a ladder they are level 0's; the levels behind it quote nothing.
    """
    cut = quotes.clamp(-1.0, 1.0).to(torch.float32)
    if form.keeps:
        cut = torch.nn.functional.pad(cut, (0, form.keeps), value=-1.0)
    behind = form.size - form.of_level
    return torch.nn.functional.pad(cut, (0, behind), value=form.empty) if behind else cut


# Discrete actions -----------------------------------------------------------------------------------------------------


class Discretised:
    """Plays a policy of continuous actions in an environment with `action_type="discrete"`: the nearest choice.

    Quantities are rounded to the nearest choice (none, half or all of `max_qty`, or none or all), ties up; then prices
    to the nearest offset, ties towards the mid. Exact where the policy quotes one of the choices. A policy that follows
    a schedule of few units per decision orders nothing until they add up to a choice. What an action keeps, the choice
    keeps. Of a ladder the choice is that of level 0, behind which the others stand tick by tick.
    """

    def __init__(self, policy: Policy, task: Any, role: str | None = None) -> None:
        """Wrap a policy.

        Args:
            policy: Returns continuous actions of the role.
            task: The task of the environment.
            role: `"maker"`, `"executor"`, `"trader"`, `"fundamental"`, `"momentum"` or `"noise"`; the task's own if
                None.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
        """
        check_callable("policy", policy, "a policy: a function of observations that returns actions")
        check_task(task)
        self._form = form = task.action_form(check_choice("role", task.role if role is None else role, SPECS))
        choose = {"quotes": self._quotes, "order": self._order, "trade": self._trade}
        self.policy, self.task, self._choose = policy, task, choose[form.name]

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the choices, int64 `[M]`."""
        seen = check_observation(observation)
        allowed = f"a policy that returns float32 [M, {self._form.size}]"
        action = check_tensor("policy", self.policy(seen), allowed, self._fits, FLOATS)[:, : self._form.of_level]
        choice = self._choose(action, self.task.seen_in(seen).max_qty)
        if self._form.keeps == 1:
            return torch.where(action[:, -1] > 0.0, self._form.num_choices - 1, choice)
        return choice

    def _fits(self, action: torch.Tensor) -> bool:
        return action.dim() == 2 and action.shape[1] == self._form.size

    def _quotes(self, action: torch.Tensor, largest: Any) -> torch.Tensor:
        offset = torch.round((action[:, :2] + 1.0) * 0.5 * self.task.max_offset)
        shown = action[:, 2:4] >= 0.0  # half of max_qty or more
        choice = torch.where(shown, 1 + _nearest(offset, MAKER_OFFSETS), 0)
        per_side = 1 + len(MAKER_OFFSETS)
        if self._form.keeps:
            choice = torch.where(action[:, 4:] > 0.0, per_side, choice)
            per_side += 1
        return per_side * choice[:, 0] + choice[:, 1]

    def _order(self, action: torch.Tensor, largest: Any) -> torch.Tensor:
        wanted = torch.round((action[:, 1] + 1.0) * 0.5 * largest)
        sizes = torch.stack([filled(wanted, size) for size in (0, (largest + 1) // 2, largest)], dim=1)
        size = _nearest(wanted, sizes, up=True)
        offset = _nearest(torch.round(action[:, 0] * self.task.max_offset), ORDER_OFFSETS)
        return torch.where(size > 0, 1 + 2 * offset + (size - 1), 0)

    def _trade(self, action: torch.Tensor, largest: Any) -> torch.Tensor:
        offset = _nearest(torch.round(action[:, 1] * self.task.max_offset), ORDER_OFFSETS)
        choice = torch.where(action[:, 0] > 0, 1 + offset, 8 + offset)
        return torch.where(action[:, 0].abs() >= 0.5, choice, 0)


def _nearest(values: torch.Tensor, choices: Any, up: bool = False) -> torch.Tensor:
    """Return the index of the nearest of n choices, or of float `[..., n]`, for each value its own; int64.

    Ties go to the smaller in size, or with `up` to the larger.
    """
    table = torch.as_tensor(choices, dtype=torch.float32, device=values.device).expand(*values.shape, -1)
    order = torch.argsort(table.abs(), dim=-1, descending=up, stable=True)
    distance = (values.unsqueeze(-1) - table.gather(-1, order)).abs()
    return order.gather(-1, distance.argmin(-1, keepdim=True)).squeeze(-1)  # the first of equals
