"""What a trader's function can name: what it sees of its market, what it owns, what it draws, and what it returns.

cuda/model/agents.h has the same names for engines, engines/numpy/agents.py for the oracle; docs/model.md says what each
of them is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kineticsim_env.agents.language import Vocabulary
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
    seen: tuple[Any, ...] = (*SEEN, *PARAMETERS_SEEN, *(INFORMED if informed else ()))
    return Vocabulary(
        seen=frozenset(seen),
        prices=PRICES,
        parameters=frozenset((*parameters, *OWNED)),
        memory=frozenset(memory),
        draws=DRAWS,
        chances=frozenset({"chance"}),
        order=order,
        no_order=no_order,
    )
