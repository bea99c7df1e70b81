"""Statistics of order events that texts can name: what the scores of `order_book_scores` measure, market by market.

Under continuous trading alone, as call auctions have no such events. An interval has no length in seconds, so scores of
seconds are not among them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kineticsim_env.data.events import ADD, EXECUTE
from kineticsim_env.data.measures import CANCELLED, WITHOUT_SECONDS, Session, values_of
from kineticsim_env.statistics.gathering import Events
from kineticsim_env.statistics.plans import Plan, check_labels, check_names, curve

_KINDS = {"add": (ADD,), "cancel": CANCELLED, "execute": (EXECUTE,)}


def event_mean(score: Any = WITHOUT_SECONDS) -> Plan:
    """Mean of a score's numbers, over events or orders: ticks, lots or logarithms, as docs/order_book_scores.md has it.

    `score` is one of `data.measures.WITHOUT_SECONDS`, or several. NaN where a market has no such number.
    """
    labels, alone = check_names("score", score, WITHOUT_SECONDS)

    def found(sessions: list[Session]) -> list[float]:
        values = [values_of(name, sessions) for name in labels]
        return [float(each.mean()) if len(each) else math.nan for each in values]

    return _plan(found, "score", labels, alone)


def event_quantile(score: str = "spread", level: Any = (0.1, 0.5, 0.9)) -> Plan:
    """Number to which the share `level` of a score's numbers comes up (NumPy's `linear`); units as of `event_mean`."""
    (name,), _ = check_names("score", [score], WITHOUT_SECONDS)
    labels, alone = check_labels("level", level, 0, 1, whole=False)

    def found(sessions: list[Session]) -> np.ndarray:
        values = values_of(name, sessions)
        return np.quantile(values, labels) if len(values) else np.full(len(labels), math.nan)

    return _plan(found, "level", labels, alone)


def event_share(kind: Any = ("cancel", "execute")) -> Plan:
    """Share of events that are of a kind: `"add"`, `"cancel"` (of a part or all) or `"execute"`, together 1.

    Its inverse is the mean number of events from one of the kind to the next.
    """
    labels, alone = check_names("kind", kind, tuple(_KINDS))

    def found(sessions: list[Session]) -> list[float]:
        total = sum(len(of.events) - of.first for of in sessions)
        return [sum(len(of.where(_KINDS[name])) for of in sessions) / total if total else math.nan for name in labels]

    return _plan(found, "kind", labels, alone)


def _plan(function: Any, axis: str, labels: tuple[Any, ...], alone: bool) -> Plan:
    return curve(lambda sums: sums["values"], axis, labels, alone, Events(function, len(labels)))
