"""The C++ engine as a wheel brings it, for machines without a compiler: which library this processor takes.

`scripts/prebuilt` builds the libraries; a checkout has none unless it was asked to. They have the engine, tapes and the
plans of launches. They lack torch's operators, which depend on torch's version. Uses Python alone, as `sources` does.
"""

import platform
import sys
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "_prebuilt"


class Kind(NamedTuple):
    """Processors that one library serves: their machine, and what /proc/cpuinfo must name."""

    machine: str
    features: frozenset[str]


_V2 = frozenset("cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3".split())  # of 2009 on
_V3 = _V2 | frozenset("abm avx avx2 bmi1 bmi2 f16c fma movbe".split())  # of 2013 on
KINDS = {  # the best first
    "x86-64-v3": Kind("x86_64", _V3),
    "x86-64-v2": Kind("x86_64", _V2),
    "aarch64": Kind("aarch64", frozenset()),
}


def file_name(kind: str) -> str:
    """Return the name of the library for processors of a kind."""
    return f"engine-linux-{kind}.so"


def kind_of_this_processor() -> str | None:
    """Return the best kind that this machine's processor is of, or None."""
    if not sys.platform.startswith("linux"):
        return None
    found = _features()
    return next(
        (name for name, kind in KINDS.items() if kind.machine == platform.machine() and kind.features <= found), None
    )


def find() -> Path | None:
    """Return the library for this processor, or None if there is none here."""
    kind = kind_of_this_processor()
    path = FOLDER / file_name(kind) if kind else None
    return path if path and path.is_file() else None


def _features() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(word for line in lines if line.startswith("flags") for word in line.partition(":")[2].split())
