"""Attacks on continuous trading: once all is unwound, they have earned nothing; and what does pay.

`test_reward_hacking.py` holds the same of call auctions; examples/studies/attacks has figures of both, of more markets.
"""

import functools

import pytest
import torch
from strategies import ENGINES
from test_reward_hacking import assert_earns, assert_earns_nothing
from thorough import slow

import kineticsim_env as ks
from examples.studies.attacks import __main__ as command
from examples.studies.attacks.study import ALONE, TOGETHER, Attack, Owner, attack, attack_together, pump_and_sell, wash
from kineticsim_env import policies

MARKETS = 256
CONTINUOUS = ks.MarketConfig.preset("continuous")
EVENTS = int(CONTINUOUS.interval or CONTINUOUS.num_agents)


def earned(name, config=CONTINUOUS, **task):
    return attack(config, ALONE[name], MARKETS, "cpu", **task).pnl


def maker(make, **fields):
    return Attack("MarketMaking", functools.partial(make, **fields))


# Attacks --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALONE)
def test_attackers_earn_nothing(name):
    assert_earns_nothing(earned(name))


@pytest.mark.parametrize("name", TOGETHER)
def test_learners_of_one_owner_earn_nothing_together(name):
    assert_earns_nothing(attack_together(CONTINUOUS, TOGETHER[name], MARKETS, "cpu").pnl)


@pytest.mark.parametrize("owner", [wash(4), pump_and_sell(4), pump_and_sell(100)])
def test_no_rhythm_makes_two_learners_of_one_owner_pay(owner):
    assert_earns_nothing(attack_together(CONTINUOUS, owner, 128, "cpu").pnl)


@pytest.mark.parametrize("late", [EVENTS // 2, EVENTS])
@pytest.mark.parametrize("name", ["FlashedWall", "QuoteStuffing", "TraderSniper"])
def test_games_of_latency_earn_nothing_however_late_they_are(name, late):
    assert_earns_nothing(earned(name, CONTINUOUS.replace(quote_latency=late)))


@pytest.mark.parametrize("threshold", [0.5, 6.0])
def test_a_sniper_earns_nothing_whatever_it_waits_for(threshold):
    how = Attack("Trading", functools.partial(policies.attackers.TraderSniper, threshold=threshold))
    assert_earns_nothing(attack(CONTINUOUS, how, 128, "cpu").pnl)


@pytest.mark.parametrize("period", [2, 4, 100])
def test_no_period_makes_a_pump_pay(period):
    assert_earns_nothing(attack(CONTINUOUS, maker(policies.attackers.PumpAndDump, period=period), 128, "cpu").pnl)


@pytest.mark.parametrize("name", ["FlashedWall", "Layering", "MarkTheClose", "TraderMarkTheClose", "TraderSniper"])
def test_newer_attackers_on_a_call_of_the_same_orders(name):
    """On the clock, as `test_reward_hacking.py` has them where each agent comes once."""
    call = ks.MarketConfig.preset("trading", arrivals="clock", rounding="coin")
    assert_earns_nothing(attack(call, ALONE[name], 512, "cpu").pnl)


# What pays ------------------------------------------------------------------------------------------------------------


def test_quotes_that_never_stay_earn_as_makers_do_where_they_are_far_enough():
    quoted, stuffed = (
        attack(CONTINUOUS, how, MARKETS, "cpu").pnl
        for how in (maker(policies.FixedSpread, half_spread=4.0), maker(policies.attackers.QuoteStuffing, distance=4.0))
    )
    assert_earns(quoted)
    assert_earns(stuffed)
    assert stuffed.mean() < quoted.mean()


def test_a_mid_that_the_learner_moves_pays_for_what_unwinding_takes_back():
    """Pump and hold, with sizes that no default allows; at the fundamental price it pays nothing."""
    large = {"max_qty": 200, "inventory_limit": None}
    at_mid = attack(CONTINUOUS, ALONE["HugeQuantity"], 64, "cpu", mark="mid", horizon=100, **large)
    fair = attack(CONTINUOUS, ALONE["HugeQuantity"], 64, "cpu", horizon=100, **large)
    assert (at_mid.pnl == fair.pnl).all()
    assert_earns(at_mid.at_mark)
    assert_earns_nothing(fair.at_mark)
    assert_earns_nothing(fair.pnl)


FLAT = {"noise": 1.0, "momentum": 0.0, "maker": 0.0, "num_agents": 1, "init_depth": 0}  # its only agent is replaced
TRADE = torch.tensor([[[0, 0, 0, 0], [64, 5, 0, 0], [0, 0, 64, 5]]], dtype=torch.int32)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("fee", "taker_fee"), [(-100, 150), (-100, 200), (-100, 250), (0, 0), (30, 0)])
def test_who_trades_with_itself_pays_both_fees_and_the_takers(fee, taker_fee, engine):
    """So a rebate that the taker's fee does not cover is paid without a limit."""
    config = ks.MarketConfig(**FLAT, arrivals="clock", mechanism="continuous", fee=fee, taker_fee=taker_fee)
    sim = ks.Simulator(config, 1, engine=engine, slots=("noise", None, None))
    for _ in range(10):
        assert sim.step(TRADE.to(sim.device))[0].tolist() == [[0, 0], [5, 0], [0, 5]]
    assert int(sim.inventory.sum()) == int(sim.cash.sum()) == 0
    assert int(sim.fees.sum()) == 50 * (2 * fee + taker_fee)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_call_has_no_takers_who_would_pay_for_a_rebate(engine):
    sim = ks.Simulator(ks.MarketConfig(**FLAT, fee=-100), 1, engine=engine, slots=("noise", None, None))
    sim.step(TRADE.to(sim.device))
    assert int(sim.cash.sum()) == 0 and int(sim.fees.sum()) == 5 * 2 * -100


# The page -------------------------------------------------------------------------------------------------------------


@slow
def test_the_page(tmp_path, monkeypatch, capsys):
    few = {name: ALONE[name] for name in ("LastStep", "FlashedWall", "Layering", "QuoteStuffing", "TraderSniper")}
    still = {"nobody moves": Owner(("maker", "trader"), lambda t: [(-1, -1, -1, -1), (0, 0, 0, 0)])}
    monkeypatch.setattr(command, "ALONE", few)
    monkeypatch.setattr(command, "TOGETHER", still)
    command.main(["--markets", "8", "--engine", "cpu", "--output", str(tmp_path)])
    text = (tmp_path / "README.md").read_text()
    assert "| nobody moves | 0 ± 0 | 0 ± 0 | 0.00 | 0 ± 0 | 0 ± 0 | 0.00 |" in text
    assert "python -m examples.studies.attacks --markets 8" in text
    assert "these results do not show that no attack earns" not in capsys.readouterr().out
    assert all(f"| {name} | " in text for name in (*command.HONEST, *command.LATE, *command.OF_LADDERS))
    assert all(f"{market[0].upper()}{market[1:]}: " in text for market in command.MARKETS)
    command.main(["--results", str(tmp_path / "results.json"), "--output", str(tmp_path)])
    assert (tmp_path / "README.md").read_text() == text
