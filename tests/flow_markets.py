"""Markets of a fitted order flow on the NumPy engine's rules, without the config: for tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from flow_tables import plain_table, random_table

from kineticsim_env.engines.numpy import flow, lives
from kineticsim_env.engines.numpy.state import CONTINUOUS, Markets, stacked
from kineticsim_env.runtime.flow_table import HAZARD, SHARE, FlowTable
from kineticsim_env.runtime.flow_table import STATE as STATE_OF_FLOW
from kineticsim_env.runtime.layout import ENUMS, PARAMS_FIELDS

WHOLE = ("prev_mid2", "last_tick", "price_origin", "fundamental_price", "error", "ret", "beat_price")  # int32
LONG = ("seed", "episode", "t", "volume", "trades")
STATE = (*WHOLE, *LONG, "bid", "ask", "lives", "fleeting_units", "flow")

PLAIN = plain_table()
NO_LIMITS, NO_ORDERS = np.zeros((2, 3, 18), int), np.zeros((2, 2, 18), int)
JUMPS, GIANT = dataclasses.replace(PLAIN, jump_hazard=HAZARD - 1), np.full((2, 2, 4, 16), 2**20)
MANY = dataclasses.replace(PLAIN, resting=np.full((2, 2, 18), 10 * SHARE))  # orders a tick
EXTREMES = {
    "plain": PLAIN,
    "cancellations alone": dataclasses.replace(PLAIN, limit=NO_LIMITS, market=0),
    "one order a side": dataclasses.replace(PLAIN, limit=NO_LIMITS, resting=NO_ORDERS),
    "market orders": dataclasses.replace(PLAIN, market=2**24, market_size=np.full(16, 2**20)),
    "jumps all the time": dataclasses.replace(JUMPS, jump_after_trade=SHARE, jump_traded=SHARE // 2),
    "traded jumps": dataclasses.replace(JUMPS, jump_events=3, jump_traded=SHARE, jump_same=SHARE),
    "giant orders": dataclasses.replace(PLAIN, limit_size=GIANT, market_size=GIANT[0, 0, 0]),
    **{f"random {seed}": random_table(seed) for seed in range(8)},
}  # fmt: skip


def begin(
    table: FlowTable,
    seeds: Sequence[int],
    levels: int = 64,
    window: int = 8,
    beat: int = 16,
    init_price: int | None = None,
    **others: Any,
) -> tuple[dict[str, Any], Markets]:
    """Return the arguments of a launch and its markets as they begin; `others` are parameters or slots."""
    m, slots = len(seeds), others.pop("slots", 0)
    params = {name: np.zeros(m, np.int64) for name in PARAMS_FIELDS} | {"inventory_limit": np.full(m, -1)}
    given = {"window": window, "beat": beat, "interval": 1, "tick_size": 1, "max_quote_qty": 2**20, **others}
    args: dict[str, Any] = {
        "levels": levels,
        "arrivals": ENUMS["Arrivals"]["flow"],
        "mechanism": CONTINUOUS,
        "flow_table": stacked([table]),
    }
    args["params"] = params | {name: np.full(m, value, np.int64) for name, value in given.items()}
    args |= {name: np.zeros(m, np.int32) for name in WHOLE} | {name: np.zeros(m, np.int64) for name in LONG}
    args |= {name: np.zeros((m, levels), np.int32) for name in ("bid", "ask", "fleeting_units")}
    args |= {"lives": np.zeros((m, 2, levels), np.int32), "flow": np.zeros((m, len(STATE_OF_FLOW)), np.int64)}
    args["seed"][:] = seeds
    args |= {name: np.zeros((m, slots), np.int64) for name in ("cash", "inventory", "fees")}
    args |= {"quotes": np.zeros((m, slots, 4), np.int32), "queue": np.zeros((m, slots, 2), np.int32)}
    args["moments"] = np.zeros((m, slots, 2), np.int64)
    markets = Markets(args, np.arange(m))
    with np.errstate(over="ignore"):
        lives.open_book(markets, np.full(m, levels // 2 if init_price is None else init_price))
    return args, markets


def play_event(m: Markets) -> flow.Event:
    """Play one event in markets of intervals of one event."""
    fills = np.zeros((*m.cash.shape, 2), np.int64)
    with np.errstate(over="ignore"):
        event = flow.play_event(m, m.first_event, np.zeros_like(m.t), fills)
    m.t = m.t + 1
    return event


def play(table: FlowTable, seeds: Sequence[int], events: int, **settings: Any) -> tuple[Markets, list[flow.Event]]:
    """Return the markets after so many events, and what came of each."""
    _, m = begin(table, seeds, **settings)
    return m, [play_event(m) for _ in range(events)]


def same_state(one: Markets, other: Markets, but: Sequence[str] = ()) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in STATE if name not in but)
