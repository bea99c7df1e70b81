"""What the text of docs/clearing.md looks up in the figures, and the names that it gives to things."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kineticsim_env.statistics import Mean
from kineticsim_env.studies import clearing as study
from kineticsim_env.studies import clearing_learning as learning

Found = Mapping[str, Any]
AROUND = {"mid": "around the mid", "fundamental": "around the fundamental price"}
EARNED = "ticks x units per 1,000 events"
OFTEN, SELDOM = ({role: learning.Kind(role, every) for role in learning.ROLES} for every in (study.OFTEN, study.SELDOM))


def row_of(found: Found, reference: str, news: str, interval: int) -> Mapping[str, Any]:
    """Return all figures of a rule in markets of a kind."""
    wanted = (reference, news, interval)
    return next(row for row in found["rows"] if (row["reference"], row["news"], row["interval"]) == wanted)


def at(found: Found, reference: str, news: str, interval: int, name: str) -> Mean:
    """Return one of these figures."""
    return Mean(*row_of(found, reference, news, interval)[name])


def interval_name(interval: int) -> str:
    """Return a rule as tables have it."""
    return "continuous" if interval == study.CONTINUOUS else f"{interval:,}"
