"""Policies of slots in the language of traders, for tests: what they see goes into prices, sizes, flags and memory."""

import kineticsim_env as ks

MARKET = ("mid2", "ret", "last_price", "best_bid", "best_ask", "best_bid_qty", "best_ask_qty", "t", "fundamental")
SLOT = (
    "inventory", "cash", "bought", "sold", "elapsed", "left", "remaining", "side", "arrival2", "max_qty", "max_offset",
    "max_quote_qty", "inventory_limit",
)  # fmt: skip


@ks.policy(half_spread=2, skew=3)
def plain_maker(market, slot, own, draw):
    low = market.mid2 >> 1
    high = (market.mid2 + 1) >> 1
    shift = slot.inventory // own.skew
    return ks.quote(low - own.half_spread - shift, slot.max_qty, high + own.half_spread - shift, slot.max_qty)


@ks.policy(half_spread=2)
def fixed(market, slot, own, draw):
    """Quotes as `policies.FixedSpread` does."""
    bid = (market.mid2 >> 1) - own.half_spread
    return ks.quote(bid, slot.max_qty, ((market.mid2 + 1) >> 1) + own.half_spread, slot.max_qty)


@ks.policy(patience=3, memory={"waited": 0, "first": "mid2", "held": "inventory"})
def patient(market, slot, own, draw):
    """Works off its block, or goes with the trend; waits in between, keeping what stands."""
    own.waited += 1
    own.held = slot.inventory
    if own.waited % own.patience:
        return ks.keep()
    side = slot.side if slot.side else 1 if market.mid2 > own.first else -1
    price = (market.mid2 >> 1) + draw.offset(2)
    return ks.quote(price, 9, 0, 0) if side > 0 else ks.quote(0, 0, price, 9)


@ks.policy()
def taker(market, slot, own, draw):
    if draw.chance(0.3):
        return None
    if draw.coin(word=1):
        return ks.quote(bid_qty=1 + draw.below(5), bid_flags=ks.OrderFlag.MARKET)
    at_the_ask = ks.OrderFlag.IMMEDIATE_OR_CANCEL if draw.coin(word=2) else ks.OrderFlag.POST_ONLY
    return ks.quote(market.best_ask, 2, market.best_bid, 3, at_the_ask, ask_flags=ks.OrderFlag.KEEP)


@ks.policy(memory={"sum": 7}, informed=True)
def looks_at_all(market, slot, own, draw):
    """Whatever it sees is in what it remembers, and all of that in its order."""
    seen = market.mid2 + 3 * market.ret + 5 * market.last_price + 7 * market.t + 11 * market.fundamental
    seen += 13 * market.best_bid + 17 * market.best_ask + 19 * market.best_bid_qty + 23 * market.best_ask_qty
    seen += 29 * slot.inventory + 31 * slot.cash + 37 * slot.bought + 41 * slot.sold + 43 * slot.elapsed
    seen += 47 * slot.left + 53 * slot.remaining + 59 * slot.side + 61 * slot.arrival2 + 67 * slot.max_qty
    seen += 71 * slot.max_offset + 73 * slot.max_quote_qty + 79 * slot.inventory_limit
    for n in range(9):
        seen = seen * 83 + slot.bid(n) + 3 * slot.bid_qty(n) + 5 * slot.bid_ahead(n)
        seen = seen * 89 + slot.ask(n - 1) + 3 * slot.ask_qty(n - 1) + 5 * slot.ask_ahead(n - 1)
        seen = seen * 97 + slot.mid_change(n - 2) + 3 * slot.volume(n - 2)
    own.sum = own.sum * 101 + seen
    wild = own.sum if own.sum % 16 == 0 else (market.mid2 >> 1) + own.sum % 13 - 6
    return ks.quote(wild, own.sum % 7, wild + 1 + own.sum % 3, own.sum // 7 % 7, own.sum % 3, own.sum // 64 % 16)


@ks.policy(step=2)
def ladder(market, slot, own, draw):
    low = (market.mid2 >> 1) - 1
    kept = ks.OrderFlag.KEEP if slot.bid_qty(1) else 0
    return ks.quotes(
        ks.quote(low, 2, low + 3, 2),
        ks.quote(low - own.step, 3, low + 3 + own.step, draw.below(4), bid_flags=kept),
    )


ONE_LEVEL = (plain_maker, patient, taker, looks_at_all)
