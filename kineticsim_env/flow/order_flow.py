"""`OrderFlow`: a market's order flow, fitted, simulated and compared with data, as users call it."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

from kineticsim_env.config import MarketConfig, make_config
from kineticsim_env.data.events import OrderEvents
from kineticsim_env.flow import fitting, simulating, validating
from kineticsim_env.runtime.flow_table import FlowTable, market_fields, shipped
from kineticsim_env.runtime.values import check_choice


class OrderFlow(FlowTable):
    """An order flow: a `FlowTable`, which has its numbers, and what can be done with it."""

    @classmethod
    def preset(cls, name: str) -> Self:
        """Return a table that ships: "btcusd".

        Raises:
            ValueError: If there is none of that name.
        """
        return cls.load(shipped()[check_choice("name", name, shipped())])

    @classmethod
    def fit(
        cls, events: OrderEvents, *, lot: float | None = None, symmetric: bool = True, progress: bool | None = None
    ) -> Self:
        """Fit a table to order events.

        Rates are those of choices, counted per event and not per second; time is fitted apart. Orders of two lives are
        told apart by how long they last, in each band. Sizes are sixteenths of what came.

        Args:
            events: Cleaned order events, as `read_orders` returns them, of any number of sessions.
            lot: Their size of a lot in the table; None takes the largest power of ten of what the data have that is a
                fifth of the median limit order at most.
            symmetric: Whether both sides have the same rates and sizes, those of both together. Else they are fitted
                apart, and where they differ the price of markets drifts.
            progress: Whether to show a bar; None: where it takes long.

        Returns:
            The table. Its jumps are of such sizes that markets of it have the variance of the mid over 10 to 60 s.

        Raises:
            TypeError, ValueError: Naming what is wrong: no executions, no cancellations, a crossed book, fewer than
                1,000 events, or times that are all the same.
        """
        found = fitting.fit(events, lot=lot, symmetric=symmetric, progress=progress)
        return cls(**{field.name: getattr(found, field.name) for field in dataclasses.fields(found)})

    def config(self, **changes: Any) -> MarketConfig:
        """Return a market of this flow: 256 ticks that follow the mid, and intervals of 48 events, or of `interval_ms`.

        Args:
            **changes: Fields of `MarketConfig` that differ from that.
        """
        return make_config(market_fields(self, changes))

    def simulate(self, events: int, seed: int = 0, **grid: Any) -> OrderEvents:
        """Play one market of this flow alone, and return what happened to its orders; see `simulating.simulate`."""
        return simulating.simulate(self, events, seed, **grid)

    def validate(self, held_out: OrderEvents, **how: Any) -> validating.FlowValidation:
        """Compare markets of this flow with data that it was not fitted to; see `validating.validate`."""
        return validating.validate(self, held_out, **how)
