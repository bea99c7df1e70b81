"""`read_orders`: a table of what happened to orders, of whatever feed, as order events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kineticsim_env.data.cleaning import SNAPSHOT, UNKNOWN, Fills, Rows, clean
from kineticsim_env.data.events import ADD, ASK, BID, DELETE, EXECUTE, REDUCE, OrderEvents
from kineticsim_env.data.tables import coded, identities, in_steps, nanoseconds, read_table, spans_of, step_of
from kineticsim_env.runtime.values import check_choice, check_dict, check_flag, show

_WORDS = {
    ADD: "add added a new create created open opened insert inserted submit submitted submission",
    REDUCE: "reduce reduced change changed update updated modify modified",
    DELETE: "delete deleted d del remove removed cancel canceled cancelled done close closed",
    EXECUTE: "execute executed e execution fill filled trade traded match",
}
KINDS: dict[Any, int] = {word: kind for kind, words in _WORDS.items() for word in words.split()}
KINDS |= {kind: kind for kind in _WORDS}
SIDES: dict[Any, int] = dict.fromkeys(("bid", "bids", "buy", "b", "1", 1), BID)
SIDES |= dict.fromkeys(("ask", "asks", "sell", "offer", "a", "s", "-1", -1), ASK)
_TRADES = ("time", "size", "resting", "buyer", "seller", "side")


def read_orders(
    source: Any,
    *,
    time: str = "time",
    order: str = "order",
    kind: str = "kind",
    side: str = "side",
    price: str = "price",
    size: str = "size",
    kinds: Mapping[Any, Any] | None = None,
    sides: Mapping[Any, Any] | None = None,
    unit: str | None = None,
    sizes: str = "change",
    trades: Any = None,
    trade_columns: Mapping[str, str] | None = None,
    tick: float | None = None,
    lot: float | None = None,
    snapshot: bool = True,
    gap: float | None = None,
    sessions: Any = None,
    check: bool = True,
) -> OrderEvents:
    """Read a table of order events, and clean it: what that does is at `events.report`.

    Rows are taken by time, those of one time as they come. An order whose first row is no ADD rested before the first
    session, unless this begins with a snapshot. A row that raises an order's size, or moves its price, ends it: it
    comes again with another id. Cleaning drops what crosses the best opposite price as it comes and is deleted within
    1 ms, unfilled; orders that trade as they come rest with what is left of them alone; deletes of a session's last
    instant, if they are of both sides, only close a file; opening orders without any row that orders which rest come
    to cross are removed.

    Args:
        source: A path of a CSV (.gz too) or Parquet file, a pandas or pyarrow table, or a mapping of columns.
        time: The column of times; so the others. Rows of one order are in their order.
        order: Ids, whole numbers or texts.
        kind: What happened to the order.
        side: Of the order.
        price: In currency.
        size: In units of what is traded.
        kinds: What the texts or numbers of kinds mean: "add", "reduce", "delete" or "execute". None knows these, 0 to
            3, and common words such as created, changed, deleted and match.
        sides: Likewise "bid" and "ask"; None knows these, buy and sell, 1 and -1.
        unit: Of times that are numbers: "ns", "us", "ms" or "s".
        sizes: "change" if a row's size is what came or went, "remaining" if it is what is left.
        trades: A table for feeds in which a trade is a smaller size of the order that rested.
        trade_columns: Its columns by "time", "size", and "resting", the id of the order that rested, or "buyer",
            "seller" and "side", both ids and the side of the one that came.
        tick: The price of a tick in currency; None takes the largest that all prices are multiples of.
        lot: The size of a lot; None likewise.
        snapshot: Whether ADDs of a session's first instant, before other rows and if both sides are among them, are of
            orders that rested before.
        gap: Seconds without a row that end a session; None: one session. What rests then rests in the next, unless
            this begins with a snapshot of half as many orders or more.
        sessions: Pairs of first and last time, as the column has times, instead. Rows outside are no events, but what
            rests as a session begins is known by them.
        check: Whether to refuse a book that is crossed for more than 1% of the time, in which less than 95% of the
            executions are at the best price, or of which more than 5% of the rows are of unknown orders.

    Raises:
        TypeError, ValueError: Naming the argument or the part of the report, what came and what is allowed.
        ModuleNotFoundError: Without pandas.
    """
    names = {"time": time, "order": order, "kind": kind, "side": side, "price": price, "size": size}
    table = read_table("source", source, names)
    check_choice("sizes", sizes, ("change", "remaining")), check_flag("snapshot", snapshot), check_flag("check", check)
    traded = None if trades is None else _read_trades(trades, trade_columns)
    ids = [traded[name] for name in ("resting", "taker") if name in traded] if traded else []
    order_ids, *trade_ids = identities("order", table["order"], *ids)
    amounts = [table["size"], *([traded["size"]] if traded else [])]
    tick = step_of("tick", table["price"]) if tick is None else tick
    lot = step_of("lot", *amounts) if lot is None else lot
    lots = [in_steps("size", "lot", amount, lot) for amount in amounts]
    columns = [
        nanoseconds("time", table["time"], unit),
        order_ids,
        coded("kind", table["kind"], KINDS, _named("kinds", kinds, KINDS)),
        coded("side", table["side"], SIDES, _named("sides", sides, SIDES)),
        in_steps("price", "tick", table["price"], tick),
        lots[0],
    ]
    if (lots[0] < 0).any():
        row = int((lots[0] < 0).argmax())
        raise ValueError(f"size: expected numbers from 0, got {table['size'].iloc[row]} in row {row}")
    sort = np.argsort(columns[0], kind="stable")
    columns = [column[sort] for column in columns]
    spans = spans_of(columns[0], gap, sessions, unit)
    rows = Rows(*columns, _snapshots(columns, spans) * snapshot, sizes == "remaining")
    fills = None
    if traded:
        when = nanoseconds("trades, time", traded["time"], unit)
        by = np.argsort(when, kind="stable")
        fills = Fills(when[by], trade_ids[0][by], lots[1][by], trade_ids[1][by] if len(trade_ids) > 1 else None)
    return clean(with_unknown(rows, spans), spans, read=len(rows.time), tick=tick, lot=lot, fills=fills, check=check)


def with_unknown(rows: Rows, spans: np.ndarray) -> Rows:
    """Return rows with orders whose first row is no ADD put in as its session begins, unless there is a snapshot."""
    session = np.searchsorted(spans[:, 0], rows.time, side="right") - 1
    ids, first, number = np.unique(rows.order, return_index=True, return_inverse=True)
    size = np.zeros(len(ids), np.int64)
    later = rows.kind != ADD
    (np.maximum if rows.remaining else np.add).at(size, number[later], rows.size[later])
    said = np.isin(session[first], session[rows.opening == SNAPSHOT])
    chosen = (rows.kind[first] != ADD) & (size > 0) & ~said
    rested = first[chosen]
    begins = np.where(session < 0, rows.time[0], spans[session, 0])
    before = Rows(
        begins[rested], ids[chosen], np.full(len(rested), ADD, np.int8), rows.side[rested],
        rows.price[rested], size[chosen], np.full(len(rested), UNKNOWN, np.int8),
    )  # fmt: skip
    both: Any = [np.concatenate([new, old]) for new, old in zip(before[:7], rows[:7], strict=True)]
    return Rows(*(column[np.argsort(both[0], kind="stable")] for column in both), rows.remaining)


def _snapshots(columns: list[np.ndarray], spans: np.ndarray) -> np.ndarray:
    """Return `SNAPSHOT` for the ADDs of a session's first instant before others, if they are of both sides."""
    times, kind, side = columns[0], columns[2], columns[3]
    found = np.zeros(len(times), np.int8)
    for begin in {0, *np.searchsorted(times, spans[:, 0]).tolist()}:
        end = int(np.searchsorted(times, times[begin], side="right")) if begin < len(times) else begin
        run = begin + int(np.argmin(np.r_[kind[begin:end] == ADD, False]))
        found[begin:run] = SNAPSHOT * (len(np.unique(side[begin:run])) == 2)
    return found


def _named(name: str, given: Any, words: Mapping[Any, int]) -> dict[Any, int] | None:
    """Return codes by what a user's mapping has."""
    if given is None:
        return None
    found = {}
    for key, word in check_dict(name, given, "a mapping of what a column has to what it means").items():
        meant = word.lower() if isinstance(word, str) else word
        if meant not in words:
            raise ValueError(f"{name}[{show(key)}]: expected one of {', '.join(map(repr, words))}, got {show(word)}")
        found[key] = words[meant]
    return found


def _read_trades(trades: Any, names: Mapping[str, str] | None) -> dict[str, Any]:
    """Return time, size, resting and, where it is known, taker of trades."""
    given = check_dict("trade_columns", names or {}, "a mapping of what a column is to its name")
    for what in given:
        if what not in _TRADES:
            raise ValueError(f"trade_columns: expected some of {', '.join(_TRADES)}, got {show(what)}")
    ids = ("resting", "buyer", "seller", "side")
    table = read_table("trades", trades, {what: given.get(what, what) for what in _TRADES}, optional=ids)
    if "resting" not in table:
        for what in ids[1:]:
            if what not in table:
                raise ValueError(f"trade_columns: expected 'resting', or 'buyer', 'seller' and 'side', got no {what!r}")
        buys = coded("side", table["side"], SIDES, None) == BID
        table["resting"] = table["seller"].where(buys, table["buyer"])
        table["taker"] = table["buyer"].where(buys, table["seller"])
    return table
