"""The call auction's book: what rests and what waits per price, and the auction itself. Absolute ticks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .orders import BUY, SELL, Grid, Order


class Auction:
    """Built-in interest per side and price; learned quotes are kept by the market and passed in."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.resting = {BUY: Counter(), SELL: Counter()}
        self.waiting = {BUY: Counter(), SELL: Counter()}
        self.marketable = {BUY: Counter(), SELL: Counter()}  # submitted in this interval, filled or not

    def built_in(self, side: int, price: int) -> int:
        """What rests; orders that wait are not seen."""
        return self.resting[side][price]

    def both(self, side: int, price: int) -> int:
        return self.resting[side][price] + self.waiting[side][price]

    def best(self, side: int, quotes: Sequence[Order]) -> int | None:
        """The best price that rests: built-in, or a standing quote that takes part."""
        prices = [price for price, quantity in self.resting[side].items() if quantity]
        prices += [self.place(quote) for quote in quotes if quote.side == side and self.takes_part(quote)]
        if not prices:
            return None
        return max(prices) if side == BUY else min(prices)

    def takes_part(self, quote: Order) -> bool:
        """A bid below the grid and an ask above it do not; beyond the other end a quote sits at the edge."""
        inside = quote.price >= self.grid.low if quote.side == BUY else quote.price <= self.grid.high
        return inside and quote.quantity > 0

    def place(self, quote: Order) -> int:
        return self.grid.nearest(quote.price)

    def side_total(self, side: int, quotes: Sequence[Order]) -> int:
        learned = sum(quote.quantity for quote in quotes if quote.side == side and self.takes_part(quote))
        return sum(self.resting[side].values()) + sum(self.waiting[side].values()) + learned

    def wait(self, order: Order) -> None:
        self.waiting[order.side][order.price] += order.quantity
        if order.marketable:
            self.marketable[order.side][order.price] += order.quantity

    def cancel(self, side: int, price: int, loss: int) -> None:
        """Out of what rests first, then out of what waits."""
        resting = min(loss, self.resting[side][price])
        self.resting[side][price] -= resting
        self.waiting[side][price] -= loss - resting

    def follow(self, grid: Grid) -> None:
        """The grid has moved, with nothing waiting: prune what is off it."""
        self.grid = grid
        for side in (BUY, SELL):
            kept = {price: quantity for price, quantity in self.resting[side].items() if price in grid}
            self.resting[side] = Counter(kept)

    def clear(
        self, quotes: Sequence[Order], near: int | None, words: dict[int, int], cancel_residue: bool
    ) -> tuple[int, int | None, list[tuple[Order, int]]]:
        """Hold the auction.

        Args:
            quotes: The learned ones, in the order of slots.
            near: The price that ties go to; None: the lowest.
            words: Per side, the 32 bits of the rationing.
            cancel_residue: Whether unfilled marketable interest disappears.

        Returns:
            Volume, clearing price (None without volume), and each quote's fill.
        """
        prices = range(self.grid.low, self.grid.high + 1)
        taking_part = [quote for quote in quotes if self.takes_part(quote)]
        interest = {side: {price: self.both(side, price) for price in prices} for side in (BUY, SELL)}
        for quote in taking_part:
            interest[quote.side][self.place(quote)] += quote.quantity
        demand, supply = {prices[-1] + 1: 0}, {prices[0] - 1: 0}
        for price in reversed(prices):
            demand[price] = demand[price + 1] + interest[BUY][price]
        for price in prices:
            supply[price] = supply[price - 1] + interest[SELL][price]
        volume = max(min(demand[price], supply[price]) for price in prices)
        best = [price for price in prices if min(demand[price], supply[price]) == volume]
        clearing = best[0] if near is None else min(max(near, best[0]), best[-1])

        fills: list[tuple[Order, int]] = []
        for side in (BUY, SELL):
            for price in prices:
                total = interest[side][price]
                better = demand[price + 1] if side == BUY else supply[price - 1]
                traded = min(max(volume - better, 0), total)
                here = [quote for quote in taking_part if quote.side == side and self.place(quote) == price]
                r = (words[side] * total) >> 32
                running, learned = 0, 0
                for quote in here:
                    before = (running * traded + r) // total
                    running += quote.quantity
                    fill = (running * traded + r) // total - before
                    learned += fill
                    fills.append((quote, fill))
                self.resting[side][price] = self.both(side, price) - (traded - learned)
                if cancel_residue:
                    unwanted = min(self.resting[side][price], self.marketable[side][price])
                    self.resting[side][price] -= unwanted
        for quote, fill in fills:
            quote.quantity -= fill
        self.waiting = {BUY: Counter(), SELL: Counter()}
        self.marketable = {BUY: Counter(), SELL: Counter()}
        return volume, clearing if volume else None, fills
