"""`Tally`: what `evaluate` counts of every decision, in whole numbers, so that no sum depends on its order.

Decisions are noted as they come and counted in pieces: on a GPU each operation costs a launch.
"""

from __future__ import annotations

import torch

from kineticsim_env.envs.core import EnvCore
from kineticsim_env.runtime.private_torch import copy_all

_PIECE, _HOST_PIECE = 32, 16  # decisions that are counted together; on a host what is noted of them stays in its cache,
_ROWS = 2**19  # of so many slots in all, each with up to 100 bytes


class Tally:
    """Sums over the decisions of episodes, of slots while theirs run; whatever comes after counts nothing.

    Attributes:
        units: Bought and sold, int64 `[M, K]`.
        offered: Bought, sold, and left standing at the ends of decisions.
        value: Of what was bought and sold, at the mids at the ends of decisions, in half ticks x units.
        held: Absolute inventory at decisions, times `lived`.
        at_limit: Of `lived`, those decisions with an inventory at the limit.
        lived: Decisions; where events end them, events.
        drawdown: The most that the marked value fell from its highest, the opening's 0 included, 1/2000 tick x units.
    """

    def __init__(self, core: EnvCore, *, ends: bool) -> None:
        """Begin with episodes that have begun, in all markets; some end before others, if `ends`."""
        simulator, tensors = core.simulator, core.tensors
        self._noted = [simulator.inventory, core.fills, tensors["prev_value"]]  # int64; below int32: a launch for each
        self._noted_too = [simulator.tensors["quotes"], tensors["mid_history"]]
        self._noted_too += [tensors["decision_events"]] if core.task.decides_at_events else []
        self._size = min(_HOST_PIECE if core.host else _PIECE, max(1, _ROWS // simulator.inventory.numel()))
        self._kept, self._kept_too = (
            [tensor.new_empty((self._size, *tensor.shape)) for tensor in noted]
            for noted in (self._noted, self._noted_too)
        )
        self._inventory = simulator.inventory.clone()
        self._alive = self._inventory.new_empty((self._size, *self._inventory.shape)) if ends else None
        self._count = 0
        limit = simulator.parameter("inventory_limit")[:, None].long()
        self._limit = torch.where(limit < 0, torch.iinfo(torch.int64).max, limit)
        self.units, self.offered, self.value, self.held, self.at_limit, self.lived, self.drawdown, self._highest = (
            torch.zeros_like(self._inventory) for _ in range(8)
        )

    def note(self, alive: torch.Tensor) -> None:
        """Note the decision that was played; `alive`, bool `[M, K]`, says whose episodes ran in it."""
        place = self._count
        copy_all([kept[place] for kept in self._kept], self._noted)
        copy_all([kept[place] for kept in self._kept_too], self._noted_too)
        if self._alive is not None:
            self._alive[place].copy_(alive)
        self._count += 1
        if self._count == self._size:
            self.count()

    def count(self) -> None:
        """Count what was noted since the last time."""
        noted = self._count
        if not noted:
            return
        self._count = 0
        inventory, fills, worth = (kept[:noted] for kept in self._kept)
        quotes, mids, *events = (kept[:noted] for kept in self._kept_too)
        before = torch.cat([self._inventory[None], inventory[:-1]]).abs()
        self._inventory.copy_(inventory[-1])
        units, standing = fills[..., 0] + fills[..., 1], quotes[..., 1] + quotes[..., 3]
        if standing.dim() > units.dim():  # of each order
            standing = standing.flatten(units.dim()).sum(-1)
        highest = torch.maximum(worth.cummax(0).values, self._highest)
        self._highest.copy_(highest[-1])
        fallen, at_limit = highest - worth, before >= self._limit
        if self._alive is None:
            self.lived += noted
        else:
            alive = self._alive[:noted]
            lasted = alive * events[0].view(noted, -1, 1) if events else alive
            units, standing, fallen = units * alive, standing * alive, fallen * alive
            before, at_limit = before * lasted, at_limit * lasted
            self.lived += lasted.sum(0)
        self.units += units.sum(0)
        self.offered += (units + standing).sum(0)
        self.value += (units * mids[..., :1]).sum(0)
        self.held += before.sum(0)
        self.at_limit += at_limit.sum(0)
        self.drawdown.copy_(torch.maximum(self.drawdown, fallen.amax(0)))
