"""`MarketMakingTask`: the settings of the market-making task, checked once, and the spaces that follow from them.

`vector_env.py`, `single_env.py` and `parallel_env.py` take its fields as keyword arguments; `to_params` turns it into
the numbers of `struct TaskParams` in `cuda/layout.h`. What they do, to the bit: `docs/environment.md`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from kineticsim_env import state
from kineticsim_env.config import MAX_QUOTE_QTY, MarketConfig

ROLES = ("maker", "momentum", "noise")  # as numbered in cuda/tasks.h
_CHOICES = {
    "action_type": ("continuous", "discrete"),
    "reward": ("pnl", "inventory", "asymmetric"),
    "mark": ("fundamental", "mid", "liquidation"),
}
_INTEGERS = {
    "horizon": (1, 2**31 - 1),
    "max_offset": (1, 8191),
    "max_qty": (1, MAX_QUOTE_QTY),
    "inventory_limit": (1, 1 << 30),
    "max_target": (1, 65535),
    "warmup": (0, 10**6),
    "bank_size": (0, 1 << 16),
    "bank_per_market": (1, 1 << 10),
    "warm_seed": (-(2**63), 2**63 - 2**41),
}
_NUMBERS = {  # name: whether zero is allowed
    "inventory_penalty": True,
    "dampening": True,
    "reward_scale": False,
    "max_loss": False,
    "leftover_penalty": True,
}
_OPTIONAL = ("inventory_limit", "max_loss")
_MAKER_CHOICES, _ORDER_CHOICES = 49, 15  # kQuoteChoices squared and kDirectionalChoices in cuda/tasks.h


@dataclasses.dataclass(frozen=True)
class MarketMakingTask:
    """Settings of the market-making task.

    Attributes:
        horizon: Decisions in an episode; at its end the episode is truncated.
        action_type: `"continuous"` or `"discrete"`.
        max_offset: Ticks from the mid that a continuous action reaches.
        max_qty: Largest quantity of a quote, units a side.
        inventory_limit: Largest inventory, long or short, quotes are cut to it; None is no limit. A market config that
            has a limit of its own keeps that.
        reward: `"inventory"` (change of marked value less an inventory penalty), `"pnl"` (the change alone) or
            `"asymmetric"` (gains of holding inventory are dampened, losses are not).
        mark: What inventory is marked at: the `"fundamental"` price, the `"mid"` of the built-in book, or the cash that
            `"liquidation"` would bring. A mid can be moved by the one who is marked at it.
        inventory_penalty: Ticks taken a decision for each squared unit held, under `reward="inventory"`.
        dampening: Share of the gains of holding that is taken, under `reward="asymmetric"`.
        reward_scale: Every reward is divided by it.
        max_loss: The episode terminates when the marked value is at or below minus this many ticks; None is never.
        max_target: Largest quantity that a noise learner has to trade in an episode.
        leftover_penalty: Ticks a unit that a noise learner leaves untraded at the end.
        warmup: Auctions that a warm start has behind it.
        bank_size: Warm starts to draw from; 0 starts every episode at the cold opening book.
        bank_per_market: Warm starts of each market, where markets differ in their parameters.
        warm_seed: Seed of the first warm start; the others follow.
    """

    horizon: int = 300
    action_type: str = "continuous"
    max_offset: int = 10
    max_qty: int = 8
    inventory_limit: int | None = 40
    reward: str = "inventory"
    mark: str = "fundamental"
    inventory_penalty: float = 0.01
    dampening: float = 0.5
    reward_scale: float = 10.0
    max_loss: float | None = None
    max_target: int = 40
    leftover_penalty: float = 10.0
    warmup: int = 100
    bank_size: int = 256
    bank_per_market: int = 4
    warm_seed: int = 2**61

    def __post_init__(self) -> None:
        """Check every field; raise `TypeError` or `ValueError` naming the field, the value and what is allowed."""
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _checked(field.name, getattr(self, field.name)))

    def market_config(self, config: MarketConfig) -> MarketConfig:
        """Return the config with the task's limits on learned slots."""
        limit = self.inventory_limit if config.inventory_limit is None else config.inventory_limit
        largest = np.minimum(np.asarray(config.max_quote_qty), self.max_qty)
        return config.replace(inventory_limit=limit, max_quote_qty=largest)

    def to_params(
        self, roles: Sequence[str], *, autoreset: int, stagger: bool, bank_size: int, bank_per_market: bool
    ) -> dict[str, object]:
        """Return the values of `struct TaskParams` by name.

        Args:
            roles: Of each learned slot, one of `ROLES`.
            autoreset: 0 next step, 1 same step, 2 disabled.
            stagger: Whether first episodes start at a hashed elapsed time.
            bank_size: Warm starts that a market draws from.
            bank_per_market: Whether each market has warm starts of its own.
        """
        numbers = [ROLES.index(role) for role in roles]
        fields = {name: getattr(self, name) for name in state.TASK_FIELDS if hasattr(self, name)}
        return fields | {
            "action_type": _CHOICES["action_type"].index(self.action_type),
            "reward": _CHOICES["reward"].index(self.reward),
            "mark": _CHOICES["mark"].index(self.mark),
            "max_loss": self.max_loss or 0.0,
            "autoreset": autoreset,
            "stagger": int(stagger),
            "bank_size": bank_size,
            "bank_per_market": int(bank_per_market),
            "role": numbers + [0] * (state.CONSTANTS["kMaxSlots"] - len(numbers)),
        }

    def action_space(self, role: str) -> spaces.Box | spaces.Discrete:
        """Return a new action space for a role."""
        if self.action_type == "discrete":
            return spaces.Discrete(_MAKER_CHOICES if role == "maker" else _ORDER_CHOICES)
        return spaces.Box(-1.0, 1.0, (4 if role == "maker" else 2,), np.float32)

    def observation_space(self, role: str) -> spaces.Box:
        """Return a new observation space for a role: float32 `[37]` for a maker, `[36]` for the others."""
        low = np.full(37 if role == "maker" else 36, -1.0, np.float32)
        low[:21] = low[26:30] = low[32] = 0.0  # depth, spread, volume and time are never negative
        for index in (34, 36) if role == "maker" else (35,):
            low[index] = 0.0  # nor are standing quantities
        return spaces.Box(low, np.ones_like(low), dtype=np.float32)


def make_task(fields: dict[str, Any]) -> MarketMakingTask:
    """Build a task from keyword arguments, with an error that lists the allowed names."""
    known = [field.name for field in dataclasses.fields(MarketMakingTask)]
    unknown = sorted(set(fields) - set(known))
    if unknown:
        raise TypeError(f"environment: unknown argument {unknown[0]!r}, allowed for the task are {', '.join(known)}")
    return MarketMakingTask(**fields)


def _checked(name: str, value: Any) -> Any:
    """Return the value as a plain Python object."""
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise ValueError(f"{name}: got {value!r}, allowed are {', '.join(map(repr, _CHOICES[name]))}")
        return value
    if value is None and name in _OPTIONAL:
        return None
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name}: got {value!r} ({type(value).__name__}), allowed is a number")
    if name in _INTEGERS:
        low, high = _INTEGERS[name]
        if not math.isfinite(value) or int(value) != value or not low <= value <= high:
            raise ValueError(f"{name}: got {value!r}, allowed is a whole number from {low} to {high}")
        return int(value)
    if not math.isfinite(value) or value < 0 or (value == 0 and not _NUMBERS[name]):
        raise ValueError(f"{name}: got {value!r}, allowed is a finite number {'from' if _NUMBERS[name] else 'above'} 0")
    return float(value)
