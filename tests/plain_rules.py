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
