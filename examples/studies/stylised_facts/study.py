"""The market's own behaviour by its mix of agents: many populations side by side in one ensemble, and their statistics.

Returns are changes of the last price. `__main__.py` fills README.md with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from kineticsim_env import statistics
from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.seeds import run_seed
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics.of_returns import abs_autocorrelation, autocorrelation

AUCTIONS, LAGS = 1000, 20
EDGE = 2  # a price at most so many ticks from an end of the grid is at that end
SEED = run_seed(11)
_BLOCK = 1 << 23  # values of a series held at a time


class Sweep(NamedTuple):
    """Statistics of P populations with M markets each."""

    shares: np.ndarray  # float64 [P, 2]: momentum and maker
    values: dict[str, np.ndarray]  # one value per market, [P, M], or one per lag or power, [P, M, n]

    def mean(self, name: str, point: int, lag: int | None = None) -> statistics.Mean:
        """Average a statistic over the markets of a point; `lag` counts from 1."""
        values = self.values[name][point]
        return statistics.mean_and_error(values if lag is None else values[:, lag - 1])

    def kurtosis(self, point: int, name: str = "kurtosis") -> statistics.Interval:
        """Average the markets' excess kurtosis; its tail is heavy, so the interval is a bootstrap's."""
        return statistics.bootstrap_interval(self.values[name][point])

    def pooled_kurtosis(self, point: int) -> statistics.Interval:
        """Return the excess kurtosis of the returns of all markets of a population together."""
        return statistics.bootstrap_interval(
            self.values["powers"][point], lambda samples: _kurtosis_of_moments(samples.sum(1)), resamples=1000
        )

    def means(self, name: str) -> tuple[list[float], list[float]]:
        """Return the means of all points, and half of their 95% intervals."""
        found = [self.mean(name, point) for point in range(len(self.shares))]
        return [value.mean for value in found], [value.interval() for value in found]

    def point(self, momentum: float) -> int:
        """Return the index of the first point with this share of momentum agents."""
        return int(np.argmin(np.abs(self.shares[:, 0] - momentum)))


def populations(momentum: Iterable[float], makers: Iterable[float]) -> np.ndarray:
    """Return the pairs of shares whose sum is at most 1, as noise agents are the rest; float64 `[P, 2]`."""
    momentum = tuple(momentum)
    pairs = [(share, maker) for maker in makers for share in momentum if share + maker <= 1 + 1e-9]
    return np.array(pairs, dtype=np.float64)


def measure(
    shares: np.ndarray, markets: int, auctions: int = AUCTIONS, lags: int = LAGS, engine: str = "cpu", **changes: Any
) -> Sweep:
    """Run every population side by side in one ensemble, and take the statistics of each market.

    A long ensemble is run in blocks of markets, which changes no figure: market j of population p has the seed `SEED +
    p * 2^20 + j`.

    Args:
        shares: float64 `[P, 2]`, momentum and maker; the rest are noise agents.
        markets: M of each population.
        auctions: How many from the opening.
        lags: Autocorrelations go up to this lag.
        engine: As in `Simulator`.
        **changes: Fields of `MarketConfig`; populations are drawn per market unless it says otherwise.
    """
    points = len(shares)
    block = max(1, min(markets, _BLOCK // (points * auctions)))
    parts = []
    with tqdm(total=points * markets, unit="market", desc=f"{points} populations") as bar:
        for begin in range(0, markets, block):
            count = min(block, markets - begin)
            momentum, maker = (np.repeat(column, count) for column in shares.T)
            mix: dict[str, Any] = {"momentum": momentum, "maker": maker, "population": "multinomial"}
            mix["noise"] = np.clip(np.round(1 - momentum - maker, 10), 0, 1)
            config = MarketConfig(**{**mix, **changes})
            seeds = SEED + (np.arange(points)[:, None] << 20) + np.arange(begin, begin + count)
            simulator = Simulator(config, engine=engine, seed=seeds.ravel())
            series = simulator.run(auctions, ("last_price", "mid2", "volume"), progress=False)
            host = {name: value.cpu().numpy() for name, value in series.items()}
            found = market_statistics(host["last_price"], host["mid2"], host["volume"], config.num_levels, lags)
            found["even_resting"] = _even_share(simulator.bid, simulator.ask)
            parts.append({name: value.reshape(points, count, *value.shape[1:]) for name, value in found.items()})
            bar.update(points * count)
    values = {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}
    return Sweep(shares, values)


def market_statistics(price: np.ndarray, mid2: np.ndarray, volume: np.ndarray, levels: int, lags: int) -> dict:
    """Return the statistics of each market, `[M]` or `[M, n]`, by name.

    Series are int32 `[M, S]`. `mid2` is twice the mid of the book that the auction left behind; where a side is empty
    there, twice the last price. So its changes are those over an auction, as the last price's are. `levels` are the
    grid's ticks; autocorrelations go up to `lags`.
    """
    change = statistics.arrays.returns(price)
    size = np.abs(change)
    twice = change[:, :-1] * change[:, 1:]  # not 0 where the price changed in two auctions in a row
    runs = (twice != 0).sum(1)
    measured = statistics.measure_series(
        {"last_price": price, "mid2": mid2, "volume": volume},
        {
            "price_sd": "price_deviation",
            "return_sd": "volatility",
            "mid_sd": "volatility(price='mid')",
            "kurtosis": "kurtosis",
            "mid_kurtosis": "kurtosis(price='mid')",
            "volume": "volume",
            "acf": partial(autocorrelation, range(1, lags + 1)),
            "acf_abs": partial(abs_autocorrelation, range(1, lags + 1)),
            "mid_acf_1": "autocorrelation(lag=1, price='mid')",
        },
    )
    second_half = {"last_price": price[:, change.shape[1] // 2 :]}
    late = statistics.measure_series(second_half, {"acf_abs_late": partial(abs_autocorrelation, range(1, lags + 1))})
    return {
        **{name: value.value for part in (measured, late) for name, value in part.items()},
        "powers": np.stack([(change**power).sum(1, dtype=np.int64) for power in range(5)], axis=1),
        "changed": (change != 0).mean(1),
        "changed_again": _ratio(runs, (change[:, :-1] != 0).sum(1)),  # changes followed by another
        "taken_back": _ratio((twice < 0).sum(1), runs),  # of these, followed by the opposite
        "largest": size.max(1).astype(np.float64),
        "at_bottom": (price[:, -1] <= EDGE).astype(np.float64),
        "at_top": (price[:, -1] >= levels - 1 - EDGE).astype(np.float64),
        "even_prices": (price % 2 == 0).mean(1),
        "reached_edge": ((price <= EDGE) | (price >= levels - 1 - EDGE)).any(1).astype(np.float64),
    }


def _even_share(bid: torch.Tensor, ask: torch.Tensor) -> np.ndarray:
    """Return the share of the units that rest on even ticks, of books int32 `[M, L]`."""
    resting = (bid + ask).cpu().numpy().astype(np.int64)
    return _ratio(resting[:, ::2].sum(1), resting.sum(1))


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return part / np.where(whole > 0, whole, np.nan)


def _kurtosis_of_moments(moments: np.ndarray) -> np.ndarray:
    """Return the excess kurtosis from sums of powers 0 to 4, `[P, 5]`; the returns are small, so nothing cancels."""
    mean, second, third, fourth = (moments[:, 1:] / moments[:, :1]).T
    variance = second - mean**2
    centred = fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**4
    with np.errstate(divide="ignore", invalid="ignore"):
        return centred / variance**2 - 3
