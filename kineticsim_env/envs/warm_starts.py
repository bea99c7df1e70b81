"""Warm starts: markets that ran without learners for a while, of which every episode draws one, on the device.

The bank has rows for each owner: all markets together, each market, or each scenario. Which row an episode starts from:
docs/environment.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.engines.ensemble import Population
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
    own = bool(set(config.per_market) - set(task.each)) or config.population == "multinomial"
    owner = EACH_SCENARIO if scenarios is not None else EACH_MARKET if own else ALL_MARKETS
    return owner, min(task.bank_size, task.bank_per_market) if owner else task.bank_size


class WarmStarts:
    """The bank of an environment.

    Attributes:
        owner: Whose the warm starts are, of `enum BankOwner`.
        size: How many each owner has.
    """

    def __init__(self, simulator: Simulator, task: Task, auctions: int) -> None:
        """Hold none yet; `run` lets markets run for so many auctions and `use` takes them."""
        self._simulator, self._task, self._auctions = simulator, task, auctions
        self._bank: dict[str, torch.Tensor] = {}
        self._banks: list[dict[str, torch.Tensor]] = []  # all that there were: a captured CUDA graph may use an old one
        self.owner, self.size = ALL_MARKETS, 0

    @torch.inference_mode(False)
    def run(self, scenarios: MarketConfig | None, drawn: Population | None = None) -> dict[str, torch.Tensor]:
        """Run markets without learners, on the simulator's engine and device; `self` stays.

        Populations that are drawn are those that the markets have now if `drawn` is None.

        Returns:
            `bank_bid`, `bank_ask` int32 `[B, L]`, `bank_scalars` int32 `[B, 4]`, with regimes `bank_regime` int32
            `[B]`, where agents have memory `bank_memory` int32 `[B, Q]`, and of an order flow `bank_lives`,
            `bank_fleeting_units` and `bank_flow`, owner after owner; empty if the task has none.
        """
        simulator, task = self._simulator, self._task
        owner, size = choose_owner(task, simulator.config, scenarios)
        if not size:
            return {}
        config = simulator.config if scenarios is None else scenarios
        owners = {ALL_MARKETS: 1, EACH_MARKET: simulator.num_markets}.get(owner) or num_rows(config)
        if owner == ALL_MARKETS and config.per_market:
            config = config.replace(inventory_limit=None)  # the one that may differ then, and nobody has an inventory
        config = config.repeated(size)
        drawn = simulator._present_population if drawn is None else drawn
        first: int | np.ndarray = task.warm_seed
        if drawn is not None:  # by the market's own seed, so that its place in the batch is no matter
            own = drawn.seeds.cpu().numpy()[:, None]
            first = (own * size + np.arange(size) + np.int64(task.warm_seed)).ravel()
        bank = Simulator(config, size * owners, engine=simulator.engine_name, device=simulator.device, seed=first)
        if drawn is not None:  # the market's own agents, not those of the snapshot's seed
            bank._take_counts(np.repeat(drawn.counts, size, axis=0))
        bank.run(self._auctions)
        bank.check_errors()  # on CUDA nobody has looked yet, and a market that has stopped is no start
        besides = {"bank_regime": "regime", "bank_memory": "agent_memory"}
        besides |= {f"bank_{name}": name for name in layout.FLOW_STATE}
        return {
            **{name: bank.tensors[held] for name, held in besides.items() if held in bank.tensors},
            "bank_bid": bank.bid,
            "bank_ask": bank.ask,
            "bank_scalars": torch.stack([bank.tensors[name] for name in _SCALARS], dim=1).to(torch.int32).contiguous(),
        }

    @torch.inference_mode(False)
    def use(self, scenarios: MarketConfig | None, fresh: dict[str, torch.Tensor]) -> None:
        """Let episodes of this table begin from what `run` returned; if that is empty, from what there was."""
        self.owner, self.size = choose_owner(self._task, self._simulator.config, scenarios)
        if not fresh:
            return
        if self._bank and all(self._bank[name].shape == fresh[name].shape for name in fresh):
            for name, tensor in fresh.items():  # a captured CUDA graph keeps the bank's address
                self._bank[name].copy_(tensor)
        else:
            self._banks.append(fresh)
            self._bank = fresh
            self._simulator.engine.bind(fresh)

    @torch.inference_mode(False)
    def of_rows(self, rows: np.ndarray | slice, simulator: Simulator) -> WarmStarts:
        """Return the warm starts of these markets, int64 `[n]`, in tensors of their own, for others that go on."""
        made = WarmStarts(simulator, self._task, self._auctions)
        made.owner, made.size = self.owner, self.size
        if self._bank:
            index: Any = slice(None)
            if self.owner == EACH_MARKET and isinstance(rows, np.ndarray):
                places = rows[:, None] * self.size + np.arange(self.size)
                index = torch.from_numpy(places.ravel()).to(simulator.device)
            made._bank = {name: tensor[index].clone() for name, tensor in self._bank.items()}
            made._banks.append(made._bank)
            simulator.engine.bind(made._bank)
        return made
