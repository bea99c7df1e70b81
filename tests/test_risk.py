"""What tables have beside the mean: known answers by hand, laws, intervals that cover, and what is refused."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kineticsim_env import policies
from kineticsim_env.evaluation import (
    Evaluation,
    confidence_interval,
    cvar,
    difference,
    evaluate,
    evaluation_env,
    evaluation_parallel_env,
    sharpe_ratio,
    standard_deviation,
)

SAMPLES = st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=200).map(lambda given: np.array(given, float))
NAMES = "mean standard_deviation sharpe_ratio cvar traded inventory final_inventory".split()
NAMES += "at_limit drawdown fill_ratio turnover episode_return".split()


# Known answers --------------------------------------------------------------------------------------------------------


def test_the_sharpe_ratio_by_hand():
    """1, 2, 3, 4: mean 2.5, deviation sqrt(5 / 3)."""
    found = sharpe_ratio([1.0, 2.0, 3.0, 4.0])
    assert found.mean == pytest.approx(2.5 / math.sqrt(5 / 3)) and found.count == 4
    assert math.isnan(sharpe_ratio([3.0]).mean) and math.isnan(sharpe_ratio(np.full(7, 0.1)).mean)


def test_the_error_of_the_sharpe_ratio_is_mertens_and_of_normal_episodes_lo_s():
    draws = np.random.default_rng(1).exponential(2.0, 5000) - 1.0
    scores = (draws - draws.mean()) / draws.std()
    skewness, kurtosis = (scores**3).mean(), (scores**4).mean()
    ratio = draws.mean() / draws.std()
    by_mertens = math.sqrt((1 + ratio**2 / 2 - skewness * ratio + (kurtosis - 3) / 4 * ratio**2) / 5000)
    assert sharpe_ratio(draws).error == pytest.approx(by_mertens, rel=2e-3)
    normal = np.random.default_rng(2).normal(1.5, 1.0, 200_000)
    found = sharpe_ratio(normal)
    assert found.error == pytest.approx(math.sqrt((1 + found.mean**2 / 2) / 200_000), rel=5e-3)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        (range(100, 0, -1), 0.05, 3.0),  # 1 to 5
        (range(1, 31), 0.05, (1 + 2 / 2) / 1.5),  # the worst, and half of the next
        (range(1, 11), 0.05, 1.0),  # fewer than one: the worst
        (range(1, 101), 0.07, 4.0),  # 1 to 7, though 0.07 * 100 is above 7
        (range(1, 101), 1.0, 50.5),
        ([-8.0, 5.0, 5.0, 5.0], 0.5, -1.5),
        ([4.0], 0.05, 4.0),
    ],
)
def test_cvar_by_hand(values, share, expected):
    assert cvar(list(values), share).mean == pytest.approx(expected, rel=1e-12)


def test_cvar_and_its_error_are_those_of_the_normal_distribution():
    """The mean below the quantile z is -phi(z) / 5%; Manistre and Hancock's variance is that of the tail's values."""
    z, phi = -1.6448536269514722, 0.10313564037537139
    draws = np.random.default_rng(3).normal(0.0, 1.0, 400_000)
    found = cvar(draws)
    assert found.mean == pytest.approx(-phi / 0.05, abs=0.01)
    tail = np.sort(draws)[:20_000]
    variance = (tail.var() + 0.95 * (tail.mean() - z) ** 2) / (400_000 * 0.05)
    assert found.error == pytest.approx(math.sqrt(variance), rel=5e-3) and found.count == 20_000


def test_errors_of_few_or_equal_episodes_are_not_made_up():
    assert math.isnan(cvar(np.arange(39.0)).error) and cvar(np.arange(40.0)).error > 0
    assert standard_deviation(np.full(9, 0.1))[0] == 0.0 and math.isnan(standard_deviation([5.0]).mean)
    assert standard_deviation([1.0, 2.0, 3.0, 4.0]).mean == pytest.approx(math.sqrt(5 / 3))


# Laws -----------------------------------------------------------------------------------------------------------------


@given(SAMPLES, st.floats(0.01, 100.0), st.integers(-1000, 1000), st.randoms(use_true_random=False))
def test_scales_shifts_and_orders_change_what_they_should(sample, scale, shift, random):
    mixed = sample.copy()
    random.shuffle(mixed)
    for measure in (cvar, standard_deviation, sharpe_ratio):
        assert measure(mixed).mean == pytest.approx(measure(sample).mean, rel=1e-9, nan_ok=True)
    worst = cvar(sample).mean
    assert cvar(sample * scale + shift).mean == pytest.approx(worst * scale + shift, rel=1e-9, abs=1e-6)
    assert sample.min() <= worst <= sample.mean() + 1e-9
    if (sample != sample[0]).any():
        assert sharpe_ratio(sample * scale).mean == pytest.approx(sharpe_ratio(sample).mean, rel=1e-9)
        assert standard_deviation(sample * scale).mean == pytest.approx(standard_deviation(sample).mean * scale)


@given(SAMPLES, st.floats(0.01, 1.0), st.floats(0.01, 1.0))
def test_cvar_grows_with_the_share_and_does_not_know_copies(sample, one, other):
    low, high = sorted((one, other))
    assert cvar(sample, low).mean <= cvar(sample, high).mean + 1e-6
    assert cvar(np.tile(sample, 3), one).mean == pytest.approx(cvar(sample, one).mean, rel=1e-9, abs=1e-6) or (
        one * len(sample) < 1  # of one sample the worst is all there is
    )


@pytest.mark.parametrize("skewed", [False, True])
def test_intervals_cover_nineteen_times_in_twenty(skewed):
    """Of skewed episodes, too, where Lo's formula covers 98%."""
    random = np.random.default_rng(4)
    draws = random.exponential(1.0, (1000, 1000)) if skewed else random.normal(0.3, 1.0, (1000, 1000))
    truth = {
        sharpe_ratio: 1.0 if skewed else 0.3,
        cvar: 1 + 0.95 / 0.05 * math.log(0.95) if skewed else 0.3 - 0.10313564037537139 / 0.05,
        standard_deviation: 1.0,
    }
    for measure, true in truth.items():
        hits = [abs(found.mean - true) <= found.interval() for found in map(measure, draws)]
        assert 0.92 < np.mean(hits) < 0.975, measure


# Evaluations ----------------------------------------------------------------------------------------------------------


def test_figures_of_an_evaluation_are_those_of_its_fields():
    envs = evaluation_env(64, engine="cpu", horizon=25, bank_size=8)
    result = evaluate(policies.FixedSpread(envs.core.task, 2.0), envs)
    found = result.figures()
    assert list(found) == NAMES
    assert found["sharpe_ratio"] == sharpe_ratio(result.pnl) and found["cvar"] == cvar(result.pnl)
    assert found["mean"][:2] == pytest.approx((result.pnl.mean(), result.pnl.std(ddof=1) / 8))
    assert found["final_inventory"].mean == pytest.approx(np.abs(result.final_inventory).mean())
    assert (found["mean"].mean, found["mean"].interval()) == result.pnl_interval() == confidence_interval(result.pnl)


def test_differences_are_paired():
    fields = [np.zeros(3) for _ in range(8)]
    one, other = Evaluation(np.array([5.0, 7.0, 9.0]), *fields), Evaluation(np.array([1.0, 3.0, 5.0]), *fields)
    assert difference(one, other)[:2] == (4.0, 0.0)
    with pytest.raises(ValueError, match="other: expected 3 episodes, as the first has, got 1"):
        difference(one, Evaluation(*(np.zeros(1) for _ in range(9))))


def test_the_final_inventory_is_that_of_where_each_learner_s_episode_ended():
    """An executor's ends with its block, the maker's at the horizon; what it held then was unwound."""
    envs = evaluation_parallel_env(16, {"maker": 1, "executor": 1}, engine="cpu", horizon=20, bank_size=8)
    task = envs.core.task
    found = evaluate({"maker": policies.FixedSpread(task, 2.0), "executor": policies.TimeWeighted(task)}, envs)
    assert set(np.abs(found["executor_0"].final_inventory)) == {float(task.block_qty)}
    maker = found["maker_0"].final_inventory
    assert maker.dtype == np.float64 and maker.any() and not envs.simulator.inventory[:, 0].any()


@pytest.mark.parametrize("measure", [cvar, sharpe_ratio, standard_deviation])
@pytest.mark.parametrize("values", [[], [[1.0]], "x", None, [1j], torch.zeros(0)])
def test_what_is_no_list_of_episodes_is_refused(measure, values):
    with pytest.raises((TypeError, ValueError), match=r"^values: expected (an array )?\[M\]"):
        measure(values)


@pytest.mark.parametrize("share", [0, -1, 1.1, math.nan, "x", None])
def test_no_share_is_refused(share):
    with pytest.raises((TypeError, ValueError), match="^share: expected a finite number above 0, up to 1, got"):
        cvar([1.0, 2.0], share)
