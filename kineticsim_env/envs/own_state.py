"""`warned_of`: finds state that users' functions keep to themselves, where that can be seen, and warns of it.

Functions are called more often than once per step, and are shared by clones and environments: a counter in a closure
counts all of these. What a function holds is looked at before and after the calls that every environment makes when it
is made.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import random
import types
import warnings
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from kineticsim_env.envs.own_functions import OwnFunctions
from kineticsim_env.runtime import private_torch

_DEEP, _MANY, _LARGE = 3, 64, 1 << 20  # how far, how many entries and bytes are looked at
_PLAIN = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)


@contextlib.contextmanager
def warned_of(by_role: Mapping[str, OwnFunctions], device: torch.device) -> Generator[None]:
    """Warn of each thing that functions of the user's hold and that has changed in the block, by its name.

    Warns:
        UserWarning: What `reward`, say, has changed, and where to keep it instead.
    """
    functions = {name: function for of_role in by_role.values() for name, function in _named(of_role)}
    former = {name: _held(function) for name, function in functions.items()}
    generators = _generators(device)
    yield
    for name, function in functions.items():
        for held, found in _held(function).items():
            if former[name].get(held) != found:
                _warn(f"{name}: the function has changed {held!r}", "it")
    for kind, found in _generators(device).items():
        if generators[kind] != found:
            _warn(f"{', '.join(functions)}: a function has drawn from {kind}", "what is drawn of its draws")


def _warn(what: str, kept: str) -> None:
    warnings.warn(
        f"{what} when it was called. Functions are called more than once in a step, and clones share them: let a "
        f"ks.CustomTask have {kept} in its memory (docs/question_to_task.md)",
        stacklevel=2,
    )


def _named(functions: OwnFunctions) -> Iterator[tuple[str, Any]]:
    given = {"reward": functions.reward, "terminate": functions.terminate}
    given |= {f"features[{place}]": one for place, one in enumerate(functions.features)}
    for name, function in given.items():
        if function is not None and not functions.is_of_task(function):
            yield name, function
    if functions.task is not None:
        yield "custom_task", functions.task  # its attributes, whichever method it is that changes them


def _held(function: Any) -> dict[str, Any]:
    """Return what a function refers to, by name, each as something that changes as it does."""
    if isinstance(function, functools.partial):
        return {**_held(function.func), **_marks(dict(enumerate(function.args))), **_marks(function.keywords)}
    if isinstance(function, types.MethodType):
        return {**_held(function.__func__), **_marks(getattr(function.__self__, "__dict__", {}))}
    if isinstance(function, types.FunctionType):
        try:  # of `torch.compile`'s, whose own state changes as it compiles, that which it was given
            found = inspect.getclosurevars(inspect.unwrap(function))
        except ValueError:  # a cell that is empty still
            return {}
        return _marks({**found.globals, **found.nonlocals})
    return _marks(getattr(function, "__dict__", {}))


def _marks(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): _mark(value) for name, value in values.items() if not isinstance(value, _PLAIN)}


def _mark(value: Any, deep: int = _DEEP) -> Any:
    """Return something that differs when a value has changed; what cannot be looked into is its identity."""
    if isinstance(value, torch.Tensor):
        return id(value), private_torch.version_of(value) if not value.is_inference() else 0
    if isinstance(value, np.ndarray):
        return id(value), value.tobytes() if value.nbytes <= _LARGE and value.dtype.kind in "biufc" else value.shape
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic)):
        return repr(value)
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, torch.Generator):
        return bytes(value.get_state().numpy())
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, _PLAIN) or not deep or type(value).__module__.partition(".")[0] == "torch":
        return id(value)
    if isinstance(value, Mapping):
        return len(value), [(str(name), _mark(one, deep - 1)) for name, one in list(value.items())[:_MANY]]
    if isinstance(value, (list, tuple, set, frozenset)):
        return len(value), [_mark(one, deep - 1) for one in list(value)[:_MANY]]
    inside = getattr(value, "__dict__", None)
    return id(value) if inside is None else (id(value), _mark(dict(inside), deep - 1))


def _generators(device: torch.device) -> dict[str, Any]:
    """Return the states of the generators that functions draw from unless they have one of their own."""
    found = {
        "torch's generator": bytes(torch.get_rng_state().numpy()),
        "NumPy's generator": repr(np.random.get_state()),
        "Python's generator": random.getstate(),
    }
    if device.type == "cuda":
        found["CUDA's generator"] = bytes(torch.cuda.get_rng_state(device).numpy())
    return found
