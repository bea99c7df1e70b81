"""One market of an order flow, order by order and without slots, as docs/model.md has it ("Order flow").

Ticks hold units and numbers of orders by life; which orders these are is said here. Those that trade are the oldest of
their life. Those that are cancelled are whole ones as far as they fit, the largest first, then a part of the smallest.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from kineticsim_env.data.events import ADD, ASK, BID, COLUMNS, DELETE, EXECUTE, REDUCE, OrderEvents
from kineticsim_env.runtime.flow_table import BANDS, EDGES, GROUPS, SPREADS, FlowTable, band_of

from .words import episode_key, word

FLEETING, LASTING = range(2)
SIDES = (BID, ASK)
NOTHING, MOVED, TRADED = range(3)  # what an event did
MOST_OF_A_LIFE, MOST_WEIGHT = (1 << 15) - 1, 1 << 40
_FIRST_WORD = (1 << 31) + (1 << 29) + (1 << 28)
_CHOICE, _ORDER, _JUMP, _CLOCK = range(4)
_ENTRY, _OPENING = 1 << 13, 1 << 14
_LOGARITHMS = [round((1 << 16) * math.log2(1 + i / 256)) for i in range(257)]
_BANDS = band_of(np.arange(EDGES[-1] + 1))


class Best(NamedTuple):
    """The best bid and ask, ticks on the grid."""

    bid: int
    ask: int


class FlowMarket:
    """A market: `units` and `count`, int64 `[side, life, L]`, and the numbers that docs/model.md calls `flow`."""

    def __init__(self, table: FlowTable, seed: int, levels: int, window: int, beat: int, init_price: int) -> None:
        """Open the book."""
        self.table, self.levels, self.window, self.beat = table, levels, window, beat
        self.key = episode_key(seed, 0)
        self.g = self.time = self.left = self.limit = self.state_of_clock = self.after = self.volume = self.origin = 0
        self.last_trade = self.last_jump = 1
        self.last_tick = init_price
        self.units = np.zeros((2, 2, levels), np.int64)
        self.count = np.zeros((2, 2, levels), np.int64)
        self._orders: list[dict[int, list[list[int]]]] = [{}, {}]  # by side and tick: [id, units, life], oldest first
        self._rows: list[tuple[int, ...]] = []
        self._numbered = 0
        self._there = [0, 0]  # units of each side, and orders
        self._number = [0, 0]
        # Weights of cancellation by life and distance: of bids for falling distances, and of asks. Then sizes.
        self._reach = levels + EDGES[-1]
        away = table.cancel[:, _BANDS[np.clip(np.arange(-self._reach, self._reach + levels), 0, EDGES[-1])]]
        self._cancel = away[:, ::-1].copy(), away
        self._sizes = [[[one.tolist() for one in life] for life in side] for side in table.limit_size]
        self._limits = [[int(weights.sum()) for weights in side] for side in table.limit]
        self._open(init_price)
        self._best = self.best()

    def _open(self, init_price: int) -> None:
        for tick in range(self.levels):
            side = int(tick >= init_price)
            away = tick - init_price + 1 if side else init_price - tick
            self._bring(side, tick, away, self._word(_OPENING + tick), True)
        for side, tick in enumerate((init_price - 1, init_price)):
            if 0 <= tick < self.levels and not self.units[side, :, tick].any():
                number = self._word(_OPENING + tick) >> 32 & 15
                self._add(side, tick, LASTING, self._sizes[side][LASTING][GROUPS[0]][number], True)

    # What is seen -----------------------------------------------------------------------------------------------------

    def best(self) -> Best:
        """Return the best prices, as the flow takes them where a side is empty."""
        ticks = [np.flatnonzero(self.units[side].any(0)) for side in (0, 1)]
        bid, ask = int(ticks[0][-1]) if len(ticks[0]) else None, int(ticks[1][0]) if len(ticks[1]) else None
        if ask is None:
            above = max(self.last_tick, self.last_tick if bid is None else bid) + 1
            return Best(self.last_tick - 1 if bid is None else bid, above)
        return Best(min(self.last_tick, ask) - 1 if bid is None else bid, ask)

    @staticmethod
    def _band(distance: int) -> int:
        return int(_BANDS[min(max(distance, 0), EDGES[-1])])

    @staticmethod
    def _distance(side: int, tick: int, best: Best) -> int:
        return tick - best.bid if side else best.ask - tick

    def _of(self, side: int, life: int, distance: int) -> list[int]:
        """Return the sizes of such orders."""
        return self._sizes[side][life][GROUPS[self._band(distance)]]

    def _word(self, index: int) -> int:
        return word(self.key, self.g, _FIRST_WORD + index)

    # Orders -----------------------------------------------------------------------------------------------------------

    def _note(self, kind: int, side: int, tick: int, order: int, size: int, opening: bool = False) -> None:
        self._rows.append((self.time, order, kind, SIDES[side], tick + self.origin, size, opening))

    def _add(self, side: int, tick: int, life: int, size: int, opening: bool = False) -> None:
        self._change(side, life, tick, size, 1)
        self._numbered += 1
        self._orders[side].setdefault(tick, []).append([self._numbered, size, life])
        self._note(ADD, side, tick, self._numbered, size, opening)

    def _change(self, side: int, life: int, tick: int, units: int, orders: int) -> None:
        self.units[side, life, tick] += units
        self.count[side, life, tick] += orders
        self._there[side] += units
        self._number[side] += orders

    def _bring(self, side: int, tick: int, away: int, word: int, opening: bool) -> None:
        """Add what rests at a tick as the market opens, or as the grid comes to it."""
        k = 0
        for life in (FLEETING, LASTING):
            mean = int(self.table.resting[side, life, self._band(away)])
            for _ in range((mean + (word >> 16 * life & 0xFFFF)) >> 16):
                self._add(side, tick, life, self._of(side, life, away)[word >> (32 + 4 * (k % 8)) & 15], opening)
                k += 1

    def _lose(self, side: int, tick: int, life: int, size: int, traded: bool) -> None:
        """Say which orders lose units."""
        here = self._orders[side][tick]
        while size:
            mine = [order for order in here if order[2] == life]
            fit = [order for order in mine if order[1] <= size]
            one = mine[0] if traded else max(fit, key=_units) if fit else min(mine, key=_units)
            part = min(size, one[1])
            one[1] -= part
            size -= part
            self._note(EXECUTE if traded else REDUCE if one[1] else DELETE, side, tick, one[0], part)
            if not one[1]:
                here.remove(one)

    def _cancel_order(self, side: int, tick: int, life: int, number: int, best: Best) -> None:
        size = self._leaving(side, tick, life, number, best)
        self._change(side, life, tick, -size, -1)
        self._lose(side, tick, life, size, traded=False)

    def _leaving(self, side: int, tick: int, life: int, number: int, best: Best) -> int:
        """Return the units of an order that goes."""
        count, there = int(self.count[side, life, tick]), int(self.units[side, life, tick])
        sizes = self._of(side, life, self._distance(side, tick, best))
        size = 16 * sizes[number] * there // (count * sum(sizes))
        return there if count == 1 else max(1, min(size, there - (count - 1)))

    def trade(self, side: int, quantity: int) -> int:
        """Trade with a side at any price, but never all that it has; return the units."""
        quantity = left = max(0, min(quantity, self._there[side] - 1))
        while left:
            tick = self.best()[side]
            for life in (LASTING, FLEETING):
                there = int(self.units[side, life, tick])
                part = min(left, there)
                if part:
                    count = int(self.count[side, life, tick])
                    self._change(side, life, tick, -part, -(count * part // there))
                    self._lose(side, tick, life, part, traded=True)
                    left -= part
            self.last_tick = tick
        self.volume += quantity
        return quantity

    # Events -----------------------------------------------------------------------------------------------------------

    def play(self, events: int) -> bool:
        """Play so many events; return whether the market goes on. If not, its state means nothing."""
        for _ in range(events):
            choice, order, jump, clock = (self._word(number) for number in (_CHOICE, _ORDER, _JUMP, _CLOCK))
            if self.g % self.beat == 0:
                self._follow_mid()
            self._advance_clock(clock)
            before = self._best
            traded = self._take_event(before, choice, order, jump)
            if traded is None:
                return False
            self._best = self.best()
            self.after = TRADED if traded else MOVED if self._best != before else NOTHING
            self.g += 1
            if max(self._there) >= 2**31 or self.time >= 2**62:
                return False
        return True

    def _advance_clock(self, word: int) -> None:
        row = self.table.follow[self.after, self.state_of_clock]
        self.state_of_clock = int(np.searchsorted(row, word >> 32 & 0xFFFF, side="right"))
        x = (word & 0xFFFFFFFF) + 1
        n = x.bit_length() - 1
        y = (x << (32 - n)) - 2**32
        i, h = y >> 24, y >> 8 & 0xFFFF
        here, after = _LOGARITHMS[i], _LOGARITHMS[min(i + 1, 256)]
        self.time += (
            int(self.table.gap[self.state_of_clock]) * (((32 - n) << 16) - (here + ((after - here) * h >> 16))) >> 16
        )

    def _follow_mid(self) -> None:
        by = (sum(self._best) if all(self._there) else 2 * self.last_tick) // 2 - self.levels // 2
        if not self.window or abs(by) <= self.window:
            return
        for side in (0, 1):
            moved = {}
            for tick, orders in sorted(self._orders[side].items()):
                if 0 <= tick - by < self.levels:
                    moved[tick - by] = orders
                else:
                    for order, size, _ in orders:
                        self._note(DELETE, side, tick, order, size)
            self._orders[side] = moved
        source = np.arange(self.levels) + by
        there = (source >= 0) & (source < self.levels)
        for state in (self.units, self.count):
            state[...] = np.where(there, state[..., np.clip(source, 0, self.levels - 1)], 0)
        self.origin += by
        self.last_tick -= by
        best, side, come = self.best(), int(by > 0), min(abs(by), self.levels)
        for tick in range(self.levels - come, self.levels) if side else range(come):
            self._bring(side, tick, self._distance(side, tick, best), self._word(_ENTRY + tick), False)
        self._there, self._number = (state.sum((1, 2)).tolist() for state in (self.units, self.count))
        self._best = self.best()

    def _take_event(self, best: Best, choice: int, order: int, jump: int) -> int | None:
        """Return how many units traded; None if the market has to stop."""
        if self.left:
            self.left -= 1
            if not jump >> 63:
                traded = self._flee(best, jump)
                if traded is not None:
                    return traded
        elif (jump & 0xFFFFFFFF) < self.table.jump_hazard:
            same = (jump >> 32 & 0xFFFF) < self.table.jump_same
            self._begin_jump(self.last_jump if same else -self.last_jump, jump >> 48 & 15, best)
        return self._take_choice(best, choice, order)

    def _begin_jump(self, way: int, number: int, best: Best) -> None:
        self.left, self.last_jump = self.table.jump_events, way
        self.limit = best[way > 0] + self.origin + way * int(self.table.jump_size[number])

    def _flee(self, best: Best, word: int) -> int | None:
        """Let an order flee, and return the units that traded; None where none is left to."""
        side = int(self.last_jump > 0)
        limit = min(max(self.limit - self.origin, -1), self.levels)
        ticks = np.flatnonzero(self.units[side].any(0))
        ticks = ticks[ticks < limit] if side else ticks[ticks > limit][::-1]
        if not len(ticks):
            self.left = 0
            return None
        if self._number[side] == 1:
            return 0
        tick = int(ticks[0] if not word >> 62 & 1 else ticks[-1])
        fleeting, all_ = int(self.count[side, FLEETING, tick]), int(self.count[side, :, tick].sum())
        life = FLEETING if (word >> 32 & 0xFFFF) * all_ >> 16 < fleeting else LASTING
        if (word & 0xFFFF) < self.table.jump_traded:
            return self.trade(side, self._leaving(side, tick, life, word >> 48 & 15, best))
        self._cancel_order(side, tick, life, word >> 48 & 15, best)
        return 0

    def _take_choice(self, best: Best, choice: int, word: int) -> int | None:
        spread = min(max(best.ask - best.bid, 1), SPREADS) - 1
        going = [self._cancel_weights(side, best) for side in (0, 1)]
        weights = [self.table.market, self._limits[0][spread], self._limits[1][spread], *(int(x.sum()) for x in going)]
        if max(weights[3:]) >= MOST_WEIGHT:
            return None
        r, which = choice * sum(weights) >> 64, 0
        while which < 4 and r >= weights[which]:
            r -= weights[which]
            which += 1
        if which == 0:
            return self._take_market_order(word)
        if which < 3:
            self._take_limit_order(which - 1, r, word, best, spread)
        elif self._number[which - 3] != 1:
            side = which - 3
            ordered = going[side].T if side else going[side][:, ::-1].T  # [L, life], away from the mid
            place = int(np.searchsorted(np.cumsum(ordered), r, side="right"))
            if place < ordered.size:  # of no orders at all no weight is above 0
                tick = place // 2 if side else self.levels - 1 - place // 2
                self._cancel_order(side, tick, place % 2, word >> 36 & 15, best)
        return 0

    def _cancel_weights(self, side: int, best: Best) -> np.ndarray:
        """Return the weight of each tick's orders' cancellation, int64 `[life, L]`."""
        first = self._reach - best.bid if side else self._reach + self.levels - 1 - best.ask  # of tick 0
        first = min(max(first, 0), 2 * self._reach)  # further away all distances have one band
        return self.count[side] * self._cancel[side][:, first : first + self.levels]

    def _take_market_order(self, word: int) -> int:
        if (word & 0xFFFF) >= self.table.market_same:
            self.last_trade = -self.last_trade
        units = self.trade(int(self.last_trade > 0), int(self.table.market_size[word >> 16 & 15]))
        if not self.left and (word >> 20 & 0xFFFF) < self.table.jump_after_trade:
            self._begin_jump(self.last_trade, word >> 36 & 15, self.best())
        return units

    def _take_limit_order(self, side: int, r: int, word: int, best: Best, spread: int) -> None:
        cumulated = np.cumsum(self.table.limit[side, spread])
        band = min(int(np.searchsorted(cumulated, r, side="right")), BANDS - 1)
        away = EDGES[band] + ((word & 0xFFFF) * (EDGES[band + 1] - EDGES[band]) >> 16)
        tick = best.bid + away if side else best.ask - away
        life = FLEETING if (word >> 16 & 0xFFFF) < self.table.fleeting[band] else LASTING
        if 0 <= tick < self.levels and self.count[side, life, tick] < MOST_OF_A_LIFE:
            self._add(side, tick, life, self._of(side, life, away)[word >> 32 & 15])

    # What is compared -------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return tensors of a market of an ensemble by name."""
        numbers = [self.last_trade, self.last_jump, self.left, self.limit, self.state_of_clock, self.after, self.time]
        arrays = {"bid": self.units[0].sum(0), "ask": self.units[1].sum(0), "lives": self.count.sum(0)}
        arrays |= {"fleeting_units": self.units[:, FLEETING].sum(0), "flow": np.array([*numbers, 0, 0])}
        return arrays | {"last_tick": self.last_tick, "price_origin": self.origin, "volume": self.volume}

    def events(self) -> OrderEvents:
        """Return what happened to orders so far."""
        rows = np.array(self._rows, np.int64).reshape(-1, len(COLUMNS))
        columns: Any = {name: rows[:, i].astype(kind) for i, (name, kind) in enumerate(COLUMNS.items())}
        sessions = np.array([[0, self.time]], np.int64)
        return OrderEvents(**columns, sessions=sessions, tick=self.table.tick, lot=self.table.lot)


def _units(order: list[int]) -> int:
    return order[1]
