"""`Market`: one market's state, what a beat does to it, accounts, and what can be observed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from kineticsim_env.agents.numbers import Int32

from . import words
from .added import Agent, Seen, added_order, numbers_seen
from .auction import Auction
from .orders import BUY, SELL, Grid, Order, View, built_in_order, quote_price
from .queues import Queues
from .rules import Population, Rules
from .words import bits, scaled, word

FULL = 1 << 31  # a side whose total reaches this stops the market


class Stopped(Exception):  # noqa: N818 - the market's own word for it
    """A side's total reached 2^31."""


@dataclasses.dataclass
class Submission:
    """What all slots submitted with a decision, as it was given, and the event before which it arrives."""

    due: int
    quotes: Sequence


class Market:
    """One market without its clock; prices are absolute ticks, mids doubled.

    Args:
        fields: Fields of `MarketConfig` and of the second model, one value each, or one per market.
        slots: K, or for each slot the class of the built-in agent that it replaces, or None.
        seed: The ensemble's.
        market_index: m; the market's seed is `seed + m`.
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
        slots: int | Sequence[str | None] = 0,
        seed: int = 0,
        market_index: int = 0,
    ) -> None:
        self.rules = Rules(fields, market_index, slots)
        self.market_index = market_index
        self.reset(seed + market_index)

    def reset(self, seed: int | None = None) -> None:
        """Open the next episode, or, with the market's own seed, episode 0."""
        rules = self.rules
        if seed is None:
            self.episode += 1
        else:
            self.seed, self.episode = seed, 0
            self.population = Population(rules, seed, self.market_index)
        self.key = words.episode_key(self.seed, self.episode)
        self.t = 0
        self.grid = Grid(rules.num_levels, rules.tick_size)
        self.last_price = self.collar_price = rules.init_price
        self.prev_mid2 = 2 * rules.init_price
        self.ret = 0
        self.fundamental = rules.fundamental_price
        self.regime = scaled(word(self.key, 0, words.FIRST_REGIME) >> 32, len(rules.of), 32)
        self.volume = self.trades = self.error = self.moment = 0
        self.signed_volume = 0  # of the last interval: takers' buys less sells, or in a call what was marketable
        self.accounts = [{"cash": 0, "inventory": 0, "fees": 0, "bought": 0, "sold": 0} for _ in rules.slots]
        # Of each slot and level, of each side what stands at its places: one, or of a ladder two.
        places = 1 if rules.orders_per_side == 1 else 2
        self.quotes = [
            [
                {side: [Order(side, 0, 0, 0, slot) for _ in range(places)] for side in (BUY, SELL)}
                for _ in range(rules.orders_per_side)
            ]
            for slot in range(len(rules.slots))
        ]
        self.under_way: list[Submission] = []  # in continuous trading, oldest first
        self.rejects: list[Any] = []  # of each slot's bid and ask, or of each level's, in the last decision
        self.log: list[tuple] = []  # of the last interval: what came, traded, left; see `_note`
        self.book: Any = Queues(self.grid) if rules.mechanism == "continuous" else Auction(self.grid)
        for side in (BUY, SELL):
            if rules.init_depth:
                self._open(Order(side, rules.init_price - side, rules.init_depth, self._next_moment()))
        seen = self._numbers_seen(self._view(0, self.mid2()), 0)
        self.memory = [agent.opening(seen) for agent in self.population.added]

    def set_parameters(self, **fields: Any) -> None:
        """Change levers and parameters from the next interval on; what is under way stays due when it was."""
        self.rules = Rules({**self.rules.fields, **fields}, self.market_index, self.rules.slots)
        self.grid = Grid(self.grid.levels, self.rules.tick_size, self.grid.low)
        self.book.grid = self.grid

    # A beat -----------------------------------------------------------------------------------------------------------

    def _view(self, b: int, mid2: int) -> View:
        coin = bits(word(self.key, b, words.WALK), 16, 1)
        return View(self.grid, self.regime, mid2, self.ret, self.fundamental, self.collar_price, coin)

    def _numbers_seen(self, view: View, number: int) -> dict[str, int]:
        """What agents see that the config adds, at auction or event `number`."""
        extra = () if isinstance(self.book, Queues) else (self._standing(),)
        best: dict[int, tuple[int, int] | None] = {}
        for side in (BUY, SELL):
            price = self.book.best(side, *extra)
            best[side] = None if price is None else (price, self._units_at(side, price))
        return numbers_seen(self.rules, view, best, self.last_price, number)

    def _units_at(self, side: int, price: int) -> int:
        """What rests at a price, standing quotes included."""
        if isinstance(self.book, Queues):
            quotes = [q for q in self._standing() if q.side == side and q.quantity and q.price == price]
        else:
            quotes = [q for q in self._standing() if q.side == side and self.book.takes_part(q)]
            quotes = [quote for quote in quotes if self.book.place(quote) == price]
        return self.book.built_in(side, price) + sum(quote.quantity for quote in quotes)

    def _order(self, agent: int, kind: Any, view: View, number: int, drawn: int, seen: Any = None) -> Order:
        """The order of who comes at auction or event `number`; `seen`: what an added agent sees, if that is known."""
        if isinstance(kind, Agent):
            seen = Seen(self.rules, view, seen or self._numbers_seen(view, number), Int32)
            memory = self.memory[agent - self.population.first_added]
            order = added_order(self.rules, seen, kind, agent, memory, drawn, self._next_moment())
        else:
            order = built_in_order(self.rules, view, kind, agent + number, drawn, self._next_moment())
        self._note("order", order.side, order.price, order.quantity)
        return order

    def _regime_and_fundamental(self, b: int) -> None:
        switch = word(self.key, b, words.SWITCH)
        if bits(switch, 0, 16) < self.rules.regime_switch_prob:
            self.regime = scaled(switch >> 32, len(self.rules.of), 32)
        now = self.rules.of[self.regime]
        draw = word(self.key, b, words.WALK)
        if bits(draw, 0, 16) < now.walk_prob:
            self.fundamental += 1 if bits(draw, 31, 1) else -1
        if bits(draw, 32, 16) < now.jump_prob:
            self.fundamental += now.jump_size if bits(draw, 63, 1) else -now.jump_size

    def _cancel(self, b: int) -> None:
        """Take a share of every tick's built-in quantity on the grid as it stands."""
        continuous = self.rules.mechanism == "continuous"
        places = word(self.key, b, words.PLACE)
        for tick in range(self.grid.levels):
            draw = word(self.key, b, words.CANCEL + tick // 2)
            for field, side in ((2 * (tick % 2), BUY), (2 * (tick % 2) + 1, SELL)):
                price = tick + self.grid.low
                q = self.book.built_in(side, price) if continuous else self.book.both(side, price)
                loss = (q * self.rules.of[self.regime].cancel_prob + bits(draw, 16 * field, 16)) >> 16
                if not loss:
                    continue
                if continuous:
                    self.book.cancel(side, price, loss, (bits(places, 0 if side == BUY else 32, 32) * q) >> 32)
                else:
                    self.book.cancel(side, price, loss)
                self._note("cancelled", side, price, loss)

    def _take_return(self) -> None:
        mid2 = self.mid2()
        self.ret = (mid2 > self.prev_mid2) - (mid2 < self.prev_mid2)
        self.prev_mid2 = mid2

    def _follow(self, mid2: int) -> None:
        """The window: move the grid if the mid is too far from its middle. Absolute prices do not change."""
        shift = self.grid.shift_for(mid2, self.rules.window)
        if shift:
            self.grid = Grid(self.grid.levels, self.grid.tick_size, self.grid.low + shift)
            self.book.follow(self.grid)
            self._note("shift", shift)

    # Accounts, and what is seen ---------------------------------------------------------------------------------------

    def _fresh(self, slot: int, side: int, price: int, quantity: int) -> Order:
        price = quote_price(self.rules, self.grid, side, price, self.collar_price)
        return Order(side, price, quantity, self._next_moment(), slot)

    def _nothing(self, like: Order) -> Order:
        """What is at an empty place beside an order."""
        return Order(like.side, like.price, 0, 0, like.slot)

    def _book_fill(self, slot: int | None, side: int, price: int, units: int, extra_fee: int) -> None:
        assert slot is not None
        account = self.accounts[slot]
        account["cash"] -= side * price * units
        account["inventory"] += side * units
        account["fees"] += (self.rules.fee + extra_fee + 1000 * self.rules.tax) * units
        account["bought" if side == BUY else "sold"] += units

    def _open(self, order: Order) -> None:
        """Put a built-in order into the book of an episode's beginning."""
        if isinstance(self.book, Queues):
            self.book.join(order)
        else:
            self.book.resting[order.side][order.price] += order.quantity

    def _next_moment(self) -> int:
        self.moment += 1
        return self.moment

    def _standing(self) -> list[Order]:
        return [order for ladder in self.quotes for level in ladder for places in level.values() for order in places]

    def _test_total(self, total: int) -> None:
        if total >= FULL:
            raise Stopped

    def _note(self, *what: Any) -> None:
        """Keep what happened, to see where two accounts of a market part; sides are +1 (buy) and -1 (sell).

        ("order", side, price, quantity), ("cancelled", side, price, quantity), ("dropped", side, price, quantity),
        ("shift", ticks), ("auction", price, volume), ("trade", taker's side, price, units, taker's slot, other slot).
        """
        self.log.append(what)

    def mid2(self) -> int:
        """What agents see: built-in and learned interest that rests; one-sided, twice the last price."""
        extra = () if isinstance(self.book, Queues) else (self._standing(),)
        bid, ask = self.book.best(BUY, *extra), self.book.best(SELL, *extra)
        return 2 * self.last_price if bid is None or ask is None else bid + ask

    def observe(self) -> dict[str, Any]:
        """All that can be observed: absolute prices; `bid` and `ask` are the built-in units per tick of the grid.

        `best_bid` and `best_ask` are None where nothing built-in rests; `depth(seen, side, reach)` counts what rests
        near them. `quotes` are [K][4] and `ahead` [K][2], with ladders [K][N][2][4] and [K][N][2][2]: level, place.
        `due` are events, oldest first, of as many submissions as are under way, and `due_quotes` what was given.
        """
        low, prices = self.grid.low, range(self.grid.low, self.grid.high + 1)
        rows = {side: [self.book.built_in(side, price) for price in prices] for side in (BUY, SELL)}
        bids, asks = ([price for price in prices if rows[side][price - low]] for side in (BUY, SELL))
        queued = isinstance(self.book, Queues)
        quotes, ahead = [], []
        for ladder in self.quotes:
            levels = [list(zip(level[BUY], level[SELL], strict=True)) for level in ladder]  # of each place bid and ask
            quotes.append([[[b.price, b.quantity, a.price, a.quantity] for b, a in level] for level in levels])
            ahead.append([[[self.book.ahead(o) if queued else 0 for o in both] for both in level] for level in levels])
        if self.rules.orders_per_side == 1:
            quotes, ahead = ([levels[0][0] for levels in of_slots] for of_slots in (quotes, ahead))
        return {
            "t": self.t,
            "episode": self.episode,
            "error": self.error,
            "mid2": bids[-1] + asks[0] if bids and asks else 2 * self.last_price,
            "last_price": self.last_price,
            "prev_mid2": self.prev_mid2,
            "ret": self.ret,
            "regime": self.regime,
            "fundamental": self.fundamental,
            "price_origin": low,
            "volume": self.volume,
            "trades": self.trades,
            "bid": rows[BUY],
            "ask": rows[SELL],
            "best_bid": bids[-1] if bids else None,
            "best_ask": asks[0] if asks else None,
            "signed_volume": self.signed_volume,
            "quotes": quotes,
            "ahead": ahead,
            "due": [submission.due for submission in self.under_way],
            "due_quotes": [submission.quotes for submission in self.under_way],
            "fills": [[account["bought"], account["sold"]] for account in self.accounts],
            **{name: [account[name] for account in self.accounts] for name in ("cash", "inventory", "fees")},
        }


def depth(seen: Mapping[str, Any], side: int, reach: int) -> int:
    """The built-in units from a side's best price to `reach` ticks beyond it, in what `observe` returned."""
    best = seen["best_bid"] if side == BUY else seen["best_ask"]
    if best is None:
        return 0
    row = seen["bid"] if side == BUY else seen["ask"]
    return sum(units for tick, units in enumerate(row) if side * (best - seen["price_origin"] - tick) <= reach)


def liquidation(seen: Mapping[str, Any], inventory: int) -> int:
    """The cash that crossing the built-in book at once brings."""
    row, way = (seen["bid"], -1) if inventory > 0 else (seen["ask"], 1)
    left, cash = abs(inventory), 0
    price = seen["last_price"]
    for tick in range(len(row))[::way]:
        units = min(left, row[tick])
        if row[tick]:
            price = seen["price_origin"] + tick
        if left and units:
            cash -= way * units * price
            left -= units
    return cash - way * left * price
