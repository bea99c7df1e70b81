"""Copies of cores: `clone_of`, `core_of` of some markets, and `CopiedMarkets`, into a core that is there already.

The environments' `clone` and `fork` call these.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.futures import check_draws, take_future
from kineticsim_env.envs.state_dict import live_state
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.checks import check_seeds


def clone_of(core: EnvCore, future_seed: Any = None) -> EnvCore:
    """Return a second core in the same state, after `check_errors`; neither touches the other from then on.

    With a `future_seed`, an int or one per market, its markets have other words from now on.
    """
    with core._calls:
        core._check_open("clone")
        seeds = None
        if future_seed is not None:
            seeds = check_seeds(future_seed, core.simulator.num_markets, core.device, "future_seed")
            check_draws("future_seed", core)
        clone = core_of(core, slice(None))
        if core.opponents is not None and clone.opponents is not None:
            clone.opponents.take_over(core.opponents)
        if seeds is not None:
            take_future(clone, seeds)
    return clone


@torch.inference_mode(False)  # tensors made in inference mode cannot be written to outside of it
def core_of(core: EnvCore, rows: np.ndarray | slice) -> EnvCore:
    """Return a core of which each market is in the state of one of these, int64 `[n]` or a slice.

    Policies with a memory are copied, and not told that episodes begin.
    """
    made = copy.copy(core)
    made.simulator = core.simulator._branch(rows)
    made._connect()
    made.live_task = core.live_task.of_rows(rows, made.simulator, made.tensors)
    made.settings, made.config = made.live_task._settings, made.live_task.config
    made.own = made.opponents = None
    made._make_rows()
    if core.slot_programs:
        made.set_slot_policies({slot: one._of_rows(rows) for slot, one in core.slot_programs.items()})
    CopiedMarkets(core, made).copy(rows)  # as functions of users are called when they are taken
    if made.settings.own is not None:
        made.own = made._make_own(made.settings.own)
    if core.opponents is not None:
        made.opponents = core.opponents.clone(made.simulator, made.seen_by_opponent)
    if made.own is not None or made.opponents is not None:
        CopiedMarkets(core, made).copy(rows)
    made.live_task.prepare_step()
    return made


class CopiedMarkets:
    """Copies markets of one core into another with the same learners and settings, on the same engine."""

    def __init__(self, source: EnvCore, target: EnvCore) -> None:
        """Find what there is to copy. It holds as long as neither core gets other scenarios or policies."""
        self._source, self._target = source, target
        theirs, ours = (_views(core) for core in (source, target))
        self._pairs = [(ours[name], theirs[name]) for name in ours]
        self._alike: list[tuple[Any, Any]] = []  # what all markets have together
        if source.live_task.scenarios is not None:
            self._alike = [_as_used([core._engine.scenario_thresholds for core in (target, source)])]

    def copy(self, rows: int | np.ndarray | slice) -> None:
        """Copy a market into all of the target's, or one into each, int64 `[n]` or a slice. Waits for nothing."""
        index: Any = rows
        if not self._source.host and isinstance(rows, np.ndarray):
            index = torch.from_numpy(rows).to(self._source.device)
        for ours, theirs in self._pairs:
            ours[...] = theirs[index]
        for ours, theirs in self._alike:
            ours[...] = theirs
        source, target = self._source, self._target
        target.simulator._latest = source.simulator._latest
        target._engine.state_changed()
        if source.own is not None and target.own is not None:
            target.own.failed = source.own.failed


def _views(core: EnvCore) -> dict[str, Any]:
    """Return views of all state whose first axis is the markets': arrays on the host, which copy in less time."""
    found = {name: _markets_first(name, tensor) for name, tensor in live_state(core).items()}
    names = list(found)
    return dict(zip(names, _as_used([found[name] for name in names]), strict=True))


def _as_used(tensors: list[torch.Tensor]) -> Any:
    return tuple(tensor.numpy() if tensor.device.type == "cpu" else tensor for tensor in tensors)


def _markets_first(name: str, tensor: torch.Tensor) -> torch.Tensor:
    axes = [dim for dim in layout.LAUNCH_FIELDS[name].dims if dim != "T"] if name in layout.LAUNCH_FIELDS else ["M"]
    return tensor.movedim(axes.index("M"), 0)
