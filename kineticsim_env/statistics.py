"""Statistics of simulated markets: spread, volatility, tails, autocorrelation, and means with their errors.

Series are arrays whose last axis is time, one row per market; a statistic has one value per market, NaN where the
market does not define it (a constant price has no autocorrelation). Used by `python -m kineticsim_env simulate` and the
studies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from kineticsim_env.runtime.values import check_callable, check_count, check_number

_BLOCK = 1 << 24  # values of a series that are turned to float64 at a time
_DRAWN = 1 << 21  # values of resampled markets at a time
_MOST_DRAWN = 10**8  # values of resampled markets that a summary spends, about a second


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
    array = _array(values).ravel()
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
    array = np.atleast_1d(_array(values)).astype(np.float64, copy=False)
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


def best_prices(bid: torch.Tensor, ask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the best grid ticks of books int32 `[M, L]`; -1 and L mark an empty side."""
    levels = bid.shape[-1]
    ticks = torch.arange(levels, dtype=torch.int32, device=bid.device)
    best_bid = torch.where(bid > 0, ticks, -1).amax(-1)
    best_ask = torch.where(ask > 0, ticks, levels).amin(-1)
    return best_bid, best_ask


def spread(bid: torch.Tensor, ask: torch.Tensor) -> np.ndarray:
    """Return best ask less best bid in ticks, float64 `[M]`; NaN where a side of the book is empty."""
    best_bid, best_ask = (side.cpu().numpy().astype(np.float64) for side in best_prices(bid, ask))
    return np.where((best_bid >= 0) & (best_ask < bid.shape[-1]), best_ask - best_bid, np.nan)


def returns(price: Any) -> np.ndarray:
    """Return the changes of integer prices, in ticks; int64, one shorter than the series."""
    array = price.cpu().numpy() if isinstance(price, torch.Tensor) else np.asarray(price)
    return np.diff(array.astype(np.int64), axis=-1)


def volatility(changes: Any) -> np.ndarray:
    """Return the standard deviation of the changes, with the divisor n - 1; NaN for fewer than two."""
    changes = _array(changes)
    length = changes.shape[-1]
    if length < 2:
        return np.full(changes.shape[:-1], np.nan)
    return np.sqrt(_blockwise(_sum_of_squares, changes) / (length - 1))


def excess_kurtosis(changes: Any) -> np.ndarray:
    """Return the fourth central moment over the squared variance, less 3; NaN for constant changes.

    Both moments have the divisor n: 0 for a long normal series, positive for fat tails.
    """
    return _blockwise(_excess_kurtosis, _array(changes))


def autocorrelation(series: Any, lag: int = 1) -> np.ndarray:
    """Return the autocorrelation at a lag, demeaned once with all values; NaN for a constant or too short series.

    The divisors are those of the whole series, so that values stay within -1 and 1.
    """
    if lag < 0:
        raise ValueError(f"lag: got {lag}, allowed is 0 or more")
    return _blockwise(lambda block: _autocorrelation(block, lag), _array(series))


class RunSummary:
    """What `python -m kineticsim_env simulate` prints: statistics over markets, gathered during a run.

    Call `sample_book` whenever the run pauses, then `table` with the series of the whole run.
    """

    def __init__(self) -> None:
        self._spreads: list[np.ndarray] = []

    def sample_book(self, bid: torch.Tensor, ask: torch.Tensor) -> None:
        """Take the spreads of the books as they stand."""
        self._spreads.append(spread(bid, ask))

    def table(self, last_price: Any, volume: Any, unit: str = "auction") -> list[tuple[str, Mean | Interval]]:
        """Return names and values: means with their errors, and where tails are heavy a bootstrap interval.

        Args:
            last_price: int32 `[M, S]`, the last price after each auction.
            volume: int32 `[M, S]`, units traded in each.
            unit: What one column is called: an auction, or an interval.
        """
        change = returns(last_price)
        volume = volume.cpu().numpy() if isinstance(volume, torch.Tensor) else np.asarray(volume)
        spreads = np.stack(self._spreads) if self._spreads else np.full((1, len(volume)), np.nan)
        seen = ~np.isnan(spreads)
        market_spread = np.where(seen, spreads, 0.0).sum(0) / np.where(seen.any(0), seen.sum(0), np.nan)
        resamples = min(2000, max(100, _MOST_DRAWN // len(volume)))
        last = np.asarray(last_price[:, -1].cpu() if isinstance(last_price, torch.Tensor) else last_price[:, -1])
        return [
            ("volume per market, units", mean_and_error(volume.sum(-1, dtype=np.int64))),
            (f"{unit}s that traded", mean_and_error((volume > 0).sum(-1))),
            ("last price, ticks", mean_and_error(last)),
            ("spread of the book, ticks", mean_and_error(market_spread)),
            ("two-sided books, share", mean_and_error(seen.mean(0))),
            (f"volatility, ticks per {unit}", mean_and_error(volatility(change))),
            ("excess kurtosis of returns", bootstrap_interval(excess_kurtosis(change), resamples=resamples)),
            ("autocorrelation of returns", mean_and_error(autocorrelation(change))),
            ("autocorrelation of |returns|", mean_and_error(autocorrelation(np.abs(change)))),
        ]


def _array(values: Any) -> np.ndarray:
    """Return a NumPy array; integers stay as they are until a block of them is needed in float64."""
    array = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    return array if array.dtype.kind in "iu" else array.astype(np.float64, copy=False)


def _blockwise(statistic: Any, series: np.ndarray) -> np.ndarray:
    """Apply a statistic of float64 rows to a few rows at a time, so that a long run need not fit twice."""
    rows = series.reshape(math.prod(series.shape[:-1]), series.shape[-1])
    step = max(1, _BLOCK // max(1, rows.shape[1]))
    out = np.full(len(rows), np.nan)
    if rows.shape[1]:
        for begin in range(0, len(rows), step):
            out[begin : begin + step] = statistic(_centred(rows[begin : begin + step]))
    return out.reshape(series.shape[:-1])


def _centred(rows: np.ndarray) -> np.ndarray:
    """Take off the mean in two passes: the second removes what the rounding of the first left."""
    first = rows[:, :1]
    rows = (rows - first).astype(np.float64)  # exact for prices of any level
    rows -= rows.mean(-1, keepdims=True)
    rows -= rows.mean(-1, keepdims=True)
    return rows


def _sum_of_squares(rows: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", rows, rows)


def _excess_kurtosis(rows: np.ndarray) -> np.ndarray:
    scale = np.abs(rows).max(-1, keepdims=True)
    rows = rows / np.where(scale > 0, scale, np.nan)  # the fourth power of a large value must not overflow
    second = np.mean(rows**2, axis=-1)
    return np.mean(rows**4, axis=-1) / second**2 - 3.0


def _autocorrelation(rows: np.ndarray, lag: int) -> np.ndarray:
    if lag >= rows.shape[1]:
        return np.full(len(rows), np.nan)
    total = _sum_of_squares(rows)
    return np.einsum("ij,ij->i", rows[:, lag:], rows[:, : rows.shape[1] - lag]) / np.where(total > 0, total, np.nan)
