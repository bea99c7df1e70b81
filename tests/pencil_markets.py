"""Two markets that can be followed with a pencil, on the plain reference of `tests/reference` or in an engine.

In `inactive` the only agent is replaced by slot 0, so that only slots act. In `lone_maker` the only agent is a maker
with half-spread 1 and one unit: in a book with its best prices at 7 and 9 it buys at 7 at every even event and sells at
9 at every odd one. Both are on a grid of 16 ticks, opened around 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from reference import Reference

import kineticsim_env as ks

GRID = dict(num_levels=16, num_agents=1, init_price=8, init_depth=8, arrivals="clock", max_order_qty=1)
NEVER = 1 << 30  # as a beat: only the one before event 0
NONE = [0, 0, 0, 0]
_TENSORS = "bid ask t ret volume trades price_origin quotes cash inventory fees".split()


class OneMarket:
    """One market of an engine, played and seen as a `Reference` is; of a decision only its end is seen."""

    def __init__(self, engine: str, fields: dict[str, Any], slots: Any = 0, seed: int = 0) -> None:
        self.sim = ks.Simulator(ks.MarketConfig(**fields), 1, engine=engine, seed=seed, slots=slots)

    def interval(self, quotes: Sequence | None = None) -> dict[str, Any]:
        """Play one interval, and return what is seen then."""
        return self.decision(quotes, 1)[-1]

    def decision(self, quotes: Sequence | None, intervals: int) -> list[dict[str, Any]]:
        """Play a decision, and return what is seen at its end."""
        given = None if quotes is None else torch.tensor([quotes], dtype=torch.int32, device=self.sim.device)
        fills = self.sim.step(given, intervals)[0].tolist()
        tensors = {name: self.sim.tensors[name][0].tolist() for name in _TENSORS}
        prices = {"last_price": int(self.sim.last_price[0]), "mid2": int(self.sim.mid2[0])}
        ahead = self.sim.queue[0].tolist() if self.sim.config.is_continuous else [[0, 0]] * len(fills)
        return [tensors | prices | {"fills": fills, "ahead": ahead}]


def market_in(engine: str, fields: dict[str, Any], slots: Any = 0, seed: int = 0) -> Any:
    """Open a market in an engine, or the `"reference"`."""
    return Reference(fields, slots, seed) if engine == "reference" else OneMarket(engine, fields, slots, seed)


def inactive(added: int = 0, mechanism: str = "continuous", engine: str = "reference", **fields: Any) -> Any:
    """Open a market in which only slots act: slot 0, in place of the only agent, and those added."""
    fields = {**GRID, "noise": 1.0, "momentum": 0.0, "maker": 0.0, "mechanism": mechanism, **fields}
    return market_in(engine, fields, ("noise", *[None] * added))


def lone_maker(
    slots: int = 1, mechanism: str = "continuous", seed: int = 0, engine: str = "reference", **fields: Any
) -> Any:
    """Open the market of one maker, and slots beside it."""
    shares = {"noise": 0.0, "momentum": 0.0, "maker": 1.0}
    return market_in(engine, {**GRID, **shares, "mechanism": mechanism, **fields}, slots, seed)


def bid(price: int, quantity: int) -> list[int]:
    """Return a quote of one side."""
    return [price, quantity, 0, 0]


def ask(price: int, quantity: int) -> list[int]:
    """Return a quote of one side."""
    return [0, 0, price, quantity]
