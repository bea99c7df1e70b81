"""The market of points: what all have alike, and what each of them has of its own, as one `MarketConfig`."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from kineticsim_env.agents.classes import AgentClass, checked_agents
from kineticsim_env.agents.mixes import Mix
from kineticsim_env.config import PRESETS, MarketConfig, checked_field, make_config
from kineticsim_env.engines.effects import of_regime
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.fields import CLASSES
from kineticsim_env.runtime.values import show
from kineticsim_env.sweeps.space import FIELDS, as_item, check_name

_MOST_CLASSES = layout.CONSTANTS["kMostAgentClasses"]


def market_fields(market: Any, varied: Collection[str]) -> dict[str, Any]:
    """Return the fields that all points have alike, by name; perhaps with `"preset"`, where no point has its own.

    `varied` are the names of the space, `market` is as in `sweep`.
    """
    fields = _given_fields(market)
    if "preset" in varied:
        if "preset" in fields or isinstance(market, MarketConfig):
            got = "a MarketConfig" if isinstance(market, MarketConfig) else f"preset {fields['preset']!r}"
            raise ValueError(f"market: expected other fields alone where the space has presets, got {got}")
    elif not isinstance(market, MarketConfig):  # so that the same market is the same plan, however it was given
        defaults = {field.name: field.default for field in dataclasses.fields(MarketConfig)}
        preset = PRESETS[fields.pop("preset", "paper")]
        fields = {**defaults, "agents": {}, **preset, **fields}
    alike = {name: value for name, value in fields.items() if name not in varied}
    return {name: value if name == "preset" else checked_field(name, value) for name, value in alike.items()}


def config_of(
    market: Mapping[str, Any], alike: Mapping[str, Any], rows: Mapping[str, np.ndarray], share_varies: bool
) -> MarketConfig:
    """Return the config of some points, one market each.

    Fields of `market` all points of the sweep have alike, `alike` these points, and in `rows`, `[n]` each, they differ;
    `share_varies` is whether any share of a class is in the space.
    """
    given = {**market, **alike}
    fields = {**PRESETS.get(given.pop("preset", None), {}), **given}
    if of_regimes := {name: fields.pop(name) for name in [*fields] if of_regime(name)}:
        fields["regimes"] = _regimes(fields.get("regimes") or (), of_regimes)
    of_agents = {name: fields.pop(name) for name in [*fields] if "." in name}
    of_agents |= {name: values[:, None] for name, values in rows.items() if "." in name}
    fields |= {name: values for name, values in rows.items() if "." not in name}
    if share_varies:
        fields |= _scaled_shares({name: fields.get(name, getattr(MarketConfig, name)) for name in CLASSES})
    return make_config({**fields, "agents": _agents(fields.get("agents"), of_agents)})


def one_market(config: MarketConfig) -> MarketConfig:
    """Return the config of an ensemble of one market as that of a market."""
    one = {name: as_item(getattr(config, name)[0]) for name in config.per_market if name in FIELDS}
    agents = {kind: Mix(made.count, _of_one_market(made)) for kind, made in config.agents.items()}
    return config.replace(**one, agents=agents)


def _given_fields(market: Any) -> dict[str, Any]:
    """Return the fields of what all points have alike."""
    if market is None:
        return {}
    if isinstance(market, str):
        market = {"preset": market}
    if isinstance(market, MarketConfig):
        if market.per_market:
            name = next(iter(market.per_market))
            raise ValueError(f"market: expected one value for all, got {name} per market; what differs is the space")
        return market.to_dict()
    if not isinstance(market, Mapping):
        raise TypeError(f"market: expected a MarketConfig, a preset, or a mapping of fields, got {show(market)}")
    fields = {check_name("market", name, ("preset", *FIELDS)): value for name, value in market.items()}
    if "preset" in fields:
        MarketConfig.preset(fields["preset"])
    return fields


def _regimes(given: Sequence[Mapping[str, Any]], changes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return regimes with fields changed, by `regimes[i].field`."""
    regimes = [dict(regime) for regime in given]
    for name, value in changes.items():
        number, field = of_regime(name) or (0, "")
        if number >= len(regimes):
            raise ValueError(f"space: expected one of the market's {len(regimes)} regimes, got {name!r}")
        regimes[number][field] = value
    return regimes


def _agents(given: Any, changes: Mapping[str, Any]) -> dict[AgentClass, Mix]:
    """Return added agents with counts and parameters changed, by `class.parameter`."""
    agents: dict[AgentClass, Mix] = dict(checked_agents("agents", given, _MOST_CLASSES))
    kinds = {kind.name: kind for kind in agents}
    counts = {name: value for name, value in changes.items() if name.endswith(".count")}
    for name, value in [*counts.items(), *((name, value) for name, value in changes.items() if name not in counts)]:
        owner, _, parameter = name.partition(".")
        if owner not in kinds:
            has = ", ".join(kinds) or "none"
            raise ValueError(f"space: expected a class of the market's agents, {has}, got {name!r}")
        made = agents[kinds[owner]]
        of_one = (value, made.parameters) if name in counts else (made.count, {**made.parameters, parameter: value})
        try:
            agents[kinds[owner]] = Mix(*of_one)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{owner}.{error}") from None
    return agents


def _of_one_market(made: Mix) -> dict[str, Any]:
    """Return the parameters of the first market of a mix."""
    found = {}
    for name, value in made.parameters.items():
        one = value[0] if isinstance(value, np.ndarray) and value.ndim == 2 else value
        found[name] = int(one[0]) if isinstance(one, np.ndarray) and len(one) == 1 != made.count else one
    return found


def _scaled_shares(fields: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the shares of classes, a number or float64 `[n]` each, divided by their sum where points differ in any."""
    shares = np.broadcast_arrays(*(np.asarray(fields[name], dtype=np.float64) for name in CLASSES))
    total = np.sum(shares, axis=0)
    if not np.all(total > 0):
        raise ValueError("space: expected a positive sum, got shares of classes that are all 0")
    return {name: share / total for name, share in zip(CLASSES, shares, strict=True)}
