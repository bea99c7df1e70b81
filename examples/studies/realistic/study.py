"""A market into which facts of real ones are put: what is asked of it, what is put in, and the search for it.

Orders trade as they come. They are around a fundamental price that jumps, and a hidden regime says how far, so that
volatility comes in clusters; `traders.order_splitter` trades large orders in parts. `without` takes one or both away.
`POINT` are eight numbers of the preset; `search` tries others, to be ranked by how far inside its bounds the worst of
`ASKED` is. `__main__.py` and `search.py` fill README.md with it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from kineticsim_env.agents.mixes import mix
from kineticsim_env.config import PRESETS, MarketConfig
from kineticsim_env.runtime.presets import REALISTIC_JUMPS, jump_regimes
from kineticsim_env.runtime.seeds import run_seed
from kineticsim_env.statistics import check_statistics, measure
from kineticsim_env.statistics.facts import FACTS, Fact, largest, last_over_first
from kineticsim_env.traders import order_splitter

INTERVALS, WARM_UP = 4000, 300
SEED = run_seed(31)
SPANS = (1, 10, 100)  # of the kurtosis
SIGN_LAGS = (1, 2, 5, 10, 20, 50)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked(Fact):
    """A fact that is asked for: its number has to be above `low` and below `high`.

    Attributes:
        scale: What counts as far inside.
    """

    scale: float

    def inside(self, number: float) -> float:
        """Return how far inside a number is, in scales; below 0 it is outside."""
        return -math.inf if math.isnan(number) else min(number - self.low, self.high - number) / self.scale


def _asked(
    name: str,
    measured: str,
    statistics: str | tuple[str, ...],
    low: float,
    high: float,
    scale: float,
    read: Callable[..., np.ndarray] | None = None,
) -> Asked:
    """Return one of the facts of a scorecard, by its name, as it is asked for here."""
    (source,) = (fact.source for fact in FACTS if fact.name == name)
    texts = (statistics,) if isinstance(statistics, str) else statistics
    return Asked(name, measured, texts, read, low, high, source, "ours", scale=scale)


def _lasting(*tails: np.ndarray) -> np.ndarray:
    """Return the larger ratio of kurtoses over 10 times the intervals; the arguments are values and errors."""
    values = tails[::2]
    return np.maximum(values[1] / values[0], values[2] / values[1])


def _smallest(curve: np.ndarray, _: np.ndarray) -> np.ndarray:
    return curve.min(1)


_TAILS = tuple(f"kurtosis(span={span}, price='{{price}}')" for span in SPANS)
_SIGNS = f"sign_autocorrelation(lag={list(SIGN_LAGS)})"
ASKED = {
    "white": _asked("nor beyond lag 1", "largest autocorrelation of returns in size, lags 1 to 200",
                    "autocorrelation(price='{price}')", -1.0, 0.05, 0.02, largest),
    "ratio": _asked("prices diffuse", "variance ratio at 100 intervals", "variance_ratio(span=100, price='{price}')",
                    0.8, 1.2, 0.1),
    "clusters": _asked("volatility clusters", "autocorrelation of absolute returns, lag 20",
                       "abs_autocorrelation(lag=20, price='{price}')", 0.1, 1.0, 0.02),
    "slowly": _asked("and its memory fades slowly", "what is left of it at lag 100",
                     "abs_autocorrelation(lag=[20, 100], price='{price}')", 0.25, 1.0, 0.2, last_over_first),
    "tails": _asked("fat tails", "excess kurtosis of returns", _TAILS[0], 3.0, 10.0, 1.0),
    "aggregated": _asked("nearer to normal over longer times",
                         "what is left of it over 10, and of that over 100 intervals (the larger)",
                         _TAILS, 0.0, 1.0, 0.2, _lasting),
    "with volume": _asked("volume comes with volatility", "correlation of volume and absolute return",
                          "volume_volatility(price='{price}')", 0.0, 1.0, 0.1),
    "signs": _asked("order flow has a memory",
                    "autocorrelation of the signs of takers' volume, lags 1 to 50 (the smallest)",
                    _SIGNS, 0.0, 1.0, 0.03, _smallest),
    "impact": _asked("observed moves are concave in volume", "exponent of the observed move by takers' volume",
                     "impact_exponent", 0.0, 1.0, 0.1),
}  # fmt: skip
MEASURED = {  # what pictures show, besides what facts are read from
    "white": "autocorrelation(price='{price}')",
    "ratio": "variance_ratio(span=100, price='{price}')",
    "clusters": "abs_autocorrelation(price='{price}')",
    **{f"tails {span}": text for span, text in zip(SPANS, _TAILS, strict=True)},
    "with volume": "volume_volatility(price='{price}')",
    "signs": _SIGNS,
    "impact": "impact_exponent",
    "curve": "impact_curve",
}


class Point(NamedTuple):
    """Eight numbers of a market."""

    switch: float  # probability per beat that the regime is drawn anew
    spread_of_jumps: float  # deviation of the logarithm of a regime's jump size
    jump_prob: float
    jump_size: float  # its median over regimes, ticks
    splitters: float
    size: float  # least quantity of their parts
    noise: float  # share of noise agents; the others are makers
    cancel: float  # probability per beat


def _point_of(fields: Mapping[str, Any], jumps: Mapping[str, float]) -> Point:
    """Return the point of a preset's fields, and of the jumps that its regimes are made of."""
    (splitters,) = fields["agents"].values()
    return Point(
        switch=fields["regime_switch_prob"],
        **jumps,
        splitters=float(splitters["count"]),
        size=float(splitters["size"]),
        noise=fields["noise"],
        cancel=fields["cancel_prob"],
    )


LOW = Point(0.002, 0.4, 0.1, 3.0, 0.0, 4.0, 0.3, 0.2)
HIGH = Point(0.02, 0.9, 0.7, 12.0, 8.0, 24.0, 0.7, 0.6)
POINT = _point_of(PRESETS["realistic"], REALISTIC_JUMPS)


def market_of(point: Point) -> MarketConfig:
    """Return the market of a point."""
    splitters = {order_splitter: mix(round(point.splitters), size=round(point.size))}
    return MarketConfig.preset("realistic").replace(
        regimes=jump_regimes(point.jump_prob, point.jump_size, point.spread_of_jumps),
        regime_switch_prob=point.switch,
        noise=point.noise,
        maker=1.0 - point.noise,
        cancel_prob=point.cancel,
        agents=splitters if round(point.splitters) else None,
    )


def points(number: int, around: Point | None = None, seed: int = 0) -> list[Point]:
    """Return the first points of a scrambled Sobol sequence (torch) between LOW and HIGH, or in a quarter of that."""
    low, high = np.array(LOW), np.array(HIGH)
    if around is not None:
        reach = (high - low) / 8
        low, high = np.maximum(low, around - reach), np.minimum(high, around + reach)
    drawn = torch.quasirandom.SobolEngine(len(LOW), scramble=True, seed=seed).draw(number, dtype=torch.float64)
    return [Point(*row) for row in (low + drawn.numpy() * (high - low)).tolist()]


def rounded(point: Point) -> Point:
    """Return a point as `market_of` takes it: whole agents and quantities."""
    return point._replace(splitters=float(round(point.splitters)), size=float(round(point.size)))


class Found(NamedTuple):
    """What a market showed: values and their standard errors by name of `MEASURED`; of each fact the number, if any."""

    value: dict[str, np.ndarray]
    error: dict[str, np.ndarray]
    numbers: dict[str, float]

    @property
    def inside(self) -> dict[str, float]:
        """How far inside each fact is."""
        return {name: ASKED[name].inside(number) for name, number in self.numbers.items()}

    @property
    def worst(self) -> float:
        """How far inside the worst fact is; at 0 or above all are met."""
        return min(self.inside.values())


def without(splitters: bool = False, fundamental: bool = False) -> MarketConfig:
    """Return the preset without its order splitters, or with a fundamental price that stands, or both."""
    preset = MarketConfig.preset("realistic")
    if splitters:
        preset = preset.replace(agents=None)
    return preset.replace(regimes=None, regime_switch_prob=0.0, walk_prob=0.0) if fundamental else preset


def look(config: MarketConfig, markets: int, intervals: int = INTERVALS, price: str = "last", **options: Any) -> Found:
    """Measure what is asked for, over all markets together, in so many intervals after a warm-up.

    Returns are of a `price`; `"fundamental"` is that path alone, of which facts of trading have no number. Options are
    `engine`, `device` and `progress` of `ks.measure`.
    """
    texts = {name: text.format(price=price) for name, text in MEASURED.items()}
    asked = {name: [text.format(price=price) for text in fact.statistics] for name, fact in ASKED.items()}
    if price == "fundamental":
        plans = check_statistics({text: text for text in (*texts.values(), *sum(asked.values(), []))})
        alone = {text for text, plan in plans.items() if plan.record == ("fundamental",)}
        texts = {name: text for name, text in texts.items() if text in alone}
        asked = {name: needed for name, needed in asked.items() if alone.issuperset(needed)}
    names = texts | {text: text for needed in asked.values() for text in needed}
    found = measure(config, intervals, names, markets=markets, warm_up=WARM_UP, group=None, seed=SEED, **options)
    value = {name: found[name].value[0] for name in texts}
    error = {name: found[name].error[0] for name in texts}
    of = {name: [(found[text].value, found[text].error) for text in needed] for name, needed in asked.items()}
    return Found(value, error, {name: float(ASKED[name].number(each)[0]) for name, each in of.items()})


def search(
    tried: list[Point], markets: int, intervals: int = INTERVALS, **options: Any
) -> Iterator[tuple[Point, Found]]:
    """Look at points, one after another."""
    for point in tried:
        yield point, look(market_of(point), markets, intervals, progress=False, **options)
