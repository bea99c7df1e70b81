"""Order events as they were recorded made a book's: rejects, orders that trade as they come, stale orders, sessions."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections import Counter, deque
from typing import Any, NamedTuple

import numpy as np

from kineticsim_env.data.books import NO_PRICE, replay
from kineticsim_env.data.events import ADD, ASK, BID, DELETE, EXECUTE, REDUCE, OrderEvents
from kineticsim_env.data.report import CleaningReport

REJECTED_WITHIN = 10**6  # ns
_CLOCKS = 10**9  # ns, by which a trade's time may be later than that of the row that shows it
SNAPSHOT, UNKNOWN = 1, 2  # how an order that rested as a session began is known: as it says, or by later rows
_DELETED, _TRADES, _NOTHING = 1, 2, 3  # an order's next row: within 1 ms it is deleted, or gets smaller; there is none


class Rows(NamedTuple):
    """Recorded rows, in time; columns are those of `OrderEvents`, and `remaining` says that sizes are what is left.

    `opening` is int8: 0, `SNAPSHOT` or `UNKNOWN`.
    """

    time: np.ndarray
    order: np.ndarray
    kind: np.ndarray
    side: np.ndarray
    price: np.ndarray
    size: np.ndarray
    opening: np.ndarray
    remaining: bool = False


class Fills(NamedTuple):
    """Trades of a table of their own, in time: the order that rested and the one that came (None: not known)."""

    time: np.ndarray
    resting: np.ndarray
    size: np.ndarray
    taker: np.ndarray | None = None


def clean(
    rows: Rows,
    spans: np.ndarray,
    *,
    read: int,
    tick: float,
    lot: float,
    fills: Fills | None = None,
    touch: np.ndarray | None = None,
    closing: bool = True,
    notes: tuple[str, ...] = (),
    check: bool = True,
) -> OrderEvents:
    """Return the events of recorded rows with their report.

    Args:
        rows: As they were recorded, their times not falling.
        spans: int64 `[s, 2]`, sessions. Rows outside are no events, but what rests is known by them. An order that
            rests at a gap rests after it, unless a snapshot of half as many orders or more begins the session after.
        read: How many rows the source has.
        tick: For the events.
        lot: Likewise.
        fills: Trades, where rows do not say which orders traded.
        touch: int64 `[n, 2]`, best bid and ask after each row, where a source has them: what rests at better prices
            was deleted out of sight.
        closing: Whether deletes of a session's last instant, if they are of both sides, only end a file.
        notes: For the report.
        check: Whether to refuse events that fail it.

    Raises:
        ValueError: Naming what of the report fails.
    """
    pass_ = _Pass(rows, fills, touch)
    columns: Any = pass_.over(spans, closing)
    events = OrderEvents(**columns, sessions=spans, tick=float(tick), lot=float(lot))
    if unmatched := sum(map(len, pass_.fills.values())):
        notes += (f"{unmatched:,} trades that no row shows",)
    report = _report(events, read, pass_.counts, notes)
    if check and report.failures:
        raise ValueError(f"{'; '.join(report.failures)}; check=False takes it. The report:\n{report}")
    return dataclasses.replace(events, report=report)


def _report(events: OrderEvents, rows: int, counts: Counter[str], notes: tuple[str, ...]) -> CleaningReport:
    books, traded = replay(events, 1), np.flatnonzero(events.kind == EXECUTE)
    gaps = zip(events.sessions[:-1, 1].tolist(), events.sessions[1:, 0].tolist(), strict=True)
    session = np.searchsorted(events.sessions[:, 0], events.time, side="right") - 1
    until = np.minimum(np.r_[events.time, events.sessions[-1, 1]][1:], events.sessions[session, 1])
    lasts = until - events.time  # of an instant's events only the last one's book does
    seconds = float(np.diff(events.sessions).sum()) / 1e9
    before = books.prices[np.maximum(traded - 1, 0), (events.side[traded] == ASK).astype(np.int64), 0]
    groups = np.unique(np.stack([events.time[traded], events.side[traded]]), axis=1)
    return CleaningReport(
        rows, len(events), int(events.opening.sum()),
        *(counts[name] for name in ("rejects", "takers", "stale", "unseen", "ignored", "closing")),
        crossed=float(lasts[books.both & (books.spread <= 0)].sum()) / 1e9 / seconds if seconds else 0.0,
        executions=len(traded), at_touch=int((before == events.price[traded]).sum()), market_orders=groups.shape[1],
        agreeing=counts["agreeing"] / counts["compared"] if counts["compared"] else math.nan,
        gaps=tuple(gaps), seconds=seconds, tick=events.tick, lot=events.lot, notes=notes,
    )  # fmt: skip


class _Pass:
    """One pass over rows, with the book as it is."""

    def __init__(self, rows: Rows, fills: Fills | None, touch: np.ndarray | None) -> None:
        self.counts: Counter[str] = Counter()
        self._rows, self._touch = rows, touch
        self.fills: dict[int, deque[list[int]]] = {}  # by the order that rests: from when on, lots; those to come
        self._takes: Counter[int] = Counter()  # lots that an order trades as it comes
        if fills is not None:
            of = np.isin(rows.order, fills.resting)
            shown = set(zip(rows.order[of].tolist(), rows.time[of].tolist(), strict=True))
            for when, order, size in zip(fills.time.tolist(), fills.resting.tolist(), fills.size.tolist(), strict=True):
                # Its row has its time; if there is none such, clocks differ.
                first = when if (order, when) in shown else when - _CLOCKS
                self.fills.setdefault(order, deque()).append([first, size])
            if fills.taker is not None:
                for order, size in zip(fills.taker.tolist(), fills.size.tolist(), strict=True):
                    self._takes[order] += size
        self._fresh = int(rows.order.max(initial=0)) + 1  # ids of orders that lose their place, or come again
        self._events: list[tuple[int, ...]] = []
        self._removed: set[int] = set()
        self._coming: dict[int, list[Any]] = {}  # by id: side, price, lots left, lots to trade (None: not known)
        self._settled: list[int] = []  # of these, orders that have traded and rest once the instant is over
        self._clear()

    def _clear(self) -> None:
        self._live: dict[int, list[int]] = {}  # by id: side, price, lots, id in the events, its event
        self._seen: set[int] = set()  # ids in the session's events
        self._idle: set[int] = set()  # opening orders that no further row of the session is of
        self._levels: dict[tuple[int, int], dict[int, None]] = {}
        self._heaps: dict[int, list[int]] = {BID: [], ASK: []}

    def over(self, spans: np.ndarray, close: bool) -> dict[str, np.ndarray]:
        """Return the columns of the events."""
        rows = self._rows
        session = np.searchsorted(spans[:, 0], rows.time, side="right") - 1
        piece = 2 * session + ((session < 0) | (rows.time > spans[session, 1]))  # odd ones are outside sessions
        closing = _closing(rows, piece) if close else np.zeros(len(piece), np.bool_)
        self.counts["closing"] = int(closing.sum())
        chosen = np.flatnonzero(~closing)
        kept = Rows(*(column[chosen] for column in rows[:7]), rows.remaining)
        piece, after = piece[chosen], _after(kept)
        last = dict(zip(kept.order.tolist(), range(len(chosen)), strict=True)) if len(np.unique(piece)) > 1 else {}
        snapshots = Counter(piece[kept.opening == SNAPSHOT].tolist())
        now, clock = None, None
        touch = None if self._touch is None else self._touch[chosen].tolist()
        columns = (piece, *kept[:7], after)
        for k, (of, time, order, kind, *rest) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            if time != clock:
                self._settle(clock)
                clock = time
            if of != now:
                self._end(now)
                now = of
                idle = {order for order in self._live if last[order] < k}
                self._begin(time if of % 2 else int(spans[of // 2, 0]), snapshots[of], idle)
            if kind == ADD:
                self._add(time, order, *rest)
            else:
                self._change(time, order, kind, *rest)
            if touch is not None:
                self._leave_unseen(time, touch[k])
        self._settle(clock)
        self._end(now)
        events = [event for k, event in enumerate(self._events) if k not in self._removed]
        table = np.array(events, np.int64).reshape(-1, 7).T
        kinds = {"kind": np.int8, "side": np.int8, "opening": np.bool_}
        names = ("time", "order", "kind", "side", "price", "size", "opening")
        return {name: column.astype(kinds.get(name, np.int64)) for name, column in zip(names, table, strict=True)}

    def _end(self, piece: int | None) -> None:
        """Forget the events of what is outside sessions; what rests is known."""
        if piece is not None and piece % 2:
            del self._events[self._begins :]
            self._removed = {event for event in self._removed if event < self._begins}

    def _begin(self, time: int, snapshot: int, idle: set[int]) -> None:
        """Begin a session, with what rested as the last one ended unless a snapshot of half as many orders follows."""
        self._opens = snapshot > 0 and 2 * snapshot >= len(self._live)
        self._begins = len(self._events)
        resting = [] if self._opens else list(self._live.items())
        self._clear(), self._coming.clear()
        for order, (side, price, left, *_) in resting:
            self._rest(time, order, side, price, left, UNKNOWN)
        self._idle = idle & self._live.keys()

    def _rest(self, time: int, order: int, side: int, price: int, size: int, opening: int = 0) -> None:
        level = self._levels.setdefault((side, price), {})
        if not level:  # its price may be in the heap still, which does no harm
            heapq.heappush(self._heaps[side], -side * price)
        level[order] = None
        shown = order
        if order in self._seen:
            shown, self._fresh = self._fresh, self._fresh + 1
        self._seen.add(shown)
        self._live[order] = [side, price, size, shown, len(self._events)]
        self._events.append((time, shown, ADD, side, price, size, opening))

    def _gone(self, order: int) -> None:
        side, price, *_ = self._live.pop(order)
        del self._levels[side, price][order]

    def _best(self, side: int) -> int | None:
        heap = self._heaps[side]
        while heap and not self._levels[side, -side * heap[0]]:
            heapq.heappop(heap)
        return -side * heap[0] if heap else None

    def _went(self, time: int, order: int, kind: int, size: int) -> None:
        """Put an event of an order that rests, and end it if nothing is left."""
        state = self._live[order]
        self._events.append((time, state[3], kind, state[0], state[1], size, False))
        state[2] -= size
        if not state[2]:
            self._gone(order)

    def _add(self, time: int, order: int, side: int, price: int, size: int, opening: int, after: int) -> None:
        opening = opening if self._opens or opening == UNKNOWN else 0
        if order in self._live:  # it loses its place
            self._went(time, order, DELETE, self._live[order][2])
        if not size:  # of some feeds a market order that met nobody
            self._coming[order] = [side, price, size, None]
            return
        if not opening:
            if order in self._takes:
                self.counts["takers"] += 1
                self._coming[order] = [side, price, size, self._takes.pop(order)]
                return
            best = self._best(-side)
            if best is not None and side * (price - best) >= 0:
                if after in (_DELETED, _TRADES) and order not in self.fills:
                    self.counts["rejects" if after == _DELETED else "takers"] += 1
                    self._coming[order] = [side, price, size, None]
                    return
                self._remove_stale(-side, price)
        self._rest(time, order, side, price, size, opening)
        if opening and after == _NOTHING:
            self._idle.add(order)

    def _remove_stale(self, side: int, price: int) -> None:
        """Remove opening orders without any event that an order which rests crosses; others are left as they are."""
        while (best := self._best(side)) is not None and side * (best - price) >= 0:
            stale = [order for order in self._levels[side, best] if order in self._idle]
            for order in stale:
                self._removed.add(self._live[order][4])
                self._gone(order)
            self.counts["stale"] += len(stale)
            if self._levels[side, best]:
                return

    def _change(
        self, time: int, order: int, kind: int, side: int, price: int, size: int, opening: int, after: int
    ) -> None:
        remaining = self._rows.remaining
        if order in self._coming:
            state = self._coming[order]
            went = state[2] - size if remaining else size
            state[2] -= went
            if kind == DELETE or state[2] <= 0:
                del self._coming[order]
                return
            if state[3] is not None:
                state[3] -= went
            if after != _TRADES if state[3] is None else state[3] <= 0:
                self._settled.append(order)
            return
        if order not in self._live:
            self.counts["ignored"] += order not in self._seen  # a filled order may be deleted besides
            return
        side, old, left, *_ = self._live[order]
        went = left - size if remaining else size
        if kind == EXECUTE:
            if min(went, left) > 0:
                self._went(time, order, EXECUTE, min(went, left))
            return
        traded = self._trade(time, order, left if kind == DELETE and (size == 0 or not remaining) else min(went, left))
        went, left = went - traded, left - traded
        if not left:
            return
        if kind == DELETE or went >= left:
            self._went(time, order, DELETE, left)
        elif went < 0 or (remaining and price != old and not traded):  # it loses its place
            self._went(time, order, DELETE, left)
            self._rest(time, order, side, price, left - went)
        elif went > 0:
            self._went(time, order, REDUCE, went)

    def _trade(self, time: int, order: int, most: int) -> int:
        """Execute what trades say of an order, up to so many lots; return how many these are."""
        pending, total = self.fills.get(order), 0
        while pending and total < most and pending[0][0] <= time:
            size = min(pending[0][1], most - total)
            self._went(time, order, EXECUTE, size)
            total += size
            pending[0][1] -= size
            if not pending[0][1]:
                pending.popleft()
        return total

    def _settle(self, time: Any) -> None:
        """Let rest what is left of orders that traded as they came."""
        for order in self._settled:
            if order in self._coming:
                side, price, left, _ = self._coming.pop(order)
                self._rest(time, order, side, price, left)
        self._settled.clear()

    def _leave_unseen(self, time: int, touch: list[int]) -> None:
        """Delete what rests at better prices than the best that are shown, -+`NO_PRICE` of a side without any."""
        for side, shown in zip((BID, ASK), touch, strict=True):
            while (best := self._best(side)) is not None and side * (best - shown) > 0:
                for order in list(self._levels[side, best]):
                    self._went(time, order, DELETE, self._live[order][2])
                    self.counts["unseen"] += 1
        if touch[0] < NO_PRICE:  # else the row is none of the source's
            self.counts["compared"] += 1
            best = [-side * NO_PRICE if (price := self._best(side)) is None else price for side in (BID, ASK)]
            self.counts["agreeing"] += best == touch


def _after(rows: Rows) -> np.ndarray:
    """Return what is known of each row's order by its next row."""
    sort = np.argsort(rows.order, kind="stable")
    same = rows.order[sort][1:] == rows.order[sort][:-1]
    follows = np.full(len(sort), -1)
    follows[sort[:-1][same]] = sort[1:][same]
    kind = rows.kind[follows]
    found = np.where(kind == DELETE, _DELETED, np.where(np.isin(kind, (EXECUTE, REDUCE)), _TRADES, 0))
    found[rows.time[follows] - rows.time > REJECTED_WITHIN] = 0
    return np.where(follows < 0, _NOTHING, found)


def _closing(rows: Rows, piece: np.ndarray) -> np.ndarray:
    """Say of each row whether it is one of the deletes, of both sides, that are all of a session's last rows."""
    found = np.zeros(len(piece), np.bool_)
    ends = np.flatnonzero(np.diff(piece, append=piece[-1] + 1)) + 1
    for begin, end in zip(np.r_[0, ends[:-1]].tolist(), ends.tolist(), strict=True):
        last = (rows.kind[begin:end] == DELETE) & (rows.time[begin:end] == rows.time[end - 1])
        run = slice(end - int(np.argmin(np.r_[last[::-1], False])), end)
        found[run] = piece[begin] % 2 == 0 and len(np.unique(rows.side[run])) == 2
    return found
