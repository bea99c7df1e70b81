"""`Game`: a market that one person trades in, and how it ends; no screen is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kineticsim_env.evaluation import HELD_OUT_WARM_SEED, liquidate
from kineticsim_env.play.controls import Controls, ExecutorControls, MakerControls, TraderControls
from kineticsim_env.policies import AvellanedaStoikov
from kineticsim_env.render.recorder import MarketRecorder, Moment
from kineticsim_env.tasks import ExecutionTask
from kineticsim_env.vector_env import ExecutionVectorEnv, MarketMakingVectorEnv, MarketVectorEnv, TradingVectorEnv

Trader = Callable[[torch.Tensor], torch.Tensor]  # observations [1, F] to actions [1, A]

GAMES: dict[str, tuple[type[MarketVectorEnv], type[Controls]]] = {
    "market_making": (MarketMakingVectorEnv, MakerControls),
    "execution": (ExecutionVectorEnv, ExecutorControls),
    "trading": (TradingVectorEnv, TraderControls),
}


class Game:
    """One episode of one market, decided by `controls`.

    Attributes:
        controls: What the player wants.
        recorder: The market and its path.
        over: Whether the episode has ended.
    """

    def __init__(
        self,
        task: str = "market_making",
        *,
        preset: str = "trading",
        seed: int = 0,
        horizon: int | None = None,
        speed: float = 2.0,
    ) -> None:
        """Open the market.

        Args:
            task: One of `GAMES`.
            preset: As in `MarketConfig.preset`.
            seed: Of the market.
            horizon: Decisions; the task's own if None.
            speed: Decisions a second at the start.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
        """
        if task not in GAMES:
            raise ValueError(f"task: got {task!r}, allowed are {', '.join(map(repr, GAMES))}")
        self.task_name, self.preset, self.seed = task, preset, seed
        self._settings: dict[str, Any] = {} if horizon is None else {"horizon": horizon}
        self._envs = self._make()
        self.recorder = MarketRecorder(self._envs.core)
        self.recorder.show_fundamental = False  # what no learner sees, until the end
        self.controls = GAMES[task][1](self._envs.core.task, speed)
        self._envs.reset(seed=seed)
        self.recorder.record()
        self._actions: list[torch.Tensor] = []
        self.over, self._waited = False, 0.0

    @property
    def moment(self) -> Moment:
        """The market as it is."""
        assert self.recorder.moment is not None
        return self.recorder.moment

    def press(self, key: str) -> None:
        """Do what a key says; a single decision is made at once, before the next key changes it."""
        self.controls.press(key)
        if self.controls.single and not self.over:
            self._decide()
        self.controls.single = False

    def advance(self, seconds: float) -> int:
        """Let time pass, and make the decisions that fall into it; return how many."""
        controls, made = self.controls, 0
        if controls.paused:
            self._waited = 0.0
            return 0
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
        """Return a table of what the player and others have in the end, each in the same market.

        What is held is sold off first (market making, trading); what is left of a block is forced through at the
        deadline. Others play as many decisions as the player did.
        """
        task, played = self._envs.core.task, len(self._actions)
        rows = [("you", self._money(_replay(self._actions)))]
        if self.task_name == "market_making":  # the best parameters of docs/ppo_results.md
            rival = AvellanedaStoikov(task, risk=0.01, kappa=0.18)
            rows += [("Avellaneda-Stoikov", self._money(rival)), ("not trading", 0.0)]
        elif self.task_name == "execution":
            rows += [("evenly over time", self._money(_evenly(task))), ("forced at the end", self._money(_idle))]
        else:
            rows += [("not trading", 0.0)]
        what = "ticks a unit against arrival" if self.task_name == "execution" else "liquidated PnL, ticks"
        head = f"seed {self.seed}, preset {self.preset}, {played} of {task.horizon} decisions"
        return "\n".join([head, f"{'':22} {what:>28}", *(f"{who:22} {money:>28,.2f}" for who, money in rows)])

    def _make(self) -> MarketVectorEnv:
        return GAMES[self.task_name][0](
            1,
            preset=self.preset,
            output="torch",
            autoreset_mode="DISABLED",
            stagger=False,
            warm_seed=HELD_OUT_WARM_SEED,
            **self._settings,
        )

    def _decide(self) -> int:
        action = torch.from_numpy(self.controls.action())[None].to(self._envs.device)
        self._actions.append(action)
        _, _, terminated, truncated, _ = self._envs.step(action)
        self.over = self.recorder.show_fundamental = bool(terminated) or bool(truncated)
        self.recorder.record()
        return 1

    def _money(self, trader: Trader) -> float:
        """Return what a trader has after as many decisions as the player made, in a market of its own."""
        envs = self._make()
        observation, _ = envs.reset(seed=self.seed)
        blocks, done, step = self.task_name == "execution", False, 0
        while not done and (blocks or step < len(self._actions)):
            left_off = blocks and step >= len(self._actions) and not self.over
            action = (_idle if left_off else trader)(observation)
            observation, _, terminated, truncated, _ = envs.step(action)
            done, step = bool(terminated) or bool(truncated), step + 1
        simulator, task = envs.simulator, envs.core.task
        if not blocks:
            cash = liquidate(simulator)
            return float(cash[0, 0]) - float(simulator.fees[0, 0]) / 1000
        assert isinstance(task, ExecutionTask)
        watched = MarketRecorder(envs.core)
        watched.record()
        return float(watched.money_path()[-1]) / task.block_qty


def _replay(actions: list[torch.Tensor]) -> Trader:
    """Return a trader that does what was done, and then nothing."""
    left = iter(actions)
    return lambda observation: next(left, _idle(observation))


def _idle(observation: torch.Tensor) -> torch.Tensor:
    """Return the executor's action of no order."""
    return torch.full((1, 2), -1.0, device=observation.device)


def _evenly(task: Any) -> Trader:
    """Return an executor that sends an equal share of what is left at every decision, far through the mid."""

    def act(observation: torch.Tensor) -> torch.Tensor:
        left = float(observation[0, 30].abs()) * task.block_qty
        decisions = max(round(float(observation[0, 32]) * task.horizon), 1)
        size = min(float(np.ceil(left / decisions - 1e-6)), task.max_qty)
        action = [min(6 / task.max_offset, 1.0), size * 2.0 / task.max_qty - 1.0]
        return torch.tensor([action], dtype=torch.float32, device=observation.device)

    return act
