"""Agents of classes that users write: what one sees, draws and submits. Its function is called with these objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .orders import BUY, SELL, Order, View, within_collar
from .rules import Rules
from .words import G, bits, mix64, scaled

NONE = 2**31 - 1  # the best price of an empty side; bids have it with a minus
FAR = 1 << 29  # ticks from the grid's first that an order's price is cut to


def wrapped(number: Any) -> int:
    """The number that 32 bits hold."""
    low = int(number) & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low


@dataclasses.dataclass(frozen=True)
class Agent:
    """One of the agents that a config adds; `place` counts those of its class."""

    kind: Any
    place: int
    parameters: Mapping[str, int]

    def opening(self, seen: Mapping[str, int]) -> dict[str, int]:
        """What it remembers as an episode begins."""
        return {name: seen[start] if isinstance(start, str) else start for name, start in self.kind.memory.items()}


def agents_of(added: Mapping[Any, Any], market: int) -> list[Agent]:
    """The agents of a config's field `agents` in one market, in the order of their indices."""
    agents = []
    for kind, made in added.items():
        for place in range(made.count):
            values = dict(kind.parameters)
            for name, given in made.parameters.items():
                row = given[market % len(given)] if getattr(given, "ndim", 0) == 2 else given
                one = row[place if len(row) > 1 else 0] if getattr(row, "ndim", 0) == 1 else row
                values[name] = int(one)
            agents.append(Agent(kind, place, values))
    return agents


def numbers_seen(rules: Rules, view: View, best: dict[int, tuple[int, int] | None], last_price: int, t: int) -> dict:
    """All that is seen by name; `best` has the best price and the units there, by side."""
    now = rules.of[view.regime]
    bid, ask = best[BUY] or (-NONE, 0), best[SELL] or (NONE, 0)
    own = {name: getattr(now, name) for name in ("max_order_qty", "noise_spread", "market_order_prob")}
    own |= {name: getattr(now, name) for name in ("maker_half_spread", "taker_offset")}
    return own | {
        "mid2": view.mid2,
        "ret": view.ret,
        "last_price": last_price,
        "best_bid": bid[0],
        "best_bid_qty": bid[1],
        "best_ask": ask[0],
        "best_ask_qty": ask[1],
        "t": t,
        "fundamental": view.fundamental,
        "regime": view.regime,
    }


class Seen:
    """What an agent's function gets as its market."""

    def __init__(self, rules: Rules, view: View, numbers: Mapping[str, int], number: Any) -> None:
        self.rules, self.view = rules, view
        self.number = number
        for name, value in numbers.items():
            setattr(self, name, number(value))

    def near_mid(self, offset: Any) -> Any:
        """The price so many ticks from what built-in agents price around; a half tick as their prices go."""
        low = self.view.grid.low
        centre2 = 2 * self.view.fundamental if self.rules.reference == "fundamental" else self.view.mid2
        tick = wrapped(((centre2 - 2 * low) >> 1) + int(offset))
        if centre2 & 1:
            tick += self.view.coin if self.rules.rounding == "coin" else tick & 1
        return self.number(tick + low)


class Draw:
    """An agent's random words."""

    def __init__(self, word: int, number: Any) -> None:
        self.first, self.number = word, number

    def _word(self, i: Any) -> int:
        return mix64(self.first + int(i) * G) if int(i) else self.first

    def coin(self, word: int = 0) -> Any:
        return self.number(bits(self._word(word), 31, 1))

    def chance(self, probability: Any, word: int = 0) -> Any:
        most = round(probability * 2**24) if isinstance(probability, float) else int(probability)
        return self.number(bits(self._word(word), 0, 24) < most)

    def below(self, n: Any, word: int = 0) -> Any:
        return self.number(scaled(bits(self._word(word), 32, 16), int(n), 16) if int(n) > 0 else 0)

    def offset(self, spread: Any, word: int = 0) -> Any:
        size = 2 * max(0, int(spread)) + 1
        return self.number(scaled(bits(self._word(word), 48, 16), size, 16) - size // 2)


def added_order(rules: Rules, seen: Seen, agent: Agent, index: int, memory: dict, word: int, moment: int) -> Order:
    """The order of one such agent, of quantity 0 if it has none; `memory` is what it remembers, and changes."""
    number = seen.number

    class Own:
        def __setattr__(self, name: str, value: Any) -> None:
            object.__setattr__(self, name, number(value))

    own = Own()
    for name, value in {"index": index, **agent.parameters, **memory}.items():
        setattr(own, name, value)
    returned = agent.kind(seen, own, Draw(word, number))
    memory.update({name: int(getattr(own, name)) for name in memory})
    way, price, quantity, marketable = (wrapped(part) for part in returned or (0, 0, 0, 0))
    side = BUY if way > 0 else SELL
    view, grid = seen.view, seen.view.grid
    price = min(max(price, grid.low - FAR), grid.low + FAR) - side * rules.tax
    if marketable:
        price = grid.high if side == BUY else grid.low
    price = within_collar(rules, side, price, view.collar_price)
    price = grid.nearest(grid.on_tick(side, price))
    quantity = min(max(quantity, 0), agent.kind.largest_order) if way else 0
    return Order(side, price, quantity, moment, None, bool(marketable))
