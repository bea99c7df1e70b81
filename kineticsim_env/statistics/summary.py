"""What `python -m kineticsim_env simulate` prints of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kineticsim_env.statistics.arrays import spread
from kineticsim_env.statistics.measuring import measure_series
from kineticsim_env.statistics.over_markets import Interval, Mean, bootstrap_interval, mean_and_error

_MOST_DRAWN = 10**8  # values of resampled markets that a summary spends, about a second
_OF_RETURNS = ("volatility", "kurtosis", "autocorrelation(lag=1)", "abs_autocorrelation(lag=1)")


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
        price, volume = (torch.as_tensor(series).cpu() for series in (last_price, volume))
        found = measure_series({"last_price": price}, _OF_RETURNS)
        volatility, kurtosis, correlation, of_sizes = (found[name].value for name in _OF_RETURNS)
        spreads = np.stack(self._spreads) if self._spreads else np.full((1, len(volume)), np.nan)
        seen = ~np.isnan(spreads)
        market_spread = np.where(seen, spreads, 0.0).sum(0) / np.where(seen.any(0), seen.sum(0), np.nan)
        resamples = min(2000, max(100, _MOST_DRAWN // len(volume)))
        return [
            ("volume per market, units", mean_and_error(volume.sum(-1, dtype=torch.int64))),
            (f"{unit}s that traded", mean_and_error((volume > 0).sum(-1))),
            ("last price, ticks", mean_and_error(price[:, -1])),
            ("spread of the book, ticks", mean_and_error(market_spread)),
            ("two-sided books, share", mean_and_error(seen.mean(0))),
            (f"volatility, ticks per {unit}", mean_and_error(volatility)),
            ("excess kurtosis of returns", bootstrap_interval(kurtosis, resamples=resamples)),
            ("autocorrelation of returns", mean_and_error(correlation)),
            ("autocorrelation of |returns|", mean_and_error(of_sizes)),
        ]
