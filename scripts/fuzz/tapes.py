"""Kind `tapes`: markets order by order, with added agents of any sort, and LOBSTER's files, read again line by line.

What holds of a tape is followed here from its rows alone, in plain Python; the market beside it is on NumPy.
"""

from __future__ import annotations

import collections
import contextlib
import csv
import tempfile
from collections.abc import Iterable
from typing import Any

import numpy as np

import kineticsim_env as ks
from kineticsim_env.runtime import build
from scripts.fuzz import drawn, moves
from scripts.fuzz.kinds import Failure

aside = contextlib.nullcontext  # every case opens its own
_ROWS = "type order_id counterparty_id agent_class agent side price quantity remaining".split()
_NOBODY = {-1: (9_999_999_999, 0), 1: (-9_999_999_999, 0)}  # what a book file has of a level that is not there


def play(rng: np.random.Generator, engines: tuple[str, ...]) -> None:
    """Take a tape of a new market and check it, and the files of LOBSTER where it has any."""
    if build.cpu_unavailable():
        return
    markets = int(rng.choice([1, 2, 3]))
    config = drawn.config(rng, markets)
    slots = [[None, "maker", "noise"][int(i)] for i in rng.integers(3, size=int(rng.integers(0, 3)))]
    try:
        sim = ks.Simulator(config, markets, engine=engines[int(rng.integers(len(engines)))], slots=slots, seed=7)
        sim.run(int(rng.choice([0, 1, 7])))
        decisions, length = int(rng.choice([1, 3])), int(rng.choice([1, 2]))
        quotes = None
        if slots and rng.random() < 0.7:
            quotes = moves.quotes_of(sim, rng, decisions)
        tape = sim.tape(list(range(markets)), decisions * length, quotes=quotes)
        columns = tape.columns
    except (ValueError, ks.MarketError):
        return  # a class that nobody can replace, or a side that overflows
    other = ks.Simulator(config, markets, engine="numpy", slots=slots, seed=7)
    other.load_state_dict(sim.state_dict())
    record = ("last_price", "volume", "signed_volume")
    if quotes is None:
        series = {name: found.numpy() for name, found in other.run(tape.intervals, record).items()}
    else:
        found = other.rollout(quotes, length, record=record).series
        series = {name: np.concatenate(list(part.numpy()), axis=-1) for name, part in found.items()}
    for m in range(markets):
        _check(sim, other, {name: values[columns["market"] == m] for name, values in columns.items()}, series, m, tape)
    if tape.is_continuous:
        _check_lobster(tape, other, int(rng.choice([1, 3, 10])))


def _fail(what: str, text: str) -> Failure:
    return Failure(f"{what}: {text}", key=("tapes", what))


def _check(sim: Any, other: Any, mine: dict[str, Any], series: dict[str, Any], m: int, tape: Any) -> None:
    """Follow every order of a market; its trades make the series, and what is left of orders is the book."""
    left = _followed(zip(*(mine[name].tolist() for name in _ROWS), strict=True))
    trades, first = mine["type"] == "trade", int(tape.begins[m])
    volume = np.bincount(mine["interval"][trades] - first, mine["quantity"][trades], tape.intervals)
    if volume.tolist() != series["volume"][m].tolist():
        raise _fail("volume", f"market {m} has {volume.tolist()} on tape, {series['volume'][m].tolist()} in its series")
    last = int(sim.last_price[m])
    for i in range(tape.intervals):
        prices = mine["price"][trades & (mine["interval"] == first + i)]
        last = int(prices[-1]) if len(prices) else last
        if last != int(series["last_price"][m, i]):
            raise _fail("last_price", f"market {m}, interval {i}: {last}, not {int(series['last_price'][m, i])}")
    resting: dict[tuple[str, int], int] = collections.Counter()
    for who, _, side, price, units in left.values():
        if who != "slot":
            resting[side, price - int(other.price_origin[m])] += units
    for side, book in (("buy", other.bid[m]), ("sell", other.ask[m])):
        there = {(side, tick): int(book[tick]) for tick in book.nonzero()[:, 0].tolist()}
        if there != {place: units for place, units in resting.items() if place[0] == side}:
            raise _fail("book", f"market {m}: {side} orders leave another book than the market has")


def _followed(rows: Iterable[tuple]) -> dict[int, list[Any]]:
    """Return what is left of orders: number -> [class, agent, side, price, units]."""
    orders: dict[int, list[Any]] = {}
    for kind, number, counterparty, who, agent, side, price, quantity, remaining in rows:
        if quantity <= 0:
            raise _fail("quantity", f"order {number} has a row of {quantity} units")
        if kind == "submit":
            if number in orders or remaining != quantity:
                raise _fail("submit", f"order {number} comes twice, or not whole")
            orders[number] = [who, agent, side, price, quantity]
            continue
        order = orders.get(number)
        if order is None or order[:3] != [who, agent, side]:
            raise _fail("order", f"order {number} was never submitted, or by somebody else")
        if kind == "trade":
            met = orders.get(counterparty)
            if met is None or met[2] == side or met[4] < quantity:
                raise _fail("trade", f"orders {number} and {counterparty} cannot trade {quantity} units")
            if (price > order[3]) if side == "buy" else (price < order[3]):
                raise _fail("price", f"order {number} trades at {price}, beyond its {order[3]}")
            met[4] -= quantity
        order[4] -= quantity
        if order[4] != remaining or remaining < 0:
            raise _fail("remaining", f"order {number} has {order[4]} units left, not {remaining}")
    return {number: order for number, order in orders.items() if order[4]}


def _check_lobster(tape: Any, other: Any, levels: int) -> None:
    """Make the book of LOBSTER's messages, and compare it with the book file after each line, and with the market."""
    with tempfile.TemporaryDirectory() as folder:
        for m, paths in enumerate(tape.to_lobster(folder, levels=levels, tick=0.01, base=0)):
            book = {-1: collections.Counter(), 1: collections.Counter()}
            orders: dict[str, int] = {}
            with open(paths[0], newline="") as messages, open(paths[1], newline="") as books:
                for message, line in zip(csv.reader(messages), csv.reader(books), strict=True):
                    kind, number, units, price, side = message[1], message[2], *map(int, message[3:])
                    change = units if kind == "1" else -units
                    orders[number] = orders.get(number, 0) + change
                    book[side][price] += change
                    if orders[number] < 0 or book[side][price] < 0:
                        raise _fail("lobster", f"market {m}: order {number} has {orders[number]} units left")
                    wanted = _levels(book, levels)
                    if [int(cell) for cell in line] != wanted:
                        raise _fail("lobster", f"market {m}: messages make {wanted}, the book file has {line}")
            for side, rows in ((1, other.bid[m]), (-1, other.ask[m])):
                there = {100 * (tick + int(other.price_origin[m])) for tick in rows.nonzero()[:, 0].tolist()}
                if not there <= set(+book[side]):
                    raise _fail("lobster", f"market {m}: prices {there - set(+book[side])} are in its book alone")


def _levels(book: dict[int, Any], levels: int) -> list[int]:
    """Return a line of the book file: asks and bids by turns, price and units, best first."""
    asks, bids = sorted((+book[-1]).items()), sorted((+book[1]).items(), reverse=True)
    line: list[int] = []
    for place in range(levels):
        for side, rows in ((-1, asks), (1, bids)):
            line += rows[place] if place < len(rows) else _NOBODY[side]
    return line
