"""Names that are found when they are asked for: those that load late, and those that have moved.

A name or module that has moved is found where it was for one more version, with a warning.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

# Two threads that each import a part of the package can wait for each other, which Python ends with an error. A module
# that late names are in, or that such a module imports, must not ask for one while it loads itself: it would hold what
# another thread waits for, and wait for that thread.
_loading = threading.RLock()
_CALLERS = ("kineticsim_env", "gymnasium", "pettingzoo", "torch")  # of environments, and what wraps their methods


def finder(module: str, moved: Mapping[str, str], late: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module, for names of two kinds.

    Args:
        module: Its name.
        moved: The module that has each name that has moved.
        late: The module that has each name that loads when it is first used; a module has its own name.
    """

    def find(name: str) -> Any:
        if name in moved:
            return _found(module, name, moved[name])
        if late is None or name not in late:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        with _loading:
            place = importlib.import_module(late[name])
        found = place if late[name] == f"{module}.{name}" else getattr(place, name)
        setattr(sys.modules[module], name, found)  # so that it is looked for once
        return found

    return find


def modules_in(package: str, folders: Iterable[str]) -> dict[str, str]:
    """Return a package's modules as late names of it; `folders` is its `__path__`."""
    return {module.name: f"{package}.{module.name}" for module in pkgutil.iter_modules(folders)}


def module_moved(module: str, place: str) -> None:
    """Let all names of a module be found under its former name, which no file has any more.

    Where a function of the package has that name, `import` of the module leaves the function alone.
    """

    def find(name: str) -> Any:
        if name.startswith("__"):  # asked of every module by whoever looks through them all
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return _found(module, name, place)

    former = ModuleType(module, f"Moved: {place}.")
    former.__getattr__ = find
    sys.modules[module] = former


def warn_user(text: str) -> None:
    """Say that a name goes with the next version, at the line that uses it, outside of this package and its callers."""
    frame, level = sys._getframe(1), 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _CALLERS:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, DeprecationWarning, stacklevel=level)


def _found(module: str, name: str, place: str) -> Any:
    found = getattr(importlib.import_module(place), name)
    said = f"{module}.{name} goes with the next version: from {place} import {name}"
    warnings.warn(said, DeprecationWarning, stacklevel=3)
    return found
