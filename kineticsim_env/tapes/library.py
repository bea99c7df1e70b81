"""The C++ library of tapes (cuda/tape/): what it is called with, and the rows that it writes."""

import ctypes

import numpy as np

from kineticsim_env.runtime import build

PLAYED, STOPPED, DIFFERS = range(3)  # what `ks_tape_play` returns
_WIDE = "interval event time order counterparty".split()
_NARROW = "agent price quantity remaining".split()
_CODES = "kind reason side marketable who".split()
# struct Row and struct Message, as they lie in memory.
ROW = np.dtype(
    [(name, "i8") for name in _WIDE]
    + [(name, "i4") for name in _NARROW]
    + [(name, "u1") for name in _CODES]
    + [("unused", "V3")]
)
MESSAGE = np.dtype([("time", "i8"), ("order", "i8"), ("price", "i8"), ("type", "i4"), ("size", "i4"),
                    ("direction", "i4"), ("unused", "i4")])  # fmt: skip
# The enums of cuda/tape/rows.h.
KINDS = ("submit", "cancel", "trade")
REASONS = ("", "cancelled", "residue", "expired", "withdrawn", "left the grid")
SIDES = ("buy", "sell")
WHO = ("noise", "momentum", "maker", "fundamental", "slot", "resting", "fleeting", "lasting", "market")
# Then the classes that users have written.


load = build.load_tape


def rows_of(library: ctypes.CDLL, player: int) -> np.ndarray:
    """Return a copy of the rows that a player holds, `ROW` `[n]`, and let it forget them."""
    count = library.ks_tape_count(player)
    rows = np.empty(count, ROW)
    if count:
        ctypes.memmove(rows.ctypes.data, library.ks_tape_rows(player), rows.nbytes)
    library.ks_tape_forget(player)
    return rows
