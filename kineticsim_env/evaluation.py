"""Judging traders by money that is really there: inventory unwound through the market before profit is counted."""

from __future__ import annotations

import numpy as np
import torch

from kineticsim_env.config import MAX_PRICE
from kineticsim_env.errors import MarketError
from kineticsim_env.simulator import Simulator


def liquidate(simulator: Simulator, max_auctions: int = 10_000) -> torch.Tensor:
    """Unwind every slot's inventory with marketable orders, at most `max_order_qty` units an auction.

    The simulator moves on, and its standing quotes are replaced; give it a `branch()` to keep the original.

    Args:
        simulator: With at least one slot.
        max_auctions: After how many auctions to give up.

    Returns:
        int64 `[M, K]`, the cash of each slot once it is flat. Fees are on their own account, `simulator.fees`.

    Raises:
        MarketError: If inventory is left after `max_auctions`; says in how many slots.
    """
    markets, slots = simulator.inventory.shape
    device = simulator.device
    largest = np.broadcast_to(np.asarray(simulator.config.max_order_qty, dtype=np.int64), (markets,))
    largest = torch.from_numpy(largest.copy()).to(device)[:, None]
    quotes = torch.zeros((markets, slots, 4), dtype=torch.int32, device=device)
    quotes[..., 0], quotes[..., 2] = MAX_PRICE, -MAX_PRICE
    for _ in range(max_auctions):
        inventory = simulator.inventory
        if not bool(inventory.any()):
            break
        quotes[..., 1] = torch.minimum((-inventory).clamp(min=0), largest)
        quotes[..., 3] = torch.minimum(inventory.clamp(min=0), largest)
        simulator.step(quotes)
    simulator.check_errors()
    left = int(torch.count_nonzero(simulator.inventory))
    if left:
        raise MarketError(f"{left} of {markets * slots} slots still hold inventory after {max_auctions} auctions")
    return simulator.cash.clone()
