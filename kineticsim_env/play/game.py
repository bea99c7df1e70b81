"""`Game`: a market that one person trades in, and how it ends; no screen is needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from kineticsim_env import policies
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.envs.vector import MarketVectorEnv
from kineticsim_env.evaluation import MEASURES, evaluation_env, liquidate, price_improvement
from kineticsim_env.play.controls import Controls, ExecutorControls, MakerControls, TraderControls
from kineticsim_env.policies import Policy
from kineticsim_env.render.recorder import MarketRecorder, Moment
from kineticsim_env.runtime.values import check_choice

GAMES: dict[str, tuple[str, type[Controls]]] = {  # by the word of the command line: the task and the keys
    "market_making": ("MarketMaking", MakerControls),
    "execution": ("Execution", ExecutorControls),
    "trading": ("Trading", TraderControls),
}
STOIKOV: dict[str, dict[str, float]] = {  # by preset, the best parameters of zoo/scripted_policies.json
    "news": {"risk": 0.0, "kappa": 0.5},
    "trading": {"risk": 0.02, "kappa": 0.18},
    "continuous": {"risk": 0.06, "kappa": 0.15},
}


def _rivals(task: str, preset: str) -> dict[str, Callable[[Any], Policy]]:
    """Return by name who plays the same market, made with the task."""
    stoikov = partial(policies.AvellanedaStoikov, **STOIKOV.get(preset, {}))
    rivals: dict[str, dict[str, Callable[[Any], Policy]]] = {
        "MarketMaking": {"Avellaneda-Stoikov": stoikov, "not trading": policies.NoTrade},
        "Execution": {"evenly over time": policies.TimeWeighted, "all at the deadline": policies.DoNothing},
        "Trading": {
            "momentum": policies.MomentumTrader,
            "mean reversion": policies.MeanReversionTrader,
            "not trading": policies.Hold,
        },
    }
    return rivals[task]


class Game:
    """One episode of one market, decided by `controls`, read by `recorder`, until it is `over`."""

    def __init__(
        self,
        task: str = "market_making",
        *,
        preset: str = EnvSettings.preset,
        seed: int = 0,
        horizon: int | None = None,
        speed: float = 2.0,
    ) -> None:
        """Open the market; `horizon` is the task's own if None, `speed` in decisions per second."""
        self._task, controls = GAMES[check_choice("task", task, GAMES)]
        self.preset, self.seed = preset, seed
        self._settings: dict[str, Any] = {} if horizon is None else {"horizon": horizon}
        self._envs = self._make()
        self.recorder = MarketRecorder(self._envs.core)
        self.recorder.show_fundamental = False  # what no learner sees, until the end
        self.controls = controls(self._envs.core.task, speed)
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
        # Time that passed while the window was dragged is dropped, so that the game does not rush to catch up.
        # A slow game waits longer than a second for each decision, hence the larger of two limits.
        self._waited = min(self._waited + seconds, max(1.0, 1.5 / controls.speed))
        while self._waited * controls.speed >= 1.0 and not self.over:
            self._waited -= 1.0 / controls.speed
            made += self._decide()
        return made

    def status(self) -> str:
        """Return whether and how fast time passes."""
        if self.over:
            return "the episode is over"
        return "paused" if self.controls.paused else f"{self.controls.speed:g} decisions per second"

    def result(self) -> str:
        """Return a table of what the player and others have after as many decisions, each in the same market.

        What is held is sold off first; what is left of a block is forced through at the deadline.
        """
        task, played = self._envs.core.task, len(self._actions)
        rows = [("you", self._money(_replay(self._actions)))]
        rows += [(name, self._money(make(task))) for name, make in _rivals(self._task, self.preset).items()]
        head = f"seed {self.seed}, preset {self.preset}, {played} of {task.horizon} decisions"
        lines = [head, f"{'':22} {MEASURES[self._task]:>32}"]
        return "\n".join(lines + [f"{who:22} {money:>32,.2f}" for who, money in rows])

    def _make(self) -> MarketVectorEnv:
        return evaluation_env(1, self._task, preset=self.preset, **self._settings)

    def _decide(self) -> int:
        action = torch.from_numpy(self.controls.action())[None].to(self._envs.device)
        self._actions.append(action)
        _, _, terminated, truncated, _ = self._envs.step(action)
        self.over = bool(terminated) or bool(truncated)
        self.recorder.show_fundamental = self.over and self.recorder.has_fundamental
        self.recorder.record()
        return 1

    def _money(self, policy: Policy) -> float:
        """Return what a policy has after as many decisions as the player made, in a market of its own."""
        envs = self._make()
        observation, _ = envs.reset(seed=self.seed)
        executes, done, step = self._task == "Execution", False, 0
        idle = policies.DoNothing(envs.core.task)
        while not done and (executes or step < len(self._actions)):
            stopped = step >= len(self._actions) and not self.over  # the player left before the deadline
            observation, _, terminated, truncated, _ = envs.step((idle if stopped else policy)(observation))
            done, step = bool(terminated) or bool(truncated), step + 1
        if executes:
            return float(price_improvement(envs)[0])
        liquidate(envs.simulator)
        return float(envs.simulator.money[0, 0])


def _replay(actions: list[torch.Tensor]) -> Policy:
    """Return a policy that repeats recorded actions."""
    left = iter(actions)
    return lambda observation: next(left)
