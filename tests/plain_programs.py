"""Policies of slots as plain functions, for the reference, and as programs, for engines.

Together they use all that programs see, own, draw and return, numbers that wrap, and orders beyond every bound.
"""

import kineticsim_env as ks

WORD = 3


def quoter(market, slot, own, draw):
    own.turn += 1
    shift = slot.inventory // own.skew
    bid = (market.mid2 >> 1) - own.half - shift - draw.below(3)
    return ks.quote(bid, slot.max_qty, bid + 2 * own.half + 1, 1 + draw.below(slot.max_qty, word=WORD))


def worker(market, slot, own, draw):
    part = (slot.remaining + slot.left - 1) // max(slot.left, 1)
    own.done += slot.bought - slot.sold
    if slot.side > 0:
        return ks.quote(bid=market.best_ask, bid_qty=part)
    if slot.side < 0:
        return ks.quote(ask=market.best_bid, ask_qty=part)


def keeper(market, slot, own, draw):
    own.asked = market.t
    if draw.chance(0.5) or slot.elapsed == 0:
        return ks.quote(market.last_price - 1 - draw.below(3), 5, market.last_price + 1 + draw.below(3, word=255), 5)
    if draw.coin():
        return ks.keep()
    return ks.quote(ask_qty=3, ask=market.best_ask, bid_flags=ks.OrderFlag.KEEP, ask_flags=draw.below(16, word=7))


def layered(market, slot, own, draw):
    """Three levels, some of which are kept, larger or at one price."""
    low = (market.mid2 >> 1) - own.near
    high = ((market.mid2 + 1) >> 1) + own.near
    own.ahead = slot.bid_ahead(1) - slot.ask_ahead(0) + slot.bid_qty(2) - slot.ask(1)
    near = 2 if own.ahead < 0 else 4
    flag = draw.below(6, word=1) * draw.coin()
    return ks.quotes(
        ks.quote(low, near + draw.below(5), high, near, flag, 0),
        ks.quote(low - draw.coin(), 9, high + 1, 9 + slot.ask_qty(1), bid_flags=slot.bid_qty(1) > 3),
        ks.quote(slot.bid(2), slot.bid_qty(2) + 1, high, 1, 0, flag),
    )


def seer(market, slot, own, draw):
    """Mixes all that there is to see into its memory, which decides what it does."""
    mixed = market.mid2 * 3 + market.ret * 5 + market.last_price * 7 + market.t * 11 + market.fundamental * 13
    mixed += market.best_bid * 17 + market.best_ask * 19 + market.best_bid_qty * 23 + market.best_ask_qty * 29
    mixed ^= slot.inventory * 31 + slot.cash * 37 + slot.bought * 41 + slot.sold * 43 + slot.elapsed * 47
    mixed += slot.left * 53 + slot.remaining * 59 + slot.side * 61 + slot.arrival2 * 67 + slot.max_qty * 71
    mixed += slot.max_offset * 73 + slot.max_quote_qty * 79 + slot.inventory_limit * 83
    for n in range(3):
        mixed = mixed * 5 + slot.bid(n) + slot.bid_qty(n) * 3 + slot.bid_ahead(n) * 7
        mixed = mixed * 9 + slot.ask(n) + slot.ask_qty(n) * 3 + slot.ask_ahead(n) * 7
    for i in range(4):
        mixed = mixed * 13 + slot.mid_change(i) * 17 + slot.volume(i)
    own.mixed ^= mixed
    own.first += draw.offset(9) + draw.below(1000, word=2) + draw.chance(0.3, word=4)
    own.start += own.price - own.worth + own.units
    what = own.mixed % 7
    if what == 0:
        return None
    if what == 1:
        return ks.keep()
    if what == 2:
        return ks.quote(own.mixed, own.mixed >> 5, own.mixed << 3, own.mixed >> 9, own.mixed >> 3, own.mixed >> 7)
    if what == 3:
        return ks.quote(bid_qty=9, bid_flags=ks.OrderFlag.MARKET)
    if what == 4:
        return ks.quote(ask_qty=9, ask_flags=ks.OrderFlag.IMMEDIATE_OR_CANCEL, ask=market.best_bid - 1)
    return ks.quote(market.best_bid + own.mixed % 3 - 1, 4, market.best_ask + own.mixed % 2, 1 + slot.volume(0) % 7)


def outside(market, slot, own, draw):
    """Looks where there is nothing, and at numbers that 32 bits do not hold."""
    far = own.far
    own.levels = slot.bid(far) + slot.bid_qty(-1) + slot.bid_ahead(far) + slot.ask(-far) + slot.ask_qty(own.levels)
    own.past = slot.mid_change(4) + slot.volume(-1) + slot.mid_change(far) + slot.volume(far)
    own.cash = slot.cash
    own.units = slot.inventory
    own.drawn = draw.below(-1) + draw.offset(-5) + draw.below(2147483647) + draw.offset(2147483647, word=255)
    own.chances = draw.chance(1.0) * 2 + draw.chance(0.0) + draw.chance(own.far) + draw.chance(0.5, word=9)
    own.sums = (own.far // own.zero) + (own.far % own.zero) + (own.far << 35) + (-own.far >> 33) + abs(own.least)
    own.sums += own.least // -1 + own.least % -1 + own.least * own.far - own.far % -7 + -7 // 2
    return ks.quotes(ks.quote(own.least, own.least, own.least - 1, own.far, 18, 31))


FUNCTIONS = {
    quoter: ({"half": 2, "skew": 8}, {"turn": 0}),
    worker: ({}, {"done": "inventory"}),
    keeper: ({}, {"asked": -1}),
    layered: ({"near": 1}, {"ahead": 0}),
    outside: (
        {"far": 70000, "zero": 0, "least": -(2**31)},
        {"levels": 0, "past": 5, "cash": 0, "units": 0, "drawn": 0, "chances": 0, "sums": 0},
    ),
    seer: (
        {"shift": 1},
        {
            "mixed": 12345,
            "first": 7,
            "start": "mid2",
            "price": "last_price",
            "worth": "fundamental",
            "units": "inventory",
        },
    ),
}
POLICIES = {
    function: ks.policy(memory=memory, informed=function is seer, **own)(function)
    for function, (own, memory) in FUNCTIONS.items()
}
ONE_LEVEL = [function for function in FUNCTIONS if function is not layered]
