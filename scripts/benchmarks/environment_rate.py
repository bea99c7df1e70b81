"""Environment steps per second: `gym.make_vec` with torch output and random actions drawn on the device.

Two ways to step it, as the suite's backends: a plain Python loop, and a captured CUDA graph. Each again with a reward
that a user would write, in two lines, which is the built-in one in other words. Before it is timed, every observation,
reward and flag of its first steps is compared with an engine of another kind, which pays the built-in reward.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime import build, kernels
from kineticsim_env.tasks import MarketMakingTask
from scripts.benchmarks.backend import Workload

_COMPARED_STEPS, _COMPARED_MARKETS = 6, 1024
_STEPS_A_GRAPH = 50
OWN_REWARD = "own reward"
_PENALTY, _SCALE = MarketMakingTask.inventory_penalty, MarketMakingTask.reward_scale
_NAMES = ("observation", "reward", "terminated", "truncated")


def own_reward(before: Any, after: Any) -> torch.Tensor:
    """The default reward of market making, as a user would write it; to the bit, as there are no fees."""
    pnl = after.value - before.value
    return (pnl - _PENALTY * after.inventory * after.inventory) / _SCALE


class EnvironmentSteps:
    """`KineticSim/MarketMaking-v0` under random actions, one auction per step, SAME_STEP autoreset."""

    def __init__(self, device: str, graph: bool = False, own: bool = False) -> None:
        """Name it, on "cuda" or "cpu": steps from a CUDA graph or Python, with `own_reward` or the built-in one."""
        self.device, self._graph, self._own = device, graph, own
        words = ["CUDA graph" if graph else "Python", *["CPU"] * (device == "cpu"), *[OWN_REWARD] * own]
        self.name = f"environment ({', '.join(words)})"

    def unavailable(self) -> str | None:
        """Say what is missing, or None."""
        return kernels.cuda_unavailable() if self.device == "cuda" else build.cpu_unavailable()

    def prepare(self, workload: Workload) -> None:
        """Open the markets, and capture the graphs."""
        self._envs = _make(workload, self.device, reward=own_reward if self._own else "inventory")
        self._envs.reset(seed=workload.seed)
        self._actions = torch.zeros(workload.markets, 4, device=self._envs.unwrapped.core.device)
        self._workload, self._graphs = workload, {}
        self._step()
        if self._graph:
            self.synchronize()
            for length in (1, _STEPS_A_GRAPH):
                self._graphs[length] = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self._graphs[length]):
                    for _ in range(length):
                        self._step()

    def _step(self) -> None:
        self._actions.uniform_(-1.0, 1.0)
        self._results = self._envs.step(self._actions)

    def reset(self) -> None:
        """Begin the first episodes again."""
        self._envs.reset(seed=self._workload.seed)

    def run(self, steps: int) -> None:
        """Play decisions in all markets."""
        if not self._graph:
            for _ in range(steps):
                self._step()
            return
        for _ in range(steps // _STEPS_A_GRAPH):
            self._graphs[_STEPS_A_GRAPH].replay()
        for _ in range(steps % _STEPS_A_GRAPH):
            self._graphs[1].replay()

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def first_difference(self) -> tuple[str | None, str]:
        """Play the same few steps on another engine; return the first difference in words, or None, and that engine."""
        engine = "cpu" if self.device == "cuda" else "numpy"
        few = min(self._workload.markets, _COMPARED_MARKETS)  # what a market does is the same among fewer
        other = _make(dataclasses.replace(self._workload, markets=few), engine)
        other.reset(seed=self._workload.seed)
        self.reset()
        for step in range(_COMPARED_STEPS):
            self.run(1)
            self.synchronize()
            mine, theirs = _arrays(self._results), _arrays(other.step(self._actions[:few].cpu()))
            for name, values in mine.items():
                wrong = values[:few] != theirs[name]
                if wrong.any():
                    market = int(wrong.nonzero()[0][0])
                    return f"{name} of market {market} after step {step + 1} differs from engine {engine}", engine
        return None, engine

    def close(self) -> None:
        """Give memory back."""
        self._envs.close()
        self._graphs = {}
        del self._envs, self._actions, self._results


def _make(workload: Workload, engine: str, reward: Any = "inventory") -> Any:
    config = MarketConfig.preset("trading", num_agents=workload.agents)
    # As in training: every market has parameters of its own, the same ones among fewer markets.
    spread = np.random.default_rng(workload.seed).uniform(0.9, 1.1, (workload.markets, 2)).T
    config = config.replace(
        market_order_prob=config.market_order_prob * spread[0], walk_prob=config.walk_prob * spread[1]
    )
    return gym.make_vec(
        "KineticSim/MarketMaking-v0",
        num_envs=workload.markets,
        config=config,
        engine=engine,
        output="torch",
        copy=False,
        reward=reward,
    )


def _arrays(results: tuple[Any, ...]) -> dict[str, torch.Tensor]:
    """Return the results of a step by name, on the host."""
    named = dict(zip(_NAMES, results, strict=False)) | {"final_obs": results[-1]["final_obs"]}
    return {name: values.cpu() for name, values in named.items()}
