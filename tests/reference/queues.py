"""The continuous market's book: at each price a queue of orders, first come, first served.

A built-in agent's order and a slot's quote are both an `Order` in a list. `ahead` is no state here: it is counted, as
the built-in units that stand before a quote in its list. So matching, shifts and places in queues owe nothing to
engines that keep one sum per tick and one counter per quote. Only where the page itself defines something through
`ahead` is it used: cancellation (how many of a tick's lost units stood before each quote; which of the orders between
two quotes lose them cannot be seen, here it is the youngest), and quotes that the end of the grid takes along.
"""

from __future__ import annotations

from collections.abc import Iterator

from .orders import BUY, SELL, Grid, Order


class Queues:
    """Orders by side and absolute price; those off the grid are seen by nobody and matched with nobody."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.sides: dict[int, dict[int, list[Order]]] = {BUY: {}, SELL: {}}

    # What is there ----------------------------------------------------------------------------------------------------

    def queue(self, side: int, price: int) -> list[Order]:
        return self.sides[side].get(price, [])

    def best(self, side: int) -> int | None:
        """The best price with anything of that side."""
        prices = [price for price, queue in self.sides[side].items() if queue and price in self.grid]
        if not prices:
            return None
        return max(prices) if side == BUY else min(prices)

    def built_in(self, side: int, price: int) -> int:
        return sum(order.quantity for order in self.queue(side, price) if order.slot is None)

    def ahead(self, quote: Order) -> int:
        """Built-in units before a quote in its queue."""
        before = 0
        for order in self.queue(quote.side, quote.price):
            if order is quote:
                return before
            before += order.quantity if order.slot is None else 0
        return 0  # a side without quantity stands nowhere

    def side_total(self, side: int) -> int:
        """All that rests on a side of the grid."""
        on_grid = [queue for price, queue in self.sides[side].items() if price in self.grid]
        return sum(order.quantity for queue in on_grid for order in queue)

    def learned(self) -> list[Order]:
        queues = [queue for side in self.sides.values() for queue in side.values()]
        return [order for queue in queues for order in queue if order.slot is not None]

    # What is done to it -----------------------------------------------------------------------------------------------

    def join(self, order: Order) -> None:
        """Stand behind all that rests there."""
        self.sides[order.side].setdefault(order.price, []).append(order)

    def leave(self, order: Order) -> None:
        queue = self.queue(order.side, order.price)
        if any(other is order for other in queue):
            queue[:] = [other for other in queue if other is not order]

    def meets(self, side: int, limit: int) -> Order | None:
        """What an order of this side with the price `limit` would trade with first, if anything."""
        best = self.best(-side)
        if best is None or (best > limit if side == BUY else best < limit):
            return None
        return self.queue(-side, best)[0]

    def take(self, side: int, limit: int, quantity: int, slot: int | None = None) -> Iterator[tuple[Order, int]]:
        """Match up to `quantity` against the other side, up to price `limit`; yield each fill's resting order, units.

        `limit` is on the grid, or so far from the other side that nothing meets it. What is of `slot` ends it.
        """
        while quantity:
            first = self.meets(side, limit)
            if first is None or (slot is not None and first.slot == slot):
                return
            units = min(quantity, first.quantity)
            quantity -= units
            first.quantity -= units
            if not first.quantity:
                self.leave(first)
            yield first, units

    def cancel(self, side: int, price: int, loss: int, r: int) -> None:
        """Take `loss` built-in units from a queue; a quote with `ahead` sees floor((loss * ahead + r) / q) of it go."""
        q = self.built_in(side, price)
        passed, gone = 0, 0
        between: list[Order] = []
        for order in self.queue(side, price):
            if order.slot is None:
                between.append(order)
                passed += order.quantity
            else:
                due = (loss * passed + r) // q
                _take_from(between, due - gone)
                between, gone = [], due
        _take_from(between, loss - gone)
        self._tidy()

    def follow(self, grid: Grid) -> None:
        """The grid has moved: prune built-in orders off it; the end takes along quotes that could cross later."""
        ahead = {quote.moment: self.ahead(quote) for quote in self.learned()}
        self.grid = grid
        for side in (BUY, SELL):
            for price, queue in self.sides[side].items():
                if price not in grid:
                    queue[:] = [order for order in queue if order.slot is not None]
        for quote in self.learned():
            if quote.price > grid.high if quote.side == BUY else quote.price < grid.low:
                self.leave(quote)
                quote.price = grid.nearest(quote.price)
                self._insert(quote, ahead[quote.moment])
        self._tidy()

    def _insert(self, quote: Order, ahead: int) -> None:
        """Put a quote behind `ahead` built-in units of its new queue, at most behind all of them."""
        queue = self.sides[quote.side].setdefault(quote.price, [])
        place = 0
        while place < len(queue) and ahead:
            order = queue[place]
            if order.slot is None:
                if order.quantity > ahead:  # the quote comes between units of one order
                    queue.insert(place + 1, Order(order.side, order.price, order.quantity - ahead, order.moment))
                    order.quantity = ahead
                ahead -= order.quantity
            place += 1
        queue.insert(place, quote)

    def _tidy(self) -> None:
        """Drop empty orders and queues; quotes with nothing built-in between them stand by moment."""
        for side, queues in self.sides.items():
            for queue in queues.values():
                queue[:] = [order for order in queue if order.quantity]
                start = 0
                for place in range(len(queue) + 1):
                    if place == len(queue) or queue[place].slot is None:
                        queue[start:place] = sorted(queue[start:place], key=lambda quote: quote.moment)
                        start = place + 1
            self.sides[side] = {price: queue for price, queue in queues.items() if queue}


def _take_from(orders: list[Order], quantity: int) -> None:
    """Cancel units of neighbours in a queue, the youngest first."""
    for order in reversed(orders):
        units = min(quantity, order.quantity)
        order.quantity -= units
        quantity -= units
    assert quantity == 0, "a stretch of a queue cannot lose more than it has"
