"""Makers and programs that `evaluate` plays inside the launch: to the bit as by actions, and what is refused."""

import dataclasses
import functools
import math

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from markets import FEW_ORDERS
from slot_programs import fixed, patient, plain_maker
from thorough import covering, examples

import kineticsim_env as ks
from kineticsim_env import policies
from kineticsim_env.agents.numbers import Int32
from kineticsim_env.engines.numpy.actions import unit
from kineticsim_env.evaluation import evaluate, evaluation_env, evaluation_parallel_env, grid_search
from kineticsim_env.policies import quoting
from kineticsim_env.tasks import ExecutionTask, MarketMakingTask
from kineticsim_env.wrappers import NormalizeReward

MAKERS = {
    "nothing": policies.NoTrade,
    "fixed": functools.partial(policies.FixedSpread, half_spread=2.5, qty=5),
    "ladder": functools.partial(policies.LadderMaker, half_spread=1.5, spacing=0.7, skew=0.05, qty=3),
    "quiet": functools.partial(policies.QuietQuotes, limit=2, skew=0.06),
    "stationary": policies.AvellanedaStoikov,
    "fading": functools.partial(policies.AvellanedaStoikov, risk=0.3, stationary=False),
    "lots": policies.GueantLehalleFernandezTapia,
    "ladder of lots": functools.partial(policies.GueantLehalleFernandezTapiaLadder, qty=3),
}
SMALL = {"horizon": 40, "bank_size": 4, "warmup": 8}
FEW = {"config": FEW_ORDERS, "horizon": 12, "bank_size": 2, "warmup": 4}
ENGINES = pytest.mark.parametrize("engine", ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)])
MARKETS = {
    "news": {},
    "trading": {},
    "paper": {},
    "continuous": {"orders_per_side": 3},
}


def by_actions(policy):
    """The same policy, called."""
    return lambda observation: policy(observation)


def assert_same(one, other):
    for name, values in vars(one).items():
        np.testing.assert_array_equal(values, getattr(other, name), err_msg=name)


@pytest.fixture
def played(monkeypatch):
    """What `evaluate` lets programs play: its calls of `set_slot_policies`."""
    calls, real = [], ks.envs.core.EnvCore.set_slot_policies
    monkeypatch.setattr(
        ks.envs.core.EnvCore, "set_slot_policies", lambda core, given: (calls.append(dict(given)), real(core, given))
    )
    return calls


# Actions and programs -------------------------------------------------------------------------------------------------


@covering
@ENGINES
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("preset", MARKETS)
def test_programs_do_what_actions_do(preset, name, engine, played):
    config = ks.MarketConfig.preset(preset, **MARKETS[preset])
    markets = 4 if engine == "numpy" else 32
    envs = evaluation_env(markets, config=config, engine=engine, reward="pnl", **SMALL | {"horizon": 24})
    maker = MAKERS[name](envs.core.task)
    inside = evaluate(maker, envs, 7)
    assert [list(one) for one in played] == [[0], []]
    assert_same(inside, evaluate(by_actions(maker), envs, 7))
    assert len(played) == 2
    assert name == "nothing" or preset == "paper" or inside.traded.any()


@covering
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    "fields",
    [
        {"inventory_limit": None, "max_loss": 60.0},
        {"max_qty": [1, 5, 8, 9], "inventory_limit": [10, 20, 40, 7], "horizon": [20, 30, 40, 12]},
        {"keep": True, "config": ks.MarketConfig.preset("continuous", quote_latency=3)},
        {"config": ks.MarketConfig.preset("news", inventory_limit=9), "max_offset": 3},
        {"randomise": {"task.max_qty": [2, 4, 8]}, "num_scenarios": 3},
    ],
)
def test_in_whatever_task(fields, name, played):
    envs = evaluation_env(4, engine="cpu", **{**SMALL, **fields})
    maker = MAKERS[name](envs.core.task)
    assert_same(evaluate(maker, envs, 3), evaluate(by_actions(maker), envs, 3))
    assert len(played) == 2


@hypothesis.settings(max_examples=examples(200))
@hypothesis.given(
    form=st.builds(
        quoting.Form,
        distance=st.floats(-20, 9000),
        skew=st.one_of(st.floats(0, 5), st.floats(0, 1e300)),
        spacing=st.floats(0, 1e5),
        fading=st.floats(0, 20),
        fades=st.booleans(),
        levels=st.just(8),
        qty=st.integers(0, 9),
    ),
    held=st.integers(-(2**20), 2**20),
    max_offset=st.sampled_from([1, 10, 8191]),
    horizon=st.sampled_from([1, 300, 65535, 65536, 2**20]),
    left=st.floats(0, 1),
)
def test_whole_numbers_stand_for_the_form(form, held, max_offset, horizon, left):
    """Neither way wraps, both quote the same, and that is the formula but for the parts that its numbers are cut to."""
    form = dataclasses.replace(form, skew=min(form.skew, 5.0)) if form.fades else form
    task = MarketMakingTask(max_offset=max_offset, horizon=horizon, inventory_limit=2**20, max_qty=9)
    task = task.of_market(ks.MarketConfig.preset("continuous", orders_per_side=8))
    left = max(1, round(horizon * left))

    class Maker(quoting.Quoting):
        def _form(self):
            return form

    maker = Maker(task)
    seen = torch.zeros(1, 37)
    seen[0, 30], seen[0, 32] = held / 2**20, left / horizon
    actions = maker(seen).view(8, 4).numpy()
    said = np.stack([unit(actions[:, i], max_offset if i < 2 else 9) for i in range(4)], axis=1)

    program = maker.program()
    tick = program.parameters["tick"]
    numbers = dict(inventory=held, elapsed=horizon - left, left=left, max_qty=9)
    slot = type("Slot", (), {name: Int32(value) for name, value in numbers.items()})()
    slot.mid_change = lambda i: Int32(0)
    own = type("Own", (), {name: Int32(value) for name, value in program.parameters.items()})()
    market = type("Market", (), {"mid2": Int32(201)})()
    quotes = np.array([[int(Int32(x)) for x in level[:4]] for level in program.program.play(market, slot, own, None)])
    assert said.tolist() == np.stack([100 - quotes[:, 0], quotes[:, 2] - 101, quotes[:, 1], quotes[:, 3]], 1).tolist()
    tau = left / horizon if form.fades else 1
    near = min(form.distance, 8192) + (form.fading if form.fades else 0) * tau + np.arange(8) * min(form.spacing, 8192)
    for place, side in enumerate((1, -1)):
        moved = near + side * min(form.skew, 1e20) * tau * held
        # The time left is a whole number of 2^-15, and of the longest episodes another part of it is cut before.
        unit_off = (0.5 + form.fades) / tick + form.fades * form.skew * 2.0**-14
        slack = 0.5 + 10 / tick + form.fades * form.fading * 2.0**-14 + abs(held) * unit_off
        assert (np.abs(said[:, place] - np.clip(moved, 0, max_offset)) <= slack).all()


def test_halves_are_rounded_to_even_and_a_mean_at_the_limit_is_not_below_it():
    task = MarketMakingTask(max_offset=20)
    rows = torch.zeros(41, 37)
    rows[:, 30] = torch.arange(-20, 21) / 40  # a tenth of a tick per unit: each fifth is half a tick
    action = policies.QuietQuotes(task, half_spread=6.0, skew=0.1, limit=3.0)(rows)
    expected = [round(6 + q / 10) for q in range(-20, 21)]  # Python's, to even
    assert ((action[:, 0] + 1) * 10).round().tolist() == expected
    assert ((action[:, 1] + 1) * 10).round().tolist() == expected[::-1]
    half_ticks = torch.tensor([[6.0, -6, 6, -6], [6, 6, -6, 5]])
    rows[:2, 22:26] = half_ticks / (half_ticks.abs() + 8)
    action = policies.QuietQuotes(task, limit=3.0)(rows[:2])
    assert (action[:, 2] > -1).tolist() == [False, True]


def test_who_has_no_program():
    task = MarketMakingTask()
    for make in (policies.RandomQuotes, policies.attackers.PumpAndDump):
        assert not hasattr(make(task), "program")
    assert policies.NoTrade(MarketMakingTask(action_type="discrete")).program() is None
    assert policies.AvellanedaStoikov(MarketMakingTask(decide="fill"), stationary=False).program() is None
    assert policies.AvellanedaStoikov(MarketMakingTask(decide="fill")).program().levels == 1

    class Shy(policies.FixedSpread):
        def _act(self, observation):
            return super()._act(observation) * 0 - 1

    assert Shy(task).program() is None and policies.FixedSpread(task).program().levels == 1


# Evaluations ----------------------------------------------------------------------------------------------------------


@ENGINES
def test_programs_play_as_policies_do(engine):
    """`fixed` quotes what `FixedSpread` does, and a search over makers what it does over their actions."""
    envs = evaluation_env(4, engine=engine, **FEW)
    task = envs.core.task
    maker = policies.FixedSpread(task, 2, qty=8)
    assert_same(evaluate(fixed, envs, 5), evaluate(by_actions(maker), envs, 5))
    search = functools.partial(grid_search, grid={"half_spread": [1, 3]}, envs=envs, progress=False)
    assert search(policies.FixedSpread) == search(lambda task, **given: by_actions(policies.FixedSpread(task, **given)))


@ENGINES
@pytest.mark.parametrize("learner", ["maker", "ks.policy"])
def test_beside_opponents_that_are_programs(engine, learner):
    envs = evaluation_env(4, engine=engine, opponents={"maker": [[patient], [plain_maker]]}, **FEW)
    maker = policies.FixedSpread(envs.core.task, 2, qty=8)
    result = evaluate(by_actions(maker), envs, 5)
    assert_same(result, evaluate(maker if learner == "maker" else fixed, envs, 5))
    assert_same(result, evaluate(by_actions(maker), envs, 5))  # the opponents are back, and the learner is not


@ENGINES
def test_many_learners_by_role_and_by_name(engine, played):
    envs = evaluation_parallel_env(4, {"maker": 2, "executor": 1}, engine=engine, block_qty=9, **FEW)
    task = envs.core.task
    tight, wide = policies.FixedSpread(task, 2.0, qty=8), policies.AvellanedaStoikov(task)
    block, inside = policies.TimeWeighted(task), []
    by_name = {"maker_0": tight, "maker_1": wide}, {"maker_1": tight, "maker_0": by_actions(wide)}
    for makers in ({"maker": tight}, *by_name):
        found = evaluate({**makers, "executor": block}, envs, 5)
        inside.append(sorted(played[-2]))
        called = evaluate({**{name: by_actions(one) for name, one in makers.items()}, "executor": block}, envs, 5)
        for name in envs.possible_agents:
            assert_same(found[name], called[name])
    assert inside == [[0, 1], [0, 1], [1]]
    programs = evaluate({"maker": fixed, "executor": block}, envs, 5)
    for name, result in evaluate({"maker": by_actions(tight), "executor": block}, envs, 5).items():
        assert_same(programs[name], result)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_actions_are_played_again_after_an_error(error, monkeypatch):
    envs = evaluation_env(4, engine="cpu", **SMALL)
    maker = policies.FixedSpread(envs.core.task)
    expected = evaluate(by_actions(maker), envs, 5)
    with monkeypatch.context() as patch:

        def step(actions):
            raise error

        patch.setattr(envs, "step", step)
        with pytest.raises(error):
            evaluate(maker, envs, 5)
    assert envs.core.simulator.engine.slot_policies is None
    assert_same(evaluate(by_actions(maker), envs, 5), expected)
    envs.core.set_slot_policies({0: plain_maker})  # by hand: that stays
    evaluate(maker, envs, 5)
    assert envs.core.simulator.engine.slot_policies.places[0].policy is plain_maker


@pytest.mark.parametrize(
    "where", ["within wrappers", "rewards of your own", "opponents that are functions", "discrete"]
)
def test_where_no_program_may_play_makers_are_called_and_programs_refused(where, played):
    fields = {
        "rewards of your own": {"reward": lambda now, outcome: outcome.reward},
        "opponents that are functions": {"opponents": {"maker": [lambda seen: torch.zeros(4, 4)]}},
        "discrete": {"action_type": "discrete"},
    }
    envs = evaluation_env(4, engine="cpu", **SMALL, **fields.get(where, {}))
    task = envs.core.task
    if where == "discrete":  # a program may, a maker's actions are none
        evaluate(fixed, envs)
        evaluate(policies.Discretised(policies.FixedSpread(task), task), envs)
        with pytest.raises((TypeError, ValueError), match="actions"):
            evaluate(policies.FixedSpread(task), envs)
        assert len(played) == 2
        return
    envs = NormalizeReward(envs) if where == "within wrappers" else envs
    evaluate(policies.FixedSpread(task), envs)
    with pytest.raises(ValueError, match=f"policy: expected a function of observations .*{where}.*<policy fixed>"):
        evaluate(fixed, envs)
    assert not played


def test_makers_of_another_task_or_role_are_called(played):
    envs = evaluation_env(4, engine="cpu", **SMALL)
    evaluate(policies.FixedSpread(MarketMakingTask(max_offset=20, horizon=40)), envs)
    trading = evaluation_env(4, "Trading", engine="cpu", **SMALL)
    with pytest.raises(ValueError, match="actions"):
        evaluate(policies.FixedSpread(trading.core.task), trading)
    evaluate(policies.NoTrade(ExecutionTask()), envs)
    assert not played
    evaluate(fixed, trading)
    assert len(played) == 2 and math.isfinite(evaluate(patient, trading).pnl.mean())


def test_figures_are_float64():
    envs = evaluation_env(3, engine="cpu", **SMALL)
    found = evaluate(next(iter(MAKERS.values()))(envs.core.task), envs, 3)
    assert {getattr(found, field.name).dtype for field in dataclasses.fields(found)} == {np.dtype(np.float64)}
