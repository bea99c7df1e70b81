"""`scorecard`: a market beside the stylised facts of real ones, and beside null models, which show some of them too."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kineticsim_env.config import MarketConfig
from kineticsim_env.counterfactuals.causal import SIZES, CausalImpact, causal_impact
from kineticsim_env.runtime.values import (
    aligned,
    check_choice,
    check_count,
    check_dict,
    check_flag,
    check_number,
    is_number,
    show,
)
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics.columns import LEAST, Column, Columns, Line
from kineticsim_env.statistics.facts import FACTS, Fact, in_words
from kineticsim_env.statistics.measured import Measured

_IMPACT = 256  # markets that market orders are given to, at most
__all__ = ["Column", "Line", "Scorecard", "scorecard"]


@dataclasses.dataclass(frozen=True)
class Scorecard:
    """What `scorecard` returns; printed, it is the table.

    Attributes:
        shown: A column for each market and number of intervals taken together; the first is the market's own.
        price: Whose returns were measured.
        interval: What an interval is: `"events"`, or seconds of trading.
        impact: What market orders do to the market's mid, measured against the same markets without them; None without
            a config.
    """

    shown: tuple[Column, ...]
    price: str
    interval: float | str
    impact: CausalImpact | None = None

    @property
    def lines(self) -> tuple[Line, ...]:
        """The market's facts, in the order they were given."""
        return self.shown[0].lines

    @property
    def measured(self) -> Measured:
        """The statistics that they are read from."""
        return self.shown[0].measured

    @property
    def markets(self) -> int:
        """How many were measured."""
        return self.measured.groups * self.measured.group_size

    @property
    def met(self) -> int:
        """How many facts the market meets, of those known at the card's time scale: `known`."""
        return self.shown[0].met

    @property
    def known(self) -> int:
        """How many facts are known at the card's time scale."""
        return sum(line.at_scale for line in self.lines)

    @property
    def distinguishing(self) -> tuple[str, ...]:
        """The facts whose numbers are within their ranges in the market, and in no null model, nor unclear in one.

        None without null models.
        """
        return tuple(
            line.fact.name
            for i, line in enumerate(self.lines)
            if line.place == "within"
            and self.null_models
            and not any(model.lines[i].place in ("within", "unclear") for model in self.null_models)
        )

    @property
    def beside(self) -> tuple[Column, ...]:
        """The other columns of as many intervals as the first."""
        return tuple(column for column in self.shown[1:] if column.aggregate == self.shown[0].aggregate)

    @property
    def null_models(self) -> tuple[Column, ...]:
        """Those of `beside` that are null models."""
        return tuple(column for column in self.beside if column.null)

    def table(self) -> str:
        """Return the numbers with standard errors, ranges and verdicts, and those of the other columns, as text."""
        more = [column for column in self.shown[1:] if column.name == self.shown[0].name]
        others = (*more, *self.beside)
        names = [f"{column.name} x{column.aggregate}" if column in more else column.name for column in others]
        rows = [("fact", "known at", "range", self.shown[0].name, "", "", *names)]
        for i, line in enumerate(self.lines):
            fact = line.fact
            value = "-" if math.isnan(line.value) else f"{line.value:.3g}"
            error = "" if math.isnan(line.error) else f"± {line.error:.1g}"
            ends = f"{fact.low:g} to {fact.high:g}{'' if fact.bounds == 'source' else '*'}"
            shown = [str(column.lines[i]) for column in others]
            rows.append((fact.name, fact.time_scale, ends, value, error, line.verdict, *shown))
        caused = ["", *_caused(self.impact)] if self.impact else []
        return "\n".join([*aligned(rows), "", *aligned(self._counts()), *caused, "", *self._notes()])

    def _counts(self) -> list[tuple[str, ...]]:
        """Return how many facts each column meets, a row for each number of intervals taken together."""
        names = list(dict.fromkeys(column.name for column in self.shown))
        rows = [("intervals together", "known", *(f"{name}: met, within" for name in names))]
        for size in dict.fromkeys(column.aggregate for column in self.shown):
            found = {column.name: column for column in self.shown if column.aggregate == size}
            known = sum(line.at_scale for line in next(iter(found.values())).lines)
            counts = [f"{found[name].met}, {found[name].within}" if name in found else "-" for name in names]
            rows.append((str(size), f"{known} of {len(self.lines)}", *counts))
        return rows

    def _notes(self) -> list[str]:
        """Return what distinguishes the market, what an interval is, and what was measured."""
        size = f"{self.markets:,} markets of {self.measured.intervals:,} intervals, returns of the {self.price} price"
        alone = "; ".join(self.distinguishing) or "none"
        notes = [f"Within their ranges in the market, and in no null model: {alone}."] if self.null_models else []
        if isinstance(self.interval, str):
            notes.append("An interval is some events. Facts known over a time are of another scale, unless interval=")
            notes.append("says for how many seconds one stands. * The bounds are ours.")
        else:
            notes.append(f"An interval stands for {in_words(self.interval)}. * The bounds are ours.")
        met = ", ".join(f"{model.name} {model.met}" for model in self.null_models)
        met = f"{self.met} of {self.known} facts met that are known at this scale{met and f' ({met})'}"
        return [*notes, f"{met}; {size}"]

    def columns(self) -> dict[str, list[Any]]:
        """Return the table as columns, with the sources: for a file, or a DataFrame."""
        facts = [line.fact for line in self.lines]
        found: dict[str, list[Any]] = {
            "fact": [fact.name for fact in facts],
            "measured": [fact.measured for fact in facts],
            "value": [line.value for line in self.lines],
            "error": [line.error for line in self.lines],
            "low": [fact.low for fact in facts],
            "high": [fact.high for fact in facts],
            "verdict": [line.verdict for line in self.lines],
            "distinguishes": [fact.name in self.distinguishing for fact in facts],
            "source": [fact.source for fact in facts],
            "bounds": [fact.bounds for fact in facts],
            "known": [fact.time_scale for fact in facts],
        }
        for column in self.shown[1:]:
            for name in ("value", "error", "verdict", "place"):
                found[f"{column.name} x{column.aggregate} {name}"] = [getattr(line, name) for line in column.lines]
        return found

    def draw(self, path: Any) -> None:
        """Write the picture: each value beside its range, and the curves behind them. Needs matplotlib."""
        from kineticsim_env.plots.scorecard import draw_scorecard

        draw_scorecard(path, self)

    def __str__(self) -> str:
        """Return the table."""
        return self.table()


def scorecard(
    market: Simulator | MarketConfig | str | Measured | Mapping[str, Any],
    intervals: int = 2000,
    *,
    markets: int | None = None,
    warm_up: int = 200,
    price: str = "last",
    interval: float | str = "events",
    aggregate: int | Sequence[int] = 1,
    null_models: bool = True,
    impact: bool = True,
    beside: Mapping[str, Any] | None = None,
    seed: Any = 0,
    engine: str = "auto",
    device: Any = None,
    progress: bool | None = None,
    facts: Sequence[Fact] = FACTS,
) -> Scorecard:
    """Measure a market beside the stylised facts of real ones, and beside null models.

    Each fact is a number with the range that the literature reports (`statistics.facts`); where a source says only that
    something is there, or absent, the bounds are this package's. A fact is met, or not, only where the card's interval
    is as long as the source's: elsewhere its verdict is `"other scale"`.

    The null models are measured alike: the market's fundamental path alone, as if trading did nothing; order flow
    without structure by the same rules (`statistics.null_models.zero_intelligence`; beside series, by those of the
    preset `"news"`); and a random walk with the market's volatility. A fact that one of them shows as well says
    nothing for the market.

    Args:
        market: A simulator, which goes on from where it is; a config, or a preset's name; series, real or recorded, as
            `measure_series` takes them, with books `bid` and `ask` if there are some; or what `measure(group=None)`
            returned: facts whose statistics are not in it have no data.
        intervals: How many are measured of what is run; tails and memory need some thousand.
        markets: With a config, how many; 256 if None, or as many as a field has values.
        warm_up: Intervals that are run before.
        price: Whose returns: `"last"`, the last price, or `"mid"`, the mid of the resting book.
        interval: What an interval stands for: `"events"`, as many as the config says, or seconds of trading.
        aggregate: Intervals that are taken together: returns are those over all of them, volumes are summed. With
            several numbers the first has the table, and the others a column and a row of counts each.
        null_models: Whether null models are measured.
        impact: Whether the effect of market orders is measured, where there is a config: `causal_impact`, on up to 256
            markets. The two facts on moves with takers' volume are correlations, which the fundamental price can make.
        beside: Other columns by name: whatever `market` can be.
        seed: With a config, as in `Simulator`.
        engine: Likewise.
        device: Likewise.
        progress: As in `Simulator.run`.
        facts: Which facts.

    Returns:
        `Scorecard`.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed.
    """
    check_choice("price", price, ("last", "mid"))
    check_flag("null_models", null_models)
    check_flag("impact", impact)
    if not is_number(interval) and interval != "events":
        raise ValueError(f"interval: expected 'events' or a number of seconds, got {show(interval)}")
    if interval != "events":
        interval = check_number("interval", interval, 0.0, above=True)
    sizes = tuple(dict.fromkeys(np.atleast_1d(np.asarray(aggregate)).tolist()))
    market, facts = _of_name(market), tuple(facts)
    if not facts:
        raise ValueError("facts: expected one or more, got none")
    if not sizes:
        raise ValueError("aggregate: expected one number of intervals or more, got none")
    for size in sizes:
        check_count("intervals", intervals, LEAST * check_count("aggregate", size, 1))
    columns = Columns(facts, price, interval, sizes, intervals, warm_up, progress)
    run = {"seed": seed, "engine": engine, "device": device}
    shown = columns.of("market", market, markets, null_models, **run)
    for name, other in check_dict("beside", beside or {}, "markets or series by name").items():
        if name in {column.name for column in shown}:
            raise ValueError(f"beside: expected another name, got {show(name)}, which the card has already")
        other = _of_name(other)
        own = isinstance(other, Simulator)  # which has all that a run would be given
        shown += columns.of(str(name), other, None if own else markets, False, **({} if own else run))
    return Scorecard(tuple(shown), price, interval, _impact_of(market, shown[0].measured, run) if impact else None)


def _of_name(market: Any) -> Any:
    """Return a preset's config where its name came."""
    return MarketConfig.preset(market) if isinstance(market, str) else market


def _impact_of(market: Any, measured: Measured, run: Mapping[str, Any]) -> CausalImpact | None:
    """Return what market orders do in a market's config, of the sizes that its limits allow."""
    if isinstance(market, Simulator):
        market, run = market.config, {"engine": market.engine_name, "device": market.device}
    if not isinstance(market, MarketConfig):
        return None
    limits = (market.max_quote_qty, market.inventory_limit)
    most = min(float(np.min(limit)) for limit in limits if limit is not None)
    sizes = [size for size in SIZES if size <= most]
    number = None if market.per_market else min(measured.group_size, _IMPACT)
    return causal_impact(market, sizes, num_markets=number, **run) if sizes else None


def _caused(found: CausalImpact) -> list[str]:
    """Return the table of what market orders do, by size and time."""
    lags = [f"after {lag}" if lag else "at once" for lag in found.lags]
    rows = [(f"causal impact of a market {found.side}, units", *lags)]
    for size, moves in zip(found.sizes, found.moved, strict=True):
        rows.append((str(size), *(f"{move.mean:z.2f} ± {move.interval():.2f}" for move in moves)))
    law = f"{found.exponent.value:.2f} ({found.exponent.low:.2f} to {found.exponent.high:.2f})"
    left = f"{found.permanence.value:z.2f} ({found.permanence.low:z.2f} to {found.permanence.high:z.2f})"
    if math.isnan(found.exponent.value):
        law = "undefined"
    if math.isnan(found.permanence.value):
        left = "undefined"
    note = "Ticks by which the mid is higher than in the same markets without the order, so many intervals later."
    return [*aligned(rows), f"{note} Exponent at once: {law}; share that stays: {left}."]
