"""Saved states: what they say they are of, and the range of every number of a market in them.

`Simulator` and envs/state_dict.py save and load; this file describes and checks. The ranges, in words: docs/model.md.
Those of an environment's numbers: envs/saved_states.py.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kineticsim_env.config import MAX_ORIGIN, MAX_PRICE, MAX_QUOTE_QTY
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.checks import check_mapping, engine_input
from kineticsim_env.runtime.values import check_flag

ABOUT, SCENARIOS, PARAMETERS, AGENT_PARAMETERS = "about", "scenarios", "parameters", "agent_parameters"
_FORMAT = 1
MAX_MONEY, _MAX_INVENTORY, _MAX_COUNT = 2**60, 2**52, 2**62


# What a state is of ---------------------------------------------------------------------------------------------------


def pack(value: Any) -> torch.Tensor:
    """Return plain numbers, texts, lists and dicts as a tensor, uint8 `[n]` in host memory: their JSON."""
    return torch.from_numpy(np.frombuffer(json.dumps(value).encode(), dtype=np.uint8).copy())


def unpack(name: str, packed: Any) -> Any:
    """Return what was packed.

    Raises:
        ValueError: If this is no such tensor; `name` is what the error calls it.
    """
    try:
        return json.loads(packed.cpu().numpy().tobytes())
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"state[{name!r}]: expected what state_dict returned, got what is not readable") from error


def read_about(saved: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return what a saved state says it is of: sizes, market, task and so on, as plain numbers, texts, lists and dicts.

    Raises:
        ValueError: If it does not say, as states of versions before 0.1 do not.
    """
    if ABOUT not in saved:
        raise ValueError(
            f"state[{ABOUT!r}]: got none, so that nobody knows what market it is of; load_state_dict(saved, "
            "strict=False) takes it all the same"
        )
    about = unpack(ABOUT, saved[ABOUT])
    if not isinstance(about, dict) or about.pop("format", None) != _FORMAT:
        raise ValueError(f"state[{ABOUT!r}]: expected {_FORMAT}, got another format")
    return about


def pack_about(about: Mapping[str, Any]) -> torch.Tensor:
    """Return what a state is of as the tensor that is saved with it."""
    return pack({"format": _FORMAT, **about})


def describe(settings: Any) -> dict[str, Any]:
    """Return the fields of a config or a task; an array of a value per market as its length and digest."""
    fields = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings) if field.init}
    return {name: _described(value) for name, value in fields.items() if not (isinstance(value, dict) and not value)}


def _described(value: Any) -> Any:
    if isinstance(value, tuple):  # as it is read again
        return list(value)
    if isinstance(value, Mapping):  # agents of classes that users have written
        return {kind.name: {"place": i, **_described_agents(kind, value[kind])} for i, kind in enumerate(value)}
    return digest(value) if isinstance(value, np.ndarray) else value


def _described_agents(kind: Any, made: Any) -> dict[str, Any]:
    """Return a class and its agents: what a state of them can be told by."""
    program = hashlib.sha256((kind.program.text + (kind.cxx or "")).encode()).hexdigest()[:16]
    numbers = {name: made.parameters.get(name, default) for name, default in kind.parameters.items()}
    own = {name: digest(value) if isinstance(value, np.ndarray) else value for name, value in numbers.items()}
    known = {"count": made.count, "program": program, "largest_order": kind.largest_order, "memory": kind.memory}
    return known | own


def digest(values: np.ndarray) -> str:
    """Return the length and the SHA-256 of an array, in short."""
    content = values.astype("U16") if values.dtype.kind == "U" else values
    return f"{len(values)} values, sha256 {hashlib.sha256(np.ascontiguousarray(content).tobytes()).hexdigest()[:16]}"


def check_agents(saved: Any, present: Mapping[str, Any]) -> None:
    """Refuse a state whose agents' memory has no place in `present`, naming the class, strict or not.

    Whatever else is wrong with a state is said by others.

    Raises:
        ValueError: If so.
    """
    if not isinstance(saved, Mapping):
        return
    try:
        theirs = _memory_words(read_about(saved))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return
    ours = _memory_words(present)
    if sum(theirs.values()) != sum(ours.values()):
        for name in dict.fromkeys([*ours, *theirs]):
            here, there = (words.get(name, 0) for words in (ours, theirs))
            if here != there:
                none = "" if name in ours else f": there are no agents of a class {name} that remember"
                raise ValueError(
                    f"state: expected {here} words of memory of {name} agents, as in the market here, got {there}{none}"
                )


def _memory_words(about: Mapping[str, Any]) -> dict[str, int]:
    """Return how many words the agents of each class that users have written remember."""
    agents = about["market"].get("agents", {})
    return {name: int(made["count"]) * len(made["memory"]) for name, made in agents.items()}


def check_about(saved: Mapping[str, Any], present: Mapping[str, Any], strict: bool) -> list[str]:
    """Refuse a state of something else than `present`, or, if not strict, return the differences.

    Raises:
        TypeError: If `strict` is no bool.
        ValueError: Naming each difference.
    """
    check_flag("strict", strict)
    try:
        found = [f"{name} is {theirs} there, {ours} here" for name, theirs, ours in _differ(read_about(saved), present)]
    except ValueError as error:
        if strict:
            raise
        return [str(error)]
    if found and strict:
        raise ValueError(
            f"state: expected one of an equal market, got one of something else ({'; '.join(found)}); "
            "load_state_dict(saved, strict=False) takes it if its numbers fit"
        )
    return found


def warn_of(differences: Sequence[str], stacklevel: int) -> None:
    """Say what was let through; `stacklevel` counts from here to the user's line, as in `warnings.warn`."""
    if differences:
        text = f"load_state_dict(strict=False) took a state of something else: {'; '.join(differences)}"
        warnings.warn(text, stacklevel=stacklevel)


def _differ(theirs: Any, ours: Any, name: str = "") -> Iterable[tuple[str, Any, Any]]:
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        for key in dict.fromkeys([*ours, *theirs]):
            below = f"{name}.{key}" if name else str(key)
            yield from _differ(theirs.get(key, "not there"), ours.get(key, "not there"), below)
    elif theirs != ours:
        yield name, theirs, ours


def check_names(saved: Any, *present: Iterable[str]) -> None:
    """Refuse what is no mapping, or has other names than the present tensors; `about` is looked at elsewhere."""
    check_mapping(saved)
    allowed = {name for names in present for name in names}
    odd = sorted(map(str, (set(saved) - {ABOUT}) ^ allowed))
    if odd:
        raise ValueError(f"state: expected {sorted(allowed)}, got missing or unknown names {odd}")


def take(saved: Mapping[str, Any], name: str, like: torch.Tensor) -> torch.Tensor:
    """Return an entry of a saved state as a contiguous tensor where `like` is, of its dtype and shape, or raise."""
    if not isinstance(saved[name], torch.Tensor):
        raise TypeError(f"state[{name!r}]: expected a tensor, got {type(saved[name]).__name__}")
    called = f"state[{name!r}]"
    return engine_input(called, saved[name], like.dtype, tuple(like.shape), like.device, from_anywhere=True)


# Ranges ---------------------------------------------------------------------------------------------------------------


class Ranges:
    """Refuses numbers that no market can have, by the name of their tensor."""

    def __init__(self, saved: Mapping[str, torch.Tensor]) -> None:
        self._saved = saved

    def refuse(self, name: str, bad: torch.Tensor, allowed: str, place: Any = ...) -> None:
        """Raise if any element is bad; `bad` broadcasts to the shape of the tensor, or of what it has at a place."""
        if bool(bad.any()):
            found = self._saved[name][place]
            found = found[bad.expand_as(found)].flatten()[0].item()
            raise ValueError(f"state[{name!r}]: expected {allowed}, got {found}")

    def within(self, name: str, low: int, high: int, said: str) -> None:
        """Raise if any element is below `low` or above `high`."""
        self.refuse(name, (self._saved[name] < low) | (self._saved[name] > high), said)


def check_market_ranges(saved: Mapping[str, torch.Tensor], parameters: torch.Tensor, levels: int) -> None:
    """Refuse a state that no market of L levels can be in; its tensors are of the right shapes and dtypes.

    `parameters` are what the markets play, int32 `[M, n]` or `[1, n]`.

    Raises:
        ValueError: Naming the tensor, the first number that is out of its range, and the range.
    """
    check = Ranges(saved)
    row = columns(parameters, saved["bid"].device)
    for name in ("bid", "ask"):
        check.refuse(name, saved[name] < 0, "0 or more")
        check.refuse(name, (saved[name].sum(1) >= 2**31)[:, None], "a side's total below 2^31")
    bids, asks = saved["bid"] > 0, saved["ask"] > 0
    crossed = bids.flip(1).cummax(1).values.flip(1) & asks  # an ask at or below a bid
    check.refuse("ask", crossed, "above every bid (the book is crossed)")
    check.within("price_origin", -MAX_ORIGIN, MAX_ORIGIN, "-2^29 to 2^29")
    if "ret" in saved:
        _check_clock(check, saved, levels)
    else:
        check.within("prev_mid2", 0, 2 * levels - 2, f"0 to 2 (num_levels - 1) = {2 * levels - 2}")
    check.within("fundamental_price", -MAX_PRICE, MAX_PRICE, "-2^30 to 2^30")
    # A grid that follows quotes without trading leaves the last price behind; one that stays does not.
    tick = saved["last_tick"].long()
    off_grid = (tick < 0) | (tick >= levels)
    check.refuse("last_tick", off_grid & (row["window"] == 0), f"0 to num_levels - 1 = {levels - 1} without a window")
    far = (tick + saved["price_origin"]).abs() > MAX_ORIGIN + 2 * levels
    check.refuse("last_tick", far, f"within 2^29 + 2 num_levels = {MAX_ORIGIN + 2 * levels} as a price")
    check.refuse("last_tick", tick.abs() > MAX_PRICE - 2 * levels, "within 2^30 - 2 num_levels on the grid")
    check.refuse("error", saved["error"] != 0, "0 (a market that has stopped needs a reset)")
    check.within("t", 0, 2**32 - 1, "0 to 2^32 - 1")
    check.refuse("trades", (saved["trades"] < 0) | (saved["trades"] > saved["t"]), "0 to t")
    for name in ("episode", "volume"):
        check.within(name, 0, _MAX_COUNT, "0 to 2^62")
    if saved["quotes"].numel():
        _check_slots(check, saved, row["tick_size"])
    if "regime" in saved:
        largest = row["regimes"] - 1
        check.refuse("regime", (saved["regime"] < 0) | (saved["regime"] > largest), f"0 to {int(largest.max())}")
    if "queue" in saved and saved["queue"].numel():
        _check_queues(check, saved, levels)


def _check_slots(check: Ranges, saved: Mapping[str, torch.Tensor], tick_size: torch.Tensor) -> None:
    quotes = saved["quotes"].long()
    quantity = torch.arange(4, device=quotes.device) % 2 == 1
    furthest = MAX_PRICE + tick_size[:, None, None] - 1  # the multiple of tick_size beyond the furthest price
    check.refuse("quotes", (quotes.abs() > furthest) & ~quantity, "prices within 2^30")
    check.refuse("quotes", ((quotes < 0) | (quotes > MAX_QUOTE_QTY)) & quantity, "quantities from 0 to 2^20")
    bid, bid_qty, ask, ask_qty = quotes.unbind(-1)
    against_itself = (bid >= ask) & (bid_qty > 0) & (ask_qty > 0)
    check.refuse("quotes", against_itself[..., None], "a bid below the ask of the same slot")
    check.within("inventory", -_MAX_INVENTORY, _MAX_INVENTORY, "-2^52 to 2^52")
    check.within("cash", -MAX_MONEY, MAX_MONEY, "-2^60 to 2^60")
    check.within("fees", -MAX_MONEY, MAX_MONEY, "-2^60 to 2^60")


def _check_clock(check: Ranges, saved: Mapping[str, torch.Tensor], levels: int) -> None:
    """The grid may have left behind what the last beat saw."""
    furthest = MAX_ORIGIN + 2 * levels
    mid2 = saved["prev_mid2"].long() + 2 * saved["price_origin"]
    check.refuse("prev_mid2", mid2.abs() > 2 * furthest, f"within 2^29 + 2 num_levels = {furthest} as a price")
    check.within("beat_price", -furthest, furthest, f"within 2^29 + 2 num_levels = {furthest}")
    check.within("ret", -1, 1, "-1, 0 or 1")


def _check_queues(check: Ranges, saved: Mapping[str, torch.Tensor], levels: int) -> None:
    """Quotes of a continuous market cross nothing, and have no more ahead than there is."""
    quotes = saved["quotes"].long()
    price, quantity = quotes[..., 0::2], quotes[..., 1::2]
    tick = price - saved["price_origin"].long()[:, None, None]
    on_grid = (tick >= 0) & (tick < levels)
    bid_beyond, ask_beyond = tick[..., 0] >= levels, tick[..., 1] < 0
    beyond = torch.stack([bid_beyond, ask_beyond], -1) & (quantity > 0)
    check.refuse("quotes", beyond.any(-1)[..., None], "bids up to the grid's end, and asks from its beginning")
    ticks = torch.arange(1, levels + 1, device=quotes.device)
    stands = on_grid & (quantity > 0)
    best_bid = torch.maximum(((saved["bid"] > 0) * ticks).amax(1) - 1, torch.where(stands, tick, -1)[..., 0].amax(1))
    best_ask = torch.minimum(
        levels - ((saved["ask"] > 0) * ticks.flip(0)).amax(1), torch.where(stands, tick, levels)[..., 1].amin(1)
    )
    check.refuse("quotes", (best_bid >= best_ask)[:, None, None], "bids below all asks (the book is crossed)")
    book = torch.stack([saved["bid"], saved["ask"]], -1).long()  # [M, L, 2]
    there = book.gather(1, tick.clamp(0, levels - 1)) * stands
    check.refuse("queue", (saved["queue"] < 0) | (saved["queue"] > there), "0 to the built-in quantity at the quote")
    latest = 256 * saved["t"][:, None, None] * (quantity > 0)
    check.refuse("moments", (saved["moments"] < 0) | (saved["moments"] > latest), "0 to 256 t, 0 without a quote")


def columns(parameters: torch.Tensor, device: torch.device) -> dict[str, torch.Tensor]:
    """Return parameters int32 `[M, n]` or `[1, n]` by name, int64."""
    return dict(zip(layout.PARAMS_FIELDS, parameters.to(device, torch.int64).unbind(1), strict=False))
