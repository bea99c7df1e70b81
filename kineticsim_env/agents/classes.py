"""Classes of agents that users write: `ks.agent` makes one of a function; `ks.mix` says how many of them there are.

    @ks.agent(lookback=16, threshold=4, memory={"average": "mid2"})
    def trend_follower(market, own, draw):
        own.average += (market.mid2 - own.average) // own.lookback
        ...
        return ks.order(side, market.near_mid(side), 1 + draw.below(4))

    config = config.replace(agents={trend_follower: ks.mix(30, lookback=range(4, 34))})

What may be written: language.py; the names: vocabulary.py; mixes: mixes.py; how a config takes classes:
`checked_agents`.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from kineticsim_env.agents.language import Program, read
from kineticsim_env.agents.mixes import Fixed, Mix, mix, whole32
from kineticsim_env.agents.vocabulary import INFORMED, MOST_UNITS, OWNED, STARTS, vocabulary
from kineticsim_env.runtime.roles import ROLES
from kineticsim_env.runtime.values import check_choice, check_flag, show

_STORED = ("count",)  # what a mix has besides parameters


class AgentClass:
    """A class of agents: a function, its parameters with their values where nothing else is said, and its memory.

    Attributes:
        name: The function's name, which slots and parameters are called by.
        module: Where it can be imported from.
        parameters: Defaults by name, int32.
        memory: What each word begins an episode with: a number, or a name of what is seen.
        informed: Whether it sees the fundamental price and the regime.
        largest_order: Units that orders are cut to.
        role: Of a learner that takes the place of such an agent.
        program: The function as C++ and as itself on numbers that wrap.
        cxx: The body in C++ that engines play instead of the program's; None without one.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        parameters: Mapping[str, Any],
        memory: Mapping[str, Any],
        *,
        informed: bool,
        largest_order: int,
        role: str,
        cxx: str | None,
    ) -> None:
        """Check a declaration; see `agent`."""
        self.name, self.module = getattr(function, "__name__", show(function)), getattr(function, "__module__", "?")
        self.__doc__ = function.__doc__
        self.informed = check_flag("informed", informed)
        self.largest_order = whole32("largest_order", largest_order)
        if not 1 <= self.largest_order <= MOST_UNITS:
            raise ValueError(f"largest_order: expected 1 to {MOST_UNITS}, got {show(largest_order)}")
        check_choice("role", role, ROLES)
        self.role = role
        self.parameters = Fixed({name: whole32(f"{self.name}.{name}", value) for name, value in parameters.items()})
        self.memory = Fixed({name: self._start(name, value) for name, value in memory.items()})
        for name in (*self.parameters, *self.memory):
            if name in (*OWNED, *_STORED):
                raise ValueError(f"{self.name}: got the name {name!r}, which every agent or mix has; take another")
        if twice := sorted(set(self.parameters) & set(self.memory)):
            raise ValueError(f"{self.name}: expected a parameter or memory, got {twice[0]!r} as both")
        if cxx is not None and not isinstance(cxx, str):
            raise TypeError(f"cxx: expected the text of a function's body in C++, or None, got {show(cxx)}")
        self.cxx = cxx
        self.program: Program = read(function, vocabulary(self.parameters, self.memory, self.informed))
        if not self.name.isidentifier():
            raise ValueError(f"agent: expected a plain name, got a function called {show(self.name)}")

    def _start(self, name: str, value: Any) -> int | str:
        if isinstance(value, str):
            allowed = tuple(seen for seen in STARTS if self.informed or seen not in INFORMED)
            check_choice(f"{self.name}: memory[{name!r}]", value, allowed)
            return value
        return whole32(f"{self.name}: memory[{name!r}]", value)

    @property
    def path(self) -> str:
        """Where it is imported from, as `module:name`; configs are stored with it."""
        return f"{self.module}:{self.name}"

    def __repr__(self) -> str:
        """Return its path."""
        return f"<agent {self.path}>"

    def __eq__(self, other: object) -> bool:
        """Compare what is played: name, program, parameters, memory and role."""
        return isinstance(other, AgentClass) and self._what() == other._what()

    def __hash__(self) -> int:
        """Return the hash of the name."""
        return hash(self.name)

    def _what(self) -> tuple[Any, ...]:
        numbers = (tuple(self.parameters.items()), tuple(self.memory.items()))
        return (self.name, self.program.text, self.cxx, *numbers, self.informed, self.largest_order, self.role)

    def __copy__(self) -> AgentClass:
        """Return itself: nothing of it changes."""
        return self

    def __deepcopy__(self, memo: Any) -> AgentClass:
        """Return itself."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as its path, as functions are; of a notebook or a script, which other processes have not, by value.

        Raises PicklingError if another class, or none, is at its path by now.
        """
        if self.module == "__main__":
            return object.__new__, (AgentClass,), dict(vars(self))
        try:
            found = find_class(self.path)
        except ValueError as error:
            raise pickle.PicklingError(str(error)) from error
        if found != self:
            raise pickle.PicklingError(
                f"agents: expected the class that is there now, got {self.path!r}, which was declared anew since"
            )
        return find_class, (self.path,)

    def __call__(self, market: Any, own: Any, draw: Any) -> Any:
        """Decide as the program does, on numbers that wrap."""
        return self.program.play(market, own, draw)


def agent(
    *,
    memory: Mapping[str, Any] | None = None,
    informed: bool = False,
    largest_order: int = MOST_UNITS,
    role: str = "trader",
    cxx: str | None = None,
    **parameters: int,
) -> Callable[[Callable[..., Any]], AgentClass]:
    """Make a class of agents of a function: `@ks.agent(...)` before `def name(market, own, draw)`.

    What the function can use, and what it returns: docs/custom_trader.md. It is played by every engine, with the same
    bits.

    Args:
        memory: What each agent remembers, int32 words by name, with what they begin an episode with: a number, or the
            name of what is seen (`"mid2"`). `own.name` reads and writes them.
        informed: Whether such agents see `market.fundamental` and `market.regime`.
        largest_order: Units that orders are cut to, at most 65535. Say it where orders are small: in continuous trading
            a GPU counts in half the memory then, as long as no side holds more than 32767.
        role: Of a learner that replaces such an agent, as in `slots=("name",)`.
        cxx: The text of the function's body in C++, which compiled engines play instead of the translation; the Python
            function is what they are compared with. Nothing checks what it reads or writes.
        **parameters: int32 numbers by name, `own.name` in the function; `mix` changes them per agent or per market.

    Raises:
        ProgramError: If the function is not in the language: where, and what to write instead.
        TypeError, ValueError: Naming the argument, what came and what is allowed.
    """

    def declare(function: Callable[..., Any]) -> AgentClass:
        said = {"informed": informed, "largest_order": largest_order, "role": role, "cxx": cxx}
        return AgentClass(function, parameters, dict(memory or {}), **said)

    return declare


# In a config ----------------------------------------------------------------------------------------------------------


def find_class(path: str) -> AgentClass:
    """Return the class that a path `module:name` names, as configs store it, as it is declared now.

    Raises:
        ValueError: If there is none: what came, and how it can be found.
    """
    module, colon, name = path.partition(":")
    if not colon or not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"agents: expected module:name of a class, as in 'my_traders:trend_follower', got {path!r}")
    try:
        found = getattr(sys.modules.get(module) or importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"agents: expected a class that can be imported, got {path!r}, and no module {error.name!r} is found: put "
            "the folder of its file on sys.path (PYTHONPATH), or import the file before"
        ) from error
    except AttributeError as error:
        raise ValueError(f"agents: expected a class that can be imported, got {path!r}: {_told(module)}") from error
    if not isinstance(found, AgentClass):
        raise ValueError(f"agents: expected what ks.agent has made, got {path!r}, which is {show(found)}")
    return found


def check_agents_from(given: Any, agents_from: Any) -> None:
    """Refuse paths of classes in other modules than those allowed (all for None), before any is imported.

    What is no mapping of paths is for `checked_agents` to refuse.
    """
    if agents_from is None:
        return
    if isinstance(agents_from, str) or not isinstance(agents_from, Iterable):
        raise TypeError(f"agents_from: expected a list of names of modules, or None, got {show(agents_from)}")
    allowed = list(agents_from)
    if not all(isinstance(module, str) for module in allowed):
        raise TypeError(f"agents_from: expected a list of names of modules, or None, got {show(allowed)}")
    for key in given if isinstance(given, Mapping) else ():
        if isinstance(key, str) and key.partition(":")[0] not in allowed:
            raise ValueError(
                f"agents: expected classes of {', '.join(allowed) or 'no module'} (agents_from), got {show(key)}, "
                "whose module would be imported"
            )


def _told(module: str) -> str:
    """Say how a class is declared so that another process finds it."""
    if module == "__main__":
        return (
            "it was declared in a notebook or a script; write it into a file of its own, such as my_traders.py, and "
            "import it from there"
        )
    return f"{module} has no such name at its top level, outside of functions"


def checked_agents(name: str, given: Any, most: int) -> dict[AgentClass, Mix]:
    """Return a field `agents` in its stored form: mixes by class, in the order given; empty for None.

    Mixes, counts, or mappings with `count` and parameters are given by class or by path; `most` classes are allowed.
    """
    if given is None:
        return Fixed()
    if isinstance(given, AgentClass):
        raise TypeError(f"{name}: expected a class with its count, such as {{{given.name}: 30}}, got {show(given)}")
    if not isinstance(given, Mapping):
        raise TypeError(f"{name}: expected a mapping of classes to ks.mix(...) or counts, or None, got {show(given)}")
    found: dict[AgentClass, Mix] = {}
    for key, value in given.items():
        kind = find_class(key) if isinstance(key, str) else key
        if not isinstance(kind, AgentClass):
            raise TypeError(f"{name}: expected a class that ks.agent has made, or its module:name, got {show(key)}")
        for other in found:
            if other.name == kind.name:
                raise ValueError(
                    f"{name}: expected different names, got two classes called {kind.name!r}, of {other.module} and "
                    f"{kind.module}"
                )
        found[kind] = _checked_mix(f"{name}[{kind.name}]", kind, value)
    if len(found) > most:
        raise ValueError(f"{name}: expected up to {most} classes, got {len(found)}")
    return Fixed(found)


def _checked_mix(name: str, kind: AgentClass, given: Any) -> Mix:
    try:
        if isinstance(given, Mapping):
            if "count" not in given or not all(isinstance(key, str) for key in given):
                raise TypeError(f"expected a mapping with 'count' and parameters, got {show(given)}")
            given = mix(**given)
        made = given if isinstance(given, Mix) else mix(given)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None
    unknown = sorted(set(made.parameters) - set(kind.parameters))
    if unknown:
        has = f"one of {', '.join(kind.parameters)}" if kind.parameters else "no parameters"
        raise ValueError(f"{name}: expected {has}, got the parameter {unknown[0]!r}")
    return made


def stored_agents(agents: Mapping[AgentClass, Mix]) -> dict[str, Any]:
    """Return a field `agents` as plain numbers, lists and texts, by path; `checked_agents` reads it."""
    return {
        kind.path: {
            "count": made.count,
            **{name: np.asarray(value).tolist() for name, value in made.parameters.items()},
        }
        for kind, made in agents.items()
    }
