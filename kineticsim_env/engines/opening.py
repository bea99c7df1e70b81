"""Opening books: what a reset of a `Simulator` puts markets back to."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from kineticsim_env.runtime import layout


def opening_book(rows: Mapping[str, np.ndarray], levels: int, device: torch.device) -> dict[str, torch.Tensor]:
    """Return what markets hold at their opening, by the names of `struct Launch`; everything else is 0.

    Args:
        rows: Their parameters, int64 `[M]`, or `[1]` if all have the same, by the names of `struct MarketParams`.
        levels: L.
        device: Where the tensors will be.
    """
    price, depth, fundamental = (
        torch.from_numpy(rows[name].astype(np.int32)).to(device)[:, None]
        for name in ("init_price", "init_depth", "fundamental_price")
    )
    ticks = torch.arange(levels, dtype=torch.int32, device=device)[None, :]
    return {
        "bid": torch.where(ticks == price - 1, depth, 0),
        "ask": torch.where(ticks == price + 1, depth, 0),
        "prev_mid2": 2 * price[:, 0],
        "last_tick": price[:, 0],
        "fundamental_price": fundamental[:, 0],
    }


def open_books(tensors: Mapping[str, torch.Tensor], opening: Mapping[str, torch.Tensor], chosen: torch.Tensor) -> None:
    """Put the chosen markets and their slots back to the opening.

    Args:
        tensors: Their state; seeds and episodes stay.
        opening: From `opening_book`.
        chosen: bool `[M]`.
    """
    for name in ("t", "volume", "trades", "price_origin", "error"):
        tensors[name].masked_fill_(chosen, 0)
    for name, value in opening.items():
        target = tensors[name]
        where = chosen.view(-1, *[1] * (target.dim() - 1))
        torch.where(where, value, target, out=target)  # in place: a copy would be half of all memory again
    for name in layout.SLOT_STATE:
        tensors[name].masked_fill_(chosen.view(-1, *[1] * (tensors[name].dim() - 1)), 0)
