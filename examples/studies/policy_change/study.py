"""A policy change in mid-flight: the same markets with a change of rules and without it, from one moment on.

Every change has markets of its own with the same seeds, side by side in one `Simulator`. Until the change they are
equal bit for bit; `Simulator.set_parameters` then changes the rules of some. They go on with the same random words, so
what differs from the markets without a change is what the change did. `__main__.py` writes README.md with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.seeds import run_seed
from kineticsim_env.simulator import Simulator

WARMUP, BEFORE, AFTER = 100, 40, 160  # intervals: left out, before the change, after it
SEED = run_seed(23)
NONE = "no change"
CHANGES: dict[str, dict[str, int]] = {  # parameters from the moment of the change on
    NONE: {},
    "tax of 1 tick": {"tax": 1},
    "tick size of 4": {"tick_size": 4},
    "collar of 4 ticks": {"collar": 4},
    "fee of 1 tick": {"fee": 1000},
    "rebate of 1 tick": {"fee": -1000},
}
CONTINUOUS, CALL = "continuous trading", "call auctions"
# Each preset under both mechanisms, all other fields equal. `tie` and `residue` mean nothing under continuous trading,
# so that `news` can have those of `trading`; agents that each come once per auction cannot trade continuously, so that
# `trading` is on the clock under both.
_AUCTION = {"tie": "mid", "residue": "cancel"}
MARKETS = {
    "news": {
        CONTINUOUS: MarketConfig.preset("news", **_AUCTION),
        CALL: MarketConfig.preset("news", mechanism="call", **_AUCTION),
    },
    "trading": {
        CONTINUOUS: MarketConfig.preset("trading", arrivals="clock", mechanism="continuous"),
        CALL: MarketConfig.preset("trading", arrivals="clock"),
    },
}
OTHERS = {  # what is compared with them: other choices where a field had to be chosen, and the other preset's pace
    "news": {
        f"{CALL}, `tie` and `residue` its own": MarketConfig.preset("news", mechanism="call"),
        **{f"{name}, 20 events": config.replace(interval=20) for name, config in MARKETS["news"].items()},
    },
    "trading": {
        f"{CALL}, each agent once": MarketConfig.preset("trading"),
        **{f"{name}, 48 events": config.replace(interval=48) for name, config in MARKETS["trading"].items()},
    },
}
HALF_SPREAD, QUANTITY = 2, 8  # of the one maker with an account: ticks from the mid without fees, units on each side
MEASURES = ("spread", "volume", "volatility_mid", "volatility_last", "error_mid", "error_last", "earned")


def play(config: MarketConfig, markets: int, engine: str = "auto") -> dict[str, np.ndarray]:
    """Play all changes in the same markets.

    One maker has an account, and so pays tax and fees: it quotes around the mid in every interval, and passes on what a
    unit costs it in whole ticks. Built-in agents allow for the tax, and know no fees. `config` is the market before the
    change, without levers per market.

    Returns:
        float64 `[change, seed, interval]` each, `BEFORE + AFTER` intervals:
        `spread`, ticks between the best prices when the interval has ended, the maker's quotes among them, NaN with a
        side empty; `volume`, units; `volatility_mid` and `volatility_last`, the size of the change of the built-in
        book's mid, and of the last price, ticks; `error_mid` and `error_last`, the size of each less the fundamental
        price, ticks; `earned`, what the maker's trades made against the fundamental price after them, less fees and
        tax, ticks x units.
    """
    shape = (len(CHANGES), markets)
    seeds = (SEED + torch.arange(markets, dtype=torch.int64)).repeat(len(CHANGES))
    simulator = Simulator(config, len(seeds), engine=engine, seed=seeds, slots=1)
    device, columns = simulator.device, []
    cost = torch.zeros(simulator.num_markets, dtype=torch.int64, device=device)  # whole ticks per unit
    for interval in range(WARMUP + BEFORE + AFTER):
        if interval == WARMUP + BEFORE:
            cost = _change(simulator, markets)
        before, money = (simulator.mid2 / 2, simulator.last_price.double()), simulator.money[:, 0]
        done = simulator.rollout(_quotes(simulator, cost)[None], 1, ("volume", "best_bid", "best_ask"))
        if interval < WARMUP:
            continue
        series = {name: values[0, :, 0] for name, values in done.series.items()}
        prices, fundamental = (simulator.mid2 / 2, simulator.last_price.double()), simulator.fundamental_price
        bought, sold = done.fills[0, :, 0].double().unbind(1)
        made = simulator.money[:, 0] - money + (bought - sold) * fundamental
        found = (
            _spread(simulator, series),
            series["volume"],
            *((price - last).abs() for price, last in zip(prices, before, strict=True)),
            *((price - fundamental).abs() for price in prices),
            made,
        )
        columns.append(torch.stack([values.double() for values in found]))
    simulator.check_errors()
    stacked = torch.stack(columns, 2).cpu().numpy()
    return {name: values.reshape(*shape, -1) for name, values in zip(MEASURES, stacked, strict=True)}


def _change(simulator: Simulator, markets: int) -> torch.Tensor:
    """Change the rules of each change's markets; returns what a unit costs a slot from now on, whole ticks `[M]`."""
    cost = []
    for place, change in enumerate(CHANGES.values()):
        mask = torch.zeros(simulator.num_markets, dtype=torch.bool, device=simulator.device)
        mask[place * markets : (place + 1) * markets] = True
        if change:
            simulator.set_parameters(mask, **change)
        cost += [change.get("tax", 0) + change.get("fee", 0) // 1000] * markets
    return torch.tensor(cost, device=simulator.device)


def _quotes(simulator: Simulator, cost: torch.Tensor) -> torch.Tensor:
    """Return the maker's quotes, int32 `[M, 1, 4]`."""
    mid2, quantity = simulator.mid2.long(), torch.full_like(cost, QUANTITY)
    bid, ask = (mid2 >> 1) - HALF_SPREAD - cost, ((mid2 + 1) >> 1) + HALF_SPREAD + cost
    return torch.stack([bid, quantity, ask, quantity], 1).to(torch.int32)[:, None]


def _spread(simulator: Simulator, series: dict[str, Any]) -> torch.Tensor:
    """Return the best ask less the best bid, built-in agents' and the maker's, float64 `[M]`."""
    quotes = simulator.tensors["quotes"][:, 0].double()
    bid, ask = series["best_bid"].double(), series["best_ask"].double()
    bid = torch.where(quotes[:, 1] > 0, torch.maximum(bid, quotes[:, 0]), bid)
    ask = torch.where(quotes[:, 3] > 0, torch.minimum(ask, quotes[:, 2]), ask)
    return torch.where((bid > -_NO_PRICE) & (ask < _NO_PRICE), ask - bid, torch.nan)


_NO_PRICE = 2**31 - 1
