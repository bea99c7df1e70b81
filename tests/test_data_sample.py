"""Half an hour of Bitstamp's BTC/USD, as the package ob-analytics ships it, read by arguments alone."""

import numpy as np
import pytest
from thorough import slow

import kineticsim_env as ks
from kineticsim_env.data.books import between, follow_orders, in_lots, replay
from kineticsim_env.data.events import ADD, EXECUTE
from kineticsim_env.data.intervals import series_of
from kineticsim_env.statistics import measure_series
from scripts.bitstamp_sample import folder, sample

pytest.importorskip("pandas")
if folder() is None:
    pytest.skip("ob-analytics is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def events():
    return sample()


def test_the_report(events):
    report = events.report
    assert report.rows == 314_057 and report.opening == 6510 and report.events == len(events)
    assert report.stale == 2 and report.crossed == 0 and report.closing == 6518 and not report.failures
    assert report.executions == report.at_touch == 284  # all trades
    assert 100_000 < report.rejects < 101_000 and report.takers == 168 and report.gaps == ()
    assert (report.tick, report.lot) == (1, 1e-8) and 1790 < report.seconds < 1810
    assert "284 of 284 executions at the touch" in str(report) and "2 stale orders" in str(report)


def test_the_book(events):
    orders, books = follow_orders(events), replay(events, 1)
    first = events.report.opening
    assert books.both[first:].all() and books.spread[first:].min() >= 1
    lasts = np.diff(events.time)
    assert abs(lasts[books.spread[:-1] == 1].sum() / lasts.sum() - 0.993) < 5e-4
    assert events.opening[: events.report.opening].all() and not events.opening[events.report.opening :].any()
    assert (orders.left[events.kind == ADD] > 0).all() and events.size[events.kind == EXECUTE].min() > 0


def test_series_of_it(events):
    series = series_of(in_lots(events, 0.01), 1.0)
    measured = measure_series(series, ["volatility", "volume"], group=None)
    assert series["mid2"].shape[1] >= 1799 and measured["volatility"].value[0] > 0


@slow
def test_the_table_that_ships_is_the_fit_of_its_first_half(events):
    """To the number; scripts/pages/order_flow.py writes it."""
    first, last = events.sessions[0]
    shipped = ks.OrderFlow.preset("btcusd").numbers()
    with pytest.warns(UserWarning, match="are few"):
        fitted = ks.OrderFlow.fit(between(events, first, (first + last) // 2), progress=False).numbers()
    assert {**fitted, "about": None} == {**shipped, "about": None}
    assert fitted["about"].items() <= shipped["about"].items()
