"""Books of order events: the best levels after each, and events cut to a span of time or put in larger lots."""

from __future__ import annotations

import bisect
import dataclasses
from array import array
from typing import Any, NamedTuple

import numpy as np

from kineticsim_env.data.events import ADD, BID, COLUMNS, DELETE, KINDS, OrderEvents
from kineticsim_env.runtime.values import check_count, check_instance, check_number, show

NO_PRICE = 9_999_999_999  # of a level that there is not; of bids with a minus, as LOBSTER has it


@dataclasses.dataclass(frozen=True)
class Books:
    """The best N levels after each of n events.

    Attributes:
        prices: int64 `[n, 2, N]`, ticks, of the bid and the ask, best first; -+`NO_PRICE` where there is no level.
        sizes: int64 `[n, 2, N]`, lots; 0 where there is no level.
    """

    prices: np.ndarray
    sizes: np.ndarray

    def __len__(self) -> int:
        return len(self.prices)

    @property
    def both(self) -> np.ndarray:
        """Whether both sides have a price, bool `[n]`."""
        return np.all(self.sizes[:, :, 0] > 0, axis=1)

    @property
    def mid2(self) -> np.ndarray:
        """Best bid plus best ask, int64 `[n]`, in half ticks: twice the mid, where both sides have a price."""
        return self.prices[:, :, 0].sum(1)

    @property
    def spread(self) -> np.ndarray:
        """Best ask less best bid, int64 `[n]`, ticks, where both sides have a price."""
        return self.prices[:, 1, 0] - self.prices[:, 0, 0]


class Orders(NamedTuple):
    """What is known of the order of each of n events."""

    added: np.ndarray  # int64 [n], the event that added it
    left: np.ndarray  # int64 [n], lots of it that rest after the event
    session: np.ndarray  # int64 [n], of the event


def follow_orders(events: OrderEvents) -> Orders:
    """Check that events are those of orders, from their adding to their end, and return what is known of these.

    In every session all orders are added, those that rested as it began by events marked `opening`.

    Raises:
        ValueError: Naming what is inconsistent.
    """
    _check_columns(events)
    session = np.searchsorted(events.sessions[:, 0], events.time, side="right") - 1
    outside = (session < 0) | (events.time > events.sessions[np.maximum(session, 0), 1])
    _refuse(events, "time", outside, "a time within a session")
    sort = np.lexsort((events.order, session))  # stable: events of an order stay as they are
    order, kind, size = events.order[sort], events.kind[sort], events.size[sort]
    new = np.r_[True, (order[1:] != order[:-1]) | (session[sort][1:] != session[sort][:-1])][: len(sort)]
    number = np.cumsum(new) - 1
    first = np.flatnonzero(new)[number] if len(sort) else number
    total = np.cumsum(np.where(kind == ADD, size, -size))
    left = total - (total - size)[first]  # of an ADD the total before it is the total less its size

    gone = ~new & (left + np.where(kind == ADD, -size, size) == 0)
    side, price = events.side[sort], events.price[sort]
    for wrong, allowed in (
        (new & (kind != ADD), lambda i: "an order that an event has added in its session"),
        (~new & (kind == ADD), lambda i: "an order that was not added before"),
        (gone, lambda i: "an order that rests"),
        (left < 0, lambda i: f"at most the {left[i] + size[i]} that rest"),
        ((kind == DELETE) & (left > 0), lambda i: f"all {left[i] + size[i]} that rest"),
        (side != side[first], lambda i: f"the side {side[first[i]]} it was added with"),
        (price != price[first], lambda i: f"the price {price[first[i]]} it was added at"),
    ):
        if wrong.any():
            i = np.flatnonzero(wrong)[sort[wrong].argmin()]
            got = f"{KINDS[kind[i]]} of {size[i]} lots of order {order[i]}, side {side[i]}, at {price[i]}"
            raise ValueError(f"event {sort[i]}: expected {allowed(i)}, got {got}")
    added, remaining = np.empty_like(sort), np.empty_like(sort)
    added[sort], remaining[sort] = sort[first], left
    return Orders(added, remaining, session)


def replay(events: OrderEvents, levels: int = 10) -> Books:
    """Return the best levels of the book after each event.

    Args:
        events: Of any number of sessions; each begins with an empty book, to which the orders that rest are added.
        levels: Of each side; 1 of the best quotes alone.

    Raises:
        ValueError: Naming what is inconsistent, such as an event of an order that was never added.
    """
    check_instance("events", events, OrderEvents)
    levels = check_count("levels", levels, 1, 8192)
    session = follow_orders(events).session
    # By side: after which events the best levels were others, their prices and their sizes.
    changed: Any = [(array("q"), array("q"), array("q")) for _ in range(2)]
    units = np.where(events.kind == ADD, events.size, -events.size).tolist()
    began, book = -1, []
    for event, (side, price, by, now) in enumerate(
        zip(events.side.tolist(), events.price.tolist(), units, session.tolist(), strict=True)
    ):
        if now != began:
            # Prices with a minus if they are bids, ascending, so the best comes first, and the sizes there. They end
            # with levels that there are not, so the first `levels` are always there.
            began, book = now, [([NO_PRICE] * levels, [0] * levels) for _ in changed]
            for (prices, sizes), (when, *shown) in zip(book, changed, strict=True):
                when.append(event), shown[0].extend(prices), shown[1].extend(sizes)
        which = side != BID
        key = price if which else -price
        prices, sizes = book[which]
        place = bisect.bisect_left(prices, key)
        if prices[place] != key:
            prices.insert(place, key)
            sizes.insert(place, by)
        elif sizes[place] + by:
            sizes[place] += by
        else:
            del prices[place], sizes[place]
        if place < levels:
            when, *shown = changed[which]
            when.append(event), shown[0].extend(prices[:levels]), shown[1].extend(sizes[:levels])
    n = len(events)
    found = Books(np.empty((n, 2, levels), np.int64), np.empty((n, 2, levels), np.int64))
    for side, (when, *shown) in enumerate(changed):
        last = np.searchsorted(when, np.arange(n), side="right") - 1
        for to, values in zip((found.prices, found.sizes), shown, strict=True):
            to[:, side] = np.array(values, np.int64).reshape(-1, levels)[last]
    found.prices[:, 0] *= -1
    return found


def between(events: OrderEvents, first: int, last: int) -> OrderEvents:
    """Return the events of a span of time; what rests as it begins is added first, as `opening`.

    Args:
        events: As `replay` takes them.
        first: Nanoseconds; events of this time are in the span.
        last: Nanoseconds; events of this time are not.
    """
    check_instance("events", events, OrderEvents)
    first, last = check_count("first", first, -(2**62), 2**62), check_count("last", last, -(2**62), 2**62)
    orders = follow_orders(events)
    begins, ends = events.sessions.T
    spans = np.clip(events.sessions, first, last)[(begins < last) & (ends >= first)]
    now = np.searchsorted(begins, first, side="right") - 1
    latest: Any = {}  # event of each order, by the event that added it; a dict keeps who came first
    if now >= 0 and first <= ends[now]:
        for event in np.flatnonzero((events.time < first) & (orders.session == now)).tolist():
            latest[int(orders.added[event])] = event
    resting = [(added, orders.left[event]) for added, event in latest.items() if orders.left[event]]
    resting = np.array(resting, np.int64).reshape(-1, 2)
    inside = (events.time >= first) & (events.time < last)
    rows = np.concatenate([resting[:, 0], np.flatnonzero(inside)])
    found, count = select(events, rows, spans), len(resting)
    found.time[:count], found.size[:count], found.opening[:count] = first, resting[:, 1], True
    return found


def in_lots(events: OrderEvents, lot: float) -> OrderEvents:
    """Return events in larger lots: what rests of an order is rounded, and is one lot at least while it rests.

    Args:
        events: As `replay` takes them.
        lot: The size of a lot in units of what is traded, as `events.lot`.
    """
    check_instance("events", events, OrderEvents)
    ratio = check_number("lot", lot, 0, above=True) / events.lot
    orders = follow_orders(events)
    left = np.where(orders.left > 0, np.maximum(np.rint(orders.left / ratio), 1), 0).astype(np.int64)
    sort = np.argsort(orders.added, kind="stable")
    before = np.r_[0, left[sort][:-1]]
    before[np.diff(orders.added[sort], prepend=-1) != 0] = 0
    size = np.empty_like(left)
    size[sort] = abs(left[sort] - before)
    found = dataclasses.replace(events, size=size, lot=float(lot))
    return select(found, np.flatnonzero(size), events.sessions)  # without those that are less than a lot


def select(events: OrderEvents, rows: Any, sessions: np.ndarray) -> OrderEvents:
    """Return copies of some events, and of these sessions."""
    columns = {name: np.array(getattr(events, name)[rows]) for name in COLUMNS}
    return dataclasses.replace(events, **columns, sessions=sessions)


def _check_columns(events: OrderEvents) -> None:
    """Refuse columns of wrong forms or with values that no event has."""
    for name, kind in COLUMNS.items():
        column = getattr(events, name)
        if not isinstance(column, np.ndarray) or column.dtype != kind or column.shape != (len(events),):
            form = f"{column.dtype} {list(column.shape)}" if isinstance(column, np.ndarray) else show(column)
            raise ValueError(f"events.{name}: expected {np.dtype(kind)} [{len(events)}], got {form}")
    spans = events.sessions
    if not isinstance(spans, np.ndarray) or spans.ndim != 2 or spans.shape[1] != 2 or spans.dtype != np.int64:
        raise ValueError(f"events.sessions: expected int64 [s, 2], got {show(spans)}")
    if (np.diff(spans.ravel()) < 0).any() or (len(events) and not len(spans)):
        raise ValueError(f"events.sessions: expected spans of time, each after the last, got {spans.tolist()}")
    for name, wrong, allowed in (
        ("kind", (events.kind < 0) | (events.kind >= len(KINDS)), f"0 to {len(KINDS) - 1}"),
        ("side", abs(events.side) != 1, "1 or -1"),
        ("size", events.size <= 0, "lots above 0"),
        ("price", abs(events.price) >= NO_PRICE, f"ticks below {NO_PRICE} in size"),
        ("time", np.r_[False, np.diff(events.time) < 0][: len(events)], "times that do not fall"),
        ("opening", events.opening & (events.kind != ADD), "False, as only an added order can have rested before"),
    ):
        _refuse(events, name, wrong, allowed)


def _refuse(events: OrderEvents, name: str, wrong: np.ndarray, allowed: str) -> None:
    if wrong.any():
        k = int(wrong.argmax())
        raise ValueError(f"events.{name}[{k}]: expected {allowed}, got {getattr(events, name)[k]}")
