"""Series that users hand over, recorded or real: checked, and as whole numbers `[M, S]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from kineticsim_env.runtime.checks import check_series
from kineticsim_env.runtime.values import check_dict, is_number, show

_ALLOWED = "whole numbers [M, S] by the names of series"
_MOST = 2**31  # sizes are below it, as int32 prices are


def as_columns(given: Any) -> Any:
    """Return a table, such as pandas', as a mapping of its columns; else what came."""
    if isinstance(given, Mapping) or not (hasattr(given, "columns") and hasattr(given, "to_dict")):
        return given
    return {name: given[name] for name in given.columns}


def checked_series(series: Any) -> dict[str, torch.Tensor]:
    """Return series by name, int64 `[M, S]` each, where they are; refuse others by name."""
    given = check_dict("series", as_columns(series), f"a mapping: {_ALLOWED}")
    found: dict[str, torch.Tensor] = {}
    for name in check_series(given, "series"):
        found[name] = _whole(name, given[name])
        first = next(iter(found.values()))
        if found[name].shape != first.shape or found[name].device != first.device:
            raise ValueError(
                f"series: expected one shape, got shapes {list(first.shape)} and {list(found[name].shape)}"
            )
    if not found:
        raise ValueError(f"series: expected {_ALLOWED}, got none")
    return found


def checked_books(series: Any) -> tuple[Any, tuple[torch.Tensor, torch.Tensor] | None]:
    """Return what is given without its books, and these: bid and ask, int64 `[M, B, L]` each; None without."""
    given = as_columns(series)
    if not isinstance(given, Mapping) or not {"bid", "ask"} & set(given):
        return series, None
    sides = []
    for name in ("bid", "ask"):
        shape = getattr(given.get(name), "shape", np.shape(given.get(name)))
        if len(shape) not in (2, 3) or 0 in shape:
            raise ValueError(f"{name}: expected units that rest at each price, [M, B, L], got {list(shape)}")
        flat = _whole(name, given[name].reshape(-1, shape[-1]) if len(shape) == 3 else given[name])
        sides.append(flat.reshape(1 if len(shape) == 2 else shape[0], -1, shape[-1]))
    bid, ask = sides
    if bid.shape != ask.shape or bid.device != ask.device or bool((bid < 0).any() | (ask < 0).any()):
        got = " and ".join(f"{list(side.shape)} on {side.device}, from {int(side.min())}" for side in sides)
        raise ValueError(f"bid, ask: expected one shape and device, and units from 0, got {got}")
    return {name: values for name, values in given.items() if name not in ("bid", "ask")}, (bid, ask)


def _whole(name: str, values: Any) -> torch.Tensor:
    """Return one series, int64 `[M, S]`."""
    tensor = values if isinstance(values, torch.Tensor) else _from_host(name, values)
    real = not tensor.is_complex() and tensor.dtype not in (torch.bool, torch.uint64)
    if not real or tensor.dim() not in (1, 2) or not tensor.numel():
        raise TypeError(f"series: expected {_ALLOWED}, got {name!r} of {tensor.dtype} {list(tensor.shape)}")
    if tensor.is_floating_point():
        wrong = tensor[~(tensor.isfinite() & (tensor == tensor.round()))]
        if wrong.numel():
            raise TypeError(
                f"series: expected {_ALLOWED}, prices in ticks, got {name!r} of {tensor.dtype} {list(tensor.shape)}; "
                f"it has {float(wrong[0]):.10g}"
            )
        tensor = tensor.double()  # whose comparisons below are exact
    else:
        tensor = tensor.long()
    low, high = tensor.min().item(), tensor.max().item()
    if not -_MOST < low <= high < _MOST:
        raise ValueError(f"series: expected numbers below 2^31 in size, got {name!r} with larger ones")
    return tensor.reshape(-1, tensor.shape[-1]).long()


def _from_host(name: str, values: Any) -> torch.Tensor:
    """Return numbers that a list, an array or a column of a table holds, int64 or float64."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"series: expected {_ALLOWED}, got {name!r} with masked values")
    try:
        array = np.asarray(values)
        if array.dtype == object and all(is_number(value) for value in array.flat):
            array = array.astype(np.float64)  # of whole numbers that matter it loses nothing
    except Exception as error:  # ragged sequences, whatever strange objects raise
        raise TypeError(f"series: expected {_ALLOWED}, got {name!r} of {show(values)}") from error
    if array.dtype.kind not in "biufc":
        raise TypeError(f"series: expected {_ALLOWED}, got {name!r} of {show(values)}")
    if array.dtype == np.uint64:
        array = np.minimum(array, np.uint64(_MOST))  # which is too large, and an int64
    wide = {"i": np.int64, "u": np.int64, "f": np.float64}.get(array.dtype.kind)
    return torch.from_numpy(np.array(array, wide))
