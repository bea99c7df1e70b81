"""A fitted order flow on the NumPy engine: laws on random and extreme tables, distributions, stops."""

import dataclasses
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from flow_markets import EXTREMES, JUMPS, NO_LIMITS, PLAIN, begin, play, play_event, same_state
from flow_tables import random_table
from reference.flow import FlowMarket

from kineticsim_env import MarketError
from kineticsim_env.engines.numpy import flow, lives, under_way
from kineticsim_env.engines.numpy.auction import quotes_on_grid
from kineticsim_env.engines.numpy.flow import (
    AFTER,
    CANCELLATION,
    LAST_JUMP,
    LAST_TRADE,
    LEFT,
    LIMIT,
    LIMIT_ORDER,
    MARKET,
    NOTHING,
    STATE,
    TIME,
)
from kineticsim_env.engines.numpy.rules import best_with_quotes
from kineticsim_env.engines.numpy.state import Markets
from kineticsim_env.runtime.flow_table import SHARE, UNIT


def by_side(m):
    return np.stack([m.bid.sum(axis=1), m.ask.sum(axis=1)], axis=1)


def check_book(m):
    """What holds of any book: bids below asks, counts and units consistent."""
    resting = m.bid + m.ask
    units = np.stack([m.fleeting_units, resting - m.fleeting_units], axis=1)
    assert (m.bid >= 0).all() and (m.ask >= 0).all() and (units >= 0).all()
    assert ((m.lives == 0) == (units == 0)).all() and (m.lives <= units).all() and (m.lives < 2**15).all()
    best_bid, best_ask = best_with_quotes(m.bid, m.ask, quotes_on_grid(m))
    assert (best_bid < best_ask).all()


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize(("levels", "window"), [(8, 1), (16, 1), (64, 8), (32, 0)])
def test_laws_hold_after_every_event(name, levels, window):
    table = EXTREMES[name]
    _, m = begin(table, range(4), levels=levels, window=window, beat=3)
    check_book(m)
    for _ in range(40):
        before, time, best = by_side(m), m.flow[:, TIME].copy(), np.stack(lives.best(m)) + m.price_origin
        volume, last_trade, origin = m.volume.copy(), m.flow[:, LAST_TRADE].copy(), m.price_origin.copy()
        event = play_event(m)
        check_book(m)
        kind, side, deed = event.deed.kind, np.eye(2, dtype=int)[event.deed.side], event.deed
        change = event.made_up - event.left_behind - side * event.traded[:, None]
        change += side * (deed.units * (kind == LIMIT_ORDER) - deed.units * (kind == CANCELLATION))[:, None]
        assert (by_side(m) == before + change).all() and (by_side(m) > 0).all()
        assert (event.traded == np.where(kind == MARKET, deed.units, 0)).all()
        assert (m.volume == volume + event.traded).all()
        assert (m.flow[:, TIME] >= time).all() and ((m.flow[:, STATE] >= 0) & (m.flow[:, STATE] < 5)).all()
        assert ((m.flow[:, LEFT] >= 0) & (m.flow[:, LEFT] <= table.jump_events)).all() and (m.flow[:, 7:] == 0).all()
        assert (np.abs(m.flow[:, [LAST_TRADE, LAST_JUMP]]) == 1).all()
        remembers = (kind == MARKET) & ~event.fled
        assert (m.flow[:, LAST_TRADE] == np.where(remembers, 2 * deed.side - 1, last_trade)).all()
        same_grid, moved = m.price_origin == origin, (np.stack(lives.best(m)) + m.price_origin != best).any(axis=0)
        after = np.where(event.traded > 0, 2, moved)
        assert (m.flow[:, AFTER] == after)[same_grid].all()


def test_all_kinds_of_events_happen_and_the_grid_moves():
    """Or the laws say little."""
    for name in ("jumps all the time", "random 0"):
        m, events = play(EXTREMES[name], range(5), 60, levels=16, window=1, beat=3)
        kinds = {*np.concatenate([event.deed.kind for event in events]).tolist()}
        assert kinds == {NOTHING, MARKET, LIMIT_ORDER, CANCELLATION}
        assert m.price_origin.any()
        assert np.sum([event.made_up for event in events]) > 0 and np.sum([event.left_behind for event in events]) > 0


def test_one_order_a_side_stays():
    m, events = play(EXTREMES["one order a side"], range(20), 50, window=0)
    assert (m.lives.sum(axis=(1, 2)) == 2).all()
    assert not any(((event.deed.kind != NOTHING) & (event.deed.kind != MARKET)).any() for event in events)


@pytest.mark.parametrize("traded", [0, SHARE])
def test_a_jump_takes_the_orders_before_its_limit(traded):
    """From the best or the worst tick; after it, nothing is left before its limit, or it came to its end."""
    table = dataclasses.replace(PLAIN, jump_traded=traded, jump_size=np.full(16, 5), jump_events=400, market=0)
    _, m = begin(table, range(40), window=0)
    ends = set()
    m.flow[:, LEFT], m.flow[:, LAST_JUMP] = 400, np.where(np.arange(40) % 2, 1, -1)
    m.flow[:, LIMIT] = np.where(np.arange(40) % 2, 32 + 5, 31 - 5)
    for _ in range(60):
        best_bid, best_ask = lives.best(m)
        limit, lasted = m.flow[:, LIMIT].copy(), m.flow[:, LEFT] > 0
        worst_bid = np.argmax((m.bid > 0) & (np.arange(64) > limit[:, None]), axis=1)
        worst_ask = 63 - np.argmax(((m.ask > 0) & (np.arange(64) < limit[:, None]))[:, ::-1], axis=1)
        event = play_event(m)
        assert (event.fled <= lasted).all()
        gone = event.fled & (event.deed.kind == CANCELLATION)
        assert not (gone.any() if traded else (event.traded * event.fled).any())
        for i in np.flatnonzero(gone):
            up, tick = i % 2, event.deed.tick[i]
            assert event.deed.side[i] == up and tick in (
                (best_ask[i], worst_ask[i]) if up else (best_bid[i], worst_bid[i])
            )
            assert tick < limit[i] if up else tick > limit[i]
            ends.add(tick == (best_ask[i] if up else best_bid[i]))
        stopped = lasted & (m.flow[:, LEFT] == 0) & (event.deed.kind != LIMIT_ORDER)
        asks, bids = (m.ask > 0) & (np.arange(64) < limit[:, None]), (m.bid > 0) & (np.arange(64) > limit[:, None])
        assert not (stopped & np.where(np.arange(40) % 2, asks.any(axis=1), bids.any(axis=1))).any()
    assert (m.flow[:, LEFT] == 0).any() and ends == (set() if traded else {True, False})


def test_no_jump_begins_in_the_last_event_of_another():
    """Whether or not an order flees in it."""
    table = dataclasses.replace(JUMPS, jump_after_trade=0)
    _, m = begin(table, range(40), window=0)
    m.flow[:, LEFT], m.flow[:, LIMIT] = np.where(np.arange(40) < 30, 1, 0), 34
    event = play_event(m)
    assert 5 < event.fled[:30].sum() < 25
    assert (m.flow[:30, LEFT] == 0).all() and (m.flow[30:, LEFT] == table.jump_events).all()


@pytest.mark.parametrize("name", ["plain", "jumps all the time", "random 3"])
def test_a_run_is_the_same_again_in_two_parts_and_of_other_intervals(name):
    settings = {"levels": 16, "window": 2, "beat": 3}
    whole, _ = play(EXTREMES[name], range(6), 40, **settings)
    again, _ = play(EXTREMES[name], range(6), 40, **settings)
    assert same_state(whole, again)
    args, first = begin(EXTREMES[name], range(6), **settings)
    for _ in range(17):
        play_event(first)
    first.store(args)  # as int32 and int64
    rest = Markets(args, np.arange(6))
    for _ in range(23):
        play_event(rest)
    assert same_state(whole, rest)
    _, other = begin(EXTREMES[name], range(6), interval=8, **settings)
    with np.errstate(over="ignore"):
        volumes = sum(flow.flow_interval(other)[0] for _ in range(5))
    assert same_state(whole, other, but=["t", "trades"]) and (volumes == other.volume).all() and (other.t == 5).all()
    assert not same_state(whole, play(EXTREMES[name], range(1, 7), 40, **settings)[0])
    one, _ = play(EXTREMES[name], [3], 40, **settings)
    assert (one.bid[0] == whole.bid[3]).all() and (one.flow[0] == whole.flow[3]).all()


@pytest.mark.parametrize("name", EXTREMES)
def test_the_reference_says_the_same(name):
    for levels, window, beat, init in ((8, 1, 3, 4), (64, 8, 16, 20)):
        m, _ = play(EXTREMES[name], range(2), 60, levels=levels, window=window, beat=beat, init_price=init)
        for i in range(2):
            other = FlowMarket(EXTREMES[name], i, levels, window, beat, init)
            assert other.play(60)
            assert all(np.array_equal(getattr(m, part)[i], value) for part, value in other.state().items())


@pytest.mark.parametrize("table", [PLAIN, random_table(2)], ids=["plain", "random"])
def test_choices_come_as_often_as_their_weights_say(table):
    """Of many markets with one book and seeds of their own: the kinds, and each order's cancellation."""
    stats, markets = pytest.importorskip("scipy.stats"), 8000
    _, one = begin(table, [0], window=0)
    _, m = begin(dataclasses.replace(table, jump_hazard=0, jump_after_trade=0), [*range(markets)], window=0)
    for name in ("bid", "ask", "lives", "fleeting_units"):
        setattr(m, name, np.repeat(getattr(one, name), markets, axis=0))
    best_bid, best_ask = lives.best(one)
    limit = table.limit[:, min(int(best_ask[0] - best_bid[0]), 3) - 1].sum()
    cancel = lives.orders(one)[0] * table.cancel[:, lives.bands(one)[0]].transpose(1, 0, 2)
    deed = play_event(m).deed
    each = np.zeros(cancel.shape)
    gone = deed.kind == CANCELLATION
    np.add.at(each, (deed.side[gone], deed.life[gone], deed.tick[gone]), 1)
    assert not each[cancel == 0].any()
    limits = np.isin(deed.kind, (LIMIT_ORDER, NOTHING)).sum()  # of those beyond the grid nothing comes
    counts = np.array([(deed.kind == MARKET).sum(), limits, *each.ravel()])
    expected = np.array([table.market, limit, *cancel.ravel()]) * markets / (table.market + limit + cancel.sum())
    often = expected > 5
    found, wanted = (np.append(x[often], x[~often].sum()) for x in (counts, expected))
    assert len(found) > 8 and stats.chisquare(found[wanted > 0], wanted[wanted > 0]).pvalue > 1e-3


def slots_play(seed, events=100):
    """Let two slots quote at random, at times for more than there is, and return how many sides were emptied."""
    rng, empty, fills = np.random.default_rng(seed), 0, 0
    _, m = begin(random_table(seed), range(6), levels=16, window=2, beat=3, slots=2)
    for _ in range(events):
        price = m.last_price[:, None] + rng.integers(-9, 10, (2, 6, 2))
        quotes = np.stack([price[0], rng.integers(0, 9, (6, 2)), price[1], rng.integers(0, 9, (6, 2))], axis=-1)
        quotes[..., 1::2] *= np.where(rng.random((6, 2, 2)) < 0.03, 2**16, 1)
        m.rejects = np.zeros_like(m.rejects)
        with np.errstate(over="ignore"):
            under_way.submit(m, quotes)
            fills = fills + flow.flow_interval(m)[1]
        check_book(m)
        tick = (m.quotes[..., 0::2] - m.price_origin[:, None, None]).clip(0, 15)
        there = np.take_along_axis(np.stack([m.bid, m.ask], axis=-1), tick, axis=1)
        assert (m.queue <= there).all() and (m.queue >= 0).all()
        assert (m.inventory == (fills[..., 0] - fills[..., 1])).all()
        empty += (by_side(m) == 0).sum()
    return SimpleNamespace(empty=empty, filled=fills.sum())


def test_quotes_of_slots_trade_with_the_flow_and_may_empty_a_side():
    played = [slots_play(seed) for seed in (0, 2)]
    assert sum(one.empty for one in played) > 10 and sum(one.filled for one in played) > 1000


def test_a_market_stops_before_its_numbers_are_too_large():
    _, m = begin(PLAIN, [1], window=0)
    m.flow[0, TIME] = 2**62 - 1
    with pytest.raises(MarketError, match="time would reach"):
        for _ in range(20):
            play_event(m)

    heavy = dataclasses.replace(PLAIN, cancel=np.full((2, 18), 2**23), limit=NO_LIMITS, jump_hazard=0)
    for number, stops in ((2**17 - 1, False), (2**17, True)):  # of orders, each of 2^23
        _, m = begin(heavy, [1], window=0)
        m.bid[:], m.lives[:, :, :32], m.fleeting_units[:] = 0, 0, 0
        m.lives[0, 1, 20:25] = [2**15 - 1] * 4 + [number - 4 * (2**15 - 1)]
        m.bid[0, :32] = m.lives[0, 1, :32]
        with pytest.raises(MarketError, match="weight of cancellations") if stops else nullcontext():
            play_event(m)

    giant = dataclasses.replace(
        EXTREMES["giant orders"], limit=np.full((2, 3, 18), UNIT), cancel=np.ones((2, 18), int), market=0
    )
    _, m = begin(giant, [1], window=0)
    m.bid[0, 0] += 2**31 - 2**20 - m.bid[0].sum()  # one more of 2^20 is one too many
    m.lives[0, 1, 0] += 1
    with pytest.raises(MarketError, match="2\\^31"):
        for _ in range(20):
            play_event(m)
    with pytest.raises(MarketError, match="2\\^31"):
        begin(dataclasses.replace(giant, resting=np.full((2, 2, 18), 2**24)), [1], levels=64)


def test_a_tick_takes_no_more_orders_than_it_can_count():
    table = dataclasses.replace(
        PLAIN, limit=np.full((2, 3, 18), UNIT), fleeting=np.zeros(18, int), market=0, cancel=np.ones((2, 18), int)
    )
    _, m = begin(table, range(300), levels=64, window=0)
    m.lives[:, 1], m.fleeting_units[:] = 2**15 - 1, 0
    m.lives[:, 0] = 0
    m.bid[:, :32], m.ask[:, 32:] = 2**16, 2**16
    event = play_event(m)
    assert not (event.deed.kind == LIMIT_ORDER).any() and (event.deed.kind == NOTHING).any()
    assert (m.lives.max(axis=(1, 2)) == 2**15 - 1).all()
