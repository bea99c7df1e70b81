"""The scripts of examples/traders as modules, so that tests call what they define."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parent.parent / "examples" / "traders"


def load(name: str) -> ModuleType:
    """Return a script of examples/traders, under a name of its own, which paths of classes can name."""
    known = f"traders_{name}"
    if known not in sys.modules:
        spec = importlib.util.spec_from_file_location(known, FOLDER / f"{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[known] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[known]
