"""Checks of what users hand to a `Simulator` or an environment; each names the argument, what came and what is allowed.

They return the value in the form the engines take, and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from typing import Any, TypeGuard

import numpy as np
import torch

from kineticsim_env.config import CLASSES, MarketConfig
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.values import check_count, is_one_of, is_whole, show

_HOST = torch.device("cpu")
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_series(record: Any, argument: str = "record") -> tuple[str, ...]:
    """Return the names of series: those to record, or those of another argument."""
    known = [*layout.SERIES, *layout.FURTHER_SERIES]
    names = _entries(argument, record, f"a sequence of {', '.join(known)}")
    for name in names:
        if not is_one_of(name, known):
            raise ValueError(f"{argument}: expected one of {', '.join(known)}, got {show(name)}")
    return names


def _entries(name: str, given: Any, allowed: str) -> tuple[Any, ...]:
    """Return what an iterable that is no string yields; an iterator can be read once."""
    nested = isinstance(given, torch.Tensor) and given.is_nested  # has no length, which Python 3.14 does not ask for
    if not isinstance(given, str) and isinstance(given, Iterable) and not nested:
        try:
            return tuple(given)
        except Exception as error:  # an array without axes says that it can be iterated over
            raise TypeError(f"{name}: expected {allowed}, got {show(given)}") from error
    raise TypeError(f"{name}: expected {allowed}, got {show(given)}")


def engine_input(
    name: str,
    given: Any,
    dtype: torch.dtype,
    shape: Sequence[int | None],
    device: torch.device,
    *,
    from_anywhere: bool = False,
) -> torch.Tensor:
    """Return what a user hands to an engine as a contiguous tensor on its device; all input goes through here.

    Order, strides, byte order and ownership of the memory may be any: the result has the same elements at the same
    indices. It may share memory with what was given.

    Args:
        name: What errors call it.
        given: A tensor of just this dtype, or an array, number or nested sequence of the same kind of numbers.
        dtype: float32, int32, int64 or bool.
        shape: The shape it must have; None is any length.
        device: Where the engine is.
        from_anywhere: Whether a tensor may be on another device, too.
    """
    if not isinstance(given, torch.Tensor):
        tensor = torch.from_numpy(host_array(name, given, dtype, shape, device))
        return tensor if device.type == "cpu" else tensor.to(device)
    if not is_plain(given) or given.dtype != dtype:
        raise TypeError(f"{name}: expected {_allowed(dtype, shape, device)}, got {describe(given)}")
    if not _fits(given.shape, shape) or (given.device != device and not from_anywhere):
        raise ValueError(f"{name}: expected {_allowed(dtype, shape, device)}, got {describe(given)}")
    if given.requires_grad:
        given = given.detach()
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
        raise refusal(f"{name}: expected {_allowed(dtype, shape, device)}, got {found}") from error
    if array.dtype.kind not in _KINDS[dtype]:
        found = f"{array.dtype} {list(array.shape)}" if array.dtype.kind in "biufcSU" else type(given).__name__
        raise TypeError(f"{name}: expected {_allowed(dtype, shape, device)}, got {found}")
    if not _fits(array.shape, shape):
        raise ValueError(f"{name}: expected {_allowed(dtype, shape, device)}, got {array.dtype} {list(array.shape)}")
    if array.dtype.kind in "iu" and array.size:
        limits = torch.iinfo(dtype)
        for value in (int(array.min()), int(array.max())):
            if not limits.min <= value <= limits.max:
                raise ValueError(f"{name}: expected values that fit {_name(dtype)}, got {value}")
    if dtype == torch.bool:
        array = np.ascontiguousarray(array).view(np.uint8) != 0
    wanted = _NUMPY[dtype]
    # C-ordered, aligned and writeable; torch takes no negative strides, though an axis of length 1 may have one.
    if array.dtype == wanted and array.flags.carray and min(array.strides, default=0) >= 0:
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


def check_quotes(
    quotes: Any, shape: tuple[int | None, ...], device: torch.device, name: str = "quotes", axis: int = -2
) -> torch.Tensor:
    """Return quotes as a contiguous int32 tensor of `shape` (None: any length) on the device; `name` is for errors.

    `axis` is that of the slots in `shape`.
    """
    if shape[axis] == 0:
        raise ValueError(f"{name}: expected None, or Simulator(slots=...), got quotes, but this simulator has no slots")
    return engine_input(name, quotes, torch.int32, shape, device)


def check_seeds(seed: Any, markets: int, device: torch.device, name: str = "seed") -> torch.Tensor:
    """Return one seed per market, int64 `[M]`: seed + m for an int; `name` is for errors."""
    found = one_or_each(name, seed, f"an int, or {markets} of them", markets, device)
    if isinstance(found, torch.Tensor):
        return found
    if not -(2**63) <= found <= 2**63 - markets:
        raise ValueError(f"{name}: expected -2^63 to 2^63 - num_markets, got {show(found)}")
    return torch.arange(markets, dtype=torch.int64, device=device) + int(found)  # made there: a copy would wait


def one_or_each(name: str, given: Any, allowed: str, markets: int, device: torch.device) -> int | torch.Tensor:
    """Return one whole number for all markets, or a tensor int64 `[M]` of one for each."""
    if isinstance(given, torch.Tensor):
        if not is_plain(given) or given.dtype not in _WHOLE:
            raise TypeError(f"{name}: expected {allowed}, got {describe(given)}")
        given = given.to(torch.int64) if given.dim() else int(given)
    elif isinstance(given, np.ndarray) and given.ndim == 0 and given.dtype.kind in "iu":
        given = int(given)
    if is_whole(given):
        return given
    if not isinstance(given, (Sequence, np.ndarray, torch.Tensor)) or isinstance(given, (str, bytes)):
        raise TypeError(f"{name}: expected {allowed}, got {show(given)}")
    try:
        return engine_input(name, given, torch.int64, (markets,), device, from_anywhere=True)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: expected {allowed}, got {show(given)}") from error


def check_mask(name: str, mask: Any, markets: int, device: torch.device) -> torch.Tensor:
    """Return a bool mask `[M]` on the device; all True for None."""
    if mask is None:
        return torch.ones(markets, dtype=torch.bool, device=device)
    try:
        return engine_input(name, mask, torch.bool, (markets,), device, from_anywhere=True)
    except TypeError as error:
        raise ValueError(str(error).replace(", got ", ", or None, got ", 1)) from error


def check_num_markets(config: MarketConfig, num_markets: int | None) -> int:
    """Return the number of markets, which per-market fields may tell."""
    lengths = config.per_market
    if num_markets is None:
        return next(iter(lengths.values()), 1)
    markets = check_count("num_markets", num_markets, 1)
    for name, length in lengths.items():
        if length != markets:
            raise ValueError(f"{name}: expected num_markets = {markets} per-market values, got {length}")
    return markets


def check_slots(slots: Any, added: Sequence[str] = (), orders_per_side: int = 1) -> tuple[str | None, ...]:
    """Return the class that each slot replaces, or None; `added` are the names of classes that users have written.

    `orders_per_side` is how many levels the ladder of each has.
    """
    names = _checked_slots(slots, added)
    most = layout.CONSTANTS["kMaxOrders"]
    if len(names) * orders_per_side > most:
        raise ValueError(
            f"slots: expected up to {most // orders_per_side} with orders_per_side={orders_per_side}, as ladders have "
            f"{most} levels together, got {len(names)}"
        )
    return names


def _checked_slots(slots: Any, added: Sequence[str]) -> tuple[str | None, ...]:
    classes = (*CLASSES, *added)
    most = layout.CONSTANTS["kMaxSlots"]
    if isinstance(slots, str):
        raise TypeError(f"slots: expected a count, or a sequence such as ({slots!r},), got the string {slots!r}")
    if is_whole(slots) or isinstance(slots, (bool, np.bool_)):
        if check_count("slots", slots, 0) > most:
            raise ValueError(f"slots: expected up to {most}, got {slots}")
        return (None,) * int(slots)
    allowed = f"a count up to {most}, or a sequence of classes and None"
    if isinstance(slots, (Mapping, Set)):  # the order says which slot is which
        raise TypeError(f"slots: expected {allowed}, got {show(slots)}")
    names = _entries("slots", slots, allowed)
    if len(names) > most:
        raise ValueError(f"slots: expected up to {most}, got {len(names)}")
    for name in names:
        if name is not None and not is_one_of(name, classes):
            raise ValueError(f"slots: expected one of None, {', '.join(map(repr, classes))}, got {show(name)}")
        if name in CLASSES and name in added:
            raise ValueError(f"slots: expected another name in config.agents, got {name!r}, a class of built-in agents")
    return names


def check_one_order_per_side(config: MarketConfig, where: str) -> None:
    """Refuse ladders in a tool, `where`, whose slots have one order per side."""
    if config.orders_per_side > 1:
        raise ValueError(f"orders_per_side: expected 1 in {where}, got {config.orders_per_side}")


def check_mapping(saved: Any) -> None:
    """Refuse what is not a mapping."""
    if not isinstance(saved, Mapping):
        raise TypeError(f"state: expected a mapping, as state_dict returns it, got {type(saved).__name__}")


def check_like(saved: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
    """Refuse saved tensors that are missing, or of other dtypes or shapes than the present ones."""
    for name, tensor in tensors.items():
        got = saved.get(name)
        if not is_plain(got) or got.dtype != tensor.dtype or got.shape != tensor.shape:
            allowed = f"{tensor.dtype} {list(tensor.shape)}"
            raise ValueError(f"state[{name!r}]: expected {allowed}, got {describe(got)}")


def is_plain(given: Any) -> TypeGuard[torch.Tensor]:
    """Say whether something is a tensor with all its elements in memory: not sparse, not nested, not on `meta`."""
    return (
        isinstance(given, torch.Tensor)
        and given.layout is torch.strided
        and not given.is_nested
        and not given.is_meta
        and not given.is_quantized
    )


def describe(given: Any) -> str:
    """Return what a tensor is, or the class of what is none, for a message."""
    if not isinstance(given, torch.Tensor):
        return type(given).__name__
    if given.is_nested:
        return f"{given.dtype} nested"
    kind = "" if given.layout is torch.strided else f", {given.layout}"
    return f"{given.dtype} {list(given.shape)} on {given.device}{kind}"


def check_tensor(
    name: str, given: Any, allowed: str, fits: Callable[[torch.Tensor], bool], dtypes: Container[torch.dtype]
) -> torch.Tensor:
    """Return a tensor to compute with, as it is; `fits` says whether its shape is one that is allowed."""
    if not is_plain(given) or given.dtype not in dtypes:
        raise TypeError(f"{name}: expected {allowed}, got {describe(given)}")
    if not fits(given):
        raise ValueError(f"{name}: expected {allowed}, got {describe(given)}")
    return given
