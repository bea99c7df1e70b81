"""Scores of order events: known answers by hand, what distances obey, and what a comparison returns."""

import dataclasses
import importlib.util

import numpy as np
import pytest
from test_data_books import random_table, table

import kineticsim_env as ks
from kineticsim_env.data.conditional import CONDITIONAL, LAGS, conditional_distances, responses
from kineticsim_env.data.distances import distances
from kineticsim_env.data.events import ADD, DELETE, EXECUTE, REDUCE
from kineticsim_env.data.measures import DISCRETE, FURTHER, SCORES, WINDOW, sessions_of

S = 10**9
# What rests before: bids 99 (5) and 98 (4), asks 101 (6) and 103 (2).
BEFORE = [(0, 1, ADD, 1, 99, 5), (0, 2, ADD, 1, 98, 4), (0, 3, ADD, -1, 101, 6), (0, 4, ADD, -1, 103, 2)]
HAND = [
    *BEFORE,
    (1 * S, 5, ADD, 1, 100, 2),  # spread 1: 100 (2) and 101 (6)
    (2 * S, 3, EXECUTE, -1, 101, 6),  # spread 3: 100 (2) and 103 (2)
    (2 * S, 6, ADD, -1, 102, 8),  # spread 2: 100 (2) and 102 (8)
    (3 * S, 5, REDUCE, 1, 100, 1),  # 100 (1) and 102 (8)
    (5 * S, 5, DELETE, 1, 100, 1),  # spread 3: 99 (5) and 102 (8)
    (5 * S, 4, DELETE, -1, 103, 2),
]
KNOWN = {
    "spread": [1, 3, 2, 2, 3, 3],
    "imbalance": [-4 / 8, 0, -6 / 10, -7 / 9, -3 / 13, -3 / 13],
    "log_inter_arrival_time": [0, np.log(1e-9), 0, np.log(2), np.log(1e-9)],
    "log_time_to_cancel": [np.log(2)],  # of order 5; since when order 4 rests nobody knows
    "bid_volume_touch": [2, 2, 2, 1, 5, 5],
    "ask_volume_touch": [6, 2, 8, 8, 8, 8],
    "bid_volume": [11, 11, 11, 10, 9, 9],
    "ask_volume": [8, 2, 10, 10, 10, 8],
    "bid_limit_depth": [0.5],
    "ask_limit_depth": [1],
    "bid_cancel_depth": [1, 0.5],
    "ask_cancel_depth": [2.5],
    "bid_limit_level": [1],
    "ask_limit_level": [1],
    "bid_cancel_level": [1, 1],
    "ask_cancel_level": [2],
    "log_limit_size": [np.log(2), np.log(8)],
    "log_volume_per_minute": [np.log(360)],
    "order_flow_imbalance": [],
}


def seen(events):
    return list(sessions_of(events))


def values(events):
    return {name: np.concatenate([measure(one) for one in seen(events)]) for name, measure in SCORES.items()}


def test_scores_by_hand():
    found = values(table(HAND, opening=4))
    assert set(found) == set(KNOWN) and len(found) == 19
    for name, wanted in KNOWN.items():
        assert len(found[name]) == len(wanted) and np.allclose(found[name], wanted), name


def test_a_side_that_is_empty():
    """Has no spread and no depth, all the imbalance, and no lots."""
    rows = [BEFORE[0], BEFORE[2], (1, 3, DELETE, -1, 101, 6), (2, 1, REDUCE, 1, 99, 1), (3, 5, ADD, -1, 100, 1)]
    found = values(table(rows, opening=2))
    assert found["spread"].tolist() == [1] and np.allclose(found["imbalance"], [1, 1, 3 / 5])
    assert found["ask_volume_touch"].tolist() == [0, 0, 1]
    assert len(found["bid_cancel_depth"]) == len(found["ask_cancel_depth"]) == 0
    assert found["ask_limit_depth"].tolist() == [0.5] and found["bid_cancel_level"].tolist() == [1]


def test_seconds_are_those_of_the_session():
    rows = [(S // 2, *BEFORE[2][1:]), *((t, 3, EXECUTE, -1, 101, 1) for t in (6 * S // 5, 7 * S // 5, 8 * S // 5))]
    found = values(table(rows, opening=1, sessions=[[S // 2, 2 * S]]))
    assert np.allclose(found["log_volume_per_minute"], np.log([120, 60]))


def test_order_flow_imbalance_by_hand():
    """Bids that come at the best price, and are cancelled again, and at last one above it."""
    rows = [*BEFORE]
    for i in range(60):
        rows += [(i, 10 + i, ADD, 1, 99, 3), (i, 10 + i, DELETE, 1, 99, 3)]
    rows += [(60, 100, ADD, 1, 100, 7)]
    (one,) = seen(table(rows, opening=4))
    flow = SCORES["order_flow_imbalance"](one)
    assert len(flow) == 121 - WINDOW + 1
    assert np.allclose(flow, [0] * 21 + [(7 - 3) / WINDOW])  # the last begins with one that is cancelled
    before = {name: measure(one) for name, measure in FURTHER.items()}
    rise, stays, fall = (before[f"order_flow_imbalance before {name}"] for name in ("a rise", "no move", "a fall"))
    assert rise.tolist() == [flow[-2]] and len(fall) == 0 and np.allclose(stays, flow[:-2])


def test_sides_swapped_swap_the_scores():
    events, _ = random_table(3, 600)
    swapped = dataclasses.replace(events, side=-events.side, price=200 - events.price)
    one, other = values(events), values(swapped)
    for name in one:
        sign = -1 if name in ("imbalance", "order_flow_imbalance") else 1
        there = name.replace("bid", "x").replace("ask", "bid").replace("x", "ask")
        assert len(one[name]) and np.allclose(one[name], sign * other[there]), name


def test_sessions_are_measured_one_by_one():
    events, _ = random_table(5, 400, sessions=3)
    whole = values(events)
    begins = (
        np.searchsorted(events.time, events.sessions[:, 0]),
        np.searchsorted(events.time, events.sessions[:, 1], "right"),
    )
    parts = []
    for number, (begin, end) in enumerate(zip(*begins, strict=True)):
        columns = {
            name: getattr(events, name)[begin:end]
            for name in ("time", "order", "kind", "side", "price", "size", "opening")
        }
        parts.append(values(dataclasses.replace(events, **columns, sessions=events.sessions[[number]])))
    for name, found in whole.items():
        assert np.array_equal(found, np.concatenate([part[name] for part in parts])), name


def apart(one, other, discrete=False):
    return distances(np.asarray(one), np.asarray(other), discrete, 0, np.random.default_rng(0))[:, 0]


def test_distances_of_samples():
    rng = np.random.default_rng(1)
    one, other = rng.normal(size=4000), rng.normal(1, 2, size=3000)
    assert apart(one, one).tolist() == apart(one, rng.permutation(one)).tolist() == [0, 0]
    assert np.allclose(apart(one, other), apart(other, one))
    assert np.allclose(apart(one, other), apart(rng.permutation(one), other))
    assert np.allclose(apart(one, other), apart(10 * one + 3, 10 * other + 3), atol=2e-3)  # in deviations
    far, shift = np.arange(100.0), 1000.0
    both = np.concatenate([far, far + shift])
    clipped = np.clip(both, *np.quantile(both, [0.0005, 0.9995]))
    assert np.allclose(apart(far, far + shift), [1, (clipped[100:].mean() - clipped[:100].mean()) / clipped.std()])
    assert np.allclose(
        apart([1, 1, 2, 2], [1, 2, 2, 2], True), [0.25, 0.25 / np.std([1, 1, 2, 2, 1, 2, 2, 2])], atol=1e-2
    )
    assert apart([3, 3], [3]).tolist() == [0, 0]
    assert np.isnan(apart([], [])).all()
    one_empty = apart([], [1.0])
    assert one_empty[0] == 1 and np.isnan(one_empty[1])


def test_tails_are_moved_in():
    """One number far out would be the deviation of all."""
    far = np.arange(10_000.0)
    assert np.allclose(apart(far, np.r_[far[1:] + 500, 1e12]), apart(far, far + 500), rtol=0.02)


def test_distances_agree_with_scipy_and_numpy():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(2)
    for one, other in (
        (rng.normal(size=500), rng.exponential(size=900)),
        (rng.integers(0, 40, 800).astype(float), rng.poisson(12, 300).astype(float)),
    ):
        both = np.concatenate([one, other])
        ends = np.quantile(both, [0.0005, 0.9995])
        one, other = np.clip(one, *ends), np.clip(other, *ends)
        both = np.concatenate([one, other])
        edges = np.histogram_bin_edges(both, bins="fd")
        # Clipped again at quantiles of what is clipped, which moves nothing but a part of one number.
        histograms = [np.histogram(sample, edges)[0] / len(sample) for sample in (one, other)]
        wanted = [abs(histograms[0] - histograms[1]).sum() / 2, stats.wasserstein_distance(one, other) / both.std()]
        assert np.allclose(apart(one, other), wanted, atol=2e-3)


def test_where_half_are_equal_each_number_has_a_bin():
    """Freedman and Diaconis' bins would have no width."""
    one, other = np.repeat([0.0, 5.0], [90, 10]), np.repeat([0.0, 5.0], [70, 30])
    assert np.allclose(apart(one, other)[0], 0.2)


def test_intervals_know_of_neighbours():
    """A sample that wanders has a wider interval than the same numbers shuffled."""
    rng = np.random.default_rng(4)
    walk, other = np.repeat(rng.normal(size=20), 200), rng.normal(size=4000)
    wide, narrow = (
        np.ptp(distances(sample, other, False, 200, np.random.default_rng(0))[1, 1:])
        for sample in (walk, rng.permutation(walk))
    )
    assert wide > 3 * narrow


def test_conditional_distances():
    one, other = (seen(random_table(seed, 4000)[0]) for seed in (7, 8))
    for name in CONDITIONAL:
        same = conditional_distances(name, one, one, 3, np.random.default_rng(0))
        assert same.shape == (2, 4) and same[:, 0].tolist() == [0, 0]
        apart_ = conditional_distances(name, one, other, 0, np.random.default_rng(0))
        again = conditional_distances(name, other, one, 0, np.random.default_rng(0))
        assert np.allclose(apart_, again) and 0 < apart_[0, 0] <= 1 and apart_[1, 0] > 0


def test_volume_by_spread_by_hand():
    """Of spread 1 all lots differ, of spread 2 none do, 3 only one sample has: 1 * 4 / 8 + 0 * 3 / 8 + 1 * 1 / 8."""

    def rows(lots, spreads):
        made = [(0, 1, ADD, 1, 99, 5)]
        for i, (units, spread) in enumerate(zip(lots, spreads, strict=True)):
            made += [(i, 10 + i, ADD, -1, 99 + spread, units), (i, 10 + i, DELETE, -1, 99 + spread, units)]
        return seen(table(made, opening=1))

    one, other = rows(50 * [3, 4, 3, 3], 50 * [1, 2, 1, 3]), rows(50 * [5, 4, 5, 4], 50 * [1, 2, 1, 2])
    found = conditional_distances("ask_volume_touch by spread", one, other, 0, np.random.default_rng(0))[:, 0]
    assert np.isclose(found[0], 5 / 8)
    assert np.isclose(found[1], 4 / 7 * 2, atol=1e-2)  # 2 lots apart, whose deviation is 1; none of spread 3


def test_many_spreads_are_conditions_by_tenths():
    """Of spreads that two samples hardly share each would be a condition that only one has."""
    times = range(4000)
    one, other = (quoted(times, [1 + (7 * i + k) % 4001 for i in times], [[0, 4000]]) for k in (0, 1))
    assert conditional_distances("ask_volume_touch by spread", one, other, 0, np.random.default_rng(0))[0, 0] == 0
    few = [quoted(range(100), [1 + i % 10 + 10 * k for i in range(100)], [[0, 100]]) for k in (0, 1)]
    assert conditional_distances("ask_volume_touch by spread", *few, 0, np.random.default_rng(0))[0, 0] == 1


def quoted(times, spreads, sessions):
    """Return the session in which the ask is now so far from the bid, now so far."""
    made = [(sessions[0][0], 1, ADD, 1, 99, 5)]
    for i, (time, spread) in enumerate(zip(times, spreads, strict=True)):
        made += [(time, 10 + i, ADD, -1, 99 + spread, 1), (time, 10 + i, DELETE, -1, 99 + spread, 1)]
    return seen(table(made, opening=1, sessions=sessions))


def test_the_spread_by_time_by_hand():
    """In the first tenth of the session it is 1 against 2, in the last 3 and 3, whenever the session was."""
    one = quoted([0, 5, 95, 100], [1, 1, 3, 3], [[0, 100]])
    other = quoted([1000, 1009, 1191, 1200], [2, 2, 3, 3], [[1000, 1200]])
    found = conditional_distances("spread by time", one, other, 0, np.random.default_rng(0))[:, 0]
    assert np.allclose(found, [0.5, 0.5 * 1 / 0.5], atol=1e-2)


def test_the_spread_by_volatility_by_hand():
    """500 events of quiet and 500 of moves, in either order, are the same under each condition."""
    quiet, moves = [2] * 500, [2, 3, 1, 2] * 125
    for steps, wanted in ((1, 0), (2, None)):
        one = quoted(range(1000), quiet + moves, [[0, 1000]])
        other = quoted(range(0, 1000 * steps, steps), moves + quiet, [[0, 1000 * steps]])
        found = conditional_distances("spread by volatility", one, other, 0, np.random.default_rng(0))[:, 0]
        assert np.allclose(found, wanted) if wanted is not None else found[0] >= 0.5  # slower moves are others


def test_responses_by_hand():
    (one,) = seen(table(HAND, opening=4))
    found = responses([one])
    assert list(LAGS[:3]) == [1, 2, 5]
    # The mid is 100, then 100.5 after the bid, 101.5 after the purchase, 101, 101, 100.5, 100.5.
    assert np.allclose(found["limit, mid moves"][:3], [(0.5 + 0.5) / 2, (1.5 + 0.5) / 2, 0.5])
    assert np.allclose(found["market, mid moves"][:2], [1, 0.5])
    assert np.allclose(found["cancel, mid moves"][:2], [0.5, 0.5])  # the last of order 5
    assert np.allclose(found["cancel, mid stays"][:2], [0, 0.5])  # its reduction
    assert np.isnan(found["market, mid stays"]).all()
    # Executions of one time and side are one event, whose response is that of all.
    swept = [*BEFORE, (1, 3, EXECUTE, -1, 101, 6), (1, 4, EXECUTE, -1, 103, 1), (2, 4, REDUCE, -1, 103, 1)]
    swept[3] = (0, 4, ADD, -1, 103, 3)
    found = responses(seen(table(swept, opening=4)))
    assert np.allclose(found["market, mid moves"][:2], [1, 1]) and np.isnan(found["market, mid stays"]).all()


def test_a_comparison():
    real, simulated = (random_table(seed, 1500)[0] for seed in (1, 2))
    found = ks.order_book_scores(real, simulated, resamples=20, seed=3)
    assert [score.name for score in found.scores] == list(SCORES) and len(found.further) == 6
    assert found.mean.l1.value == pytest.approx(np.mean([score.l1.value for score in found.scores]))
    for score in (*found.scores, found.mean):
        for distance in score[1:3]:
            assert 0 <= distance.low <= distance.value <= distance.high and distance.floor >= 0
    spread = found["spread"]
    assert spread.real == pytest.approx(values(real)["spread"].mean())
    assert spread.l1.value == apart(values(real)["spread"], values(simulated)["spread"], True)[0]
    assert str(found) == str(ks.order_book_scores(real, simulated, resamples=20, seed=3)) == found.table()
    lines = str(found).splitlines()
    assert len({line.split("  ")[0] for line in lines[1:27]}) == 26 and "halves of the real events" in lines[-1]
    other = ks.order_book_scores(simulated, real, resamples=0, floor=real)
    assert other.mean.l1.value == pytest.approx(found.mean.l1.value)
    assert other["spread"].l1.floor == pytest.approx(spread.l1.value) and np.isnan(other.mean.l1.low)
    same = ks.order_book_scores(real, real, resamples=0)
    assert same.mean.l1.value == same.mean.wasserstein.value == 0
    assert same["spread by time"].l1.value == 0 and same.mean.l1.floor > 0
    if importlib.util.find_spec("pandas"):
        frame = found.to_pandas()
        assert len(frame) == 26 and frame.loc["spread", "l1"] == spread.l1.value
        assert frame.loc["spread", "wasserstein_high"] == spread.wasserstein.high


def test_a_comparison_of_tapes():
    sim = ks.Simulator(ks.MarketConfig.preset("continuous"), num_markets=2, engine="cpu", seed=1)
    sim.run(20)
    tape = sim.tape([0, 1], 100)
    found = ks.order_book_scores(tape.events(0), tape.events(1), resamples=0)
    assert 0 < found.mean.l1.value < 0.5  # two markets of one config
    assert not any(np.isnan(score.l1.value) for score in found.scores)


def test_nothing_seen():
    """Events of which only the opening was seen have no score, and no distance."""
    quiet = table(BEFORE, opening=4)
    busy, _ = random_table(1, 400)
    none = table([], sessions=np.empty((0, 2)))
    assert np.isnan(ks.order_book_scores(none, none, resamples=0).mean.l1.value)
    found = ks.order_book_scores(quiet, quiet, resamples=2)
    assert all(np.isnan(score.l1.value) for score in (*found.scores, found.mean))
    assert "-" in str(found)
    found = ks.order_book_scores(busy, quiet, resamples=2)
    assert found.mean.l1.value == 1 and np.isnan(found.mean.wasserstein.value)
    assert len(DISCRETE) == 5


def test_what_is_refused():
    events, _ = random_table(1, 50)
    wrong = dataclasses.replace(events, sessions=None)
    for error, text, one, other, options in (
        (TypeError, "real: expected an OrderEvents, got None", None, events, {}),
        (TypeError, "simulated: expected an OrderEvents, got 3", events, 3, {}),
        (TypeError, "floor: expected an OrderEvents, got 'half'", events, events, {"floor": "half"}),
        (ValueError, "confidence: expected a number above 0 and below 1, got 1", events, events, {"confidence": 1}),
        (ValueError, "resamples: expected 0 to", events, events, {"resamples": -1}),
        (ValueError, "simulated: event 0: expected an order that", events, table([(0, 7, DELETE, 1, 99, 5)]), {}),
        (ValueError, "real: events.size: expected int64", dataclasses.replace(events, size=None), events, {}),
        (ValueError, "floor: events.sessions: expected int64", events, events, {"floor": wrong}),
    ):
        with pytest.raises(error, match=text):
            ks.order_book_scores(one, other, **options)
