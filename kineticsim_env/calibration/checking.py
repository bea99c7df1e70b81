"""How far posteriors can be trusted: those of points that were held out, whose parameters are known."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from sbi.diagnostics.sbc import check_uniformity_frequentist

from kineticsim_env.calibration.learning import Learned
from kineticsim_env.calibration.reaching import RATE, Simulations

_DRAWS = 500  # from each posterior
_REACHED = 1000  # points of which it is asked whether they are out of reach


@dataclasses.dataclass(frozen=True)
class Check:
    """How far posteriors can be trusted: of points that were held out, whose parameters are known.

    Attributes:
        names: Of the d parameters.
        places: The true parameters, as places within their ranges from 0 to 1, float64 `[N, d]`.
        means: Those of the posteriors, likewise.
        ranks: How many of the draws are below the true parameter, int64 `[N, d]`: uniform if the posteriors are right
            (simulation-based calibration, Talts et al. 2018).
        draws: How many there were of each posterior.
        levels: How much probability lies where a posterior is denser than at the true parameters, float64 `[N]`:
            uniform if they are right (expected coverage, Hermans et al. 2022).
        out_of_reach: Share of the points whose statistics would be called out of reach as a target (`reaching`), of the
            first thousand: 0.02 at most but for chance.
    """

    names: tuple[str, ...]
    places: np.ndarray
    means: np.ndarray
    ranks: np.ndarray
    draws: int
    levels: np.ndarray
    out_of_reach: float

    @property
    def p_values(self) -> dict[str, float]:
        """Kolmogorov and Smirnov's test that ranks are uniform, per parameter: small if posteriors are wrong."""
        found = check_uniformity_frequentist(torch.from_numpy(self.ranks), self.draws)
        return dict(zip(self.names, found.double().tolist(), strict=True))

    @property
    def recovered(self) -> dict[str, float]:
        """Share of a parameter's variance that posterior means explain: 1 is exact, 0 knows no more than the range."""
        missed = ((self.means - self.places) ** 2).sum(0) / ((self.places - self.places.mean(0)) ** 2).sum(0)
        return dict(zip(self.names, (1 - missed).tolist(), strict=True))

    def coverage(self, level: float) -> float:
        """Return how often the true parameters are within the densest region that holds `level` of a posterior."""
        return float((self.levels <= level).mean())


def check(
    learned: Learned, simulations: Simulations, names: tuple[str, ...], unit: np.ndarray, rows: np.ndarray, seed: int
) -> Check:
    """Draw from the posteriors of points that the network has not seen, and compare.

    `unit` has the places of their parameters, float64 `[N, d]`, and `rows` their statistics, float64 `[N, n]`.
    """
    draws = learned.sample(rows, _DRAWS, seed)
    density = learned.densities(np.concatenate([unit[None], draws]), rows)
    levels = (density[1:] > density[:1]).mean(0)
    out = float((simulations.p_values(rows[:_REACHED]).min(1) <= RATE).mean())
    return Check(names, unit, draws.mean(0), (draws < unit).sum(0), _DRAWS, levels, out)
