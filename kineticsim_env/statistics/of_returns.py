"""Statistics of returns: each function's docstring is its definition.

Of a market with prices p(0) .. p(S - 1), one after each interval, the return over a span h is r(t) = p(t) - p(t - h),
for every t that has one: spans overlap. All are in ticks. `price` is `"last"`, the last price (in a call market that of
the last auction that traded), `"mid"`, the mid of the built-in resting book, the last price where a side is empty, or
`"fundamental"`, the price that trading is about and has no part in.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from kineticsim_env.runtime.values import check_choice, check_number
from kineticsim_env.statistics.chunks import Made, Recorded
from kineticsim_env.statistics.gathering import Histogram, Moments, Sums
from kineticsim_env.statistics.plans import Plan, check_labels, curve
from kineticsim_env.statistics.reading import (
    LAGS,
    MOST_SPAN,
    PRICES,
    central,
    change_of,
    correlation_curve,
    deviation,
    mean,
    over,
)


def mean_return(span: int = 1, price: str = "last") -> Plan:
    """Mean return over `span` intervals, ticks."""
    series, tick = change_of(price, span)
    return Plan((Moments(series),), lambda sums: tick * mean(sums), unit="ticks")


def volatility(span: int = 1, price: str = "last") -> Plan:
    """Standard deviation of returns over `span` intervals, divisor n - 1, ticks."""
    series, tick = change_of(price, span)
    return Plan((Moments(series, 2),), lambda sums: tick * deviation(sums), unit="ticks")


def skewness(span: int = 1, price: str = "last") -> Plan:
    """Third central moment of returns over their deviation cubed, divisors n; NaN for a constant price."""

    def read(sums: Sums) -> torch.Tensor:
        second, third, *_ = central(sums)
        return over(third, second**1.5)

    return Plan((Moments(change_of(price, span)[0], 3),), read)


def kurtosis(span: int = 1, price: str = "last") -> Plan:
    """Excess kurtosis: fourth central moment of returns over the squared variance, less 3, divisors n.

    0 for long normal series, positive for fat tails, NaN for a constant price. Its errors have heavy tails themselves:
    see `Value.intervals`.
    """

    def read(sums: Sums) -> torch.Tensor:
        second, _, fourth = central(sums)
        return over(fourth, second**2) - 3

    return Plan((Moments(change_of(price, span)[0], 4),), read)


def unchanged(span: int = 1, price: str = "last") -> Plan:
    """Share of returns that are 0."""
    return Plan((Moments(Made(_is_zero, (change_of(price, span)[0],))),), mean)


def quantile(level: Any = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99), span: int = 1, price: str = "last") -> Plan:
    """Smallest return to which at least the share `level` of returns comes up, ticks (NumPy's `inverted_cdf`).

    Exact up to 127 steps of the price (ticks, half ticks of the mid), then within 1/128 of the value; NaN where it is
    above 65,535 steps.
    """
    labels, alone = check_labels("level", level, 0, 1, whole=False)
    series, tick = change_of(price, span)

    def read(sums: Sums) -> torch.Tensor:
        ranks = sums["counts"].cumsum(1)
        levels = torch.tensor(labels, dtype=torch.float64, device=ranks.device)
        wanted = torch.ceil(levels * ranks[:, -1:] - 1e-9).clamp(min=1).long()
        place = torch.searchsorted(ranks, wanted) - (Histogram.bins - 1)
        sizes = Histogram.sizes(ranks.device)
        found = place.sign() * sizes[place.abs().clamp(max=Histogram.bins - 1)]
        return torch.where(ranks[:, -1:] > 0, tick * found, math.nan)

    return curve(read, "level", labels, alone, Histogram(series), unit="ticks")


def tail_index(share: float = 0.05, span: int = 1, price: str = "last") -> Plan:
    """Hill's estimate of the exponent a in `P(|r| > x) ~ x^-a`, from the largest `share` of the sizes of returns.

    a = k / sum over i of ln(x(i) / x(k + 1)), x(1) >= x(2) >= .. the sizes, k = floor(share * n). NaN without a k of 1
    or more, where x(k + 1) is 0, or all k are equal to it, and where any size is above 65,535 steps of the price.
    Sizes are as exact as in `quantile`; where x(k + 1) is only a few ticks, whole ticks make the estimate coarse.
    B. M. Hill, Annals of Statistics 3 (1975): 1163-1174.
    """
    series, _ = change_of(price, span)
    part = check_number("share", share, 0.0, 0.5, above=True)

    def read(sums: Sums) -> torch.Tensor:
        middle = Histogram.bins - 1
        counts = sums["counts"].double()
        both = counts[:, middle:].clone()
        both[:, 1:] += counts[:, :middle].flip(1)
        both, sizes = both.flip(1), Histogram.sizes(counts.device).flip(0)  # the largest first
        ranks = both.cumsum(1)
        top = torch.floor(part * ranks[:, -1:] + 1e-9)
        taken = (top - (ranks - both)).clamp(min=0).minimum(both)
        logs = torch.where(sizes > 0, sizes.clamp(min=0.5).log(), math.nan)
        threshold = logs[torch.searchsorted(ranks, top + 1).clamp(max=middle)]
        excess = torch.where(taken > 0, taken * (logs - threshold), 0.0).sum(1)
        excess = torch.where(threshold[:, 0].isnan(), math.nan, excess)
        return over(top[:, 0], torch.where(top[:, 0] >= 1, excess, math.nan).clamp(min=0))

    return Plan((Histogram(series),), read)


def variance_ratio(span: Any = (2, 5, 10, 20, 50, 100, 200), price: str = "last") -> Plan:
    """Variance of returns over `span` intervals over that of `span` independent ones; 1 for a random walk.

    With T returns over one interval, of mean m: sum of (r_h(t) - h m)^2 / (h (T - h + 1) (1 - h / T)), over
    sum of (r(t) - m)^2 / (T - 1). A. W. Lo and A. C. MacKinlay, Review of Financial Studies 1 (1988): 41-66.
    """
    labels, alone = check_labels("span", span, 1, MOST_SPAN)
    series = [change_of(price, value)[0] for value in (1, *labels)]

    def read(one: Sums, *others: Sums) -> torch.Tensor:
        count = one["count"]
        drift = mean(one)
        unit = deviation(one) ** 2
        found = []
        for h, sums in zip(labels, others, strict=True):
            number, (first, second) = sums["count"], sums["powers"].T[:2]
            shift = sums["first"] - h * drift
            squares = second + 2 * shift * first + number * shift**2
            divisor = h * number * (1 - h / count) * unit
            found.append(over(squares, torch.where(number > 0, divisor, math.nan)))
        return torch.stack(found, 1)

    return curve(read, "span", labels, alone, *(Moments(part, 2) for part in series))


def price_deviation(price: str = "last") -> Plan:
    """Standard deviation of the price itself over the intervals, divisor n - 1, ticks."""
    name, tick = PRICES[check_choice("price", price, PRICES)]
    return Plan((Moments(Recorded(name), 2),), lambda sums: tick * deviation(sums), unit="ticks")


def price_error() -> Plan:
    """Root mean square of last price less fundamental price, ticks."""
    gap = Made(torch.sub, (Recorded("last_price"), Recorded("fundamental")))

    def read(sums: Sums) -> torch.Tensor:
        return torch.sqrt(mean(sums) ** 2 + central(sums)[0])

    return Plan((Moments(gap, 2),), read, unit="ticks")


# Correlations -------------------------------------------------------------------------------------------------------


def autocorrelation(lag: Any = LAGS, price: str = "last") -> Plan:
    """Autocorrelation of returns over one interval, NaN for a constant price and for a lag without two of them.

    sum over t of (r(t) - m) (r(t + k) - m), over sum of (r(t) - m)^2; mean and divisor are those of the whole series,
    so values are within -1 and 1; that of T independent returns is about -1 / T in the mean.
    """
    series, _ = change_of(price)
    return correlation_curve(series, series, lag)


def abs_autocorrelation(lag: Any = LAGS, price: str = "last") -> Plan:
    """Autocorrelation of the sizes of returns, as `autocorrelation`; it falls slowly where volatility clusters.

    R. Cont, Quantitative Finance 1 (2001): 223-236, section 2, facts 6 and 8.
    """
    size = Made(torch.abs, (change_of(price)[0],))
    return correlation_curve(size, size, lag)


def leverage(lag: Any = range(1, 21), price: str = "last") -> Plan:
    """Correlation of r(t) with r(t + lag)^2, returns over one interval: negative where volatility follows losses.

    R. Cont, Quantitative Finance 1 (2001): 223-236, section 2, fact 9.
    """
    series, _ = change_of(price)
    return correlation_curve(series, Made(torch.square, (series,)), lag)


def _is_zero(values: torch.Tensor) -> torch.Tensor:
    return values == 0
