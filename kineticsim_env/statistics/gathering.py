"""What is gathered of a run: for each market sums of a fixed size, from which `measuring.py` reads the statistics.

An accumulator is opened for M markets, is handed chunk after chunk, and holds its sums by name, `[M, ...]`. Two
statistics that gather the same share one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import torch

from kineticsim_env.data.measures import Session
from kineticsim_env.runtime.values import show
from kineticsim_env.statistics.arrays import best_prices
from kineticsim_env.statistics.chunks import Chunk, Series

Sums = Mapping[str, torch.Tensor]
_DIRECT = 16  # lags up to which products are summed one by one; beyond, a Fourier transform is quicker
_EXACT = 7  # bits of sizes that a histogram tells apart
_BITS = 16  # of the largest that it tells apart


class Accumulator:
    """What all have in common; derive from it for a statistic of your own.

    Attributes:
        record: The recorded series that it reads.
        history: How many intervals before a chunk it reads.
        sums: What it has gathered, `[M, ...]` by name; `open` allocates it.
    """

    record: tuple[str, ...] = ()
    history: int = 0
    sums: dict[str, torch.Tensor]

    def key(self) -> Hashable:
        """Return what equal accumulators have in common; they are gathered once."""
        return id(self)

    def join(self, other: Any) -> None:
        """Gather for another one of the same key, too."""

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of the sums behind the axis of markets."""
        raise NotImplementedError

    def open(self, markets: int, device: torch.device) -> None:
        """Allocate the sums, float64."""
        options: dict[str, Any] = {"dtype": torch.float64, "device": device}
        self.sums = {name: torch.zeros((markets, *shape), **options) for name, shape in self.shapes().items()}

    def update(self, chunk: Chunk) -> None:
        """Add a chunk to the sums of its markets, `chunk.rows`."""
        raise NotImplementedError


class _OfSeries(Accumulator):
    """What is gathered of the same series is gathered once, up to the largest `most` that is asked for."""

    def __init__(self, *series: Series, most: int = 0) -> None:
        self.series, self.most = series, most
        self.record = tuple(name for each in series for name in each.record)
        self.history = self.lead = max((each.lead for each in series), default=0)

    def key(self) -> Hashable:
        return type(self), *self.series

    def join(self, other: Any) -> None:
        self.most = max(self.most, other.most)


class Moments(_OfSeries):
    """Sums of powers of a series less its first value: so a high level costs no digits."""

    def __init__(self, series: Series, order: int = 1) -> None:
        super().__init__(series, most=order)

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See `Accumulator`."""
        return {"count": (), "first": (), "powers": (self.most,)}

    def update(self, chunk: Chunk) -> None:
        """See `Accumulator`."""
        values, rows = chunk.window(self.series[0]), chunk.rows
        if not values.shape[1]:
            return
        if chunk.end - self.lead == values.shape[1]:
            self.sums["first"][rows] = values[:, 0]
        self.sums["count"][rows] += values.shape[1]
        values = values - self.sums["first"][rows, None]
        square = values * values if self.most > 1 else values
        parts = [values, square, *(square * part for part in (values, square)[: max(0, self.most - 2)])]
        for power, part in enumerate(parts[: self.most]):
            self.sums["powers"][rows, power] += part.sum(1)


class Products(_OfSeries):
    """Sums of early(t) * late(t + k) for k = 0 .. most, each series less its first value.

    With the sums that means are taken from: those of all values, of the last k of `early` and the first k of `late`.
    """

    def __init__(self, early: Series, late: Series, most: int) -> None:
        super().__init__(early, late, most=most)
        self.history = most + self.lead

    def join(self, other: Products) -> None:
        """See `Accumulator`."""
        super().join(other)
        self.history = self.most + self.lead

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See `Accumulator`."""
        return {
            "count": (),
            "origins": (2,),  # the first values, of early and late
            "totals": (2,),
            "squares": (2,),
            "products": (self.most + 1,),
            "head": (self.most,),  # of late
            "tail": (self.most,),  # of early, the last value first
        }

    def update(self, chunk: Chunk) -> None:
        """See `Accumulator`."""
        rows, sums, total = chunk.rows, self.sums, chunk.end - self.lead
        new = min(chunk.new(series) for series in self.series)
        if not new:
            return
        known = min(total, new + self.most)
        early, late = (chunk.values(series) for series in self.series)
        early, late = early[:, early.shape[1] - known :], late[:, late.shape[1] - new :]
        before = known - new
        if total == new:
            sums["origins"][rows] = torch.stack([early[:, 0], late[:, 0]], 1)
        early, late = (part - sums["origins"][rows, i, None] for i, part in enumerate((early, late)))
        sums["count"][rows] += new
        for i, part in enumerate((early[:, before:], late)):
            sums["totals"][rows, i] += part.sum(1)
            sums["squares"][rows, i] += (part * part).sum(1)
        sums["products"][rows] += self._products(early, late, before)
        begin = total - new
        if begin < self.most:
            head = late[:, : self.most - begin]
            sums["head"][rows, begin : begin + head.shape[1]] = head
        kept = min(known, self.most)
        sums["tail"][rows, :kept] = early[:, known - kept :].flip(1)

    def _products(self, early: torch.Tensor, late: torch.Tensor, before: int) -> torch.Tensor:
        """Return what new values of `late` add, `[m, most + 1]`; `early` begins so many intervals earlier."""
        new = late.shape[1]
        if self.most <= _DIRECT:
            found = []
            for lag in range(self.most + 1):
                skip = min(new, max(0, lag - before))
                part = early[:, before + skip - lag : before + new - lag] if skip < new else early[:, :0]
                found.append((part * late[:, skip:]).sum(1))
            return torch.stack(found, 1)
        size = _transform_size(before + new + self.most)
        spectra = torch.fft.rfft(late, size).conj() * torch.fft.rfft(early, size)
        lags = torch.arange(self.most + 1, device=late.device)
        # Sums of whole numbers are whole: rounding takes off what the transform has added.
        return torch.fft.irfft(spectra, size)[:, (before - lags) % size].round()


class Histogram(_OfSeries):
    """How often each value came: whole numbers below 128 in size each for itself, then 64 bins per doubling.

    All that have more bits share the last bin.
    """

    bins = ((_BITS - _EXACT) << (_EXACT - 1)) + (1 << _EXACT) + 1  # of one sign

    def open(self, markets: int, device: torch.device) -> None:
        """See `Accumulator`; bins from the lowest value to the highest, zero in the middle."""
        shape = (markets, 2 * self.bins - 1)
        self.sums = {"counts": torch.zeros(shape, dtype=torch.int32, device=device)}

    def update(self, chunk: Chunk) -> None:
        """See `Accumulator`."""
        values = chunk.window(self.series[0])
        if not values.shape[1]:
            return
        size = values.abs().clamp(max=1 << _BITS)
        doublings = (torch.frexp(size).exponent - _EXACT).clamp(min=0).long()
        place = (doublings << (_EXACT - 1)) + (size.long() >> doublings)
        place = self.bins - 1 + torch.where(values < 0, -place, place)
        ones = torch.ones((), dtype=torch.int32, device=values.device).expand_as(place)
        self.sums["counts"][chunk.rows].scatter_add_(1, place, ones)

    @classmethod
    def sizes(cls, device: torch.device) -> torch.Tensor:
        """Return the middle of each bin of one sign, float64, from 0 up; NaN of the last, which has none."""
        place = torch.arange(cls.bins, dtype=torch.float64, device=device)
        doublings = (torch.div(place, 1 << (_EXACT - 1), rounding_mode="floor") - 1).clamp(min=0)
        width = 2**doublings
        middles = (place - doublings * (1 << (_EXACT - 1))) * width + (width - 1) / 2
        middles[-1] = math.nan
        return middles


class Responses(_OfSeries):
    """Moves of a price in the direction of takers' flow, by how much they did: sizes in bins of doublings."""

    bins = 16

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See `Accumulator`."""
        return {"count": (self.bins,), "moves": (self.bins,), "sizes": (self.bins,)}

    def update(self, chunk: Chunk) -> None:
        """See `Accumulator`."""
        move, flow = (chunk.window(series) for series in self.series)
        new = min(move.shape[1], flow.shape[1])
        if not new:
            return
        move, flow = move[:, move.shape[1] - new :], flow[:, flow.shape[1] - new :]
        size = flow.abs()
        place = (torch.frexp(size).exponent - 1).clamp(0, self.bins - 1).long()
        sign = flow.sign()
        for name, values in (("count", sign.abs()), ("moves", move * sign), ("sizes", size)):
            self.sums[name][chunk.rows].scatter_add_(1, place, values)


class Books(_OfSeries):
    """Mean books: units at each distance from a side's own best price, both sides alike, at looks between intervals."""

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See `Accumulator`."""
        return {"sides": (), "units": (self.most + 1,)}

    def update(self, chunk: Chunk) -> None:
        """Nothing that is recorded is needed."""

    def look(self, bid: torch.Tensor, ask: torch.Tensor) -> None:
        """Add books int32 `[M, L]`; a side that is empty is left out, and beyond the grid nothing rests."""
        levels = bid.shape[1]
        steps = torch.arange(self.most + 1, device=bid.device)
        best_bid, best_ask = best_prices(bid, ask)
        for side, best, there, way in ((bid, best_bid, best_bid >= 0, -1), (ask, best_ask, best_ask < levels, 1)):
            place = best[:, None] + way * steps
            inside = there[:, None] & (place >= 0) & (place < levels)
            units = side.gather(1, place.clamp(0, levels - 1).long())
            self.sums["units"] += torch.where(inside, units, 0)
            self.sums["sides"] += there


class Events(Accumulator):
    """What a function finds in the order events of a market: so many numbers."""

    def __init__(self, function: Callable[[list[Session]], Any], count: int) -> None:
        self.function, self.count = function, count

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See `Accumulator`."""
        return {"values": (self.count,)}

    def update(self, chunk: Chunk) -> None:
        """Nothing that is recorded is needed."""

    def look(self, market: int, sessions: list[Session]) -> None:
        """Take what a market showed, by its number."""
        found = np.atleast_1d(np.asarray(self.function(sessions), np.float64))
        if found.shape != (self.count,):
            raise ValueError(f"statistics: expected {self.count} numbers of order events, got {show(found)}")
        self.sums["values"][market] = torch.from_numpy(found)


def _transform_size(least: int) -> int:
    """Return the smallest of 2^n, 3 * 2^n and 5 * 2^n from `least` up, whose transforms are quick."""
    return min(base << max(0, (-(-least // base) - 1).bit_length()) for base in (1, 3, 5))
