"""Custom agents on the NumPy engine: the Python function itself, one agent at a time, on `Int32`.

What an agent sees, owns, draws and returns is in docs/model.md, part "Agents that users write".
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kineticsim_env.agents.numbers import Int32, as_chance
from kineticsim_env.engines.numpy.orders import View, placed_ticks
from kineticsim_env.engines.numpy.rules import GOLDEN, best_with_quotes, bits, clip, mix64
from kineticsim_env.engines.numpy.state import NO_PRICE, Markets

FAR = 2**29  # ticks off the grid's first, beyond which an order's price is cut


class Seen:
    """What an agent sees of its market; see agents/vocabulary.py."""

    def __init__(self, numbers: dict[str, int], around: int, upwards: int, origin: int) -> None:
        """Take what is seen, the doubled price on the grid that built-in orders are around, and how halves go."""
        for name, value in numbers.items():
            setattr(self, name, Int32(value))
        self._around, self._upwards, self._origin = around, upwards, origin

    def near_mid(self, offset: Any) -> Int32:
        """Return the absolute price so many ticks from the middle."""
        floor = Int32((self._around >> 1) + int(Int32(offset)))
        up = self._around & 1 & (int(floor) if self._upwards < 0 else self._upwards)
        return floor + up + self._origin


class Own:
    """An agent's index, parameters and memory, all numbers that wrap."""

    def __init__(self, values: dict[str, int]) -> None:
        """Take the numbers by name."""
        for name, value in values.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        """Keep a number of 32 bits."""
        object.__setattr__(self, name, Int32(value))


class Draw:
    """An agent's random words; word 0 has the fields of a built-in agent's."""

    def __init__(self, first: int) -> None:
        """Take word 0."""
        self._first = np.uint64(first)

    def _bits(self, word: int, low: int, count: int) -> int:
        number = np.array([int(word)], np.uint64)
        with np.errstate(over="ignore"):
            value = mix64(self._first + number * GOLDEN) if int(word) else np.array([self._first])
        return int(bits(value, low, count)[0])

    def coin(self, word: int = 0) -> Int32:
        """Return 0 or 1."""
        return Int32(self._bits(word, 31, 1))

    def chance(self, probability: Any, word: int = 0) -> Int32:
        """Return 1 with this probability, a float from 0 to 1 or a multiple of 2^-24."""
        return Int32(self._bits(word, 0, 24) < as_chance(probability))

    def below(self, n: Any, word: int = 0) -> Int32:
        """Return 0 .. n - 1; 0 if n is not above 0."""
        return Int32(self._bits(word, 32, 16) * max(int(n), 0) >> 16)

    def offset(self, spread: Any, word: int = 0) -> Int32:
        """Return -spread .. spread; 0 if that is not above 0."""
        spread = max(int(spread), 0)
        return Int32((self._bits(word, 48, 16) * (2 * spread + 1) >> 16) - spread)


def numbers_seen(m: Markets, view: View, t: np.ndarray, quoted: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
    """Return the numbers that agents see of their markets by name, [m] each.

    Args:
        m: the markets.
        view: what built-in agents know.
        t: the number of the auction or of the event, [m].
        quoted: tick and quantity of standing bids, then asks, [m, K] each, as `auction.quotes_on_grid` returns them.
    """
    bid_tick, bid_qty, ask_tick, ask_qty = quoted
    best_bid, best_ask = best_with_quotes(m.bid, m.ask, quoted)
    no_bid, no_ask = best_bid < 0, best_ask >= m.num_levels
    each = np.arange(len(m.rows))
    units = []
    for book, best, tick, quantity in ((m.bid, best_bid, bid_tick, bid_qty), (m.ask, best_ask, ask_tick, ask_qty)):
        there = clip(best, 0, m.num_levels - 1)
        units.append(book[each, there] + np.where(tick == there[:, None], quantity, 0).sum(axis=1))
    return {
        "mid2": view.mid2 + 2 * m.price_origin,
        "ret": view.ret,
        "last_price": m.last_price,
        "best_bid": np.where(no_bid, -NO_PRICE, best_bid + m.price_origin),
        "best_ask": np.where(no_ask, NO_PRICE, best_ask + m.price_origin),
        "best_bid_qty": np.where(no_bid, 0, units[0]),
        "best_ask_qty": np.where(no_ask, 0, units[1]),
        "t": t,
        "fundamental": m.fundamental_price,
        "regime": m.regime if "regime" in m.names else np.zeros_like(t),
        "market_order_prob": m.now["market_order_threshold"],
        **{name: m.now[name] for name in ("max_order_qty", "noise_spread", "maker_half_spread", "taker_offset")},
    }


def look(m: Markets, view: View, t: np.ndarray, quoted: tuple[np.ndarray, ...]) -> list[Seen]:
    """Return what agents see of each market, of what `numbers_seen` takes; nothing where there are none."""
    if not m.groups:
        return []
    seen = numbers_seen(m, view, t, quoted)
    around = np.where(m.params["reference"] == 1, 2 * (m.fundamental_price - m.price_origin), view.mid2)
    upwards = np.where(m.params["rounding"] == 1, view.coin, -1)  # -1: to the even one
    return [
        Seen({name: int(x[i]) for name, x in seen.items()}, int(around[i]), int(upwards[i]), int(m.price_origin[i]))
        for i in range(len(m.rows))
    ]


def opening_memory(m: Markets) -> np.ndarray:
    """Return what agents remember as an episode begins, [m, Q]: numbers, or what they see of the present book."""
    zero, no_quotes = np.zeros_like(m.t), np.zeros((len(m.rows), 0), np.int64)
    seen = numbers_seen(m, View(m.prev_mid2, zero, m.last_price, zero), zero, (no_quotes,) * 4)
    starts = [(start, group.agents) for group in m.groups for start in group.kind.memory.values()]
    words = [(seen[start] if isinstance(start, str) else zero + start, agents) for start, agents in starts]
    return np.stack([word for word, agents in words for _ in range(agents)], axis=1)


def added_orders(m: Markets, view: View, seen: Sequence[Seen]) -> tuple[np.ndarray, ...]:
    """Return each order of the agents that users have added, [m, n]: as `orders.class_orders`."""
    shape = (len(m.rows), sum(group.agents for group in m.groups))
    raw = np.zeros((4, *shape), np.int64)
    for group in m.groups:
        for a in range(group.active):
            place = group.first + a
            index = m.first_added + place
            words = m.words(index[:, None])[:, 0]
            for i in range(shape[0]):
                raw[:, i, place] = decide(m, i, group, a, int(index[i]), seen[i], int(words[i]))
    return placed(m, raw, view)


def added_order_at(
    m: Markets, agent: np.ndarray, word: np.ndarray, view: View, seen: Sequence[Seen]
) -> tuple[np.ndarray, ...]:
    """Return the order of agent [m], of an event's word [m], where users have added it: as `orders.order_at`."""
    raw = np.zeros((4, len(m.rows), 1), np.int64)
    for i, place in enumerate(agent - m.first_added):
        for group in m.groups:
            if group.first <= place < group.first + group.active:
                raw[:, i, 0] = decide(m, i, group, int(place) - group.first, int(agent[i]), seen[i], int(word[i]))
    return tuple(part[:, 0] for part in placed(m, raw, view))


def decide(m: Markets, i: int, group: Any, a: int, index: int, seen: Seen, word: int) -> tuple[int, int, int, int]:
    """Let agent a of a class decide in market i; return side, price, quantity and whether the order is marketable."""
    width = group.agents if group.parameter_stride else 1
    values = {"index": index}
    for place, name in enumerate(group.kind.parameters):
        values[name] = int(m.agent_parameters[i, group.parameters + place * width + (a if width > 1 else 0)])
    at = {name: group.memory + place * group.agents + a for place, name in enumerate(group.kind.memory)}
    own = Own(values | {name: int(m.agent_memory[i, place]) for name, place in at.items()})
    order = group.kind(seen, own, Draw(word))
    for name, place in at.items():
        m.agent_memory[i, place] = int(getattr(own, name))
    if order is None:
        return 0, 0, 0, 0
    side, price, quantity, fired = (int(Int32(number)) for number in order)
    return side, price, min(quantity, group.kind.largest_order), int(fired != 0)


def placed(m: Markets, raw: np.ndarray, view: View) -> tuple[np.ndarray, ...]:
    """Return whether orders [4, m, n] sell, their ticks, quantities and whether they are marketable, [m, n]."""
    side, price, quantity, fired = raw
    sells = side < 0
    tick = clip(price - m.price_origin[:, None], -FAR, FAR) - np.sign(side) * m.params["tax"][:, None]
    tick = placed_ticks(m, tick, sells, fired != 0, view.collar_price)
    return sells, tick, np.where(side != 0, np.maximum(quantity, 0), 0), fired != 0
