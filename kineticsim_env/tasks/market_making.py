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
from kineticsim_env.config import MAX_QUOTE_QTY, MarketConfig, check_kind

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
    """A trader quotes both sides of a market of many built-in agents, and lives on the spread.

    ## Description

    The market holds call auctions: in each, all orders clear at one price, the one that trades most. Its built-in
    agents are noise traders, momentum traders, makers and fundamental traders, and its fundamental price walks and
    jumps. At every decision the learner replaces its two quotes; they stand for `auctions_per_step` auctions. What is
    hard: quotes near the mid trade most, and are those that informed orders hit; inventory gains and loses with the
    price.

    ## Action Space

    `action_type="continuous"` (default): `Box(-1, 1, (4,), float32)`; each number is mapped linearly to whole units.

    | Num | Action | at -1 | at +1 |
    |-----|--------|-------|-------|
    | 0 | bid offset: ticks below the mid | 0 | `max_offset` |
    | 1 | ask offset: ticks above the mid | 0 | `max_offset` |
    | 2 | bid size: units | 0, no quote | `max_qty` |
    | 3 | ask size: units | 0, no quote | `max_qty` |

    `action_type="discrete"`: `Discrete(49)`, `7 * bid + ask`, each from 0 to 6: 0 is no quote, i from 1 to 6 is
    `max_qty` units at (1, 2, 3, 4, 6, 8)[i - 1] ticks from the mid.

    A mid on a half tick is rounded down for the bid and up for the ask. Quotes are cut to the room that
    `inventory_limit` leaves, and a pair that crosses loses its smaller side.

    ## Observation Space

    `Box(-1, 1, (37,), float32)`, with `s(x, n) = x / (|x| + n)`. The book is that of the built-in agents.

    | Num | Observation | Min | Max |
    |-----|-------------|-----|-----|
    | 0-9 | bid depth at the mid and 1 to 9 ticks below it, s(units, 8) | 0 | 1 |
    | 10-19 | ask depth at the mid and 1 to 9 ticks above it, s(units, 8) | 0 | 1 |
    | 20 | spread, s(ticks, 8); 0 if a side is empty | 0 | 1 |
    | 21 | last price less mid, s(half ticks, 8) | -1 | 1 |
    | 22-25 | changes of the mid in the last 4 decisions, newest first, s(half ticks, 8) | -1 | 1 |
    | 26-29 | volumes of the last 4 decisions, newest first, s(units, 32) | 0 | 1 |
    | 30 | inventory / `inventory_limit`; s(units, 8 `max_qty`) without a limit | -1 | 1 |
    | 31 | cash and inventory at the mid, s(ticks x units, 1000) | -1 | 1 |
    | 32 | time left, as a share of the horizon | 0 | 1 |
    | 33 | mid less own standing bid, s(half ticks, 16); 0 without one | -1 | 1 |
    | 34 | quantity of the own standing bid / `max_qty` | 0 | 1 |
    | 35 | own standing ask less mid, s(half ticks, 16); 0 without one | -1 | 1 |
    | 36 | quantity of the own standing ask / `max_qty` | 0 | 1 |

    ## Rewards

    `pnl` is the change over the decision of cash less fees plus inventory at the `mark`, in ticks x units.

    - `reward="inventory"` (default): `pnl - inventory_penalty * inventory^2`.
    - `reward="pnl"`: `pnl`.
    - `reward="asymmetric"`: `pnl` less the share `dampening` of what holding inventory gained; its losses count in
      full.

    All are divided by `reward_scale`. A mark at the mid can be moved by the one who is marked at it; the default
    mark, the fundamental price, cannot.

    ## Starting State

    A warm start: one of `bank_size` markets that ran for `warmup` auctions without learners, chosen by the seed and the
    episode's number; no inventory, no cash, no quotes. The vector environment starts each market's first episode at an
    elapsed time drawn likewise (`stagger`), so that a batch is not one slice of the episode.

    ## Episode End

    1. Termination: `max_loss` is set, and the marked value is at or below `-max_loss`.
    2. Truncation: `horizon` decisions were made.

    ## Arguments

    | Parameter | Type | Default | Description |
    |-----------|------|---------|-------------|
    | `horizon` | int | 300 | decisions in an episode |
    | `action_type` | str | `"continuous"` | or `"discrete"` |
    | `max_offset` | int | 10 | ticks from the mid that a continuous action reaches |
    | `max_qty` | int | 8 | largest quote, units a side |
    | `inventory_limit` | int or None | 40 | largest inventory, long or short; a config with a limit keeps its own |
    | `reward` | str | `"inventory"` | or `"pnl"`, `"asymmetric"` |
    | `mark` | str | `"fundamental"` | or the `"mid"` of the built-in book, or `"liquidation"` at once |
    | `inventory_penalty` | float | 0.01 | ticks a decision for each squared unit held |
    | `dampening` | float | 0.5 | share taken of the gains of holding |
    | `reward_scale` | float | 10 | what rewards are divided by |
    | `max_loss` | float or None | None | ticks x units; None is no termination |
    | `max_target` | int | 40 | most that a noise learner has to trade (`parallel_env`) |
    | `leftover_penalty` | float | 10 | ticks a unit that a noise learner leaves untraded |
    | `warmup` | int | 100 | auctions that a warm start has behind it |
    | `bank_size` | int | 256 | warm starts to draw from; 0 is the cold opening book |
    | `bank_per_market` | int | 4 | warm starts of each market, where markets differ in parameters or population |
    | `warm_seed` | int | 2^61 | seed of the first warm start |

    Further arguments, of the environments: `config` (a `MarketConfig`) or `preset` (`"trading"`), `engine` and
    `device` as in `Simulator`, `auctions_per_step` (1), `replace` (`"maker"` takes the place of a built-in maker;
    None, the default, adds a trader); and see `MarketMakingVectorEnv`.

    ```python
    env = gymnasium.make("KineticSim/MarketMaking-v0", horizon=500, reward="asymmetric")
    envs = gymnasium.make_vec("KineticSim/MarketMaking-v0", num_envs=4096, output="torch")
    ```

    ## Version History

    * v0: initial version
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

    def num_choices(self, role: str) -> int:
        """Return how many discrete actions a role has, 0 if its actions are continuous."""
        if self.action_type == "continuous":
            return 0
        return _MAKER_CHOICES if role == "maker" else _ORDER_CHOICES

    def action_space(self, role: str) -> spaces.Box | spaces.Discrete:
        """Return a new action space for a role."""
        choices = self.num_choices(role)
        if choices:
            return spaces.Discrete(choices)
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
    if not check_kind(name, value, _CHOICES, _OPTIONAL):
        return value
    if name in _INTEGERS:
        low, high = _INTEGERS[name]
        if not math.isfinite(value) or int(value) != value or not low <= value <= high:
            raise ValueError(f"{name}: got {value!r}, allowed is a whole number from {low} to {high}")
        return int(value)
    if not math.isfinite(value) or value < 0 or (value == 0 and not _NUMBERS[name]):
        raise ValueError(f"{name}: got {value!r}, allowed is a finite number {'from' if _NUMBERS[name] else 'above'} 0")
    return float(value)
