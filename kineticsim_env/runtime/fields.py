"""The fields of `MarketConfig`, each for itself: ranges, choices, and the check of one value or of one per market.

`MarketConfig` calls this for every field, and then `fields_together.py` for what involves several.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch

from kineticsim_env.runtime import layout
from kineticsim_env.runtime.values import as_float, check_choice, is_number, is_one_of, show

Value = TypeVar("Value")
PerMarket: TypeAlias = Value | Sequence[Value] | np.ndarray | torch.Tensor
"""One value, or one for each market: a sequence, a one-dimensional array or a tensor of them."""
CLASSES = ("noise", "momentum", "maker", "fundamental")
MAX_PRICE = layout.CONSTANTS["kMaxPrice"]
MAX_ORIGIN = layout.CONSTANTS["kMaxOrigin"]  # how far a grid may move
MAX_QUOTE_QTY = layout.CONSTANTS["kMaxQuoteQty"]
MAX_STEP_QTY = 1 << 30  # what all agents of a market may submit in one auction

CHOICES = {
    **{name: tuple(layout.ENUMS[name.capitalize()]) for name in ("tie", "residue", "rounding", "reference")},
    "population": ("fixed", "multinomial"),
    **{name: tuple(layout.ENUMS[name.capitalize()]) for name in ("arrivals", "mechanism")},
}
PROBABILITIES = {
    "market_order_prob": 1 << 24,
    "walk_prob": 1 << 16,
    "jump_prob": 1 << 16,
    "cancel_prob": 1 << 16,
    "regime_switch_prob": 1 << 16,
}
INTEGERS = {  # inclusive ranges; those that depend on other fields: fields_together.py
    "num_levels": (8, 8192),
    "num_agents": (0, MAX_STEP_QTY),
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
    "fee": (-(1 << 20), 1 << 20),
    "taker_offset": (0, 32767),
    "taker_fee": (-(1 << 20), 1 << 20),
    "tax": (0, 32767),
    "collar": (0, 32767),
    "tick_size": (1, 64),
    "quote_latency": (0, (1 << 31) - 1),
    "interval": (1, 65535),
    "beat": (1, 1 << 30),
    "orders_per_side": (1, layout.CONSTANTS["kMaxOrdersPerSide"]),
}
MILLISECONDS = {"interval_ms": (0.001, 2_000_000.0), "quote_latency_ms": (0.0, 2_000_000.0)}  # whole microseconds
TEXTS = tuple(CHOICES)  # the fields that are no numbers
OPTIONAL = ("fundamental_price", "inventory_limit", "interval", "beat", "interval_ms")
# What a regime may change; the order is that of `struct RegimeParams`.
REGIME_FIELDS = (
    "max_order_qty", "noise_spread", "market_order_prob", "maker_half_spread", "taker_offset", "walk_prob", "jump_prob",
    "jump_size", "cancel_prob",
)  # fmt: skip
MAX_REGIMES = 64
# Everything else may differ from market to market.
ENSEMBLE_WIDE = (
    "num_levels", "population", "arrivals", "mechanism", "interval", "beat", "orders_per_side", "regimes", "agents",
    "interval_ms", "agent_prob",
)  # fmt: skip


def checked(name: str, value: Any) -> Any:
    """Return the value in its stored form: a Python scalar, None, or a read-only 1-D array for per-market values."""
    if hasattr(value, "detach"):  # a torch tensor, without importing torch here
        try:
            value = value.detach().cpu().numpy()
        except Exception as error:  # sparse, nested, on meta: whatever torch has against it
            raise TypeError(f"{name}: expected one value, or one per market, got {show(value)}") from error
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes, bytearray, memoryview)):
        if name in ENSEMBLE_WIDE:
            raise TypeError(f"{name}: expected one value for the whole ensemble, got one per market")
        if isinstance(value, np.ndarray) and value.ndim != 1:
            raise ValueError(f"{name}: expected one value, or one per market, got an array of shape {value.shape}")
        array = _checked_many(name, value)
        array.flags.writeable = False
        return array
    return _checked_one(name, value)


def _checked_many(name: str, given: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Return one value per market as an array of its own; errors are those of the first value that is wrong."""
    kinds = "U" if name in CHOICES else "iuf"
    plain = type(given) is np.ndarray and given.dtype.kind in tuple(kinds) and given.dtype != np.longdouble
    values = given if plain else given.tolist() if isinstance(given, np.ndarray) else list(given)
    if not len(values):
        raise ValueError(f"{name}: expected one value, or one per market, got an empty sequence")
    array = _texts(values, CHOICES[name]) if name in CHOICES else _numbers(name, values)
    if array is None:  # something is wrong, or of a kind that only a look at each value can tell
        items = [_checked_one(name, item) for item in (values.tolist() if isinstance(values, np.ndarray) else values)]
        if any(item is None for item in items):
            raise ValueError(f"{name}: expected a number for every market, got None among per-market values")
        array = np.asarray(items)
    return array


def _texts(values: Sequence[Any] | np.ndarray, choices: Sequence[str]) -> np.ndarray | None:
    """Return texts as an array, None if any is no choice."""
    if isinstance(values, np.ndarray):
        found = np.stack([values == choice for choice in choices])
        return np.array(choices)[found.argmax(0)] if found.any(0).all() else None
    return np.asarray(values) if set(map(type, values)) == {str} and set(values) <= set(choices) else None


def _numbers(name: str, values: Sequence[Any] | np.ndarray) -> np.ndarray | None:
    """Return numbers as an int64 or float64 array, None if they are no plain numbers; refuse the first that is wrong.

    All are looked at together: a config may have a value for each of a million markets.
    """
    if not isinstance(values, np.ndarray) and not set(map(type, values)) <= {int, float}:
        return None
    try:
        found = np.array(values, dtype=np.float64)  # exact within the bounds, which are below 2^53
    except OverflowError:  # an int that is too large for a float
        return None
    low, high = INTEGERS.get(name) or MILLISECONDS.get(name, (0, 1))
    good = (found >= low) & (found <= high)  # False for NaN
    if name in INTEGERS:
        good &= found == np.floor(found)
    if not good.all():
        first = values[int(np.argmin(good))]
        _checked_one(name, first.item() if isinstance(first, np.generic) else first)  # raises, and says why
        return None
    return found.astype(np.int64) if name in INTEGERS else found


def microseconds(milliseconds: Any) -> Any:
    """Return a number of milliseconds, or an array of them, as whole microseconds, as engines count them."""
    found = np.rint(1000 * np.asarray(milliseconds, dtype=np.float64)).astype(np.int64)
    return found if found.ndim else int(found)


def checked_regimes(name: str, value: Any) -> tuple[dict[str, Any], ...] | None:
    """Return regimes as a tuple of dicts, or None."""
    if value is None:
        return None
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray)):
        raise TypeError(f"{name}: expected a sequence of mappings, or None, got {show(value)}")
    if not 1 <= len(value) <= MAX_REGIMES:
        raise ValueError(f"{name}: expected 1 to {MAX_REGIMES} regimes, got {len(value)}")
    regimes = []
    for number, regime in enumerate(value):
        if not isinstance(regime, Mapping):
            raise TypeError(f"{name}[{number}]: expected a mapping of parameters, got {show(regime)}")
        unknown = [key for key in regime if not is_one_of(key, REGIME_FIELDS)]
        if unknown:
            raise ValueError(f"{name}[{number}]: expected one of {', '.join(REGIME_FIELDS)}, got {show(unknown[0])}")
        try:
            regimes.append({key: _checked_one(key, regime[key]) for key in REGIME_FIELDS if key in regime})
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}[{number}]: {error}") from None
    return tuple(regimes)


def check_kind(name: str, value: Any, choices: Mapping[str, Sequence[str]], optional: Sequence[str]) -> bool:
    """Refuse what is neither a known choice, nor None where that is allowed, nor a number; True if it is a number."""
    if name in choices:
        check_choice(name, value, choices[name])
        return False
    if value is None and name in optional:
        return False
    if not is_number(value):
        raise TypeError(f"{name}: expected a number, got {show(value)} ({type(value).__name__})")
    return True


def _checked_one(name: str, value: Any) -> Any:
    if not check_kind(name, value, CHOICES, OPTIONAL):
        return value
    if name in INTEGERS:
        low, high = INTEGERS[name]
        if not math.isfinite(as_float(value)) or int(value) != value:
            raise ValueError(f"{name}: expected a whole number from {low} to {high}, got {show(value)}")
        if not low <= value <= high:
            raise ValueError(f"{name}: expected {low} to {high}, got {show(value)}")
        return int(value)
    low, high = MILLISECONDS.get(name, (0, 1))
    if not low <= value <= high:
        raise ValueError(f"{name}: expected {low} to {high}, got {show(value)}")
    return float(value)
