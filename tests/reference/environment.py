"""`Environment`: decisions, episodes and blocks of slots in one market (docs/environment.md).

Slots submit order records, as `records` has them, or programs play them. Rewards, observations and warm starts are not
in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .clock import Reference
from .market import Stopped, liquidation
from .orders import BUY, MAX_PRICE, SELL, through_the_door
from .programs import OWN_DRAWS, Program, cut, drawn, market_seen, sign, slot_seen, standing
from .records import KEEP, admitted, as_quotes, cut_numbers, nothing, of_program
from .words import bits, scaled, word

STAGGER = (1 << 30) + 3  # w_0(this): where the first episode begins


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

    @property
    def continuous(self) -> bool:
        return self.market.rules.mechanism == "continuous"

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
            self.fills = [[0, 0] for _ in roles]
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
        """The slot's record, as it is admitted; `before` are its fills of the last decision."""
        market, levels = self.market, self.market.rules.orders_per_side
        record = nothing(levels)
        if self.ended[slot]:
            submitted = record
        elif slot in self.programs:
            returned = self._asks(slot, before)
            if returned == "keep" and self.continuous:
                returned = [(0, 0, 0, 0, KEEP, KEEP)] * levels
            elif returned == "keep":
                bid, ask = (standing(market, slot, 0, way)[:2] for way in (BUY, SELL))
                returned = [(*bid, *ask, 0, 0)]
            for level, (*numbers, bid_flags, ask_flags) in zip(record, returned, strict=False):
                level[:4] = numbers
                level[4:] = [of_program(flags) if self.continuous else 0 for flags in (bid_flags, ask_flags)]
            submitted = self._admitted(slot, record)
        else:
            self.cut |= any(cut_numbers(level) != list(level[:4]) for level in records[slot])
            submitted = self._admitted(slot, records[slot])
        if slot in self.programs:
            self.played[slot] = submitted
        return submitted

    def _admitted(self, slot: int, record: Sequence[Sequence[int]]) -> list[list[int]]:
        side = self.side[slot]
        stands = [standing(self.market, slot, level, side)[1] if side else 0 for level in range(len(record))]
        return admitted(record, side, self.remaining(slot), stands)

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
            touched, filled = (seen["best_bid"], seen["best_ask"]) != best, any(map(any, seen["fills"]))
            if filled if self.task.decide == "fill" else touched:
                break
        return spent

    def _decision(self, submitted: Any, n: int) -> dict[str, Any]:
        """Play n intervals, and count what slots are filled; return what is seen at last."""
        quotes = None if submitted is None else as_quotes(submitted, self.continuous)
        seen = self.market.decision(quotes, n)
        if self.market.error:
            raise Stopped
        for interval in seen:
            for mine, units in zip(self.fills, interval["fills"], strict=True):
                mine[0] += units[0]
                mine[1] += units[1]
        return seen[-1]

    def _force(self) -> None:
        """The auctions at the end of the horizon in which executors trade what is left, and slots unwind."""
        market, rules = self.market, self.market.rules
        most, latency, seats = self._most_forced(), rules.quote_latency, range(len(self.roles))
        for number in range(most):
            quotes, passed = [], 0
            for side, quantity, slot in [(*self._forced(slot), slot) for slot in seats]:
                ladder, inventory = nothing(rules.orders_per_side), market.accounts[slot]["inventory"]
                place = 0 if side == BUY else 2
                ladder[0][place : place + 2] = [side * MAX_PRICE, quantity] if quantity else [0, 0]
                (limited,) = through_the_door(rules, [ladder[0][:4]], inventory, [True])
                passed += limited[1] + limited[3]
                if self.continuous and self._unwinds(slot) and quantity:
                    ladder[0][place : place + 2] = self._as_far_as_it_rests(side, quantity)
                quotes.append(ladder)
            if not passed:
                break
            if number == 0:
                market.under_way.clear()
            rules.quote_latency = min(latency, rules.events - 1)
            self._decision(quotes, 1)
            rules.quote_latency = latency

    def _unwinds(self, slot: int) -> bool:
        profits = self.roles[slot] not in ("noise", "executor")
        return self.task.at_end == "unwind" and profits and slot < self.learners

    def _most_forced(self) -> int:
        """How many auctions may be forced at the horizon."""
        seats, most = range(len(self.roles)), [0]
        blocks = [int(self.setting("block_qty", slot)) for slot in seats if self.roles[slot] == "executor"]
        if blocks:
            most.append(2 * -(-max(blocks) // self.task.forced_qty) + 16)
        if any(map(self._unwinds, seats)):
            limits = self.task.each.get("inventory_limit", self.task.inventory_limit)
            most.append(16 + min(1024, 1024 if limits is None else int(np.max(limits))))
        return max(most)

    def _forced(self, slot: int) -> tuple[int, int]:
        """The side and the units of what is forced of a slot in an auction; 0 units if nothing is."""
        inventory = self.market.accounts[slot]["inventory"]
        if self.ended[slot]:
            return SELL, 0
        if self._unwinds(slot):
            return SELL if inventory > 0 else BUY, min(abs(inventory), self.market.rules.max_order_qty)
        if self.roles[slot] == "executor":
            return self.side[slot], min(self.task.forced_qty, self.remaining(slot))
        return SELL, 0

    def _as_far_as_it_rests(self, side: int, quantity: int) -> list[int]:
        """The price at which that many units rest on the other side, or all that do, and the quantity; or nothing."""
        seen, low, price = self.market.observe(), self.market.grid.low, None
        row = list(enumerate(seen["ask" if side == BUY else "bid"], low))
        missing = quantity
        for tick, rests in row if side == BUY else reversed(row):
            if rests and missing > 0:
                price, missing = tick, missing - rests
        return [0, 0] if price is None else [price, quantity]
