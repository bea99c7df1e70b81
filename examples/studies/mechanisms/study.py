"""One stream of orders under continuous trading and under call auctions of many lengths.

Built-in agents price around the fundamental price, and none of them looks at the book. So the same orders come, in the
same order, whatever the rules do with them. `__main__.py` fills README.md with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from kineticsim_env import statistics
from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.seeds import run_seed
from kineticsim_env.simulator import Simulator

BEAT = 20  # events
WARMUP, EVENTS = 1000, 10_000  # that are left out, and that are measured
APART = 1000  # events between two books, and over which the price's change is taken
LOOK = 7  # events between two looks at the price: all distances from a beat occur, as 7 and 20 have no common divisor
SEED = run_seed(11)
CONTINUOUS = None  # as an interval: no auction at all
STREAM: dict[str, Any] = {
    "num_levels": 256,
    "init_price": 128,
    "num_agents": 20,
    "noise": 0.9,
    "momentum": 0.0,
    "maker": 0.1,
    "noise_spread": 14,
    "maker_half_spread": 8,
    "market_order_prob": 0.1,
    "walk_prob": 0.4,
    "jump_size": 4,
    "cancel_prob": 0.4,
    "window": 16,
    "tie": "mid",
    "residue": "cancel",
    "reference": "fundamental",
    "arrivals": "clock",
    "beat": BEAT,
}


def market(interval: int | None, jump_prob: float = 0.02) -> MarketConfig:
    """Return the market that is cleared every so many events, or that trades continuously if None."""
    rule = {"mechanism": "continuous", "interval": 1} if interval is CONTINUOUS else {"interval": interval}
    return MarketConfig(**STREAM, jump_prob=jump_prob, **rule)


class Path(NamedTuple):
    """A run of one rule after the warm-up: T looks at the price, S intervals."""

    price: np.ndarray  # int64 [M, T]: the last price, as it stands then
    fundamental: np.ndarray  # int64 [M, S]: at the end of each interval
    cleared: np.ndarray  # int64 [M, S]: the last price at the end of each interval
    volume: np.ndarray  # float64 [M]: units per 100 events
    spread: np.ndarray  # float64 [M]: mean over the books, NaN where none had two sides


class Measures(NamedTuple):
    """What a rule makes of the stream, one value per market, in ticks but for the volume."""

    spread: np.ndarray  # of the book, at the same events under every rule
    volatility: np.ndarray  # root mean square of the last price's change over `APART` events, to the nearest look
    volume: np.ndarray  # units per 100 events
    error: np.ndarray  # root mean square of last price less fundamental price, at all events alike
    fresh: np.ndarray  # the same at the moments of clearing only


def play(interval: int | None, markets: int, jump_prob: float = 0.02, engine: str = "auto") -> Path:
    """Run a rule for `WARMUP + EVENTS` events."""
    simulator = Simulator(market(interval, jump_prob), markets, engine=engine, seed=SEED)
    length = simulator.config.interval
    assert length and APART % length == 0 and WARMUP % APART == 0
    found: dict[str, list[torch.Tensor]] = {"last_price": [], "volume": [], "fundamental": []}
    spreads = []
    for _ in range((WARMUP + EVENTS) // APART):
        for name, part in simulator.run(APART // length, tuple(found), progress=False).items():
            found[name].append(part)
        spreads.append(statistics.arrays.spread(simulator.bid, simulator.ask))
    series = {name: torch.cat(parts, dim=1).cpu().numpy().astype(np.int64) for name, parts in found.items()}
    begin = WARMUP // length
    stacked = np.stack(spreads[WARMUP // APART - 1 :])
    seen = ~np.isnan(stacked)
    return Path(
        price=series["last_price"][:, looks() // length - 1],
        fundamental=series["fundamental"][:, begin:],
        cleared=series["last_price"][:, begin:],
        volume=series["volume"][:, begin:].sum(1) * (100 / EVENTS),
        spread=np.where(seen, stacked, 0).sum(0) / np.where(seen.any(0), seen.sum(0), np.nan),
    )


def measure(path: Path, fundamental: np.ndarray) -> Measures:
    """Return what a rule makes of the stream.

    `fundamental` is the fundamental price at the times of `path.price`, int64 `[M, T]`; the same under every rule.
    """
    later = APART // LOOK
    change = path.price[:, later:] - path.price[:, :-later]
    return Measures(
        spread=path.spread,
        volatility=_root_mean_square(change),
        volume=path.volume,
        error=_root_mean_square(path.price - fundamental),
        fresh=_root_mean_square(path.cleared - path.fundamental),
    )


def fundamental_at_looks(markets: int, jump_prob: float = 0.02, engine: str = "auto") -> np.ndarray:
    """Return the fundamental price at the times of `Path.price`, int64 `[M, T]`. It changes at beats only."""
    simulator = Simulator(market(BEAT, jump_prob), markets, engine=engine, seed=SEED)
    series = simulator.run((WARMUP + EVENTS) // BEAT, ("fundamental",), progress=False)["fundamental"]
    return series.cpu().numpy().astype(np.int64)[:, (looks() - 1) // BEAT]


def looks() -> np.ndarray:
    """Return the times of `Path.price`: how many events have come."""
    return np.arange(WARMUP + LOOK, WARMUP + EVENTS + 1, LOOK)


def _root_mean_square(values: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(values.astype(np.float64) ** 2, axis=1))
