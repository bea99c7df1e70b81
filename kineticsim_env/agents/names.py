"""What a trader's function can name, as data; how its names are spelled in C++; the error of a refused function."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from kineticsim_env.errors import KineticSimError

# Words that mean something else to a C++ or CUDA compiler: keywords of C++ up to C++26, and macros in small letters
# that compilers and the C library define.
RESERVED = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
    concept const consteval constexpr constinit const_cast continue contract_assert co_await co_return co_yield decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int
    long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename typeof union unsigned using virtual void volatile wchar_t while
    xor xor_eq asm_volatile assert errno linux unix i386 stdin stdout stderr math_errhandling major minor makedev
    restrict near far small interface
    """.split()
)


class ProgramError(KineticSimError, SyntaxError):
    """A trader's function is not in the language; the message says where, and what to write instead."""


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What a trader's function can name through its arguments.

    Attributes:
        seen: Names that the first argument has, all whole numbers.
        prices: Methods of the first argument, with how many whole numbers each takes.
        parameters: Names that the second argument has, and that are not written.
        memory: Those that may be written too.
        draws: Methods of the third argument, with how many whole numbers each takes; all take `word=` a constant too.
        chances: Those of them whose argument is a probability from 0 to 1, or a whole number of 2^-24.
        order: The function that makes an order: side, tick, quantity, marketable.
        no_order: The function that makes none.

    Raises:
        ValueError: If a name cannot be a name in C++ too.
    """

    seen: frozenset[str]
    prices: Mapping[str, int]
    parameters: frozenset[str]
    memory: frozenset[str]
    draws: Mapping[str, int]
    chances: frozenset[str]
    order: Callable[..., Any]
    no_order: Callable[..., Any]

    def __post_init__(self) -> None:
        """Refuse names that a compiler could take for something else."""
        for name in (*self.seen, *self.prices, *self.parameters, *self.memory, *self.draws):
            if not (isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name)):
                raise ValueError(
                    f"agent: got the name {name!r}, allowed are small letters a to z, digits, and single _ between them"
                )
            if name in RESERVED:
                raise ValueError(f"agent: got the name {name!r}, which C++ has for itself; take another")


def local_in_cpp(name: str, index: int) -> str:
    """Return how a local name is spelled in C++; `index` tells it from the function's others."""
    return f"v_{name}" if name.isascii() else f"u_{index}"


def function_in_cpp(name: str, index: int) -> str:
    """Return how a function is spelled in C++; `index` tells it from the program's others."""
    return f"f_{name}_{index}" if name.isascii() else f"f_{index}"


def as_chance(probability: Any) -> int:
    """Return a probability as a multiple of 2^-24: a float from 0 to 1, or what is one already."""
    return round(probability * 2**24) if isinstance(probability, float) else int(probability)
