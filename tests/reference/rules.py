"""A market's fields as integers: defaults, thresholds, regimes, and who is of which class. Nothing here moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from . import words

CLASSES = ("noise", "momentum", "maker", "fundamental")

DEFAULTS: dict[str, Any] = {
    # The published evaluation's market.
    "num_levels": 128,
    "num_agents": 256,
    "noise": 0.70,
    "momentum": 0.15,
    "maker": 0.15,
    "fundamental": 0.0,
    "init_price": 64,
    "init_depth": 8,
    "max_order_qty": 4,
    "noise_spread": 3,
    "market_order_prob": 0.10,
    "maker_half_spread": 1,
    # Its options.
    "walk_prob": 0.0,
    "jump_prob": 0.0,
    "jump_size": 0,
    "cancel_prob": 0.0,
    "window": 0,
    "tie": "lowest",
    "residue": "rest",
    "fundamental_price": None,
    "population": "fixed",
    "max_quote_qty": 1 << 20,
    "inventory_limit": None,
    "fee": 0,
    # The second model.
    "arrivals": "each",
    "mechanism": "call",
    "interval": None,
    "beat": None,
    "quote_latency": 0,
    "rounding": "even",
    "reference": "mid",
    "taker_offset": 1,
    "taker_fee": 0,
    "tax": 0,
    "collar": 0,
    "tick_size": 1,
    "regimes": None,
    "regime_switch_prob": 0.0,
    "orders_per_side": 1,
    "agents": {},
    "flow": None,  # which flow.py plays
    "interval_ms": None,
    "quote_latency_ms": 0.0,
    "agent_prob": 0.0,
}
ENSEMBLE = ("num_levels", "population", "arrivals", "mechanism", "interval", "beat", "orders_per_side", "regimes")
ENSEMBLE += ("agents", "flow", "interval_ms", "agent_prob")
THRESHOLDS = {"market_order_prob": 1 << 24, "walk_prob": 1 << 16, "jump_prob": 1 << 16, "cancel_prob": 1 << 16}
THRESHOLDS["regime_switch_prob"] = 1 << 16
BY_REGIME = ("noise_spread", "max_order_qty", "market_order_prob", "maker_half_spread", "taker_offset")
BY_REGIME += ("walk_prob", "jump_prob", "jump_size", "cancel_prob")


class Rules:
    """The fields of one market, as attributes; probabilities are thresholds. `of(regime)` has what a regime changes."""

    def __init__(self, fields: Mapping[str, Any], market: int, slots: int | Sequence[str | None]) -> None:
        unknown = set(fields) - set(DEFAULTS)
        if unknown:
            raise TypeError(f"unknown fields {sorted(unknown)}")
        self.fields = {name: _one(name, value, market) for name, value in {**DEFAULTS, **fields}.items()}
        for name, value in self.fields.items():
            setattr(self, name, _integer(name, value))
        self.slots = (None,) * slots if isinstance(slots, int) else tuple(slots)
        self.added = sum(made.count for made in self.agents.values())
        self.events = self.num_agents + self.added if self.interval is None else self.interval
        self.beat = self.num_agents + self.added if self.beat is None else self.beat
        self.shares = [float(self.fields[name]) for name in CLASSES]
        if self.fundamental_price is None:
            self.fundamental_price = self.init_price
        changes = self.regimes if self.regimes is not None and len(self.regimes) else [{}]
        self.of = [_regime(self, change) for change in changes]
        if self.mechanism == "continuous" and self.arrivals != "clock":
            raise ValueError("the continuous market needs the clock")
        if self.mechanism == "call" and (self.quote_latency or self.taker_fee):
            raise ValueError("quote_latency and taker_fee belong to the continuous market")
        if self.mechanism == "call" and self.orders_per_side > 1:
            raise ValueError("ladders belong to the continuous market")
        if self.tick_size > self.num_levels:
            raise ValueError("a grid of fewer ticks than tick_size may have no price at all")


def _regime(rules: Rules, change: Mapping[str, Any]) -> SimpleNamespace:
    """What a market's regime decides."""
    if not set(change) <= set(BY_REGIME):
        raise TypeError(f"a regime cannot change {sorted(set(change) - set(BY_REGIME))}")
    own = {name: _integer(name, change[name]) for name in change}
    return SimpleNamespace(**{name: own.get(name, getattr(rules, name)) for name in BY_REGIME})


def _one(name: str, value: Any, market: int) -> Any:
    """Return one market's value as a Python scalar."""
    if name not in ENSEMBLE and not isinstance(value, str) and hasattr(value, "__len__"):
        value = value[market]
    return value.item() if hasattr(value, "item") else value


def _integer(name: str, value: Any) -> Any:
    if name in THRESHOLDS:
        return round(value * THRESHOLDS[name])  # Python rounds half to even
    return value


class Population:
    """Which class each agent index has: noise first, then momentum, makers, fundamental; the replaced are inactive.

    Behind them are the agents that the config adds, each as itself.
    """

    def __init__(self, rules: Rules, seed: int, market: int = 0) -> None:
        from .added import agents_of

        draw = _drawn_counts if rules.population == "multinomial" else _fixed_counts
        self.counts = draw(rules, seed)
        self.classes: list[Any] = []
        for name, count in zip(CLASSES, self.counts, strict=True):
            inactive = rules.slots.count(name)
            if rules.population == "fixed" and inactive > count:
                raise ValueError(f"{inactive} slots replace a {name} agent, but there are {count}")
            active = max(0, count - inactive)
            self.classes += [name] * active + [None] * (count - active)
        self.added = agents_of(rules.agents, market)
        self.first_added = len(self.classes)
        for agent in self.added:
            inactive = rules.slots.count(agent.kind.name)
            self.classes.append(agent if agent.place < rules.agents[agent.kind].count - inactive else None)


def _fixed_counts(rules: Rules, seed: int) -> list[int]:
    """Largest remainder."""
    exact = [round(share * rules.num_agents * 65536) for share in rules.shares]
    counts = [x >> 16 for x in exact]
    by_remainder = sorted(range(4), key=lambda c: -(exact[c] & 65535))  # stable: equal ones, the earlier class first
    for c in by_remainder[: rules.num_agents - sum(counts)]:
        counts[c] += 1
    return counts


def _drawn_counts(rules: Rules, seed: int) -> list[int]:
    """Multinomial: one draw per agent, from the first episode's words."""
    key = words.episode_key(seed, 0)
    ends, total = [], 0.0
    for share in rules.shares:
        total += share
        ends.append(round(total * 2**32))
    ends[-1] = 1 << 32
    counts = [0, 0, 0, 0]
    for agent in range(rules.num_agents):
        top = words.word(key, 0, words.CLASS + agent) >> 32
        counts[next(c for c in range(4) if ends[c] > top)] += 1
    return counts
