"""`read_lobster`: LOBSTER's message and orderbook files as order events.

The format: https://lobsterdata.com/info/DataStructure.php; tapes/lobster.py writes it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env.data.books import NO_PRICE
from kineticsim_env.data.cleaning import SNAPSHOT, Rows, clean
from kineticsim_env.data.events import ADD, DELETE, EXECUTE, REDUCE, OrderEvents
from kineticsim_env.data.orders import with_unknown
from kineticsim_env.data.tables import SECOND, in_steps, nanoseconds, pandas, spans_of, step_of
from kineticsim_env.runtime.values import check_flag, show

UNITS = 10_000  # of a price, per dollar
_COLUMNS = ("time", "type", "order", "size", "price", "direction")
_KINDS = np.array([-1, ADD, REDUCE, DELETE, EXECUTE, -1, -1, -1], np.int8)  # by a message's type
_OTHERS = {5: "executions of hidden orders", 6: "trades of an auction"}
_HALT = 7
_SPAN = re.compile(r"_(\d+)_(\d+)_message_\d+\.csv(\.gz)?$")  # milliseconds after midnight in a file's name


def read_lobster(
    message: Any,
    orderbook: Any = None,
    *,
    tick: float | None = None,
    lot: float | None = None,
    gap: float | None = None,
    sessions: Any = None,
    check: bool = True,
) -> OrderEvents:
    """Read LOBSTER's files of a day; times are nanoseconds after midnight, and the report is at `events.report`.

    Orders that rested as the file begins are those of which a message comes without their submission, and what else
    the first line of the orderbook file has, an order per price with an id below 0; submissions at the very time that
    the message file's name begins with, before others, rested too. LOBSTER has no messages of orders while these are
    out of its levels. So with the orderbook file, what would rest at a better price than the best is deleted then, and
    an order that comes in sight is added when its first message comes; where many did, the report is refused, as the
    best prices are not the file's: take files of more levels. Hidden trades (type 5), trades of auctions (6)
    and halts (7) are no events, and are notes of the report.

    Args:
        message: A path of the message file, or a table of its six columns.
        orderbook: Of the same lines; without it nothing is known of opening orders that no message is of.
        tick: In dollars; None takes the largest that all prices are multiples of.
        lot: In shares; None takes 1.
        gap: As `read_orders` takes it.
        sessions: Likewise, in seconds after midnight; None takes the span of the file's name, if it has one.
        check: As `read_orders` takes it.

    Raises:
        TypeError, ValueError: Naming the argument or the part of the report, what came and what is allowed.
        ModuleNotFoundError: Without pandas.
    """
    check_flag("check", check)
    table = _read("message", message).iloc[:, :6]
    if table.shape[1] != 6:
        raise ValueError(f"message: expected columns {', '.join(_COLUMNS)}, got {table.shape[1]} columns")
    table.columns = list(_COLUMNS)
    for name in _COLUMNS:
        if table[name].dtype.kind not in "iuf"[: 2 + (name == "time")]:
            raise TypeError(f"message: expected numbers as {name}, whole but for the time, got {table[name].dtype}")
    types = table["type"].to_numpy()
    if ((types < 1) | (types > _HALT)).any():
        raise ValueError(f"message: expected types 1 to 7, got {types[(types < 1) | (types > _HALT)][0]}")
    times = nanoseconds("message", table["time"], "s")
    if (np.diff(times) < 0).any():
        row = int((np.diff(times) < 0).argmax()) + 1
        raise ValueError(f"message: expected times that do not fall, got {table['time'].iloc[row]} in row {row}")
    named = _SPAN.search(str(message)) if isinstance(message, (str, Path)) else None
    begins, ends = (int(text) * 10**6 for text in named.groups()[:2]) if named else (times[0] - 1, times[-1])
    if sessions is None and gap is None and named:  # its milliseconds are rounded: an event may be a little beyond
        spans = np.array([[min(begins, times[0]), max(ends, times[-1])]])
    else:
        spans = spans_of(times, gap, sessions, "s")
    books = None if orderbook is None else _books(orderbook, len(table))
    mine = np.flatnonzero(_KINDS[types] >= 0)
    sides = table["direction"].to_numpy()[mine]
    if not len(mine) or (abs(sides) != 1).any():
        raise ValueError("message: expected messages of types 1 to 4, of direction 1 or -1, got none or others")
    prices = [table["price"].iloc[mine]]
    if books is not None:
        prices.append(pandas().Series(books[0, :, 0].ravel()[abs(books[0, :, 0].ravel()) < NO_PRICE]))
    unit_price = step_of("tick", *prices) if tick is None else tick * UNITS
    lots = 1.0 if lot is None else lot
    rows = Rows(
        times[mine], table["order"].to_numpy(np.int64)[mine], _KINDS[types[mine]],
        sides.astype(np.int8), in_steps("price", "tick", prices[0], unit_price),
        in_steps("size", "lot", table["size"].iloc[mine], lots), np.zeros(len(mine), np.int8),
    )  # fmt: skip
    before = np.flatnonzero((rows.kind != ADD) | (rows.time != begins))
    rows.opening[: int(before[0]) if len(before) else len(mine)] = SNAPSHOT
    touch, notes = None, _notes(table, times)
    if books is None:
        rows = with_unknown(rows, spans)
    else:
        rows, source = _with_opening(rows, books, mine, unit_price, lots, spans)
        shown = books[mine, :, 0, 0]
        steps = np.where(abs(shown) < NO_PRICE, np.rint(shown / unit_price), shown).astype(np.int64)
        touch = np.where(source[:, None] >= 0, steps[source], [[NO_PRICE, -NO_PRICE]])  # of what is put in: none
        came = int(((source < 0) & (rows.opening == 0)).sum())
        notes += (f"{came:,} orders came in sight after their submission",) if came else ()
    how: Any = {"touch": touch, "closing": False, "notes": notes, "check": check}
    return clean(rows, spans, read=len(table), tick=unit_price / UNITS, lot=lots, **how)


def _read(name: str, source: Any) -> Any:
    if isinstance(source, (str, Path)):
        try:
            return pandas().read_csv(source, header=None)
        except (OSError, ValueError) as error:
            raise ValueError(f"{name}: expected a file of LOBSTER, got {str(source)!r} ({error})") from error
    if hasattr(source, "to_pandas"):
        source = source.to_pandas()
    if not isinstance(source, pandas().DataFrame):
        raise TypeError(f"{name}: expected a path or a table, got {show(source)}")
    return source


def _books(orderbook: Any, lines: int) -> np.ndarray:
    """Return int64 `[n, 2, 2, L]`: bid and ask, price and size."""
    table = _read("orderbook", orderbook).to_numpy()
    if table.shape[1] % 4 or not table.shape[1] or len(table) != lines or table.dtype.kind not in "iu":
        raise ValueError(
            f"orderbook: expected {lines} lines, as messages, of ask and bid, price and size of each level, whole "
            f"numbers, got {table.dtype} {list(table.shape)}"
        )
    return table.reshape(lines, -1, 2, 2).transpose(0, 2, 3, 1)[:, ::-1]


def _with_opening(
    rows: Rows, books: np.ndarray, mine: np.ndarray, unit: float, lot: float, spans: np.ndarray
) -> tuple[Rows, np.ndarray]:
    """Return rows with the orders that rested before, and of each row the message that it is, or -1."""
    levels: dict[tuple[int, int], int] = {}
    for side, (prices, sizes) in zip((1, -1), books[0].tolist(), strict=True):
        for price, size in zip(prices, sizes, strict=True):
            if size:
                levels[side, round(price / unit)] = round(size / lot)
    if mine[0] == 0:  # the first line is after the first message
        at, size = (int(rows.side[0]), int(rows.price[0])), int(rows.size[0])
        levels[at] = levels.get(at, 0) + (-size if rows.kind[0] == ADD else size)
    ids, first, number = np.unique(rows.order, return_index=True, return_inverse=True)
    total = np.zeros(len(ids), np.int64)
    np.add.at(total, number[rows.kind != ADD], rows.size[rows.kind != ADD])
    found: list[tuple[int, ...]] = []  # before which row (-1: all), time, order, side, price, size, opening
    begin = min(int(spans[0, 0]), int(rows.time[0]))
    for k in np.sort(first[rows.kind[first] != ADD]).tolist():
        at, size = (int(rows.side[k]), int(rows.price[k])), int(total[number[k]])
        rested = levels.get(at, 0) >= size
        if rested:
            levels[at] -= size
        place = (-1, begin) if rested else (k, int(rows.time[k]))
        found.append((*place, int(rows.order[k]), *at, size, rested))
    for nameless, ((side, price), size) in enumerate((at, size) for at, size in levels.items() if size > 0):
        found.append((-1, begin, -1 - nameless, side, price, size, True))
    extra = np.array(found, np.int64).reshape(-1, 7)
    new = Rows(extra[:, 1], extra[:, 2], np.full(len(extra), ADD, np.int8), extra[:, 3].astype(np.int8),
               extra[:, 4], extra[:, 5], extra[:, 6].astype(np.int8))  # fmt: skip
    sort = np.argsort(np.r_[2 * extra[:, 0] - 1, 2 * np.arange(len(rows.time))], kind="stable")
    both: Any = [np.concatenate([a, b])[sort] for a, b in zip(new[:7], rows[:7], strict=True)]
    source = np.r_[np.full(len(extra), -1), np.arange(len(rows.time))][sort]
    return Rows(*both), source


def _notes(table: Any, times: np.ndarray) -> tuple[str, ...]:
    types, found = table["type"].to_numpy(), []
    for kind, name in _OTHERS.items():
        if (types == kind).any():
            found.append(f"{int((types == kind).sum()):,} {name}, {int(table['size'][types == kind].sum()):,} shares")
    says = {-1: "halt", 0: "quotes resume", 1: "trading resumes"}
    for k in np.flatnonzero(types == _HALT).tolist():
        price = int(table["price"].iloc[k])
        found.append(f"{says.get(price, f'halt message {price}')} at {times[k] / SECOND:.3f} s")
    return tuple(found)
