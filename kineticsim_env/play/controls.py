"""What keys mean in the game, without any screen.

Keys have names: "up", "down", "left", "right", "space", "enter", or the character.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kineticsim_env.render.recorder import Moment

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # decisions per second
Quotes = tuple[int, int, int, int]  # bid price and quantity, ask price and quantity


class Controls:
    """What every game has: pausing, single decisions, speed, the end. A task's controls add its orders."""

    keys: tuple[str, ...] = ("+ - size", "x pull/place", "space pause", "n one decision", ", . slower/faster", "q quit")

    def __init__(self, task: Any, speed: float = 2.0) -> None:
        """Begin paused, so that nothing is missed; `speed` is in decisions per second."""
        self.task = task
        self.paused, self.quit, self.single = True, False, False
        self.speed = float(speed)
        self.size, self.pulled = task.max_qty, False

    def press(self, key: str) -> None:
        """Do what a key says; unknown keys do nothing."""
        if key == "space":
            self.paused = not self.paused
        elif key in ("n", "enter"):
            self.paused = self.single = True
        elif key in (",", "<"):
            self.speed = max((speed for speed in SPEEDS if speed < self.speed), default=SPEEDS[0])
        elif key in (".", ">"):
            self.speed = min((speed for speed in SPEEDS if speed > self.speed), default=SPEEDS[-1])
        elif key in ("+", "=", "-", "_"):
            self.size = min(max(self.size + (1 if key in "+=" else -1), 1), self.task.max_qty)
        elif key == "x":
            self.pulled = not self.pulled
        elif key == "q":
            self.quit = True

    def point(self, price: int, bid_side: bool, moment: Moment) -> None:
        """Do what a click on the ladder says: an order at a price."""
        raise NotImplementedError

    def action(self) -> np.ndarray:
        """Return the action of the next decision, float32 `[A]`."""
        raise NotImplementedError

    def quotes(self, moment: Moment) -> Quotes:
        """Return the orders of the next decision, before limits."""
        raise NotImplementedError

    def describe(self, moment: Moment) -> str:
        """Return the next decision in words."""
        bid, bid_qty, ask, ask_qty = self.quotes(moment)
        away = lambda price: f"mid {price - moment.mid2 / 2:+.1f}".replace(".0", "")  # noqa: E731
        orders = [f"bid {bid_qty} at {bid} ({away(bid)})"] if bid_qty else []
        orders += [f"ask {ask_qty} at {ask} ({away(ask)})"] if ask_qty else []
        return f"next: {', '.join(orders) or 'no order'}"

    @property
    def _shown_size(self) -> int:
        return 0 if self.pulled else self.size

    def _share(self, qty: int) -> float:
        """Return the component of an action that stands for a quantity: 0 is -1, `max_qty` is 1."""
        return qty * (2.0 / self.task.max_qty) - 1.0


class MakerControls(Controls):
    """Two quotes: their distances from the mid in ticks, and one size for both."""

    keys = ("up down: wider, narrower", "right left: both quotes higher, lower", "c centre", *Controls.keys)

    def __init__(self, task: Any, speed: float = 2.0) -> None:
        super().__init__(task, speed)
        self.bid_offset = self.ask_offset = min(4, task.max_offset)

    def press(self, key: str) -> None:
        """See `Controls`."""
        bid, ask = {"up": (1, 1), "down": (-1, -1), "right": (-1, 1), "left": (1, -1)}.get(key, (0, 0))
        self._place(self.bid_offset + bid, self.ask_offset + ask)
        if key == "c":
            half = (self.bid_offset + self.ask_offset + 1) // 2
            self._place(half, half)
        super().press(key)

    def point(self, price: int, bid_side: bool, moment: Moment) -> None:
        """Place the quote of one side at a price."""
        if bid_side:
            self._place(moment.mid2 // 2 - price, self.ask_offset)
        else:
            self._place(self.bid_offset, price - (moment.mid2 + 1) // 2)

    def action(self) -> np.ndarray:
        """See `Controls`; bid offset, ask offset, bid size, ask size."""
        offsets = [offset * (2.0 / self.task.max_offset) - 1.0 for offset in (self.bid_offset, self.ask_offset)]
        return np.array(offsets + [self._share(self._shown_size)] * 2, dtype=np.float32).clip(-1.0, 1.0)

    def quotes(self, moment: Moment) -> Quotes:
        """See `Controls`."""
        size = self._shown_size
        return moment.mid2 // 2 - self.bid_offset, size, (moment.mid2 + 1) // 2 + self.ask_offset, size

    def _place(self, bid_offset: int, ask_offset: int) -> None:
        most = self.task.max_offset
        self.bid_offset, self.ask_offset = min(max(bid_offset, 0), most), min(max(ask_offset, 0), most)


class ExecutorControls(Controls):
    """One order on the side of the block: how many ticks through the mid, and its size."""

    keys = ("up down: further through the mid, behind it", "c at the mid", *Controls.keys)

    def __init__(self, task: Any, speed: float = 2.0) -> None:
        super().__init__(task, speed)
        self.through = 0

    def press(self, key: str) -> None:
        """See `Controls`."""
        self._place(self.through + {"up": 1, "down": -1}.get(key, 0))
        if key == "c":
            self.through = 0
        super().press(key)

    def buys(self, moment: Moment) -> bool:
        """Return whether the next order is a bid."""
        return moment.left > 0

    def point(self, price: int, bid_side: bool, moment: Moment) -> None:
        """Place the order at a price."""
        buys = self.buys(moment)
        self._place(price - moment.mid2 // 2 if buys else (moment.mid2 + 1) // 2 - price)

    def action(self) -> np.ndarray:
        """See `Controls`; aggression and size."""
        return np.array([self.through / self.task.max_offset, self._share(self._shown_size)], dtype=np.float32)

    def quotes(self, moment: Moment) -> Quotes:
        """See `Controls`."""
        return self._order(moment, min(self._shown_size, abs(moment.left)))

    def _order(self, moment: Moment, size: int) -> Quotes:
        if self.buys(moment):
            return moment.mid2 // 2 + self.through, size, 0, 0
        return 0, 0, (moment.mid2 + 1) // 2 - self.through, size

    def _place(self, through: int) -> None:
        self.through = min(max(through, -self.task.max_offset), self.task.max_offset)


class TraderControls(ExecutorControls):
    """One order on either side; none at the start, so that the first order is the player's."""

    keys = ("b buy", "s sell", *ExecutorControls.keys)

    def __init__(self, task: Any, speed: float = 2.0) -> None:
        super().__init__(task, speed)
        self.side, self.pulled = 1, True

    def press(self, key: str) -> None:
        """See `Controls`."""
        if key in ("b", "s"):
            self.side, self.pulled = (1 if key == "b" else -1), False
        super().press(key)

    def buys(self, moment: Moment) -> bool:
        """See `ExecutorControls`."""
        return self.side > 0

    def point(self, price: int, bid_side: bool, moment: Moment) -> None:
        """Place a bid or an ask at a price."""
        self.side, self.pulled = (1 if bid_side else -1), False
        super().point(price, bid_side, moment)

    def action(self) -> np.ndarray:
        """See `Controls`; signed size and aggression."""
        signed = self.side * self._shown_size / self.task.max_qty
        return np.array([signed, self.through / self.task.max_offset], dtype=np.float32)

    def quotes(self, moment: Moment) -> Quotes:
        """See `Controls`."""
        return self._order(moment, self._shown_size)
