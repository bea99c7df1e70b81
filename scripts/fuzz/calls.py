"""Kind `calls`: everything public, called with wrong arguments. A refusal names the argument and changes nothing.

A refusal is a TypeError or ValueError, or an error of this package or of Gymnasium. Anything else is a stray: another
exception, a message that does not say which argument is wrong, a state that is another than before, a hang.
"""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Generator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import kineticsim_env as ks
from scripts.fuzz import pairs
from scripts.fuzz.kinds import Failure, Slow
from scripts.fuzz.surface import Target, find_targets
from scripts.fuzz.values import HUGE, WRONG, spoilt, wrong_label
from scripts.fuzz.world import World

PACKAGE = Path(ks.__file__).parent
REFUSALS = (TypeError, ValueError, gym.error.Error, ks.KineticSimError, ModuleNotFoundError)
# Sizes that a large number is right for, and takes gigabytes or hours: these get no large numbers here.
SIZES = set(
    "num_envs num_markets auctions decisions after warmup bank_size bank_per_market num_scenarios block horizon "
    "max_auctions block_qty auctions_per_step max_cycles learners slots num_agents per_auction shape forced_qty "
    "randomise scenarios intervals warm_up chunk n times horizon_s".split()
)
# How messages call an argument that has another name in the signature.
ALSO = {
    "saved": ("state",),
    "scenarios": ("randomise",),
    "options": ("reset_mask",),
    "max_cycles": ("horizon",),
    "max_episode_steps": ("horizon",),
    "orders": ("decisions",),
    "mask": ("reset_mask",),
    "market": ("render_market",),
    "slot": ("render_slot",),
    "name": ("preset", "parameter"),
    "changes": ("set_task",),
    "make": ("envs", "policy"),
}
_SIGNATURE = re.compile(r"unexpected keyword argument|missing \d+ required|positional argument|multiple values for")
_CHANGES_FOR_GOOD = "set_task set_scenarios set_parameters set_book load_state_dict step_async specialise".split()
_worlds: dict[str, tuple[World, list[Target]]] = {}


def play(rng: np.random.Generator, engines: tuple[str, ...]) -> None:
    """Make one wrong call and judge what came of it."""
    engine = engines[int(rng.integers(len(engines)))]
    if engine not in _worlds:
        world = World(engine)
        _worlds[engine] = world, find_targets(world)
    world, targets = _worlds[engine]
    call_wrongly(world, targets[int(rng.integers(len(targets)))], rng)


@contextlib.contextmanager
def aside() -> Generator[None]:
    """Play with objects opened anew, and have the present ones again afterwards."""
    kept = [(world, world.opened) for world, _ in _worlds.values()]
    for world, _ in kept:
        world.opened = {}
    try:
        yield
    finally:
        for world, opened in kept:
            world.opened = opened


def call_wrongly(world: World, target: Target, rng: np.random.Generator) -> None:
    """Call a target with one wrong argument, or two."""
    arguments = target.valid(world)
    names = [*target.names, *target.more]
    wrong: list[str] = []
    told: list[str] = []
    for _ in range(1 if rng.random() < 0.85 else 2):
        name = names[int(rng.integers(len(names)))]
        if name in arguments and name not in wrong and arguments[name] is not None and rng.random() < 0.4:
            value, label = spoilt(arguments[name], rng)
        else:
            label = wrong_label(rng)
            value = WRONG[label]()
        if name in SIZES and (label.split(" = ")[-1] in HUGE or _is_huge(value)):
            continue
        arguments[name] = value
        wrong.append(name)
        told.append(f"{name}: {label}")
    before = _state_of(world, target)
    try:
        target.get(world)(**arguments)
    except Slow as error:
        raise Failure(f"{target.name}({', '.join(told)}) takes more than seconds at {place(error)}") from None
    except Exception as error:  # every kind: judging it is the point
        complaint = judge(error, wrong)
        if complaint:
            world.forget(target.owner or "")
            raise Failure(f"{target.name}({', '.join(told)}): {complaint}", key=_key(target, error)) from error
        _check_unchanged(world, target, before, ", ".join(told))
    else:
        _check_usable(world, target, ", ".join(told))


def _is_huge(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_is_huge(entry) for entry in value.values())
    if isinstance(value, (list, tuple)):
        return any(isinstance(entry, (int, float)) and abs(entry) > 5000 for entry in value)
    if isinstance(value, torch.Tensor):
        return value.numel() > 0 and value.device.type == "cpu" and value.layout == torch.strided
    kinds = (int, float, np.integer, np.floating)
    return isinstance(value, kinds) and not isinstance(value, np.timedelta64) and bool(abs(value) > 5000)


def judge(error: BaseException, wrong: list[str]) -> str:
    """Say what is wrong with a refusal, or nothing."""
    kind, text = type(error).__name__, str(error)
    if not isinstance(error, REFUSALS):
        return f"{kind} at {place(error)}: {text[:200]}"
    if not isinstance(error, (TypeError, ValueError)) or isinstance(error, ks.KineticSimError):
        return ""
    if _deepest(error) is None or _SIGNATURE.search(text):
        return ""
    names = {other for name in wrong for other in (name, *ALSO.get(name, ()))}
    if any(re.search(rf"(?<![a-zA-Z]){re.escape(name)}(?![a-zA-Z])", text) for name in names):
        return ""
    if re.match(r"^[\w ,\[\]'.]+: (expected|got)", text):  # another argument is named, which may be what is wrong
        return ""
    return f"unnamed {kind} at {place(error)}: {text[:200]}"


def place(error: BaseException) -> str:
    """Return where in the package an error came from."""
    return _deepest(error) or "no line of the package"


def _deepest(error: BaseException) -> str | None:
    found = None
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if PACKAGE in path.parents:
            found = f"{path.relative_to(PACKAGE)}:{frame.lineno} in {frame.name}"
    return found


def _key(target: Target, error: BaseException) -> tuple[str, ...]:
    return (target.name.rsplit(".", 1)[-1], type(error).__name__, place(error))


def _owner_state(world: World, target: Target) -> Any:
    owner = world[target.owner] if target.owner else None
    owner = getattr(owner, "unwrapped", owner)
    core = getattr(owner, "core", None)
    simulator = getattr(core, "simulator", None) or (owner if isinstance(owner, ks.Simulator) else None)
    return core, simulator


def _state_of(world: World, target: Target) -> dict[str, torch.Tensor]:
    core, simulator = _owner_state(world, target)
    return {} if simulator is None else pairs.copies(simulator if core is None else core)


def _check_unchanged(world: World, target: Target, before: dict[str, torch.Tensor], told: str) -> None:
    for name, tensor in _state_of(world, target).items():
        if not pairs.same(before[name], tensor):
            world.forget(target.owner or "")
            raise Failure(f"{target.name}({told}) was refused, and changed {name}", key=(target.name, "changed", name))


def _check_usable(world: World, target: Target, told: str) -> None:
    """See that what took a call can be reset."""
    short = target.name.rsplit(".", 1)[-1]
    _, simulator = _owner_state(world, target)
    if simulator is not None:
        owner = world[target.owner or ""]
        try:
            try:
                _reset(owner)
            except ks.MarketError:
                _reset(owner)
        except Exception as error:
            world.forget(target.owner or "")
            raise Failure(
                f"{target.name}({told}) was taken, then reset fails: {type(error).__name__} {str(error)[:200]}",
                key=(short, "taken", place(error)),
            ) from error
    if short in _CHANGES_FOR_GOOD and target.owner:
        world.forget(target.owner)


def _reset(owner: Any) -> None:
    if "adapters" in type(owner).__module__:
        owner.reset()
    else:
        owner.reset(seed=0)
