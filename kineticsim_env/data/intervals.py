"""Series of equal intervals, of bars, of trades and quotes, and of order events: what `ks.measure` and others take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kineticsim_env.data.books import replay
from kineticsim_env.data.events import EXECUTE, OrderEvents
from kineticsim_env.data.orders import SIDES
from kineticsim_env.data.tables import SECOND, coded, in_steps, nanoseconds, read_table, spans_of, step_of
from kineticsim_env.runtime.values import check_count, check_number

Series = dict[str, np.ndarray]


def read_bars(
    source: Any,
    *,
    time: str = "time",
    close: str = "close",
    volume: str = "volume",
    tick: float | None = None,
    lot: float | None = None,
    bar: float | None = None,
    unit: str | None = None,
    gap: float | None = None,
    sessions: Any = None,
) -> Series:
    """Read bars (OHLCV) as the series `last_price` in ticks and `volume` in lots, int64 `[sessions, bars]`.

    Args:
        source: As `read_orders` takes it; its other columns are left.
        time: The column of the times at which bars begin, or all at which they end.
        close: The column of closing prices.
        volume: The column of what was traded; a table need not have it.
        tick: As `read_orders` takes it.
        lot: Likewise; volumes are rounded to lots.
        bar: Seconds of a bar. A session's bars that are missing have the last price and no volume. None takes bars as
            they come, however far they are apart.
        unit: As `read_orders` takes it.
        gap: Seconds between two bars that end a session; None: one session. All are cut to the length of the shortest.
        sessions: Pairs of first and last time instead.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed.
        ModuleNotFoundError: Without pandas.
    """
    table = read_table("source", source, {"time": time, "close": close, "volume": volume}, optional=("volume",))
    times = nanoseconds("time", table["time"], unit)
    sort = np.argsort(times, kind="stable")
    times = times[sort]
    if not np.diff(times).all():
        raise ValueError(f"time: expected one bar at a time, got several at {times[:-1][np.diff(times) == 0][0]} ns")
    tick = step_of("tick", table["close"]) if tick is None else tick
    columns = {"last_price": in_steps("close", "tick", table["close"], tick)[sort]}
    if "volume" in table:
        lot = step_of("lot", table["volume"]) if lot is None else lot
        columns["volume"] = in_steps("volume", "lot", table["volume"], lot, rounding=True)[sort]
    rows = []
    for first, last in spans_of(times, gap, sessions, unit).tolist():
        begin, end = np.searchsorted(times, [first, last + 1])
        some = {name: column[begin:end] for name, column in columns.items()}
        if bar is not None and end > begin:
            place = (times[begin:end] - times[begin]) / _interval("bar", bar)
            if (place != np.rint(place)).any():
                wrong = times[begin:end][place != np.rint(place)][0]
                raise ValueError(f"bar: expected times that are {bar} s apart or multiples, got one at {wrong} ns")
            grid = np.arange(int(place[-1]) + 1)
            at = np.searchsorted(place, grid, side="right") - 1
            some = {name: column[at] for name, column in some.items()}
            if "volume" in some:
                some["volume"] = np.where(place[at] == grid, some["volume"], 0)
        rows.append(some)
    return _stacked(rows)


def read_trades(
    source: Any,
    interval_seconds: float,
    *,
    time: str = "time",
    price: str = "price",
    size: str = "size",
    side: str | None = None,
    quotes: Any = None,
    quote_columns: Mapping[str, str] | None = None,
    tick: float | None = None,
    lot: float | None = None,
    unit: str | None = None,
    gap: float | None = None,
    sessions: Any = None,
) -> Series:
    """Read trades, and quotes if there are, as series of equal intervals, int64 `[sessions, intervals]`.

    They are `last_price`, in ticks; `volume`, in lots; `signed_volume`, if it is known who came; and of quotes, as they
    are as an interval ends, `mid2` (best bid plus best ask), `best_bid` and `best_ask`. Prices before the first are the
    first.

    Args:
        source: As `read_orders` takes it.
        interval_seconds: How long an interval is.
        time: The column of times.
        price: The column of prices.
        size: The column of sizes.
        side: The column of the side of the order that came, as `read_orders` knows sides.
        quotes: A table of the best bid and ask.
        quote_columns: Its columns by "time", "bid" and "ask"; these names if it is left out.
        tick: As `read_orders` takes it; so `lot` and `unit`.
        lot: Likewise.
        unit: Likewise.
        gap: Seconds without a trade that end a session; None: one session. All are cut to the length of the shortest.
        sessions: Pairs of first and last time instead.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed.
        ModuleNotFoundError: Without pandas.
    """
    names = {"time": time, "price": price, "size": size} | ({} if side is None else {"side": side})
    table = read_table("source", source, names)
    shown = {}
    if quotes is not None:
        named = {what: what for what in ("time", "bid", "ask")} | dict(quote_columns or {})
        shown = read_table("quotes", quotes, named)
    prices = [table["price"], *(shown[what] for what in ("bid", "ask") if shown)]
    tick = step_of("tick", *prices) if tick is None else tick
    lot = step_of("lot", table["size"]) if lot is None else lot
    steps = [in_steps("price", "tick", column, tick) for column in prices]
    times, size_ = nanoseconds("time", table["time"], unit), in_steps("size", "lot", table["size"], lot)
    sort = np.argsort(times, kind="stable")
    signs = None if side is None else coded("side", table["side"], SIDES, None)[sort]
    spans = spans_of(times[sort], gap, sessions, unit)
    trades = (times[sort], steps[0][sort], size_[sort], signs)
    book = None
    if shown:
        when = nanoseconds("quotes, time", shown["time"], unit)
        by = np.argsort(when, kind="stable")
        book = (when[by], {"best_bid": steps[1][by], "best_ask": steps[2][by]})
    return _series(interval_seconds, spans, trades, book)


def series_of(events: OrderEvents, interval_seconds: float, reach: int = 10) -> Series:
    """Return series of equal intervals of order events, int64 `[s, S]` each, a row per session.

    They are `last_price` (of trades; before the first it is that one's), `volume`, `signed_volume` (what orders that
    came bought, less what they sold), and as an interval ends `mid2`, `best_bid`, `best_ask`, `bid_depth` and
    `ask_depth`, the last ones while both sides had a price. What is left of a session beyond whole intervals is not
    seen, and all sessions are cut to the length of the shortest: `books.between` takes one of them.

    Args:
        events: As `books.replay` takes them.
        interval_seconds: How long an interval is.
        reach: Ticks from a side's best price within which its lots are its depth.

    Raises:
        TypeError, ValueError: Naming the argument, or what is wrong with the events.
    """
    reach = check_count("reach", reach, 0, 1000)
    books, traded = replay(events, reach + 1), np.flatnonzero(events.kind == EXECUTE)
    both = books.both
    shown = {"best_bid": books.prices[both, 0, 0], "best_ask": books.prices[both, 1, 0]}
    for side, name in enumerate(("bid_depth", "ask_depth")):
        near = abs(books.prices[both, side] - books.prices[both, side, :1]) <= reach
        shown[name] = (books.sizes[both, side] * near).sum(1)
    trades = (events.time[traded], events.price[traded], events.size[traded], -events.side[traded])
    return _series(interval_seconds, events.sessions, trades, (events.time[both], shown))


def _interval(name: str, seconds: Any) -> int:
    """Return nanoseconds."""
    return max(1, round(check_number(name, seconds, 1e-9, 1e9) * SECOND))


def _series(seconds: float, spans: np.ndarray, trades: Any, book: Any) -> Series:
    """Return what trades and the book show of each interval of each session."""
    length, rows = _interval("interval_seconds", seconds), []
    times, prices, sizes, signs = trades
    for first, last in spans.tolist():
        count = (last - first) // length
        ends = first + length * np.arange(1, count + 1)
        begin, end = np.searchsorted(times, [first, last + 1])
        if not count or begin == end:
            raise ValueError(f"sessions: expected {seconds} s or more with a trade in each, got {first} to {last} ns")
        at = np.searchsorted(times[begin:end], ends)  # trades before an interval's end
        some = {"last_price": prices[begin:end][np.maximum(at - 1, 0)]}
        lots = {"volume": sizes[begin:end]} | ({} if signs is None else {"signed_volume": (signs * sizes)[begin:end]})
        some |= {name: np.diff(np.r_[0, np.cumsum(column)][at], prepend=0) for name, column in lots.items()}
        if book is not None:
            start, stop = np.searchsorted(book[0], [first, last + 1])
            if start == stop:
                raise ValueError(f"sessions: expected quotes of both sides in each, got none from {first} to {last} ns")
            when = np.maximum(np.searchsorted(book[0][start:stop], ends) - 1, 0)
            some |= {name: column[start:stop][when] for name, column in book[1].items()}
            some["mid2"] = some["best_bid"] + some["best_ask"]
        rows.append(some)
    return _stacked(rows)


def _stacked(rows: list[Series]) -> Series:
    """Return the series of all sessions, as long as the shortest."""
    length = min(len(row["last_price"]) for row in rows)
    if not length:
        raise ValueError("sessions: expected an interval in each, got one without")
    return {name: np.stack([row[name][:length] for row in rows]) for name in rows[0]}
