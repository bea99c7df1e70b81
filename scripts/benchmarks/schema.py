"""What a file of measurements may hold, for `measurements.load`: the report and `--resume` read nothing else.

A check takes a value and returns what is allowed, in words, or None if the value is. Keys that are not in the tables
are left alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Check = Callable[[Any], str | None]

_CLOSE = 0.01  # relative, for figures that follow from one another: some round them
FIGURES = ("seconds_median", "seconds_min", "seconds_max", "events_per_s", "us_per_step", "ns_per_event")


def check(data: Any, formats: int) -> None:
    """Refuse what is no file of measurements.

    Raises:
        ValueError: Naming the row, the key, what came and what is allowed.
    """
    if not isinstance(data, dict) or data.get("format") != formats or isinstance(data["format"], bool):
        raise ValueError(f"this is no file of measurements of format {formats}")
    _object("", data, {name: (_list, True) for name in ("machines", "refused", "rows")})
    _object("", data, {"unavailable": (_texts, True), "backends": (_names, False), "ceilings": (_list, False)})
    for index, machine in enumerate(data["machines"]):
        _object(f"machines[{index}]: ", machine, _MACHINE)
    place = (_integer(0, len(data["machines"]) - 1), True)
    for index, ceiling in enumerate(data.get("ceilings", [])):
        _object(f"ceilings[{index}]: ", ceiling, {"machine": place, "hashes_per_s": (_positive, True)})
    for name in ("rows", "refused"):
        for index, row in enumerate(data[name]):
            where = f"{name}[{index}]: "
            _object(where, row, _ROW | {"machine": place})
            _object(f"{where}asked.", row["asked"], {"markets": (_count, True), "steps": (_count, True)})
            if row["seconds_median"] is not None:
                _check_figures(where, row)
            elif row["agrees"]:
                _refuse(where, "seconds_median", None, "a time, as the row agrees with the oracle")


def _check_figures(where: str, row: Mapping[str, Any]) -> None:
    """Refuse times out of order, and rates that do not follow from them."""
    _object(where, row, dict.fromkeys(FIGURES, (_positive, True)))
    low, middle, high = (row[f"seconds_{name}"] for name in ("min", "median", "max"))
    if not low <= middle <= high:
        _refuse(where, "seconds_median", middle, f"seconds_min to seconds_max, {low} to {high}")
    steps = row["markets"] * row["steps"]
    events = steps * row["agents"]
    expected = {
        "events_per_s": events / middle,
        "us_per_step": middle / row["steps"] * 1e6,
        "ns_per_event": middle / events * 1e9,
    }
    if row["sweep"].startswith("env"):
        _object(where, row, {"env_steps_per_s": (_positive, True)})
        expected["env_steps_per_s"] = steps / middle
    for name, value in expected.items():
        if not math.isclose(row[name], value, rel_tol=_CLOSE):
            _refuse(where, name, row[name], f"{value!r}, which follows from seconds_median")
    if row.get("digest") is not None:
        _object(where, row, {name: (_real, True) for name in ("mean_last_price", "mean_volume", "mean_trades")})
        _object(where, row, {"oracle": (_text, True)})
    if row.get("compile_seconds") is not None:
        _object(where, row, {"first_call_seconds": (_measure, True)})


def _object(where: str, value: Any, keys: Mapping[str, tuple[Check, bool]]) -> None:
    """Check some keys of an object; the flag says whether a key has to be there."""
    if not isinstance(value, dict):
        raise ValueError(f"{where}expected an object, got {_shown(value)}")
    for name, (allowed_by, needed) in keys.items():
        if name not in value and needed:
            raise ValueError(f"{where}{name}: is missing")
        allowed = allowed_by(value[name]) if name in value else None
        if allowed:
            _refuse(where, name, value[name], allowed)


def _refuse(where: str, name: str, value: Any, allowed: str) -> None:
    raise ValueError(f"{where}{name}: expected {allowed}, got {_shown(value)}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


# Values ---------------------------------------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is(fits: Callable[[Any], bool], words: str) -> Check:
    return lambda value: None if fits(value) else words


def _integer(least: int, most: int) -> Check:
    words = f"a whole number from {least} to {most}"
    return _is(lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most, words)


def _between(least: float, most: float, words: str) -> Check:
    return _is(lambda value: _is_number(value) and least <= value <= most, words)  # NaN is not


def _or_none(inner: Check) -> Check:
    def allowed(value: Any) -> str | None:
        words = None if value is None else inner(value)
        return f"{words}, or null" if words else None

    return allowed


def _of_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


_POSITIVE = "a number above 0"
_count = _integer(1, 2**53)
_positive = _between(1e-15, 1e30, _POSITIVE)
_measure = _between(0, 1e30, "a number from 0")
_real = _between(-1e30, 1e30, "a number")
_text = _is(lambda value: isinstance(value, str), "a text")
_list = _is(lambda value: isinstance(value, list), "a list")
_dict = _is(lambda value: isinstance(value, dict), "an object")
_names = _is(lambda value: isinstance(value, list) and _of_texts(value), "a list of texts")
_texts = _is(lambda value: isinstance(value, dict) and _of_texts(value.values()), "an object of texts")
_verdict = _is(lambda value: value is None or isinstance(value, bool), "true, false or null")
_hash = _is(
    lambda value: isinstance(value, str) and re.fullmatch("[0-9a-f]{16,}", value) is not None,
    "a hash in hexadecimal digits",
)
_seconds = _is(
    lambda value: isinstance(value, list) and not any(map(_positive, value)), f"a list of which each is {_POSITIVE}"
)
_MACHINE: dict[str, tuple[Check, bool]] = {
    **dict.fromkeys(("date", "cpu", "platform"), (_text, True)),
    **dict.fromkeys(("gpu",), (_or_none(_text), True)),
    "cpu_cores": (_or_none(_count), True),
    "clocks": (_texts, True),
    "clocks_after": (_texts, False),
    **dict.fromkeys(("driver", "torch", "numpy", "jax"), (_or_none(_text), False)),
}
_ROW: dict[str, tuple[Check, bool]] = {
    **dict.fromkeys(("sweep", "backend"), (_text, True)),
    **dict.fromkeys(("markets", "agents", "levels", "steps"), (_count, True)),
    "trials": (_integer(0, 2**31), True),
    **dict.fromkeys(FIGURES, (_or_none(_positive), True)),
    "env_steps_per_s": (_or_none(_positive), False),
    "seconds": (_seconds, False),
    "peak_bytes": (_or_none(_measure), True),
    "agrees": (_verdict, True),
    "device": (_or_none(_text), True),
    "asked": (_dict, True),
    **dict.fromkeys(("first_difference", "notes"), (_or_none(_text), True)),
    "oracle": (_or_none(_text), False),
    "digest": (_or_none(_hash), False),
    **dict.fromkeys(("mean_last_price", "mean_volume", "mean_trades"), (_or_none(_real), False)),
    **dict.fromkeys(("compile_seconds", "first_call_seconds"), (_or_none(_measure), False)),
}
