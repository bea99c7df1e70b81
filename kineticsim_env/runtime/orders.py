"""What slots submit: quotes, or order records with flags; and what came of these (docs/model.md)."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from kineticsim_env.config import MAX_QUOTE_QTY, MarketConfig
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.checks import check_quotes

_MOST_PRICE = layout.CONSTANTS["kMaxPrice"]  # absolute ticks, either way
_ASK = 8  # bits from a bid's flags to its ask's, in a word of `Launch.order_flags` and `Launch.rejects`


class OrderFlag(enum.IntFlag):
    """Flags of one side of a slot's order record, under continuous trading.

    Attributes:
        KEEP: What stands stays as it is, at its place; price and quantity that come with it mean nothing.
        POST_ONLY: The order is not placed if it would trade.
        IMMEDIATE_OR_CANCEL: What is not matched at once is cancelled.
        MARKET: At any price, and what is not matched at once is cancelled.
    """

    KEEP = 1
    POST_ONLY = 2
    IMMEDIATE_OR_CANCEL = 4
    MARKET = 8


class Reject(enum.IntFlag):
    """Why an order with flags was not placed, or not all of it.

    Attributes:
        POST_ONLY: It would have traded.
        OWN_ORDER: It came upon the slot's own standing order; what was left of it then was cancelled.
    """

    POST_ONLY = 1
    OWN_ORDER = 2


for _kind in (OrderFlag, Reject):
    assert {name.lower(): member.value for name, member in _kind.__members__.items()} == layout.ENUMS[_kind.__name__]
_ALL = sum(OrderFlag)
_AT_ONCE = OrderFlag.IMMEDIATE_OR_CANCEL | OrderFlag.MARKET


@dataclasses.dataclass(frozen=True, eq=False)
class OrderRecords:
    """What learners submit in a step of an environment in the place of actions: prices, quantities and flags.

    `envs.step(ks.OrderRecords(quotes))`; docs/environment.md has the rule.

    Attributes:
        quotes: As `Simulator.step` takes them, of each learner: int32 `[..., 4]`, bid price, bid quantity, ask price,
            ask quantity, in absolute ticks; `[..., N, 4]` where `orders_per_side` is N, above 1; or under continuous
            trading `[..., N, 2, 3]`, of each level bid and ask, each a price, a quantity and a sum of `OrderFlag`.
            Before these axes stand those that an environment's actions have: `[M]` of a vector environment, `[M, n]`
            of each role of `BatchedParallelEnv`, none of one market. A tensor is on the environment's device.
    """

    quotes: Any


def check_records(
    name: str, given: OrderRecords, shape: tuple[int, ...], device: torch.device, config: MarketConfig
) -> Mapping[str, torch.Tensor]:
    """Return order records as `check_orders` does; prices and quantities are looked at in host memory, too.

    Engines cut them elsewhere.
    """
    place = device if isinstance(given.quotes, torch.Tensor) else torch.device("cpu")
    found = check_orders(given.quotes, shape, place, config, name)
    if place.type == "cpu":
        _check_range(name, "prices", found["new_quotes"][..., 0::2], -_MOST_PRICE, _MOST_PRICE)
        _check_range(name, "quantities", found["new_quotes"][..., 1::2], 0, MAX_QUOTE_QTY)
    return {key: tensor.to(device) for key, tensor in found.items()}


def _check_range(name: str, what: str, values: torch.Tensor, low: int, high: int) -> None:
    bad = (values < low) | (values > high)
    if bool(bad.any()):
        raise ValueError(f"{name}: expected {what} from {low} to {high}, got {int(values[bad][0])}")


def check_orders(
    given: Any, shape: tuple[int | None, ...], device: torch.device, config: MarketConfig, name: str = "quotes"
) -> Mapping[str, torch.Tensor]:
    """Return what slots submit as tensors of a launch: `new_quotes`, and `order_flags` if it has any.

    Args:
        given: int32 `[*shape, N, 4]`, quotes without flags, `[*shape, 4]` with one level; or `[*shape, N, 2, 3]`, of
            each side (bid, ask) of each level price, quantity and flags.
        shape: What stands before these axes, the last of it K; None is any length.
        device: The engine's.
        config: The market, which says N; only continuous trading has flags.
        name: What errors call it.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed. Flags are looked at where they are in
            host memory; elsewhere other bits are dropped, and `POST_ONLY` comes before what is to trade at once.
    """
    levels, slots = config.orders_per_side, len(shape) - 1
    ladder = () if levels == 1 else (levels,)
    if _ndim(given) != len(shape) + 3:
        return {"new_quotes": check_quotes(given, (*shape, *ladder, 4), device, name, axis=slots)}
    if not config.is_continuous:
        allowed = f"[..., {'K, ' * (slots > 0)}4] with mechanism={config.mechanism!r}"
        raise ValueError(f"{name}: expected {allowed}, got order records, which have flags")
    records = check_quotes(given, (*shape, levels, 2, 3), device, name, axis=slots)
    if levels == 1:
        records = records[..., 0, :, :]
    flags = records[..., 2]
    if flags.device.type == "cpu":
        _check_flags(name, flags)
    word = (flags[..., 0] & _ALL) | ((flags[..., 1] & _ALL) << _ASK)
    return {"new_quotes": records[..., :2].flatten(-2).contiguous(), "order_flags": word.contiguous()}


def records_of(quotes: torch.Tensor, word: torch.Tensor) -> torch.Tensor:
    """Return order records `[..., N, 2, 3]` of quotes `[..., 4]` and `Launch.order_flags`, both with N or without."""
    flags = torch.stack([word & 255, word >> _ASK], -1)
    found = torch.cat([quotes.unflatten(-1, (2, 2)), flags[..., None]], -1)
    return found if word.dim() > 2 else found.unsqueeze(-3)


def rejects_of(word: torch.Tensor, levels: int) -> torch.Tensor:
    """Return `Launch.rejects`, int32 `[..., K, N]`, as `[..., K, N, 2]`: bits of `Reject` of each level's bid and ask.

    With one level the word has no axis N.
    """
    return torch.stack([word & 255, word >> _ASK], -1).unflatten(-1, (1, 2) if levels == 1 else (2,))


def _check_flags(name: str, flags: torch.Tensor) -> None:
    if bool(((flags & ~_ALL) != 0).any()):
        raise ValueError(f"{name}: expected flags from 0 to {_ALL}, sums of ks.OrderFlag, got {_first(flags, ~_ALL)}")
    both = ((flags & OrderFlag.POST_ONLY) != 0) & ((flags & _AT_ONCE) != 0)
    if bool(both.any()):
        raise ValueError(f"{name}: expected POST_ONLY without IMMEDIATE_OR_CANCEL or MARKET, got both on one side")


def _first(flags: torch.Tensor, wrong: int) -> int:
    return int(flags[(flags & wrong) != 0][0])


def _ndim(given: Any) -> int:
    """Return how many axes there are; 0 of what is no array, which a later check refuses."""
    if isinstance(given, torch.Tensor):
        return given.dim()
    try:
        return np.ndim(given)
    except Exception:  # whatever strange objects raise
        return 0
