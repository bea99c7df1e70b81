"""What all wrappers share: the check of the environment, `clone`, and which markets are in an episode."""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from kineticsim_env.runtime.checks import check_mask
from kineticsim_env.runtime.values import check_instance, is_one_of, show
from kineticsim_env.wrappers.running import RunningMeanStd


class TorchVectorWrapper(VectorWrapper, RecordConstructorArgs):
    """What the wrappers share: the check of the environment, and which markets are in an episode."""

    def __init__(self, env: VectorEnv) -> None:
        output = getattr(check_instance("env", env, VectorEnv).unwrapped, "output", None)
        if not is_one_of(output, ("torch",)):
            name = type(self).__name__
            raise ValueError(
                f"{name}: got an environment with output {show(output)}, allowed is output='torch' (for NumPy there is "
                f"gymnasium.wrappers.vector.{name})"
            )
        super().__init__(env)
        self._mode = env.metadata["autoreset_mode"]
        with torch.inference_mode(False):
            self._ended = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)

    @property
    def _tells(self) -> bool:
        """Whether infos say what was known before a reset; an environment of another make does not."""
        core = getattr(self.unwrapped, "core", None)
        return core is not None and core.settings.final_info

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        base: Any = self.unwrapped
        return base.device

    @torch.inference_mode(False)
    def clone(self) -> Self:
        """Return a copy of the wrapper, of its state and statistics, around a `clone` of the environment.

        Statistics that were shared with another wrapper are the copy's own. All wrappers around the environment have
        to be of this module.
        """
        inner: Any = getattr(self.env, "clone", None)
        if inner is None:
            raise TypeError(
                f"clone: got {type(self.env).__name__} inside, allowed are environments and wrappers that have it"
            )
        twin = copy.copy(self)
        twin.env = inner()
        kinds = (torch.Tensor, RunningMeanStd, spaces.Space)
        vars(twin).update(copy.deepcopy({name: held for name, held in vars(self).items() if isinstance(held, kinds)}))
        return twin

    def _reset_rows(self, options: dict[str, Any] | None) -> torch.Tensor | None:
        """Return the mask of the markets that a reset resets, None for all, and note that their episodes run."""
        mask = (options or {}).get("reset_mask")
        if mask is None:
            self._ended.zero_()
            return None
        mask = check_mask("reset_mask", mask, self.num_envs, self.device)
        self._ended &= ~mask
        return mask

    def _note_ends(self, done: torch.Tensor) -> torch.Tensor | None:
        """Note which episodes have ended; return whose step belongs to an episode, bool `[M]`, or None for all.

        That is all of them under SAME_STEP. Under NEXT_STEP the step after an end only resets, and under DISABLED an
        episode that has ended stands still until it is reset.
        """
        if self._mode == AutoresetMode.SAME_STEP:
            return None
        active = ~self._ended
        if self._mode == AutoresetMode.NEXT_STEP:
            self._ended.copy_(done)
        else:
            self._ended |= done
        return active
