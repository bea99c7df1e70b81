"""What is known after a decision, by name: `account_info` of every environment, and what users' functions are given.

The rows are those of `Launch.info` (cuda/model/layout.h): an engine writes them before it resets anything.
"""

from __future__ import annotations

from typing import Any

import torch

from kineticsim_env.runtime import layout

MARKET_INFOS, SLOT_INFOS, KEEP_INFOS = (tuple(layout.ENUMS[name]) for name in ("MarketInfo", "SlotInfo", "KeepInfo"))


def info_of_one(rows: Any, count: int, slot: int = 0) -> dict[str, Any]:
    """Return what is known of markets and one of `count` slots, float64 `[M]` by name: views of rows `[I, M]`."""
    markets = len(MARKET_INFOS)
    known = rows if count == 1 else (*rows[:markets], *rows[markets + slot :: count])
    return dict(zip(_names(rows, count), known, strict=True))


def info_of_slots(rows: torch.Tensor, count: int, slots: slice) -> dict[str, torch.Tensor]:
    """Return what is known of some of `count` slots, float64 by name: views of rows `[I, M]`.

    They are `[M, n]`, and of the market `[M, 1]`.
    """
    markets = len(MARKET_INFOS)
    of_slots = rows[markets:].view(-1, count, rows.shape[1])[:, slots].transpose(1, 2)
    of_market = rows[:markets].unsqueeze(2)
    return dict(zip(_names(rows, count), (*of_market.unbind(0), *of_slots.unbind(0)), strict=True))


def returns_of(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Return the rows of what episodes have paid each of `count` slots, a view `[count, M]` of rows `[I, M]`."""
    first = len(MARKET_INFOS) + SLOT_INFOS.index("episode_return") * count
    return rows[first : first + count]


def _names(rows: Any, count: int) -> tuple[str, ...]:
    """Return the names of the rows, of one slot: there are more where quotes may be rejected."""
    more = KEEP_INFOS if len(rows) > layout.info_rows(count) else ()
    return (*MARKET_INFOS, *SLOT_INFOS, *more)
