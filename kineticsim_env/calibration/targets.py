"""What a market is calibrated to, as users hand it over: statistics with their values, a series or order events."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from kineticsim_env.data.events import OrderEvents
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.values import check_count, is_number, show
from kineticsim_env.statistics import (
    STATISTICS,
    Measured,
    Plan,
    Value,
    check_statistics,
    measure_events,
    measure_series,
)
from kineticsim_env.statistics.given import as_columns
from kineticsim_env.statistics.plans import column_names, named_statistics, shown_label

_SERIES = (*layout.SERIES, *layout.FURTHER_SERIES)
_OF_PRICES = ("volatility", "kurtosis", "kurtosis(span=10)", "autocorrelation(lag=1)")
_OF_PRICES += ("abs_autocorrelation(lag=[1, 5, 20])", "variance_ratio(span=[2, 10])")
_OF_VOLUMES = ("volume", "volume_deviation", "volume_volatility")
_OF_EVENTS = ("event_mean", "event_share")
_ALLOWED = "a mapping of statistics to their values, what measure returns, series of whole numbers, or order events"


@dataclasses.dataclass(frozen=True)
class Target:
    """What is fitted, and in which simulated markets."""

    statistics: dict[str, Any]  # by name, as `measure` takes them
    values: dict[str, float]  # of the target, by column (`Measured.columns`): of a curve "autocorrelation_1" and so on
    intervals: int  # of a simulated market
    markets: int  # over which a value is a mean
    own: tuple[int, int] | None = None  # intervals and markets of the target itself; None of a table or of order events


def read_target(target: Any, statistics: Any = None, intervals: Any = None, replicates: Any = None) -> Target:
    """Return a target; arguments and errors are those of `calibrate`."""
    target = as_columns(target)
    series = _series(target)
    if series is not None:
        chosen = named_statistics(
            (_OF_PRICES + _OF_VOLUMES * ("volume" in series)) if statistics is None else statistics
        )
        given: Any = measure_series(series, chosen, group=None)
    elif isinstance(target, OrderEvents):
        chosen = named_statistics(_OF_EVENTS if statistics is None else statistics)
        given = measure_events(target, chosen)
    elif isinstance(target, Mapping):
        chosen = _of_table(target) if statistics is None else named_statistics(statistics)
        given = target
    else:
        raise TypeError(f"target: expected {_ALLOWED}, got {show(target)}")
    known = isinstance(given, Measured) and given.intervals is not None  # of order events they are not
    own = (given.intervals, given.group_size) if known else None
    plans = check_statistics(chosen)
    length, markets = own or (None, 1)
    intervals = length if intervals is None else intervals
    if intervals is None:
        raise ValueError("intervals: expected how many the target's statistics were measured over, got None")
    values = _values(given, plans)
    for name, value in values.items():
        if not math.isfinite(value):
            raise ValueError(f"target[{name!r}]: expected statistics that the target defines, got {value}")
    return Target(
        {name: given.strip() if isinstance(given, str) else given for name, given in chosen.items()},
        values,
        check_count("intervals", intervals, 1),
        check_count("replicates", markets if replicates is None else replicates, 1),
        own,
    )


def _series(target: Any) -> dict[str, Any] | None:
    """Return a target that is a series, or several by name; None if it is a table of statistics."""
    if not isinstance(target, Mapping):
        if isinstance(target, (str, bytes)) or not isinstance(target, Iterable):
            return None
        return {"last_price": _array(target)}
    found = {name: _array(values) for name, values in target.items() if not isinstance(values, Value)}
    if not target or len(found) < len(target) or not all(name in _SERIES for name in found):
        return None
    return found if all(np.ndim(values) for values in found.values()) else None


def _of_table(target: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statistics of a table, by name: what its names say, or what they were measured with."""
    texts = target.texts if isinstance(target, Measured) else {}
    for name in target:
        if name in texts or not isinstance(name, str) or name.partition("(")[0].strip() in STATISTICS:
            continue
        if isinstance(target, Measured):
            raise ValueError(f"statistics: expected what {name!r} was measured with, got None: it is a function")
        if np.ndim(target[name]) == 1 and len(target[name]) > 1:
            raise ValueError(
                f"target: expected names of series ({', '.join(_SERIES)}) or of statistics ({', '.join(STATISTICS)}), "
                f"got {name!r}"
            )
    return named_statistics({name: texts.get(name, name) for name in target})


def _array(values: Any) -> Any:
    """Return a column of a table, such as pandas has, or a list as an array; a tensor stays where it is."""
    return values if hasattr(values, "detach") or np.ndim(values) == 0 else np.asarray(values)


def _values(given: Mapping[str, Any], plans: Mapping[str, Plan]) -> dict[str, float]:
    """Return the value of each column."""
    for name in given:
        if name not in plans:
            raise ValueError(f"target: expected one of the statistics {', '.join(plans)}, got {show(name)}")
    values = {}
    for name, plan in plans.items():
        if name not in given:
            raise ValueError(f"target: expected a value of each of {', '.join(plans)}, got no {name!r}")
        one, labels = given[name], plan.labels
        if isinstance(one, Value):
            if len(one.value) != 1:
                raise ValueError(f"target: expected one group of markets, got {len(one.value)}: group=None")
            one = one.value[0]
        array = np.asarray(one.tolist() if hasattr(one, "tolist") else one, dtype=object)
        wanted, allowed = (), "a number"
        if labels is not None:
            wanted, allowed = (len(labels),), f"{len(labels)} numbers, for {plan.axis} {_listed(labels)}"
        if array.shape != wanted or not all(is_number(value) for value in array.ravel()):
            raise ValueError(f"target[{name!r}]: expected {allowed}, got {show(given[name])}")
        for column, value in zip(column_names(name, labels), array.ravel(), strict=True):
            if column in values and not math.isclose(values[column], value, rel_tol=0):
                raise ValueError(f"target[{name!r}]: expected {column} {values[column]}, as above, got {value}")
            values[column] = float(value)
    return values


def _listed(labels: tuple[Any, ...]) -> str:
    shown = [shown_label(label) for label in labels]
    return ", ".join(shown if len(shown) <= 6 else [*shown[:3], "...", shown[-1]])
