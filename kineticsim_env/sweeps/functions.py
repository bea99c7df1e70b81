"""Statistics that users have written, as a plan stores them: where each is, and what stands there.

So that a folder that was begun with one function is not gone on with by another one of the same name.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from types import CodeType
from typing import Any

from kineticsim_env.runtime.values import show
from kineticsim_env.statistics import STATISTICS

_PLAIN = (int, float, str, bytes, tuple, type(None))


def stored_statistic(given: Any) -> str:
    """Return a text; of a function its place, and a digest of what is written there."""
    if not isinstance(given, str):
        return _place(given)
    known = STATISTICS.get(given.partition("(")[0].strip())
    ours = known is None or (known.__module__.startswith("kineticsim_env.") and not hasattr(known, "of_series"))
    return given if ours else f"{given} of {_place(known)}"


def _place(given: Any) -> str:
    digest = hashlib.sha256(_written(given, 0).encode()).hexdigest()[:16]
    return f"{getattr(given, '__module__', '?')}:{getattr(given, '__qualname__', type(given).__name__)}, code {digest}"


def _written(given: Any, depth: int) -> str:
    """Return what a function does, as a text that is the same in every program that has it."""
    given = getattr(given, "of_series", given)
    if isinstance(given, functools.partial):
        return f"{_written(given.func, depth)} {show(given.args)} {show(given.keywords)}"
    code = getattr(given, "__code__", None)
    if code is None or depth > 3:
        return _source(given)
    text = _instructions(code) if given.__name__ == "<lambda>" else _source(given) or _instructions(code)
    text += show([value for value in given.__defaults__ or () if isinstance(value, _PLAIN)])
    for cell in given.__closure__ or ():
        try:
            held = cell.cell_contents
        except ValueError:  # it has none yet
            continue
        text += show(held) if isinstance(held, _PLAIN) else _written(held, depth + 1) if callable(held) else ""
    return text


def _source(given: Any) -> str:
    """Return the source of a function or of an object's class, empty where there is none to be read."""
    try:
        return inspect.getsource(given if inspect.isroutine(given) or inspect.isclass(given) else type(given))
    except (OSError, TypeError):
        return ""


def _instructions(code: CodeType) -> str:
    """Return the code of a function whose source stands among other things, or nowhere."""
    inner = [_instructions(one) if isinstance(one, CodeType) else show(one) for one in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {inner}"
