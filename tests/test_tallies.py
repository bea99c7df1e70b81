"""What `evaluate` counts of decisions, drawdowns and fills among it: known answers, plain loops, all ways to play."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from thorough import covering

import kineticsim_env as ks
from kineticsim_env import policies
from kineticsim_env.evaluation import evaluate, evaluation_env, evaluation_parallel_env, tallies
from kineticsim_env.evaluation.risk import ratio
from kineticsim_env.evaluation.tallies import Tally
from kineticsim_env.policies.attackers import PumpAndDump

SMALL = {"bank_size": 8, "warmup": 20}
OWN = {"drawdown", "offered", "turnover", "at_limit", "traded", "inventory"}


# Known answers --------------------------------------------------------------------------------------------------------


def by_hand(decisions, limit=5, events=False):
    """A tally of one slot. Of a decision: inventory, bought, sold, value, standing bid, ask, mid2, alive, events."""
    live = {name: torch.zeros(1, 1, dtype=torch.int64) for name in ("inventory", "prev_value")}
    live |= {"quotes": torch.zeros(1, 1, 4, dtype=torch.int32), "mid_history": torch.zeros(1, 5, dtype=torch.int32)}
    live["decision_events"] = torch.zeros(1, dtype=torch.int32)
    fills = torch.zeros(1, 1, 2, dtype=torch.int64)
    simulator = SimpleNamespace(
        inventory=live["inventory"],
        tensors=live,
        parameter=lambda name: torch.tensor([limit], dtype=torch.int32),
    )
    core = SimpleNamespace(simulator=simulator, tensors=live, fills=fills, host=True)
    core.task = SimpleNamespace(decides_at_events=events)
    tally = Tally(core, ends=True)
    for inventory, bought, sold, value, bid, ask, mid2, alive, *length in decisions:
        live["inventory"].fill_(inventory)
        live["prev_value"].fill_(value)
        live["quotes"].copy_(torch.tensor([99, bid, 101, ask]))
        live["mid_history"].copy_(torch.tensor([mid2, 7, 7, 7, 7]))
        live["decision_events"].fill_(length[0] if length else 1)
        fills.copy_(torch.tensor([bought, sold]))
        tally.note(torch.tensor([[alive]]))
    tally.count()
    names = ("units", "offered", "value", "held", "at_limit", "lived", "drawdown")
    return {name: getattr(tally, name).item() for name in names}


@pytest.mark.parametrize("piece", [1, 2, 3, 32])
def test_known_answers(piece, monkeypatch):
    """Of the values 0, 2000, -1000, 3000 and 2500 the largest fall is 3000. The last decision is another's."""
    monkeypatch.setattr(tallies, "_HOST_PIECE", piece)
    found = by_hand(
        [
            (4, 4, 0, 2000, 1, 2, 200, True),
            (5, 2, 1, -1000, 0, 3, 201, True),
            (-5, 0, 10, 3000, 4, 0, 199, True),
            (-5, 0, 0, 2500, 4, 6, 203, True),
            (0, 5, 0, -9000, 4, 6, 203, False),
        ]
    )
    assert found == {
        "units": 17,
        "offered": 17 + 3 + 3 + 4 + 10,
        "value": 4 * 200 + 3 * 201 + 10 * 199,
        "held": 0 + 4 + 5 + 5,
        "at_limit": 2,
        "lived": 4,
        "drawdown": 3000,
    }


def test_decisions_are_weighted_by_events_and_a_fall_from_the_opening_counts():
    found = by_hand([(3, 3, 0, -500, 0, 0, 20, True, 4), (3, 0, 0, -700, 0, 0, 20, True, 6)], limit=3, events=True)
    assert found["held"] == 3 * 6 and found["at_limit"] == 6 and found["lived"] == 10 and found["drawdown"] == 700


@pytest.mark.parametrize(("limit", "share"), [(-1, 0), (0, 2), (1, 1), (2, 0)])
def test_the_limit_may_be_none_or_0(limit, share):
    assert by_hand([(1, 1, 0, 0, 0, 0, 2, True), (1, 0, 0, 0, 0, 0, 2, True)], limit)["at_limit"] == share


def test_ratios():
    """(1 + 3) / (2 + 4); deviations 1 - 2 * 2/3 and 3 - 4 * 2/3 are -1/3 and 1/3, by a mean of 3."""
    found = ratio([1.0, 3.0], [2.0, 4.0])
    assert found.mean == pytest.approx(2 / 3) and found.count == 2
    assert found.error == pytest.approx(1 / 9)  # sqrt((1/9 + 1/9) / 1) / 3 / sqrt(2)
    assert ratio([2.0, 1.0, 3.0], [4.0, 2.0, 6.0])[:2] == (0.5, 0.0)
    assert math.isnan(ratio([0.0, 0.0], [0.0, 0.0]).mean)
    with pytest.raises(ValueError, match="others: expected 2 episodes, as the first has, got 1"):
        ratio([1.0, 2.0], [1.0])


# Plain loops ----------------------------------------------------------------------------------------------------------


def counted(policy, envs, seed, slots=1):
    """The same numbers by a loop over decisions, markets and slots in Python's numbers."""
    core, markets = envs.core, envs.num_envs
    longest = core.live_task.longest
    limit = core.simulator.parameter("inventory_limit").tolist()
    rows = [[dict.fromkeys(OWN, 0) | {"highest": 0, "lived": 0} for _ in range(slots)] for _ in range(markets)]
    now, _ = envs.reset(seed=seed)
    alive = [[True] * slots for _ in range(markets)]
    core.lets_stand = True
    while any(map(any, alive)):
        held = core.simulator.inventory.tolist()
        now = envs.step(policy(now))[0]
        for m in range(markets):
            for k in range(slots):
                if not alive[m][k]:
                    continue
                row = rows[m][k]
                length = core.tensors["decision_events"].flatten()[m].item() if core.task.decides_at_events else 1
                units = sum(core.fills[m, k].tolist())
                standing = sum(core.simulator.quotes[m, k].flatten().tolist()[1::2])
                value = core.tensors["prev_value"][m, k].item()
                row["lived"] += length
                row["traded"] += units
                row["offered"] += units + standing
                row["turnover"] += units * core.tensors["mid_history"][m, 0].item() / 2
                row["inventory"] += abs(held[m][k]) * length
                row["at_limit"] += length * (0 <= limit[m] <= abs(held[m][k]))
                row["highest"] = max(row["highest"], value)
                row["drawdown"] = max(row["drawdown"], (row["highest"] - value) / 2000)
                alive[m][k] = not bool(core.tensors["over"][m, k])
    core.lets_stand = False
    for row in (row for of_market in rows for row in of_market):
        lived = row["lived"]
        for name in ("traded", "offered"):
            row[name] /= lived / longest
        for name in ("inventory", "at_limit"):
            row[name] /= lived
    return rows


def fixed(half_spread):
    return lambda task: policies.FixedSpread(task, half_spread)


def follows(task):
    """A trader that goes with the last price."""
    return lambda now: now[:, 21:22].sign().repeat(1, 2)


LADDERS = ks.MarketConfig.preset("news", orders_per_side=3)
CASES = {
    "market making": ("MarketMaking", {}, fixed(2.0)),
    "a tight limit": ("MarketMaking", {"preset": "trading", "inventory_limit": 3}, fixed(1.0)),
    "losses end it": ("MarketMaking", {"preset": "trading", "max_loss": 30.0}, lambda task: PumpAndDump(task, 8)),
    "ladders": ("MarketMaking", {"config": LADDERS}, lambda task: policies.LadderMaker(task, 1.0, 2.0)),
    "decisions at fills": ("MarketMaking", {"decide": "fill"}, fixed(1.0)),
    "keeps": ("MarketMaking", {"keep": True}, fixed(1.0)),
    "execution": ("Execution", {"block_qty": 30}, policies.TimeWeighted),
    "trading": ("Trading", {"preset": "trading", "max_loss": 20.0}, follows),
    "horizons differ": ("MarketMaking", {"preset": "trading", "horizon": [3, 9, 14, 5]}, fixed(1.0)),
}


@covering
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_a_plain_loop_counts_the_same(case, engine):
    """Called, so that each step is a launch of its own; exactly, as all sums are of whole numbers."""
    task, settings, make = CASES[case]
    envs = evaluation_env(4, task, engine=engine, **{**SMALL, "horizon": 14, **settings})
    policy = make(envs.core.task)
    expected = counted(policy, envs, 5)
    found = evaluate(lambda now: policy(now), envs, seed=5)
    for name in sorted(OWN):
        assert getattr(found, name).tolist() == [of_market[0][name] for of_market in expected], name
    assert found.drawdown.any() and found.turnover.any() and (found.offered >= found.traded).all()
    assert found.at_limit.any() or case != "a tight limit"


def test_each_of_many_learners_is_counted_while_its_episode_runs():
    envs = evaluation_parallel_env(
        3, {"maker": 2, "executor": 1, "trader": 1}, engine="cpu", horizon=12, block_qty=6, max_loss=40.0, **SMALL
    )
    task = envs.core.task
    tight, block = policies.FixedSpread(task, 1.0), policies.TimeWeighted(task)
    of_role = {"maker": tight, "executor": block, "trader": lambda now: torch.ones(len(now), 2)}

    def act(now):
        return {role: of_role[role](rows.flatten(0, 1)).unflatten(0, rows.shape[:2]) for role, rows in now.items()}

    expected = counted(act, envs, 3, slots=4)
    found = evaluate({**of_role, "maker": lambda now: tight(now)}, envs, seed=3)
    for slot, one in enumerate(found.values()):
        for name in sorted(OWN):
            assert getattr(one, name).tolist() == [of_market[slot][name] for of_market in expected], (slot, name)


# Every way to play ----------------------------------------------------------------------------------------------------


@covering
@pytest.mark.parametrize("engine", ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("piece", [1, 5, 32])
@pytest.mark.parametrize("case", ["market making", "a tight limit", "ladders"])
def test_a_policy_inside_the_step_is_counted_as_one_that_is_called(engine, piece, case, monkeypatch):
    """To the last bit, whatever is counted together."""
    task, settings, make = CASES[case]
    envs = evaluation_env(5, task, engine=engine, **{**SMALL, "horizon": 17, **settings})
    policy = make(envs.core.task)
    called = evaluate(lambda now: policy(now), envs, seed=2)
    monkeypatch.setattr(tallies, "_HOST_PIECE", piece)
    monkeypatch.setattr(tallies, "_PIECE", piece)
    inside = evaluate(policy, envs, seed=2)
    for field in dataclasses.fields(called):
        np.testing.assert_array_equal(getattr(inside, field.name), getattr(called, field.name), field.name)
    assert inside.drawdown.any()


def test_one_who_never_trades_has_offered_nothing():
    found = evaluate(policies.NoTrade(ks.MarketMakingTask()), evaluation_env(4, engine="cpu", horizon=5, **SMALL))
    assert not any(values.any() for values in vars(found).values())
    assert math.isnan(found.figures()["fill_ratio"].mean) and found.figures()["drawdown"][:2] == (0.0, 0.0)
