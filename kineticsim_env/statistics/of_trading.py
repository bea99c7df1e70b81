"""Statistics of volume, of the book and of order flow: each function's docstring is its definition."""

from __future__ import annotations

import math
from typing import Any

import torch

from kineticsim_env.statistics.chunks import Made, Recorded
from kineticsim_env.statistics.gathering import Books, Moments, Products, Responses, Sums
from kineticsim_env.statistics.plans import Plan, check_labels, curve
from kineticsim_env.statistics.reading import LAGS, MOST_LAG, change_of, correlation_curve, deviation, mean, over

_NO_PRICE = 2**31 - 1  # what is recorded as the best price of an empty side
_LEAST_SHARE = 0.01  # of the intervals in which takers traded, that a size needs to count for the exponent
_VOLUME, _SIGNED = Recorded("volume"), Recorded("signed_volume")

# Volume ---------------------------------------------------------------------------------------------------------------


def volume() -> Plan:
    """Units traded per interval."""
    return Plan((Moments(_VOLUME),), mean, unit="units")


def volume_deviation() -> Plan:
    """Standard deviation of the units traded per interval, divisor n - 1."""
    return Plan((Moments(_VOLUME, 2),), deviation, unit="units")


def traded() -> Plan:
    """Share of intervals in which anything traded."""
    return Plan((Moments(Made(_is_positive, (_VOLUME,))),), mean)


def volume_autocorrelation(lag: Any = LAGS) -> Plan:
    """Autocorrelation of the units traded per interval, as `autocorrelation`."""
    return correlation_curve(_VOLUME, _VOLUME, lag)


def volume_volatility(price: str = "last") -> Plan:
    """Correlation of the units traded in an interval with the size of its return.

    R. Cont, Quantitative Finance 1 (2001): 223-236, section 2, fact 10.
    """
    size = Made(torch.abs, (change_of(price)[0],))
    return correlation_curve(size, _VOLUME, 0)


# The book -------------------------------------------------------------------------------------------------------------


def _is_positive(values: torch.Tensor) -> torch.Tensor:
    return values > 0


def _both(bid: torch.Tensor, ask: torch.Tensor) -> torch.Tensor:
    return (bid > -_NO_PRICE) & (ask < _NO_PRICE)


def _missing(bid: torch.Tensor, ask: torch.Tensor) -> torch.Tensor:
    return ~_both(bid, ask)


def _gap(bid: torch.Tensor, ask: torch.Tensor) -> torch.Tensor:
    return torch.where(_both(bid, ask), ask - bid, 0)


_BEST = (Recorded("best_bid"), Recorded("best_ask"))


def spread() -> Plan:
    """Mean of best ask less best bid of the built-in resting book after an interval, where both are there, ticks."""
    seen, gap = Moments(Made(_both, _BEST)), Moments(Made(_gap, _BEST))
    return Plan((gap, seen), lambda gap, seen: over(mean(gap), mean(seen)), unit="ticks")


def one_sided() -> Plan:
    """Share of intervals after which a side of the built-in resting book is empty."""
    return Plan((Moments(Made(_missing, _BEST)),), mean)


def depth() -> Plan:
    """Mean units of a side of the built-in resting book within 10 ticks of its best price; the mean of both sides."""
    both = Made(torch.add, (Recorded("bid_depth"), Recorded("ask_depth")))
    return Plan((Moments(both),), lambda sums: mean(sums) / 2, unit="units")


def book_shape(distance: Any = range(21)) -> Plan:
    """Mean units that rest so many ticks behind a side's best price, over both sides and books every 100 intervals.

    Empty sides are left out. J.-P. Bouchaud, M. Mezard and M. Potters, Quantitative Finance 2 (2002): 251-256.
    """
    labels, alone = check_labels("distance", distance, 0, 8191)
    chosen = list(labels)
    read = lambda sums: over(sums["units"][:, chosen], sums["sides"][:, None])  # noqa: E731
    return curve(read, "distance", labels, alone, Books(most=max(labels)), unit="units")


# Order flow -----------------------------------------------------------------------------------------------------------

_SIGN = Made(torch.sign, (_SIGNED,))


def sign_autocorrelation(lag: Any = LAGS) -> Plan:
    """Autocorrelation of the sign of `signed_volume`: 1 where takers bought more than they sold, -1 less, 0 alike.

    Under continuous trading with an interval of one event, of the signs of trades. F. Lillo and J. D. Farmer, Studies
    in Nonlinear Dynamics & Econometrics 8 (2004), no. 3, article 1.
    """
    return correlation_curve(_SIGN, _SIGN, lag)


def signed_volume_autocorrelation(lag: Any = LAGS) -> Plan:
    """Autocorrelation of `signed_volume`, units that takers bought less those they sold, as `autocorrelation`."""
    return correlation_curve(_SIGNED, _SIGNED, lag)


def response(lag: Any = (1, 2, 5, 10, 20, 50, 100), price: str = "mid") -> Plan:
    """Mean move of the price in the direction of takers, from before their interval to `lag` intervals later, ticks.

    R(k) = mean of e(t) (p(t + k - 1) - p(t - 1)), e the sign of `signed_volume`, over intervals in which it is not 0:
    the sum over j from 0 to k - 1 of the means of e(t) (p(t + j) - p(t + j - 1)), each over all t that have one.
    J.-P. Bouchaud, Y. Gefen, M. Potters and M. Wyart, Quantitative Finance 4 (2004): 176-190.
    """
    labels, alone = check_labels("lag", lag, 1, MOST_LAG)
    series, tick = change_of(price)
    steps = [value - 1 for value in labels]

    def read(sums: Sums) -> torch.Tensor:
        count = sums["count"][:, None]
        origin, other = sums["origins"][:, :1], sums["origins"][:, 1:]
        most = max(steps)
        lags = torch.arange(most + 1, device=count.device)
        zero = torch.zeros_like(count)
        tail, head = (sums[name][:, :most] for name in ("tail", "head"))
        gone = torch.cat([zero, tail.cumsum(1)], 1)
        begun = sums["totals"][:, :1] - gone
        ended = sums["totals"][:, 1:] - torch.cat([zero, head.cumsum(1)], 1)
        number = (count - lags).clamp(min=0)
        raw = sums["products"][:, : most + 1] + other * begun + origin * ended + number * origin * other
        squares = sums["squares"][:, :1] - torch.cat([zero, (tail**2).cumsum(1)], 1)
        signed = squares + 2 * origin * begun + number * origin**2  # intervals of each lag in which takers had a side
        moves = over(raw, torch.where(number > 0, signed, math.nan))
        return tick * moves.cumsum(1)[:, steps]

    return curve(read, "lag", labels, alone, Products(_SIGN, series, max(steps)), unit="ticks")


def impact_curve(price: str = "mid") -> Plan:
    """Mean move of the price over an interval in the direction of takers, by the size of `signed_volume`, ticks.

    In bins of u to 2 u - 1 units, u = 1, 2, 4 .. 32,768 and more; a group's intervals are taken together. NaN where
    none is in a bin.
    """
    series, tick = change_of(price)
    labels = tuple(2**power for power in range(Responses.bins))

    def read(sums: Sums) -> torch.Tensor:
        return tick * over(sums["moves"], sums["count"])

    return Plan((Responses(series, _SIGNED),), read, "units", labels, "ticks", pooled=True)


def impact_exponent(price: str = "mid") -> Plan:
    """Exponent b of the move, ~ size^b, over an interval in the direction of takers; below 1 impact is concave.

    Least squares of the logarithms of `impact_curve` on those of each bin's mean size, weighted by its intervals; bins
    with less than 1% of them or a move that is not above 0 are left out. NaN with fewer than two bins. A group's
    intervals are taken together. F. Lillo, J. D. Farmer and R. N. Mantegna, Nature 421 (2003): 129-130.
    """
    series, _ = change_of(price)

    def read(sums: Sums) -> torch.Tensor:
        count, moves = sums["count"], sums["moves"]
        used = (count > 0) & (moves > 0) & (count >= _LEAST_SHARE * count.sum(-1, keepdim=True))
        weight = torch.where(used, count, 0)
        one = torch.ones_like(count)
        x = torch.log(torch.where(used, sums["sizes"], one) / torch.where(used, count, one))
        y = torch.log(torch.where(used, moves, one) / torch.where(used, count, one))
        total = weight.sum(-1, keepdim=True)
        x = x - over((weight * x).sum(-1, keepdim=True), total)
        spread = torch.where(used.sum(-1) >= 2, (weight * x * x).sum(-1), math.nan)
        return over((weight * x * y).sum(-1), spread)

    return Plan((Responses(series, _SIGNED),), read, pooled=True)
