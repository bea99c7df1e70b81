"""The order book of JAX-LOB, `jaxlob` 0.19, which scripts.benchmarks.jax_rates times beside the default market.

    pip install --no-deps jaxlob==0.19 chex toolz absl-py

Its book is played as its own scan plays it, of 100 orders per side, many books by `jax.vmap`: it is given messages that
were drawn beforehand. Its environments want files of LOBSTER, and are not played.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

ORDERS, MESSAGES = 100, 100  # of a side, and of a scan
LIMIT, DELETION = 1, 3  # types of messages, as LOBSTER has them
MID, AWAY, ALIVE = 10_000, 8, 50  # of drawn messages: the middle price, ticks from it, and orders before one is deleted


def book() -> Any:
    """Return the module of its book, or None where it is not installed."""
    try:
        module: Any = importlib.import_module("jaxlob.gymnax_exchange.jaxob.JaxOrderBookArrays")
    except ImportError:
        return None

    def where(condition: Any, x: Any = None, y: Any = None, **how: Any) -> Any:
        return jnp.where(condition, x, y, **how)

    # It is of 2023 and names arguments of `where`, whose names JAX has since taken away.
    module.jnp = SimpleNamespace(**{**vars(jnp), "where": where})
    return module


def opened(module: Any, books: int) -> Any:
    """Return empty books: asks and bids int32 `[books, 100, 6]`, and as many trades."""
    side, trades = module.init_orderside(ORDERS), -jnp.ones((ORDERS, 6), jnp.int32)
    return jax.tree.map(lambda one: jnp.broadcast_to(one, (books, *one.shape)), (side, side, trades))


def drawn(books: int, seed: int = 0) -> np.ndarray:
    """Return messages, int32 `[books, MESSAGES, 8]`.

    Of two one is a limit order of 1 to 9 units, up to 8 ticks from the mid on its own side or up to 2 beyond it, and
    one deletes one of the 50 orders before, if that still rests.
    """
    random = np.random.default_rng(seed)
    shape, number = (books, MESSAGES), np.arange(MESSAGES)
    found = np.zeros((*shape, 8), np.int32)
    sides = random.choice(np.array([-1, 1], np.int32), shape)
    deleted = np.maximum(number - 1 - 2 * random.integers(0, ALIVE, shape), 0)
    deletes = np.broadcast_to(number % 2 == 1, shape)
    side = np.where(deletes, np.take_along_axis(sides, deleted, 1), sides)
    prices = MID - sides * random.integers(-2, AWAY + 1, shape)
    order = np.where(deletes, deleted, number)
    columns = (
        np.where(deletes, DELETION, LIMIT), side, np.where(deletes, 9, random.integers(1, 10, shape)),
        np.take_along_axis(prices, order, 1), order, order, 34_200 + number // 10, number,
    )  # fmt: skip
    for place, column in enumerate(columns):  # type, side, quantity, price, trader, order, seconds, nanoseconds
        found[..., place] = column
    return found


def check(module: Any) -> None:
    """Raise RuntimeError if its book does not hold what it should: this is to be that book.

    The order that trades does so with one that rests. In 0.19 more than one it never trades with: `match_ask_order` and
    `match_bid_order` look for the next before the last has gone. So its loops are shorter than those of a right book.
    """
    sell, buy, delete = (
        [LIMIT, -1, 5, 101, 1, 1, 0, 1],
        [LIMIT, 1, 3, 102, 2, 2, 0, 2],
        [DELETION, -1, 1, 101, 1, 1, 0, 3],
    )
    empty = jax.tree.map(lambda one: one[0], opened(module, 1))
    asks, bids, _ = module.scan_through_entire_array(jnp.array([sell, buy, delete], jnp.int32), empty)
    rests = [[row[:2].tolist() for row in np.asarray(side) if row[1] > 0] for side in (asks, bids)]
    if rests != [[[101, 1]], []]:
        raise RuntimeError(f"jaxlob: expected a book of one unit at 101, got {rests}")


def played(books: int) -> Callable[[], None]:
    """Return what plays MESSAGES messages in each of some books, one after another in a scan."""
    module = book()
    check(module)
    play = jax.jit(jax.vmap(module.scan_through_entire_array))
    messages, empty = jnp.asarray(drawn(books)), opened(module, books)
    return lambda: jax.block_until_ready(play(messages, empty)) and None
