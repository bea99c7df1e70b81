"""The lists of markets whose blocks come to their deadlines (cuda/lane/deadlines.cuh), as tests read and write them."""

import ctypes

import numpy as np
import torch

from kineticsim_env.runtime import layout
from kineticsim_env.runtime.roles import SPECS

COUNTS = layout.CONSTANTS["kDeadlineCounts"]
_OVERFLOW, _ORIGIN = (layout.CONSTANTS[name] for name in ("kErrorOverflow", "kErrorOrigin"))


def most_listed(markets):
    """Return how many late markets whole warps step; more, and they stay in their lanes."""
    return -(-markets // 8)


class Lists:
    """Those of an environment, be it on a GPU or on a kernel of `HOST_KERNELS`, which is `library`."""

    def __init__(self, core, library=None):
        """Find them; they are empty before the first launch."""
        self.core, self.markets = core, core.simulator.num_markets
        self._library = library
        if library is not None:
            self._all.zero_()  # another environment may have been there

    @property
    def _all(self):
        if self._library is None:
            return self.core.simulator.engine._late
        place = self._library.ks_lists
        place.argtypes, place.restype = [ctypes.c_void_p, ctypes.c_int64], ctypes.POINTER(ctypes.c_int32)
        first = place(self.core.tensors["elapsed"].data_ptr(), self.markets)
        return torch.from_numpy(np.ctypeslib.as_array(first, (COUNTS + 4 * self.markets,)))

    @property
    def listed(self):
        """The markets on the next step's list, in rising order; between launches the other one is empty."""
        now, *counts, taken = self._all[:COUNTS].tolist()
        assert taken == 0 and counts[1 - now] == 0
        first = COUNTS + 2 * now * self.markets
        on, places = self._all[first : first + 2 * self.markets].cpu().split(self.markets)
        on = on[: counts[now]]
        assert torch.equal(places[on.long()], torch.arange(counts[now], dtype=torch.int32))
        return on.sort().values.tolist()

    def replace(self, markets):
        """Put any markets on it, once each."""
        everything = self._all.cpu()
        now = int(everything[0])
        on, places = everything[COUNTS + 2 * now * self.markets :][: 2 * self.markets].split(self.markets)
        everything[1 + now] = len(markets)
        on[: len(markets)] = torch.as_tensor(markets, dtype=torch.int32)
        places[torch.as_tensor(markets, dtype=torch.long)] = torch.arange(len(markets), dtype=torch.int32)
        self._all.copy_(everything)


def late(core):
    """Return the markets whose blocks are forced, or whose slots unwind, in the next step, in rising order."""
    unwinds = getattr(core.task, "at_end", None) == "unwind"
    forced = [SPECS[role].has_block or (unwinds and SPECS[role].for_profit) for role in core.roles]
    flags = {name: core.tensors[name].cpu() for name in ("elapsed", "done", "ended")}
    stopped = core.simulator.tensors["error"].cpu() & (_OVERFLOW | _ORIGIN) != 0
    due = (flags["elapsed"] >= core.task.horizon - 1) & ~flags["done"].bool() & ~stopped
    return (due & ~flags["ended"].bool()[:, forced].all(1)).nonzero()[:, 0].tolist()
