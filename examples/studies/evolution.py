"""The search by which studies learn few numbers: CMA-ES, of the package `cma`.

Hansen (2016), "The CMA evolution strategy: a tutorial", arXiv:1604.00772.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def search(start: Sequence[float], deviation: float | Sequence[float], population: int) -> Any:
    """Return a search, which has `ask`, `tell` (the least is best) and `mean`; the same arguments search alike.

    Args:
        start: Numbers that it begins with.
        deviation: Of the first candidates, around it: of all numbers, or of each.
        population: Candidates per generation.

    Raises:
        ModuleNotFoundError: Without `cma`.
    """
    try:
        import cma
    except ModuleNotFoundError as error:
        message = "learning in a study needs cma: pip install 'kineticsim-env[train]'"
        raise ModuleNotFoundError(message, name="cma") from error

    settings: dict[str, Any] = {"popsize": population, "seed": 1, "verbose": -9}
    if isinstance(deviation, Sequence):
        settings["CMA_stds"], deviation = list(deviation), 1.0
    return cma.CMAEvolutionStrategy(list(start), deviation, settings)
