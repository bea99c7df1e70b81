"""What a maker's places in queues are worth: who keeps them, and the same maker with other places.

Before a decision its standing quotes are moved to the end of their queues, or to the front; prices, quantities and the
rest of the market stay, so the difference to the maker that is left alone is what its places earn.
"""

from __future__ import annotations

from typing import Any

import torch

from kineticsim_env.evaluation import Evaluation, confidence_interval, evaluate
from kineticsim_env.policies import Policy

HOLD = 2  # ticks by which a patient maker's quote may be off, before it moves
PLACES = ("earned", "end", "front")
AHEAD = 37  # of an observation: what is ahead of the bid, and behind it, of the ask


class Watched:
    """A policy that counts how often its standing quotes kept their places in their queues."""

    def __init__(self, policy: Policy, envs: Any) -> None:
        self.policy, self.simulator = policy, envs.simulator
        self.before: Any = None
        self.kept = self.stood = 0

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the policy's actions."""
        quantity, moments = self.simulator.quotes[:, 0, 1::2] > 0, self.simulator.tensors["moments"][:, 0].clone()
        if self.before is not None:
            stood = quantity & self.before[0]
            self.stood += int(stood.sum())
            self.kept += int((stood & (moments == self.before[1])).sum())
        self.before = quantity, moments
        return self.policy(observation)


def patient(policy: Policy, envs: Any) -> Policy:
    """Return a maker's policy that leaves a quote where it is while that is within `HOLD` ticks of where it would go.

    At least half of what the policy asks for must still stand, and no more is asked for, so that it keeps its place.
    """
    simulator, task = envs.simulator, envs.core.task

    def act(observation: torch.Tensor) -> torch.Tensor:
        action, (bid, bids, ask, asks) = policy(observation).clone(), simulator.quotes[:, 0].T
        mid2 = simulator.mid2
        for side, stands, left in ((0, (mid2 >> 1) - bid, bids), (1, ask - ((mid2 + 1) >> 1), asks)):
            offset = torch.round((action[:, side] + 1) / 2 * task.max_offset)
            units = torch.round((action[:, side + 2] + 1) / 2 * task.max_qty)
            near = ((stands - offset).abs() <= HOLD) & (stands >= 0) & (stands <= task.max_offset)
            holds = near & (left > 0) & (2 * left >= units)
            offset = torch.where(holds, stands.float(), offset)
            units = torch.where(holds, torch.minimum(units, left.float()), units)
            action[:, side], action[:, side + 2] = offset / task.max_offset * 2 - 1, units / task.max_qty * 2 - 1
        return action

    return act


def placed(policy: Policy, envs: Any, place: str) -> Policy:
    """Return the policy of a single slot whose standing quotes are put to a place of `PLACES` before every decision."""
    simulator, top = envs.simulator, envs.simulator.config.num_levels - 1

    def act(observation: torch.Tensor) -> torch.Tensor:
        if place != "earned":
            observation = observation.clone()
            for side, book in enumerate((simulator.bid, simulator.ask)):
                price, left = simulator.quotes[:, 0, 2 * side], simulator.quotes[:, 0, 2 * side + 1]
                tick = price - simulator.price_origin
                there = (left > 0) & (tick >= 0) & (tick <= top)
                resting = book.gather(1, tick.clamp(0, top).long()[:, None])[:, 0].int()
                ahead = resting * there if place == "end" else torch.zeros_like(resting)
                simulator.tensors["queue"][:, 0, side] = ahead
                observation[:, AHEAD + side] = ahead / (ahead + 8.0)
        return policy(observation)

    return act


def worth_of_places(policy: Policy, envs: Any, seed: int) -> dict[str, Any]:
    """Play held-out episodes with each place; returns PnL, and the paired differences to the places it has earned."""
    watched = Watched(policy, envs)
    games: dict[str, Evaluation] = {
        place: evaluate(placed(watched if place == "earned" else policy, envs, place), envs, seed) for place in PLACES
    }
    earned = games["earned"]
    return {
        "kept": watched.kept / max(watched.stood, 1),
        "traded": float(earned.traded.mean()),
        "inventory": float(earned.inventory.mean()),
        "pnl": earned.pnl_interval(),
        "end": confidence_interval(games["end"].pnl - earned.pnl),
        "front": confidence_interval(games["front"].pnl - earned.pnl),
    }
