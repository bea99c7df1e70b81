"""Evaluation: liquidated money by hand, flat in the end, seeds apart, early ends kept, grids and tables."""

import math

import numpy as np
import pytest
import torch

import kineticsim_env as ks
from kineticsim_env import policies
from kineticsim_env.envs.vector import MarketMakingVectorEnv
from kineticsim_env.errors import MarketError
from kineticsim_env.evaluation import (
    HELD_OUT_SEED,
    HELD_OUT_WARM_SEED,
    Evaluation,
    confidence_interval,
    evaluate,
    evaluation_env,
    format_table,
    grid_search,
    liquidate,
)
from kineticsim_env.tasks import MarketMakingTask


def unit(action, column, top):
    """A component of an action in whole units, rounded as the environment rounds."""
    return np.rint((action[:, column] + 1) * np.float32(0.5) * top)


def by_hand(policy, envs, seed, last=None):
    """Play `envs`'s episode in a plain `Simulator` with quotes computed here; money after unwinding, in ticks.

    `last` says for each market after which decision to unwind; None is the horizon.
    """
    task = envs.core.task
    now, _ = envs.reset(seed=seed)
    simulator = envs.simulator.branch()
    held, paid = [], []
    for _ in range(task.horizon):
        action = policy(now).numpy()
        mid2 = simulator.mid2.numpy()
        bid, ask = mid2 // 2 - unit(action, 0, task.max_offset), (mid2 + 1) // 2 + unit(action, 1, task.max_offset)
        quotes = np.stack([bid, unit(action, 2, task.max_qty), ask, unit(action, 3, task.max_qty)], axis=1)[:, None]
        before = simulator.cash.clone(), simulator.inventory.clone()
        fills = simulator.step(quotes.astype(np.int32))
        assert torch.equal(simulator.inventory - before[1], fills[..., 0] - fills[..., 1])
        now = envs.step(policy(now))[0]
        held.append(simulator.branch())
        paid.append(simulator.cash - before[0])
    assert torch.equal(sum(paid), simulator.cash)
    ends = [task.horizon - 1] * envs.num_envs if last is None else last
    money = []
    for market, end in enumerate(ends):
        flat = held[end]
        cash = liquidate(flat)
        money.append(float(cash[market, 0]) - float(flat.fees[market, 0]) / 1000)
    return np.array(money)


@pytest.mark.parametrize("fee", [0, 250])
def test_liquidated_pnl_is_that_of_accounts_kept_by_hand(fee):
    config = ks.MarketConfig.preset("trading", fee=fee)
    envs = evaluation_env(4, config=config, engine="cpu", horizon=25)
    policy = policies.FixedSpread(envs.core.task, 2.0, qty=6)
    expected = by_hand(policy, envs, seed=77)
    result = evaluate(policy, envs, seed=77)
    assert result.pnl.tolist() == expected.tolist()
    assert np.any(expected != 0)
    assert bool((envs.simulator.inventory == 0).all())


def test_returns_units_and_inventory_are_counted():
    envs = evaluation_env(8, engine="cpu", horizon=30, reward="pnl")
    policy = policies.FixedSpread(envs.core.task, 2.0)
    result = evaluate(policy, envs, seed=5)
    now, _ = envs.reset(seed=5)
    rewards, traded, held = [], [], []
    for _ in range(30):
        held.append(envs.simulator.inventory[:, 0].abs().clone())
        now, reward, *_ = envs.step(policy(now))
        rewards.append(reward.clone())
        traded.append(envs.fills.sum(1).clone())
    assert result.episode_return.tolist() == torch.stack(rewards).double().sum(0).tolist()
    assert result.traded == pytest.approx(torch.stack(traded).double().mean(0).numpy())
    assert result.inventory == pytest.approx(torch.stack(held).double().mean(0).numpy())
    simulator = envs.simulator
    assert result.final_inventory.tolist() == simulator.inventory[:, 0].tolist() and result.final_inventory.any()
    marked = (simulator.cash + simulator.inventory * simulator.fundamental_price[:, None])[:, 0]
    assert result.episode_return * 10 == pytest.approx(marked.double().numpy(), abs=1e-2)  # rewards are float32


def test_a_policy_that_does_nothing_scores_zero():
    result = evaluate(policies.NoTrade(MarketMakingTask()), evaluation_env(4, engine="cpu", horizon=10))
    assert not any(values.any() for values in vars(result).values())


def test_discrete_policies_can_be_evaluated():
    envs = evaluation_env(4, engine="cpu", horizon=20, action_type="discrete")
    choice = evaluate(lambda now: torch.full((len(now),), 7 * 3 + 3), envs)
    same = evaluation_env(4, engine="cpu", horizon=20)
    assert choice.pnl.tolist() == evaluate(policies.FixedSpread(same.core.task, 3.0), same).pnl.tolist()


# Episodes that end early ----------------------------------------------------------------------------------------------


def test_a_terminated_episode_keeps_its_money():
    limits = {"max_loss": 60.0, "horizon": 40, "engine": "cpu"}
    envs, endless = evaluation_env(24, **limits), evaluation_env(24, **{**limits, "max_loss": None})
    policy = policies.attackers.PumpAndDump(envs.core.task, 8)
    now, _ = envs.reset(seed=9)
    ends = np.full(24, -1)
    returns = np.zeros(24)
    now, _ = endless.reset(seed=9)
    for t in range(40):  # the same episodes without the limit, until it would have struck
        now, reward, *_ = endless.step(policy(now))
        returns += np.where(ends < 0, reward.numpy().astype(float), 0.0)
        simulator = endless.simulator
        marked = (simulator.cash + simulator.inventory * simulator.fundamental_price[:, None])[:, 0].numpy()
        ends = np.where((ends < 0) & (marked <= -60), t, ends)
    early = ends >= 0
    assert 5 < early.sum() < 24 and len(set(ends[early])) > 3
    expected = by_hand(policy, endless, 9, np.where(early, ends, 39).tolist())
    result = evaluate(policy, envs, seed=9)
    assert result.pnl.tolist() == expected.tolist()
    assert result.episode_return == pytest.approx(returns)
    assert result.pnl[early].mean() < -50


def test_all_may_terminate():
    envs = evaluation_env(16, max_loss=0.5, engine="cpu", horizon=200)
    result = evaluate(policies.attackers.PumpAndDump(envs.core.task, 8), envs)
    again = evaluate(policies.attackers.PumpAndDump(envs.core.task, 8), envs)
    assert result.pnl.tolist() == again.pnl.tolist() and result.pnl.mean() < 0
    assert (result.inventory > 0).any()  # a mean over the decisions that there were


@pytest.mark.parametrize(
    "changes",
    [{"autoreset_mode": "SAME_STEP"}, {"output": "numpy"}, {"stagger": True}, {"autoreset_mode": "NEXT_STEP"}],
)
def test_other_environments_are_refused(changes):
    good = {"output": "torch", "autoreset_mode": "DISABLED", "stagger": False, "engine": "cpu", "horizon": 5}
    evaluate(policies.NoTrade(MarketMakingTask()), MarketMakingVectorEnv(2, **good))
    with pytest.raises(ValueError, match="envs: expected what evaluation_env returns.*got"):
        evaluate(policies.NoTrade(MarketMakingTask()), MarketMakingVectorEnv(2, **{**good, **changes}))


# Seeds ----------------------------------------------------------------------------------------------------------------


def test_held_out_seeds_are_never_training_seeds():
    """Run r trains on r * 2^32 + m and is evaluated on 2^62 + r * 2^32 + m; no m reaches the next run."""
    runs, markets = 2**28, 2**31
    assert (runs - 1) * 2**32 + markets <= 2**61  # training stays below the warm starts,
    warm = MarketMakingTask().warm_seed
    banks = 2**16 * 2**25
    assert 2**61 <= warm and warm + banks <= HELD_OUT_WARM_SEED  # which stay below those held out,
    assert HELD_OUT_WARM_SEED + banks <= HELD_OUT_SEED  # and these below the held-out episodes
    assert HELD_OUT_SEED + (runs - 1) * 2**32 + markets < 2**63
    envs = evaluation_env(8, engine="cpu", horizon=2)
    evaluate(policies.NoTrade(envs.core.task), envs)
    assert envs.simulator.tensors["seed"].tolist() == list(range(HELD_OUT_SEED, HELD_OUT_SEED + 8))
    assert envs.core.task.warm_seed == HELD_OUT_WARM_SEED
    assert evaluation_env(1, engine="cpu", warm_seed=7).core.task.warm_seed == 7


def test_the_warm_starts_held_out_are_others():
    books = [evaluation_env(32, engine="cpu", **extra) for extra in ({}, {"warm_seed": 2**61}, {})]
    for envs in books:
        envs.reset(seed=1)
    one, trained, again = (envs.simulator.bid for envs in books)
    assert torch.equal(one, again) and not torch.equal(one, trained)


# Unwinding ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["trading", "continuous"])
def test_liquidate_leaves_every_slot_flat(preset):
    config = ks.MarketConfig.preset(preset, max_order_qty=[1, 2, 3, 4, 5, 6])
    simulator = ks.Simulator(config, 6, engine="cpu", slots=2, seed=2)
    simulator.run(50)
    quotes = torch.zeros((6, 2, 4), dtype=torch.int32)
    quotes[:, 0, 0], quotes[:, 0, 1], quotes[:, 1, 2], quotes[:, 1, 3] = 200, 30, -200, 30
    simulator.step(quotes)
    simulator.step(torch.zeros_like(quotes))
    held = simulator.inventory.clone()
    assert bool((held[:, 0] > 0).all()) and bool((held[:, 1] < 0).all())
    before = simulator.t.clone()
    cash = liquidate(simulator)
    assert not bool(simulator.inventory.any())
    assert torch.equal(cash, simulator.cash) and cash.data_ptr() != simulator.cash.data_ptr()
    least = -(-held.abs().amax(1) // torch.arange(1, 7))  # at most max_order_qty units per auction
    assert bool((simulator.t - before >= least.max()).all())


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
@pytest.mark.parametrize("side", [1, -1])
def test_what_a_thin_book_lacks_is_not_bought_at_the_end_of_the_grid(engine, side):
    """Four units are to be had back, two rest; a marketable order's remainder would stand at the last tick."""
    shares = {"noise": 0.0, "momentum": 0.0, "maker": 1.0, "maker_half_spread": 5}
    continuous = {"arrivals": "clock", "mechanism": "continuous", "num_agents": 8, "max_order_qty": 4}
    config = ks.MarketConfig(init_depth=2, **continuous, **shares)
    simulator = ks.Simulator(config, 32, engine=engine, slots=1, seed=4)
    simulator.inventory.fill_(-4 * side)
    cash = liquidate(simulator)
    assert not bool(simulator.inventory.any())
    # Two units at the opening's best price, two where makers come to, or where the first two were.
    per_unit = -side * cash[:, 0].double() / 4
    assert bool(((per_unit - 64) * side >= -1).all()) and bool(((per_unit - 64) * side <= 8).all())


def test_an_empty_side_is_waited_for():
    continuous = {"arrivals": "clock", "mechanism": "continuous", "num_agents": 2, "interval": 1, "max_order_qty": 1}
    config = ks.MarketConfig(init_depth=0, noise=1.0, momentum=0.0, maker=0.0, **continuous)
    simulator = ks.Simulator(config, 16, engine="cpu", slots=1, seed=4)
    simulator.inventory.fill_(2)
    liquidate(simulator)
    assert not bool(simulator.inventory.any()) and bool((simulator.cash > 2 * 40).all())


def test_liquidate_says_when_it_cannot():
    simulator = ks.Simulator(ks.MarketConfig.preset("trading"), 3, engine="cpu", slots=1, seed=2)
    simulator.run(20)
    quotes = torch.zeros((3, 1, 4), dtype=torch.int32)
    quotes[:, 0, 0], quotes[:, 0, 1] = 200, 40
    simulator.step(quotes)
    with pytest.raises(MarketError, match="of 3 slots still hold inventory after 1 auctions"):
        liquidate(simulator, max_auctions=1)


# Grids and tables -----------------------------------------------------------------------------------------------------


def test_a_search_shows_its_bar_when_it_is_asked_for(capsys):
    """At once; None waits for two seconds, which this search does not take."""
    envs = evaluation_env(2, engine="cpu", horizon=2, bank_size=2)
    for progress, shown in ((True, True), (None, False), (False, False)):
        grid_search(policies.FixedSpread, {"half_spread": [1]}, envs, progress=progress)
        assert ("grid search" in capsys.readouterr().err) == shown


def test_grid_search_tries_everything_and_returns_the_best():
    envs = evaluation_env(64, engine="cpu", horizon=60)
    grid = {"half_spread": [1, 4, 10], "qty": [2, 8]}
    best, rows = grid_search(policies.FixedSpread, grid, envs, seed=3, progress=False)
    assert len(rows) == 6 and {(row[0]["half_spread"], row[0]["qty"]) for row in rows} == {
        (half_spread, qty) for half_spread in (1, 4, 10) for qty in (2, 8)
    }
    assert best == rows[0][0] == {"half_spread": 4, "qty": 8}
    means = [row[1] for row in rows]
    assert means == sorted(means, reverse=True)
    again = evaluate(policies.FixedSpread(envs.core.task, **best), envs, 3).pnl_interval()
    assert rows[0][1:] == again
    with pytest.raises(ValueError, match="grid\\['qty'\\]: expected at least one, got no values"):
        grid_search(policies.FixedSpread, {"qty": []}, envs)


def test_the_confidence_interval_is_the_textbook_one():
    mean, half = confidence_interval(np.array([1.0, 2.0, 3.0, 4.0]))
    assert mean == 2.5 and half == pytest.approx(3.182446 * math.sqrt(5 / 3) / 2)  # t of 3 degrees of freedom
    mean, half = confidence_interval(np.array([7.0]))
    assert mean == 7.0 and math.isnan(half)


def test_the_interval_covers_the_mean_nineteen_times_in_twenty():
    draws = np.random.default_rng(0).normal(3.0, 5.0, (2000, 100))
    hits = [abs(mean - 3.0) <= half for mean, half in map(confidence_interval, draws)]
    assert 0.93 < np.mean(hits) < 0.97


def test_the_table_is_sorted_and_shows_its_numbers():
    zeros = np.zeros(2)
    results = {
        "poor": Evaluation(np.array([1.0, 3.0]), *[zeros] * 8),
        "rich": Evaluation(
            np.array([100.0, 102.0]),
            zeros + 0.25,
            zeros + 1.5,
            zeros + 2.04,
            np.array([-4, 2]),
            drawdown=np.array([3.0, 9.0]),
            offered=zeros + 6,
            turnover=zeros + 900,
            at_limit=np.array([0.125, 0.25]),
        ),
    }
    lines = format_table(results, {"rich": "qty=8"}).splitlines()
    assert len(lines) == 4 and all(line.count("|") == 15 for line in lines)
    rich = "| rich | 101 ± 13 | 1 | 71.42 ± 8.98 | 100 ± nan | 1.50 | 2.0 | 3.0 | 18.8% | 6 | 25.0% | 900 |"
    assert lines[2] == rich + " 0.2 | qty=8 |"
    assert lines[3].startswith("| poor | 2 ± 13 | 1 |") and lines[3].endswith("| 0.0% | 0 | – | 0 | 0.0 |  |")
    paired = format_table(results, paired_with="poor").splitlines()
    assert "| poor less this one |" in paired[0] and all(line.count("|") == 16 for line in paired)
    assert paired[2].startswith("| rich | 101 ± 13 | -99 ± 0 | 1 |") and paired[3].startswith(
        "| poor | 2 ± 13 |  | 1 |"
    )
