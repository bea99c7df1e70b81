"""What a mean of episodes does not say: their Sharpe ratio and what the worst of them make, each with its error.

Errors are of influence functions, as that of `deviation_and_error`: asymptotic, for any distribution of episodes that
are independent. Everything is float64, and does not depend on the order of episodes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kineticsim_env.runtime.values import check_array, check_number
from kineticsim_env.statistics.over_markets import Mean, deviation_and_error

TAIL = 0.05  # the share of episodes, the worst, that CVaR is the mean of
_LEAST_IN_TAIL = 2  # whole episodes there for an error


def average(values: Any) -> Mean:
    """Return the mean of episodes, float64 `[M]`, with its error, NaN of one; a NaN makes both NaN."""
    sample = episodes(values)
    return Mean(float(sample.mean()), _error(sample), len(sample))


def sharpe_ratio(values: Any) -> Mean:
    """Return the Sharpe ratio per episode: the mean of episodes' PnL by their standard deviation (of `n - 1`).

    Nothing is subtracted and nothing made annual: episodes have no interest, and no common length. The error is
    `sqrt((1 + S^2 / 2 - g S + (k - 3) S^2 / 4) / n)` with the skewness g and the kurtosis k of episodes (Mertens 2002,
    "Comments on variance of the IID estimator in Lo (2002)"). For normal episodes, g = 0 and k = 3, it is that of Lo
    (2002), "The statistics of Sharpe ratios", `sqrt((1 + S^2 / 2) / n)`, which is wrong for the skewed PnL of makers.

    Args:
        values: float64 `[M]`, one for each episode.

    Returns:
        A `Mean`; NaN where all episodes are the same, or there is one.
    """
    sample = episodes(values)
    deviation = _deviation(sample)
    if not deviation > 0:
        return Mean(math.nan, math.nan, len(sample))
    ratio = float(sample.mean()) / deviation
    scores = (sample - sample.mean()) / deviation
    return Mean(ratio, _error(scores - ratio / 2 * (scores**2 - 1)), len(sample))


def cvar(values: Any, share: float = TAIL) -> Mean:
    """Return the conditional value at risk: the mean of the worst episodes, a `share` of all; the smaller, the worse.

    It is `max over c of c - mean(max(c - x, 0)) / share` (Rockafellar and Uryasev 2000, "Optimization of conditional
    value-at-risk", equation 4, for gains instead of losses), whose c is the quantile. No count is rounded: of 30
    episodes the worst 5% are the worst one and half of the next, `(x1 + x2 / 2) / 1.5`; of up to `1 / share` episodes
    it is the worst. The error is that of the mean in the formula, `sqrt(variance(max(c - x, 0)) / n) / share`, which is
    that of Manistre and Hancock (2005), "Variance of the CTE estimator".

    Args:
        values: float64 `[M]`, one for each episode.
        share: Above 0, up to 1, where it is the mean.

    Returns:
        A `Mean` whose `count` is that of the worst episodes, so that its interval is wider where they are few; the
        error is NaN with fewer than two whole ones: 40 episodes are needed for 5%.
    """
    sample = np.sort(episodes(values))
    check_number("share", share, 0.0, 1.0, above=True)
    if share == 1:
        return average(sample)
    worst = share * len(sample)
    nearest = round(worst)
    worst = nearest if nearest and math.isclose(worst, nearest, rel_tol=1e-12) else worst  # 0.07 * 100 is above 7
    quantile = sample[math.ceil(worst) - 1]
    below = np.maximum(quantile - sample, 0.0)
    error = _error(below) / share if worst >= _LEAST_IN_TAIL else math.nan
    return Mean(float(quantile - below.sum() / max(worst, 1.0)), error, math.ceil(worst))


def standard_deviation(values: Any) -> Mean:
    """Return the standard deviation (of `n - 1`) of episodes, float64 `[M]`; NaN of one, without an error of equals."""
    sample = episodes(values)
    deviation = _deviation(sample)
    return deviation_and_error(sample) if deviation > 0 else Mean(deviation, math.nan, len(sample))


def ratio(values: Any, others: Any) -> Mean:
    """Return the mean of episodes by the mean of other numbers of the same ones, both float64 `[M]`.

    The error is that of the mean of `(x - r y) / mean(y)`, as is usual of a ratio estimator (Cochran 1977, "Sampling
    techniques", equation 6.13).

    Returns:
        A `Mean`; NaN where the others are 0.
    """
    sample, below = episodes(values), episodes(others)
    if sample.shape != below.shape:
        raise ValueError(f"others: expected {len(sample)} episodes, as the first has, got {len(below)}")
    if not below.any():
        return Mean(math.nan, math.nan, len(sample))
    found = float(sample.mean() / below.mean())
    return Mean(found, _error((sample - found * below) / below.mean()), len(sample))


def episodes(values: Any) -> np.ndarray:
    """Return the values of episodes, float64 `[M]`."""
    array = check_array("values", values, "an array [M] of numbers")
    if array.ndim != 1 or not len(array):
        raise ValueError(f"values: expected [M] with M from 1, got the shape {list(array.shape)}")
    return array.astype(np.float64)


def _deviation(sample: np.ndarray) -> float:
    """Return the standard deviation, exactly 0 of equal values, whose mean may be rounded."""
    if len(sample) < 2:
        return math.nan
    return float(sample.std(ddof=1)) if bool((sample != sample[0]).any()) else 0.0


def _error(sample: np.ndarray) -> float:
    return float(sample.std(ddof=1) / math.sqrt(len(sample))) if len(sample) > 1 else math.nan
