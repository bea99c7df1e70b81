"""Policies of slots: what a program sees, draws and returns (docs/slot_policies.md).

The user's plain function runs on `Word`s, with a vocabulary of its own in the place of `ks`; nothing is translated.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping
from types import FunctionType, SimpleNamespace
from typing import Any

from .added import NONE, Draw, wrapped
from .orders import BUY, SELL, Order
from .queues import Queues
from .records import IMMEDIATE_OR_CANCEL, KEEP, MARKET, POST_ONLY
from .words import word

OWN_DRAWS = (1 << 30) + 64  # w_t(this + k): what slot k's role draws
PROGRAM = (1 << 30) + 128  # w_t(this + k): what the program of slot k draws


class Word(int):
    """A whole number of 32 bits: every operation's result is wrapped."""

    def __new__(cls, value: Any = 0) -> Word:
        return super().__new__(cls, wrapped(value))


def _either_way(compute: Callable[[int, int], int]) -> tuple[Any, Any]:
    """An operation, and itself reflected."""
    return (
        lambda self, other: Word(compute(int(self), int(other))),
        lambda self, other: Word(compute(int(other), int(self))),
    )


for _name, _compute in {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": lambda x, y: x // y if y else 0,
    "mod": lambda x, y: x % y if y else 0,
    "lshift": lambda x, y: x << (y & 31),
    "rshift": lambda x, y: x >> (y & 31),
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}.items():
    _plain, _reflected = _either_way(_compute)
    setattr(Word, f"__{_name}__", _plain)
    setattr(Word, f"__r{_name}__", _reflected)
for _name, _sign in {"neg": operator.neg, "abs": abs}.items():
    setattr(Word, f"__{_name}__", lambda self, compute=_sign: Word(compute(int(self))))


def _quote(bid=0, bid_qty=0, ask=0, ask_qty=0, bid_flags=0, ask_flags=0):
    return (tuple(wrapped(number) for number in (bid, bid_qty, ask, ask_qty, bid_flags, ask_flags)),)


FLAGS = SimpleNamespace(KEEP=KEEP, POST_ONLY=POST_ONLY, IMMEDIATE_OR_CANCEL=IMMEDIATE_OR_CANCEL, MARKET=MARKET)
VOCABULARY = SimpleNamespace(
    quote=_quote,
    quotes=lambda *levels: sum(levels, ()),
    keep=lambda: "keep",
    no_order=lambda: (),
    OrderFlag=FLAGS,
)


@dataclasses.dataclass(frozen=True)
class Program:
    """A policy in one market: the user's plain function, its parameters there, and what its memory begins with."""

    function: FunctionType
    parameters: Mapping[str, int]
    memory: Mapping[str, int | str]

    def play(self, market: Any, slot: Any, memory: dict[str, int], draw: Draw) -> Any:
        """Return levels, in a tuple, or "keep"; `memory` changes."""
        own = _Own(self.parameters | memory)
        names = self.function.__globals__ | {"ks": VOCABULARY}
        found = FunctionType(self.function.__code__, names, closure=self.function.__closure__)(market, slot, own, draw)
        memory.update({name: int(getattr(own, name)) for name in memory})
        return () if found is None else found


class _Own:
    def __init__(self, numbers: Mapping[str, int]) -> None:
        for name, number in numbers.items():
            setattr(self, name, number)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, Word(value))


# What is seen ---------------------------------------------------------------------------------------------------------


def cut(number: int) -> int:
    """An account's number in 32 bits."""
    return min(max(number, -NONE), NONE)


def market_seen(market: Any, mid_history: list[int]) -> SimpleNamespace:
    """What stands before a decision; the best prices are of the built-in book alone."""
    seen = market.observe()
    best_bid, best_ask = seen["best_bid"], seen["best_ask"]
    first = seen["price_origin"]
    numbers = {
        "mid2": mid_history[0],
        "ret": sign(mid_history[0] - mid_history[1]),
        "last_price": seen["last_price"],
        "t": seen["t"],
        "fundamental": seen["fundamental"],
        "best_bid": -NONE if best_bid is None else best_bid,
        "best_bid_qty": 0 if best_bid is None else seen["bid"][best_bid - first],
        "best_ask": NONE if best_ask is None else best_ask,
        "best_ask_qty": 0 if best_ask is None else seen["ask"][best_ask - first],
    }
    return SimpleNamespace(**{name: Word(number) for name, number in numbers.items()})


def standing(market: Any, slot: int, level: int, side: int) -> tuple[int, int, int]:
    """Price, units and units ahead of what stands of a level's side, both places as one; 0 without any."""
    if not 0 <= level < len(market.quotes[slot]):
        return 0, 0, 0
    orders: list[Order] = [order for order in market.quotes[slot][level][side] if order.quantity]
    if not orders:
        return 0, 0, 0
    ahead = market.book.ahead(orders[0]) if isinstance(market.book, Queues) else 0
    return orders[0].price, sum(order.quantity for order in orders), ahead


def slot_seen(market: Any, slot: int, numbers: Mapping[str, int], mids: list[int], volumes: list[int]) -> Any:
    """What a slot has: `numbers` by name, and the functions of what stands and of the last four decisions."""
    seen = SimpleNamespace(**{name: Word(number) for name, number in numbers.items()})
    for name, side in (("bid", BUY), ("ask", SELL)):
        for place, suffix in enumerate(("", "_qty", "_ahead")):
            setattr(seen, name + suffix, lambda n, s=side, p=place: Word(standing(market, slot, int(n), s)[p]))
    seen.mid_change = lambda i: Word(mids[i] - mids[i + 1] if 0 <= i < 4 else 0)
    seen.volume = lambda i: Word(volumes[i] if 0 <= i < 4 else 0)
    return seen


def drawn(market: Any, slot: int) -> Draw:
    return Draw(word(market.key, market.t, PROGRAM + slot), Word)


def sign(number: int) -> int:
    return (number > 0) - (number < 0)
