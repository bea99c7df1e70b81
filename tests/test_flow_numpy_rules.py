"""Rules of a fitted order flow on the NumPy engine, each against answers by hand."""

import dataclasses
import itertools

import numpy as np
import pytest
from flow_markets import EXTREMES, MANY, NO_LIMITS, NO_ORDERS, PLAIN, begin, play_event
from flow_tables import random_table

from kineticsim_env.engines.numpy import flow, lives, trades
from kineticsim_env.engines.numpy.flow import (
    CANCELLATION,
    LAST_TRADE,
    LEFT,
    LIMIT,
    LIMIT_ORDER,
    MARKET,
    NOTHING,
)
from kineticsim_env.runtime.flow_table import EDGES, GROUPS, SHARE

GOLDEN, MASK = 0x9E3779B97F4A7C15, 2**64 - 1


def test_bands_are_the_table_s():
    assert lives.EDGES.tolist() == list(EDGES) and lives.GROUP_OF.tolist() == list(GROUPS)
    distance = np.array([-5, 0, 1, 2, 8, 9, 12, 13, 192, 193, 256, 257, 2**30])
    assert lives.band_of(distance).tolist() == [0, 0, 0, 1, 7, 8, 8, 9, 16, 17, 17, 17, 17]


def test_the_exponential_is_minus_log2_of_a_uniform_number():
    u32 = np.concatenate(
        [np.arange(2**16) * 2**16 + 2**15, [0, 1, 2, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], 2 ** np.arange(32)]
    )
    found, exact = flow.exponential(u32), -np.log2((u32 + 1) / 2**32) * 2**16
    assert np.abs(found - exact).max() < 2
    assert (found >= 0).all() and (np.diff(found[np.argsort(u32)]) <= 0).all()
    assert flow.exponential(np.array([2**32 - 1, 2**31 - 1, 0])).tolist() == [0, 2**16, 32 * 2**16]
    assert found[: 2**16].mean() == pytest.approx(2**16 / np.log(2), rel=1e-4)


def one_tick(counts, units, side=1, **changes):
    """Return a market with so many fleeting and lasting orders, and units of them, at the best tick of a side."""
    _, m = begin(dataclasses.replace(PLAIN, resting=NO_ORDERS, **changes), [1], window=0)
    tick = 32 - 1 + side
    for book in (m.bid, m.ask)[side : side + 1]:
        book[0, tick] = sum(units)
    m.lives[0, :, tick], m.fleeting_units[0, tick] = counts, units[0]
    return m, np.array([tick])


SIZES = np.stack(
    [np.full((2, 4, 16), 3), np.broadcast_to(np.arange(1, 17), (2, 4, 16))]
)  # of bids all 3, of asks 1 .. 16


@pytest.mark.parametrize(
    ("counts", "units", "life", "number", "expected"),
    [
        ((1, 0), (7, 0), 0, 3, (7, 7)),  # the only one: all
        ((2, 0), (10, 0), 0, 0, (5, 1)),  # 16 3 10 / (2 48); 16 1 10 / (2 136) = 0.6, 1 at least
        ((2, 0), (10, 0), 0, 15, (5, 9)),  # 16 16 10 / (2 136) = 9.4: another unit is left
        ((2, 3), (10, 30), 1, 7, (10, 9)),  # 16 8 30 / (3 136) = 9.4
        ((0, 3), (0, 3), 1, 15, (1, 1)),  # 2.8 of 16 16 3 / (3 136), but 1 each is left of the others
        ((0, 2), (0, 2**31 - 1), 1, 15, (2**30 - 1, 2021161079)),  # 16 16 (2^31 - 1) / 272
    ],
)  # fmt: skip
def test_an_order_that_goes(counts, units, life, number, expected):
    for side in range(2):
        m, tick = one_tick(counts, units, side, limit_size=SIZES)
        found = lives.units_that_go(m, np.array([side]), tick, np.array([life]), np.array([number]))
        assert found.tolist() == [expected[side]]


@pytest.mark.parametrize(
    ("traded", "counts", "fleeting"),
    [(0, [2, 3], 5), (1, [2, 3], 5), (4, [2, 2], 5), (7, [2, 1], 5), (9, [2, 1], 5), (10, [2, 0], 5), (12, [2, 0], 3),
     (13, [1, 0], 2), (14, [1, 0], 1), (15, [0, 0], 0)],
)  # fmt: skip
@pytest.mark.parametrize("side", [0, 1])
def test_what_trades_takes_lasting_units_first(side, traded, counts, fleeting):
    """Of 2 fleeting orders with 5 units and 3 lasting ones with 10 at a tick, ceil(n q' / q) are left."""
    m, tick = one_tick((2, 3), (5, 10), side)
    trades.trade(m, np.array([side == 1]), np.array([63 * side]), np.array([traded]), np.zeros((1, 0, 2), int))
    assert m.lives[0, :, tick[0]].tolist() == counts and m.fleeting_units[0, tick[0]] == fleeting
    assert (m.bid + m.ask)[0, tick[0]] == 15 - traded


def test_a_number_falls_into_a_weight():
    weights = np.array([[0, 3, 0, 1, 0]] * 5)
    part, rest = flow.fall(np.array([0, 2, 3, 4, 9]), weights)
    assert part.tolist() == [1, 1, 3, 5, 5] and rest[:3].tolist() == [0, 2, 0]


def test_the_high_product_is_exact():
    words, numbers = [0, 1, 2**32 - 1, 2**32, 2**63, MASK], [0, 1, 2**31, 2**32 - 1, 2**32, 2**42 - 1, 2**62]
    of = np.array([*itertools.product(words, numbers)], dtype=np.uint64)
    expected = [word * number >> 64 for word, number in itertools.product(words, numbers)]
    assert flow.high_product(of[:, 0], of[:, 1].astype(np.int64)).tolist() == expected


def test_the_choice_goes_through_the_weights_in_their_order(monkeypatch):
    """Of a small book every number there is: market, limit orders, each order from the best one away from the mid."""
    limit = np.zeros((2, 3, 18), int)
    limit[0, 1, 0], limit[0, 1, 2], limit[1, 1, 1], limit[1, 0, 5] = 2, 1, 3, 9  # the last is of another spread
    cancel = np.array([[1, 2, *[5] * 16], [3, 1, *[4] * 16]])
    table = dataclasses.replace(
        PLAIN, market=2, limit=limit, cancel=cancel, resting=NO_ORDERS, market_same=SHARE, fleeting=np.zeros(18, int)
    )
    market = [(MARKET, 1, None, None)] * 2
    limits = [(LIMIT_ORDER, 0, 4, 1)] * 2 + [(LIMIT_ORDER, 0, 2, 1)] + [(LIMIT_ORDER, 1, 5, 1)] * 3
    bids = [(CANCELLATION, 0, 3, 0)] * 2 * 2 + [(CANCELLATION, 0, 3, 1)] * 1 + [(CANCELLATION, 0, 1, 1)] * 4
    asks = [(CANCELLATION, 1, 5, 1)] * 2 + [(CANCELLATION, 1, 7, 0)] * 5
    expected = [*market, *limits, *bids, *asks]
    _, m = begin(table, [3] * (len(expected) + 1), levels=8, window=0)
    m.bid[:], m.ask[:], m.lives[:], m.fleeting_units[:] = 0, 0, 0, 0
    for book, tick, counts in ((m.bid, 3, (2, 1)), (m.bid, 1, (0, 1)), (m.ask, 5, (0, 2)), (m.ask, 7, (1, 0))):
        book[:, tick], m.lives[:, :, tick], m.fleeting_units[:, tick] = 9 * sum(counts), counts, 9 * counts[0]
    totals = []
    monkeypatch.setattr(flow, "high_product", lambda word, total: totals.append(total) or np.arange(len(word)))
    deed = flow.choose(m, np.zeros_like(m.t), np.ones(len(m.t), bool))
    assert totals[0].tolist() == [len(expected)] * len(m.t) and deed.kind[-1] == NOTHING
    for found, wanted in zip(zip(*deed[:4], strict=True), expected, strict=False):
        assert all(one == other for one, other in zip(found, wanted, strict=True) if other is not None)


def word_of(seed, g, index):
    """Return w_g(index) of the first episode with Python's numbers."""

    def mix(x):
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
        x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
        return x ^ x >> 31

    key = mix((seed + GOLDEN) & MASK)
    return mix((key + ((g << 32) + index + 1) * GOLDEN) & MASK)


def made_up(table, seed, g, first, tick, side, distance, best=False):
    """Return counts and units of the orders that are made up at a tick: of fleeting, then lasting ones."""
    band = max(b for b, edge in enumerate(EDGES[:-1]) if distance >= edge)
    word = word_of(seed, g, 2**31 + 2**29 + 2**28 + first + tick)
    counts = [int(table.resting[side, life, band]) + (word >> 16 * life & 0xFFFF) >> 16 for life in range(2)]
    counts[1] += best and not any(counts)
    sizes = [
        int(table.limit_size[side, int(k >= counts[0]), GROUPS[band], word >> 32 + 4 * (k % 8) & 15])
        for k in range(sum(counts))
    ]
    return counts, [sum(sizes[: counts[0]]), sum(sizes[counts[0] :])]


@pytest.mark.parametrize(
    "table", [random_table(0), random_table(3), EXTREMES["one order a side"], MANY], ids=["0", "3", "none", "many"]
)
@pytest.mark.parametrize(("levels", "init"), [(64, 20), (1024, 600), (8, 1), (8, 6)])
def test_the_opening_book(table, levels, init):
    _, m = begin(table, [5, 2**62], levels=levels, init_price=init)
    assert m.last_tick.tolist() == [init] * 2 and m.prev_mid2.tolist() == [2 * init - 1] * 2
    assert m.flow.tolist() == [[1, 1] + 7 * [0]] * 2
    for i, seed in enumerate((5, 2**62)):
        for tick in {0, init - 1, init, levels - 1, *range(0, levels, 7)}:
            side, distance = int(tick >= init), init - tick if tick < init else tick - init + 1
            counts, units = made_up(table, seed, 0, 2**14, tick, side, distance, tick in (init - 1, init))
            assert m.lives[i, :, tick].tolist() == counts
            assert [m.fleeting_units[i, tick], (m.bid, m.ask)[side][i, tick]] == [units[0], sum(units)]
            assert (m.ask, m.bid)[side][i, tick] == 0


@pytest.mark.parametrize("by", [9, -9, 30])  # ticks; beyond the window of 8
def test_a_moved_grid_takes_the_book_along_and_fills_new_ticks(by):
    """Of a book of some ticks, whose mid has gone that way."""
    _, m = begin(PLAIN, [4], levels=64, window=8, beat=1)
    mid, g = 32 + by, np.array([5])
    for name in ("bid", "ask", "lives", "fleeting_units"):
        getattr(m, name)[:] = 0
    for book, tick, units in ((m.bid, mid - 1, (2, 3)), (m.bid, mid - 20, (0, 4)), (m.ask, mid + 1, (5, 0))):
        book[0, tick], m.lives[0, :, tick], m.fleeting_units[0, tick] = sum(units), np.minimum(units, 2), units[0]
    best = [np.flatnonzero(m.bid[0])[-1], np.flatnonzero(m.ask[0])[0]]
    shift = (sum(best) >> 1) - 32
    before = {name: getattr(m, name).copy() for name in ("bid", "ask", "fleeting_units", "lives")}
    made, left_behind = flow.hold_beat(m, g, np.array([True]))
    assert m.price_origin.tolist() == [shift] and abs(shift) > 8
    kept = slice(max(0, -shift), 64 - max(0, shift))
    for name, old in before.items():
        assert (getattr(m, name)[..., kept] == old[..., kept.start + shift : kept.stop + shift]).all()
    side, total = int(shift > 0), 0
    for tick in {*range(64)} - {*range(64)[kept]}:
        counts, units = made_up(PLAIN, 4, 5, 2**13, tick, side, abs(tick - (best[1 - side] - shift)))
        assert m.lives[0, :, tick].tolist() == counts and m.fleeting_units[0, tick] == units[0]
        assert (m.bid, m.ask)[side][0, tick] == sum(units) and (m.ask, m.bid)[side][0, tick] == 0
        total += sum(units)
    assert made[0].tolist() == [total * (side == 0), total * (side == 1)]
    gone = (before["bid"] + before["ask"])[0].sum() - (m.bid + m.ask)[0, kept].sum()
    assert left_behind[0].sum() == gone


def field(seed, g, k, low, count):
    """Return u(k, low, count) of event g."""
    return word_of(seed, g, 2**31 + 2**29 + 2**28 + k) >> low & 2**count - 1


def test_a_market_order_by_its_words():
    """Its way, its size, and the jump that begins with it: around the best price that it leaves."""
    sizes, jumps = np.arange(100, 116), np.arange(21, 37)
    table = dataclasses.replace(
        PLAIN, market=2**24, limit=NO_LIMITS, cancel=np.ones((2, 18), int), market_same=SHARE // 3, market_size=sizes,
        jump_hazard=0, jump_after_trade=SHARE // 2, jump_size=jumps,
    )  # fmt: skip
    _, m = begin(table, range(40), window=0)
    m.flow[:, LAST_TRADE] = -1
    deed = play_event(m).deed
    assert (deed.kind == MARKET).all()
    bid, ask = lives.best(m)
    for i in range(40):
        up = field(i, 0, 1, 0, 16) >= SHARE // 3
        assert (deed.side[i], m.flow[i, LAST_TRADE]) == (up, 1 if up else -1)
        assert deed.units[i] == sizes[field(i, 0, 1, 16, 4)]
        size = int(jumps[field(i, 0, 1, 36, 4)])
        begins = field(i, 0, 1, 20, 16) < SHARE // 2
        left, limit = (table.jump_events, ask[i] + size if up else bid[i] - size) if begins else (0, 0)
        assert m.flow[i, [LEFT, LIMIT]].tolist() == [left, limit]
    assert 5 < (m.flow[:, LEFT] > 0).sum() < 35


def test_a_limit_order_by_its_words():
    limit = np.zeros((2, 3, 18), int)
    limit[1, :, 11] = 2**24  # asks at 25 to 32 ticks of the best bid
    share = np.full(18, SHARE // 4)
    table = dataclasses.replace(
        PLAIN, market=0, limit=limit, fleeting=share, cancel=np.ones((2, 18), int), jump_hazard=0
    )
    _, m = begin(table, range(40), levels=128, window=0)
    (bid, _), deed = lives.best(m), play_event(m).deed
    assert (deed.kind == LIMIT_ORDER).all() and (deed.side == 1).all()
    for i in range(40):
        assert deed.tick[i] == bid[i] + 25 + (field(i, 0, 1, 0, 16) * 8 >> 16)
        assert deed.life[i] == (field(i, 0, 1, 16, 16) >= SHARE // 4)
        assert deed.units[i] == 1 + field(i, 0, 1, 32, 4)  # of sizes from 1 to 16


@pytest.mark.parametrize("side", [0, 1])
def test_what_goes_takes_a_part_of_what_quotes_have_ahead(side):
    _, m = begin(PLAIN, range(40), window=0, slots=1)
    tick = 31 + side
    for book in (m.bid, m.ask)[side : side + 1]:
        book[:, tick] = 10
    m.lives[:, :, tick], m.fleeting_units[:, tick] = (0, 2), 0
    m.quotes[:, 0, 2 * side : 2 * side + 2], m.queue[:, 0, side] = (tick, 5), 7
    side_of_each, g = np.full(40, side), np.full(40, 3)
    lives.remove(m, g, np.ones(40, bool), side_of_each, np.full(40, tick), np.ones(40, int), np.full(40, 3))
    expected = [7 - (3 * 7 + (field(i, 3, 4, 32 * side, 32) * 10 >> 32)) // 10 for i in range(40)]
    assert m.queue[:, 0, side].tolist() == expected and {4, 5} <= {*expected}


def test_quotes_that_leave_the_grid_have_nothing_ahead():
    _, m = begin(PLAIN, [4], window=8, beat=1, slots=1)
    m.bid[0, 3], m.ask[:, :45], m.lives[0, :, 3] = 9, 0, (0, 1)
    m.bid[0, 43], m.lives[0, :, 43] = 9, (0, 1)
    m.quotes[0, 0], m.queue[0, 0] = [3, 5, 0, 0], [9, 0]
    flow.hold_beat(m, np.array([5]), np.array([True]))
    assert m.price_origin[0] > 3 and m.queue[0, 0].tolist() == [0, 0] and m.quotes[0, 0].tolist() == [3, 5, 0, 0]


@pytest.mark.parametrize(("gap", "spread"), [(1, 0), (2, 1), (3, 2), (9, 2)])
def test_limit_orders_have_weights_of_the_spread(gap, spread, monkeypatch):
    limit = np.arange(6)[:, None] * 18 + np.arange(18) + 1
    _, m = begin(dataclasses.replace(PLAIN, limit=limit.reshape(2, 3, 18), market=7), [4], window=0)
    m.ask[0, 32 : 31 + gap], m.bid[0, 31], m.ask[0, 31 + gap] = 0, 1, 1
    cancel = (lives.orders(m) * PLAIN.cancel[:, lives.bands(m)].transpose(1, 2, 0, 3)).sum()
    totals = []
    monkeypatch.setattr(flow, "high_product", lambda word, total: totals.append(total) or total * 0)
    flow.choose(m, np.zeros_like(m.t), np.ones(1, bool))
    assert totals[0].tolist() == [7 + limit[spread].sum() + limit[3 + spread].sum() + cancel]


def test_best_prices_of_empty_sides():
    _, m = begin(PLAIN, [1] * 5, levels=64, window=0)
    m.bid[:], m.ask[:], m.last_tick = 0, 0, np.array([40, 40, 20, 40, 20])
    m.bid[[1, 2], 30], m.ask[[3, 4], 30] = 1, 1
    assert np.stack(lives.best(m), axis=1).tolist() == [[39, 41], [30, 41], [30, 31], [29, 30], [19, 30]]
