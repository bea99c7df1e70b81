"""`order_book_scores`: how far simulated order events are from real ones, beside real ones from each other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kineticsim_env.data.books import between
from kineticsim_env.data.conditional import CONDITIONAL, LAGS, conditional_distances, responses
from kineticsim_env.data.distances import distances
from kineticsim_env.data.events import OrderEvents
from kineticsim_env.data.measures import DISCRETE, FURTHER, SCORES, Session, shown_by, values_of
from kineticsim_env.runtime.values import aligned, check_count, check_instance, check_number

if TYPE_CHECKING:
    import pandas

METRICS = ("l1", "wasserstein")
_MEAN = f"mean of the {len(SCORES)}"


class Distance(NamedTuple):
    """A distance with the ends of its interval, and the floor: the same between real events."""

    value: float
    low: float
    high: float
    floor: float


class Score(NamedTuple):
    """A score's distances."""

    name: str
    l1: Distance
    wasserstein: Distance
    real: float  # the mean of what is measured; of conditional scores and means of scores NaN
    simulated: float


@dataclasses.dataclass(frozen=True)
class OrderBookScores:
    """What `order_book_scores` returns; printed, it is the table.

    Attributes:
        scores: The 19 unconditional ones.
        mean: Of their distances, those that are defined.
        further: Order-flow imbalance before the mid's next move, and the three conditional ones.
        real_response: How the mid moves after six kinds of event, ticks: by kind, float64 `[8]`, of `lags`.
        simulated_response: Likewise.
        lags: The events after which it is measured, int64 `[8]`.
        floor: What the floor is between.
    """

    scores: tuple[Score, ...]
    mean: Score
    further: tuple[Score, ...]
    real_response: dict[str, np.ndarray]
    simulated_response: dict[str, np.ndarray]
    lags: np.ndarray
    floor: str

    def __getitem__(self, name: str) -> Score:
        for score in (*self.scores, self.mean, *self.further):
            if score.name == name:
                return score
        raise KeyError(name)

    def __str__(self) -> str:
        return self.table()

    def table(self) -> str:
        """Return the distances with intervals and floors, the means of both samples, and the responses, as text."""
        rows = [("score", "L1", "interval", "floor", "Wasserstein", "interval", "floor", "real", "simulated")]
        for score in (*self.scores, self.mean, *self.further):
            cells = [(_text(d.value), f"{_text(d.low)} to {_text(d.high)}", _text(d.floor)) for d in score[1:3]]
            rows.append((score.name, *cells[0], *cells[1], *(_text(x, ".4g") for x in score[3:])))
        shown = [("ticks that the mid moves after", *(f"{lag} events" for lag in self.lags))]
        for kind, curve in self.real_response.items():
            pairs = zip(curve, self.simulated_response[kind], strict=True)
            shown.append((kind, *(f"{_text(one, '.2f')} | {_text(other, '.2f')}" for one, other in pairs)))
        note = f"Floor: {self.floor}. Responses: real | simulated."
        return "\n".join([*aligned(rows), "", *aligned(shown), "", note])

    def to_pandas(self) -> pandas.DataFrame:
        """Return the distances as a table, a row per score. Needs pandas (`pip install "kineticsim-env[data]"`)."""
        import pandas

        found = []
        for score in (*self.scores, self.mean, *self.further):
            row: dict[str, Any] = {"score": score.name}
            for metric, distance in zip(METRICS, score[1:3], strict=True):
                ends = {f"{metric}_{name}": value for name, value in distance._asdict().items() if name != "value"}
                row |= {metric: distance.value, **ends}
            found.append(row | {"real": score.real, "simulated": score.simulated})
        return pandas.DataFrame(found).set_index("score")


def order_book_scores(
    real: OrderEvents,
    simulated: OrderEvents,
    *,
    floor: OrderEvents | None = None,
    resamples: int = 200,
    confidence: float = 0.95,
    seed: int = 0,
) -> OrderBookScores:
    """Compare simulated order events with real ones, by the scores of LOB-Bench; docs/order_book_scores.md reads them.

    Prices are compared in ticks and sizes in lots as they are: bring both to the same ticks and lots first
    (`kineticsim_env.data.books.in_lots`).

    Args:
        real: Order events of a real market.
        simulated: Of a simulated one, such as `Tape.events` returns.
        floor: Real events whose distance from `real` is shown beside, such as those that a model was fitted to; None
            shows the distance of the halves of `real` from each other.
        resamples: Draws of the bootstrap; 0 shows no intervals.
        confidence: Of the intervals, above 0 and below 1.
        seed: Of the draws.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed; of events, what is inconsistent.
    """
    check_instance("real", real, OrderEvents), check_instance("simulated", simulated, OrderEvents)
    resamples, seed = check_count("resamples", resamples, 0), check_count("seed", seed, 0, 2**63 - 1)
    confidence = check_number("confidence", confidence, 0, 1, above=True)
    if confidence >= 1:
        raise ValueError(f"confidence: expected a number above 0 and below 1, got {confidence}")
    shown = [shown_by("real", real), shown_by("simulated", simulated)]
    if floor is None:
        begin, end = (real.sessions[0, 0], real.sessions[-1, 1] + 1) if len(real) else (0, 0)
        middle = (int(begin) + int(end)) // 2
        halves = between(real, begin, middle), between(real, middle, end)
        apart = [shown_by("real", half) for half in halves]
    else:
        apart = [shown_by("floor", check_instance("floor", floor, OrderEvents)), shown[0]]
    generator = np.random.default_rng(seed)
    found, beside = _all_distances(shown, resamples, generator), _all_distances(apart, 0, generator)

    def score(name: str) -> Score:
        ends = (1.0, math.inf)  # of L1, and of Wasserstein-1
        l1, wasserstein = (_distance(found[name][i], beside[name][i, 0], confidence, ends[i]) for i in range(2))
        return Score(name, l1, wasserstein, *(_mean(name, sample) for sample in shown))

    return OrderBookScores(
        tuple(map(score, SCORES)), score(_MEAN), tuple(map(score, (*FURTHER, *CONDITIONAL))),
        *map(responses, shown), np.array(LAGS),
        "halves of the real events" if floor is None else "other real events and the real ones",
    )  # fmt: skip


def _mean(name: str, sample: Sequence[Session]) -> float:
    values = values_of(name, sample) if name in SCORES or name in FURTHER else np.empty(0)
    return float(values.mean()) if len(values) else math.nan


def _all_distances(
    samples: Sequence[Sequence[Session]], resamples: int, generator: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return what `distances` returns of each score, and the mean of the 19."""
    found = {}
    for name in (*SCORES, *FURTHER):
        both = (values_of(name, sample) for sample in samples)
        found[name] = distances(*both, name in DISCRETE, resamples, generator)
    for name in CONDITIONAL:
        found[name] = conditional_distances(name, *samples, resamples, generator)
    all_of_them = np.array([found[name] for name in SCORES])
    known = ~np.isnan(all_of_them)
    found[_MEAN] = np.divide(
        np.nansum(all_of_them, 0), known.sum(0), where=known.any(0), out=np.full(known.shape[1:], np.nan)
    )
    return found


def _distance(found: np.ndarray, floor: float, confidence: float, most: float) -> Distance:
    """Return a distance and its interval, of what `distances` returns of one metric.

    What is drawn anew is further apart, in the mean, than the samples are. So the interval is that of the differences
    from this mean, laid around the distance.
    """
    value, low, high = float(found[0]), math.nan, math.nan
    if len(found) > 2 and not math.isnan(value):
        ends = np.quantile(found[1:] - found[1:].mean(), [(1 - confidence) / 2, (1 + confidence) / 2])
        low, high = (float(end) for end in np.clip(value + ends, 0, most))
    return Distance(value, low, high, float(floor))


def _text(value: float, form: str = ".2f") -> str:
    return "-" if math.isnan(value) else f"{value:{form}}"
