"""How far the price of a market can be predicted: a linear signal of what every learner sees, and its errors.

`default_market.py` watches the market; `fit` and `errors` take what it saw.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

HORIZONS = (1, 5, 20)  # decisions over which changes of the mid are predicted
FIRST = 4  # decisions before which the history in an observation is not full


class Signal(NamedTuple):
    """A linear prediction of the change of the mid, in ticks, from what every learner sees of the market."""

    weights: torch.Tensor  # float64 [features + 1, len(HORIZONS)], the constant last


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
