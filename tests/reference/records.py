"""Order records of slots: what of them is submitted, and in which form `Reference` takes it (docs/environment.md).

A record has of each level bid price, bid quantity, ask price, ask quantity, and the flags of the bid and of the ask as
sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .orders import BUY, MAX_PRICE, SELL

KEEP, POST_ONLY, IMMEDIATE_OR_CANCEL, MARKET = 1, 2, 4, 8
WORDS = {KEEP: "keep", POST_ONLY: "post-only", IMMEDIATE_OR_CANCEL: "ioc", MARKET: "market"}
MOST_UNITS = 1 << 20  # of an order
SIDES = ((0, BUY), (1, SELL))  # of each side its place in a record


def nothing(levels: int) -> list[list[int]]:
    return [[0] * 6 for _ in range(levels)]


def admitted(record: Sequence[Sequence[int]], side: int, left: int, stands: Sequence[int]) -> list[list[int]]:
    """What of a record is submitted: all numbers in range, and no more than is left of a block or a target.

    Args:
        record: The slot's.
        side: That of its block or target; 0 without one.
        left: What remains of that.
        stands: Units of each level that stand on that side.
    """
    result = []
    for level, standing in zip(record, stands, strict=True):
        numbers, flags = cut_numbers(level), list(level[4:])
        for place, way in SIDES:
            units = 2 * place + 1
            if side and way != side:
                numbers[units], flags[place] = 0, flags[place] & KEEP
            elif side:
                numbers[units] = min(numbers[units], left)
                left = max(0, left - (standing if flags[place] & KEEP else numbers[units]))
            if not numbers[units]:
                numbers[units - 1] = 0
        result.append(numbers + flags)
    return result


def cut_numbers(level: Sequence[int]) -> list[int]:
    """Prices and quantities of a level, cut to what an order may have."""
    bid, bid_qty, ask, ask_qty = level[:4]
    prices = [min(max(price, -MAX_PRICE), MAX_PRICE) for price in (bid, ask)]
    units = [min(max(quantity, 0), MOST_UNITS) for quantity in (bid_qty, ask_qty)]
    return [prices[0], units[0], prices[1], units[1]]


def of_program(flags: int) -> int:
    """A program's flags: of those that exclude each other post-only means nothing."""
    return flags & 15 & ~(POST_ONLY if flags & (IMMEDIATE_OR_CANCEL | MARKET) else 0)


def as_quotes(submitted: Sequence[Sequence[Sequence[int]]], flags: bool) -> list[Any]:
    """All slots' records as `Reference` has quotes: flags as words, or without; without levels where there is one."""

    def form(level: Sequence[int]) -> list[Any]:
        return [*level[:4], *map(_words, level[4:])] if flags else list(level[:4])

    quotes = [[form(level) for level in ladder] for ladder in submitted]
    return [ladder[0] if len(ladder) == 1 else ladder for ladder in quotes]


def _words(flags: int) -> str:
    return " ".join(word for bit, word in WORDS.items() if flags & bit)
