"""Known answers for `kineticsim_env.statistics`."""

import math
import sys

import numpy as np
import pytest
import torch

import kineticsim_env as ks
from kineticsim_env import statistics
from kineticsim_env.commands.simulate import RunSummary
from kineticsim_env.statistics import arrays, over_markets


def test_mean_and_error_leaves_out_nan():
    found = statistics.mean_and_error([1.0, 3.0, math.nan, 5.0])
    assert found.mean == 3.0 and found.count == 3
    assert found.error == pytest.approx(2.0 / math.sqrt(3))
    assert found.interval() == pytest.approx(4.302653 * found.error)  # Student's t of two degrees of freedom


@pytest.mark.parametrize(("values", "count"), [([], 0), ([math.nan], 0), ([2], 1)])
def test_too_few_values_have_no_error(values, count):
    found = statistics.mean_and_error(np.array(values))
    assert found.count == count and math.isnan(found.error)


def test_deviation_and_its_error():
    rng = np.random.default_rng(3)
    values, noise = rng.normal(2.0, 3.0, 40_000), rng.normal(0.0, 4.0, 40_000)
    found = statistics.deviation_and_error(values)
    assert found.mean == values.std(ddof=1)
    assert found.error == pytest.approx(3.0 / math.sqrt(2 * len(values)), rel=0.03)  # of a normal sample's deviation
    paired = statistics.deviation_and_error(values + noise, values)
    assert paired.mean == pytest.approx(2.0, abs=4 * paired.error)
    assert statistics.deviation_and_error(values, values).error == 0.0


# Bootstrap ------------------------------------------------------------------------------------------------------------


def test_a_bootstrap_of_two_markets_has_three_means():
    """Of 0 and 1 a sample has the mean 0, 1/2 or 1 with chances 1/4, 1/2, 1/4."""
    found = statistics.bootstrap_interval([0.0, 1.0], resamples=4000)
    assert found == (0.5, 0.0, 1.0, 2)
    half = statistics.bootstrap_interval([0.0, 1.0], confidence=0.4, resamples=4000)
    assert half == (0.5, 0.5, 0.5, 2)


def test_a_bootstrap_of_a_normal_sample_is_the_normal_interval():
    values = np.random.default_rng(3).normal(2.0, 3.0, 2000)
    mean, found = statistics.mean_and_error(values), statistics.bootstrap_interval(values, resamples=20_000)
    assert found.value == pytest.approx(mean.mean) and found.count == 2000
    assert found.low == pytest.approx(mean.mean - mean.interval(), abs=0.05 * mean.interval())
    assert found.high == pytest.approx(mean.mean + mean.interval(), abs=0.05 * mean.interval())
    narrow = statistics.bootstrap_interval(values, confidence=0.6827, resamples=20_000)
    assert narrow.high - narrow.low == pytest.approx(2 * mean.error, rel=0.05)


def test_a_bootstrap_covers_as_often_as_it_says():
    """The mean of an exponential variable, whose interval is wider above than below."""
    rng = np.random.default_rng(5)
    found = [statistics.bootstrap_interval(rng.exponential(size=100), resamples=400) for _ in range(600)]
    assert 0.91 < np.mean([one.low < 1.0 < one.high for one in found]) < 0.97
    assert np.mean([one.high - one.value - (one.value - one.low) for one in found]) > 0


def test_a_bootstrap_of_any_statistic_of_several_numbers_per_market():
    """A ratio of sums, against the interval of its influence function."""
    rng = np.random.default_rng(7)
    pairs = np.stack([rng.normal(6.0, 1.0, 3000), rng.normal(2.0, 0.5, 3000)], axis=1)
    found = statistics.bootstrap_interval(pairs, lambda s: s[..., 0].sum(1) / s[..., 1].sum(1), resamples=4000)
    ratio = pairs[:, 0].sum() / pairs[:, 1].sum()
    error = np.std(pairs[:, 0] - ratio * pairs[:, 1]) / pairs[:, 1].mean() / math.sqrt(3000)
    assert found.value == pytest.approx(ratio)
    assert found.low == pytest.approx(ratio - 1.96 * error, abs=0.15 * error)
    assert found.high == pytest.approx(ratio + 1.96 * error, abs=0.15 * error)


def test_a_bootstrap_is_seeded_and_its_blocks_do_not_show(monkeypatch):
    values = torch.arange(50) ** 3
    once = statistics.bootstrap_interval(values, resamples=333)
    assert once == statistics.bootstrap_interval(values, resamples=333)
    assert once != statistics.bootstrap_interval(values, resamples=333, seed=1)
    monkeypatch.setattr(over_markets, "_DRAWN", 7 * 50)
    assert once == statistics.bootstrap_interval(values, resamples=333)


def test_a_bootstrap_of_few_markets_and_of_undefined_values():
    nothing, one = statistics.bootstrap_interval([]), statistics.bootstrap_interval([math.nan, 4.0])
    assert nothing.count == 0 and math.isnan(nothing.value) and math.isnan(nothing.low)
    assert one[0] == 4.0 and one.count == 1 and math.isnan(one.low) and math.isnan(one.high)
    assert statistics.bootstrap_interval([3.0, math.nan, 3.0]) == (3.0, 3.0, 3.0, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"confidence": 1.0}, ValueError, "confidence: expected above 0 and below 1, got 1.0"),
        ({"confidence": 0}, ValueError, "confidence: expected .*got 0"),
        ({"resamples": 0}, ValueError, "resamples: expected 1.*got 0"),
        ({"seed": -1}, ValueError, "seed: .*got -1"),
        ({"statistic": 3}, TypeError, "statistic: expected a function, got 3"),
    ],
)
def test_a_bootstrap_refuses(arguments, error, said):
    with pytest.raises(error, match=said):
        statistics.bootstrap_interval([1.0, 2.0], **arguments)


# Series ---------------------------------------------------------------------------------------------------------------


def test_spread_of_two_sided_one_sided_and_empty_books():
    bid, ask = torch.zeros((4, 8), dtype=torch.int32), torch.zeros((4, 8), dtype=torch.int32)
    bid[0, [1, 2]], ask[0, [5, 7]] = 3, 1
    bid[1, 0], ask[1, 7] = 1, 1
    bid[2, 3] = 4
    np.testing.assert_array_equal(arrays.spread(bid, ask), [3.0, 7.0, np.nan, np.nan])


def test_returns_do_not_wrap_in_int32():
    price = torch.tensor([[-(2**30) * 2, 2**31 - 1]], dtype=torch.int32)
    assert arrays.returns(price).tolist() == [[2**32 - 1]]


@pytest.mark.parametrize("kind", ["u1", "i1", "u2", "u4", "i4", "u8", "f4", ">i4", "O"])
def test_narrow_and_unsigned_series_do_not_wrap(kind):
    series = np.array([[100, 3, 120, 7, 7, 90, 1, 127]]) - (kind == "i1") * 60
    given = series.astype(kind)
    for statistic in (arrays.volatility, arrays.excess_kurtosis, arrays.autocorrelation):
        assert statistic(given) == statistic(series), statistic
    assert np.array_equal(arrays.returns(given), np.diff(series))


def test_prices_that_are_not_whole_are_not_cut():
    assert arrays.returns([1.0, 5.0, 3.0]).tolist() == [4, -2]
    for wrong in (1.5, math.nan, math.inf, 1e30):
        with pytest.raises(ValueError, match="^price: expected whole ticks, got .*: divide by the tick, and round"):
            arrays.returns([1.0, wrong])


def test_masked_values_are_left_out():
    values = np.ma.masked_array([1, 2, 9], [False, False, True])
    assert statistics.mean_and_error(values) == statistics.mean_and_error([1, 2])
    assert statistics.bootstrap_interval(values) == statistics.bootstrap_interval([1, 2])
    assert np.isnan(arrays.volatility(values))
    with pytest.raises(TypeError, match="^values: expected numbers, got"):
        statistics.mean_and_error(["a"])


def test_known_moments():
    changes = np.array([[1, -1, 1, -1], [0, 0, 0, 4], [7, 7, 7, 7]])
    np.testing.assert_allclose(arrays.volatility(changes), [math.sqrt(4 / 3), 2.0, 0.0])
    # -1 and 1 in equal parts: 1 - 3. One 4 in four: deviations -1, -1, -1, 3, so (3 + 81) / 4 / 3^2 - 3.
    np.testing.assert_allclose(arrays.excess_kurtosis(changes), [-2.0, 21 / 9 - 3, np.nan])


def test_known_autocorrelation():
    series = np.array([[1, -1, 1, -1], [1, 2, 3, 4], [5, 5, 5, 5]])
    np.testing.assert_allclose(arrays.autocorrelation(series, 0), [1.0, 1.0, np.nan])
    np.testing.assert_allclose(arrays.autocorrelation(series, 1), [-0.75, 0.25, np.nan])
    assert np.isnan(arrays.autocorrelation(series, 4)).all()
    with pytest.raises(ValueError, match="lag: .*got -1"):
        arrays.autocorrelation(series, -1)


def test_normal_and_autoregressive_series():
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((20, 50_000))
    series = np.zeros_like(noise)
    for t in range(1, noise.shape[1]):
        series[:, t] = 0.5 * series[:, t - 1] + noise[:, t]
    assert statistics.mean_and_error(arrays.excess_kurtosis(noise)).mean == pytest.approx(0.0, abs=0.02)
    assert statistics.mean_and_error(arrays.volatility(noise)).mean == pytest.approx(1.0, abs=0.005)
    assert statistics.mean_and_error(arrays.autocorrelation(series)).mean == pytest.approx(0.5, abs=0.005)
    assert statistics.mean_and_error(arrays.autocorrelation(series, 3)).mean == pytest.approx(0.125, abs=0.006)


def test_a_large_level_changes_nothing(monkeypatch):
    changes = np.random.default_rng(2).integers(-5, 6, (7, 1000))
    names = ("volatility", "excess_kurtosis", "autocorrelation")
    expected = [getattr(arrays, name)(changes) for name in names]
    monkeypatch.setattr(arrays, "_BLOCK", 3000)  # three rows at a time
    for name, want in zip(names, expected, strict=True):
        np.testing.assert_allclose(getattr(arrays, name)(changes + 2**50), want, rtol=1e-12)
        np.testing.assert_allclose(
            getattr(arrays, name)(changes * 2.0**400), want * (2.0**400) ** (name == "volatility")
        )


def test_empty_and_short_series():
    for length in (0, 1):
        series = np.zeros((3, length))
        assert np.isnan(arrays.volatility(series)).all()
        assert np.isnan(arrays.excess_kurtosis(series)).all()
        assert np.isnan(arrays.autocorrelation(series)).all()


def test_summary_counts_by_hand():
    summary = RunSummary()
    bid, ask = torch.zeros((2, 8), dtype=torch.int32), torch.zeros((2, 8), dtype=torch.int32)
    bid[:, 2], ask[0, 4] = 1, 1
    summary.sample_book(bid, ask)
    ask[:, 6] = 1
    summary.sample_book(bid, ask)
    last_price = torch.tensor([[5, 6, 6], [5, 5, 7]], dtype=torch.int32)
    volume = torch.tensor([[2, 0, 1], [0, 0, 2**31 - 1]], dtype=torch.int32)
    table = dict(summary.table(last_price, volume))
    assert table["volume per market, units"].mean == (3 + 2**31 - 1) / 2
    assert table["auctions that traded"].mean == 1.5
    assert table["last price, ticks"].mean == 6.5
    assert table["spread of the book, ticks"].mean == ((2 + 2) / 2 + 4) / 2
    assert table["two-sided books, share"].mean == 0.75


def test_a_table_without_pandas(monkeypatch):
    found = ks.measure(ks.MarketConfig.preset("trading"), 20, ["volume"], markets=2, engine="numpy", progress=False)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="to_pandas needs pandas: pip install pandas"):
        found.to_pandas()
