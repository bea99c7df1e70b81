"""Statistics of recorded series: arrays whose last axis is time, one row per market.

A statistic has one value per market, NaN where the market does not define it (a constant price has no autocorrelation).
Used by `python -m kineticsim_env simulate` and the studies; what is too long to be kept is measured by `measuring.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from kineticsim_env.runtime.values import not_whole
from kineticsim_env.statistics.over_markets import as_array

__all__ = ("autocorrelation", "best_prices", "excess_kurtosis", "returns", "spread", "volatility")

_BLOCK = 1 << 24  # values of a series that are turned to float64 at a time


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
    """Return the changes of integer prices, in ticks; int64, one shorter than the series.

    Raises:
        ValueError: If a price is no whole number below 2^62 in size.
    """
    array = as_array(price)
    if array.dtype.kind == "f":
        wrong = not_whole(array)
        if wrong.size:
            raise ValueError(f"price: expected whole ticks, got {wrong[0]:.10g}: divide by the tick, and round")
    return np.diff(array.astype(np.int64), axis=-1)


def volatility(changes: Any) -> np.ndarray:
    """Return the standard deviation of the changes, with the divisor n - 1; NaN for fewer than two."""
    changes = as_array(changes)
    length = changes.shape[-1]
    if length < 2:
        return np.full(changes.shape[:-1], np.nan)
    return np.sqrt(_blockwise(_sum_of_squares, changes) / (length - 1))


def excess_kurtosis(changes: Any) -> np.ndarray:
    """Return the fourth central moment over the squared variance, less 3; NaN for constant changes.

    Both moments have the divisor n: 0 for a long normal series, positive for fat tails.
    """

    def of_rows(rows: np.ndarray) -> np.ndarray:
        scale = np.abs(rows).max(-1, keepdims=True)
        rows = rows / np.where(scale > 0, scale, np.nan)  # the fourth power of a large value must not overflow
        return np.mean(rows**4, axis=-1) / np.mean(rows**2, axis=-1) ** 2 - 3.0

    return _blockwise(of_rows, as_array(changes))


def autocorrelation(series: Any, lag: int = 1) -> np.ndarray:
    """Return the autocorrelation at a lag, demeaned once with all values; NaN for a constant or too short series.

    The divisors are those of the whole series, so that values stay within -1 and 1.
    """
    if lag < 0:
        raise ValueError(f"lag: expected 0 or more, got {lag}")

    def of_rows(rows: np.ndarray) -> np.ndarray:
        if lag >= rows.shape[1]:
            return np.full(len(rows), np.nan)
        total = _sum_of_squares(rows)
        return np.einsum("ij,ij->i", rows[:, lag:], rows[:, : rows.shape[1] - lag]) / np.where(total > 0, total, np.nan)

    return _blockwise(of_rows, as_array(series))


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
    if rows.dtype.kind in "iu":
        first = first.astype(np.int64)  # or differences of narrow and unsigned ones would wrap
    rows = (rows - first).astype(np.float64)  # exact for prices of any level
    rows -= rows.mean(-1, keepdims=True)
    rows -= rows.mean(-1, keepdims=True)
    return rows


def _sum_of_squares(rows: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", rows, rows)
