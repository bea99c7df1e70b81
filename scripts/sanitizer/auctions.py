"""Call auctions where each agent comes once, custom functions and agents: cases of `python -m scripts.sanitizer`."""

from collections.abc import Iterator
from functools import partial
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
        account_info=mark == "liquidation",
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
        settings = EnvSettings(config, engine="cuda", auctions_per_step=2, account_info=levels != 128)
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
            account_info=True,
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


def cases() -> Iterator[partial[None]]:
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
    for how in ({}, {"arrivals": "clock", "beat": 9}, {"arrivals": "clock", "mechanism": "continuous"}):
        for slots in (0, 1, 3):
            yield partial(agents_of_users, slots, **how)
