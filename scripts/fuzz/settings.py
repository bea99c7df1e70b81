"""Kind `settings`: a new configuration for every case, on the engine under test and on NumPy, bit for bit.

Fields of markets, tasks with their settings, added agents, opponents, scenarios, and markets that stop; all forms of
environments, and the adapters of trainers, which are held against the plain environment on the other engine.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import kineticsim_env as ks
from kineticsim_env.evaluation.episodes import ENVIRONMENTS
from kineticsim_env.tasks import TASKS
from kineticsim_env.tasks.base import Task
from scripts.fuzz import drawn, moves, pairs
from scripts.fuzz.kinds import Failure

aside = pairs.aside
ADAPTERS = {"stable_baselines3": "SB3", "torchrl": "TorchRL", "skrl": "Skrl"}


def play(rng: np.random.Generator, engines: tuple[str, ...]) -> None:
    """Open something new on both engines, and use it for a while."""
    engine = engines[int(rng.integers(len(engines)))]
    sorts = (_simulator, _vector, _single, _parallel, _batched, _adapter)
    sort = sorts[int(rng.choice(len(sorts), p=[0.3, 0.35, 0.05, 0.05, 0.15, 0.1]))]
    sort(rng, engine)


def open_both(make: Callable[[str], Any], engine: str) -> pairs.Pair | None:
    """Return both; None where both are refused with the same words."""
    got, wanted = (moves.outcome(lambda name=name: [make(name)]) for name in (engine, "numpy"))
    if (got[0], got[0] and got[1]) != (wanted[0], wanted[0] and wanted[1]):
        shown = [each[1] if each[0] else "taken" for each in (got, wanted)]
        raise Failure(f"opening: {engine} says {shown[0]}; numpy {shown[1]}", key=("opening", got[0], wanted[0]))
    if got[0]:
        return None
    made = {engine: got[1][0], "numpy": wanted[1][0]} if engine != "numpy" else {}
    return pairs.Pair(made.__getitem__ if made else make, engine)


def _use(pair: pairs.Pair | None, rng: np.random.Generator, steps: int = 5) -> None:
    """Reset both, make some moves, save and load across engines, and go on."""
    if pair is None:
        return
    _reset(pair, rng)
    back = int(rng.integers(1, steps)) if rng.random() < 0.3 else steps
    saved: list[Any] = []
    for step in range(steps):
        moves.advance(pair, rng)
        if step == back:
            moves.together(pair, "load_state_dict", lambda thing: thing.load_state_dict(saved[0]))
        elif not saved:
            saved.append((pair.under_test if rng.random() < 0.5 else pair.oracle).state_dict())


def _reset(pair: pairs.Pair, rng: np.random.Generator) -> None:
    seed = int(rng.integers(2**40))
    moves.together(pair, "reset", lambda thing: thing.reset(seed=seed))


# Markets --------------------------------------------------------------------------------------------------------------


def _simulator(rng: np.random.Generator, engine: str) -> None:
    markets = int(rng.choice([1, 1, 2, 3, 5]))
    config = drawn.config(rng, markets)
    wanted = [None, "maker", "noise", "momentum", "fundamental"]
    slots = [wanted[int(i)] for i in rng.integers(len(wanted), size=int(rng.integers(0, 4)))]
    pair = open_both(lambda name: ks.Simulator(config, markets, engine=name, slots=slots), engine)
    if pair is None:
        return
    if rng.random() < 0.25:
        _stop(pair, rng)
    _use(pair, rng)


def _stop(pair: pairs.Pair, rng: np.random.Generator) -> None:
    """Fill a side of one market nearly to 2^31 units, and run until it stops: alike, with the state of before."""
    _reset(pair, rng)
    state = {name: value.clone() for name, value in pair.oracle.state_dict().items()}
    side = str(rng.choice(["bid", "ask"]))
    book = state[side][int(rng.integers(pair.oracle.num_markets))]
    if int(book.sum()) == 0:
        return
    # At the level that is furthest from the other side, so that most of it stays.
    levels = torch.nonzero(book)[:, 0]
    place = int(levels[0 if side == "bid" else -1])
    book[place] += 2**31 - 1 - int(book.sum(dtype=torch.int64)) - int(rng.choice([0, 1, 30, 500]))
    moves.together(pair, "load_state_dict", lambda sim: sim.load_state_dict(state))
    for _ in range(4):
        if moves.together(pair, "run(3)", lambda sim: sim.run(3))[0]:
            break
    moves.together(pair, "check_errors", lambda sim: sim.check_errors())


# Environments ---------------------------------------------------------------------------------------------------------


def _arguments(rng: np.random.Generator, kind: type[Task], markets: int | None) -> dict[str, Any]:
    """Return arguments that all environments have, and the task's settings."""
    found: dict[str, Any] = {
        "auctions_per_step": int(rng.choice([1, 1, 2])),
        "validate": bool(rng.integers(2)),
        "see_fundamental": bool(rng.integers(2)),
        "account_info": bool(rng.integers(2)),
        **drawn.task(rng, kind, markets),
    }
    same = rng.random() < 0.7
    fixed: dict[str, Any] = {} if same else {"population": "fixed"}
    found["config"] = drawn.config(rng, **fixed)
    if rng.random() < 0.95:  # elsewhere it is refused
        found["keep"] = found.get("keep", False) and found["config"].is_continuous
        found["decide"] = found.get("decide", "interval") if found["config"].is_continuous else "interval"
    if not same:
        found |= {
            "randomise": drawn.randomised(rng, kind),
            "num_scenarios": int(rng.integers(2, 5)),
            "scenario_seed": int(rng.integers(9)),
        }
    found["action_mask"] = found.get("action_type") == "discrete" and bool(rng.integers(2))
    return found


def _many(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "stagger": bool(rng.integers(2)),
        "copy": bool(rng.integers(2)),
        "autoreset_mode": str(rng.choice(pairs.MODES)),
    }


def _vector_arguments(rng: np.random.Generator, task: str, markets: int) -> dict[str, Any]:
    kind = TASKS[task]
    found: dict[str, Any] = (
        _arguments(rng, kind, markets) | _many(rng) | {"output": str(rng.choice(["numpy", "torch"]))}
    )
    if rng.random() < 0.3:
        can = drawn.insider in found["config"].agents and task == "MarketMaking"
        found["replace"] = "insider" if can and rng.random() < 0.9 else None
    if rng.random() < 0.35:
        of_actions = found.get("action_type") == "discrete", found.get("keep", False), found["config"].orders_per_side
        found["opponents"] = drawn.opponents(rng, *of_actions)
    return found


def _vector(rng: np.random.Generator, engine: str) -> None:
    markets, task = int(rng.choice([1, 1, 2, 3, 5])), str(rng.choice(list(TASKS)))
    given = _vector_arguments(rng, task, markets)
    _use(open_both(lambda name: ENVIRONMENTS[task](markets, engine=name, **given), engine), rng)


def _single(rng: np.random.Generator, engine: str) -> None:
    task = str(rng.choice(list(TASKS)))
    given = _arguments(rng, TASKS[task], None)
    del given["validate"]  # such an environment always is
    _use(open_both(lambda name: gym.make(f"KineticSim/{task}-v0", engine=name, **given).unwrapped, engine), rng)


def _parallel(rng: np.random.Generator, engine: str) -> None:
    learners, given = pairs.learners(rng), _arguments(rng, ks.ManyLearnersTask, None)
    given["replace"] = bool(rng.integers(2))
    del given["validate"]
    _use(open_both(lambda name: ks.parallel_env(learners, engine=name, **given), engine), rng)


def _batched(rng: np.random.Generator, engine: str) -> None:
    markets, learners = int(rng.choice([1, 1, 2, 3, 5])), pairs.learners(rng)
    given: dict[str, Any] = _arguments(rng, ks.ManyLearnersTask, markets) | _many(rng)
    given["replace"] = bool(rng.integers(2))
    _use(open_both(lambda name: ks.BatchedParallelEnv(markets, learners, engine=name, **given), engine), rng)


# Adapters -------------------------------------------------------------------------------------------------------------


def _adapter(rng: np.random.Generator, engine: str) -> None:
    """Step an adapter beside the plain environment on NumPy: observations, last ones too, rewards and flags."""
    there = [name for name in ADAPTERS if importlib.util.find_spec(name)]
    if not there:
        return
    library = there[int(rng.integers(len(there)))]
    markets, task = int(rng.choice([1, 1, 2, 5])), str(rng.choice(list(TASKS)))
    given = _vector_arguments(rng, task, markets)
    given |= {"output": "numpy" if library == "stable_baselines3" else "torch", "autoreset_mode": "SAME_STEP"}
    given |= {"copy": True, "action_mask": False}
    pair = open_both(lambda name: ENVIRONMENTS[task](markets, engine=name, **given), engine)
    if pair is None:
        return
    adapter, seed = _adapted(library, pair.under_test), int(rng.integers(2**31))
    told, plain = f"{ADAPTERS[library]} of {task}", pair.oracle
    first, seeds = _begin(library, adapter, seed)
    _check(told, "reset", first, plain.reset(seed=seeds)[0])
    for _ in range(6):
        actions = moves.actions(plain, rng)
        wanted = plain.step(torch.as_tensor(actions) if given["output"] == "torch" else actions)
        ended = np.asarray(wanted[2] | wanted[3])
        found = _advance(library, adapter, actions)
        last = np.where(ended[:, None], np.asarray(wanted[4]["final_obs"]), np.asarray(wanted[0]))
        _check(told, "reward", found["reward"], wanted[1])
        _check(told, "ended", found["ended"], ended)
        _check(told, "truncated", found["truncated"], np.asarray(wanted[3] & ~wanted[2]))
        _check(told, "observation", found["observation"], wanted[0])
        if "last" in found:
            _check(told, "last observation", found["last"], last)


def _adapted(library: str, env: Any) -> Any:
    if library == "stable_baselines3":
        from kineticsim_env.adapters.sb3 import SB3VecEnv

        return SB3VecEnv(env)
    if library == "torchrl":
        from kineticsim_env.adapters.torchrl import TorchRLEnv

        return TorchRLEnv(env)
    from kineticsim_env.adapters.skrl import SkrlEnv

    return SkrlEnv(env)


def _begin(library: str, adapter: Any, seed: int) -> tuple[Any, Any]:
    """Return the first observations, and the seed or seeds that the plain environment begins with."""
    if library == "stable_baselines3":
        seeds = adapter.seed(seed)
        return adapter.reset(), np.asarray(seeds)
    if library == "torchrl":
        adapter.set_seed(seed)
        return adapter.reset()["observation"], seed
    adapter._seed = seed  # the argument of whoever opens one
    return adapter.reset()[0], seed


def _advance(library: str, adapter: Any, actions: np.ndarray) -> dict[str, Any]:
    """Make one step; return what it says, by the names of `_adapter`."""
    if library == "stable_baselines3":
        observation, reward, done, infos = adapter.step(actions)
        last = np.stack([info.get("terminal_observation", observation[m]) for m, info in enumerate(infos)])
        cut = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        return {"observation": observation, "reward": reward, "ended": done, "truncated": cut, "last": last}
    given = torch.as_tensor(actions)
    if library == "torchrl":
        data = adapter.step(_action(adapter, given))["next"]
        flags = {name: data[name][:, 0] for name in ("reward", "terminated", "truncated")}
        last = data["observation"]
        data["_reset"] = data["done"]
        observation = adapter.reset(data)["observation"] if bool(data["done"].any()) else last
    else:
        observation, *three, infos = adapter.step(given.reshape(len(given), -1))
        flags = dict(zip(("reward", "terminated", "truncated"), (each[:, 0] for each in three), strict=True))
        last = torch.where((flags["terminated"] | flags["truncated"])[:, None], infos["final_obs"], observation)
    ended = flags["terminated"] | flags["truncated"]
    cut = flags["truncated"] & ~flags["terminated"]
    return {"observation": observation, "reward": flags["reward"], "ended": ended, "truncated": cut, "last": last}


def _action(adapter: Any, given: torch.Tensor) -> Any:
    from tensordict import TensorDict

    return TensorDict({"action": given}, batch_size=adapter.batch_size)


def _check(told: str, name: str, got: Any, wanted: Any) -> None:
    got, wanted = np.asarray(got), np.asarray(wanted)
    if got.shape != wanted.shape or not np.array_equal(got, wanted):
        raise Failure(f"{told}: {name} is {got.tolist()}, not {wanted.tolist()}"[:400], key=("adapter", told, name))
