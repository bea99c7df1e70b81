"""`Int32`: whole numbers of 32 bits that wrap around, as the compiled text of a trader has them.

A trader's own Python function runs on them, and is what the compiled ones are compared with.
"""

from __future__ import annotations

from typing import Any


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

    def __neg__(self) -> Int32:
        """Return -x, which is x itself at -2^31."""
        return Int32(-self.value)

    def __pos__(self) -> Int32:
        """Return x."""
        return self

    def __abs__(self) -> Int32:
        """Return |x|, which is x itself at -2^31."""
        return Int32(abs(self.value))

    def __add__(self, other: Any) -> Int32:
        """Return x + y."""
        return Int32(self.value + int(other))

    def __sub__(self, other: Any) -> Int32:
        """Return x - y."""
        return Int32(self.value - int(other))

    def __mul__(self, other: Any) -> Int32:
        """Return x y."""
        return Int32(self.value * int(other))

    def __floordiv__(self, other: Any) -> Int32:
        """Return x / y rounded down; 0 if y is 0."""
        return Int32(self.value // int(other) if other else 0)

    def __mod__(self, other: Any) -> Int32:
        """Return x - (x // y) y, of y's sign; 0 if y is 0."""
        return Int32(self.value % int(other) if other else 0)

    def __lshift__(self, other: Any) -> Int32:
        """Return x 2^(y mod 32)."""
        return Int32(self.value << (int(other) % 32))

    def __rshift__(self, other: Any) -> Int32:
        """Return x / 2^(y mod 32), rounded down."""
        return Int32(self.value >> (int(other) % 32))

    def __and__(self, other: Any) -> Int32:
        """Return the bits that both have."""
        return Int32(self.value & int(other))

    def __or__(self, other: Any) -> Int32:
        """Return the bits that either has."""
        return Int32(self.value | int(other))

    def __xor__(self, other: Any) -> Int32:
        """Return the bits that one has."""
        return Int32(self.value ^ int(other))

    def __lt__(self, other: Any) -> Int32:
        """Return 1 where x < y, else 0."""
        return Int32(self.value < int(other))

    def __le__(self, other: Any) -> Int32:
        """Return 1 where x <= y, else 0."""
        return Int32(self.value <= int(other))

    def __gt__(self, other: Any) -> Int32:
        """Return 1 where x > y, else 0."""
        return Int32(self.value > int(other))

    def __ge__(self, other: Any) -> Int32:
        """Return 1 where x >= y, else 0."""
        return Int32(self.value >= int(other))

    def __eq__(self, other: Any) -> Any:
        """Return 1 where x = y, else 0."""
        return Int32(self.value == int(other))

    def __ne__(self, other: Any) -> Any:
        """Return 1 where x and y differ, else 0."""
        return Int32(self.value != int(other))


def truth(value: Any) -> Int32:
    """Return 1 for what is true, else 0."""
    return Int32(bool(value))


def as_chance(probability: Any) -> int:
    """Return a probability as a multiple of 2^-24: a float from 0 to 1, or what is one already."""
    return round(probability * 2**24) if isinstance(probability, float) else int(probability)
