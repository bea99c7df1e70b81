"""Stylised facts of real markets, and how each is measured in a simulated one: the rows of a scorecard.

A fact has a number, a range that the literature reports, and the time scale at which the source knows it. Where a
source says only that something is positive, slow or absent, the bound is this package's, and `bounds` says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

_MINUTE, _DAY = 60.0, 23_400.0  # seconds of trading: a day has six and a half hours
_CONT = "R. Cont, Quantitative Finance 1 (2001): 223-236"
_LAGS = (1, 2, 3, 5, 7, 10, 14, 20, 28, 40)  # at which exponents of decay are fitted
_PLACES = np.array(_LAGS) - 1
_SURE = 2.0  # standard errors above 0 that a curve has to be at each of them


@dataclasses.dataclass(frozen=True)
class Fact:
    """One stylised fact.

    Attributes:
        name: What it is called.
        measured: What number stands for it.
        statistics: Texts of the statistics that it is read from; `{price}` is the price.
        read: Of their means over markets, and the standard errors of these, float64 `[k]` or `[k, n]` each, k samples:
            the number, `[k]`. None takes the one statistic as it is.
        low: Least value that counts as met,
        high: and greatest.
        source: Where it was found.
        bounds: Where the range is from: `"source"`, or `"ours"`.
        known: The lengths of an interval at which the source has it: the shortest and the longest in seconds of
            trading (a day has 23,400), or `"trades"` where it goes from trade to trade, or `"any"` where it names no
            one scale.
    """

    name: str
    measured: str
    statistics: tuple[str, ...]
    read: Callable[..., np.ndarray] | None
    low: float
    high: float
    source: str
    bounds: str = "source"
    known: tuple[float, float] | str = "any"

    def known_at(self, interval: float | str, aggregate: int = 1) -> bool:
        """Return whether the source knows it at the scale of a card: see `scorecard`."""
        if isinstance(self.known, str):
            return self.known == "any" or (interval == "events" and aggregate == 1)
        return not isinstance(interval, str) and self.known[0] <= interval * aggregate <= self.known[1]

    @property
    def time_scale(self) -> str:
        """What `known` says, in words."""
        if isinstance(self.known, str):
            return {"any": "any", "trades": "trade by trade"}[self.known]
        ends = [in_words(seconds) for seconds in dict.fromkeys(self.known)]
        return " to ".join(ends)

    def number(self, found: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """Return the number, float64 `[k]`, of the means and the errors of each statistic, `[k]` or `[k, n]`."""
        return found[0][0] if self.read is None else self.read(*(part for pair in found for part in pair))


def in_words(seconds: float) -> str:
    """Return a length of trading time, in the largest unit that it has one of."""
    units = {"d": _DAY, "min": _MINUTE, "s": 1.0}
    unit = next((unit for unit, length in units.items() if seconds >= length), "s")
    return f"{seconds / units[unit]:g} {unit}"


def largest(curve: np.ndarray, _: np.ndarray) -> np.ndarray:
    """Return the largest size of a curve's values."""
    return np.abs(curve).max(1)


def _ratio(part: np.ndarray, _: np.ndarray, whole: np.ndarray, __: np.ndarray) -> np.ndarray:
    return part / np.where(whole > 0, whole, np.nan)


def last_over_first(curve: np.ndarray, _: np.ndarray) -> np.ndarray:
    """Return what is left of a curve at its end, NaN where it does not begin above 0."""
    return curve[:, -1] / np.where(curve[:, 0] > 0, curve[:, 0], np.nan)


def _mean(curve: np.ndarray, _: np.ndarray) -> np.ndarray:
    return curve.mean(1)


def _highest(curve: np.ndarray, _: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(curve).any(1), np.nan, np.argmax(np.nan_to_num(curve), axis=1))


def _decay(curve: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Return the exponent b of a curve ~ lag^-b, NaN where it is not above 0 at every lag by two standard errors."""
    sure = np.all(curve[:, _PLACES] > _SURE * errors[:, _PLACES], axis=1, keepdims=True)
    heights = np.log(np.where(sure, curve[:, _PLACES], 1.0))
    x = np.log(_LAGS) - np.log(_LAGS).mean()
    return np.where(sure[:, 0], -(heights * x).sum(1) / (x**2).sum(), np.nan)


_FORTY = f"[{', '.join(map(str, range(1, max(_LAGS) + 1)))}]"
_SIZES = f"abs_autocorrelation(lag={_FORTY}, price='{{price}}')"
_SIGNS = f"sign_autocorrelation(lag={_FORTY})"

FACTS = (
    Fact(
        "no memory of returns", "autocorrelation of returns at lag 1",
        ("autocorrelation(lag=1, price='{price}')",), None, -0.05, 0.05,
        f"{_CONT}, fact 1", "ours", (20 * _MINUTE, _DAY),
    ),
    Fact(
        "nor beyond lag 1", "largest |autocorrelation| of returns at lags 2 to 20",
        ("autocorrelation(lag=[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20], price='{price}')",),
        largest, 0.0, 0.05,
        f"{_CONT}, fact 1", "ours", (20 * _MINUTE, _DAY),
    ),
    Fact(
        "prices diffuse", "variance ratio over 100 intervals",
        ("variance_ratio(span=100, price='{price}')",), None, 0.8, 1.2,
        "A. W. Lo and A. C. MacKinlay, Review of Financial Studies 1 (1988): 41-66", "ours", (5 * _DAY, 5 * _DAY),
    ),
    Fact(
        "fat tails", "excess kurtosis of returns",
        ("kurtosis(price='{price}')",), None, 3.0, 80.0,
        f"{_CONT}: 16 to 74 for futures over five minutes", "ours", (5 * _MINUTE, 5 * _MINUTE),
    ),
    Fact(
        "tails like a power", "Hill's exponent of the largest 1% of |returns|",
        ("tail_index(share=0.01, price='{price}')",), None, 2.0, 5.0,
        f"{_CONT}, fact 2; about 3 in V. Plerou et al., Physical Review E 60 (1999): 6519-6529",
        known=(5 * _MINUTE, 16 * _DAY),
    ),
    Fact(
        "nearer to normal over longer times", "excess kurtosis over 20 intervals, over that over one",
        ("kurtosis(span=20, price='{price}')", "kurtosis(price='{price}')"), _ratio, -0.5, 0.7,
        f"{_CONT}, fact 4", "ours",
    ),
    Fact(
        "falls are larger than rises", "skewness of returns",
        ("skewness(price='{price}')",), None, -5.0, -0.05,
        f"{_CONT}, fact 3; of stocks, not of exchange rates", "ours",
    ),
    Fact(
        "volatility clusters", "autocorrelation of |returns| at lag 20",
        ("abs_autocorrelation(lag=20, price='{price}')",), None, 0.1, 0.5,
        f"{_CONT}, facts 6 and 8", "ours", (5 * _MINUTE, _DAY),
    ),
    Fact(
        "and its memory fades slowly", "exponent of the decay of that autocorrelation, lags 1 to 40",
        (_SIZES,), _decay, 0.2, 0.4,
        f"{_CONT}, fact 8", known=(5 * _MINUTE, _DAY),
    ),
    Fact(
        "volatility follows losses", "correlation of a return with later squared ones, mean of lags 1 to 10",
        ("leverage(lag=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], price='{price}')",), _mean, -0.5, -0.01,
        f"{_CONT}, fact 9; of stocks, not of exchange rates", "ours",
    ),
    Fact(
        "volume comes with volatility", "correlation of volume with |returns|",
        ("volume_volatility(price='{price}')",), None, 0.1, 0.9,
        "J. M. Karpoff, Journal of Financial and Quantitative Analysis 22 (1987): 109-126", "ours",
    ),
    Fact(
        "volume has a memory", "autocorrelation of volume at lag 20",
        ("volume_autocorrelation(lag=20)",), None, 0.05, 0.9,
        "P. Gopikrishnan et al., Physical Review E 62 (2000): R4493", "ours",
    ),
    Fact(
        "order flow has a memory", "autocorrelation of the sign of takers' flow at lag 10",
        ("sign_autocorrelation(lag=10)",), None, 0.05, 0.5,
        "F. Lillo and J. D. Farmer, Studies in Nonlinear Dynamics & Econometrics 8 (2004), no. 3", "ours", "trades",
    ),
    Fact(
        "which fades slowly", "exponent of the decay of that autocorrelation, lags 1 to 40",
        (_SIGNS,), _decay, 0.2, 0.8,
        "0.6 in F. Lillo and J. D. Farmer (2004); less for some stocks in J.-P. Bouchaud et al. (2004)",
        "ours", "trades",
    ),
    Fact(
        "observed moves are concave in volume",
        "exponent of the observed move of the mid over an interval, by takers' net volume in it",
        ("impact_exponent",), None, 0.1, 0.8,
        "0.5 for small sizes, less for large ones in F. Lillo et al., Nature 421 (2003): 129-130", "ours", "trades",
    ),
    Fact(
        "observed response to takers lasts",
        "observed response of the mid to the sign of takers' flow after 20 intervals, over that after one",
        ("response(lag=[1, 20])",), last_over_first, 0.8, 3.0,
        "J.-P. Bouchaud et al., Quantitative Finance 4 (2004): 176-190", "ours", "trades",
    ),
    Fact(
        "books are fullest behind the best price", "distance of the largest mean depth from the best price, ticks",
        ("book_shape",), _highest, 1.0, 20.0,
        "J.-P. Bouchaud, M. Mezard and M. Potters, Quantitative Finance 2 (2002): 251-256",
    ),
)  # fmt: skip


def statistics_of(price: str = "last", facts: Sequence[Fact] = FACTS) -> list[str]:
    """Return the statistics that facts are read from, each once: for `measure(..., group=None)` before a scorecard."""
    return list(dict.fromkeys(text.format(price=price) for fact in facts for text in fact.statistics))
