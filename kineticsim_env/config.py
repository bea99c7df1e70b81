"""What a market is: `MarketConfig`, its checks, its presets, and the integer rows that the engines read.

Everything a user can set about a market is validated here, once. `parameter_rows` turns a config into the integers of
`struct MarketParams` in `cuda/model/layout.h`; nothing behind this file sees a float or a string.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kineticsim_env.runtime import layout
from kineticsim_env.runtime.values import as_float, check_choice, is_number, is_one_of, show

CLASSES = ("noise", "momentum", "maker", "fundamental")
MAX_PRICE = layout.CONSTANTS["kMaxPrice"]
MAX_ORIGIN = layout.CONSTANTS["kMaxOrigin"]  # how far a grid may move
MAX_QUOTE_QTY = layout.CONSTANTS["kMaxQuoteQty"]
MAX_STEP_QTY = 1 << 30  # what all agents of a market may submit in one auction

_CHOICES = {
    "tie": tuple(layout.ENUMS["Tie"]),
    "residue": tuple(layout.ENUMS["Residue"]),
    "population": ("fixed", "multinomial"),
}
_PROBABILITIES = {"market_order_prob": 1 << 24, "walk_prob": 1 << 16, "jump_prob": 1 << 16, "cancel_prob": 1 << 16}
_INTEGERS = {  # inclusive ranges; those that depend on other fields are in _check_together
    "num_levels": (8, 8192),
    "num_agents": (1, MAX_STEP_QTY),
    "init_price": (1, 8190),
    "init_depth": (0, 1 << 20),
    "max_order_qty": (1, 65535),
    "noise_spread": (0, 32767),
    "maker_half_spread": (0, 32767),
    "jump_size": (0, 32767),
    "window": (0, 4095),
    "fundamental_price": (-MAX_PRICE, MAX_PRICE),
    "max_quote_qty": (0, MAX_QUOTE_QTY),
    "inventory_limit": (0, MAX_PRICE),
    "fee": (0, 1 << 20),
}
TEXTS = tuple(_CHOICES)  # the fields that are no numbers
_OPTIONAL = ("fundamental_price", "inventory_limit")
_ENSEMBLE_WIDE = ("num_levels", "population")  # everything else may differ from market to market


@dataclasses.dataclass(frozen=True, eq=False)
class MarketConfig:
    """One market, or an ensemble of markets that differ in some fields.

    Every field but `num_levels` and `population` may be a sequence with one value per market. The defaults are the
    preset `"paper"`. Formulas and bounds: `docs/model.md`.

    Attributes:
        num_levels: Ticks of the price grid L, a power of two from 8 to 8192.
        num_agents: Built-in agents A.
        noise: Share of noise agents; the four shares sum to 1.
        momentum: Share of momentum agents.
        maker: Share of built-in market makers.
        fundamental: Share of fundamental agents.
        init_price: Opening price, 1 to L - 2.
        init_depth: Quantity resting on each side at the opening.
        max_order_qty: Largest order of a built-in agent, 1 to 65535.
        noise_spread: Noise agents price within this many ticks of the mid.
        market_order_prob: Probability that a taker's order is marketable, rounded to 1/2^24.
        maker_half_spread: Built-in makers quote this many ticks from the mid.
        walk_prob: Probability per auction that the fundamental moves by one tick, rounded to 1/65536. Needs `window`.
        jump_prob: Probability per auction that it moves by `jump_size`, rounded to 1/65536. Needs `window`.
        jump_size: Ticks of a jump.
        cancel_prob: Share of every resting quantity cancelled before an auction, rounded to 1/65536.
        window: Ticks that the mid may leave the grid's middle before the grid follows; 0 is off.
        tie: Which of several best prices clears: `"lowest"` or the one nearest the `"mid"`.
        residue: Whether unfilled marketable orders `"rest"` at the grid's edge or are cancelled, `"cancel"`.
        fundamental_price: Fundamental at the start, absolute ticks; None is `init_price`.
        population: `"fixed"` counts by largest remainder, or `"multinomial"` counts drawn per market when seeded.
        max_quote_qty: Largest quote of a slot, at most 2^20.
        inventory_limit: A slot's largest inventory, long or short; None is no limit.
        fee: What a slot pays per unit traded, in thousandths of a tick.
    """

    num_levels: int = 128
    num_agents: Any = 256
    noise: Any = 0.70
    momentum: Any = 0.15
    maker: Any = 0.15
    fundamental: Any = 0.0
    init_price: Any = 64
    init_depth: Any = 8
    max_order_qty: Any = 4
    noise_spread: Any = 3
    market_order_prob: Any = 0.10
    maker_half_spread: Any = 1
    walk_prob: Any = 0.0
    jump_prob: Any = 0.0
    jump_size: Any = 0
    cancel_prob: Any = 0.0
    window: Any = 0
    tie: Any = "lowest"
    residue: Any = "rest"
    fundamental_price: Any = None
    population: str = "fixed"
    max_quote_qty: Any = MAX_QUOTE_QTY
    inventory_limit: Any = None
    fee: Any = 0

    def __post_init__(self) -> None:
        """Check every field; raise `TypeError` or `ValueError` naming the field, the value and what is allowed."""
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _checked(field.name, getattr(self, field.name)))
        _check_together(self)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> MarketConfig:
        """Return a named market with some fields changed.

        Args:
            name: `"paper"` (the published evaluation's market) or `"trading"` (what the RL tasks use).
            **changes: Fields of `MarketConfig` that differ from the preset.

        Raises:
            ValueError: If the preset is unknown.
            TypeError: If a field is unknown.
        """
        if not is_one_of(name, PRESETS):
            raise ValueError(f"preset: got {show(name)}, allowed are {sorted(PRESETS)}")
        return make_config({**PRESETS[name], **changes})

    def replace(self, **changes: Any) -> MarketConfig:
        """Return a copy with some fields changed, checked again."""
        return make_config({**self.to_dict(), **changes})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name; per-market fields are read-only arrays."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def __eq__(self, other: object) -> bool:
        """Compare field by field."""
        if not isinstance(other, MarketConfig):
            return NotImplemented
        return all(np.array_equal(value, other.to_dict()[name]) for name, value in self.to_dict().items())

    __hash__ = None  # type: ignore[assignment]

    @property
    def per_market(self) -> dict[str, int]:
        """Names and lengths of the fields that are given per market."""
        return {name: len(value) for name, value in self.to_dict().items() if isinstance(value, np.ndarray)}

    @property
    def uses_options(self) -> bool:
        """Whether any market needs section "options": walk, cancellation, window, tie or residue."""
        numbers = (self.walk_prob, self.jump_prob, self.cancel_prob, self.window)
        return bool(any(np.any(np.asarray(value) > 0) for value in numbers)) or bool(
            np.any(np.asarray(self.tie) != "lowest") or np.any(np.asarray(self.residue) != "rest")
        )


def make_config(fields: Mapping[str, Any]) -> MarketConfig:
    """Build a config from named fields, with an error that lists the allowed names."""
    known = [field.name for field in dataclasses.fields(MarketConfig)]
    unknown = sorted(set(fields) - set(known))
    if unknown:
        raise TypeError(f"MarketConfig: unknown field {unknown[0]!r}, allowed are {', '.join(known)}")
    return MarketConfig(**fields)


# The market that the RL tasks use: how it was chosen, and what it measures, is in docs/trading_preset.md.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "trading": {
        "num_agents": 20,
        "noise": 0.45,
        "momentum": 0.15,
        "maker": 0.10,
        "fundamental": 0.30,
        "noise_spread": 14,
        "maker_half_spread": 8,
        "market_order_prob": 0.4,
        "walk_prob": 0.4,
        "jump_prob": 0.02,
        "jump_size": 4,
        "cancel_prob": 0.4,
        "window": 16,
        "tie": "mid",
        "residue": "cancel",
    },
}


# Checks ---------------------------------------------------------------------------------------------------------------


def _checked(name: str, value: Any) -> Any:
    """Return the value in its stored form: a Python scalar, None, or a read-only 1-D array for per-market values."""
    if hasattr(value, "detach"):  # a torch tensor, without importing torch here
        try:
            value = value.detach().cpu().numpy()
        except Exception as error:  # sparse, nested, on meta: whatever torch has against it
            raise TypeError(f"{name}: got {show(value)}, allowed is one value, or one per market") from error
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes, bytearray, memoryview)):
        if name in _ENSEMBLE_WIDE:
            raise TypeError(
                f"{name}: got one value per market, but it is the same for the whole ensemble: allowed is one value"
            )
        if isinstance(value, np.ndarray) and value.ndim != 1:
            raise ValueError(f"{name}: got an array of shape {value.shape}, allowed is one value, or one per market")
        values = [_checked_scalar(name, item) for item in (value.tolist() if isinstance(value, np.ndarray) else value)]
        if not values:
            raise ValueError(f"{name}: got an empty sequence, allowed is one value, or one per market")
        if any(item is None for item in values):
            raise ValueError(f"{name}: got None among per-market values, allowed is a number for every market")
        array = np.asarray(values)
        array.flags.writeable = False
        return array
    return _checked_scalar(name, value)


def check_kind(name: str, value: Any, choices: Mapping[str, Sequence[str]], optional: Sequence[str]) -> bool:
    """Refuse what is neither a known choice, nor None where that is allowed, nor a number; True if it is a number."""
    if name in choices:
        check_choice(name, value, choices[name])
        return False
    if value is None and name in optional:
        return False
    if not is_number(value):
        raise TypeError(f"{name}: got {show(value)} ({type(value).__name__}), allowed is a number")
    return True


def _checked_scalar(name: str, value: Any) -> Any:
    if not check_kind(name, value, _CHOICES, _OPTIONAL):
        return value
    if name in _INTEGERS:
        low, high = _INTEGERS[name]
        if not math.isfinite(as_float(value)) or int(value) != value:
            raise ValueError(f"{name}: got {show(value)}, allowed is a whole number from {low} to {high}")
        if not low <= value <= high:
            raise ValueError(f"{name}: got {show(value)}, allowed is {low} to {high}")
        return int(value)
    if not 0 <= value <= 1:
        raise ValueError(f"{name}: got {show(value)}, allowed is 0 to 1")
    return float(value)


def _check_together(config: MarketConfig) -> None:
    """Check what involves several fields; per-market fields broadcast against each other."""
    levels = config.num_levels
    if levels & (levels - 1):
        raise ValueError(f"num_levels: got {levels}, allowed is a power of two from 8 to 8192")
    lengths = config.per_market
    if len(set(lengths.values())) > 1:
        raise ValueError(f"per-market fields must have one length, got {lengths}")

    def refuse(name: str, bad: Any, allowed: str) -> None:
        bad = np.atleast_1d(bad)
        if np.any(bad):
            value = np.atleast_1d(np.asarray(getattr(config, name)))
            first = value[min(int(np.argmax(bad)), len(value) - 1)]
            raise ValueError(f"{name}: got {first!s}, allowed is {allowed}")

    def array(name: str) -> np.ndarray:
        return np.asarray(getattr(config, name))

    refuse("init_price", array("init_price") > levels - 2, f"1 to num_levels - 2 = {levels - 2}")
    refuse("window", array("window") >= levels // 2, f"0 (off) or 1 to num_levels / 2 - 1 = {levels // 2 - 1}")
    moves = (array("walk_prob") > 0) | ((array("jump_prob") > 0) & (array("jump_size") > 0))
    loose = moves & (array("window") == 0)
    refuse("window", loose, "a window above 0 when walk_prob or jump_prob moves the fundamental")
    largest = MAX_STEP_QTY
    over = array("num_agents").astype(np.int64) * array("max_order_qty") > largest
    refuse("num_agents", over, f"num_agents * max_order_qty up to {largest}")
    total = array("noise") + array("momentum") + array("maker") + array("fundamental")
    if np.any(np.abs(total - 1.0) > 1e-9):
        worst = float(np.atleast_1d(total)[np.argmax(np.abs(np.atleast_1d(total) - 1.0))])
        raise ValueError(f"noise, momentum, maker, fundamental: got shares that sum to {worst!r}, allowed is 1")


# Rows -----------------------------------------------------------------------------------------------------------------


def threshold(probability: Any, scale: int) -> np.ndarray:
    """Round a probability to an integer threshold of `scale`, half to even."""
    return np.rint(np.asarray(probability, dtype=np.float64) * scale).astype(np.int64)


def class_counts(config: MarketConfig, num_rows: int) -> np.ndarray:
    """Count the agents of each class by largest remainder; int64 `[num_rows, 4]` in the order of `CLASSES`."""
    agents = np.broadcast_to(np.asarray(config.num_agents, dtype=np.int64), (num_rows,))
    shares = [np.broadcast_to(np.asarray(getattr(config, name), dtype=np.float64), (num_rows,)) for name in CLASSES]
    scaled = np.rint(np.stack(shares, axis=1) * agents[:, None] * 65536.0).astype(np.int64)
    counts, remainders = scaled >> 16, scaled & 65535
    missing = agents - counts.sum(axis=1)
    order = np.argsort(-remainders, axis=1, kind="stable")  # stable: equal remainders go to the earlier class
    for place in range(len(CLASSES)):
        rows = np.flatnonzero(missing > place)
        counts[rows, order[rows, place]] += 1
    return counts


def parameter_ranges(num_levels: int) -> dict[str, tuple[int, int]]:
    """Return the inclusive range of each integer of `struct MarketParams`, by name."""
    counts = [f"num_{name}" for name in CLASSES] + [f"first_{name}" for name in CLASSES[1:]]
    thresholds = {name.removesuffix("_prob") + "_threshold": (0, scale) for name, scale in _PROBABILITIES.items()}
    return {
        **dict.fromkeys(counts, (0, MAX_STEP_QTY)),
        **{name: bounds for name, bounds in _INTEGERS.items() if name not in ("num_levels", "num_agents")},
        **thresholds,
        "init_price": (1, num_levels - 2),
        "window": (0, num_levels // 2 - 1),
        "tie": (0, len(_CHOICES["tie"]) - 1),
        "residue": (0, len(_CHOICES["residue"]) - 1),
        "inventory_limit": (-1, _INTEGERS["inventory_limit"][1]),  # -1 is none
    }


def parameter_rows(
    config: MarketConfig, num_rows: int, counts: np.ndarray, replaced: Mapping[str, int]
) -> dict[str, Any]:
    """Return the integers of `struct MarketParams` by name.

    Args:
        config: The market.
        num_rows: 1 if all markets share their parameters, else the number of markets.
        counts: int64 `[num_rows, 4]`, agents per class before replacement.
        replaced: How many agents of each class slots replace.

    Returns:
        int64 arrays of shape `[num_rows]`, one per field.
    """
    silent = np.array([replaced.get(name, 0) for name in CLASSES])
    if config.population == "fixed":
        short = np.argwhere(silent[None, :] > counts)
        if len(short):
            row, index = short[0]
            raise ValueError(
                f"slots: got {silent[index]} that replace a {CLASSES[index]} agent, allowed is up to "
                f"{counts[row, index]}, the number of {CLASSES[index]} agents in the market"
            )
    speaking = np.maximum(counts - silent, 0)
    first = np.cumsum(counts, axis=1)

    def column(value: Any) -> np.ndarray:
        return np.array(np.broadcast_to(np.asarray(value, dtype=np.int64), (num_rows,)))

    rows = {f"num_{name}": speaking[:, index] for index, name in enumerate(CLASSES)}
    rows |= {f"first_{name}": first[:, index] for index, name in enumerate(CLASSES[1:])}
    for name in ("init_price", "init_depth", "max_order_qty", "noise_spread", "maker_half_spread", "jump_size"):
        rows[name] = column(getattr(config, name))
    for name, scale in _PROBABILITIES.items():
        rows[name.removesuffix("_prob") + "_threshold"] = column(threshold(getattr(config, name), scale))
    rows["window"] = column(config.window)
    rows["tie"] = column(np.asarray(config.tie) == "mid")
    rows["residue"] = column(np.asarray(config.residue) == "cancel")
    start = config.init_price if config.fundamental_price is None else config.fundamental_price
    rows["fundamental_price"] = column(start)
    rows["max_quote_qty"] = column(config.max_quote_qty)
    rows["inventory_limit"] = column(-1 if config.inventory_limit is None else config.inventory_limit)
    rows["fee"] = column(config.fee)
    return rows
