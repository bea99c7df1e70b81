"""`make`: an environment for programs of JAX, from the arguments of environments of torch."""

from __future__ import annotations

import functools
import gc
from typing import Any

import jax
import torch

import kineticsim_env.envs.vector as vector  # by its full name: it may not be asked for as a late one here
from kineticsim_env.envs.base import check_role
from kineticsim_env.envs.batched import BatchedParallelEnv
from kineticsim_env.envs.own_functions import own_functions, roles_in
from kineticsim_env.envs.settings import SAME_STEP, EnvSettings
from kineticsim_env.jax.env import BaseJaxEnv, MarketEnv
from kineticsim_env.jax.learners import ManyLearnersEnv
from kineticsim_env.jax.markets import MarketParams
from kineticsim_env.runtime.values import check_choice
from kineticsim_env.tasks import TASKS
from kineticsim_env.tasks.many_learners import DEFAULT_LEARNERS

MANY = "KineticSim/Market-v0"
IDS = (*(f"KineticSim/{task}-v0" for task in TASKS), MANY)
_OF_TORCH = ("engine", "output", "copy", "validate", "render_mode", "render_market", "action_mask", "custom_task")


def make(id: str, num_envs: int = 1, *, device: str | None = None, **arguments: Any) -> tuple[Any, MarketParams]:
    """Make M markets that programs of JAX step: a `MarketEnv`, or with many learners a `ManyLearnersEnv`.

    Args:
        id: `"KineticSim/MarketMaking-v0"`, `"KineticSim/Execution-v0"`, `"KineticSim/Trading-v0"`, or
            `"KineticSim/Market-v0"` with many learners.
        num_envs: M, the markets of one call; under `shard_map` those of one device.
        device: `"cpu"` or `"cuda"`; None is where JAX runs by default.
        **arguments: Those of `gymnasium.make_vec` with this id, or of `BatchedParallelEnv`: the market, the task and
            its settings. `reward`, `features` and `terminate` may be functions, of JAX arrays (docs/jax.md). There is
            no `output`, `copy`, `validate`, `engine`, `action_mask`, `custom_task` nor rendering, and opponents are
            programs (`ks.policy`).

    Returns:
        The environment, and its `params`, which `reset` and `step` take.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed.
        EngineUnavailable: If there is no C++ compiler, or no such device.
    """
    check_choice("id", id, IDS)
    platform = ("cuda" if jax.default_backend() == "gpu" else "cpu") if device is None else device
    check_choice("device", platform, ("cpu", "cuda"))
    for name in _OF_TORCH:
        if name in arguments:
            raise TypeError(f"{name}: expected none in JAX, got {arguments[name]!r} (docs/jax.md says what there is)")
    rest = {name: value for name, value in arguments.items() if name not in ("features", "terminate")}
    given = {name: arguments.get(name) for name in ("features", "terminate")}
    market = EnvSettings(**{name: rest[name] for name in ("config", "preset") if name in rest}).config
    if id == MANY:
        kind: Any = BatchedParallelEnv
        roles = roles_in(rest.get("learners") or DEFAULT_LEARNERS, market)
    else:
        name = id.removeprefix("KineticSim/").removesuffix("-v0")
        kind = getattr(vector, f"{name}VectorEnv")
        rest["output"], roles = "torch", (check_role(kind.task_type, rest.get("replace"), market),)
    own, rest = own_functions(rest, given["features"], given["terminate"], None, roles, many=id == MANY)
    how: dict[str, Any] = {"own": own, "restarts": False, "account_info": bool(arguments.get("account_info"))}
    if own is not None:
        wanted = EnvSettings(autoreset_mode=rest.get("autoreset_mode", EnvSettings.autoreset_mode))
        how["restarts"] = wanted.autoreset == SAME_STEP
        rest |= {"account_info": True} | ({"autoreset_mode": "disabled"} if how["restarts"] else {})
    how["remake"] = functools.partial(kind, num_envs, engine=platform, **rest)
    made = how["remake"]()
    opponents = made.core.settings.opponent_slots
    if opponents and not made.core.slot_programs:
        raise TypeError("opponents: expected programs (ks.policy) in JAX, got functions of torch")
    devices = [one.local_hardware_id for one in jax.local_devices(backend="gpu")] if platform == "cuda" else []
    form: type[BaseJaxEnv] = ManyLearnersEnv if id == MANY else MarketEnv
    env = form(id, made, devices, how)
    del made
    if platform == "cuda":
        gc.collect()  # an environment has cycles; JAX asks for memory of its own
        torch.cuda.empty_cache()
    return env, env.default_params
