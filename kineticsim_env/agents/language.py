"""The language of traders: a part of Python on whole numbers of 32 bits, written as C++ and run as itself.

`read` takes a Python function and says what is wrong with it, or returns it in both forms: the text of a C++ function,
and the function itself on `Int32`, which engines are compared with.

A program is a list of statements: assignments to local names and to what a trader remembers, `if`, `for` over a
constant range, `return`. Every expression is one whole number, and has no effect. So a program always ends, and reaches
no memory but its own: what it can name is in `Vocabulary`.

The files, in the order in which they are read: `numbers.py` (`Int32`), `vocabulary.py` (what can be named), `source.py`
(a function's text and surroundings, and a program's functions), `expressions.py` and `translation.py` (C++, and all
that is refused), `on_int32.py` (the other form). The operations of the C++ text are in cuda/model/agent_language.h.
"""

from __future__ import annotations

import ast
import dataclasses
import marshal
import types
from collections.abc import Callable, Mapping
from typing import Any

from kineticsim_env.agents.numbers import Int32, as_chance, truth
from kineticsim_env.agents.on_int32 import OnInt32, of_ours
from kineticsim_env.agents.source import FunctionRead, Library, Source
from kineticsim_env.agents.translation import Translation
from kineticsim_env.agents.vocabulary import ProgramError, Vocabulary

__all__ = ["Program", "ProgramError", "Vocabulary", "as_chance", "read"]


@dataclasses.dataclass(frozen=True)
class Program:
    """A trader's function in both forms.

    Attributes:
        name: Its name in C++.
        text: C++: the functions that it calls, and `KS_RULE Order NAME(const Market&, Own&, const Draw&)`. It calls
            `order_of(side, tick, quantity, marketable)` and `no_order()`, which return an `Order`.
        code: A module of Python that defines these functions on `Int32`.
        given: What the module can name: functions of this package.
        levels: Of a policy, the most that its ladder has.
        play: The Python function on `Int32`, called with objects that have the vocabulary's names. They may hold and
            return plain whole numbers; what is written to memory, and handed to methods and orders, is `Int32`.
    """

    name: str
    text: str
    code: types.CodeType
    given: Mapping[str, Any]
    levels: int = 0
    play: Callable[..., Any] = dataclasses.field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Define the Python function."""
        names = {of_ours(name): value for name, value in self.given.items()}
        exec(self.code, names)  # noqa: S102
        object.__setattr__(self, "play", names[of_ours(self.name)])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by value, for processes of the same version of Python, which have its source no more."""
        return _loaded, (self.name, self.text, marshal.dumps(self.code), self.given, self.levels)


def _loaded(name: str, text: str, code: bytes, given: Mapping[str, Any], levels: int) -> Program:
    return Program(name, text, marshal.loads(code), given, levels)  # noqa: S302


def read(function: Callable[..., Any], vocabulary: Vocabulary) -> Program:
    """Return a trader's function in both forms.

    Constants and functions of its surroundings are taken as they are now; later changes to them have no effect.

    Args:
        function: A plain Python function of three arguments, of a policy four, whose source can be read.
        vocabulary: What it can name.

    Raises:
        ProgramError: If it is not in the language.
        TypeError: If it is not a function, or its source cannot be read.
    """
    library = Library(vocabulary)
    trader = Translation(library, Source(function), trader=True, depth=0).read(function)
    text = "\n".join(each.text for each in library.known.values())
    return Program(trader.name, text, _on_int32(library, trader), _given(vocabulary), library.levels)


def _on_int32(library: Library, trader: FunctionRead) -> types.CodeType:
    """Return a module of Python that has all functions of the trader's program."""
    definitions = [
        OnInt32(library, each.source, trader=each is trader).function(each.name) for each in library.known.values()
    ]
    module = ast.fix_missing_locations(ast.Module(body=[*definitions], type_ignores=[]))
    return compile(module, f"<{trader.name}>", "exec", dont_inherit=True)


def _given(words: Vocabulary) -> dict[str, Any]:
    """Return what such a module can name."""
    given: dict[str, Any] = {"Int32": Int32, "truth": truth, "order": words.order, "no_order": words.no_order}
    given |= {"quote": words.quote, "quotes": words.quotes, "keep": words.keep}
    return given | {each.__name__: each for each in (min, max, abs, range, map)}
