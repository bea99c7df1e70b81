"""Calibration: what is refused, what is left out, what is found again, and that the same call gives the same."""

import contextlib
import itertools
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from messages import mentions
from thorough import slow

import kineticsim_env as ks
from kineticsim_env.calibration.command import read_file, read_series
from kineticsim_env.calibration.targets import read_target
from kineticsim_env.cli import main
from kineticsim_env.runtime import build
from kineticsim_env.statistics import of_series

for needed in ("pyarrow", "pandas", "scipy", "sbi"):
    pytest.importorskip(needed, exc_type=ImportError)
pandas = pytest.importorskip("pandas")

ENGINE = "numpy" if build.cpu_unavailable() else "cpu"
SMALL = {"preset": "trading", "num_agents": 16}
SPACE = {"noise_spread": (2, 20), "market_order_prob": {"low": 0.05, "high": 0.5, "scale": "log"}}
TABLE = {"volatility": 2.0, "autocorrelation(lag=[1, 2])": [-0.2, 0.0], "volume": 12.0}


@pytest.fixture(autouse=True, scope="module")
def few_steps():
    """Networks of fast tests are not trained until they know anything."""
    from kineticsim_env.calibration import checking, learning

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning, "_STEPS", 8)
        patch.setattr(checking, "_DRAWS", 100)
        yield


@pytest.fixture
def trained(monkeypatch):
    """Those of slow ones are."""
    from kineticsim_env.calibration import checking, learning

    monkeypatch.setattr(learning, "_STEPS", 2500)
    monkeypatch.setattr(checking, "_DRAWS", 500)


def tiny(target=TABLE, space=SPACE, **changes):
    given = {"intervals": 30, "market": SMALL, "simulations": 100, "held_out": 20, "samples": 50, "seed": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a target far from what so few markets show
        return ks.calibrate(target, space, **{**given, "engine": ENGINE, "progress": False, **changes})


@pytest.fixture(scope="module")
def found():
    return tiny()


# What comes out ------------------------------------------------------------------------------------------------------


def test_gradients_are_on_while_it_learns_and_as_before_afterwards(found):
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            again = tiny()
            assert not torch.is_grad_enabled()
        assert all((again.samples[name] == values).all() for name, values in found.samples.items())


def test_a_ctrl_c_as_gradients_are_turned_off_leaves_them_on():
    """It comes between any two operations: within torch's no_grad, too, before it would turn them on again."""
    from kineticsim_env.calibration.learning import _quietly

    threads = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt), _quietly(torch.device("cpu"), 3):
        torch.set_grad_enabled(False)
        raise KeyboardInterrupt
    assert torch.is_grad_enabled() and torch.get_num_threads() == threads


def test_a_calibration_has_samples_a_best_point_and_its_market(found):
    assert found.names == tuple(SPACE) and found.simulations == 100 and found.left_out == 0
    spread, share = (found.samples[name] for name in SPACE)
    assert spread.shape == share.shape == (50,) and spread.dtype == np.int64 and share.dtype == np.float64
    assert spread.min() >= 2 and spread.max() <= 20 and share.min() >= 0.05 and share.max() <= 0.5
    assert list(found.to_pandas()) == list(SPACE) and set(found.seconds) == {
        *("simulate", "train", "check", "sample", "predict")
    }
    assert found.target == {
        "volatility": 2.0,
        "autocorrelation_1": -0.2,
        "autocorrelation_2": 0.0,
        "volume": 12.0,
    }
    best, third = found.config(), found.config(2)
    assert best.noise_spread == found.best["noise_spread"] and best.num_agents == 16
    assert (third.noise_spread, third.market_order_prob) == (spread[2], share[2]) and not third.per_market
    chosen = found.config({"market_order_prob": 0.25, "noise_spread": 7})
    assert chosen == ks.MarketConfig.preset("trading").replace(num_agents=16, noise_spread=7, market_order_prob=0.25)
    with pytest.raises(ValueError, match=r"^point: expected a sample's number or values.*, got \{'noise_spread': 7\}"):
        found.config({"noise_spread": 7})
    low, high = found.interval(0.5)["market_order_prob"]
    assert np.quantile(share, 0.25) == low and np.quantile(share, 0.75) == high


def test_samples_are_a_space_of_a_sweep(found):
    points = {name: values[:4] for name, values in found.samples.items()}
    again = ks.sweep(points, 30, ["volatility"], market=SMALL, design="list", engine=ENGINE)
    assert again.to_pandas()["noise_spread"].tolist() == found.samples["noise_spread"][:4].tolist()


@slow
def test_the_same_call_gives_the_same_and_leaves_the_users_random_numbers_alone(found):
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    again = tiny()
    assert torch.equal(torch.rand(3), wanted)
    for name in SPACE:
        np.testing.assert_array_equal(again.samples[name], found.samples[name])
    assert again.best == found.best
    np.testing.assert_array_equal(again.check.ranks, found.check.ranks)
    other = found.of(TABLE, seed=4)
    assert not np.array_equal(other.samples["market_order_prob"], found.samples["market_order_prob"])


@slow
def test_another_target_is_asked_of_the_same_network(found):
    same = found.of(TABLE, seed=3)
    np.testing.assert_array_equal(same.samples["noise_spread"], found.samples["noise_spread"])
    other = found.of({**TABLE, "volatility": 3.0}, samples=7)
    assert other.target["volatility"] == 3.0 and len(other.samples["noise_spread"]) == 7
    assert other.check is found.check and found.target["volatility"] == 2.0
    with pytest.raises(ValueError, match=r"^target: expected a value of each of volatility, .*got no 'volume'"):
        found.of({name: value for name, value in TABLE.items() if name != "volume"})


def test_a_target_of_another_length_is_warned_of(found):
    names, market = list(TABLE), ks.MarketConfig.preset("trading", num_agents=16)
    for intervals, markets in ((30, 1), (31, 1), (30, 2)):
        target = ks.measure(market, intervals, names, markets=markets, group=None, engine=ENGINE)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found.of(target, samples=5)
        said = [str(one.message) for one in caught if str(one.message).startswith("of: the target is of")]
        assert len(said) == ((intervals, markets) != (30, 1))


def test_points_levels_and_truths_are_taken_or_refused_in_words(found, tmp_path):
    row = found.to_pandas().iloc[3]
    assert found.config(row) == found.config(3) == found.config(row.to_dict()) == found.config(np.int64(3))
    for level in (1.5, 90, -0.1, "x", None):
        with pytest.raises((TypeError, ValueError), match="^level: expected a finite number from 0, up to 1, got"):
            found.interval(level)
    assert found.interval(1) == {name: (values.min(), values.max()) for name, values in found.samples.items()}
    with pytest.raises(
        ValueError, match="^truth: expected one of 'noise_spread', 'market_order_prob', got 'noise_spred'"
    ):
        found.draw(tmp_path / "a.png", truth={"noise_spred": 3})
    with pytest.raises(TypeError, match="^truth: expected values of noise_spread, market_order_prob, got 3"):
        found.draw(tmp_path / "a.png", truth=3)


@slow
def test_simulations_are_a_sweep_that_is_stored(found, tmp_path):
    again = tiny(folder=tmp_path / "runs")
    np.testing.assert_array_equal(again.samples["noise_spread"], found.samples["noise_spread"])
    stored = ks.open_sweep(tmp_path / "runs")
    assert stored.points == 120 and stored.is_complete and not stored.about["common"]
    times = [path.stat().st_mtime_ns for path in stored.files]
    tiny(folder=tmp_path / "runs", target={**TABLE, "volume": 13.0})
    assert [path.stat().st_mtime_ns for path in stored.files] == times


@slow
def test_nothing_is_written_where_the_program_runs_and_nothing_is_printed(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    tiny(held_out=0)
    assert not list(tmp_path.iterdir())
    out, err = capfd.readouterr()
    assert not out and not [line for line in err.splitlines() if not line.startswith("kineticsim_env: engine")]


@slow
def test_tables_and_pictures(found, tmp_path):
    text = str(found)
    assert text.splitlines()[0].split("  ")[0] == "parameter" and "noise_spread" in text
    assert "100 simulations; 30 intervals each" in text and "coverage of 20 held-out points: " in text
    pytest.importorskip("matplotlib")
    found.draw(tmp_path / "posterior.png", truth={"noise_spread": 7})
    found.draw_check(tmp_path / "check.png")
    found.draw_predicted(tmp_path / "predicted.png")
    names = ("posterior.png", "check.png", "predicted.png")
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in names)
    unchecked = tiny({"volatility": 2.0}, {"noise_spread": (2, 20)}, held_out=0)
    assert unchecked.check is None and "coverage" not in str(unchecked)
    unchecked.draw(tmp_path / "alone.png")
    with pytest.raises(ValueError, match=r"^check: expected a calibration that was checked, got one with held_out=0$"):
        unchecked.draw_check(tmp_path / "none.png")


# Targets that simulations do not come near ----------------------------------------------------------------------------


def test_a_target_that_no_market_shows_has_no_posterior(found, tmp_path):
    """One second of a real market: trades in 3% of its intervals, where these markets trade in all."""
    table = {"volatility": 2.0, "traded": 0.029}
    with pytest.warns(
        UserWarning, match=r"^calibrate: the target is out of reach: traded \(beyond all simulations\); "
    ):
        out = ks.calibrate(
            table, SPACE, 30, market=SMALL, simulations=100, held_out=20, seed=3, engine=ENGINE, progress=False
        )
    assert not out.reach.within and out.reach.missed == out.reach.beyond == ("traded",)
    assert out.reach.distance > 3 * out.reach.usual > 0 and out.reach.statistics["traded"] > 0.5
    assert out.samples == {} and out.best == {} and out.predicted is None and out.names == tuple(SPACE)
    for ask in (out.interval, out.config, out.to_pandas, lambda: out.config(3), lambda: out.draw(tmp_path / "a.png")):
        with pytest.raises(
            ValueError, match=r": expected a target that simulations come near, got one that is out of reach: traded "
        ):
            ask()
    near = out.config(out.reach.nearest)
    assert near.noise_spread == out.reach.nearest["noise_spread"] and near.num_agents == 16
    text = str(out)
    assert text.startswith("out of reach: traded") and "no posterior, and no best point" in text
    assert next(line for line in text.splitlines() if line.startswith("traded ")).endswith("out of reach")
    assert "best" not in text.replace("no best point", "") and repr(out).startswith("Calibration(out of reach: traded")
    pytest.importorskip("matplotlib")
    out.draw_predicted(tmp_path / "out.png")
    back = out.of({"volatility": 2.0, "traded": 1.0}, samples=9)
    assert back.reach.within and len(back.samples["noise_spread"]) == 9 and back.best and back.predicted


def test_another_target_of_the_same_network_may_be_out_of_reach(found):
    with pytest.warns(UserWarning, match=r"out of reach: volatility \(beyond all simulations\)"):
        out = found.of({**TABLE, "volatility": 1000.0})
    assert not out.reach.within and found.reach.within and found.samples and not out.samples


def reached(rows, **changes):
    """Return what simulations show whose statistics are given."""
    from kineticsim_env.calibration.learning import Standard
    from kineticsim_env.calibration.reaching import Simulations

    unit = np.random.default_rng(1).random((len(rows), 2))
    return Simulations(unit, rows, Standard.of(rows), torch.device("cpu"), **changes)


def made(number, seed):
    """Return statistics of a made-up model: two parameters, five statistics that hang together, heavy tails in one."""
    random = np.random.default_rng(seed)
    place = random.random((number, 2))
    noise = 0.1 * random.normal(size=(number, 5))
    noise[:, 4] *= np.abs(random.standard_cauchy(number))
    return np.stack([place[:, 0], place[:, 1], place.sum(1), place[:, 0] * place[:, 1], place[:, 0]], 1) + noise


@pytest.mark.parametrize("simulations", [100, 1000, 5000])
def test_targets_of_the_model_itself_are_called_out_of_reach_as_rarely_as_is_said(simulations):
    """Of each measure alone, at most one in a hundred; over many calibrations, as one has its own simulations."""
    shares = []
    for seed in range(20):
        found = reached(made(simulations, 2 * seed))
        shares.append((found.p_values(made(500, 2 * seed + 1)) <= 0.01).mean(0))
    distance, wide = np.mean(shares, axis=0)
    error = 4 * max(np.std(shares, axis=0)) / 20**0.5
    assert distance < 0.01 + error and wide < 0.01 + error
    assert distance > 0.01 - 1.01 / min(simulations, 1000) - error  # and not never


def test_what_is_apart_is_found_apart_and_what_is_alike_is_not():
    rows = made(3000, 0)
    found = reached(rows)
    names = [*"abcde"]

    def reach(**changes):
        values = dict(zip(names, (0.5, 0.5, 1.0, 0.25, 0.5), strict=True))
        dimensions = ks.sweeps.plans.make_plan({"tax": (0, 9), "fee": (0, 9)}, 1, ["volume"], design="random", points=1)
        return found.reach(values | changes, dimensions.design.dimensions)

    assert reach().within and reach().missed == ()
    together = reach(c=1.7)  # each is seen often, but never so: c is a + b
    assert not together.within and together.beyond == () and together.missed == ("c",)
    assert "not together in any simulation" in str(together) and together.p_values["range"] == 1
    alone = reach(b=9.0)
    assert alone.beyond == alone.missed == ("b",) and alone.gaps["b"] > 3
    nearest = np.abs(rows - [list(reach().statistics.values())]).sum(1).argmin()
    assert reach().nearest == {"tax": int(found.unit[nearest, 0] * 10), "fee": int(found.unit[nearest, 1] * 10)}


def test_distances_are_to_the_nearest_other_simulation():
    from kineticsim_env.calibration import reaching

    rows = made(300, 3)
    found = reached(rows)
    seen = np.asarray(found.standard(rows), dtype=np.float64)
    seen = (seen - seen.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(seen.T))).T  # another whitening, as long
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=2) + np.diag(np.full(300, np.inf))
    np.testing.assert_allclose(np.sort(found.distances), np.sort(apart.min(1)), rtol=1e-4)
    assert len(reached(made(1500, 3)).distances) == reaching._COMPARED == 1000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reaching, "_AT_ONCE", 7 * 300)
        np.testing.assert_array_equal(reached(rows).distances, found.distances)


def test_a_statistic_that_never_varies_is_missed_by_any_other_value():
    rows = made(100, 4)
    rows[:, 1] = 1.0
    found = reached(rows)
    same, other = made(2, 5)
    same[1] = other[1] = 1.0
    other[1] = 0.97
    assert found.p_values(same[None])[0, 1] == 1 and found.p_values(other[None])[0, 1] == 1 / 101


def test_one_statistic_is_enough():
    rows = np.random.default_rng(0).normal(size=(200, 1))
    found = reached(rows)
    p_values = found.p_values(np.array([[0.0], [9.0]]))
    assert p_values.shape == (2, 2) and min(p_values[0]) > 0.05 and max(p_values[1]) < 0.01


# What the posterior predicts ------------------------------------------------------------------------------------------


def test_a_calibration_ends_with_what_its_posterior_predicts(found):
    predicted = found.predicted
    assert list(predicted.values) == list(found.target) and predicted.target == found.target
    assert {len(values) for values in predicted.values.values()} == {50} and predicted.left_out == 0
    points = {name: values[:50] for name, values in found.samples.items()}
    given = {"market": SMALL, "design": "list", "engine": ENGINE, "common": False, "seed": 3 + 120}
    again = ks.sweep(points, 30, list(TABLE), **given).to_pandas()
    np.testing.assert_array_equal(predicted.values["volume"], again["volume"])
    low, high = predicted.interval(0.5)["volume"]
    assert (low, high) == tuple(np.quantile(again["volume"], (0.25, 0.75)))
    assert all(0 < value <= 1 for value in predicted.p_values.values())
    assert "posterior predicts, 5% to 95%" in str(found)


def test_the_tails_of_what_is_predicted():
    from kineticsim_env.calibration.predicting import Predicted

    values = np.arange(99.0)
    of = {target: Predicted({"a": values}, {"a": target}, 0).p_values["a"] for target in (-1.0, 0.0, 49.0, 98.0, 99.0)}
    assert of == {-1.0: 0.02, 0.0: 0.04, 49.0: 1.0, 98.0: 0.04, 99.0: 0.02}
    none = Predicted({"a": values[:0]}, {"a": 1.0}, 7)
    assert none.p_values == {"a": 1.0} and np.isnan(none.interval()["a"]).all()
    for level in (-0.5, 1.5):
        with pytest.raises(ValueError, match=f"level: expected .*got {level}"):
            none.interval(level)


# Targets --------------------------------------------------------------------------------------------------------------

PRICES = np.cumsum(np.random.default_rng(0).integers(-3, 4, (2, 300)), 1) + 1000


@pytest.mark.parametrize("form", ["array", "list", "mapping", "tensor", "pandas"])
def test_a_series_is_measured(form):
    pandas = pytest.importorskip("pandas")
    series = {
        "array": PRICES[0],
        "list": PRICES[0].tolist(),
        "mapping": {"last_price": PRICES[0]},
        "tensor": torch.from_numpy(PRICES[0]),
        "pandas": pandas.Series(PRICES[0], index=np.arange(300) + 7),
    }[form]
    read = read_target(series)
    assert (read.intervals, read.markets) == (300, 1)
    measured = ks.statistics.measure_series({"last_price": PRICES[0]}, list(read.statistics))
    assert read.values == {name: values[0] for name, values in measured.columns(errors=False).items()}
    assert "kurtosis_10" in read.values and "volume" not in read.values


def test_a_table_of_series_is_its_columns():
    frame = pandas.DataFrame({"last_price": PRICES[0], "volume": PRICES[1] % 5})
    wanted = read_target({"last_price": PRICES[0], "volume": PRICES[1] % 5})
    for given in (
        frame,
        dict(frame),
        frame.astype(float),
        frame.set_index(pandas.date_range("2020", periods=len(frame))),
    ):
        assert read_target(given) == wanted
    assert read_target(frame[["last_price"]]).values == read_target(PRICES[0]).values
    for given in (frame.rename(columns={"last_price": "close"}), frame.reset_index(), {"close": PRICES[0].tolist()}):
        with pytest.raises(ValueError, match=r"^target: expected names of series \(last_price, .*got '(close|index)'"):
            read_target(given)


def largest(price):
    return price.amax(1)


def test_what_was_measured_under_names_of_ones_own_is_a_target():
    market = ks.MarketConfig.preset("trading", num_agents=16)
    measured = ks.measure(market, 100, {"memory": "autocorrelation(lag=1)", "volume": "volume"}, engine=ENGINE)
    read = read_target(measured)
    assert read.statistics == {"memory": "autocorrelation(lag=1)", "volume": "volume"}
    assert read.values == {name: measured[name].value[0] for name in measured} and read.own == (100, 1)
    with pytest.raises(
        ValueError, match="^statistics: expected what 'largest' was measured with, got None: it is a fun"
    ):
        read_target(ks.measure(market, 100, [of_series(largest, "last_price")], engine=ENGINE))


def test_several_series_of_several_markets_are_means_over_these():
    series = {"last_price": PRICES, "volume": np.abs(PRICES) % 7}
    read = read_target(series, ["kurtosis", "volume"])
    measured = ks.statistics.measure_series(series, ["kurtosis", "volume"])
    assert (read.intervals, read.markets) == (300, 2)
    np.testing.assert_allclose(read.values["kurtosis"], measured["kurtosis"].value.mean(), rtol=1e-12)
    assert read_target(series, intervals=100, replicates=1).markets == 1
    assert "volume_volatility" in read_target(series).values
    assert read_target({"volume": 3.0}, intervals=5).values == {"volume": 3.0}  # a statistic with a series' name


def test_what_measure_returns_is_a_target():
    config = ks.MarketConfig.preset("trading").replace(num_agents=16)
    names = ["volatility", "autocorrelation(lag=[1, 2])"]
    measured = ks.measure(config, 40, names, markets=3, group=None, engine=ENGINE)
    read = read_target(measured)
    assert (read.intervals, read.markets) == (40, 3) and list(read.statistics) == names
    assert read.values == {name: values[0] for name, values in measured.columns(errors=False).items()}
    apart = ks.measure(config, 40, names, markets=3, engine=ENGINE)
    with pytest.raises(ValueError, match="^target: expected one group of markets, got 3: group=None$"):
        read_target(apart)


@slow
def test_a_series_is_calibrated_to():
    config = ks.MarketConfig.preset("trading").replace(num_agents=16)
    series = ks.Simulator(config, 1, engine=ENGINE, seed=9).run(60, ("last_price", "volume"), progress=False)
    calibrated = tiny(series, statistics=["volatility", "volume"], intervals=None)
    assert calibrated._plan.intervals == 60 and set(calibrated.target) == {"volatility", "volume"}


WRONG = [
    ({"target": 3}, TypeError, "target: expected a mapping of statistics to their values, what measure .*got 3"),
    ({"target": "prices"}, TypeError, "target: expected a mapping of statistics to their values.*got 'prices'"),
    ({"target": {}}, ValueError, "statistics: expected one or more, got none"),
    (
        {"target": {"volatilty": 1.0}},
        ValueError,
        "statistics: expected one of mean_return, volatility, .*, got 'volatilty'",
    ),
    ({"target": {"volatility": "high"}}, ValueError, "target['volatility']: expected a number, got 'high'"),
    ({"target": {"volatility": [1.0]}}, ValueError, "target['volatility']: expected a number, got [1.0]"),
    ({"target": {"volatility": True}}, ValueError, "target['volatility']: expected a number, got True"),
    ({"target": {"volatility": np.nan}}, ValueError, "target['volatility']: expected statistics that the .*got nan"),
    (
        {"target": {"autocorrelation(lag=[1, 5])": [0.1, 0.0], "autocorrelation(lag=5)": 0.2}},
        ValueError,
        "target['autocorrelation(lag=5)']: expected autocorrelation_5 0.0, as above, got 0.2",
    ),
    (
        {"target": {"autocorrelation(lag=[1, 5])": [0.1]}},
        ValueError,
        "target['autocorrelation(lag=[1, 5])']: expected 2 numbers, for lag 1, 5, got [0.1]",
    ),
    (
        {"target": {"volatility": 1.0}, "statistics": ["kurtosis"]},
        ValueError,
        "target: expected one of the statistics kurtosis, got 'volatility'",
    ),
    ({"target": [5] * 40}, ValueError, "target['kurtosis']: expected statistics that the target defines, got nan"),
    ({"target": [5.5, 6.0]}, TypeError, "series: expected whole numbers.*got 'last_price' of torch.float64 [2]"),
    ({"intervals": None}, ValueError, "intervals: expected how many the target's statistics were measured.*got None"),
    ({"intervals": 0}, ValueError, "intervals: expected 1 to 2^31 - 1, got 0"),
    ({"space": {"tie": ["mid", "lowest"]}}, ValueError, "space['tie']: expected a range (low, high) to .*got values"),
    (
        {"space": {"noise_spread": (3, 3)}},
        ValueError,
        "space['noise_spread']: expected a range.*got the range 3 to 3",
    ),
    (
        {"space": {"noise_spread": {"low": 3, "high": 9, "steps": 3}}},
        ValueError,
        "space['noise_spread']: expected steps with a grid alone, got them with 'random'",
    ),
    (
        {"space": {"noise_spred": (3, 9)}},
        ValueError,
        "space: expected .*got 'noise_spred': did you mean 'noise_spread'?",
    ),
    ({"market": {"preset": "tradng"}}, ValueError, "preset: expected .*, got 'tradng'"),
    ({"simulations": 99}, ValueError, "simulations: expected 100 to 2^31 - 1, got 99"),
    ({"held_out": -1}, ValueError, "held_out: expected 0 to 2^31 - 1, got -1"),
    ({"samples": 0}, ValueError, "samples: expected 1 to 2^31 - 1, got 0"),
    ({"replicates": 0}, ValueError, "replicates: expected 1 to 2^31 - 1, got 0"),
    ({"seed": -1}, ValueError, "seed: expected 0 to 2^62, got -1"),
    ({"seed": 1.5}, TypeError, "seed: expected .*got 1.5"),
    ({"engine": "cpp"}, ValueError, "engine: expected .*got 'cpp'"),
    ({"progress": 1}, TypeError, "progress: expected .*got 1"),
]


@pytest.mark.parametrize(("changes", "kind", "said"), WRONG, ids=[said[:60] for *_, said in WRONG])
def test_wrong_calls_are_refused_before_anything_is_run(monkeypatch, changes, kind, said):
    monkeypatch.setattr("kineticsim_env.calibration.calibrating.sweep", None)
    with pytest.raises(kind) as caught:
        tiny(**changes)
    assert mentions(str(caught.value), said, begins=True)


def test_without_sbi_it_is_named(monkeypatch):
    import kineticsim_env.calibration

    monkeypatch.setitem(sys.modules, "kineticsim_env.calibration.learning", None)
    monkeypatch.delattr(kineticsim_env.calibration, "learning", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"is missing: pip install 'kineticsim-env\[calibrate\]'$"):
        tiny()


# What is not defined --------------------------------------------------------------------------------------------------


def undefined_above(bound):
    """Return a statistic that markets whose last price ends above a bound do not define."""
    return ks.statistics.of_series(
        lambda price: torch.where(price[:, -1] > bound, torch.nan, price.std(1)), "last_price"
    )


@slow
def test_points_that_do_not_define_a_statistic_are_left_out(tmp_path):
    from kineticsim_env.calibration import learning

    space, target = {"noise_spread": (2, 20)}, {"own": 2.0, "volume": 12.0}
    market = ks.MarketConfig.preset("trading").replace(num_agents=16)
    price = ks.Simulator(market, 1, engine="numpy").run(1, ("last_price",), progress=False)["last_price"].item()
    statistics = {"own": undefined_above(price + 3), "volume": "volume"}
    found = tiny(target, space, statistics=statistics, simulations=200, folder=tmp_path / "runs")
    table = ks.open_sweep(tmp_path / "runs").to_pandas()
    defined = table["own"].notna().to_numpy()
    assert 0 < found.left_out == (~defined).sum() < 100 and found.simulations == defined[:200].sum()
    assert len(found.check.levels) == defined[200:].sum() and ", 0 left out" not in str(found)
    assert f"{found.simulations} simulations, {found.left_out} left out; " in str(found)
    unit, rows = found._plan.design.unit(0, 200), table[["own", "volume"]].to_numpy()[:200]
    learned = learning.learn(unit[defined[:200]], rows[defined[:200]], torch.device("cpu"), 3)
    same = learned.sample(np.array([[2.0, 12.0]]), 50, 3)[:, 0, 0]
    np.testing.assert_array_equal(found.samples["noise_spread"], found._plan.design.dimensions[0].at(same))


def test_too_few_points_that_define_all_are_refused():
    statistics = {"own": undefined_above(-1), "volume": "volume"}
    said = (
        "expected half of 100 points, and at least 100, that define all of them, got only 0; undefined: 'own' in 100%"
    )
    with pytest.raises(ValueError, match=f"^statistics: {said}$"):
        tiny({"own": 2.0, "volume": 2.0}, statistics=statistics)


# The network ----------------------------------------------------------------------------------------------------------


def test_statistics_are_standardised_by_their_spread_and_far_ones_by_its_logarithm():
    from kineticsim_env.calibration.learning import Standard

    rows = np.random.default_rng(0).normal(7, 2, (20_000, 3))
    rows[:, 1] = 4.0
    rows[:, 2] = 0.0
    rows[:5, 2] = 1e6
    standard = Standard.of(rows)
    np.testing.assert_allclose(standard.median, (7, 4, 0), atol=0.05)
    np.testing.assert_allclose(standard.spread, (2, 1, rows[:, 2].std()), rtol=0.03)
    found = standard(rows).numpy()
    assert found.dtype == np.float32 and (found[:, 1] == 0).all() and found[:, 2].max() < 10
    np.testing.assert_allclose(found[:, 0], np.arcsinh((rows[:, 0] - 7) / 2), atol=0.06)


def test_ranks_and_coverage_are_those_of_sbi(found):
    from sbi.diagnostics import run_sbc

    learned, check = found._learned, found.check
    places, rows = check.places, np.random.default_rng(1).normal(1, 1, (len(check.places), 4))
    draws = learned.sample(rows, 100, 8)
    density_there = learned.densities(np.concatenate([places[None], draws]), rows)
    ours = (draws < places).sum(0), (density_there[1:] > density_there[:1]).mean(0)
    asked, given = torch.special.ndtri(torch.from_numpy(places)).float(), learned.standard(rows)

    def density(theta, x):
        return learned.posterior.log_prob(theta, x=x, norm_posterior=False) + theta.square().sum(-1) / 2

    reduce = [lambda theta, x: theta[:, 0], lambda theta, x: theta[:, 1], density]
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        torch.manual_seed(8)
        ranks, _ = run_sbc(asked, given, learned.posterior, 100, reduce, show_progress_bar=False)
    np.testing.assert_array_equal(ranks[:, :2].numpy(), ours[0])
    np.testing.assert_allclose(1 - ranks[:, 2].numpy() / 100, ours[1], atol=0.02)  # ties, and rounding


def test_what_is_said_of_a_check():
    from kineticsim_env.calibration.checking import Check

    random = np.random.default_rng(0)
    places = random.random((4000, 2))
    means = np.stack([places[:, 0], np.full(4000, places[:, 1].mean())], 1)
    ranks = np.stack([random.integers(0, 1001, 4000), random.integers(200, 801, 4000)], 1)
    check = Check(("a", "b"), places, means, ranks, 1000, random.random(4000), 0.0)
    assert check.recovered["a"] == 1 and abs(check.recovered["b"]) < 1e-12
    assert check.p_values["a"] > 0.01 > 1e-6 > check.p_values["b"]
    assert abs(check.coverage(0.8) - 0.8) < 0.03


def test_the_rate_of_training_falls_from_pass_to_pass(monkeypatch):
    from kineticsim_env.calibration import learning, trainer

    rates = []
    plain = trainer.Trainer.begin_pass

    def begin_pass(self):
        plain(self)
        rates.append(self.optimizer.param_groups[0]["lr"])

    monkeypatch.setattr(trainer.Trainer, "begin_pass", begin_pass)
    random = np.random.default_rng(0)
    learned = learning.learn(random.random((300, 2)), random.random((300, 3)), torch.device("cpu"), 1)
    assert len(rates) == learned.epochs > 1 and rates[0] == learning._RATE * (50 / 8192) ** 0.5
    assert all(after < before for before, after in itertools.pairwise(rates)) and rates[-1] > 0


@pytest.mark.gpu
def test_a_recorded_step_has_the_losses_and_gradients_of_one_that_is_launched():
    from sbi.neural_nets import posterior_nn

    from kineticsim_env.calibration.trainer import Losses

    torch.manual_seed(0)
    theta, x = torch.randn(256, 3), torch.randn(256, 5)
    network = posterior_nn("zuko_nsf", hidden_features=20, num_transforms=2)(theta, x).cuda()
    batches = [(theta.cuda(), x.cuda()), (torch.randn(256, 3).cuda(), torch.randn(256, 5).cuda())]
    recorded = torch.cuda.make_graphed_callables(Losses(network), batches[0])
    for batch in batches:
        found = []
        for losses in (recorded(*batch), network.loss(*batch)):
            network.zero_grad()
            losses.mean().backward()
            found.append([losses.detach(), *(weight.grad.clone() for weight in network.parameters())])
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_posterior_that_is_known_is_learned(trained, device):
    """Two numbers with normal noise tell of two parameters; one of these is hidden in a third, far outlier."""
    from kineticsim_env.calibration import checking, learning, reaching

    if device == "cuda":
        device = f"cuda:{torch.cuda.device_count() - 1}"  # where there are two, not the current one
    random, noise = np.random.default_rng(0), 0.15
    unit = random.random((8000, 2))
    rows = np.concatenate([unit + noise * random.normal(size=unit.shape), random.standard_cauchy((8000, 1))], 1)
    learned = learning.learn(unit, rows, torch.device(device), 1)
    given = np.array([[0.5, 0.3, 0.0], [0.02, 0.9, 5.0]])
    draws = learned.sample(given, 20_000, 2)
    at = np.linspace(0, 1, 2001)
    for row in range(2):
        for column in range(2):
            density = np.exp(-0.5 * ((at - given[row, column]) / noise) ** 2)
            density /= density.sum()
            mean = (at * density).sum()
            deviation = np.sqrt(((at - mean) ** 2 * density).sum())
            assert abs(draws[:, row, column].mean() - mean) < 0.25 * deviation
            assert 0.8 < draws[:, row, column].std() / deviation < 1.25
    densest = draws[learned.densities(draws[:, :1], given[:1])[:, 0].argmax(), 0]
    np.testing.assert_allclose(densest, (0.5, 0.3), atol=0.12)
    fresh = random.random((500, 2))
    seen = np.concatenate([fresh + noise * random.normal(size=fresh.shape), random.standard_cauchy((500, 1))], 1)
    simulations = reaching.Simulations(unit, rows, learned.standard, learned.device)
    check = checking.check(learned, simulations, ("a", "b"), fresh, seen, 3)
    assert check.out_of_reach < 0.06
    assert min(check.p_values.values()) > 1e-4 and min(check.recovered.values()) > 0.6
    assert all(abs(check.coverage(level) - level) < 0.08 for level in (0.5, 0.8, 0.95))


@slow
def test_a_parameter_is_found_again(trained):
    space = {"noise_spread": (2, 20), "market_order_prob": {"low": 0.05, "high": 0.5, "scale": "log"}}
    names = ["volatility", "kurtosis", "autocorrelation(lag=1)", "volume"]
    given = {"market": "trading", "simulations": 3000, "held_out": 300, "warm_up": 30, "engine": ENGINE}
    truth = {"noise_spread": 14, "market_order_prob": 0.2}
    config = ks.MarketConfig.preset("trading").replace(**truth)
    target = ks.measure(config, 300, names, markets=1, warm_up=30, seed=2**40, engine=ENGINE)
    found = ks.calibrate(target, space, **given)
    for name, (low, high) in found.interval(0.998).items():
        assert low <= truth[name] <= high
    assert min(found.check.recovered.values()) > 0.5
    assert all(abs(found.check.coverage(level) - level) < 0.1 for level in (0.5, 0.8, 0.95))
    for number, spread in enumerate((4, 18)):  # other markets, the same network
        config = ks.MarketConfig.preset("trading").replace(noise_spread=spread, market_order_prob=0.1)
        other = ks.measure(config, 300, names, markets=1, warm_up=30, seed=2**41 + number, engine=ENGINE)
        low, high = found.of(other).interval(0.998)["noise_spread"]
        assert low <= spread <= high


# The command ----------------------------------------------------------------------------------------------------------

FILE = f"""
intervals = 30
simulations = 100
held_out = 20
samples = 50
seed = 3
engine = "{ENGINE}"
progress = false

[target]
volatility = 2.0
"autocorrelation(lag=[1, 2])" = [-0.2, 0.0]
volume = 12

[market]
preset = "trading"
num_agents = 16

[space]
noise_spread = {{ low = 2, high = 20 }}
market_order_prob = {{ low = 0.05, high = 0.5, scale = "log" }}
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fit.toml").write_text(FILE)
    return tmp_path / "fit.toml"


def refused(words, capsys):
    assert main(words) == 2
    streams = capsys.readouterr()
    (line,) = [line for line in streams.err.splitlines() if not line.startswith("kineticsim_env: engine")]
    return line


@pytest.mark.filterwarnings("ignore:calibrate:UserWarning")
@slow
def test_a_file_is_a_calibration(file, found, capsys):
    pytest.importorskip("matplotlib")
    words = ["calibrate", "fit.toml", "--output", "fit.json", "--plot", "fit.png", "--plot-check", "check.png"]
    assert main([*words, "--plot-predicted", "seen.png", "--folder", "runs"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(str(found)) and "posterior: fit.json\npicture: fit.png\npicture: check.png" in printed
    assert "picture: seen.png" in printed and Path("seen.png").exists()
    stored = json.loads(Path("fit.json").read_text())
    assert stored["samples"] == {name: values.tolist() for name, values in found.samples.items()}
    assert stored["best"] == found.best and stored["recovered"] == found.check.recovered
    assert ks.open_sweep("runs").points == 120 and Path("fit.png").exists() and Path("check.png").exists()


@pytest.mark.filterwarnings("ignore:calibrate:UserWarning")
def test_a_file_whose_target_is_out_of_reach(file, capsys):
    pytest.importorskip("matplotlib")
    file.write_text(FILE.replace("volatility = 2.0", "volatility = 1000.0"))
    words = ["calibrate", "fit.toml", "--output", "fit.json", "--plot", "fit.png", "--plot-predicted", "seen.png"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("out of reach: volatility (beyond all simulations); ")
    assert "no picture fit.png: there is no posterior" in printed and not Path("fit.png").exists()
    stored = json.loads(Path("fit.json").read_text())
    assert stored["best"] == {} and stored["interval90"] is None and stored["samples"] == {}
    assert stored["reach"]["missed"] == ["volatility"] and not stored["reach"]["within"] and Path("seen.png").exists()
    assert set(stored["reach"]["nearest"]) == set(SPACE)


CHANGES = [
    (
        "simulations",
        "simulation",
        "fit.toml: expected one of target, .*, got 'simulation': did you mean 'simulations'?",
    ),
    ("[space]", "[spaces]", "fit.toml: expected .*, got 'spaces': did you mean 'space'?"),
    ("seed = 3", "seed = [", "fit.toml: "),
    ("volatility", "volatilty", "statistics: expected .*got 'volatilty'"),
    ("intervals = 30", "", "intervals: expected how many the target's statistics were measured over, got None"),
    ("simulations = 100", "simulations = 10", "simulations: expected 100.*got 10"),
]


@pytest.mark.parametrize(("there", "here", "said"), CHANGES, ids=[said[:50] for *_, said in CHANGES])
def test_files_are_refused_in_one_line(file, capsys, there, here, said):
    file.write_text(FILE.replace(there, here))
    line = refused(["calibrate", "fit.toml"], capsys)
    assert line.startswith("error: ") and mentions(line, said)


def test_a_file_names_a_series(file, capsys):
    rows = [f"{price},{volume}" for price, volume in zip(PRICES[0], PRICES[1] % 5, strict=True)]
    Path("prices.csv").write_text("\n".join(["last_price,volume", *rows]))
    file.write_text(
        'target = "prices.csv"\n' + FILE.partition("[target]")[0] + "[space]" + FILE.partition("[space]")[2]
    )
    series = read_file(file)["target"]
    assert (series["last_price"] == PRICES[0]).all() and (series["volume"] == PRICES[1] % 5).all()
    for text in ("last_price\n5\nx\n", "a,a\n1,2\n", "a,b\n1\n", ""):
        Path("prices.csv").write_text(text)
        with pytest.raises(ValueError, match=r"^target: expected a CSV file of names and whole.*got prices.csv \(.*\)"):
            read_series("prices.csv")
    Path("prices.csv").write_text("\n".join(["last_price,volume", *rows]), encoding="utf-8-sig")  # as spreadsheets do
    assert list(read_series("prices.csv")) == ["last_price", "volume"]
    Path("prices.csv").write_text("\n".join([",close", *rows]))
    assert mentions(refused(["calibrate", "fit.toml"], capsys), "target: expected names of series (last_price,.*got ''")
    Path("prices.csv").unlink()
    assert "No such file" in refused(["calibrate", "fit.toml"], capsys)


def test_pictures_that_cannot_be_drawn_are_refused_first(file, capsys):
    pytest.importorskip("matplotlib")
    line = refused(["calibrate", "fit.toml", "--plot-check", "a.xyz"], capsys)
    assert mentions(line, "error: --plot-check: expected names that end in .*, .png, .*, got 'a.xyz'", begins=True)
    file.write_text(FILE.replace("held_out = 20", "held_out = 0"))
    line = refused(["calibrate", "fit.toml", "--plot-check", "a.png"], capsys)
    assert line.startswith("error: --plot-check: expected points that are held out, got held_out = 0")
    with contextlib.suppress(OSError):
        assert "--output" in refused(["calibrate", "fit.toml", "--output", "nowhere/a.json"], capsys)


def test_the_example_can_be_read():
    given = read_file(Path(__file__).parent.parent / "examples" / "calibrate.toml")
    read = read_target(given["target"], intervals=given["intervals"])
    assert read.values["volatility"] and given["space"]


def test_statistics_of_a_target_may_come_as_an_iterator():
    prices = np.cumsum(np.random.default_rng(1).integers(-3, 4, 300))
    first, second = (
        read_target(prices, given) for given in (["volatility", "kurtosis"], iter(["volatility", "kurtosis"]))
    )
    assert first.values == second.values and list(second.values) == ["volatility", "kurtosis"]
