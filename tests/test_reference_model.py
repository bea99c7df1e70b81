"""Known answers of the second model, worked out by hand from its rules, on the plain reference of `tests/reference`.

Two markets can be followed with a pencil. In `silent` the only agent is replaced by slot 0, so that only slots act. In
`lone_maker` the only agent is a maker with half-spread 1 and one unit: in a book with its best prices at 7 and 9 it
buys at 7 at every even event and sells at 9 at every odd one. All are on a grid of 16 ticks, opened around 8.
"""

import pytest
from reference import Reference
from reference.orders import BUY, SELL, Grid, Order, View, built_in_order
from reference.queues import Queues
from reference.rules import Rules
from reference.words import PLACE, episode_key, mix64, word

GRID = dict(num_levels=16, num_agents=1, init_price=8, init_depth=8, arrivals="clock", max_order_qty=1)
NEVER = 1 << 30  # as a beat: only the one before event 0
NONE = [0, 0, 0, 0]


def silent(added=0, mechanism="continuous", **fields):
    fields = {**GRID, "noise": 1.0, "momentum": 0.0, "maker": 0.0, "mechanism": mechanism, **fields}
    return Reference(fields, ("noise", *[None] * added))


def lone_maker(slots=1, mechanism="continuous", seed=0, **fields):
    shares = {"noise": 0.0, "momentum": 0.0, "maker": 1.0}
    return Reference({**GRID, **shares, "mechanism": mechanism, **fields}, slots, seed)


def bid(price, quantity):
    return [price, quantity, 0, 0]


def ask(price, quantity):
    return [0, 0, price, quantity]


# Queues ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_queue_with_two_quotes_and_a_cancellation(seed):
    market = lone_maker(3, seed=seed, interval=1, beat=4, cancel_prob=0.5)
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


def test_a_quote_keeps_its_place_or_loses_it():
    market = lone_maker(interval=2, beat=NEVER)
    places = []
    for quote in (bid(7, 3), bid(7, 3), bid(7, 1), bid(7, 2), None, bid(6, 2), bid(7, 1), NONE):
        places.append(market.interval(None if quote is None else [quote])["ahead"][0][0])
    # One built-in unit joins in every interval after the quote. Larger, at another price and back: at the end again.
    assert places == [8, 8, 8, 8 + 3, 11, 0, 8 + 6, 0]


def test_earlier_quotes_go_first_at_the_same_place():
    """The order of slots begins with slot t mod K."""
    for t, filled in ((0, [2, 1, 0]), (1, [0, 2, 1]), (2, [1, 0, 2])):
        market = silent(3, init_depth=0, interval=1, beat=NEVER)
        market.decision(None, 4 + t)  # K = 4: slot t comes first
        market.interval([bid(7, 2), bid(7, 2), bid(7, 2), NONE])
        seen = market.decision([bid(7, 2), bid(7, 2), bid(7, 2), NONE], 3 - t)[-1]
        assert seen["volume"] == 0 and seen["t"] % 4 == 0
        seen = market.interval([bid(7, 2), bid(7, 2), bid(7, 2), ask(7, 3)])
        assert [bought for bought, _ in seen["fills"][:3]] == filled


def test_a_sweep_through_three_ticks():
    levers = dict(fee=100, taker_fee=-30, tax=1)
    market = silent(2, interval=1, beat=NEVER, **levers)
    seen = market.interval([ask(10, 5), ask(11, 4), bid(11, 15)])
    assert seen["fills"] == [[0, 5], [0, 2], [15, 0]]  # 8 built-in at 9, 5 at 10, 2 at 11
    assert seen["cash"] == [50, 22, -(72 + 50 + 22)]
    assert seen["fees"] == [5 * 1100, 2 * 1100, 15 * 1070]
    assert (seen["volume"], seen["trades"], seen["last_price"]) == (15, 1, 11)
    assert seen["mid2"] == 22 and market.mid2() == 7 + 11  # no built-in ask: twice the last price; agents see the quote
    assert [quote[3] for quote in seen["quotes"]] == [0, 2, 0]


@pytest.mark.parametrize(
    ("latency", "n", "ahead"),
    [(0, 1, 8), (1, 1, 9), (2, 1, 9), (3, 1, 10), (4, 1, 10), (99, 1, 10), (4, 2, 10), (5, 2, 11), (99, 2, 12)],
)
def test_latency(latency, n, ahead):
    """Four events per interval: built-in units join the bids at events 0, 2, 4 and 6, the quote before its event."""
    market = lone_maker(interval=4, beat=NEVER, quote_latency=latency)
    seen = market.decision([bid(7, 1)], n)
    assert seen[-1]["ahead"] == [[ahead, 0]] and seen[-1]["quotes"] == [[7, 1, 0, 0]]
    came_first = latency < 4 or n == 1
    assert seen[0]["quotes"][0][1] == came_first
    assert seen[-1]["bid"][7] == 8 + 2 * n


# Beats ----------------------------------------------------------------------------------------------------------------


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
def test_cancellation_is_per_beat(mechanism, interval, beat, depths):
    market = silent(0, mechanism, init_depth=64, cancel_prob=0.5, interval=interval, beat=beat)
    assert [market.interval()["bid"][7] for _ in depths] == depths


@pytest.mark.parametrize(("beat", "rets"), [(2, [0, 1, 0]), (4, [0, 1, 0]), (8, [0, 0, 1, 1, 0])])
def test_returns_of_a_call_are_between_intervals(beat, rets):
    """A bid inside the spread moves the mid as interval 0 ends; beats within interval 1 do not undo the return."""
    market = silent(0, "call", interval=4, beat=beat)
    seen = [market.interval([bid(8, 1)])] + [market.interval() for _ in rets[1:]]
    assert [one["ret"] for one in seen] == rets


def test_waiting_orders_are_cancelled_after_resting_ones():
    """Beat 0 halves the opening depth to 2; by event 4 two units wait at each price, and beat 1 takes 2 of 4 there."""
    market = lone_maker(0, "call", interval=8, beat=4, cancel_prob=0.5, init_depth=4)
    seen = market.interval()
    assert (seen["bid"][7], seen["ask"][9]) == (4, 4)  # two more came
    market.book.resting[BUY][7], market.book.waiting[BUY][7] = 3, 5
    market.book.cancel(BUY, 7, 4)
    assert (market.book.resting[BUY][7], market.book.waiting[BUY][7]) == (0, 4)


def test_agents_do_not_see_waiting_orders_but_live_continuous_ones():
    """A maker with half-spread 0 buys at the mid: its bid moves the mid only where it rests at once."""
    call = lone_maker(0, "call", interval=3, beat=NEVER, maker_half_spread=0, max_order_qty=1)
    live = lone_maker(0, "continuous", interval=3, beat=NEVER, maker_half_spread=0, max_order_qty=1)
    call.interval(), live.interval()
    # Mid 8: buy 1 at 8. Live: mid 8.5, an ask at 8 (half to even) takes it; then as before.
    assert [note[:4] for note in call.log[:3]] == [("order", 1, 8, 1), ("order", -1, 8, 1), ("order", 1, 8, 1)]
    assert [note[0] for note in live.log] == ["order", "order", "trade", "order"]
    assert live.log[1] == ("order", -1, 8, 1) and call.log[3] == ("auction", 8, 1)


def test_who_comes_and_with_what():
    """Five makers; the words are spelled out once more. A maker buys if its index plus the event's number is even."""
    makers = {"noise": 0.0, "momentum": 0.0, "maker": 1.0, "num_agents": 5, "max_order_qty": 1000, "interval": 20}
    market = Reference({**GRID, **makers, "mechanism": "call"}, 0, seed=42)
    market.interval(), market.interval()
    golden, key = 0x9E3779B97F4A7C15, mix64(42 + 0x9E3779B97F4A7C15)
    orders = [note for note in market.log if note[0] == "order"]
    for g, (_, side, _, quantity) in zip(range(20, 40), orders, strict=True):
        pair = mix64(key + ((g // 2) * 2**32 + 2**31 + 2**29 + 1) * golden)
        agent = (pair % 2**32 if g % 2 == 0 else pair >> 32) * 5 >> 32
        own = mix64(key + (g * 2**32 + 1) * golden)
        assert side == (1 if (agent + g) % 2 == 0 else -1)
        assert quantity == 1 + ((own >> 32) % 2**16 * 1000 >> 16)


@pytest.mark.parametrize(("arrivals", "interval", "beat"), [("each", 1, 1), ("clock", 1, 4), ("clock", 8, 2)])
def test_the_coin_is_one_per_beat(arrivals, interval, beat):
    """A maker with half-spread 0 around a mid of 8.5: all its orders of a beat are at 8, or all at 9."""
    mechanism = dict(arrivals=arrivals, interval=interval, beat=beat, rounding="coin", maker_half_spread=0)
    market = lone_maker(1, "call", **mechanism)
    market.interval([[7, 0, 10, 0]])
    for _ in range(24 // interval):
        market.book.resting[BUY].clear(), market.book.resting[SELL].clear()
        market.book.resting[BUY][7] = market.book.resting[SELL][10] = 99
        first = market.t if arrivals == "each" else market.t * interval
        market.interval()
        prices = [note[2] for note in market.log if note[0] == "order"]
        beats = [(first + place) // beat for place in range(interval)]
        assert prices == [8 + (word(market.key, b, 2**30) >> 16 & 1) for b in beats]


@pytest.mark.parametrize(("tick_size", "t", "price"), [(1, 0, 9), (1, 1, 10), (4, 0, 8), (4, 1, 8), (3, 1, 9)])
def test_a_tie_goes_to_the_mid_on_the_tick(tick_size, t, price):
    """A bid of 1 at 12 and an ask of 1 at 7 trade at any price between; the mid is 9.5."""
    market = silent(0, "call", interval=1, beat=NEVER, tie="mid", init_depth=0, tick_size=tick_size)
    market.decision(None, t)
    market.book.resting[BUY][12] = market.book.resting[SELL][7] = 1
    assert market.interval()["last_price"] == price


def test_a_tie_goes_to_the_mid_before_the_fresh_quotes():
    market = silent(2, "call", interval=1, beat=NEVER, tie="mid", init_depth=0)
    market.interval([NONE, bid(5, 1), ask(8, 1)])
    seen = market.interval([NONE, bid(12, 1), ask(5, 1)])  # at any price from 5 to 12; the mid was 6.5
    assert seen["volume"] == 1 and seen["last_price"] == 7


# The grid -------------------------------------------------------------------------------------------------------------


def test_the_far_end_takes_quotes_along():
    market = silent(1, interval=1, beat=2, window=2, init_depth=0)
    seen = market.interval([bid(3, 1), [-50, 4, -40, 1]])  # the ask becomes 0 for good, and meets the bid at 3
    assert seen["last_price"] == 3 and seen["quotes"][1] == [-50, 4, 0, 0]
    seen = market.interval([bid(40, 2), [-4, 4, 99, 1]])
    assert seen["quotes"] == [[15, 2, 0, 0], [-4, 4, 99, 1]] and market.mid2() == 6  # 99 is off the grid
    seen = market.interval()  # beat 1: no ask is seen, the last price is 3: the grid moves by 3 - 8
    assert seen["price_origin"] == -5 and seen["quotes"] == [[10, 2, 0, 0], [-4, 4, 99, 1]]
    seen = market.interval([NONE, [-4, 4, 99, 1]])
    assert market.book.best(BUY) == -4  # that bid came onto the grid


def test_the_far_end_takes_no_better_place_than_before():
    """`ahead` is cut to what is at the end; with as much ahead, the earlier moment goes first."""
    book = Queues(Grid(16, 1))
    quotes = [Order(BUY, 14, 1, 1, 0), Order(BUY, 10, 1, 4, 1), Order(BUY, 15, 1, 6, 2)]
    built_in = [Order(BUY, 10, 5, 2), Order(BUY, 14, 3, 3), Order(BUY, 10, 2, 5), Order(BUY, 15, 9, 0)]
    for order in sorted([*quotes, *built_in], key=lambda order: order.moment):
        book.join(order)
    assert [book.ahead(quote) for quote in quotes] == [0, 5, 9]
    book.follow(Grid(16, 1, -5))
    assert [(quote.price, book.ahead(quote)) for quote in quotes] == [(10, 0), (10, 5), (10, 7)]
    assert [fill[0] for fill in book.take(SELL, 10, 10) if fill[0].slot is not None] == quotes


def test_at_the_same_place_the_earlier_moment_goes_first():
    """As a merge at the grid's end can leave it: the later quote in front, until nothing is left between the two."""
    book = Queues(Grid(16, 1))
    later, earlier = Order(BUY, 10, 1, 5, 0), Order(BUY, 10, 1, 2, 1)
    for order in (later, Order(BUY, 10, 3, 3), earlier):
        book.join(order)
    book.cancel(BUY, 10, 2, 0)
    assert book.ahead(earlier) == 1 and book.queue(BUY, 10)[0] is later
    book.cancel(BUY, 10, 1, 0)
    assert [fill[0] for fill in book.take(SELL, 10, 2)] == [earlier, later]


def test_what_is_left_of_a_marketable_order_disappears():
    fields = {**GRID, "noise": 1.0, "momentum": 0.0, "maker": 0.0, "mechanism": "continuous", "init_depth": 3}
    market = Reference({**fields, "market_order_prob": 1.0, "interval": 40}, 0)
    seen = market.interval()
    assert seen["volume"] == 6 and not any(seen["bid"]) and not any(seen["ask"])


# Levers ---------------------------------------------------------------------------------------------------------------

SIDE_BIT = 1 << 31
LIMIT = 0xFFFFFF  # never marketable
TOP = (1 << 16) - 1 << 48  # the largest offset
VIEW = View(Grid(16, 1), 0, 17, 1, 12, 8, 0)  # a mid of 8.5, rising, worth 12, collar around 8


@pytest.mark.parametrize(
    ("kind", "word_bits", "levers", "price"),
    [
        ("noise", LIMIT | SIDE_BIT | TOP, {}, 12),  # 8.5 + 3 = 11.5, to even
        ("noise", LIMIT | SIDE_BIT, {}, 6),  # 8.5 - 3 = 5.5
        ("noise", LIMIT | SIDE_BIT, {"rounding": "coin"}, 5),  # the coin of this view is 0: down
        ("noise", LIMIT | TOP, {"noise_spread": 9999}, 15),
        ("momentum", LIMIT, {}, 10),  # 9.5; the return is up, the side bit is not looked at
        ("momentum", LIMIT, {"taker_offset": 4}, 12),
        ("fundamental", LIMIT, {"reference": "fundamental", "taker_offset": 2}, 14),
        ("maker", SIDE_BIT, {"tax": 2}, 6),  # parity 0: buys at round(7.5) = 8, less tax
        ("noise", 0, {"market_order_prob": 1.0, "tax": 2}, 0),  # tax does not move the marketable end
        ("noise", SIDE_BIT, {"market_order_prob": 1.0, "collar": 3}, 11),
        ("noise", 0, {"market_order_prob": 1.0, "collar": 3, "tick_size": 4}, 8),  # 5, sells up to a multiple
        ("noise", SIDE_BIT, {"market_order_prob": 1.0, "tick_size": 4}, 12),
        ("noise", LIMIT | TOP, {"noise_spread": 9999, "tick_size": 4}, 12),  # up is off the grid: the nearest on it
        ("momentum", LIMIT, {"collar": 1, "tick_size": 2}, 8),  # 10, cut to 9, down to 8
    ],
)
def test_prices_of_built_in_agents(kind, word_bits, levers, price):
    rules = Rules({**GRID, "market_order_prob": 0.0, **levers}, 0, 0)
    view = View(Grid(16, rules.tick_size), *list(vars(VIEW).values())[1:])
    assert built_in_order(rules, view, kind, 0, word_bits, 1).price == price


def test_levers_on_quotes():
    market = silent(0, interval=1, beat=1, tick_size=4, collar=5, init_depth=0)
    seen = market.interval([[7, 2, 9, 2]])
    assert seen["quotes"] == [[4, 2, 12, 2]]
    place = market.quotes[0][BUY].moment
    assert market.interval([[6, 1, 10, 1]])["quotes"] == [[4, 1, 12, 1]]  # the same prices after the levers
    assert market.quotes[0][BUY].moment == place
    assert market.interval([[40, 1, 41, 1]])["quotes"] == [[12, 1, 44, 1]]  # 40 is cut to 8 + 5, down to 12


def test_the_collar_is_around_the_last_price_of_the_last_beat():
    market = silent(0, interval=1, beat=4, collar=2)
    market.interval()
    assert market.interval([bid(9, 1)])["last_price"] == 9
    prices = [market.interval([bid(14, 1)])["quotes"][0][0] for _ in range(3)]
    assert prices == [8 + 2, 8 + 2, 9 + 2]  # the third comes after beat 1


def test_regimes_are_drawn_at_beats():
    changes = [{"noise_spread": 0}, {"noise_spread": 30}, {}]
    market = silent(0, interval=2, beat=2, regimes=changes, regime_switch_prob=1.0)
    key = episode_key(0, 0)
    assert market.regime == (word(key, 0, 2**30 + 8) >> 32) * 3 >> 32
    assert [market.interval()["regime"] for _ in range(9)] == [
        (word(key, b, 2**30 + 7) >> 32) * 3 >> 32 for b in range(9)
    ]
    still = silent(0, interval=2, beat=2, regimes=changes, regime_switch_prob=0.0)
    first = still.regime
    assert {still.interval()["regime"] for _ in range(9)} == {first}


def test_a_market_that_stops_is_as_it_was():
    fields = {**GRID, "noise": 1.0, "momentum": 0.0, "maker": 0.0, "market_order_prob": 0.0, "max_order_qty": 65535}
    for mechanism in ("call", "continuous"):
        market = Reference({**fields, "mechanism": mechanism, "num_agents": 8, "init_depth": 1 << 20}, 0)
        side = market.book.resting[BUY] if mechanism == "call" else market.book.queue(BUY, 7)[0]
        if mechanism == "call":
            side[7] = (1 << 31) - 9
        else:
            side.quantity = (1 << 31) - 9
        before = market.observe()
        for _ in range(2):
            assert market.interval() == {**before, "error": 1}
