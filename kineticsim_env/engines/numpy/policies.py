"""Policies of slots on the NumPy engine: the Python function itself, one market at a time, on `Int32`.

The part "Policies of slots" of docs/environment.md; actions.py calls `orders_of_policy` in every decision.
"""

from typing import Any

import numpy as np

from kineticsim_env.agents.numbers import Int32
from kineticsim_env.engines.numpy import state
from kineticsim_env.engines.numpy.agents import Draw, Own
from kineticsim_env.engines.numpy.ladders import IMMEDIATE_OR_CANCEL, MARKET, POST_ONLY
from kineticsim_env.engines.numpy.rules import best_prices
from kineticsim_env.engines.numpy.state import Markets

MOST = 2**31 - 1
WORD_POLICY = 2**30 + 128


class Seen:
    """Numbers by name."""

    def __init__(self, numbers: dict[str, Any]) -> None:
        """Take the numbers; they wrap."""
        self.__dict__ |= {name: Int32(value) for name, value in numbers.items()}


class Slot(Seen):
    """What a policy sees of its slot."""

    def __init__(self, numbers: dict[str, Any], rows: dict[str, np.ndarray]) -> None:
        """Take its numbers, and rows of them for what goes by a number."""
        super().__init__(numbers)
        self._rows = rows

    def _at(self, name: str, n: Any) -> Int32:
        row = self._rows[name]
        return Int32(row[int(n)] if 0 <= int(n) < len(row) else 0)

    def bid(self, n: Any) -> Int32:
        """Return the price of the bid that stands at a level; 0 without one."""
        return self._at("bid", n)

    def bid_qty(self, n: Any) -> Int32:
        """Return its units."""
        return self._at("bid_qty", n)

    def bid_ahead(self, n: Any) -> Int32:
        """Return the units ahead of it."""
        return self._at("bid_ahead", n)

    def ask(self, n: Any) -> Int32:
        """Return the price of the ask that stands at a level; 0 without one."""
        return self._at("ask", n)

    def ask_qty(self, n: Any) -> Int32:
        """Return its units."""
        return self._at("ask_qty", n)

    def ask_ahead(self, n: Any) -> Int32:
        """Return the units ahead of it."""
        return self._at("ask_ahead", n)

    def mid_change(self, i: Any) -> Int32:
        """Return how the doubled mid moved in the last decision but i."""
        return self._at("mid_change", i)

    def volume(self, i: Any) -> Int32:
        """Return the volume of the last decision but i."""
        return self._at("volume", i)


def saturated(values: np.ndarray) -> np.ndarray:
    """Return numbers cut to 32 bits."""
    return np.clip(values, -MOST, MOST)


def seen_of_markets(m: Markets) -> dict[str, np.ndarray]:
    """Return what policies see of their markets, [m] each; best prices are of the built-in resting book."""
    each = np.arange(len(m.rows))
    best_bid, best_ask = best_prices(m.bid, m.ask)
    no_bid, no_ask = best_bid < 0, best_ask >= m.num_levels
    return {
        "mid2": m.mid_history[:, 0],
        "ret": np.sign(m.mid_history[:, 0] - m.mid_history[:, 1]),
        "last_price": m.last_price,
        "best_bid": np.where(no_bid, -state.NO_PRICE, best_bid + m.price_origin),
        "best_ask": np.where(no_ask, state.NO_PRICE, best_ask + m.price_origin),
        "best_bid_qty": np.where(no_bid, 0, m.bid[each, np.maximum(best_bid, 0)]),
        "best_ask_qty": np.where(no_ask, 0, m.ask[each, np.minimum(best_ask, m.num_levels - 1)]),
        "t": m.t,
        "fundamental": m.fundamental_price,
    }


def orders_of_policy(
    args: dict[str, Any], m: Markets, k: int, own_task: dict[str, Any], side: np.ndarray, left: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Let a slot's policy decide in every market where the slot's episode goes on, and keep what it remembers.

    Returns:
        Quotes [m, N, 4], flags [m, N], and whether all that stands is kept, bool [m].
    """
    place = args["slot_policies"][k]
    market, alive = seen_of_markets(m), m.ended[:, k] == 0
    fills = args["fills"][0, m.rows, k] * (m.t > 0)[:, None]
    horizon = np.broadcast_to(own_task["horizon"], m.elapsed.shape)
    of_slot = {
        "inventory": saturated(m.inventory[:, k]),
        "cash": saturated(m.cash[:, k]),
        "bought": saturated(fills[:, 0]),
        "sold": saturated(fills[:, 1]),
        "elapsed": m.elapsed,
        "left": horizon - m.elapsed,
        "remaining": saturated(left),
        "side": side,
        "arrival2": m.arrival2,
        "max_qty": np.broadcast_to(own_task["max_qty"], m.elapsed.shape),
        "max_offset": np.broadcast_to(own_task["max_offset"], m.elapsed.shape),
        "max_quote_qty": m.params["max_quote_qty"],
        "inventory_limit": m.params["inventory_limit"],
    }
    standing, ahead = m.standing_levels()
    rows = {name: standing[:, k, :, i] for i, name in enumerate(("bid", "bid_qty", "ask", "ask_qty"))}
    rows |= {"bid_ahead": ahead[:, k, :, 0], "ask_ahead": ahead[:, k, :, 1]}
    for name in ("bid", "ask"):
        rows[name] = np.where(rows[f"{name}_qty"] > 0, rows[name], 0)
    rows |= {"mid_change": m.mid_history[:, :-1] - m.mid_history[:, 1:], "volume": m.volume_history}
    words = m.word(WORD_POLICY + k)
    quotes, flags = np.zeros((len(m.rows), m.orders, 4), np.int64), np.zeros((len(m.rows), m.orders), np.int64)
    keeps = np.zeros(len(m.rows), bool)
    for i in np.flatnonzero(alive):
        seen = Seen({name: values[i] for name, values in market.items()})
        slot = Slot(
            {name: values[i] for name, values in of_slot.items()}, {name: values[i] for name, values in rows.items()}
        )
        said = decide(args, int(m.rows[i]), place, seen, slot, int(words[i]))
        keeps[i] = said == "keep"
        levels = () if said is None or keeps[i] else (said if isinstance(said[0], tuple) else (said,))
        for n, level in enumerate(levels):
            numbers = [int(Int32(number)) for number in level]
            quotes[i, n] = numbers[:4]
            flags[i, n] = flags_of(numbers[4]) | flags_of(numbers[5]) << 8
    return quotes, flags, keeps


def flags_of(flags: int) -> int:
    """Return flags as a record may have them: what is to trade at once is not post-only."""
    at_once = flags & (IMMEDIATE_OR_CANCEL | MARKET)
    return flags & (15 & ~POST_ONLY if at_once else 15)


def decide(args: dict[str, Any], market: int, place: Any, seen: Seen, slot: Slot, word: int) -> Any:
    """Let a policy decide in one market; return what it returned."""
    policy, table, memory = place.policy, args["policy_parameters"], args["policy_memory"][market]
    row = table[market if len(table) > 1 else 0]
    values = {name: int(row[place.parameters + i]) for i, name in enumerate(policy.parameters)}
    begins = int(seen.__dict__["t"]) == 0
    for i, (name, start) in enumerate(policy.memory.items()):
        if begins:
            values[name] = (
                start if isinstance(start, int) else int(getattr(slot if hasattr(slot, start) else seen, start))
            )
        else:
            values[name] = int(memory[place.memory + i])
    own = Own(values)
    said = policy.program.play(seen, slot, own, Draw(word))
    for i, name in enumerate(policy.memory):
        memory[place.memory + i] = int(getattr(own, name))
    return said
