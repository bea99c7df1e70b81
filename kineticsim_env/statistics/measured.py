"""`Measured`: what `measure` returns, each statistic with its error over the markets of a group."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from kineticsim_env.runtime.values import check_count, check_flag, load_optional, show
from kineticsim_env.statistics.gathering import Sums
from kineticsim_env.statistics.over_markets import bootstrap_interval, half_width
from kineticsim_env.statistics.plans import Plan, column_names, error_columns

_READ = 1 << 24  # numbers of sums that are read together


@dataclasses.dataclass(frozen=True)
class Value:
    """A statistic of G groups of markets; n values each, or one.

    Attributes:
        value: float64 `[G]` or `[G, n]`; NaN where no market of the group defines it.
        error: Its standard error over the group's markets; NaN with fewer than two that have a value.
        count: int64, markets that have a value; of what is pooled, all of the group, or none.
        of_markets: Each market's own value, float64 `[M]` or `[M, n]`.
        axis: What the n values are told apart by, None of one value.
        labels: Its n numbers.
        unit: Of the values.
        pooled: Whether they are read from what all markets of a group have gathered together; else they are means.
    """

    value: np.ndarray
    error: np.ndarray
    count: np.ndarray
    of_markets: np.ndarray
    axis: str | None = None
    labels: tuple[Any, ...] | None = None
    unit: str = ""
    pooled: bool = False

    @property
    def half_width(self) -> np.ndarray:
        """Half the width of its 95% interval by Student's t, shaped as `value`; see `half_width`."""
        return half_width(self.error, self.count)

    def intervals(self, confidence: float = 0.95, resamples: int = 1000) -> tuple[np.ndarray, np.ndarray]:
        """Return both ends of percentile bootstrap intervals of the mean over a group's markets, as `value` is shaped.

        For heavy tails, where a few markets make the mean: see `bootstrap_interval`.

        Raises:
            ValueError: If the value is no such mean, but one of all markets together: it has its `error` alone.
        """
        groups = len(self.value)
        if self.pooled:
            raise ValueError(
                "intervals: expected means over markets, got a statistic that is read of all markets of a group "
                "together; its standard error is `error`"
            )
        markets = self.of_markets.reshape(groups, len(self.of_markets) // groups, -1)
        found = [
            bootstrap_interval(markets[group, :, i], confidence=confidence, resamples=resamples)
            for group in range(groups)
            for i in range(markets.shape[2])
        ]
        low, high = (
            np.array(ends).reshape(self.value.shape) for ends in zip(*(part[1:3] for part in found), strict=True)
        )
        return low, high


class Measured(Mapping[str, Value]):
    """Statistics by name, of groups of markets.

    Attributes:
        intervals: That were measured; None of order events, in which they are not told apart.
        groups: G.
        group_size: Markets per group.
        texts: What texts say of the statistics, by name; those of users' functions are not among them.
    """

    def __init__(
        self,
        values: Mapping[str, Value],
        intervals: int | None,
        groups: int,
        group_size: int,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self._values = dict(values)
        self.intervals, self.groups, self.group_size = intervals, groups, group_size
        self.texts = dict(texts or {})

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        of = f"groups={self.groups}, group_size={self.group_size}, intervals={self.intervals}"
        return f"Measured({', '.join(self._values)}; {of})"

    def columns(self, errors: bool = True) -> dict[str, np.ndarray]:
        """Return flat columns, float64 `[G]`: `"kurtosis"`, of a curve `"autocorrelation_1"`.

        Args:
            errors: Whether standard errors are among them, `"kurtosis_error"`, and half the widths of 95% intervals,
                `"kurtosis_half_width"`.
        """
        found = {}
        check_flag("errors", errors)
        for name, value in self.items():
            parts = [value.value, value.error, value.half_width] if errors else [value.value]
            for i, column in enumerate(column_names(name, value.labels)):
                for used, part in zip((column, *error_columns(column)), parts, strict=False):
                    found[used] = part if value.labels is None else part[:, i]
        return found

    def to_pandas(self, errors: bool = True) -> Any:
        """Return `columns` as a DataFrame, one row per group."""
        return load_optional("pandas", "to_pandas needs pandas: pip install pandas").DataFrame(self.columns(errors))

    def table(self, group: int = 0) -> str:
        """Return the values of a group as text, with standard errors; of a curve at most seven."""
        group = check_count("group", group, 0, self.groups - 1)
        lines = []
        for name, value in self.items():
            columns = column_names(name, value.labels)
            rows = [(columns[0], (group,))]
            if value.labels is not None:
                chosen = np.unique(np.linspace(0, len(value.labels) - 1, 7).round().astype(int))
                rows = [(columns[i], (group, i)) for i in chosen]
            for label, place in rows:
                shown = "undefined" if math.isnan(value.value[place]) else f"{value.value[place]:,.4g}"
                error = "-" if math.isnan(value.error[place]) else f"{value.error[place]:.2g}"
                lines.append((label, shown, f"± {error}", value.unit))
        width = max(len(label) for label, *_ in lines)
        return "\n".join(
            f"{label:{width}s} {shown:>12s} {error:11s} {unit}".rstrip() for label, shown, error, unit in lines
        )


def value_of(plan: Plan, sums: tuple[Sums, ...], markets: int, groups: int) -> Value:
    """Read a statistic from what was gathered."""
    own = _read(plan, sums, markets)
    axis, labels = plan.axis, plan.labels
    if labels is None and own.dim() == 2:  # several numbers per market of a user's own
        axis, labels = "value", tuple(range(own.shape[1]))
    split = own.view(groups, markets // groups, *own.shape[1:])
    seen = ~split.isnan()
    count = seen.sum(1)
    if plan.pooled and groups < markets:
        value, error = _together(plan, sums, groups)
        count = torch.where(value.isnan(), 0, markets // groups)
    else:
        number = count.double()
        value = torch.where(seen, split, 0).sum(1) / torch.where(number > 0, number, math.nan)
        squares = torch.where(seen, split - value[:, None], 0).square().sum(1)
        error = torch.sqrt(squares / torch.where(number > 1, (number - 1) * number, math.nan))
    arrays = (part.cpu().numpy() for part in (value, error, count, own))
    return Value(*arrays, axis, labels, plan.unit, plan.pooled and groups < markets)


def _read(plan: Plan, sums: tuple[Sums, ...], markets: int) -> torch.Tensor:
    """Return the value of each market, some at a time, as reading takes several times the memory of what is read."""
    width = sum(part[0].numel() for one in sums for part in one.values())
    step = max(1, _READ // max(1, width))
    parts = []
    for begin in range(0, markets, step):
        rows = slice(begin, begin + step)
        found = plan.read(*({name: part[rows] for name, part in one.items()} for one in sums))
        if not isinstance(found, torch.Tensor) or len(found.shape) not in (1, 2):
            got = f"values {list(found.shape)}" if isinstance(found, torch.Tensor) else show(found)
            raise TypeError(f"statistics: expected a tensor with one row or value per market, got {got}")
        parts.append(found)
    found = torch.cat(parts).double()
    shape = (markets,) if plan.labels is None else (markets, len(plan.labels))
    if tuple(found.shape) != shape and not (plan.labels is None and found.dim() == 2 and len(found) == markets):
        raise ValueError(f"statistics: expected {list(shape)}, got values {list(found.shape)} of {markets} markets")
    return found


def _together(plan: Plan, sums: tuple[Sums, ...], groups: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values of groups whose sums are added, and their jackknife errors: from all but one market each."""
    split = [{name: part.view(groups, -1, *part.shape[1:]) for name, part in one.items()} for one in sums]
    whole = [{name: part.sum(1) for name, part in one.items()} for one in split]
    value = plan.read(*whole)
    less = [
        {name: (whole[i][name][:, None] - part).flatten(0, 1) for name, part in one.items()}
        for i, one in enumerate(split)
    ]
    without = plan.read(*less)
    without = without.view(groups, -1, *without.shape[1:])
    size = without.shape[1]
    return value, torch.sqrt((size - 1) / size * (without - without.mean(1, keepdim=True)).square().sum(1))
