"""Who plays in the study of a default market: scripted policies, and rules that know more than they are shown.

One of them follows a linear signal of what every learner sees: how far the price can be predicted. `episodes.py` plays
the rules, and watches the market for `fit` and `errors`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from examples.studies.presets.makers import SIZE
from kineticsim_env import policies
from kineticsim_env.policies.base import inventory_in, maker_action, trade_action
from kineticsim_env.tasks.base import MARKET_FEATURES

HORIZONS = (1, 5, 20)  # decisions over which changes of the mid are predicted
FIRST = 4  # decisions before which the history in an observation is not full
OFF = 99  # a half-spread at which a maker that knows quotes nothing


class Hidden(NamedTuple):
    """What a market holds that its learners are not shown; each `[M]`."""

    mid2: torch.Tensor
    fundamental: torch.Tensor
    regime: torch.Tensor  # 0 without regimes


Rule = Callable[[torch.Tensor, Hidden], torch.Tensor]  # observations [M, F] -> continuous actions [M, A]
Make = Callable[[Any], Rule]  # task -> rule
Push = Callable[[torch.Tensor], torch.Tensor]  # what is seen of the market [M, F] -> the change that is expected, [M]


def public(policy: Callable[..., Any], **parameters: Any) -> Make:
    """Return a scripted policy as a rule: it sees the observation alone."""

    def make(task: Any) -> Rule:
        played = policy(task, **parameters)
        return lambda observation, hidden: played(observation)

    return make


def by(rule: Callable[[Any, torch.Tensor, Hidden], torch.Tensor]) -> Make:
    """Return a function of the task, the observation and what is hidden as a rule of each task."""
    return lambda task: lambda observation, hidden: rule(task, observation, hidden)


def fixed(half_spread: float, skew: float = 0.0) -> Make:
    """Quote so many ticks from the mid, both quotes moved against the inventory by `skew` ticks per unit."""
    return knows_regime((half_spread,), skew)


def knows_regime(half_spreads: tuple[float, ...], skew: float = 0.0) -> Make:
    """Quote at the half-spread of the regime in force, OFF for none; the last one stands for further regimes."""

    def rule(task: Any, observation: torch.Tensor, hidden: Hidden) -> torch.Tensor:
        table = torch.tensor(half_spreads, dtype=torch.float32, device=observation.device)
        half = table[hidden.regime.long().clamp(max=len(half_spreads) - 1)]
        offset = skew * inventory_in(task, observation)
        size = torch.where(half < OFF, float(SIZE), 0.0)
        return maker_action(task, half + offset, half - offset, size, size)

    return by(rule)


def knows_fundamental(half_spread: float, skew: float = 0.0, margin: float | None = None) -> Make:
    """Quote as `fixed`, but no bid above `fundamental - margin` and no ask below `fundamental + margin`.

    A quote that would be beyond the action's reach is not shown. The margin is the half-spread unless given.
    """
    least = half_spread if margin is None else margin

    def rule(task: Any, observation: torch.Tensor, hidden: Hidden) -> torch.Tensor:
        offset = skew * inventory_in(task, observation)
        rich = hidden.mid2.float() / 2 - hidden.fundamental.float()  # the mid above the fundamental price
        bid = torch.maximum(half_spread + offset, rich + least)
        ask = torch.maximum(half_spread - offset, least - rich)
        sizes = [torch.where(away <= task.max_offset, float(SIZE), 0.0) for away in (bid, ask)]
        return maker_action(task, bid, ask, *sizes)

    return by(rule)


def wary(half_spread: float, limit: float, skew: float = 0.0) -> Make:
    """Quote as `policies.QuietQuotes` does, while the last four moves of the mid are below `limit` in the mean."""
    return public(policies.QuietQuotes, half_spread=half_spread, limit=limit, skew=skew, qty=SIZE)


def follows(signal: Signal, horizon: int, threshold: float, ticks: float, position: int = 40) -> Make:
    """Be long or short by the linear signal over one of HORIZONS; see `goes_by`."""
    weights = signal.weights[:, HORIZONS.index(horizon)].float()
    return goes_by(lambda seen: seen @ weights[:-1] + weights[-1], threshold, ticks, position)


def goes_by(expected: Push, threshold: float, ticks: float, position: int = 40) -> Make:
    """Be long or short by a prediction; keep what agrees with it where it is below `threshold` ticks, else be flat."""

    def rule(task: Any, observation: torch.Tensor, hidden: Hidden) -> torch.Tensor:
        push = expected(observation[:, :MARKET_FEATURES])
        held = torch.round(inventory_in(task, observation))
        keep = torch.where(push * held < 0, 0.0, held)
        wanted = torch.where(push.abs() > threshold, torch.sign(push) * position, keep)
        return trade_action(task, wanted - held, torch.full_like(push, ticks))

    return by(rule)


# The linear signal ----------------------------------------------------------------------------------------------------


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
