"""Series as they come: a part of a run at a time, with the end of what came before, and series made of others.

All values are whole numbers and are handed on as float64, whose sums are exact up to 2^53: so no result shows where a
run was cut, in which order a device adds, nor how many markets were looked at together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import torch

_BLOCK = {"cuda": 1 << 24, "cpu": 1 << 17}  # values that are looked at together: on a CPU they stay in its cache


class Series(Protocol):
    """A series that is recorded, or made of recorded ones; equal ones are the same series."""

    def __hash__(self) -> int: ...

    @property
    def record(self) -> tuple[str, ...]:
        """Names of the recorded series that it is made of."""
        ...

    @property
    def lead(self) -> int:
        """How many intervals pass before its first value."""
        ...

    def of(self, chunk: Chunk) -> torch.Tensor:
        """Return its values, float64 `[m, n]`, the last one that of the chunk's last interval."""
        ...


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A series as `Simulator.run` records it."""

    name: str

    lead = 0

    @property
    def record(self) -> tuple[str, ...]:
        """See `Series`."""
        return (self.name,)

    def of(self, chunk: Chunk) -> torch.Tensor:
        """See `Series`."""
        return chunk.recorded[self.name].double()


@dataclasses.dataclass(frozen=True)
class Change:
    """What a recorded series has changed by over so many intervals: p(t) - p(t - span), one for each t."""

    name: str
    span: int = 1

    @property
    def record(self) -> tuple[str, ...]:
        """See `Series`."""
        return (self.name,)

    @property
    def lead(self) -> int:
        """See `Series`."""
        return self.span

    def of(self, chunk: Chunk) -> torch.Tensor:
        """See `Series`."""
        values = chunk.values(Recorded(self.name))
        return values[:, self.span :] - values[:, : max(0, values.shape[1] - self.span)]


@dataclasses.dataclass(frozen=True)
class Made:
    """A function of the values of other series at the same interval; it returns whole numbers."""

    function: Callable[..., torch.Tensor]  # float64 [m, n] of each
    inputs: tuple[Series, ...]

    @property
    def record(self) -> tuple[str, ...]:
        """See `Series`."""
        return tuple(name for series in self.inputs for name in series.record)

    @property
    def lead(self) -> int:
        """See `Series`."""
        return max(series.lead for series in self.inputs)

    def of(self, chunk: Chunk) -> torch.Tensor:
        """See `Series`."""
        parts = [chunk.values(series) for series in self.inputs]
        length = min(part.shape[1] for part in parts)
        return self.function(*(part[:, part.shape[1] - length :] for part in parts)).double()


class Chunk:
    """Some intervals of some markets, and as many before them as any statistic looks back.

    Attributes:
        rows: Which markets.
        recorded: int32 or int64 `[m, h + c]` by name: c new intervals, the h before them that are still known.
        end: Intervals since the beginning, the new ones with them.
    """

    def __init__(self, rows: slice, recorded: Mapping[str, torch.Tensor], new: int, end: int) -> None:
        self.rows, self.recorded, self.end = rows, recorded, end
        self._new = new
        self._made: dict[Series, torch.Tensor] = {}

    def values(self, series: Series) -> torch.Tensor:
        """Return all values of a series that are known here, float64 `[m, n]`; made once."""
        if series not in self._made:
            self._made[series] = series.of(self)
        return self._made[series]

    def new(self, series: Series) -> int:
        """Return how many values of a series come with this chunk."""
        return max(0, min(self._new, self.end - series.lead))

    def window(self, series: Series, before: int = 0) -> torch.Tensor:
        """Return the new values of a series, and up to so many before them, float64 `[m, b + n]`."""
        values, new = self.values(series), self.new(series)
        if values.shape[1] < new:  # or what came first in a chunk would be left out
            raise ValueError(f"history: expected {series.lead} intervals or more before {series}, got fewer")
        return values[:, max(0, values.shape[1] - new - before) :]


class Feed:
    """Cuts what comes of M markets into chunks, and keeps as many intervals as statistics look back at."""

    def __init__(self, markets: int, history: int) -> None:
        self.markets, self.history, self.end = markets, history, 0
        self._last: dict[str, torch.Tensor] = {}

    def chunks(self, part: Mapping[str, torch.Tensor]) -> Iterator[Chunk]:
        """Take the next intervals, `[M, c]` by name, and yield them as chunks of a few markets each."""
        new = next(iter(part.values())).shape[1]
        self.end += new
        joined = {
            name: torch.cat([self._last[name], values], 1) if self._last else values for name, values in part.items()
        }
        first = next(iter(joined.values()))
        width, step = first.shape[1], max(1, _BLOCK[first.device.type] // first.shape[1])
        for begin in range(0, self.markets, step):
            rows = slice(begin, min(begin + step, self.markets))
            yield Chunk(rows, {name: values[rows] for name, values in joined.items()}, new, self.end)
        keep = min(width, self.history)
        self._last = {name: values[:, width - keep :].clone() for name, values in joined.items()}
