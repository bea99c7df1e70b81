"""Known answers, worked out by hand from the rules of the clock, on the plain reference and in every engine.

Places in queues, sweeps, latency, cancellation where beats are shorter or longer than intervals, the grid's ends. What
can be seen on the reference alone is in `test_reference_model.py`; both look at the markets of `pencil_markets.py`.
"""

import pytest
from pencil_markets import GRID, NEVER, NONE, ask, bid, inactive, lone_maker, market_in
from reference.words import PLACE, episode_key, word
from strategies import ENGINES

ENGINE = pytest.mark.parametrize("engine", ["reference", *ENGINES])


@ENGINE
@pytest.mark.parametrize("seed", range(6))
def test_a_queue_with_two_quotes_and_a_cancellation(seed, engine):
    market = lone_maker(3, engine=engine, seed=seed, interval=1, beat=4, cancel_prob=0.5)
    first, second = bid(7, 3), bid(7, 2)
    seen = market.interval([first, NONE, NONE])  # beat 0 halves the opening depth; event 0 buys one behind the quote
    assert seen["bid"][7] == 4 + 1 and seen["ahead"] == [[4, 0], [0, 0], [0, 0]]
    seen = market.interval([first, second, NONE])  # event 1 sells one at 9
    assert seen["ahead"] == [[4, 0], [5, 0], [0, 0]]
    assert market.interval()["bid"][7] == 6 and market.interval()["ask"][9] == 6
    seen = market.interval()
    # Beat 1 takes 3 of 6. Of the 4 ahead of the first quote go floor((3*4 + r) / 6) = 2, whatever r, of the 5 ahead of
    # the second floor((3*5 + r) / 6): 3 if r >= 3, which is if the draw is in the upper half. Event 4 buys one.
    upper = word(episode_key(seed, 0), 1, PLACE) >> 31 & 1
    assert seen["bid"][7] == 4 and seen["ahead"] == [[2, 0], [3 - upper, 0], [0, 0]]
    market.interval()
    seen = market.interval([first, second, ask(7, 6)])
    # Six units: two built-in ones, the first quote's three, then the next in the queue. Event 6 buys one more.
    last_built_in = 1 - upper
    assert seen["fills"] == [[3, 0], [upper, 0], [0, 6]] and seen["bid"][7] == 4 - 2 - last_built_in + 1
    assert seen["cash"] == [-21, -7 * upper, 42] and seen["inventory"] == [3, upper, -6]
    assert [quote[1] for quote in seen["quotes"]] == [0, 2 - upper, 0] and seen["ahead"][1] == [0, 0]
    assert (seen["volume"], seen["trades"], seen["last_price"]) == (6, 1, 7)


@ENGINE
def test_a_quote_keeps_its_place_or_loses_it(engine):
    market = lone_maker(engine=engine, interval=2, beat=NEVER)
    places = []
    for quote in (bid(7, 3), bid(7, 3), bid(7, 1), bid(7, 2), None, bid(6, 2), bid(7, 1), NONE):
        places.append(market.interval(None if quote is None else [quote])["ahead"][0][0])
    # One built-in unit joins in every interval after the quote. Larger, at another price and back: at the end again.
    assert places == [8, 8, 8, 8 + 3, 11, 0, 8 + 6, 0]


@ENGINE
def test_earlier_quotes_go_first_at_the_same_place(engine):
    """The order of slots begins with slot t mod K."""
    for t, filled in ((0, [2, 1, 0]), (1, [0, 2, 1]), (2, [1, 0, 2])):
        market = inactive(3, engine=engine, init_depth=0, interval=1, beat=NEVER)
        market.decision(None, 4 + t)  # K = 4: slot t comes first
        market.interval([bid(7, 2), bid(7, 2), bid(7, 2), NONE])
        seen = market.decision([bid(7, 2), bid(7, 2), bid(7, 2), NONE], 3 - t)[-1]
        assert seen["volume"] == 0 and seen["t"] % 4 == 0
        seen = market.interval([bid(7, 2), bid(7, 2), bid(7, 2), ask(7, 3)])
        assert [bought for bought, _ in seen["fills"][:3]] == filled


@ENGINE
def test_a_sweep_through_three_ticks(engine):
    levers = dict(fee=100, taker_fee=-30, tax=1)
    market = inactive(2, engine=engine, interval=1, beat=NEVER, **levers)
    seen = market.interval([ask(10, 5), ask(11, 4), bid(11, 15)])
    assert seen["fills"] == [[0, 5], [0, 2], [15, 0]]  # 8 built-in at 9, 5 at 10, 2 at 11
    assert seen["cash"] == [50, 22, -(72 + 50 + 22)]
    assert seen["fees"] == [5 * 1100, 2 * 1100, 15 * 1070]
    assert (seen["volume"], seen["trades"], seen["last_price"]) == (15, 1, 11)
    assert seen["mid2"] == 22  # no built-in ask: twice the last price
    assert [quote[3] for quote in seen["quotes"]] == [0, 2, 0]


@ENGINE
@pytest.mark.parametrize(
    ("latency", "n", "ahead"),
    [(0, 1, 8), (1, 1, 9), (2, 1, 9), (3, 1, 10), (4, 1, None), (99, 1, None), (4, 2, 10), (5, 2, 11), (99, 2, None)],
)
def test_latency(latency, n, ahead, engine):
    """Four events per interval: built-in units join the bids at events 0, 2, 4 and 6, the quote before its event.

    None: it is still under way.
    """
    market = lone_maker(engine=engine, interval=4, beat=NEVER, quote_latency=latency)
    seen = market.decision([bid(7, 1)], n)
    assert seen[-1]["ahead"] == [[ahead or 0, 0]]
    assert seen[-1]["quotes"] == [[0, 0, 0, 0] if ahead is None else [7, 1, 0, 0]]
    if engine == "reference":  # it shows each interval
        assert seen[0]["quotes"][0][1] == (latency < 4)
    assert seen[-1]["bid"][7] == 8 + 2 * n


@ENGINE
@pytest.mark.parametrize("mechanism", ["call", "continuous"])
@pytest.mark.parametrize(
    ("interval", "beat", "depths"),
    [
        (1, 1, [32, 16, 8, 4]),
        (4, 2, [16, 4, 1]),
        (4, 8, [32, 32, 16, 16, 8]),
        (3, 4, [32, 16, 8, 8, 4]),
        (2, 2, [32, 16]),
    ],
)
def test_cancellation_is_per_beat(mechanism, interval, beat, depths, engine):
    market = inactive(0, mechanism, engine, init_depth=64, cancel_prob=0.5, interval=interval, beat=beat)
    assert [market.interval()["bid"][7] for _ in depths] == depths


@ENGINE
@pytest.mark.parametrize(("beat", "rets"), [(2, [0, 1, 0]), (4, [0, 1, 0]), (8, [0, 0, 1, 1, 0])])
def test_returns_of_a_call_are_between_intervals(beat, rets, engine):
    """A bid inside the spread moves the mid as interval 0 ends; beats within interval 1 do not undo the return."""
    market = inactive(0, "call", engine, interval=4, beat=beat)
    seen = [market.interval([bid(8, 1)])] + [market.interval() for _ in rets[1:]]
    assert [one["ret"] for one in seen] == rets


@ENGINE
def test_a_tie_goes_to_the_mid_before_the_fresh_quotes(engine):
    market = inactive(2, "call", engine, interval=1, beat=NEVER, tie="mid", init_depth=0)
    market.interval([NONE, bid(5, 1), ask(8, 1)])
    seen = market.interval([NONE, bid(12, 1), ask(5, 1)])  # at any price from 5 to 12; the mid was 6.5
    assert seen["volume"] == 1 and seen["last_price"] == 7


@ENGINE
def test_the_far_end_takes_quotes_along(engine):
    market = inactive(1, engine=engine, interval=1, beat=2, window=2, init_depth=0)
    seen = market.interval([bid(3, 1), [-50, 4, -40, 1]])  # the ask becomes 0 for good, and meets the bid at 3
    assert seen["last_price"] == 3 and seen["quotes"][1] == [-50, 4, 0, 0]
    seen = market.interval([bid(40, 2), [-4, 4, 99, 1]])
    assert seen["quotes"] == [[15, 2, 0, 0], [-4, 4, 99, 1]]  # 99 is off the grid
    seen = market.interval()  # beat 1: no ask is seen, the last price is 3: the grid moves by 3 - 8
    assert seen["price_origin"] == -5 and seen["quotes"] == [[10, 2, 0, 0], [-4, 4, 99, 1]]
    seen = market.interval([ask(-5, 1), [-4, 4, 99, 1]])  # that bid came onto the grid
    assert seen["fills"] == [[0, 1], [1, 0]] and seen["last_price"] == -4


@ENGINE
def test_what_is_left_of_a_marketable_order_disappears(engine):
    fields = {**GRID, "noise": 1.0, "momentum": 0.0, "maker": 0.0, "mechanism": "continuous", "init_depth": 3}
    market = market_in(engine, {**fields, "market_order_prob": 1.0, "interval": 40})
    seen = market.interval()
    assert seen["volume"] == 6 and not any(seen["bid"]) and not any(seen["ask"])
