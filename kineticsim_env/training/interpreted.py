"""What Triton's interpreter, in which kernels are tested on a CPU, lacks; kernels take it from here only there."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any


def range(*ends: Any) -> Iterator[int]:
    """Return Python's range of bounds that are scalars of a kernel.

    The interpreter holds them as arrays of one number, which it hands to Python as they are; NumPy 2.4 refuses that.
    """
    return iter(builtins.range(*(end.handle.data.item() if hasattr(end, "handle") else end for end in ends)))
