"""A batch: consecutive points of a sweep, which are run together and stored together.

A batch is one launch where its markets may share one and fit on the device, else several. How points are cut into
batches, and these into launches, changes no result: a market is what its parameters and its seed make it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.errors import MarketError
from kineticsim_env.runtime import memory
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics import check_statistics, measure
from kineticsim_env.statistics.plans import Plan as Statistic
from kineticsim_env.statistics.plans import Whole, column_names, error_columns
from kineticsim_env.sweeps.plans import Plan

Rows = Mapping[str, np.ndarray]  # values of points by name of the space
Gathered = Mapping[str, Statistic]  # what is measured, by name, made once per batch
_SECONDS = 1.0  # of a batch: long against what it costs besides, short enough to lose
_FIRST = {"cuda": 2e11, "cpu": 1e7, "numpy": 1e6}  # agent-events of the first one, before any time was measured
_FEWEST = {"cuda": 1 << 14, "cpu": 1, "numpy": 16}  # markets that fill an engine; of the C++ engine a thread
_MOST = 1 << 16  # markets: more of them make no engine faster
_TAPE = 500  # times as long as without: an interval whose order events are measured, too
_GROWTH = 4  # from one batch to the next, at most
_SAMPLE = 256  # points whose events are counted
_SERIES_BYTES = 1 << 14  # of a market in a launch: the part of its series that is looked at together
_SHARE = 0.4  # of the free memory that a launch may take


class Pace:
    """How many points the next batch has: about a second's, by the time that the last ones took.

    At least as many as fill the engine, and no more than so many workers would share evenly.
    """

    def __init__(self, plan: Plan, pending: int, engine: str, workers: int, threads: int) -> None:
        """Begin with a guess: `pending` points are to be run, by so many workers of so many threads each."""
        if plan.order_events:  # whatever runs the markets, one core plays their tapes, and that takes the time
            engine, threads = "cpu", 1
        threads = threads if engine == "cpu" else 1
        sample = plan.configs(plan.design.rows(0, min(plan.points, _SAMPLE)))
        events = [events_of(config) for _, config in sample]
        each = float(np.mean(np.concatenate(events))) * (plan.intervals + plan.warm_up)
        each *= _TAPE if plan.order_events else 1
        launches = 1 if engine == "cpu" else min(math.prod(dimension.count for dimension in plan.apart), _SAMPLE)
        self._most = min(-(-pending // workers), max(1, _MOST // plan.replicates) * launches)
        self._least = min(self._most, max(1, _FEWEST[engine] * threads * launches // plan.replicates))
        self.points = self._within(_FIRST[engine] * threads / each / plan.replicates)

    def took(self, points: int, seconds: float) -> None:
        """Take the time of a batch of so many points."""
        self.points = self._within(min(points * _SECONDS / max(seconds, 1e-6), _GROWTH * max(points, self.points)))

    def _within(self, points: float) -> int:
        return max(1, min(max(int(points), self._least), self._most))


def run_batch(plan: Plan, begin: int, end: int, engine: str, device: Any = None) -> dict[str, Any]:
    """Run points `begin` to `end` (without it) on a resolved engine; return the columns of their table."""
    rows = plan.design.rows(begin, end)
    repeat = plan.replicates if plan.each_market else 1
    gathered = check_statistics(plan.statistics)  # once: functions of users' own are called here alone
    found = {name: np.full((end - begin, repeat), np.nan) for name in _names(plan, gathered)}
    stopped = np.zeros((end - begin, repeat), dtype=bool)
    for places, config in plan.configs(rows):
        step = _points_at_once(plan, gathered, config, engine, device)
        for first in range(0, len(places), step):
            part = places[first : first + step]
            for here, columns in _measured(plan, gathered, begin, rows, part, engine, device):
                if columns is None:
                    stopped[here] = True
                for name, values in (columns or {}).items():
                    found[name][here] = values.reshape(len(here), repeat)
    columns: dict[str, Any] = {"point": np.repeat(np.arange(begin, end), repeat)}
    if plan.each_market:
        columns["replicate"] = np.tile(np.arange(repeat), end - begin)
    for each in plan.design.dimensions:
        columns[each.name] = each.column(np.repeat(rows[each.name], repeat))
    return columns | {name: values.ravel() for name, values in found.items()} | {"stopped": stopped.ravel()}


def _measured(
    plan: Plan, gathered: Gathered, begin: int, rows: Rows, places: np.ndarray, engine: str, device: Any
) -> list[tuple[np.ndarray, dict[str, np.ndarray] | None]]:
    """Return places of points of one launch with their columns; of those in which a market stopped, None."""
    ((_, config),) = plan.configs({name: values[places] for name, values in rows.items()})
    statistics = {name: lambda one=one: one for name, one in gathered.items()}
    group = 1 if plan.each_market else plan.replicates
    try:
        config = config.repeated(plan.replicates) if plan.replicates > 1 else config
        markets, seeds = len(places) * plan.replicates, plan.seeds(begin + places)
        simulator = Simulator(config, markets, engine=engine, device=device, seed=seeds)
        measured = measure(simulator, plan.intervals, statistics, warm_up=plan.warm_up, group=group, progress=False)
    except MarketError:
        if len(places) == 1:
            return [(places, None)]
        halves = np.array_split(places, 2)  # a market that stops stops its launch: run again until it is alone
        return [found for half in halves for found in _measured(plan, gathered, begin, rows, half, engine, device)]
    for name, one in gathered.items():
        found = measured[name].labels
        if found is not None and one.labels is None:
            raise ValueError(
                f"statistics: expected one value per market in a sweep, or as many as there are labels, got "
                f"{len(found)} of {name!r}: of_series(..., labels=...), Plan(..., axis=..., labels=...)"
            )
    return [(places, measured.columns(errors=plan.has_errors))]


def _names(plan: Plan, gathered: Gathered) -> list[str]:
    """Return the columns of statistics, as `Measured.columns` calls them."""
    found = []
    for name, one in gathered.items():
        for column in column_names(name, one.labels):
            found += [column, *(error_columns(column) if plan.has_errors else ())]
    return found


def _points_at_once(plan: Plan, gathered: Gathered, config: MarketConfig, engine: str, device: Any) -> int:
    """Return how many points fit on a device together, at least one."""
    place = torch.device("cpu" if engine != "cuda" else device or "cuda")
    free = memory.free_bytes(place)
    if free is None:
        return _MOST
    if place.type == "cuda":  # what torch keeps of earlier launches is free, too
        free += torch.cuda.memory_reserved(place) - torch.cuda.memory_allocated(place)
    books = 3 * memory.book_bytes(config, place)  # those now, those before the call, and room to work
    market = books + memory.agent_bytes(config) + _SERIES_BYTES + 2 * _bytes_of_sums(plan, gathered)
    return max(1, int(_SHARE * free / market / plan.replicates))


def _bytes_of_sums(plan: Plan, gathered: Gathered) -> int:
    """Return the bytes that statistics gather of a market."""
    total = 0
    for part in (part for one in gathered.values() for part in one.accumulators):
        part.open(1, torch.device("cpu"))
        total += sum(sums.nbytes for sums in part.sums.values())
        if isinstance(part, Whole):  # which keeps its series, and makes float64 of them
            total += 12 * len(part.record) * plan.intervals
    return total


def events_of(config: MarketConfig) -> np.ndarray:
    """Return the agent-events of an interval of each market, float64 `[n]` or `[1]`."""
    agents = np.atleast_1d(np.asarray(config.num_agents, dtype=np.float64) + config.added_agents)
    return np.full(len(agents), float(config.events_per_interval)) if config.uses_clock else agents
