"""`run_seed`: seeds of several runs that have no market in common; the package exports it."""

from __future__ import annotations

from kineticsim_env.runtime.values import check_count

_MARKETS = 2**32  # that a run may have; an ensemble has fewer than 2^31
_FIRST_WARM_START = 2**61  # seeds from here on are those of warm starts, and from 2^62 of evaluations


def run_seed(run: int) -> int:
    """Return the seed of a run whose markets no other run has: `run * 2^32`.

    Seeded s, market m has the random stream of seed s + m, as Gymnasium has it: seeds 1 and 2 share 255 of 256 markets,
    and what is learned from them is no two samples. Seeds of runs are further apart than an ensemble is large (at most
    2^31 - 1 markets). They end below those of warm starts (from 2^61) and of `kineticsim_env.evaluation` (from 2^62).

    Args:
        run: Which run, 0 to 2^29 - 1.

    Returns:
        A seed for `reset` and `Simulator`.

    Raises:
        TypeError, ValueError: If `run` is no whole number, or out of range.
    """
    return check_count("run", run, 0, _FIRST_WARM_START // _MARKETS - 1) * _MARKETS
