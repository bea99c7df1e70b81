"""Objects of every public class, small and on one engine, for the calls of `surface.py`."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import kineticsim_env as ks
from kineticsim_env import evaluation, policies, wrappers
from kineticsim_env.counterfactuals import block_impact, counterfactual
from kineticsim_env.envs.counterfactual_episodes import EnvCounterfactual
from kineticsim_env.envs.vector import ExecutionVectorEnv, MarketMakingVectorEnv, TradingVectorEnv
from kineticsim_env.render import MarketRecorder
from kineticsim_env.render.picture import Picture
from kineticsim_env.statistics import Mean

MARKETS = 3  # of everything that is open: the wrong tensors of values.py often have as many rows
SMALL: dict[str, Any] = {"bank_size": 2, "warmup": 1, "horizon": 5, "max_qty": 8}


def sized_config(**changes: Any) -> ks.MarketConfig:
    """Return a small market with some fields changed."""
    return ks.MarketConfig.preset("trading", num_levels=32, init_price=16, window=4, num_agents=10, **changes)


@functools.cache
def small_config() -> ks.MarketConfig:
    """Return a small market with all options."""
    return sized_config(noise=0.3, momentum=0.2, maker=0.2, fundamental=0.3)


class World:
    """Objects of every public class, opened when first asked for, on one engine."""

    def __init__(self, engine: str) -> None:
        """Open nothing yet."""
        self.engine = engine
        self.opened: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Return an object by its name in INSTANCES."""
        if name not in self.opened:
            self.opened[name] = INSTANCES[name](self)
        return self.opened[name]

    def forget(self, name: str) -> None:
        """Open it anew the next time: something may have gone wrong with it."""
        self.opened.pop(name, None)

    def settings(self) -> dict[str, Any]:
        """Return what makes an environment small."""
        return {"config": small_config(), "engine": self.engine, **SMALL}


def _reset(env: Any) -> Any:
    env.reset() if "adapters" in type(env).__module__ else env.reset(seed=0)
    return env


def _torch_env(w: World, **changes: Any) -> Any:
    return MarketMakingVectorEnv(MARKETS, output="torch", **{**w.settings(), **changes})


def _evaluation_env(w: World, task: str) -> Any:
    settings = w.settings()
    if task == "Execution":
        settings["block_qty"] = 4
    return evaluation.evaluation_env(MARKETS, task, **settings)


def _adapter(name: str, kind: str) -> Callable[[World], Any]:
    def make(w: World) -> Any:
        module = importlib.import_module(f"kineticsim_env.adapters.{name}")
        if kind.endswith(("GroupVecEnv", "MultiEnv")):
            return _reset(getattr(module, kind)(w["batched of one role"]))
        return _reset(getattr(module, kind)("KineticSim/MarketMaking-v0", num_envs=MARKETS, **w.settings()))

    return make


def _seen_recorder(w: World) -> MarketRecorder:
    recorder = MarketRecorder(w["vector"].core)
    recorder.record()
    return recorder


def _idle_arms() -> dict[str, np.ndarray]:
    return {name: np.zeros((3, 3)) for name in ("mid2", "last_price", "fundamental", "volume")}


INSTANCES: dict[str, Callable[[World], Any]] = {
    "simulator": lambda w: ks.Simulator(small_config(), MARKETS, engine=w.engine, slots=("maker", None)),
    "simulator without slots": lambda w: ks.Simulator(small_config(), MARKETS, engine=w.engine),
    "vector": lambda w: _reset(MarketMakingVectorEnv(MARKETS, **w.settings())),
    "vector discrete": lambda w: _reset(
        TradingVectorEnv(MARKETS, action_type="discrete", autoreset_mode="NEXT_STEP", **w.settings())
    ),
    "vector torch": lambda w: _reset(_torch_env(w, autoreset_mode="NEXT_STEP", copy=False)),
    "vector random": lambda w: _reset(
        ExecutionVectorEnv(MARKETS, randomise={"fee": (0, 9)}, num_scenarios=3, block_qty=4, **w.settings())
    ),
    "vector ansi": lambda w: _reset(MarketMakingVectorEnv(MARKETS, render_mode="ansi", **w.settings())),
    "single": lambda w: _reset(gym.make("KineticSim/MarketMaking-v0", **w.settings()).unwrapped),
    "single discrete": lambda w: _reset(
        gym.make("KineticSim/Execution-v0", action_type="discrete", block_qty=4, **w.settings()).unwrapped
    ),
    "parallel": lambda w: _reset(ks.parallel_env({"maker": 1, "trader": 1}, **w.settings())),
    "parallel discrete": lambda w: _reset(ks.parallel_env({"noise": 2}, action_type="discrete", **w.settings())),
    "batched": lambda w: _reset(ks.BatchedParallelEnv(MARKETS, {"maker": 2, "trader": 1}, **w.settings())),
    "batched of one role": lambda w: _reset(ks.BatchedParallelEnv(MARKETS, {"maker": 2}, **w.settings())),
    "batched discrete": lambda w: _reset(
        ks.BatchedParallelEnv(MARKETS, {"momentum": 1}, action_type="discrete", copy=False, **w.settings())
    ),
    "RecordEpisodeStatistics": lambda w: _reset(wrappers.RecordEpisodeStatistics(_torch_env(w))),
    "NormalizeObservation": lambda w: _reset(wrappers.NormalizeObservation(_torch_env(w))),
    "NormalizeReward": lambda w: _reset(wrappers.NormalizeReward(_torch_env(w))),
    "RunningMeanStd": lambda w: wrappers.RunningMeanStd((4,), torch.device("cpu")),
    "config": lambda w: small_config(),
    "counterfactual result": lambda w: counterfactual(
        small_config(), np.zeros((2, MARKETS, 1, 4), np.int32), MARKETS, engine=w.engine, after=2
    ),
    "block impact": lambda w: block_impact(
        small_config(), block=2, per_auction=1, after=4, num_markets=MARKETS, engine=w.engine, warmup=2
    ),
    "env counterfactual result": lambda w: EnvCounterfactual(
        _idle_arms(), _idle_arms(), _idle_arms(), np.zeros((3, 2, 2)), np.zeros((3, 2))
    ),
    "evaluation result": lambda w: evaluation.Evaluation(*(np.ones(3) for _ in range(9))),
    "evaluation MarketMaking": lambda w: _evaluation_env(w, "MarketMaking"),
    "evaluation Execution": lambda w: _evaluation_env(w, "Execution"),
    "evaluation Trading": lambda w: _evaluation_env(w, "Trading"),
    "MarketMaking task": lambda w: ks.MarketMakingTask(**SMALL),
    "Execution task": lambda w: ks.ExecutionTask(**SMALL),
    "Trading task": lambda w: ks.TradingTask(**SMALL),
    "ManyLearners task": lambda w: ks.ManyLearnersTask(**SMALL),
    "mean": lambda w: Mean(1.0, 0.1, 3),
    "recorder": _seen_recorder,
    "picture": lambda w: Picture(),
    "moment": lambda w: w["recorder"].moment,
    "SB3VecEnv": _adapter("sb3", "SB3VecEnv"),
    "SB3GroupVecEnv": _adapter("sb3", "SB3GroupVecEnv"),
    "SkrlEnv": _adapter("skrl", "SkrlEnv"),
    "SkrlMultiEnv": _adapter("skrl", "SkrlMultiEnv"),
}
_TASK_OF = {"makers": "MarketMaking", "executors": "Execution", "traders": "Trading", "attackers": "MarketMaking"}
POLICIES = {
    name: kind
    for module in (policies, policies.attackers)
    for name in module.__all__
    if inspect.isclass(kind := getattr(module, name)) and name != "Policy"
}


def task_of_policy(name: str) -> str:
    """Return the task that a scripted policy is for."""
    kind = POLICIES[name]
    if "Executor" in name:
        return "Execution"
    if "Trader" in name:
        return "Trading"
    return _TASK_OF.get(kind.__module__.rsplit(".", 1)[-1], "MarketMaking")


def _policy(name: str, w: World) -> Any:
    task = w[f"{task_of_policy(name)} task"]
    if name == "Discretised":
        return policies.Discretised(policies.NoTrade(task), task)
    return POLICIES[name](task)


for _name in POLICIES:
    INSTANCES[f"policy {_name}"] = functools.partial(_policy, _name)
