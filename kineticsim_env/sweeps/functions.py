"""Statistics that users have written, as a plan stores them: where each is, and what stands there.

So that a folder that was begun with one function is not gone on with by another one of the same name.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
from types import CodeType
from typing import Any

import numpy as np

from kineticsim_env.statistics import STATISTICS

_DEEPEST = 6  # functions and what holds them, within each other


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
    if depth > _DEEPEST:
        return ""
    if isinstance(given, functools.partial):
        return " ".join(_value(part, depth + 1) for part in (given.func, given.args, given.keywords))
    code = getattr(given, "__code__", None)
    if code is None:
        return _source(given)
    # A text that is run has no source, though from Python 3.13 on that of `python -c` is found under the same name.
    unwritten = given.__name__ == "<lambda>" or code.co_filename == "<string>"
    text = _instructions(code) if unwritten else _source(given) or _instructions(code)
    text += _value(given.__defaults__, depth + 1) + _value(given.__kwdefaults__, depth + 1)
    for cell in given.__closure__ or ():
        with contextlib.suppress(ValueError):  # it has nothing yet
            text += _value(cell.cell_contents, depth + 1)
    return text


def _value(held: Any, depth: int) -> str:
    """Return a value that a function uses, without what differs from program to program, such as addresses."""
    if isinstance(held, CodeType):
        return _instructions(held)
    if held is None or isinstance(held, (int, float, complex, str, bytes)):
        return repr(held)
    if isinstance(held, (list, tuple, set, frozenset, dict)) and depth <= _DEEPEST:
        parts = [_value(one, depth + 1) for one in (held.items() if isinstance(held, dict) else held)]
        return f"[{', '.join(sorted(parts) if isinstance(held, (set, frozenset)) else parts)}]"
    if isinstance(held, np.ndarray) and held.dtype.kind in "biufcU":  # of real events, such as `distance_to` has
        return f"{held.dtype} {held.shape} {hashlib.sha256(held.tobytes()).hexdigest()}"
    return _written(held, depth) if callable(held) else type(held).__name__


def _source(given: Any) -> str:
    """Return the source of a function or of an object's class, empty where there is none to be read."""
    try:
        return inspect.getsource(given if inspect.isroutine(given) or inspect.isclass(given) else type(given))
    except (OSError, TypeError):
        return ""


def _instructions(code: CodeType) -> str:
    """Return the code of a function whose source stands among other things, or nowhere."""
    return f"{code.co_code.hex()} {code.co_names} {_value(code.co_consts, 0)}"
