"""`simulate`: one market of an order flow, order by order: a tape of it, as order events."""

from __future__ import annotations

import dataclasses

import numpy as np

from kineticsim_env.config import make_config
from kineticsim_env.data.events import OrderEvents
from kineticsim_env.runtime.fields import INTEGERS
from kineticsim_env.runtime.flow_table import FlowTable, market_fields
from kineticsim_env.runtime.values import check_count, check_instance
from kineticsim_env.simulator import Simulator

_MOST = INTEGERS["interval"][1]


def simulate(
    table: FlowTable,
    events: int,
    seed: int = 0,
    *,
    num_levels: int = 512,
    window: int = 32,
    beat: int = 16,
    progress: bool | None = None,
) -> OrderEvents:
    """Play one market of an order flow, and return what happened to its orders. Needs a C++ compiler, as tapes do.

    Orders that the grid moves away from are deleted, and those that it moves to are added, as events of that time.

    Args:
        table: The order flow.
        events: How many are played; what is returned has more rows, as a market order meets several orders.
        seed: Of its random words: a market of this seed of an ensemble.
        num_levels: Ticks of the grid; the market begins in its middle.
        window: Ticks that the mid may be from there before the grid moves; 0 never moves it.
        beat: Events after which that is looked at.
        progress: Whether to show a bar; None: where it takes long.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed.
        EngineUnavailable: If there is no C++ compiler.
        MarketError: If the market has to stop.
    """
    check_instance("table", table, FlowTable)
    events = check_count("events", events, 1, 2**32 - 1)
    num_levels = check_count("num_levels", num_levels, 8, 8192)
    intervals = next(n for n in range(-(-events // _MOST), events + 1) if events % n == 0)  # the same however it is cut
    grid = {"num_levels": num_levels, "window": window, "beat": beat, "interval": events // intervals}
    config = make_config(market_fields(table, grid))
    found = Simulator(config, 1, engine="cpu", seed=seed).tape(0, intervals, progress=progress).events()
    names = np.unique(found.order, return_inverse=True)[1] + 1  # without the numbers of market orders
    return dataclasses.replace(found, order=names)
