"""Random fields and quotes for whatever is compared with the reference: small markets in which much happens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from .rules import CLASSES


def random_fields(rng: random.Random, mechanism: str, arrivals: str = "clock") -> dict[str, Any]:
    """Fields of one market; every option and lever is off in about half of the draws."""
    pick = rng.choice

    def maybe(off: Any, *on: Any) -> Any:
        return off if rng.random() < 0.5 else pick(on)

    levels = pick([8, 16, 32, 64])
    agents = pick([1, 2, 3, 7, 20])
    weights = [rng.random() * maybe(0, 1) for _ in CLASSES]
    shares = [weight / sum(weights) for weight in weights] if sum(weights) else [1.0, 0.0, 0.0, 0.0]
    fields: dict[str, Any] = dict(zip(CLASSES, shares, strict=True))
    fields |= {
        "mechanism": mechanism,
        "arrivals": arrivals,
        "num_levels": levels,
        "num_agents": agents,
        "init_price": rng.randint(1, levels - 2),
        "init_depth": pick([0, 1, 8, 50]),
        "max_order_qty": pick([1, 4, 30]),
        "noise_spread": pick([0, 2, levels // 3, 2 * levels]),
        "maker_half_spread": pick([0, 1, 4, levels]),
        "market_order_prob": pick([0.0, 0.1, 0.4, 1.0]),
        "cancel_prob": maybe(0.0, 0.05, 0.4, 1.0),
        "window": maybe(0, 1, levels // 4, levels // 2 - 1),
        "tie": maybe("lowest", "mid"),
        "residue": maybe("rest", "cancel"),
        "fundamental_price": maybe(None, rng.randint(-levels, 2 * levels)),
        "inventory_limit": maybe(None, 0, 5, 40),
        "max_quote_qty": maybe(1 << 20, 3, 20),
        "fee": maybe(0, -30, 250),
        "rounding": pick(["even", "coin"]),
        "reference": maybe("mid", "fundamental"),
        "taker_offset": maybe(1, 0, 3, levels),
        "tax": maybe(0, 1, 5),
        "collar": maybe(0, 1, 4),
        "tick_size": maybe(1, 2, 3, 8),
    }
    if rng.random() < 0.15:  # thin: one side is often empty, and the grid moves by many ticks at once
        fields |= {"init_depth": 0, "num_agents": 2, "window": 1, "reference": "mid", "max_order_qty": 4}
        fields |= {"cancel_prob": pick([0.0, 0.6]), "collar": 0, "noise_spread": levels, "market_order_prob": 0.1}
    if fields["window"]:
        fields |= {"walk_prob": maybe(0.0, 0.3, 1.0), "jump_prob": maybe(0.0, 0.2), "jump_size": pick([1, 5, levels])}
    if arrivals == "clock":
        fields |= {"interval": maybe(None, 1, 2, 5, 31), "beat": maybe(None, 1, 3, 8, 50)}
    if mechanism == "continuous":
        latency = random_latency(rng, fields["interval"] or agents)
        fields |= {"quote_latency": latency, "taker_fee": maybe(0, -10, 100)}
    if rng.random() < 0.4:
        changes = [{"noise_spread": levels // 2, "cancel_prob": 0.2}, {"market_order_prob": 0.8}, {"max_order_qty": 9}]
        fields |= {"regimes": [{}, *changes[: rng.randint(1, 3)]], "regime_switch_prob": pick([0.0, 0.2, 1.0])}
    return fields


def random_latency(rng: random.Random, events: int) -> int:
    """A latency of quotes, of so many events per interval: often none, below, at or above it, rarely of an episode."""
    below = [0, 0, 0, 1, events - 1, rng.randrange(events)]
    above = [events, events, events + 1, 2 * events, 4 * events + 1, 30 * events, 1000]
    return rng.choice([*below, *above, *(rng.randint(events, 12 * events) for _ in range(4))])


def random_slots(rng: random.Random, fields: dict[str, Any]) -> tuple[str | None, ...]:
    """Up to four slots, at most one of which replaces an agent: of a class that has one for certain."""
    slots: list[str | None] = [None] * rng.randint(0, 4)
    sure = [name for name in CLASSES if fields[name] * fields["num_agents"] >= 1]
    if slots and sure and rng.random() < 0.3:
        slots[rng.randrange(len(slots))] = rng.choice(sure)
    return tuple(slots)


def random_quotes(rng: random.Random, seen: dict[str, Any], slots: int) -> list[list[int]]:
    """Quotes near the mid, at the ends, off the grid, on one side; many repeat what stands, as large or smaller."""
    mid, low, levels = seen["mid2"] // 2, seen["price_origin"], len(seen["bid"])
    ends = [low - 3, low - 1, low, low + 1, low + levels - 2, low + levels - 1, low + levels, low + levels + 9]
    quotes = []
    one_side = rng.choice([None, None, None, 0, 2])  # all slots on it, anywhere: the grid's end may take them along
    for slot in range(slots):
        reach = rng.choice([0, 1, 3, levels])
        quote = [mid - rng.randint(-reach // 2, reach), rng.randint(-1, 9)]
        quote += [mid + rng.randint(-reach // 2, reach), rng.randint(-1, 9)]
        if rng.random() < 0.1:
            quote[0::2] = sorted(rng.sample(ends, 2))
        if one_side is not None:
            quote[one_side], quote[3 - one_side] = low + rng.randrange(levels), 0
        standing = seen["quotes"][slot]
        for side in (0, 2):
            if rng.random() < 0.5 and one_side in (None, side):
                quote[side] = standing[side]
                quote[side + 1] = max(0, standing[side + 1] - rng.choice([0, 0, 0, 1, -2]))
        quotes.append(quote)
    return quotes


def random_ladders(rng: random.Random, seen: dict[str, Any], slots: int, levels: int) -> list[list[list[int]]]:
    """Quotes of `levels` levels per slot: [slot][level][4].

    As `random_quotes`, but many sides repeat with more or less than stands at both places, some have an earlier
    level's price, and half of the ladders lie beside the mid, where levels do not cross each other. Some slots only
    take from others' queues.
    """
    standing = [standing_level(places) for ladder in seen["quotes"] for places in ladder]
    quotes = random_quotes(rng, {**seen, "quotes": standing}, slots * levels)
    mid = seen["mid2"] // 2
    for slot in range(slots):
        ladder, calm = quotes[slot * levels :][:levels], rng.random() < 0.5
        for level, quote in enumerate(ladder):
            for side in (0, 2):
                price, quantity = standing[slot * levels + level][side : side + 2]
                what = rng.random()
                if quantity and what < 0.7:
                    more = rng.choice([0, 0, 1, 3, 8, 30, -1, -2, 1 - quantity])
                    quote[side : side + 2] = price, max(0, quantity + more)
                elif level and what < 0.8:
                    quote[side] = ladder[rng.randrange(level)][side]
                elif calm:
                    off = rng.randint(0, 2)
                    quote[side] = max(quote[side], mid + 1 + off) if side else min(quote[side], mid - off)
        if rng.random() < 0.15:
            side, taker = rng.choice([0, 2]), rng.choice(ladder)
            for quote in ladder:
                quote[1] = quote[3] = 0
            taker[side : side + 2] = mid + (-4 if side else 4), rng.choice([1, 3, 8, 20])
    return [quotes[slot * levels :][:levels] for slot in range(slots)]


def standing_level(places: Sequence[Sequence[int]]) -> list[int]:
    """What stands of a level in both places together: bid price, bid quantity, ask price, ask quantity."""
    first, second = places
    numbers = []
    for side in (0, 2):
        price = first[side] if first[side + 1] else second[side]
        numbers += [price, first[side + 1] + second[side + 1]]
    return numbers


def suitable_quotes(rng: random.Random, seen: dict[str, Any], slots: int, levels: int) -> list:
    """Quotes of slots with so many orders per side: [slot][4], or [slot][level][4] of ladders."""
    return random_quotes(rng, seen, slots) if levels == 1 else random_ladders(rng, seen, slots, levels)


def play(reference: Any, rng: random.Random, decisions: int) -> list[tuple[Sequence | None, int, list[dict]]]:
    """Play random decisions; return each one's quotes, its number of intervals, and what was seen after each."""
    played, levels = [], reference.rules.orders_per_side
    for _ in range(decisions):
        seen = reference.observe()
        given = seen["quotes"] and rng.random() < 0.8
        quotes = suitable_quotes(rng, seen, len(seen["quotes"]), levels) if given else None
        n = rng.choice([1, 1, 2, 5])
        played.append((quotes, n, reference.decision(quotes, n)))
    return played
