"""What a market asks of those who learn in it: is its price predictable, are its makers picked off, does knowledge pay?

Every figure is that of an environment: scripted policies and rules that know more play whole episodes of it, many of
them in one batch, block by block; all blocks have the same seeds, so that differences between them are paired. All of
it is torch on the environment's own device. `news.py` measures with it what README.md shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from examples.studies.presets.makers import AUCTIONS, INVENTORY_LIMIT, SIZE, WARMUP, around_mid
from examples.studies.presets.rules import Hidden, Make, public
from kineticsim_env import policies
from kineticsim_env.config import MarketConfig
from kineticsim_env.evaluation import HELD_OUT_SEED, evaluation_env, liquidate
from kineticsim_env.simulator import Simulator
from kineticsim_env.tasks.base import MARKET_FEATURES

MARK_OUT = 10  # intervals after which the mid judges a fill
LAGS = 21  # intervals, from 0, after which the mid is compared with a fill's
SPREAD = 20  # place of the spread in an observation


class Game(NamedTuple):
    """What one rule did, one value per market."""

    pnl: np.ndarray  # liquidated, ticks x units
    traded: np.ndarray  # units bought and sold per decision
    by_regime: np.ndarray  # money made, inventory at the fundamental price, in decisions that a regime began, [M, R]


@torch.no_grad()
def play(
    config: MarketConfig,
    rules: Mapping[str, Make],
    markets: int,
    task: str = "MarketMaking",
    engine: str = "auto",
    seed: int = HELD_OUT_SEED,
    **settings: Any,
) -> dict[str, Game]:
    """Let every rule play one episode in the same markets, and unwind what it holds.

    Each has so many `markets`, of which m is seeded `seed + m`; settings are the task's.
    """
    envs = evaluation_env(len(rules) * markets, task, engine=engine, config=config, **settings)
    simulator = envs.simulator
    players = [make(envs.core.task) for make in rules.values()]
    regimes = max(1, len(config.regimes or ()))
    observation, _ = envs.reset(seed=np.tile(seed + np.arange(markets, dtype=np.int64), len(rules)))
    traded = torch.zeros(len(rules) * markets, dtype=torch.int64, device=envs.device)
    made = torch.zeros((len(traded), regimes), dtype=torch.float64, device=envs.device)
    hidden, worth = _hidden(simulator), _worth(simulator)
    for _ in range(envs.core.task.horizon):
        parts = zip(players, observation.split(markets), *(part.split(markets) for part in hidden), strict=True)
        observation, *_ = envs.step(torch.cat([player(seen, Hidden(*known)) for player, seen, *known in parts]))
        traded += envs.fills.sum(1)
        now = _worth(simulator)
        made.scatter_add_(1, hidden.regime[:, None].long(), (now - worth)[:, None])
        hidden, worth = _hidden(simulator), now
    pnl = liquidate(simulator)[:, 0].double() - simulator.fees[:, 0].double() / 1000
    parts = (pnl, traded.double() / envs.core.task.horizon, made)
    values = [part.cpu().numpy().reshape(len(rules), markets, *part.shape[1:]) for part in parts]
    return {name: Game(*(value[i] for value in values)) for i, name in enumerate(rules)}


def _hidden(simulator: Any) -> Hidden:
    regime = simulator.tensors["regime"] if simulator.config.regimes else torch.zeros_like(simulator.mid2)
    return Hidden(simulator.mid2.clone(), simulator.fundamental_price.clone(), regime.clone())


def _worth(simulator: Any) -> torch.Tensor:
    """Return money and inventory at the fundamental price, less fees, in ticks."""
    held = simulator.inventory[:, 0] * simulator.fundamental_price
    return (simulator.cash[:, 0] + held).double() - simulator.fees[:, 0].double() / 1000


@torch.no_grad()
def watch(
    config: MarketConfig, markets: int, engine: str = "auto", seed: int = 0, maker: Make | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what a maker sees over an episode, and twice the mid; float32 `[T, M, F]`, int32 `[T, M]`.

    Market m is seeded `seed + m`. Without a `maker` nobody quotes, and only what is seen of the market is returned.
    """
    envs = evaluation_env(markets, engine=engine, config=config)
    player = (maker or public(policies.NoTrade))(envs.core.task)
    observation, _ = envs.reset(seed=seed)
    features = MARKET_FEATURES if maker is None else observation.shape[1]
    seen, mids = [], []
    for _ in range(envs.core.task.horizon):
        seen.append(observation[:, :features].clone())
        mids.append(envs.simulator.mid2.clone())
        observation, *_ = envs.step(player(observation, _hidden(envs.simulator)))
    return torch.stack(seen), torch.stack(mids)


# Fills, order by order ------------------------------------------------------------------------------------------------


class MarkOuts(NamedTuple):
    """What a maker's fills were worth, summed over the fills of each market, ticks x units."""

    units: np.ndarray  # [M]
    earned: np.ndarray  # what fills were better than the mid right before them, [M]
    adverse: np.ndarray  # how far the mid moved against them within 0 to LAGS - 1 intervals, [M, LAGS]


@torch.no_grad()
def mark_outs(
    config: MarketConfig, half_spread: int, markets: int, engine: str = "auto", seed: int = HELD_OUT_SEED
) -> MarkOuts:
    """Let a maker quote at a fixed half-spread, and watch the mid from the order that fills it.

    Under continuous trading the market is played order by order, with intervals of one order, which does not change
    its path. A call auction fills all at once, so there the mid is that of the decision.
    """
    events = int(config.interval or np.max(config.num_agents)) if config.is_continuous else 1
    steps = {"interval": 1, "beat": int(config.beat or np.max(config.num_agents))} if config.is_continuous else {}
    config = config.replace(inventory_limit=INVENTORY_LIMIT, max_quote_qty=SIZE, **steps)
    simulator = Simulator(config, markets, engine=engine, seed=seed, slots=1)
    simulator.run(WARMUP * events, progress=False)
    total = AUCTIONS * events
    mids = torch.empty((total + 1, markets), dtype=torch.int32, device=simulator.device)  # halves of ticks
    net = torch.empty((total, markets), dtype=torch.int32, device=simulator.device)
    units, flow = torch.empty_like(net), torch.empty_like(net, dtype=torch.float32)
    mids[0], cash = simulator.mid2, simulator.cash[:, 0].clone()
    for event in range(total):
        fills = simulator.step(around_mid(simulator, half_spread, 0.0) if event % events == 0 else None)
        bought, sold = fills[:, 0].unbind(1)
        net[event], units[event] = bought - sold, bought + sold
        flow[event] = (simulator.cash[:, 0] - cash + net[event] * mids[event].double() / 2).float()
        cash.copy_(simulator.cash[:, 0])
        mids[event + 1] = simulator.mid2
    return _judged(mids, net, units, flow, events)


def _judged(mids: torch.Tensor, net: torch.Tensor, units: torch.Tensor, flow: torch.Tensor, events: int) -> MarkOuts:
    """Judge the fills of each event that has all LAGS behind it.

    `mids` is twice the mid before each event and after the last, int32 `[N + 1, M]`; of each event, `[N, M]`, `net` has
    units bought less units sold, `units` their sum, and `flow` what they cost less than at the mid before them.
    """
    judged = min(len(net), len(mids) - (LAGS - 1) * events)
    adverse = [
        (net[:judged] * (mids[:judged] - mids[lag * events : lag * events + judged])).double().sum(0) / 2
        for lag in range(LAGS)
    ]
    parts = (units[:judged].double().sum(0), flow[:judged].double().sum(0), torch.stack(adverse, dim=1))
    return MarkOuts(*(part.cpu().numpy() for part in parts))
