"""What is known of markets and learners at a time, as users' own functions and tasks are given it.

`OwnStep` (own_step.py) makes one of each for the learners of a role; docs/custom_task.md has all names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


class Moment:
    """What is known of markets and learners at a time: every name of `account_info` (docs/environment.md), live views.

    Each is float64: `[M]` with one learner per market; with n learners of a role `[M, n]`, and `[M, 1]` of the market.
    They are read only, and hold until the next step: clone what you keep.
    """

    name = "before"

    def __init__(self, known: Mapping[str, torch.Tensor]) -> None:
        """Take the views by name."""
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        """Say what there is instead."""
        if name.startswith("__"):
            raise AttributeError(name)
        allowed = ", ".join(self.__dict__)
        raise AttributeError(f"{self.name}.{name}: there is no such thing; there are {allowed}")


class After(Moment):
    """The same after a decision, or as an episode begins, and the book.

    Attributes:
        bid: Units that built-in agents have resting to buy, by tick of the grid, int32 `[M, L]`.
        ask: To sell, likewise.
        price_origin: The price of the grid's tick 0, int32 `[M]`.
        quotes: The learner's standing bid price, bid quantity, ask price, ask quantity, int32 `[M, 4]` or `[M, n, 4]`;
            of ladders at each place of each level, `[M, N, 2, 4]` or `[M, n, N, 2, 4]`.
        observation: The built-in features, float32 `[M, F]` or `[M, n, F]`.
        decision_events: How many events the decision had, int32 `[M]` or `[M, 1]`; 0 as an episode begins. Only where
            events end decisions.
    """

    name = "after"


class Outcome(After):
    """The same for `reward` and `terminate`, which may look at what the task itself says of the decision.

    Attributes:
        reward: The built-in reward, float32 `[M]` or `[M, n]`.
        terminated: Whether the learner's episode terminates with this decision, bool likewise; for `reward` the answer
            of `terminate` is in it.
        truncated: Whether it is truncated, likewise.
    """
