"""Call auctions by warps and continuous trading by a lane or more per market: cases of `python -m scripts.sanitizer`.

With beats in intervals, levers and regimes, environments, and markets whose quantities leave 16 bits on the way.
"""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any, cast

import torch

from kineticsim_env import MarketConfig, Simulator
from kineticsim_env.engines.cuda import CudaEngine
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.runtime import layout
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.base import ROLES
from kineticsim_env.tasks.many_learners import slots_of
from scripts.sanitizer.auctions import overflowed, random_steps, steps_with_own_functions

LANES = (1, 8, 32)  # of a market under continuous trading, as cuda/model/plan.h chooses


def clock_config(mechanism: str, levels: int, levers: bool, **changes: Any) -> MarketConfig:
    """Return a market on the clock, with beats inside intervals and, with levers, regimes too."""
    fields: dict[str, Any] = {
        "arrivals": "clock",
        "mechanism": mechanism,
        "num_levels": levels,
        "init_price": levels // 2,
        "num_agents": 40,
        "interval": 40,
        "beat": 9,
        "window": min(8, levels // 2 - 1),
        "noise_spread": levels // 2,
    }
    if levers:
        fields |= {"tick_size": 2, "collar": 5, "tax": 1, "taker_offset": 2}
        fields |= {"regimes": [{}, {"max_order_qty": 90, "cancel_prob": 0.1}], "regime_switch_prob": 0.5}
    if mechanism == "continuous":
        fields |= {"quote_latency": 15, "taker_fee": 5}
    return MarketConfig.preset("trading", **fields | changes)


def force_lanes(simulator: Simulator, lanes: int) -> None:
    """Have markets under continuous trading so many lanes each: the plan would give few markets 32."""
    if lanes:
        cast(CudaEngine, simulator.engine).force = {"KS_LANES_PER_MARKET": lanes}


def markets_on_the_clock(mechanism: str, levels: int, levers: bool, slots: int, lanes: int = 0, **changes: Any) -> None:
    """Run, quote, change parameters and reset 37 markets: the last warp of lanes has a few only."""
    simulator = Simulator(clock_config(mechanism, levels, levers, **changes), 37, engine="cuda", slots=slots)
    force_lanes(simulator, lanes)
    if levels > 128:
        simulator.specialise()
    for record in (layout.SERIES, (*layout.SERIES, *layout.FURTHER_SERIES)):
        simulator.run(3, record=record, reach=4)
    if slots:
        quotes = torch.tensor([levels // 2, 5, levels // 2 + 2, 5], dtype=torch.int32, device="cuda")
        simulator.rollout(quotes.expand(2, 37, slots, *simulator.sizes["N"], 4).contiguous(), auctions=2)
        if mechanism == "continuous":
            ladder = simulator.config.orders_per_side
            orders = torch.zeros((16, 37, slots, ladder, 2, 3), dtype=torch.int32, device="cuda")
            orders[..., :2] = quotes.view(2, 2)
            orders[..., 2] = torch.arange(16, device="cuda").view(16, 1, 1, 1, 1)
            simulator.rollout(orders, auctions=2)
    simulator.set_parameters(cancel_prob=0.2)
    simulator.reset()
    simulator.run(2)
    simulator.check_errors()


def too_large_for_rows(slots: int, lanes: int) -> None:
    """Run markets of which some leave 16 bits in the middle of a run, and some begin beyond it or overflow."""
    config = clock_config("continuous", 64, False, max_order_qty=100, cancel_prob=0.0, market_order_prob=0.0)
    simulator = Simulator(config, 37, engine="cuda", slots=slots)
    force_lanes(simulator, lanes)
    simulator.bid[::5, 0], simulator.ask[9, 63] = 2**15 - 5000, 2**20  # an interval's orders are 4000 at most
    simulator.bid[20, 0] = 2**31 - 100
    simulator.run(20)
    overflowed(simulator)


def environments_on_the_clock(
    mechanism: str,
    roles: tuple[str, ...],
    sizes: list[int],
    lanes: int = 0,
    keep: bool = False,
    decide: str = "interval",
    **changes: Any,
) -> None:
    """Step and reset, over the ends of episodes, from warm starts; scenarios, with sizes of orders, are drawn anew."""
    how_to_act: dict[str, Any] = {"keep": keep, "decide": decide}
    task = ManyLearnersTask(horizon=3, mark="liquidation", warmup=5, bank_size=4, block_qty=9, **how_to_act)
    config = clock_config(mechanism, 64, len(roles) > 1, **changes)
    randomise = {"noise_spread": (2, 14), "fee": {"values": [0, 9]}, "max_order_qty": {"values": sizes}}
    how: dict[str, Any] = {"randomise": randomise, "num_scenarios": 8, "account_info": len(roles) > 1}
    settings = EnvSettings(config, engine="cuda", auctions_per_step=2, **how)
    core = EnvCore(37, task, roles, slots_of(roles), settings)
    force_lanes(core.simulator, lanes)
    core.reset(seed=3)
    random_steps(core, 7)
    core.live_task.set_scenarios({"noise_spread": (14, 20)})
    random_steps(core, 1)
    core.reset()
    core.close()


def late_markets(roles: tuple[str, ...], lanes: int) -> None:
    """Step 100 markets with so many lanes, whose blocks and horizons come at different times, by whole warps."""
    task = ManyLearnersTask(horizon=8, warmup=5, bank_size=4, block_qty=90, forced_qty=4, at_end="unwind")
    settings = EnvSettings(clock_config("continuous", 64, len(roles) > 1), engine="cuda", stagger=True)
    core = EnvCore(100, task, roles, slots_of(roles), settings)
    force_lanes(core.simulator, lanes)
    core.reset(seed=3)
    random_steps(core, 12)
    core.close()


def cases() -> Iterator[partial[None]]:
    """All kernels of markets on the clock."""
    yield partial(steps_with_own_functions, 5, config=clock_config("continuous", 64, False))
    for mechanism, lanes in (("call", 0), *(("continuous", lanes) for lanes in LANES)):
        for slots in (0, 1, 3):
            yield partial(markets_on_the_clock, mechanism, 128, slots == 1, slots, lanes)
            yield partial(markets_on_the_clock, mechanism, 128, slots != 1, slots, lanes, rounding="even")
        for levels in (8, 512):
            yield partial(markets_on_the_clock, mechanism, levels, False, 1, lanes)
        for slots in (1, 4) if mechanism == "continuous" else ():
            yield partial(markets_on_the_clock, mechanism, 128, True, slots, lanes, orders_per_side=8)
        for roles in ((ROLES[0],), ROLES):
            yield partial(environments_on_the_clock, mechanism, roles, [4, 12], lanes)
            if mechanism == "continuous":
                yield partial(environments_on_the_clock, mechanism, roles, [4, 12], lanes, keep=True)
                for decide in ("fill", "touch"):
                    yield partial(environments_on_the_clock, mechanism, roles, [4, 12], lanes, decide=decide)
                for keep in (False, True):
                    shape: dict[str, Any] = {
                        "orders_per_side": 3,
                        "keep": keep,
                        "decide": "fill" if keep else "interval",
                    }
                    yield partial(environments_on_the_clock, mechanism, roles, [4, 12], lanes, **shape)
    for beat, spread in ((300, 3), (9, 3), (300, 7), (300, 15), (9, 31)):  # bins of every number
        shape = {"interval": 150, "beat": beat, "noise_spread": spread, "rounding": "even"}
        yield partial(markets_on_the_clock, "call", 128, False, 1, **shape)
    for roles, lanes in ((("executor",), 1), (ROLES, 1), (("executor",), 8)):
        yield partial(late_markets, roles, lanes)
    for slots, lanes in product((0, 1, 3), LANES):
        yield partial(too_large_for_rows, slots, lanes)
    for roles, lanes in product(
        ((ROLES[0],), ROLES), LANES
    ):  # some leave 16 bits before a step, some with a warm start's book
        yield partial(environments_on_the_clock, "continuous", roles, [2, 390, 6000], lanes, cancel_prob=0.0)
