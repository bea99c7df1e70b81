"""What an order is, which prices there are, and what a built-in agent submits. All prices are absolute ticks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .rules import Rules
from .words import bits, scaled

BUY, SELL = 1, -1
MAX_PRICE = 1 << 30


@dataclasses.dataclass(slots=True, eq=False)
class Order:
    """An order, or what stands at one place of a slot's side; `moment` counts arrivals: an earlier one is smaller."""

    side: int
    price: int
    quantity: int
    moment: int
    slot: int | None = None  # None: a built-in agent's
    marketable: bool = False


@dataclasses.dataclass
class Grid:
    """The prices low to high that the book holds; orders are at multiples of `tick_size` among them."""

    levels: int
    tick_size: int
    low: int = 0

    @property
    def high(self) -> int:
        return self.low + self.levels - 1

    def __contains__(self, price: int) -> bool:
        return self.low <= price <= self.high

    def on_tick(self, side: int, price: int) -> int:
        """The price as a multiple of the tick size: buys round down, sells up."""
        n = self.tick_size
        return price // n * n if side == BUY else -(-price // n) * n

    def nearest(self, price: int) -> int:
        """The nearest multiple of the tick size that is on the grid."""
        lowest, highest = self.on_tick(SELL, self.low), self.on_tick(BUY, self.high)
        return min(max(price, lowest), highest)

    def shift_for(self, mid2: int, window: int) -> int:
        """How far the window moves the grid, seen this (absolute, doubled) mid; 0: it stays."""
        shift = ((mid2 - 2 * self.low) >> 1) - self.levels // 2
        return shift if window and abs(shift) > window else 0


def within_collar(rules: Rules, side: int, price: int, last_price: int) -> int:
    if not rules.collar:
        return price
    return min(price, last_price + rules.collar) if side == BUY else max(price, last_price - rules.collar)


def quote_price(rules: Rules, grid: Grid, side: int, price: int, last_price: int) -> int:
    """What the levers make of a learned quote's price: it may still be off the grid."""
    return grid.on_tick(side, within_collar(rules, side, price, last_price))


def through_the_door(
    rules: Rules, ladder: Sequence[Sequence[int]], inventory: int, both_rest: Sequence[bool]
) -> list[list[int]]:
    """Pre-trade limits of one slot: of each level bid price, bid quantity, ask price, ask quantity.

    `both_rest`: of each level, whether both sides are new, and are to stand once they have traded.
    """
    passed = []
    for level in ladder:
        bid_price, bid_qty, ask_price, ask_qty = (int(number) for number in level)
        bid_price, ask_price = (min(max(price, -MAX_PRICE), MAX_PRICE) for price in (bid_price, ask_price))
        bid_qty, ask_qty = (min(max(quantity, 0), rules.max_quote_qty) for quantity in (bid_qty, ask_qty))
        passed.append([bid_price, bid_qty, ask_price, ask_qty])
    if rules.inventory_limit is not None:
        for side, place in ((BUY, 0), (SELL, 2)):
            room = max(0, rules.inventory_limit - side * inventory)
            for level in sorted(passed, key=lambda level: -side * level[place]):  # stable: of equals the lower level
                level[place + 1] = min(level[place + 1], room)
                room -= level[place + 1]
    for level, rest in zip(passed, both_rest, strict=True):
        bid_price, bid_qty, ask_price, ask_qty = level
        if rest and bid_price >= ask_price and bid_qty and ask_qty:
            # A slot does not trade with itself: the smaller side goes.
            level[1], level[3] = bid_qty * (bid_qty > ask_qty), ask_qty * (ask_qty > bid_qty)
    return passed


@dataclasses.dataclass
class View:
    """What agents see when they come, and what the last beat (or the interval) left: absolute ticks, mid doubled."""

    grid: Grid
    regime: int
    mid2: int
    ret: int
    fundamental: int
    collar_price: int
    coin: int  # 1: prices half way between ticks go up, if `rounding` is "coin"


def built_in_order(rules: Rules, view: View, kind: str, parity: int, word: int, moment: int) -> Order:
    """The order of one built-in agent.

    Args:
        rules: The market's.
        view: What the agent sees.
        kind: Its class.
        parity: Its index plus the number of the event (of the step in `"each"`): makers buy if it is even.
        word: Its random word: bits 0-23 marketable, bit 31 side, bits 32-47 quantity, bits 48-63 offset.
        moment: The order's place in time.
    """
    now = rules.of[view.regime]
    quantity = 1 + scaled(bits(word, 32, 16), now.max_order_qty, 16)
    random_side = BUY if bits(word, 31, 1) else SELL
    marketable = kind != "maker" and bits(word, 0, 24) < now.market_order_prob
    if kind == "noise":
        side = random_side
        offset = -now.noise_spread + scaled(bits(word, 48, 16), 2 * now.noise_spread + 1, 16)
    elif kind == "maker":
        side = BUY if parity % 2 == 0 else SELL
        offset = -side * now.maker_half_spread
    else:
        side = view.ret if kind == "momentum" else _sign(2 * view.fundamental - view.mid2)
        side = side or random_side
        offset = side * now.taker_offset
    grid = view.grid
    centre2 = 2 * view.fundamental if rules.reference == "fundamental" else view.mid2
    tick2 = centre2 + 2 * offset - 2 * grid.low  # on the grid, doubled: half to even is about grid ticks
    tick = tick2 >> 1
    if tick2 & 1:
        tick += view.coin if rules.rounding == "coin" else tick & 1
    price = tick + grid.low - side * rules.tax
    if marketable:
        price = grid.high if side == BUY else grid.low
    price = within_collar(rules, side, price, view.collar_price)
    price = grid.nearest(grid.on_tick(side, price))
    return Order(side, price, quantity, moment, None, marketable)


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
