"""What statistics share: the series of returns, and moments and correlations read from sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from kineticsim_env.runtime.values import check_choice, check_count
from kineticsim_env.statistics.chunks import Change, Series
from kineticsim_env.statistics.gathering import Products, Sums
from kineticsim_env.statistics.plans import Plan, check_labels, curve

# The series, and a tick of it.
PRICES = {"last": ("last_price", 1.0), "mid": ("mid2", 0.5), "fundamental": ("fundamental", 1.0)}
LAGS = range(1, 201)
MOST_LAG = MOST_SPAN = 100_000


def change_of(price: str, span: Any = 1) -> tuple[Change, float]:
    """Return the series of returns, and a tick of it."""
    name, tick = PRICES[check_choice("price", price, PRICES)]
    return Change(name, check_count("span", span, 1, MOST_SPAN)), tick


def over(part: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """Divide, NaN where the divisor is not above 0."""
    return part / torch.where(whole > 0, whole, math.nan)


def central(sums: Sums) -> list[torch.Tensor]:
    """Return central moments from the second up, with the divisor n, of sums of powers."""
    count, powers = sums["count"], sums["powers"]
    mean, *raw = (over(powers[:, i], count) for i in range(powers.shape[1]))
    found = [(raw[0] - mean**2).clamp(min=0)]
    if len(raw) > 1:
        found.append(raw[1] - 3 * mean * raw[0] + 2 * mean**3)
    if len(raw) > 2:
        found.append(raw[2] - 4 * mean * raw[1] + 6 * mean**2 * raw[0] - 3 * mean**4)
    return found


def mean(sums: Sums) -> torch.Tensor:
    """Return the mean of each market."""
    return sums["first"] + over(sums["powers"][:, 0], sums["count"])


def deviation(sums: Sums) -> torch.Tensor:
    """Return the standard deviation, with the divisor n - 1."""
    count = sums["count"]
    return torch.sqrt(over(central(sums)[0] * count, count - 1))


def _covariances(sums: Sums, lags: Sequence[float]) -> torch.Tensor:
    """Return sums of (early(t) - its mean) (late(t + k) - its mean), `[m, n]`, of whole series; NaN without a term."""
    lag = torch.tensor(lags, dtype=torch.long, device=sums["count"].device)
    zero = sums["count"].new_zeros((len(sums["count"]), 1))
    left = [torch.cat([zero, sums[name].cumsum(1)], 1)[:, lag] for name in ("tail", "head")]
    begun, ended = (sums["totals"][:, i, None] - part for i, part in enumerate(left))  # of the terms of each lag
    count = sums["count"][:, None]
    means = sums["totals"] / torch.where(count > 0, count, math.nan)
    number = count - lag
    found = (
        sums["products"][:, lag] - means[:, 1:] * begun - means[:, :1] * ended + number * means[:, :1] * means[:, 1:]
    )
    return torch.where(number > 0, found, math.nan)


def _correlations(sums: Sums, lags: Sequence[float]) -> torch.Tensor:
    count = sums["count"][:, None]
    squares = (sums["squares"] - sums["totals"] ** 2 / torch.where(count > 0, count, math.nan)).clamp(min=0)
    return over(_covariances(sums, lags), torch.sqrt(squares[:, :1] * squares[:, 1:]))


def correlation_curve(early: Series, late: Series, lag: Any) -> Plan:
    """Return the plan of correlations of a series with later values of another, or of itself."""
    labels, alone = check_labels("lag", lag, 0, MOST_LAG)
    return curve(lambda sums: _correlations(sums, labels), "lag", labels, alone, Products(early, late, max(labels)))
