"""What scripted policies share: reading observations back into units and ticks, and writing actions.

Places and scales are those of docs/environment.md. All functions work row by row on tensors of any device.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

from kineticsim_env.tasks.base import MARKET_FEATURES

MID_CHANGES, VOLUMES = slice(22, 26), slice(26, 30)  # places in the observation, newest first
OWN = MARKET_FEATURES  # of the slot's own features the first: inventory, or what remains of a block
TIME_LEFT, SIDE = OWN + 2, OWN + 3  # time; side of an executor's block
MAKER_OFFSETS = (1, 2, 3, 4, 6, 8)  # of discrete actions, as in cuda/tasks.h
ORDER_OFFSETS = (-6, -3, -1, 0, 1, 3, 6)


class Policy(Protocol):
    """Anything that maps observations `[M, F]` to actions `[M, A]`, continuous ones unless it says otherwise."""

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the actions for a batch of observations."""
        ...


class UniformActions:
    """Draws every component of its actions uniformly."""

    size = 2  # components of an action

    def __init__(self, task: Any, seed: int = 0) -> None:
        """Seed the policy's own generator, which lives on the CPU so that every device sees the same draws."""
        self.task = task
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """See `Policy`."""
        draws = torch.rand((len(observation), self.size), generator=self._generator)
        return (draws * 2.0 - 1.0).to(observation.device)


# Reading --------------------------------------------------------------------------------------------------------------


def unsquash(feature: torch.Tensor, scale: float) -> torch.Tensor:
    """Return x of a feature `x / (|x| + scale)`."""
    return feature * scale / (1.0 - feature.abs()).clamp(min=1e-7)


def inventory_of(task: Any, observation: torch.Tensor) -> torch.Tensor:
    """Read a maker's, momentum learner's or trader's inventory, in units, back from observations; `[M]`."""
    share = observation[:, OWN]
    if task.inventory_limit is not None:
        return share * task.inventory_limit
    return share * 8 * task.max_qty / (1.0 - share.abs())  # the inverse of squash


def remaining_of(task: Any, observation: torch.Tensor) -> torch.Tensor:
    """Read what remains of an executor's block, whole units as float32 `[M]`."""
    return torch.round(observation[:, OWN].abs() * task.block_qty)


def decisions_left(task: Any, observation: torch.Tensor) -> torch.Tensor:
    """Read how many decisions the episode still has, the present one included, as float32 `[M]`."""
    return torch.round(observation[:, TIME_LEFT] * task.horizon)


def mid_changes(observation: torch.Tensor) -> torch.Tensor:
    """Read the changes of the mid in the last 4 decisions, ticks, newest first; `[M, 4]`."""
    return unsquash(observation[:, MID_CHANGES], 8.0) / 2.0


def recent_volumes(observation: torch.Tensor) -> torch.Tensor:
    """Read the volumes of the last 4 decisions, units, newest first; `[M, 4]`."""
    return unsquash(observation[:, VOLUMES], 32.0)


def whole_units(rate: torch.Tensor, elapsed: torch.Tensor) -> torch.Tensor:
    """Round units a decision so that a steady rate is met exactly over time, with no memory but the time `[M]`."""
    small = 1e-4  # what float32 features may lack to a whole number
    return torch.floor(rate * (elapsed + 1) + small) - torch.floor(rate * elapsed + small)


# Writing --------------------------------------------------------------------------------------------------------------


def quote_action(
    task: Any,
    bid_offset: torch.Tensor,
    ask_offset: torch.Tensor,
    bid_qty: torch.Tensor,
    ask_qty: torch.Tensor,
) -> torch.Tensor:
    """Return the action that quotes these offsets (ticks from the mid) and quantities, each `[M]`, cut to the space."""
    offsets = torch.stack([bid_offset, ask_offset], dim=1) * (2.0 / task.max_offset) - 1.0
    sizes = torch.stack([bid_qty, ask_qty], dim=1) * (2.0 / task.max_qty) - 1.0
    return torch.cat([offsets, sizes], dim=1).clamp(-1.0, 1.0).to(torch.float32)


def order_action(task: Any, ticks: torch.Tensor, qty: torch.Tensor) -> torch.Tensor:
    """Return the executor's action: an order `ticks` through the mid, of `qty` units, each `[M]`, cut to the space."""
    action = torch.stack([ticks / task.max_offset, qty * (2.0 / task.max_qty) - 1.0], dim=1)
    return action.clamp(-1.0, 1.0).to(torch.float32)


def trade_action(task: Any, units: torch.Tensor, ticks: torch.Tensor) -> torch.Tensor:
    """Return the trader's action: an order of signed `units`, `ticks` through the mid, each `[M]`, cut to the space."""
    action = torch.stack([units / task.max_qty, ticks / task.max_offset], dim=1)
    return action.clamp(-1.0, 1.0).to(torch.float32)


# Discrete actions -----------------------------------------------------------------------------------------------------


class Discretised:
    """Plays a policy of continuous actions in an environment with `action_type="discrete"`: the nearest choice.

    Quantities go to the nearest that there is (none, half and all of `max_qty`, or none and all), a half of the way up;
    then prices to the nearest offset, the one nearer to the mid if two are as near. Exact where the policy
    quotes what there is; a policy that wants few units a decision holds until they add up, if it follows a schedule.
    """

    def __init__(self, policy: Policy, task: Any, role: str | None = None) -> None:
        """Wrap a policy.

        Args:
            policy: Returns continuous actions of the role.
            task: The task of the environment.
            role: `"maker"`, `"executor"`, `"trader"`, `"momentum"` or `"noise"`; the task's own if None.

        Raises:
            ValueError: If the role is unknown.
        """
        kinds = {"maker": self._maker, "trader": self._trader}
        kinds |= dict.fromkeys(("executor", "momentum", "noise"), self._order)
        role = task.role if role is None else role
        if role not in kinds:
            raise ValueError(f"role: got {role!r}, allowed are {', '.join(map(repr, kinds))}")
        self.policy, self.task, self._choose = policy, task, kinds[role]

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the choices, int64 `[M]`."""
        return self._choose(self.policy(observation))

    def _maker(self, action: torch.Tensor) -> torch.Tensor:
        offset = torch.round((action[:, :2] + 1.0) * 0.5 * self.task.max_offset)
        shown = action[:, 2:] >= 0.0  # half of max_qty or more
        choice = torch.where(shown, 1 + _nearest(offset, MAKER_OFFSETS), 0)
        return 7 * choice[:, 0] + choice[:, 1]

    def _order(self, action: torch.Tensor) -> torch.Tensor:
        largest = self.task.max_qty
        sizes = (0, (largest + 1) // 2, largest)
        size = _nearest(torch.round((action[:, 1] + 1.0) * 0.5 * largest), sizes, up=True)
        offset = _nearest(torch.round(action[:, 0] * self.task.max_offset), ORDER_OFFSETS)
        return torch.where(size > 0, 1 + 2 * offset + (size - 1), 0)

    def _trader(self, action: torch.Tensor) -> torch.Tensor:
        offset = _nearest(torch.round(action[:, 1] * self.task.max_offset), ORDER_OFFSETS)
        choice = torch.where(action[:, 0] > 0, 1 + offset, 8 + offset)
        return torch.where(action[:, 0].abs() >= 0.5, choice, 0)


def _nearest(values: torch.Tensor, choices: tuple[int, ...], up: bool = False) -> torch.Tensor:
    """Return the index of the nearest choice, int64; of two as near the smaller in size, or with `up` the larger."""
    table = torch.tensor(choices, dtype=torch.float32, device=values.device)
    order = torch.argsort(table.abs(), descending=up, stable=True)
    distance = (values.unsqueeze(-1) - table[order]).abs()
    return order[distance.argmin(-1)]  # the first of equals
