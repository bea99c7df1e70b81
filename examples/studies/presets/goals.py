"""The goals that a default market is held to, and who is played to measure them; see `episodes.py`.

`choose` finds the best of each kind of scripted player on training seeds; `judge` plays these on held-out seeds and
returns the figures with their intervals, as plain numbers that JSON keeps. `score` is what the search minimises.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from examples.studies.presets.episodes import MARK_OUT, SPREAD, Game, mark_outs, play, watch
from examples.studies.presets.rules import (
    HORIZONS,
    OFF,
    Make,
    Signal,
    errors,
    explained,
    fit,
    fixed,
    follows,
    knows_fundamental,
    knows_regime,
    public,
    wary,
)
from kineticsim_env import policies
from kineticsim_env.config import MarketConfig
from kineticsim_env.evaluation import HELD_OUT_SEED
from kineticsim_env.statistics import Interval, bootstrap_interval, mean_and_error

HALF_SPREADS = (1, 2, 3, 4, 5, 6, 8, 10)
SKEWS = (0.0, 0.06)
MARGINS = ((0, 1), (0, 2), (0, 3), (0, 4), (2, 2), (4, 4))  # of who knows the fundamental: half-spread and margin
GOALS = {"R^2": 0.05, "adverse selection": 0.5, "knowledge": 2.0}


class Player(NamedTuple):
    """One that plays, and what it is called."""

    name: str
    make: Make


class Chosen(NamedTuple):
    """The best of each kind on training seeds."""

    signal: Signal  # from what is seen of the market while no learner quotes
    own_signal: Signal  # from all that the best maker without a skew sees while it quotes
    makers: dict[str, Make]  # all fixed quotes
    maker: str  # the best of them
    plain: str  # the best without a skew
    half_spread: int  # its half-spread
    knowing: dict[str, Player]  # by what else it knows: "moves", the "fundamental" price, the "regime" if there are any
    traders: dict[str, Player]  # by what it follows: "momentum", "reversion" or the "signal"


def choose(config: MarketConfig, markets: int, engine: str = "auto", seed: int = 0) -> Chosen:
    """Fit the signal, and find the best players, on training seeds."""

    def best_of(kinds: Mapping[str, Make], task: str = "MarketMaking") -> tuple[Player, dict[str, Game]]:
        found = play(config, kinds, markets, task, engine=engine, seed=seed)
        name = max(kinds, key=lambda name: found[name].pnl.mean())
        return Player(name, kinds[name]), found

    signal = fit(*watch(config, markets, engine, seed))
    plain = {f"{half} ticks": fixed(half) for half in HALF_SPREADS}
    makers = plain | {f"{half} ticks, skew {skew:g}": fixed(half, skew) for skew in SKEWS[1:] for half in HALF_SPREADS}
    maker, found = best_of(makers)
    best_plain = max(plain, key=lambda name: found[name].pnl.mean())
    knowing = {"moves": best_of(_by_moves())[0], "fundamental": best_of(_by_fundamental())[0]}
    if config.regimes:
        made = np.stack([found[name].by_regime.mean(0) for name in plain], axis=1)
        knowing["regime"] = best_of(_by_regime(made, config.regimes))[0]
    traders = {kind: best_of(kinds, "Trading")[0] for kind, kinds in _traders(signal).items()}
    half_spread = HALF_SPREADS[list(plain).index(best_plain)]
    own_signal = fit(*watch(config, markets, engine, seed, plain[best_plain]))
    return Chosen(signal, own_signal, makers, maker.name, best_plain, half_spread, knowing, traders)


def _by_moves() -> dict[str, Make]:
    return {
        f"{half} ticks while moves are below {limit} ticks, skew {skew:g}": wary(half, limit, skew)
        for half in (2, 3)
        for limit in (2, 3, 4)
        for skew in SKEWS
    }


def _by_fundamental() -> dict[str, Make]:
    return {
        f"{half} ticks, {margin} from the fundamental": knows_fundamental(half, 0.0, margin) for half, margin in MARGINS
    }


def _by_regime(made: np.ndarray, regimes: Sequence[Mapping[str, Any]]) -> dict[str, Make]:
    """Return makers that quote each regime's best half-spread, and stay away where none earns; `made` is `[R, H]`."""
    alike = [next(i for i, one in enumerate(regimes) if one == regime) for regime in regimes]
    together = np.stack([made[[i for i, first in enumerate(alike) if first == mine]].sum(0) for mine in alike])
    best = [
        HALF_SPREADS[column] if row[column] > 0 else OFF
        for row, column in zip(together, together.argmax(1), strict=True)
    ]
    away = [half if row.max() == together.max() else OFF for half, row in zip(best, together, strict=True)]
    players = {}
    for quotes in {tuple(best), tuple(away)}:
        said = " or ".join(dict.fromkeys("off" if half == OFF else f"{half}" for half in quotes))
        players |= {f"{said} ticks, skew {skew:g}": knows_regime(tuple(map(float, quotes)), skew) for skew in SKEWS}
    return players


def _traders(signal: Signal) -> dict[str, dict[str, Make]]:
    momentum, reversion, follower = {}, {}, {}
    for ticks in (-2.0, 4.0):
        for threshold in (1.0, 4.0):
            settings = {"threshold": threshold, "ticks": ticks, "position": 40}
            name = f"above {threshold:g} ticks, orders {ticks:g} through the mid"
            momentum[name] = public(policies.MomentumTrader, **settings)
            reversion[name] = public(policies.MeanReversionTrader, **settings)
        for horizon in HORIZONS[:2]:
            for threshold in (0.5, 2.0):
                name = f"{horizon} ahead, above {threshold:g} ticks, orders {ticks:g} through the mid"
                follower[name] = follows(signal, horizon, threshold, ticks)
    return {"momentum": momentum, "reversion": reversion, "signal": follower}


def judge(
    config: MarketConfig, chosen: Chosen, markets: int, engine: str = "auto", everyone: bool = True
) -> dict[str, Any]:
    """Let the chosen ones play on held-out seeds, and one that quotes at random.

    Unless `everyone`, the best maker plays alone. Fills are judged in a quarter of the markets. Plain numbers are
    returned, with 95% intervals: shares as (value, low, high), PnL and units as (mean, half of the interval).
    """
    seen, mids = watch(config, markets, engine, HELD_OUT_SEED)
    squares = errors(chosen.signal, seen, mids)
    makers = chosen.makers if everyone else {chosen.maker: chosen.makers[chosen.maker]}
    knowing = {kind: player.make for kind, player in chosen.knowing.items()}
    games = play(config, makers | knowing | {"random": public(policies.RandomQuotes)}, markets, engine=engine)
    best = games[chosen.maker]
    traders = play(config, {kind: player.make for kind, player in chosen.traders.items()}, markets, "Trading", engine)
    fills = mark_outs(config, chosen.half_spread, max(2, markets // 4), engine)
    own = errors(chosen.own_signal, *watch(config, markets, engine, HELD_OUT_SEED, chosen.makers[chosen.plain]))
    changes, spread = (mids[1:] - mids[:-1]).double() / 2, seen[..., SPREAD].double()
    return {
        "r2": {str(ahead): _ends(_resampled(squares[:, i], explained)) for i, ahead in enumerate(HORIZONS)},
        "own_r2": _ends(_resampled(own[:, 0], explained)),
        "change": float(changes.std()),
        "autocorrelation": float((changes[1:] * changes[:-1]).mean() / changes.square().mean()),
        "spread": float((8 * spread / (1 - spread)).mean()),
        "maker": chosen.maker,
        "plain": chosen.plain,
        "adverse": _ends(_share(fills.adverse[:, MARK_OUT], fills.earned)),
        "earned_per_unit": float(_over(fills.earned.sum(), fills.units.sum())),
        "adverse_per_unit": _over(fills.adverse.sum(0), fills.units.sum()).tolist(),
        "makers": {name: _game(games[name]) for name in makers},
        "knowing": {
            kind: {
                "name": player.name,
                **_game(games[kind]),
                "times": _ends(_share(games[kind].pnl, best.pnl)),
                "times_moves": _ends(_share(games[kind].pnl, games["moves"].pnl)),
            }
            for kind, player in chosen.knowing.items()
        },
        "random": _game(games["random"]),
        "traders": {
            kind: {"name": player.name, **_game(traders[kind]), "less": _pair(traders[kind].pnl - best.pnl)}
            for kind, player in chosen.traders.items()
        },
    }


def _game(game: Game) -> dict[str, Any]:
    by_regime = [_pair(made) for made in game.by_regime.T]
    return {
        "pnl": _pair(game.pnl),
        "sd": float(game.pnl.std(ddof=1)),
        "traded": _pair(game.traded),
        "by_regime": by_regime,
    }


def _pair(values: np.ndarray) -> tuple[float, float]:
    mean = mean_and_error(values)
    return mean.mean, mean.interval()


def _ends(found: Interval) -> tuple[float, float, float]:
    return found.value, found.low, found.high


def _resampled(values: np.ndarray, statistic: Any) -> Interval:
    return bootstrap_interval(values, statistic, resamples=400)


def _share(part: np.ndarray, whole: np.ndarray) -> Interval:
    """Return the sum of one over the sum of the other."""
    return _resampled(np.stack([part, whole], axis=1), lambda samples: _over(*np.moveaxis(samples.sum(1), -1, 0)))


def _over(part: Any, whole: Any) -> Any:
    """Divide; nan or infinity where there is nothing to divide by, as where a maker had no fill."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(part, whole)


def score(found: Mapping[str, Any]) -> float:
    """Return how far a market is from the goals, 0 if it meets all with a little to spare; less what a maker earns.

    Each goal adds what is missing of it, as a share; a maker should also earn enough, at a bearable risk.
    """
    best = found["makers"][found["maker"]]
    pnl, sd = best["pnl"][0], best["sd"]
    if not pnl > 0:
        return 10.0 - pnl / (1 + abs(pnl))
    regime = found["knowing"]["regime"]["times"][0] if "regime" in found["knowing"] else 0.0
    trader = max(played["pnl"][0] for played in found["traders"].values())
    missing = (
        2 * (found["r2"]["1"][0] / 0.045 - 1),
        2 * (0.55 - found["adverse"][0]),
        (found["random"]["pnl"][0] + 60) / pnl,
        trader / pnl - 0.7,
        2.3 - regime,
        0.7 - pnl / sd,
        1 - pnl / 400,
        1 - found["spread"] / 2.5,
    )
    return sum(max(0.0, part) for part in missing) - 0.1 * math.tanh(pnl / sd)
