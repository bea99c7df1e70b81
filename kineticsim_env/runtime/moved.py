"""Names that have moved, and modules: found where they were for one more version, with a warning."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


def finder(module: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module; `places` has for each name that has moved the module that has it now."""

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return _found(module, name, places[name])

    return find


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


def _found(module: str, name: str, place: str) -> Any:
    found = getattr(importlib.import_module(place), name)
    said = f"{module}.{name} goes with the next version: from {place} import {name}"
    warnings.warn(said, DeprecationWarning, stacklevel=3)
    return found
