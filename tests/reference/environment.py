"""`Environment`: decisions, episodes and blocks of slots in one market (docs/environment.md), but rewards and what is seen.

Slots submit order records, or programs play them. A record has of each level bid price, bid quantity, ask price, ask
quantity, and the flags of the bid and of the ask as sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .clock import Reference
from .market import Stopped
from .orders import BUY, MAX_PRICE, SELL, through_the_door
from .programs import (
    IMMEDIATE_OR_CANCEL,
    KEEP,
    MARKET,
    NOTHING,
    OWN_DRAWS,
    POST_ONLY,
    Program,
    cut,
    drawn,
    market_seen,
    sign,
    slot_seen,
    standing,
)
from .words import bits, scaled, word

MOST_UNITS = 1 << 20  # of an order
STAGGER = (1 << 30) + 3  # w_0(this): where the first episode begins
WORDS = {1: "keep", 2: "post-only", 4: "ioc", 8: "market"}  # as `Reference` has flags
SIDES = ((0, BUY), (1, SELL))  # of each side its place in a record


class Environment:
    """One market with its slots' roles and a task.

    Args:
        config: The market's `MarketConfig` with the task's limits.
        task: A `ManyLearnersTask`; its numbers are read.
        roles: Of each slot.
        slots: Of each slot the class that it replaces, or None.
        market: The market's number.
        auctions: `auctions_per_step`.
        events: The events of an interval before `decide` made one event of it.
        autoreset: "SAME_STEP", "NEXT_STEP" or "DISABLED".
        stagger: Whether the first episode begins at a drawn moment.
        learners: With programs as opponents, how many slots learn: the others' episodes end with theirs.
    """

    def __init__(
        self,
        config: Any,
        task: Any,
        roles: Sequence[str],
        slots: Sequence[str | None],
        market: int = 0,
        auctions: int = 1,
        events: int = 1,
        autoreset: str = "SAME_STEP",
        stagger: bool = False,
        learners: int | None = None,
    ) -> None:
        self.task, self.roles, self.number, self.autoreset, self.stagger = task, roles, market, autoreset, stagger
        self.market = Reference(config.to_dict(), slots, 0, market)
        self.at_events = task.decide != "interval"
        self.longest = auctions * events if self.at_events else auctions
        self.learners = len(roles) if learners is None else learners
        self.programs: Mapping[int, Program] = {}
        self.memory: dict[int, dict[str, int]] = {}
        self.auctions = auctions
        self.cut = False  # whether a record of the last step had to be cut
        self.played: dict[int, Any] = {}  # of slots with programs, what they submitted in the last decision
        self.done = False

    def setting(self, name: str, slot: int = 0) -> Any:
        """A setting of the task, as the slot has it."""
        rows = np.asarray(self.task.each.get(name, getattr(self.task, name)))
        if rows.ndim == 1:
            return rows[self.number if name in ("horizon", "inventory_limit") else slot].item()
        return rows[self.number, slot].item() if rows.ndim else rows.item()

    def set_programs(self, programs: Mapping[int, Program]) -> None:
        """Let programs play slots; what was remembered is lost."""
        self.programs = programs
        self.memory = {slot: dict.fromkeys(program.memory, 0) for slot, program in programs.items()}
        self.played = {slot: None for slot in programs}

    # Episodes ---------------------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, explicit: bool = True) -> None:
        """Begin the next episode, or with a seed of the ensemble episode 0."""
        market, roles = self.market, self.roles
        market.reset(None if seed is None else seed + self.number)
        self.end = int(self.setting("horizon")) * (self.longest if self.at_events else 1)
        self.elapsed = 0
        if explicit and self.stagger and market.episode == 0:
            self.elapsed = scaled(word(market.key, 0, STAGGER) >> 32, self.end, 32)
        self.mids, self.volumes = [market.observe()["mid2"]] * 5, [0] * 4
        self.arrival2 = self.mids[0]
        if explicit:
            self.fills, self.cut = [[0, 0] for _ in roles], False
        self.ended, self.done = [False] * len(roles), False
        self.opening = [0] * len(roles)
        self.side, self.target = [0] * len(roles), [0] * len(roles)
        for slot, role in enumerate(roles):
            draw = word(market.key, 0, OWN_DRAWS + slot)
            coin = BUY if bits(draw, 31, 1) else SELL
            if role == "noise":
                self.side[slot] = coin
                self.target[slot] = 1 + scaled(bits(draw, 32, 16), int(self.setting("max_target", slot)), 16)
            elif role == "executor":
                self.side[slot] = {"random": coin, "buy": BUY, "sell": SELL}[self.task.side]
                self.target[slot] = int(self.setting("block_qty", slot))
            else:
                market.accounts[slot]["inventory"] = int(self.setting("initial_inventory", slot))
            self.opening[slot] = self.value(slot)

    def remaining(self, slot: int) -> int:
        return max(0, self.target[slot] - self.side[slot] * self.market.accounts[slot]["inventory"])

    def value(self, slot: int) -> int:
        """In 1/2000 of a tick."""
        account, seen = self.market.accounts[slot], self.market.observe()
        worth = 2000 * account["cash"] - 2 * account["fees"] - self.opening[slot]
        if self.task.mark == "liquidation":
            return worth + 2000 * liquidation(seen, account["inventory"])
        mark2 = 2 * seen["fundamental"] if self.task.mark == "fundamental" else seen["mid2"]
        return worth + 1000 * account["inventory"] * mark2

    # Steps ------------------------------------------------------------------------------------------------------------

    def step(self, records: Sequence[Sequence[Sequence[int]]] | None = None) -> None:
        """Play one decision; `records` are of all slots, those of slots with programs are not looked at."""
        before, self.fills, self.cut = self.fills, [[0, 0] for _ in self.roles], False
        if self.done:
            if self.autoreset == "NEXT_STEP":
                self.reset(explicit=False)
            return
        if self.market.t == 0:
            before = self.fills
        submitted = [self._submits(slot, records, before[slot]) for slot in range(len(self.roles))]
        volume = self.market.volume
        self.elapsed += self._play(submitted)
        if self.elapsed >= self.end:
            self._force()
        self.mids = [self.market.observe()["mid2"], *self.mids[:4]]
        self.volumes = [min(self.market.volume - volume, (1 << 31) - 1), *self.volumes[:3]]
        for slot, role in enumerate(self.roles):
            lost = self.task.max_loss and self.value(slot) / 2000 <= -self.task.max_loss
            worked_off = role == "executor" and not self.remaining(slot)
            self.ended[slot] |= bool(lost or worked_off or self.elapsed >= self.end)
        if all(self.ended[: self.learners]):
            self.ended = [True] * len(self.roles)
        self.done = all(self.ended)
        if self.done and self.autoreset == "SAME_STEP":
            self.reset(explicit=False)

    def _submits(self, slot: int, records: Any, before: Sequence[int]) -> list[list[int]]:
        levels = range(self.market.rules.orders_per_side)
        empty = [list(NOTHING) for _ in levels]
        if self.ended[slot]:
            self.played |= {slot: empty} if slot in self.programs else {}
            return empty
        if slot not in self.programs:
            record = [list(level) for level in records[slot]]
            admitted = self._admitted(slot, record)
            self.cut |= any(cut_numbers(level) != list(level[:4]) for level in record)
            return admitted
        returned = self._asks(slot, before)
        continuous = self.market.rules.mechanism == "continuous"
        if returned == "keep" and continuous:
            returned = [[0, 0, 0, 0, KEEP, KEEP]] * len(levels)
        elif returned == "keep":
            returned = [[number for way in (BUY, SELL) for number in standing(self.market, slot, 0, way)[:2]] + [0, 0]]
        record = [list(level) for level in returned] + empty[len(returned) :]
        for level in record:
            level[4:] = [_possible(flags) if continuous else 0 for flags in level[4:]]
        self.played[slot] = self._admitted(slot, record)
        return self.played[slot]

    def _asks(self, slot: int, before: Sequence[int]) -> Any:
        """What the slot's program returns; its memory changes."""
        market, program, account = self.market, self.programs[slot], self.market.accounts[slot]
        seen = market_seen(market, self.mids)
        draw = bits(word(market.key, market.t, OWN_DRAWS + slot), 31, 1)
        momentum = sign(self.mids[0] - self.mids[1]) or (BUY if draw else SELL)
        limit = market.rules.inventory_limit
        numbers = {
            **{name: cut(account[name]) for name in ("inventory", "cash")},
            "bought": cut(before[0]),
            "sold": cut(before[1]),
            "elapsed": self.elapsed,
            "left": self.end - self.elapsed,
            "remaining": cut(self.remaining(slot)),
            "side": momentum if self.roles[slot] == "momentum" else self.side[slot],
            "arrival2": self.arrival2,
            "max_qty": int(self.setting("max_qty", slot)),
            "max_offset": self.task.max_offset,
            "max_quote_qty": market.rules.max_quote_qty,
            "inventory_limit": -1 if limit is None else limit,
        }
        memory = self.memory[slot]
        if market.t == 0:
            known = {**vars(seen), **numbers}
            for name, start in program.memory.items():
                memory[name] = int(known[start]) if isinstance(start, str) else start
        return program.play(
            seen, slot_seen(market, slot, numbers, self.mids, self.volumes), memory, drawn(market, slot)
        )

    def _admitted(self, slot: int, record: Sequence[Sequence[int]]) -> list[list[int]]:
        """What of an order record is submitted: all numbers in range, and no more than is left of a block or target."""
        admitted, left = [], self.remaining(slot)
        for number, level in enumerate(record):
            numbers, flags = cut_numbers(level), list(level[4:])
            for place, way in SIDES:
                if self.target[slot] and way != self.side[slot]:
                    numbers[2 * place + 1], flags[place] = 0, flags[place] & KEEP
                elif self.target[slot]:
                    numbers[2 * place + 1] = min(numbers[2 * place + 1], left)
                    kept = flags[place] & KEEP
                    left = max(
                        0, left - (standing(self.market, slot, number, way)[1] if kept else numbers[2 * place + 1])
                    )
                if not numbers[2 * place + 1]:
                    numbers[2 * place] = 0
            admitted.append(numbers + flags)
        return admitted

    def _play(self, submitted: Any) -> int:
        """Play auctions, intervals or events; return how much of the episode they are."""
        if not self.at_events:
            self._decision(submitted, self.auctions)
            return 1
        seen, spent = self.market.observe(), 0
        best = seen["best_bid"], seen["best_ask"]
        while spent < min(self.longest, self.end - self.elapsed):
            seen = self._decision(submitted if spent == 0 else None, 1)
            spent += 1
            touched = (seen["best_bid"], seen["best_ask"]) != best
            if touched if self.task.decide == "touch" else any(map(any, seen["fills"])):
                break
        return spent

    def _decision(self, submitted: Any, n: int) -> dict[str, Any]:
        """Play n intervals, and count what slots are filled; return what is seen at last."""
        rules = self.market.rules
        quotes = None
        if submitted is not None:
            quotes = [
                [_as_words(level) if rules.mechanism == "continuous" else level[:4] for level in ladder]
                for ladder in submitted
            ]
            quotes = quotes if rules.orders_per_side > 1 else [ladder[0] for ladder in quotes]
        seen = self.market.decision(quotes, n)
        if self.market.error:
            raise Stopped
        for interval in seen:
            for mine, units in zip(self.fills, interval["fills"], strict=True):
                mine[0] += units[0]
                mine[1] += units[1]
        return seen[-1]

    def _force(self) -> None:
        """The auctions at the end of the horizon in which executors trade what is left."""
        market, rules = self.market, self.market.rules
        blocks = [slot for slot, role in enumerate(self.roles) if role == "executor"]
        largest = max((int(self.setting("block_qty", slot)) for slot in blocks), default=0)
        most = 2 * -(-largest // self.task.forced_qty) + 16 if blocks else 0
        latency = rules.quote_latency
        for number in range(most):
            quotes, passed = [], 0
            for slot in range(len(self.roles)):
                ladder = [list(NOTHING) for _ in range(rules.orders_per_side)]
                if slot in blocks and not self.ended[slot] and self.remaining(slot):
                    place = 0 if self.side[slot] == BUY else 2
                    ladder[0][place] = self.side[slot] * MAX_PRICE
                    ladder[0][place + 1] = min(self.task.forced_qty, self.remaining(slot))
                (limited,) = through_the_door(rules, [ladder[0][:4]], market.accounts[slot]["inventory"], [True])
                passed += limited[1] + limited[3]
                quotes.append(ladder)
            if not passed:
                break
            if number == 0:
                market.under_way.clear()
            rules.quote_latency = min(latency, rules.events - 1)
            self._decision(quotes, 1)
            rules.quote_latency = latency


def _possible(flags: int) -> int:
    """A program's flags: of those that exclude each other post-only means nothing."""
    return flags & 15 & ~(POST_ONLY if flags & (IMMEDIATE_OR_CANCEL | MARKET) else 0)


def cut_numbers(level: Sequence[int]) -> list[int]:
    """Prices and quantities of a level, cut to what an order may have."""
    bid, bid_qty, ask, ask_qty = level[:4]
    prices = [min(max(price, -MAX_PRICE), MAX_PRICE) for price in (bid, ask)]
    units = [min(max(quantity, 0), MOST_UNITS) for quantity in (bid_qty, ask_qty)]
    return [prices[0], units[0], prices[1], units[1]]


def _as_words(level: Sequence[int]) -> list[Any]:
    flags = [" ".join(name for bit, name in WORDS.items() if number & bit) for number in level[4:]]
    return [*level[:4], *flags]


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
