"""What a sweep varies, and where its points are: against NumPy and scipy, cut anywhere, and in words where refused."""

import itertools
import json
import tracemalloc
import warnings

import numpy as np
import pytest
from agent_classes import trend_follower
from messages import mentions

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
    with pytest.raises(ValueError, match=r"space\['noise_spread'\]: expected each value once, got 3 twice"):
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
    ({}, "space: expected at least one field, got an empty mapping"),
    ([1], "space: expected a mapping of fields to ranges or values, such as {'noise_spread': (3, 12)}, got [1]"),
    (
        {"noise_spred": [3]},
        "space: expected one of preset, num_levels, .*, got 'noise_spred': did you mean 'noise_spread'?",
    ),
    ({"trend_follower.lookbak": [3]}, "got 'trend_follower.lookbak': did you mean 'trend_follower.lookback'?"),
    ({3: [3]}, "space: expected one of preset, .*, got 3"),
    ({"noise_spread": 3}, "space['noise_spread']: expected (low, high), {'low': ..., 'high': ...} or a list.*got 3"),
    ({"noise_spread": "3"}, "space['noise_spread']: expected (low, high).*got '3'"),
    ({"noise_spread": []}, "space['noise_spread']: expected one value or more, got none"),
    ({"noise_spread": (3, 4, 5)}, "space['noise_spread']: expected (low, high).*got (3, 4, 5)"),
    ({"noise_spread": (5, 3)}, "expected two whole numbers, low up to high, within 2^31, got {'low': 5, 'high': 3}"),
    ({"noise_spread": (2.5, 3)}, "expected two whole numbers.*got {'low': 2.5, 'high': 3}"),
    ({"walk_prob": (0, float("nan"))}, "expected two numbers.*got {'low': 0, 'high': nan}"),
    ({"walk_prob": (0, 1.5)}, "walk_prob: expected 0 to 1, got 1.5"),
    ({"noise_spread": [3, 40000]}, "noise_spread: expected 0 to 32767, got 40000"),
    ({"noise_spread": [3, "4"]}, "noise_spread: expected a number, got '4' (str)"),
    ({"noise_spread": [3, None]}, "noise_spread: expected a number, got None (NoneType)"),
    ({"num_levels": [64, 7]}, "num_levels: expected 8 to 8192, got 7"),
    ({"tie": (1, 2)}, "space['tie']: expected a list of values, got a range"),
    ({"tie": ["mid", "high"]}, "tie: expected one of 'lowest', 'mid', got 'high'"),
    (
        {"preset": ["trading", "news2"]},
        "space['preset']: expected one of paper, trading, continuous, news, .*, got 'news2'",
    ),
    ({"trend_follower.lookback": [1.5]}, "trend_follower.lookback: expected a whole number of 32 bits, got 1.5"),
    ({"noise_spread": {"low": 1, "hihg": 2}}, "space['noise_spread']: expected .*, got 'hihg': did you mean 'high'?"),
    ({"noise_spread": {"values": [1], "low": 2}}, "expected nothing beside 'values'"),
    ({"walk_prob": {"low": 0, "high": 1, "scale": "log"}}, "expected low above 0 with scale 'log', got 0"),
    ({"walk_prob": {"low": 0.1, "high": 1, "scale": "ln"}}, "expected the scale 'linear' or 'log', got 'ln'"),
    ({"walk_prob": {"low": 0.1, "high": 1, "steps": 0}}, "expected steps from 1, a whole number, got 0"),
    ({"noise_spread": np.zeros((2, 2))}, "space['noise_spread']: expected (low, high).*got an array of shape [2, 2]"),
]


@pytest.mark.parametrize(("space", "said"), SPACES, ids=[said[:60] for _, said in SPACES])
def test_wrong_spaces_are_refused_in_words(space, said):
    with pytest.raises((TypeError, ValueError)) as refused:
        read_space(space, [trend_follower])
    assert mentions(str(refused.value), said)


DESIGNS = [
    ({"kind": "gird"}, "design: expected one of 'grid', 'random', 'sobol', 'list', got 'gird'"),
    ({"kind": "random"}, "points: expected how many to draw, got None with design='random'"),
    ({"kind": "random", "points": 0}, "points: expected 1 to 2^31 - 1.*got 0"),
    ({"kind": "grid", "points": 5}, "points: expected None, got 5 with design='grid': there are 44"),
    ({"kind": "random", "points": 5, "seed": -1}, "design_seed: expected 0 to 2^63 - 1, got -1"),
    ({"kind": "grid", "space": {"walk_prob": (0, 1)}}, "space['walk_prob']: expected a list of values, or a range "
                                                       "with 'steps'.*got a range with design='grid'"),
    ({"kind": "list"}, "space['noise_spread']: expected a list of values, got a range with design='list'"),
    ({"kind": "list", "space": {"noise_spread": [1, 2], "tie": ["mid"]}}, "space: expected lists of one length with "
                                                                          "design='list', got lengths "
                                                                          "{'noise_spread': 2, 'tie': 1}"),
    ({"kind": "random", "points": 4, "space": {"walk_prob": {"low": 0, "high": 1, "steps": 3}}},
     "space['walk_prob']: expected steps with a grid alone, got them with 'random'"),
    ({"kind": "grid", "space": {"num_agents": (1, 2**20), "noise_spread": (0, 32767)}}, "space: expected up to "
                                                                                        "2147483647 points, "
                                                                                        "got a grid of 34359738368"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "said"), DESIGNS, ids=[said[:60] for _, said in DESIGNS])
def test_wrong_designs_are_refused_in_words(asked, said):
    space = asked.pop("space", {"noise_spread": (2, 12), "tie": ["lowest", "mid"], "max_order_qty": [1, 2]})
    with pytest.raises((TypeError, ValueError)) as refused:
        design(space, **asked)
    assert mentions(str(refused.value), said)


PLANS = [
    ({"market": 3}, "market: expected a MarketConfig, a preset, or a mapping of fields, got 3"),
    ({"market": "tradin"}, "preset: expected .*got 'tradin'"),
    ({"market": {"num_agent": 3}}, "market: expected .*, got 'num_agent': did you mean 'num_agents'?"),
    ({"market": ks.MarketConfig(fee=[1, 2])}, "market: expected one value for all, got fee per market"),
    (
        {"market": "trading", "space": {"preset": ["news"]}},
        "market: expected other fields alone where the space has presets, got preset 'trading'",
    ),
    ({"statistics": ["kurtossis"]}, "statistics: expected .*got 'kurtossis'"),
    (
        {"statistics": {"noise_spread": "volume"}},
        "statistics: expected .*, got 'noise_spread', whose column 'noise_spread' ",
    ),
    ({"intervals": 0}, "intervals: expected 1 to.*got 0"),
    ({"replicates": 1.5}, "replicates: expected a whole number from 1, got 1.5"),
    ({"warm_up": -1}, "warm_up: expected 0 to.*got -1"),
    ({"common": 1}, "common: expected True or False, got 1"),
    ({"seed": 2**63 - 1, "replicates": 2}, "seed: expected seeds of all markets below.*got 9223372036854775807"),
    ({"space": {"chartist.lookback": [3]}}, "space: expected .*got 'chartist.lookback'"),
]


@pytest.mark.parametrize(("asked", "said"), PLANS, ids=[said[:60] for _, said in PLANS])
def test_wrong_plans_are_refused_in_words(asked, said):
    given = {"space": {"noise_spread": [3]}, "intervals": 5, "statistics": ["volume"]} | asked
    with pytest.raises((TypeError, ValueError)) as refused:
        plans.make_plan(**given)
    assert mentions(str(refused.value), said)


CHECKS = [
    ({"space": {"walk_prob": [0.0, 0.5]}}, "window: expected a window above 0 when walk_prob.*got 0"),
    ({"space": {"num_levels": [16, 128], "init_price": [8, 64]}}, "init_price: expected 1 to num_levels - 2.*got 64"),
    ({"space": {"noise": [0.0], "maker": [0.0], "momentum": [0.0]}, "design": "list"},
     "space: expected a positive sum, got shares of classes that are all 0"),
    ({"space": {"trend_follower.lookback": [3], "agents": [None, {trend_follower: 2}]}},
     "space: expected a class of the market's agents, none, got 'trend_follower.lookback'"),
    ({"space": {"trend_follower.count": [3, 20000]}, "market": {"agents": {trend_follower: 1}}},
     "trend_follower.count: expected a whole number from 0 to 16384, got 20000"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "said"), CHECKS, ids=[said[:60] for _, said in CHECKS])
def test_points_that_are_no_markets_are_refused_before_anything_runs(asked, said):
    plan = plans.make_plan(**{"intervals": 5, "statistics": ["volume"]} | asked)
    with pytest.raises(ValueError) as refused:
        plan.check()
    assert mentions(str(refused.value), said)
