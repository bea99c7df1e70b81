"""A config as the integers that engines read: rows of `struct MarketParams` and of `struct RegimeParams`.

`Simulator` makes the rows, when it is made and when parameters change (`changed`); engines take them by
`Engine.set_parameters`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kineticsim_env.agents.classes import AgentClass
from kineticsim_env.agents.mixes import Mix, mix, with_room
from kineticsim_env.config import CLASSES, MAX_STEP_QTY, MarketConfig
from kineticsim_env.engines.agents import check_width
from kineticsim_env.runtime.fields import (
    CHOICES,
    ENSEMBLE_WIDE,
    INTEGERS,
    MAX_REGIMES,
    MILLISECONDS,
    PROBABILITIES,
    REGIME_FIELDS,
    checked,
    microseconds,
)
from kineticsim_env.runtime.flow_table import FlowTable, tables_of
from kineticsim_env.runtime.values import show

_AS_THEY_ARE = (
    "init_price", "init_depth", "max_order_qty", "noise_spread", "maker_half_spread", "jump_size", "window",
    "max_quote_qty", "fee", "taker_offset", "taker_fee", "tax", "collar", "tick_size",
)  # fmt: skip
_CHOSEN = ("tie", "residue", "rounding", "reference")  # each 0, or 1 where the second of two choices is taken


def threshold(probability: Any, scale: int) -> np.ndarray:
    """Round a probability to an integer threshold of `scale`, half to even."""
    return np.rint(np.asarray(probability, dtype=np.float64) * scale).astype(np.int64)


def class_counts(config: MarketConfig, num_rows: int) -> np.ndarray:
    """Count the agents of each class by largest remainder; int64 `[num_rows, 4]` in the order of `CLASSES`."""
    if config.is_flow:
        return np.zeros((num_rows, len(CLASSES)), np.int64)
    agents = np.broadcast_to(np.asarray(config.num_agents, dtype=np.int64), (num_rows,))
    shares = [np.broadcast_to(np.asarray(getattr(config, name), dtype=np.float64), (num_rows,)) for name in CLASSES]
    scaled = np.rint(np.stack(shares, axis=1) * agents[:, None] * 65536.0).astype(np.int64)
    counts, remainders = scaled >> 16, scaled & 65535
    missing = agents - counts.sum(axis=1)
    order = np.argsort(-remainders, axis=1, kind="stable")  # stable: equal remainders go to the earlier class
    for place in range(len(CLASSES)):
        rows = np.flatnonzero(missing > place)
        counts[rows, order[rows, place]] += 1
    return counts


def parameter_ranges(num_levels: int) -> dict[str, tuple[int, int]]:
    """Return the inclusive range of each integer of `struct MarketParams`, by name."""
    counts = [f"num_{name}" for name in CLASSES] + [f"first_{name}" for name in CLASSES[1:]]
    thresholds = {name.removesuffix("_prob") + "_threshold": (0, scale) for name, scale in PROBABILITIES.items()}
    return {
        **dict.fromkeys(counts, (0, MAX_STEP_QTY)),
        **{name: bounds for name, bounds in INTEGERS.items() if name not in ("num_levels", "orders_per_side")},
        **{name: bounds for name, bounds in thresholds.items() if name != "regime_switch_threshold"},
        "init_price": (1, num_levels - 2),
        "window": (0, num_levels // 2 - 1),
        **{name: (0, len(CHOICES[name]) - 1) for name in _CHOSEN},
        "inventory_limit": (-1, INTEGERS["inventory_limit"][1]),  # -1 is none
        "regime_threshold": (0, 1 << 16),
        "regimes": (0, MAX_REGIMES),
        "interval": (0, INTEGERS["interval"][1]),
        "beat": (0, INTEGERS["beat"][1]),
        "interval_us": (0, microseconds(MILLISECONDS["interval_ms"][1])),
    }


def parameter_rows(
    config: MarketConfig,
    num_rows: int,
    counts: np.ndarray,
    replaced: Mapping[str, int],
    flows: Sequence[FlowTable] = (),
) -> dict[str, Any]:
    """Return the integers of `struct MarketParams` by name, int64 `[num_rows]`: 1 if all markets are alike.

    Counts are int64 `[num_rows, 4]`, agents per class before replacement; slots replace `replaced` of each.
    Order flows are numbered as in `flows`, where new ones come last.
    """
    inactive = np.array([replaced.get(name, 0) for name in CLASSES])
    if config.population == "fixed":
        short = np.argwhere(inactive[None, :] > counts)
        if len(short):
            row, index = short[0]
            raise ValueError(
                f"slots: expected up to {counts[row, index]}, the number of {CLASSES[index]} agents in the market, "
                f"got {inactive[index]} that replace a {CLASSES[index]} agent"
            )
    active = np.maximum(counts - inactive, 0)
    first = np.cumsum(counts, axis=1)

    def column(value: Any) -> np.ndarray:
        return np.array(np.broadcast_to(np.asarray(value, dtype=np.int64), (num_rows,)))

    rows = {f"num_{name}": active[:, index] for index, name in enumerate(CLASSES)}
    rows |= {f"first_{name}": first[:, index] for index, name in enumerate(CLASSES[1:])}
    for name in _AS_THEY_ARE:
        rows[name] = column(getattr(config, name))
    for name in _CHOSEN:
        rows[name] = column(np.asarray(getattr(config, name)) == CHOICES[name][1])
    for name, scale in PROBABILITIES.items():
        row = "regime_threshold" if name == "regime_switch_prob" else name.removesuffix("_prob") + "_threshold"
        rows[row] = column(threshold(getattr(config, name), scale))
    rows["fundamental_price"] = column(_fundamental_at_start(config.fundamental_price, config.init_price))
    rows["inventory_limit"] = column(-1 if config.inventory_limit is None else config.inventory_limit)
    agents = np.asarray(0 if config.is_flow else config.num_agents) + config.added_agents
    rows["num_agents"] = column(agents)
    rows["regimes"] = column(0 if config.regimes is None else len(config.regimes))
    rows["flow"] = column(tables_of(config.flow, flows)[1] if config.is_flow else 0)
    timed = config.interval_ms is not None
    rows["quote_latency"] = column(microseconds(config.quote_latency_ms) if timed else config.quote_latency)
    rows["interval_us"] = column(microseconds(config.interval_ms or 0))
    for name in ("interval", "beat"):
        given = getattr(config, name)
        default = config.events_per_interval if config.is_flow else agents
        rows[name] = column(0 if not config.uses_clock else default if given is None else given)
    return rows


def _fundamental_at_start(given: Any, init_price: Any) -> Any:
    """Return a field `fundamental_price` as numbers: None is the opening price that comes with it."""
    return init_price if given is None else given


def regime_rows(config: MarketConfig) -> dict[str, np.ndarray]:
    """Return the integers of `struct RegimeParams` by name, int64 `[R]`; -1 where a regime changes nothing."""
    regimes = config.regimes or ()

    def number(name: str, value: Any) -> int:
        return int(threshold(value, PROBABILITIES[name])) if name in PROBABILITIES else value

    values = {
        name: [number(name, regime[name]) if name in regime else -1 for regime in regimes] for name in REGIME_FIELDS
    }
    return {name.replace("_prob", "_threshold"): np.array(column, np.int64) for name, column in values.items()}


# Changes in running markets -------------------------------------------------------------------------------------------

_FIXED = (*ENSEMBLE_WIDE, "flow", "num_agents", *CLASSES)  # what memory, random words and agents' indices depend on


def changed(config: MarketConfig, fields: Mapping[str, Any], chosen: np.ndarray) -> MarketConfig:
    """Return the config of running markets after a change of some fields, which become per market unless all change.

    New values are by name, one for all markets or one per market; of agents that users have added, by
    `class.parameter`, also one of each agent. `chosen`, bool `[M]`, are the markets that change.
    """
    of_agents = agent_fields(config)
    free = [*(name for name in config.to_dict() if name not in _FIXED), *of_agents]
    if not fields:
        raise TypeError(f"set_parameters: expected one of {', '.join(free)}, got no field")
    for name in fields:
        if name not in free:
            counts = [f"{kind.name}.count" for kind in config.agents]
            reason = ", which running markets cannot change" if name in (*_FIXED, *counts) else ""
            raise ValueError(f"set_parameters: expected one of {', '.join(free)}, got the field {name!r}{reason}")
    agents = _changed_agents(config, {name: value for name, value in fields.items() if name in of_agents}, chosen)
    wanted = {name: checked(name, value) for name, value in fields.items() if name not in of_agents}
    for name, value in wanted.items():
        if isinstance(value, np.ndarray) and len(value) != len(chosen):
            raise ValueError(f"{name}: expected one value, or {len(chosen)} per-market values, got {len(value)}")
    if not chosen.all():
        present = {name: getattr(config, name) for name in wanted}
        name = "fundamental_price"
        if name in wanted and not (wanted[name] is None and present[name] is None):
            wanted[name] = _fundamental_at_start(wanted[name], wanted.get("init_price", config.init_price))
            present[name] = _fundamental_at_start(present[name], config.init_price)
        wanted = {name: _where(name, chosen, value, present[name]) for name, value in wanted.items()}
    found = config.replace(**wanted, agents=agents)
    stuck = (np.asarray(config.window) > 0) & (np.asarray(found.window) == 0)
    if np.any(stuck):
        raise ValueError("window: expected a window above 0, got 0 for a market whose grid follows its price")
    return found


def check_latency(config: MarketConfig, began: MarketConfig) -> None:
    """Refuse quotes that arrive in a later decision in markets that `began` without: they have no place to wait.

    Raises:
        ValueError: If so.
    """
    if config.quotes_may_wait and not began.quotes_may_wait:
        name, interval, least = "quote_latency", began.events_per_interval, 1
        if began.interval_ms is not None:
            name, interval, least = "quote_latency_ms", began.interval_ms, 0.001
        raise ValueError(
            f"{name}: expected up to {interval - least:g}, as the interval is {interval:g} and the market began with "
            f"less than that, got {np.max(getattr(config, name))}"
        )


def agent_fields(config: MarketConfig) -> dict[str, tuple[AgentClass, str]]:
    """Return the parameters of agents that users have added, by `class.parameter`: the class and the parameter."""
    return {f"{kind.name}.{name}": (kind, name) for kind in config.agents for name in kind.parameters}


def _changed_agents(config: MarketConfig, fields: Mapping[str, Any], chosen: np.ndarray) -> dict[AgentClass, Mix]:
    """Return the added agents of running markets after a change of some of their parameters."""
    agents = dict(config.agents)
    known = agent_fields(config)
    for field, value in fields.items():
        kind, name = known[field]
        before = agents[kind]
        try:
            given = mix(before.count, **{name: value})
        except ValueError as error:
            raise ValueError(f"{kind.name}.{error}") from None
        if given.markets not in (None, len(chosen)):
            raise ValueError(f"{field}: expected one value, or {len(chosen)} per-market values, got {given.markets}")
        check_width(kind.name, given, before.of_each_agent)
        now = given.parameters[name]
        if not chosen.all():
            there = np.asarray(before.parameters.get(name, kind.parameters[name]))
            now = np.where(chosen[:, None], now, np.broadcast_to(there, (1, there.size)) if there.ndim < 2 else there)
        agents[kind] = with_room({kind: Mix(before.count, {**before.parameters, name: now})}, {kind: before})[kind]
    return agents


def _where(name: str, chosen: np.ndarray, value: Any, present: Any) -> Any:
    """Return a field's new value where markets are chosen, and its present one elsewhere."""
    if value is None and present is None:
        return None
    if value is None or present is None:
        raise ValueError(
            f"{name}: expected numbers in all markets, got {show(value)} for some beside {show(present)} in others"
        )
    return np.where(chosen, value, present)
