"""The preset `"realistic"`: what its study measures holds in small, and its search looks where it says."""

import math

import numpy as np
import pytest
from thorough import slow

import kineticsim_env as ks
from examples.studies.realistic import study
from kineticsim_env.statistics.facts import statistics_of
from kineticsim_env.traders import order_splitter


def test_the_preset_is_its_point_and_comes_back_from_json():
    preset = ks.MarketConfig.preset("realistic")
    assert study.POINT == (0.003, 0.8, 0.25, 8.0, 4.0, 20.0, 0.5, 0.4)
    assert [regime["jump_size"] for regime in preset.regimes] == [2, 4, 5, 7, 9, 12, 16, 27]
    assert study.market_of(study.POINT) == preset
    assert preset.agents[order_splitter].count == 4
    assert not study.market_of(study.POINT._replace(splitters=0.2)).agents


def test_the_oracle_plays_it_with_the_same_bits():
    sims = [ks.Simulator(ks.MarketConfig.preset("realistic"), 2, engine=engine, seed=3) for engine in ("numpy", "cpu")]
    for sim in sims:
        sim.run(12)
    assert all(np.array_equal(sims[0].tensors[name], sims[1].tensors[name]) for name in sims[0].tensors)


def test_splitters_hold_a_side_for_all_parts_of_an_order():
    sim = ks.Simulator(ks.MarketConfig.preset("realistic"), 50, engine="cpu", seed=3)
    before = {name: values.clone() for name, values in sim.memory["order_splitter"].items()}
    turned = came = 0
    for _ in range(200):
        sim.run(1)
        now = sim.memory["order_splitter"]
        turned += int(((now["side"] != before["side"]) & (before["side"] != 0)).sum())
        came += int((now["left"] != before["left"]).sum())
        assert (now["left"] >= 0).all() and (now["left"] < 400).all()
        before = {name: values.clone() for name, values in now.items()}
    assert came > 10000 and 0 < turned < came / 30  # an order has 16 parts or more, and half of the next have its side


GOOD = {
    "autocorrelation(price='last')": np.full(200, 0.01),
    "variance_ratio(span=100, price='last')": 1.05,
    "abs_autocorrelation(lag=20, price='last')": 0.18,
    "abs_autocorrelation(lag=[20, 100], price='last')": np.array([0.18, 0.1]),
    **{f"kurtosis(span={span}, price='last')": tails for span, tails in ((1, 5.0), (10, 3.0), (100, 1.0))},
    "volume_volatility(price='last')": 0.3,
    "sign_autocorrelation(lag=[1, 2, 5, 10, 20, 50])": np.full(6, 0.1),
    "impact_exponent": 0.8,
}


def inside(values):
    """Return how far inside each fact is where statistics have these values."""
    found = {
        name: asked.number([(np.asarray(values[text])[None], np.zeros(1)) for text in statistics_of(facts=[asked])])
        for name, asked in study.ASKED.items()
    }
    assert all(number.shape == (1,) for number in found.values())
    return {name: study.ASKED[name].inside(float(number[0])) for name, number in found.items()}


@pytest.mark.parametrize(
    ("fact", "changed"),
    [
        ("white", {"autocorrelation(price='last')": np.array([0.01, -0.06])}),
        ("ratio", {"variance_ratio(span=100, price='last')": 0.79}),
        ("ratio", {"variance_ratio(span=100, price='last')": 1.21}),
        ("clusters", {"abs_autocorrelation(lag=20, price='last')": 0.09}),
        ("slowly", {"abs_autocorrelation(lag=[20, 100], price='last')": np.array([0.18, 0.04])}),
        ("slowly", {"abs_autocorrelation(lag=[20, 100], price='last')": np.array([-0.1, -0.05])}),
        ("tails", {"kurtosis(span=1, price='last')": 2.9, "kurtosis(span=10, price='last')": 2.0}),
        ("tails", {"kurtosis(span=1, price='last')": 10.1}),
        ("aggregated", {"kurtosis(span=10, price='last')": 5.2}),
        ("aggregated", {"kurtosis(span=100, price='last')": 3.1}),
        ("with volume", {"volume_volatility(price='last')": -0.01}),
        ("signs", {"sign_autocorrelation(lag=[1, 2, 5, 10, 20, 50])": np.array([0.1, 0.1, 0.1, 0.1, -0.01, 0.1])}),
        ("impact", {"impact_exponent": 1.01}),
        ("impact", {"impact_exponent": math.nan}),
    ],
)
def test_each_fact_fails_alone(fact, changed):
    assert min(inside(GOOD).values()) > 0
    assert [name for name, far in inside(GOOD | changed).items() if far < 0] == [fact]


def test_what_is_asked_can_be_the_rows_of_a_scorecard():
    preset = ks.MarketConfig.preset("realistic")
    card = ks.scorecard(preset, 200, markets=8, warm_up=20, engine="cpu", facts=tuple(study.ASKED.values()))
    texts = [statistics_of(facts=[asked]) for asked in study.ASKED.values()]
    means = [[(card.measured[text].value, None) for text in each] for each in texts]
    numbers = [float(asked.number(each)[0]) for asked, each in zip(study.ASKED.values(), means, strict=True)]
    assert [line.value for line in card.lines] == pytest.approx(numbers, nan_ok=True)
    assert all(line.error > 0 for line in card.lines if not math.isnan(line.value))


@slow
def test_what_is_put_in_and_what_comes_out():
    """The path alone has the facts of prices; splitters make the memory of signs; trading brings volume to moves."""
    few = {"engine": "cpu", "progress": False}
    path = study.look(ks.MarketConfig.preset("realistic"), 200, 2000, "fundamental", **few)
    assert set(path.numbers) == {"white", "ratio", "clusters", "slowly", "tails", "aggregated"} and path.worst > 0
    market = study.look(ks.MarketConfig.preset("realistic"), 200, 2000, **few)
    own = ks.measure(ks.MarketConfig.preset("realistic"), 2000, ["kurtosis(price='fundamental')"], markets=200,
                     warm_up=study.WARM_UP, group=None, seed=study.SEED, engine="cpu")  # fmt: skip
    assert path.numbers["tails"] == own["kurtosis(price='fundamental')"].value[0] != market.numbers["tails"]
    plain, still = study.without(splitters=True), study.without(fundamental=True)
    assert (plain.agents, plain.regimes is None, len(still.agents), still.regimes) == ({}, False, 1, None)
    signs = study.look(plain, 200, 1000, **few).inside["signs"], study.look(still, 200, 1000, **few).inside["signs"]
    assert signs[0] < 0 < signs[1] and market.inside["signs"] > 0
    fixed = ks.Simulator(still, 2, engine="cpu").run(50, ("fundamental",))["fundamental"]
    assert (fixed == fixed[:, :1]).all()


def test_points_are_where_the_search_says():
    low, high = np.array(study.LOW), np.array(study.HIGH)
    wide, close = np.array(study.points(20)), np.array(study.points(20, around=study.POINT, seed=1))
    assert ((wide >= low) & (wide <= high)).all() and len(np.unique(wide[:, 0])) == 20
    assert (np.abs(close - study.POINT) <= (high - low) / 8 + 1e-12).all() and ((close >= low) & (close <= high)).all()
    assert study.points(20) == study.points(20)


@slow
def test_the_preset_shows_all_facts_in_small():
    found = study.look(ks.MarketConfig.preset("realistic"), 200, engine="cpu", progress=False)
    assert found.worst > 0, found.inside
