"""What the suite can time: a `Workload`, and the `Backend` that runs it.

A backend computes the market of docs/model.md at the preset `"paper"` (no options, no slots, fixed populations)
and must end with the same bits as the engines, or its time is not reported.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np

from kineticsim_env.config import MarketConfig


@dataclasses.dataclass(frozen=True)
class Workload:
    """One point of a sweep."""

    markets: int
    agents: int = 256
    levels: int = 128
    steps: int = 500
    seed: int = 0

    @property
    def config(self) -> MarketConfig:
        """The market: the published defaults, the opening price in the middle of the grid."""
        return MarketConfig(num_agents=self.agents, num_levels=self.levels, init_price=self.levels // 2)

    @property
    def events(self) -> int:
        """Agent-events of the whole workload."""
        return self.markets * self.agents * self.steps


@dataclasses.dataclass(frozen=True)
class Result:
    """The end state that backends are compared by."""

    bid: np.ndarray  # int32 [M, L]
    ask: np.ndarray  # int32 [M, L]
    last_price: np.ndarray  # int32 [M]
    volume: np.ndarray  # int64 [M]
    trades: np.ndarray  # int64 [M]


class Backend(Protocol):
    """One implementation on one device."""

    name: str  # as in the tables, e.g. "torch eager"
    device: str  # "cpu" or "cuda"

    def unavailable(self) -> str | None:
        """Say why it cannot run here and how to get it, or None."""
        ...

    def prepare(self, workload: Workload) -> None:
        """Allocate and compile for a workload's shapes; everything that the next `run` need not repeat."""
        ...

    def reset(self) -> None:
        """Go back to the opening book at step 0."""
        ...

    def run(self, steps: int) -> None:
        """Advance by `steps` auctions; may return before the device is done."""
        ...

    def synchronize(self) -> None:
        """Wait for the device."""
        ...

    def result(self) -> Result:
        """Return the end state."""
        ...

    def close(self) -> None:
        """Give memory back."""
        ...
