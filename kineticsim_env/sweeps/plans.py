"""`Plan`: a whole sweep, before anything is run: which points, which markets each of them is, and what is measured.

A plan takes no more memory for more points. `about` is the same as plain numbers and texts: what a store keeps, and by
which two sweeps are compared.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from kineticsim_env.agents.classes import AgentClass, stored_agents
from kineticsim_env.config import PRESETS, MarketConfig, checked_field
from kineticsim_env.engines.effects import Effect, effect_of
from kineticsim_env.runtime import __version__
from kineticsim_env.runtime.fields import CLASSES
from kineticsim_env.runtime.values import check_count, check_flag, show
from kineticsim_env.statistics import check_statistics
from kineticsim_env.statistics.plans import column_names, named_statistics
from kineticsim_env.sweeps.designs import Design, make_design
from kineticsim_env.sweeps.functions import stored_statistic
from kineticsim_env.sweeps.markets import config_of, market_fields, one_market
from kineticsim_env.sweeps.space import Dimension, as_item, plain, read_space

OWN_COLUMNS = ("point", "replicate", "stopped")  # of a table, besides the space and the statistics
_SETTINGS = ("intervals", "warm_up", "replicates", "seed", "common", "each_market")
_CHECKED = 1 << 20  # points that are checked before anything is run, so many at a time:
_AT_ONCE = 1 << 14
_LAUNCHES = 1 << 10  # but no more configs than this, where points cannot share one


@dataclasses.dataclass(frozen=True)
class Plan:
    """A sweep; its fields are as the arguments of `sweep`, checked."""

    market: Mapping[str, Any]  # fields that all points have alike, and perhaps "preset"
    design: Design
    statistics: Mapping[str, Any]  # by name, as `measure` takes them
    series: tuple[str, ...]  # that are recorded for them
    order_events: bool  # whether any is of these
    intervals: int
    warm_up: int
    replicates: int
    seed: int
    common: bool
    each_market: bool

    @property
    def points(self) -> int:
        """How many points there are."""
        return self.design.points

    @property
    def apart(self) -> tuple[Dimension, ...]:
        """What markets of one launch cannot differ in."""
        return tuple(each for each in self.design.dimensions if each.apart)

    @property
    def has_errors(self) -> bool:
        """Whether rows have standard errors: over the replicates of a point, if there are several."""
        return self.replicates > 1 and not self.each_market

    def configs(self, rows: Mapping[str, np.ndarray]) -> Iterator[tuple[np.ndarray, MarketConfig]]:
        """Yield the points of `rows` that one launch can play, as places within, and their config: a market each."""
        shares = any(name in CLASSES for name in rows)
        if not self.apart:
            yield np.arange(_length(rows)), config_of(self.market, {}, rows, shares)
            return
        codes = np.zeros(_length(rows), dtype=np.int64)
        for each in self.apart:
            _, code = np.unique(_keys(rows[each.name]), return_inverse=True)
            _, codes = np.unique(codes * (code.max() + 1) + code, return_inverse=True)
        names = [each.name for each in self.apart]
        for number in range(codes.max() + 1):
            places = np.flatnonzero(codes == number)
            alike = {name: as_item(rows[name][places[0]]) for name in names}
            own = {name: values[places] for name, values in rows.items() if name not in names}
            yield places, config_of(self.market, alike, own, shares)

    def config(self, point: int) -> MarketConfig:
        """Return the market of one point."""
        ((_, config),) = self.configs(self.design.rows(point, point + 1))
        return one_market(config)

    @property
    def own_code(self) -> bool:
        """Whether the market of the first point has traders of the user's own; see `choose_engine`."""
        return bool(self.config(0).agents)

    def seeds(self, points: np.ndarray) -> np.ndarray:
        """Return the seeds of all markets of some points, a point's replicates beside each other."""
        replicates = np.arange(self.replicates, dtype=np.int64)
        first = np.zeros_like(points) if self.common else points * self.replicates
        return (self.seed + first[:, None] + replicates).ravel()

    def check(self) -> None:
        """Check the markets of all points, or of the first million; see `MarketConfig`.

        Raises:
            ValueError: Besides for a market, for a name of the space that changes nothing in any of them; where not all
                are looked at, only if those that are were drawn at random.
        """
        idle: dict[str, Effect | None] = {each.name: None for each in self.design.dimensions if each.varies}
        begins = range(0, min(self.points, _CHECKED), _AT_ONCE)
        rows = (self.design.rows(begin, min(begin + _AT_ONCE, self.points)) for begin in begins)
        launches = itertools.chain.from_iterable(map(self.configs, rows))
        looked = 0
        for places, config in itertools.islice(launches, _LAUNCHES):
            looked += len(places)
            for name in [*idle]:
                found = effect_of(config, name, self.series)
                if found.there.any():
                    del idle[name]
                else:
                    idle[name] = idle[name] or found
        if looked < self.points and self.design.kind in ("grid", "list"):
            return
        for name, effect in idle.items():
            if effect is not None:
                raise ValueError(
                    f"space[{name!r}]: expected what has an effect, such as {effect.instead}, got what changes "
                    f"nothing in any point, as {effect.why_not}"
                )

    def about(self) -> dict[str, Any]:
        """Return the whole plan as JSON keeps it; `make_plan` reads all of it but `version` and `classes`."""
        texts = {name: stored_statistic(given) for name, given in self.statistics.items()}
        market = dict(self.market)
        if "agents" in market:
            market["agents"] = stored_agents(market["agents"])
        return {
            "version": __version__,
            "space": {each.name: each.plain() for each in self.design.dimensions},
            "market": plain(market),
            "design": self.design.kind,
            "points": self.points,
            "design_seed": self.design.seed,
            "statistics": texts,
            **{name: getattr(self, name) for name in _SETTINGS},
            "classes": {kind.path: _digest(repr(kind._what())) for kind in _kinds(self.market, self.design)},
        }


def make_plan(
    space: Any,
    intervals: Any,
    statistics: Any,
    *,
    market: Any = None,
    design: Any = "grid",
    points: Any = None,
    design_seed: Any = 0,
    replicates: Any = 1,
    warm_up: Any = 0,
    seed: Any = 0,
    common: Any = True,
    each_market: Any = False,
) -> Plan:
    """Return a plan; arguments and errors are those of `sweep`."""
    fields = market_fields(market, space if isinstance(space, Mapping) else ())
    dimensions = read_space(space, *_what_varies(fields, space))
    names = [each.name for each in dimensions]
    measured = named_statistics(statistics)
    checked = check_statistics(measured)
    replicates = check_count("replicates", replicates, 1)
    for name, statistic in checked.items():
        for column in column_names(name, statistic.labels):
            if column in (*names, *OWN_COLUMNS):
                raise ValueError(
                    f"statistics: expected another name, got {name!r}, whose column {column!r} the table has already"
                )
    plan = Plan(
        market=fields,
        design=make_design(dimensions, design, points, design_seed),
        statistics=measured,
        series=tuple(dict.fromkeys(series for statistic in checked.values() for series in statistic.record)),
        order_events=any(statistic.of_events for statistic in checked.values()),
        intervals=check_count("intervals", intervals, 1),
        warm_up=check_count("warm_up", warm_up, 0),
        replicates=replicates,
        seed=check_count("seed", seed, -(2**63), 2**63 - 1),
        common=check_flag("common", common),
        each_market=check_flag("each_market", each_market),
    )
    last = plan.seed + (1 if plan.common else plan.points) * replicates - 1
    if last >= 2**63:
        raise ValueError(f"seed: expected seeds of all markets below 2^63, got {show(seed)}")
    return plan


def _what_varies(fields: Mapping[str, Any], space: Any) -> tuple[dict[AgentClass, None], int]:
    """Return the classes of agents whose parameters a space may have, and of how many regimes it may have fields."""
    markets = [fields]
    if isinstance(space, Mapping):
        for name in ("preset", "agents", "regimes"):
            for value in read_space({name: space[name]}, ())[0].values or () if name in space else ():
                markets.append(PRESETS[value] if name == "preset" else {name: value})
    agents = [checked_field("agents", market.get("agents")) for market in markets]
    kinds = dict.fromkeys(kind for mixes in agents for kind in mixes)
    return kinds, max(len(market.get("regimes") or ()) for market in markets)


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Return in words what differs between two plans, by their `about`."""

    def flat(about: Mapping[str, Any]) -> dict[str, Any]:
        parts = ("space", "market", "statistics", "classes")
        found = {name: value for name, value in about.items() if name not in parts}
        return found | {f"{part}.{name}": value for part in parts for name, value in about.get(part, {}).items()}

    left, right = flat(there), flat(here)
    said = [
        f"{name} is {_shown(left, name)} there and {_shown(right, name)} here"
        for name in dict.fromkeys([*left, *right])
        if json.dumps(left.get(name)) != json.dumps(right.get(name)) or (name in left) != (name in right)
    ]
    if not said and list(there["space"]) != list(here["space"]):
        said.append(f"space is {', '.join(there['space'])} there and {', '.join(here['space'])} here")
    return said


def digest(about: Mapping[str, Any]) -> str:
    """Return a digest of a plan, by its `about`."""
    return _digest(json.dumps(about))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _shown(about: Mapping[str, Any], name: str) -> str:
    return show(about[name]) if name in about else "missing"


def _kinds(market: Mapping[str, Any], design: Design) -> dict[AgentClass, None]:
    """Return all classes that users have written of a sweep."""
    found = dict.fromkeys(market.get("agents", ()))
    for each in design.dimensions:
        if each.name == "agents":
            found |= dict.fromkeys(kind for agents in each.values or () for kind in agents)
    return found


def _keys(values: np.ndarray) -> np.ndarray:
    """Return values, or what stands for them where they cannot be sorted."""
    if values.dtype != object:
        return values
    numbers: dict[int, int] = {}
    return np.array([numbers.setdefault(id(value), len(numbers)) for value in values])


def _length(rows: Mapping[str, np.ndarray]) -> int:
    return len(next(iter(rows.values())))
