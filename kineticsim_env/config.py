"""What a market is: `MarketConfig` and its presets.

Everything a user can set about a market is checked here, once: each field by `runtime/fields.py`, where the ranges are,
and all of them together by `runtime/fields_together.py`; the presets are in `runtime/presets.py`.
`engines/parameters.py` turns a config into the integers that engines read; nothing behind it sees a float or a string.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from kineticsim_env.agents.classes import check_agents_from, checked_agents, stored_agents
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.fields import (
    CLASSES,
    MAX_ORIGIN,
    MAX_PRICE,
    MAX_QUOTE_QTY,
    MAX_STEP_QTY,
    TEXTS,
    PerMarket,
    check_kind,
    checked,
    checked_regimes,
    microseconds,
)
from kineticsim_env.runtime.fields_together import check_together, shares_to_one
from kineticsim_env.runtime.flow_table import FlowTable, checked_flow, market_fields, plain_flow, shipped
from kineticsim_env.runtime.places import taken_by
from kineticsim_env.runtime.presets import PRESETS
from kineticsim_env.runtime.values import check_choice, check_count, check_dict, is_one_of, show

__all__ = (
    "CLASSES",
    "MAX_ORIGIN",
    "MAX_PRICE",
    "MAX_QUOTE_QTY",
    "MAX_STEP_QTY",
    "PRESETS",
    "PRESET_NAMES",
    "TEXTS",
    "MarketConfig",
    "check_kind",
    "checked_field",
    "make_config",
)

PRESET_NAMES = (*PRESETS, *shipped())  # of markets of agents, and of order flows
_MOST_EVENTS = 1024  # of an interval with a length, unless a config says otherwise


@dataclasses.dataclass(frozen=True, eq=False)
class MarketConfig:
    """One market, or an ensemble of markets that differ in some fields.

    A field of type `PerMarket` is one value, or one for each market: a sequence, a one-dimensional array or a tensor,
    which is kept as a read-only array. So may the parameters of `agents` be. The other fields are the same for all
    markets. The defaults are the preset `"paper"`. Formulas and bounds: `docs/model.md`.

    Attributes:
        num_levels: Ticks of the price grid L, a power of two from 8 to 8192.
        num_agents: Built-in agents; 0 is allowed where `agents` has some.
        noise: Share of noise agents. The four shares sum to 1; where they do within 1e-6 only, as float32 shares do,
            they are divided by their sum.
        momentum: Share of momentum agents.
        maker: Share of built-in market makers.
        fundamental: Share of fundamental agents.
        init_price: Opening price, 1 to L - 2.
        init_depth: Quantity resting on each side at the opening.
        max_order_qty: Largest order of a built-in agent, 1 to 65535.
        noise_spread: Noise agents price within this many ticks of the mid.
        market_order_prob: Probability that a taker's order is marketable, rounded to 1/2^24.
        maker_half_spread: Built-in makers quote this many ticks from the mid.
        walk_prob: Probability per auction that the fundamental moves by one tick, rounded to 1/65536. Needs `window`.
        jump_prob: Probability per auction that it moves by `jump_size`, rounded to 1/65536. Needs `window`.
        jump_size: Ticks of a jump.
        cancel_prob: Share of every resting quantity cancelled before an auction, rounded to 1/65536.
        window: Ticks that the mid may leave the grid's middle before the grid follows; 0 is off.
        tie: Which of several best prices clears: `"lowest"` or the one nearest the `"mid"`.
        residue: Whether unfilled marketable orders `"rest"` at the grid's edge or are cancelled, `"cancel"`.
        fundamental_price: Fundamental at the start, absolute ticks; None is `init_price`.
        population: `"fixed"` counts by largest remainder, or `"multinomial"` counts drawn per market when seeded.
        max_quote_qty: Largest quote of a slot, at most 2^20.
        inventory_limit: A slot's largest inventory, long or short; None is no limit.
        fee: What a slot pays per unit traded, in thousandths of a tick; negative is a rebate.
        rounding: Where a price half way between ticks goes: to the `"even"` one, or as a `"coin"` per auction falls.
        reference: What built-in agents price around: the `"mid"`, or the `"fundamental"` price.
        taker_offset: Ticks beyond the mid at which momentum and fundamental agents price.
        taker_fee: What a slot pays besides per unit that it takes, in thousandths of a tick. Needs `"continuous"`.
        tax: Ticks per unit that slots pay, and by which built-in limit prices move against the trade.
        collar: How far from the last price orders may be priced, in ticks; 0 is off.
        tick_size: Prices are multiples of so many ticks of the grid.
        arrivals: Whether `"each"` agent comes once per auction, agents are drawn by a `"clock"` of events, or events
            are those of a `"flow"` of orders that is fitted to data, in which fields of agents have no part.
        interval: Events per interval, 1 to 65535; None is `num_agents`. A flow needs a number; with `interval_ms` the
            interval ends sooner with so many, and None is 1024.
        beat: Events from one beat to the next, at which the fundamental moves and orders are cancelled; None is
            `num_agents`, or `interval` of a flow.
        mechanism: `"call"`, one auction per interval, or `"continuous"` trading. The latter needs the clock.
        interval_ms: Of a flow, the length of an interval in milliseconds, 0.001 to 2,000,000; None: `interval` events.
        quote_latency: Events after which a decision's quotes arrive, under `"continuous"`; with `interval` or more in a
            later decision.
        quote_latency_ms: Milliseconds after which they do where intervals have a length.
        orders_per_side: Levels of each slot's ladder, 1 to 8; more than 1 under `"continuous"` only.
        regimes: Mappings of parameters that a hidden regime changes: `max_order_qty`, `noise_spread`,
            `market_order_prob`, `maker_half_spread`, `taker_offset`, and those of walk, jumps and cancellation; None
            is no regime.
        regime_switch_prob: Probability per beat that the regime is drawn anew, rounded to 1/65536.
        agents: Agents of classes that users write, besides the built-in ones: `ks.mix(...)` or a count by class (or by
            its `module:name`); None is none. They count wherever agents do: in the defaults of `interval` and `beat`,
            and in who comes at an event.
        agent_prob: Probability that an event of a flow is of one of `agents`, rounded to 1/65536.
        flow: The order flow where `arrivals` is `"flow"`: an `OrderFlow`, or the name of one that ships, `"btcusd"`; or
            one per market.
    """

    num_levels: int = 128
    num_agents: PerMarket[int] = 256
    noise: PerMarket[float] = 0.70
    momentum: PerMarket[float] = 0.15
    maker: PerMarket[float] = 0.15
    fundamental: PerMarket[float] = 0.0
    init_price: PerMarket[int] = 64
    init_depth: PerMarket[int] = 8
    max_order_qty: PerMarket[int] = 4
    noise_spread: PerMarket[int] = 3
    market_order_prob: PerMarket[float] = 0.10
    maker_half_spread: PerMarket[int] = 1
    walk_prob: PerMarket[float] = 0.0
    jump_prob: PerMarket[float] = 0.0
    jump_size: PerMarket[int] = 0
    cancel_prob: PerMarket[float] = 0.0
    window: PerMarket[int] = 0
    tie: PerMarket[str] = "lowest"
    residue: PerMarket[str] = "rest"
    fundamental_price: PerMarket[int] | None = None
    population: str = "fixed"
    max_quote_qty: PerMarket[int] = MAX_QUOTE_QTY
    inventory_limit: PerMarket[int] | None = None
    fee: PerMarket[int] = 0
    rounding: PerMarket[str] = "even"
    reference: PerMarket[str] = "mid"
    taker_offset: PerMarket[int] = 1
    taker_fee: PerMarket[int] = 0
    tax: PerMarket[int] = 0
    collar: PerMarket[int] = 0
    tick_size: PerMarket[int] = 1
    arrivals: str = "each"
    interval: int | None = None
    beat: int | None = None
    mechanism: str = "call"
    quote_latency: PerMarket[int] = 0
    orders_per_side: int = 1
    regimes: Any = None
    regime_switch_prob: PerMarket[float] = 0.0
    agents: Any = None
    flow: Any = None
    interval_ms: float | None = None
    quote_latency_ms: PerMarket[float] = 0.0
    agent_prob: float = 0.0

    def __post_init__(self) -> None:
        """Check every field; raise `TypeError` or `ValueError` naming the field, the value and what is allowed."""
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, checked_field(field.name, getattr(self, field.name)))
        check_together(self)
        for name, share in shares_to_one(self).items():
            object.__setattr__(self, name, share)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> MarketConfig:
        """Return a named market with some fields changed.

        Args:
            name: `"news"` (the default market of the environments: orders trade as they come, an interval is 48
                orders, and a hidden regime decides whether there is news that only some know), `"trading"` (call
                auctions), `"continuous"` (orders trade as they come; an interval is 20 orders), `"realistic"` (facts of
                real markets are put in, by its fundamental price and by agents that split orders), `"paper"` (the
                published evaluation's market) or `"btcusd"` (an order flow that is fitted to data, as
                `OrderFlow.preset("btcusd").config()` has it).
            **changes: Fields of `MarketConfig` that differ from the preset.

        Raises:
            ValueError: If the preset is unknown.
            TypeError: If a field is unknown.
        """
        if is_one_of(name, shipped()):
            return make_config(market_fields(name, changes))
        if not is_one_of(name, PRESETS):
            raise ValueError(f"preset: expected one of {', '.join(sorted(PRESET_NAMES))}, got {show(name)}")
        return make_config({**PRESETS[name], **changes})

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], *, agents_from: Iterable[str] | None = None) -> MarketConfig:
        """Return the market of some fields, as JSON keeps them in the spec of an environment.

        Classes in `agents` are named as `module:name`, and to find them their modules are imported, which runs these.
        Say `agents_from` for fields of a stranger's, with the modules that you know: `()` where there are none.

        Args:
            fields: Fields of `MarketConfig` by name; the others have their defaults.
            agents_from: Names of the modules from which classes may come; None allows all that can be imported.

        Raises:
            TypeError, ValueError: Naming the field, what came and what is allowed.
        """
        return make_config(check_dict("fields", fields, "a mapping of fields of MarketConfig"), agents_from)

    def replace(self, **changes: Any) -> MarketConfig:
        """Return a copy with some fields changed, checked again."""
        return make_config({**self.to_dict(), **changes})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name; per-market fields are read-only arrays, agents mixes by class."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def __eq__(self, other: object) -> bool:
        """Compare field by field; the order of agents is part of what a market is."""
        if not isinstance(other, MarketConfig):
            return NotImplemented
        if list(self.agents) != list(other.agents):
            return False
        return all(np.array_equal(value, other.to_dict()[name]) for name, value in self.to_dict().items())

    __hash__ = None  # type: ignore[assignment]

    @property
    def per_market(self) -> dict[str, int]:
        """Names and lengths of the fields that are given per market."""
        own = {name: len(value) for name, value in self.to_dict().items() if isinstance(value, np.ndarray)}
        added = {f"agents[{kind.name}]": made.markets for kind, made in self.agents.items()}
        return own | {name: markets for name, markets in added.items() if markets is not None}

    def repeated(self, times: int) -> MarketConfig:
        """Return a config of so many times the markets, each one's repetitions beside each other."""
        times = check_count("times", times, 0)
        return self._of_rows(np.repeat(np.arange(max(self.per_market.values(), default=0)), times))

    def _of_rows(self, rows: np.ndarray | slice) -> MarketConfig:
        """Return a config of other markets, int64 `[n]`, by their numbers here; itself where all are alike."""
        if not self.per_market:
            return self
        fields = {name: value[rows] for name, value in self.to_dict().items() if isinstance(value, np.ndarray)}
        return self.replace(**fields, agents={kind: made.of_rows(rows) for kind, made in self.agents.items()})

    @property
    def added_agents(self) -> int:
        """How many agents of classes that users write a market has."""
        return sum(made.count for made in self.agents.values())

    @property
    def added_quantity(self) -> int:
        """How many units they order at most, if each of them comes once."""
        return sum(made.count * kind.largest_order for kind, made in self.agents.items())

    @property
    def uses_clock(self) -> bool:
        """Whether intervals have events: agents drawn by a clock, or orders of a flow."""
        return self.arrivals != "each"

    @property
    def is_flow(self) -> bool:
        """Whether events are those of a fitted order flow."""
        return self.arrivals == "flow"

    @property
    def is_continuous(self) -> bool:
        """Whether orders trade as they come."""
        return self.mechanism == "continuous"

    @property
    def quotes_may_wait(self) -> bool:
        """Whether what slots submit may arrive in a later decision, in any market."""
        latency, interval = self.quote_latency, self.events_per_interval
        if self.interval_ms is not None:
            latency, interval = microseconds(self.quote_latency_ms), microseconds(self.interval_ms)
        return self.is_continuous and bool(np.any(np.asarray(latency) >= interval))

    @property
    def events_per_interval(self) -> int:
        """How many events of the clock an interval has; with `interval_ms` at most."""
        if self.interval is None and self.interval_ms is not None:
            return _MOST_EVENTS
        return self.interval or int(np.max(self.num_agents)) + self.added_agents

    @property
    def uses_levers(self) -> bool:
        """Whether any market has a lever of docs/model.md on, regimes among them. Deprecated: nothing asks for it."""
        warnings.warn("MarketConfig.uses_levers goes with the next version", DeprecationWarning, stacklevel=2)
        off = {"rounding": "even", "reference": "mid", "taker_offset": 1, "tick_size": 1}
        names = (*off, "taker_fee", "tax", "collar", "regime_switch_prob")
        changed = any(np.any(np.asarray(getattr(self, name)) != off.get(name, 0)) for name in names)
        return bool(changed) or self.regimes is not None

    @property
    def uses_options(self) -> bool:
        """Whether any market needs section "options": walk, cancellation, window, tie or residue."""
        numbers = (self.walk_prob, self.jump_prob, self.cancel_prob, self.window)
        return bool(any(np.any(np.asarray(value) > 0) for value in numbers)) or bool(
            np.any(np.asarray(self.tie) != "lowest") or np.any(np.asarray(self.residue) != "rest")
        )


_CHECKS = {
    "regimes": checked_regimes,
    "agents": functools.partial(checked_agents, most=layout.CONSTANTS["kMostAgentClasses"]),
    "flow": checked_flow,
}


def checked_field(name: str, value: Any) -> Any:
    """Return one field in its stored form, checked for itself; a preset's fields come as users write them."""
    check_choice("name", name, MarketConfig.__dataclass_fields__)
    return _CHECKS.get(name, checked)(name, value)


def plain_fields(config: MarketConfig) -> dict[str, Any]:
    """Return the fields as plain numbers, texts, lists and dicts, as JSON keeps them; `make_config` reads them."""

    def plain(value: Any) -> Any:
        if isinstance(value, FlowTable) or (isinstance(value, np.ndarray) and value.dtype == object):
            return plain_flow(value)
        return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value

    return {name: plain(value) for name, value in config.to_dict().items()} | {"agents": stored_agents(config.agents)}


def make_config(fields: Mapping[str, Any], agents_from: Iterable[str] | None = None) -> MarketConfig:
    """Build a config from named fields, with an error that lists the allowed names; `MarketConfig.from_dict`."""
    check_agents_from(fields.get("agents"), agents_from)
    known = [field.name for field in dataclasses.fields(MarketConfig)]
    unknown = sorted(set(fields) - set(known), key=str)
    if unknown:
        got = f"the unknown field {unknown[0]!r}{taken_by(unknown[0])}"
        raise TypeError(f"MarketConfig: expected one of {', '.join(known)}, got {got}")
    return MarketConfig(**fields)
