"""`measure`: run markets and take their statistics on the device, nothing kept that grows with the run.

Series are recorded some intervals at a time, and reduced to sums per market where they are (`gathering.py`), from which
the statistics are read at the end: `STATISTICS`, which texts can name, are all public functions of of_returns.py and
of_trading.py, and of order events of of_orders.py: for these a tape plays what was run once more.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.data.measures import sessions_of
from kineticsim_env.engines.live import STOPPED
from kineticsim_env.errors import MarketError
from kineticsim_env.runtime.checks import check_series
from kineticsim_env.runtime.values import check_count, check_progress, is_whole, progress_bar, show
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics import of_orders, of_returns, of_trading
from kineticsim_env.statistics.chunks import Feed
from kineticsim_env.statistics.gathering import Accumulator, Books, Events
from kineticsim_env.statistics.given import checked_books, checked_series
from kineticsim_env.statistics.measured import Measured, value_of
from kineticsim_env.statistics.plans import Make, Plan, Whole, named_statistics
from kineticsim_env.statistics.plans import check_statistics as plans_of

STATISTICS: dict[str, Make] = {
    name: function
    for module in (of_returns, of_trading, of_orders)
    for name, function in vars(module).items()
    if inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
}
DEFAULT = (
    "volatility",
    "kurtosis",
    "tail_index",
    "variance_ratio(span=100)",
    "autocorrelation(lag=1)",
    "abs_autocorrelation(lag=20)",
    "volume",
    "volume_volatility",
)
BOOK_EVERY = 100  # intervals between two looks at the books
_RECORDED = {"cuda": 1 << 24, "cpu": 1 << 22}  # values of a series that are held at a time,
_SHORTEST = 256  # but at least so many intervals
_FLOWS = ("volume", "signed_volume")  # summed over intervals that are taken together; of the others the last counts


def check_statistics(statistics: Any) -> dict[str, Plan]:
    """Return the plans of statistics by name, before anything is run; see `measure`."""
    return plans_of(statistics, STATISTICS)


def measure(
    market: Simulator | MarketConfig,
    intervals: int,
    statistics: Any = DEFAULT,
    *,
    markets: int | None = None,
    warm_up: int = 0,
    aggregate: int = 1,
    group: int | None = 1,
    seed: Any = 0,
    engine: str = "auto",
    device: Any = None,
    progress: bool | None = None,
    chunk: int | None = None,
) -> Measured:
    """Run markets, and return statistics of each or of groups of them.

    Series are reduced on the device as they are recorded. What is summed are whole numbers, so that up to sums of 2^53
    nothing depends on the device or on where the run was cut but the last digits of what is made of these sums.

    Args:
        market: A simulator, which goes on from where it is; or a config.
        intervals: How many are measured: auctions, or on the clock intervals.
        statistics: What is measured: a sequence of texts that say how a function of `statistics.STATISTICS` is called,
            such as `"kurtosis"`, `"kurtosis(span=10)"` or `"autocorrelation(lag=[1, 20])"`, and of functions that
            return a `Plan`; or a mapping of your own names to these.
        markets: M, with a config.
        warm_up: Intervals that are run before.
        aggregate: Intervals that are taken together as one: volumes are summed, of all else the last counts, so that
            a return is that over all of them. What is left over at the end is left out.
        group: Consecutive markets that are a group, such as the replicates of a point of a sweep; None is all. A
            group's value is the mean over its markets.
        seed: With a config, as in `Simulator`.
        engine: Likewise.
        device: Likewise.
        progress: True or False shows or hides the bar; None shows it on runs of over two seconds.
        chunk: Intervals that are recorded at a time; no result depends on it.

    Returns:
        `Measured`, by name.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed; nothing was run then.
        MarketError: If a market stopped, now or before.
    """
    (found,) = measure_at(
        market, intervals, statistics, (aggregate,),
        **{"markets": markets, "warm_up": warm_up, "group": group, "seed": seed, "engine": engine, "device": device},
        **{"progress": progress, "chunk": chunk},
    )  # fmt: skip
    return found


def measure_at(
    market: Simulator | MarketConfig,
    intervals: int,
    statistics: Any,
    aggregates: Sequence[int],
    *,
    markets: int | None = None,
    warm_up: int = 0,
    group: int | None = 1,
    seed: Any = 0,
    engine: str = "auto",
    device: Any = None,
    progress: bool | None = None,
    chunk: int | None = None,
) -> list[Measured]:
    """Return what `measure` does for each number of intervals that are taken together, all of one run."""
    named = named_statistics(statistics)
    plans = [check_statistics(named) for _ in aggregates]  # each has sums of its own
    aggregates = [check_count("aggregate", size, 1) for size in aggregates]
    intervals = check_count("intervals", intervals, max(aggregates))
    warm_up = check_count("warm_up", warm_up, 0)
    check_progress(progress)
    if isinstance(market, MarketConfig):
        simulator = Simulator(market, markets, engine=engine, device=device, seed=seed)
    elif isinstance(market, Simulator):
        if markets is not None and markets != market.num_markets:
            raise ValueError(f"markets: expected None, got {show(markets)} with a simulator of {market.num_markets}")
        if engine != "auto" or device is not None or not (is_whole(seed) and seed == 0):
            raise ValueError("seed, engine, device: expected with a config alone, got one with a simulator")
        simulator = market
    else:
        raise TypeError(f"market: expected a Simulator or a MarketConfig, got {show(market)}")
    if bool(((simulator.tensors["error"] & STOPPED) != 0).any()):
        raise MarketError("measure: expected markets that run, got one that has stopped; reset it first")
    if not simulator.config.is_continuous:
        for name in [name for name, plan in plans[0].items() if plan.of_events]:
            raise ValueError(
                f"statistics: expected a market of mechanism='continuous' for {name!r}, which is of order events, got "
                f"{simulator.config.mechanism!r}"
            )
    gatherings = [
        _Gathering(each, simulator.num_markets, group, simulator.device, size)
        for each, size in zip(plans, aggregates, strict=True)
    ]
    size = max(_SHORTEST, _RECORDED[simulator.device.type] // simulator.num_markets)
    size = size if chunk is None else check_count("chunk", chunk, 1)
    books = [part for gathering in gatherings for part in gathering.books]
    events = [part for gathering in gatherings for part in gathering.events]
    with progress_bar(progress, "measure", "interval", warm_up + intervals, leave=False) as bar:
        for _, step in _pieces(warm_up, size, False):
            simulator.run(step, progress=False)
            bar.update(step)
        tape = simulator.tape(range(simulator.num_markets), intervals, progress=False) if events else None
        for done, step in _pieces(intervals, size, bool(books)):
            series = simulator.run(step, gatherings[0].record, progress=False)
            for gathering in gatherings:
                gathering.add(series)
            if books and (done + step) % BOOK_EVERY == 0:
                for part in books:
                    part.look(simulator.bid, simulator.ask)
            bar.update(step)
    simulator.check_errors()
    if tape is not None:
        with progress_bar(progress, "order events", "market", simulator.num_markets, leave=False) as bar:
            for number in range(simulator.num_markets):
                sessions = list(sessions_of(tape.events(number)))
                for part in events:
                    part.look(number, sessions)
                bar.update(1)
    return [gathering.measured(intervals, named) for gathering in gatherings]


def measure_series(
    series: Mapping[str, Any], statistics: Any, *, aggregate: int = 1, group: int | None = 1, chunk: int | None = None
) -> Measured:
    """Return statistics of series that exist already, by the same formulas: real ones, or recorded ones.

    Args:
        series: Whole numbers `[M, S]` (or `[S]`, of one market), below 2^31 in size, by the names of `Simulator.run`:
            prices in ticks. A mapping, or a table such as pandas'. Tensors are measured on their device. With books,
            `bid` and `ask`, `[M, B, L]` (or `[B, L]`): B times, the units that rest at each of L prices.
        statistics: As in `measure`.
        aggregate: As in `measure`.
        group: As in `measure`.
        chunk: Intervals that are looked at together; no result depends on it.
    """
    named = named_statistics(statistics)
    plans = check_statistics(named)
    for name in [name for name, plan in plans.items() if plan.of_events]:
        raise ValueError(f"statistics: expected those of series, got {name!r}, of order events: measure_events has it")
    series, books = checked_books(series)
    given = checked_series(series)
    shape, device = next(iter(given.values())).shape, next(iter(given.values())).device
    if check_count("aggregate", aggregate, 1) > shape[1]:
        raise ValueError(f"aggregate: expected up to {shape[1]}, the intervals of the series, got {aggregate}")
    gathering = _Gathering(plans, shape[0], group, device, aggregate)
    if gathering.books and (books is None or len(books[0]) != shape[0]):
        got = "none" if books is None else f"those of {len(books[0])} markets"
        raise ValueError(f"bid, ask: expected books of {shape[0]} markets, as book_shape looks at them, got {got}")
    for part in gathering.books:
        for bid, ask in zip(*(side.to(device).unbind(1) for side in books or ()), strict=True):
            part.look(bid, ask)
    for name in gathering.record:
        if name not in given:
            raise ValueError(f"series: expected {name!r} too, which the statistics need, got {', '.join(given)}")
    size = max(_SHORTEST, _RECORDED[device.type] // shape[0]) if chunk is None else check_count("chunk", chunk, 1)
    for begin in range(0, shape[1], size):
        gathering.add({name: given[name][:, begin : begin + size] for name in gathering.record})
    return gathering.measured(shape[1], named)


class _Gathering:
    """What plans gather together, and the markets they gather it of."""

    def __init__(
        self, plans: dict[str, Plan], markets: int, group: int | None, device: torch.device, aggregate: int = 1
    ) -> None:
        size = markets if group is None else check_count("group", group, 1)
        if markets % size:
            raise ValueError(f"group: expected a divisor of {markets}, the number of markets, or None, got {size}")
        self.plans, self.markets, self.group = plans, markets, size
        self.accumulators: dict[Hashable, Accumulator] = {}
        for part in (part for plan in plans.values() for part in plan.accumulators):
            shared = self.accumulators.setdefault(part.key(), part)
            shared.join(part)
        self.record = check_series(
            tuple(dict.fromkeys(name for part in self.accumulators.values() for name in part.record))
        )
        for part in self.accumulators.values():
            part.open(markets, device)
        self.books = [part for part in self.accumulators.values() if isinstance(part, Books)]
        self.events = [part for part in self.accumulators.values() if isinstance(part, Events)]
        self.feed = Feed(markets, max(part.history for part in self.accumulators.values()))
        self.aggregate, self.left = aggregate, {}

    def add(self, series: Mapping[str, torch.Tensor]) -> None:
        """Take the next intervals."""
        series = self._together(series) if self.aggregate > 1 else series
        if not series or not next(iter(series.values())).shape[1]:
            return
        for chunk in self.feed.chunks(series):
            for part in self.accumulators.values():
                part.update(chunk)

    def _together(self, series: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return intervals taken together; those that are too few for it wait for the next ones."""
        found = {}
        for name, values in series.items():
            values = torch.cat([self.left[name], values], 1) if name in self.left else values
            whole = values.shape[1] // self.aggregate * self.aggregate
            self.left[name] = values[:, whole:].clone()
            parts = values[:, :whole].unflatten(1, (-1, self.aggregate))
            found[name] = parts.sum(2) if name in _FLOWS else parts[:, :, -1]
        return found

    def measured(self, intervals: int, named: Mapping[str, Any]) -> Measured:
        """Read the statistics, which were given as `named` has them."""
        for part in self.accumulators.values():
            if isinstance(part, Whole):
                part.close()
        groups, found = self.markets // self.group, {}
        for name, plan in self.plans.items():
            sums = tuple(self.accumulators[part.key()].sums for part in plan.accumulators)
            try:
                found[name] = value_of(plan, sums, self.markets, groups)
            except Exception as error:  # of a function that users have written
                error.add_note(f"It was raised by the statistic {name!r}.")
                raise
        texts = {name: given for name, given in named.items() if isinstance(given, str)}
        return Measured(found, intervals // self.aggregate, groups, self.group, texts)


def _pieces(intervals: int, size: int, books: bool) -> list[tuple[int, int]]:
    """Return beginnings and lengths of runs of at most `size` intervals; with books they end at every look, too."""
    stops = set(range(size, intervals, size)) | {intervals}
    if books:
        stops |= set(range(BOOK_EVERY, intervals, BOOK_EVERY))
    ordered = sorted(stops) if intervals else []
    return [(begin, end - begin) for begin, end in zip([0, *ordered], ordered, strict=False)]
