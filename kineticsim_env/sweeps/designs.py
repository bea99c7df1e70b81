"""Where the points of a sweep are: a grid, random points, a Sobol sequence, or a list.

Any rows of a design can be had without those before them, so that a sweep of any length is planned a batch at a time.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from kineticsim_env.runtime.values import check_choice, check_count, load_optional, show
from kineticsim_env.sweeps.space import Dimension

DESIGNS = ("grid", "random", "sobol", "list")
MOST_POINTS = 2**31 - 1
_MOST_SOBOL = 2**30  # scipy's sequence has no more, and no more dimensions than
_MOST_DIMENSIONS = 21201


@dataclasses.dataclass(frozen=True)
class Design:
    """Points in a space: of which kind is said in `sweep`."""

    kind: str  # of `DESIGNS`
    dimensions: tuple[Dimension, ...]
    points: int
    seed: int  # of random points, or of a Sobol sequence's scrambling

    def rows(self, begin: int, end: int) -> dict[str, np.ndarray]:
        """Return the values of points `begin` to `end` (without it), `[end - begin]` by name."""
        if self.kind == "list":
            return {each.name: each.of_grid[begin:end] for each in self.dimensions}
        if self.kind == "grid":
            lengths = [len(each.of_grid) for each in self.dimensions]
            places = np.unravel_index(np.arange(begin, end), lengths)
            return {each.name: each.of_grid[place] for each, place in zip(self.dimensions, places, strict=True)}
        unit = self.unit(begin, end)
        return {each.name: each.at(unit[:, column]) for column, each in enumerate(self.dimensions)}

    def unit(self, begin: int, end: int) -> np.ndarray:
        """Return where random or Sobol points are within the unit cube, float64 `[end - begin, dimensions]`.

        They are rows of `numpy.random.default_rng(seed).random((points, dimensions))`, or of
        `scipy.stats.qmc.Sobol(dimensions, rng=seed).random(points)`.
        """
        if self.kind == "random":
            bits = np.random.PCG64(self.seed)
            bits.advance(begin * len(self.dimensions))
            return np.random.Generator(bits).random((end - begin, len(self.dimensions)))
        engine = sobol_engine(len(self.dimensions), self.seed)
        if begin:
            engine.fast_forward(begin)
            return engine.random(end - begin)
        first = engine.random(1)  # alone: scipy warns of a first draw whose length is no power of two
        return np.concatenate([first, engine.random(end - 1)]) if end > 1 else first


def sobol_engine(dimensions: int, seed: int) -> Any:
    """Return scipy's sequence at its beginning."""
    missing = "design: got 'sobol', which needs scipy: pip install 'kineticsim-env[sweep]'"
    return load_optional("scipy.stats.qmc", missing).Sobol(dimensions, scramble=True, rng=seed)


def make_design(dimensions: tuple[Dimension, ...], kind: Any, points: Any, seed: Any) -> Design:
    """Return a design of one of the kinds `DESIGNS`, checked.

    A grid and a list have as many points as there are values, so `points` is None there. The seed is from 0.
    """
    check_choice("design", kind, DESIGNS)
    seed = check_count("design_seed", seed, 0, 2**63 - 1)
    if kind != "list":
        for each in dimensions:
            each.check_once()
    if kind in ("random", "sobol"):
        if points is None:
            raise ValueError(f"points: expected how many to draw, got None with design={kind!r}")
        points = check_count("points", points, 1, _MOST_SOBOL if kind == "sobol" else MOST_POINTS)
        if kind == "sobol":
            if len(dimensions) > _MOST_DIMENSIONS:
                raise ValueError(f"space: expected up to {_MOST_DIMENSIONS} names with 'sobol', got {len(dimensions)}")
            sobol_engine(1, seed)  # else a machine without scipy would say so in the middle
        for each in dimensions:
            if each.steps is not None:
                raise ValueError(f"space[{each.name!r}]: expected steps with a grid alone, got them with {kind!r}")
        return Design(kind, dimensions, points, seed)
    for each in dimensions:
        if each.values is None and (kind == "list" or (each.steps is None and not each.whole)):
            allowed = "a list of values" if kind == "list" else "a list of values, or a range with 'steps'"
            raise ValueError(f"space[{each.name!r}]: expected {allowed}, got a range with design={kind!r}")
        if each.scale == "log" and each.steps is None and each.values is None:
            raise ValueError(f"space[{each.name!r}]: expected steps too with a grid, got scale 'log' alone")
    lengths = {each.name: len(each.of_grid) for each in dimensions}
    found = math.prod(lengths.values()) if kind == "grid" else next(iter(lengths.values()))
    if kind == "list" and len(set(lengths.values())) > 1:
        raise ValueError(f"space: expected lists of one length with design='list', got lengths {lengths}")
    if found > MOST_POINTS:
        raise ValueError(f"space: expected up to {MOST_POINTS} points, got a grid of {found}")
    if points is not None and points != found:
        raise ValueError(f"points: expected None, got {show(points)} with design={kind!r}: there are {found}")
    return Design(kind, dimensions, found, seed)
