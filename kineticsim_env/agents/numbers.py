"""`Int32`: whole numbers of 32 bits that wrap around, as the compiled text of a trader has them.

A trader's own Python function runs on them, and is what the compiled ones are compared with.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any


def _wrapping(compute: Callable[..., int]) -> Any:
    """Return a method of `Int32` that computes on Python's numbers and wraps the result."""
    return lambda self, *others: Int32(compute(self.value, *map(int, others)))


class Int32:
    """A whole number from -2^31 to 2^31 - 1; what leaves this range wraps around.

    `//` and `%` round down, as Python's do; by zero they give 0, and of -2^31 by -1 they give -2^31 and 0. Shifts go by
    their count modulo 32. Comparisons give 0 or 1.
    """

    __slots__ = ("value",)
    __hash__: Any = None

    def __init__(self, value: Any) -> None:
        """Take the low 32 bits of any whole number."""
        self.value = (int(value) + 2**31) % 2**32 - 2**31

    def __int__(self) -> int:
        """Return it as Python's."""
        return self.value

    __index__ = __int__

    def __bool__(self) -> bool:
        """Return whether it is not 0."""
        return self.value != 0

    def __repr__(self) -> str:
        """Return its digits."""
        return str(self.value)

    def __pos__(self) -> Int32:
        """Return x."""
        return self

    __neg__ = _wrapping(operator.neg)
    __abs__ = _wrapping(operator.abs)
    __add__ = _wrapping(operator.add)
    __sub__ = _wrapping(operator.sub)
    __mul__ = _wrapping(operator.mul)
    __floordiv__ = _wrapping(lambda x, y: x // y if y else 0)
    __mod__ = _wrapping(lambda x, y: x % y if y else 0)
    __lshift__ = _wrapping(lambda x, y: x << y % 32)
    __rshift__ = _wrapping(lambda x, y: x >> y % 32)
    __and__ = _wrapping(operator.and_)
    __or__ = _wrapping(operator.or_)
    __xor__ = _wrapping(operator.xor)
    __lt__ = _wrapping(operator.lt)
    __le__ = _wrapping(operator.le)
    __gt__ = _wrapping(operator.gt)
    __ge__ = _wrapping(operator.ge)
    __eq__ = _wrapping(operator.eq)
    __ne__ = _wrapping(operator.ne)


def truth(value: Any) -> Int32:
    """Return 1 for what is true, else 0."""
    return Int32(bool(value))


def as_chance(probability: Any) -> int:
    """Return a probability as a multiple of 2^-24: a float from 0 to 1, or what is one already."""
    return round(probability * 2**24) if isinstance(probability, float) else int(probability)
