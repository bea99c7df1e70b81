"""Known answers of the second model, worked out by hand from its rules, on the plain reference of `tests/reference`.

Those that engines can show as well are in `test_known_answers.py`.
"""

import pytest
from pencil_markets import GRID, NEVER, NONE, ask, bid, inactive, lone_maker
from reference import Reference
from reference.orders import BUY, SELL, Grid, Order, View, built_in_order
from reference.queues import Queues
from reference.rules import Rules
from reference.words import episode_key, mix64, word

# Beats ----------------------------------------------------------------------------------------------------------------


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
    market = inactive(0, "call", interval=1, beat=NEVER, tie="mid", init_depth=0, tick_size=tick_size)
    market.decision(None, t)
    market.book.resting[BUY][12] = market.book.resting[SELL][7] = 1
    assert market.interval()["last_price"] == price


def test_agents_see_learned_quotes_where_the_book_is_built_in():
    market = inactive(2, interval=1, beat=NEVER)
    assert market.interval([bid(7, 1), ask(11, 4), bid(11, 10)])["mid2"] == 22  # twice the last price
    assert market.mid2() == 7 + 11
    market.interval([NONE, [6, 1, 99, 1], NONE])  # 99 is off the grid
    assert market.mid2() == 22


# The grid -------------------------------------------------------------------------------------------------------------


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
    market = inactive(0, interval=1, beat=1, tick_size=4, collar=5, init_depth=0)
    seen = market.interval([[7, 2, 9, 2]])
    assert seen["quotes"] == [[4, 2, 12, 2]]
    place = market.quotes[0][0][BUY][0].moment
    assert market.interval([[6, 1, 10, 1]])["quotes"] == [[4, 1, 12, 1]]  # the same prices after the levers
    assert market.quotes[0][0][BUY][0].moment == place
    assert market.interval([[40, 1, 41, 1]])["quotes"] == [[12, 1, 44, 1]]  # 40 is cut to 8 + 5, down to 12


def test_the_collar_is_around_the_last_price_of_the_last_beat():
    market = inactive(0, interval=1, beat=4, collar=2)
    market.interval()
    assert market.interval([bid(9, 1)])["last_price"] == 9
    prices = [market.interval([bid(14, 1)])["quotes"][0][0] for _ in range(3)]
    assert prices == [8 + 2, 8 + 2, 9 + 2]  # the third comes after beat 1


def test_regimes_are_drawn_at_beats():
    changes = [{"noise_spread": 0}, {"noise_spread": 30}, {}]
    market = inactive(0, interval=2, beat=2, regimes=changes, regime_switch_prob=1.0)
    key = episode_key(0, 0)
    assert market.regime == (word(key, 0, 2**30 + 8) >> 32) * 3 >> 32
    assert [market.interval()["regime"] for _ in range(9)] == [
        (word(key, b, 2**30 + 7) >> 32) * 3 >> 32 for b in range(9)
    ]
    still = inactive(0, interval=2, beat=2, regimes=changes, regime_switch_prob=0.0)
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
