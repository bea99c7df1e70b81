"""Order events that users hand over, measured as those of simulated markets are; and users' own statistics of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from kineticsim_env.data.distances import distances
from kineticsim_env.data.events import OrderEvents
from kineticsim_env.data.measures import DISCRETE, WITHOUT_SECONDS, Session, shown_by, values_of
from kineticsim_env.data.scores import METRICS
from kineticsim_env.runtime.values import check_callable, check_choice, check_instance
from kineticsim_env.statistics.gathering import Events
from kineticsim_env.statistics.measured import Measured, value_of
from kineticsim_env.statistics.measuring import check_statistics
from kineticsim_env.statistics.plans import Make, Plan, check_names, curve, named_as, named_statistics, told_apart


def measure_events(events: OrderEvents, statistics: Any) -> Measured:
    """Return statistics of order events that exist already, by the formulas that `measure` has for simulated ones.

    Prices are in ticks and sizes in lots as they are. All sessions are one market.

    Args:
        events: As `read_orders`, `read_lobster` or `Tape.events` return them.
        statistics: As in `measure`; such as are of order events.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed; of events, what is inconsistent.
    """
    named = named_statistics(statistics)
    plans = check_statistics(named)
    gathered = {name: [part for part in plan.accumulators if isinstance(part, Events)] for name, plan in plans.items()}
    for name, parts in gathered.items():
        if len(parts) < len(plans[name].accumulators):
            raise ValueError(
                f"statistics: expected those of order events, such as 'event_mean', got {name!r}, of series: "
                "data.intervals.series_of makes these of events"
            )
    sessions = shown_by("events", check_instance("events", events, OrderEvents))
    found = {}
    for name, parts in gathered.items():
        for part in parts:
            part.open(1, torch.device("cpu"))
            part.look(0, sessions)
        found[name] = value_of(plans[name], tuple(part.sums for part in parts), 1, 1)
    return Measured(found, None, 1, 1, {name: given for name, given in named.items() if isinstance(given, str)})


def of_events(
    function: Callable[[list[Session]], Any], *, labels: Iterable[Any] | None = None, axis: str = "value"
) -> Make:
    """Return a statistic that is a function of the order events of a market under continuous trading.

    Args:
        function: Of what the market showed, `data.measures.Session` by session, of a tape one; returns a number, or n.
        labels: What the n numbers are told apart by, numbers or texts; None is one number.
        axis: What `labels` are.
    """
    check_callable("function", function, "a function of sessions")
    told = told_apart(labels)
    names = (None,) if told is None else told

    def statistic() -> Plan:
        return curve(lambda sums: sums["values"], axis, names, told is None, Events(function, len(names)))

    return named_as(function, statistic)


def distance_to(real: OrderEvents, score: Any = WITHOUT_SECONDS, metric: str = "wasserstein") -> Make:
    """Return a statistic: how far the order events of a market are from real ones by scores of `order_book_scores`.

    Args:
        real: Order events, in the ticks and lots of the market.
        score: One of `data.measures.WITHOUT_SECONDS`, or several.
        metric: `"l1"` or `"wasserstein"`; see `data.distances.distances`.
    """
    labels, alone = check_names("score", score, WITHOUT_SECONDS)
    place = METRICS.index(check_choice("metric", metric, METRICS))
    sessions = shown_by("real", check_instance("real", real, OrderEvents))
    wanted = {name: values_of(name, sessions) for name in labels}

    def distance(simulated: list[Session]) -> list[float]:
        draws = np.random.default_rng(0)  # of no interval, so none is drawn
        both = ((name, one, values_of(name, simulated)) for name, one in wanted.items())
        return [distances(one, other, name in DISCRETE, 0, draws)[place, 0] for name, one, other in both]

    return of_events(distance, labels=None if alone else labels, axis="score")
