"""Saved states: what they say they are of.

`Simulator` and envs/state_dict.py save and load; this file describes and checks. Ranges of numbers: state_ranges.py.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kineticsim_env.runtime import layout
from kineticsim_env.runtime.checks import check_mapping, engine_input
from kineticsim_env.runtime.flow_table import FlowTable, numbers_of_engines, tables_of
from kineticsim_env.runtime.values import check_flag

ABOUT, SCENARIOS, PARAMETERS, AGENT_PARAMETERS = "about", "scenarios", "parameters", "agent_parameters"
POPULATION = "population_seed"
_FORMAT = 1


def pack(value: Any) -> torch.Tensor:
    """Return plain numbers, texts, lists and dicts as a tensor, uint8 `[n]` in host memory: their JSON."""
    return torch.from_numpy(np.frombuffer(json.dumps(value).encode(), dtype=np.uint8).copy())


def unpack(name: str, packed: Any) -> Any:
    """Return what was packed.

    Raises:
        ValueError: If this is no such tensor; `name` is what the error calls it.
    """
    try:
        return json.loads(packed.cpu().numpy().tobytes())
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"state[{name!r}]: expected what state_dict returned, got what is not readable") from error


def read_about(saved: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return what a saved state says it is of: sizes, market, task and so on, as plain numbers, texts, lists and dicts.

    Raises:
        ValueError: If it does not say, as states of versions before 0.1 do not.
    """
    if ABOUT not in saved:
        raise ValueError(
            f"state[{ABOUT!r}]: got none, so that nobody knows what market it is of; load_state_dict(saved, "
            "strict=False) takes it all the same"
        )
    about = unpack(ABOUT, saved[ABOUT])
    if not isinstance(about, dict) or about.pop("format", None) != _FORMAT:
        raise ValueError(f"state[{ABOUT!r}]: expected {_FORMAT}, got another format")
    return about


def pack_about(about: Mapping[str, Any]) -> torch.Tensor:
    """Return what a state is of as the tensor that is saved with it."""
    return pack({"format": _FORMAT, **about})


def describe(settings: Any) -> dict[str, Any]:
    """Return the fields of a config or a task; an array of a value per market as its length and digest."""
    fields = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings) if field.init}
    return {name: _described(value) for name, value in fields.items() if not _is_later(name, value)}


_LATER = (("orders_per_side", 1), ("flow", None), ("interval_ms", None), ("quote_latency_ms", 0.0), ("agent_prob", 0.0))


def _is_later(name: str, value: Any) -> bool:
    """Return whether a field is as it was before there was one, so that states saved then are of the same market."""
    if isinstance(value, np.ndarray):
        return False
    return (isinstance(value, dict) and not value) or (name, value) in _LATER


def _described(value: Any) -> Any:
    if isinstance(value, FlowTable):
        return digest(numbers_of_engines(value))
    if isinstance(value, np.ndarray) and value.dtype == object:  # an order flow of each market
        tables, of = tables_of(value)
        return [digest(of), *(digest(numbers_of_engines(table)) for table in tables)]
    if isinstance(value, tuple):  # as it is read again
        return list(value)
    if isinstance(value, Mapping):  # agents of classes that users have written
        return {kind.name: {"place": i, **_described_agents(kind, value[kind])} for i, kind in enumerate(value)}
    return digest(value) if isinstance(value, np.ndarray) else value


def _described_agents(kind: Any, made: Any) -> dict[str, Any]:
    """Return a class and its agents: what a state of them can be told by."""
    program = hashlib.sha256((kind.program.text + (kind.cxx or "")).encode()).hexdigest()[:16]
    numbers = {name: made.parameters.get(name, default) for name, default in kind.parameters.items()}
    own = {name: digest(value) if isinstance(value, np.ndarray) else value for name, value in numbers.items()}
    known = {"count": made.count, "program": program, "largest_order": kind.largest_order, "memory": kind.memory}
    return known | own


def digest(values: np.ndarray) -> str:
    """Return the length and the SHA-256 of an array, in short."""
    content = values.astype("U16") if values.dtype.kind == "U" else values
    return f"{len(values)} values, sha256 {hashlib.sha256(np.ascontiguousarray(content).tobytes()).hexdigest()[:16]}"


def check_agents(saved: Any, present: Mapping[str, Any]) -> None:
    """Refuse a state whose agents' memory has no place in `present`, naming the class, strict or not.

    Whatever else is wrong with a state is said by others.

    Raises:
        ValueError: If so.
    """
    if not isinstance(saved, Mapping):
        return
    try:
        theirs = _memory_words(read_about(saved))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return
    ours = _memory_words(present)
    if sum(theirs.values()) != sum(ours.values()):
        for name in dict.fromkeys([*ours, *theirs]):
            here, there = (words.get(name, 0) for words in (ours, theirs))
            if here != there:
                none = "" if name in ours else f": there are no agents of a class {name} that remember"
                raise ValueError(
                    f"state: expected {here} words of memory of {name} agents, as in the market here, got {there}{none}"
                )


def _memory_words(about: Mapping[str, Any]) -> dict[str, int]:
    """Return how many words the agents of each class that users have written remember."""
    agents = about["market"].get("agents", {})
    return {name: int(made["count"]) * len(made["memory"]) for name, made in agents.items()}


def check_about(saved: Mapping[str, Any], present: Mapping[str, Any], strict: bool) -> list[str]:
    """Refuse a state of something else than `present`, or, if not strict, return the differences.

    Raises:
        TypeError: If `strict` is no bool.
        ValueError: Naming each difference.
    """
    check_flag("strict", strict)
    try:
        found = [f"{name} is {theirs} there, {ours} here" for name, theirs, ours in _differ(read_about(saved), present)]
    except ValueError as error:
        if strict:
            raise
        return [str(error)]
    if found and strict:
        raise ValueError(
            f"state: expected one of an equal market, got one of something else ({'; '.join(found)}); "
            "load_state_dict(saved, strict=False) takes it if its numbers fit"
        )
    return found


def warn_of(differences: Sequence[str], stacklevel: int) -> None:
    """Say what was let through; `stacklevel` counts from here to the user's line, as in `warnings.warn`."""
    if differences:
        text = f"load_state_dict(strict=False) took a state of something else: {'; '.join(differences)}"
        warnings.warn(text, stacklevel=stacklevel)


def _differ(theirs: Any, ours: Any, name: str = "") -> Iterable[tuple[str, Any, Any]]:
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        for key in dict.fromkeys([*ours, *theirs]):
            below = f"{name}.{key}" if name else str(key)
            yield from _differ(theirs.get(key, "not there"), ours.get(key, "not there"), below)
    elif theirs != ours:
        yield name, theirs, ours


def with_quotes_under_way(saved: Any, present: Mapping[str, torch.Tensor]) -> Any:
    """Return a saved state with the part that says what is under way, or without it, as the present one has it.

    Without, nothing is; states had none at first. It goes only where nothing is under way.
    """
    names = set(layout.WAY_STATE)
    if not isinstance(saved, Mapping) or names <= saved.keys() & present.keys():
        return saved
    if names <= present.keys() and not names & saved.keys():
        return {**saved, **{name: torch.zeros_like(present[name]) for name in names}}
    if names <= saved.keys() and not names & present.keys():
        like = torch.zeros(len(present["t"]), layout.WAY_PLACES, dtype=torch.int64, device=present["t"].device)
        if not take(saved, "due", like).any():
            return {name: value for name, value in saved.items() if name not in names}
    return saved


def with_population(saved: Any, present: Mapping[str, torch.Tensor]) -> Any:
    """Return a saved state with the seeds that populations are drawn by, or without them, as the present one has it.

    They are the markets' seeds but in other futures; states had none at first.
    """
    if not isinstance(saved, Mapping) or (POPULATION in saved) == (POPULATION in present):
        return saved
    if POPULATION in saved:
        return {name: value for name, value in saved.items() if name != POPULATION}
    return {**saved, POPULATION: saved["seed"]} if "seed" in saved else saved


def check_names(saved: Any, *present: Iterable[str]) -> None:
    """Refuse what is no mapping, or has other names than the present tensors; `about` is looked at elsewhere."""
    check_mapping(saved)
    allowed = {name for names in present for name in names}
    odd = sorted(map(str, (set(saved) - {ABOUT}) ^ allowed))
    if odd:
        raise ValueError(f"state: expected {sorted(allowed)}, got missing or unknown names {odd}")


def take(saved: Mapping[str, Any], name: str, like: torch.Tensor) -> torch.Tensor:
    """Return an entry of a saved state as a contiguous tensor where `like` is, of its dtype and shape, or raise."""
    if not isinstance(saved[name], torch.Tensor):
        raise TypeError(f"state[{name!r}]: expected a tensor, got {type(saved[name]).__name__}")
    called = f"state[{name!r}]"
    return engine_input(called, saved[name], like.dtype, tuple(like.shape), like.device, from_anywhere=True)
