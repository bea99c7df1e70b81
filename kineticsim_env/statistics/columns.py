"""What a market, a null model or data show of stylised facts: the columns of a scorecard (scorecards.py).

All are measured by the same formulas: what is run by `measure`, series by `measure_series`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kineticsim_env.config import MarketConfig
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics.facts import Fact, statistics_of
from kineticsim_env.statistics.gathering import Books
from kineticsim_env.statistics.given import checked_books, checked_series
from kineticsim_env.statistics.measured import Measured, Value
from kineticsim_env.statistics.measuring import check_statistics, measure_at, measure_series
from kineticsim_env.statistics.null_models import random_walk, zero_intelligence
from kineticsim_env.statistics.over_markets import half_width

LEAST = 200  # intervals of a column
_MARKETS = 256  # of a config without per-market fields
_NULL = 1 << 21  # intervals of all markets of a null model, about
_WARM_UP = 200  # of zero-intelligence flow, at least
_PATH = "fundamental path"
_FLOW_OF = MarketConfig.preset("news")  # whose rules zero-intelligence flow has beside a series


@dataclasses.dataclass(frozen=True)
class Line:
    """A fact in a market.

    Attributes:
        fact: Which one, with its range, source and time scale.
        value: The number, NaN where the market does not define it.
        error: Its standard error over markets, a jackknife's but for single statistics.
        count: Over how many markets.
        at_scale: Whether the source knows it at the time scale of the card.
        given: Whether the market, or what there is of it, has the series that it is read from.
    """

    fact: Fact
    value: float
    error: float
    count: int
    at_scale: bool = True
    given: bool = True

    @property
    def half_width(self) -> float:
        """Half the width of the value's 95% interval; NaN of a single market."""
        return float(half_width(self.error, self.count))

    @property
    def verdict(self) -> str:
        """What `place` says of a fact that is known at the scale of the card; else `"other scale"`.

        `"met"` or `"not met"`, `"unclear"`, `"undefined"` or `"no data"`.
        """
        if self.place not in ("within", "outside", "unclear"):
            return self.place
        if not self.at_scale:
            return "other scale"
        return {"within": "met", "outside": "not met"}.get(self.place, self.place)

    @property
    def place(self) -> str:
        """Where the number is, whatever the time scale.

        `"within"` the range or `"outside"`; `"unclear"` where a bound is within the 95% interval; `"undefined"`
        where it is NaN; `"no data"` where a series is missing. A single market has no standard error: its place is
        that of the number alone.
        """
        if math.isnan(self.value):
            return "undefined" if self.given else "no data"
        reach = 0.0 if math.isnan(self.half_width) else self.half_width
        if any(abs(self.value - bound) < reach for bound in (self.fact.low, self.fact.high)):
            return "unclear"
        return "within" if self.fact.low <= self.value <= self.fact.high else "outside"

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "-"
        return f"{self.value:.3g} { ({'within': 'in', 'outside': 'out'}.get(self.place, '?')) }"


@dataclasses.dataclass(frozen=True)
class Column:
    """What a market, a null model or data show of all facts, so many intervals taken together.

    Attributes:
        name: Of the model; the market that a card is of is `"market"`.
        aggregate: Intervals that were taken together.
        lines: One per fact.
        measured: The statistics that they are read from.
        null: Whether it is a null model.
    """

    name: str
    aggregate: int
    lines: tuple[Line, ...]
    measured: Measured
    null: bool = False

    @property
    def met(self) -> int:
        """How many facts are met."""
        return sum(line.verdict == "met" for line in self.lines)

    @property
    def within(self) -> int:
        """How many numbers are within their ranges, at whatever scale these are known."""
        return sum(line.place == "within" for line in self.lines)


@dataclasses.dataclass(frozen=True)
class Columns:
    """How the columns of a card are measured; the arguments of `scorecard` have the same names."""

    facts: tuple[Fact, ...]
    price: str
    interval: float | str
    aggregates: tuple[int, ...]
    intervals: int
    warm_up: int
    progress: bool | None

    def of(self, name: str, market: Any, markets: int | None, null_models: bool, **run: Any) -> list[Column]:
        """Return the columns of a market, a series or a `Measured`, and those of its null models if asked."""
        if isinstance(market, Measured):
            if market.groups != 1:
                raise ValueError(f"{name}: expected measure(..., group=None), got a Measured of {market.groups} groups")
            flow = self._flow(_FLOW_OF, _MARKETS, run["engine"], run["device"]) if null_models else []
            return [*self._columns(name, [market]), *flow]
        if isinstance(market, (Simulator, MarketConfig)):
            return self._of_run(name, market, markets, null_models, run)
        return self._of_series(name, market, null_models, run)

    def _of_run(
        self, name: str, market: Simulator | MarketConfig, markets: int | None, null_models: bool, run: Any
    ) -> list[Column]:
        if isinstance(market, MarketConfig):
            config, place = market, (run["engine"], run["device"])
            markets = _MARKETS if markets is None and not market.per_market else markets
        else:
            config, place = market.config, (market.engine_name, market.device)
        path = self._readable({"fundamental"}, "fundamental") if null_models else []
        texts = [*statistics_of(self.price, self.facts), *statistics_of("fundamental", path), self._volatility]
        found = measure_at(
            market, self.intervals, list(dict.fromkeys(texts)), self.aggregates,
            markets=markets, warm_up=self.warm_up, group=None, progress=self.progress, **run,
        )  # fmt: skip
        shown = self._columns(name, found)
        if not null_models:
            return shown
        paths = self._columns(_PATH, found, path, "fundamental", null=True)
        number = found[0].group_size
        return [*shown, *paths, *self._flow(config, number, *place), *self._walk(found[0], number)]

    def _of_series(self, name: str, series: Any, null_models: bool, run: Any) -> list[Column]:
        rest, books = checked_books(series)
        given = checked_series(rest)
        length, most = next(iter(given.values())).shape[1], max(self.aggregates)
        least, together = LEAST * most, f" with aggregate {most}" if most > 1 else ""
        if length < least:
            raise ValueError(f"{name}: expected series of {least} intervals or more{together}, got {length}")
        there = {*given, *(("bid", "ask") if books else ())}
        facts, path = self._readable(there, self.price), self._readable({"fundamental"} & there, "fundamental")
        texts = [*statistics_of(self.price, facts), *(statistics_of("fundamental", path) if null_models else ())]
        texts += [self._volatility] if self._has(self._volatility, there) else []
        if not facts:
            raise ValueError(f"{name}: expected series that a fact is read from, got {', '.join(given)}")
        texts = list(dict.fromkeys(texts))
        found = [measure_series(series, texts, aggregate=size, group=None) for size in self.aggregates]
        shown = self._columns(name, found, facts)
        if not null_models:
            return shown
        nulls = self._columns(_PATH, found, path, "fundamental", null=True) if path else []
        flow = self._flow(_FLOW_OF, _MARKETS, run["engine"], run["device"])
        walk = self._walk(shown[0].measured, _MARKETS, length) if self._volatility in texts else []
        return [*shown, *nulls, *flow, *walk]

    def _flow(self, config: MarketConfig, markets: int, engine: str, device: Any) -> list[Column]:
        """Return the columns of order flow without structure, by the rules of a config."""
        number = None if config.per_market else _null_markets(markets, self.intervals)
        found = measure_at(
            zero_intelligence(config), self.intervals, statistics_of(self.price, self.facts), self.aggregates,
            markets=number, warm_up=max(self.warm_up, _WARM_UP), group=None, engine=engine, device=device,
            progress=self.progress,
        )  # fmt: skip
        return self._columns("zero intelligence", found, null=True)

    def _walk(self, market: Measured, markets: int, intervals: int | None = None) -> list[Column]:
        """Return the columns of a random walk with the volatility that a market has in its first column."""
        deviation = float(np.nanmean(market[self._volatility].of_markets)) / math.sqrt(self.aggregates[0])
        length = intervals or self.intervals
        series = random_walk(deviation, _null_markets(markets, length), length)
        facts = self._readable(set(series), self.price)
        texts = [*statistics_of(self.price, facts), self._volatility]
        found = [measure_series(series, texts, aggregate=size, group=None) for size in self.aggregates]
        return self._columns("random walk", found, facts, null=True)

    @property
    def _volatility(self) -> str:
        return f"volatility(price='{self.price}')"

    def _has(self, text: str, there: set[str]) -> bool:
        """Say whether a statistic can be read from series and books of these names."""
        plan = check_statistics([text])[text]
        books = {"bid", "ask"} if any(isinstance(part, Books) for part in plan.accumulators) else set()
        return {*plan.record, *books} <= there

    def _readable(self, there: set[str], price: str) -> list[Fact]:
        """Return the facts that can be read from series of these names."""
        return [fact for fact in self.facts if all(self._has(text, there) for text in statistics_of(price, [fact]))]

    def _columns(
        self, name: str, found: Sequence[Measured], facts: Any = None, price: str | None = None, null: bool = False
    ) -> list[Column]:
        """Return what was measured at each size; facts that are not among those given, if some are, have no data."""
        return [
            Column(name, size, self._lines(size, one, facts, price or self.price), one, null)
            for size, one in zip(self.aggregates, found, strict=False)
        ]

    def _lines(self, size: int, found: Measured, facts: Any, price: str) -> tuple[Line, ...]:
        by_text = {text: found[given] for given, text in found.texts.items()}
        lines = []
        for fact in self.facts:
            values = [by_text[text] for text in statistics_of(price, [fact]) if text in by_text]
            given = len(values) == len(fact.statistics) and (facts is None or fact in facts)
            numbers = read(fact, values) if given else (math.nan, math.nan, 0)
            lines.append(Line(fact, *numbers, at_scale=fact.known_at(self.interval, size), given=given))
        return tuple(lines)


def _null_markets(markets: int, intervals: int) -> int:
    """Return how many markets of a null model are enough, at most as many as the market's own."""
    return max(1, min(markets, _MARKETS, max(2, _NULL // intervals)))


def read(fact: Fact, values: Sequence[Value]) -> tuple[float, float, int]:
    """Return a fact's number, its standard error, and of how many markets these are.

    The error of a function of means is from all but one market each.
    """
    if fact.read is None:
        return float(values[0].value[0]), float(values[0].error[0]), int(np.min(values[0].count))
    number = float(fact.number([(value.value, value.error) for value in values])[0])
    without = [(_means_without_each(value.of_markets), value.error) for value in values]
    with np.errstate(invalid="ignore"):
        each = fact.number(without)
    count = len(each)
    error = float(np.sqrt((count - 1) / count * ((each - each.mean()) ** 2).sum())) if count > 1 else math.nan
    return number, error, count


def _means_without_each(of_markets: np.ndarray) -> np.ndarray:
    """Return the means over all markets but one, for each market."""
    seen = ~np.isnan(of_markets)
    values = np.where(seen, of_markets, 0.0)
    count = seen.sum(0) - seen
    return (values.sum(0) - values) / np.where(count > 0, count, np.nan)
