"""Who plays an evaluation, as a word says it: a trained policy, a scripted one, or a class of a user's.

The command `evaluate` calls it.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from kineticsim_env.policies import Policy
from kineticsim_env.policies.policy_files import ENDING
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.values import check_callable, check_choice
from kineticsim_env.tasks import TASK_WORDS
from kineticsim_env.tasks.base import Task
from kineticsim_env.zoo import informed, make_scripted, scripted, trained
from kineticsim_env.zoo.trained_policies import load_for

_CLASS = re.compile(r"(?P<file>.+\.py):(?P<name>\w+)")


@dataclasses.dataclass(frozen=True)
class Entrant:
    """Who plays, before there is an environment."""

    name: str
    make: Callable[[Task], Policy]  # of the settings of the environment's task
    action_type: str = "continuous"  # of the environment that it plays in
    note: str = ""  # what tables say of it
    see_fundamental: bool = False  # whether its environment shows the fundamental price


def entrant_of(argument: str, word: str, task: str, preset: str) -> Entrant:
    """Return who a word names.

    That is `FILE.py:CLASS`, called as `CLASS(task)`, whose `action_type` is `"continuous"` if it says nothing else;
    a file of a trained policy, or its name in the zoo; or the name of a scripted policy of the task in the preset, in
    capitals or not, with blanks or signs; `informed` is the scripted one that is told the fundamental price.

    Args:
        argument: What errors call it.
        word: The word.
        task: One of `kineticsim_env.tasks.TASK_WORDS`.
        preset: Of the market, whose scripted policies are meant.

    Raises:
        ValueError: Naming the argument, the word, and what is allowed.
    """
    parts = _CLASS.fullmatch(word)
    if parts is not None:
        return _of_file(argument, word, Path(parts["file"]), parts["name"])
    if word.endswith(ENDING) or word in trained():
        return _trained(argument, word, task)
    known = {one.name: one for one in _all_scripted(task, preset)}
    found = next((name for name in known if _plain(name) == _plain(word)), None)
    if found is None:
        there = ", ".join(trained(f"{preset}/{task}/")) or "none"
        allowed = f"FILE.py:CLASS, FILE{ENDING}, one of the trained policies of {task} in {preset} ({there})"
        allowed += f" or of the scripted ones ({', '.join(known) or 'none'})"
        raise ValueError(f"{argument}: expected {allowed}, got {word!r}")
    return known[found]


def rivals_of(argument: str, words: Sequence[str] | None, task: str, preset: str) -> list[Entrant]:
    """Return those that words name; all scripted and trained ones of the task in the preset for None."""
    if words is not None:
        return [entrant_of(argument, word, task, preset) for word in words]
    return _all_scripted(task, preset) + [_trained(argument, name, task) for name in trained(f"{preset}/{task}/")]


def _all_scripted(task: str, preset: str) -> list[Entrant]:
    ordinary = [_scripted(name, one) for name, one in scripted(TASK_WORDS[task], preset).items()]
    told = informed(TASK_WORDS[task], preset)
    return [*ordinary, _scripted("informed", told, see_fundamental=True)] if told else ordinary


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", " ", name.casefold()).strip()


def _scripted(name: str, one: dict[str, Any], *, see_fundamental: bool = False) -> Entrant:
    said = [f"{key}={value}" for key, value in one["parameters"].items()]
    note = ", ".join((["told the fundamental price"] if see_fundamental else []) + said)
    return Entrant(name, lambda task: make_scripted(one, task), note=note, see_fundamental=see_fundamental)


def _trained(argument: str, word: str, task: str) -> Entrant:
    policy = load_for(argument, word)
    if policy.told.task != task:
        raise ValueError(f"{argument}: expected a policy of {task}, got {word!r}, of {policy.told.task}")
    return Entrant(word, lambda _: policy, policy.action_type, f"trained in {policy.told.preset}")


# Classes of users -----------------------------------------------------------------------------------------------------


def _of_file(argument: str, word: str, path: Path, name: str) -> Entrant:
    if not path.is_file():
        raise ValueError(f"{argument}: expected a file of Python and a class in it, got {word!r}, and there is no file")
    module = _module_of(argument, path)
    kind = getattr(module, name, None)
    if kind is None:
        known = [key for key, value in vars(module).items() if isinstance(value, type) and key != name]
        raise ValueError(f"{argument}: expected one of {', '.join(known) or 'no class'}, got {word!r}")
    check_callable(argument, kind, f"a class, called with the task, as {word!r}")
    action_type = getattr(kind, "action_type", "continuous")
    check_choice(f"{argument}: action_type of {word}", action_type, layout.ENUMS["ActionType"])

    def make(task: Task) -> Policy:
        with _named(argument, word):
            made = kind(task)
        played = check_callable(argument, made, f"a class whose objects are called with observations, as {word!r}")
        return _WithMemory(played) if callable(getattr(made, "reset", None)) else _OnCopies(played)

    return Entrant(word, make, action_type)


def _module_of(argument: str, path: Path) -> Any:
    """Run a file as a module of no name that others import; its folder comes last on the path, for what it imports."""
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(f"_entrant_{path.stem}", path)
    assert spec is not None and spec.loader is not None  # of a name that ends in .py
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # where dataclasses look
    with _named(argument, str(path)):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _named(argument: str, word: str) -> Generator[None]:
    """Say whose code raised what."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{argument}: {word} raised {type(error).__name__}: {error}") from error


class _OnCopies:
    """A user's policy, which is given a copy of what it sees and nothing else."""

    def __init__(self, policy: Callable[..., Any]) -> None:
        self._policy: Any = policy

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        return self._policy(observation.clone())


class _WithMemory(_OnCopies):
    """One with a memory, a `RecurrentPolicy`."""

    def reset(self, mask: torch.Tensor) -> None:
        self._policy.reset(mask.clone())
