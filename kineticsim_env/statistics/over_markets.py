"""Means over markets, their errors, and their intervals: Student's, and those of a bootstrap where tails are heavy.

`half_width` is the one place that says how many standard errors an interval reaches: evaluations, counterfactuals,
tables of sweeps, the scorecard and the studies call it.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from kineticsim_env.runtime.values import check_array, check_callable, check_count, check_number, show

_DRAWN = 1 << 21  # values of resampled markets at a time
_SUMMED = 100  # degrees of freedom up to which Student's distribution is summed


def half_width(error: Any, count: Any, confidence: float = 0.95) -> Any:
    """Return half the width of the confidence interval of a mean, by Student's t.

    It is the standard error times the quantile of t with `count - 1` degrees of freedom: 12.7 errors of 2 markets, 4.3
    of 3, 2.1 of 20, 1.96 of very many. Of 2 markets, 1.96 errors hold the mean in 70% of cases.

    Args:
        error: Standard errors, a number or an array of any shape.
        count: How many values each is of; a number, or an array of a shape that goes with it.
        confidence: Of the interval, above 0 and below 1.

    Returns:
        float64, NaN where the error is or with fewer than two values.
    """
    confidence = _check_confidence(confidence)
    error = check_array("error", error, "a standard error, or an array of them")
    counts = check_array("count", count, "how many values an error is of, or an array of that")
    reach = np.full(counts.shape, math.nan)
    for number in np.unique(counts[counts > 1]).tolist():
        reach[counts == number] = _student(int(number) - 1, confidence)
    return (reach * error.astype(np.float64))[()]


@functools.lru_cache(maxsize=4096)
def _student(freedom: int, confidence: float) -> float:
    """Return the quantile of Student's t within which, on both sides of 0, `confidence` of it lies.

    The distribution is a sum of powers of the cosine of atan(t / sqrt(freedom)) for whole degrees of freedom
    (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4); where they are many, the expansion around the normal quantile
    (26.7.5) is used, which is then right to 1e-7 for a confidence up to 0.99.
    """
    if freedom > _SUMMED:
        z = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
        first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
        terms = (z, first, second, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
        return sum(term / freedom**power for power, term in enumerate(terms))
    low, high = 0.0, math.pi / 2
    for _ in range(60):  # halvings: as exact as a float is
        angle = (low + high) / 2
        low, high = (angle, high) if _student_within(angle, freedom) < confidence else (low, angle)
    return math.sqrt(freedom) * math.tan(low)


def _student_within(angle: float, freedom: int) -> float:
    """Return how much of Student's t is within sqrt(freedom) * tan(angle) of 0."""
    odd, cosine = freedom % 2, math.cos(angle)
    term = cosine if odd else 1.0
    total = 0.0 if freedom == 1 else term
    for i in range(2 + odd, freedom, 2):
        term *= (i - 1) / i * cosine**2
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def _check_confidence(confidence: Any) -> float:
    if check_number("confidence", confidence, 0.0, 1.0, above=True) == 1:
        raise ValueError(f"confidence: expected above 0 and below 1, got {confidence}")
    return float(confidence)


class Mean(NamedTuple):
    """A mean over markets with its standard error; `count` markets had a value."""

    mean: float
    error: float
    count: int

    def interval(self, confidence: float = 0.95) -> float:
        """Return half the width of the confidence interval, see `half_width`; NaN with fewer than two values."""
        return float(half_width(self.error, self.count, confidence))


def mean_and_error(values: Any) -> Mean:
    """Average values over markets, leaving out NaN.

    Args:
        values: Array or tensor `[M]` of any number type.

    Returns:
        NaN as the mean without a value, and as the error with fewer than two.
    """
    array = as_array(values).ravel()
    array = array[~np.isnan(array)]
    count = len(array)
    mean = float(array.mean()) if count else math.nan
    error = float(array.std(ddof=1) / math.sqrt(count)) if count > 1 else math.nan
    return Mean(mean, error, count)


def deviation_and_error(values: np.ndarray, against: np.ndarray | None = None) -> Mean:
    """Return the standard deviation over markets with its standard error, or the paired difference of two.

    The error is that of the deviation's influence function, so it holds for any distribution.
    """

    def influence(sample: np.ndarray) -> tuple[float, np.ndarray]:
        deviation = float(sample.std(ddof=1))
        return deviation, ((sample - sample.mean()) ** 2 - deviation**2) / (2 * deviation)

    value, effect = influence(values)
    if against is not None:
        other, other_effect = influence(against)
        value, effect = value - other, effect - other_effect
    return Mean(value, float(effect.std(ddof=1) / math.sqrt(len(values))), len(values))


class Interval(NamedTuple):
    """A statistic over markets with both ends of its confidence interval; `count` markets had a value."""

    value: float
    low: float
    high: float
    count: int


def bootstrap_interval(
    values: Any,
    statistic: Callable[[np.ndarray], np.ndarray] | None = None,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Return a statistic over markets with its percentile bootstrap interval.

    Markets are drawn anew, with replacement, `resamples` times; the interval is between the quantiles of the
    statistic of these. It need not be symmetric, so it is the one for heavy tails, where a few markets make the mean.
    It knows no tail that no market has shown: with too few markets it is too short.

    Args:
        values: Array or tensor `[M]`, or `[M, ...]` for what takes several numbers of each market. Markets with a NaN
            are left out.
        statistic: Of samples float64 `[R, M, ...]`, one value per sample, `[R]`; None is the mean.
        confidence: Of the interval, above 0 and below 1.
        resamples: How many samples are drawn.
        seed: Of the draws; the same gives the same interval.

    Returns:
        NaN as the value without a market, and as the ends with fewer than two.
    """
    mean = functools.partial(np.mean, axis=1)
    statistic = mean if statistic is None else check_callable("statistic", statistic, "a function")
    confidence = _check_confidence(confidence)
    resamples, seed = check_count("resamples", resamples, 1), check_count("seed", seed, 0, 2**63 - 1)
    array = np.atleast_1d(as_array(values)).astype(np.float64, copy=False)
    array = array[~np.isnan(array).any(axis=tuple(range(1, array.ndim)))]
    count = len(array)
    value = float(statistic(array[None])[0]) if count else math.nan
    if count < 2:
        return Interval(value, math.nan, math.nan, count)
    generator, found = np.random.default_rng(seed), np.empty(resamples)
    step = max(1, _DRAWN // array.size)
    for begin in range(0, resamples, step):
        drawn = generator.integers(0, count, (min(step, resamples - begin), count))
        found[begin : begin + step] = statistic(array[drawn])
    low, high = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(value, float(low), float(high), count)


def as_array(values: Any) -> np.ndarray:
    """Return a NumPy array; what is masked is NaN.

    Integers stay as they are until a block of them is needed in float64.
    """
    if isinstance(values, np.ma.MaskedArray):
        return values.astype(np.float64).filled(np.nan)
    try:
        array = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
        return array if array.dtype.kind in "iu" else array.astype(np.float64, copy=False)
    except Exception as error:  # texts, ragged sequences, whatever strange objects raise
        raise TypeError(f"values: expected numbers, got {show(values)}") from error
