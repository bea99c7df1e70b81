"""Checks of what users hand to a `Simulator` or an environment; each names the argument, what came and what is allowed.

They return the value in the form the engines take, and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np
import torch

from kineticsim_env import state
from kineticsim_env.config import CLASSES, MarketConfig


def check_series(record: Any) -> tuple[str, ...]:
    """Return the names of the series to record."""
    if isinstance(record, str) or not isinstance(record, Iterable):
        raise TypeError(f"record: got {record!r}, allowed is a sequence of {', '.join(state.SERIES)}")
    names = tuple(record)  # an iterator can be read once
    for name in names:
        if name not in state.SERIES:
            raise ValueError(f"record: got {name!r}, allowed are {', '.join(state.SERIES)}")
    return names


def check_quotes(quotes: Any, shape: tuple[int | None, ...], device: torch.device) -> torch.Tensor:
    """Return quotes as a contiguous int32 tensor of `shape` (None: any length) on the device."""
    if shape[-2] == 0:
        raise ValueError(
            "quotes: got quotes, but this simulator has no slots; allowed is None, or Simulator(slots=...)"
        )
    wanted = f"int32 {['T' if size is None else size for size in shape]} on {device}".replace("'", "")
    if isinstance(quotes, torch.Tensor):
        given = quotes
    else:
        try:
            array = np.asarray(quotes)
        except ValueError as error:
            raise ValueError(f"quotes: got nested sequences of unequal lengths, allowed is {wanted}") from error
        if array.dtype.kind not in "iu":
            raise TypeError(f"quotes: got {array.dtype}, allowed is {wanted}")
        unfit = array[(array < -(2**31)) | (array >= 2**31)] if array.dtype.itemsize > 2 else array[:0]
        if unfit.size:
            raise ValueError(f"quotes: got {unfit.flat[0]}, allowed are values that fit int32")
        given = torch.from_numpy(np.ascontiguousarray(array, dtype=np.int32)).to(device)
    if given.dtype != torch.int32:
        raise TypeError(f"quotes: got {given.dtype}, allowed is {wanted}")
    fits = given.dim() == len(shape) and all(
        want is None or want == have for want, have in zip(shape, given.shape, strict=True)
    )
    if not fits:
        raise ValueError(f"quotes: got shape {list(given.shape)}, allowed is {wanted}")
    if given.device != device:
        raise ValueError(f"quotes: got a tensor on {given.device}, allowed is {wanted}")
    return given.contiguous()


def check_seeds(seed: Any, markets: int, device: torch.device) -> torch.Tensor:
    """Return one seed a market, int64 `[M]`: seed + m for an int."""
    if isinstance(seed, (bool, float)) or (isinstance(seed, torch.Tensor) and seed.dtype.is_floating_point):
        raise TypeError(f"seed: got {seed!r}, allowed is an int, or {markets} of them")
    try:
        try:
            array = np.asarray(seed.cpu() if isinstance(seed, torch.Tensor) else seed)
        except ValueError as error:  # nested sequences of unequal lengths
            raise TypeError from error
        if array.dtype.kind not in "iu":
            raise TypeError
        if array.ndim and array.size and int(array.max()) >= 2**63:
            raise ValueError(f"seed: got {array.max()}, allowed is -2^63 to 2^63 - 1")
        if array.ndim == 0:
            first = int(array)
            if not -(2**63) <= first <= 2**63 - markets:
                raise ValueError(f"seed: got {seed}, allowed is -2^63 to 2^63 - num_markets")
            array = first + np.arange(markets, dtype=np.int64)
    except (TypeError, OverflowError) as error:
        raise TypeError(f"seed: got {seed!r}, allowed is an int, or {markets} of them") from error
    if array.shape != (markets,):
        raise ValueError(f"seed: got shape {list(array.shape)}, allowed is an int, or {markets} of them")
    return torch.from_numpy(array.astype(np.int64)).to(device)


def check_mask(name: str, mask: Any, markets: int, device: torch.device) -> torch.Tensor:
    """Return a bool mask `[M]` on the device; all True for None."""
    if mask is None:
        return torch.ones(markets, dtype=torch.bool, device=device)
    given = mask if isinstance(mask, torch.Tensor) else np.asarray(mask)
    if given.dtype not in (torch.bool, np.bool_) or tuple(given.shape) != (markets,):
        raise ValueError(f"{name}: got {given.dtype} {list(given.shape)}, allowed is bool [{markets}] or None")
    return torch.as_tensor(given).to(device)


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


def check_saved_state(saved: Any, tensors: Mapping[str, torch.Tensor], levels: int) -> None:
    """Refuse a saved state of other names, shapes or dtypes than the present one, or one that no market can be in."""
    check_mapping(saved)
    if set(saved) != set(tensors):
        odd = sorted(set(saved) ^ set(tensors))
        raise ValueError(f"state: got missing or unknown names {odd}, allowed are {sorted(tensors)}")
    check_like(saved, tensors)
    _check_ranges(saved, levels)


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


def _check_ranges(saved: Mapping[str, torch.Tensor], levels: int) -> None:
    """Refuse a state that no market can be in."""

    def refuse(name: str, bad: torch.Tensor, allowed: str) -> None:
        if bool(bad.any()):
            raise ValueError(f"state[{name!r}]: got {saved[name][bad].flatten()[0].item()}, allowed is {allowed}")

    for name in ("bid", "ask"):
        refuse(name, saved[name] < 0, "0 or more")
        refuse(name, (saved[name].sum(1) >= 2**31)[:, None].expand_as(saved[name]), "a side's total below 2^31")
    bids, asks = saved["bid"] > 0, saved["ask"] > 0
    crossed = bids.flip(1).cummax(1).values.flip(1) & asks  # an ask at or below a bid
    refuse("ask", crossed, "above every bid (the book is crossed)")
    wide = {name: saved[name].long() for name in ("price_origin", "fundamental_price", "last_tick", "quotes")}
    refuse("price_origin", wide["price_origin"].abs() > 2**29, "-2^29 to 2^29")
    refuse("fundamental_price", wide["fundamental_price"].abs() > 2**30, "-2^30 to 2^30")
    # A grid that follows quotes without trading leaves the last price behind; its doubled value has to fit an int32.
    last_price = wide["last_tick"] + wide["price_origin"]
    far = (wide["last_tick"].abs() >= 2**30) | (last_price.abs() > 2**29 + 2 * levels)
    refuse("last_tick", far, f"within 2^30, and with price_origin within 2^29 + {2 * levels}")
    refuse("error", saved["error"] != 0, "0 (a market that has stopped needs a reset)")
    for name in ("t", "episode", "volume", "trades"):
        refuse(name, saved[name] < 0, "0 or more")
    refuse("t", saved["t"] >= 2**32, "below 2^32")
    if saved["quotes"].numel():
        quantity = torch.arange(4, device=saved["quotes"].device) % 2 == 1
        refuse("quotes", (wide["quotes"].abs() > 2**30) & ~quantity, "prices within 2^30")
        refuse("quotes", ((wide["quotes"] < 0) | (wide["quotes"] > 2**20)) & quantity, "quantities from 0 to 2^20")
