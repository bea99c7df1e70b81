"""What a market asks of those who learn in it: is its price predictable, are its makers picked off, does knowledge pay?

Every figure is that of an environment: scripted policies and rules that know more play whole episodes of it, many of
them in one batch, block by block; all blocks have the same seeds, so that differences between them are paired. All of
it is torch on the environment's own device. `scripts/pages/default_market.py` writes docs/default_market.md with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from kineticsim_env import policies
from kineticsim_env.config import MarketConfig
from kineticsim_env.evaluation import HELD_OUT_SEED, evaluation_env, liquidate
from kineticsim_env.policies.base import inventory_in, maker_action, trade_action
from kineticsim_env.simulator import Simulator
from kineticsim_env.studies.trading_preset import AUCTIONS, INVENTORY_LIMIT, SIZE, WARMUP, around_mid
from kineticsim_env.tasks.base import MARKET_FEATURES

MARK_OUT = 10  # intervals after which the mid judges a fill
LAGS = 21  # intervals, from 0, after which the mid is compared with a fill's
HORIZONS = (1, 5, 20)  # decisions over which changes of the mid are predicted
FIRST = 4  # decisions before which the history in an observation is not full
SPREAD = 20  # place of the spread in an observation
OFF = 99  # a half-spread at which a maker that knows quotes nothing


class Hidden(NamedTuple):
    """What a market holds that its learners are not shown; each `[M]`."""

    mid2: torch.Tensor
    fundamental: torch.Tensor
    regime: torch.Tensor  # 0 without regimes


Rule = Callable[[torch.Tensor, Hidden], torch.Tensor]  # observations [M, F] -> continuous actions [M, A]
Make = Callable[[Any], Rule]  # task -> rule


class Game(NamedTuple):
    """What one rule did, one value per market."""

    pnl: np.ndarray  # liquidated, ticks x units
    traded: np.ndarray  # units bought and sold per decision
    by_regime: np.ndarray  # money made, inventory at the fundamental price, in decisions that a regime began, [M, R]


class Signal(NamedTuple):
    """A linear prediction of the change of the mid, in ticks, from what every learner sees of the market."""

    weights: torch.Tensor  # float64 [features + 1, len(HORIZONS)], the constant last


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

    Args:
        config: The market.
        rules: What plays, by name.
        markets: Markets of each rule.
        task: As in `evaluation_env`.
        engine: As in `Simulator`.
        seed: Market m of every rule is seeded `seed + m`.
        **settings: Of the task.
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


# Predicting the price -------------------------------------------------------------------------------------------------


@torch.no_grad()
def watch(
    config: MarketConfig, markets: int, engine: str = "auto", seed: int = 0, maker: Make | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what a maker sees over an episode, and twice the mid; float32 `[T, M, F]`, int32 `[T, M]`.

    Args:
        config: The market.
        markets: M.
        engine: As in `Simulator`.
        seed: Market m is seeded `seed + m`.
        maker: Who quotes meanwhile; None is nobody, and only what is seen of the market is returned.
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


def fit(seen: torch.Tensor, mids: torch.Tensor) -> Signal:
    """Return the least-squares prediction of the mid's changes over HORIZONS; the arguments are `watch`'s."""
    weights = []
    for ahead in HORIZONS:
        features, change = _pairs(seen, mids, ahead)
        gram, moment = features.mT @ features, features.mT @ change
        ridge = 1e-9 * len(features) * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        weights.append(torch.linalg.solve(gram + ridge, moment))
    return Signal(torch.stack(weights, dim=1))


def errors(signal: Signal, seen: torch.Tensor, mids: torch.Tensor) -> np.ndarray:
    """Return of each market the squared errors of the prediction and of none, float64 `[M, len(HORIZONS), 2]`."""
    found = []
    for place, ahead in enumerate(HORIZONS):
        features, change = _pairs(seen, mids, ahead)
        left = change - features @ signal.weights[:, place]
        sums = [part.square().view(-1, mids.shape[1]).sum(0) for part in (left, change)]
        found.append(torch.stack(sums, dim=1))
    return torch.stack(found, dim=1).cpu().numpy()


def explained(squares: np.ndarray) -> np.ndarray:
    """Return R^2 of samples of markets `[..., M, 2]`, of squared errors of a prediction and of none: `[...]`."""
    left, whole = np.moveaxis(squares.sum(-2), -1, 0)
    return 1 - left / whole


def _pairs(seen: torch.Tensor, mids: torch.Tensor, ahead: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features with a constant, float64 `[N, F + 1]`, and the changes that follow them, ticks, `[N]`."""
    features = seen[FIRST:-ahead].double().flatten(0, 1)
    change = (mids[FIRST + ahead :] - mids[FIRST:-ahead]).double().flatten() / 2
    return torch.cat([features, torch.ones_like(features[:, :1])], dim=1), change


# Rules ----------------------------------------------------------------------------------------------------------------


def public(policy: Callable[..., Any], **parameters: Any) -> Make:
    """Return a scripted policy as a rule: it sees the observation alone."""

    def make(task: Any) -> Rule:
        played = policy(task, **parameters)
        return lambda observation, hidden: played(observation)

    return make


def fixed(half_spread: float, skew: float = 0.0) -> Make:
    """Quote so many ticks from the mid, both quotes moved against the inventory by `skew` ticks per unit."""
    return knows_regime((half_spread,), skew)


def knows_regime(half_spreads: tuple[float, ...], skew: float = 0.0) -> Make:
    """Quote at the half-spread of the regime in force, OFF for none; the last one stands for further regimes."""

    def make(task: Any) -> Rule:
        def rule(observation: torch.Tensor, hidden: Hidden) -> torch.Tensor:
            table = torch.tensor(half_spreads, dtype=torch.float32, device=observation.device)
            half = table[hidden.regime.long().clamp(max=len(half_spreads) - 1)]
            offset = skew * inventory_in(task, observation)
            size = torch.where(half < OFF, float(SIZE), 0.0)
            return maker_action(task, half + offset, half - offset, size, size)

        return rule

    return make


def knows_fundamental(half_spread: float, skew: float = 0.0, margin: float | None = None) -> Make:
    """Quote as `fixed`, but no bid above `fundamental - margin` and no ask below `fundamental + margin`.

    A quote that would be beyond the action's reach is not shown. The margin is the half-spread unless given.
    """
    least = half_spread if margin is None else margin

    def make(task: Any) -> Rule:
        def rule(observation: torch.Tensor, hidden: Hidden) -> torch.Tensor:
            offset = skew * inventory_in(task, observation)
            rich = hidden.mid2.float() / 2 - hidden.fundamental.float()  # the mid above the fundamental price
            bid = torch.maximum(half_spread + offset, rich + least)
            ask = torch.maximum(half_spread - offset, least - rich)
            sizes = [torch.where(away <= task.max_offset, float(SIZE), 0.0) for away in (bid, ask)]
            return maker_action(task, bid, ask, *sizes)

        return rule

    return make


def wary(half_spread: float, limit: float, skew: float = 0.0) -> Make:
    """Quote as `policies.QuietQuotes` does, while the last four moves of the mid are below `limit` in the mean."""

    def make(task: Any) -> Rule:
        policy = policies.QuietQuotes(task, half_spread, limit, skew, SIZE)
        return lambda observation, hidden: policy(observation)

    return make


def follows(signal: Signal, horizon: int, threshold: float, ticks: float, position: int = 40) -> Make:
    """Be long or short by the linear signal over one of HORIZONS; flat where it is below `threshold` ticks."""

    def make(task: Any) -> Rule:
        weights = signal.weights[:, HORIZONS.index(horizon)].float()

        def rule(observation: torch.Tensor, hidden: Hidden) -> torch.Tensor:
            push = observation[:, :MARKET_FEATURES] @ weights[:-1] + weights[-1]
            held = torch.round(inventory_in(task, observation))
            keep = torch.where(push * held < 0, 0.0, held)
            wanted = torch.where(push.abs() > threshold, torch.sign(push) * position, keep)
            return trade_action(task, wanted - held, torch.full_like(push, ticks))

        return rule

    return make


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
    events = int(config.interval or config.num_agents) if config.is_continuous else 1
    steps = {"interval": 1, "beat": int(config.beat or config.num_agents)} if config.is_continuous else {}
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

    Args:
        mids: Twice the mid before each event and after the last, int32 `[N + 1, M]`.
        net: Units bought less units sold in each event, `[N, M]`.
        units: Their sum.
        flow: What these cost less than at the mid before them, ticks x units.
        events: In an interval.
    """
    judged = min(len(net), len(mids) - (LAGS - 1) * events)
    adverse = [
        (net[:judged] * (mids[:judged] - mids[lag * events : lag * events + judged])).double().sum(0) / 2
        for lag in range(LAGS)
    ]
    parts = (units[:judged].double().sum(0), flow[:judged].double().sum(0), torch.stack(adverse, dim=1))
    return MarkOuts(*(part.cpu().numpy() for part in parts))
