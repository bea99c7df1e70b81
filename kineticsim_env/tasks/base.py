"""`Task`: what all tasks share: checked settings, the spaces of each role, and the numbers that the engines read.

A task is a frozen dataclass; environments take its fields as keyword arguments, and `to_params` turns it into `struct
TaskParams` of `cuda/model/layout.h`. What the numbers do, to the bit: `docs/environment.md`.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from gymnasium import spaces

from kineticsim_env.config import MAX_QUOTE_QTY, MarketConfig, check_kind
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.places import taken_by
from kineticsim_env.runtime.roles import ROLES, SPECS, ActionForm, action_form
from kineticsim_env.runtime.values import (
    as_float,
    check_array,
    check_choice,
    check_flag,
    check_instance,
    is_one_of,
    show,
)

# Settings that may differ from market to market, from learner to learner and from episode to episode.
MAY_DIFFER = tuple(name for name in layout.ENUMS["TaskValue"] if name != "forced_auctions")
# What environments may add to observations, in the order of `enum Extra`: least values.
EXTRAS = {"fundamental": -1.0, "decision_events": 0.0, **dict.fromkeys(MAY_DIFFER, 0.0), "initial_inventory": -1.0}
assert tuple(EXTRAS) == tuple(layout.ENUMS["Extra"])
MARKET_FEATURES = layout.CONSTANTS["kMarketFeatures"]  # of every observation; the learner's own follow

_ENUMS = {"action_type": "ActionType", "reward": "Reward", "execution_reward": "ExecutionReward", "mark": "Mark"}
CHOICES = {name: tuple(layout.ENUMS[enum]) for name, enum in (_ENUMS | {"side": "Side", "decide": "Decide"}).items()}
CHOICES["at_end"] = ("truncate", "unwind")
_INTEGERS = {
    "horizon": (1, 2**31 - 1),
    "max_offset": (1, 8191),
    "max_qty": (1, MAX_QUOTE_QTY),
    "inventory_limit": (1, 1 << 30),
    "initial_inventory": (-MAX_QUOTE_QTY, MAX_QUOTE_QTY),
    "max_target": (1, 65535),
    "block_qty": (1, MAX_QUOTE_QTY),
    "forced_qty": (1, MAX_QUOTE_QTY),
    "warmup": (0, 10**6),
    "bank_size": (0, 1 << 16),
    "bank_per_market": (1, 1 << 10),
    "warm_seed": (-(2**63), 2**63 - 2**41),
}
_NUMBERS = {  # name: whether zero is allowed
    "inventory_penalty": True,
    "dampening": True,
    "idle_penalty": True,
    "risk_aversion": True,
    "reward_scale": False,
    "max_loss": False,
    "leftover_penalty": True,
}
_OPTIONAL = ("inventory_limit", "max_loss")
MOST_UNWOUND = 1024  # units of an inventory that auctions are made for
WHOLE = tuple(name for name in MAY_DIFFER if name in _INTEGERS)
OF_MARKETS = ("horizon", "inventory_limit")  # of these, those that all learners of a market have alike
# Settings that may change while an environment runs: spaces, warm starts and episode lengths do not depend on them.
CHANGEABLE = ("reward", "execution_reward", "mark", *_NUMBERS)


def observation_size(role: str, queues: bool, extras: Sequence[str] = (), orders_per_side: int = 1) -> int:
    """Return how many numbers a role sees: all of a row where it ends with places in queues or with extra columns."""
    if not (queues or extras):
        return SPECS[role].observation_size
    return layout.observation_length(queues, len(extras), orders_per_side)


@dataclasses.dataclass(frozen=True)
class Task:
    """Settings of every task; `MarketMakingTask`, `ExecutionTask`, `TradingTask` and `ManyLearnersTask` extend it.

    Attributes:
        keep: Whether actions may keep what stands of the learner's quotes, under continuous trading.
        decide: What ends a decision: `"interval"`, or sooner, in a continuous market, the next event in which a slot is
            filled (`"fill"`), or which moves the best bid or ask of the built-in book (`"touch"`). Then the market's
            interval is one event, and `horizon` counts decisions of full length.
        each: Settings that were given as arrays, float64, by name; the field itself is then the largest in size.
        columns: Of settings that differ, where observations show them, and what that is scaled by.
        orders_per_side: Levels of each learner's ladder, the market's; 1 unless the task is an environment's, or was
            made for a market by `of_market`.
    """

    role: ClassVar[str | None] = None  # of the one learner, None where there are many
    replaceable: ClassVar[str | None] = None  # the class of built-in agent whose place the learner may take

    horizon: int = 300
    action_type: str = "continuous"
    max_offset: int = 10
    max_qty: int = 8
    reward_scale: float = 10.0
    warmup: int = 100
    bank_size: int = 256
    bank_per_market: int = 4
    warm_seed: int = 2**61
    keep: bool = False
    decide: str = "interval"
    each: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict, init=False, repr=False, compare=False)
    columns: Mapping[str, tuple[int, float]] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    orders_per_side: int = dataclasses.field(default=1, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check every field; raise `TypeError` or `ValueError` naming the field, the value and what is allowed."""
        each = {}
        for name in settings_of(type(self)):
            value = getattr(self, name)
            if name in MAY_DIFFER and _is_array(value):
                each[name] = self._checked_array(name, value)
                value = each[name].flat[np.abs(each[name]).argmax()].item()
                value = int(value) if name in _INTEGERS else value
            object.__setattr__(self, name, self._checked(name, value))
        object.__setattr__(self, "each", each)

    def replace(self, **changes: Any) -> Self:
        """Return a task with some settings changed; those that differ go on to do so."""
        made = dataclasses.replace(self, **{**self.each, **changes})
        object.__setattr__(made, "orders_per_side", self.orders_per_side)
        return made

    def of_market(self, config: MarketConfig) -> Self:
        """Return the same task as environments of a market have it: its actions and spaces are those of its ladders.

        Raises:
            TypeError: Naming what came and what is allowed.
        """
        clone = copy.copy(self)
        levels = check_instance("config", config, MarketConfig).orders_per_side
        object.__setattr__(clone, "orders_per_side", levels)
        return clone

    def _of_rows(self, rows: np.ndarray | slice, markets: int) -> Self:
        """Return the same task of some of so many markets, by their numbers, int64 `[n]`."""
        made, own = copy.copy(self), dict(self.each)
        for name, array in own.items():
            of_slots = array.ndim == 1 and self.role is None and name not in OF_MARKETS
            if len(array) == markets and not of_slots:
                own[name] = array[rows]
        object.__setattr__(made, "each", own)
        return made

    def _with_columns(self, columns: Mapping[str, tuple[int, float]]) -> Self:
        """Return the same task, of an environment whose observations show some settings in these columns."""
        clone = copy.copy(self)
        object.__setattr__(clone, "columns", columns)
        return clone

    def seen_in(self, observation: Any) -> Self:
        """Return the task as observations `[M, F]` show it: settings that differ as tensors `[M]`."""
        clone = copy.copy(self) if self.columns else self
        for name, (place, scale) in self.columns.items():
            value = observation[:, place] * scale
            object.__setattr__(clone, name, value.round() if name in WHOLE else value)
        return clone

    def market_config(self, config: MarketConfig) -> MarketConfig:
        """Return the config with the task's limits on slots.

        Raises:
            TypeError, ValueError: Naming what came and what is allowed: only in a continuous market quotes are kept.
        """
        check_instance("config", config, MarketConfig)
        if self.keep and not config.is_continuous:
            raise ValueError(f"keep: expected False with mechanism={config.mechanism!r}, got True")
        if self.decides_at_events:
            if not config.is_continuous:
                raise ValueError(
                    f"decide: expected 'interval' with mechanism={config.mechanism!r}, got {self.decide!r}"
                )
            if config.interval_ms is not None:
                raise ValueError(f"decide: expected 'interval' with interval_ms, got {self.decide!r}")
            config = config.replace(interval=1)
        limit = config.inventory_limit
        if limit is None:
            limit = getattr(self, "inventory_limit", None)
            if "inventory_limit" in self.each:
                limit = self.each["inventory_limit"].astype(np.int64).ravel()
        elif "inventory_limit" in self.each:
            raise ValueError("inventory_limit: expected one number with a config that has a limit, got an array")
        largest = np.minimum(np.asarray(config.max_quote_qty), self.max_qty)
        return config.replace(inventory_limit=limit, max_quote_qty=largest)

    def to_params(
        self,
        roles: Sequence[str],
        *,
        autoreset: int,
        stagger: bool,
        bank_size: int,
        bank_owner: int,
        scenarios: int,
        extras: Sequence[str] = (),
        value_scale: Sequence[float] = (),
        longest: int = 1,
        learners: int = 0,
        unwind: int = 0,
    ) -> dict[str, object]:
        """Return the values of `struct TaskParams` by name.

        Args:
            roles: Of each slot, one of `ROLES`.
            autoreset: Of `enum Autoreset`.
            stagger: Whether first episodes start at a hashed elapsed time.
            bank_size: Warm starts that a market draws from.
            bank_owner: Whose they are, of `enum BankOwner`.
            scenarios: How many there are, 0 for none.
            extras: The columns of `EXTRAS` that observations have.
            value_scale: Of each of `enum TaskValue`, what its column is divided by; empty without such columns.
            longest: The most events of a decision, where these end decisions.
            learners: Slots with whose episodes a market's ends, 0 for all.
            unwind: Slots, from the first on, that unwind at the horizon where the task and their roles say so.
        """
        params: dict[str, Any] = {name: getattr(self, name, 0) for name in layout.TASK_FIELDS}
        choices = self._choices()
        params["initial_inventory"] = 0  # rows of settings that differ have it
        params |= {name: choices[name].index(params[name]) for name in choices if isinstance(params.get(name), str)}
        numbers = [layout.ENUMS["Role"][role] for role in roles]
        return params | {
            "max_loss": params["max_loss"] or 0.0,
            "block_side": layout.ENUMS["Side"][getattr(self, "side", "random")],
            "forced_auctions": max(
                self.auctions_of_blocks if any(SPECS[role].has_block for role in roles) else 0,
                self.auctions_to_unwind if any(SPECS[role].for_profit for role in roles) else 0,
            ),
            "unwinds": unwind if self.auctions_to_unwind else 0,
            "autoreset": autoreset,
            "stagger": int(stagger),
            "keep": int(self.keep),
            "horizon": self.horizon * longest,
            "longest": longest,
            "learners": learners,
            "bank_size": bank_size,
            "bank_owner": bank_owner,
            "scenarios": scenarios,
            "value_scale": list(value_scale) or [0.0] * len(layout.ENUMS["TaskValue"]),
            "extras": sum(1 << layout.ENUMS["Extra"][name] for name in extras),
            "role": numbers + [0] * (layout.CONSTANTS["kMaxSlots"] - len(numbers)),
        }

    @property
    def decides_at_events(self) -> bool:
        """Whether events end decisions, see `decide`."""
        return self.decide != "interval"

    @property
    def forced_auctions(self) -> int:
        """Auctions after the last decision's that an episode may take at most."""
        return max(self.auctions_of_blocks, self.auctions_to_unwind)

    @property
    def auctions_of_blocks(self) -> int:
        """Auctions in which what is left of a block may be executed, see `ExecutionTask`; 0 without blocks."""
        return 0

    @property
    def auctions_to_unwind(self) -> int:
        """Auctions in which slots may unwind, see `MarketMakingTask`; 0 if they do not."""
        return 0

    def action_form(self, role: str) -> ActionForm:
        """Return what an action of a role says, a `kineticsim_env.runtime.roles.ActionForm`."""
        return action_form(check_choice("role", role, ROLES), self.keep, self.orders_per_side)

    def num_choices(self, role: str) -> int:
        """Return how many discrete actions a role has, 0 if its actions are continuous."""
        form = self.action_form(role)
        return 0 if self.action_type == "continuous" else form.num_choices

    def action_space(self, role: str) -> spaces.Box | spaces.Discrete:
        """Return a new action space for a role: float32 `[4]` for a maker, `[2]` for the others, or discrete.

        With `keep` it is `[6]` for a maker and `[3]` for the others, and with ladders so many for each level.
        """
        choices = self.num_choices(role)
        if choices:
            return spaces.Discrete(choices)
        return spaces.Box(-1.0, 1.0, (self.action_form(role).size,), np.float32)

    def observation_space(self, role: str, queues: bool = False, extras: Sequence[str] = ()) -> spaces.Box:
        """Return a new observation space for a role.

        It is float32 `[37]` for a maker, an executor or a fundamental learner, `[36]` for others.

        Args:
            role: One of `ROLES`.
            queues: Whether trading is continuous, so that quotes have places in queues: `[39]` for all roles, and 6
                more for each further level of a ladder.
            extras: Names of `EXTRAS`, in its order: a column for each, behind all these for all roles.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
        """
        if not isinstance(extras, (tuple, list)):
            raise TypeError(f"extras: expected a tuple of {', '.join(map(repr, EXTRAS))}, got {show(extras)}")
        if list(extras) != [name for name in EXTRAS if any(is_one_of(extra, (name,)) for extra in extras)]:
            raise ValueError(
                f"extras: expected some of {', '.join(EXTRAS)}, each once and in this order, got {show(extras)}"
            )
        role, queues = check_choice("role", role, ROLES), check_flag("queues", queues)
        size = observation_size(role, queues, extras, self.orders_per_side)
        low = np.full(size, -1.0, np.float32)
        low[layout.CONSTANTS["kObservation"] :] = 0.0  # what is ahead in a queue is never negative, nor are quantities,
        begin = layout.observation_length(queues)
        for level in range(self.orders_per_side - 1):  # but a level's prices may be on either side of the mid
            low[[begin + level * layout.CONSTANTS["kLevelFeatures"] + place for place in (0, 2)]] = -1.0
        low[size - len(extras) :] = [EXTRAS[name] for name in extras]
        low[:21] = low[26:30] = 0.0  # depth, spread and volume are never negative
        low[[32, *SPECS[role].action.quantities]] = 0.0  # nor are time and standing quantities
        return spaces.Box(low, np.ones_like(low), dtype=np.float32)

    def _choices(self) -> dict[str, tuple[str, ...]]:
        return CHOICES

    def _checked_array(self, name: str, value: Any) -> np.ndarray:
        """Return a setting of each market or learner, float64, of which every number is allowed."""
        found = check_array(name, value, "a number, or an array of numbers")
        array = np.array(found, dtype=np.float64)
        if found.dtype.kind == "b" or array.ndim not in (1, 2) or not array.size:
            raise ValueError(
                f"{name}: expected a number, and numbers of each market or learner, [M], [K] or [M, K], got an array "
                f"of shape {list(array.shape)}"
            )
        for number in np.unique(array):  # NaN, too
            self._checked(name, number.item())
        array.setflags(write=False)
        return array

    def _checked(self, name: str, value: Any) -> Any:
        """Return the value as a plain Python object."""
        if name == "keep":
            return check_flag(name, value)
        if not check_kind(name, value, self._choices(), _OPTIONAL):
            return value
        if name in _INTEGERS:
            low, high = _INTEGERS[name]
            if not math.isfinite(as_float(value)) or int(value) != value or not low <= value <= high:
                raise ValueError(f"{name}: expected a whole number from {low} to {high}, got {show(value)}")
            return int(value)
        if not math.isfinite(as_float(value)) or value < 0 or (value == 0 and not _NUMBERS[name]):
            least = "from" if _NUMBERS[name] else "above"
            raise ValueError(f"{name}: expected a finite number {least} 0, got {show(value)}")
        return float(value)


@dataclasses.dataclass(frozen=True)
class ForProfit:
    """Settings of the roles that trade for profit: makers, traders, fundamental and momentum learners."""

    inventory_limit: int | None = 40
    initial_inventory: int = 0
    reward: str = "edge"
    mark: str = "fundamental"
    inventory_penalty: float = 0.01
    dampening: float = 0.5
    idle_penalty: float = 0.1
    max_loss: float | None = None
    at_end: str = "truncate"

    @property
    def auctions_to_unwind(self) -> int:
        """Auctions in which slots may unwind: for each unit of a full inventory one, and some; 0 if they do not."""
        limit = MOST_UNWOUND if self.inventory_limit is None else min(self.inventory_limit, MOST_UNWOUND)
        return limit + 16 if self.at_end == "unwind" else 0


@dataclasses.dataclass(frozen=True)
class ForBlocks:
    """Settings of the roles that have something to trade by a deadline."""

    side: str = "random"
    block_qty: int = 100
    forced_qty: int = 4
    risk_aversion: float = 0.05
    leftover_penalty: float = 10.0

    @property
    def auctions_of_blocks(self) -> int:
        """Auctions after the last decision's that the largest block may take."""
        return forced_auctions_of(self.block_qty, self.forced_qty)


def settings_of(kind: type[Task]) -> list[str]:
    """Return the names of the settings of a kind of task."""
    return [field.name for field in dataclasses.fields(kind) if field.init]


def _is_array(value: Any) -> bool:
    """Say whether a value has several numbers, or should have."""
    axes = getattr(value, "ndim", 0)  # a nested tensor has no shape; of other objects it may be anything
    return isinstance(value, (list, tuple)) or (isinstance(axes, int) and axes > 0)


def forced_auctions_of(block_qty: Any, forced_qty: int) -> Any:
    """Return the auctions after the last decision's that a block may take: twice what it takes if every order fills."""
    return 2 * -(-block_qty // forced_qty) + 16


TaskType = TypeVar("TaskType", bound=Task)


def make_task(kind: type[TaskType], fields: dict[str, Any], settings: Iterable[str]) -> TaskType:
    """Build a task from keyword arguments, with an error that lists its settings and those of the environment."""
    known = settings_of(kind)
    unknown = sorted(set(fields) - set(known))
    if unknown:
        raise TypeError(
            f"environment: expected, for the task, one of {', '.join(known)}, or for the environment "
            f"{', '.join(settings)}, got the unknown argument {unknown[0]!r}{taken_by(unknown[0])}"
        )
    return kind(**fields)
