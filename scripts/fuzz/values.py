"""Values that no argument should be: of every kind that a caller may hand over by mistake, or on purpose.

Each is made anew for each call, as a callee may keep or change it. None is large, and none does anything by itself.
Kinds `calls`, `loads` and `tampering` draw them, and tests take them by name or all in turn.
"""

from __future__ import annotations

import decimal
import fractions
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import kineticsim_env as ks


class _Text(str):
    """A string of another class."""


class _Odd:
    """An object that can nothing, with a short repr."""

    def __repr__(self) -> str:
        return "<odd>"


def _recursive() -> list[Any]:
    rows: list[Any] = [1]
    rows.append(rows)
    return rows


def _inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.zeros(3, 4)


def _sparse_rows() -> torch.Tensor:
    return torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.ones(2), size=(2, 2))


def _as_written(texts: str) -> dict[str, Callable[[], Any]]:
    """Return values whose names are their source, with semicolons between."""
    names = {"nan": float("nan"), "inf": float("inf")}
    return {text: functools.partial(eval, text, names) for text in texts.split("; ")}


WRONG: dict[str, Callable[[], Any]] = {
    # Nothing and text
    "None": lambda: None,
    "''": lambda: "",
    "'x'": lambda: "x",
    "unicode": lambda: "κ\U0001f600\udc80",
    "'1'": lambda: "1",
    "NUL": lambda: "a\0b",
    "percent": lambda: "%s{0}{x}%d",
    "str subclass": lambda: _Text("maker"),
    "np.str_": lambda: np.str_("maker"),
    "bytes": lambda: b"maker",
    "bytearray": lambda: bytearray(8),
    "memoryview": lambda: np.arange(3).data,
    # Numbers
    **_as_written(
        "-1; 0; 1; 7; 2**31 - 1; 2**31; 2**62; 2**63; 2**64; -2**63; -2**63 - 1; 10**400; 0.5; 1.0; -0.0; nan; inf; "
        "-inf; 1e308; 5e-324; True; False; 1j"
    ),
    "Decimal": lambda: decimal.Decimal("1.5"),
    "Decimal nan": lambda: decimal.Decimal("sNaN"),
    "Fraction": lambda: fractions.Fraction(1, 3),
    "np.int8(3)": lambda: np.int8(3),
    "np.int8(-1)": lambda: np.int8(-1),
    "np.uint64(2**64 - 1)": lambda: np.uint64(2**64 - 1),
    "np.bool_": lambda: np.bool_(True),
    "np.float16 nan": lambda: np.float16("nan"),
    "np.float64(2)": lambda: np.float64(2),
    "np.complex64": lambda: np.complex64(1),
    "np.datetime64": lambda: np.datetime64("2020-01-01"),
    "NaT": lambda: np.timedelta64("NaT"),
    # Containers
    **_as_written("[]; [None]; [1, 2, 3]; [nan]; ['x']; [[]]"),
    "ragged": lambda: [[1], [2, 3]],
    "recursive": _recursive,
    "[2**70]": lambda: [2**70, 1, 2],
    "deep": lambda: [[[[[[[[[[1]]]]]]]]]],
    **_as_written("(); (1, 'x'); {}; {'a': 1}; {1: None}"),
    "{None: 'x'}": lambda: {None: "x", 2: 3},
    "set": lambda: {1, 2},
    "frozenset": lambda: frozenset({"maker"}),
    "range": lambda: range(3),
    "generator": lambda: (i for i in range(3)),
    "iter": lambda: iter([1, 2, 3]),
    "zip": lambda: zip([1], [2], strict=True),
    # Objects
    "object": _Odd,
    "class": lambda: _Odd,
    "lambda": lambda: lambda *args: None,
    "print": lambda: len,
    "Ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    "slice": lambda: slice(None),
    "exception": lambda: ValueError("x"),
    "module": lambda: np,
    "Path": lambda: Path("x"),
    "np.random.Generator": lambda: np.random.default_rng(0),
    "torch.Generator": lambda: torch.Generator(),
    "torch.device": lambda: torch.device("meta"),
    "device cuda:99": lambda: torch.device("cuda:99"),
    "'cuda:99'": lambda: "cuda:99",
    "torch.dtype": lambda: torch.float32,
    "np.dtype": lambda: np.dtype("f4"),
    "MarketConfig": lambda: ks.MarketConfig(),
    "ensemble": lambda: ks.MarketConfig(fee=[1, 2, 3]),
    "ensemble of levels": lambda: ks.MarketConfig(num_levels=8, init_price=[3, 4, 5]),
    "task": lambda: ks.TradingTask(),
    "space": lambda: gym.spaces.Discrete(3),
    "CartPole": lambda: gym.make("CartPole-v1"),
    "vector CartPole": lambda: gym.make_vec("CartPole-v1", num_envs=2),
    # Arrays
    "np []": lambda: np.zeros(0),
    "np 0-d": lambda: np.array(1),
    "np 0-d float": lambda: np.array(0.5),
    "np 0-d object": lambda: np.array(None),
    "np int [3]": lambda: np.arange(3),
    "np int8 [3]": lambda: np.zeros(3, np.int8),
    "np uint64 [3]": lambda: np.full(3, 2**64 - 1, np.uint64),
    "np bool [3]": lambda: np.array([True, False, True]),
    "np bool [3, 3]": lambda: np.ones((3, 3), bool),
    "np float [3, 4]": lambda: np.zeros((3, 4), np.float32),
    "np float64 [3, 4]": lambda: np.zeros((3, 4)),
    "np nan [3, 4]": lambda: np.full((3, 4), np.nan, np.float32),
    "np inf [3]": lambda: np.full(3, np.inf),
    "np float16 [3, 4]": lambda: np.zeros((3, 4), np.float16),
    "np longdouble": lambda: np.zeros((3, 4), np.longdouble),
    "np int32 [3, 2, 4]": lambda: np.zeros((3, 2, 4), np.int32),
    "np int32 [0, 3, 2, 4]": lambda: np.zeros((0, 3, 2, 4), np.int32),
    "np int32 [2, 3, 2, 4]": lambda: np.zeros((2, 3, 2, 4), np.int32),
    "np complex": lambda: np.zeros((3, 4), complex),
    "np object": lambda: np.array([None, 1, "x"], object),
    "np object of arrays": lambda: np.array([np.zeros(2), np.zeros(3), None], object),
    "np str": lambda: np.array(["maker", "x", ""]),
    "np bytes": lambda: np.array([b"a"]),
    "np datetime": lambda: np.zeros(3, "datetime64[s]"),
    "np struct": lambda: np.zeros(3, [("a", "i4"), ("b", "f4")]),
    "np void": lambda: np.zeros(3, "V4"),
    "np masked": lambda: np.ma.masked_array(np.arange(3), [0, 1, 0]),
    "np [1]*32": lambda: np.zeros((1,) * 32),
    "np [3, 0]": lambda: np.zeros((3, 0), np.float32),
    # Tensors
    "tensor []": lambda: torch.zeros(0),
    "tensor 0-d": lambda: torch.tensor(1),
    "tensor 0-d float": lambda: torch.tensor(0.5),
    "tensor bool [3]": lambda: torch.ones(3, dtype=torch.bool),
    "tensor int64 [3]": lambda: torch.zeros(3, dtype=torch.int64),
    "tensor uint8 [3]": lambda: torch.zeros(3, dtype=torch.uint8),
    "tensor uint64 [3]": lambda: torch.zeros(3, dtype=torch.uint64),
    "tensor int16 [3]": lambda: torch.zeros(3, dtype=torch.int16),
    "tensor float [3, 4]": lambda: torch.zeros(3, 4),
    "tensor nan [3, 4]": lambda: torch.full((3, 4), torch.nan),
    "tensor half": lambda: torch.zeros(3, 4, dtype=torch.float16),
    "tensor bfloat16": lambda: torch.zeros(3, 4, dtype=torch.bfloat16),
    "tensor float8": lambda: torch.zeros(3, 4).to(torch.float8_e4m3fn),
    "tensor double": lambda: torch.zeros(3, 4, dtype=torch.float64),
    "tensor complex": lambda: torch.zeros(3, 4, dtype=torch.complex64),
    "tensor int32 [3, 2, 4]": lambda: torch.zeros(3, 2, 4, dtype=torch.int32),
    "tensor int32 [2, 3, 2, 4]": lambda: torch.zeros(2, 3, 2, 4, dtype=torch.int32),
    "meta": lambda: torch.zeros(3, 4, device="meta"),
    "meta int32 [3, 2, 4]": lambda: torch.zeros(3, 2, 4, dtype=torch.int32, device="meta"),
    "meta bool [3]": lambda: torch.zeros(3, dtype=torch.bool, device="meta"),
    "meta int64 [3]": lambda: torch.zeros(3, dtype=torch.int64, device="meta"),
    "sparse": lambda: torch.zeros(3, 4).to_sparse(),
    "sparse int32 [3, 2, 4]": lambda: torch.zeros(3, 2, 4, dtype=torch.int32).to_sparse(),
    "sparse bool [3]": lambda: torch.ones(3, dtype=torch.bool).to_sparse(),
    "sparse int64 [3]": lambda: torch.ones(3, dtype=torch.int64).to_sparse(),
    "sparse csr": _sparse_rows,
    "quantized": lambda: torch.quantize_per_tensor(torch.zeros(3, 4), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
    "requires_grad": lambda: torch.zeros(3, 4, requires_grad=True),
    "inference": _inference,
    "parameter": lambda: torch.nn.Parameter(torch.zeros(3)),
    "module of torch": lambda: torch.nn.Identity(),
    "conj": lambda: torch.zeros(3, 4, dtype=torch.complex64).conj(),
}
HUGE = {"2**31 - 1", "2**31", "2**62", "2**63", "2**64", "10**400", "np.uint64(2**64 - 1)"}


def spoilt(value: Any, rng: np.random.Generator) -> tuple[Any, str]:
    """Return a valid value with something wrong inside it, and what: an entry, a shape, a dtype."""
    if isinstance(value, dict) and value:
        name = list(value)[int(rng.integers(len(value)))]
        how = int(rng.integers(4))
        if how == 0:
            return {other: entry for other, entry in value.items() if other != name}, f"without {name!r}"
        if how == 1:
            return {**value, "odd": 1}, "with 'odd'"
        label = wrong_label(rng)
        if how == 2 and isinstance(value[name], (dict, torch.Tensor, np.ndarray)):
            inner, what = spoilt(value[name], rng)
            return {**value, name: inner}, f"[{name!r}] {what}"
        return {**value, name: WRONG[label]()}, f"[{name!r}] = {label}"
    if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout == torch.strided:
        return _spoilt_tensor(value, rng)
    if isinstance(value, np.ndarray) and value.dtype.kind in "bif":
        tensor, what = _spoilt_tensor(torch.from_numpy(value.copy()), rng, host=True)
        return tensor.detach().numpy(), what
    if isinstance(value, (list, tuple)) and value:
        label, place = wrong_label(rng), int(rng.integers(len(value)))
        items = [WRONG[label]() if number == place else item for number, item in enumerate(value)]
        return type(value)(items) if type(value) in (list, tuple) else items, f"[{place}] = {label}"
    label = wrong_label(rng)
    return WRONG[label](), label


def wrong_label(rng: np.random.Generator) -> str:
    """Draw the name of a wrong value."""
    return list(WRONG)[int(rng.integers(len(WRONG)))]


def wrong_tensors(value: torch.Tensor) -> dict[str, Callable[[], torch.Tensor]]:
    """Return tensors that are not like this one, of another shape, dtype, layout or place, by name."""
    dtypes = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32]
    dtypes += [torch.float64, torch.complex64]
    ways: dict[str, Callable[[], torch.Tensor]] = {
        f"as {dtype}": lambda dtype=dtype: value.to(dtype) for dtype in dtypes if dtype != value.dtype
    }
    ways |= {"one axis more": lambda: value[None].clone(), "an axis last": lambda: value[..., None].clone()}
    if value.dim():
        ways |= {
            "half the rows": lambda: value[: len(value) // 2].clone(),
            "twice the rows": lambda: torch.cat([value, value]),
            "no rows": lambda: value[:0].clone(),
            "sparse": lambda: value.to_sparse(),
        }
    if value.dim() > 1:
        ways |= {
            "flat": lambda: value.flatten().clone(),
            "turned": lambda: value.clone().permute(tuple(range(value.dim()))[::-1]),
            "nested": lambda: torch.nested.nested_tensor([value, value]),
        }
    if value.dtype.is_floating_point:
        ways["quantized"] = lambda: torch.quantize_per_tensor(value.float(), 0.1, 0, torch.qint8)
    return ways | {"on meta": lambda: value.to("meta")}


_NOT_ON_THE_HOST = ("sparse", "nested", "quantized", "on meta")


def _spoilt_tensor(value: torch.Tensor, rng: np.random.Generator, host: bool = False) -> tuple[torch.Tensor, str]:
    ways = wrong_tensors(value)
    if host:
        ways = {name: way for name, way in ways.items() if name not in _NOT_ON_THE_HOST}
    else:
        ways["with grad"] = lambda: value.float().clone().requires_grad_()
    ways |= {"filled": lambda: _filled(value, rng), "one odd": lambda: _one_odd(value, rng)}
    name = list(ways)[int(rng.integers(len(ways)))]
    return ways[name](), name


def extremes(dtype: torch.dtype) -> list[Any]:
    """Return values at and about the ends of a dtype."""
    if dtype == torch.bool:
        return [True, False]
    if dtype.is_floating_point:
        most = torch.finfo(dtype).max
        return [float("nan"), float("inf"), float("-inf"), -0.0, 1.0, -1.0, 1.0000001, most, -most, 1e-45]
    if dtype.is_complex:
        return [0j, complex("nan")]
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    inner = [-7, -3, 5, 30]  # and plausible ones
    inner += [
        v for k in (7, 15, 16, 20, 29, 30, 31, 32, 40, 62) for v in (2**k - 1, 2**k, 2**k + 1, -(2**k), -(2**k) - 1)
    ]
    return [value for value in (low, low + 1, -2, -1, 0, 1, 2, high - 1, high, *inner) if low <= value <= high]


def _filled(value: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    some = extremes(value.dtype)
    return torch.full_like(value, some[int(rng.integers(len(some)))])


def _one_odd(value: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    some, changed = extremes(value.dtype), value.clone()
    if changed.numel():
        changed.view(-1)[int(rng.integers(changed.numel()))] = some[int(rng.integers(len(some)))]
    return changed
