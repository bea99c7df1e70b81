"""Checks of single values that users hand over; each returns the value, or names argument, value and what is allowed.

Nothing is asked of a value before its class is known: arrays break `in` and `==`, a NaT is a NumPy integer, a large int
is no float, and what cannot be hashed cannot be looked up. No torch here, so that everything can import it.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from tqdm import tqdm

Kind = TypeVar("Kind")
_SHOWN = 500  # characters of a value in a message
LARGEST = 1e30  # of a number that is to be used as float32, with room for products


def show(value: Any) -> str:
    """Return a value for a message: its repr on one line, cut where it is long, its class where it has none."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # whatever strange objects raise
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines whose columns begin below each other, two blanks apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def is_whole(value: Any) -> bool:
    """Say whether a value is a whole number by its class, Python's or NumPy's."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))


def is_number(value: Any) -> bool:
    """Say whether a value is a real number by its class, Python's or NumPy's; it may be NaN or infinite."""
    return is_whole(value) or isinstance(value, (float, np.floating))


def as_float(value: Any) -> float:
    """Return a real number as a float, infinity where it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def is_one_of(value: Any, names: Iterable[str]) -> bool:
    """Say whether a value is one of some names."""
    return isinstance(value, str) and value in names


def check_choice(name: str, value: Any, choices: Iterable[str], *, optional: bool = False) -> Any:
    """Return one of some names, or None where that is allowed."""
    if is_one_of(value, choices) or (optional and value is None):
        return value
    allowed = ", ".join(["None"] * optional + [repr(choice) for choice in choices])
    raise ValueError(f"{name}: expected one of {allowed}, got {show(value)}")


def check_flag(name: str, value: Any, *, optional: bool = False) -> Any:
    """Return True or False, or None where that is allowed."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if optional and value is None:
        return None
    raise TypeError(f"{name}: expected {'True, False or None' if optional else 'True or False'}, got {show(value)}")


def check_progress(value: Any) -> bool | None:
    """Return the argument `progress`: True or False shows or hides the bar, None leaves it to the run's length."""
    return check_flag("progress", value, optional=True)


def progress_bar(progress: bool | None, desc: str, unit: str, total: int | None, **how: Any) -> tqdm:
    """Return a bar for what an argument `progress` says; None shows it on what takes over two seconds."""
    return tqdm(desc=desc, unit=unit, total=total, delay=0 if progress else 2, disable=progress is False, **how)


def check_count(name: str, value: Any, least: int, most: int = 2**31 - 1) -> int:
    """Return a whole number of a range."""
    if not is_whole(value):
        raise TypeError(f"{name}: expected a whole number from {_power(least)}, got {show(value)}")
    if not least <= value <= most:
        raise ValueError(f"{name}: expected {_power(least)} to {_power(most)}, got {show(value)}")
    return int(value)


def check_number(name: str, value: Any, low: float = -math.inf, high: float = LARGEST, *, above: bool = False) -> Any:
    """Return a finite number from `low`, or above it, up to `high` in size, as a plain int or float."""
    least = f" {'above' if above else 'from'} {low:g}" if low > -math.inf else ""
    allowed = f"a finite number{least}, up to {high:g}{'' if least else ' in size'}"
    if not is_number(value):
        raise TypeError(f"{name}: expected {allowed}, got {show(value)}")
    found = as_float(value)
    if not max(low, -high) <= found <= high or (above and found == low):  # False for NaN
        raise ValueError(f"{name}: expected {allowed}, got {show(value)}")
    return int(value) if is_whole(value) and abs(found) < 1 << 53 else found  # torch takes no larger ints


def check_instance(name: str, value: Any, kind: type[Kind]) -> Kind:
    """Return an object of a class."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise TypeError(f"{name}: expected {article} {kind.__name__}, got {show(value)}")
    return value


def load_optional(name: str, missing: str) -> Any:
    """Import a module of a package that users install if they need it; `missing` is what they are told without it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(missing, name=name.partition(".")[0]) from error


def check_callable(name: str, value: Any, allowed: str) -> Callable[..., Any]:
    """Return what can be called."""
    if not callable(value):
        raise TypeError(f"{name}: expected {allowed}, got {show(value)}")
    return value


def check_dict(name: str, value: Any, allowed: str) -> Mapping[Any, Any]:
    """Return a mapping."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name}: expected {allowed}, got {show(value)}")
    return value


def check_array(name: str, values: Any, allowed: str) -> np.ndarray:
    """Return real numbers as an array of any shape, sharing memory where it can; tensors come to the host."""
    try:  # a tensor, without importing torch here
        array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    except Exception as error:  # whatever strange objects raise
        raise TypeError(f"{name}: expected {allowed}, got {show(values)}") from error
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected {allowed}, got {show(values)}")
    return array


def not_whole(array: np.ndarray) -> np.ndarray:
    """Return the floats of an array that are no whole numbers below 2^62 in size: those are no ticks."""
    return array[~((np.abs(array) < 2.0**62) & (array == np.rint(array)))]


def _power(number: int) -> str:
    """Return a bound as messages have it: large ones by powers of two."""
    for plus, text in ((0, ""), (1, " - 1")):
        size = abs(number + plus)
        if size >= 1 << 20 and size & (size - 1) == 0:
            return f"{'-' if number < 0 else ''}2^{size.bit_length() - 1}{text}"
    return str(number)
