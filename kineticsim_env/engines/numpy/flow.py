"""Events of a fitted order flow: docs/model.md, "Order flow". All is counted anew at each; orders are in lives.py.

Every step is of all markets, and has a mask of those that it concerns: an event ends early in some, and jumps last in
others.
"""

from typing import NamedTuple

import numpy as np

from kineticsim_env.engines.numpy import beats, lives, queues, under_way
from kineticsim_env.engines.numpy.agents import added_order_at, look
from kineticsim_env.engines.numpy.auction import observed_mid2, quotes_on_grid
from kineticsim_env.engines.numpy.lives import EDGES, GROUP_OF, MOST_ORDERS
from kineticsim_env.engines.numpy.orders import View
from kineticsim_env.engines.numpy.rules import bits
from kineticsim_env.engines.numpy.state import (
    AFTER,
    EVENTS,
    LAST_JUMP,
    LAST_TRADE,
    LEFT,
    LIMIT,
    NOW,
    STATE,
    TIME,
    WORD_FLOW,
    WORD_WALK,
    Markets,
)
from kineticsim_env.engines.numpy.trades import check_resting, trade

NOTHING, MARKET, LIMIT_ORDER, CANCELLATION = range(4)  # what an event does
MOST_WEIGHT, MOST_TIME = 2**40, 2**62
LOG2 = np.rint(2**16 * np.log2(1 + np.arange(257) / 256)).astype(np.int64)
FIRST, WIDTH = EDGES[:-1], np.diff(EDGES)  # of bands


class Deed(NamedTuple):
    """What an event does in each market, [m] each."""

    kind: np.ndarray  # NOTHING, MARKET, LIMIT_ORDER or CANCELLATION
    side: np.ndarray  # 0: of bids, or a market order that meets them; 1: of asks
    tick: np.ndarray  # of a limit order or a cancellation,
    life: np.ndarray  # 0: a fleeting order, 1: a lasting one
    units: np.ndarray


class Event(NamedTuple):
    """What came of an event, for tests."""

    deed: Deed
    fled: np.ndarray  # bool [m], whether the deed is of a jump's flight
    traded: np.ndarray  # [m], units
    made_up: np.ndarray  # [m, 2], units of bids and asks at new ticks,
    left_behind: np.ndarray  # [m, 2], and of those that have left the grid


def flow_interval(m: Markets) -> tuple[np.ndarray, np.ndarray]:
    """Play one interval; return volume [m] and fills [m, K, 2]. On an error markets are left half done."""
    volume, fills = m.volume, np.zeros((*m.cash.shape, 2), np.int64)
    m.signed_volume, came = np.zeros_like(volume), np.zeros_like(m.t)
    if m.has_lengths:
        play_length(m, came, fills)
    else:
        for place in range(m.params["interval"][0]):
            play_event(m, m.first_event + place, came, fills)
    m.t = m.t + 1
    m.trades = m.trades + (m.volume > volume)
    return m.volume - volume, fills


def play_length(m: Markets, came: np.ndarray, fills: np.ndarray) -> None:
    """Play an interval that has a length, of which each market has events of its own number."""
    begin, most = m.flow[:, EVENTS], m.params["interval"]
    end = m.flow[:, NOW] + m.interval_length
    m.check(end >= MOST_TIME, "the flow's time would reach 2^62 nanoseconds (reset it more often)")
    while True:
        due = np.where(m.due[:, 0] > 0, m.due[:, 0] - 1, end)
        g, latest = m.flow[:, EVENTS], np.minimum(due, end)
        comes, full = next_time(m, g)[1] <= latest, (g - begin) % 2**32 == most
        plays, arrives = comes & ~full, ~(comes & ~full) & (due < end)
        if plays.any():
            some, numbers = m.of(plays), (came[plays], fills[plays])
            play_event(some, g[plays], *numbers)
            some.flow[:, EVENTS] = (g[plays] + 1) % 2**32
            m.take_back(some, plays)
            came[plays], fills[plays] = numbers
        if arrives.any():
            under_way.arrive_now(m, arrives, came, fills)
        elif not plays.any():
            break
    m.flow[:, NOW] = np.where(comes, m.flow[:, TIME], end)


def play_event(m: Markets, g: np.ndarray, came: np.ndarray, fills: np.ndarray) -> Event:
    """Play event g, [m]; `came` and `fills` are as in `under_way.arrive`."""
    made_up, left_behind = hold_beat(m, g, g % m.params["beat"] == 0)
    m.flow[:, STATE], m.flow[:, TIME] = next_time(m, g)
    m.check(m.flow[:, TIME] >= MOST_TIME, "the flow's time would reach 2^62 nanoseconds (reset it more often)")
    if not m.has_lengths:
        under_way.arrive(m, g, came, fills)
    before = np.stack(lives.best(m))
    deed, fled, traded = flow_acts(m, g, fills) if not m.groups else flow_or_agents_act(m, g, fills)
    moved = (np.stack(lives.best(m)) != before).any(axis=0)
    m.flow[:, AFTER] = np.where(traded > 0, 2, moved)
    return Event(deed, fled, traded, made_up, left_behind)


def flow_acts(m: Markets, g: np.ndarray, fills: np.ndarray) -> tuple[Deed, np.ndarray, np.ndarray]:
    """Return what the flow does at event g, whether that is of a flight, bool [m], and what trades, [m]."""
    flight, over, calm = flee(m, g)
    word = m.word(WORD_FLOW + 2, g)
    begins = calm & (bits(word, 0, 32) < m.table("jump_hazard"))
    way = same_or_other(m.flow[:, LAST_JUMP], bits(word, 32, 16) < m.table("jump_same"))
    begin_jump(m, begins, way, bits(word, 48, 4))
    chosen = choose(m, g, ~over)
    deed = Deed(*(np.where(over, one, other) for one, other in zip(flight, chosen, strict=True)))
    traded = carry_out(m, g, deed, fills)
    word = m.word(WORD_FLOW + 1, g)
    follows = (m.flow[:, LEFT] == 0) & (bits(word, 20, 16) < m.table("jump_after_trade"))
    begin_jump(m, (chosen.kind == MARKET) & follows, 2 * deed.side - 1, bits(word, 36, 4))
    return deed, over, traded


def flow_or_agents_act(m: Markets, g: np.ndarray, fills: np.ndarray) -> tuple[Deed, np.ndarray, np.ndarray]:
    """Return what `flow_acts` does; where an agent comes, that nothing else is done, and what its order trades."""
    comes = bits(m.word(WORD_FLOW + 5, g), 0, 16) < m.agent_threshold
    found = [np.zeros_like(m.t) for _ in range(len(Deed._fields) + 2)]
    for chosen, agent in ((comes, True), (~comes, False)):
        if chosen.any():
            some, theirs = m.of(chosen), fills[chosen]
            if agent:
                parts = [*(np.zeros_like(some.t) for _ in found[:-1]), agent_acts(some, g[chosen], theirs)]
            else:
                deed, fled, traded = flow_acts(some, g[chosen], theirs)
                parts = [*deed, fled, traded]
            for all_markets, part in zip(found, parts, strict=True):
                all_markets[chosen] = part
            m.take_back(some, chosen)
            fills[chosen] = theirs
    return Deed(*found[:-2]), found[-2] > 0, found[-1]


def agent_acts(m: Markets, g: np.ndarray, fills: np.ndarray) -> np.ndarray:
    """Let an agent that users have added come at event g; return what its order trades, [m]."""
    each, coin = np.arange(len(m.rows)), bits(m.word(WORD_WALK, g // m.params["beat"]), 16, 1)
    agent = bits(m.word(WORD_FLOW + 5, g), 32, 32) * m.params["num_agents"] >> 32
    view = View(observed_mid2(m), m.ret, m.beat_price, coin)
    seen = look(m, view, g, quotes_on_grid(m))
    sells, tick, quantity, fired = added_order_at(m, agent, m.word(0, g), view, seen)
    traded = trade(m, ~sells, tick, quantity, fills)
    left = np.where(fired, 0, quantity - traded)
    rests, side, lasting = (left > 0) & (m.lives[each, 1, tick] < MOST_ORDERS), sells.astype(np.int64), np.ones_like(g)
    lives.rest(m, rests, side, tick, lasting, left)
    check_resting(m, ~sells, left * rests)
    return traded


# ------------------------------------------------------------------------------------------- before anything is drawn


def hold_beat(m: Markets, g: np.ndarray, due: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hold a beat where it is due; return the units, [m, 2] each, that came with new ticks and left with old ones."""
    before = np.stack([m.bid.sum(axis=1), m.ask.sum(axis=1)], axis=1)
    shift = beats.slide_window(m, observed_mid2(m), due)
    queues.follow_grid(m, shift != 0)
    left_behind = before - np.stack([m.bid.sum(axis=1), m.ask.sum(axis=1)], axis=1)
    made_up = lives.follow_grid(m, g, shift)
    b = g // m.params["beat"]
    beats.switch_regime(m, b, due)
    beats.walk_fundamental(m, b, due)
    beats.take_return(m, observed_mid2(m), due)
    m.beat_price = np.where(due, m.last_price, m.beat_price)
    return made_up, left_behind


def next_time(m: Markets, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the clock's state with event g, and the time of that event, [m] each."""
    word, flow = m.word(WORD_FLOW + 3, g), m.flow
    follow = m.table("follow", flow[:, AFTER], flow[:, STATE])
    state = (bits(word, 32, 16)[:, None] >= follow).sum(axis=1)
    return state, flow[:, TIME] + (m.table("gap", state) * exponential(bits(word, 0, 32)) >> 16)


def exponential(u32: np.ndarray) -> np.ndarray:
    """Return 2^16 times -log2 of a uniform number, given 32 random bits: log2 is linear between multiples of 1/256."""
    x = u32 + 1
    highest = np.frexp(x.astype(np.float64))[1].astype(np.int64) - 1  # exact, as x is at most 2^32
    y = (x << (32 - highest)) - 2**32
    i, h = y >> 24, (y >> 8) % 2**16
    return ((32 - highest) << 16) - (LOG2[i] + ((LOG2[i + 1] - LOG2[i]) * h >> 16))


# ------------------------------------------------------------------------------------------------------------- jumps


def same_or_other(way: np.ndarray, same: np.ndarray) -> np.ndarray:
    return np.where(same, way, -way)


def begin_jump(m: Markets, begins: np.ndarray, way: np.ndarray, number: np.ndarray) -> None:
    """Begin a jump up (way 1) or down (-1) where it `begins`, bool [m]."""
    (bid, ask), size = lives.best(m), m.table("jump_size", number)
    limit = np.where(way == 1, ask + size, bid - size) + m.price_origin
    for column, value in ((LEFT, m.table("jump_events")), (LAST_JUMP, way), (LIMIT, limit)):
        m.flow[:, column] = np.where(begins, value, m.flow[:, column])


def flee(m: Markets, g: np.ndarray) -> tuple[Deed, np.ndarray, np.ndarray]:
    """Return what a jump that lasts does, where the event ends with that, and where a jump may begin, bool [m]."""
    word, flow, each = m.word(WORD_FLOW + 2, g), m.flow, np.arange(len(m.rows))
    lasts = flow[:, LEFT] > 0
    flow[:, LEFT] -= lasts
    flees = lasts & (bits(word, 63, 1) == 0)
    side = (flow[:, LAST_JUMP] == 1).astype(np.int64)
    there = lives.orders(m)[each, side].sum(axis=1)
    price, limit = np.arange(m.num_levels) + m.price_origin[:, None], flow[:, LIMIT, None]
    better = (there > 0) & np.where(side[:, None] == 1, price < limit, price > limit)
    over = flees & better.any(axis=1)
    flow[:, LEFT] = np.where(flees & ~over, 0, flow[:, LEFT])

    lowest, highest = np.argmax(better, axis=1), m.num_levels - 1 - np.argmax(better[:, ::-1], axis=1)
    from_best = bits(word, 62, 1) == 0
    tick = np.where(from_best == (side == 1), lowest, highest)
    drawn = bits(word, 32, 16) * there[each, tick] >> 16
    life = (drawn >= m.lives[each, 0, tick]).astype(np.int64)
    units = lives.units_that_go(m, side, tick, life, bits(word, 48, 4))
    trades = bits(word, 0, 16) < m.table("jump_traded")
    kind = np.where(over & (there.sum(axis=1) > 1), np.where(trades, MARKET, CANCELLATION), NOTHING)
    units = np.where(trades, np.minimum(units, all_but_one(m, side)), units)
    return Deed(kind, side, tick, life, units), over, ~lasts


def all_but_one(m: Markets, side: np.ndarray) -> np.ndarray:
    """Return the built-in units of a side, [m], less one."""
    return np.maximum(np.where(side == 1, m.ask.sum(axis=1), m.bid.sum(axis=1)) - 1, 0)


# -------------------------------------------------------------------------------------------------------- the choice


def choose(m: Markets, g: np.ndarray, goes_on: np.ndarray) -> Deed:
    """Return what an event does that `goes_on` to the choice, bool [m]; and remember which way market orders go."""
    each, word = np.arange(len(m.rows)), m.word(WORD_FLOW + 1, g)
    bid, ask = lives.best(m)
    limit = m.table("limit")[each, :, np.minimum(np.maximum(ask - bid, 1), 3) - 1]  # [m, side, band]
    life = np.arange(2)[:, None]
    cancel = lives.orders(m) * m.table("cancel", life, lives.bands(m)[:, :, None])  # [m, side, life, L]
    cancel_of_side = cancel.sum(axis=(2, 3))
    too_much = goes_on & (cancel_of_side >= MOST_WEIGHT).any(axis=1)
    m.check(too_much, "a side's weight of cancellations would reach 2^40 (reset it more often)")
    weights = np.concatenate([m.table("market")[:, None], limit.sum(axis=2), cancel_of_side], axis=1)
    part, r = fall(high_product(m.word(WORD_FLOW, g), weights.sum(axis=1)), weights)
    kind = np.select([~goes_on, part == 0, part <= 2, part <= 4], [NOTHING, MARKET, LIMIT_ORDER, CANCELLATION], NOTHING)

    way = same_or_other(m.flow[:, LAST_TRADE], bits(word, 0, 16) < m.table("market_same"))
    m.flow[:, LAST_TRADE] = np.where(kind == MARKET, way, m.flow[:, LAST_TRADE])
    side = np.where(kind == MARKET, way == 1, part % 2 == 0).astype(np.int64)
    units = np.minimum(m.table("market_size", bits(word, 16, 4)), all_but_one(m, side))
    deed = Deed(kind, side, np.zeros_like(side), np.zeros_like(side), units)
    deed = choose_limit_order(m, word, deed, r, limit[each, side])
    return choose_cancellation(m, word, deed, r, cancel[each, side])


def fall(r: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return into which of weights [m, n] numbers r, [m], fall, n beyond all, and r less the weights before."""
    upto = np.cumsum(weights, axis=1)
    part = (r[:, None] >= upto).sum(axis=1)
    before = np.where(part > 0, np.take_along_axis(upto, np.maximum(part - 1, 0)[:, None], axis=1)[:, 0], 0)
    return part, r - before


def high_product(word: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Return `word * number >> 64` of uint64 and non-negative int64, by halves of 32 bits."""
    half, low, number = np.uint64(32), np.uint64(2**32 - 1), number.astype(np.uint64)
    word_high, word_low, high_part, low_part = word >> half, word & low, number >> half, number & low
    middle = word_high * low_part + (word_low * low_part >> half)
    other = word_low * high_part + (middle & low)
    return (word_high * high_part + (middle >> half) + (other >> half)).astype(np.int64)


def choose_limit_order(m: Markets, word: np.ndarray, deed: Deed, r: np.ndarray, weights: np.ndarray) -> Deed:
    """Return the deeds with those that are limit orders; `weights` of their side's bands, [m, bands]."""
    chosen, each = deed.kind == LIMIT_ORDER, np.arange(len(m.rows))
    band = np.minimum(fall(r, weights)[0], len(FIRST) - 1)
    distance = FIRST[band] + (bits(word, 0, 16) * WIDTH[band] >> 16)
    bid, ask = lives.best(m)
    tick = np.where(deed.side == 1, bid + distance, ask - distance)
    life = (bits(word, 16, 16) >= m.table("fleeting", band)).astype(np.int64)
    units = m.table("limit_size", deed.side, life, GROUP_OF[band], bits(word, 32, 4))
    inside = (tick >= 0) & (tick < m.num_levels)
    tick = np.where(inside, tick, 0)
    rests = inside & (m.lives[each, life, tick] < MOST_ORDERS)
    kind = np.where(chosen & ~rests, NOTHING, deed.kind)
    return Deed(kind, deed.side, *(np.where(chosen, *x) for x in zip((tick, life, units), deed[2:], strict=True)))


def choose_cancellation(m: Markets, word: np.ndarray, deed: Deed, r: np.ndarray, weights: np.ndarray) -> Deed:
    """Return the deeds with those that are cancellations; `weights` of their side's lives and ticks, [m, 2, L]."""
    chosen, each, last = deed.kind == CANCELLATION, np.arange(len(m.rows)), m.num_levels - 1
    outwards = np.where(deed.side[:, None, None] == 1, weights, weights[..., ::-1])
    place = fall(r, outwards.transpose(0, 2, 1).reshape(len(each), -1))[0]  # tick after tick, in each life after life
    tick, life = np.minimum(place, 2 * last + 1) // 2, place % 2
    tick = np.where(deed.side == 1, tick, last - tick)
    units = lives.units_that_go(m, deed.side, tick, life, bits(word, 36, 4))
    goes = lives.orders(m)[each, deed.side].sum(axis=(1, 2)) > 1
    kind = np.where(chosen & ~goes, NOTHING, deed.kind)
    return Deed(kind, deed.side, *(np.where(chosen, *x) for x in zip((tick, life, units), deed[2:], strict=True)))


def carry_out(m: Markets, g: np.ndarray, deed: Deed, fills: np.ndarray) -> np.ndarray:
    """Do it, and return how many units trade, [m]."""
    asks = deed.side == 1
    quantity = np.where(deed.kind == MARKET, deed.units, 0)
    traded = trade(m, asks, np.where(asks, m.num_levels - 1, 0), quantity, fills)
    lives.remove(m, g, deed.kind == CANCELLATION, *deed[1:])
    rests = deed.kind == LIMIT_ORDER
    lives.rest(m, rests, *deed[1:])
    check_resting(m, ~asks, deed.units * rests)
    return traded
