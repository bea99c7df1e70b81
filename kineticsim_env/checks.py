"""Checks of what users hand to a `Simulator` or an environment; each names the argument, what came and what is allowed.

They return the value in the form the engines take, and change nothing.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch

from kineticsim_env import state
from kineticsim_env.config import CLASSES, MarketConfig

_HOST = torch.device("cpu")


def check_series(record: Any) -> tuple[str, ...]:
    """Return the names of the series to record."""
    if isinstance(record, str) or not isinstance(record, Iterable):
        raise TypeError(f"record: got {record!r}, allowed is a sequence of {', '.join(state.SERIES)}")
    names = tuple(record)  # an iterator can be read once
    for name in names:
        if name not in state.SERIES:
            raise ValueError(f"record: got {name!r}, allowed are {', '.join(state.SERIES)}")
    return names


def engine_input(
    name: str,
    given: Any,
    dtype: torch.dtype,
    shape: Sequence[int | None],
    device: torch.device,
    *,
    from_anywhere: bool = False,
) -> torch.Tensor:
    """Return what a user hands to an engine as a contiguous tensor on its device; the one door to the engines.

    Order, strides, byte order and ownership of the memory may be any: the result has the same elements at the same
    indices. It may share memory with what was given.

    Args:
        name: What errors call it.
        given: A tensor of just this dtype, or an array, number or nested sequence of the same kind of numbers.
        dtype: float32, int32, int64 or bool.
        shape: The shape it must have; None is any length.
        device: Where the engine is.
        from_anywhere: Whether a tensor may be on another device, too.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed.
    """
    if not isinstance(given, torch.Tensor):
        tensor = torch.from_numpy(host_array(name, given, dtype, shape, device))
        return tensor if device.type == "cpu" else tensor.to(device)
    if given.layout is not torch.strided or given.is_nested or given.is_meta:
        kind = "meta" if given.is_meta else "nested" if given.is_nested else str(given.layout)
        raise TypeError(f"{name}: got a {kind} tensor, allowed is {_allowed(dtype, shape, device)}")
    if given.dtype != dtype or not _fits(given.shape, shape) or (given.device != device and not from_anywhere):
        found = f"{given.dtype} {list(given.shape)} on {given.device}"
        wrong_kind = given.dtype != dtype
        raise (TypeError if wrong_kind else ValueError)(
            f"{name}: got {found}, allowed is {_allowed(dtype, shape, device)}"
        )
    if given.requires_grad:
        given = given.detach()
    if given.is_neg():
        given = given.resolve_neg()
    if dtype == torch.bool:
        given = given.contiguous().view(torch.uint8) != 0  # a bool of another program may have any byte
    return (given if given.device == device else given.to(device)).contiguous()


def host_array(
    name: str, given: Any, dtype: torch.dtype, shape: Sequence[int | None], device: torch.device = _HOST
) -> np.ndarray:
    """Return what is no tensor as a C-ordered, aligned, writeable array; arguments and errors are `engine_input`'s."""
    try:
        array = np.asarray(given)
    except Exception as error:  # whatever strange objects raise
        ragged = isinstance(error, ValueError) and isinstance(given, Sequence)
        found = "nested sequences of unequal lengths" if ragged else f"{type(given).__name__}, which is no array"
        refusal = ValueError if ragged else TypeError
        raise refusal(f"{name}: got {found}, allowed is {_allowed(dtype, shape, device)}") from error
    if array.dtype.kind not in _KINDS[dtype]:
        found = f"{array.dtype} {list(array.shape)}" if array.dtype.kind in "biufcSU" else type(given).__name__
        raise TypeError(f"{name}: got {found}, allowed is {_allowed(dtype, shape, device)}")
    if not _fits(array.shape, shape):
        raise ValueError(f"{name}: got {array.dtype} {list(array.shape)}, allowed is {_allowed(dtype, shape, device)}")
    if array.dtype.kind in "iu" and array.size:
        limits = torch.iinfo(dtype)
        for value in (int(array.min()), int(array.max())):
            if not limits.min <= value <= limits.max:
                raise ValueError(f"{name}: got {value}, allowed are values that fit {_name(dtype)}")
    if dtype == torch.bool:
        array = np.ascontiguousarray(array).view(np.uint8) != 0
    wanted = _NUMPY[dtype]
    if array.dtype == wanted and array.flags.carray:  # C-ordered, aligned and writeable
        return array
    return np.array(array, dtype=wanted, order="C")


_KINDS = {torch.float32: "f", torch.int32: "iu", torch.int64: "iu", torch.bool: "b"}  # of NumPy's types
_NUMPY = {dtype: np.dtype(str(dtype).removeprefix("torch.")) for dtype in _KINDS}


def _fits(found: Sequence[int], wanted: Sequence[int | None]) -> bool:
    if found == wanted:
        return True
    return len(found) == len(wanted) and all(want in (None, have) for want, have in zip(wanted, found, strict=True))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _allowed(dtype: torch.dtype, shape: Sequence[int | None], device: torch.device) -> str:
    sizes = ", ".join("T" if size is None else str(size) for size in shape)
    return f"{_name(dtype)} [{sizes}] on {device}"


def check_quotes(quotes: Any, shape: tuple[int | None, ...], device: torch.device) -> torch.Tensor:
    """Return quotes as a contiguous int32 tensor of `shape` (None: any length) on the device."""
    if shape[-2] == 0:
        raise ValueError(
            "quotes: got quotes, but this simulator has no slots; allowed is None, or Simulator(slots=...)"
        )
    return engine_input("quotes", quotes, torch.int32, shape, device)


def check_seeds(seed: Any, markets: int, device: torch.device) -> torch.Tensor:
    """Return one seed per market, int64 `[M]`: seed + m for an int."""
    allowed = f"an int, or {markets} of them"
    if isinstance(seed, torch.Tensor):
        if seed.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
            raise TypeError(f"seed: got {seed.dtype} {list(seed.shape)}, allowed is {allowed}")
        whole = seed.to(torch.int64) if seed.layout is torch.strided and not seed.is_meta else seed
        if seed.dim():
            return engine_input("seed", whole, torch.int64, (markets,), device, from_anywhere=True)
        seed = int(engine_input("seed", whole, torch.int64, (), device, from_anywhere=True))
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        first = int(seed)
        if not -(2**63) <= first <= 2**63 - markets:
            raise ValueError(f"seed: got {first}, allowed is -2^63 to 2^63 - num_markets")
        return torch.from_numpy(first + np.arange(markets, dtype=np.int64)).to(device)
    if isinstance(seed, np.ndarray) and seed.ndim == 0 and seed.dtype.kind in "iu":
        return check_seeds(int(seed), markets, device)
    if not isinstance(seed, (Sequence, np.ndarray)) or isinstance(seed, (str, bytes)):
        raise TypeError(f"seed: got {reprlib.repr(seed)}, allowed is {allowed}")
    try:
        return engine_input("seed", seed, torch.int64, (markets,), device)
    except (TypeError, ValueError) as error:
        raise type(error)(f"seed: got {reprlib.repr(seed)}, allowed is {allowed}") from error


def check_mask(name: str, mask: Any, markets: int, device: torch.device) -> torch.Tensor:
    """Return a bool mask `[M]` on the device; all True for None."""
    if mask is None:
        return torch.ones(markets, dtype=torch.bool, device=device)
    try:
        return engine_input(name, mask, torch.bool, (markets,), device, from_anywhere=True)
    except TypeError as error:
        raise ValueError(f"{error}, or None") from error


def check_num_markets(config: MarketConfig, num_markets: int | None) -> int:
    """Return the number of markets, which per-market fields may tell."""
    lengths = config.per_market
    if num_markets is None:
        return next(iter(lengths.values()), 1)
    markets = check_count("num_markets", num_markets, 1)
    for name, length in lengths.items():
        if length != markets:
            raise ValueError(f"{name}: got {length} per-market values, allowed is num_markets = {markets}")
    return markets


def check_slots(slots: Any) -> tuple[str | None, ...]:
    """Return the class that each learned slot replaces, or None."""
    most = state.CONSTANTS["kMaxSlots"]
    if isinstance(slots, str):
        raise TypeError(f"slots: got the string {slots!r}, allowed is a count, or a sequence such as ({slots!r},)")
    if isinstance(slots, (int, np.integer)):
        if check_count("slots", slots, 0) > most:
            raise ValueError(f"slots: got {slots}, allowed is up to {most}")
        return (None,) * int(slots)
    if not isinstance(slots, Iterable) or isinstance(slots, (Mapping, Set)):  # the order says which slot is which
        raise TypeError(f"slots: got {slots!r}, allowed is a count up to {most}, or a sequence of classes and None")
    names = tuple(slots)
    if len(names) > most:
        raise ValueError(f"slots: got {len(names)}, allowed is up to {most}")
    for name in names:
        if name is not None and name not in CLASSES:
            raise ValueError(f"slots: got {name!r}, allowed are None, {', '.join(map(repr, CLASSES))}")
    return names


def check_count(name: str, value: Any, least: int) -> int:
    """Return a whole number from `least`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}: got {value!r}, allowed is a whole number from {least}")
    if not least <= value < 2**31:
        raise ValueError(f"{name}: got {value}, allowed is {least} to 2^31 - 1")
    return int(value)


def check_mapping(saved: Any) -> None:
    """Refuse what is not a mapping."""
    if not isinstance(saved, Mapping):
        raise TypeError(f"state: got {type(saved).__name__}, allowed is a mapping, as state_dict returns it")


def check_like(saved: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
    """Refuse saved tensors that are missing, or of other dtypes or shapes than the present ones."""
    for name, tensor in tensors.items():
        got = saved.get(name)
        if not isinstance(got, torch.Tensor) or got.dtype != tensor.dtype or got.shape != tensor.shape:
            found = f"{got.dtype} {tuple(got.shape)}" if isinstance(got, torch.Tensor) else type(got).__name__
            raise ValueError(f"state[{name!r}]: got {found}, allowed is {tensor.dtype} {tuple(tensor.shape)}")
