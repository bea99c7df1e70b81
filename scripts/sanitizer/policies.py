"""Policies in the kernels: cases of `python -m scripts.sanitizer`.

Networks inside rollouts, of few markets with several lanes each and of many with one, and of call auctions; programs
that play the learner's slot, all of four, or opponents, with ladders and kept quotes; and steps of order records.
"""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import gymnasium as gym
import torch

import kineticsim_env as ks
from kineticsim_env import MarketConfig
from kineticsim_env.envs.copies import clone_of
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.records import joined
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.many_learners import slots_of
from scripts.sanitizer.auctions import follower, random_steps
from scripts.sanitizer.on_the_clock import LANES, clock_config, force_lanes

DEEP = {"max_order_qty": 3000, "cancel_prob": 0.0, "market_order_prob": 0.02}  # more than 16 bits, after some intervals
SMALL: dict[str, Any] = {"horizon": 4, "warmup": 5, "bank_size": 4}

# Networks -------------------------------------------------------------------------------------------------------------


def rollouts(
    config: MarketConfig,
    markets: int,
    lanes: int = 0,
    task: str = "MarketMaking",
    networks: int = 1,
    shape: dict[str, Any] | None = None,
    observations: torch.dtype = torch.bfloat16,
    **settings: Any,
) -> None:
    """Roll out networks over ends of episodes, twice with noise and once without; a step comes between."""
    common: dict[str, Any] = {"config": config, "output": "torch", "engine": "cuda", "copy": False, **SMALL}
    envs: Any = gym.make_vec(f"KineticSim/{task}-v0", num_envs=markets, **common | settings).unwrapped
    force_lanes(envs.simulator, lanes)
    envs.reset(seed=3)
    space, sizes = envs.single_action_space, envs.single_observation_space.shape
    choices = isinstance(space, gym.spaces.Discrete)
    sizes = *sizes, int(space.n) if choices else space.shape[0]
    made = [ks.NetworkPolicy.make(*sizes, categorical=choices, **(shape or {})) for _ in range(networks)]
    policy = [one.to(envs.device) for one in made]
    for steps, noise in ((5, True), (1, True), (6, False)):
        rollout = envs.rollout(policy, steps, observations=observations, noise=noise)
        if envs.autoreset_mode is not gym.vector.AutoresetMode.DISABLED:
            envs.step(rollout.action[-1] if choices else rollout.action[-1].clamp(-1.0, 1.0))
    envs.check_errors()
    envs.close()


# Programs -------------------------------------------------------------------------------------------------------------


ONE, FOUR = ("maker",), ("maker", "trader", "executor", "momentum")


@ks.policy(half_spread=2, skew=8, memory={"last": "mid2", "waited": 0})
def maker(market, slot, own, draw):
    """Quotes around the mid, keeps its orders now and then, and remembers."""
    own.waited += 1
    own.last += (market.mid2 - own.last) // 4
    if own.waited % 4 == 0:
        return ks.keep()
    low = (own.last >> 1) - own.half_spread - slot.inventory // own.skew
    return ks.quote(low, slot.max_qty, low + 2 * own.half_spread + draw.below(3), slot.max_qty)


@ks.policy(size=3)
def taker(market, slot, own, draw):
    """Trades at once, by each of the flags, or prices far beyond the grid."""
    if draw.chance(0.3):
        return ks.quote(draw.offset(5000, word=1), 9, market.best_bid, own.size, ks.OrderFlag.POST_ONLY)
    if slot.mid_change(0) + slot.volume(1) > 0:
        return ks.quote(market.best_ask, own.size, bid_flags=ks.OrderFlag.IMMEDIATE_OR_CANCEL)
    return ks.quote(ask_qty=own.size, ask_flags=ks.OrderFlag.MARKET)


@ks.policy(step=2)
def ladder(market, slot, own, draw):
    """Two levels on each side, of which the far ones stay."""
    low = (market.mid2 >> 1) - 1
    kept = ks.OrderFlag.KEEP if slot.bid_qty(1) and slot.ask_ahead(1) >= 0 else 0
    return ks.quotes(
        ks.quote(low, 2, low + 3, 2),
        ks.quote(low - own.step, 9, low + 3 + own.step, 9, bid_flags=kept, ask_flags=kept),
    )


def programs(config: MarketConfig, roles: tuple[str, ...], played: dict[int, Any], lanes: int = 0, **how: Any) -> None:
    """Step markets in which programs play some slots, and others by what they played; over the ends of episodes."""
    task = ManyLearnersTask(horizon=4, warmup=5, bank_size=4, block_qty=9, **how)
    made = [
        EnvCore(37, task, roles, slots_of(roles), EnvSettings(config, engine="cuda", auctions_per_step=2))
        for _ in range(2)
    ]
    for core in made:
        force_lanes(core.simulator, lanes)
        core.reset(seed=3)
    first, second = made
    first.set_slot_policies(played)
    whole = len(played) == len(roles)
    for _ in range(9):
        if whole:
            first.step()
        else:
            random_steps(first, 1)
        second.step_records(**joined(second, [("actions", slice(0, len(roles)), first.played, (37, len(roles)))]))
    if whole and not torch.equal(first.simulator.cash, second.simulator.cash):
        raise AssertionError("a step of what programs played is another step")
    for core in (clone_of(first), first, second):
        core.reset()
        core.close()


def program_opponents(markets: int, **settings: Any) -> None:
    """Step a maker beside three programs, as users do."""
    of_each = maker.replace(skew=list(range(3, 3 + markets)))  # parameters of each market
    opponents = {"maker": [of_each], "trader": [[taker], [taker.replace(size=5)]]}
    common: dict[str, Any] = {"opponents": opponents, "output": "torch", "engine": "cuda", **SMALL}
    envs: Any = gym.make_vec("KineticSim/MarketMaking-v0", num_envs=markets, **common | settings)
    envs.reset(seed=3)
    actions = torch.rand((markets, 4), device="cuda") * 2 - 1
    for _ in range(7):
        ended = torch.logical_or(*envs.step(actions)[2:4])
        if envs.unwrapped.autoreset_mode is gym.vector.AutoresetMode.DISABLED and bool(ended.any()):
            envs.reset(options={"reset_mask": ended})
    envs.close()


def cases() -> Iterator[partial[None]]:
    """All of it."""
    news, trading = MarketConfig.preset("news"), MarketConfig.preset("trading")
    trunk = {"trunk": True, "hidden": 128, "activation": "relu"}
    for lanes in LANES:
        for mode in ("SAME_STEP", "NEXT_STEP", "DISABLED"):
            yield partial(rollouts, news, 37, lanes, autoreset_mode=mode)
        yield partial(rollouts, news, 37, lanes, shape=trunk, action_type="discrete", observations=torch.float32)
        yield partial(rollouts, MarketConfig.preset("news", **DEEP), 37, lanes)
        yield partial(rollouts, news, 64, lanes, networks=2, task="Trading", auctions_per_step=2)
        yield partial(rollouts, news, 70, lanes, task="Execution", block_qty=90, forced_qty=4, stagger=True)
        yield partial(rollouts, news, 37, lanes, decide="fill")
        yield partial(rollouts, news, 70, lanes, at_end="unwind", stagger=True)
    yield partial(rollouts, news, (1 << 16) + 5)  # whole blocks of 16 warps, and a tail
    for mode, observations in (("SAME_STEP", torch.bfloat16), ("DISABLED", torch.float32)):
        yield partial(rollouts, trading, 37, autoreset_mode=mode, observations=observations)
    yield partial(rollouts, trading, 37, shape=trunk, action_type="discrete")
    yield partial(rollouts, trading, 9000)  # a lane per market
    yield partial(rollouts, clock_config("call", 64, True), 37, networks=1, task="Trading")
    yield partial(rollouts, news.replace(agents={follower: ks.mix(9, step=range(9))}), 37)
    continuous = clock_config("continuous", 64, True)
    laddered = clock_config("continuous", 64, False, orders_per_side=3)
    four = {0: maker, 1: taker, 2: maker.replace(half_spread=4), 3: taker}
    for config, lanes in ((trading, 0), (clock_config("call", 64, True), 0), *((continuous, lanes) for lanes in LANES)):
        yield partial(programs, config, ONE, {0: maker}, lanes)
        yield partial(programs, config, FOUR, four, lanes)
        yield partial(programs, config, FOUR, {1: taker, 3: maker}, lanes)
    for lanes, keep in product(LANES, (False, True)):
        yield partial(programs, laddered, ONE, {0: ladder}, lanes, keep=keep)
        yield partial(programs, laddered, FOUR, {0: ladder, 2: maker}, lanes, keep=keep, decide="fill")
    for preset, mode in product(("news", "trading"), ("SAME_STEP", "DISABLED")):
        yield partial(program_opponents, 37, preset=preset, autoreset_mode=mode)
    yield partial(program_opponents, 2200)  # a kernel of its own, of several lanes per market
