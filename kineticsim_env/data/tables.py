"""Tables of market data as columns of whole numbers: nanoseconds, ticks, lots, and codes of texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env.runtime.values import check_choice, check_number, load_optional, show

UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
SECOND = 10**9
_NEED = "tables of market data need pandas and pyarrow: pip install 'kineticsim-env[data]'"
_DECIMALS = 10  # a step with more of them is noise of floats
_MOST = 2**52  # steps: beyond, floats no longer tell neighbours apart


def pandas() -> Any:
    """Return the module, which only tables need."""
    return load_optional("pandas", _NEED)


def read_table(name: str, source: Any, columns: Mapping[str, str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """Return columns of a table by what they are: pandas Series, one length.

    Args:
        name: Of the argument.
        source: A path of a CSV file (.gz too) or Parquet file, a pandas or pyarrow table, or a mapping of columns.
        columns: The names that they have there, by what they are.
        optional: Those that may be missing.
    """
    frame = _frame(name, source)
    found = {}
    for what, column in columns.items():
        if column in frame.columns:
            found[what] = frame[column]
        elif what not in optional:
            names = ", ".join(map(str, frame.columns))
            raise ValueError(f"{what}: expected one of {name}'s columns, {names}, got {show(column)}")
        if what in found and found[what].isna().any():
            row = int(found[what].isna().to_numpy().argmax())
            raise ValueError(f"{name}, {column!r}: expected a value in each row, got none in row {row}")
    if not len(frame):
        raise ValueError(f"{name}: expected rows, got none")
    return found


def _frame(name: str, source: Any) -> Any:
    if isinstance(source, (str, Path)):
        path = Path(source)
        read = pandas().read_parquet if path.suffix in (".parquet", ".pq") else pandas().read_csv
        try:
            return read(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"{name}: expected a CSV or Parquet file, got {str(path)!r} ({error})") from error
    if isinstance(source, pandas().DataFrame):
        return source
    if hasattr(source, "to_pandas"):
        return source.to_pandas()
    if not isinstance(source, Mapping):
        raise TypeError(f"{name}: expected a path, a table or a mapping of columns, got {show(source)}")
    try:
        return pandas().DataFrame({key: np.asarray(values) for key, values in source.items()})
    except ValueError as error:
        raise ValueError(f"{name}: expected columns of one length, got {error}") from error


def nanoseconds(name: str, values: Any, unit: str | None) -> np.ndarray:
    """Return times as int64 nanoseconds: numbers in a unit, datetimes, or texts of these; UTC where nothing is said."""
    check_choice("unit", unit, UNITS, optional=True)
    if values.dtype.kind in "iuf":
        if unit is None:
            raise ValueError(
                f"unit: expected one of {', '.join(map(repr, UNITS))} for times that are numbers, got None"
            )
        if values.dtype.kind != "f":
            return _fits(name, values.to_numpy(), UNITS[unit]).astype(np.int64) * UNITS[unit]
        whole, part = np.divmod(_fits(name, values.to_numpy(np.float64), UNITS[unit]), 1)
        return whole.astype(np.int64) * UNITS[unit] + np.rint(part * UNITS[unit]).astype(np.int64)
    try:
        return pandas().to_datetime(values, utc=True, format="ISO8601").dt.as_unit("ns").astype(np.int64).to_numpy()
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{name}: expected numbers, datetimes or ISO 8601 texts of these, got {error}") from error


def _fits(name: str, numbers: np.ndarray, unit: int) -> np.ndarray:
    wrong = ~(np.abs(numbers.astype(np.float64)) < 2**62 / unit)
    if wrong.any():
        raise ValueError(f"{name}: expected times below 2^62 ns in size, got {numbers[wrong][0]}: is `unit` right?")
    return numbers


def coded(name: str, values: Any, words: Mapping[Any, int], given: Mapping[Any, int] | None) -> np.ndarray:
    """Return int8 codes of texts or numbers, by the words given, or else by common ones in any case."""
    codes, unique = pandas().factorize(values)
    found = []
    for value in unique.tolist():
        key = value.strip().lower() if given is None and isinstance(value, str) else value
        table = words if given is None else given
        if key not in table:
            allowed = ", ".join(repr(word) for word in table)
            raise ValueError(f"{name}: expected one of {allowed}, got {show(value)}")
        found.append(table[key])
    return np.array(found, np.int8)[codes]


def identities(name: str, *columns: Any) -> list[np.ndarray]:
    """Return ids as int64, as they are where they are whole numbers, else numbered as they come."""
    if all(column.dtype.kind in "iu" for column in columns):
        return [column.to_numpy().astype(np.int64) for column in columns]
    if any(column.dtype.kind == "f" for column in columns):
        raise ValueError(f"{name}: expected whole numbers or texts, got floats, which hold no long ids")
    if any(column.dtype.kind in "iu" for column in columns):
        raise ValueError(f"{name}: expected ids of one kind in both tables, got numbers and texts")
    codes = pandas().factorize(pandas().concat(columns, ignore_index=True))[0]
    return np.split(codes.astype(np.int64), np.cumsum([len(column) for column in columns])[:-1])


def step_of(name: str, *columns: Any) -> float:
    """Return the largest step that all numbers are multiples of; refuse them if there is none."""
    what, step = {"tick": ("price", "price of a tick in currency"), "lot": ("size", "size of a lot")}[name]
    numbers = np.concatenate([numbers_of(what, column) for column in columns])
    numbers = np.unique(np.abs(numbers[numbers != 0]))
    for decimals in range(_DECIMALS + 1) if len(numbers) else ():
        scaled = numbers * 10.0**decimals
        whole = np.rint(scaled)
        if whole[-1] < _MOST and (abs(scaled - whole) <= 4 * np.spacing(scaled)).all():
            return float(np.gcd.reduce(whole.astype(np.int64)) / 10**decimals)
    raise ValueError(f"{name}: expected the {step}, got None, and no step of {_DECIMALS} decimals makes all of them")


def in_steps(what: str, name: str, values: Any, step: Any, rounding: bool = False) -> np.ndarray:
    """Return int64 multiples of a step; with `rounding` the nearest ones, at least 1 of what is above 0."""
    step = check_number(name, step, 0, above=True)
    numbers = numbers_of(what, values)
    steps = numbers / step
    found = np.rint(steps)
    # What a float32 or a division leaves is less than a hundredth of a tick.
    wrong = ~((abs(steps - found) < 0.01) | rounding) | ~(abs(steps) < _MOST)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"{what}: expected multiples of {name}={step:g}, below 2^52, got {numbers[row]} in row {row}")
    return np.where((found == 0) & (numbers > 0), 1, found).astype(np.int64)


def numbers_of(name: str, values: Any) -> np.ndarray:
    """Return finite float64 numbers."""
    try:
        numbers = values.to_numpy(dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}: expected numbers, got {values.dtype} ({error})") from error
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name}: expected finite numbers, got {numbers[~np.isfinite(numbers)][0]}")
    return numbers


def spans_of(times: np.ndarray, gap: float | None, sessions: Any, unit: str | None) -> np.ndarray:
    """Return sessions, int64 `[s, 2]` in ns: those given, or what is between gaps of so many seconds or more."""
    if sessions is not None:
        table = np.asarray(sessions)
        if table.ndim != 2 or table.shape[1] != 2 or not len(table):
            raise ValueError(f"sessions: expected pairs of first and last time, got {show(sessions)}")
        spans = nanoseconds("sessions", pandas().Series(table.ravel()), unit)
        if (np.diff(spans) < 0).any():
            raise ValueError(f"sessions: expected spans, each after the last, got {show(sessions)}")
        return spans.reshape(-1, 2)
    limit = math.inf if gap is None else check_number("gap", gap, 0, above=True) * SECOND
    cut = np.flatnonzero(np.diff(times) >= limit)
    return np.stack([times[np.r_[0, cut + 1]], times[np.r_[cut, len(times) - 1]]], 1)
