"""Whether simulations come near a target at all: a network knows nothing of what it was never shown.

Two measures of a target are compared with the same of the simulations themselves, each beside all others: the distance
to the nearest, and how far a statistic is beyond all. Shares of simulations that reach as far are conformal p-values
(Bates et al. 2023, Testing for outliers with conformal p-values): whatever the distributions, a target that the model
made has one below a in at most a share a of cases. `calibrated.posterior_of` asks before it draws.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from kineticsim_env.calibration.learning import Standard

RATE = 0.01  # of targets that the model made, that each measure calls out of reach, at most
_COMPARED = 1000  # simulations whose distance to the nearest other one is taken
_FLOOR = 1e-6  # of variances after whitening, as a share of the largest
_AT_ONCE = 1 << 24  # distances


@dataclasses.dataclass(frozen=True)
class Reach:
    """Whether simulations come near a target.

    Distances are Euclidean, of standardised statistics without correlations: 1 is a deviation of the simulations.

    Attributes:
        distance: To the nearest simulation.
        usual: 99% of simulations are within this of the nearest other one.
        p_values: Shares of simulations as far from all others: in `"distance"`, and in `"range"`, by the statistic that
            is furthest beyond all.
        nearest: The parameters of the nearest simulation.
        statistics: Its statistics, by column.
        gaps: The target's statistics less these, and less what the gaps of the others let expect, by the simulations'
            covariance; in deviations of what then remains.
        beyond: Those of the target's statistics that are below all simulations, or above all.
    """

    distance: float
    usual: float
    p_values: dict[str, float]
    nearest: dict[str, Any]
    statistics: dict[str, float]
    gaps: dict[str, float]
    beyond: tuple[str, ...]

    @property
    def within(self) -> bool:
        """Whether there is a posterior: neither p-value is 0.01 or less."""
        return min(self.p_values.values()) > RATE

    @property
    def missed(self) -> tuple[str, ...]:
        """Which statistics are out of reach: those beyond all simulations, or else those with gaps."""
        if self.within:
            return ()
        largest = max(map(abs, self.gaps.values()))
        return self.beyond or tuple(name for name, gap in self.gaps.items() if abs(gap) >= largest / 2)

    def __str__(self) -> str:
        if self.within:
            return f"the nearest simulation is {self.distance:.3g} away; of simulations 99% are within {self.usual:.3g}"
        why = "beyond all simulations" if self.beyond else "not together in any simulation"
        return (
            f"out of reach: {', '.join(self.missed)} ({why}); the nearest simulation is {self.distance:.3g} away, and "
            f"99% of simulations are within {self.usual:.3g} of another"
        )


class Simulations:
    """What simulations showed, and how far each is from all others; distances are taken on `device`.

    `unit` has places of the parameters within the unit cube, `[N, d]`, `rows` statistics, float64 `[N, n]`, finite.
    """

    def __init__(self, unit: np.ndarray, rows: np.ndarray, standard: Standard, device: torch.device) -> None:
        self.unit, self.rows, self.standard, self.device = unit, rows, standard, device
        seen = standard(rows).double().numpy()
        deviation = seen.std(0)
        self.scale = np.where(deviation > 0, deviation, _FLOOR)  # what never varies is missed by any other value
        variances, axes = np.linalg.eigh(np.atleast_2d(np.cov(seen, rowvar=False)))
        least = _FLOOR * max(variances.max(), _FLOOR)
        self._axes = axes / np.sqrt(np.maximum(variances, least))
        self._seen = self._whitened(seen)
        compared = np.sort(np.random.default_rng(0).permutation(len(rows))[:_COMPARED])
        self.distances = self._nearest(self._seen[compared], compared)[0]
        ordered = np.partition(seen, (0, 1, len(rows) - 2, len(rows) - 1), axis=0)
        self._low, self._high = ordered[0], ordered[-1]
        low, high = (np.where(seen == ends[0], ends[1], ends[0]) for ends in (ordered[:2], ordered[-1:-3:-1]))
        self.excesses = self._excess(seen, low, high)

    def p_values(self, rows: np.ndarray) -> np.ndarray:
        """Return p-values of rows `[k, n]` that are not among the simulations, by distance and by range, `[k, 2]`."""
        seen = self.standard(rows).double().numpy()
        return self._p_values(seen, self._nearest(self._whitened(seen))[0])

    def reach(self, values: dict[str, float], dimensions: Any) -> Reach:
        """Return the reach of a target, whose columns are those of the rows, in a space."""
        seen = self.standard(np.array([list(values.values())])).double().numpy()
        distances, places = self._nearest(self._whitened(seen))
        nearest, row = self.unit[places], self.rows[places[0]]
        apart = (seen - self.standard(row[None]).double().numpy())[0]
        precision = self._axes @ self._axes.T
        gaps = precision @ apart / np.sqrt(np.diag(precision))
        beyond = ((seen < self._low) | (seen > self._high))[0]
        return Reach(
            distance=float(distances[0]),
            usual=float(np.quantile(self.distances, 1 - RATE)),
            p_values=dict(zip(("distance", "range"), self._p_values(seen, distances)[0].tolist(), strict=True)),
            nearest={each.name: each.at(nearest[:, column])[0].item() for column, each in enumerate(dimensions)},
            statistics=dict(zip(values, row.tolist(), strict=True)),
            gaps=dict(zip(values, gaps.tolist(), strict=True)),
            beyond=tuple(name for name, far in zip(values, beyond, strict=True) if far),
        )

    def _p_values(self, seen: np.ndarray, distances: np.ndarray) -> np.ndarray:
        """Return shares of simulations that reach as far, the target itself among them."""
        excess = self._excess(seen, self._low, self._high)
        far = (1 + (self.distances >= distances[:, None]).sum(1)) / (1 + len(self.distances))
        wide = (1 + (self.excesses[self.excesses > 0] >= excess[:, None]).sum(1)) / (1 + len(self.rows))
        return np.stack([far, np.where(excess > 0, wide, 1.0)], 1)

    def _excess(self, seen: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return how far the furthest statistic of each row is beyond a range, in deviations; 0 within."""
        return (np.maximum(np.maximum(low - seen, seen - high), 0) / self.scale).max(1)

    def _whitened(self, seen: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(seen @ self._axes).float().to(self.device)

    def _nearest(self, asked: torch.Tensor, own: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return each row's distance to the nearest simulation, and which that is; not the one numbered in `own`."""
        step = max(1, _AT_ONCE // len(self._seen))
        found = []
        for begin in range(0, len(asked), step):
            part = asked[begin : begin + step]
            apart = torch.cdist(part, self._seen, compute_mode="donot_use_mm_for_euclid_dist")
            if own is not None:
                apart[torch.arange(len(part)), torch.from_numpy(own[begin : begin + step])] = torch.inf
            found.append(apart.min(1))
        distances, places = (torch.cat(parts).cpu().numpy() for parts in zip(*found, strict=True))
        return distances.astype(np.float64), places
