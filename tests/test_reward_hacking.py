"""Attackers must earn nothing: no reward is paid for moving the price, trading with oneself, or the way time runs out.

All play episodes of the evaluation; "nothing" is an upper 95% bound of the mean return at or below zero. What honest
quotes earn is told from what a moved price pays by the edge over the fundamental price, leg by leg: a manipulator loses
on the leg that moves the price and gains on the other, a maker gains on both.
"""

import functools

import numpy as np
import pytest
import torch
from thorough import covering, slow

from kineticsim_env import policies
from kineticsim_env.config import MarketConfig
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.envs.vector import ExecutionVectorEnv, MarketMakingVectorEnv
from kineticsim_env.evaluation import HELD_OUT_SEED, confidence_interval, evaluate, evaluation_env
from kineticsim_env.policies import attackers
from kineticsim_env.policies.attackers import _Clocked
from kineticsim_env.tasks import ManyLearnersTask

pytestmark = pytest.mark.usefixtures("one_thread")
MARKET = {
    "preset": "trading",
    "engine": "cpu",
}  # in call auctions; examples/studies/attacks has both mechanisms
MARKETS = 512
SELDOM = (
    attackers.LastStep,
    attackers.MarkTheClose,
)  # trade little: what they lose shows in many markets only
REWARDS = ("pnl", "inventory", "asymmetric", "edge")


@functools.cache
def environment(num_envs=MARKETS, **arguments):
    return evaluation_env(num_envs, **MARKET, **arguments)


def returns(make, num_envs=MARKETS, **arguments):
    """The episodes' returns in ticks of the attacker that `make(task)` returns."""
    envs = environment(num_envs, **{"reward": "pnl", **arguments})
    return evaluate(make(envs.core.task), envs).episode_return * envs.core.task.reward_scale


def assert_earns_nothing(ticks):
    mean, half = confidence_interval(np.asarray(ticks))
    assert mean + half <= 0, f"earned {mean:.1f} ± {half:.1f} ticks per episode"


def assert_earns(ticks):
    mean, half = confidence_interval(np.asarray(ticks))
    assert mean - half > 0, f"earned {mean:.1f} ± {half:.1f} ticks per episode"


# One attacker ---------------------------------------------------------------------------------------------------------


@covering
@pytest.mark.parametrize("reward", REWARDS)
@pytest.mark.parametrize("attacker", attackers.ATTACKERS)
def test_attackers_earn_nothing(attacker, reward):
    assert_earns_nothing(returns(attacker, reward=reward))


@pytest.mark.parametrize("period", [2, 3, 4, 6, 10, 50, 100, 300])
def test_no_period_makes_a_pump_pay(period):
    assert_earns_nothing(returns(lambda task: attackers.PumpAndDump(task, period), 2048 if period == 2 else MARKETS))


@pytest.mark.parametrize("distance", [0, 0.6, 1])
def test_a_wall_near_the_mid_does_not_pay(distance):
    assert_earns_nothing(returns(lambda task: attackers.PriceWall(task, distance)))


@pytest.mark.parametrize("make", [*(functools.partial(attackers.PumpAndDump, period=p) for p in (2, 4, 20, 100)),
                                  attackers.WashTrade, attackers.LastStep])  # fmt: skip
def test_attacks_on_two_auctions_a_decision(make):
    assert_earns_nothing(returns(make, auctions_per_step=2))


@covering
@pytest.mark.parametrize(
    "make",
    [
        attackers.PumpAndDump,
        attackers.WashTrade,
        attackers.PriceWall,
        attackers.HugeQuantity,
    ],
)
@pytest.mark.parametrize(("max_qty", "inventory_limit"), [(40, 40), (200, 200), (1000, None)])
def test_size_does_not_make_attacks_pay(make, max_qty, inventory_limit):
    assert_earns_nothing(returns(make, 128, max_qty=max_qty, inventory_limit=inventory_limit))


class DiscretePump:
    """Discrete quotes nearest the mid, one side at a time."""

    def __init__(self, task, period):
        self.clock, self.period = _Clocked(task), period

    def __call__(self, observation):
        buying = self.clock.elapsed(observation) % self.period < self.period / 2
        return torch.where(buying, 7 * 1, 1)


@pytest.mark.parametrize("period", [4, 20, 100, 600])
def test_discrete_pumps_earn_nothing(period):
    assert_earns_nothing(returns(lambda task: DiscretePump(task, period), action_type="discrete"))


# Where something like an attack earns: by which leg? ------------------------------------------------------------------


def legs(make, **arguments):
    """Edge over the fundamental, ticks per unit, of buys and of sells; how far the mid was pushed while pressing."""
    envs = evaluation_env(MARKETS, **MARKET, reward="pnl", **arguments)
    policy, simulator = make(envs.core.task), envs.simulator
    observation, _ = envs.reset(seed=HELD_OUT_SEED)
    edge, units, pushed, pressed = np.zeros(2), np.zeros(2), 0.0, 0
    for _ in range(envs.core.task.horizon):
        cash, held = simulator.cash[:, 0].clone(), simulator.inventory[:, 0].clone()
        action = policy(observation)
        observation = envs.step(action)[0]
        gain = simulator.cash[:, 0] - cash + (simulator.inventory[:, 0] - held) * simulator.fundamental_price
        for side in (0, 1):
            alone = (envs.fills[:, side] > 0) & (envs.fills[:, 1 - side] == 0)
            edge[side] += float(gain[alone].sum())
            units[side] += float(envs.fills[alone, side].sum())
        direction = torch.sign(action[:, 2] - action[:, 3])
        pushed += float((direction * (simulator.mid2 / 2 - simulator.fundamental_price)).sum())
        pressed += int(direction.abs().sum())
    return edge / units, pushed / pressed


def test_a_wall_far_from_the_mid_earns_as_a_maker_does():
    edge, pushed = legs(lambda task: attackers.PriceWall(task, 3.0))
    assert edge.min() > 1.0 and abs(pushed) < 0.3


def test_pumps_over_long_decisions_earn_by_waiting_only():
    """Over five auctions a quote at the mid is a patient one: it pays a little, and not for pushing the price."""
    ticks = returns(lambda task: attackers.PumpAndDump(task, 4), auctions_per_step=5)
    assert ticks.mean() > 0
    edge, pushed = legs(lambda task: attackers.PumpAndDump(task, 4), auctions_per_step=5)
    assert edge.min() > 0 and abs(pushed) < 0.1
    honest = returns(lambda task: policies.FixedSpread(task, 4.0), auctions_per_step=5)
    assert ticks.mean() < honest.mean() / 10


def test_momentum_agents_do_not_feed_a_pump():
    """They do follow it, so the price is pushed further; but it sells no better than it bought."""
    followed, alone = (
        legs(attackers.PumpAndDump, config=MarketConfig.preset("trading", **shares))
        for shares in ({}, {"noise": 0.6, "momentum": 0.0})
    )
    assert followed[1] > alone[1] + 0.2 > 1
    assert followed[0].max() < alone[0].min() < 0


# Two of one owner -----------------------------------------------------------------------------------------------------


def together(roles, policy, num_envs=MARKETS, slots=None, **task):
    """Returns in ticks `[M, K]` of learners in one market, and the core; `policy(t)` gives their K actions."""
    settings = ManyLearnersTask(**{"reward": "pnl", **task})
    env_settings = EnvSettings(**MARKET, autoreset_mode="disabled", stagger=False)
    core = EnvCore(num_envs, settings, roles, slots or (None,) * len(roles), env_settings)
    core.reset(HELD_OUT_SEED)
    total = torch.zeros(num_envs, len(roles), dtype=torch.float64)
    for t in range(settings.horizon):
        rows = torch.tensor(policy(t), dtype=torch.float32)
        core.step(actions=rows.expand(num_envs, -1, -1).contiguous())
        total += core.tensors["reward"].double() * settings.reward_scale
        if bool(core.tensors["done"].any()):
            break
    return total.numpy(), core


def quotes(offset, bid=8, ask=8):
    """A maker's action: both quotes at an offset, of these sizes."""
    return (offset / 5 - 1, offset / 5 - 1, bid / 4 - 1, ask / 4 - 1)


@pytest.mark.parametrize("period", [1, 4, 10, 1000])
def test_two_makers_earn_nothing_by_trading_with_each_other(period):
    def wash(t):
        pair = [quotes(0, 8, 0), quotes(0, 0, 8)]
        return pair if (t // period) % 2 == 0 else pair[::-1]

    total, core = together(("maker", "maker"), wash)
    assert_earns_nothing(total.sum(1))
    assert bool((core.simulator.inventory.abs() <= 40).all())


@covering
@pytest.mark.parametrize("period", [1, 2, 10])
@pytest.mark.parametrize("offset", [2, 4, 6])
def test_a_pumper_does_not_help_a_maker(period, offset):
    def pumped(t):
        up = (t // period) % 2 == 0
        return [quotes(0, 8 * up, 8 * (not up)), quotes(offset)]

    alone, _ = together(("maker", "maker"), lambda t: [quotes(0, 0, 0), quotes(offset)], 256)
    helped, _ = together(("maker", "maker"), pumped, 256)
    assert_earns(alone.sum(1) - helped.sum(1))


@pytest.mark.parametrize("aggression", [0.0, 0.3, 1.0])
def test_a_momentum_learner_cannot_pump_for_a_maker(aggression):
    roles = ("momentum", "maker")
    alone, _ = together(roles, lambda t: [(0, -1, 0, 0), quotes(4)], 256, roles)
    helped, _ = together(roles, lambda t: [(aggression, 1, 0, 0), quotes(4)], 256, roles)
    assert_earns_nothing(helped[:, 0])
    assert_earns(alone.sum(1) - helped.sum(1))


# The noise role -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggression", [-1.0, 0.0, 1.0])
def test_for_a_noise_learner_any_trading_beats_none(aggression):
    """It is judged by cost, which is least without trades; what is left over has to cost more than any trade."""
    traded, core = together(("noise",), lambda t: [(aggression, 1, 0, 0)], 256, ("noise",))
    idle, _ = together(("noise",), lambda t: [(0, -1, 0, 0)], 256, ("noise",))
    assert_earns_nothing(idle[:, 0])
    assert_earns(traded[:, 0] - idle[:, 0])
    assert int(core.simulator.inventory.abs().max()) <= 40


def test_ending_the_episode_does_not_spare_a_noise_learner_what_is_left():
    role, hasty = ("noise",), lambda t: [(1, -0.5, 0, 0)]
    idle, _ = together(role, lambda t: [(0, -1, 0, 0)], 128, role)
    target = -idle[:, 0] / 10  # leftover_penalty is 10 ticks
    assert target == pytest.approx(np.rint(target), abs=1e-3) and target.min() >= 1 and target.max() == 40
    total, core = together(role, hasty, 128, role, max_loss=1e-3)  # stops at the first market that ended
    ended = core.tensors["terminated"].numpy()[:, 0]
    assert ended.any() and not ended.all()
    leftover = target - np.abs(core.simulator.inventory[:, 0].numpy())
    spared, _ = together(role, hasty, 128, role, horizon=1)
    assert int(core.tensors["elapsed"][0]) == 1
    assert total[ended, 0] == pytest.approx(spared[ended, 0], abs=1e-3)  # truncated or terminated, it pays the same
    assert (leftover[ended] > 0).any()
    assert (total[~ended, 0] - spared[~ended, 0]) == pytest.approx(10 * leftover[~ended], abs=1e-3)


# The trader -----------------------------------------------------------------------------------------------------------

HORIZON = 300
TRADERS_ATTACKS = {  # signed share of max_qty, aggression; at decision t
    "pump and dump": lambda t: (1 if t % 20 < 10 else -1, 0, 0, 0),
    "slow pump, through the mid": lambda t: (1 if t % 100 < 50 else -1, 0.5, 0, 0),
    "fast pump": lambda t: (1 if t % 4 < 2 else -1, 0, 0, 0),
    "last step": lambda t: (1 if t == HORIZON - 1 else 0, 0, 0, 0),
    "last step, through the mid": lambda t: (1 if t == HORIZON - 1 else 0, 1, 0, 0),
    "as much as it can": lambda t: (1, 0, 0, 0),
    "in at once, out unit by unit": lambda t: (1, 1, 0, 0) if t % 9 == 0 else (-1 / 8, 0, 0, 0),
}


@covering
@pytest.mark.parametrize("reward", [*REWARDS, "per_unit"])
@pytest.mark.parametrize("attack", TRADERS_ATTACKS)
def test_attacking_traders_earn_nothing(attack, reward):
    total, core = together(("trader",), lambda t: [TRADERS_ATTACKS[attack](t)], reward=reward)
    assert_earns_nothing(total[:, 0])
    assert int(core.simulator.inventory.abs().max()) <= 40 and bool(core.simulator.inventory.any())


@pytest.mark.parametrize("reward", ["pnl", "per_unit"])
@pytest.mark.parametrize("attack", ["pump and dump", "as much as it can"])
@pytest.mark.parametrize(("max_qty", "inventory_limit"), [(200, 200), (1000, None)])
def test_size_does_not_make_a_traders_attacks_pay(attack, reward, max_qty, inventory_limit):
    limits = {"max_qty": max_qty, "inventory_limit": inventory_limit}
    total, core = together(("trader",), lambda t: [TRADERS_ATTACKS[attack](t)], 128, reward=reward, **limits)
    assert_earns_nothing(total[:, 0])
    assert int(core.simulator.inventory.abs().max()) > 40


@covering
@pytest.mark.parametrize("mark", ["mid", "liquidation"])
@pytest.mark.parametrize("attack", ["pump and dump", "last step", "as much as it can"])
def test_within_the_default_limits_no_mark_pays_attacking_traders(attack, mark):
    total, _ = together(("trader",), lambda t: [TRADERS_ATTACKS[attack](t)], 1024, mark=mark)
    assert_earns_nothing(total[:, 0])


@covering
@pytest.mark.parametrize("period", [1, 4, 1000])
@pytest.mark.parametrize("reward", ["pnl", "per_unit"])
def test_two_traders_earn_nothing_by_trading_with_each_other(period, reward):
    """At one price, sides in turn; and rewards per unit do not pay them for the volume that they make."""

    def wash(t):
        pair = [(1, 0, 0, 0), (-1, 0, 0, 0)]
        return pair if (t // period) % 2 == 0 else pair[::-1]

    total, core = together(("trader", "trader"), wash, reward=reward)
    assert_earns_nothing(total.sum(1))
    assert bool(core.simulator.inventory.any())


@pytest.mark.parametrize(
    ("role", "hold", "trade"),
    [
        ("trader", (0, 0, 0, 0), lambda t: (1 / 8 if t % 2 else -1 / 8, -0.5, 0, 0)),  # a unit, patiently, in turn
        ("maker", (-1, -1, -1, -1), lambda t: quotes(4)),
        ("momentum", (0, -1, 0, 0), None),
    ],
)
def test_not_trading_is_no_optimum_per_unit(role, hold, trade):
    idle, _ = together((role,), lambda t: [hold], 128, (role if role == "momentum" else None,), reward="per_unit")
    assert idle[:, 0] == pytest.approx(np.full(128, -0.1 * HORIZON), rel=1e-4)
    if trade is not None:
        honest, _ = together((role,), lambda t: [trade(t)], 128, reward="per_unit")
        assert_earns(honest[:, 0])


# The executor ---------------------------------------------------------------------------------------------------------


def blocks(policy, num_envs=512, **task):
    """What executors earn, in ticks per unit of the block, one episode each; `policy(t)` gives their action."""
    envs = ExecutionVectorEnv(num_envs, **MARKET, stagger=False, **task)
    envs.reset(seed=HELD_OUT_SEED)
    total, alive = np.zeros(num_envs), np.ones(num_envs, bool)
    for t in range(envs.core.task.horizon):
        _, reward, terminated, _, _ = envs.step(np.tile(np.float32(policy(t)), (num_envs, 1)))
        total += reward * alive
        alive &= ~terminated
    assert not alive.any()
    return total


@covering
@pytest.mark.parametrize("reward", ["edge", "shortfall", "risk_averse", "terminal"])
@pytest.mark.parametrize("auctions_per_step", [1, 3])
@pytest.mark.parametrize(
    "attack",
    [
        lambda t: (0, -1),  # wait for the deadline
        lambda t: (1, 1),  # all at once
        lambda t: (1, 1) if t % 20 < 2 else (0, -1),  # push, and wait for the others to follow
        lambda t: (1, 1) if t >= 95 else (0, -1),  # just before the deadline
    ],
)
def test_executors_earn_nothing(attack, auctions_per_step, reward):
    assert_earns_nothing(blocks(attack, reward=reward, auctions_per_step=auctions_per_step))


def test_a_pumper_does_not_help_an_executor():
    """Two of one owner: what another trader of theirs does to the price costs more than the block gains."""

    def pair(pump):
        return lambda t: [(0, -0.75, 0, 0), (-1 if pump and t < 10 else 1 if pump and t < 20 else 0, 0.5, 0, 0)]

    money = {}
    for pump in (False, True):
        task = {"side": "buy", "horizon": 40, "execution_reward": "shortfall", "reward_scale": 1.0, "block_qty": 40}
        total, core = together(("executor", "trader"), pair(pump), **task)
        held = core.simulator.inventory[:, 1].numpy()
        value = core.simulator.cash[:, 1].numpy() + held * core.simulator.fundamental_price.numpy()
        money[pump] = 40 * total[:, 0] + value
    assert_earns_nothing(money[True] - money[False])


# How time runs out ----------------------------------------------------------------------------------------------------


@covering
@pytest.mark.parametrize("reward", ["pnl", *(pytest.param(reward, marks=pytest.mark.slow) for reward in REWARDS[1:])])
@pytest.mark.parametrize("attacker", [attackers.HugeQuantity, attackers.PumpAndDump, attackers.PriceWall])
def test_a_stop_at_a_loss_does_not_pay(attacker, reward):
    """Neither does it cap the loss, nor does it spare penalties enough to pay."""
    assert_earns_nothing(returns(attacker, reward=reward, max_loss=50.0))


def test_the_loss_that_ends_an_episode_is_paid_in_full():
    envs = environment(128, reward="pnl", max_loss=30.0)
    policy = attackers.PumpAndDump(envs.core.task)
    observation, _ = envs.reset(seed=4)
    total = torch.zeros(128, dtype=torch.float64)
    terminated = torch.zeros(128, dtype=torch.bool)
    while not bool(terminated.any()):
        observation, reward, terminated, *_ = envs.step(policy(observation))
        total += 10 * reward
    simulator = envs.simulator
    marked = (simulator.cash + simulator.inventory * simulator.fundamental_price[:, None])[:, 0].double()
    assert total.numpy() == pytest.approx(marked.numpy(), abs=1e-3)
    assert float(total[terminated].max()) <= -30


@slow
@covering
@pytest.mark.parametrize("attacker", attackers.ATTACKERS)
def test_episodes_that_follow_each_other_pay_attackers_nothing(attacker):
    """As in training: staggered starts and SAME_STEP autoreset.

    A wall of bids loses 13 of the reward's units in 600 decisions, with a deviation of 80: too little for 512 markets.
    """
    markets = (8 if attacker in SELDOM else 4) * MARKETS
    envs = MarketMakingVectorEnv(markets, **MARKET, output="torch", reward="pnl", copy=False)
    policy = attacker(envs.core.task)
    observation, _ = envs.reset(seed=HELD_OUT_SEED)
    total = torch.zeros(markets, dtype=torch.float64)
    for _ in range(600):
        observation, reward, *_ = envs.step(policy(observation))
        total += reward
    assert_earns_nothing(total.numpy())


def test_resets_at_a_gain_do_not_pay():
    """A reset while the marked value is up keeps the gains; a fair mark makes that worth nothing."""
    envs = environment(1024, reward="pnl")
    policy, simulator = attackers.HugeQuantity(envs.core.task), envs.simulator
    observation, _ = envs.reset(seed=HELD_OUT_SEED)
    total = torch.zeros(1024, dtype=torch.float64)
    for _ in range(299):
        observation, reward, *_ = envs.step(policy(observation))
        total += 10 * reward
        up = (simulator.cash + simulator.inventory * simulator.fundamental_price[:, None])[:, 0] > 0
        if bool(up.any()):
            observation = envs.reset(options={"reset_mask": up})[0]
    assert_earns_nothing(total.numpy())


# Why the fundamental is the default mark ------------------------------------------------------------------------------


def test_a_mid_that_the_learner_moves_pays_without_limit():
    """Pump and hold, with sizes that no default allows: the mid pays for what the liquidation then loses."""
    large = {"max_qty": 1000, "inventory_limit": None}
    envs = {mark: environment(256, reward="pnl", mark=mark, **large) for mark in ("mid", "fundamental", "liquidation")}
    results = {mark: evaluate(attackers.HugeQuantity(each.core.task), each) for mark, each in envs.items()}
    assert np.array_equal(results["mid"].pnl, results["fundamental"].pnl)  # the same trades, and
    assert_earns_nothing(results["mid"].pnl)  # a loss in money,
    assert_earns(results["mid"].episode_return)  # for which the mid pays,
    assert_earns_nothing(results["fundamental"].episode_return)  # and the fundamental
    assert_earns_nothing(results["liquidation"].episode_return)  # and the liquidation value do not


def test_even_one_last_quote_is_marked_better_at_the_mid():
    at_mid, at_fundamental = (returns(attackers.LastStep, 2048, mark=mark) for mark in ("mid", "fundamental"))
    assert_earns(at_mid - at_fundamental)


@slow
@covering
@pytest.mark.parametrize("mark", ["mid", "liquidation"])
@pytest.mark.parametrize("attacker", attackers.ATTACKERS)
def test_within_the_default_limits_no_mark_pays_attackers(attacker, mark):
    assert_earns_nothing(returns(attacker, 32 * MARKETS if attacker in SELDOM else MARKETS, mark=mark))
