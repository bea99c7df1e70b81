"""Settings of a task that differ: from market to market, from learner to learner, and from episode to episode.

The engines read them from rows, one for each slot (`enum TaskValue` of cuda/model/layout.h); a reset copies what the
episode's scenario draws into the rows of its market. Where nothing differs there are no rows, and nothing reads any.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kineticsim_env.runtime import layout
from kineticsim_env.runtime.roles import SPECS
from kineticsim_env.runtime.saved_states import digest
from kineticsim_env.tasks.base import MAY_DIFFER, OF_MARKETS, WHOLE, forced_auctions_of

_PLACE = layout.ENUMS["TaskValue"]


class TaskValues:
    """The settings of every slot of an environment, and what its scenarios draw.

    Attributes:
        task: The task; of a setting that differs, with the largest in size.
        names: Settings that differ, in the order of `enum TaskValue`; observations have a column for each.
        drawn: Of these, what scenarios draw, float64 `[C]` by name.
        rows: Settings of all slots, float64 `[M, K, 11]`; None where nothing differs.
        table: What each scenario draws, float64 `[C, K, 11]`, NaN elsewhere; None where they draw nothing.
        scale: What columns are divided by, 11 numbers, 0 where there is no column.
    """

    def __init__(
        self,
        task: Any,
        roles: Sequence[str],
        markets: int,
        drawn: Mapping[str, np.ndarray],
        like: TaskValues | None = None,
        others: Any = None,
    ) -> None:
        """Give the slots of these roles, in M markets, their settings, some of which the task may have as arrays.

        `drawn` are those that scenarios draw, float64 `[C]` by name; `like` is what the environment was made with,
        whose columns and scales stay; `others` is a task that has what opponents' roles need and the learner's task
        lacks.
        """
        for name in drawn:
            if name in task.each:
                raise ValueError(f"{name}: expected one number where randomise has 'task.{name}', got an array")
            task.replace(**{name: _as_given(drawn[name].min())})  # the smallest, too, has to go with the others
        largest = {name: _as_given(values[np.abs(values).argmax()]) for name, values in drawn.items()}
        self.task = task.replace(**(largest if like is None else {name: getattr(like.task, name) for name in drawn}))
        self.drawn, self._others = dict(drawn), others
        self.names = tuple(name for name in MAY_DIFFER if name in task.each or name in drawn)
        self._check_columns(like)
        self.names = self.names if like is None else like.names
        self.rows: np.ndarray | None = None
        self.table: np.ndarray | None = None
        self.scale = [0.0] * len(_PLACE)
        if self.names or getattr(task, "initial_inventory", 0):
            self._fill_rows(tuple(roles), markets)
            self._check_sizes()
            for name in self.names:
                self.scale[_PLACE[name]] = self._largest(name) or 1.0
        if like is not None:
            self._keep_scale(like)

    def of_rows(self, rows: np.ndarray | slice) -> TaskValues:
        """Return the settings of these markets, int64 `[n]`, shown as they are here."""
        made = copy.copy(self)
        if self.rows is not None:
            made.task, made.rows = self.task._of_rows(rows, len(self.rows)), self.rows[rows]
        return made

    def _fill_rows(self, roles: tuple[str, ...], markets: int) -> None:
        self.rows = np.zeros((markets, len(roles), len(_PLACE)))
        self.rows[..., _PLACE["forced_auctions"]] = self._auctions_to_unwind(roles)
        for name in MAY_DIFFER:
            given = self.task.each.get(name, self._setting(name))
            if isinstance(given, np.ndarray):
                given = _in_rows(name, given, self.rows.shape[:2], many=self.task.role is None)
            self._put(self.rows, name, 0 if given is None else given, roles)
        if self.drawn:
            scenarios = len(next(iter(self.drawn.values())))
            self.table = np.full((scenarios, *self.rows.shape[1:]), math.nan)
            for name, values in self.drawn.items():
                self._put(self.table, name, values[:, None], roles)
            self.rows = np.where(np.isnan(self.table[:1]), self.rows, self.table[:1])

    def _put(self, rows: np.ndarray, name: str, values: Any, roles: tuple[str, ...]) -> None:
        """Write a setting into rows `[n, K, 11]`, and what follows from it."""
        if name == "initial_inventory":
            values = values * np.array([SPECS[role].for_profit for role in roles])
        rows[..., _PLACE[name]] = values + 0.0  # -0.0 becomes 0.0: a GPU's division of features does not keep its sign
        executors = [slot for slot, role in enumerate(roles) if SPECS[role].has_block]
        if name == "block_qty" and executors:
            largest = rows[:, executors, _PLACE[name]].max(axis=1, keepdims=True)
            most = forced_auctions_of(largest, self._setting("forced_qty"))
            rows[..., _PLACE["forced_auctions"]] = np.maximum(most, self._auctions_to_unwind(roles))

    def _auctions_to_unwind(self, roles: tuple[str, ...]) -> int:
        return self.task.auctions_to_unwind if any(SPECS[role].for_profit for role in roles) else 0

    def _setting(self, name: str) -> Any:
        return getattr(self.task, name, getattr(self._others, name, 0))

    def _largest(self, name: str) -> float:
        """Return the largest size of a setting, of slots and of scenarios."""
        tables = [table[..., _PLACE[name]] for table in (self.rows, self.table) if table is not None]
        return max(float(np.nanmax(np.abs(values), initial=0.0)) for values in tables)

    def _check_sizes(self) -> None:
        """Refuse an episode that would begin beyond its limit, in whatever market and of whatever scenario."""
        if getattr(self.task, "inventory_limit", None) is None:
            return
        inventory, limit = (self._possible(name) for name in ("initial_inventory", "inventory_limit"))
        if ("initial_inventory" in self.drawn) != ("inventory_limit" in self.drawn):  # any scenario, in any market
            inventory, limit = np.abs(inventory).max(0), limit.min(0)
        beyond = np.abs(inventory) > limit
        if beyond.any():
            most, least = np.abs(inventory)[beyond][0], limit[beyond][0]
            raise ValueError(f"initial_inventory: expected up to inventory_limit = {least:g} in size, got {most:g}")

    def _possible(self, name: str) -> np.ndarray:
        """Return the values of a setting, of scenarios or of markets, `[n, K]`."""
        table = self.table if name in self.drawn else self.rows
        assert table is not None
        return table[..., _PLACE[name]]

    def _check_columns(self, like: TaskValues | None) -> None:
        """Refuse settings that differ, but did not when the environment was made: observations have no column."""
        if like is None:
            return
        if set(self.drawn) != set(like.drawn):
            found, allowed = ([f"task.{name}" for name in drawn] for drawn in (self.drawn, like.drawn))
            raise ValueError(f"randomise: expected the task's settings of before, {allowed}, got {found}")
        for name in self.names:
            if name not in like.names:
                raise ValueError(
                    f"{name}: expected one number, as when the environment was made, got an array: observations have "
                    "no column for it"
                )

    def _keep_scale(self, like: TaskValues) -> None:
        for name in self.names:
            largest, most = self.scale[_PLACE[name]], like.scale[_PLACE[name]]
            if largest > most:
                raise ValueError(
                    f"{name}: expected up to {most:g} in size, the largest that the environment was made with, as "
                    f"observations are scaled by it, got {largest:g}"
                )
        self.scale = like.scale

    def columns(self, begin: int) -> dict[str, tuple[int, float]]:
        """Return where observations show settings that differ, and their scales; the first column is `begin`."""
        return {name: (begin + place, self.scale[_PLACE[name]]) for place, name in enumerate(self.names)}

    def about(self) -> dict[str, Any]:
        """Return what a state is of: a digest of what was given as arrays, and the names of what scenarios draw."""
        found = {name: digest(self.task.each[name]) for name in self.names if name in self.task.each}
        return found | ({"drawn": list(self.drawn)} if self.drawn else {})

    def bounds(self, name: str) -> tuple[float, float]:
        """Return the range of a setting that differs."""
        most = self.scale[_PLACE[name]]
        return (-most if name == "initial_inventory" else 1.0 if name in WHOLE else 0.0), most


def _as_given(value: np.float64) -> Any:
    """Return a number as the task takes it."""
    return int(value) if value.is_integer() else float(value)


def _in_rows(name: str, array: np.ndarray, shape: tuple[int, int], *, many: bool) -> np.ndarray:
    """Return an array of each market or learner as `[M, K]`, `[M, 1]` or `[1, K]`; `many`: of perhaps many learners."""
    markets, slots = shape
    if array.ndim == 1:
        array = array[None] if many and name not in OF_MARKETS else array[:, None]
    fits = array.shape[0] in (1, markets) and array.shape[1] in (1, slots)
    if not fits or (name in OF_MARKETS and array.shape[1] != 1):
        of_market = f"[{markets}] or [{markets}, 1]"
        allowed = of_market if name in OF_MARKETS or not many else f"[{slots}], [{markets}, 1] or [{markets}, {slots}]"
        raise ValueError(f"{name}: expected numbers {allowed}, markets before learners, got {list(array.shape)}")
    return array
