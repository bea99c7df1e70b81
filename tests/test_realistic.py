"""The preset `"realistic"`: what docs/realistic.md measures holds in small, and its search looks where it says."""

import math

import numpy as np
import pytest

import kineticsim_env as ks
from kineticsim_env.studies import realistic as study
from kineticsim_env.traders import order_splitter
from tests.thorough import slow


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


def good():
    clusters = 0.2 * np.exp(-np.arange(200) / 150)
    return {
        "white": np.full(200, 0.01), "ratio": 1.05, "clusters": clusters, "tails 1": 5.0, "tails 10": 3.0,
        "tails 100": 1.0, "with volume": 0.3, "signs": np.full(6, 0.1), "impact": 0.8,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fact", "changed"),
    [
        ("white", {"white": np.array([0.01, -0.06])}),
        ("ratio", {"ratio": 0.79}),
        ("ratio", {"ratio": 1.21}),
        ("clusters", {"clusters": 0.09 * np.ones(200)}),
        ("slowly", {"clusters": 0.3 * np.exp(-np.arange(200) / 30)}),
        ("tails", {"tails 1": 2.9, "tails 10": 2.0}),
        ("tails", {"tails 1": 10.1}),
        ("aggregated", {"tails 10": 5.2}),
        ("aggregated", {"tails 100": 3.1}),
        ("with volume", {"with volume": -0.01}),
        ("signs", {"signs": np.array([0.1, 0.1, 0.1, 0.1, -0.01, 0.1])}),
        ("impact", {"impact": 1.01}),
        ("impact", {"impact": math.nan}),
    ],
)
def test_each_fact_fails_alone(fact, changed):
    inside = {name: asked.inside(good()) for name, asked in study.ASKED.items()}
    assert min(inside.values()) > 0
    outside = [name for name, asked in study.ASKED.items() if asked.inside(good() | changed) < 0]
    assert outside == [fact]


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
