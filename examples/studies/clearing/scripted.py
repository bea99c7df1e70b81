"""What the page reports: statistics of markets, scripted slots at their best, learned ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from examples.studies.clearing import study
from examples.studies.clearing.learning import Kind, kinds

TRADING = 0.1  # of all that a slot might order, from which on it counts as trading
SCRIPTED = {  # slots of the page and the roles of `study.cases` that each is the best of
    "maker": ("maker",),
    "sniper": ("sniper",),
    "informed": ("maker", "sniper"),
}


def best_case(
    found: study.Played, roles: Sequence[str], every: int, trading: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return which of `cases` of some roles is best, int64 `[reference, news]`, and its edge, float64 `[..., seed]`.

    That which earns most in the markets of odd numbers is chosen; what it earns is that of the others. With `trading`,
    only distances count at which it trades, or the one where it trades most if there are none: what earns most may be a
    distance at which it never does, from where nothing can be learned.
    """
    at = np.array([n for n, case in enumerate(study.cases()) if case.role in roles and case.every == every])
    edge = found.edge[:, :, at]
    worth = edge[..., 1::2].mean(-1)
    if trading:
        units = found.units[:, :, at, 1::2].mean(-1)
        least = np.minimum(TRADING * 2 * study.QUANTITY[every] * (1000 / every), units.max(-1, keepdims=True))
        worth = np.where(units >= least, worth, -np.inf)
    best = worth.argmax(-1)
    return at[best], np.take_along_axis(edge[..., ::2], best[..., None, None], 2)[:, :, 0]


def measures(found: study.Played) -> dict[str, np.ndarray]:
    """Return what the page reports of a rule, float64 `[reference, news, seed]` each; NaN where it has no value.

    The edge of the slots of `SCRIPTED` has half of the seeds, see `best_case`; those that decide every `OFTEN` events
    are there under every rule, but under auctions of more they decide once per auction.
    """
    idle, block = (next(n for n, case in enumerate(study.cases()) if case.role == role) for role in ("idle", "block"))
    values = {name: getattr(found, name)[:, :, idle] for name in ("spread", "depth", "volume")}
    values["cost"] = -found.per_unit[:, :, block]
    values["filled"] = found.units[:, :, block] * (study.SELDOM / 1000 / study.BLOCK)
    values |= {name: best_case(found, roles, every)[1] for name, roles, every in _slots()}
    return values


def best_cases(found: study.Played) -> dict[str, np.ndarray]:
    """Return which of `cases` are the scripted slots of `measures`, int64 `[reference, news]` each."""
    return {name: best_case(found, roles, every)[0] for name, roles, every in _slots()}


def first_cases(found: study.Played) -> dict[str, np.ndarray]:
    """Return where learning begins: the best cases' roles, at the best distances of these at which they trade."""
    trading = {
        (role, every): best_case(found, (role,), every, trading=True)[0]
        for role, every in itertools.product(("maker", "sniper"), (study.OFTEN, study.SELDOM))
    }
    makes = np.array([case.role == "maker" for case in study.cases()])
    return {
        name: np.where(makes[best_case(found, roles, every)[0]], trading["maker", every], trading["sniper", every])
        for name, roles, every in _slots()
    }


def leads(interval: int, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what is paired with what under a rule, float64 `[reference, news, seed]` each.

    Values are those of `measures` and of `learning.play`. `"..._lead"` is what a learned slot earns less the best
    scripted one, `"knowing_..."` what a learned slot that knows the fundamental price earns less a learned maker, who
    does not.
    """
    found = {f"{kind.name}_lead": values[kind.name] - values[kind.scripted] for kind in kinds(interval)}
    for every in {kind.every for kind in kinds(interval)}:
        found[f"knowing_{every}"] = values[Kind("informed", every).name] - values[Kind("maker", every).name]
    return found


def _slots() -> Iterator[tuple[str, tuple[str, ...], int]]:
    """Yield the name in figures, the roles and the pace of decisions of each scripted slot."""
    for (name, roles), every in itertools.product(SCRIPTED.items(), (study.OFTEN, study.SELDOM)):
        yield f"{name}_{every}", roles, every
