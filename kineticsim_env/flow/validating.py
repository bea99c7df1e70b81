"""`validate`: markets of an order flow beside data that it was not fitted to."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from kineticsim_env.data.books import in_lots
from kineticsim_env.data.events import COLUMNS, OrderEvents
from kineticsim_env.data.scores import OrderBookScores, order_book_scores
from kineticsim_env.flow.moments import MOMENTS
from kineticsim_env.flow.simulating import simulate
from kineticsim_env.runtime.flow_table import FlowTable
from kineticsim_env.runtime.values import aligned, check_count, check_instance


@dataclasses.dataclass(frozen=True)
class FlowValidation:
    """What `OrderFlow.validate` returns; printed, both tables.

    Attributes:
        scores: Distances between the data and all markets together.
        distances: L1 and Wasserstein-1, each market's mean of the 19 scores, float64 `[markets, 2]`.
        real: Moments of the data by name; `kineticsim_env.flow.moments` defines them.
        simulated: Of each market, float64 `[markets]`.
        data: The order events that were compared, in the flow's lots.
        played: Those of all markets, each a session.
    """

    scores: OrderBookScores
    distances: np.ndarray
    real: dict[str, float]
    simulated: dict[str, np.ndarray]
    data: OrderEvents = dataclasses.field(repr=False)
    played: OrderEvents = dataclasses.field(repr=False)

    def draw(self, path: Any) -> None:
        """Write a picture: how scores are distributed, and paths of the mid. Needs matplotlib."""
        from kineticsim_env.plots.order_flow import draw_validation

        draw_validation(path, self.data, self.played)

    def __str__(self) -> str:
        rows = [("", "real", "simulated", "lowest", "highest")]
        for name, values in self.simulated.items():
            there = values[~np.isnan(values)]
            low, mean, high = (f"{f(there):.3g}" if len(there) else "-" for f in (np.min, np.mean, np.max))
            rows.append((name, f"{self.real[name]:.3g}", mean, low, high))
        mean, spread = self.distances.mean(0), self.distances.std(0)
        each = ", ".join(
            f"{name} {m:.3f} +- {s:.3f}" for name, m, s in zip(("L1", "Wasserstein"), mean, spread, strict=True)
        )
        return "\n".join([str(self.scores), "", f"Each market by itself: {each}.", "", *aligned(rows)])


def validate(
    flow: FlowTable,
    held_out: OrderEvents,
    *,
    fitted: OrderEvents | None = None,
    markets: int = 4,
    seed: int = 0,
    resamples: int = 200,
    progress: bool | None = None,
) -> FlowValidation:
    """Play markets with as many events as the data have, and compare.

    The data are put in the flow's lots, and the markets' times are cut to whole steps of the data's.

    Args:
        flow: The order flow.
        held_out: Order events that it was not fitted to.
        fitted: Those that it was fitted to: their distances from `held_out` are the floor. None: the floor is that
            between the halves of `held_out`.
        markets: How many are played.
        seed: Of the first; the others follow.
        resamples: For intervals, of `order_book_scores`.
        progress: Whether to show bars; None: where it takes long.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed.
    """
    check_instance("held_out", held_out, OrderEvents)
    markets = check_count("markets", markets, 1, 1000)
    real = in_lots(held_out, flow.lot)
    floor = None if fitted is None else in_lots(fitted, flow.lot)
    step = time_step(held_out)
    count = int((~real.opening).sum())
    played = [cut_times(simulate(flow, count, seed + i, progress=progress), step) for i in range(markets)]
    means = [order_book_scores(real, one, resamples=0).mean for one in played]
    together = joined(played)
    return FlowValidation(
        scores=order_book_scores(real, together, floor=floor, resamples=resamples),
        distances=np.array([[mean.l1.value, mean.wasserstein.value] for mean in means]),
        real={name: moment(real) for name, moment in MOMENTS.items()},
        simulated={name: np.array([moment(one) for one in played]) for name, moment in MOMENTS.items()},
        data=real,
        played=together,
    )


def time_step(events: OrderEvents) -> int:
    """Return the largest step that all times between events are multiples of, nanoseconds; openings have none."""
    return int(np.gcd.reduce(np.diff(events.time[~events.opening]))) or 1


def cut_times(events: OrderEvents, step: int) -> OrderEvents:
    """Return events at whole steps of nanoseconds, as data have them."""
    return dataclasses.replace(events, time=events.time // step * step, sessions=events.sessions // step * step)


def joined(parts: list[OrderEvents]) -> OrderEvents:
    """Return markets as sessions, one after the other."""
    begins = np.cumsum([0] + [int(part.sessions[-1, 1]) + 1 for part in parts[:-1]])
    moved = [
        dataclasses.replace(part, time=part.time + begin, sessions=part.sessions + begin)
        for part, begin in zip(parts, begins, strict=True)
    ]
    columns = {name: np.concatenate([getattr(part, name) for part in moved]) for name in (*COLUMNS, "sessions")}
    return dataclasses.replace(parts[0], **columns)
