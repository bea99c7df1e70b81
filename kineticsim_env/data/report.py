"""`CleaningReport`: what was read, what cleaning did to it, and whether the book that came of it is one."""

from __future__ import annotations

import dataclasses
import math

MOST_CROSSED, LEAST_AT_TOUCH, MOST_IGNORED, LEAST_AGREEING = 0.01, 0.95, 0.05, 0.95


@dataclasses.dataclass(frozen=True)
class CleaningReport:
    """What was read, what cleaning did, and whether the book that came of it is one; printed, it is a list.

    Attributes:
        rows: That were read.
        events: That they became, of them `opening` of orders that rested before.
        rejects: Orders that crossed the best opposite price as they came and were deleted within 1 ms, unfilled.
        takers: Orders that traded as they came, whose own rows are no events but for what was left of them.
        stale: Opening orders without any event, removed as orders that rest came to cross them.
        unseen: Orders that were deleted out of sight of LOBSTER's levels.
        ignored: Rows of orders that were not there.
        closing: Deletes of a session's last instant, which only end a file.
        crossed: Share of time in which the best bid is at the best ask or above.
        executions: Events that trade, of them `at_touch` at the best price of their side.
        market_orders: Executions of one time and side counted as one.
        agreeing: Share of messages after which the best prices are those of LOBSTER's orderbook file; NaN without one.
        gaps: Spans of time between sessions, int ns, first and last.
        seconds: That all sessions have together.
        tick: The price of a tick in currency.
        lot: The size of a lot in units of what is traded.
        notes: What else the source says, such as hidden trades and halts.
    """

    rows: int
    events: int
    opening: int
    rejects: int
    takers: int
    stale: int
    unseen: int
    ignored: int
    closing: int
    crossed: float
    executions: int
    at_touch: int
    market_orders: int
    agreeing: float
    gaps: tuple[tuple[int, int], ...]
    seconds: float
    tick: float
    lot: float
    notes: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[str, ...]:
        """What is wrong with the book, by name; nothing of a good one."""
        found = []
        if not self.crossed <= MOST_CROSSED:
            found.append(f"crossed: expected {MOST_CROSSED:.0%} of the time at most, got {self.crossed:.2%}")
        if self.at_touch < LEAST_AT_TOUCH * self.executions:
            share = self.at_touch / self.executions
            found.append(f"at_touch: expected {LEAST_AT_TOUCH:.0%} of executions at least, got {share:.1%}")
        if self.ignored > MOST_IGNORED * self.rows:
            share = self.ignored / self.rows
            found.append(f"ignored: expected {MOST_IGNORED:.0%} of rows at most, got {share:.1%}")
        if self.agreeing < LEAST_AGREEING:
            found.append(f"agreeing: expected {LEAST_AGREEING:.0%} of messages at least, got {self.agreeing:.1%}")
        return tuple(found)

    def __str__(self) -> str:
        gaps = ", ".join(f"{(last - first) / 1e9:,.1f} s from {first} ns" for first, last in self.gaps)
        lines = [
            f"{self.rows:,} rows became {self.events:,} events, {self.opening:,} opening ones; {self.seconds:,.1f} s",
            f"tick {self.tick:g}, lot {self.lot:g}; gaps: {gaps or 'none'}",
            f"no events: {self.rejects:,} rejects, {self.takers:,} orders that traded as they came, "
            f"{self.closing:,} deletes that close a file, {self.ignored:,} rows ignored",
            *(
                []
                if math.isnan(self.agreeing)
                else [f"best prices as the orderbook file after {self.agreeing:.2%} of messages"]
            ),
            f"removed: {self.stale:,} stale orders, {self.unseen:,} deleted out of sight",
            f"book crossed {self.crossed:.3%} of the time; {self.at_touch:,} of {self.executions:,} executions at the "
            f"touch, {self.market_orders:,} market orders",
        ]
        return "\n".join([*lines, *self.notes, *(f"wrong: {failure}" for failure in self.failures)])
