"""`--agents my_traders.py:trend_follower=30,lookback=8`: agents that users have written, on the command line."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kineticsim_env.agents.classes import AgentClass, find_class
from kineticsim_env.agents.mixes import Mix, mix
from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.options import changes_of

AGENTS = "FILE:CLASS=COUNT"  # how help calls the option
AGENTS_HELP = (
    "add agents of a class of your own, of a file or a module; parameters behind it: "
    "my_traders.py:chartist=30,lookback=8 (may be given again)"
)
_FORM = "FILE.py:NAME=COUNT or MODULE:NAME=COUNT, and parameters behind it, as in my_traders.py:chartist=30,lookback=8"
_WORD = re.compile(r"(?P<place>.+):(?P<name>\w+)=(?P<numbers>.*)", re.DOTALL)


def market_of(preset: str, changes: Sequence[str], agents: Sequence[str]) -> MarketConfig:
    """Return a preset with the changes of `--set` and the agents of `--agents`."""
    fields = changes_of(changes)
    if agents and "agents" in fields:
        raise ValueError("agents: expected --set agents=... or --agents, got both")
    return MarketConfig.preset(preset, **fields, **({"agents": agents_of(agents)} if agents else {}))


def agents_of(words: Sequence[str]) -> dict[AgentClass, Mix]:
    """Return the agents of `--agents`, in the order given.

    A file is imported as the module that it is, its folder being put on `sys.path`: configs name its classes as
    `my_traders:chartist`, which another process imports from where it finds `my_traders.py`.

    Raises:
        ValueError: Naming the word, what came and what is allowed.
    """
    agents: dict[AgentClass, Mix] = {}
    for word in words:
        parts = _WORD.fullmatch(word.strip())
        if parts is None:
            raise ValueError(f"agents: expected {_FORM}, got {word!r}")
        place, name = parts["place"].strip(), parts["name"]
        module = _module_of(place) if place.endswith(".py") or "/" in place or "\\" in place else place
        kind = _class_of(module, name)
        if kind in agents:
            raise ValueError(f"agents: expected one mix of each class, got {name!r} twice")
        agents[kind] = _mix_of(word, parts["numbers"])
    return agents


def _module_of(place: str) -> str:
    """Return the name that a file can be imported by, everywhere where its folder is on the path."""
    path = Path(place).expanduser().resolve()
    if not path.is_file():
        raise ValueError(f"agents: expected a file of Python, got {place!r}, and there is no such file")
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise ValueError(f"agents: expected a name that can be imported, such as my_traders.py, got {place!r}")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
        importlib.invalidate_caches()
    found = importlib.util.find_spec(path.stem)
    if found is None or found.origin is None or Path(found.origin).resolve() != path:
        there = "there" if found is None else found.origin
        raise ValueError(f"agents: expected a file of another name, got {place!r}: the module {path.stem!r} is {there}")
    return path.stem


def _class_of(module: str, name: str) -> AgentClass:
    try:
        return find_class(f"{module}:{name}")
    except ValueError as error:
        there = vars(sys.modules[module]).values() if module in sys.modules else ()
        known = [value.name for value in there if isinstance(value, AgentClass)]
        raise ValueError(f"{error}; {module} has {', '.join(known)}" if known else str(error)) from error
    except Exception as error:  # whatever the user's file raises, besides what the language refuses
        raise ValueError(f"agents: {module} raised {type(error).__name__}: {error}") from error


def _mix_of(word: str, numbers: str) -> Mix:
    """Return the mix of `30,lookback=8,threshold=[4,5,6]`."""
    try:
        call = ast.parse(f"mix({numbers})", mode="eval").body
        assert isinstance(call, ast.Call)
        (count,) = map(ast.literal_eval, call.args)
        given: dict[str, Any] = {str(entry.arg): ast.literal_eval(entry.value) for entry in call.keywords if entry.arg}
        assert len(given) == len(call.keywords)
    except (AssertionError, SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise ValueError(f"agents: expected {_FORM}, got {word!r}") from None
    try:
        return mix(count, **given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"agents: got {word!r}; {error}") from error
