"""`scorecard`: how a market stands beside the stylised facts of real ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.texts import aligned
from kineticsim_env.runtime.values import check_choice, check_count
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics.facts import FACTS, Fact
from kineticsim_env.statistics.measured import Measured, Value
from kineticsim_env.statistics.measuring import measure
from kineticsim_env.statistics.over_markets import half_width

_MARKETS = 256  # of a config without per-market fields


@dataclasses.dataclass(frozen=True)
class Line:
    """A fact in the market.

    Attributes:
        fact: Which one, with its range and source.
        value: The number, NaN where the market does not define it.
        error: Its standard error over markets, a jackknife's but for single statistics.
        count: Over how many markets.
    """

    fact: Fact
    value: float
    error: float
    count: int

    @property
    def half_width(self) -> float:
        """Half the width of the value's 95% interval; NaN of a single market."""
        return float(half_width(self.error, self.count))

    @property
    def verdict(self) -> str:
        """`"met"` or `"not met"`; `"unclear"` where a bound is within the 95% interval; `"undefined"`.

        A single market has no standard error: its verdict is that of the number alone.
        """
        if math.isnan(self.value):
            return "undefined"
        reach = 0.0 if math.isnan(self.half_width) else self.half_width
        if any(abs(self.value - bound) < reach for bound in (self.fact.low, self.fact.high)):
            return "unclear"
        return "met" if self.fact.low <= self.value <= self.fact.high else "not met"


@dataclasses.dataclass(frozen=True)
class Scorecard:
    """What `scorecard` returns; printed, it is the table.

    Attributes:
        lines: One per fact, in the order of `statistics.facts.FACTS`.
        measured: The statistics that they are read from.
        markets: How many.
        price: Whose returns were measured.
    """

    lines: tuple[Line, ...]
    measured: Measured
    markets: int
    price: str

    @property
    def met(self) -> int:
        """How many facts are met."""
        return sum(line.verdict == "met" for line in self.lines)

    def table(self) -> str:
        """Return values with standard errors, ranges and verdicts as text."""
        rows = [("fact", "measured", "value", "", "range", "")]
        for line in self.lines:
            fact = line.fact
            value = "-" if math.isnan(line.value) else f"{line.value:.3g}"
            error = "" if math.isnan(line.error) else f"± {line.error:.1g}"
            rows.append((fact.name, fact.measured, value, error, f"{fact.low:g} to {fact.high:g}", line.verdict))
        size = f"{self.markets:,} markets of {self.measured.intervals:,} intervals, returns of the {self.price} price"
        return "\n".join([*aligned(rows), "", f"{self.met} of {len(self.lines)} facts met; {size}"])

    def columns(self) -> dict[str, list[Any]]:
        """Return the table as columns, with the sources: for a file, or a DataFrame."""
        return {
            "fact": [line.fact.name for line in self.lines],
            "measured": [line.fact.measured for line in self.lines],
            "value": [line.value for line in self.lines],
            "error": [line.error for line in self.lines],
            "low": [line.fact.low for line in self.lines],
            "high": [line.fact.high for line in self.lines],
            "verdict": [line.verdict for line in self.lines],
            "source": [line.fact.source for line in self.lines],
            "bounds": [line.fact.bounds for line in self.lines],
        }

    def draw(self, path: Any) -> None:
        """Write the picture: each value beside its range, and the curves behind them. Needs matplotlib."""
        from kineticsim_env.studies.scorecard_figures import draw_scorecard

        draw_scorecard(path, self)

    def __str__(self) -> str:
        """Return the table."""
        return self.table()


def scorecard(
    market: Simulator | MarketConfig,
    intervals: int = 2000,
    *,
    markets: int | None = None,
    warm_up: int = 200,
    price: str = "last",
    seed: Any = 0,
    engine: str = "auto",
    device: Any = None,
    progress: bool | None = None,
    facts: Sequence[Fact] = FACTS,
) -> Scorecard:
    """Measure a market beside the stylised facts of real ones.

    Each fact is a number with the range that the literature reports (`statistics.facts`); where a source says only that
    something is there, or absent, the bounds are this package's. Intervals of a market have no length in seconds: what
    real markets show over minutes is asked of single intervals.

    Args:
        market: A simulator, which goes on from where it is; or a config.
        intervals: How many are measured; tails and memory need some thousand.
        markets: With a config, how many; 256 if None, or as many as a field has values.
        warm_up: Intervals that are run before.
        price: Whose returns: `"last"`, the last price, or `"mid"`, the mid of the resting book.
        seed: With a config, as in `Simulator`.
        engine: Likewise.
        device: Likewise.
        progress: As in `Simulator.run`.
        facts: Which facts.

    Returns:
        `Scorecard`.
    """
    check_choice("price", price, ("last", "mid"))
    check_count("intervals", intervals, 200)
    if isinstance(market, MarketConfig) and markets is None and not market.per_market:
        markets = _MARKETS
    facts = tuple(facts)
    if not facts:
        raise ValueError("facts: got none, allowed is one or more")
    names = {name: name.format(price=price) for fact in facts for name in fact.statistics}
    found = measure(
        market,
        intervals,
        names,
        **{"markets": markets, "warm_up": warm_up, "group": None, "progress": progress},
        **{"seed": seed, "engine": engine, "device": device},
    )
    lines = tuple(Line(fact, *_read(fact, [found[name] for name in fact.statistics])) for fact in facts)
    return Scorecard(lines, found, found.groups * found.group_size, price)


def _read(fact: Fact, values: Sequence[Value]) -> tuple[float, float, int]:
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
