"""What a sweep varies, and where its points are: against NumPy and scipy, cut anywhere, and in words where refused."""

import itertools
import json
import tracemalloc
import warnings

import numpy as np
import pytest
from agent_classes import trend_follower

import kineticsim_env as ks
from kineticsim_env.sweeps import plans
from kineticsim_env.sweeps.designs import make_design
from kineticsim_env.sweeps.space import read_space

MIXED = {
    "noise_spread": (2, 12),
    "market_order_prob": {"low": 0.01, "high": 0.5, "scale": "log"},
    "tie": ["lowest", "mid"],
    "walk_prob": (0.0, 0.4),
    "trend_follower.lookback": [4, 8, 9],
    "max_order_qty": {"low": 1, "high": 1000, "scale": "log"},
}


def design(space, kind, points=None, seed=0):
    return make_design(read_space(space, [trend_follower]), kind, points, seed)


def unit_values(unit):
    """Return what MIXED makes of places within [0, 1), by formulas of its own."""
    return {
        "noise_spread": 2 + np.floor(11 * unit[:, 0]).astype(int),
        "market_order_prob": np.exp(np.log(0.01) + unit[:, 1] * np.log(50)),
        "tie": np.where(unit[:, 2] < 0.5, "lowest", "mid"),
        "walk_prob": 0.4 * unit[:, 3],
        "trend_follower.lookback": np.array([4, 8, 9])[np.floor(3 * unit[:, 4]).astype(int)],
        "max_order_qty": np.floor(np.exp(unit[:, 5] * np.log(1001))).astype(int),
    }


def same(found, wanted):
    assert list(found) == list(wanted)
    for name, values in wanted.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(found[name], values, rtol=1e-12)
        else:
            np.testing.assert_array_equal(found[name], values)


def test_a_grid_has_all_combinations_with_the_last_name_fastest():
    space = {"noise_spread": [9, 3], "tie": ["mid", "lowest"], "max_order_qty": (2, 4)}
    found = design(space, "grid").rows(0, 12)
    rows = list(zip(*(values.tolist() for values in found.values()), strict=True))
    assert rows == list(itertools.product([9, 3], ["mid", "lowest"], [2, 3, 4]))


def test_steps_of_ranges_in_a_grid():
    space = {
        "walk_prob": {"low": 0.0, "high": 1.0, "steps": 5},
        "noise_spread": {"low": 1, "high": 1000, "steps": 4, "scale": "log"},
        "max_order_qty": {"low": 1, "high": 3, "steps": 9},  # whole numbers: each once
    }
    walk, spread, quantity = design(space, "grid").dimensions
    np.testing.assert_array_equal(walk.of_grid, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_array_equal(spread.of_grid, [1, 10, 100, 1000])
    np.testing.assert_array_equal(quantity.of_grid, [1, 2, 3])


def test_random_points_are_those_of_numpy():
    unit = np.random.default_rng(5).random((100, len(MIXED)))
    same(design(MIXED, "random", 100, 5).rows(0, 100), unit_values(unit))


@pytest.mark.parametrize("points", [1, 2, 100, 128])
def test_sobol_points_are_those_of_scipy(points):
    qmc = pytest.importorskip("scipy.stats.qmc")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unit = qmc.Sobol(len(MIXED), rng=7).random(points)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(design(MIXED, "sobol", points, 7).rows(0, points), unit_values(unit))


@pytest.mark.parametrize("kind", ["grid", "random", "sobol", "list"])
def test_any_rows_can_be_had_alone(kind):
    if kind == "sobol":
        pytest.importorskip("scipy")
    space = {name: [1, 5, 2, 7] for name in ("noise_spread", "max_order_qty", "init_depth")}
    made = design(space, kind, None if kind in ("grid", "list") else 64)
    whole = made.rows(0, made.points)
    cuts = [0, *(point for point in (1, 2, 3, 17, 33) if point < made.points), made.points]
    parts = [made.rows(begin, end) for begin, end in itertools.pairwise(cuts)]
    for name, values in whole.items():
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), values)


def test_ranges_take_both_ends_and_nothing_beyond():
    found = design({"noise_spread": (2, 5), "walk_prob": (0.25, 0.5)}, "random", 4000).rows(0, 4000)
    counts = np.bincount(found["noise_spread"])
    assert counts[:2].sum() == 0 and len(counts) == 6 and counts[2:].min() > 850
    assert 0.25 <= found["walk_prob"].min() < 0.251 and 0.499 < found["walk_prob"].max() <= 0.5


def test_values_may_come_twice_in_a_list_only():
    assert design({"noise_spread": [3, 3, 4], "tie": ["mid"] * 3}, "list").points == 3
    with pytest.raises(ValueError, match=r"space\['noise_spread'\]: got 3 twice, allowed is each value once"):
        design({"noise_spread": [3, 4, 3]}, "grid")


def test_what_one_writes_is_what_is_stored_and_read():
    space = MIXED | {"regimes": [None, ({"walk_prob": 0.5},)], "agents": [{trend_follower: 3}, None]}
    dimensions = read_space(space, [trend_follower])
    plain = {each.name: each.plain() for each in dimensions}
    again = read_space(plain, [trend_follower])
    assert {each.name: each.plain() for each in again} == plain
    assert plain["noise_spread"] == {"low": 2, "high": 12, "scale": "linear"}
    assert plain["agents"] == {"values": [{"agent_classes:trend_follower": {"count": 3}}, {}]}
    same(design(plain["tie"] and {"tie": plain["tie"]}, "grid").rows(0, 2), {"tie": np.array(["lowest", "mid"])})


def test_columns_of_tables_are_values():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"noise_spread": [3, 6], "market_order_prob": [0.1, 0.3], "tie": ["mid", "lowest"]})
    wanted = plans.make_plan(frame.to_dict("list"), 5, ["volume"], design="list").about()
    for given in (
        dict(frame),
        dict(frame.astype({"noise_spread": "Int64"})),
        {name: frame[name].array for name in frame},
    ):
        assert plans.make_plan(given, 5, ["volume"], design="list").about() == wanted
    assert plans.make_plan({"noise_spread": pandas.Index([3, 6])}, 5, ["volume"]).points == 2


def test_regimes_of_numpys_numbers_are_those_of_pythons():
    def stored(kind, varied):
        regimes = [{"noise_spread": kind(2)}, {"noise_spread": kind(9)}]
        space = {"regimes": [None, regimes]} if varied else {"init_depth": [3]}
        return json.dumps(plans.make_plan(space, 5, ["volume"], market={} if varied else {"regimes": regimes}).about())

    for varied in (True, False):
        assert stored(np.int64, varied) == stored(int, varied)


def test_a_number_is_the_same_point_however_it_is_written():
    made = [
        plans.make_plan({"noise_spread": spread, "market_order_prob": prob}, 5, ["volume"])
        for spread, prob in (([3, 6], [0.0, 0.5]), ([3.0, 6.0], [0, 0.5]), (np.array([3, 6.0]), np.array([0, 0.5])))
    ]
    assert len({plans.digest(json.loads(json.dumps(plan.about()))) for plan in made}) == 1
    assert all(plan.design.rows(0, 4)["noise_spread"].dtype == np.int64 for plan in made)
    one, other = (
        plans.make_plan({"market_order_prob": values}, 5, ["volume"]).about() for values in ([0, 1], [0.0, 1.0])
    )
    (said,) = plans.differences(one, other)  # columns of their tables differ, so this is said
    assert said == "space.market_order_prob is {'values': [0, 1]} there and {'values': [0.0, 1.0]} here"


def test_a_plan_takes_no_memory_for_its_points():
    tracemalloc.start()
    try:
        plan = plans.make_plan({"noise_spread": (2, 12), "walk_prob": (0.0, 0.4)}, 10, ["volume"], market="trading",
                               design="random", points=2**30)  # fmt: skip
        rows = plan.design.rows(2**30 - 10, 2**30)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(rows["walk_prob"]) == 10 and peak < 1 << 20


SPACES = [
    ({}, "space: got an empty mapping, allowed is at least one field"),
    ([1], "space: got [1], allowed is a mapping of fields to ranges or values, such as {'noise_spread': (3, 12)}"),
    ({"noise_spred": [3]}, "space: got 'noise_spred', did you mean 'noise_spread'? allowed are preset, num_levels,"),
    ({"trend_follower.lookbak": [3]}, "got 'trend_follower.lookbak', did you mean 'trend_follower.lookback'?"),
    ({3: [3]}, "space: got 3, allowed are preset,"),
    ({"noise_spread": 3}, "space['noise_spread']: got 3, allowed is (low, high), {'low': ..., 'high': ...} or a list"),
    ({"noise_spread": "3"}, "space['noise_spread']: got '3', allowed is (low, high)"),
    ({"noise_spread": []}, "space['noise_spread']: got no values, allowed are one or more"),
    ({"noise_spread": (3, 4, 5)}, "space['noise_spread']: got (3, 4, 5), allowed is (low, high)"),
    ({"noise_spread": (5, 3)}, "got {'low': 5, 'high': 3}, allowed are two whole numbers, low up to high, within 2^31"),
    ({"noise_spread": (2.5, 3)}, "got {'low': 2.5, 'high': 3}, allowed are two whole numbers"),
    ({"walk_prob": (0, float("nan"))}, "got {'low': 0, 'high': nan}, allowed are two numbers"),
    ({"walk_prob": (0, 1.5)}, "walk_prob: got 1.5, allowed is 0 to 1"),
    ({"noise_spread": [3, 40000]}, "noise_spread: got 40000, allowed is 0 to 32767"),
    ({"noise_spread": [3, "4"]}, "noise_spread: got '4' (str), allowed is a number"),
    ({"noise_spread": [3, None]}, "noise_spread: got None (NoneType), allowed is a number"),
    ({"num_levels": [64, 7]}, "num_levels: got 7, allowed is 8 to 8192"),
    ({"tie": (1, 2)}, "space['tie']: got a range, allowed is a list of values"),
    ({"tie": ["mid", "high"]}, "tie: got 'high', allowed are 'lowest', 'mid'"),
    ({"preset": ["trading", "news2"]}, "space['preset']: got 'news2', allowed are paper, trading, continuous, news"),
    ({"trend_follower.lookback": [1.5]}, "trend_follower.lookback: got 1.5, allowed is a whole number of 32 bits"),
    ({"noise_spread": {"low": 1, "hihg": 2}}, "space['noise_spread']: got 'hihg', did you mean 'high'?"),
    ({"noise_spread": {"values": [1], "low": 2}}, "allowed beside 'values' is nothing"),
    ({"walk_prob": {"low": 0, "high": 1, "scale": "log"}}, "got low 0 with scale 'log', allowed is a number above 0"),
    ({"walk_prob": {"low": 0.1, "high": 1, "scale": "ln"}}, "got the scale 'ln', allowed are 'linear', 'log'"),
    ({"walk_prob": {"low": 0.1, "high": 1, "steps": 0}}, "got steps 0, allowed is a whole number from 1"),
    ({"noise_spread": np.zeros((2, 2))}, "space['noise_spread']: got an array of shape [2, 2], allowed is (low, high)"),
]


@pytest.mark.parametrize(("space", "said"), SPACES, ids=[said[:60] for _, said in SPACES])
def test_wrong_spaces_are_refused_in_words(space, said):
    with pytest.raises((TypeError, ValueError)) as refused:
        read_space(space, [trend_follower])
    assert said in str(refused.value)


DESIGNS = [
    ({"kind": "gird"}, "design: got 'gird', allowed are 'grid', 'random', 'sobol', 'list'"),
    ({"kind": "random"}, "points: got None with design='random', allowed is how many to draw"),
    ({"kind": "random", "points": 0}, "points: got 0, allowed is 1 to 2^31 - 1"),
    ({"kind": "grid", "points": 5}, "points: got 5 with design='grid', allowed is None: there are 44"),
    ({"kind": "random", "points": 5, "seed": -1}, "design_seed: got -1, allowed is 0 to 2^63 - 1"),
    ({"kind": "grid", "space": {"walk_prob": (0, 1)}}, "space['walk_prob']: got a range with design='grid', allowed is "
     "a list of values, or a range with 'steps'"),
    ({"kind": "list"}, "space['noise_spread']: got a range with design='list', allowed is a list of values"),
    ({"kind": "list", "space": {"noise_spread": [1, 2], "tie": ["mid"]}}, "space: got lists of lengths "
     "{'noise_spread': 2, 'tie': 1}, allowed with design='list' is one length"),
    ({"kind": "random", "points": 4, "space": {"walk_prob": {"low": 0, "high": 1, "steps": 3}}},
     "space['walk_prob']: got steps with design='random', allowed are those of a grid"),
    ({"kind": "grid", "space": {"num_agents": (1, 2**20), "noise_spread": (0, 32767)}}, "space: got a grid of "
     "34359738368 points, allowed are up to 2147483647"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "said"), DESIGNS, ids=[said[:60] for _, said in DESIGNS])
def test_wrong_designs_are_refused_in_words(asked, said):
    space = asked.pop("space", {"noise_spread": (2, 12), "tie": ["lowest", "mid"], "max_order_qty": [1, 2]})
    with pytest.raises((TypeError, ValueError)) as refused:
        design(space, **asked)
    assert said in str(refused.value)


PLANS = [
    ({"market": 3}, "market: got 3, allowed are a MarketConfig, a preset, or a mapping of fields"),
    ({"market": "tradin"}, "preset: got 'tradin', allowed are"),
    ({"market": {"num_agent": 3}}, "market: got 'num_agent', did you mean 'num_agents'?"),
    ({"market": ks.MarketConfig(fee=[1, 2])}, "market: got fee per market, allowed is one value for all"),
    ({"market": "trading", "space": {"preset": ["news"]}}, "market: got preset 'trading' where the space has presets"),
    ({"statistics": ["kurtossis"]}, "statistics: got 'kurtossis', allowed are"),
    ({"statistics": {"noise_spread": "volume"}}, "statistics: got 'noise_spread', whose column 'noise_spread' "),
    ({"intervals": 0}, "intervals: got 0, allowed is 1 to"),
    ({"replicates": 1.5}, "replicates: got 1.5, allowed is a whole number from 1"),
    ({"warm_up": -1}, "warm_up: got -1, allowed is 0 to"),
    ({"common": 1}, "common: got 1, allowed are True and False"),
    ({"seed": 2**63 - 1, "replicates": 2}, "seed: got 9223372036854775807, allowed are seeds of all markets below"),
    ({"space": {"chartist.lookback": [3]}}, "space: got 'chartist.lookback', allowed are"),
]


@pytest.mark.parametrize(("asked", "said"), PLANS, ids=[said[:60] for _, said in PLANS])
def test_wrong_plans_are_refused_in_words(asked, said):
    given = {"space": {"noise_spread": [3]}, "intervals": 5, "statistics": ["volume"]} | asked
    with pytest.raises((TypeError, ValueError)) as refused:
        plans.make_plan(**given)
    assert said in str(refused.value)


CHECKS = [
    ({"space": {"walk_prob": [0.0, 0.5]}}, "window: got 0, allowed is a window above 0 when walk_prob"),
    ({"space": {"num_levels": [16, 128], "init_price": [8, 64]}}, "init_price: got 64, allowed is 1 to num_levels - 2"),
    ({"space": {"noise": [0.0], "maker": [0.0], "momentum": [0.0]}, "design": "list"}, "space: got shares of classes"),
    ({"space": {"trend_follower.lookback": [3], "agents": [None, {trend_follower: 2}]}}, "space: got "
     "'trend_follower.lookback' for a market without such agents; its classes are none"),
    ({"space": {"trend_follower.count": [3, 20000]}, "market": {"agents": {trend_follower: 1}}},
     "trend_follower.count: got 20000, allowed is a whole number from 0 to 16384"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "said"), CHECKS, ids=[said[:60] for _, said in CHECKS])
def test_points_that_are_no_markets_are_refused_before_anything_runs(asked, said):
    plan = plans.make_plan(**{"intervals": 5, "statistics": ["volume"]} | asked)
    with pytest.raises(ValueError) as refused:
        plan.check()
    assert said in str(refused.value)
