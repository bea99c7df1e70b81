"""What a trader's function can name: what it sees of its market, what it owns, what it draws, and what it returns.

cuda/model/agents.h has the same names for engines, engines/numpy/agents.py for NumPy; docs/model.md says what each
of them is. Also how users' names are spelled in C++, and the error of a refused function.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kineticsim_env.errors import KineticSimError
from kineticsim_env.runtime import layout

SEEN = ("mid2", "ret", "last_price", "best_bid", "best_ask", "best_bid_qty", "best_ask_qty", "t")
# The market's own parameters, as its regime has them; a probability is a multiple of 2^-24.
PARAMETERS_SEEN = ("max_order_qty", "noise_spread", "market_order_prob", "maker_half_spread", "taker_offset")
INFORMED = ("fundamental", "regime")  # of classes that are declared informed
PRICES = {"near_mid": 1}
DRAWS = {"coin": 0, "chance": 1, "below": 1, "offset": 1}
MOST_UNITS = layout.CONSTANTS["kMostAgentQty"]  # of an order
OWNED = ("index",)  # besides parameters and memory: the agent's index among all of its market
STARTS = (*SEEN[:-1], *INFORMED)  # what memory can begin with, besides a number


class ProgramError(KineticSimError, SyntaxError):
    """A trader's function is not in the language; the message says where, and what to write instead."""


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What a trader's function can name through its arguments.

    Raises:
        ValueError: If a name is not small letters, digits and single underscores.
    """

    seen: frozenset[str]  # names that the first argument has, all whole numbers
    prices: Mapping[str, int]  # methods of the first argument, with how many whole numbers each takes
    parameters: frozenset[str]  # names that the second argument has, and that are not written
    memory: frozenset[str]  # those that may be written too
    # methods of the third argument, with how many whole numbers each takes; all take `word=` a constant too
    draws: Mapping[str, int]
    chances: frozenset[str]  # those of them whose argument is a probability from 0 to 1, or a whole number of 2^-24
    order: Callable[..., Any]  # the function that makes an order: side, tick, quantity, marketable
    no_order: Callable[..., Any]  # the function that makes none
    hidden: frozenset[str] = frozenset()  # names that the first argument has for those who are declared informed alone
    # Of a policy of a slot, whose function has one argument more: names that this one has, all whole numbers; its
    # methods, with how many whole numbers each takes; and functions that make a level, a ladder of levels, and what
    # keeps all that stands.
    slot: frozenset[str] = frozenset()
    of_slot: Mapping[str, int] = dataclasses.field(default_factory=dict)
    quote: Callable[..., Any] | None = None
    quotes: Callable[..., Any] | None = None
    keep: Callable[..., Any] | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """What the function's arguments are called in messages."""
        return ("market", "own", "draw") if self.quote is None else ("market", "slot", "own", "draw")

    def __post_init__(self) -> None:
        """Refuse names that are no plain words."""
        for name in (*self.seen, *self.prices, *self.parameters, *self.memory, *self.draws):
            if not (isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name)):
                raise ValueError(
                    f"agent: expected small letters a to z, digits, and single _ between them, got the name {name!r}"
                )


def order(side: int, tick: int, quantity: int, marketable: int = 0) -> tuple[int, int, int, int]:
    """Return a trader's order; for functions that `ks.agent` takes, which return it.

    Args:
        side: Above 0 buys, below 0 sells; 0 is no order.
        tick: The limit price, absolute ticks; the nearest on the grid if it is off it. `market.near_mid(offset)` is
            the price so many ticks from the mid.
        quantity: Units, cut to 0 .. `largest_order` of the class, which is 65535 unless it says less; 0 is no order.
        marketable: Whether it takes any price, as built-in agents' marketable orders do; `tick` has no part then.
    """
    return side, tick, quantity, marketable


def no_order() -> None:
    """Return nothing, for functions that `ks.agent` takes: the agent stays away."""


def vocabulary(parameters: Iterable[str], memory: Iterable[str], informed: bool) -> Vocabulary:
    """Return what the function of a class can name."""
    seen, hidden = {*SEEN, *PARAMETERS_SEEN}, set(INFORMED)
    if informed:
        seen, hidden = seen | hidden, set()
    return Vocabulary(
        seen=frozenset(seen),
        hidden=frozenset(hidden),
        prices=PRICES,
        parameters=frozenset((*parameters, *OWNED)),
        memory=frozenset(memory),
        draws=DRAWS,
        chances=frozenset({"chance"}),
        order=order,
        no_order=no_order,
    )


# Every name of a user's has a prefix in C++, so that no keyword, macro or name of ours can be taken for it.


def own_in_cpp(name: str) -> str:
    """Return how a parameter or a word of memory is spelled in C++."""
    return f"w_{name}"


def local_in_cpp(name: str, index: int) -> str:
    """Return how a local name is spelled in C++; `index` tells it from the function's others."""
    return f"v_{name}" if name.isascii() else f"u_{index}"


def function_in_cpp(name: str, index: int) -> str:
    """Return how a function is spelled in C++; `index` tells it from the program's others."""
    return f"f_{name}_{index}" if name.isascii() else f"f_{index}"
