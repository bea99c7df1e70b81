"""Two arms of one seed: equal bit for bit until the first order acts, and what is measured of them afterwards."""

import csv
import json
import sys

import gymnasium
import numpy as np
import pytest
import torch
from messages import mentions
from thorough import covering

import kineticsim_env as ks
from kineticsim_env import MarketConfig, Simulator, policies
from kineticsim_env.cli import main
from kineticsim_env.commands import impact
from kineticsim_env.counterfactuals import block_impact, counterfactual
from kineticsim_env.envs.counterfactual_episodes import env_counterfactual
from kineticsim_env.envs.vector import ExecutionVectorEnv, TradingVectorEnv
from kineticsim_env.evaluation import evaluation_env
from kineticsim_env.runtime.layout import SERIES
from kineticsim_env.statistics import Mean

ENGINES = ("numpy", "cpu")
CONFIGS = {
    "paper": MarketConfig.preset("paper", num_agents=40),
    "trading": MarketConfig.preset("trading"),
    "multinomial": MarketConfig.preset("trading", population="multinomial"),
    "per market": MarketConfig.preset("trading", noise_spread=[3, 6, 14, 20, 9]),
}
# Two makers that bid 1 unit at 63 and ask 1 at 65 in every auction, on a book of 8 at each: nothing trades by itself.
TINY = MarketConfig(noise=0, momentum=0, maker=1, num_agents=2, max_order_qty=1, tie="mid")


def schedule(decisions, markets, slots=1, seed=0, inactive=0):
    """Random quotes around the opening price; none in the first `inactive` decisions."""
    generator = np.random.default_rng(seed)
    quotes = np.zeros((decisions, markets, slots, 4), dtype=np.int32)
    quotes[..., 0] = 64 - generator.integers(-20, 10, quotes.shape[:3])
    quotes[..., 2] = 64 + generator.integers(-20, 10, quotes.shape[:3])
    quotes[..., 1::2] = generator.integers(0, 30, (*quotes.shape[:3], 2))
    quotes[:inactive, ..., 1::2] = 0
    return torch.from_numpy(quotes)


def assert_same_arms(one, two):
    for name in SERIES:
        assert torch.equal(one.series[name], two.series[name]), name


# Equality to the bit --------------------------------------------------------------------------------------------------


@covering
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("auctions", [1, 3])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_arms_are_equal_until_the_first_order(name, auctions, engine):
    orders = schedule(8, 5, slots=2, inactive=4)
    found = counterfactual(CONFIGS[name], orders, 5, auctions, 3, after=5, warmup=9, slots=2, engine=engine)
    for series, difference in found.difference.items():
        assert difference.shape == (5, 8 * auctions + 5) and difference.dtype == torch.int64
        assert not bool(difference[:, : 4 * auctions].any())
        with_agent, without_agent = found.with_agent.series[series], found.without_agent.series[series]
        assert torch.equal(difference, with_agent.long() - without_agent.long())
    first = found.first_difference()
    assert bool((first >= 4 * auctions).all()) and bool((first < 8 * auctions).any())
    assert not bool(found.difference["fundamental"].any())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CONFIGS)
def test_orders_of_no_quantity_change_nothing_ever(name, engine):
    orders = schedule(30, 5, inactive=30)
    found = counterfactual(CONFIGS[name], orders, 5, seed=3, after=10, engine=engine)
    assert_same_arms(found.with_agent, found.without_agent)
    assert found.first_difference().tolist() == [40] * 5
    for arm in (found.with_agent, found.without_agent):
        assert not any(bool(part.any()) for part in (arm.fills, arm.cash, arm.inventory, arm.fees))
    assert np.isnan(found.variance_ratio("volume")).sum() == 0 and not found.variance_ratio("volume").any()
    impact = block_impact(CONFIGS[name], block=0, num_markets=5, engine=engine, after=8)
    assert not impact.path.any() and np.isnan(impact.shortfall.mean)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("slots", [1, ("maker", None)])
def test_the_arm_without_the_agent_is_the_market_itself(slots, engine):
    config = CONFIGS["trading"]
    orders = schedule(10, 4, slots=1 if slots == 1 else 2)
    found = counterfactual(config, orders, 4, seed=7, warmup=5, slots=slots, engine=engine)
    alone = Simulator(config, 4, engine=engine, seed=7, slots=() if slots == 1 else ("maker",))
    alone.run(5)
    assert torch.equal(found.arrival, alone.mid2)
    for name, series in alone.run(10, SERIES).items():
        assert torch.equal(found.without_agent.series[name], series)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_arm_with_the_agent_is_what_the_simulator_plays(engine):
    orders = schedule(10, 4)
    found = counterfactual(CONFIGS["trading"], orders, 4, 2, seed=7, engine=engine)
    simulator = Simulator(CONFIGS["trading"], 4, engine=engine, seed=7, slots=1)
    played = simulator.rollout(orders, 2, SERIES)
    assert torch.equal(found.with_agent.fills, played.fills)
    for name, part in played.series.items():
        assert torch.equal(found.with_agent.series[name], part.transpose(0, 1).reshape(4, 20))
    assert torch.equal(found.with_agent.cash, simulator.cash)


def test_engines_give_the_same_arms():
    found = [counterfactual(CONFIGS["trading"], schedule(12, 5), 5, 2, 1, after=4, engine=name) for name in ENGINES]
    for one, two in zip(*((arms.with_agent, arms.without_agent) for arms in found), strict=True):
        assert_same_arms(one, two)
        assert all(torch.equal(a, b) for a, b in zip(one[1:], two[1:], strict=True))


@pytest.mark.gpu
def test_a_gpu_gives_the_same_arms():
    given = schedule(12, 5)
    host = counterfactual(CONFIGS["trading"], given, 5, 2, 1, after=4, engine="cpu")
    device = counterfactual(CONFIGS["trading"], given.cuda(), 5, 2, 1, after=4, engine="cuda")
    for name in SERIES:
        assert torch.equal(host.difference[name], device.difference[name].cpu())
    host, device = (block_impact(CONFIGS["trading"], num_markets=64, engine=name) for name in ("cpu", "cuda"))
    assert host.path.tolist() == device.path.tolist()


# Orders of every form -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_policy_is_the_schedule_that_it_gives(engine):
    given = []

    def orders(t, simulator):
        quotes = torch.zeros((4, 1, 4), dtype=torch.int32)
        quotes[:, 0, 0] = simulator.mid2 // 2 + 2
        quotes[:, 0, 1] = (4 * (t + 1) - simulator.inventory[:, 0]).clamp(min=0)
        given.append(quotes)
        return quotes

    policy = counterfactual(CONFIGS["trading"], orders, 4, 2, decisions=6, after=3, engine=engine)
    replayed = counterfactual(CONFIGS["trading"], torch.stack(given), 4, 2, after=3, engine=engine)
    assert len(given) == 6 and bool(policy.with_agent.fills.any())
    assert_same_arms(policy.with_agent, replayed.with_agent)
    assert torch.equal(policy.with_agent.fills, replayed.with_agent.fills)


def test_one_schedule_for_all_markets():
    one = schedule(6, 1)
    found = [counterfactual(CONFIGS["trading"], orders, 4, engine="numpy") for orders in (one, one.expand(6, 4, 1, 4))]
    assert_same_arms(found[0].with_agent, found[1].with_agent)
    lists = counterfactual(CONFIGS["trading"], one.tolist(), 4, engine="numpy")
    assert_same_arms(found[0].with_agent, lists.with_agent)


def test_no_decision_is_two_equal_arms():
    found = counterfactual(CONFIGS["trading"], schedule(0, 3), 3, after=4, engine="numpy")
    assert found.with_agent.fills.shape == (0, 3, 1, 2) and found.first_difference().tolist() == [4, 4, 4]
    nothing = counterfactual(None, lambda t, simulator: None, 2, decisions=0, engine="numpy")
    assert nothing.first_difference().tolist() == [0, 0]


# Money and units ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_fills_cash_and_inventory_agree(engine):
    config = CONFIGS["trading"].replace(fee=7)
    found = counterfactual(config, schedule(25, 5), 5, seed=1, engine=engine)
    arm = found.with_agent
    bought, sold = arm.fills[:, :, 0, 0].T, arm.fills[:, :, 0, 1].T  # [M, T]
    assert bool(bought.any()) and bool(sold.any())
    assert torch.equal(arm.inventory[:, 0], (bought - sold).sum(1))
    assert torch.equal(arm.cash[:, 0], ((sold - bought) * arm.series["last_price"]).sum(1))
    assert torch.equal(arm.fees[:, 0], 7 * (bought + sold).sum(1))
    assert bool((bought + sold <= 2 * arm.series["volume"]).all())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("side", "price"), [("buy", 65), ("sell", 63)])
def test_a_block_in_a_market_that_can_be_done_by_hand(side, price, engine):
    """20 units meet the 9 that rest on the other side; the mid is then the last price, and new quotes keep it there."""
    found = block_impact(TINY, side, block=20, per_auction=20, after=8, num_markets=3, warmup=0, engine=engine)
    assert found.arms.with_agent.series["last_price"][:, 0].tolist() == [price] * 3
    assert found.arms.with_agent.inventory[:, 0].tolist() == [9 if side == "buy" else -9] * 3
    assert bool((found.arms.without_agent.series["mid2"] == 128).all())
    assert not bool(found.arms.without_agent.series["volume"].any())
    assert found.duration == 1 and found.path.tolist() == [0.0] + [1.0] * 9
    assert (found.at_end.mean, found.permanent.mean, found.temporary.mean) == (1.0, 1.0, 0.0)
    assert (found.shortfall.mean, found.impact_cost.mean) == (1.0, 1.0)
    assert (found.filled.mean, found.participation.mean) == (9 / 20, 1.0)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_piece_does_not_fill_is_in_the_next(engine):
    """Of 20 and 20 units the book has 9; the second piece of 31 meets one new unit, one tick higher."""
    found = block_impact(TINY, "buy", block=40, per_auction=20, after=4, num_markets=2, warmup=0, engine=engine)
    assert found.arms.with_agent.fills[:, :, 0, 0].tolist() == [[9, 9], [1, 1]]
    assert found.arms.with_agent.series["last_price"][0, :2].tolist() == [65, 66]
    assert found.shortfall.mean == pytest.approx((9 * 1 + 1 * 2) / 10)


def test_reach_keeps_a_piece_from_going_further():
    near, far = (block_impact(TINY, block=5, per_auction=5, reach=n, num_markets=2, warmup=0, engine="numpy", after=2)
                 for n in (0, 1))  # fmt: skip
    assert near.filled.mean == 0 and far.filled.mean == 1 and near.at_end.mean == 0


def test_fees_are_in_the_shortfall():
    found = block_impact(TINY.replace(fee=500), block=5, per_auction=5, num_markets=2, warmup=0, engine="numpy")
    assert found.shortfall.mean == found.impact_cost.mean == 1.5
    assert found.duration == 1 and len(found.path) == 1 + 1 + 60  # before it, with it, and the default of `after`


# Statistics -----------------------------------------------------------------------------------------------------------


def test_pairing_takes_variance_off_and_leaves_the_mean():
    config, many = CONFIGS["trading"], 1024
    found = block_impact(config, block=40, per_auction=4, num_markets=many, engine="cpu", after=20)
    ratio = found.arms.variance_ratio()
    assert 0.02 < ratio[0] < 0.1 and 0.2 < found.variance_ratio == ratio[9] < 0.45
    assert found.arms.variance_ratio("fundamental").tolist() == [0.0] * 30
    other = block_impact(config, block=40, per_auction=4, num_markets=many, engine="cpu", after=20, seed=10**6)
    move = [arm.series["mid2"][:, 9].double() - arrival.double() for arm, arrival in (
        (found.arms.with_agent, found.arms.arrival), (other.arms.without_agent, other.arms.arrival))]  # fmt: skip
    unpaired = (move[0].mean() - move[1].mean()) / 2
    error = float(torch.sqrt((move[0].var() + move[1].var()) / 4 / many))
    assert abs(float(unpaired) - found.at_end.mean) < 4 * error
    assert found.at_end.error < 0.7 * error
    mean, half = found.arms.mean_difference("mid2")
    assert found.path[1:] == pytest.approx(mean / 2) and found.path_interval[1:] == pytest.approx(half / 2)


def test_figures_of_a_block():
    found = block_impact(CONFIGS["trading"], block=30, per_auction=4, num_markets=256, engine="cpu", after=40)
    assert found.duration == 8 and len(found.path) == 49 and found.path[0] == 0
    assert found.temporary.mean == pytest.approx(found.at_end.mean - found.permanent.mean)
    assert found.permanent.mean == pytest.approx(found.path[-10:].mean())
    assert found.at_end.mean > 3 * found.at_end.error and abs(found.permanent.mean) < 4 * found.permanent.error
    assert found.impact_cost.error < found.shortfall.error
    row = found.summary()
    assert row["side"] == "buy" and row["at_end_interval"] == found.at_end.interval() and "path" not in row


def test_one_market_has_means_without_intervals():
    found = block_impact(CONFIGS["trading"], block=8, num_markets=1, engine="numpy", after=4)
    assert np.isnan(found.path_interval).all() and np.isfinite(found.path).all()


def points_of(blocks, power, noise=0.05):
    generator = np.random.default_rng(1)
    base = block_impact(TINY, block=1, per_auction=1, num_markets=2, warmup=0, engine="numpy", after=4)
    shared = generator.normal(1, noise, 500)  # the same markets for every order
    points = []
    for block in blocks:
        values = 0.3 * block**power * (shared + generator.normal(0, noise, 500))
        mean = Mean(values.mean(), values.std(ddof=1) / 500**0.5, 500)
        points.append(impact.Point(base._replace(block=block, at_end=mean), values))
    return points


@pytest.mark.parametrize("power", [0.5, 1.0, 1.7])
def test_the_exponent_is_found_with_its_interval(power):
    fit = impact.fit_impact(points_of([1, 4, 10, 40], power))
    assert fit.low < power < fit.high and fit.high - fit.low < 0.02 and fit.used == 4
    assert fit.factor == pytest.approx(0.3, rel=0.05) and fit.exponent == pytest.approx(power, abs=0.01)


def test_what_has_no_exponent():
    assert impact.fit_impact(points_of([8, 8], 1.0)) is None
    points = points_of([1, 4, 10], 1.0)
    noisy = points[0]._replace(at_end=np.random.default_rng(3).normal(0, 5, 500))
    assert impact.fit_impact([noisy, *points[1:]]).used == 3
    assert impact.fit_impact([noisy, points[1]]) is None


# Environments ---------------------------------------------------------------------------------------------------------


def make_env(**arguments):
    return lambda: evaluation_env(16, **{"preset": "trading", "engine": "cpu", "horizon": 40, **arguments})


@pytest.mark.parametrize("arguments", [{}, {"action_type": "discrete"}, {"auctions_per_step": 3, "engine": "numpy"}])
def test_a_policy_that_does_nothing_changes_nothing(arguments):
    make = make_env(**arguments)
    task = make().core.task
    policy = policies.NoTrade(task)
    if arguments.get("action_type"):
        policy = policies.Discretised(policy, task, "maker")
    found = env_counterfactual(make, policy, seed=5)
    assert all(not difference.any() for difference in found.difference.values())
    assert found.with_agent["mid2"].shape == (16, 41) and found.with_agent["volume"][:, -1].min() > 0
    assert not found.fills.any() and not found.reward.any()


def test_what_a_maker_does_to_its_markets():
    make = make_env(reward="pnl")
    policy = policies.FixedSpread(make().core.task, 2.0)
    found = env_counterfactual(make, policy, seed=5, decisions=30)
    assert found.fills.shape == (16, 30, 2) and found.reward.shape == (16, 30)
    assert not found.difference["mid2"][:, 0].any() and not found.difference["fundamental"].any()
    assert found.difference["mid2"].any() and found.difference["volume"][:, -1].mean() > 0
    envs = make()
    now, _ = envs.reset(seed=5)
    for t in range(30):
        now, reward, *_ = envs.step(policy(now))
        assert found.reward[:, t].tolist() == reward.tolist()
        assert found.with_agent["mid2"][:, t + 1].tolist() == envs.simulator.mid2.tolist()
    mean, half = found.mean_difference("volume")
    assert mean[-1] == pytest.approx(found.difference["volume"][:, -1].mean()) and half[-1] > 0


def test_markets_whose_episode_ended_are_left_out():
    make = make_env(max_loss=30.0, horizon=100)
    found = env_counterfactual(make, policies.attackers.HugeQuantity(make().core.task), seed=5)
    lived = ~np.isnan(found.difference["mid2"])
    assert lived[:, 0].all() and not lived.all()
    assert (np.diff(lived.astype(int), axis=1) <= 0).all()  # once left out, for good
    assert (
        np.isnan(found.reward) == np.isnan(found.with_agent["mid2"][:, :-1] + found.with_agent["mid2"][:, 1:])
    ).all()
    assert not np.isnan(found.without_agent["mid2"]).any()


def test_an_arm_has_all_of_its_own_episode():
    """The idle learner's episodes end at the second decision; what the policy earned goes on to its own end."""

    def bored(before, after):
        return (after.elapsed >= 2) & (after.inventory == 0)

    make = make_env(terminate=bored, horizon=20)
    found = env_counterfactual(make, policies.FixedSpread(make().core.task, 2.0), seed=5)
    with_agent, without, difference = (
        ~np.isnan(one["mid2"]) for one in (found.with_agent, found.without_agent, found.difference)
    )
    assert without.sum(1).tolist() == [3] * 16 and with_agent.sum(1).max() > 3
    assert (difference == (with_agent & without)).all()
    for own in (found.reward, found.fills[..., 0], found.fills[..., 1]):
        assert (~np.isnan(own) == with_agent[:, 1:]).all()


def test_bars_are_shown_when_they_are_asked_for(capsys):
    """At once; None waits for two seconds, which these calls do not take."""
    make, orders = make_env(horizon=3), lambda t, simulator: torch.zeros((3, 1, 4), dtype=torch.int32)
    calls = {
        "both arms": lambda progress: env_counterfactual(make, policies.NoTrade(make().core.task), progress=progress),
        "with the agent": lambda progress: counterfactual(
            CONFIGS["paper"], orders, 3, decisions=2, engine="numpy", progress=progress
        ),
    }
    for name, call in calls.items():
        for progress, shown in ((True, True), (None, False), (False, False)):
            capsys.readouterr()
            call(progress)
            assert (name in capsys.readouterr().err) == shown


def make_task_env(kind, **arguments):
    fixed = {"output": "torch", "autoreset_mode": "DISABLED", "stagger": False, "engine": "cpu", "preset": "trading"}
    return lambda: kind(64, **{**fixed, **arguments})


@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
@pytest.mark.parametrize(
    ("kind", "idle"), [(ExecutionVectorEnv, policies.DoNothing), (TradingVectorEnv, policies.Hold)]
)
def test_idle_executors_and_traders_change_nothing(kind, idle, action_type):
    make = make_task_env(kind, horizon=30, action_type=action_type)
    policy = idle(make().core.task)
    if action_type == "discrete":
        policy = policies.Discretised(policy, make().core.task)
    found = env_counterfactual(make, policy, seed=5)
    assert all(not difference.any() for difference in found.difference.values())
    forced = kind is ExecutionVectorEnv  # at the deadline the engine executes the block, in both arms
    assert not found.fills[:, :-1].any() and bool(found.fills[:, -1].any()) == forced


@pytest.mark.parametrize(("side", "sign"), [("buy", 1), ("sell", -1)])
def test_what_an_executor_does_to_its_markets(side, sign):
    make = make_task_env(ExecutionVectorEnv, side=side, block_qty=240, horizon=60)
    found = env_counterfactual(make, policies.TimeWeighted(make().core.task), seed=5, decisions=55)
    mean, half = found.mean_difference("mid2")
    assert mean[0] == 0 and sign * mean[10:55].mean() / 2 > 1.0  # 4 units per decision, as in the study price_impact
    assert not np.nan_to_num(found.difference["fundamental"]).any()
    bought, sold = np.nansum(found.fills, axis=(0, 1))
    assert min(bought, sold) == 0 and (bought > 0) == (side == "buy")


# Errors ---------------------------------------------------------------------------------------------------------------

GOOD = {"config": None, "orders": schedule(2, 3), "num_markets": 3, "engine": "numpy"}


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"auctions": 0}, ValueError, "auctions: expected .*, got 0"),
        ({"after": -1}, ValueError, "after: .*got -1"),
        ({"warmup": 1.5}, TypeError, "warmup: expected .*, got 1.5"),
        ({"decisions": 3}, ValueError, "decisions: expected 2.*got 3"),
        ({"orders": lambda t, simulator: 0}, TypeError, "decisions: expected .*, got None"),
        (
            {"orders": lambda t, simulator: np.zeros((2, 1, 4), int), "decisions": 1},
            ValueError,
            r"orders: expected .*, got int64 \[2",
        ),
        (
            {"orders": schedule(2, 4)},
            ValueError,
            r"orders: expected int32 \[T, 3, 1, 4\].*got torch.int32 \[2, 4, 1, 4\] on cpu",
        ),
        ({"orders": schedule(2, 3).float()}, TypeError, "orders: expected .*, got torch.float32"),
        ({"orders": schedule(2, 3)[0]}, ValueError, r"orders: expected .*, got torch.int32 \[3, 1, 4\]"),
        ({"slots": 0}, ValueError, "orders: expected .*, got quotes, but this simulator has no slots"),
        ({"config": "paper"}, TypeError, "config: .*got 'paper'"),
        ({"engine": "gpu"}, ValueError, "engine: .*got 'gpu'"),
    ],
)
def test_wrong_arguments(changes, kind, said):
    with pytest.raises(kind, match=said) as caught:
        counterfactual(**{**GOOD, **changes})
    assert "quotes:" not in str(caught.value.__cause__)  # an argument that the call does not have


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"side": "long"}, ValueError, "side: expected one of 'buy', 'sell', got 'long'"),
        ({"block": -1}, ValueError, "block: .*got -1"),
        ({"block": 2**30 + 1}, ValueError, "block: expected .*, got 1073741825"),
        ({"per_auction": 0}, ValueError, "per_auction: expected .*, got 0"),
        ({"after": 0}, ValueError, "after: .*got 0"),
        ({"reach": -1}, ValueError, "reach: .*got -1"),
        ({"config": MarketConfig(inventory_limit=10)}, ValueError, "block: expected up to 10.*got 40"),
        ({"config": MarketConfig(max_quote_qty=3)}, ValueError, "per_auction: expected up to 3.*got 4"),
    ],
)
def test_wrong_blocks(changes, kind, said):
    with pytest.raises(kind, match=said):
        block_impact(**{"num_markets": 2, "engine": "numpy", **changes})


def test_wrong_names_and_environments():
    found = counterfactual(**GOOD)
    with pytest.raises(ValueError, match="name: expected .*got 'mid'"):
        found.variance_ratio("mid")
    make = make_env()
    policy = policies.NoTrade(make().core.task)
    with pytest.raises(ValueError, match="decisions: expected up to the horizon, 40, got 41"):
        env_counterfactual(make, policy, decisions=41)
    envs = gymnasium.make_vec("KineticSim/MarketMaking-v0", num_envs=2, engine="cpu")
    with pytest.raises(ValueError, match="expected one with torch output, autoreset DISABLED"):
        env_counterfactual(lambda: envs, policy)


def test_it_is_where_one_looks_for_it():
    assert ks.counterfactual is counterfactual and ks.block_impact is block_impact
    assert ks.env_counterfactual is env_counterfactual


# Command and study ----------------------------------------------------------------------------------------------------

SMALL = ["impact", "--blocks", "4", "8", "--markets", "8", "--after", "6", "--warmup", "5", "--engine", "numpy"]


def test_command(tmp_path, capsys):
    path = tmp_path / "impact.json"
    assert main([*SMALL, "--side", "sell", "--seed", "3", "--set", "num_agents=31", "--output", str(path)]) == 0
    out = capsys.readouterr().out
    assert "8 markets with and without a sell order, 4 units per auction" in out and str(path) in out
    saved = json.loads(path.read_text())
    config = MarketConfig.preset("trading", num_agents=31)
    for row, block in zip(saved["orders"], (4, 8), strict=True):
        found = block_impact(config, "sell", block, 4, 6, num_markets=8, seed=3, warmup=5, engine="numpy")
        assert row["block"] == block and row["path"] == pytest.approx(found.path.tolist(), abs=1e-6)
        assert row["shortfall"] == pytest.approx(found.shortfall.mean)
    assert saved["setting"]["preset"] == "trading" and saved["setting"]["seed"] == 3


def test_command_with_a_table_and_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    table, picture = tmp_path / "impact.csv", tmp_path / "impact.png"
    assert main([*SMALL, "--output", str(table), "--plot", str(picture)]) == 0
    rows = list(csv.DictReader(table.open()))
    assert len(rows) == (1 + 1 + 6) + (1 + 2 + 6) and rows[0]["impact"] == "0" and rows[-1]["block"] == "8"
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--preset", "other"], "preset: expected .*, got 'other'"),
        (["--blocks", "4", "0"], "--blocks: expected .*, got 0"),
        (["--per-auction", "0"], "--per-auction: expected .*, got 0"),
        (["--side", "long"], "--side: expected .*, got 'long'"),
        (["--after", "0"], "--after: expected .*, got 0"),
        (["--output", "impact.txt"], "--output: expected .*, got 'impact.txt'"),
        (["--output", "/no/such/folder/impact.json"], "--output: expected .*, got '/no/such/folder/impact.json'"),
        (["--set", "inventory_limit=5"], "--blocks: expected up to 5.*got 8"),
        (["--markets", "0"], "--markets: .*got 0"),
    ],
)
def test_wrong_input_is_one_line(words, said, capsys):
    assert main([*SMALL, *words]) == 2
    streams = capsys.readouterr()
    lines = [line for line in streams.err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and mentions(lines[0], said) and "Traceback" not in streams.err and not streams.out


def test_a_missing_matplotlib_is_said_before_the_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([*SMALL, "--plot", str(tmp_path / "impact.png")]) == 2
    assert "pip install matplotlib" in capsys.readouterr().err
