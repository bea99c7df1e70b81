"""Who knows the fundamental price, in `scripts/pages/baselines.py`: scripted, and an upper mark for those who do not.

Each is made for an environment, whose simulator it looks into, and is called with observations as policies are.
"""

from __future__ import annotations

from typing import Any

import torch

from kineticsim_env.policies import Policy
from kineticsim_env.policies.base import (
    SIDE,
    decisions_left,
    inventory_in,
    order_action,
    remaining_of,
    trade_action,
)
from kineticsim_env.studies.default_market import Hidden, knows_fundamental

GRIDS: dict[str, dict[str, list]] = {
    "MarketMaking": {"half_spread": [0, 1, 2, 4], "margin": [1, 2, 3, 4], "skew": [0.0, 0.06]},
    "Execution": {"threshold": [0.0, 2.0, 4.0], "ticks": [-2, 0, 2, 4], "waits": [-8, -5, -3], "urgent": [1, 10]},
    "Trading": {"threshold": [0.5, 1.0, 2.0, 4.0], "ticks": [-4, -2, 0, 2, 4, 10]},
}
POSITION = 40  # units, the task's default limit


def told(envs: Any, kind: str, **parameters: Any) -> Policy:
    """Return the policy of an environment's task that is told the fundamental price."""
    task, simulator = envs.core.task, envs.simulator

    def hidden() -> Hidden:
        return Hidden(simulator.mid2, simulator.fundamental_price, torch.zeros_like(simulator.mid2))

    if kind == "MarketMaking":
        rule = knows_fundamental(**parameters)(task)
        return lambda observation: rule(observation, hidden())
    decide = {"Execution": _executor, "Trading": _trader}[kind]
    return lambda observation: decide(task, observation, _cheap(hidden()), **parameters)


def _cheap(known: Hidden) -> torch.Tensor:
    """Return the fundamental price less the mid, ticks, float32 `[M]`."""
    return known.fundamental.float() - known.mid2.float() / 2


def _trader(task: Any, observation: torch.Tensor, cheap: torch.Tensor, threshold: float, ticks: float) -> torch.Tensor:
    """Be long while the price is more than `threshold` below the fundamental, short while it is above, else keep."""
    held = torch.round(inventory_in(task, observation))
    keep = torch.where(cheap * held < 0, 0.0, held)
    wanted = torch.where(cheap.abs() > threshold, torch.sign(cheap) * POSITION, keep)
    return trade_action(task, wanted - held, torch.full_like(held, ticks))


def _executor(
    task: Any, observation: torch.Tensor, cheap: torch.Tensor, threshold: float, ticks: float, waits: float, urgent: int
) -> torch.Tensor:
    """Order all that is left, `ticks` through the mid while the price is good by `threshold`, else far behind it."""
    good = (cheap * observation[:, SIDE] > threshold) | (decisions_left(task, observation) <= urgent)
    return order_action(task, torch.where(good, float(ticks), float(waits)), remaining_of(task, observation))
