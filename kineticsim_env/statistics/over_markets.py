"""Means over markets and their errors: normal ones, and those of a bootstrap where tails are heavy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from kineticsim_env.runtime.values import check_callable, check_count, check_number, show

_DRAWN = 1 << 21  # values of resampled markets at a time


class Mean(NamedTuple):
    """A mean over markets with its standard error; `count` markets had a value."""

    mean: float
    error: float
    count: int

    def interval(self, confidence_z: float = 1.96) -> float:
        """Return half the width of the normal confidence interval, by default at 95%."""
        return check_number("confidence_z", confidence_z, 0.0) * self.error


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
    statistic = _mean_of_samples if statistic is None else check_callable("statistic", statistic, "a function")
    if check_number("confidence", confidence, 0.0, 1.0, above=True) == 1:
        raise ValueError(f"confidence: got {confidence}, allowed is above 0 and below 1")
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


def _mean_of_samples(samples: np.ndarray) -> np.ndarray:
    return samples.mean(axis=1)


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
        raise TypeError(f"values: got {show(values)}, allowed are numbers") from error
