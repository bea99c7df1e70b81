"""Names that have moved to another module: found where they were for one more version, with a warning."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def finder(module: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module.

    Args:
        module: Its name.
        places: For each name that has moved, the module that has it now.
    """

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        said = f"{module}.{name} goes with the next version: from {places[name]} import {name}"
        warnings.warn(said, DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(places[name]), name)

    return find
