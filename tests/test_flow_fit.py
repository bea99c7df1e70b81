"""The fit of an order flow: what it finds of markets whose flow is known, and what must not matter."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
from flow_tables import plain_table, random_table

import kineticsim_env as ks
from kineticsim_env.data.books import between
from kineticsim_env.data.events import ADD, DELETE, EXECUTE, OrderEvents
from kineticsim_env.flow import fitting
from kineticsim_env.flow.fitting import lot_of, size_classes
from kineticsim_env.flow.jumps import find
from kineticsim_env.flow.lives import look
from kineticsim_env.flow.moments import (
    MOMENTS,
    event_rate,
    fano_factor,
    mid_drift,
    mid_variance,
    trade_sign_correlation,
)
from kineticsim_env.flow.order_flow import OrderFlow
from kineticsim_env.flow.simulating import simulate
from kineticsim_env.runtime.flow_table import BANDS, SHARE, UNIT

pytestmark = pytest.mark.filterwarnings("ignore:OrderFlow.fit:UserWarning")
SECOND = 10**9


@pytest.fixture(autouse=True)
def short_markets(monkeypatch):
    """Let few events say how far jumps go."""
    monkeypatch.setattr(fitting, "_EVENTS", 1000)
    monkeypatch.setattr(fitting, "_MARKETS", 2)


@functools.cache
def truth() -> tuple[OrderFlow, OrderEvents, OrderFlow]:
    """Return a flow, 30,000 events of it, and what is fitted to these."""
    flow = plain_table()
    events = simulate(flow, 30_000, 7)
    return flow, events, fitting.fit(events, lot=None, symmetric=False, progress=False)


def test_weights_are_found():
    """Only ratios of weights mean anything: of each band beside all, within 5 standard errors of its count."""
    flow, _, found = truth()
    scale = found.limit[:, 0].sum() / flow.limit[:, 0].sum()  # of a spread of one tick, which is there most
    share = flow.limit[:, 0] / (flow.market + flow.limit[:, 0].sum() + flow.limit[:, 0].sum())
    expected = 30_000 * share * 0.7
    enough = expected > 100
    error = abs(found.limit[:, 0] / scale / np.maximum(flow.limit[:, 0], 1) - 1)
    assert enough.sum() > 8 and (error[enough] < 5 / np.sqrt(expected[enough]) + 0.03).all()
    assert abs(found.market / scale / flow.market - 1) < 5 / np.sqrt(30_000 * flow.market / UNIT)
    for life in (0, 1):
        assert np.median(found.cancel[life, :8] / scale / flow.cancel[life, :8]) == pytest.approx(1, abs=0.2)


def test_lives_are_told_apart():
    flow, _, found = truth()
    enough = flow.limit[:, 0].sum(0) > UNIT / 100
    assert enough.sum() > 5
    assert (abs(found.fleeting - flow.fleeting)[enough] < 0.1 * SHARE).all()
    ratio = found.cancel[0, :8] / found.cancel[1, :8]
    assert np.median(ratio) == pytest.approx(flow.cancel[0, 0] / flow.cancel[1, 0], rel=0.3)


def test_sizes_and_gaps_have_their_means():
    flow, events, found = truth()
    assert found.lot == flow.lot
    assert found.limit_size[:, :, 0].mean() == pytest.approx(flow.limit_size[:, :, 0].mean(), rel=0.1)
    rate = 30_000 / (events.sessions[0, 1] / SECOND)
    again = simulate(found, 10_000, 3)
    assert 10_000 / (again.sessions[0, 1] / SECOND) == pytest.approx(rate, rel=0.15)


def refit(events: OrderEvents) -> OrderFlow:
    return fitting.fit(events, lot=1.0, symmetric=False, progress=False)


def test_names_prices_and_times_do_not_matter():
    _, events, _ = truth()
    some = between(events, 0, events.time[12_000])
    rng = np.random.default_rng(0)
    names = rng.permutation(some.order.max() + 1)
    other = dataclasses.replace(
        some,
        order=names[some.order],
        price=some.price + 78_000,
        time=some.time + 10**18,
        sessions=some.sessions + 10**18,
    )
    assert refit(other) == refit(some)


def test_sides_are_fitted_alike():
    """What is fitted to mirrored events is mirrored; of both sides together it is the same."""
    _, events, _ = truth()
    some = between(events, 0, events.time[12_000])
    mirrored = dataclasses.replace(some, side=(-some.side).astype(np.int8), price=-some.price)
    one, other = refit(some), refit(mirrored)
    for name in ("limit", "limit_size", "resting"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name)[::-1], rtol=1e-6, atol=1)
    for name in ("cancel", "fleeting", "market", "gap", "jump_hazard"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-6, atol=1)
    both = fitting.fit(some, lot=1.0, symmetric=True, progress=False)
    for name in ("limit", "limit_size", "resting"):
        np.testing.assert_array_equal(getattr(both, name)[0], getattr(both, name)[1])


def test_a_day_twice_is_the_day():
    """Rates of two sessions that are the same are those of one; a night between them is no gap."""
    _, events, _ = truth()
    some = between(events, 0, events.time[12_000])
    later = 10**15
    twice = dataclasses.replace(
        some,
        **{name: np.tile(getattr(some, name), 2) for name in ("order", "kind", "side", "price", "size", "opening")},
        time=np.r_[some.time, some.time + later],
        sessions=np.r_[some.sessions, some.sessions + later],
    )
    one, both = refit(some), refit(twice)
    assert both.about["events"] == 2 * one.about["events"]
    heavy = one.limit > UNIT / 200
    np.testing.assert_allclose(both.limit[heavy], one.limit[heavy], rtol=0.03)
    np.testing.assert_allclose(both.gap, one.gap, rtol=0.1)
    np.testing.assert_array_equal(both.market_size, one.market_size)


def test_a_table_is_saved_as_text(tmp_path):
    flow = dataclasses.replace(random_table(3), about={"source": "a test"}, tick=0.01, lot=1e-8)
    path = tmp_path / "flow.json"
    flow.save(path)
    assert ks.OrderFlow.load(path) == flow
    assert path.stat().st_size < 8192 and path.read_text().count("\n") > 15
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(ValueError, match="version 1, got 2"):
        ks.OrderFlow.load(path)
    flow.save(path)
    path.write_text(path.read_text().replace('"jump_size"', '"jumps"'))
    with pytest.raises(ValueError, match="fields"):
        ks.OrderFlow.load(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", np.zeros((2, 3, BANDS - 1), np.int64)),
        ("cancel", np.zeros((2, BANDS), np.int64)),
        ("cancel", np.ones((2, BANDS))),
        ("market", -1),
        ("market", True),
        ("jump_hazard", 2**32),
        ("follow", np.zeros((3, 5, 5), np.int64)),
        ("tick", 0.0),
        ("lot", float("nan")),
    ],
)
def test_tables_out_of_range_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name}: expected"):
        dataclasses.replace(random_table(0), **{name: value})


def test_events_that_cannot_be_fitted_are_refused():
    _, events, _ = truth()
    with pytest.raises(TypeError, match="events"):
        ks.OrderFlow.fit([1, 2])
    few = between(events, 0, events.time[600])
    with pytest.raises(ValueError, match="expected 1000 within 256 ticks"):
        ks.OrderFlow.fit(few)
    calm = dataclasses.replace(plain_table(), market=0, jump_hazard=0)
    with pytest.raises(ValueError, match="executions"):
        ks.OrderFlow.fit(simulate(calm, 3000, 1))


def test_few_events_are_warned_of():
    _, events, _ = truth()
    with pytest.warns(UserWarning, match="are few"):
        ks.OrderFlow.fit(between(events, 0, events.time[5000]))


def test_orders_that_are_too_far_are_warned_of():
    """A spread of 250 ticks leaves out half of the bands."""
    _, events, _ = truth()
    some = between(events, 0, events.time[5000])
    wide = dataclasses.replace(some, price=some.price + 250 * (some.side < 0))
    with pytest.warns(UserWarning, match="limit orders came more than 256 ticks"):
        ks.OrderFlow.fit(wide, progress=False)


def test_classes_of_sizes():
    """Sixteenths, of which the last makes the mean right; weights count."""
    sizes = np.arange(1, 161)
    found = size_classes(sizes, np.ones(160))
    assert found.mean() == pytest.approx(sizes.mean(), abs=0.5) and (np.diff(found) >= 0).all()
    assert (size_classes(np.array([7, 9]), np.array([1.0, 0.0])) == 7).all()
    assert (size_classes(np.array([], np.int64), np.array([])) == 1).all()


def made(rows: list[tuple[float, int, int, int, int, int]]) -> OrderEvents:
    """Return events of rows (seconds, order, kind, side, price, size)."""
    seconds, order, kind, side, price, size = (np.array(column) for column in zip(*rows, strict=True))
    time = (seconds * SECOND).astype(np.int64)
    opening = (np.arange(len(rows)) < 2) & (kind == ADD)
    return OrderEvents(
        time, order, kind.astype(np.int8), side.astype(np.int8), price, size, opening,
        np.array([[0, 4 * SECOND]]), lot=0.001,
    )  # fmt: skip


def test_moments_by_hand():
    """Two events in second 0, four in 2; two buys, a sell; a mid of 10.5, then 11, 11.5 and others."""
    events = made([
        (0, 1, ADD, 1, 10, 5), (0, 2, ADD, -1, 11, 5),
        (0.1, 3, ADD, -1, 12, 9), (0.9, 2, EXECUTE, -1, 11, 5),
        (2.0, 4, ADD, -1, 11, 1), (2.1, 4, EXECUTE, -1, 11, 1),
        (2.5, 1, EXECUTE, 1, 10, 1), (2.5, 1, EXECUTE, 1, 10, 2),
    ])  # fmt: skip
    assert event_rate(events) == 6 / 4
    assert fano_factor(events) == pytest.approx(np.var([2, 0, 4, 0]) / 1.5)
    assert trade_sign_correlation(events) == pytest.approx((1 - 1) / 2)
    assert mid_drift(events) == (11 - 10.5) / 4
    assert mid_variance(events, 1) == pytest.approx(np.var([0.5, -0.5, 0.5, 0]))
    assert np.isnan(mid_variance(events, 4)) and set(MOMENTS) >= {"events per second"}


def test_the_mid_varies_from_a_sessions_first_book_on():
    """Sessions of which nothing is seen at first, and a night between them: the mid moves by 0, 0.5, 0, 0 in each."""
    rows = [(0.5, 1, ADD, 1, 10, 5), (0.5, 2, ADD, -1, 11, 5), (2.5, 3, ADD, -1, 12, 9), (2.6, 2, DELETE, -1, 11, 5)]
    one = made(rows)
    one = dataclasses.replace(one, opening=np.zeros(4, bool), sessions=np.array([[0, 5 * SECOND]]))
    night = 10**13
    both = dataclasses.replace(
        one,
        **{name: np.tile(getattr(one, name), 2) for name in ("order", "kind", "side", "size", "opening")},
        time=np.r_[one.time, one.time + night],
        price=np.r_[one.price, one.price + 500],
        sessions=np.r_[one.sessions, one.sessions + night],
    )
    assert mid_variance(one, 1) == pytest.approx(np.var([0, 0.5, 0, 0]))
    assert mid_variance(both, 1) == pytest.approx(np.var([0, 0.5, 0, 0]))
    assert mid_drift(one) == mid_drift(both) == 0.5 / 5
    assert np.isnan(mid_variance(dataclasses.replace(one, side=np.ones(4, np.int8)), 1))


def test_lots_are_a_fifth_of_the_median_order():
    sizes = [60, 70, 80]
    events = made([(0, 9, ADD, 1, 1, 1), (0, 8, ADD, -1, 3, 1), *((1, i, ADD, 1, 1, x) for i, x in enumerate(sizes))])
    assert lot_of(events) == 0.01
    assert lot_of(dataclasses.replace(events, size=np.full(5, 3))) == 0.001


def test_validation_tells_a_flow_from_another():
    """Its own markets are nearer than those of a flow whose orders are ten times as large and never flee."""
    flow, events, _ = truth()
    some = between(events, 0, events.time[8000])
    other = dataclasses.replace(flow, limit_size=10 * flow.limit_size, fleeting=np.zeros(BANDS, np.int64))
    near, far = (one.validate(some, markets=2, resamples=0, progress=False) for one in (flow, other))
    assert near.scores.mean.l1.value < 0.6 * far.scores.mean.l1.value
    assert near.distances.shape == (2, 2) and near.real["events per second"] == pytest.approx(event_rate(some))
    assert "mid variance, 10 s" in str(near)
    assert (some.kind == DELETE).any()


def day(begin: int, mid: int, gone: int, opening: bool = True) -> list[tuple[int, ...]]:
    """Return a session's rows: five bids, five asks at `mid` and up, then the best `gone` asks leave, and come back."""
    rows = [(begin, begin + i, ADD, 1, mid - 1 - i, 5, opening) for i in range(5)]
    rows += [(begin, begin + 10 + i, ADD, -1, mid + i, 5, opening) for i in range(5)]
    rows += [(begin + (1 + i) * SECOND, begin + 10 + i, DELETE, -1, mid + i, 5, False) for i in range(gone)]
    return rows + [(begin + 8 * SECOND, begin + 20 + i, ADD, -1, mid + i, 5, False) for i in range(gone, 5)]


def jumps_of(*days: list[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """Return sizes of jumps, and prices of what fled from them."""
    time, order, kind, side, price, size, opening = (np.array(x) for x in zip(*sum(days, []), strict=True))
    sessions = np.array([[rows[0][0], rows[0][0] + 9 * SECOND] for rows in days])
    kind, side, opening = kind.astype(np.int8), side.astype(np.int8), opening.astype(bool)
    seen = look(OrderEvents(time, order, kind, side, price, size, opening, sessions))
    found = find(seen)[1]
    return found.size, price[found.fled]


def test_jumps_by_hand():
    """Four asks leave, so the ask goes up by four ticks and the mid by two; those below the mid's way fled."""
    size, fled = jumps_of(day(0, 100, 4))
    assert size.tolist() == [2] and fled.tolist() == [100, 101]
    assert jumps_of(day(0, 100, 0))[0].tolist() == []


@pytest.mark.parametrize("overnight", [-500, 0, 500])
def test_a_night_is_no_jump(overnight):
    """Books of ten orders: the events between two days' jumps are few, and a night among them."""
    size, fled = jumps_of(day(0, 100, 4), day(10**15, 100 + overnight, 4))
    assert size.tolist() == [2, 2] and fled.tolist() == [100, 101, 100 + overnight, 101 + overnight]


def test_an_empty_side_is_no_jump():
    """All asks leave: until one is back the mid is the last that there was. A session may begin without a book."""
    back = [(9 * SECOND, 30, ADD, -1, 104, 5, False)]
    assert jumps_of(day(0, 100, 5) + back)[0].tolist() == [2]
    assert jumps_of(day(0, 100, 4, opening=False))[0].tolist() == [2]
    assert jumps_of(day(0, 100, 4, opening=False), day(10**15, 900, 4, opening=False))[0].tolist() == [2, 2]


@pytest.mark.parametrize("symmetric", [1, "no", None])
def test_symmetric_is_true_or_false(symmetric):
    """Not 1, which would choose orders by their number."""
    with pytest.raises(TypeError, match="symmetric: expected True or False"):
        ks.OrderFlow.fit(truth()[1], symmetric=symmetric)


def test_events_of_one_time_have_no_clock():
    _, events, _ = truth()
    frozen = dataclasses.replace(events, time=np.zeros_like(events.time), sessions=np.zeros((1, 2), np.int64))
    with pytest.raises(ValueError, match="times that differ"):
        ks.OrderFlow.fit(frozen, lot=1.0)
