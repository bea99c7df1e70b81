"""Everything public that can be called: found by walking the package, with valid arguments for each by their names.

`calls.py` replaces some of them by wrong ones. What is not called, and why, is in LEFT_OUT.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import kineticsim_env as ks
from kineticsim_env import config as config_module
from kineticsim_env import policies
from kineticsim_env.tasks import TASKS
from kineticsim_env.tasks.base import CHANGEABLE
from scripts.fuzz.world import INSTANCES, MARKETS, POLICIES, World, sized_config, small_config, task_of_policy

MODULES = (
    "kineticsim_env",
    "kineticsim_env.config",
    "kineticsim_env.counterfactuals",
    "kineticsim_env.evaluation",
    "kineticsim_env.envs.parallel",
    "kineticsim_env.policies",
    "kineticsim_env.policies.attackers",
    "kineticsim_env.render",
    "kineticsim_env.envs.single",
    "kineticsim_env.tasks",
    "kineticsim_env.envs.vector",
    "kineticsim_env.wrappers",
    "kineticsim_env.adapters.sb3",
    "kineticsim_env.adapters.skrl",
    "kineticsim_env.adapters.torchrl",
)
LEFT_OUT = {
    "class_counts, parameter_rows, parameter_ranges, pack_table, threshold": "of checked configs, inside",
    "Frames, Moment, Rollout, BlockImpact, Counterfactual, Evaluation, Arm, EnvCounterfactual": "results: records",
    "Measured, Scorecard, Calibration, OrderBookScores, OrderEvents, CleaningReport": "results, likewise",
    "read_orders, read_lobster, read_bars, read_trades": "read files; tests/test_data_readers.py calls them wrongly",
    "OrderFlow": "made by a fit, or read from a file; tests/test_flow_fit.py gives it wrong ones",
    "order_book_scores": "takes tables of order events; tests/test_data_scores.py calls it wrongly",
    "ProgramPolicy": "what `policy` makes of a function, of arguments that it has checked",
    "MarketVectorEnv, MarketEnv, Policy, RecurrentPolicy": "bases without a task",
    "CustomTask": "a base of users' own; tests/test_custom_tasks.py declares and returns what is wrong",
    "num_rows": "of checked scenarios",
    "check_kind, check_seed, check_render_mode, as_actions, make_config": "what others check their arguments with",
    "Viewer, make_viewer, render_with": "what environments render with",
    "to_params": "what environments hand to the engines",
    "price_improvement": "of an environment that was checked",
    "picture.box, picture.dashes, picture.fill, picture.outline, picture.path, picture.price_at, picture.quote_box, "
    "picture.row_middle, picture.segment, picture.shown_prices, picture.text, picture.triangles": "parts of a picture",
    "elapsed, share_left, signal": "parts of scripted policies",
    "save": "writes a file",
    "load_policy": "reads one; tests/test_saved_policies.py gives it hostile ones",
    "sweep, open_sweep, Sweep": "write and read folders; tests/test_sweep_arguments.py calls them wrongly",
    "no_order, keep": "take nothing",
    "quotes": "takes what quote returns, in the functions of programs alone",
    "close": "ends what other cases go on with",
    "seed, env_method, get_attr, set_attr, env_is_wrapped, getattr_depth_check": "of Stable-Baselines3",
}
_LEFT_OUT = {name for names in LEFT_OUT for name in names.split(", ")}


@dataclasses.dataclass(frozen=True)
class Target:
    """Something to call: its name, the object it belongs to if any, and how to get at it and its arguments."""

    name: str
    owner: str | None
    get: Callable[[World], Callable[..., Any]]
    names: tuple[str, ...]  # of its parameters
    required: frozenset[str]
    more: tuple[str, ...] = ()  # names that its **kwargs take

    def valid(self, world: World) -> dict[str, Any]:
        """Return valid arguments."""
        return {name: value for name in self.names if (value := valid_value(self, name, world)) is not _ABSENT}


_ABSENT = object()


def _config_names() -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(config_module.MarketConfig))


def _task_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _more(name: str, owner: str | None) -> tuple[str, ...]:
    if name in ("preset", "replace"):
        return _config_names()
    if name == "set_task":
        return CHANGEABLE
    for prefix, kind in TASKS.items():
        if name.startswith(prefix) and name.endswith("Env"):
            return _task_names(kind)
    if name in ("parallel_env", "aec_env", "BatchedParallelEnv", "MarketParallelEnv", "evaluation_parallel_env"):
        return (*_task_names(ks.ManyLearnersTask), "render_mode", "render_agent", "max_cycles", "config", "engine",
                "device", "randomise", "num_scenarios", "scenario_seed", "auctions_per_step", "preset")  # fmt: skip
    if name in ("evaluation_env", "SB3VecEnv", "SkrlEnv", "TorchRLEnv"):
        return (*_task_names(ks.MarketMakingTask), "config", "engine", "device", "replace", "randomise", "output",
                "validate", "copy", "stagger", "render_mode", "autoreset_mode")  # fmt: skip
    return ()


def valid_value(target: Target, name: str, w: World) -> Any:
    """Return a valid value for a parameter, or _ABSENT to leave it at its default."""
    made = _by_target(target, name, w)
    if made is not _ABSENT:
        return made
    if name in _BY_NAME:
        return _BY_NAME[name](w)
    return None if name in target.required else _ABSENT


def _by_target(target: Target, name: str, w: World) -> Any:
    short, owner = target.name.rsplit(".", 1)[-1], target.owner or ""
    if name in ("actions", "action"):
        return _actions(owner, w)
    if name == "observation" and owner.startswith("policy "):
        return w["evaluation MarketMaking"].observation.new_zeros((MARKETS, 37))
    if name == "task" and short in POLICIES:
        return w[f"{task_of_policy(short)} task"]
    if name == "task" and short in ("evaluation_env", "format_table"):
        return "MarketMaking"
    if name == "env":
        return _wrapped(short, w)
    if name == "num_envs" and short in ("SB3VecEnv", "SkrlEnv", "TorchRLEnv"):
        return MARKETS
    if name == "saved":
        return w[owner].state_dict()
    if name == "config" and short == "Simulator":
        return small_config()
    if name == "slots" and short == "liquidate":
        return None
    if name == "name" and short == "parameter":
        return "fee"
    if name == "name" and short == "preset":
        return "trading"
    if name == "quotes":
        if short == "tape":
            return np.zeros((1, 1, 2, 4), np.int32) if "without slots" not in owner else None
        return np.zeros((2, MARKETS, 2, 4) if short == "rollout" else (MARKETS, 2, 4), np.int32)
    if name == "mask" and owner == "RunningMeanStd":
        return torch.ones(MARKETS, dtype=torch.bool)
    if name == "randomise" and owner != "vector random" and short != "make_scenarios":
        return _ABSENT
    if name == "weights":
        return np.ones(3) if owner == "vector random" else _ABSENT
    if name == "make":
        return policies.FixedSpread if short == "grid_search" else lambda: w["evaluation MarketMaking"]
    return _ABSENT


def _wrapped(short: str, w: World) -> Any:
    if short in ("SB3GroupVecEnv", "SkrlMultiEnv", "TorchRLGroupEnv"):
        return w["batched of one role"]
    if short in ("SB3VecEnv", "SkrlEnv", "TorchRLEnv"):
        return "KineticSim/MarketMaking-v0"
    return w["vector torch"]


def _actions(owner: str, w: World) -> Any:
    if owner.startswith("batched"):
        env = w[owner]
        return {role: torch.zeros_like(rows) for role, rows in env._given.items()}
    if owner.startswith("parallel"):
        return {agent: w[owner].action_space(agent).sample() * 0 for agent in w[owner].possible_agents}
    if owner == "SkrlEnv":
        return torch.zeros(MARKETS, 4)
    if owner == "SkrlMultiEnv":
        return {
            agent: torch.zeros(MARKETS, w[owner].action_space(agent).shape[0]) for agent in w[owner].possible_agents
        }
    space = getattr(w[owner], "action_space", None) if owner else None
    if isinstance(space, gym.Space):
        zeros = np.zeros(space.shape, space.dtype)
        return torch.from_numpy(zeros) if "torch" in owner else zeros
    return torch.zeros(MARKETS, 4)


_BY_NAME: dict[str, Callable[[World], Any]] = {
    "engine": lambda w: w.engine,
    "num_markets": lambda w: MARKETS,
    "num_envs": lambda w: MARKETS,
    "slots": lambda w: 1,
    "orders": lambda w: np.zeros((1, MARKETS, 1, 4), np.int32),
    "auctions": lambda w: 2,
    "block": lambda w: 2,
    "per_auction": lambda w: 1,
    "after": lambda w: 4,
    "decisions": lambda w: 1,
    "seed": lambda w: 5,
    "markets": lambda w: [0],
    "market": lambda w: 0,
    "n": lambda w: 2,
    "future_seed": lambda w: 9,
    "future_seeds": lambda w: 9,
    "intervals": lambda w: 3,
    "path": lambda w: [60, 61],
    "bids": lambda w: [[60, 3]],
    "asks": lambda w: [[62, 3]],
    "config": lambda w: small_config(),
    "num_scenarios": lambda w: 3,
    "bank_size": lambda w: 2,
    "randomise": lambda w: {"fee": (0, 9)},
    "policy": lambda w: policies.FixedSpread(w["MarketMaking task"]),
    "envs": lambda w: w["evaluation MarketMaking"],
    "task": lambda w: w["MarketMaking task"],
    "roles": lambda w: ("maker",),
    "role": lambda w: "maker",
    "values": lambda w: np.ones(3),
    "share": lambda w: 0.5,
    "one": lambda w: w["evaluation result"],
    "other": lambda w: w["evaluation result"],
    "paired_with": lambda w: None,
    "results": lambda w: {"one": w["evaluation result"]},
    "notes": lambda w: {"one": "x"},
    "simulator": lambda w: w["simulator"],
    "max_auctions": lambda w: 50,
    "progress": lambda w: False,
    "device": lambda w: torch.device("cpu"),
    "observation": lambda w: torch.zeros(MARKETS, 37),
    "core": lambda w: w["vector"].core,
    "price": lambda w: 5,
    "side": lambda w: "buy",
    "fields": lambda w: {"fee": 1},
    "choices": lambda w: {},
    "optional": lambda w: (),
    "options": lambda w: None,
    "recorder": lambda w: w["recorder"],
    "moment": lambda w: w["moment"],
    "name": lambda w: "mid2",
    "autoreset": lambda w: 1,
    "stagger": lambda w: False,
    "bank_owner": lambda w: 0,
    "scenarios": lambda w: sized_config(fee=[1, 2, 3]),
    "shape": lambda w: (4,),
    "rows": lambda w: torch.ones(MARKETS, 4),
    "agent": lambda w: "maker_0",
    "learners": lambda w: {"maker": 1, "trader": 1},
    "grid": lambda w: {"half_spread": [1.0, 2.0]},
    "bid_offset": lambda w: torch.ones(MARKETS),
    "ask_offset": lambda w: torch.ones(MARKETS),
    "bid_qty": lambda w: torch.ones(MARKETS),
    "ask_qty": lambda w: torch.ones(MARKETS),
    "values_a": lambda w: np.ones(3),
}


def _target(name: str, owner: str | None, function: Any, get: Callable[[World], Callable[..., Any]]) -> Target | None:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    plain = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name != "self"]
    required = frozenset(p.name for p in plain if p.default is p.empty)
    more = _more(name.rsplit(".", 1)[-1], owner) if any(p.kind is p.VAR_KEYWORD for p in parameters) else ()
    if not plain and not more:
        return None
    return Target(name, owner, get, tuple(p.name for p in plain), required, more)


def _ours(function: Any) -> bool:
    return str(getattr(inspect.unwrap(function), "__module__", "")).startswith("kineticsim_env")


def find_targets(world: World) -> list[Target]:
    """Walk the public names of the modules, and the public methods of the instances."""
    importlib.import_module("torch._dynamo")  # some function of torch would, and a timer may ring by then
    found: dict[str, Target] = {}
    for module_name in MODULES:
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError:
            continue  # an optional library is not there
        names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
        for name in names:
            thing = getattr(module, name)
            if name in _LEFT_OUT or not callable(thing) or not _ours(thing) or inspect.isabstract(thing):
                continue
            if getattr(thing, "__module__", "") != module_name and not hasattr(module, "__all__"):
                continue
            if inspect.isclass(thing) and issubclass(thing, BaseException):
                continue
            made = thing.__call__ if isinstance(thing, enum.EnumType) else thing  # Python 3.12 hides what an enum takes
            target = _target(name, None, made, lambda w, thing=thing: thing)
            if target is not None:
                found.setdefault(name, target)
    for owner in INSTANCES:
        try:
            kind = type(world[owner])
        except ModuleNotFoundError:
            continue
        for name in (*dir(kind), "__call__"):
            method = inspect.getattr_static(kind, name, None)
            function = getattr(method, "__func__", method)
            if (name.startswith("_") and name != "__call__") or name in _LEFT_OUT or not inspect.isfunction(function):
                continue
            if not _ours(function):
                continue
            get = functools.partial(lambda w, owner, name: getattr(w[owner], name), owner=owner, name=name)
            target = _target(f"{owner}.{name}", owner, getattr(world[owner], name), get)
            if target is not None and target.name not in _LEFT_OUT:
                found[target.name] = target
    return list(found.values())
