"""The order flow of docs/model.md: the Python market beside the C++ reference, laws, and answers known by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from flow_reference import FlowReference
from flow_tables import random_table
from thorough import THOROUGH

from kineticsim_env.data.books import follow_orders, replay
from kineticsim_env.data.events import ADD, EXECUTE
from kineticsim_env.flow.order_flow import OrderFlow
from kineticsim_env.flow.simulating import FLEETING, LASTING, FlowMarket, simulate
from kineticsim_env.runtime.cxx import find_cxx

GRIDS = [(512, 32, 16), (128, 8, 1), (16, 1, 3), (8, 1, 7), (64, 0, 1), (8, 8, 1)]
needs_compiler = pytest.mark.skipif(find_cxx() is None, reason="no C++ compiler")


def both(seed: int) -> tuple[FlowReference, FlowMarket]:
    levels, window, beat = GRIDS[seed % len(GRIDS)]
    init = int(np.random.default_rng(seed).choice([levels // 2, 1, levels - 1]))
    given = random_table(seed), seed * 2**40 - 5, levels, window, beat, init
    return FlowReference(*given), FlowMarket(*given)


def play(market: FlowMarket, events: int) -> int:
    """Play until the market has to stop, and return how many events that are."""
    begin = market.g
    try:
        market.play(events)
    except OverflowError:
        pass
    return market.g - begin


@needs_compiler
@pytest.mark.parametrize("seed", range(400 if THOROUGH else 40))
def test_two_implementations_agree(seed):
    """Of random tables, on grids of many sizes, from their opening on."""
    reference, market = both(seed)
    for events in (0, 1, 2, 40, 300):
        assert reference.play(events) == play(market, events)
        state = reference.state()
        np.testing.assert_array_equal(state["bid"], market.units[0].sum(0))
        np.testing.assert_array_equal(state["ask"], market.units[1].sum(0))
        np.testing.assert_array_equal(state["lives"], market.count.sum(0))
        np.testing.assert_array_equal(state["fleeting_units"], market.units[:, FLEETING].sum(0))
        numbers = [market.last_trade, market.last_jump, market.left, market.limit, market.state, market.after]
        assert state["flow"].tolist() == [*numbers, market.time, 0, 0]
        assert state["numbers"].tolist() == [market.last_tick, market.origin, market.volume]
        ours = market.events()
        for name in ("time", "order", "kind", "side", "price", "size", "opening"):
            np.testing.assert_array_equal(reference.events()[name], getattr(ours, name), err_msg=name)


@pytest.mark.parametrize("seed", range(100, 112))
def test_laws(seed):
    """Units have orders, sides do not meet, the flow leaves nobody without an order, and time does not fall."""
    _, market = both(seed) if find_cxx() else (None, FlowMarket(random_table(seed), seed, 64, 4, 1, 32))
    before = market.time
    began = [market.count[side].sum() > 0 for side in (0, 1)]
    for _ in range(200):
        if not play(market, 1):
            break
        np.testing.assert_array_equal(market.units > 0, market.count > 0)
        assert (market.units >= market.count).all()
        bids, asks = (np.flatnonzero(market.units[side].any(0)) for side in (0, 1))
        assert not len(bids) or not len(asks) or bids[-1] < asks[0]
        if market.window == 0:
            assert all(market.count[side].sum() > 0 for side in (0, 1) if began[side])
        assert market.time >= before and market.left >= 0
        before = market.time
        for side in (0, 1):
            orders = {tick: sum(one[1] for one in here) for tick, here in market._orders[side].items() if here}
            there = market.units[side].sum(0)
            assert orders == {tick: there[tick] for tick in np.flatnonzero(there)}


def test_events_are_those_of_orders():
    """What `simulate` returns can be replayed: every order is added once, and ends when nothing of it is left."""
    events = simulate(random_table(2), 2000, 3, num_levels=64, window=4)
    orders, books = follow_orders(events), replay(events, 1)
    assert (orders.left >= 0).all() and (events.kind == EXECUTE).any()
    assert events.opening.sum() == np.argmin(events.opening) and not events.opening[np.argmin(events.opening) :].any()
    assert (books.spread[books.both] > 0).all()


def test_a_run_in_pieces_is_the_same_run():
    whole, pieces = (FlowMarket(random_table(4), 9, 128, 8, 5, 64) for _ in range(2))
    whole.play(500)
    for events in (1, 0, 99, 400):
        pieces.play(events)
    np.testing.assert_array_equal(whole.units, pieces.units)
    assert whole.time == pieces.time and whole._rows == pieces._rows


def changed(seed: int = 0, **fields: object) -> OrderFlow:
    return dataclasses.replace(random_table(seed), **fields)


def test_gaps_have_the_mean_of_their_state():
    """An exponential time: its mean, its variance, and the share beyond the mean."""
    table = changed(gap=np.full(5, 10**9), market=0, jump_hazard=0)
    times = np.unique(simulate(table, 20_000, 1).time)
    market = FlowMarket(table, 1, 64, 0, 1, 32)
    found = []
    for _ in range(20_000):
        before = market.time
        market.play(1)
        found.append(market.time - before)
    gaps = np.array(found) / (10**9 / np.log(2))
    assert len(times) > 1000
    assert abs(gaps.mean() - 1) < 4 / 20_000**0.5
    assert abs(gaps.var() - 1) < 4 * 8**0.5 / 20_000**0.5
    assert abs((gaps > 1).mean() - np.exp(-1)) < 0.015


def test_choices_have_the_shares_of_their_weights():
    """Of a table without cancellations but of one order: market orders and bands of limit orders, by chi-square."""
    limit = np.zeros((2, 3, 18), np.int64)
    limit[0, :, 0], limit[0, :, 5], limit[1, :, 2] = 2**20, 3 * 2**19, 2**20
    table = changed(limit=limit, market=2**19, cancel=np.ones((2, 18), np.int64), jump_hazard=0, jump_after_trade=0)
    market = FlowMarket(table, 5, 512, 0, 1, 256)
    market.play(4000)
    events = market.events()
    came = (events.kind == ADD) & ~events.opening
    counts = np.array([(came & (events.side == side)).sum() for side in (1, -1)])
    expected = 4000 * np.array([5 * 2**19, 2**20]) / (2**19 + 5 * 2**19 + 2**20)
    assert (abs(counts - expected) < 4.5 * np.sqrt(expected)).all()


@pytest.mark.parametrize(
    ("count", "units", "number", "left"),
    [(1, 70, 3, 70), (2, 100, 0, 10), (2, 100, 15, 99), (3, 3, 7, 1), (2, 32, 1, 16)],
)
def test_an_order_that_goes(count, units, number, left):
    """The whole of one order; of several its size's share, a unit at least, and one left to each other."""
    sizes = np.ones((2, 2, 4, 16), np.int64)
    sizes[..., 0], sizes[..., 1], sizes[..., 2], sizes[..., 15] = 2, 10, 17, 118  # the 16 sum up to 159
    market = FlowMarket(changed(limit_size=sizes, resting=np.zeros((2, 2, 18), np.int64)), 1, 64, 0, 1, 32)
    market._change(0, LASTING, 20, units, count)
    assert market._leaving(0, 20, LASTING, number, market.best()) == left


def test_what_trades_is_lasting_first():
    """Of the counts as much is left as of units, rounded up."""
    market = FlowMarket(changed(resting=np.zeros((2, 2, 18), np.int64)), 1, 64, 0, 1, 32)
    market._orders[1].clear()
    market.units[1], market.count[1], market._there[1], market._number[1] = 0, 0, 0, 0
    for life, sizes in ((FLEETING, (10, 10)), (LASTING, (7, 8, 15))):
        for size in sizes:
            market._add(1, 40, life, size)
    assert market.trade(1, 21) == 21
    assert market.units[1, :, 40].tolist() == [20, 9] and market.count[1, :, 40].tolist() == [2, 1]
    assert market.trade(1, 12) == 12
    assert market.units[1, :, 40].tolist() == [17, 0] and market.count[1, :, 40].tolist() == [2, 0]
    assert market.trade(1, 100) == 16 and market.units[1, :, 40].tolist() == [1, 0]
    assert market.trade(1, 5) == 0 and market.last_tick == 40


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((None, 5), "table"),
        ((random_table(0), -1), "events"),
        ((random_table(0), 1.5), "events"),
        ((random_table(0), 5, "a"), "seed"),
    ],
)
def test_what_simulate_refuses(arguments, named):
    with pytest.raises((TypeError, ValueError), match=named):
        simulate(*arguments)


def test_no_events_is_the_opening_book():
    events = simulate(random_table(0), 0, num_levels=16)
    assert events.opening.all() and {1, -1} == set(events.side.tolist())
