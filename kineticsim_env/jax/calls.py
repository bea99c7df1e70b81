"""A launch as a function of JAX arrays, through XLA's foreign function interface (cuda/jax_calls.cpp).

Numbers of 64 bits are pairs of int32, low word first, in a last axis of two: JAX has none unless `jax_enable_x64` is
set, and a program must not depend on that.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import torch
from jax.custom_batching import custom_vmap

from kineticsim_env.engines.operators import Description
from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, layout

Arrays = dict[str, jax.Array]  # by their names in struct Launch

_TARGET = "kineticsim_launch"
_KEPT_DTYPES = {torch.int32: np.int32, torch.float32: np.float32, torch.bool: np.bool_}  # others are pairs of words
_NO_VMAP = (
    "vmap: expected an environment of num_envs markets, whose calls are batched already, got one under jax.vmap; make "
    "it with as many markets as there are in all, or use shard_map over devices"
)


@functools.cache
def library() -> ctypes.CDLL:
    """Return the library, its handlers registered with JAX. Raises EngineUnavailable if it cannot be built."""
    found = build.load_jax(jax.ffi.include_dir(), jaxlib.__version__)
    for platform, handler in (("cpu", found.ks_jax_cpu), ("CUDA", found.ks_jax_gpu)):
        jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(handler), platform=platform)
    return found


def shape_of(tensor: torch.Tensor) -> jax.ShapeDtypeStruct:
    """Return how JAX has a tensor."""
    dtype = _KEPT_DTYPES.get(tensor.dtype)
    if dtype is None:
        return jax.ShapeDtypeStruct((*tensor.shape, 2), np.int32)
    return jax.ShapeDtypeStruct(tuple(tensor.shape), dtype)


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """Return a copy of a tensor on the host, as JAX has it."""
    array = tensor.detach().cpu().contiguous().numpy()
    words = array if tensor.dtype in _KEPT_DTYPES else array.reshape(*array.shape, 1).view(np.int32)
    return words.copy()


def placed(array: Any, platform: str) -> jax.Array:
    """Return an array of the host where calls are: on the default device, or on the CPU beside a GPU."""
    elsewhere = platform == "cpu" and jax.default_backend() != "cpu"
    # Not committed where it need not be: a program over several devices takes it along then.
    return jax.device_put(array, jax.local_devices(backend="cpu")[0]) if elsewhere else jnp.asarray(array)


class Call:
    """One launch: a pure function of what it changes and of what it reads.

    Attributes:
        state: The arrays that it changes, shapes by name,
        tables: and those that it reads.
    """

    def __init__(self, said: Description, shapes: list[dict[str, int]]) -> None:
        """Make a launch known, as engines describe it, on devices of these shapes."""
        tensors = {**said.state, **said.kept}
        said = said._replace(state=tensors)
        self.state, self.tables, scratch = (
            {name: shape_of(tensor) for name, tensor in part.items()} for part in (tensors, said.tables, said.scratch)
        )
        launch = layout.Launch.from_buffer_copy(said.launch)
        for struct, fields in ((launch, layout.LAUNCH_FIELDS), (launch.rollout, layout.ROLLOUT_FIELDS)):
            for name in (name for name, field in fields.items() if field.pointer):
                setattr(struct, name, None)
        launchers = [said._replace(shape={**said.shape, **shape}).launcher(said.scratch) for shape in shapes]
        told = (type(launchers[0]) * len(launchers))(*launchers)
        if library().ks_jax_sizes() != ctypes.sizeof(launch) + ctypes.sizeof(launchers[0]):
            raise EngineUnavailable("launcher.h: Python reads structs otherwise than the compiler does")
        self.name = name = hashlib.sha256(bytes(launch) + bytes(told)).hexdigest()
        library().ks_jax_know(name.encode(), ctypes.byref(launch), told, len(launchers))
        count = len(self.state)
        call = jax.ffi.ffi_call(
            _TARGET,
            [*self.state.values(), *scratch.values()],
            input_output_aliases={place: place for place in range(count)},
            vmap_method="sequential",  # which `_refuse_vmap` is asked before
        )

        @custom_vmap
        def play(*arrays: jax.Array) -> tuple[jax.Array, ...]:
            return tuple(call(*arrays, launch=name)[:count])

        play.def_vmap(_refuse_vmap)
        self._play = play

    def __call__(self, state: Mapping[str, jax.Array], tables: Mapping[str, jax.Array]) -> Arrays:
        """Return the state after the launch.

        Raises:
            TypeError, ValueError: If an array has another dtype or shape than the launch's, when it is traced.
        """
        given = [_checked("state", self.state, state), _checked("params", self.tables, tables)]
        # No gradient goes through a market; what is around it may have one.
        arrays = [jax.lax.stop_gradient(array) for part in given for array in part]
        return dict(zip(self.state, self._play(*arrays), strict=True))


def _refuse_vmap(*given: Any) -> Any:
    raise TypeError(_NO_VMAP)


def _checked(
    what: str, expected: Mapping[str, jax.ShapeDtypeStruct], given: Mapping[str, jax.Array]
) -> list[jax.Array]:
    """Return the arrays in the order of the launch."""
    if set(given) != set(expected):
        odd = sorted(set(given) ^ set(expected))
        raise ValueError(f"{what}: expected what this environment has returned, got missing or unknown arrays {odd}")
    for name, like in expected.items():
        array = given[name]
        if array.shape != like.shape or array.dtype != like.dtype:
            raise ValueError(
                f"{what}: expected {name} {like.dtype} {list(like.shape)}, got {array.dtype} {list(array.shape)}; is "
                "it of another environment, or of another num_envs (under shard_map that of one device)?"
            )
    return [given[name] for name in expected]


# Numbers of 64 bits -------------------------------------------------------------------------------------------------


def numbers_of(words: jax.Array, dtype: torch.dtype) -> jax.Array:
    """Return pairs of words as the numbers that they are.

    They are int64 or float64 where `jax_enable_x64` is set, else float32, rounded.
    """
    if jax.config.read("jax_enable_x64"):
        wide = {torch.int64: jnp.int64, torch.float64: jnp.float64}[dtype]
        return jax.lax.bitcast_convert_type(words, wide)
    low, high = (jax.lax.bitcast_convert_type(words[..., place], jnp.uint32) for place in (0, 1))
    negative = words[..., 1] < 0
    if dtype == torch.int64:  # by its size, so that small negative numbers are exact
        high = jnp.where(negative, ~high + (low == 0), high)
        low = jnp.where(negative, -low, low)
        size = high.astype(jnp.float32) * 2.0**32 + low.astype(jnp.float32)
        return jnp.where(negative, -size, size)
    exponent = ((high >> 20) & 0x7FF).astype(jnp.int32)
    mantissa = (high & 0xFFFFF).astype(jnp.float32) * 2.0**-20 + low.astype(jnp.float32) * 2.0**-52
    size = jnp.ldexp(1.0 + mantissa, exponent - 1023)
    size = jnp.where(exponent == 0x7FF, jnp.where(mantissa > 0, jnp.nan, jnp.inf), jnp.where(exponent, size, 0.0))
    return jnp.where(negative, -size, size)


def words_of(numbers: Any) -> np.ndarray:
    """Return int64 numbers of the host as pairs of words, int32 `[..., 2]`."""
    array = np.ascontiguousarray(numbers, dtype=np.int64)
    return array.reshape(*array.shape, 1).view(np.int32)
