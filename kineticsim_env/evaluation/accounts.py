"""Money at the end of an episode: inventory unwound through the market, blocks measured by the arrival price."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kineticsim_env.config import MAX_PRICE
from kineticsim_env.envs.base import BaseMarketEnv
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.errors import MarketError
from kineticsim_env.runtime.checks import check_tensor
from kineticsim_env.runtime.roles import SPECS, RoleSpec
from kineticsim_env.runtime.values import check_count, check_instance
from kineticsim_env.simulator import Simulator

_MAX_AUCTIONS = 10_000  # in which an inventory is to be unwound


def settle(
    core: EnvCore, slots: torch.Tensor, returns: torch.Tensor, simulator: Callable[[], Simulator]
) -> torch.Tensor:
    """Return the measure of slots whose episodes end, by their roles, float64 `[M, K]`; of others nothing is meant.

    Slots are bool `[M, K]`, their sums of rewards float64 `[M, K]`; `simulator` returns what is unwound: the core's, or
    a branch of it where the markets play on. Where events end decisions orders stand as long as under
    `decide="interval"`.
    """
    pnl = returns * core.task.reward_scale  # a noise learner is paid what its trades cost
    executors = _slots_of(core, lambda spec: spec.has_block)
    if bool(executors.any()):
        pnl = torch.where(executors, _improvement(core), pnl)
    profit = _slots_of(core, lambda spec: spec.for_profit)  # what others traded was asked of them
    if bool(profit.any()):
        unwound = simulator()
        pace = core.live_task.intervals
        liquidate(unwound, _MAX_AUCTIONS * pace, slots & profit, pace)
        opening = core.tensors["opening_value"].double() / 2000.0 if "opening_value" in core.tensors else 0.0
        pnl = torch.where(profit, unwound.money - opening, pnl)  # what initial inventories were worth, marked
    return pnl


def price_improvement(envs: BaseMarketEnv) -> torch.Tensor:
    """Return executors' price improvement after fees and the penalty for leftovers, ticks per unit, float64 `[M]`."""
    return _improvement(envs.core)[:, 0]


def _improvement(core: EnvCore) -> torch.Tensor:
    """Return what `price_improvement` does, as if all slots were executors, `[M, K]`."""
    simulator, block = core.simulator, core.setting("block_qty")
    inventory = simulator.inventory.double()
    money = simulator.money + inventory * core.tensors["arrival2"].view(-1, 1) / 2
    left = (block - inventory.abs()).clamp(min=0)  # more than the block may trade where orders wait to arrive
    return (money - core.setting("leftover_penalty") * left) / block


def _slots_of(core: EnvCore, chosen: Callable[[RoleSpec], bool]) -> torch.Tensor:
    """Return which learners' slots have a role that is chosen, bool `[K]`."""
    counted = [chosen(SPECS[role]) and slot < core.learners for slot, role in enumerate(core.roles)]
    return torch.tensor(counted, device=core.device)


def liquidate(
    simulator: Simulator, max_auctions: int = _MAX_AUCTIONS, slots: Any = None, pace: int = 1
) -> torch.Tensor:
    """Unwind every slot's inventory with marketable orders, at most `max_order_qty` units per auction.

    Under continuous trading, per `pace` intervals, or per as many as orders take to arrive; and an order is priced no
    further than the opposite side has the units for it, as what it did not find would stand at the grid's end, and be
    traded there. The simulator moves on, and its standing quotes are replaced; give it a `branch()` to keep the
    original.

    Args:
        simulator: With at least one slot.
        max_auctions: After how many auctions, or intervals, to give up.
        slots: bool `[M, K]`, those to unwind, while the others keep what they hold and have no quotes; None is all.
        pace: How many intervals an order stands. Where events end decisions an interval is one event: as many as that
            of the config had are like other environments.

    Returns:
        int64 `[M, K]`, the cash of each slot once it is flat; less fees it is `simulator.money`.

    Raises:
        MarketError: If inventory is left after `max_auctions`; says in how many slots.
    """
    check_instance("simulator", simulator, Simulator)
    max_auctions, pace = check_count("max_auctions", max_auctions, 0), check_count("pace", pace, 1)
    shape, device = simulator.inventory.shape, simulator.device
    if slots is None:
        slots = torch.ones(shape, dtype=torch.bool, device=device)
    fits = lambda given: given.shape == shape and given.device == device  # noqa: E731
    kept = ~check_tensor("slots", slots, f"bool {list(shape)} on {device}, None", fits, (torch.bool,))
    largest = simulator.parameter("max_order_qty")[:, None].long()
    submitted = torch.zeros((*shape, *simulator.sizes["N"], 4), dtype=torch.int32, device=device)
    quotes = submitted[:, :, 0] if simulator.sizes["N"] else submitted  # of ladders one level
    quotes[..., 0], quotes[..., 2] = MAX_PRICE, -MAX_PRICE
    arrive = pace * _decisions_to_arrive(simulator, pace)

    for auction in range(0, max_auctions, arrive):
        inventory = simulator.inventory.masked_fill(kept, 0)
        if not bool(inventory.any()):
            break
        quotes[..., 1] = torch.minimum((-inventory).clamp(min=0), largest)
        quotes[..., 3] = torch.minimum(inventory.clamp(min=0), largest)
        if simulator.config.is_continuous:
            _price_to_the_book(simulator, quotes)
        simulator.step(submitted, min(arrive, max_auctions - auction))
    simulator.check_errors()
    left = int(torch.count_nonzero(simulator.inventory.masked_fill(kept, 0)))
    if left:
        all_slots = int((~kept).sum())
        raise MarketError(f"{left} of {all_slots} slots still hold inventory after {max_auctions} auctions")
    return simulator.cash.clone()


def _decisions_to_arrive(simulator: Simulator, pace: int) -> int:
    """Return in how many decisions of `pace` intervals what one begins with has arrived in all markets."""
    if not simulator.config.quotes_may_wait:
        return 1
    timed = simulator.config.interval_ms is not None
    latency, interval = (
        simulator.parameter("quote_latency"),
        simulator.parameter("interval_us" if timed else "interval"),
    )
    return 1 + int((latency // interval).max()) // pace


def _price_to_the_book(simulator: Simulator, quotes: torch.Tensor) -> None:
    """Price quotes, in place, at the tick down to which their units rest; each slot as if it came alone."""
    origin, top = simulator.price_origin[:, None], simulator.config.num_levels - 1
    asks, bids = simulator.ask.long().cumsum(1), simulator.bid.long().flip(1).cumsum(1)
    for place, resting in ((0, asks), (2, bids)):
        there = resting[:, -1:]
        wanted = torch.minimum(quotes[..., place + 1].long(), there)
        ticks = torch.searchsorted(resting, wanted.clamp(min=1)).clamp(max=top)
        quotes[..., place] = origin + (ticks if place == 0 else top - ticks)
        quotes[..., place + 1] *= there > 0  # where nothing rests there is no quote
