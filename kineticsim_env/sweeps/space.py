"""What a sweep varies: fields of a market by name, each with values or a range.

`read_space` checks what users hand over and returns one `Dimension` per name; `designs.py` places points in them.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from kineticsim_env.agents.classes import AgentClass, checked_agents, stored_agents
from kineticsim_env.agents.mixes import whole32
from kineticsim_env.config import PRESETS, TEXTS, MarketConfig
from kineticsim_env.engines.effects import of_regime
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.fields import ENSEMBLE_WIDE, INTEGERS, REGIME_FIELDS, checked, checked_regimes
from kineticsim_env.runtime.flow_table import FlowTable, shipped
from kineticsim_env.runtime.values import (
    as_float,
    check_array,
    check_choice,
    check_dict,
    is_number,
    is_one_of,
    is_whole,
    show,
)

_RANGE = ("low", "high", "scale", "steps")
_SCALES = ("linear", "log")
_MOST_VALUES = 2**31 - 1
_FORMS = "(low, high), {'low': ..., 'high': ...} or a list of values"
FIELDS = tuple(field.name for field in dataclasses.fields(MarketConfig))


@dataclasses.dataclass(frozen=True)
class Dimension:
    """One thing that points of a sweep differ in, by a name that `sweep` takes."""

    name: str
    values: tuple[Any, ...] | None = None  # None of a range
    low: float = 0
    high: float = 0  # which a range takes, too
    scale: str = "linear"  # or "log": in which a range is uniform
    steps: int | None = None  # of a range in a grid; None is every whole number
    whole: bool = False  # a range of whole numbers
    apart: bool = False  # markets of one launch cannot differ in it

    @functools.cached_property
    def of_grid(self) -> np.ndarray:
        """The values that a grid has, in order: numbers, texts, or else objects."""
        if self.values is not None:
            return _array(self.values)
        if self.steps is None:
            return np.arange(int(self.low), int(self.high) + 1)
        spaced = (np.geomspace if self.scale == "log" else np.linspace)(self.low, self.high, self.steps)
        return np.unique(np.rint(spaced).astype(np.int64)) if self.whole else spaced

    @property
    def varies(self) -> bool:
        """Whether it takes more than one value."""
        if self.values is None:
            return self.low < self.high
        return any(_stored(self.name, value) != _stored(self.name, self.values[0]) for value in self.values)

    @property
    def count(self) -> int:
        """How many values it takes; of a range of numbers that are not whole, as many as anybody asks for."""
        if self.values is not None or self.steps is not None or self.whole:
            return len(self.of_grid)
        return _MOST_VALUES

    def at(self, unit: np.ndarray) -> np.ndarray:
        """Return the values at places within [0, 1): a range is uniform in its scale, values are equally likely."""
        if self.values is not None:
            return self.of_grid[(unit * len(self.values)).astype(np.int64)]
        low, high = self.low, self.high + 1 if self.whole else self.high  # each whole number has a room of its own
        found = low * (high / low) ** unit if self.scale == "log" else low + unit * (high - low)
        return np.clip(np.floor(found), self.low, self.high).astype(np.int64) if self.whole else found

    def check_once(self) -> None:
        """Refuse a value that is there twice."""
        stored = [json.dumps(_stored(self.name, value), sort_keys=True) for value in self.values or ()]
        if len(set(stored)) < len(stored):
            twice = next(value for place, value in enumerate(stored) if value in stored[:place])
            raise ValueError(f"space[{self.name!r}]: expected each value once, got {twice} twice")

    def plain(self) -> dict[str, Any]:
        """Return it as JSON keeps it; `read_space` reads it."""
        if self.values is not None:
            return {"values": [_stored(self.name, value) for value in self.values]}
        given = {"low": self.low, "high": self.high, "scale": self.scale}
        return given | ({} if self.steps is None else {"steps": self.steps})

    def column(self, values: np.ndarray) -> Any:
        """Return values as a column of a table: numbers, or texts (JSON, where they are neither)."""
        if values.dtype != object:
            return values
        return [value if isinstance(value, str) else json.dumps(_stored(self.name, value)) for value in values]


def read_space(space: Any, kinds: Iterable[AgentClass], regimes: int = 0) -> tuple[Dimension, ...]:
    """Return the dimensions of a space as `sweep` takes it, in its order.

    It may have parameters and counts of `kinds`, classes that users have written, and fields of so many regimes.
    """
    given = check_dict("space", space, "a mapping of fields to ranges or values, such as {'noise_spread': (3, 12)}")
    if not given:
        raise ValueError("space: expected at least one field, got an empty mapping")
    parameters = [f"{kind.name}.{name}" for kind in kinds for name in (*kind.parameters, "count")]
    known = ["preset", *FIELDS, *parameters]
    return tuple(_read_one(_checked_name(name, known, regimes), choice) for name, choice in given.items())


def _checked_name(name: Any, known: Sequence[str], regimes: int) -> str:
    """Return a name of a space; see `read_space`."""
    own = of_regime(name) if isinstance(name, str) else None
    if own is None:
        return check_name("space", name, known if not regimes else [*known, f"regimes[0 to {regimes - 1}].FIELD"])
    if own[0] >= regimes:
        there = f"regimes[0] to regimes[{regimes - 1}]" if regimes else "no regimes, as the market has none"
        raise ValueError(f"space: expected {there}, got {name!r}")
    check_name(f"space[{name!r}]", own[1], REGIME_FIELDS)
    return name


def _field_of(name: str) -> str | None:
    """Return the field whose range and kind a name has; None of what classes of agents have."""
    own = of_regime(name)
    return own[1] if own else None if "." in name else name


def check_name(where: str, name: Any, known: Sequence[str]) -> str:
    """Return a known name; else say which one is nearest."""
    if not is_one_of(name, known):
        near = get_close_matches(name, known, 1) if isinstance(name, str) else []
        meant = f": did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{where}: expected one of {', '.join(known)}, got {show(name)}{meant}")
    return name


def _read_one(name: str, choice: Any) -> Dimension:
    if isinstance(choice, tuple):
        if len(choice) != 2 or not all(is_number(end) for end in choice):
            raise ValueError(f"space[{name!r}]: expected {_FORMS}, got {show(choice)}; a tuple is a range")
        choice = {"low": choice[0], "high": choice[1]}
    if not isinstance(choice, Mapping):
        return _read_values(name, choice)
    if "values" not in choice:
        return _read_range(name, choice)
    if len(choice) > 1:
        raise ValueError(f"space[{name!r}]: expected nothing beside 'values', got {show(choice)}")
    return _read_values(name, choice["values"])


def _read_range(name: str, choice: Mapping[str, Any]) -> Dimension:
    for key in choice:
        check_name(f"space[{name!r}]", key, (*_RANGE, "values"))
    if name in (*TEXTS, "preset", "regimes", "agents"):
        raise ValueError(f"space[{name!r}]: expected a list of values, got a range")
    low: Any = choice.get("low")
    high: Any = choice.get("high")
    scale, steps, field = choice.get("scale", "linear"), choice.get("steps"), _field_of(name)
    whole = field is None or field in INTEGERS
    finite = all(is_number(end) and abs(as_float(end)) < 2**31 for end in (low, high))  # NaN is not
    if not finite or not low <= high or (whole and (int(low) != low or int(high) != high)):
        kind = "whole numbers" if whole else "numbers"
        raise ValueError(f"space[{name!r}]: expected two {kind}, low up to high, within 2^31, got {show(dict(choice))}")
    if not is_one_of(scale, _SCALES):
        raise ValueError(f"space[{name!r}]: expected the scale 'linear' or 'log', got {show(scale)}")
    if scale == "log" and low <= 0:
        raise ValueError(f"space[{name!r}]: expected low above 0 with scale 'log', got {show(low)}")
    if steps is not None and (not is_whole(steps) or not 1 <= steps <= _MOST_VALUES):
        raise ValueError(f"space[{name!r}]: expected steps from 1, a whole number, got {show(steps)}")
    low, high = (int(low), int(high)) if whole else (float(low), float(high))
    if field is not None:
        _check_values(field, (low, high))
    return Dimension(name, None, low, high, scale, None if steps is None else int(steps), whole, _apart(name))


def _read_values(name: str, choice: Any) -> Dimension:
    if hasattr(choice, "detach"):  # a tensor, without importing torch here
        choice = check_array(f"space[{name!r}]", choice, _FORMS)
    elif hasattr(choice, "__array__") and not isinstance(choice, np.generic):  # a column of a table
        try:
            choice = np.asarray(choice)
        except Exception as error:  # whatever strange objects raise
            raise TypeError(f"space[{name!r}]: expected {_FORMS}, got {show(choice)}") from error
    if isinstance(choice, np.ndarray):
        if choice.ndim != 1:
            raise ValueError(f"space[{name!r}]: expected {_FORMS}, got an array of shape {list(choice.shape)}")
        choice = choice.tolist()
    if not isinstance(choice, Sequence) or isinstance(choice, (str, bytes, bytearray)):
        raise TypeError(f"space[{name!r}]: expected {_FORMS}, got {show(choice)}")
    values: tuple[Any, ...] = tuple(map(as_item, choice))
    if not values:
        raise ValueError(f"space[{name!r}]: expected one value or more, got none")
    field = _field_of(name)
    if name == "agents":
        values = tuple(checked_agents(name, value, layout.CONSTANTS["kMostAgentClasses"]) for value in values)
    elif name == "preset":
        for value in values:
            if not is_one_of(value, PRESETS):
                raise ValueError(f"space['preset']: expected one of {', '.join(PRESETS)}, got {show(value)}")
    elif field is not None:
        _check_values(field, values)
    if field is None:
        values = tuple(whole32(name, value) for value in values)
    if any(is_number(value) for value in values) and not all(is_number(value) or value is None for value in values):
        raise ValueError(f"space[{name!r}]: expected values of one kind, got {show(choice)}")
    values = _of_one_class(name, values)
    return Dimension(name, values, apart=_apart(name) or any(value is None for value in values))


def _of_one_class(name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return whole numbers as ints where a field has these, else as floats beside floats: 5.0 is the same as 5."""
    wanted = (
        int if _field_of(name) in INTEGERS else float if any(isinstance(value, float) for value in values) else None
    )
    return values if wanted is None else tuple(wanted(value) if is_number(value) else value for value in values)


def _check_values(name: str, values: Sequence[Any]) -> None:
    """Check values of a field, each for itself; what they do together is checked with the points."""
    if name == "regimes":
        for value in values:
            checked_regimes(name, value)
    elif name == "flow":
        for value in values:
            check_choice("space['flow']", value, shipped(), optional=True)
    elif name in ENSEMBLE_WIDE:
        for value in values:
            checked(name, value)
    else:
        if any(value is None for value in values):
            checked(name, None)
        if numbers := [value for value in values if value is not None]:
            checked(name, numbers)


def _array(values: tuple[Any, ...]) -> np.ndarray:
    if all(isinstance(value, str) for value in values) or all(is_number(value) for value in values):
        return np.asarray(values)
    array = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        array[place] = value
    return array


def as_item(value: Any) -> Any:
    """Return a number of NumPy's as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _apart(name: str) -> bool:
    """Say whether what a name means is the same in all markets of a launch."""
    return name in ("preset", "flow", *ENSEMBLE_WIDE) or name.endswith(".count") or of_regime(name) is not None


def _stored(name: str, value: Any) -> Any:
    """Return a value as JSON keeps it."""
    return stored_agents(value) if name == "agents" else plain(value)


def plain(value: Any) -> Any:
    """Return numbers, and what holds them, as JSON keeps them: NumPy's as Python's."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, FlowTable):
        return value.numbers()
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value
