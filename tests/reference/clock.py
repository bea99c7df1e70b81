"""`Reference`: intervals, decisions and events; what a call auction and a continuous market do with orders."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from .market import Market, Stopped
from .orders import BUY, SELL, Order, through_the_door
from .words import RATION, WHO, bits, scaled, word

LAST_EVENT = 1 << 32


class Reference(Market):
    """One market, event by event: what `Market` says of its arguments, and `interval` and `decision` to play it."""

    # Intervals --------------------------------------------------------------------------------------------------------

    def interval(self, quotes: Sequence[Sequence[int]] | None = None) -> dict[str, Any]:
        """Play one interval; with quotes, [K][4], a decision of one interval. Return all that can be observed."""
        return self.decision(quotes, 1)[-1]

    def decision(self, quotes: Sequence[Sequence[int]] | None, n: int) -> list[dict[str, Any]]:
        """Play a decision of n intervals; return what can be observed after each.

        A market that stops is as it was before the interval in which it stopped, but for its error word, and stays so.
        """
        seen = []
        for number in range(n):
            if not self.error:
                before = pickle.dumps(self.__dict__)
                try:
                    self._play(quotes, number, n)
                except Stopped:
                    self.__dict__ = pickle.loads(before)
                    self.error = 1
            seen.append(self.observe())
        return seen

    def _play(self, quotes: Any, number: int, n: int) -> None:
        self.log = []
        for account in self.accounts:
            account["bought"] = account["sold"] = 0
        volume = self.volume
        self.signed_volume = 0
        fresh = quotes if number == 0 else None
        if self.rules.mechanism == "continuous":
            self._continuous_interval(quotes, number, n)
        elif self.rules.arrivals == "clock":
            self._call_on_the_clock(fresh)
        else:
            self._call_of_each(fresh)
        self.trades += self.volume > volume
        self.t += 1

    def _call_of_each(self, fresh: Any) -> None:
        """Every built-in agent once, then one call auction."""
        self._regime_and_fundamental(self.t)
        self._cancel(self.t)
        self._take_return()
        mid2 = self.mid2()
        self._follow(mid2)
        self.collar_price = self.last_price
        view = self._view(self.t, mid2)
        seen = self._numbers_seen(view, self.t)  # before fresh quotes replace those that stand
        self._replace_quotes(fresh)
        for agent, kind in enumerate(self.population.classes):
            if kind is not None:
                self._wait(self._order(agent, kind, view, self.t, word(self.key, self.t, agent), seen))
        self._auction(mid2)

    def _call_on_the_clock(self, fresh: Any) -> None:
        """Events whose orders wait, then one call auction."""
        self._follow(self.mid2())
        self.collar_price = self.last_price
        for g in self._events():
            if g % self.rules.beat == 0:
                b = g // self.rules.beat
                self._regime_and_fundamental(b)
                self._cancel(b)
                if g == 0 or g // self.rules.events > (g - self.rules.beat) // self.rules.events:
                    self._take_return()  # an interval has ended since the last beat
            order = self._order_at(g)
            if order is not None:
                self._wait(order)
        mid2 = self.mid2()
        self._replace_quotes(fresh)
        self._auction(mid2)

    def _continuous_interval(self, quotes: Any, number: int, n: int) -> None:
        """Events whose orders are matched as they come; fresh quotes come after a latency."""
        arrival = None if quotes is None else min(self.rules.quote_latency, n * self.rules.events)
        for place, g in enumerate(self._events(), number * self.rules.events):
            if g % self.rules.beat == 0:
                self._follow(self.mid2())
                self._regime_and_fundamental(g // self.rules.beat)
                self._cancel(g // self.rules.beat)
                self._take_return()
                self.collar_price = self.last_price
            if place == arrival:
                self._quotes_arrive(quotes)
            order = self._order_at(g)
            if order is not None:
                self._match(order)
                if order.quantity and order.marketable:
                    self._note("dropped", order.side, order.price, order.quantity)
                elif order.quantity:
                    self._rest(order)
        if number == n - 1 and arrival == n * self.rules.events:
            self._quotes_arrive(quotes)

    def _events(self) -> range:
        first = self.t * self.rules.events
        if first + self.rules.events > LAST_EVENT:
            raise OverflowError("an episode has fewer than 2^32 events")
        return range(first, first + self.rules.events)

    def _order_at(self, g: int) -> Order | None:
        """The order of the agent that comes at event g; None if that agent is inactive."""
        pair = word(self.key, g >> 1, WHO)
        agent = scaled(bits(pair, 32 * (g & 1), 32), len(self.population.classes), 32)
        kind = self.population.classes[agent]
        if kind is None:
            return None
        view = self._view(g // self.rules.beat, self.mid2())
        return self._order(agent, kind, view, g, word(self.key, g, 0))

    # The call auction -------------------------------------------------------------------------------------------------

    def _replace_quotes(self, fresh: Any) -> None:
        if fresh is None:
            return
        for slot, quote in enumerate(fresh):
            numbers = through_the_door(self.rules, quote, self.accounts[slot]["inventory"])
            self.quotes[slot] = {BUY: self._fresh(slot, BUY, *numbers[:2]), SELL: self._fresh(slot, SELL, *numbers[2:])}

    def _wait(self, order: Order) -> None:
        self.book.wait(order)
        self.signed_volume += order.side * order.quantity * order.marketable
        self._test_total(self.book.side_total(order.side, self._standing()))

    def _auction(self, mid2: int) -> None:
        for side in (BUY, SELL):
            self._test_total(self.book.side_total(side, self._standing()))
        draw = word(self.key, self.t, RATION)
        near = None
        if self.rules.tie == "mid":
            twice = mid2 - 2 * self.grid.low
            near = self.grid.on_tick(BUY, (twice >> 1) + (twice & self.t & 1) + self.grid.low)
        thirds = {BUY: bits(draw, 0, 32), SELL: bits(draw, 32, 32)}
        volume, price, fills = self.book.clear(self._standing(), near, thirds, self.rules.residue == "cancel")
        if price is None:
            return
        self.volume += volume
        self.last_price = price
        self._note("auction", price, volume)
        for quote, units in fills:
            if units:
                self._book_fill(quote.slot, quote.side, price, units, 0)

    # The continuous market --------------------------------------------------------------------------------------------

    def _quotes_arrive(self, quotes: Any) -> None:
        slots = len(self.rules.slots)
        for number in range(slots):
            slot = (self.t + number) % slots
            numbers = through_the_door(self.rules, quotes[slot], self.accounts[slot]["inventory"])
            fresh = {BUY: self._fresh(slot, BUY, *numbers[:2]), SELL: self._fresh(slot, SELL, *numbers[2:])}
            comes = []
            for side, order in fresh.items():
                beyond = order.price > self.grid.high if side == BUY else order.price < self.grid.low
                if beyond:
                    order.price = self.grid.nearest(order.price)
                standing = self.quotes[slot][side]
                if order.price == standing.price and 0 < order.quantity <= standing.quantity:
                    standing.quantity = order.quantity  # keeps its place
                    continue
                self.book.leave(standing)
                self.quotes[slot][side] = order
                comes.append(order)
            for order in comes:
                if order.quantity:
                    self._match(order)
                if order.quantity:
                    self._rest(order)

    def _match(self, order: Order) -> None:
        for first, units in self.book.take(order.side, order.price, order.quantity):
            assert order.slot is None or order.slot != first.slot, "a slot has met itself"
            order.quantity -= units
            self.volume += units
            self.signed_volume += order.side * units
            self.last_price = first.price
            self._note("trade", order.side, first.price, units, order.slot, first.slot)
            if order.slot is not None:
                self._book_fill(order.slot, order.side, first.price, units, self.rules.taker_fee)
            if first.slot is not None:
                self._book_fill(first.slot, first.side, first.price, units, 0)

    def _rest(self, order: Order) -> None:
        self.book.join(order)
        self._test_total(self.book.side_total(order.side))
