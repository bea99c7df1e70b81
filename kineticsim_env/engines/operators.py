"""Launches as torch sees them: the operators `kineticsim::step` and `kineticsim::run`, for `torch.compile`.

A program that torch compiles into one graph must not see Python's locks and bookkeeping. It calls an operator with the
tensors that a launch reads and writes, and with the number of a *launcher*: all that is said of the launch beside its
tensors (cuda/model/launcher.h), registered here beforehand. The same launcher plays a step outside of graphs in one
call, `Launcher.step`. The operators are C++ (cuda/operators.cpp); where there is no C++ compiler there are none.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, layout

_FIELDS = layout.parse_struct((build.cuda_dir() / "model" / "launcher.h").read_text(), "Launcher")
_Struct: Any = layout.structure("Launcher", _FIELDS, {})
_MOST_TENSORS = _FIELDS["offsets"].length or 0
PLAYED, MOVED, SHARED = 0, -1, -2  # what a step returns, beside the driver's errors


@functools.cache
def library() -> ctypes.CDLL:
    """Return a library with its operators registered. Raises EngineUnavailable if it cannot be built."""
    found = build.load_operators()
    if ctypes.sizeof(_Struct) != found.ks_sizeof_launcher():
        raise EngineUnavailable("launcher.h: Python reads struct Launcher otherwise than the compiler does")
    found.ks_register_operators()
    for name in ("step", "run"):
        torch.library.register_fake(f"kineticsim::{name}", lambda *tensors: None)
    torch.library.register_fake(
        "kineticsim::copies_of", lambda outputs, _: [output.new_empty(output.shape) for output in outputs]
    )
    return found


def available() -> bool:
    """Return whether there are operators here; builds them if need be."""
    try:
        library()
    except EngineUnavailable:
        return False
    return True


class Description(NamedTuple):
    """All that a launcher is told."""

    launch: ctypes.Structure  # a `struct Launch`, which is copied
    state: Mapping[str, torch.Tensor]  # tensors that a launch may write, by the names of its pointers
    tables: Mapping[str, torch.Tensor]  # those that it only reads, likewise
    shape: Mapping[str, int]  # further fields of `struct Launcher`
    live: Sequence[torch.Tensor]  # tensors that must stay where they are for `Launcher.step`
    outputs: Sequence[torch.Tensor]  # those that `Launcher.copies` copies
    kept: Mapping[str, torch.Tensor] = {}  # what a kernel keeps for itself from launch to launch,
    scratch: Mapping[str, torch.Tensor] = {}  # and within one; operators leave both where `launch` points

    def launcher(self, further: Mapping[str, torch.Tensor] = {}) -> Any:
        """Return the `struct Launcher`, with `further` tensors behind those that are read."""
        tensors = {**self.state, **self.tables, **further}
        if len(tensors) > _MOST_TENSORS:
            raise ValueError(
                f"launch: expected up to {_MOST_TENSORS} tensors, got {len(tensors)}: {', '.join(tensors)}"
            )
        struct = _Struct(num_state=len(self.state), num_tables=len(self.tables), **self.shape)
        for place, (name, tensor) in enumerate(tensors.items()):
            outer, _, inner = name.rpartition(".")  # "rollout.reward" is within another struct
            begin = getattr(layout.Launch, outer).offset if outer else 0
            struct.offsets[place] = begin + getattr(layout.Rollout if outer else layout.Launch, inner).offset
            struct.bytes[place] = tensor.nbytes
        return struct


def _told(said: Description) -> tuple[Any, Any]:
    return ctypes.byref(said.launcher()), ctypes.byref(said.launch)


class Launcher:
    """One way to launch, registered.

    Attributes:
        number: What the operators know it by.
        state: The tensors that a launch may write, in the order that the operators take them.
        tables: Those that it only reads, likewise.
        named: `state` by name.
        auctions: How many a launch plays.
        played: How many launches operators have played.
    """

    def __init__(self, said: Description) -> None:
        """Register a launch."""
        self._library = library()
        self.number: int = self._library.ks_new_launcher(*_told(said))
        weakref.finalize(self, self._library.ks_free_launcher, self.number).atexit = False
        self.played = ctypes.c_int64.from_address(self._library.ks_played(self.number))
        self._watch(said)

    def renew(self, said: Description) -> None:
        """Register another launch under the number: torch compiles a program anew a few times, but not for ever."""
        self._library.ks_renew_launcher(self.number, *_told(said))
        self._watch(said)

    def _watch(self, said: Description) -> None:
        torch.ops.kineticsim.watch(list(said.live), list(said.outputs), self.number)
        self.state, self.tables, self.named = list(said.state.values()), list(said.tables.values()), dict(said.state)
        self.auctions: int = said.launch.decisions * said.launch.auctions

    def step(self, address: int, size: int, stride: int, stream: int) -> int:
        """Play a step of the tensors that are bound, on a CUDA stream, `torch.cuda.Stream.cuda_stream`.

        The input, checked and contiguous, lies at an address, has `size` bytes and `stride` numbers in a row of
        actions.

        Returns:
            PLAYED; MOVED, and nothing has happened, if a watched tensor lies elsewhere by now or has another size;
            SHARED, likewise, if the input is a part of one, is not aligned, or is not what all slots of all markets
            need; or the driver's error.
        """
        return self._library.ks_step(self.number, address, size, stride, stream)

    def copies(self) -> list[torch.Tensor]:
        """Return the outputs as tensors of their own, copied by one kernel."""
        return torch.ops.kineticsim.copies(self.number)

    def copies_of(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return tensors of the engine's device likewise."""
        return torch.ops.kineticsim.copies_of(tensors, self.number)

    def __reduce__(self) -> str:
        """Refuse to be copied: the number is this object's."""
        raise TypeError("a launcher cannot be copied or pickled")
