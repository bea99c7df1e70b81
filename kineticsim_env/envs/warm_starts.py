"""Warm starts: markets that ran without learners for a while, of which every episode draws one, on the device.

The bank has rows for each owner: all markets together, each market, or each scenario. Which row an episode starts from:
docs/environment.md.
"""

from __future__ import annotations

import numpy as np
import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.envs.scenarios import num_rows
from kineticsim_env.runtime import layout
from kineticsim_env.simulator import Simulator
from kineticsim_env.tasks.base import Task

ALL_MARKETS, EACH_MARKET, EACH_SCENARIO = (
    layout.ENUMS["BankOwner"][name] for name in ("all_markets", "each_market", "each_scenario")
)
_SCALARS = ("prev_mid2", "last_tick", "price_origin", "fundamental_price")


def choose_owner(task: Task, config: MarketConfig, scenarios: MarketConfig | None) -> tuple[int, int]:
    """Return whose the warm starts are, and how many each owner has."""
    own = bool(config.per_market) or config.population == "multinomial"
    owner = EACH_SCENARIO if scenarios is not None else EACH_MARKET if own else ALL_MARKETS
    return owner, min(task.bank_size, task.bank_per_market) if owner else task.bank_size


def run_bank(
    simulator: Simulator,
    task: Task,
    scenarios: MarketConfig | None,
    *,
    owner: int,
    size: int,
    seeds: torch.Tensor | None = None,
    counts: np.ndarray | None = None,
) -> dict[str, torch.Tensor]:
    """Run markets without learners for `warmup` auctions.

    Args:
        simulator: The markets that will start from them; its engine, device, seeds and populations are used.
        task: The task's settings.
        scenarios: The table of scenarios, if there is one.
        owner: Whose the warm starts are, from `choose_owner`.
        size: How many each owner has.
        seeds: The markets' seeds, int64 `[M]`; those that they have now if None.
        counts: Their agents of each class, int64 `[M, 4]`, likewise.

    Returns:
        `bank_bid`, `bank_ask` int32 `[B, L]` and `bank_scalars` int32 `[B, 4]`, owner after owner.
    """
    config = simulator.config if scenarios is None else scenarios
    owners = {ALL_MARKETS: 1, EACH_MARKET: simulator.num_markets}.get(owner) or num_rows(config)
    config = config.replace(**{name: np.repeat(getattr(config, name), size) for name in config.per_market})
    multinomial = config.population == "multinomial"
    first: int | np.ndarray = task.warm_seed
    if multinomial:  # by the market's own seed, so that its place in the batch is no matter
        own = (simulator.tensors["seed"] if seeds is None else seeds).cpu().numpy()[:, None]
        first = (own * size + np.arange(size) + np.int64(task.warm_seed)).ravel()
    bank = Simulator(config, size * owners, engine=simulator.engine_name, device=simulator.device, seed=first)
    if multinomial:  # the market's own agents, not those of the snapshot's seed
        bank._take_counts(np.repeat(simulator._counts if counts is None else counts, size, axis=0))
    bank.run(task.warmup)
    bank.check_errors()  # on CUDA nobody has looked yet, and a market that has stopped is no start
    return {
        "bank_bid": bank.bid,
        "bank_ask": bank.ask,
        "bank_scalars": torch.stack([bank.tensors[name] for name in _SCALARS], dim=1).to(torch.int32).contiguous(),
    }
