"""Intervals of means over few markets: Student's quantiles, and how often they hold what they are said to hold."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from thorough import slow

import kineticsim_env as ks
from kineticsim_env.counterfactuals.arms import mean_path
from kineticsim_env.envs.counterfactual_episodes import EnvCounterfactual
from kineticsim_env.evaluation import confidence_interval
from kineticsim_env.runtime import build
from kineticsim_env.scorecards import Line
from kineticsim_env.statistics import half_width, mean_and_error
from kineticsim_env.statistics.facts import FACTS

ENGINE = "numpy" if build.cpu_unavailable() else "cpu"
REPLICATES = [2, 3, 5, 20]


@pytest.mark.parametrize("confidence", [0.01, 0.5, 0.9, 0.95, 0.99, 0.9999])
def test_quantiles_are_those_of_scipy(confidence):
    stats = pytest.importorskip("scipy.stats")
    counts = np.array([*range(2, 150), 1000, 10**6, 2**40])
    wanted = stats.t.ppf((1 + confidence) / 2, counts - 1)
    np.testing.assert_allclose(half_width(1.0, counts, confidence), wanted, rtol=1e-6)
    np.testing.assert_allclose(half_width(1.0, counts[:90], confidence), wanted[:90], rtol=1e-10)


def test_known_quantiles():
    """One degree of freedom is Cauchy's distribution, tan(pi * 0.475); two, sqrt(2) * 0.95 / sqrt(1 - 0.95^2)."""
    assert half_width(1.0, 2) == pytest.approx(math.tan(math.pi * 0.475), rel=1e-12)
    assert half_width(3.0, 3) == pytest.approx(3 * math.sqrt(2) * 0.95 / math.sqrt(1 - 0.95**2), rel=1e-12)
    assert half_width(1.0, 10**9) == pytest.approx(1.959964, abs=1e-6)


def test_too_few_values_and_no_error_have_no_interval():
    found = half_width(np.array([[1.0, 1.0], [np.nan, 2.0]]), np.array([1, 5]))
    np.testing.assert_allclose(found, [[np.nan, 2.776445], [np.nan, 5.552890]], rtol=1e-6)
    assert half_width([], []).shape == (0,) and isinstance(half_width(1, 5), float)
    assert all(math.isnan(half_width(1.0, count)) for count in (1, 0, -3))
    for values in ([4.0], []):
        assert math.isnan(mean_and_error(values).interval())
    for wrong in (1.0, 0.0, 1.96, "x", math.nan):
        with pytest.raises((TypeError, ValueError), match="^confidence: expected .*, got "):
            half_width(1.0, 3, wrong)
    with pytest.raises(TypeError, match="^error: expected a standard error.*got 'x'"):
        half_width("x", 3)
    with pytest.raises(TypeError, match="^count: expected how many values.*got None"):
        half_width(1.0, None)


def binomial(share, trials):
    """Return four standard errors of a share that is right."""
    return 4 * math.sqrt(share * (1 - share) / trials)


@pytest.mark.parametrize("count", REPLICATES)
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_intervals_hold_the_mean_as_often_as_they_say(count, confidence):
    values = np.random.default_rng(count).normal(7.0, 3.0, (4000, count))
    found = [mean_and_error(row) for row in values]
    held = np.mean([abs(one.mean - 7.0) < one.interval(confidence) for one in found])
    assert abs(held - confidence) < binomial(confidence, len(values))


def test_evaluations_and_counterfactuals_do_as_well():
    """Each says the same of the same few markets: with 1.96 errors they held the mean in 70% of cases."""
    values = np.random.default_rng(4).normal(0.0, 1.0, (2, 3000))
    lived = values.copy()
    lived[0, 0] = np.nan
    mean, half = mean_path(values)
    assert abs(np.mean(np.abs(mean) < half) - 0.95) < binomial(0.95, 3000)
    one = EnvCounterfactual({}, {}, {"mid2": lived}, lived, lived).mean_difference()
    np.testing.assert_allclose(one, [np.r_[values[1, 0], mean[1:]], np.r_[np.nan, half[1:]]])
    evaluated = [confidence_interval(pair) for pair in values.T]
    np.testing.assert_allclose(evaluated, np.stack([mean, half], 1))


@slow
@pytest.mark.parametrize("replicates", REPLICATES)
def test_half_widths_of_a_sweep_hold_what_many_replicates_find(replicates):
    pytest.importorskip("pyarrow")
    pytest.importorskip("pandas")
    points = 400
    given = {"market": {"preset": "trading", "num_agents": 16}, "engine": ENGINE, "design": "list", "common": False}
    space = {"noise_spread": [14] * points}
    found = ks.sweep(space, 60, ["volume"], replicates=replicates, seed=5, progress=False, **given).to_pandas()
    truth = (
        ks.sweep(space, 60, ["volume"], replicates=40, seed=10**9, progress=False, **given).to_pandas()["volume"].mean()
    )
    held = ((found["volume"] - truth).abs() < found["volume_half_width"]).mean()
    assert abs(held - 0.95) < binomial(0.95, points)
    np.testing.assert_allclose(found["volume_half_width"], half_width(found["volume_error"], replicates))


def test_a_point_whose_markets_do_not_all_define_a_statistic_has_an_interval_of_those_that_do():
    start = ks.MarketConfig.preset("trading").replace(num_agents=16)
    price = ks.Simulator(start, 1, engine="numpy").run(1, ("last_price",), progress=False)["last_price"].item()

    def own(price_series):
        return torch.where(price_series[:, -1] > price, torch.nan, price_series.double().std(1))

    measured = ks.measure(
        start, 60, {"own": ks.statistics.of_series(own, "last_price")}, markets=5 * 40, group=5, engine=ENGINE
    )
    value, columns = measured["own"], measured.columns()
    assert set(value.count.tolist()) >= {1, 2, 3}
    for group in range(40):
        seen = value.of_markets[5 * group : 5 * group + 5]
        wanted = mean_and_error(seen).interval()
        assert columns["own_half_width"][group] == pytest.approx(wanted, nan_ok=True)


@pytest.mark.parametrize(("count", "verdict"), [(2, "unclear"), (3, "unclear"), (400, "met")])
def test_a_fact_near_its_bound_is_unclear_with_few_markets(count, verdict):
    fact = FACTS[0]
    line = Line(fact, fact.low + 3.0 * 0.01, 0.01, count)
    assert line.verdict == verdict and line.half_width == half_width(0.01, count)


def test_no_line_writes_a_normal_quantile_of_its_own():
    root = Path(__file__).parent.parent
    places = [
        *(root / "kineticsim_env").rglob("*.py"),
        *(root / "scripts").rglob("*.py"),
        *(root / "examples").rglob("*.py"),
    ]
    found = [path.name for path in places if re.search(r"\b1\.96\b *\*|\* *1\.96\b|= *1\.96\b", path.read_text())]
    assert found == []
