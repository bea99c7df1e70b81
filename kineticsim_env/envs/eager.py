"""`EagerStep`: a step from plain Python in a few microseconds, for environments of many markets.

It looks at the least that it has to; whatever it does not take goes through `EnvCore.step`, with all checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kineticsim_env.engines.base import Engine
from kineticsim_env.runtime import build, layout

_MOST_OUTPUTS = layout.parse_constants((build.cuda_dir() / "model" / "launcher.h").read_text())["kMostOutputs"]


class EagerStep:
    """Plays steps that need no check, and copies what they return.

    Attributes:
        closed: Whether it takes none: after `close`, or where error words are looked at before every step.
        outputs: The outputs that were asked for, live.
        rows: Actions or choices of all slots, `[M, K, ...]`, where programs play those behind the first; else None.
    """

    def __init__(self, engine: Engine, *, closed: bool) -> None:
        """Know the engine; nothing is taken before `expect`."""
        self.rows: torch.Tensor | None = None
        self._engine, self._device, self.closed = engine, engine.device, closed
        self._shape: tuple[int, ...] = ()
        self._dtype = torch.float32
        self.outputs: list[torch.Tensor] = []

    def expect(self, shape: tuple[int, ...], dtype: torch.dtype, outputs: Sequence[torch.Tensor] = ()) -> None:
        """Set shape and dtype of what `step` is given, and which outputs `copies` returns: views of contiguous rows."""
        self._shape, self._dtype = shape, dtype
        self.outputs = list(outputs)
        self._at_once = len(self.outputs) <= _MOST_OUTPUTS
        self._engine.set_outputs(self.outputs if self._at_once else [])

    def copies(self) -> list[torch.Tensor]:
        """Return the outputs that were asked for as tensors of their own."""
        return self._engine.copies() if self._at_once else self._engine.copies_of(self.outputs)

    def step(self, given: Any) -> bool:
        """Play one decision, if the actions or choices given are just the tensor that the engine takes; return whether.

        If not, nothing has happened, and `EnvCore.step` does it or says what is wrong.
        """
        return (
            self._engine.plays_at_once
            and type(given) is torch.Tensor
            and given.dtype is self._dtype
            and not given.is_nested  # which has no shape
            and given.shape == self._shape
            and given.device == self._device
            and given.is_contiguous()
            and not (given.requires_grad or given.is_neg() or self.closed)
            and self._engine.step_at_once(self.of_all_slots(given))
        )

    def of_all_slots(self, given: torch.Tensor) -> torch.Tensor:
        """Return what the engine takes for checked actions or choices: themselves, or `rows` with them in front."""
        if self.rows is None:
            return given
        markets = len(self.rows)
        size = given.numel() // markets
        self.rows.view(markets, -1)[:, :size] = given.view(markets, size)
        return self.rows
