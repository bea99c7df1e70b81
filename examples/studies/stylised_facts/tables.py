"""The tables of README.md, which its blocks make of results.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from examples.studies.stylised_facts.figures import STANDARD
from scripts.pages.blocks import Interval, Mean, between, pm, table

__all__ = ["STANDARD", "Sweep", "comparison", "leaving", "options_table", "rounding_table", "sweep_table"]


class Sweep:
    """Means over markets of every population, as `stylised_facts.figures_of` has kept them."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        """Take what was kept of a sweep."""
        self.found, self.shares, self.markets = found, found["shares"], found["markets"]
        self.last = len(self.shares) - 1

    def mean(self, name: str, point: int, lag: int | None = None) -> Mean:
        """Return a statistic's mean over the markets of a point; `lag` counts from 1."""
        return Mean(*(self.found["means"][name] if lag is None else self.found["lags"][name][str(lag)])[point])

    def shown(self, name: str, point: int, digits: int = 2, lag: int | None = None) -> str:
        """Return it with half of its 95% interval."""
        return pm(self.mean(name, point, lag), digits)

    def percent(self, name: str, point: int) -> str:
        """Return a mean share."""
        return f"{self.mean(name, point).mean:.1%}"

    def kurtosis(self, point: int) -> Interval:
        """Return the markets' mean excess kurtosis; its interval is a bootstrap's."""
        return Interval(*self.found["kurtosis"][point])

    def median(self, point: int) -> str:
        """Return the excess kurtosis of the median market."""
        return f"{self.found['median_kurtosis'][point]:.2f}"

    def point(self, momentum: float) -> int:
        """Return the first point with this share of momentum agents."""
        return min(range(len(self.shares)), key=lambda point: abs(self.shares[point][0] - momentum))


def comparison(published: Sweep, large: Sweep) -> str:
    """Return the paper's figures beside ours, with its number of markets and with many."""
    last, standard, low = large.last, large.point(STANDARD), range(large.point(0.2) + 1)

    def of(name: str, point: int, digits: int = 2, lag: int | None = None) -> Callable[[Sweep], str]:
        return lambda sweep: sweep.shown(name, point, digits, lag)

    def means(sweep: Sweep, points: Sequence[int]) -> list[float]:
        return [sweep.kurtosis(point).value for point in points]

    rows: list[tuple[str, str, Callable[[Sweep], str]]] = [
        ("deviation of the price, momentum 0", "0.95", of("price_sd", 0, 3)),
        ("the same, 0.65", "26.90 (peak)", of("price_sd", last - 1)),
        ("the same, 0.70", "25.19", of("price_sd", last)),
        ("deviation of returns, 0", "not given", of("return_sd", 0, 3)),
        ("the same, 0.70", "not given", of("return_sd", last, 3)),
        (
            "excess kurtosis, low shares (ours 0 to 0.20)",
            "2.24 to 2.92",
            lambda sweep: f"{min(means(sweep, low)):.2f} to {max(means(sweep, low)):.2f}",
        ),
        ("the same, least of all points", "positive", lambda sweep: f"{min(means(sweep, range(last + 1))):.2f}"),
        ("the same, 0.70, mean over markets", "26.34 (peak)", lambda sweep: between(sweep.kurtosis(last), 1)),
        ("the same, pooled", "", lambda sweep: between(Interval(*sweep.found["pooled_kurtosis"]))),
        ("the same, 0, of the mid", "", lambda sweep: between(Interval(*sweep.found["mid_kurtosis"]), 2)),
        ("volume, units per auction, 0", "169.0", of("volume", 0, 1)),
        ("the same, 0.70", "263.3", of("volume", last, 1)),
        ("autocorrelation of returns, 0.15, lag 1", "-0.34", of("acf", standard, 3, 1)),
        ("the same, of the mid", "", of("mid_acf_1", standard, 3)),
        ("autocorrelation of \\|returns\\|, 0.15, lag 1", "0.18", of("acf_abs", standard, 3, 1)),
    ]
    for lag in (2, 3, 5, 10, 20):
        rows.append((f"the same, lag {lag}", "decays very slowly", of("acf_abs", standard, 3, lag)))
    heads = ("figure", "paper", *(f"ours, {sweep.markets:,} markets" for sweep in (published, large)))
    return table(heads, [(what, paper, text(published), text(large)) for what, paper, text in rows])


def sweep_table(sweep: Sweep) -> str:
    """Return the statistics of every share of momentum agents."""
    rows = []
    for point, (momentum, _) in enumerate(sweep.shares):
        kurtosis = between(sweep.kurtosis(point), 2), sweep.median(point)
        lags = (sweep.shown(name, point, 3, 1) for name in ("acf", "acf_abs"))
        edges = (sweep.percent(name, point) for name in ("reached_edge", "at_bottom", "at_top"))
        deviations = (sweep.shown(name, point, 3) for name in ("price_sd", "return_sd"))
        rows.append((f"{momentum:.2f}", *deviations, *kurtosis, sweep.shown("volume", point, 1), *lags, *edges))
    heads = ("momentum", "deviation of the price", "of returns", "excess kurtosis", "its median", "volume")
    return table((*heads, "returns, lag 1", "\\|returns\\|, lag 1", "reached", "at the bottom", "at the top"), rows)


def rounding_table(even: Sweep, coin: Sweep) -> str:
    """Return the statistics of three shares under both roundings, side by side."""
    columns = [(sweep, sweep.point(share)) for share in (0.0, STANDARD, 0.7) for sweep in (even, coin)]
    shares = {"even_resting": "resting units on even ticks", "even_prices": "last prices on even ticks"}
    shares |= {"changed": "auctions that change the price", "at_bottom": "at the bottom", "at_top": "at the top"}
    rows = [(what, *(sweep.percent(name, point) for sweep, point in columns)) for name, what in shares.items()]
    rows += [
        ("deviation of the price", *(sweep.shown("price_sd", point, 3) for sweep, point in columns)),
        ("excess kurtosis of returns", *(between(sweep.kurtosis(point), 2) for sweep, point in columns)),
        ("its median", *(sweep.median(point) for sweep, point in columns)),
        ("returns, lag 1", *(sweep.shown("acf", point, 3, 1) for sweep, point in columns)),
    ]
    for lag in (1, 2, 5):
        rows.append((f"\\|returns\\|, lag {lag}", *(s.shown("acf_abs", point, 3, lag) for s, point in columns)))
    rows.append(("volume", *(sweep.shown("volume", point, 1) for sweep, point in columns)))
    heads = [f'{share:g}, `"{rounding}"`' for share in (0, STANDARD, 0.7) for rounding in ("even", "coin")]
    return table(("momentum, rounding", *heads), rows)


def options_table(small: Mapping[str, Sweep]) -> str:
    """Return what the paper states under other options."""
    rows = []
    for name, sweep in small.items():
        last, standard = sweep.last, sweep.point(STANDARD)
        cells = [*(sweep.shown("price_sd", point) for point in (0, last - 1, last))]
        cells += [*(sweep.shown("volume", point, 1) for point in (0, last)), between(sweep.kurtosis(0), 2)]
        cells += [sweep.shown(key, standard, 3, lag) for key, lag in (("acf", 1), ("acf_abs", 1), ("acf_abs", 2))]
        rows.append((name, *cells, sweep.percent("at_top", last)))
    heads = ("option", "price, 0", "0.65", "0.70", "volume, 0", "0.70", "kurtosis, 0", "returns, 0.15, lag 1")
    return table((*heads, "\\|returns\\|, lag 1", "lag 2", "at the top, 0.70"), rows)


def leaving(plane: Sweep, maker: float) -> str:
    """Return from which share of momentum agents half of the markets or more reach an end of the grid."""
    points = [point for point, (_, share) in enumerate(plane.shares) if abs(share - maker) < 1e-9]
    found = [plane.shares[point][0] for point in points if plane.mean("reached_edge", point).mean > 0.5]
    return f"{found[0]:.2f}" if found else "none"
