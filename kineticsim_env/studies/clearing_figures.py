"""What the page of `clearing` reports: statistics of markets, scripted slots at their best distance, learned ones."""

from __future__ import annotations

import itertools

import numpy as np

from kineticsim_env.studies import clearing as study
from kineticsim_env.studies.clearing_learning import Kind, kinds

TRADING = 0.1  # of all that a slot might order, from which on it counts as trading


def best_distance(found: study.Played, role: str, every: int, trading: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return a maker's or a sniper's best distance, int64 `[reference, news]`, and its edge, float64 `[..., seed]`.

    The distance that earns most in the markets of odd numbers is chosen; what it earns is that of the others.

    Args:
        found: What was played.
        role: "maker" or "sniper".
        every: Events between its decisions.
        trading: Only of distances at which it trades, or of the one where it trades most if there are none. What earns
            most may be a distance at which it never does, from where nothing can be learned.
    """
    at = [place for place, case in enumerate(study.cases()) if (case.role, case.every) == (role, every)]
    edge = found.edge[:, :, at]
    worth = edge[..., 1::2].mean(-1)
    if trading:
        units = found.units[:, :, at, 1::2].mean(-1)
        least = np.minimum(TRADING * 2 * study.QUANTITY[every] * (1000 / every), units.max(-1, keepdims=True))
        worth = np.where(units >= least, worth, -np.inf)
    best = worth.argmax(-1)
    return np.take(study.DISTANCES, best), np.take_along_axis(edge[..., ::2], best[..., None, None], 2)[:, :, 0]


def measures(found: study.Played) -> dict[str, np.ndarray]:
    """Return what the page reports of a rule, float64 `[reference, news, seed]` each; NaN where it has no value.

    A maker's and a sniper's edge has half of the seeds, see `best_distance`; slots that decide every `OFTEN` events are
    there under every rule, but under auctions of more they decide once per auction.
    """
    idle, block = (next(n for n, case in enumerate(study.cases()) if case.role == role) for role in ("idle", "block"))
    values = {"error": found.error, "fresh": found.fresh}
    values |= {name: getattr(found, name)[:, :, idle] for name in ("spread", "depth", "volume")}
    values["cost"] = -found.per_unit[:, :, block]
    values["filled"] = found.units[:, :, block] * (study.SELDOM / 1000 / study.BLOCK)
    for role, every in itertools.product(("maker", "sniper"), (study.OFTEN, study.SELDOM)):
        values[f"{role}_{every}"] = best_distance(found, role, every)[1]
    return values


def distances(found: study.Played, trading: bool = False) -> dict[str, np.ndarray]:
    """Return the distances that `measures` takes for its slots, int64 `[reference, news]` each; see `best_distance`."""
    slots = itertools.product(("maker", "sniper"), (study.OFTEN, study.SELDOM))
    return {f"{role}_{every}": best_distance(found, role, every, trading)[0] for role, every in slots}


def leads(interval: int, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what is paired with what under a rule, float64 `[reference, news, seed]` each.

    Args:
        interval: The rule's.
        values: By name, of `measures` and of `clearing_learning.play`.

    Returns:
        `"..._lead"`: what a learned slot earns less the scripted one that it began as; `"knowing_..."`: what a learned
        slot that knows the fundamental price earns less a learned maker, who does not.
    """
    found = {f"{kind.name}_lead": values[kind.name] - values[kind.scripted] for kind in kinds(interval)}
    for every in {kind.every for kind in kinds(interval)}:
        found[f"knowing_{every}"] = values[Kind("informed", every).name] - values[Kind("maker", every).name]
    return found
