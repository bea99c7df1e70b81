"""A small run of every kernel variant, for `make sanitize` to watch with compute-sanitizer on a CUDA GPU.

Any number of order bins, windows of one chunk and of many, books that overflow, kernels of their own, all options,
slots at one tick, window shifts, environment steps of every role across episode ends and resets, in sizes
that leave part of the last block without a market.
On the clock: call auctions by warps and continuous trading by a lane or more per market, with beats in
intervals, levers and regimes, environments, and markets whose quantities leave 16 bits on the way.

Most of the time goes to compiling some 130 kernels: let several processes share the cases, after a run without
sanitizer that has filled their cache.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, cast

import gymnasium as gym
import torch

import kineticsim_env as ks
from kineticsim_env import MarketConfig, MarketError, Simulator
from kineticsim_env.engines import variants
from kineticsim_env.engines.cuda import CudaEngine
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.roles import action_length
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.base import ROLES
from kineticsim_env.tasks.many_learners import slots_of


def markets(levels: int, spread: int, options: bool, bins: int | None = None) -> None:
    """Run, quote and reset seven markets, on a kernel with that many bins, or on one of their own."""
    changes: dict[str, Any] = {"num_levels": levels, "init_price": levels // 2, "num_agents": 170}
    changes |= {"noise_spread": spread, "maker_half_spread": 1, "window": min(8, levels // 2 - 1)}
    config = MarketConfig.preset("trading", **changes) if options else MarketConfig(**changes).replace(window=0)
    for slots in (0, 3):
        simulator = Simulator(config, 7, engine="cuda", slots=slots)
        if bins is None:
            simulator.specialise()
        else:
            cast(CudaEngine, simulator.engine).force = {"KS_BINS": bins}
        for record in (layout.SERIES, layout.FURTHER_SERIES):
            simulator.run(5, record=record)
        if slots:
            quotes = torch.tensor([levels // 2 + 1, 5, levels // 2 + 3, 5], dtype=torch.int32, device="cuda")
            simulator.rollout(quotes.expand(3, 7, slots, 4).contiguous(), auctions=2)
        simulator.reset()
        simulator.run(2)
        simulator.check_errors()


def full(bins: int) -> None:
    """Run markets of which some overflow."""
    config = MarketConfig(num_levels=64, init_price=32, init_depth=0, num_agents=40, market_order_prob=0.0)
    simulator = Simulator(config, 7, engine="cuda")
    cast(CudaEngine, simulator.engine).force = {"KS_BINS": bins}
    simulator.bid[:4, 3] = 2**31 - 100
    simulator.run(8)
    overflowed(simulator)


def overflowed(simulator: Simulator) -> None:
    """Raise unless a market has overflowed."""
    try:
        simulator.check_errors()
    except MarketError:
        return
    raise AssertionError("no market overflowed")


def random_steps(core: EnvCore, steps: int) -> None:
    """Step with random actions of all learners."""
    shape = (core.simulator.num_markets, len(core.roles), action_length(core.task.keep, core.task.orders_per_side))
    for _ in range(steps):
        core.step(actions=torch.rand(shape, device=core.device) * 2 - 1)


def environment(mark: str, levels: int) -> None:
    """Step one learner of each role over the ends of episodes, blocks forced through, and new scenarios."""
    task = ManyLearnersTask(horizon=3, mark=mark, warmup=5, bank_size=4, block_qty=9)
    config = MarketConfig.preset("trading", num_levels=levels, init_price=levels // 2)
    settings = EnvSettings(
        config,
        engine="cuda",
        auctions_per_step=2,
        randomise={"noise_spread": (2, 14), "fee": {"values": [0, 9]}},
        num_scenarios=3,
        final_info=mark == "liquidation",
    )
    core = EnvCore(5, task, ROLES, slots_of(ROLES), settings)
    core.reset(seed=3)
    random_steps(core, 5)
    core.live_task.set_scenarios({"noise_spread": (14, 40)})
    random_steps(core, 1)
    core.close()


def environments_on_lanes(levels: int, **changes: Any) -> None:
    """Step environments that have a lane each, over the ends of some episodes; the last warp has a few only."""
    task = ManyLearnersTask(horizon=12, mark="liquidation", warmup=5, bank_size=4, block_qty=9)
    changes |= {"num_levels": levels, "init_price": levels // 2, "window": 3}
    for role in ROLES:
        config = MarketConfig.preset("trading", **changes)
        settings = EnvSettings(config, engine="cuda", auctions_per_step=2, final_info=levels != 128)
        core = EnvCore(70, task, [role], slots_of((role,)), settings)
        engine = cast(CudaEngine, core.simulator.engine)
        engine.force = {"KS_LANES": 2 * engine._reach + 2, "KS_BINS": 0}
        core.reset(seed=3)
        random_steps(core, 5)
        core.close()


def steps_and_copies(markets: int) -> None:
    """Step as users do, with results copied by the kernel for it; and let the GPU choose a variant, as without C++."""
    settings: dict[str, Any] = {"preset": "trading", "horizon": 3, "warmup": 5, "bank_size": 4}
    envs: Any = gym.make_vec("KineticSim/Trading-v0", num_envs=markets, engine="cuda", output="torch", **settings)
    envs.reset(seed=3)
    actions = torch.rand((markets, 2), device="cuda") * 2 - 1
    for _ in range(5):
        envs.step(actions)
    envs.close()
    request = variants.Request(
        markets=markets, levels=128, slots=1, reach=3, agents=9, lanes=-1, shared_of_block=1 << 17
    )
    request.multiprocessors, request.shared_of_multiprocessor = 132, 1 << 17
    assert variants.plan_on_device(request, torch.device("cuda")).fits


def steps_with_own_functions(markets: int, **arguments: Any) -> None:
    """Step with a reward, a feature and ends of episodes of a user's, in each mode; under SAME_STEP with restarts."""
    for mode in ("SAME_STEP", "NEXT_STEP"):
        envs: Any = gym.make_vec(
            "KineticSim/MarketMaking-v0",
            num_envs=markets,
            engine="cuda",
            output="torch",
            autoreset_mode=mode,
            horizon=3,
            warmup=5,
            bank_size=4,
            final_info=True,
            reward=lambda before, after: after.value - before.value,
            features=[lambda after: after.bid.sum(1).double()],
            terminate=lambda before, after: after.inventory.abs() > 4,
            **arguments,
        )
        envs.reset(seed=3)
        actions = torch.rand((markets, 4), device="cuda") * 2 - 1
        for _ in range(5):
            envs.step(actions)
        envs.close()


# Agents that users add ------------------------------------------------------------------------------------------------


@ks.agent(step=3, largest_order=9, memory={"average": "mid2", "depths": 0})
def follower(market, own, draw):
    """Remembers, looks at the book, and prices beyond the grid now and then."""
    own.average += (market.mid2 - own.average) // own.step
    own.depths += market.best_bid_qty
    price = market.near_mid(draw.offset(200, word=1)) if own.depths & 1 else market.best_ask
    return ks.order(market.mid2 - own.average + draw.offset(1), price, 1 + draw.below(9), draw.chance(0.2))


def agents_of_users(slots: int, **changes: Any) -> None:
    """Run and reset markets with agents of a user's, and step environments over the ends of their episodes."""
    agents = {follower: ks.mix(70, step=range(70))}
    config = MarketConfig.preset("trading", window=8, agents=agents, **changes)
    simulator = Simulator(config, 37, engine="cuda", slots=slots)
    simulator.run(5)
    simulator.reset()
    simulator.run(2)
    simulator.specialise()
    simulator.run(2)
    simulator.check_errors()
    if not slots:
        return
    task = ManyLearnersTask(horizon=3, warmup=5, bank_size=4)
    roles = ("trader",) * slots
    core = EnvCore(37, task, roles, slots_of(roles), EnvSettings(config, engine="cuda", auctions_per_step=2))
    core.reset(seed=3)
    random_steps(core, 7)
    core.close()


# On the clock ---------------------------------------------------------------------------------------------------------

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
    how: dict[str, Any] = {"randomise": randomise, "num_scenarios": 8, "final_info": len(roles) > 1}
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
    """Step 100 markets with so many lanes, whose blocks come to their deadlines at different times, by whole warps."""
    task = ManyLearnersTask(horizon=8, warmup=5, bank_size=4, block_qty=90, forced_qty=4)
    settings = EnvSettings(clock_config("continuous", 64, len(roles) > 1), engine="cuda", stagger=True)
    core = EnvCore(100, task, roles, slots_of(roles), settings)
    force_lanes(core.simulator, lanes)
    core.reset(seed=3)
    random_steps(core, 12)
    core.close()


def cases() -> Iterator[Callable[[], None]]:
    """All of it, in pieces that do not need each other."""
    for bins, spread in ((0, 60), (16, 3), (32, 7), (64, 15), (128, 31)):
        for options in (False, True):
            yield partial(markets, 128, spread, options, bins)
    yield partial(markets, 8, 2, True, 16)
    yield partial(markets, 2048, 100, True, 0)
    yield partial(markets, 64, 3, True)
    for bins in (0, 16):
        yield partial(full, bins)
    yield partial(environment, "fundamental", 128)
    yield partial(environment, "liquidation", 512)
    yield partial(environments_on_lanes, 128)
    yield partial(environments_on_lanes, 8, noise_spread=2)
    yield partial(environments_on_lanes, 128, agents={follower: ks.mix(9, step=range(9))})
    yield partial(environments_on_lanes, 256, max_order_qty=4000)  # numbers that do not fit in 16 bits
    yield partial(steps_and_copies, 33)
    yield partial(steps_with_own_functions, 33, preset="trading")
    yield partial(steps_with_own_functions, 5, config=clock_config("continuous", 64, False))
    for how in ({}, {"arrivals": "clock", "beat": 9}, {"arrivals": "clock", "mechanism": "continuous"}):
        for slots in (0, 1, 3):
            yield partial(agents_of_users, slots, **how)
    yield from cases_on_the_clock()


def cases_on_the_clock() -> Iterator[Callable[[], None]]:
    """All kernels of markets on the clock."""
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


def main() -> None:
    """Play all cases, or the share of them that one of several processes has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", default="0/1", help="I/N: every Nth case, from number I on (default: all of them)")
    first, step = (int(word) for word in parser.parse_args().share.split("/"))
    for case in list(cases())[first::step]:
        case()
    torch.cuda.synchronize()
    print("the workload is done")


if __name__ == "__main__":
    main()
