"""What a trader's function can name, as data; how its names are spelled in C++; the error of a refused function."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from kineticsim_env.errors import KineticSimError


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
        ValueError: If a name is not small letters, digits and single underscores.
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
        """Refuse names that are no plain words."""
        for name in (*self.seen, *self.prices, *self.parameters, *self.memory, *self.draws):
            if not (isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name)):
                raise ValueError(
                    f"agent: got the name {name!r}, allowed are small letters a to z, digits, and single _ between them"
                )


# Every name of a user's has a prefix in C++, so that no keyword, macro or name of ours can be taken for it.


def own_in_cpp(name: str) -> str:
    """Return how a parameter or a word of memory is spelled in C++."""
    return f"w_{name}"


def local_in_cpp(name: str, index: int) -> str:
    """Return how a local name is spelled in C++; `index` tells it from the function's others."""
    return f"v_{name}" if name.isascii() else f"u_{index}"


def function_in_cpp(name: str, index: int) -> str:
    """Return how a function is spelled in C++; `index` tells it from the program's others."""
    return f"f_{name}_{index}" if name.isascii() else f"f_{index}"


def as_chance(probability: Any) -> int:
    """Return a probability as a multiple of 2^-24: a float from 0 to 1, or what is one already."""
    return round(probability * 2**24) if isinstance(probability, float) else int(probability)
