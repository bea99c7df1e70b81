"""An order flow's market in C++, order by order: the second implementation beside the NumPy one."""

from __future__ import annotations

import ctypes
import functools
import shlex
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from kineticsim_env.runtime import flow_table
from kineticsim_env.runtime.cxx import find_cxx
from kineticsim_env.runtime.flow_table import FlowTable
from kineticsim_env.runtime.sources import cuda_dir

HERE = Path(__file__).parent
EVENT = np.dtype(
    [(name, "i8") for name in ("time", "order", "price", "size")]
    + [(name, "i4") for name in ("kind", "side", "opening", "unused")]
)
_INT, _ADDRESS = ctypes.c_int64, ctypes.c_void_p
_FUNCTIONS = {"flow_open": (_ADDRESS, [_ADDRESS] + 6 * [_INT]), "flow_play": (_INT, [_ADDRESS, _INT]),
              "flow_state": (None, 7 * [_ADDRESS]), "flow_count": (_INT, [_ADDRESS]),
              "flow_events": (_ADDRESS, [_ADDRESS]), "flow_close": (None, [_ADDRESS])}  # fmt: skip


@functools.cache
def library() -> ctypes.CDLL:
    """Compile the library, and return it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "flow.so")
        flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{cuda_dir()}"]
        command = [*shlex.split(find_cxx() or "c++"), *flags, "-o", str(path), str(HERE / "library.cpp")]
        subprocess.run(command, check=True, capture_output=True)
        loaded = ctypes.CDLL(str(path))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


class FlowReference:
    """One market of an order flow, in its first episode, without slots."""

    def __init__(self, table: FlowTable, seed: int, levels: int, window: int, beat: int, init_price: int) -> None:
        numbers = flow_table.numbers_of_engines(table)
        place = numbers.ctypes.data
        self._of = library().flow_open(place, len(numbers), seed, levels, window, beat, init_price)
        assert self._of, "FlowNumbers of flow.h and numbers_of_engines have different numbers"
        self._levels = levels

    def __del__(self) -> None:
        library().flow_close(self._of)

    def play(self, events: int) -> int:
        """Play events; return how many were played before the market had to stop."""
        return library().flow_play(self._of, events)

    def state(self) -> dict[str, np.ndarray]:
        """Return bid, ask, fleeting_units [L], lives [2, L], flow [9], and last_tick, price_origin, volume."""
        levels = self._levels
        shapes = {
            "bid": levels,
            "ask": levels,
            "lives": (2, levels),
            "fleeting_units": levels,
            "flow": len(flow_table.STATE),
            "numbers": 3,
        }
        found = {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}
        library().flow_state(self._of, *(array.ctypes.data for array in found.values()))
        return found

    def events(self) -> np.ndarray:
        """Return what happened to orders so far, `EVENT` [n]."""
        found = np.empty(library().flow_count(self._of), EVENT)
        ctypes.memmove(found.ctypes.data, library().flow_events(self._of), found.nbytes)
        return found
