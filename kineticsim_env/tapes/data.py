"""Data into markets: a book of prices and sizes, as `Simulator.set_book` puts it there."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import torch

from kineticsim_env.engines.agents import opening_memory
from kineticsim_env.engines.ensemble import Ensemble
from kineticsim_env.engines.opening import seen_at_opening
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.checks import check_mask
from kineticsim_env.runtime.saved_states import POPULATION
from kineticsim_env.runtime.values import as_float, is_number, show
from kineticsim_env.tapes.making import on_host

_FURTHEST = layout.CONSTANTS["kMaxOrigin"]
_SIDES = ("bids", "asks")
_ROUNDED = 0.01  # of a tick: what is left of a price that was a float32, or was divided


def set_book(
    simulator: Ensemble, bids: Any, asks: Any, tick: float, last_price: Any, fundamental: Any, mask: Any
) -> None:
    """Put a book into markets; arguments and errors are those of `Simulator.set_book`."""
    if not is_number(tick) or not 0 < as_float(tick) < np.inf:
        raise ValueError(f"tick: expected a number above 0, got {show(tick)}")
    tables = [_levels(name, given, tick) for name, given in zip(_SIDES, (bids, asks), strict=True)]
    chosen = check_mask("mask", mask, simulator.num_markets, simulator.device)
    middle2 = _middle2(*tables)
    last = _price("last_price", last_price, tick, middle2 // 2)
    value = _price("fundamental", fundamental, tick, last)
    levels = simulator.config.num_levels
    origin = (middle2 >> 1) - levels // 2
    rows = [_row(name, table, origin, levels) for name, table in zip(_SIDES, tables, strict=True)]
    if not 0 <= last - origin < levels:
        ends = f"{origin * tick:g} to {(origin + levels - 1) * tick:g}"
        raise ValueError(f"last_price: expected {ends}, the grid around the mid, got {last * tick:g}")
    mid2 = middle2 if all(tables) else 2 * last  # as agents see it
    simulator.check_errors()
    state = {name: tensor.clone() for name, tensor in simulator._state.items()}
    numbers = {"prev_mid2": mid2 - 2 * origin, "last_tick": last - origin, "price_origin": origin,
               "fundamental_price": value, "beat_price": last, "ret": 0}  # fmt: skip
    for name, row in zip(("bid", "ask"), rows, strict=True):
        state[name][chosen] = torch.from_numpy(row).to(simulator.device)
    numbers |= dict.fromkeys(("quotes", *layout.QUEUE_STATE, *layout.WAY_STATE), 0)
    for name in numbers.keys() & state.keys():
        state[name][chosen] = numbers[name]
    if "agent_memory" in state:
        seen = {"mid2": mid2, "last_price": last, "fundamental": value} | _best_seen(tables)
        state["agent_memory"][chosen] = _memory(simulator, state, seen)[chosen]
    checked = simulator._checked_state(state, simulator.engine.parameters())
    simulator._take_state(checked, simulator._drawn_by(checked.get(POPULATION)))


def _levels(name: str, given: Any, tick: float) -> dict[int, int]:
    """Return units by price in ticks; levels without units, with which tables are filled up, are left out."""
    array = on_host(name, given, "prices and sizes, [n, 2]")
    if array.dtype == object and all(isinstance(one, (Decimal, Real)) for one in array.flat):  # of mixed columns
        try:
            array = array.astype(np.float64)
        except (ValueError, ArithmeticError) as error:  # a signaling NaN, an int that is too large
            raise ValueError(f"{name}: expected finite prices and sizes, [n, 2], got {show(given)}") from error
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name}: expected prices and sizes, [n, 2], got {show(given)}")
    table = array.astype(np.float64).reshape(0, 2) if array.size == 0 else array.astype(np.float64)
    if table.ndim != 2 or table.shape[1] != 2:
        raise ValueError(f"{name}: expected prices and sizes, [n, 2], got an array of shape {list(table.shape)}")
    found: dict[int, int] = {}
    for price, size in table:
        if not 0 <= size < 2**31 or size != int(size):
            raise ValueError(f"{name}: expected a whole number from 0 to 2^31 - 1, got the size {size:g}")
        if size == 0:
            continue
        ticks = price / tick
        if not abs(ticks) <= _FURTHEST or abs(ticks - round(ticks)) > _ROUNDED:
            raise ValueError(
                f"{name}: expected multiples of tick = {tick:g} within 2^29 of them, got the price {price:.10g}"
            )
        found[round(ticks)] = found.get(round(ticks), 0) + int(size)
    return found


def _middle2(bids: dict[int, int], asks: dict[int, int]) -> int:
    """Return the doubled mid; of a single side twice its best price."""
    ends = [best(side) for best, side in ((max, bids), (min, asks)) if side]
    if not ends:
        raise ValueError("bids and asks: expected a book with units, got none on either side")
    if len(ends) == 2 and ends[0] >= ends[1]:
        raise ValueError(f"bids: expected bids below all asks, got one at {ends[0]} ticks and an ask at {ends[1]}")
    return ends[0] + ends[-1]


def _price(name: str, given: Any, tick: float, default: int) -> int:
    if given is None:
        return default
    if not is_number(given) or not abs(as_float(given) / tick) <= _FURTHEST:
        raise ValueError(f"{name}: expected a price within 2^29 ticks, or None, got {show(given)}")
    return round(float(given) / tick)


def _row(name: str, table: dict[int, int], origin: int, levels: int) -> np.ndarray:
    """Return units by tick of the grid, int32 `[L]`."""
    row = np.zeros(levels, np.int64)
    for price, units in table.items():
        if not 0 <= price - origin < levels:
            raise ValueError(
                f"{name}: expected prices {-(levels // 2)} to {levels // 2 - 1} ticks from the mid, the grid of "
                f"num_levels, got one {price - origin - levels // 2:+d} ticks from it; leave far levels out, or take "
                "more num_levels"
            )
        row[price - origin] = units
    if row.sum() >= 2**31:
        raise ValueError(f"{name}: expected up to 2^31 - 1 units in all, got {row.sum()}")
    return row.astype(np.int32)


def _best_seen(tables: Sequence[dict[int, int]]) -> dict[str, int]:
    none = layout.CONSTANTS["kNoPrice"]
    bid, ask = max(tables[0], default=-none), min(tables[1], default=none)
    return {"best_bid": bid, "best_ask": ask, "best_bid_qty": tables[0].get(bid, 0),
            "best_ask_qty": tables[1].get(ask, 0)}  # fmt: skip


def _memory(simulator: Ensemble, state: dict[str, torch.Tensor], seen: dict[str, int]) -> torch.Tensor:
    """Return what agents remember as an episode begins with that book, int32 `[M, Q]`."""
    regime = state["regime"].cpu().numpy() if "regime" in state else np.zeros(simulator.num_markets, np.int64)
    at_opening = seen_at_opening(simulator.rows, regime, simulator.config.is_flow)
    values = {name: np.broadcast_to(np.asarray(seen.get(name, value)), (simulator.num_markets,))
              for name, value in at_opening.items()}  # fmt: skip
    return torch.from_numpy(opening_memory(simulator._groups, values)).to(simulator.device)
