"""The same values in other forms: strides, orders, offsets, dtypes, wrappers and aliases.

Kind `forms` draws them; tests take each of TAKEN by its name (`make`).
"""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Form = tuple[Any, np.ndarray, str]  # what is handed over, its values as a plain array, and what it is called
_GARBAGE = {"f": np.nan, "i": -77, "u": 77, "b": True}


class Subclass(np.ndarray):
    """An array of another class."""


class TensorSubclass(torch.Tensor):
    """A tensor of another class."""


class AsArray:
    """Something that becomes an array when asked."""

    def __init__(self, values: np.ndarray) -> None:
        """Keep the values."""
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the values themselves."""
        return self.values if dtype is None else self.values.astype(dtype)


class AsInterface:
    """Something that shows its memory."""

    def __init__(self, values: np.ndarray) -> None:
        """Keep the values, and say where they are."""
        self.values, self.__array_interface__ = values, values.__array_interface__


def _apart(a: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the values in a larger buffer, with others before, after and between them."""
    steps = [int(rng.integers(1, 4)) for _ in a.shape]
    begins = [int(rng.integers(0, 3)) for _ in a.shape]
    room = [begin + step * size + 1 for begin, step, size in zip(begins, steps, a.shape, strict=True)]
    buffer = np.full(room, _GARBAGE[a.dtype.kind], a.dtype)
    places = zip(begins, steps, a.shape, strict=True)
    view = buffer[(*(slice(begin, begin + step * size, step) for begin, step, size in places), ...)]
    view[...] = a
    return view


def _turned(a: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    order = rng.permutation(a.ndim)
    return a.transpose(order).copy().transpose(np.argsort(order))


def _backwards(a: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    where = tuple(slice(None, None, -1 if rng.random() < 0.6 else 1) for _ in a.shape)
    return a[(*where, ...)].copy()[(*where, ...)]


def _repeated(a: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return values of which some axes have stride 0."""
    where = tuple(slice(0, 1) if rng.random() < 0.6 else slice(None) for _ in a.shape)
    return np.broadcast_to(a[where], a.shape)


def _overlapping(a: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return values whose rows share memory."""
    strides = [int(rng.integers(0, 3)) * a.itemsize for _ in a.shape]
    return np.lib.stride_tricks.as_strided(np.resize(a, 4 * a.size + 8).copy(), a.shape, strides)


def _misaligned(a: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    raw = bytearray(a.nbytes + 8)
    begin = int(rng.integers(1, 4))
    raw[begin : begin + a.nbytes] = a.tobytes()
    return np.frombuffer(raw, a.dtype, a.size, offset=begin).reshape(a.shape)


def _of_bytes(a: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape)


def _field(a: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    rows = np.zeros(a.shape, [("pad", "u1"), ("values", a.dtype)])
    rows["values"] = a
    return rows["values"]


def _read_only(a: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    copy = a.copy()
    copy.flags.writeable = False
    return copy


def _other_dtype(a: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    kinds: dict[str, list[str]] = {
        "f": ["f2", "f4", "f8", "g", ">f4", ">f8"],
        "i": ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i4", ">i8"],
    }
    names = kinds.get(a.dtype.kind, ["?"])
    with np.errstate(over="ignore", invalid="ignore"):
        return a.astype(names[int(rng.integers(len(names)))])


def _wider(a: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return a.astype({"f": np.float64, "i": np.int64, "b": np.bool_}[a.dtype.kind])


def _nested(a: np.ndarray, rng: np.random.Generator) -> Any:
    rows = a.tolist()
    return tuple(rows) if isinstance(rows, list) and rng.random() >= 0.5 else rows


def _scalars(a: np.ndarray, rng: np.random.Generator) -> Any:
    return a[()] if a.ndim == 0 else list(a)


def _memory(a: np.ndarray, rng: np.random.Generator) -> Any:
    return (_apart(a, rng) if rng.random() < 0.5 else a.copy()).data


def _of_module_array(a: np.ndarray, rng: np.random.Generator) -> Any:
    return array.array(a.dtype.char, a.tobytes()) if a.ndim == 1 and a.dtype.kind in "if" else a.copy()


ARRAYS: dict[str, Callable[[np.ndarray, np.random.Generator], Any]] = {
    "plain": lambda a, rng: a.copy(),
    "Fortran order": lambda a, rng: a.copy(order="F"),
    "turned": _turned,
    "backwards": _backwards,
    "apart": _apart,
    "repeated": _repeated,
    "overlapping": _overlapping,
    "misaligned": _misaligned,
    "of bytes": _of_bytes,
    "a field of records": _field,
    "read-only": _read_only,
    "byte-swapped": lambda a, rng: a.astype(a.dtype.newbyteorder()),
    "wider": _wider,
    "another dtype": _other_dtype,
    "nested": _nested,
    "list of arrays": _scalars,
    "memoryview": _memory,
    "array.array": _of_module_array,
    "subclass": lambda a, rng: _apart(a, rng).view(Subclass),
    "masked array": lambda a, rng: np.ma.masked_array(_turned(a, rng)),
    "matrix": lambda a, rng: np.matrix(a) if a.ndim == 2 else a.copy(),
    "__array__": lambda a, rng: AsArray(_backwards(a, rng)),
    "__array_interface__": lambda a, rng: AsInterface(_apart(a, rng)),
    "objects": lambda a, rng: a.astype(object),
}


def _tensor_apart(t: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(_apart(t.numpy(), rng))


def _tensor_misaligned(t: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Return the values one element further, as a slice of a flat buffer of parameters has them."""
    return torch.cat([t.new_zeros(1), t.flatten()])[1:].view(t.shape)


def _expanded(t: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    where = tuple(slice(0, 1) if rng.random() < 0.6 else slice(None) for _ in t.shape)
    return t[where].clone().expand(t.shape)


def _strided(t: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    buffer = t.flatten().repeat(4)
    buffer = torch.cat([buffer, buffer[:1].expand(16)]) if len(buffer) else t.new_zeros(16)
    strides = [int(rng.integers(0, 3)) for _ in t.shape]
    room = 1 + sum((size - 1) * stride for size, stride in zip(t.shape, strides, strict=True) if size)
    return buffer.as_strided(t.shape, strides, int(rng.integers(0, max(1, len(buffer) - room))))


def _negated(t: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    if not t.dtype.is_floating_point:
        return t.clone()
    return torch.complex(torch.zeros_like(t), -t).conj().imag  # a view that is negated when it is read


def _inferred(t: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    with torch.inference_mode():
        return t.clone()


def _graded(t: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    return (t.clone().requires_grad_() * 1) if t.dtype.is_floating_point else t.clone()


def _tensor_dtype(t: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    dtypes = [torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16]
    dtypes += [torch.float32, torch.float64]
    return t.to(dtypes[int(rng.integers(len(dtypes)))])


def _tensor_of_bytes(t: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    raw = bytearray(t.numpy().tobytes())
    return torch.frombuffer(raw, dtype=t.dtype).view(t.shape) if raw else t.clone()


TENSORS: dict[str, Callable[[torch.Tensor, np.random.Generator], torch.Tensor]] = {
    "tensor": lambda t, rng: t.clone(),
    "turned tensor": lambda t, rng: torch.from_numpy(_turned(t.numpy(), rng)),
    "tensor apart": _tensor_apart,
    "misaligned tensor": _tensor_misaligned,
    "expanded tensor": _expanded,
    "strided tensor": _strided,
    "negated tensor": _negated,
    "tensor of inference mode": _inferred,
    "tensor with a gradient": _graded,
    "parameter": lambda t, rng: torch.nn.Parameter(t.clone(), requires_grad=t.dtype.is_floating_point),
    "tensor subclass": lambda t, rng: _tensor_apart(t, rng).as_subclass(TensorSubclass),
    "tensor of another dtype": _tensor_dtype,
    "tensor on meta": lambda t, rng: t.to("meta"),
    "sparse tensor": lambda t, rng: t.clone().to_sparse() if t.dim() else t.clone(),
    "tensor of bytes": _tensor_of_bytes,
}
# Forms that must be taken: a refusal would be wrong.
TAKEN = {"plain", "Fortran order", "turned", "backwards", "apart", "repeated", "misaligned", "read-only"}
TAKEN |= {"tensor", "turned tensor", "tensor apart", "misaligned tensor", "expanded tensor"}
TAKEN |= {"tensor of inference mode", "tensor with a gradient"}
ALSO_TAKEN = {"byte-swapped", "wider", "nested", "list of arrays"}  # where the values are in the argument's range


class Furthest:
    """In the place of a generator: turns, shifts and flips all that can be."""

    def random(self) -> float:
        """Return 0."""
        return 0.0

    def integers(self, low: int, high: int) -> int:
        """Return the largest."""
        return high - 1

    def permutation(self, count: int) -> np.ndarray:
        """Return the reverse."""
        return np.arange(count)[::-1]


def make(name: str, values: np.ndarray, rng: Any) -> Form:
    """Return values in a form of this name; what they are in it may be other values, the plain array has them."""
    if name in ARRAYS:
        given: Any = ARRAYS[name](np.array(values, order="C"), rng)
    else:
        given = TENSORS[name](torch.from_numpy(values.copy()), rng)
    return given, _plain(given, values), name


def draw(values: np.ndarray, rng: np.random.Generator, live: list[torch.Tensor] | None = None) -> Form:
    """Return values in a random form, which may change what they are.

    Args:
        values: Of the dtype that the argument should have.
        rng: Draws the form.
        live: Tensors of the environment itself; views of the right shape are made of them.
    """
    kind = rng.random()
    if live and kind < 0.15:
        made = _alias(values, rng, live)
        if made is not None:
            return made
    names = list(ARRAYS if kind < 0.6 else TENSORS)
    return make(names[int(rng.integers(len(names)))], values, rng)


def _plain(given: Any, values: np.ndarray) -> np.ndarray:
    """Return what was handed over as a plain array of the dtype that the argument should have."""
    if isinstance(given, torch.Tensor):
        if given.device.type != "cpu" or given.layout != torch.strided:
            return values.copy()
        given = given.detach().resolve_neg().clone().as_subclass(torch.Tensor).numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array(given, copy=True).astype(values.dtype, order="C").reshape(values.shape)


def _alias(values: np.ndarray, rng: np.random.Generator, live: list[torch.Tensor]) -> Form | None:
    """Return a view of a live tensor that has the shape and dtype of the argument."""
    dtype = torch.from_numpy(values.copy()).dtype
    fits = [tensor for tensor in live if tensor.dtype == dtype and tensor.numel() >= max(1, values.size)]
    if not fits:
        return None
    tensor = fits[int(rng.integers(len(fits)))]
    if tensor.shape == values.shape and rng.random() < 0.5:
        view = tensor
    else:
        strides = tuple(int(rng.integers(0, 3)) for _ in values.shape)
        reach = 1 + sum((size - 1) * stride for size, stride in zip(values.shape, strides, strict=True) if size)
        start = tensor.storage_offset()
        if not tensor.is_contiguous() or reach > tensor.numel():
            return None
        view = tensor.as_strided(values.shape, strides, start + int(rng.integers(0, tensor.numel() - reach + 1)))
    given: Any = view.numpy() if rng.random() < 0.4 else view
    return given, _plain(given, values), "a live tensor"
