"""`Game`: a market that one person trades in, and what keys mean there; no screen is needed.

Keys have names: "up", "down", "left", "right", "space", "enter", or the character. A task that can be played has a
class of `Controls` in `CONTROLS`.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from kineticsim_env.evaluation import evaluation_env, liquidate
from kineticsim_env.policies import AvellanedaStoikov, Policy
from kineticsim_env.render.recorder import MarketRecorder, Moment

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # decisions a second


class Controls:
    """What every game has: pausing, single decisions, speed, the end."""

    keys = ("space pause", "n one decision", ", . slower/faster", "q quit")

    def __init__(self, speed: float = 2.0) -> None:
        """Begin paused, so that nothing is missed."""
        self.paused, self.quit, self.single = True, False, 0
        self.speed = float(speed)

    def press(self, key: str) -> None:
        """Do what a key says; unknown keys do nothing."""
        if key == "space":
            self.paused = not self.paused
        elif key in ("n", "enter"):
            self.paused, self.single = True, self.single + 1
        elif key in (",", "<"):
            self.speed = max((speed for speed in SPEEDS if speed < self.speed), default=SPEEDS[0])
        elif key in (".", ">"):
            self.speed = min((speed for speed in SPEEDS if speed > self.speed), default=SPEEDS[-1])
        elif key == "q":
            self.quit = True

    def point(self, price: int, bid_side: bool, mid2: int) -> None:
        """Do what a click on the ladder says; nothing here."""


class MakerControls(Controls):
    """Two quotes: their distances from the mid in ticks, one size for both, and whether they are pulled."""

    keys = (
        "up down: wider, narrower",
        "right left: both quotes higher, lower",
        "c centre",
        "+ - size",
        "x pull/place",
        *Controls.keys,
    )

    def __init__(self, task, speed: float = 2.0) -> None:
        """Begin with quotes 4 ticks from the mid, as far as the task allows."""
        super().__init__(speed)
        self.task = task
        self.bid_offset = self.ask_offset = min(4, task.max_offset)
        self.size, self.pulled = task.max_qty, False

    def press(self, key: str) -> None:
        """See `Controls`."""
        bid, ask = {"up": (1, 1), "down": (-1, -1), "right": (-1, 1), "left": (1, -1)}.get(key, (0, 0))
        self._place(self.bid_offset + bid, self.ask_offset + ask)
        if key == "c":
            half = (self.bid_offset + self.ask_offset + 1) // 2
            self._place(half, half)
        elif key in ("+", "="):
            self.size = min(self.size + 1, self.task.max_qty)
        elif key in ("-", "_"):
            self.size = max(self.size - 1, 1)
        elif key == "x":
            self.pulled = not self.pulled
        super().press(key)

    def point(self, price: int, bid_side: bool, mid2: int) -> None:
        """Place the quote of one side at a price."""
        if bid_side:
            self._place(mid2 // 2 - price, self.ask_offset)
        else:
            self._place(self.bid_offset, price - (mid2 + 1) // 2)

    def _place(self, bid_offset: int, ask_offset: int) -> None:
        self.bid_offset, self.ask_offset = (
            min(max(offset, 0), self.task.max_offset) for offset in (bid_offset, ask_offset)
        )

    def action(self) -> np.ndarray:
        """Return the action that quotes this, float32 `[4]`."""
        sizes = [0 if self.pulled else self.size] * 2
        offsets = np.array([self.bid_offset, self.ask_offset]) * (2.0 / self.task.max_offset) - 1.0
        sizes = np.array(sizes) * (2.0 / self.task.max_qty) - 1.0
        return np.concatenate([offsets, sizes]).astype(np.float32).clip(-1.0, 1.0)

    def quotes(self, mid2: int) -> tuple[int, int, int, int]:
        """Return the quotes of the next decision, before limits: bid price and quantity, ask price and quantity."""
        size = 0 if self.pulled else self.size
        return mid2 // 2 - self.bid_offset, size, (mid2 + 1) // 2 + self.ask_offset, size

    def describe(self, mid2: int) -> str:
        """Return the next decision in words."""
        bid, size, ask, _ = self.quotes(mid2)
        if self.pulled:
            return "next: no quotes"
        return f"next: bid {size} at {bid} (mid -{self.bid_offset}), ask {size} at {ask} (mid +{self.ask_offset})"


CONTROLS = {"market_making": MakerControls}
# With the best parameters that examples/ppo_market_maker.py found on training seeds (docs/ppo_results.md).
_RIVALS = {"market_making": ("Avellaneda-Stoikov", partial(AvellanedaStoikov, risk=0.01, kappa=0.18))}


class Game:
    """One episode of one market, decided by `controls`.

    Attributes:
        controls: What the player wants; keys go to `controls.press`.
        recorder: The market and its path.
        over: Whether the episode has ended.
    """

    def __init__(
        self,
        task: str = "market_making",
        *,
        preset: str = "trading",
        seed: int = 0,
        horizon: int = 300,
        speed: float = 2.0,
    ) -> None:
        """Open the market.

        Args:
            task: One of `CONTROLS`.
            preset: As in `MarketConfig.preset`.
            seed: Of the market.
            horizon: Decisions.
            speed: Decisions a second at the start.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
        """
        if task not in CONTROLS:
            raise ValueError(f"task: got {task!r}, allowed are {', '.join(map(repr, CONTROLS))}")
        self.task_name, self.preset, self.seed, self.horizon = task, preset, seed, horizon
        self._envs = self._make()
        self.recorder = MarketRecorder(self._envs.core)
        self.controls = CONTROLS[task](self._envs.core.task, speed)
        self._envs.reset(seed=seed)
        self.recorder.record()
        self.over, self._waited = False, 0.0

    @property
    def moment(self) -> Moment:
        """The market as it is."""
        assert self.recorder.moment is not None
        return self.recorder.moment

    def advance(self, seconds: float) -> int:
        """Let time pass, and make the decisions that fall into it; return how many."""
        controls, made = self.controls, 0
        while controls.single and not self.over:
            controls.single -= 1
            made += self._decide()
        controls.single = 0
        if controls.paused:
            self._waited = 0.0
            return made
        self._waited = min(self._waited + seconds, 1.0)  # a window that was dragged about does not race afterwards
        while self._waited * controls.speed >= 1.0 and not self.over:
            self._waited -= 1.0 / controls.speed
            made += self._decide()
        return made

    def status(self) -> str:
        """Return whether and how fast time passes."""
        if self.over:
            return "the episode is over"
        return "paused" if self.controls.paused else f"{self.controls.speed:g} decisions a second"

    def result(self) -> str:
        """Return a table of what is left once the inventory is unwound, for the player and for a scripted trader."""
        name, make = _RIVALS[self.task_name]
        decisions = self.moment.elapsed
        rows = [("you", _liquidated(self._envs))]
        rows.append((name, self._play(make(self._envs.core.task), decisions)))
        rows.append(("not trading", 0.0))
        head = f"seed {self.seed}, preset {self.preset}, {decisions} of {self.horizon} decisions"
        lines = [head, f"{'':22} liquidated PnL, ticks", *(f"{who:22} {money:>21,.1f}" for who, money in rows)]
        return "\n".join(lines)

    def _make(self):  # noqa: ANN202
        return evaluation_env(1, preset=self.preset, horizon=self.horizon, engine="auto")

    def _decide(self) -> int:
        action = torch.from_numpy(self.controls.action())[None].to(self._envs.device)
        _, _, terminated, truncated, _ = self._envs.step(action)
        self.over = bool(terminated) or bool(truncated)
        self.recorder.record()
        return 1

    def _play(self, policy: Policy, decisions: int) -> float:
        """Return a policy's liquidated PnL after as many decisions in the same market."""
        envs = self._make()
        observation, _ = envs.reset(seed=self.seed)
        for _ in range(decisions):
            observation, *_ = envs.step(policy(observation))
        return _liquidated(envs)


def _liquidated(envs) -> float:  # noqa: ANN001
    """Unwind the inventory in a copy of the market, and return the money, in ticks."""
    twin = envs.simulator.branch()
    cash = liquidate(twin)  # fees are counted once the inventory is unwound, as unwinding costs them too
    return float(cash[0, 0]) - float(twin.fees[0, 0]) / 1000
