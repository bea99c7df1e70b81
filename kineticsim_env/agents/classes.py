"""Classes of agents that users write: `ks.agent` makes one of a function, `ks.mix` says how many of them a market has.

    @ks.agent(lookback=16, threshold=4, memory={"average": "mid2"})
    def trend_follower(market, own, draw):
        own.average += (market.mid2 - own.average) // own.lookback
        ...
        return ks.order(side, market.near_mid(side), 1 + draw.below(4))

    config = config.replace(agents={trend_follower: ks.mix(30, lookback=range(4, 34))})

What may be written: language.py; the names: vocabulary.py; how a config takes classes: `checked_agents`.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kineticsim_env.agents.language import Program, read
from kineticsim_env.agents.vocabulary import INFORMED, OWNED, STARTS, vocabulary
from kineticsim_env.runtime.values import check_choice, check_flag, is_number, show

ROLES = ("trader", "maker", "executor", "momentum", "noise", "fundamental")  # a learner's, as in tasks/base.py
LOW, HIGH = -(2**31), 2**31 - 1


class AgentClass:
    """A class of agents: a function, its parameters with their values where nothing else is said, and its memory.

    Attributes:
        name: The function's name, which slots and parameters are called by.
        module: Where it can be imported from.
        parameters: Defaults by name, int32.
        memory: What each word begins an episode with: a number, or a name of what is seen.
        informed: Whether it sees the fundamental price and the regime.
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
        role: str,
        cxx: str | None,
    ) -> None:
        """Check a declaration; see `agent`."""
        self.name, self.module = getattr(function, "__name__", "agent"), getattr(function, "__module__", "?")
        self.__doc__ = function.__doc__
        self.informed = check_flag("informed", informed)
        check_choice("role", role, ROLES)
        self.role = role
        self.parameters = {name: _int32(f"{self.name}.{name}", value) for name, value in parameters.items()}
        self.memory = {name: self._start(name, value) for name, value in memory.items()}
        for name in (*self.parameters, *self.memory):
            if name in OWNED:
                raise ValueError(f"{self.name}: got the name {name!r}, which every agent has; take another")
        if twice := sorted(set(self.parameters) & set(self.memory)):
            raise ValueError(f"{self.name}: got {twice[0]!r} as a parameter and in memory, allowed is one of them")
        if cxx is not None and not isinstance(cxx, str):
            raise TypeError(f"cxx: got {show(cxx)}, allowed is the text of a function's body in C++, or None")
        self.cxx = cxx
        self.program: Program = read(function, vocabulary(self.parameters, self.memory, self.informed))

    def _start(self, name: str, value: Any) -> int | str:
        if isinstance(value, str):
            allowed = tuple(seen for seen in STARTS if self.informed or seen not in INFORMED)
            check_choice(f"{self.name}: memory[{name!r}]", value, allowed)
            return value
        return _int32(f"{self.name}: memory[{name!r}]", value)

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
        return (self.name, self.program.text, self.cxx, *numbers, self.informed, self.role)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as its path."""
        return find_class, (self.path,)

    def __call__(self, market: Any, own: Any, draw: Any) -> Any:
        """Decide as the program does, on numbers that wrap."""
        return self.program.play(market, own, draw)


def agent(
    *,
    memory: Mapping[str, Any] | None = None,
    informed: bool = False,
    role: str = "trader",
    cxx: str | None = None,
    **parameters: int,
) -> Callable[[Callable[..., Any]], AgentClass]:
    """Make a class of agents of a function: `@ks.agent(...)` before `def name(market, own, draw)`.

    What the function can use, and what it returns: docs/your_own_trader.md. It is played by every engine, with the same
    bits.

    Args:
        memory: What each agent remembers, int32 words by name, with what they begin an episode with: a number, or the
            name of what is seen (`"mid2"`). `own.name` reads and writes them.
        informed: Whether such agents see `market.fundamental` and `market.regime`.
        role: Of a learner that replaces such an agent, as in `slots=("name",)`.
        cxx: The text of the function's body in C++, which compiled engines play instead of the translation; the Python
            function is what they are compared with. Nothing checks what it reads or writes.
        **parameters: int32 numbers by name, `own.name` in the function; `mix` changes them per agent or per market.

    Raises:
        ProgramError: If the function is not in the language: where, and what to write instead.
        TypeError, ValueError: Naming the argument, what came and what is allowed.
    """

    def declare(function: Callable[..., Any]) -> AgentClass:
        return AgentClass(function, parameters, dict(memory or {}), informed=informed, role=role, cxx=cxx)

    return declare


@dataclasses.dataclass(frozen=True, eq=False)
class Mix:
    """So many agents of a class.

    Attributes:
        count: Of every market.
        parameters: Those that are not as declared: an int, or an int32 array `[count]` of each agent, `[M, 1]` of each
            market or `[M, count]` of each agent of each market.
    """

    count: int
    parameters: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        """Compare the count and every parameter."""
        if not isinstance(other, Mix) or self.count != other.count or set(self.parameters) != set(other.parameters):
            return False
        return all(np.array_equal(value, other.parameters[name]) for name, value in self.parameters.items())

    __hash__ = None  # type: ignore[assignment]

    @property
    def markets(self) -> int | None:
        """How many markets it has parameters for; None if they are alike in all."""
        given = [len(value) for value in self.parameters.values() if isinstance(value, np.ndarray) and value.ndim == 2]
        return max(given, default=None)


def mix(count: int, **parameters: Any) -> Mix:
    """Say how many agents of a class a market has, and with which parameters: `agents={the_class: ks.mix(...)}`.

    Args:
        count: How many, from 0.
        **parameters: Parameters of the class that are not as declared: a whole number, or a sequence of one per agent
            (`lookback=range(4, 34)`), or an array `[M, 1]` of one per market or `[M, count]` of one per agent of each.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed.
    """
    if not is_number(count) or int(count) != count or not 0 <= count <= 1 << 14:
        raise ValueError(f"count: got {show(count)}, allowed is a whole number from 0 to {1 << 14}")
    return Mix(int(count), {name: _values(name, value, int(count)) for name, value in parameters.items()})


def _values(name: str, given: Any, count: int) -> Any:
    if is_number(given):
        return _int32(name, given)
    array = np.asarray(given.detach().cpu() if hasattr(given, "detach") else list(given) if _loose(given) else given)
    if array.ndim == 0:
        return _int32(name, array.item())
    fits = array.shape == (count,) or (array.ndim == 2 and array.shape[1] in (1, count) and len(array))
    if not fits:
        raise ValueError(
            f"{name}: got an array of shape {list(array.shape)}, allowed is one number, [{count}] of each agent, "
            f"[M, 1] of each market or [M, {count}]"
        )
    flat = [_int32(name, value) for value in array.ravel().tolist()]
    found = np.array(flat, dtype=np.int32).reshape(array.shape)
    found.flags.writeable = False
    return found


def _loose(given: Any) -> bool:
    return not isinstance(given, (np.ndarray, str, bytes, Mapping)) and hasattr(given, "__iter__")


def _int32(name: str, value: Any) -> int:
    if not is_number(value) or not np.isfinite(float(value)) or int(value) != value or not LOW <= value <= HIGH:
        raise ValueError(f"{name}: got {show(value)}, allowed is a whole number of 32 bits")
    return int(value)


# In a config ----------------------------------------------------------------------------------------------------------


def find_class(path: str) -> AgentClass:
    """Return the class that a path `module:name` names, as configs store it.

    Raises:
        ValueError: If there is none.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(sys.modules.get(module) or importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"agents: got {path!r}, allowed is module:name of a class that can be imported") from error
    if not isinstance(found, AgentClass):
        raise ValueError(f"agents: got {path!r}, which is {show(found)}, allowed is what ks.agent has made")
    return found


def checked_agents(name: str, given: Any, most: int) -> dict[AgentClass, Mix]:
    """Return a field `agents` in its stored form: mixes by class, in the order given; empty for None.

    Args:
        name: The field's name.
        given: Mixes, counts, or mappings with `count` and parameters, by class or by path.
        most: How many classes are allowed.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{name}: got {show(given)}, allowed is a mapping of classes to ks.mix(...) or counts, or None")
    found: dict[AgentClass, Mix] = {}
    for key, value in given.items():
        kind = find_class(key) if isinstance(key, str) else key
        if not isinstance(kind, AgentClass):
            raise TypeError(f"{name}: got {show(key)}, allowed is a class that ks.agent has made, or its module:name")
        if any(other.name == kind.name for other in found):
            raise ValueError(f"{name}: got two classes called {kind.name!r}, allowed are different names")
        found[kind] = _checked_mix(f"{name}[{kind.name}]", kind, value)
    if len(found) > most:
        raise ValueError(f"{name}: got {len(found)} classes, allowed are up to {most}")
    return found


def _checked_mix(name: str, kind: AgentClass, given: Any) -> Mix:
    try:
        if isinstance(given, Mapping):
            given = mix(**given)
        made = given if isinstance(given, Mix) else mix(given)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None
    unknown = sorted(set(made.parameters) - set(kind.parameters))
    if unknown:
        has = ", ".join(kind.parameters) or "none"
        raise ValueError(f"{name}: got the parameter {unknown[0]!r}, allowed are {has}")
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
