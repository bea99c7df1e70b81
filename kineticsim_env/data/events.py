"""`OrderEvents`: what happened to the orders of one market's book, whether real or simulated."""

from __future__ import annotations

import dataclasses

import numpy as np

from kineticsim_env.data.report import CleaningReport

ADD, REDUCE, DELETE, EXECUTE = range(4)
KINDS = ("add", "reduce", "delete", "execute")
BID, ASK = 1, -1
COLUMNS = {"time": "i8", "order": "i8", "kind": "i1", "side": "i1", "price": "i8", "size": "i8", "opening": "?"}


@dataclasses.dataclass(frozen=True)
class OrderEvents:
    """Events of the orders that rest, n of them in the order in which they happened.

    An order that trades as it comes is no event of its own, as in LOBSTER's messages: the orders that it meets are
    executed, and what is left of it is added. Executions of one time and side are of one order that came.

    Attributes:
        time: int64 `[n]`, nanoseconds, never falling.
        order: int64 `[n]`, the order's id.
        kind: int8 `[n]`, `ADD`, `REDUCE`, `DELETE` or `EXECUTE`. A reduced order keeps its place in the queue.
        side: int8 `[n]`, 1 of a bid, -1 of an ask: of the order that rests.
        price: int64 `[n]`, ticks.
        size: int64 `[n]`, lots: what came to rest, what went, what was left, what was traded.
        opening: bool `[n]`, of an ADD whether it already rested when a session began, so that its age is not known.
        sessions: int64 `[s, 2]`, the spans of time that were seen, in nanoseconds, first and last; gaps are between.
        tick: The price of a tick in currency.
        lot: The size of a lot in units of what is traded.
        report: What was found when they were read; None of events that were not.
    """

    time: np.ndarray
    order: np.ndarray
    kind: np.ndarray
    side: np.ndarray
    price: np.ndarray
    size: np.ndarray
    opening: np.ndarray
    sessions: np.ndarray
    tick: float = 1.0
    lot: float = 1.0
    report: CleaningReport | None = dataclasses.field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.time)
