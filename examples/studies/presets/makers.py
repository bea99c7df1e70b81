"""A scripted maker in a market, and the market without it: what the presets for learners were chosen by.

The maker quotes 8 units on each side of the mid, the quotes moved against its inventory by `skew` ticks per unit; after
300 auctions (intervals, on the clock) what it holds is unwound through the market. All runs share their seeds, so
differences are paired. Of continuous trading alone: is a place in a queue, and being early, worth something? There, one
maker's quotes arrive late, one stays where it is, with or without its place in the queue, and one quotes at random.
`trading.py` and `continuous.py` measure with it what README.md shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from kineticsim_env import statistics
from kineticsim_env.config import MarketConfig
from kineticsim_env.evaluation import liquidate
from kineticsim_env.runtime.seeds import run_seed
from kineticsim_env.simulator import Simulator

SIZE, INVENTORY_LIMIT, WARMUP, AUCTIONS = 8, 40, 100, 300
DEPTH_TIMES = (100, 300, 1000, 3000)
LONG, MOST = 2000, 1024  # auctions and markets of what is said of returns
SPANS, LAGS = (1, 2, 5, 10, 20, 50, 100, 200), (1, 2, 3, 5, 10, 20, 50)
SEED = run_seed(7)
PATIENCE = 4  # ticks that a patient maker's quote may be away from where it would be placed anew
REACH = 10  # ticks from the mid up to which random quotes are, as in the task


class Game(NamedTuple):
    """What one maker did, one value per market."""

    pnl: np.ndarray  # liquidated, ticks x units
    bought: np.ndarray  # units per auction
    sold: np.ndarray
    held: np.ndarray  # mean |inventory|


class Market(NamedTuple):
    """A market without learners."""

    counts: tuple[int, ...]  # agents by class
    spread: statistics.Mean
    two_sided: statistics.Mean
    volatility: statistics.Mean
    depth: dict[int, statistics.Mean]  # resting units of both sides after so many auctions
    deepest: int  # of any market at any of those times


class Returns(NamedTuple):
    """What the changes of a price are like, one row per market."""

    deviation: np.ndarray  # of the change over one auction, ticks, [M]
    kurtosis: np.ndarray  # its excess kurtosis, [M]
    autocorrelation: np.ndarray  # by LAGS, [M, n]
    of_sizes: np.ndarray  # that of |changes|, [M, n]
    variance_ratio: np.ndarray  # by SPANS: the variance of the change, over as many times that over one auction, [M, n]
    fundamental: np.ndarray  # by SPANS: the variance of the fundamental's change over that of the price's, [M, n]
    away: np.ndarray  # deviation of the price from the fundamental, ticks, [M]


Rule = Callable[[Simulator], torch.Tensor]  # returns the quotes of the next decision, int32 [M, 1, 4]


def play(config: MarketConfig, half_spread: int, skew: float, markets: int, engine: str = "auto") -> Game:
    """Let the scripted maker trade, unwind it, and count its money."""
    return trade(config, lambda simulator: around_mid(simulator, half_spread, skew), markets, engine)


def around_mid(simulator: Simulator, half_spread: int, skew: float) -> torch.Tensor:
    """Return quotes around the mid, moved against the inventory."""
    mid2, inventory = simulator.mid2, simulator.inventory[:, 0]
    offset = torch.round(skew * inventory.double()).int()
    bid, ask = (mid2 >> 1) - half_spread - offset, ((mid2 + 1) >> 1) + half_spread - offset
    size = torch.full_like(bid, SIZE)
    return torch.stack([bid, size, ask, size], dim=1)[:, None]


def trade(config: MarketConfig, rule: Rule, markets: int, engine: str = "auto") -> Game:
    """Let a rule quote, unwind what it holds, and count its money."""
    config = config.replace(inventory_limit=INVENTORY_LIMIT, max_quote_qty=max(SIZE, 4))
    simulator = Simulator(config, markets, engine=engine, seed=SEED, slots=1)
    simulator.run(WARMUP, progress=False)
    total = torch.zeros((markets, 2), dtype=torch.int64, device=simulator.device)
    held = torch.zeros(markets, dtype=torch.int64, device=simulator.device)
    for _ in range(AUCTIONS):
        total += simulator.step(rule(simulator))[:, 0]
        held += simulator.inventory[:, 0].abs()
    liquidate(simulator)
    bought, sold = (total.double() / AUCTIONS).T.cpu().numpy()
    return Game(simulator.money[:, 0].cpu().numpy(), bought, sold, (held.double() / AUCTIONS).cpu().numpy())


def without_learners(config: MarketConfig, markets: int, engine: str = "auto") -> Market:
    """Watch the market itself: books every 10 auctions of the episode, and how deep they grow."""
    simulator = Simulator(config, markets, engine=engine, seed=SEED)
    counts = tuple(int(simulator.rows[f"num_{name}"][0]) for name in ("noise", "momentum", "maker", "fundamental"))
    simulator.run(WARMUP, progress=False)
    spreads, prices = [], []
    for _ in range(AUCTIONS // 10):
        prices.append(simulator.run(10, ("last_price",), progress=False)["last_price"])
        spreads.append(statistics.arrays.spread(simulator.bid, simulator.ask))
    stacked = np.stack(spreads)
    return Market(
        counts,
        statistics.mean_and_error(np.nanmean(stacked, axis=0)),
        statistics.mean_and_error((~np.isnan(stacked)).mean(0)),
        statistics.mean_and_error(statistics.arrays.volatility(statistics.arrays.returns(torch.cat(prices, dim=1)))),
        *_depths(config, min(markets, 1024), engine),
    )


def _depths(config: MarketConfig, markets: int, engine: str) -> tuple[dict[int, statistics.Mean], int]:
    simulator = Simulator(config, markets, engine=engine, seed=SEED)
    depth, deepest, done = {}, 0, 0
    for auctions in DEPTH_TIMES:
        simulator.run(auctions - done, progress=False)
        done = auctions
        resting = simulator.bid.sum(1) + simulator.ask.sum(1)
        depth[auctions] = statistics.mean_and_error(resting)
        deepest = max(deepest, int(resting.max()))
    return depth, deepest


def returns_without_learners(config: MarketConfig, markets: int, engine: str = "auto") -> dict[str, Returns]:
    """Watch the last price and the mid over LONG auctions."""
    simulator = Simulator(config, min(markets, MOST), engine=engine, seed=SEED)
    simulator.run(WARMUP, progress=False)
    series = simulator.run(LONG, ("last_price", "mid2", "fundamental"), progress=False)
    host = {name: values.cpu().numpy().astype(np.float64) for name, values in series.items()}
    prices = {"last price": host["last_price"], "mid": host["mid2"] / 2}
    return {name: returns_of(price, host["fundamental"]) for name, price in prices.items()}


def returns_of(price: np.ndarray, fundamental: np.ndarray) -> Returns:
    """Return what changes of a price are like, beside those of the fundamental price; both float64 `[M, S]`."""
    change = np.diff(price, axis=1)

    def lagged(series: np.ndarray) -> np.ndarray:
        return np.stack([statistics.arrays.autocorrelation(series, lag) for lag in LAGS], axis=1)

    def variances(series: np.ndarray) -> np.ndarray:
        # Neither price drifts, so the mean square is the variance. The mean of few long spans is not taken off.
        return np.stack([((series[:, span:] - series[:, :-span]) ** 2).mean(1) for span in SPANS], axis=1)

    whole = variances(price)
    return Returns(
        statistics.arrays.volatility(change),
        statistics.arrays.excess_kurtosis(change),
        lagged(change),
        lagged(np.abs(change)),
        whole / (whole[:, :1] * np.array(SPANS)),
        variances(fundamental) / whole,
        np.sqrt(((price - fundamental) ** 2).mean(1)),
    )


# What only continuous trading asks ------------------------------------------------------------------------------------


def play_late(
    config: MarketConfig, half_spread: int, skew: float, latency: int, markets: int, engine: str = "auto"
) -> Game:
    """Let the maker around the mid trade with quotes that arrive `latency` events late."""
    late = config.replace(quote_latency=latency)
    return trade(late, lambda simulator: around_mid(simulator, half_spread, skew), markets, engine)


def play_patient(
    config: MarketConfig, half_spread: int, skew: float, keeps: bool, markets: int, engine: str = "auto"
) -> Game:
    """Let a maker trade that leaves a quote where it is while it is within PATIENCE ticks of its price anew.

    Such a quote keeps its place in the queue. If not `keeps`, it gives up a unit in one decision and asks for it back
    in the next, which puts it behind all that rests at its tick, every other decision.
    """
    decision = 0

    def rule(simulator: Simulator) -> torch.Tensor:
        nonlocal decision
        quotes = around_mid(simulator, half_spread, skew)
        for side in (0, 2):
            anew, standing = quotes[:, 0, side : side + 2], simulator.quotes[:, 0, side : side + 2].clone()
            stays = (standing[:, 1] > 0) & ((standing[:, 0] - anew[:, 0]).abs() <= PATIENCE)
            if not keeps:
                standing[:, 1] = (standing[:, 1] + (1 if decision % 2 else -1)).clamp(1, SIZE)
            anew.copy_(torch.where(stays[:, None], standing, anew))
        decision += 1
        return quotes

    return trade(config, rule, markets, engine)


def play_random(config: MarketConfig, markets: int, engine: str = "auto", seed: int = 1) -> Game:
    """Let quotes be drawn: up to REACH ticks from the mid, up to SIZE units, each side for itself."""
    generator = torch.Generator().manual_seed(seed)  # on the CPU, so that every engine sees the same draws

    def rule(simulator: Simulator) -> torch.Tensor:
        quotes = around_mid(simulator, 0, 0.0)
        draws = torch.rand((len(quotes), 4), generator=generator, dtype=torch.float64).to(quotes.device)
        quotes[:, 0, 0] -= torch.round(REACH * draws[:, 0]).int()
        quotes[:, 0, 2] += torch.round(REACH * draws[:, 1]).int()
        quotes[:, 0, 1::2] = torch.round(SIZE * draws[:, 2:]).int()
        return quotes

    return trade(config, rule, markets, engine)
