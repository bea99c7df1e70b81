"""Which function takes an argument: what an error says that was given one where it does not belong.

`tasks.base.make_task` and `config.make_config` ask. Nothing but names stands here: signatures say who takes what.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

_ENVS = "kineticsim_env.envs"
_MANY = "kineticsim_env.tasks.many_learners:ManyLearnersTask"
_TAKERS = {  # as users call them: whose arguments these are
    "gymnasium.make": ("gymnasium:make", f"{_ENVS}.single:MarketEnv"),
    "gymnasium.make_vec (without vectorization_mode)": (f"{_ENVS}.vector:MarketVectorEnv",),
    "parallel_env": (f"{_ENVS}.parallel:MarketParallelEnv", _MANY),
    "BatchedParallelEnv": (f"{_ENVS}.batched:BatchedParallelEnv", _MANY),
    "KineticSim/MarketMaking-v0": ("kineticsim_env.tasks:MarketMakingTask",),
    "KineticSim/Execution-v0": ("kineticsim_env.tasks:ExecutionTask",),
    "KineticSim/Trading-v0": ("kineticsim_env.tasks:TradingTask",),
    "MarketConfig (the argument config)": ("kineticsim_env.config:MarketConfig",),
    "reset": (f"{_ENVS}.vector:MarketVectorEnv.reset",),
    "evaluate": ("kineticsim_env.evaluation:evaluate",),
    "Simulator": ("kineticsim_env.simulator:Simulator",),
}


def taken_by(argument: object) -> str:
    """Return who takes an argument of that name, as the end of a sentence about it; empty where nobody does."""
    takers = [name for name, paths in _TAKERS.items() if any(argument in _arguments(path) for path in paths)]
    if not takers:
        return ""
    *others, last = takers
    return f", which {', '.join(others)} and {last} take" if others else f", which {last} takes"


def _arguments(path: str) -> set[str]:
    """Return the names of the arguments of what is at `module:name`."""
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {one.name for one in inspect.signature(found).parameters.values() if one.kind in named} - {"self"}
