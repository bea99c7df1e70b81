"""The posterior predictive check: what markets show whose parameters are drawn from the posterior, beside the target.

Every calibration ends with it (Gelman, Meng and Stern 1996): a posterior can be narrow, and pass the check of held-out
points, where no point of the space shows the target.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from kineticsim_env.runtime.values import check_number
from kineticsim_env.sweeps import Sweep, sweep
from kineticsim_env.sweeps.plans import Plan

DRAWS = 200  # of the posterior, each a market of its own


@dataclasses.dataclass(frozen=True)
class Predicted:
    """Statistics of simulations from the posterior, beside the target.

    Attributes:
        values: Of each column, float64 `[n]`.
        target: Of each column.
        left_out: How many simulations are not among them, as their market did not define a statistic, or stopped.
    """

    values: dict[str, np.ndarray]
    target: dict[str, float]
    left_out: int

    @property
    def p_values(self) -> dict[str, float]:
        """Of each column, the share of simulations as far out as the target, on both sides: small if it is missed."""
        found = {}
        for name, values in self.values.items():
            tail = min((values <= self.target[name]).sum(), (values >= self.target[name]).sum())
            found[name] = min(1.0, float(2 * (1 + tail) / (1 + len(values))))
        return found

    def interval(self, level: float = 0.9) -> dict[str, tuple[float, float]]:
        """Return both ends of the central interval that holds `level` of the simulations, 0 to 1, per column."""
        return central_interval(self.values, level)


def central_interval(values: Mapping[str, np.ndarray], level: float) -> dict[str, tuple[float, float]]:
    """Return both ends of the central interval that holds `level` of values, 0 to 1, by name; NaN of none."""
    level = check_number("level", level, 0.0, 1.0)
    ends = ((1 - level) / 2, (1 + level) / 2)
    found = {name: np.quantile(each if len(each) else np.nan, ends) for name, each in values.items()}
    return {name: (float(low), float(high)) for name, (low, high) in found.items()}


def rows_of(found: Sweep, columns: Iterable[str]) -> np.ndarray:
    """Return the statistics of all points of a sweep, float64 `[N, n]`."""
    table = found.to_arrow(names := list(columns))
    return np.stack([table.column(name).to_numpy() for name in names], 1)


def predict(
    plan: Plan, samples: Mapping[str, np.ndarray], target: Mapping[str, float], where: Mapping[str, Any]
) -> Predicted:
    """Simulate the first `DRAWS` draws from a posterior, with seeds that no simulation of the calibration had.

    `plan` is the sweep that the network has learned from, `target` has values by column, and `where` the engine and the
    device, as `sweep` takes them.
    """
    points = {name: values[:DRAWS] for name, values in samples.items()}
    alike: dict[str, Any] = {"market": dict(plan.market), "replicates": plan.replicates, "warm_up": plan.warm_up}
    seed = plan.seed + plan.points * plan.replicates
    how: dict[str, Any] = {"design": "list", "seed": seed, "common": False, "progress": False}
    found = sweep(points, plan.intervals, plan.statistics, **alike, **how, **where)
    rows = rows_of(found, target)
    whole = np.isfinite(rows).all(1)
    values = dict(zip(target, rows[whole].T, strict=True))
    return Predicted(values, dict(target), int((~whole).sum()))
