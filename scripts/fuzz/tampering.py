"""Kind `tampering`: anything is written into live tensors. No crash; a reset with a seed makes all right again.

Where memory was replaced or resized, only the first half holds: a launch is refused or goes on in the old memory.
Some cases damage folders of sweeps instead (`stores.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import kineticsim_env as ks
from scripts.fuzz import moves, pairs, stores
from scripts.fuzz.kinds import Failure
from scripts.fuzz.values import extremes

ALLOWED = (TypeError, ValueError, RuntimeError, IndexError, gym.error.ResetNeeded)  # MarketError is a RuntimeError
aside = pairs.aside
REPLACED_ALLOWED = (*ALLOWED, AssertionError)
_STORES = 0.05 * all(map(find_spec, ("pandas", "pyarrow")))  # of the cases


def play(rng: np.random.Generator, engines: tuple[str, ...]) -> None:
    """Write into live tensors between calls, then reset and compare with the oracle, which nobody wrote to."""
    if rng.random() < _STORES:
        stores.play(rng)
        return
    pair = pairs.any_pair(rng, engines[int(rng.integers(len(engines)))])
    moves.start(pair, rng)
    thing = pair.under_test
    replaced = rng.random() < 0.1
    told: list[str] = []
    for _ in range(int(rng.integers(1, 4))):
        told.append(_replace(thing, rng) if replaced else _write(thing, rng))
        _call(thing, rng, told)
    if replaced:
        pairs.forget_pair(pair)
        return
    seed = int(rng.integers(2**40))
    try:
        try:
            thing.reset(seed=seed)
        except ks.MarketError:  # the error word of what went before
            thing.reset(seed=seed)
    except Exception as error:
        pairs.forget_pair(pair)
        text = f"{'; '.join(told)}, then reset(seed={seed}): {type(error).__name__} {str(error)[:200]}"
        raise Failure(text, key=("reset after tampering", type(error).__name__)) from error
    with pairs.forgetting(pair, told, "after tampering"):
        moves.start_over(pair, rng)
        moves.advance(pair, rng)


def _live(thing: Any) -> dict[str, torch.Tensor]:
    """Return the live tensors that anyone can reach."""
    simulator = pairs.simulator_of(thing)
    found = dict(simulator.tensors)
    if simulator is not thing:
        found |= {f"core {name}": tensor for name, tensor in thing.core.tensors.items()}
        if thing.core.live_task.scenarios is None:
            del found["core scenario"]  # nothing writes it then, nor reads it
        found["fills"] = thing.core.fills
    return found


def _write(thing: Any, rng: np.random.Generator) -> str:
    """Write some value into some of a live tensor."""
    live = _live(thing)
    name = str(rng.choice(list(live)))
    tensor = live[name]
    choices = extremes(tensor.dtype)
    value = choices[int(rng.integers(len(choices)))]
    view = tensor.detach()
    way = int(rng.integers(5))
    if not view.numel():
        return f"{name} is empty"
    if way == 0:
        view.fill_(value)
    elif way == 1:
        view.numpy()[...] = value
    elif way == 2:
        view[int(rng.integers(len(view)))] = value
    elif way == 3:
        raw = torch.from_numpy(rng.integers(0, 256, view.numel() * view.element_size(), dtype=np.uint8))
        if view.dtype != torch.bool and view.is_contiguous():
            view.copy_(raw.view(view.dtype).view(view.shape))
            value = "random bytes"
    else:
        place = tuple(int(rng.integers(size)) for size in view.shape)
        view[place] = value
    return f"{name} = {value} ({way})"


def replacements(tensor: Any) -> dict[str, Callable[[], Any]]:
    """Return ways to replace, resize or turn the memory of a tensor, by name."""
    return {
        "resize_(0)": lambda: tensor.resize_(0),
        "resize_(twice)": lambda: tensor.resize_(2 * tensor.numel() + 64),
        "resize_(half)": lambda: tensor.resize_(tensor.numel() // 2),
        "storage resize_(0)": lambda: tensor.untyped_storage().resize_(0),
        "storage resize_(half)": lambda: tensor.untyped_storage().resize_(tensor.untyped_storage().nbytes() // 2),
        "set_()": lambda: tensor.set_(),
        "set_(other)": lambda: tensor.set_(torch.zeros_like(tensor)),
        "data = short": lambda: setattr(tensor, "data", tensor.new_zeros(1)),
        "data = double": lambda: setattr(tensor, "data", tensor.double()),
        "data = clone": lambda: setattr(tensor, "data", tensor.clone()),
        "t_()": lambda: tensor.transpose_(0, -1),
        "unsqueeze_": lambda: tensor.unsqueeze_(0),
        "as_strided_": lambda: tensor.as_strided_((1,), (1,)),
        "swap": lambda: torch.utils.swap_tensors(tensor, tensor.new_zeros(3)),
    }


def _replace(thing: Any, rng: np.random.Generator) -> str:
    """Replace the memory of a live tensor, or the tensor."""
    live = _live(thing)
    name = str(rng.choice(list(live)))
    tensor: Any = live[name]
    if tensor is None:
        return f"{name} is None by now"
    ways = replacements(tensor) | {
        "requires_grad_": lambda: tensor.requires_grad_() if tensor.dtype.is_floating_point else None,
        "in the dict": lambda: _in_dict(thing, name, tensor.clone()),
        "short in the dict": lambda: _in_dict(thing, name, tensor.new_zeros(1)),
        "None in the dict": lambda: _in_dict(thing, name, None),
    }
    way = str(rng.choice(list(ways)))
    try:
        ways[way]()
    except REPLACED_ALLOWED as error:
        return f"{name}.{way} refused by torch: {type(error).__name__}"
    return f"{name}.{way}"


def _in_dict(thing: Any, name: str, tensor: torch.Tensor | None) -> None:
    where: Any = thing.core.tensors if name.startswith("core ") else pairs.simulator_of(thing).tensors
    if name.removeprefix("core ") in where:
        where[name.removeprefix("core ")] = tensor


def _call(thing: Any, rng: np.random.Generator, told: list[str]) -> None:
    """Call something; the errors that tampering may lead to are in order."""
    sim = pairs.simulator_of(thing)
    calls: dict[str, Callable[[], Any]] = {
        "reset()": thing.reset,
        "state_dict()": thing.state_dict,
        "load_state_dict()": lambda: thing.load_state_dict(thing.state_dict()),
        "run": lambda: sim.run(2, pairs.SERIES),
        "mid2": lambda: (sim.mid2, sim.last_price),
        "check_errors()": sim.check_errors,
        "branch()": lambda: sim.branch().run(1),
    }
    calls |= dict.fromkeys(("step 0", "step 1"), lambda: moves.step(thing, rng))
    name = str(rng.choice(list(calls)))
    told.append(name)
    try:
        calls[name]()
    except (*ALLOWED, AttributeError) as error:
        if isinstance(error, AttributeError) and "in the dict" not in " ".join(told):
            raise
