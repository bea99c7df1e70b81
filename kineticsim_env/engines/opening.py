"""Opening books: what a reset of a `Simulator` puts markets back to."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from kineticsim_env.runtime import layout
from kineticsim_env.runtime.seeds import first_word

_WORD_REGIME = (1 << 30) + 8


def opening_book(rows: Mapping[str, np.ndarray], levels: int, device: torch.device) -> dict[str, torch.Tensor]:
    """Return what markets hold at their opening, by the names of `struct Launch`; all else is 0, but for the regime.

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
        "beat_price": price[:, 0],
        "fundamental_price": fundamental[:, 0],
    }


def seen_at_opening(rows: Mapping[str, np.ndarray], regime: np.ndarray) -> dict[str, np.ndarray]:
    """Return what an agent sees of an opening book, by the names of agents/vocabulary.py, int64 `[M]` or `[1]`."""
    price, depth = rows["init_price"], rows["init_depth"]
    none = layout.CONSTANTS["kNoPrice"]
    return {
        "mid2": 2 * price,
        "ret": np.zeros_like(price),
        "last_price": price,
        "best_bid": np.where(depth > 0, price - 1, -none),
        "best_ask": np.where(depth > 0, price + 1, none),
        "best_bid_qty": depth,
        "best_ask_qty": depth,
        "fundamental": rows["fundamental_price"],
        "regime": regime,
    }


def first_regimes(seed: np.ndarray, episode: np.ndarray, regimes: int) -> np.ndarray:
    """Draw the regimes that episodes begin in, int32 `[M]`; seeds and episodes are int64 `[M]`."""
    top = first_word(seed, episode, _WORD_REGIME) >> np.uint64(32)
    return (top * np.uint64(regimes) >> np.uint64(32)).astype(np.int32)


def open_books(
    tensors: Mapping[str, torch.Tensor],
    opening: Mapping[str, torch.Tensor],
    chosen: torch.Tensor,
    regimes: int = 0,
    memory: Callable[[np.ndarray], np.ndarray] | None = None,
) -> None:
    """Put the chosen markets and their slots back to the opening.

    Args:
        tensors: Their state; seeds and episodes are the new ones, and stay.
        opening: From `opening_book`.
        chosen: bool `[M]`.
        regimes: How many there are, 0 where there are none.
        memory: Returns what agents that users have written remember, int32 `[M, Q]`, given the regimes, `[M]` or
            `[1]`; None where they remember nothing.
    """
    for name in ("t", "volume", "trades", "price_origin", "error"):
        tensors[name].masked_fill_(chosen, 0)
    first = np.zeros(1, np.int32)
    if regimes:
        first = first_regimes(tensors["seed"].cpu().numpy(), tensors["episode"].cpu().numpy(), regimes)
        opening = {**opening, "regime": torch.from_numpy(first).to(chosen.device)}
    if memory is not None:
        opening = {**opening, "agent_memory": torch.from_numpy(memory(first)).to(chosen.device)}
    for name in opening.keys() & tensors.keys():
        target, value = tensors[name], opening[name]
        where = chosen.view(-1, *[1] * (target.dim() - 1))
        torch.where(where, value, target, out=target)  # in place: a copy would be half of all memory again
    for name in tensors.keys() & {*layout.SLOT_STATE, *layout.QUEUE_STATE, "ret"}:
        tensors[name].masked_fill_(chosen.view(-1, *[1] * (tensors[name].dim() - 1)), 0)
