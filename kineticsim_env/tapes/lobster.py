"""LOBSTER's files of a tape, and its messages as order events: what happened to a book, and the book after each.

The format: https://lobsterdata.com/info/DataStructure.php. cuda/tape/lobster.h makes messages and books of rows.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env.data.events import ADD, DELETE, EXECUTE, REDUCE, OrderEvents
from kineticsim_env.runtime.files import check_folder, replacing
from kineticsim_env.runtime.values import check_choice, check_count, is_number, show
from kineticsim_env.tapes import library

UNITS = 10_000  # of a price, per dollar
_NO_PRICE = 9_999_999_999
_COLUMNS = ("type", "order", "size", "price", "direction")  # of a message, after its time
_OF_A_NAME = re.compile(r"[^/\\\0\n]*")
_PARTS = {"date": "2000-01-03", "ticker": "MARKET"}
_EVENTS = np.array([-1, ADD, REDUCE, DELETE, EXECUTE], np.int8)  # by a message's type
_MOST_SECONDS = 4e9  # of a table of order events
_CLOCKS = ("even", "poisson")
_SLICE = 1 << 16  # rows at a time: a message has 40 bytes, its book 32 per level


def write(
    tape: Any,
    folder: str | Path,
    *,
    levels: int = 10,
    tick: float = 0.01,
    base: int = 0,
    interval_seconds: float | None = None,
    clock: str = "even",
    opens: float = 34_200.0,
    date: datetime.date | str = "2000-01-03",
    ticker: str = "MARKET",
) -> list[tuple[str, str]]:
    """Write a message and an orderbook file for each market, as the tape plays.

    They are called TICKER<market>_DATE_START_END_message_LEVELS.csv and ..._orderbook_LEVELS.csv. What rests as the
    tape begins comes as submissions. An order that trades as it comes shows as executions of those it met; what is left
    of it is submitted then. Messages are of the whole book, of which the second file shows the best levels.

    Args:
        tape: A `Tape` of continuous trading.
        folder: Where the files go; made if it is not there.
        levels: Of each side in the orderbook file.
        tick: What a tick is worth, a multiple of 1/10000.
        base: Ticks added to every price: a market that begins at 64 may come to negative ones.
        interval_seconds: How long an interval is, None is 1; an order flow has times of its own, and takes None alone.
        clock: As `events` has it.
        opens: When the episode began, in seconds after midnight.
        date: For the files' names.
        ticker: Likewise.

    Returns:
        The paths of the two files of each market.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed.
    """
    _check_continuous("to_lobster", tape)
    levels, unit = check_count("levels", levels, 1, 8192), _units(tick)
    base = check_count("base", base, -(2**30), 2**30)
    length = _interval_seconds(tape, interval_seconds)
    check_choice("clock", clock, _CLOCKS)
    _check_seconds("opens", opens)
    date = date.date() if isinstance(date, datetime.datetime) else date
    for what, given in (("date", date), ("ticker", ticker)):
        if not isinstance(given, (str, datetime.date)) or not _OF_A_NAME.fullmatch(str(given)):
            raise ValueError(f"{what}: expected a part of a file's name, such as {_PARTS[what]!r}, got {show(given)}")
    check_folder("folder", folder)

    paths = []
    for number, market in enumerate(tape.markets):
        time_of = _clock(tape, number, clock)

        def seconds(times: np.ndarray, time_of: Callable[[np.ndarray], np.ndarray] = time_of) -> np.ndarray:
            return np.round(opens + time_of(times) * length, 9)

        times = "_".join(str(round(1000 * (opens + time * length))) for time in tape.span(number).tolist())
        name = f"{ticker}{market}_{date}_{times}"
        pair = [Path(folder, f"{name}_{kind}_{levels}.csv") for kind in ("message", "orderbook")]
        with replacing(pair[0]) as message, replacing(pair[1]) as orderbook:
            with closing(_Files(message, orderbook, levels, unit, base)) as files:
                for rows in chain(tape.rows(number), [np.empty(0, library.ROW)]):
                    files.add(rows, seconds)
        paths.append((str(pair[0]), str(pair[1])))
    return paths


def events(tape: Any, number: int = 0, interval_seconds: float | None = None, *, clock: str = "even") -> OrderEvents:
    """Return LOBSTER's messages of one market as order events; those of the whole book.

    What rests as the tape begins is added then, as `opening`; an order that trades as it comes is no event, and what
    is left of it is added. Prices are the tape's ticks, lots its units, and times count from the market's reset.

    Args:
        tape: A `Tape` of continuous trading.
        number: Of the market among those of the tape.
        interval_seconds: How long an interval is, None is 1; an order flow has times of its own, and takes None alone.
        clock: How events of agents lie in time: "even", one after another at the same distance, or "poisson": those of
            a Poisson process that has so many in the tape's time, drawn by the market's seed and episode. What happens
            does not depend on it.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed.
        MarketError, RuntimeError: Those of `Tape.parts`.
    """
    _check_continuous("events", tape)
    number = check_count("number", number, 0, len(tape.markets) - 1)
    length = _interval_seconds(tape, interval_seconds)
    time_of = _clock(tape, number, check_choice("clock", clock, _CLOCKS))
    end = int(tape.begins[number]) + tape.intervals
    if not tape.is_flow and end * length >= _MOST_SECONDS:
        raise ValueError(
            f"interval_seconds: expected {end} intervals to last less than {_MOST_SECONDS:.0g} seconds, as int64 holds "
            f"them in nanoseconds, got {interval_seconds}"
        )
    native = library.load()
    of, found, opening = native.ks_lobster_open(0, 1, 0), [np.empty(0, library.MESSAGE)], None
    try:
        for rows in chain(tape.rows(number), [np.empty(0, library.ROW)]):
            opening = len(rows) if opening is None else opening
            found += [messages for messages, _ in _messages(native, of, rows, 0)]
    finally:
        native.ks_lobster_close(of)
    all_of_them: Any = np.concatenate(found)

    def nanoseconds(times: np.ndarray) -> np.ndarray:
        return times.copy() if tape.is_flow else np.rint(times * (length * 1e9)).astype(np.int64)

    flow, sessions = tape.flow(number), nanoseconds(tape.span(number)[None])
    time = nanoseconds(time_of(all_of_them["time"]))
    time[:opening] = sessions[0, 0]
    return OrderEvents(
        time=time,
        order=all_of_them["order"].copy(),
        kind=_EVENTS[all_of_them["type"]],
        side=all_of_them["direction"].astype(np.int8),
        price=all_of_them["price"].copy(),
        size=all_of_them["size"].astype(np.int64),
        opening=np.arange(len(all_of_them)) < (opening or 0),
        sessions=sessions,
        **({} if flow is None else {"tick": flow.tick, "lot": flow.lot}),
    )


def _clock(tape: Any, number: int, clock: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return what says when rows of a market are, as `Tape.time` does, by the numbers of their events."""
    if clock == "even" or tape.is_flow:
        return tape.time
    begin, end = np.rint(tape.span(number) / tape.time(np.ones(1))).astype(np.int64)
    # Of so many events of a Poisson process in a time, the moments are independent.
    times = np.sort(np.random.default_rng(tape.words_of(number)).uniform(begin, end, end - begin))
    return lambda events: tape.time(times[events - begin])


def _check_continuous(name: str, tape: Any) -> None:
    if not tape.is_continuous:
        raise ValueError(
            f"{name}: expected a tape of mechanism='continuous', got one of call auctions: LOBSTER has no message "
            "for an auction's single price; to_parquet writes any tape"
        )


def _interval_seconds(tape: Any, given: Any) -> float:
    """Return what `Tape.time` counts in, in seconds."""
    if tape.is_flow:
        if given is not None:
            raise ValueError(
                f"interval_seconds: expected None, as an order flow's events have times, got {show(given)}"
            )
        return 1e-9
    if given is None:
        return 1.0
    _check_seconds("interval_seconds", given, given != 0)
    return given


def _check_seconds(name: str, value: Any, allowed: bool = True) -> None:
    if not is_number(value) or not 0 <= value < 1e9 or not allowed:
        raise ValueError(f"{name}: expected a number of seconds, got {show(value)}")


def _messages(native: Any, of: int, rows: np.ndarray, levels: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield messages and books `[k, 4 * levels]` that come of rows; no rows are the end of a tape."""
    for begin in range(0, max(len(rows), 1), _SLICE):
        some = np.ascontiguousarray(rows[begin : begin + _SLICE])
        messages: np.ndarray = np.empty(len(some) + 1, library.MESSAGE)
        books = np.empty((len(some) + 1, 4 * levels), np.int64)
        places = [array.ctypes.data for array in (some, messages, books)]
        count = native.ks_lobster_add(of, places[0], len(some), *places[1:])
        yield messages[:count], books[:count]


def _units(tick: Any) -> int:
    """Return how many units of LOBSTER's prices a tick is."""
    units = tick * UNITS if is_number(tick) and 0 < tick < 1e5 else 0
    if units < 0.5 or abs(units - round(units)) > 1e-6:
        raise ValueError(f"tick: expected a multiple of 1/10000, at least that, got {show(tick)}")
    return round(units)


class _Files:
    """The two files of a market while its tape plays."""

    def __init__(self, message: Path, orderbook: Path, levels: int, unit: int, base: int) -> None:
        import pyarrow
        from pyarrow import csv

        names = [f"{side}_{what}_{level}" for level in range(levels) for side in "ab" for what in "ps"]
        plain = csv.WriteOptions(include_header=False, quoting_style="none")
        book = pyarrow.schema([(name, pyarrow.int64()) for name in names])
        messages = pyarrow.schema([("time", pyarrow.float64()), *((name, pyarrow.int64()) for name in _COLUMNS)])
        self._levels, self._library = levels, library.load()
        self._of = self._library.ks_lobster_open(levels, unit, base)
        self._message = csv.CSVWriter(message, messages, write_options=plain)
        self._book = csv.CSVWriter(orderbook, book, write_options=plain)
        self._schemas = messages, book

    def add(self, rows: np.ndarray, seconds: Callable[[np.ndarray], np.ndarray]) -> None:
        """Write what comes of rows; no rows end the files."""
        import pyarrow

        for found, books in _messages(self._library, self._of, rows, self._levels):
            if len(found) and np.abs(found["price"]).max() >= _NO_PRICE:
                raise ValueError(
                    f"tick, base: expected prices below {_NO_PRICE} in size, which stands for an empty level, got "
                    f"{found['price'][np.abs(found['price']).argmax()]}"
                )
            columns = [seconds(found["time"]), *(found[name].astype(np.int64) for name in _COLUMNS)]
            self._message.write_table(pyarrow.table(columns, schema=self._schemas[0]))
            self._book.write_table(pyarrow.table(list(np.ascontiguousarray(books.T)), schema=self._schemas[1]))

    def close(self) -> None:
        """Close both files."""
        self._library.ks_lobster_close(self._of)
        self._message.close()
        self._book.close()
