"""Which scenario an episode has: drawn by weights, or the one that the caller of a reset asks for.

`LiveTask` turns weights into thresholds here, once and on the host, so that all engines draw the same by the episode's
random word; the rule in words: docs/environment.md. What scenarios are: scenarios.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kineticsim_env.runtime.checks import one_or_each
from kineticsim_env.runtime.values import check_array, show

THRESHOLDS = "scenario_thresholds"  # in saved states, too


def check_weights(weights: Any, scenarios: int) -> np.ndarray:
    """Return a weight per scenario, float64 `[S]`, of numbers of any kind, NumPy's or torch's, on any device."""
    allowed = f"{scenarios} finite numbers from 0, one of them above it, or None"
    if isinstance(weights, torch.Tensor) and weights.is_floating_point():
        weights = weights.detach().double()  # as NumPy has no bfloat16
    numbers = check_array("weights", weights, allowed)
    if numbers.shape != (scenarios,):
        raise ValueError(f"weights: expected {allowed}, got {list(numbers.shape)}")
    numbers = numbers.astype(np.float64)
    bad = ~(np.isfinite(numbers) & (numbers >= 0))
    if bad.any():
        place = int(np.argmax(bad))
        raise ValueError(f"weights: expected {allowed}, got {numbers[place]} for scenario {place}")
    if not numbers.any():
        raise ValueError(f"weights: expected {allowed}, got 0 for all scenarios")
    return numbers


def thresholds_of(weights: np.ndarray) -> np.ndarray:
    """Return what scenarios are drawn by, int64 `[S]`, rising: the episode's is the first above the word's high half.

    Each is the weight up to its scenario as a share of 2^32, rounded up. So a scenario of weight 0 has the threshold of
    the one before it and is never drawn, the last is 2^32, and equal weights draw what no weights draw.
    """
    sums = np.cumsum(weights / weights.max())
    return np.ceil(sums / sums[-1] * 2.0**32).astype(np.int64)


def shares_of(thresholds: torch.Tensor) -> torch.Tensor:
    """Return with which probability each scenario is drawn by thresholds, float64 `[S]`; all 0 are as likely."""
    alike = torch.from_numpy(thresholds_of(np.ones(len(thresholds)))).to(thresholds.device)
    thresholds = torch.where(thresholds[-1] == 0, alike, thresholds)
    return torch.diff(thresholds, prepend=thresholds.new_zeros(1)).double() / 2.0**32


def check_thresholds(thresholds: torch.Tensor) -> None:
    """Refuse thresholds of a saved state, int64 `[S]`, that no weights have."""
    steps = torch.diff(thresholds, prepend=thresholds.new_zeros(1))
    if bool(thresholds.any()) and (bool((steps < 0).any()) or int(thresholds[-1]) != 2**32):
        raise ValueError(
            f"state['{THRESHOLDS}']: expected rising numbers from 0 up to 2^32 at the end, or all 0, got "
            f"{show(thresholds.tolist())}"
        )


def check_scenario(given: Any, markets: int, scenarios: int, device: torch.device) -> torch.Tensor:
    """Return the scenarios that a reset asks for, one or one per market, int32 `[M]`; -1 where one is drawn."""
    if not scenarios:
        raise ValueError(f"scenario: expected an environment made with randomise=..., got {show(given)}")
    allowed = f"-1 to {scenarios - 1}, an int or {markets} of them"
    asked = one_or_each("scenario", given, allowed, markets, device)
    if not isinstance(asked, torch.Tensor):
        if not -1 <= asked < scenarios:
            raise ValueError(f"scenario: expected {allowed}, got {show(asked)}")
        return torch.full((markets,), int(asked), dtype=torch.int32, device=device)
    bad = (asked < -1) | (asked >= scenarios)
    if bool(bad.any()):
        raise ValueError(f"scenario: expected {allowed}, got {int(asked[bad][0])}")
    return asked.to(torch.int32)
