"""Two arms of an environment: one where the learner acts, and one with the same seeds where it does nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from kineticsim_env.envs.core import EnvCore
from kineticsim_env.runtime.values import (
    check_callable,
    check_choice,
    check_count,
    check_progress,
    is_one_of,
    progress_bar,
    show,
)
from kineticsim_env.statistics.over_markets import half_width


class EnvCounterfactual(NamedTuple):
    """What a policy did to its markets; M markets, T decisions, all float64.

    An arm's own numbers are NaN once its episode has ended, so that an episode's rewards are all there; differences,
    which are of two markets in the same decision, once either arm's has.
    """

    with_agent: dict[str, np.ndarray]  # [M, T + 1] of mid2, last_price, fundamental, volume (units so far)
    without_agent: dict[str, np.ndarray]
    difference: dict[str, np.ndarray]  # the first less the second
    fills: np.ndarray  # [M, T, 2]: units the learner bought and sold in each decision
    reward: np.ndarray  # [M, T], of the arm in which it acts

    def mean_difference(self, name: str = "mid2") -> tuple[np.ndarray, np.ndarray]:
        """Return the mean of a difference over the markets that live, and half of its 95% interval; `[T + 1]` each."""
        values = self.difference[check_choice("name", name, self.difference)]
        lived = ~np.isnan(values)
        count = lived.sum(0)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.where(lived, values, 0.0).sum(0) / count
            spread = np.where(lived, values - mean, 0.0)
            return mean, half_width(np.sqrt((spread**2).sum(0) / (count - 1) / count), count)


@torch.no_grad()
def env_counterfactual(
    make: Callable[[], Any],
    policy: Callable[[torch.Tensor], torch.Tensor],
    *,
    seed: Any = 0,
    decisions: int | None = None,
    progress: bool | None = None,
) -> EnvCounterfactual:
    """Play one episode of each market twice, with the same seeds: the policy acts in one arm only.

    The idle learner of the other arm gives the action that trades nothing. What an environment does by itself it does
    in both arms: an executor's block that is not done at the deadline is executed there, so compare before it.

    Args:
        make: Called twice; returns an environment with torch output, autoreset DISABLED, no stagger and
            `decide="interval"`, such as `lambda: evaluation_env(1024)`.
        policy: Maps observations `[M, F]` to actions.
        seed: Of the episodes, as in `reset`.
        decisions: T; the task's horizon if None.
        progress: True or False shows or hides the bar; None shows it after two seconds.

    Raises:
        ValueError: If `make` returns another kind of environment.
    """
    check_callable("make", make, "a function that returns an environment")
    check_callable("policy", policy, "a function of observations that returns actions")
    progress = check_progress(progress)
    arms = [_PlayedArm(make(), seed) for _ in range(2)]
    horizon = arms[0].envs.core.task.horizon
    decisions = horizon if decisions is None else check_count("decisions", decisions, 1)
    if decisions > horizon:
        raise ValueError(f"decisions: expected up to the horizon, {horizon}, got {decisions}")
    idle = idle_action(arms[1].envs)
    fills, rewards = [], []
    with progress_bar(progress, "both arms", "decision", decisions) as bar:
        for _ in range(decisions):
            alive = arms[0].alive.clone()
            reward, filled = arms[0].step(policy(arms[0].observation))
            arms[1].step(idle)
            rewards.append(torch.where(alive, reward.double(), torch.nan))
            fills.append(torch.where(alive[:, None], filled.double(), torch.nan))
            bar.update()
    with_agent, without_agent = (arm.series() for arm in arms)
    difference = {name: with_agent[name] - without_agent[name] for name in with_agent}
    host = [torch.stack(parts, dim=1).cpu().numpy() for parts in (fills, rewards)]
    return EnvCounterfactual(with_agent, without_agent, difference, *host)


def idle_action(envs: Any) -> torch.Tensor:
    """Return the action of a learner that does nothing, in the form `envs.step` takes."""
    if len(envs.core.roles) != 1:
        raise ValueError(f"make: expected an environment of one learner per market, got {len(envs.core.roles)}")
    if envs.core.own is not None and envs.core.own.acts:
        raise ValueError("make: expected an environment with built-in actions, got one with a custom action_space")
    if hasattr(envs.single_action_space, "n"):
        return torch.zeros(envs.num_envs, dtype=torch.int64, device=envs.device)  # choice 0 holds, for every role
    row = torch.tensor(envs.core.task.action_form(envs.core.roles[0]).idle, dtype=torch.float32, device=envs.device)
    return row.expand(envs.num_envs, -1).contiguous()


class _PlayedArm:
    """One environment and what was seen of its markets; a market whose episode ended is reset, and left out."""

    def __init__(self, envs: Any, seed: Any) -> None:
        core, output = getattr(envs, "core", None), getattr(envs, "output", None)
        whole = getattr(envs, "autoreset_mode", None) is AutoresetMode.DISABLED
        if not (whole and isinstance(core, EnvCore) and not core.settings.stagger and is_one_of(output, ("torch",))):
            allowed = "one with torch output, autoreset DISABLED and no stagger"
            raise ValueError(f"make: expected {allowed}, got {show(envs)}")
        if core.task.decides_at_events:
            raise ValueError(
                f"make: expected an environment with decide='interval', got one with {core.task.decide!r}: arms are "
                "compared decision by decision, which would end at different events"
            )
        self.envs = envs
        self.observation, _ = envs.reset(seed=seed)
        self.alive = torch.ones(envs.num_envs, dtype=torch.bool, device=envs.device)
        self._seen: list[dict[str, torch.Tensor]] = []
        self._look()

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Play a decision; return the reward `[M]` and the fills `[M, 2]` of it."""
        envs = self.envs
        self.observation, reward, terminated, truncated, _ = envs.step(actions)
        reward, fills = reward.clone(), envs.fills.clone()
        self._look()
        ended = terminated | truncated
        if bool(ended.any()):
            self.alive = self.alive & ~ended
            self.observation, _ = envs.reset(options={"reset_mask": ended})
        return reward, fills

    def _look(self) -> None:
        simulator = self.envs.simulator
        seen = {
            "mid2": simulator.mid2,
            "last_price": simulator.last_price,
            "fundamental": simulator.fundamental_price,
            "volume": simulator.volume,
        }
        self._seen.append({name: torch.where(self.alive, value.double(), torch.nan) for name, value in seen.items()})

    def series(self) -> dict[str, np.ndarray]:
        """Return what was seen, float64 `[M, T + 1]` each."""
        names = self._seen[0]
        return {name: torch.stack([seen[name] for seen in self._seen], dim=1).cpu().numpy() for name in names}
