"""How a call that takes long is cut: for the progress bar, and so that Ctrl-C need not wait for its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

# Agent-events in about a quarter of a second, by engine.
EVENTS = {"cuda": 5e10, "cpu": 5e7, "numpy": 3e6}


class Piece(NamedTuple):
    """A part of a call that takes long: whole decisions, or some auctions of one."""

    decision: int
    decisions: int
    auction: int  # of the first decision
    auctions: int  # of each decision


def cut_into_pieces(decisions: int, auctions: int, most: int) -> Iterator[Piece]:
    """Yield the pieces of decisions of some auctions each, of at most `most` auctions."""
    if auctions <= most:
        step = most // auctions
        for decision in range(0, decisions, step):
            yield Piece(decision, min(step, decisions - decision), 0, auctions)
        return
    for decision in range(decisions):
        for auction in range(0, auctions, most):
            yield Piece(decision, 1, auction, min(most, auctions - auction))
