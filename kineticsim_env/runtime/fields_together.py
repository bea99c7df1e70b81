"""The fields of `MarketConfig` together: what one of them allows the others. Per-market fields broadcast.

`MarketConfig` hands itself to `check_together` when it is made, and to `shares_to_one`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kineticsim_env.runtime.fields import CLASSES, INTEGERS, MAX_STEP_QTY
from kineticsim_env.runtime.flow_table import most_at_tick, tables_of

_SHARES_NEAR = 1e-6  # what shares may sum to besides 1: those in float32 sum to 1 within 3e-7
_SHARES_EXACT = 1e-9  # shares that sum to 1 but for the rounding of float64 stay as they are given


def check_together(config: Any) -> None:
    """Check what involves several fields; per-market fields broadcast against each other."""
    levels = config.num_levels
    if levels & (levels - 1):
        raise ValueError(f"num_levels: expected a power of two from 8 to 8192, got {levels}")
    lengths = config.per_market
    if len(set(lengths.values())) > 1:
        raise ValueError(f"per-market fields must have one length, got {lengths}")

    def refuse(name: str, bad: Any, allowed: str) -> None:
        bad = np.atleast_1d(bad)
        if np.any(bad):
            value = np.atleast_1d(np.asarray(getattr(config, name)))
            first = value[min(int(np.argmax(bad)), len(value) - 1)]
            raise ValueError(f"{name}: expected {allowed}, got {first!s}")

    def array(name: str) -> np.ndarray:
        return np.asarray(getattr(config, name))

    refuse("init_price", array("init_price") > levels - 2, f"1 to num_levels - 2 = {levels - 2}")
    refuse("window", array("window") >= levels // 2, f"0 (off) or 1 to num_levels / 2 - 1 = {levels // 2 - 1}")
    moves = (array("walk_prob") > 0) | ((array("jump_prob") > 0) & (array("jump_size") > 0))
    loose = moves & (array("window") == 0)
    refuse("window", loose, "a window above 0 when walk_prob or jump_prob moves the fundamental")
    nobody = (array("num_agents") == 0) & (config.added_agents == 0)
    refuse("num_agents", nobody, f"1 to {MAX_STEP_QTY}, or 0 where `agents` has some")
    largest = MAX_STEP_QTY
    submitted = array("num_agents").astype(np.int64) * array("max_order_qty") + config.added_quantity
    besides = f" with {config.added_quantity} of added agents" if config.added_quantity else ""
    refuse("num_agents", submitted > largest, f"num_agents * max_order_qty{besides} up to {largest}")
    refuse("tick_size", array("tick_size") > levels, f"1 to num_levels = {levels}")
    _check_clock(config, refuse)
    _check_flow(config, refuse)
    _check_regimes(config)
    total = np.atleast_1d(_sum_of_shares(config))
    off = np.abs(total - 1.0)
    if np.any(off > _SHARES_NEAR):
        worst = float(total[np.argmax(off)])
        raise ValueError(
            f"{', '.join(CLASSES)}: expected shares that sum to 1, or within {_SHARES_NEAR:g} of it, got {worst!r}"
        )


def shares_to_one(config: Any) -> dict[str, Any]:
    """Return the shares divided by their sum where it is off 1 by more than 1e-9, as float32 shares are; else none."""
    total = _sum_of_shares(config)
    divisor = np.where(np.abs(total - 1.0) > _SHARES_EXACT, total, 1.0)
    if np.all(divisor == 1.0):
        return {}
    shares = {name: np.asarray(getattr(config, name) / divisor) for name in CLASSES if np.any(getattr(config, name))}
    for share in shares.values():
        share.flags.writeable = False
    return {name: share if share.ndim else share.item() for name, share in shares.items()}


def _sum_of_shares(config: Any) -> Any:
    noise, momentum, maker, fundamental = (np.asarray(getattr(config, name)) for name in CLASSES)
    return noise + momentum + maker + fundamental


def _check_clock(config: Any, refuse: Callable[[str, Any, str], None]) -> None:
    """Check what only the clock, and what only continuous trading has."""
    clock, continuous = config.uses_clock, config.is_continuous
    refuse(
        "mechanism",
        continuous and not clock,
        "'call' where arrivals is 'each'; continuous trading needs arrivals='clock'",
    )
    for name in ("interval", "beat"):
        given = getattr(config, name) is not None
        refuse(name, given and not clock, "None where arrivals is 'each', which has no events")
        agents = np.asarray(config.num_agents) + config.added_agents
        refuse(
            name,
            clock and not given and np.any(agents != agents.flat[0]),
            "a number where num_agents differs between markets",
        )
        refuse(
            name,
            clock and not given and np.any(agents > INTEGERS[name][1]),
            f"a number up to {INTEGERS[name][1]}, as num_agents is larger",
        )
    for name in ("taker_fee", "quote_latency"):
        refuse(name, (np.asarray(getattr(config, name)) != 0) & (not continuous), "0 where mechanism is 'call'")
    refuse("orders_per_side", config.orders_per_side > 1 and not continuous, "1 where mechanism is 'call'")


def _check_flow(config: Any, refuse: Callable[[str, Any, str], None]) -> None:
    """Check what only a fitted order flow has, and what it has not: nothing in it is of agents."""
    if not config.is_flow:
        if config.flow is not None:
            raise ValueError(f"flow: expected None where arrivals is {config.arrivals!r}, got an order flow")
        refuse("interval_ms", config.interval_ms is not None, "None where arrivals is not 'flow', as no time passes")
        for name in ("quote_latency_ms", "agent_prob"):
            refuse(name, np.asarray(getattr(config, name)) != 0, "0 where arrivals is not 'flow'")
        return
    if config.flow is None:
        raise ValueError(
            "flow: expected an OrderFlow, or the name of one that ships, where arrivals is 'flow', got None"
        )
    refuse("mechanism", not config.is_continuous, "'continuous' where arrivals is 'flow'")
    timed = config.interval_ms is not None
    allowed = "a number of events where arrivals is 'flow' and interval_ms is None"
    refuse("interval", config.interval is None and not timed, allowed)
    refuse("quote_latency", (np.asarray(config.quote_latency) != 0) & timed, "0 with interval_ms, but quote_latency_ms")
    refuse("quote_latency_ms", (np.asarray(config.quote_latency_ms) != 0) & (not timed), "0 where interval_ms is None")
    for name, none in {"population": "fixed", "tick_size": 1, "cancel_prob": 0, "tax": 0, "collar": 0}.items():
        refuse(name, np.asarray(getattr(config, name)) != none, f"{none!r} where arrivals is 'flow'")
    if config.regimes is not None:
        raise ValueError("regimes: expected None where arrivals is 'flow', whose orders are of nobody")
    for kind in config.agents:
        begins = [start for start in kind.memory.values() if start in ("best_bid_qty", "best_ask_qty")]
        if begins:
            raise ValueError(f"agents: expected no memory that begins with {begins[0]!r} where arrivals is 'flow'")
    refuse("agent_prob", config.agent_prob > 0 and not config.added_agents, "0 without agents")
    most = config.num_levels * max(most_at_tick(table) for table in tables_of(config.flow)[0])
    if most >= 1 << 31:
        raise ValueError(f"flow: expected a book that opens with less than 2^31 units on a side, got up to {most}")


def _check_regimes(config: Any) -> None:
    """Check every regime as if all markets were in it."""
    if config.regimes is None:
        if np.any(np.asarray(config.regime_switch_prob) > 0):
            raise ValueError("regime_switch_prob: expected 0 without regimes, got a number above 0")
        return
    plain = {name: value for name, value in config.to_dict().items() if name not in ("regimes", "regime_switch_prob")}
    for number, regime in enumerate(config.regimes):
        try:
            type(config)(**plain | regime)
        except ValueError as error:
            raise ValueError(f"regimes[{number}]: {error}") from None
