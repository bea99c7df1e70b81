"""`Reference`: intervals, decisions and events; what a call auction and a continuous market do with orders."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from typing import Any

from .market import Market, Stopped, Submission
from .orders import BUY, MAX_PRICE, SELL, Order, through_the_door
from .words import RATION, WHO, bits, scaled, word

LAST_EVENT = 1 << 32
MOST_UNDER_WAY = 4


class Reference(Market):
    """One market, event by event: what `Market` says of its arguments, and `interval` and `decision` to play it."""

    # Intervals --------------------------------------------------------------------------------------------------------

    def interval(self, quotes: Sequence[Sequence[int]] | None = None) -> dict[str, Any]:
        """Play one interval; with quotes, a decision of one interval. Return all that can be observed.

        Quotes are [K][4], of each slot bid price, bid quantity, ask price and ask quantity, or [K][6], with the flags
        of the bid and of the ask as words. With ladders they are [K][N][4] or [K][N][6].
        """
        return self.decision(quotes, 1)[-1]

    def decision(self, quotes: Sequence[Sequence[int]] | None, n: int) -> list[dict[str, Any]]:
        """Play a decision of n intervals; return what can be observed after each.

        In continuous trading the quotes are submitted, and may arrive in a later decision. A market that stops is as it
        was before the interval in which it stopped, but for its error word, and stays so; what was submitted as that
        interval began is not under way.
        """
        levels = self.rules.orders_per_side
        none = [[[None, None] for _ in range(levels)] for _ in self.accounts]
        self.rejects = none if levels > 1 else [ladder[0] for ladder in none]  # of bids and asks
        seen = []
        for number in range(n):
            if not self.error:
                before = pickle.dumps(self.__dict__)
                try:
                    self._play(quotes if number == 0 else None)
                except Stopped:
                    self.__dict__ = pickle.loads(before)
                    self.error, self.under_way = 1, []
            seen.append(self.observe())
        return seen

    def _play(self, fresh: Any) -> None:
        self.log = []
        for account in self.accounts:
            account["bought"] = account["sold"] = 0
        volume = self.volume
        self.signed_volume = 0
        if self.rules.mechanism == "continuous":
            self._continuous_interval(fresh)
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

    def _continuous_interval(self, fresh: Any) -> None:
        """Events whose orders are matched as they come; what slots submitted arrives before the event it is due at."""
        events = self._events()
        if fresh is not None:
            self._submit(fresh, events[0])
        for g in events:
            if g % self.rules.beat == 0:
                self._follow(self.mid2())
                self._regime_and_fundamental(g // self.rules.beat)
                self._cancel(g // self.rules.beat)
                self._take_return()
                self.collar_price = self.last_price
            while self.under_way and self.under_way[0].due == g:
                self._quotes_arrive(self.under_way.pop(0).quotes)
            order = self._order_at(g)
            if order is not None:
                self._match(order)
                if order.quantity and order.marketable:
                    self._note("dropped", order.side, order.price, order.quantity)
                elif order.quantity:
                    self._rest(order)

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
            (numbers,) = through_the_door(self.rules, [quote], self.accounts[slot]["inventory"], [True])
            bid, ask = self._fresh(slot, BUY, *numbers[:2]), self._fresh(slot, SELL, *numbers[2:])
            self.quotes[slot] = [{BUY: [bid], SELL: [ask]}]

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

    def _submit(self, quotes: Any, g: int) -> None:
        """What a decision that begins before event g submits joins what is under way, or replaces its newest."""
        if len(self.under_way) == MOST_UNDER_WAY:
            self.under_way.pop()
        due = g + self.rules.quote_latency
        if self.under_way:
            due = max(due, self.under_way[-1].due)  # none overtakes another
        self.under_way.append(Submission(due, copy.deepcopy(quotes)))

    def _quotes_arrive(self, quotes: Any) -> None:
        slots = len(self.rules.slots)
        for number in range(slots):
            slot = (self.t + number) % slots
            self._ladder_arrives(slot, [quotes[slot]] if self.rules.orders_per_side == 1 else quotes[slot])

    def _ladder_arrives(self, slot: int, ladder: Any) -> None:
        """A slot's turn: what keeps its place, what is withdrawn, and then what comes, level after level."""
        stands = self.quotes[slot]
        for level in stands:
            for places in level.values():
                if len(places) == 2 and not places[0].quantity:  # the second becomes the first, even where it is empty
                    places[:] = [places[1], self._nothing(places[1])]
        # Of each level four numbers, and perhaps the flags of the bid and of the ask.
        asked = [list(level[:4]) for level in ladder]
        words = [dict(zip((BUY, SELL), level[4:] or ("", ""), strict=True)) for level in ladder]
        for number, numbers in enumerate(asked):
            for column, side in ((0, BUY), (2, SELL)):
                places = stands[number][side]
                if "market" in words[number][side]:
                    numbers[column] = side * MAX_PRICE
                if "keep" in words[number][side]:
                    numbers[column : column + 2] = places[0].price, sum(place.quantity for place in places)
        both_rest = [
            not any(word in flags for word in ("keep", "ioc", "market") for flags in level.values()) for level in words
        ]
        passed = through_the_door(self.rules, asked, self.accounts[slot]["inventory"], both_rest)
        comes = []
        for number, numbers in enumerate(passed):
            for column, side in ((0, BUY), (2, SELL)):
                places, flags = stands[number][side], words[number][side]
                order = self._fresh(slot, side, *numbers[column : column + 2])
                beyond = order.price > self.grid.high if side == BUY else order.price < self.grid.low
                if beyond:
                    order.price = self.grid.nearest(order.price)
                at_once = "ioc" in flags or "market" in flags
                if "keep" in flags:
                    order.price, at_once = places[0].price, False
                if self._replaces(places, order, at_once):
                    comes.append((number, order, at_once, "post-only" in flags))
        for number, order, at_once, post_only in comes:
            why = None
            if order.quantity and post_only and self.book.meets(order.side, order.price):
                order.quantity = 0
                why = "post-only"
            if order.quantity:
                self._match(order)
            if order.quantity and self.book.meets(order.side, order.price):
                order.quantity = 0
                why = "own order"
            if at_once:
                order.quantity = 0
            if order.quantity:
                self._rest(order)
            rejects = self.rejects[slot] if self.rules.orders_per_side == 1 else self.rejects[slot][number]
            before = rejects[order.side == SELL]  # of a submission that arrived in the decision, too
            rejects[order.side == SELL] = "both" if before and why and before != why else why or before

    def _replaces(self, places: list[Order], order: Order, at_once: bool) -> bool:
        """Whether an order comes, with what its quantity is then, or what stands at its side is all that it asks for.

        Of one place a larger quantity comes anew; of two, what is more than stands at the first comes to the second.
        """
        first, standing = places[0], sum(place.quantity for place in places)
        keeps = not at_once and order.price == first.price and order.quantity > 0 and first.quantity > 0
        if keeps and order.quantity <= standing:
            left = order.quantity
            for place in places:
                place.quantity = min(place.quantity, left)
                left -= place.quantity
                if not place.quantity:
                    self.book.leave(place)
                    place.price = first.price  # the end of the grid may have taken the first place alone along
            return False
        if keeps and len(places) == 2:
            self.book.leave(places[1])
            order.quantity -= first.quantity
            places[1] = order
            return True
        for place in places:
            self.book.leave(place)
        places[:] = [order, *(self._nothing(order) for _ in places[1:])]
        return True

    def _match(self, order: Order) -> None:
        for first, units in self.book.take(order.side, order.price, order.quantity, order.slot):
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
