"""`BatchResults`: what steps of many markets return: views of the core's tensors, or copies, as torch or as NumPy.

`MarketVectorEnv` has one. It also plays the steps of programs that torch compiles, whose results are tensors of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kineticsim_env.envs.action_masks import ActionMasks
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.settings import SAME_STEP
from kineticsim_env.runtime.orders import OrderRecords


class BatchResults:
    """The results of a step, of markets with one learner each.

    They are a tuple: observation, final observation, reward, terminated, truncated, over, what is known, `[I, M]`, and
    the events of the decision, int32 `[M]`; the second under SAME_STEP, the seventh with `account_info` and the last
    where events end decisions, else None.

    Attributes:
        observation: The present observations, float32 `[M, F]`, a live tensor.
        outputs: The results as live tensors, without None.
        live: The results, live, as arrays where arrays are returned of tensors on the host; so they are returned where
            `are_live`, else as `copies`.
        same_step: Whether there is a final observation; `has_info`: what is known, which infos call `account_key`;
            `has_events`: events.
    """

    def __init__(self, core: EnvCore, role: str, *, numpy: bool, copy: bool, masked: bool) -> None:
        """Make the views, of markets whose first slot is the learner's; a GPU's arrays are always copies."""
        self._core, self._role, self._numpy, self._copy = core, role, numpy, copy
        self._masks = ActionMasks(core, role, slice(0, 1)) if masked else None
        self.same_step, self.has_info = core.autoreset == SAME_STEP, core.settings.account_info
        self.account_key = core.settings.account_key
        self.has_events = core.task.decides_at_events
        self.live = self._views(core.tensors)
        self.observation: torch.Tensor = self.live[0]
        self.outputs = _without_none(self.live)
        self._are_arrays = numpy and core.host
        if self._are_arrays:
            self.live = tuple(view if view is None else view.numpy() for view in self.live)
        self.are_live = not copy and (self._are_arrays or not numpy)

    def _views(self, tensors: Mapping[str, torch.Tensor]) -> tuple[Any, ...]:
        core, role = self._core, self._role
        final = core.seen("final_observation", role, 0, tensors) if self.same_step else None
        flags = (tensors[name][:, 0] for name in ("reward", "terminated", "truncated", "over"))
        info = core.account_info if core.own is not None else tensors["info"] if self.has_info else None
        events = tensors["decision_events"] if self.has_events else None
        return core.seen("observation", role, 0, tensors), final, *flags, info, events

    def copies(self) -> tuple[Any, ...]:
        """Return copies of the results."""
        if self._are_arrays:
            return tuple(array if array is None else array.copy() for array in self.live)
        return self._in_place(host_copies(self._core.eager.outputs) if self._numpy else self._core.eager.copies())

    def _in_place(self, copied: Sequence[Any]) -> tuple[Any, ...]:
        """Return copies of the outputs in the order of the results."""
        observation, *rest = copied
        rest = rest if self.same_step else [None, *rest]
        rest = rest if self.has_info else [*rest[:5], None, *rest[5:]]
        return (observation, *rest) if self.has_events else (observation, *rest, None)

    def mask(self) -> dict[str, Any]:
        """Return the action mask of the next decision, as infos have it."""
        assert self._masks is not None
        mask = self._masks.update()[:, 0]
        if self._numpy:
            return {"action_mask": mask.cpu().numpy().astype(np.int8)}
        return {"action_mask": mask.clone() if self._copy else mask}

    # Programs that torch compiles -------------------------------------------------------------------------------------

    def step_in_graph(self, actions: torch.Tensor, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """Play one decision and return its results: a program sees one operator and the tensors that it changes.

        Args:
            actions: A tensor on the device,
            shape: which must have this shape.

        Raises:
            TypeError, ValueError: Where such a program cannot play the step.
        """
        if isinstance(actions, OrderRecords):
            raise TypeError("actions: expected no order records where torch compiles the step, got some")
        if self._core.own is not None or self._core.slot_programs:
            raise TypeError(
                "step: expected built-in rewards and no opponents in a compiled program, got custom reward, features, "
                "terminate or opponents; capture the step in a CUDA graph, or compile your functions"
            )
        if self._masks is not None:
            raise TypeError("step: expected an environment without action_mask in a compiled program, got one with it")
        if self._numpy:
            raise TypeError("step: expected output='torch' in a compiled program, got output='numpy'")
        if actions.shape != shape:
            raise ValueError(f"actions: expected {list(shape)}, got {list(actions.shape)}")
        launcher = self._core.launcher
        torch.ops.kineticsim.step(launcher.state, launcher.tables, actions, launcher.number)
        live = self._views(launcher.named)
        if not self._copy:
            return live
        return self._in_place(torch.ops.kineticsim.copies_of(_without_none(live), launcher.number))

    def observation_in_graph(self) -> torch.Tensor:
        """Return the present observations, a copy if copies of tensors are returned."""
        if not self._copy or self._numpy:
            return self.observation
        launcher = self._core.launcher
        return torch.ops.kineticsim.copies_of([self._views(launcher.named)[0]], launcher.number)[0]


def _without_none(views: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
    return [view for view in views if view is not None]


def host_copies(outputs: Sequence[torch.Tensor]) -> list[np.ndarray]:
    """Return tensors of a GPU as arrays, in one copy: each copy would wait for the GPU anew."""
    rows = [tensor.contiguous().view(-1).view(torch.uint8) for tensor in outputs]
    padding = [-len(row) % 8 for row in rows]  # as a view of bytes has to begin at a multiple of its numbers' size
    padded = [torch.nn.functional.pad(row, (0, more)) if more else row for row, more in zip(rows, padding, strict=True)]
    parts = torch.cat(padded).cpu().split_with_sizes([len(row) for row in padded])
    trios = zip(parts, rows, outputs, strict=True)
    return [part[: len(row)].view(like.dtype).view(like.shape).numpy() for part, row, like in trios]
