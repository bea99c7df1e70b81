"""What is known after a decision, by name: `final_info` of every environment, and what users' own functions are given.

The rows are those of `Launch.info` (cuda/model/layout.h): an engine writes them before it resets anything.
"""

from __future__ import annotations

from typing import Any

import torch

from kineticsim_env.runtime import layout

MARKET_INFOS, SLOT_INFOS = (tuple(layout.ENUMS[name]) for name in ("MarketInfo", "SlotInfo"))


def info_of_one(rows: Any, slot: int = 0) -> dict[str, Any]:
    """Return what is known of markets and one slot of each, float64 `[M]` by name: views of rows `[I, M]`."""
    markets = len(MARKET_INFOS)
    slots = (len(rows) - markets) // len(SLOT_INFOS)
    known = rows if slots == 1 else (*rows[:markets], *rows[markets + slot :: slots])
    return dict(zip((*MARKET_INFOS, *SLOT_INFOS), known, strict=True))


def info_of_slots(rows: torch.Tensor, slots: slice) -> dict[str, torch.Tensor]:
    """Return what is known of some slots, float64 by name: `[M, n]`, and `[M, 1]` of the market; views of `[I, M]`."""
    markets = len(MARKET_INFOS)
    of_slots = rows[markets:].view(len(SLOT_INFOS), -1, rows.shape[1])[:, slots].transpose(1, 2)
    of_market = rows[:markets].unsqueeze(2)
    return dict(zip((*MARKET_INFOS, *SLOT_INFOS), (*of_market.unbind(0), *of_slots.unbind(0)), strict=True))
