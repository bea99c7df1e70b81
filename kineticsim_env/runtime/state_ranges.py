"""The range of every number of a market in a saved state; in words: docs/model.md.

Those of an environment's numbers: envs/saved_states.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kineticsim_env.config import MAX_ORIGIN, MAX_PRICE, MAX_QUOTE_QTY
from kineticsim_env.runtime import flow_table, layout

MAX_MONEY, _MAX_INVENTORY, _MAX_COUNT = 2**60, 2**52, 2**62


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
    if "lives" in saved:
        _check_flow(check, saved, row["interval_us"] > 0)
    if "due" in saved:
        if bool((row["interval_us"] > 0).any()):  # what is due has a time
            said = "1 + now or more, and up to 2^31 - 1 microseconds beyond that"
            _check_under_way(check, saved, saved["flow"][:, flow_table.NOW], 1000 * 2**31, said)
        else:
            said = "1 + t * interval or more, and up to 2^31 - 1 beyond that"
            _check_under_way(check, saved, saved["t"] * row["interval"], 2**31, said)


def _check_slots(check: Ranges, saved: Mapping[str, torch.Tensor], tick_size: torch.Tensor) -> None:
    """Each quote for itself, those of a slot together, and the accounts; a ladder has quotes `[M, K, N, 2, 4]`."""
    quotes = saved["quotes"].long()
    quantity = torch.arange(4, device=quotes.device) % 2 == 1
    furthest = MAX_PRICE + _per_market(tick_size, quotes) - 1  # the multiple of tick_size beyond the furthest price
    check.refuse("quotes", (quotes.abs() > furthest) & ~quantity, "prices within 2^30")
    check.refuse("quotes", ((quotes < 0) | (quotes > MAX_QUOTE_QTY)) & quantity, "quantities from 0 to 2^20")
    bid, bid_qty, ask, ask_qty = quotes.reshape(*quotes.shape[:2], -1, 4).unbind(-1)
    highest = torch.where(bid_qty > 0, bid, -2 * MAX_PRICE).amax(-1)
    lowest = torch.where(ask_qty > 0, ask, 2 * MAX_PRICE).amin(-1)
    against_itself = (highest >= lowest).view(*highest.shape, *[1] * (quotes.dim() - 2))
    check.refuse("quotes", against_itself, "a bid below the ask of the same slot")
    if quotes.dim() > 3:
        (first, first_qty), (second, second_qty) = ((x[..., 0::2], x[..., 1::2]) for x in quotes.unbind(-2))
        apart = (first != second) & (first_qty > 0) & (second_qty > 0)
        check.refuse("quotes", apart.any(-1)[..., None, None], "one price at both places of a level's side")
    check.within("inventory", -_MAX_INVENTORY, _MAX_INVENTORY, "-2^52 to 2^52")
    check.within("cash", -MAX_MONEY, MAX_MONEY, "-2^60 to 2^60")
    check.within("fees", -MAX_MONEY, MAX_MONEY, "-2^60 to 2^60")


def _per_market(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return values `[M]` or `[1]` with as many axes as a tensor `[M, ...]`."""
    return values.view(-1, *[1] * (like.dim() - 1))


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
    tick = price - _per_market(saved["price_origin"].long(), price)
    on_grid = (tick >= 0) & (tick < levels)
    bid_beyond, ask_beyond = tick[..., 0] >= levels, tick[..., 1] < 0
    beyond = torch.stack([bid_beyond, ask_beyond], -1) & (quantity > 0)
    check.refuse("quotes", beyond.any(-1)[..., None], "bids up to the grid's end, and asks from its beginning")
    ticks = torch.arange(1, levels + 1, device=quotes.device)
    stands = on_grid & (quantity > 0)
    bids, asks = torch.where(stands, tick, -1)[..., 0], torch.where(stands, tick, levels)[..., 1]
    best_bid = torch.maximum(((saved["bid"] > 0) * ticks).amax(1) - 1, bids.flatten(1).amax(1))
    best_ask = torch.minimum(levels - ((saved["ask"] > 0) * ticks.flip(0)).amax(1), asks.flatten(1).amin(1))
    crossed = _per_market(best_bid >= best_ask, quotes)
    check.refuse("quotes", crossed, "bids below all asks (the book is crossed)")
    book = torch.stack([saved["bid"], saved["ask"]], -1).long()  # [M, L, 2]
    there = book.gather(1, tick.clamp(0, levels - 1).flatten(1, -2)).view_as(tick) * stands
    check.refuse("queue", (saved["queue"] < 0) | (saved["queue"] > there), "0 to the built-in quantity at the quote")
    latest = 256 * _per_market(saved["t"], quantity) * (quantity > 0)
    check.refuse("moments", (saved["moments"] < 0) | (saved["moments"] > latest), "0 to 256 t, 0 without a quote")


def _check_flow(check: Ranges, saved: Mapping[str, torch.Tensor], timed: torch.Tensor) -> None:
    """A tick has orders of a life where it has units of it, no more orders than units, and less than 2^15 orders.

    Where intervals have a length, `timed`, no event is later than now; elsewhere what is of these alone is 0.
    """
    lives, some = saved["lives"].long(), saved["fleeting_units"].long()
    there = saved["bid"].long() + saved["ask"].long()
    check.refuse("fleeting_units", (some < 0) | (some > there), "0 to the tick's units")
    units = torch.stack([some, there - some], 1)
    wrong = (lives < (units > 0)) | (lives > units) | (lives >= 2**15)
    check.refuse("lives", wrong, "1 to the units of that life, below 2^15; 0 without units")
    for place, (name, (low, high)) in enumerate(flow_table.STATE.items()):
        values, one_way = saved["flow"][:, place], name.startswith("last")  # up or down: none is 0
        outside = (values < low) | (values > high) | (values == 0) & one_way
        said = f"{low} or {high}" if one_way else f"{low} to {high}"
        check.refuse("flow", outside, f"{said} of {name}", (slice(None), place))
    time, now = saved["flow"][:, flow_table.TIME], saved["flow"][:, flow_table.NOW :]
    check.refuse("flow", timed & (now[:, 0] < time), "a now of at least `time`", (slice(None), flow_table.NOW))
    untimed = (now != 0) & ~timed[:, None]
    check.refuse("flow", untimed, "0 where intervals have no length", (slice(None), slice(flow_table.NOW, None)))


def _check_under_way(check: Ranges, saved: Mapping[str, torch.Tensor], now: torch.Tensor, most: int, said: str) -> None:
    """What is under way is due from now on, int64 `[M]`, the oldest first; where nothing is, all is 0."""
    due, now = saved["due"], now[:, None]
    check.refuse("due", due < 0, "0 or more")
    before, after = due[:, :-1], due[:, 1:]
    later = (slice(None), slice(1, None))
    check.refuse("due", (after > 0) & (after < before.where(before > 0, after + 1)), "no fall, and zeros last", later)
    check.refuse("due", (due > 0) & ((due <= now) | (due > now + most)), said)
    none = due == 0
    for name in ("due_quotes", "due_flags"):
        nothing = none.view(*none.shape, *[1] * (saved[name].dim() - 2))
        check.refuse(name, (saved[name] != 0) & nothing, "0 where nothing is due")
    flags = sum(layout.ENUMS["OrderFlag"].values())
    check.refuse("due_flags", (saved["due_flags"] & ~(flags | flags << 8)) != 0, "sums of OrderFlag, of bid and ask")


def columns(parameters: torch.Tensor, device: torch.device) -> dict[str, torch.Tensor]:
    """Return parameters int32 `[M, n]` or `[1, n]` by name, int64."""
    return dict(zip(layout.PARAMS_FIELDS, parameters.to(device, torch.int64).unbind(1), strict=False))
