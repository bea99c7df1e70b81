"""Order events, bars and trades as files and tables have them, read back as they were."""

import dataclasses

import numpy as np
import pytest
from tape_checks import random_case
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.calibration.targets import read_target
from kineticsim_env.data.books import replay
from kineticsim_env.data.events import KINDS
from kineticsim_env.data.intervals import series_of
from kineticsim_env.statistics import measure_series

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
COLUMNS = ("time", "order", "kind", "side", "price", "size", "opening")


@pytest.fixture(scope="module")
def tape():
    sim = ks.Simulator(ks.MarketConfig.preset("continuous"), 1, engine="cpu", seed=3)
    sim.run(20)
    return sim.tape(0, 60)


@pytest.fixture(scope="module")
def real(tape):
    return tape.events()


def frame(events, tick=0.25, lot=0.5):
    """Return a table as a feed would have it, in currency and units."""
    given = {name: getattr(events, name) for name in COLUMNS[:-1]}
    return pd.DataFrame(given | {"price": events.price * tick, "size": events.size * lot})


def same(found, wanted, *without):
    for name in COLUMNS:
        if name not in without:
            assert getattr(found, name).dtype == getattr(wanted, name).dtype
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), name)


@pytest.mark.parametrize("form", ["pandas", "arrow", "mapping", "csv", "csv.gz", "parquet"])
def test_a_table_of_any_form_is_read_back(real, form, tmp_path):
    table = frame(real)
    path = tmp_path / f"orders.{form}"
    if form.startswith("csv"):
        table.to_csv(path, index=False)
    if form == "parquet":
        table.to_parquet(path)
    given = {
        "pandas": table,
        "arrow": __import__("pyarrow").Table.from_pandas(table),
        "mapping": {name: table[name].tolist() for name in table},
    }.get(form, path)
    found = ks.read_orders(given, unit="ns", tick=0.25, lot=0.5)
    same(found, real)
    assert (found.tick, found.lot) == (0.25, 0.5) and found.report.rows == len(real) == found.report.events
    assert found.report.crossed == 0 and found.report.at_touch == found.report.executions > 0


@pytest.mark.parametrize("sizes", ["change", "remaining"])
@pytest.mark.parametrize("words", ["kinds", "numbers", "texts"])
def test_kinds_sides_and_sizes_of_feeds(real, sizes, words):
    table = frame(real, 1, 1)
    if sizes == "remaining":
        went = np.where(real.kind == 0, real.size, -real.size)
        left = pd.Series(went).groupby(real.order).cumsum()
        table["size"] = np.where(real.kind == 2, 0, left)
    how = {}
    if words == "kinds":
        table["kind"] = np.array(["Created", "changed", "DELETED", "match"])[real.kind]
        table["side"] = np.where(real.side == 1, "buy", "Sell")
    elif words == "numbers":
        table["kind"], table["side"] = real.kind + 10, real.side + 5
        how = {"kinds": {10 + k: name for k, name in enumerate(KINDS)}, "sides": {6: "bid", 4: "ask"}}
    else:
        table["order"] = [f"order-{order}" for order in real.order]
    found = ks.read_orders(table, unit="ns", tick=1, lot=1, sizes=sizes, **how)
    same(found, real, *(["order"] if words == "texts" else []))
    assert len(np.unique(found.order)) == len(np.unique(real.order))


def test_times_of_any_unit_and_datetimes():
    rows = {"order": [1, 2], "kind": ["add", "add"], "side": ["bid", "ask"], "price": [9.5, 10.5], "size": [1, 2]}
    wanted = [1_000_000_000_000_000_000, 1_000_000_000_500_000_000]
    for unit, scale in (("ns", 1), ("us", 10**3), ("ms", 10**6)):
        found = ks.read_orders(rows | {"time": [time // scale for time in wanted]}, unit=unit)
        assert found.time.tolist() == wanted
    assert ks.read_orders(rows | {"time": [1e9, 1e9 + 0.5]}, unit="s").time.tolist() == wanted
    stamps = ["2001-09-09T01:46:40", "2001-09-09T01:46:40.5"]
    for given in (stamps, [f"{stamp}+00:00" for stamp in stamps], np.array(stamps, "datetime64[ms]")):
        assert ks.read_orders(rows | {"time": given}).time.tolist() == wanted
    found = ks.read_orders(
        rows | {"time": pd.to_datetime(stamps, format="ISO8601").tz_localize("Europe/Paris").tz_convert("UTC")}
    )
    assert found.time.tolist() == [time - 7200 * 10**9 for time in wanted] and (found.tick, found.price.tolist()) == (
        0.5,
        [19, 21],
    )
    assert found.lot == 1 and found.sessions.tolist() == [found.time.tolist()]


def test_rows_are_taken_by_time_and_those_of_one_time_as_they_come():
    rows = pd.DataFrame(
        [(5, 1, "delete", 9, 3), (2, 1, "add", 9, 3), (5, 2, "add", 8, 1), (5, 2, "delete", 8, 1)],
        columns=["time", "order", "kind", "price", "size"],
    )
    found = ks.read_orders(rows.assign(side="bid"), unit="ns")
    assert found.time.tolist() == [2, 5, 5, 5] and found.order.tolist() == [1, 1, 2, 2]
    assert found.kind.tolist() == [0, 2, 0, 2]


def test_lobster_reads_back_what_tapes_write(tmp_path):
    for seed in range(examples(60)):
        sim, chosen, intervals, quotes = random_case(seed, "clock", "continuous")
        made = sim.tape(chosen, intervals, quotes=None if quotes is None else quotes[:, chosen])
        levels = 1 + seed % 4
        pairs = made.to_lobster(tmp_path / str(seed), levels=levels, base=seed, opens=100.0)
        for number, (messages, books) in enumerate(pairs):
            wanted = made.events(number)
            if not len(wanted):
                continue
            wanted = dataclasses.replace(wanted, price=wanted.price + seed)
            for orderbook in (books, None):
                found = ks.read_lobster(messages, orderbook, tick=0.01)
                same(found, wanted, "time", "opening")
                begins = found.time <= found.sessions[0, 0]  # an order may come then: a file does not tell
                assert (wanted.opening <= found.opening).all() and (found.opening <= wanted.opening | begins).all()
                assert abs(found.time - wanted.time - 100 * 10**9).max() <= 1
                assert found.report.executions == found.report.at_touch and not found.report.ignored
            lines = np.loadtxt(books, np.int64, delimiter=",", ndmin=2).reshape(len(found), levels, 2, 2)
            shown = replay(found, levels)
            np.testing.assert_array_equal(shown.sizes, lines[:, :, ::-1, 1].transpose(0, 2, 1))


def test_lobster_of_the_middle_of_a_day(tape, tmp_path):
    """A file that begins later says what rested before: the levels are those of the whole day."""
    ((messages, books),) = tape.to_lobster(tmp_path, levels=200)
    message, book = (pd.read_csv(path, header=None) for path in (messages, books))
    whole = replay(ks.read_lobster(message, book, tick=0.01), 5)
    for begin in (1, 700, len(message) - 1):
        found = ks.read_lobster(message[begin:], book[begin:], tick=0.01)
        first = len(found) - (len(message) - begin)
        assert found.opening[:first].all() and not found.opening[first:].any()
        shown = replay(found, 5)
        np.testing.assert_array_equal(shown.prices[first:], whole.prices[begin:])
        np.testing.assert_array_equal(shown.sizes[first:], whole.sizes[begin:])


def test_lobster_of_few_levels_has_the_best_prices_or_is_refused(tape, tmp_path):
    """LOBSTER has the messages alone that change its levels."""
    ((messages, books),) = tape.to_lobster(tmp_path, levels=10)
    message, book = (pd.read_csv(path, header=None) for path in (messages, books))

    def cut(levels):
        shown = book.iloc[:, : 4 * levels]
        kept = np.r_[True, (shown.to_numpy()[1:] != shown.to_numpy()[:-1]).any(1)]
        return message[kept], shown[kept]

    few, shown = cut(8)
    assert len(few) < len(message)
    found = ks.read_lobster(few, shown, tick=0.01)
    assert 0.999 < found.report.agreeing <= 1 and found.report.at_touch == found.report.executions
    with pytest.raises(ValueError, match="^agreeing: expected 95% of messages at least, got .*check=False"):
        ks.read_lobster(*cut(1), tick=0.01)
    assert np.isnan(ks.read_lobster(message, tick=0.01).report.agreeing)


def test_lobster_without_what_is_out_of_its_levels(tmp_path):
    """Orders that are deleted out of sight leave as the best price shows it."""
    bid, ask, none = (100, 5), (300, 5), (-9999999999, 0)
    lines = [
        (1.0, 1, 1, 5, 100, 1, ask, bid),  # the ask rested before
        (2.0, 1, 2, 5, 200, 1, ask, (200, 5)),  # the bid of order 1 is out of sight now, and deleted there
        (3.0, 5, 0, 7, 250, 1, ask, (200, 5)),  # a hidden trade
        (4.0, 3, 2, 5, 200, 1, ask, none),
        (5.0, 7, 0, 0, -1, -1, ask, none),
        (6.0, 1, 3, 1, 50, 1, ask, (50, 1)),
        (7.0, 4, 9, 2, 50, 1, ask, (50, 1)),  # order 9 came out of sight
    ]
    message = pd.DataFrame([line[:6] for line in lines])
    book = pd.DataFrame([(*ask, *bid) for *_, ask, bid in lines])
    found = ks.read_lobster(message, book)
    assert found.tick == 0.005
    assert found.order.tolist() == [-1, 1, 2, 2, 1, 3, 9, 9] and found.kind.tolist() == [0, 0, 0, 2, 2, 0, 0, 3]
    assert found.report.unseen == 1 and found.report.rows == 7
    notes = "\n".join(found.report.notes)
    assert (
        "1 executions of hidden orders, 7 shares" in notes and "halt at 5.000 s" in notes and "came in sight" in notes
    )


def test_bars():
    table = {"time": [0, 60, 180], "open": [1, 1, 1], "close": [10.5, 10.25, 11], "volume": [3.4, 2, 1]}
    plain = ks.read_bars(table, unit="s", lot=1)
    assert {name: values.tolist() for name, values in plain.items()} == {
        "last_price": [[42, 41, 44]],
        "volume": [[3, 2, 1]],
    }
    filled = ks.read_bars(table, unit="s", bar=60, tick=0.25, lot=1)
    assert filled["last_price"].tolist() == [[42, 41, 41, 44]] and filled["volume"].tolist() == [[3, 2, 0, 1]]
    days = ks.read_bars(table, unit="s", gap=100, lot=1)
    assert days["last_price"].tolist() == [[42], [44]]  # cut to the shorter session
    assert set(ks.read_bars({"time": [0, 1], "close": [1, 2]}, unit="s")) == {"last_price"}
    with pytest.raises(ValueError, match="^bar: expected times that are 50 s apart or multiples, got one at 6"):
        ks.read_bars(table, unit="s", bar=50, lot=1)
    with pytest.raises(ValueError, match="^time: expected one bar at a time, got several at 0 ns"):
        ks.read_bars(table | {"time": [0, 0, 1]}, unit="s", lot=1)


def test_trades_and_quotes():
    trades = {"time": [0, 9, 10, 25], "price": [10, 11, 12, 13], "size": [1, 2, 3, 4], "side": [1, -1, 1, -1]}
    quotes = {"time": [0, 12, 19], "bid": [9, 10, 11], "ask": [11, 12, 12]}
    found = ks.read_trades(trades, 10, side="side", quotes=quotes, unit="s", sessions=[[0, 30]])
    assert {name: values.tolist() for name, values in found.items()} == {
        "last_price": [[11, 12, 13]],  # an interval has its begin and not its end
        "volume": [[3, 3, 4]],
        "signed_volume": [[-1, 3, -4]],
        "best_bid": [[9, 11, 11]],
        "best_ask": [[11, 12, 12]],
        "mid2": [[20, 23, 23]],
    }
    assert set(ks.read_trades(trades, 5, unit="s")) == {"last_price", "volume"}
    with pytest.raises(ValueError, match="^sessions: expected 40 s or more with a trade in each, got 0 to 25"):
        ks.read_trades(trades, 40, unit="s")


def test_series_of_events_are_those_of_the_market(tape):
    """Those that a run records, interval by interval."""
    sim = ks.Simulator(ks.MarketConfig.preset("continuous"), 1, engine="cpu", seed=3)
    sim.run(20)
    names = ("last_price", "volume", "mid2", "best_bid", "best_ask", "bid_depth", "ask_depth", "signed_volume")
    recorded = sim.run(60, record=names, reach=4)
    series = series_of(tape.events(), 1.0, reach=4)
    assert set(series) == set(names)
    traded = int(np.flatnonzero(series["volume"][0])[0])
    for name in names:
        begin = traded if name == "last_price" else 0
        np.testing.assert_array_equal(series[name][:, begin:], recorded[name].numpy()[:, begin:], name)


@pytest.mark.parametrize("source", ["events", "bars", "trades"])
def test_series_go_into_statistics_scorecards_and_calibration(real, source):
    rng = np.random.default_rng(0)
    prices = 100 + 0.01 * np.cumsum(rng.integers(-3, 4, 900))
    times, sizes = np.arange(900), rng.integers(1, 9, 900)
    if source == "events":
        series = series_of(real, 0.25)
    elif source == "bars":
        series = ks.read_bars({"time": times, "close": prices, "volume": sizes}, unit="s", tick=0.01)
    else:
        trades = {"time": times, "price": prices, "size": sizes}
        series = ks.read_trades(trades, 2.0, unit="s", tick=0.01)
    found = measure_series(series, ["volatility", "volume"], group=None)
    assert found["volatility"].value[0] > 0 and found["volume"].value[0] > 0
    assert "volatility" in read_target(series).values
    card = ks.scorecard(series, null_models=False, impact=False)
    assert "facts met" in str(card)


GOOD = {
    "time": [1, 2],
    "order": [1, 1],
    "kind": ["add", "delete"],
    "side": ["bid", "bid"],
    "price": [1.5, 1.5],
    "size": [2, 2],
}
WRONG = [
    ({}, {"unit": None}, "^unit: expected one of 'ns', 'us', 'ms', 's' for times that are numbers, got None"),
    ({}, {"unit": "h"}, "^unit: expected one of .*got 'h'"),
    ({}, {"time": "when"}, "^time: expected one of source's columns, time, order, .*got 'when'"),
    ({"kind": ["add", "gone"]}, {}, "^kind: expected one of .*got 'gone'"),
    ({"side": ["bid", "x"]}, {}, "^side: expected one of .*got 'x'"),
    ({}, {"kinds": {"add": "new", "delete": "vanish"}}, r"^kinds\['delete'\]: expected one of .*got 'vanish'"),
    ({"price": [1.5, 1 / 3]}, {}, "^tick: expected the price of a tick in currency, got None"),
    ({"size": [2, 1e-12]}, {}, "^lot: expected the size of a lot, got None"),
    ({"price": [1.5, 1.55]}, {"tick": 0.1}, "^price: expected multiples of tick=0.1, .*got 1.55 in row 1"),
    ({"price": [1.5, float("nan")]}, {}, "^source, 'price': expected a value in each row, got none in row 1"),
    ({"price": [1.5, float("inf")]}, {}, "^price: expected finite numbers, got inf"),
    ({"price": ["a", "b"]}, {}, "^price: expected numbers, got"),
    ({"size": [2, -2]}, {}, "^size: expected numbers from 0, got -2 in row 1"),
    ({"order": [1.0, 1.0]}, {}, "^order: expected whole numbers or texts, got floats"),
    ({"time": [1, 2, 3]}, {}, "^source: expected columns of one length"),
    ({name: [] for name in GOOD}, {}, "^source: expected rows, got none"),
    ({}, {"gap": 0}, "^gap: expected a finite number above 0"),
    ({}, {"sessions": [[3, 1]]}, "^sessions: expected spans, each after the last"),
    ({}, {"sessions": 5}, "^sessions: expected pairs of first and last time, got 5"),
    ({}, {"sizes": "left"}, "^sizes: expected one of 'change', 'remaining', got 'left'"),
    (
        {},
        {"trades": {"time": [1], "size": [1], "buyer": [1]}},
        "^trade_columns: expected 'resting', or .*got no 'seller'",
    ),
    ({}, {"trades": {}, "trade_columns": {"maker": "x"}}, "^trade_columns: expected some of time, size, .*got 'maker'"),
]


@pytest.mark.parametrize("columns, how, message", WRONG)
def test_what_is_wrong_is_refused_by_name(columns, how, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ks.read_orders(GOOD | columns, **{"unit": "ns", **how})


def test_files_that_are_none_are_refused(tmp_path):
    for read, name in ((ks.read_orders, "source"), (ks.read_lobster, "message"), (ks.read_bars, "source")):
        with pytest.raises(ValueError, match=f"^{name}: expected .*file.*got .*nothing.csv"):
            read(tmp_path / "nothing.csv")
        with pytest.raises(TypeError, match=f"^{name}: expected a path.*got 5"):
            read(5)
    message = pd.DataFrame([(1.0, 1, 1, 5, 100, 1)])
    with pytest.raises(ValueError, match="^orderbook: expected 1 lines, .*got int64"):
        ks.read_lobster(message, pd.DataFrame([(1, 2, 3)]))
    with pytest.raises(ValueError, match="^message: expected times that do not fall, got 0.5 in row 1"):
        ks.read_lobster(pd.DataFrame([(1.0, 1, 1, 5, 100, 1), (0.5, 1, 2, 5, 100, 1)]))
    with pytest.raises(ValueError, match="^message: expected messages of types 1 to 4, of direction"):
        ks.read_lobster(pd.DataFrame([(1.0, 1, 1, 5, 100, 0)]))
    with pytest.raises(ValueError, match="^message: expected times below 2.62 ns in size, got nan"):
        ks.read_lobster(pd.DataFrame([(np.nan, 1, 1, 5, 100, 1)]))
    with pytest.raises(ValueError, match="^message: expected types 1 to 7, got 8"):
        ks.read_lobster(pd.DataFrame([(1.0, 8, 1, 5, 100, 1)]))
