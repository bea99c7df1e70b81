"""Markets of a fitted order flow: cases of `python -m scripts.sanitizer`.

Runs, quotes, ladders and resets on grids of one chunk and of many, whose windows move, and environments over ends of
episodes; with the flow that ships, which jumps often here.
"""

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from kineticsim_env import MarketConfig, OrderFlow, Simulator
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.runtime import layout
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.traders import order_splitter
from scripts.sanitizer.auctions import random_steps


def flow_config(levels: int, **changes: Any) -> MarketConfig:
    """Return a market of a flow that jumps, whose grid moves with each step of the mid."""
    flow = dataclasses.replace(OrderFlow.preset("btcusd"), jump_hazard=2**28)
    return flow.config(**{"num_levels": levels, "window": 1, "beat": 7, "interval": 40, **changes})


def markets_of_a_flow(levels: int, slots: int, lanes: int = 0, **changes: Any) -> None:
    """Run, quote and reset 37 markets, by kernels of so many lanes per market, or as is planned."""
    simulator = Simulator(flow_config(levels, **changes), 37, engine="cuda", slots=slots)
    if lanes:
        engine: Any = simulator.engine  # the CUDA one
        engine.force = {"KS_LANES_PER_MARKET": lanes}
    for record in (layout.SERIES, (*layout.SERIES, *layout.FURTHER_SERIES)):
        simulator.run(3, record=record, reach=4)
    if slots:
        quotes = torch.tensor([levels // 2, 5, levels // 2 + 2, 5], dtype=torch.int32, device="cuda")
        simulator.rollout(quotes.expand(3, 37, slots, *simulator.sizes["N"], 4).contiguous(), auctions=2)
    simulator.specialise()
    simulator.reset(mask=torch.arange(37) % 2 == 0)
    simulator.run(2)
    simulator.check_errors()


def environments_of_a_flow(roles: tuple[str, ...], **changes: Any) -> None:
    """Step over the ends of episodes, from warm starts and without."""
    for bank_size in (0, 4):
        task = ManyLearnersTask(horizon=3, mark="liquidation", warmup=5, bank_size=bank_size, block_qty=9)
        settings = EnvSettings(flow_config(64, **changes), engine="cuda", auctions_per_step=2, account_info=True)
        core = EnvCore(37, task, roles, (None,) * len(roles), settings)
        core.reset(seed=3)
        random_steps(core, 7)
        core.close()


def cases() -> Iterator[partial[None]]:
    """All kernels of order flows."""
    for levels in (8, 64, 512):
        for slots in (0, 1, 3):
            yield partial(markets_of_a_flow, levels, slots)
    yield partial(markets_of_a_flow, 64, 2, orders_per_side=3, quote_latency=60)
    for lanes in (4, 8):  # as many markets have it
        yield partial(markets_of_a_flow, 64, 2, lanes)
        yield partial(markets_of_a_flow, 64, 1, lanes, agents={order_splitter: 3}, agent_prob=0.2)
    length = {"interval_ms": 300.0, "interval": None}
    yield partial(markets_of_a_flow, 64, 2, 4, quote_latency_ms=700.0, **length)
    yield partial(environments_of_a_flow, ("maker", "trader"), quote_latency_ms=30.0, **length)
    for roles in (("maker",), ("maker", "executor", "trader")):
        yield partial(environments_of_a_flow, roles)
        yield partial(environments_of_a_flow, roles, orders_per_side=2)
