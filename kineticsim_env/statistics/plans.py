"""What a statistic is: what it gathers, and how its value is read from that; and how a text names one."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kineticsim_env.runtime.checks import check_series
from kineticsim_env.runtime.values import check_callable, is_number, is_one_of, is_whole, show
from kineticsim_env.statistics.chunks import Chunk, Recorded
from kineticsim_env.statistics.gathering import Accumulator, Events

Make = Callable[..., "Plan"]  # a statistic: its parameters -> its plan


@dataclasses.dataclass(frozen=True)
class Plan:
    """A statistic whose parameters are set.

    Attributes:
        accumulators: What it gathers.
        read: Of the sums of each accumulator, `[m, ...]`: the value of each market, float64 `[m]`, or `[m, n]`.
        axis: What the n values of a market are told apart by: the name of a parameter; None is one value.
        labels: Its n values.
        unit: Of the value.
        pooled: Whether a group's value is read from the sums of all its markets together; else it is the mean of the
            markets' values.
    """

    accumulators: tuple[Accumulator, ...]
    read: Callable[..., torch.Tensor]
    axis: str | None = None
    labels: tuple[Any, ...] | None = None
    unit: str = ""
    pooled: bool = False

    @property
    def record(self) -> tuple[str, ...]:
        """The series that have to be recorded."""
        return tuple(dict.fromkeys(name for part in self.accumulators for name in part.record))

    @property
    def of_events(self) -> bool:
        """Whether it is of order events, which a tape has to play."""
        return any(isinstance(part, Events) for part in self.accumulators)


class Whole(Accumulator):
    """Series as they are, all of them: memory grows with time."""

    def __init__(self, names: Sequence[str]) -> None:
        self.record, self.parts = tuple(names), {}

    def open(self, markets: int, device: torch.device) -> None:
        """See `Accumulator`; what came is joined when it is read."""
        self.sums, self.parts = {}, {}

    def update(self, chunk: Chunk) -> None:
        """See `Accumulator`."""
        for name in self.record:
            rows = self.parts.setdefault(name, {}).setdefault(chunk.rows.start, [])
            rows.append(chunk.window(Recorded(name)).clone())

    def close(self) -> None:
        """Join what came."""
        for name, blocks in self.parts.items():
            self.sums[name] = torch.cat([torch.cat(blocks[begin], 1) for begin in sorted(blocks)])
        self.parts = {}


def of_series(
    function: Callable[..., torch.Tensor], *names: str, labels: Iterable[Any] | None = None, axis: str = "value"
) -> Make:
    """Return a statistic that is a function of whole series. They are kept, so memory grows with time.

    Args:
        function: Of the series, float64 tensors `[m, S]` in the order of their names; returns the value of each market,
            `[m]`, or several, `[m, n]`. Where a statistic is listed without a name of its own, it has the function's.
        *names: Series, as in `Simulator.run`.
        labels: What the n values of a market are told apart by, numbers or texts. A sweep needs them, as its table has
            its columns before anything is run.
        axis: What `labels` are.
    """
    check_callable("function", function, "a function of series")
    checked = check_series(names, "names")
    told = told_apart(labels)

    def statistic() -> Plan:
        read = lambda sums: function(*(sums[name] for name in checked))  # noqa: E731
        return Plan((Whole(checked),), read, None if told is None else axis, told)

    return named_as(function, statistic)


def told_apart(labels: Any) -> tuple[Any, ...] | None:
    """Return what a user's values are told apart by, checked; None of one value, or of labels that are not known."""
    if labels is not None and (isinstance(labels, str) or not isinstance(labels, Iterable)):
        raise TypeError(f"labels: expected numbers or texts, one per value, or None, got {show(labels)}")
    return None if labels is None else tuple(labels)


def named_as(function: Callable[..., Any], statistic: Make) -> Make:
    """Return a statistic of a user's function, called as that is; by `of_series` a store finds what was written."""
    statistic.__dict__["of_series"] = function
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        if hasattr(function, name) and getattr(function, "__name__", "") != "<lambda>":
            setattr(statistic, name, getattr(function, name))
    return statistic


def column_names(name: str, labels: Iterable[Any] | None) -> list[str]:
    """Return the names of a statistic's columns in a table: its own, or of a curve one per label.

    They are plain: `"kurtosis(span=10)"` is `kurtosis_10`, and `"autocorrelation(lag=[1, 5], price='mid')"` is
    `autocorrelation_mid_1` and `autocorrelation_mid_5`. A name that is no text of a statistic stays as it is.
    """
    function, parameters = _call(name) or (name, {})
    alone = [value for value in parameters.values() if not isinstance(value, (list, tuple, set, dict))]
    plain = "_".join([function, *map(shown_label, alone)])
    return [plain] if labels is None else [f"{plain}_{shown_label(label)}" for label in labels]


def error_columns(column: str) -> tuple[str, str]:
    """Return the names of a column's standard error and of half the width of its 95% interval."""
    return f"{column}_error", f"{column}_half_width"


def shown_label(label: Any) -> str:
    """Return a label as texts have it: a number with six digits, or as many as it needs."""
    if not is_number(label):
        return str(label)
    short = f"{label:g}"
    return short if float(short) == label else repr(label.item() if isinstance(label, np.generic) else label)


def named_statistics(statistics: Any) -> dict[str, Any]:
    """Return statistics by name, as they were given; see `check_statistics`, which looks at each."""
    allowed = "a sequence of names and functions, or a mapping of names to them"
    try:  # strange objects raise what they like
        listed = None if isinstance(statistics, (str, bytes)) else list(statistics)
    except Exception as error:
        raise TypeError(f"statistics: expected {allowed}, got {show(statistics)}") from error
    if listed is None:
        raise TypeError(f"statistics: expected {allowed}, got {show(statistics)}")
    items = statistics.items() if isinstance(statistics, Mapping) else ((None, given) for given in listed)
    named: dict[str, Any] = {}
    for name, given in items:
        called = given.strip() if isinstance(given, str) else getattr(given, "__name__", None)
        name = called if name is None else name
        if not isinstance(name, str) or not name:
            raise TypeError(f"statistics: expected {allowed}, got {show(given)}")
        if name in named:
            raise ValueError(f"statistics: expected each once, or under another name, got {name!r} twice")
        named[name] = given
    if not named:
        raise ValueError("statistics: expected one or more, got none")
    return named


def check_statistics(statistics: Any, known: Mapping[str, Make]) -> dict[str, Plan]:
    """Return the plans of statistics by name, as `measure` takes them; texts can name those that are known."""
    named = named_statistics(statistics)
    plans = {name: _plan_of(given, known) for name, given in named.items()}
    owners: dict[str, tuple[str, Any]] = {}
    for name, plan in plans.items():
        labels = [None] if plan.labels is None else plan.labels
        for column, label in zip(column_names(name, plan.labels), labels, strict=True):
            meaning = _meaning(named[name], plan.axis, label)
            for used in (column, *error_columns(column)):
                owner, other = owners.setdefault(used, (name, meaning))
                if other != meaning:
                    raise ValueError(
                        f"statistics: expected names with columns of their own, got {owner!r} and {name!r}, which "
                        f"both have a column {used!r}"
                    )
    return plans


def _meaning(given: Any, axis: str | None, label: Any) -> Any:
    """Return what a column is, equal for the same one of two statistics: `f(lag=5)` and `f(lag=[1, 5])` at 5."""
    called = _call(given) if isinstance(given, str) else None
    if called is None:
        return object()
    scalars = {name: value for name, value in called[1].items() if name != axis}
    return called[0], repr(sorted((scalars | ({} if axis is None else {axis: label})).items()))


def _plan_of(given: Any, known: Mapping[str, Make]) -> Plan:
    if callable(given):
        try:
            plan = given()
        except Exception as error:
            error.add_note(f"It was raised by the statistic {show(given)}, which is called without arguments.")
            raise
    else:
        name, parameters = _parsed(given, known)
        plan = known[name](**parameters)
    if not isinstance(plan, Plan):
        raise TypeError(
            f"statistics: expected a function that returns a Plan, got {show(given)}, which returns {show(plan)}"
        )
    if not plan.accumulators or not all(isinstance(part, Accumulator) for part in plan.accumulators):
        raise TypeError(
            f"statistics: expected one or more of Accumulator, got {show(given)}, whose Plan gathers "
            f"{show(plan.accumulators)}"
        )
    return plan


def _parsed(text: Any, known: Mapping[str, Make]) -> tuple[str, dict[str, Any]]:
    """Return the name and the parameters of a text such as `"kurtosis(span=10)"`."""
    name, parameters = (_call(text) if isinstance(text, str) else None) or ("", {})
    if name not in known:
        listed, kind = ", ".join(known), ValueError if isinstance(text, str) else TypeError
        said = "parameters are given as in 'kurtosis(span=10)'"
        raise kind(f"statistics: expected one of {listed}, got {show(text)}; {said}")
    takes = inspect.signature(known[name]).parameters
    for parameter in parameters:
        if parameter not in takes:
            raise ValueError(f"statistics: expected the parameters {', '.join(takes) or 'none'}, got {text!r}")
    return name, parameters


def _call(text: str) -> tuple[str, dict[str, Any]] | None:
    """Return the name and the parameters of a call that is written in a text; None if it is something else."""
    try:
        found = ast.parse(text.strip(), mode="eval").body
        keywords = []
        if isinstance(found, ast.Call) and not found.args:
            found, keywords = found.func, found.keywords
        if not isinstance(found, ast.Name):
            return None
        return found.id, {str(word.arg): ast.literal_eval(word.value) for word in keywords}
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        return None


def check_labels(name: str, given: Any, low: float, high: float, whole: bool = True) -> tuple[tuple[Any, ...], bool]:
    """Return the numbers of a parameter, one or several, and whether it was one alone."""
    kind = "whole numbers" if whole else "numbers"
    allowed = f"{kind} from {low:g} to {high:g}, one or a list"
    alone = is_number(given)
    if not alone and (isinstance(given, (str, Mapping)) or not isinstance(given, Iterable)):
        raise TypeError(f"{name}: expected {allowed}, got {show(given)}")
    values = (given,) if alone else tuple(given)
    good = values and all((is_whole(v) if whole else is_number(v)) and low <= v <= high for v in values)
    if not good or len(set(values)) < len(values):
        raise ValueError(f"{name}: expected {allowed}, got {show(given)}")
    return tuple(int(v) if whole else float(v) for v in values), alone


def check_names(name: str, given: Any, known: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """Return the texts of a parameter, one or several of those that are known, and whether it was one alone."""
    alone = isinstance(given, str)
    values = (given,) if alone or not isinstance(given, Iterable) else tuple(given)
    if not values or not all(is_one_of(value, known) for value in values) or len(set(values)) < len(values):
        raise ValueError(f"{name}: expected one or a list of {', '.join(known)}, got {show(given)}")
    return values, alone


def curve(
    read: Callable[..., torch.Tensor],
    axis: str,
    labels: tuple[Any, ...],
    alone: bool,
    *gathered: Accumulator,
    unit: str = "",
) -> Plan:
    """Return the plan of a statistic that has one value per label, or one value if the label was given alone."""
    if alone:
        return Plan(gathered, lambda *sums: read(*sums)[:, 0], unit=unit)
    return Plan(gathered, read, axis, labels, unit)
