"""A file of measurements as report.py asks for it, with names and notes rewritten for where they go.

They may hold any character.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
AXIS = {"markets": "markets", "agents": "agents", "levels": "levels", "steps": "steps"}
AXIS |= {"env markets": "markets", "env agents": "agents"}
_MARKUP = "&<>|\\`[]*$"


class Measured:
    """A file of measurements, by what the tables and figures ask for."""

    def __init__(self, data: dict[str, Any], write: Callable[[str], str] = str) -> None:
        """Sort the rows of a file; backends keep its order, ours first. `write` makes its texts fit where they go."""
        self.data: dict[str, Any] = rewritten(data, write)
        data = self.data
        self.rows: list[Row] = data["rows"]
        named = [*data.get("backends", []), *(row["backend"] for row in self.rows)]
        self.backends = [name for name in dict.fromkeys(named) if any(row["backend"] == name for row in self.rows)]

    def of(self, sweep: str) -> list[Row]:
        """Return the rows of a sweep that have a figure."""
        return [row for row in self.rows if row["sweep"] == sweep and row["agrees"] and row["seconds_median"]]

    def names(self, sweep: str) -> list[str]:
        """Return the backends that have a figure in a sweep, ours first."""
        found = {row["backend"] for row in self.of(sweep)}
        return [name for name in self.backends if name in found]

    def ours(self, sweep: str) -> str | None:
        """Return the engine that represents this package in a sweep: the first in the file's order."""
        names = self.names(sweep)
        return names[0] if names else None

    def by_point(self, sweep: str) -> dict[int, dict[str, Row]]:
        """Return rows by the value that the sweep changes (the markets where it changes none), and by backend."""
        axis = AXIS.get(sweep, "markets")
        table: dict[int, dict[str, Row]] = {}
        for row in sorted(self.of(sweep), key=lambda row: row["asked"].get(axis, row[axis])):
            table.setdefault(row["asked"].get(axis, row[axis]), {})[row["backend"]] = row
        return table

    def curve(self, sweep: str, backend: str, column: str) -> tuple[list[int], list[float]]:
        """Return a backend's values along a sweep, where there are any."""
        pairs = [(at, rows[backend][column]) for at, rows in self.by_point(sweep).items() if backend in rows]
        pairs = [(at, value) for at, value in pairs if value is not None]
        return [at for at, _ in pairs], [value for _, value in pairs]


def rewritten(value: Any, write: Callable[[str], str]) -> Any:
    """Return nested lists and objects with every text rewritten, keys too: some are names of backends."""
    if isinstance(value, dict):
        return {write(key): rewritten(item, write) for key, item in value.items()}
    if isinstance(value, list):
        return [rewritten(item, write) for item in value]
    return write(value) if isinstance(value, str) else value


def in_one_line(text: str) -> str:
    """Return a text without line breaks and without characters that control a terminal."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def in_markdown(text: str) -> str:
    """Return a text that is no HTML, no markup and no end of a table's cell."""
    return "".join(f"&#{ord(sign)};" if sign in _MARKUP else sign for sign in in_one_line(text))


def in_figures(text: str) -> str:
    """Return a text in which matplotlib sees no formula."""
    return in_one_line(text).replace("$", r"\$")
