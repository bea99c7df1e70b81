"""Whether a backend computed the market: its end state against the oracle's, to the last bit.

The oracle is the NumPy engine where it takes about a second. Beyond that it is the C++ engine, which first has to end
with the NumPy engine's bits on a smaller ensemble of the same shape.
"""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np

from kineticsim_env.runtime import build
from kineticsim_env.simulator import Simulator
from scripts.benchmarks.backend import Result, Workload

_NUMPY_EVENTS = 4e6  # agent-events, and a share of the ticks, that the NumPy engine clears in about a second
_CHECKED_MARKETS, _CHECKED_STEPS = 8, 200  # the smaller ensemble


class NoOracle(RuntimeError):
    """There is nothing here to compare with, so nothing may be timed."""


def digest(result: Result) -> str:
    """Return a hash of the end state: equal for equal numbers, whatever the memory they come in."""
    parts = hashlib.sha256()
    for name, values in _fields(result).items():
        parts.update(f"{name}{values.shape}".encode())
        parts.update(np.ascontiguousarray(values, dtype=np.int64).tobytes())
    return parts.hexdigest()


def first_difference(got: Result, expected: Result) -> str | None:
    """Return where two end states first differ, in words, or None if they are equal."""
    for (name, mine), theirs in zip(_fields(got).items(), _fields(expected).values(), strict=True):
        if mine.dtype.kind not in "iu":
            return f"{name}: got {mine.dtype}, expected {theirs.dtype}"
        if mine.shape != theirs.shape:
            return f"{name}: got shape {list(mine.shape)}, expected {list(theirs.shape)}"
        wrong = mine != theirs
        if wrong.any():
            place = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
            where = f"market {place[0]}" + "".join(f", tick {tick}" for tick in place[1:])
            return f"{name} of {where}: got {mine[place]}, expected {theirs[place]}"
    return None


class Oracle:
    """The end states that are expected; those of the latest workload are kept."""

    def __init__(self) -> None:
        self._cpp = build.cpu_unavailable() is None
        self._checked: set[tuple[int, int]] = set()
        self._shape: Workload | None = None
        self._kept: dict[int, tuple[Result, str]] = {}

    def expected(self, workload: Workload) -> tuple[Result, str]:
        """Return the end state of a workload, and the engine that it is from.

        Raises:
            NoOracle: If it is too large for NumPy and the C++ engine is not to be had or does not agree.
        """
        shape = dataclasses.replace(workload, steps=0)
        if shape != self._shape:
            self._shape, self._kept = shape, {}
        if workload.steps not in self._kept:
            engine = self._choose(workload)
            self._kept[workload.steps] = (_run(workload, engine), engine)
        return self._kept[workload.steps]

    def _choose(self, workload: Workload) -> str:
        if _numpy_cost(workload) <= _NUMPY_EVENTS:
            return "numpy"
        if not self._cpp:
            raise NoOracle(f"too large to verify with NumPy, and the C++ engine: {build.cpu_unavailable()}")
        if (workload.agents, workload.levels) not in self._checked:
            small = dataclasses.replace(
                workload,
                markets=min(workload.markets, _CHECKED_MARKETS),
                steps=min(workload.steps, _CHECKED_STEPS),
            )
            difference = first_difference(_run(small, "cpu"), _run(small, "numpy"))
            if difference:
                raise NoOracle(f"the C++ engine differs from the NumPy engine: {difference}")
            if small.steps == _CHECKED_STEPS:
                self._checked.add((workload.agents, workload.levels))
        return "cpu"


def _numpy_cost(workload: Workload) -> float:
    return workload.markets * workload.steps * (workload.agents + workload.levels / 4)


def _run(workload: Workload, engine: str) -> Result:
    simulator = Simulator(workload.config, workload.markets, engine=engine, seed=workload.seed)
    simulator.run(workload.steps, progress=False)
    names = ("bid", "ask", "last_price", "volume", "trades")
    return Result(**{name: getattr(simulator, name).numpy().copy() for name in names})


def _fields(result: Result) -> dict[str, np.ndarray]:
    return {field.name: np.asarray(getattr(result, field.name)) for field in dataclasses.fields(Result)}
