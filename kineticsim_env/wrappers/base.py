"""What all wrappers share: the check of the environment, `clone`, saved states, and which markets are in an episode."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from kineticsim_env.runtime.checks import check_like, check_mapping, check_mask
from kineticsim_env.runtime.values import check_instance, is_one_of, show
from kineticsim_env.wrappers.running import RunningMeanStd

_ENV, _ENDED = "env", "ended"  # names in saved states: of what is inside, of the markets whose episodes have ended


class TorchVectorWrapper(VectorWrapper, RecordConstructorArgs):
    """What the wrappers share: the check of the environment, saved states, and which markets are in an episode."""

    _saves_env: ClassVar[bool] = True  # whether states have what is inside, too

    def __init__(self, env: VectorEnv) -> None:
        output = getattr(check_instance("env", env, VectorEnv).unwrapped, "output", None)
        if not is_one_of(output, ("torch",)):
            name = type(self).__name__
            raise ValueError(
                f"{name}: expected output='torch' (for NumPy there is gymnasium.wrappers.vector.{name}), got an "
                f"environment with output {show(output)}"
            )
        super().__init__(env)
        self._mode = env.metadata["autoreset_mode"]
        with torch.inference_mode(False):
            self._ended = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)

    @property
    def _account_key(self) -> str:
        """What infos call what was known before a reset; empty without it, as in an environment of another make."""
        core = getattr(self.unwrapped, "core", None)
        return core.settings.account_key if core is not None and core.settings.account_info else ""

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        base: Any = self.unwrapped
        return base.device

    @property
    def observation(self) -> torch.Tensor:
        """The present observations as the wrapper shows them, float32 `[M, F]`."""
        return self._inside("observation")

    @torch.inference_mode(False)
    def clone(self, future_seed: Any = None) -> Self:
        """Return a copy of the wrapper, of its state and statistics, around a `clone` of the environment.

        `future_seed` is that of the environment's `clone`. Statistics that were shared with another wrapper are the
        copy's own. All wrappers around the environment have to be of this module.
        """
        clone = copy.copy(self)
        clone.env = self._inside("clone")(future_seed)
        kinds = (torch.Tensor, RunningMeanStd, spaces.Space)
        vars(clone).update(copy.deepcopy({name: held for name, held in vars(self).items() if isinstance(held, kinds)}))
        return clone

    def fork(self, *given: Any, **named: Any) -> Any:
        """Refuse to fork: rows of one market have no wrappers. Fork the environment inside, `unwrapped.fork(...)`."""
        raise TypeError("fork: expected an environment without wrappers, as in envs.unwrapped.fork(...), got one with")

    def _inside(self, call: str) -> Any:
        """Return a method or an attribute of what is inside, or raise TypeError if it has none."""
        found = getattr(self.env, call, None)
        if found is None:
            raise TypeError(
                f"{call}: expected environments and wrappers that have it, got {type(self.env).__name__} inside"
            )
        return found

    # States -----------------------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, torch.Tensor]:
        """Return the wrapper's own tensors by their names in saved states, live."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the wrapper's own tensors, with the state of what is inside as `env`."""
        saved: dict[str, Any] = {name: tensor.clone() for name, tensor in self._state().items()}
        return saved | ({_ENV: self._inside("state_dict")()} if self._saves_env else {})

    def load_state_dict(self, saved: Mapping[str, Any], strict: bool = True) -> None:
        """Take over the state of a wrapper of this kind, and of what is inside; both go on bit for bit.

        Of a state of before that does not say which episodes had ended (`ended`), the environment's flags say it.

        Args:
            saved: What `state_dict` returned, from any device.
            strict: As in the environment's `load_state_dict`.

        Raises:
            TypeError, ValueError: Naming the entry, what came and what is allowed; nothing is changed then.
        """
        check_mapping(saved)
        present = self._state()
        known = {name: tensor for name, tensor in present.items() if name != _ENDED or name in saved}
        check_like(saved, known)
        if self._saves_env:
            if not isinstance(saved.get(_ENV), Mapping):
                raise ValueError(
                    f"state[{_ENV!r}]: expected the state of what is inside, as {type(self).__name__}.state_dict has "
                    f"it, got {show(saved.get(_ENV))}; a state of that alone goes to env.load_state_dict"
                )
            self._inside("load_state_dict")(saved[_ENV], strict=strict)
        for name, tensor in known.items():
            tensor.copy_(saved[name])
        core = getattr(self.unwrapped, "core", None)
        if len(known) < len(present) and core is not None:
            self._ended.copy_(core.tensors["done"])

    # Ends of episodes -------------------------------------------------------------------------------------------------

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
