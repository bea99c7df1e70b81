"""Which field of a market has an effect when, in one table: so that who varies one that changes nothing is told.

`sweeps/plans.py` asks for the markets of a sweep or a calibration, which have no slots. Where a field is said to have
no effect, no bit of a run depends on it; tests/test_effects.py plays both, for every field and every preset.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from kineticsim_env.agents.classes import AgentClass
from kineticsim_env.config import MarketConfig
from kineticsim_env.engines.parameters import class_counts, threshold
from kineticsim_env.runtime.fields import CLASSES, PROBABILITIES, REGIME_FIELDS

_OF_REGIME = re.compile(r"regimes\[(\d+)\]\.(\w+)")


class Effect(NamedTuple):
    """Whether something that is varied has an effect: in each market of a config; why not; and what has one instead."""

    there: np.ndarray  # bool [M], or [1] where markets are alike
    why_not: str = ""
    instead: str = ""


class _Need(NamedTuple):
    """What a field needs to have an effect."""

    holds: Callable[[_Market], Any]  # of one regime of a market: bool, or bool [M]
    otherwise: str
    instead: str


def of_regime(name: str) -> tuple[int, str] | None:
    """Return the number and the field of a name such as `regimes[2].jump_size`; None of other names."""
    match = _OF_REGIME.fullmatch(name)
    return None if match is None else (int(match[1]), match[2])


def effect_of(config: MarketConfig, name: str, series: tuple[str, ...] = ()) -> Effect:
    """Say whether something that is varied can change what a run without slots records.

    Args:
        config: The markets; what `name` itself is there has no part.
        name: A field, `regimes[2].jump_size`, `class.parameter` or `class.count`.
        series: Names of the series that are recorded: whoever records the fundamental sees it move.
    """
    if own := of_regime(name):
        return _first_that_fails(own[1], _Market(config, own[0], series))
    if "." in name:
        return _of_agents(config, *name.split(".", 1))
    regimes: tuple[Mapping[str, Any], ...] = config.regimes or ({},)
    others = [number for number, regime in enumerate(regimes) if name not in regime]
    found = [_first_that_fails(name, _Market(config, number, series)) for number in others]
    there = functools.reduce(np.logical_or, (each.there for each in found), np.zeros(1, dtype=bool))
    if there.any():
        return Effect(there)
    told = [number for number in range(len(regimes)) if number not in others]
    alive = [number for number in told if _first_that_fails(name, _Market(config, number, series)).there.any()]
    instead = ", ".join(f"'regimes[{number}].{name}'" for number in alive) or (found[0].instead if found else "")
    if not told:
        return Effect(there, found[0].why_not, instead)
    listed = "every regime has its own" if not found else ", ".join(f"regimes[{number}]" for number in told)
    why_not = listed if not found else f"{listed} {'have their' if told[1:] else 'has its'} own, and else "
    why_not += found[0].why_not if found else ""
    return Effect(there, why_not, instead or "what a market without these regimes feels")


class _Market:
    """The markets of a config while one of its regimes is in force."""

    def __init__(self, config: MarketConfig, number: int, series: tuple[str, ...]) -> None:
        regimes = config.regimes or ({},)
        self.config, self.series, self._regime = config, series, regimes[number]

    def now(self, name: str) -> np.ndarray:
        """Return a field as the regime has it; of a probability the integer that engines read."""
        value = np.asarray(self._regime.get(name, getattr(self.config, name)))
        return threshold(value, PROBABILITIES[name]) if name in PROBABILITIES else value

    @functools.cached_property
    def _counts(self) -> dict[str, np.ndarray]:
        rows = max(self.config.per_market.values(), default=1)
        if self.config.population == "fixed":
            return dict(zip(CLASSES, class_counts(self.config, rows).T > 0, strict=True))
        built_in = np.asarray(self.config.num_agents) > 0
        return {name: built_in & (np.asarray(getattr(self.config, name)) > 0) for name in CLASSES}

    def has(self, *classes: str) -> np.ndarray:
        """Say whether there are built-in agents of any of these classes."""
        return functools.reduce(np.logical_or, (self._counts[name] for name in classes))

    @property
    def added(self) -> list[AgentClass]:
        """Classes that users have written, of which there are agents."""
        return [kind for kind, made in self.config.agents.items() if made.count]

    def read(self, name: str) -> bool:
        """Say whether any of these looks at something of the market."""
        return any(_reads(kind, "market", name) or name in kind.memory.values() for kind in self.added)

    def some_limit_takers(self, *classes: str) -> np.ndarray:
        """Say whether there are agents of these classes whose orders have a price."""
        return self.has(*classes) & (self.now("market_order_prob") < PROBABILITIES["market_order_prob"])

    @property
    def prices(self) -> np.ndarray:
        """Whether any order has a price."""
        return self.some_limit_takers(*_TAKERS) | self.has("maker") | bool(self.added)

    @property
    def fundamental_is_seen(self) -> np.ndarray:
        """Whether anything depends on the fundamental price, in this regime or where a later one goes on with it."""
        regimes = [_Market(self.config, number, self.series) for number in range(len(self.config.regimes or ({},)))]
        priced = functools.reduce(np.logical_or, (regime.prices for regime in regimes))
        around = (np.asarray(self.config.reference) == "fundamental") & priced
        return self.has("fundamental") | around | self.read("fundamental") | ("fundamental" in self.series)

    @property
    def regimes_differ(self) -> bool:
        """Whether it can be told which regime is in force."""
        regimes = self.config.regimes or ()
        given = [
            [np.asarray(regime.get(name, getattr(self.config, name))).tolist() for name in REGIME_FIELDS]
            for regime in regimes
        ]
        return any(each != given[0] for each in given) or (len(regimes) > 1 and self.read("regime"))

    @property
    def has_several_shares(self) -> np.ndarray:
        """Whether more than one share is above 0."""
        return np.sum([np.asarray(getattr(self.config, name)) > 0 for name in CLASSES], axis=0) > 1

    @property
    def agents_are_alike(self) -> np.ndarray:
        """Whether it makes no difference which agent comes at an event, however many there are."""
        config = self.config
        timed = config.uses_clock and config.interval is not None and config.beat is not None and not self.added
        several = np.sum([self._counts[name] for name in CLASSES], axis=0) > 1
        return timed & ~self.has("maker") & ~several


_TAKERS = ("noise", "momentum", "fundamental")
_OF_SLOTS = _Need(
    lambda m: False, "only slots of learners feel it, and here are none", "a field that built-in agents feel"
)
_NO_FLOW = _Need(lambda m: not m.config.is_flow, "orders are those of a flow, which has no agents", "arrivals='clock'")
_BUILT_IN = _Need(lambda m: np.asarray(m.config.num_agents) > 0, "num_agents is 0", "num_agents above 0")
_AUCTIONS = _Need(lambda m: not m.config.is_continuous, "continuous trading holds no auctions", "mechanism='call'")
_SEEN = _Need(
    lambda m: m.fundamental_is_seen,
    "nobody looks at the fundamental price",
    "a share of fundamental agents, or reference='fundamental'",
)
_PRICED = _Need(lambda m: m.prices, "all orders are marketable", "market_order_prob below 1")


def _share(name: str) -> tuple[_Need, ...]:
    others = [other for other in CLASSES if other != name]
    some = lambda m: np.any([np.asarray(getattr(m.config, other)) > 0 for other in others], axis=0)  # noqa: E731
    return (
        _NO_FLOW,
        _BUILT_IN,
        _Need(some, "all other shares are 0, so it is always all agents", "a share of another class"),
    )


def _agents_of(allowed: str, *classes: str, priced: bool = True) -> Callable[[str], _Need]:
    """Return a need: agents of these classes, whose orders may have to have a price, or one of users' that looks."""

    def need(name: str) -> _Need:
        def holds(m: _Market) -> Any:
            return (m.some_limit_takers(*classes) if priced else m.has(*classes)) | m.read(name)

        return _Need(holds, f"there is no {allowed}", f"a market with {allowed}")

    return need


# What each field needs; a field that is not here needs nothing.
_NEEDS: dict[str, tuple[_Need, ...]] = {
    "num_agents": (_NO_FLOW, _Need(lambda m: ~m.agents_are_alike,
                                   "all agents are alike, and interval and beat say how many come", "interval")),
    **{name: _share(name) for name in CLASSES},
    "init_depth": (_NO_FLOW,),
    "agent_prob": (_Need(lambda m: bool(m.added), "there are no agents that come", "agents"),),
    "max_order_qty": (_agents_of("built-in agent", *CLASSES, priced=False)("max_order_qty"),),
    "noise_spread": (_agents_of("noise agent with a limit order", "noise")("noise_spread"),),
    "market_order_prob": (_agents_of("built-in taker", *_TAKERS, priced=False)("market_order_prob"),),
    "maker_half_spread": (_agents_of("built-in maker", "maker", priced=False)("maker_half_spread"),),
    "taker_offset": (_agents_of("momentum or fundamental agent with a limit order", "momentum", "fundamental")(
        "taker_offset"),),
    "walk_prob": (_SEEN,),
    "jump_prob": (_Need(lambda m: m.now("jump_size") > 0, "jump_size is 0", "jump_size above 0"), _SEEN),
    "jump_size": (_Need(lambda m: m.now("jump_prob") > 0, "jump_prob is 0", "jump_prob above 0"), _SEEN),
    "fundamental_price": (_SEEN,),
    "tie": (_AUCTIONS,),
    "residue": (_AUCTIONS, _Need(lambda m: (m.has(*_TAKERS) & (m.now("market_order_prob") > 0)) | bool(m.added),
                                 "no order is marketable", "market_order_prob above 0")),
    "population": (_BUILT_IN, _Need(lambda m: m.has_several_shares,
                                    "all built-in agents are of one class", "shares of several classes")),
    **dict.fromkeys(("max_quote_qty", "inventory_limit", "fee", "taker_fee", "quote_latency", "quote_latency_ms",
                     "orders_per_side"), (_OF_SLOTS,)),
    "rounding": (_PRICED, _Need(lambda m: np.asarray(m.config.reference) == "mid",
                                "prices around the fundamental are never half a tick", "reference='mid'")),
    "reference": (_PRICED,),
    "tax": (_PRICED,),
    "regime_switch_prob": (_Need(lambda m: m.regimes_differ, "there are no regimes that differ", "regimes"),),
}  # fmt: skip


def _first_that_fails(field: str, market: _Market) -> Effect:
    """Return whether all that a field needs holds in one regime."""
    there: np.ndarray = np.ones(1, dtype=bool)
    for need in _NEEDS.get(field, ()):
        there = there & np.atleast_1d(need.holds(market))
        if not there.any():
            return Effect(there, need.otherwise, need.instead)
    return Effect(there)


def _of_agents(config: MarketConfig, owner: str, parameter: str) -> Effect:
    """Return the effect of a parameter, or of the count, of a class that users have written."""
    for kind, made in config.agents.items():
        if kind.name == owner and parameter != "count":
            if not made.count:
                return Effect(np.zeros(1, dtype=bool), f"there is no {owner}", f"a count of {owner} above 0")
            if not _reads(kind, "own", parameter):
                return Effect(np.zeros(1, dtype=bool), f"{owner} never looks at it", "a parameter that is used")
    return Effect(np.ones(1, dtype=bool))


def _reads(kind: AgentClass, owner: str, name: str) -> bool:
    """Say whether a class's program names something, in any of its forms; better once too often than not."""
    text = kind.program.text
    return re.search(rf"\b{owner}\.\w*{name}\b", text) is not None or name in (kind.cxx or "")
