"""Statistics of order events: known answers by hand, tapes beside data, and markets found again by them."""

import functools
import warnings

import numpy as np
import pytest
from test_data_books import random_table, table
from test_data_scores import BEFORE, HAND, KNOWN
from thorough import slow

import kineticsim_env as ks
from kineticsim_env.calibration.targets import read_target
from kineticsim_env.data.measures import WITHOUT_SECONDS
from kineticsim_env.runtime import build
from kineticsim_env.statistics import STATISTICS, distance_to, measure_events, measure_series, of_events
from kineticsim_env.sweeps.batches import Pace
from kineticsim_env.sweeps.plans import make_plan

pytestmark = pytest.mark.skipif(bool(build.cpu_unavailable()), reason="tapes need the C++ engine")

MARKET = ks.MarketConfig.preset("continuous")
NAMES = ["event_mean", "event_share", "event_quantile", "event_quantile(score='bid_volume', level=0.5)"]


def played(markets=3, intervals=40, warm_up=10, seed=1, **fields):
    """Return the order events of markets, as `measure` would run them."""
    sim = ks.Simulator(MARKET.replace(**fields), markets, engine="cpu", seed=seed)
    sim.run(warm_up)
    tape = sim.tape(range(markets), intervals, progress=False)
    return [tape.events(number) for number in range(markets)]


def longest(sessions):
    return [len(of.events) - of.first for of in sessions]


# Known answers --------------------------------------------------------------------------------------------------------


def test_by_hand():
    """Of HAND's six events two add, three cancel and one executes."""
    found = measure_events(table(HAND, opening=4), ["event_mean", "event_share(kind=['add', 'cancel', 'execute'])"])
    known = {name: np.mean(KNOWN[name]) if len(KNOWN[name]) else np.nan for name in WITHOUT_SECONDS}
    np.testing.assert_allclose(found["event_mean"].value[0], list(known.values()))
    assert found["event_mean"].labels == WITHOUT_SECONDS and len(WITHOUT_SECONDS) == 16
    np.testing.assert_allclose(list(found.values())[1].value[0], [2 / 6, 3 / 6, 1 / 6])
    one = measure_events(table(HAND, opening=4), ["event_quantile(score='ask_volume', level=[0, 0.5, 1])"])
    assert list(one.columns(errors=False)) == [f"event_quantile_ask_volume_{level}" for level in ("0", "0.5", "1")]
    assert [*one.values()][0].value.tolist() == [[2, 9, 10]] and one.intervals is None
    alone = measure_events(table(HAND, opening=4), {"gap": "event_mean(score='spread')", "n": of_events(longest)})
    assert alone["gap"].value.tolist() == [np.mean(KNOWN["spread"])] and alone["n"].value.tolist() == [6]


def test_what_nothing_was_seen_of_is_undefined():
    found = measure_events(table(BEFORE, opening=4), NAMES)
    assert all(np.isnan(value.value).all() for value in found.values())


def test_means_are_those_of_the_scores():
    real, simulated = played(2)
    scores = ks.order_book_scores(real, simulated, resamples=0)
    found = [measure_events(events, ["event_mean"])["event_mean"].value[0] for events in (real, simulated)]
    np.testing.assert_allclose(found[0], [scores[name].real for name in WITHOUT_SECONDS])
    np.testing.assert_allclose(found[1], [scores[name].simulated for name in WITHOUT_SECONDS])
    for metric in ("l1", "wasserstein"):
        wanted = [getattr(scores[name], metric).value for name in WITHOUT_SECONDS]
        apart = measure_events(simulated, {"apart": distance_to(real, metric=metric)})["apart"]
        assert apart.value[0].tolist() == wanted and apart.labels == WITHOUT_SECONDS
        assert not measure_events(real, {"apart": distance_to(real, metric=metric)})["apart"].value.any()


# Runs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_a_run_shows_what_its_tape_does(engine):
    statistics = {**{name: name for name in NAMES}, "longest": of_events(longest), "volume": "volume"}
    sim = ks.Simulator(MARKET, 3, engine=engine, seed=1)
    found = ks.measure(sim, 40, statistics, warm_up=10, group=None)
    assert int(sim.t[0]) == 50  # it went on as without
    del statistics["volume"]
    each = [measure_events(events, statistics) for events in played()]
    for name in statistics:
        own = np.concatenate([one[name].value for one in each])
        assert np.array_equal(found[name].of_markets, own)
        np.testing.assert_allclose(found[name].value[0], own.mean(0))
    alone = ks.measure(MARKET, 40, ["volume"], markets=3, warm_up=10, group=None, seed=1, engine=engine)
    assert found["volume"].value == alone["volume"].value


def test_a_sweep_finds_the_market_that_is_nearest():
    """Of five, the one that the events are of, by the mean distance of seven scores; of 80 intervals 12 of 13 times."""
    (real,) = played(1, 400, seed=5, cancel_prob=0.5)
    scores = ["spread", "bid_volume", "ask_volume", "bid_limit_depth", "ask_limit_depth", "bid_cancel_depth"]
    apart = {"apart": distance_to(real, [*scores, "ask_cancel_depth"])}
    space = {"cancel_prob": [0.2, 0.35, 0.5, 0.65, 0.8]}
    given = {"market": "continuous", "warm_up": 10, "replicates": 2, "engine": "cpu", "progress": False}
    found = ks.sweep(space, 400, apart, **given).to_pandas()
    columns = [f"apart_{name}" for name in (*scores, "ask_cancel_depth")]
    assert found["cancel_prob"][found[columns].mean(axis=1).argmin()] == 0.5
    assert set(columns) < set(found) and not found["stopped"].any()


@pytest.mark.parametrize("engine", ["cpu", "numpy", "cuda"])
def test_batches_are_short_whatever_runs_the_markets(engine):
    """A market's tape of 100 intervals takes 11 ms, so that a batch of ten takes a tenth of a second."""
    given = {"market": "continuous", "design": "random", "points": 5000}
    paces = [
        Pace(make_plan({"cancel_prob": (0.2, 0.9)}, 100, [name], **given), 5000, engine, 1, 16)
        for name in ("event_share", "volume")
    ]
    assert paces[0].points == 10 and paces[1].points > 100
    paces[0].took(10, 0.1)
    assert paces[0].points == 40  # no more than four times as many


def test_a_stored_sweep_is_not_gone_on_with_for_other_events(tmp_path):
    pytest.importorskip("pyarrow")
    space, one, other = {"cancel_prob": [0.4, 0.5]}, *(random_table(seed, 200)[0] for seed in (1, 2))
    given = {"market": "continuous", "engine": "cpu", "progress": False, "folder": tmp_path}
    for _ in range(2):
        ks.sweep(space, 10, {"apart": distance_to(one, "spread")}, **given)
    with pytest.raises(ValueError, match=r"statistics.apart is .* there and .* here"):
        ks.sweep(space, 10, {"apart": distance_to(other, "spread")}, **given)


# Targets --------------------------------------------------------------------------------------------------------------


def test_order_events_are_a_target():
    real = played(1)[0]
    read = read_target(real, intervals=40)
    assert (read.intervals, read.markets, read.own) == (40, 1, None) and len(read.values) == 18
    means = measure_events(real, ["event_mean"])["event_mean"]
    assert [read.values[f"event_mean_{name}"] for name in WITHOUT_SECONDS] == means.value[0].tolist()
    chosen = read_target(real, ["event_quantile(score='spread', level=0.9)"], 40)
    assert list(chosen.values) == ["event_quantile_spread_0.9"]
    again = read_target(measure_events(real, ["event_share"]), intervals=40)
    assert again.own is None and list(again.values) == ["event_share_cancel", "event_share_execute"]
    assert read_target({"event_mean(score='spread')": 4.0}, intervals=9).values == {"event_mean_spread": 4.0}


@slow
@pytest.mark.parametrize("true", [0.3, 0.7])
def test_a_market_is_found_again_from_its_order_events(true):
    """Within 0.1 of a range of 0.7, of 1,700 events: over four markets the mean was 0.08 away at most."""
    pytest.importorskip("sbi", exc_type=ImportError)
    (real,) = played(1, 50, 20, seed=1001, cancel_prob=true)
    given = {"market": "continuous", "warm_up": 20, "engine": "cpu", "progress": False}
    found = ks.calibrate(real, {"cancel_prob": (0.2, 0.9)}, 50, simulations=400, held_out=100, seed=1, **given)
    low, high = found.interval(0.99)["cancel_prob"]
    assert low <= true <= high and abs(found.samples["cancel_prob"].mean() - true) < 0.1
    assert found.check.recovered["cancel_prob"] > 0.9 and found.left_out == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the length of events in intervals is not known, so there is none to warn of
        other = found.of(played(1, 50, 20, seed=1002, cancel_prob=1 - true)[0])
    assert abs(other.samples["cancel_prob"].mean() - (1 - true)) < 0.1


# What is refused ------------------------------------------------------------------------------------------------------


def test_what_is_refused():
    events = table(HAND, opening=4)
    short = functools.partial(ks.measure, MARKET, 5, markets=1, engine="cpu")
    wrong = of_events(lambda sessions: [1, 2], labels=("a", "b", "c"))
    calls = (
        (TypeError, "events: expected an OrderEvents, got 3", lambda: measure_events(3, ["event_mean"])),
        (ValueError, "events: event 0: expected an order that",
         lambda: measure_events(table([(0, 7, 2, 1, 99, 5)]), ["event_mean"])),
        (ValueError, "statistics: expected those of order events, such as 'event_mean', got 'volatility', of series",
         lambda: measure_events(events, ["event_mean", "volatility"])),
        (ValueError, "statistics: expected those of order events, .*got 'volume'",
         lambda: read_target(events, ["volume"], 5)),
        (ValueError, "statistics: expected those of series, got 'event_mean', of order events",
         lambda: measure_series({"last_price": [1, 2]}, ["event_mean"])),
        (ValueError, "statistics: expected a market of mechanism='continuous' for 'event_share', .*got 'call'",
         lambda: ks.measure(ks.MarketConfig(), 5, ["event_share"], markets=1)),
        (ValueError, "intervals: expected how many .*got None", lambda: read_target(events, ["event_share"])),
        (ValueError, r"target\['event_mean_order_flow_imbalance'\]: expected statistics that the target defines",
         lambda: read_target(events, intervals=5)),
        (ValueError, "score: expected one or a list of spread, .*got 'log_time_to_cancel'",
         lambda: short(["event_mean(score='log_time_to_cancel')"])),
        (ValueError, "score: expected one or a list of", lambda: short(["event_mean(score=[])"])),
        (ValueError, "score: expected one or a list of", lambda: short(["event_mean(score=['spread', 'spread'])"])),
        (ValueError, "score: expected one or a list of", lambda: short(["event_quantile(score=['spread'])"])),
        (ValueError, "level: expected numbers from 0 to 1", lambda: short(["event_quantile(level=2)"])),
        (ValueError, "kind: expected one or a list of add, cancel, execute, got 3",
         lambda: short(["event_share(kind=3)"])),
        (ValueError, "statistics: expected 3 numbers of order events, got", lambda: short({"own": wrong})),
        (TypeError, "function: expected a function of sessions, got 3", lambda: of_events(3)),
        (TypeError, "labels: expected numbers or texts", lambda: of_events(longest, labels="ab")),
        (TypeError, "real: expected an OrderEvents, got None", lambda: distance_to(None)),
        (ValueError, "metric: expected one of 'l1', 'wasserstein', got 'l2'", lambda: distance_to(events, metric="l2")),
        (ValueError, "score: expected one or a list of .*got 'size'", lambda: distance_to(events, "size")),
    )  # fmt: skip
    for error, text, call in calls:
        with pytest.raises(error, match=f"^{text}"):
            call()
    assert {"event_mean", "event_quantile", "event_share"} < set(STATISTICS)
