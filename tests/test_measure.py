"""`measure`: each statistic beside a plain definition, known processes, and what no result may depend on."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from thorough import slow

import kineticsim_env as ks
from kineticsim_env import statistics
from kineticsim_env.errors import MarketError
from kineticsim_env.runtime import layout
from kineticsim_env.statistics import STATISTICS, Plan, check_statistics, chunks, measure_series, measuring
from kineticsim_env.statistics.gathering import Accumulator, Histogram
from kineticsim_env.statistics.plans import column_names

OF_SERIES = [name for name in STATISTICS if name != "book_shape" and not name.startswith("event_")]  # of tapes
SHORT = ks.MarketConfig.preset("trading", num_agents=16)


def some_series(markets=5, length=400, seed=0):
    rng = np.random.default_rng(seed)
    price = 1000 + np.cumsum(rng.integers(-6, 7, (markets, length)), axis=1)
    gap = rng.integers(1, 5, price.shape)
    found = {
        "last_price": price,
        "mid2": 2 * price + rng.integers(-1, 2, price.shape),
        "fundamental": price + rng.integers(-9, 10, price.shape),
        "volume": rng.poisson(20, price.shape),
        "signed_volume": rng.integers(-40, 41, price.shape),
        "bid_depth": rng.integers(0, 90, price.shape),
        "ask_depth": rng.integers(0, 90, price.shape),
        "best_bid": price - gap,
        "best_ask": price + 1,
    }
    empty = rng.random(price.shape) < 0.1
    found["best_bid"] = np.where(empty, -(2**31 - 1), found["best_bid"])
    return {name: values.astype(np.int32) for name, values in found.items()}


def same(one, other):
    for name in one:
        assert np.array_equal(one[name].of_markets, other[name].of_markets, equal_nan=True), name
        assert np.array_equal(one[name].value, other[name].value, equal_nan=True), name
        assert np.array_equal(one[name].error, other[name].error, equal_nan=True), name


def prices_of(returns, scale=1.0):
    """Prices in whole ticks whose changes are these returns, but for the rounding of the price."""
    path = np.concatenate([np.zeros((len(returns), 1)), np.cumsum(scale * returns, axis=1)], axis=1)
    return {"last_price": np.rint(path).astype(np.int64)}


# Plain definitions ----------------------------------------------------------------------------------------------------


def plain_correlation(early, late, lag):
    early, late = early - early.mean(), late - late.mean()
    return (early[: len(early) - lag] * late[lag:]).sum() / math.sqrt((early**2).sum() * (late**2).sum())


def plain_values(series, market):
    """Every statistic of one market by its definition, with loops and NumPy."""
    s = {name: values[market].astype(np.float64) for name, values in series.items()}
    p, mid, v, q = s["last_price"], s["mid2"] / 2, s["volume"], s["signed_volume"]
    r, m = np.diff(p), np.diff(mid)
    long = p[10:] - p[:-10]
    z = (long - long.mean()) / long.std()
    both = s["best_bid"] > -(2**31 - 1)
    ratios = []
    for h in (2, 5, 10, 20, 50, 100, 200):
        spans, number = p[h:] - p[:-h] - h * r.mean(), len(r)
        ratios.append((spans**2).sum() / (h * (number - h + 1) * (1 - h / number)) / r.var(ddof=1))
    sizes = np.sort(np.abs(r))[::-1]
    k = int(0.25 * len(sizes))
    sign = np.sign(q)
    responses = []
    for lag in (1, 2, 5, 10, 20, 50, 100):
        total = 0.0
        for step in range(lag):
            early, late = sign[1 : len(sign) - step], m[step:]
            total += (early * late).sum() / (early != 0).sum()
        responses.append(total)
    bins = np.floor(np.log2(np.maximum(np.abs(q[1:]), 1)))
    curve = [(m * sign[1:])[(bins == b) & (q[1:] != 0)] for b in range(16)]
    curve = np.array([part.mean() if len(part) else math.nan for part in curve])
    lags = range(1, 201)
    return {
        "mean_return": r.mean(),
        "volatility(price='mid')": m.std(ddof=1),
        "skewness(span=10)": (z**3).mean(),
        "kurtosis(span=10)": (z**4).mean() - 3,
        "unchanged": (r == 0).mean(),
        "quantile": np.quantile(r, (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99), method="inverted_cdf"),
        "tail_index(share=0.25)": k / np.log(sizes[:k] / sizes[k]).sum(),
        "variance_ratio": ratios,
        "price_deviation": p.std(ddof=1),
        "price_error": math.sqrt(((p - s["fundamental"]) ** 2).mean()),
        "autocorrelation": [plain_correlation(r, r, lag) for lag in lags],
        "abs_autocorrelation(lag=[3, 150])": [plain_correlation(np.abs(r), np.abs(r), lag) for lag in (3, 150)],
        "leverage": [plain_correlation(r, r**2, lag) for lag in range(1, 21)],
        "volume": v.mean(),
        "volume_deviation": v.std(ddof=1),
        "traded": (v > 0).mean(),
        "volume_autocorrelation": [plain_correlation(v, v, lag) for lag in lags],
        "volume_volatility": plain_correlation(np.abs(r), v[1:], 0),
        "spread": (s["best_ask"] - s["best_bid"])[both].mean(),
        "one_sided": (~both).mean(),
        "depth": (s["bid_depth"] + s["ask_depth"]).mean() / 2,
        "sign_autocorrelation": [plain_correlation(sign, sign, lag) for lag in lags],
        "signed_volume_autocorrelation(lag=7)": plain_correlation(q, q, 7),
        "response": responses,
        "impact_curve": curve,
    }


def test_every_statistic_is_what_its_definition_says():
    series = some_series()
    names = list(plain_values(series, 0))
    found = measure_series(series, names)
    for market in (0, 4):
        for name, expected in plain_values(series, market).items():
            assert found[name].value[market] == pytest.approx(expected, rel=1e-10, abs=1e-10, nan_ok=True), name
    named = {name.partition("(")[0] for name in names}
    assert named == set(OF_SERIES) - {"impact_exponent"}  # which has a test of its own


def test_those_that_studies_take_of_arrays_are_the_same():
    price = some_series()["last_price"]
    change = statistics.arrays.returns(price)
    found = measure_series({"last_price": price}, ["volatility", "kurtosis", "autocorrelation"])
    assert found["volatility"].value == pytest.approx(statistics.arrays.volatility(change), rel=1e-12)
    assert found["kurtosis"].value == pytest.approx(statistics.arrays.excess_kurtosis(change), rel=1e-12)
    for lag in (1, 30, 200):
        expected = statistics.arrays.autocorrelation(change, lag)
        assert found["autocorrelation"].value[:, lag - 1] == pytest.approx(expected, abs=1e-12)


def test_skewness_and_kurtosis_are_scipys():
    stats = pytest.importorskip("scipy.stats")
    price = some_series()["last_price"]
    change = np.diff(price.astype(np.int64))
    found = measure_series({"last_price": price}, ["skewness", "kurtosis"])
    assert found["skewness"].value == pytest.approx(stats.skew(change, axis=1), abs=1e-12)
    assert found["kurtosis"].value == pytest.approx(stats.kurtosis(change, axis=1), abs=1e-12)


# What no result may depend on -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [pytest.param(1, marks=slow), 41, 100, 399])
def test_results_do_not_depend_on_where_a_run_is_cut(chunk):
    series = some_series()
    same(measure_series(series, OF_SERIES), measure_series(series, OF_SERIES, chunk=chunk))


def test_results_do_not_depend_on_how_many_markets_are_looked_at_together(monkeypatch):
    series = some_series()
    whole = measure_series(series, OF_SERIES)
    monkeypatch.setitem(chunks._BLOCK, "cpu", 1)  # one market at a time
    same(whole, measure_series(series, OF_SERIES))


def test_results_do_not_depend_on_what_else_is_measured():
    series = some_series()
    together = measure_series(series, OF_SERIES)
    for name in OF_SERIES:
        same(measure_series(series, [name]), together)


def test_a_level_costs_no_digits():
    series = some_series()
    high = {name: values.copy() for name, values in series.items()}
    for name, level in (("last_price", 2**29), ("mid2", 2**30), ("volume", 2**20)):
        high[name] += level
    names = ["volatility", "autocorrelation", "volume_deviation", "volume_volatility", "price_deviation", "response"]
    same(measure_series(series, names), measure_series(high, names))


def test_nothing_is_kept_that_grows_with_time():
    def kept(length):
        plans = check_statistics(OF_SERIES)
        gathering = measuring._Gathering(plans, 2, 1, torch.device("cpu"))
        series = {name: torch.from_numpy(values) for name, values in some_series(2, length).items()}
        gathering.add({name: series[name] for name in gathering.record})
        sums = [part for accumulator in gathering.accumulators.values() for part in accumulator.sums.values()]
        return sum(part.untyped_storage().nbytes() for part in (*sums, *gathering.feed._last.values()))

    assert kept(400) == kept(1200)


@pytest.mark.gpu
def test_a_gpu_measures_the_same():
    series = some_series(64, 700)
    moved = {name: torch.from_numpy(values).cuda() for name, values in series.items()}
    host, gpu = measure_series(series, OF_SERIES, group=16), measure_series(moved, OF_SERIES, group=16, chunk=97)
    for name in OF_SERIES:  # sums are equal, what is made of them is rounded by each library
        for part in ("value", "error"):
            assert getattr(gpu[name], part) == pytest.approx(
                getattr(host[name], part), rel=1e-9, abs=1e-12, nan_ok=True
            )


@pytest.mark.gpu
def test_a_gpu_runs_and_measures_the_same():
    names = [*OF_SERIES, "book_shape"]
    host, gpu = (ks.measure(SHORT, 300, names, markets=40, group=10, engine=engine) for engine in ("cpu", "cuda"))
    for name in names:
        expected = pytest.approx(host[name].of_markets, rel=1e-9, abs=1e-12, nan_ok=True)
        assert gpu[name].of_markets == expected, name


# Known processes ------------------------------------------------------------------------------------------------------


def test_independent_returns():
    """Uniform on -6 .. 6: kurtosis -3/5 (n^2 + 1) / (n^2 - 1) with n = 13; no memory; a random walk."""
    price = some_series(200, 1000)["last_price"]
    names = ["kurtosis", "autocorrelation(lag=[1, 20])", "abs_autocorrelation(lag=1)", "variance_ratio", "unchanged"]
    found = measure_series({"last_price": price}, names, group=None)
    expected = {"kurtosis": -1.2 * 170 / 168, "variance_ratio": 1.0, "unchanged": 1 / 13}
    for name in names:
        value = found[name]
        memory = name.partition("(")[0].endswith("autocorrelation")
        known = -1 / 999 if memory else expected[name]
        assert np.all(np.abs(value.value - known) < 4 * value.error), name


def test_an_autoregression():
    """r(t) = 0.5 r(t - 1) + e(t): autocorrelation 0.5^k, and the variance ratio that follows from it."""
    rng = np.random.default_rng(1)
    noise, returns = rng.normal(size=(200, 2000)), np.zeros((200, 2000))
    for t in range(1, 2000):
        returns[:, t] = 0.5 * returns[:, t - 1] + noise[:, t]
    found = measure_series(prices_of(returns, 1000.0), ["autocorrelation", "variance_ratio(span=[2, 10])"], group=None)
    acf = found["autocorrelation"]
    for lag in (1, 2, 3, 6):
        assert acf.value[0, lag - 1] == pytest.approx(0.5**lag, abs=4 * acf.error[0, lag - 1] + 0.003)
    ratio = found["variance_ratio(span=[2, 10])"]
    for place, span in enumerate((2, 10)):
        known = 1 + 2 * sum((1 - lag / span) * 0.5**lag for lag in range(1, span))
        assert ratio.value[0, place] == pytest.approx(known, abs=4 * ratio.error[0, place] + 0.01)


def test_volatility_that_clusters():
    """GARCH(1, 1), a = 0.1, b = 0.8: kurtosis 6 a^2 / (1 - b^2 - 2 a b - 3 a^2), no memory of r, much of |r|."""
    rng = np.random.default_rng(2)
    variance, returns = np.ones(400), np.zeros((400, 2000))
    for t in range(2000):
        returns[:, t] = np.sqrt(variance) * rng.normal(size=400)
        variance = 0.1 + 0.1 * returns[:, t] ** 2 + 0.8 * variance
    names = ["kurtosis", "autocorrelation(lag=1)", "abs_autocorrelation(lag=[1, 20])"]
    found = measure_series(prices_of(returns, 300.0), names, group=None)
    known = 6 * 0.1**2 / (1 - 0.8**2 - 2 * 0.1 * 0.8 - 3 * 0.1**2)
    low, high = found["kurtosis"].intervals(confidence=0.999)
    assert low[0] - 0.05 < known < high[0] + 0.05  # a long market's estimate is a little low
    assert abs(found["autocorrelation(lag=1)"].value[0]) < 0.01
    sizes = found["abs_autocorrelation(lag=[1, 20])"].value[0]
    assert sizes[0] > sizes[1] > 0.01 and sizes[0] > 0.1


def test_pareto_tails():
    """P(|r| > x) ~ x^-a; Hill's estimate of a has the deviation a / sqrt(k), and k / (k - 1) of bias."""
    rng = np.random.default_rng(3)
    for exponent in (2.0, 4.0):
        size = rng.pareto(exponent, (300, 2000)) + 1
        returns = np.rint(np.minimum(300 * size, 60_000)) * rng.choice([-1, 1], size.shape)
        found = measure_series(prices_of(returns), ["tail_index", "tail_index(share=0.01)"], group=None)
        for name, k in (("tail_index", 100), ("tail_index(share=0.01)", 20)):
            value = found[name]
            assert value.value[0] == pytest.approx(exponent * k / (k - 1), abs=4 * value.error[0] + 0.01), name
            assert value.error[0] == pytest.approx(exponent / math.sqrt(k) / math.sqrt(300), rel=0.25)


def test_a_leverage_effect():
    rng = np.random.default_rng(4)
    noise = rng.normal(size=(50, 3000))
    scale = np.ones_like(noise)
    scale[:, 1:] = np.exp(-0.3 * noise[:, :-1])  # a fall is followed by larger moves
    parts = prices_of(noise * scale, 100.0)
    found = measure_series(parts, {"leverage": "leverage(lag=[1, 5])"}, group=None)["leverage"]
    assert found.value[0, 0] < -0.1 and abs(found.value[0, 1]) < 4 * found.error[0, 1] + 0.001


@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_the_exponent_of_impact(exponent):
    rng = np.random.default_rng(5)
    flow = rng.integers(-500, 501, (8, 3000))
    move = np.rint(100 * np.sign(flow) * np.abs(flow) ** exponent + rng.normal(0, 50, flow.shape))
    series = {"mid2": np.cumsum(move, axis=1).astype(np.int64), "signed_volume": flow}
    found = measure_series(series, ["impact_exponent", "impact_curve"], group=None)
    value = found["impact_exponent"]
    assert value.value[0] == pytest.approx(exponent, abs=0.02)
    assert 0 < value.error[0] < 0.01
    curve = found["impact_curve"]
    assert curve.labels is not None and curve.value[0, curve.labels.index(64)] == pytest.approx(
        50 * np.mean(np.arange(64.0, 128.0) ** exponent), rel=0.02
    )


def test_flow_that_moves_the_price_for_good_and_flow_that_does_not():
    """A response of 3 ticks per signed interval that stays, or that is gone after the next."""
    rng = np.random.default_rng(6)
    sign = rng.choice([-1, 0, 1], (40, 2000))
    for stays, later in ((1, 3.0), (0, 0.0)):
        move = 3 * sign
        if not stays:
            move = move - 3 * np.concatenate([np.zeros((40, 1), int), sign[:, :-1]], axis=1)
        found = measure_series(
            {"mid2": 2 * np.cumsum(move, axis=1), "signed_volume": 7 * sign}, ["response"], group=None
        )
        value = found["response"]
        assert value.value[0, 0] == pytest.approx(3.0, abs=4 * value.error[0, 0] + 1e-9)
        assert value.value[0, 3] == pytest.approx(later, abs=4 * value.error[0, 3])


def test_a_histogram_knows_sizes_to_its_resolution():
    """Below 128 exactly, above within 1/128."""
    values = np.unique(np.concatenate([np.arange(300), np.geomspace(300, 65_535, 400).astype(int)]))
    price = np.concatenate([[0], np.cumsum(values * np.where(np.arange(len(values)) % 2, -1, 1))])
    levels = [(i + 0.5) / len(values) for i in range(len(values))]
    found = measure_series({"last_price": price[None]}, {"q": f"quantile(level={levels})"})["q"].value[0]
    expected = np.sort(np.diff(price))
    assert np.array_equal(found[np.abs(expected) < 128], expected[np.abs(expected) < 128])
    assert np.all(np.abs(found - expected) <= np.abs(expected) / 128)
    assert len(Histogram.sizes(torch.device("cpu"))) == Histogram.bins


def test_beyond_the_histogram_nothing_is_made_up():
    """65,535 is still told apart; of larger sizes neither a quantile nor the tail is known, nor cut in silence."""
    changes = np.array([[-65_535, *range(-50, 51), 65_535], [-70_000, *range(-50, 51), 65_536]])
    price = np.concatenate([np.zeros((2, 1), int), np.cumsum(changes, 1)], 1)
    names = {"q": "quantile(level=[0, 0.5, 1])", "tail": "tail_index(share=0.1)", "volatility": "volatility"}
    found = measure_series({"last_price": price}, names)
    assert found["q"].value[0].tolist() == pytest.approx([-65_535, 0, 65_535], rel=1 / 128)
    assert np.isnan(found["q"].value[1]).tolist() == [True, False, True] and found["q"].value[1, 1] == 0
    assert np.isnan(found["tail"].value).tolist() == [False, True]
    assert found["volatility"].value == pytest.approx(changes.std(1, ddof=1))


# Where there is nothing to measure ------------------------------------------------------------------------------------


def test_a_constant_market_is_undefined_where_it_should_be():
    series = {name: np.full((3, 250), values[0, 0]) for name, values in some_series().items()}
    series["signed_volume"][:] = 0
    series["best_bid"][:] = -(2**31 - 1)
    found = measure_series(series, OF_SERIES, group=None)
    zero = {"mean_return", "volatility", "price_deviation", "volume_deviation", "quantile"}
    defined = zero | {"unchanged", "price_error", "volume", "traded", "one_sided", "depth"}
    for name in OF_SERIES:
        values = found[name].value
        assert np.all(np.isnan(values)) if name not in defined else not np.any(np.isnan(values)), name
        assert name not in zero or np.all(values == 0), name
        assert np.all(found[name].count == (3 if name in defined else 0)), name
    assert found["unchanged"].value[0] == 1 and found["one_sided"].value[0] == 1


def test_a_market_that_defines_nothing_is_left_out_of_its_group():
    price = some_series(3)["last_price"].copy()
    price[1] = 7
    alone, group = (measure_series({"last_price": price}, ["kurtosis"], group=size)["kurtosis"] for size in (1, None))
    assert np.isnan(alone.value).tolist() == [False, True, False]
    assert group.count[0] == 2 and group.value[0] == pytest.approx(np.nanmean(alone.value))


@pytest.mark.parametrize("length", [1, 2, 3, 50])
def test_runs_shorter_than_lags_and_spans(length):
    series = some_series(2, length)
    found = measure_series(series, OF_SERIES)
    acf, ratio = found["autocorrelation"].value, found["variance_ratio"].value
    assert np.isnan(acf[:, max(0, length - 2) :]).all()
    assert not np.isnan(acf[:, : max(0, length - 2)]).any()
    assert np.isnan(ratio).tolist() == [[span >= length - 1 for span in (2, 5, 10, 20, 50, 100, 200)]] * 2
    assert not np.isnan(found["volume"].value).any()
    same(found, measure_series(series, OF_SERIES, chunk=1))


def test_one_market_has_no_error():
    found = measure_series({"last_price": some_series(1)["last_price"][0]}, ["kurtosis", "quantile"], group=None)
    assert found["kurtosis"].value.shape == (1,) and not np.isnan(found["kurtosis"].value[0])
    assert np.isnan(found["kurtosis"].error[0]) and np.isnan(found["quantile"].error).all()


# Groups ---------------------------------------------------------------------------------------------------------------


def test_a_groups_value_is_the_mean_of_its_markets_with_its_error():
    series = some_series(6)
    alone, pairs = (measure_series(series, ["kurtosis", "autocorrelation"], group=group) for group in (1, 3))
    for name in alone:
        own = alone[name].value.reshape(2, 3, *alone[name].value.shape[1:])
        assert pairs[name].value == pytest.approx(own.mean(1), rel=1e-12)
        assert pairs[name].error == pytest.approx(own.std(1, ddof=1) / math.sqrt(3), rel=1e-9)
        assert np.array_equal(pairs[name].of_markets, alone[name].of_markets)
    assert (pairs.groups, pairs.group_size, pairs.intervals) == (2, 3, 400)


def test_what_is_pooled_has_the_jackknifes_error():
    """Of a mean over equally many intervals the jackknife is the usual error."""
    rng = np.random.default_rng(7)
    series = {"mid2": 2 * np.cumsum(rng.integers(-3, 4, (12, 500)), 1), "signed_volume": np.full((12, 500), 5)}
    alone, together = (measure_series(series, ["impact_curve"], group=group)["impact_curve"] for group in (1, None))
    place = together.labels.index(4)
    own = alone.value[:, place]
    assert together.value[0, place] == pytest.approx(own.mean())
    assert together.error[0, place] == pytest.approx(own.std(ddof=1) / math.sqrt(12))
    assert together.half_width[0, place] == pytest.approx(2.200985 * together.error[0, place])  # t of 11
    assert np.isnan(np.delete(together.value[0], place)).all()


def test_columns_table_and_intervals():
    found = measure_series(some_series(4), ["kurtosis", "autocorrelation(lag=[1, 5])"], group=2)
    columns = found.columns()
    plain = ["kurtosis", "autocorrelation_1", "autocorrelation_5"]
    assert list(columns) == [f"{name}{ending}" for name in plain for ending in ("", "_error", "_half_width")]
    assert all(column.shape == (2,) for column in columns.values())
    assert list(found.columns(errors=False)) == plain
    assert found.table(1).splitlines()[0].startswith("kurtosis ")
    value = found["kurtosis"]
    low, high = value.intervals()
    assert np.all(low <= value.value) and np.all(value.value <= high)


def test_an_interval_is_not_had_of_what_is_no_mean_over_markets():
    """A fit of short markets is another number than the fit of all of them, so their bootstrap would miss it."""
    names = ["impact_exponent", "impact_curve"]
    found = {group: ks.measure(SHORT, 40, names, markets=12, group=group, engine="cpu") for group in (1, None)}
    for name in names:
        assert found[None][name].pooled and not found[1][name].pooled
        with pytest.raises(
            ValueError,
            match="^intervals: expected means over markets, got a statistic that is read of all markets .* together",
        ):
            found[None][name].intervals()
        assert len(found[1][name].intervals(resamples=10)) == 2


def test_columns_never_overwrite_each_other():
    for names, column in (
        ({"a": "volatility", "a_error": "kurtosis"}, "a_error"),
        ({"a": "volatility", "a_half_width": "kurtosis"}, "a_half_width"),
        ({"a_1": "kurtosis", "a": "autocorrelation(lag=[1, 2])"}, "a_1"),
        ({"a": "autocorrelation(lag=[1, 2])", "a_2_error": "kurtosis"}, "a_2_error"),
    ):
        one, other = names
        with pytest.raises(ValueError) as caught:
            check_statistics(names)
        assert str(caught.value).startswith(
            f"statistics: expected names with columns of their own, got {one!r} and {other!r}, which both have a "
            f"column {column!r}"
        )
    twice = ["autocorrelation(lag=[1, 20])", "autocorrelation(lag=1)", "autocorrelation"]  # the same number each time
    found = measure_series(some_series(), twice)
    assert np.array_equal(found.columns()["autocorrelation_1"], found["autocorrelation(lag=1)"].value)
    for other in ("autocorrelation(lag=1, price='last')", "quantile(level=0.5)"):
        check_statistics([*twice, other])
    with pytest.raises(ValueError, match="expected names with columns.*, which both have a column 'autocorrelation_1'"):
        check_statistics({"autocorrelation(lag=1)": "autocorrelation(lag=1)", "autocorrelation_1": "kurtosis"})
    found = measure_series(some_series(), {"q": "quantile(level=[0.1234567, 0.1234568, 0.5])"})
    assert list(found.columns(errors=False)) == ["q_0.1234567", "q_0.1234568", "q_0.5"]


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("kurtosis", ["kurtosis"]),
        ("kurtosis(span=10)", ["kurtosis_10"]),
        ("autocorrelation(lag=1, price='mid')", ["autocorrelation_1_mid"]),
        ("abs_autocorrelation(lag=[1, 5])", ["abs_autocorrelation_1", "abs_autocorrelation_5"]),
        ("autocorrelation(lag=[2], price='mid')", ["autocorrelation_mid_2"]),
        ("quantile(level=[0.05, 0.5])", ["quantile_0.05", "quantile_0.5"]),
        ("impact_curve", [f"impact_curve_{2**power}" for power in range(16)]),
    ],
)
def test_names_of_columns_are_plain(name, columns):
    (plan,) = check_statistics([name]).values()
    assert column_names(name, plan.labels) == columns


def test_a_name_that_is_no_call_stays():
    assert column_names("mine (2)", None) == ["mine (2)"] and column_names("a b", ("c",)) == ["a b_c"]


def test_a_table_for_pandas():
    found = measure_series(some_series(4), ["kurtosis", "volume"], group=2)
    try:
        import pandas  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(ModuleNotFoundError, match="pip install pandas"):
            found.to_pandas()
        return
    frame = found.to_pandas()
    assert frame.shape == (2, 6) and np.array_equal(frame["volume"], found["volume"].value)


# Runs -----------------------------------------------------------------------------------------------------------------


def test_a_run_is_measured_as_its_series_are():
    record = ("last_price", "mid2", "fundamental", "volume", "best_bid", "best_ask", "bid_depth", "ask_depth",
              "signed_volume")  # fmt: skip
    simulator = ks.Simulator(SHORT, 4, engine="cpu", seed=3)
    simulator.run(20)
    series = simulator.branch().run(230, record)
    expected = measure_series(series, OF_SERIES, group=2)
    same(expected, ks.measure(SHORT, 230, OF_SERIES, markets=4, seed=3, warm_up=20, group=2, engine="cpu"))
    same(expected, ks.measure(simulator, 230, [*OF_SERIES, "book_shape"], group=2, chunk=33))
    assert int(simulator.t[0]) == 250  # it went on from where it was


def test_a_market_that_has_stopped_is_not_measured_as_if_it_ran():
    simulator = ks.Simulator(SHORT, 3, engine="cpu")
    simulator.tensors["error"][1] = layout.CONSTANTS["kErrorOverflow"]
    with pytest.raises(MarketError, match="^market 1: "):
        simulator.check_errors()
    simulator.check_errors()  # says it once
    with pytest.raises(MarketError, match="^measure: expected markets that run, got one that has stopped; reset it"):
        ks.measure(simulator, 20, ["volume"])
    simulator.reset()
    assert ks.measure(simulator, 20, ["volume"])["volume"].value.shape == (3,)


def test_a_warm_up_is_not_cut_as_finely_as_a_short_run(monkeypatch):
    lengths = []
    run = ks.Simulator.run
    monkeypatch.setattr(
        ks.Simulator, "run", lambda self, step, *a, **k: lengths.append(step) or run(self, step, *a, **k)
    )
    ks.measure(SHORT, 1, ["volume"], markets=2, warm_up=1000, engine="cpu")
    assert lengths == [1000, 1]


def test_the_mean_shape_of_books():
    """Looked at every 100 intervals, beside a loop over levels."""
    simulator = ks.Simulator(SHORT, 3, engine="cpu", seed=1)
    clone = simulator.branch()
    found = ks.measure(simulator, 250, ["book_shape(distance=[0, 1, 4])"])["book_shape(distance=[0, 1, 4])"].value
    units, sides = np.zeros((3, 3)), np.zeros(3)
    for _ in range(2):
        clone.run(100)
        for market in range(3):
            bid, ask = clone.bid[market].numpy(), clone.ask[market].numpy()
            for side in (bid[::-1], ask):  # both from the best price outwards
                if side.any():
                    best = int(np.flatnonzero(side)[0])
                    sides[market] += 1
                    units[market] += [side[best + d] if best + d < len(side) else 0 for d in (0, 1, 4)]
    assert found == pytest.approx(units / sides[:, None])
    short = ks.measure(SHORT, 99, ["book_shape"], markets=1, engine="cpu")["book_shape"]
    assert np.isnan(short.value).all()  # there was no look


def test_the_page_prints_what_it_says(capsys):
    page = (Path(__file__).parent.parent / "docs" / "statistics.md").read_text()
    code, printed = (page.partition(f"```{language}\n")[2].partition("```")[0] for language in ("python", "text"))
    exec(code, {})
    assert capsys.readouterr().out == printed


# Your own -------------------------------------------------------------------------------------------------------------


class LargestMove(Accumulator):
    record, history = ("last_price",), 1

    def shapes(self):
        return {"largest": ()}

    def update(self, chunk):
        moves = chunk.window(chunks.Change("last_price")).abs()
        if moves.shape[1]:
            self.sums["largest"][chunk.rows] = self.sums["largest"][chunk.rows].maximum(moves.amax(1))


def largest_move():
    return Plan((LargestMove(),), lambda sums: sums["largest"], unit="ticks")


def test_your_own_statistics(monkeypatch):
    series = some_series()
    expected = np.abs(np.diff(series["last_price"])).max(1)
    span = statistics.of_series(
        lambda price, volume: torch.stack([price.amax(1), volume.amin(1)], 1), "last_price", "volume"
    )
    monkeypatch.setitem(STATISTICS, "largest_move", largest_move)
    found = measure_series(series, {"a": largest_move, "b": "largest_move", "c": span}, chunk=9)
    assert np.array_equal(found["a"].value, expected) and np.array_equal(found["b"].value, expected)
    assert np.array_equal(found["c"].value[:, 0], series["last_price"].max(1))
    assert np.array_equal(found["c"].value[:, 1], series["volume"].min(1))
    assert "c_1" in found.columns()
    for wrong in (torch.sum, torch.cumsum(torch.ones(3), 0).__class__.tolist, lambda price: price[:2, 0]):
        with pytest.raises((TypeError, ValueError), match="got") as caught:
            measure_series(series, {"fine": "volatility", "wrong": statistics.of_series(wrong, "last_price")})
        assert caught.value.__notes__ == ["It was raised by the statistic 'wrong'."]


class Forgetful(LargestMove):
    history = 0  # of moves over one interval: each chunk would lose its first


def test_an_accumulator_that_looks_back_says_how_far():
    with pytest.raises(
        ValueError,
        match=r"^history: expected \d+ intervals or more before Change\(name='last_price', span=1\), got fewer",
    ):
        measure_series(some_series(), {"mine": lambda: Plan((Forgetful(),), lambda sums: sums["largest"])}, chunk=9)


def test_plans_of_your_own_are_looked_at_before_anything_is_run():
    for gathers in ((), ("last_price",), (LargestMove,)):
        with pytest.raises(TypeError, match=r"^statistics: expected one or more of Acc.*got .*, whose Plan gathers "):
            check_statistics({"mine": lambda gathers=gathers: Plan(gathers, lambda sums: sums)})
    with pytest.raises(TypeError) as caught:
        check_statistics({"mine": lambda lag: largest_move()})
    assert caught.value.__notes__[0].endswith(", which is called without arguments.")


def ends(price):
    return torch.stack([price[:, 0], price[:, -1]], 1)


def test_your_own_have_the_names_of_their_functions_and_labels():
    series = some_series()
    largest = statistics.of_series(torch.amax, "last_price")
    found = measure_series(series, [statistics.of_series(ends, "last_price", labels=("first", "last"), axis="end")])
    assert found["ends"].axis == "end" and list(found.columns(errors=False)) == ["ends_first", "ends_last"]
    assert np.array_equal(found["ends"].value, series["last_price"][:, [0, -1]])
    assert "ends_first" in found.table() and list(check_statistics([largest])) == ["amax"]
    assert list(check_statistics([statistics.of_series(lambda price: price[:, 0], "last_price")])) == ["statistic"]
    with pytest.raises(ValueError, match=r"expected \[5, 3\], got values \[5, 2\] of 5 markets"):
        measure_series(series, {"ends": statistics.of_series(ends, "last_price", labels=range(3))})
    precise = statistics.of_series(ends, "last_price", labels=np.array([0.1234567, 0.1234568]))
    assert list(measure_series(series, [precise]).columns(errors=False)) == ["ends_0.1234567", "ends_0.1234568"]
    for labels in (3, "ab"):
        with pytest.raises(TypeError, match="^labels: expected numbers or texts, one per value, or None, got"):
            statistics.of_series(ends, "last_price", labels=labels)
    with pytest.raises(ValueError, match="^names: expected one of last_price, .*, got 'price'"):
        statistics.of_series(ends, "price")
    with pytest.raises(TypeError, match="^function: expected a function of series, got 'ends'"):
        statistics.of_series("ends", "last_price")


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        "kurtosis", 3, [], ["curtosis"], ["kurtosis("], ["kurtosis(10)"], ["kurtosis(spam=10)"], ["kurtosis(span=0)"],
        ["kurtosis(span=1.5)"], ["autocorrelation(lag=[])"], ["autocorrelation(lag=[1, 1])"], ["quantile(level=2)"],
        ["volatility(price='ask')"], ["tail_index(share=0)"], ["kurtosis", "kurtosis"], [3], [print], ["os.system"],
        ["variance_ratio(span=__import__('os'))"], {"": "kurtosis"}, ["response(lag=0)"], ["kurtosis(**{})"],
        np.array(3), torch.tensor(1.0), b"kurtosis",
    ],
)  # fmt: skip
def test_what_is_no_statistic_is_refused(given):
    with pytest.raises((TypeError, ValueError), match="got"):
        check_statistics(given)


def test_what_cannot_be_measured_is_refused():
    series = some_series()
    price = {"last_price": series["last_price"]}
    for wrong in (
        lambda: measure_series(price, ["volume"]),
        lambda: measure_series(price, ["kurtosis"], group=2),
        lambda: measure_series({"last_price": price["last_price"] + 0.5}, ["kurtosis"]),
        lambda: measure_series({"last_price": price["last_price"], "volume": series["volume"][:, 1:]}, ["kurtosis"]),
        lambda: measure_series({"price": price["last_price"]}, ["kurtosis"]),
        lambda: measure_series({"last_price": np.array([[0, 2**31]])}, ["kurtosis"]),
        lambda: measure_series({}, ["kurtosis"]),
        lambda: measure_series(series, ["book_shape"]),
        lambda: ks.measure(SHORT, 0, ["kurtosis"]),
        lambda: ks.measure("trading", 10, ["kurtosis"]),
        lambda: ks.measure(ks.Simulator(SHORT, 2, engine="cpu"), 10, ["kurtosis"], markets=3),
        lambda: ks.measure(ks.Simulator(SHORT, 2, engine="cpu"), 10, ["kurtosis"], seed=1),
        lambda: ks.measure(SHORT, 10, ["kurtosis"], markets=3, group=2),
    ):
        with pytest.raises((TypeError, ValueError), match="got"):
            wrong()
    whole = {"last_price": series["last_price"].astype(np.float64)}
    same(measure_series(price, ["kurtosis"]), measure_series(whole, ["kurtosis"]))
