"""Queues of the continuous market in the NumPy engine, beside the reference's lists of orders: one side at a time.

Random markets seldom have a quote taken along by the grid's end with units ahead of it; here it happens often.
"""

import random

import numpy as np
import pytest
from reference.orders import BUY, SELL, Grid, Order
from reference.queues import Queues
from thorough import examples

import kineticsim_env as ks
from kineticsim_env.engines.numpy import beats, queues, state
from kineticsim_env.engines.numpy.rules import bits

SLOTS = 4


class OneSide:
    """One side of a market, as arrays and as lists of orders."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.levels, tick_size = rng, rng.choice([8, 16]), rng.choice([1, 1, 3])
        clock = {"arrivals": "clock", "mechanism": "continuous", "tick_size": tick_size, "window": 1}
        config = ks.MarketConfig(num_levels=self.levels, init_price=4, init_depth=0, **clock)
        sim = ks.Simulator(config, 1, engine="numpy", slots=SLOTS, seed=rng.randrange(1 << 30))
        self.m = state.Markets(sim.engine._args, np.arange(1))  # type: ignore[attr-defined]
        self.side = rng.choice([BUY, SELL])
        self.column = 0 if self.side == BUY else 1
        self.lists = Queues(Grid(self.levels, tick_size))
        self.quotes = {slot: Order(self.side, 0, 0, 0, slot) for slot in range(SLOTS)}
        self.moment = 0

    @property
    def row(self) -> np.ndarray:
        return (self.m.bid if self.side == BUY else self.m.ask)[0]

    def join(self) -> None:
        """An order, or a slot's quote instead of what it had, comes to rest."""
        grid, size = self.lists.grid, self.lists.grid.tick_size
        prices = [price for price in range(grid.low, grid.high + 1) if price % size == 0]
        price = self.rng.choice(self.rng.choice([prices, prices[-4:] if self.side == BUY else prices[:4]]))
        slot = self.rng.choice([None] * 6 + [*range(SLOTS)])
        self.moment += 1
        order = Order(self.side, price, self.rng.randint(1, 9), self.moment, slot)
        self.lists.join(order)
        if slot is None:
            self.row[price - grid.low] += order.quantity
            return
        self.lists.leave(self.quotes[slot])
        self.lists._tidy()
        self.quotes[slot] = order
        self.m.quotes[0, slot, 2 * self.column : 2 * self.column + 2] = order.price, order.quantity
        self.m.queue[0, slot, self.column] = self.row[price - grid.low]
        self.m.moments[0, slot, self.column] = self.moment

    def shift(self) -> bool:
        """The window moves the grid; return whether that took a quote along that has units ahead of it."""
        by, grid = self.side * self.rng.choice([-self.levels, -3, -2, -2, -2, 2, 2, 3]), self.lists.grid
        before = {slot: quote.price for slot, quote in self.quotes.items()}
        moved = beats.slide_window(self.m, np.array([2 * (by + self.levels // 2)]), np.array([True]))
        queues.follow_grid(self.m, moved != 0)
        self.lists.follow(Grid(grid.levels, grid.tick_size, grid.low + by))
        return any(quote.price != before[slot] and self.lists.ahead(quote) for slot, quote in self.quotes.items())

    def cancel(self) -> None:
        b = np.array([self.rng.randrange(1000)])
        share, low = self.rng.choice([0.1, 0.3, 0.5, 0.8]), self.lists.grid.low
        loss = np.array([int(units * share + self.rng.random()) for units in self.row])
        losses = np.zeros((1, 2, self.levels), np.int64)
        losses[0, self.column] = loss = np.minimum(loss, self.row)
        u32 = int(bits(self.m.word(state.WORD_QUEUE, b), 32 * self.column, 32)[0])
        for tick, units in enumerate(self.row.tolist()):
            if loss[tick]:
                self.lists.cancel(self.side, tick + low, int(loss[tick]), u32 * units >> 32)
        queues.cancel(self.m, losses, self.m.word(state.WORD_QUEUE, b))

    def take(self) -> None:
        quantity, tick = self.rng.choice([1, 3, 8, 20]), self.rng.randrange(self.levels)
        price = tick + self.lists.grid.low
        met = [(order.slot, order.price, units) for order, units in self.lists.take(-self.side, price, quantity)]
        found = queues.take(
            self.m, np.array([self.side == SELL]), np.array([tick]), np.array([quantity]), np.zeros((1, SLOTS), bool)
        )
        assert found.units[0] == sum(units for _, _, units in met)
        assert found.money[0] == sum(at * units for _, at, units in met)
        for slot in range(SLOTS):
            assert found.fills[0, slot] == sum(units for who, _, units in met if who == slot)
        if met:
            assert self.m.last_price[0] == met[-1][1]
        self.lists._tidy()

    def assert_same(self) -> None:
        grid = self.lists.grid
        assert self.m.price_origin[0] == grid.low
        assert self.row.tolist() == [self.lists.built_in(self.side, p) for p in range(grid.low, grid.high + 1)]
        queues.drop_empty(self.m)
        for slot, quote in self.quotes.items():
            assert self.m.quotes[0, slot, 2 * self.column : 2 * self.column + 2].tolist() == [
                quote.price,
                quote.quantity,
            ]
            assert self.m.queue[0, slot, self.column] == self.lists.ahead(quote)


def play(rng: random.Random) -> int:
    """Play one market; return how often the grid's end took along a quote with units ahead of it."""
    market, taken_along = OneSide(rng), 0
    for _ in range(100):
        move = rng.choice([market.join] * 20 + [market.take, market.cancel, market.shift])
        taken_along += bool(move())
        market.assert_same()
    return taken_along


@pytest.mark.parametrize("seed", range(examples(100)))
def test_random_queues(seed):
    play(random.Random(seed))


def test_the_end_takes_along_quotes_with_units_ahead():
    """So often in these plays that the comparison above means something."""
    assert sum(play(random.Random(seed)) for seed in range(20)) > 10
