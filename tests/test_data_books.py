"""Books of order events: replayed, cut, in larger lots, and those of tapes, beside plain Python and LOBSTER's files."""

import csv
import dataclasses
import random
from collections import Counter

import numpy as np
import pytest
from tape_checks import random_case
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.data.books import NO_PRICE, between, follow_orders, in_lots, replay
from kineticsim_env.data.events import ADD, DELETE, EXECUTE, REDUCE, OrderEvents

COLUMNS = ("time", "order", "kind", "side", "price", "size")


def table(rows, opening=0, sessions=None):
    """Return events of rows of time, order, kind, side, price and size; the first of them rested before."""
    columns = dict(zip(COLUMNS, np.array(rows, np.int64).reshape(-1, 6).T, strict=True))
    last = int(columns["time"].max(initial=0))
    return OrderEvents(
        **{name: column.astype(np.int8 if name in ("kind", "side") else np.int64) for name, column in columns.items()},
        opening=np.arange(len(rows)) < opening,
        sessions=np.array([[0, last]] if sessions is None else sessions, np.int64),
    )


def random_table(seed, count=300, sessions=1):
    """Return events of random orders, and the lots of each order after each event."""
    rng, rows, left, shown, now, spans = random.Random(seed), [], {}, [], 0, []
    for session in range(sessions):
        left, begin = {}, now
        for _ in range(count):
            now += rng.choice([0, 0, 1, 5])
            order = rng.choice(list(left)) if left and rng.random() < 0.6 else (session, len(rows))
            if order not in left:
                side = rng.choice([1, -1])
                left[order] = [side, rng.randint(90, 105) if side == 1 else rng.randint(95, 110), rng.randint(1, 9)]
                kind, size = ADD, left[order][2]
            else:
                kind = rng.choice([REDUCE, DELETE, EXECUTE])
                size = left[order][2] if kind == DELETE else rng.randint(1, left[order][2])
                left[order][2] -= size
            side, price, units = left[order]
            rows.append((now, 1000 * order[0] + order[1], kind, side, price, size))
            if not units:
                del left[order]
            shown.append([tuple(rests) for rests in left.values()])
        spans.append((begin, now))
        now += 100
    return table(rows, sessions=spans), shown


def book_of(resting, levels):
    """Return prices and sizes `[2, levels]` of what rests, in plain Python."""
    prices, sizes = [], []
    for side in (1, -1):
        held = Counter()
        for own, price, units in resting:
            held[price] += units if own == side else 0
        best = sorted((item for item in held.items() if item[1]), reverse=side == 1)[:levels]
        best += [(-side * NO_PRICE, 0)] * (levels - len(best))
        prices.append([price for price, _ in best]), sizes.append([units for _, units in best])
    return prices, sizes


@pytest.mark.parametrize("levels", [1, 3, 10])
def test_replay_is_the_book_of_what_rests(levels):
    for seed in range(examples(6)):
        events, shown = random_table(seed, sessions=1 + seed % 3)
        books = replay(events, levels)
        assert len(books) == len(events) and books.prices.shape == books.sizes.shape == (len(events), 2, levels)
        assert books.prices.dtype == books.sizes.dtype == np.int64
        for prices, sizes, resting in zip(books.prices, books.sizes, shown, strict=True):
            assert (prices.tolist(), sizes.tolist()) == book_of(resting, levels)


def test_a_book_by_hand():
    books = replay(
        table([(0, 1, ADD, 1, 99, 5), (1, 2, ADD, -1, 102, 3), (2, 3, ADD, 1, 100, 1), (3, 3, EXECUTE, 1, 100, 1)]), 2
    )
    assert books.prices[:, 0].tolist() == [[99, -NO_PRICE], [99, -NO_PRICE], [100, 99], [99, -NO_PRICE]]
    assert books.sizes[:, 1].tolist() == [[0, 0], [3, 0], [3, 0], [3, 0]]
    assert books.both.tolist() == [False, True, True, True]
    assert books.spread[1:].tolist() == [3, 2, 3] and books.mid2[1:].tolist() == [201, 202, 201]


def test_no_events():
    books = replay(table([], sessions=np.empty((0, 2))))
    assert len(books) == 0 and books.prices.shape == (0, 2, 10)
    assert len(between(table([]), 0, 5)) == len(in_lots(table([]), 2)) == 0


ONE = (0, 7, ADD, 1, 99, 5)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([(0, 7, DELETE, 1, 99, 5)], "event 0: expected an order that an event has added in its session, got delete"),
        ([ONE, (1, 8, EXECUTE, 1, 99, 1)], "event 1: expected an order that an event has added"),
        ([ONE, (1, 7, ADD, 1, 99, 5)], "event 1: expected an order that was not added before, got add of 5 lots of"),
        ([ONE, (1, 7, REDUCE, 1, 99, 6)], "event 1: expected at most the 5 that rest, got reduce of 6 lots of order 7"),
        ([ONE, (1, 7, DELETE, 1, 99, 4)], "event 1: expected all 5 that rest, got delete of 4 lots"),
        ([ONE, (1, 7, DELETE, 1, 99, 5), (2, 7, EXECUTE, 1, 99, 1)], "event 2: expected an order that rests"),
        (
            [ONE, (1, 7, DELETE, -1, 99, 5)],
            "event 1: expected the side 1 it was added with, got delete of 5 .*, side -1, at 99",
        ),
        ([ONE, (1, 7, DELETE, 1, 98, 5)], "event 1: expected the price 99 it was added at, got .* at 98"),
        ([(0, 9, ADD, 1, 99, 5), ONE, (1, 9, REDUCE, 1, 9, 1), (1, 7, REDUCE, 1, 9, 1)], "event 2: expected the price"),
        ([(3, *ONE[1:]), (1, 8, ADD, 1, 99, 5)], r"events.time\[1\]: expected times that do not fall, got 1"),
        ([(0, 7, ADD, 2, 99, 5)], r"events.side\[0\]: expected 1 or -1, got 2"),
        ([(0, 7, 4, 1, 99, 5)], r"events.kind\[0\]: expected 0 to 3, got 4"),
        ([(0, 7, ADD, 1, 99, 0)], r"events.size\[0\]: expected lots above 0, got 0"),
        ([(0, 7, ADD, 1, NO_PRICE, 1)], r"events.price\[0\]: expected ticks below 9999999999 in size"),
        ([(-1, *ONE[1:]), ONE], r"events.time\[0\]: expected a time within a session, got -1"),
    ],
)
def test_what_is_inconsistent_is_named(rows, text):
    with pytest.raises(ValueError, match=text):
        replay(table(rows))


def test_columns_and_sessions_are_checked():
    good = table([ONE])
    for change, text in (
        ({"price": good.price.astype(float)}, r"events.price: expected int64 \[1\], got float64 \[1\]"),
        ({"order": np.array([1, 2])}, r"events.order: expected int64 \[1\], got int64 \[2\]"),
        ({"kind": [0]}, r"events.kind: expected int8 \[1\], got \[0\]"),
        ({"sessions": np.array([[5, 1]])}, r"events.sessions: expected spans of time"),
        ({"sessions": np.array([0, 1])}, r"events.sessions: expected int64 \[s, 2\]"),
        ({"sessions": np.empty((0, 2), np.int64)}, r"events.sessions: expected spans of time"),
    ):
        with pytest.raises(ValueError, match=text):
            follow_orders(dataclasses.replace(good, **change))
    with pytest.raises(TypeError, match="events: expected an OrderEvents"):
        replay(None)
    # An order of an earlier session is unknown in a later one.
    with pytest.raises(ValueError, match="event 1: expected an order that an event has added in its session"):
        replay(table([ONE, (9, 7, DELETE, 1, 99, 5)], sessions=[[0, 1], [8, 9]]))


def test_what_is_known_of_orders():
    events = table([ONE, (1, 8, ADD, -1, 103, 4), (2, 7, EXECUTE, 1, 99, 2), (3, 7, DELETE, 1, 99, 3)])
    orders = follow_orders(events)
    assert orders.added.tolist() == [0, 1, 0, 0] and orders.left.tolist() == [5, 4, 3, 0]


def test_a_span_begins_with_the_book_that_was():
    for seed in range(examples(6)):
        events, _ = random_table(seed, sessions=1 + seed % 2)
        whole, last = replay(events, 4), int(events.time[-1])
        for first in (0, 1, last // 3, last // 2, last):
            part = between(events, first, last + 1)
            rest = events.time >= first
            assert len(part) - part.opening.sum() == rest.sum() and (part.time >= first).all()
            assert (part.sessions[0, 0], part.sessions[-1, 1]) == (max(first, events.sessions[0, 0]), last)
            assert (part.time[part.opening] == first).all() and not part.opening[part.opening.sum() :].any()
            books = replay(part, 4)  # consistent, or this would raise
            count = int(part.opening.sum())
            assert (books.prices[count:] == whole.prices[rest]).all()
            assert (books.sizes[count:] == whole.sizes[rest]).all()
        assert len(between(events, last + 1, last + 9)) == 0
    events, _ = random_table(2, sessions=2)
    (begin, end) = events.sessions[1].tolist()
    assert between(events, begin, end + 1).sessions.tolist() == [[begin, end]]
    assert between(events, begin - 50, end - 3).sessions.tolist() == [[begin, end - 3]]  # nobody looked before
    none = between(table([], sessions=np.empty((0, 2))), 0, 5)
    assert len(none) == len(none.sessions) == 0
    with pytest.raises(TypeError, match="first: expected a whole number"):
        between(events, 0.5, 5)


def test_in_larger_lots():
    """What rests is rounded, and is one lot at least; what is less than a lot is no event."""
    rows = [(0, 1, ADD, 1, 99, 26), (1, 1, REDUCE, 1, 99, 3), (2, 1, EXECUTE, 1, 99, 22), (3, 1, DELETE, 1, 99, 1)]
    found = in_lots(table([*rows, (3, 2, ADD, -1, 101, 1)]), 10)
    assert found.size.tolist() == [3, 1, 1, 1, 1] and found.lot == 10  # 26, 23, 1 and 0 are 3, 2, 1 and 0 lots
    assert in_lots(table([(0, 1, ADD, 1, 99, 27), (1, 1, REDUCE, 1, 99, 1)]), 10).size.tolist() == [3]
    events, _ = random_table(1)
    same = in_lots(events, 1)
    assert all((getattr(same, name) == getattr(events, name)).all() for name in COLUMNS)
    with pytest.raises(ValueError, match="lot: expected a finite number above 0"):
        in_lots(events, 0)


def test_events_of_a_tape_are_the_messages_of_its_files(tmp_path):
    pytest.importorskip("pyarrow")
    types = {ADD: 1, REDUCE: 2, DELETE: 3, EXECUTE: 4}
    for seed in range(examples(12)):
        sim, chosen, intervals, quotes = random_case(seed, "clock", "continuous")
        made = sim.tape(chosen, intervals, quotes=None if quotes is None else quotes[:, chosen])
        paths = made.to_lobster(tmp_path / str(seed), levels=3, tick=1, interval_seconds=0.25, opens=0)
        for number, pair in enumerate(paths):
            events = made.events(number, interval_seconds=0.25)
            messages, books = (list(csv.reader(open(path))) for path in pair)
            assert len(events) == len(messages)
            kind, order, size, price, side = (np.array([int(row[i]) for row in messages], int) for i in range(1, 6))
            assert (np.vectorize(types.get, otypes=[int])(events.kind) == kind).all()
            assert (events.order == order).all() and (events.size == size).all() and (events.side == side).all()
            assert (events.price * 10_000 == price).all()
            assert np.allclose(events.time / 1e9, [float(row[0]) for row in messages], rtol=0, atol=1.1e-9)
            begin = int(made.begins[number])
            assert events.sessions.tolist() == [[begin * 250_000_000, (begin + intervals) * 250_000_000]]
            replayed = replay(events, 3)
            levels = np.array(books, np.int64).reshape(len(books), 3, 2, 2)  # level, ask and bid, price and size
            there = replayed.sizes > 0
            assert (replayed.sizes == levels[:, :, ::-1, 1].transpose(0, 2, 1)).all()
            assert (replayed.prices * np.where(there, 10_000, 1) == levels[:, :, ::-1, 0].transpose(0, 2, 1)).all()
            bid, ask = sim.bid[chosen[number]], sim.ask[chosen[number]]
            opened = events.size[events.opening].sum() - sum(sim.quotes[chosen[number]][..., 1::2].reshape(-1).tolist())
            assert opened == int(bid.sum() + ask.sum())  # what rests, and the slots' quotes


def test_events_of_a_tape_are_refused_by_name():
    with pytest.raises(ValueError, match="events: expected a tape of mechanism='continuous', got one of call auctions"):
        ks.Simulator(ks.MarketConfig.preset("trading"), 1, engine="cpu").tape(0, 5).events()
    tape = ks.Simulator(ks.MarketConfig.preset("continuous"), 2, engine="cpu").tape([0, 1], 5)
    with pytest.raises(ValueError, match="number: expected 0 to 1, got 2"):
        tape.events(2)
    with pytest.raises(ValueError, match="interval_seconds: expected a number of seconds, got 0"):
        tape.events(interval_seconds=0)
    with pytest.raises(ValueError, match="interval_seconds: expected 5 intervals to last less than 4e"):
        tape.events(interval_seconds=9e8)
    assert tape.events(interval_seconds=7e8).sessions.tolist() == [[0, 35 * 10**17]]
