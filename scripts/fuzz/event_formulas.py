"""Statistics of order events in plain Python, from the docstrings alone: what `formulas.py` compares `measure` with.

The book is a mapping of prices to lots for each side, and every event is looked at by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kineticsim_env.data.events import ADD, BID, EXECUTE, OrderEvents

Numbers = dict[str, list[float]]  # by score, and of each event its "kind"
SIDES, NOWHERE = ("bid", "ask"), 10**12
SCORES = ("spread", "imbalance", "log_limit_size", "order_flow_imbalance") + tuple(
    f"{side}_{what}" for side in SIDES
    for what in ("volume_touch", "volume", "limit_depth", "cancel_depth", "limit_level", "cancel_level")
)  # fmt: skip


def drawn(rng: np.random.Generator) -> dict[str, Callable[[Numbers], list[float]]]:
    """Return some statistics, by their texts, and what they are of the numbers of a market."""
    scores = [str(name) for name in rng.permutation(SCORES)[: int(rng.integers(1, 5))]]
    one, levels = str(rng.choice(SCORES)), [0.0, float(rng.random()), 1.0]
    kinds = [str(kind) for kind in rng.permutation(["add", "cancel", "execute"])[: int(rng.integers(1, 4))]]
    return {
        f"event_mean(score={scores})": lambda of: [_mean(of[name]) for name in scores],
        f"event_quantile(score={one!r}, level={levels})": lambda of: [_quantile(of[one], level) for level in levels],
        f"event_share(kind={kinds})": lambda of: [
            _mean([float(each == kind) for each in of["kind"]]) for kind in kinds
        ],
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _quantile(values: list[float], level: float) -> float:
    if not values:
        return math.nan
    place, ordered = level * (len(values) - 1), sorted(values)
    low = int(place)
    return ordered[low] + (place - low) * (ordered[min(low + 1, len(values) - 1)] - ordered[low])


def numbers(events: OrderEvents) -> Numbers:
    """Return what each event after the opening, or the order that it is of, adds to each score."""
    found: Any = {name: [] for name in (*SCORES, "kind")}
    book: list[dict[int, int]] = [{}, {}]
    columns = (events.kind, events.side, events.price, events.size)
    opening, flows = int(events.opening.sum()), []
    for i, (kind, sign, price, size) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        side, before = int(sign != BID), [_levels(book, one) for one in (0, 1)]
        book[side][price] = book[side].get(price, 0) + (size if kind == ADD else -size)
        if not book[side][price]:
            del book[side][price]
        after = [_levels(book, one) for one in (0, 1)]
        if i:
            flows.append(_added(before[0], after[0], 1) - _added(before[1], after[1], -1))
        if i < opening:
            flows = []
            continue
        (bid, bids), (ask, asks) = (levels[0] if levels else (0, 0) for levels in after)
        both = bool(bids and asks)
        found["kind"].append("add" if kind == ADD else "execute" if kind == EXECUTE else "cancel")
        found["spread"] += [ask - bid] * both
        found["imbalance"] += [(bids - asks) / (bids + asks)] if bids + asks else []
        for name, levels in zip(SIDES, after, strict=True):
            found[f"{name}_volume_touch"].append(sum(lots for _, lots in levels[:1]))
            found[f"{name}_volume"].append(sum(lots for _, lots in levels))
        if kind == ADD:
            found["log_limit_size"].append(math.log(size))
        if kind != EXECUTE:
            name = f"{SIDES[side]}_{'limit' if kind == ADD else 'cancel'}"
            found[f"{name}_depth"] += [abs(price - (bid + ask) / 2)] * both
            there = [one for one, _ in (after if kind == ADD else before)[side]]
            found[f"{name}_level"] += [there.index(price) + 1] if price in there else []
    found["order_flow_imbalance"] = [sum(flows[j : j + 100]) / 100 for j in range(len(flows) - 99)]
    return found


def _levels(book: list[dict[int, int]], side: int) -> list[tuple[int, int]]:
    """Return the ten best prices of a side and their lots."""
    return sorted(book[side].items(), reverse=side == 0)[:10]


def _added(before: list[tuple[int, int]], after: list[tuple[int, int]], way: int) -> int:
    """Return what an event adds to a side's best price; a better price counts with all its lots."""
    (old, lots), (new, now) = (levels[0] if levels else (-way * NOWHERE, 0) for levels in (before, after))
    better = (new - old) * way
    return now * (better >= 0) - lots * (better <= 0)
