"""Names and notes of a file of measurements, rewritten for where report.py puts them: they may hold any character."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MARKUP = "&<>|\\`[]*$"


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
