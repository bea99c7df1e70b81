"""What cleaning drops, moves and removes, and what it leaves; what of a book is refused."""

import dataclasses

import numpy as np
import pytest

import kineticsim_env as ks
from kineticsim_env.data.books import replay
from kineticsim_env.data.events import ADD, DELETE, EXECUTE, REDUCE

pytest.importorskip("pandas")
MS = 10**6
# Time in ms, order, kind, side, price, size: a book of two bids and two asks.
BOOK = [
    (0, 1, "add", "bid", 99, 5),
    (0, 2, "add", "bid", 98, 5),
    (0, 3, "add", "ask", 101, 5),
    (0, 4, "add", "ask", 102, 5),
]


def read(*rows, **how):
    """Return the events of the book and of further rows; after a second an order of its own ends them."""
    rows = [*BOOK, *rows]
    columns = dict(zip(("time", "order", "kind", "side", "price", "size"), zip(*rows, strict=True), strict=True))
    return ks.read_orders(columns, **{"unit": "ms", "tick": 1, "lot": 1, **how})


def shown(events, first=4):
    """Return time in ms, order, kind, price and size of the events after the book."""
    columns = (events.time // MS, events.order, events.kind, events.price, events.size)
    return list(zip(*(column.tolist()[first:] for column in columns), strict=True))


def test_a_snapshot_rested_before():
    events = read((5, 5, "add", "bid", 97, 1))
    assert events.opening.tolist() == [True] * 4 + [False] and events.report.opening == 4
    assert not read((5, 5, "add", "bid", 97, 1), snapshot=False).opening.any()


def test_rejects_are_dropped_and_other_short_orders_are_not():
    events = read(
        (5, 10, "add", "bid", 101, 1),  # at the best ask, deleted at once
        (5, 10, "delete", "bid", 101, 1),
        (6, 11, "add", "ask", 98, 1),  # through the best bid, within 1 ms
        (7, 11, "delete", "ask", 98, 1),
        (8, 12, "add", "bid", 100, 1),  # crosses nobody
        (8, 12, "delete", "bid", 100, 1),
        (9, 13, "add", "bid", 101, 1),  # crosses, and lives for longer
        (11, 13, "delete", "bid", 101, 1),
        (11, 3, "reduce", "ask", 101, 1),
        check=False,
    )
    assert events.report.rejects == 2
    assert shown(events) == [
        (8, 12, ADD, 100, 1), (8, 12, DELETE, 100, 1), (9, 13, ADD, 101, 1), (11, 13, DELETE, 101, 1),
        (11, 3, REDUCE, 101, 1),
    ]  # fmt: skip


def test_no_order_that_is_alive_is_removed_for_one_that_crosses():
    rows = [(5, 10, "add", "bid", 101, 1), (9, 10, "delete", "bid", 101, 1)]
    alive = read(*rows, (1000, 3, "delete", "ask", 101, 5), check=False)
    assert alive.report.stale == 0 and alive.report.crossed == pytest.approx(0.004) and len(alive) == 7
    stale = read(*rows, (1000, 4, "delete", "ask", 102, 5))
    assert stale.report.stale == 1 and 3 not in stale.order and stale.report.crossed == 0
    assert stale.report.opening == 3


def test_stale_orders_behind_one_that_is_alive_stay():
    rows = [(5, 10, "add", "bid", 102, 1), (1000, 3, "delete", "ask", 101, 5)]
    assert read(*rows, check=False).report.stale == 0
    both = read((5, 10, "add", "bid", 102, 1), (1000, 1, "delete", "bid", 99, 5))
    assert both.report.stale == 2 and replay(both, 1).both[-1] == False  # noqa: E712


@pytest.mark.parametrize("kind", ["execute", "reduce"])
def test_an_order_that_trades_as_it_comes_rests_with_what_is_left(kind):
    """Both orders of a trade have rows, as of feeds without trades of their own."""
    events = read(
        (5, 10, "add", "bid", 101, 7),
        (5, 10, kind, "bid", 101, 5),
        (5, 3, "execute", "ask", 101, 5),
        (6, 11, "add", "bid", 97, 1),
        (9, 10, "delete", "bid", 101, 2),
    )
    assert events.report.takers == 1 and events.report.at_touch == events.report.executions == 1
    assert shown(events) == [
        (5, 3, EXECUTE, 101, 5),
        (5, 10, ADD, 101, 2),
        (6, 11, ADD, 97, 1),
        (9, 10, DELETE, 101, 2),
    ]
    assert events.report.crossed == 0


TRADES = {"time": [5, 5], "size": [5, 1], "buyer": [10, 10], "seller": [3, 4], "side": ["buy", "buy"]}


@pytest.mark.parametrize("by", ["sides", "resting"])
def test_trades_of_a_table_of_their_own(by):
    trades = TRADES if by == "sides" else {"time": [5, 5], "size": [5, 1], "resting": [3, 4]}
    events = read(
        (5, 10, "add", "bid", 102, 8),
        (5, 10, "changed", "bid", 101, 3),
        (5, 3, "delete", "ask", 101, 0),
        (5, 10, "changed", "bid", 102, 2),
        (5, 4, "changed", "ask", 102, 4),
        (7, 4, "changed", "ask", 102, 3),
        (8, 10, "delete", "bid", 102, 2),
        sizes="remaining",
        trades=trades,
        check=False,
    )
    assert shown(events) == [
        (5, 3, EXECUTE, 101, 5), (5, 4, EXECUTE, 102, 1), (5, 10, ADD, 102, 2), (7, 4, REDUCE, 102, 1),
        (8, 10, DELETE, 102, 2),
    ]  # fmt: skip
    assert events.report.executions == events.report.at_touch == 2 and events.report.market_orders == 1


def test_an_order_that_crosses_a_stale_one_and_is_filled_at_once_is_no_reject():
    events = read(
        (5, 10, "add", "bid", 101, 1),
        (5, 10, "delete", "bid", 101, 0),
        (9, 1, "delete", "bid", 99, 5),
        sizes="remaining",
        trades={"time": [5], "size": [1], "resting": [10]},
    )
    assert shown(events, 3) == [(5, 10, ADD, 101, 1), (5, 10, EXECUTE, 101, 1), (9, 1, DELETE, 99, 5)]
    assert (events.report.stale, events.report.rejects) == (1, 0)


def test_trades_whose_clock_is_late():
    rows = [(5, 3, "changed", "ask", 101, 2), (9, 9, "add", "bid", 90, 1)]
    for late, kind in ((0, EXECUTE), (300, EXECUTE), (2000, REDUCE)):
        trades = {"time": [5 + late], "size": [3], "resting": [3]}
        events = read(*rows, sizes="remaining", trades=trades)
        assert shown(events)[0] == (5, 3, kind, 101, 3)
        assert events.report.notes == (() if kind == EXECUTE else ("1 trades that no row shows",))


def test_a_taker_of_which_nothing_is_left_never_rests():
    for rows in (
        [(5, 10, "delete", "bid", 101, 0)],
        [(5, 10, "changed", "bid", 101, 0)],
        [(5, 10, "delete", "bid", 101, 3)],
    ):
        events = read(
            (5, 10, "add", "bid", 101, 5),
            *rows,
            (5, 3, "changed", "ask", 101, 3),
            sizes="remaining",
            trades={"time": [5], "size": [2], "buyer": [10], "seller": [3], "side": [1]},
        )
        assert shown(events) == [(5, 3, EXECUTE, 101, 2)]


def test_orders_that_lose_their_place_come_again():
    events = read(
        (5, 1, "changed", "bid", 99, 7),  # larger
        (6, 2, "changed", "bid", 97, 5),  # elsewhere
        (7, 1, "delete", "bid", 99, 7),
        (8, 1, "add", "bid", 96, 1),
        sizes="remaining",
    )
    assert shown(events) == [
        (5, 1, DELETE, 99, 5), (5, 5, ADD, 99, 7), (6, 2, DELETE, 98, 5), (6, 6, ADD, 97, 5), (7, 5, DELETE, 99, 7),
        (8, 7, ADD, 96, 1),
    ]  # fmt: skip


def test_deletes_that_close_a_file_are_no_events():
    last = [(9, order, "delete", side, 0, 5) for order, side in ((1, "bid"), (2, "bid"), (3, "ask"), (4, "ask"))]
    events = read((5, 9, "add", "bid", 97, 1), *last)
    assert events.report.closing == 4 and shown(events) == [(5, 9, ADD, 97, 1)]
    assert events.sessions.tolist() == [[0, 9 * MS]]
    one_side = read((5, 9, "add", "bid", 97, 1), *last[:2])
    assert one_side.report.closing == 0 and len(one_side) == 7


def test_orders_of_before_without_a_snapshot():
    columns = {
        "time": [1, 2, 3, 4],
        "order": [7, 8, 7, 9],
        "kind": ["reduce", "execute", "delete", "add"],
        "side": ["bid", "ask", "bid", "bid"],
        "price": [10, 12, 10, 11],
        "size": [2, 3, 4, 1],
    }
    events = ks.read_orders(columns, unit="ms")
    assert events.kind.tolist() == [ADD, ADD, REDUCE, EXECUTE, DELETE, ADD]
    assert events.size.tolist() == [6, 3, 2, 3, 4, 1] and events.opening.tolist() == [True] * 2 + [False] * 4
    after = read((5, 9, "delete", "bid", 97, 1), check=False)  # the snapshot says all: it was not there
    assert len(after) == 4 and after.report.ignored == 1


def test_gaps_end_sessions():
    rows = [(10, 1, "reduce", "bid", 99, 2), (5000, 9, "add", "bid", 97, 1), (5001, 3, "execute", "ask", 101, 1)]
    events = read(*rows, gap=1)
    assert events.sessions.tolist() == [[0, 10 * MS], [5000 * MS, 5001 * MS]]
    assert events.report.gaps == ((10 * MS, 5000 * MS),) and "gaps: 5.0 s from 10000000 ns" in str(events.report)
    begins = events.time == 5000 * MS  # what rested rests on
    assert events.order[begins].tolist() == [1, 2, 3, 4, 9] and events.opening[begins].tolist() == [True] * 4 + [False]
    assert events.size[begins].tolist() == [3, 5, 5, 5, 1]
    given = read(*rows, sessions=[[0, 10], [5000, 5001]])
    for name in ("time", "order", "kind", "size", "opening", "sessions"):
        assert getattr(given, name).tolist() == getattr(events, name).tolist()
    assert read(*rows, gap=6).report.gaps == ()
    assert len(read(*rows, sessions=[[0, 10]])) == 5


def test_what_rests_is_known_by_rows_outside_sessions():
    rows = [(10, 1, "reduce", "bid", 99, 2), (30, 9, "add", "bid", 97, 1), (31, 3, "execute", "ask", 101, 1)]
    events = read(*rows, (50, 9, "delete", "bid", 97, 1), sessions=[[20, 30], [40, 60]])
    assert shown(events, 0) == [
        (20, 1, ADD, 99, 3), (20, 2, ADD, 98, 5), (20, 3, ADD, 101, 5), (20, 4, ADD, 102, 5), (30, 9, ADD, 97, 1),
        (40, 1, ADD, 99, 3), (40, 2, ADD, 98, 5), (40, 3, ADD, 101, 4), (40, 4, ADD, 102, 5), (40, 9, ADD, 97, 1),
        (50, 9, DELETE, 97, 1),
    ]  # fmt: skip
    assert events.opening.tolist() == [True] * 4 + [False] + [True] * 5 + [False]


def test_stale_orders_outside_sessions_and_over_gaps():
    crossing = [(10, 10, "add", "bid", 101, 1), (20, 10, "delete", "bid", 101, 1)]
    later = [(5000, 1, "reduce", "bid", 99, 1), (5001, 2, "reduce", "bid", 98, 1), (5002, 4, "reduce", "ask", 102, 1)]
    wanted = [(5000, 1, ADD, 99, 5), (5000, 2, ADD, 98, 5), (5000, 4, ADD, 102, 5)]
    wanted += [(5000, 1, REDUCE, 99, 1), (5001, 2, REDUCE, 98, 1), (5002, 4, REDUCE, 102, 1)]
    outside = read(*crossing, *later, sessions=[[5000, 6000]])
    assert outside.report.stale == 1 and shown(outside, 0) == wanted
    moved = [(5010, *row[1:]) for row in crossing[:1]] + [(5020, *row[1:]) for row in crossing[1:]]
    over = read((5, 3, "reduce", "ask", 101, 1), *later, *moved, gap=1)  # after the gap no row is of it
    assert over.report.stale == 1 and shown(over, 5)[:6] == wanted
    assert shown(over, 11) == [(5010, 10, ADD, 101, 1), (5020, 10, DELETE, 101, 1)]


def test_two_orders_of_both_sides_after_a_gap_are_no_snapshot():
    more = [(0, 20 + i, "add", "bid", 90, 1) for i in range(9)]
    events = read(*more, (5000, 40, "add", "bid", 98, 1), (5000, 41, "add", "ask", 103, 1), gap=1)
    begins = events.time == 5000 * MS
    assert begins.sum() == 15 and events.opening[begins].tolist() == [True] * 13 + [False] * 2


def test_a_snapshot_after_a_gap_is_all_there_is():
    again = [(5000, 2, "add", "bid", 98, 5), (5000, 8, "add", "ask", 100, 1), (5001, 8, "delete", "ask", 100, 1)]
    events = read((10, 1, "reduce", "bid", 99, 2), *again, gap=1)
    begins = events.time >= 5000 * MS
    assert events.order[begins].tolist() == [2, 8, 8] and events.opening[begins].tolist() == [True, True, False]
    assert replay(events, 1).prices[-2].ravel().tolist() == [98, 100]


@pytest.mark.parametrize(
    "rows, message",
    [
        ([(5, 10, "add", "bid", 103, 1), (900, 3, "delete", "ask", 101, 5), (1000, 4, "reduce", "ask", 102, 1)],
         r"^crossed: expected 1% of the time at most, got 99.50%; check=False takes it"),
        ([(5, 4, "execute", "ask", 102, 5), (6, 3, "reduce", "ask", 101, 1)],
         "^at_touch: expected 95% of executions at least, got 0.0%"),
        ([(5, 77, "delete", "bid", 90, 1), (6, 3, "reduce", "ask", 101, 1)],
         "^ignored: expected 5% of rows at most, got 16.7%"),
    ],
)  # fmt: skip
def test_a_book_that_is_none_is_refused(rows, message):
    with pytest.raises(ValueError, match=message) as caught:
        read(*rows)
    assert "rows became" in str(caught.value)
    report = read(*rows, check=False).report
    assert len(report.failures) == 1 and f"wrong: {report.failures[0]}" in str(report)


def test_the_report_is_no_part_of_what_events_are():
    events = read((5, 9, "add", "bid", 97, 1))
    assert dataclasses.fields(events)[-1].name == "report" and not dataclasses.fields(events)[-1].compare
    assert "report" not in repr(events) and "rows became" in str(events.report)
    with pytest.raises(dataclasses.FrozenInstanceError):
        events.report.rows = 1


def test_random_rows_make_events_that_are_consistent_or_are_refused():
    """Whatever rows say, what comes out is events of orders: `replay` takes them."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = 120
        columns = {
            "time": np.sort(rng.integers(0, 40, n)),
            "order": rng.integers(0, 30, n),
            "kind": rng.integers(0, 4, n),
            "side": rng.choice([-1, 1], n),
            "price": rng.integers(95, 106, n),
            "size": rng.integers(0, 6, n),
        }
        how = {"sizes": ["change", "remaining"][seed % 2], "gap": [None, 0.003][seed // 2 % 2]}
        trades = {
            "time": np.sort(rng.integers(0, 40, 9)),
            "size": rng.integers(1, 5, 9),
            "resting": rng.integers(0, 30, 9),
        }
        events = ks.read_orders(columns, unit="ms", trades=trades if seed % 3 else None, check=False, **how)
        assert len(replay(events)) == len(events) == events.report.events


def feed(table, rng):
    """Return a tape's rows as an exchange would send them, all orders' and by what is left of them, and its trades.

    Rejects are among them, and in the end what rests is deleted.
    """
    rows, trades, left, sides, prices = [], [], {}, {}, {}
    fresh = 10**6
    for row in table.itertuples():
        # Cancellations come at instants of their own: of one instant's rows nobody can tell which traded.
        time = 1 + 2 * (row.event - table.event.iloc[0]) + (row.type != "cancel" or row.reason == "expired")
        opening = row.agent_class == "resting" and row.type == "submit"
        time, order = 0 if opening else time, row.order_id
        if row.type == "submit":
            left[order], sides[order] = row.quantity, row.side
            prices[order] = row.price if not row.marketable else 10**4 * (row.side == "buy") - 5000
            rows.append((time, order, "created", row.side, prices[order], row.quantity))
        else:
            for one in (order, row.counterparty_id)[: 1 + (row.type == "trade")][::-1]:
                left[one] -= row.quantity
                word = "changed" if left[one] else "deleted"
                # A cancelled order's last row has what was left of it, a filled one's has 0.
                size = row.quantity if word == "deleted" and row.type == "cancel" else left[one]
                if row.type == "cancel" and row.reason == "expired":
                    word, size = "deleted", left[one] + row.quantity
                rows.append((time, one, word, sides[one], row.price, size))
        if row.type == "trade":
            buys = row.side == "sell"  # of the order that rested
            trades.append(
                (time, row.quantity, *(row.counterparty_id, order)[:: 1 if buys else -1], "buy" if buys else "sell")
            )
        elif not opening and rng.random() < 0.3:
            fresh += 1
            side = rng.choice(["buy", "sell"])
            if not any(size > 0 and sides[one] != side for one, size in left.items()):
                continue  # there is nobody to cross
            price = 4000 if side == "buy" else -4000
            rows += [(time, fresh, "created", side, price, 3), (time, fresh, "deleted", side, price, 3)]
    end = rows[-1][0] + 1
    rows += [(end, one, "deleted", sides[one], prices[one], size) for one, size in left.items() if size > 0]
    names = ("time", "order", "kind", "side", "price", "size"), ("time", "size", "buyer", "seller", "side")
    return [
        dict(zip(name, zip(*part, strict=True), strict=True)) for name, part in zip(names, (rows, trades), strict=True)
    ]


@pytest.mark.parametrize("seed", [1, 2, 5])  # of which no order at any price finds an empty side
def test_a_market_is_read_from_the_feed_that_an_exchange_would_send(seed):
    sim = ks.Simulator(ks.MarketConfig.preset("continuous"), 1, engine="cpu", seed=seed)
    sim.run(20)
    tape = sim.tape(0, 100)
    orders, trades = feed(tape.to_pandas(), np.random.default_rng(seed))
    found = ks.read_orders(orders, unit="ms", sizes="remaining", trades=trades, tick=1, lot=1)
    wanted = tape.events()
    for name in ("order", "kind", "side", "price", "size", "opening"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), name)
    report = found.report
    assert report.rejects > 100 and report.takers > 100 and report.closing > 10 and report.crossed == 0
    assert report.executions == report.at_touch == len(trades["time"]) and report.ignored == report.stale == 0
