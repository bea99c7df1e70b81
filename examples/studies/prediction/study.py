"""How far the price of a market can be predicted from what every learner sees, by lines and by boosted trees.

Models are fitted in some markets and judged in others. What a prediction is worth is what scripted traders and makers
earn by it, in environments. `__main__.py` fills README.md with it; trees are scikit-learn's, which `pip install
'kineticsim-env[calibrate]'` brings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from examples.studies.presets.episodes import play, watch
from examples.studies.presets.makers import SIZE
from examples.studies.presets.rules import FIRST, HORIZONS, Make, Push, by, explained, fixed, goes_by
from kineticsim_env.config import MarketConfig
from kineticsim_env.evaluation import HELD_OUT_SEED
from kineticsim_env.policies.base import maker_action
from kineticsim_env.runtime.seeds import run_seed
from kineticsim_env.statistics import Interval, bootstrap_interval, mean_and_error
from kineticsim_env.tasks.base import MARKET_FEATURES

VIEWS = {  # columns of an observation, and how many earlier ones are seen besides
    "the observation": (range(MARKET_FEATURES), 0),
    "it, and the three before": (range(MARKET_FEATURES), 3),
    "the depths near the mid": (range(20), 0),
    "the last four changes of the mid": (range(22, 26), 0),
    "spread and last price": (range(20, 22), 0),
    "the last four volumes": (range(26, 30), 0),
}
HALF_SPREADS = (1, 2, 3)
THRESHOLDS, TICKS = (0.5, 2.0), (-2.0, 4.0)  # predicted ticks above which a trader trades; ticks through the mid
_RIDGE = 1e-9  # of a row, so that columns that never vary do no harm

Predictor = Callable[[np.ndarray], np.ndarray]  # rows [N, F] -> changes of the mid, ticks, [N]


def fit_line(rows: np.ndarray, change: np.ndarray) -> Predictor:
    """Return the least-squares line; rows `[N, F]`, changes `[N]`."""
    wide = np.column_stack([rows, np.ones(len(rows))]).astype(np.float64)
    weights = np.linalg.solve(wide.T @ wide + _RIDGE * len(rows) * np.eye(wide.shape[1]), wide.T @ change)
    return lambda asked: asked @ weights[:-1] + weights[-1]


def fit_trees(rows: np.ndarray, change: np.ndarray) -> Predictor:
    """Return boosted trees, whose settings were not tuned.

    Raises:
        ModuleNotFoundError: If scikit-learn is missing.
    """
    try:
        import threadpoolctl
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ModuleNotFoundError as error:
        missing = "prediction: scikit-learn is missing: pip install 'kineticsim-env[calibrate]', which brings it"
        raise ModuleNotFoundError(missing, name=error.name) from error
    trees = HistGradientBoostingRegressor(
        max_iter=200, learning_rate=0.05, min_samples_leaf=200, early_stopping=False, random_state=0
    )
    with threadpoolctl.threadpool_limits(1):  # several spin where others use the cores, and are many times slower
        trees.fit(rows, change)

    def predict(asked: np.ndarray) -> np.ndarray:
        with threadpoolctl.threadpool_limits(1):
            return trees.predict(asked)

    return predict


FITS = {"line": fit_line, "trees": fit_trees}


def pairs(
    seen: torch.Tensor, mids: torch.Tensor, ahead: int = 1, columns: Any = range(MARKET_FEATURES), before: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return what is seen, float32 `[T, M, F]`, and the changes of the mid that follow, ticks, float64 `[T, M]`.

    From what `watch` returns; changes are over so many decisions `ahead`. Of the observation some `columns` are seen,
    and besides those of so many observations `before`; the same decisions are there whatever it is, up to 3.
    """
    first = FIRST + 3
    rows = [seen[first - lag : -ahead - lag, :, list(columns)].cpu().numpy() for lag in range(before + 1)]
    change = (mids[first + ahead :] - mids[first:-ahead]).double().cpu().numpy() / 2
    return np.concatenate(rows, axis=2), change


def r_squared(predictor: Predictor, rows: np.ndarray, change: np.ndarray) -> Interval:
    """Return the share of squared changes that is explained, with its 95% interval over markets.

    No prediction at all, a change of 0, explains none.
    """
    left = change - predictor(rows.reshape(-1, rows.shape[2])).reshape(change.shape)
    squares = np.stack([(left**2).sum(0), (change**2).sum(0)], axis=1)
    return bootstrap_interval(squares, explained)


def flat(rows: np.ndarray, change: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows `[N, F]` and changes `[N]` to fit."""
    return rows.reshape(-1, rows.shape[2]), change.ravel()


def predictability(config: MarketConfig, markets: int, engine: str = "auto") -> dict[str, Any]:
    """Return R^2 in held-out markets, by what is seen and by how far ahead, of lines and trees, and of a null model."""
    train, test = (watch(config, markets, engine, seed) for seed in (0, HELD_OUT_SEED))
    found: dict[str, Any] = {"views": {}, "horizons": {}}
    for name, (columns, before) in VIEWS.items():
        rows = [pairs(*part, 1, columns, before) for part in (train, test)]
        found["views"][name] = {kind: r_squared(fit(*flat(*rows[0])), *rows[1]) for kind, fit in FITS.items()}
    for ahead in HORIZONS:
        rows = [pairs(*part, ahead) for part in (train, test)]
        found["horizons"][str(ahead)] = {kind: r_squared(fit(*flat(*rows[0])), *rows[1]) for kind, fit in FITS.items()}
    (seen, change), held = (pairs(*part) for part in (train, test))
    strange = np.roll(change, 1, axis=1)  # each market is shown with the changes of another
    found["null"] = {kind: r_squared(fit(*flat(seen, strange)), *held) for kind, fit in FITS.items()}
    found["change"] = float(held[1].std())
    return found


# What it is worth -----------------------------------------------------------------------------------------------------


def leaning(push: Push, half_spread: float) -> Make:
    """Quote around the mid that is predicted; `push` is the change that is expected, ticks."""

    def rule(task: Any, observation: torch.Tensor, hidden: Any) -> torch.Tensor:
        expected = push(observation[:, :MARKET_FEATURES])
        size = torch.full_like(expected, float(SIZE))
        return maker_action(task, half_spread - expected, half_spread + expected, size, size)

    return by(rule)


def worth(config: MarketConfig, markets: int, engine: str = "auto") -> dict[str, Any]:
    """Return what makers and traders earn by each prediction, in held-out markets.

    Models are fitted in the markets from seed 0, thresholds and half-spreads are chosen in those of `run_seed(1)`.
    """
    rows = flat(*pairs(*watch(config, markets, engine, 0)))
    pushes = {kind: _push(fit(*rows)) for kind, fit in FITS.items()}
    makers = {kind: {f"{half} ticks": leaning(push, half) for half in HALF_SPREADS} for kind, push in pushes.items()}
    makers["nothing"] = {f"{half} ticks": fixed(half) for half in HALF_SPREADS}
    traders = {
        kind: {
            f"above {threshold:g} ticks, orders {ticks:g} through the mid": goes_by(push, threshold, ticks)
            for threshold in THRESHOLDS
            for ticks in TICKS
        }
        for kind, push in pushes.items()
    }
    return {
        "makers": _best(config, makers, markets, "MarketMaking", engine, "nothing"),
        "traders": _best(config, traders, markets, "Trading", engine),
    }


def _best(
    config: MarketConfig,
    kinds: Mapping[str, Mapping[str, Make]],
    markets: int,
    task: str,
    engine: str,
    against: str | None = None,
) -> dict[str, Any]:
    """Choose the best of each kind in some markets, and return what they earn in others."""
    chosen = {}
    for kind, rules in kinds.items():
        games = play(config, rules, markets, task, engine, run_seed(1))
        chosen[kind] = max(rules, key=lambda name, games=games: games[name].pnl.mean())
    games = play(config, {kind: kinds[kind][name] for kind, name in chosen.items()}, markets, task, engine)
    return {
        kind: {
            "name": name,
            "pnl": mean_and_error(games[kind].pnl),
            "traded": mean_and_error(games[kind].traded),
            "more": mean_and_error(games[kind].pnl - games[against].pnl) if against else None,
        }
        for kind, name in chosen.items()
    }


def _push(predictor: Predictor) -> Push:
    """Return a prediction as rules ask for it: of features `[M, F]`, ticks `[M]`."""
    return lambda seen: torch.from_numpy(predictor(seen.cpu().numpy()).astype(np.float32)).to(seen.device)
