"""The random words and the orders of docs/model.md once more, in plain Python integers, for known answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

GOLDEN = 0x9E3779B97F4A7C15
MASK = 2**64 - 1


def mix64(z: int) -> int:
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return z ^ z >> 31


def word(seed: int, episode: int, t: int, index: int) -> int:
    key = mix64((seed + GOLDEN + episode * 0xD1B54A32D192ED03) & MASK)
    return mix64((key + (t * 2**32 + index + 1) * GOLDEN) & MASK)


def who_comes(seed: int, events: int, agents: int) -> Iterator[int]:
    """Yield the agent that comes at each event of the clock in the first episode of a market."""
    for g in range(events):
        pair = word(seed, 0, g // 2, 2**31 + 2**29)
        yield ((pair >> 32 if g % 2 else pair) & 0xFFFFFFFF) * agents >> 32


@dataclasses.dataclass(frozen=True)
class Moment:
    """What agents see of their market in one auction; all on the grid."""

    seed: int
    episode: int
    t: int
    mid2: int
    ret: int
    fundamental2: int  # doubled, less twice the origin
    levels: int


@dataclasses.dataclass(frozen=True)
class Order:
    buys: bool
    tick: int
    quantity: int
    marketable: bool


def orders(moment: Moment, counts: list[int], fields: dict) -> Iterator[tuple[str, Order]]:
    """Yield class and order of every agent, in agent order; `fields` are the numbers of a `MarketConfig`."""
    agent = 0
    for kind, count in zip(("noise", "momentum", "maker", "fundamental"), counts, strict=True):
        for _ in range(count):
            yield kind, order(moment, kind, agent, fields)
            agent += 1


def order(moment: Moment, kind: str, agent: int, fields: dict) -> Order:
    bits = word(moment.seed, moment.episode, moment.t, agent)
    quantity = 1 + ((bits >> 32 & 0xFFFF) * fields["max_order_qty"] >> 16)
    side = 1 if bits >> 31 & 1 else -1
    if kind == "noise":
        spread = fields["noise_spread"]
        offset = -spread + ((bits >> 48) * (2 * spread + 1) >> 16)
    elif kind == "maker":
        side = 1 if (agent + moment.t) % 2 == 0 else -1
        offset = -side * fields["maker_half_spread"]
    else:
        gap = moment.fundamental2 - moment.mid2
        signal = moment.ret if kind == "momentum" else (gap > 0) - (gap < 0)
        side = offset = signal or side
    last = moment.levels - 1
    tick = min(max(round(moment.mid2 / 2 + offset), 0), last)  # Python rounds halves to even
    marketable = kind != "maker" and bits & 0xFFFFFF < round(fields["market_order_prob"] * 2**24)
    if marketable:
        tick = last if side > 0 else 0
    return Order(side > 0, tick, quantity, marketable)


def apply_pre_trade_limits(quote: list[int], inventory: int, limit: int | None, largest: int) -> list[int]:
    """Return a quote (bid price, bid quantity, ask price, ask quantity) as the pre-trade limits leave it."""
    bid, bid_qty, ask, ask_qty = quote
    bid, ask = (min(max(price, -(2**30)), 2**30) for price in (bid, ask))
    room_to_buy = largest if limit is None else max(0, limit - inventory)
    room_to_sell = largest if limit is None else max(0, limit + inventory)
    bid_qty = min(max(bid_qty, 0), largest, room_to_buy)
    ask_qty = min(max(ask_qty, 0), largest, room_to_sell)
    if bid_qty and ask_qty and bid >= ask:  # the smaller side goes, or both
        bid_qty, ask_qty = (bid_qty if bid_qty > ask_qty else 0), (ask_qty if ask_qty > bid_qty else 0)
    return [bid, bid_qty, ask, ask_qty]


def clear(buy: list[int], sell: list[int], target: int | None = None) -> tuple[int, int, list[int], list[int]]:
    """Return price, volume and the residual sides of a call auction, by trying every price."""
    levels = range(len(buy))
    volumes = [min(sum(buy[p:]), sum(sell[: p + 1])) for p in levels]
    volume = max(volumes)
    best = [p for p in levels if volumes[p] == volume]
    price = best[0] if target is None else min(best, key=lambda p: abs(p - target))
    left_buy, left_sell = list(buy), list(sell)
    for side, ticks in ((left_buy, reversed(levels)), (left_sell, levels)):
        open_volume = volume
        for p in ticks:  # the best prices trade first
            traded = min(open_volume, side[p])
            side[p] -= traded
            open_volume -= traded
    return price, volume, left_buy, left_sell
