"""What a market is: `MarketConfig`, its checks, its presets, and the integer rows that the engines read.

Everything a user can set about a market is validated here, once. `parameter_rows` turns a config into the integers of
`struct MarketParams` in `cuda/model/layout.h`; nothing behind this file sees a float or a string.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kineticsim_env.runtime import layout
from kineticsim_env.runtime.values import as_float, check_choice, is_number, is_one_of, show

CLASSES = ("noise", "momentum", "maker", "fundamental")
MAX_PRICE = layout.CONSTANTS["kMaxPrice"]
MAX_ORIGIN = layout.CONSTANTS["kMaxOrigin"]  # how far a grid may move
MAX_QUOTE_QTY = layout.CONSTANTS["kMaxQuoteQty"]
MAX_STEP_QTY = 1 << 30  # what all agents of a market may submit in one auction

_CHOICES = {
    **{name: tuple(layout.ENUMS[name.capitalize()]) for name in ("tie", "residue", "rounding", "reference")},
    "population": ("fixed", "multinomial"),
    **{name: tuple(layout.ENUMS[name.capitalize()]) for name in ("arrivals", "mechanism")},
}
_PROBABILITIES = {
    "market_order_prob": 1 << 24,
    "walk_prob": 1 << 16,
    "jump_prob": 1 << 16,
    "cancel_prob": 1 << 16,
    "regime_switch_prob": 1 << 16,
}
_INTEGERS = {  # inclusive ranges; those that depend on other fields are in _check_together
    "num_levels": (8, 8192),
    "num_agents": (1, MAX_STEP_QTY),
    "init_price": (1, 8190),
    "init_depth": (0, 1 << 20),
    "max_order_qty": (1, 65535),
    "noise_spread": (0, 32767),
    "maker_half_spread": (0, 32767),
    "jump_size": (0, 32767),
    "window": (0, 4095),
    "fundamental_price": (-MAX_PRICE, MAX_PRICE),
    "max_quote_qty": (0, MAX_QUOTE_QTY),
    "inventory_limit": (0, MAX_PRICE),
    "fee": (-(1 << 20), 1 << 20),
    "taker_offset": (0, 32767),
    "taker_fee": (-(1 << 20), 1 << 20),
    "tax": (0, 32767),
    "collar": (0, 32767),
    "tick_size": (1, 64),
    "quote_latency": (0, (1 << 31) - 1),
    "interval": (1, 65535),
    "beat": (1, 1 << 30),
}
TEXTS = tuple(_CHOICES)  # the fields that are no numbers
_OPTIONAL = ("fundamental_price", "inventory_limit", "interval", "beat")
# What a regime may change; the order is that of `struct RegimeParams`.
REGIME_FIELDS = (
    "max_order_qty", "noise_spread", "market_order_prob", "maker_half_spread", "taker_offset", "walk_prob", "jump_prob",
    "jump_size", "cancel_prob",
)  # fmt: skip
MAX_REGIMES = 64
# Everything else may differ from market to market.
_ENSEMBLE_WIDE = ("num_levels", "population", "arrivals", "mechanism", "interval", "beat", "regimes")


@dataclasses.dataclass(frozen=True, eq=False)
class MarketConfig:
    """One market, or an ensemble of markets that differ in some fields.

    Every field may be a sequence with one value per market, but for `num_levels`, `population`, `arrivals`,
    `mechanism`, `interval`, `beat` and `regimes`. The defaults are the preset `"paper"`. Formulas and bounds:
    `docs/model.md`.

    Attributes:
        num_levels: Ticks of the price grid L, a power of two from 8 to 8192.
        num_agents: Built-in agents A.
        noise: Share of noise agents; the four shares sum to 1.
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
        arrivals: Whether `"each"` agent comes once per auction, or agents are drawn by a `"clock"` of events.
        interval: Events of the clock per interval, 1 to 65535; None is `num_agents`.
        beat: Events from one beat to the next, at which the fundamental moves and orders are cancelled; None is
            `num_agents`.
        mechanism: `"call"`, one auction per interval, or `"continuous"` trading. The latter needs the clock.
        quote_latency: Events after which a decision's quotes arrive, under `"continuous"`.
        regimes: Mappings of parameters that a hidden regime changes: `max_order_qty`, `noise_spread`,
            `market_order_prob`, `maker_half_spread`, `taker_offset`, and those of walk, jumps and cancellation; None
            is no regime.
        regime_switch_prob: Probability per beat that the regime is drawn anew, rounded to 1/65536.
    """

    num_levels: int = 128
    num_agents: Any = 256
    noise: Any = 0.70
    momentum: Any = 0.15
    maker: Any = 0.15
    fundamental: Any = 0.0
    init_price: Any = 64
    init_depth: Any = 8
    max_order_qty: Any = 4
    noise_spread: Any = 3
    market_order_prob: Any = 0.10
    maker_half_spread: Any = 1
    walk_prob: Any = 0.0
    jump_prob: Any = 0.0
    jump_size: Any = 0
    cancel_prob: Any = 0.0
    window: Any = 0
    tie: Any = "lowest"
    residue: Any = "rest"
    fundamental_price: Any = None
    population: str = "fixed"
    max_quote_qty: Any = MAX_QUOTE_QTY
    inventory_limit: Any = None
    fee: Any = 0
    rounding: Any = "even"
    reference: Any = "mid"
    taker_offset: Any = 1
    taker_fee: Any = 0
    tax: Any = 0
    collar: Any = 0
    tick_size: Any = 1
    arrivals: str = "each"
    interval: int | None = None
    beat: int | None = None
    mechanism: str = "call"
    quote_latency: Any = 0
    regimes: Any = None
    regime_switch_prob: Any = 0.0

    def __post_init__(self) -> None:
        """Check every field; raise `TypeError` or `ValueError` naming the field, the value and what is allowed."""
        for field in dataclasses.fields(self):
            check = _checked_regimes if field.name == "regimes" else _checked
            object.__setattr__(self, field.name, check(field.name, getattr(self, field.name)))
        _check_together(self)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> MarketConfig:
        """Return a named market with some fields changed.

        Args:
            name: `"paper"` (the published evaluation's market) or `"trading"` (what the RL tasks use).
            **changes: Fields of `MarketConfig` that differ from the preset.

        Raises:
            ValueError: If the preset is unknown.
            TypeError: If a field is unknown.
        """
        if not is_one_of(name, PRESETS):
            raise ValueError(f"preset: got {show(name)}, allowed are {sorted(PRESETS)}")
        return make_config({**PRESETS[name], **changes})

    def replace(self, **changes: Any) -> MarketConfig:
        """Return a copy with some fields changed, checked again."""
        return make_config({**self.to_dict(), **changes})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name; per-market fields are read-only arrays."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def __eq__(self, other: object) -> bool:
        """Compare field by field."""
        if not isinstance(other, MarketConfig):
            return NotImplemented
        return all(np.array_equal(value, other.to_dict()[name]) for name, value in self.to_dict().items())

    __hash__ = None  # type: ignore[assignment]

    @property
    def per_market(self) -> dict[str, int]:
        """Names and lengths of the fields that are given per market."""
        return {name: len(value) for name, value in self.to_dict().items() if isinstance(value, np.ndarray)}

    @property
    def uses_clock(self) -> bool:
        """Whether agents are drawn by a clock of events."""
        return self.arrivals == "clock"

    @property
    def is_continuous(self) -> bool:
        """Whether orders trade as they come."""
        return self.mechanism == "continuous"

    @property
    def uses_levers(self) -> bool:
        """Whether any market has a lever of docs/model.md on, regimes among them."""
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


def make_config(fields: Mapping[str, Any]) -> MarketConfig:
    """Build a config from named fields, with an error that lists the allowed names."""
    known = [field.name for field in dataclasses.fields(MarketConfig)]
    unknown = sorted(set(fields) - set(known))
    if unknown:
        raise TypeError(f"MarketConfig: unknown field {unknown[0]!r}, allowed are {', '.join(known)}")
    return MarketConfig(**fields)


# The market that the RL tasks use: how it was chosen, and what it measures, is in docs/trading_preset.md.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "trading": {
        "num_agents": 20,
        "noise": 0.45,
        "momentum": 0.15,
        "maker": 0.10,
        "fundamental": 0.30,
        "noise_spread": 14,
        "maker_half_spread": 8,
        "market_order_prob": 0.4,
        "walk_prob": 0.4,
        "jump_prob": 0.02,
        "jump_size": 4,
        "cancel_prob": 0.4,
        "window": 16,
        "tie": "mid",
        "residue": "cancel",
    },
}


# Checks ---------------------------------------------------------------------------------------------------------------


def _checked(name: str, value: Any) -> Any:
    """Return the value in its stored form: a Python scalar, None, or a read-only 1-D array for per-market values."""
    if hasattr(value, "detach"):  # a torch tensor, without importing torch here
        try:
            value = value.detach().cpu().numpy()
        except Exception as error:  # sparse, nested, on meta: whatever torch has against it
            raise TypeError(f"{name}: got {show(value)}, allowed is one value, or one per market") from error
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes, bytearray, memoryview)):
        if name in _ENSEMBLE_WIDE:
            raise TypeError(
                f"{name}: got one value per market, but it is the same for the whole ensemble: allowed is one value"
            )
        if isinstance(value, np.ndarray) and value.ndim != 1:
            raise ValueError(f"{name}: got an array of shape {value.shape}, allowed is one value, or one per market")
        values = [_checked_scalar(name, item) for item in (value.tolist() if isinstance(value, np.ndarray) else value)]
        if not values:
            raise ValueError(f"{name}: got an empty sequence, allowed is one value, or one per market")
        if any(item is None for item in values):
            raise ValueError(f"{name}: got None among per-market values, allowed is a number for every market")
        array = np.asarray(values)
        array.flags.writeable = False
        return array
    return _checked_scalar(name, value)


def _checked_regimes(name: str, value: Any) -> tuple[dict[str, Any], ...] | None:
    """Return regimes as a tuple of dicts, or None."""
    if value is None:
        return None
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray)):
        raise TypeError(f"{name}: got {show(value)}, allowed is a sequence of mappings, or None")
    if not 1 <= len(value) <= MAX_REGIMES:
        raise ValueError(f"{name}: got {len(value)} regimes, allowed are 1 to {MAX_REGIMES}")
    regimes = []
    for number, regime in enumerate(value):
        if not isinstance(regime, Mapping):
            raise TypeError(f"{name}[{number}]: got {show(regime)}, allowed is a mapping of parameters")
        unknown = [key for key in regime if not is_one_of(key, REGIME_FIELDS)]
        if unknown:
            raise ValueError(f"{name}[{number}]: got {show(unknown[0])}, allowed are {', '.join(REGIME_FIELDS)}")
        try:
            regimes.append({key: _checked_scalar(key, regime[key]) for key in REGIME_FIELDS if key in regime})
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}[{number}]: {error}") from None
    return tuple(regimes)


def check_kind(name: str, value: Any, choices: Mapping[str, Sequence[str]], optional: Sequence[str]) -> bool:
    """Refuse what is neither a known choice, nor None where that is allowed, nor a number; True if it is a number."""
    if name in choices:
        check_choice(name, value, choices[name])
        return False
    if value is None and name in optional:
        return False
    if not is_number(value):
        raise TypeError(f"{name}: got {show(value)} ({type(value).__name__}), allowed is a number")
    return True


def _checked_scalar(name: str, value: Any) -> Any:
    if not check_kind(name, value, _CHOICES, _OPTIONAL):
        return value
    if name in _INTEGERS:
        low, high = _INTEGERS[name]
        if not math.isfinite(as_float(value)) or int(value) != value:
            raise ValueError(f"{name}: got {show(value)}, allowed is a whole number from {low} to {high}")
        if not low <= value <= high:
            raise ValueError(f"{name}: got {show(value)}, allowed is {low} to {high}")
        return int(value)
    if not 0 <= value <= 1:
        raise ValueError(f"{name}: got {show(value)}, allowed is 0 to 1")
    return float(value)


def _check_together(config: MarketConfig) -> None:
    """Check what involves several fields; per-market fields broadcast against each other."""
    levels = config.num_levels
    if levels & (levels - 1):
        raise ValueError(f"num_levels: got {levels}, allowed is a power of two from 8 to 8192")
    lengths = config.per_market
    if len(set(lengths.values())) > 1:
        raise ValueError(f"per-market fields must have one length, got {lengths}")

    def refuse(name: str, bad: Any, allowed: str) -> None:
        bad = np.atleast_1d(bad)
        if np.any(bad):
            value = np.atleast_1d(np.asarray(getattr(config, name)))
            first = value[min(int(np.argmax(bad)), len(value) - 1)]
            raise ValueError(f"{name}: got {first!s}, allowed is {allowed}")

    def array(name: str) -> np.ndarray:
        return np.asarray(getattr(config, name))

    refuse("init_price", array("init_price") > levels - 2, f"1 to num_levels - 2 = {levels - 2}")
    refuse("window", array("window") >= levels // 2, f"0 (off) or 1 to num_levels / 2 - 1 = {levels // 2 - 1}")
    moves = (array("walk_prob") > 0) | ((array("jump_prob") > 0) & (array("jump_size") > 0))
    loose = moves & (array("window") == 0)
    refuse("window", loose, "a window above 0 when walk_prob or jump_prob moves the fundamental")
    largest = MAX_STEP_QTY
    over = array("num_agents").astype(np.int64) * array("max_order_qty") > largest
    refuse("num_agents", over, f"num_agents * max_order_qty up to {largest}")
    refuse("tick_size", array("tick_size") > levels, f"1 to num_levels = {levels}")
    _check_clock(config, refuse)
    _check_regimes(config)
    total = array("noise") + array("momentum") + array("maker") + array("fundamental")
    if np.any(np.abs(total - 1.0) > 1e-9):
        worst = float(np.atleast_1d(total)[np.argmax(np.abs(np.atleast_1d(total) - 1.0))])
        raise ValueError(f"noise, momentum, maker, fundamental: got shares that sum to {worst!r}, allowed is 1")


def _check_clock(config: MarketConfig, refuse: Callable[[str, Any, str], None]) -> None:
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
        agents = np.asarray(config.num_agents)
        refuse(
            name,
            clock and not given and np.any(agents != agents.flat[0]),
            "a number where num_agents differs between markets",
        )
        refuse(
            name,
            clock and not given and np.any(agents > _INTEGERS[name][1]),
            f"a number up to {_INTEGERS[name][1]}, as num_agents is larger",
        )
    for name in ("taker_fee", "quote_latency"):
        refuse(name, (np.asarray(getattr(config, name)) != 0) & (not continuous), "0 where mechanism is 'call'")


def _check_regimes(config: MarketConfig) -> None:
    """Check every regime as if all markets were in it."""
    if config.regimes is None:
        if np.any(np.asarray(config.regime_switch_prob) > 0):
            raise ValueError("regime_switch_prob: got a number above 0 without regimes, allowed is 0")
        return
    plain = {name: value for name, value in config.to_dict().items() if name not in ("regimes", "regime_switch_prob")}
    for number, regime in enumerate(config.regimes):
        try:
            MarketConfig(**plain | regime)
        except ValueError as error:
            raise ValueError(f"regimes[{number}]: {error}") from None


# Rows -----------------------------------------------------------------------------------------------------------------


def threshold(probability: Any, scale: int) -> np.ndarray:
    """Round a probability to an integer threshold of `scale`, half to even."""
    return np.rint(np.asarray(probability, dtype=np.float64) * scale).astype(np.int64)


def class_counts(config: MarketConfig, num_rows: int) -> np.ndarray:
    """Count the agents of each class by largest remainder; int64 `[num_rows, 4]` in the order of `CLASSES`."""
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
    thresholds = {name.removesuffix("_prob") + "_threshold": (0, scale) for name, scale in _PROBABILITIES.items()}
    return {
        **dict.fromkeys(counts, (0, MAX_STEP_QTY)),
        **{name: bounds for name, bounds in _INTEGERS.items() if name != "num_levels"},
        **{name: bounds for name, bounds in thresholds.items() if name != "regime_switch_threshold"},
        "init_price": (1, num_levels - 2),
        "window": (0, num_levels // 2 - 1),
        "tie": (0, len(_CHOICES["tie"]) - 1),
        "residue": (0, len(_CHOICES["residue"]) - 1),
        "rounding": (0, len(_CHOICES["rounding"]) - 1),
        "reference": (0, len(_CHOICES["reference"]) - 1),
        "inventory_limit": (-1, _INTEGERS["inventory_limit"][1]),  # -1 is none
        "regime_threshold": (0, 1 << 16),
        "regimes": (0, MAX_REGIMES),
        "interval": (0, _INTEGERS["interval"][1]),
        "beat": (0, _INTEGERS["beat"][1]),
        **{f"reserved_{number}": (0, 0) for number in (1, 2, 3)},
    }


def parameter_rows(
    config: MarketConfig, num_rows: int, counts: np.ndarray, replaced: Mapping[str, int]
) -> dict[str, Any]:
    """Return the integers of `struct MarketParams` by name.

    Args:
        config: The market.
        num_rows: 1 if all markets share their parameters, else the number of markets.
        counts: int64 `[num_rows, 4]`, agents per class before replacement.
        replaced: How many agents of each class slots replace.

    Returns:
        int64 arrays of shape `[num_rows]`, one per field.
    """
    silent = np.array([replaced.get(name, 0) for name in CLASSES])
    if config.population == "fixed":
        short = np.argwhere(silent[None, :] > counts)
        if len(short):
            row, index = short[0]
            raise ValueError(
                f"slots: got {silent[index]} that replace a {CLASSES[index]} agent, allowed is up to "
                f"{counts[row, index]}, the number of {CLASSES[index]} agents in the market"
            )
    speaking = np.maximum(counts - silent, 0)
    first = np.cumsum(counts, axis=1)

    def column(value: Any) -> np.ndarray:
        return np.array(np.broadcast_to(np.asarray(value, dtype=np.int64), (num_rows,)))

    rows = {f"num_{name}": speaking[:, index] for index, name in enumerate(CLASSES)}
    rows |= {f"first_{name}": first[:, index] for index, name in enumerate(CLASSES[1:])}
    for name in ("init_price", "init_depth", "max_order_qty", "noise_spread", "maker_half_spread", "jump_size"):
        rows[name] = column(getattr(config, name))
    for name, scale in _PROBABILITIES.items():
        row = "regime_threshold" if name == "regime_switch_prob" else name.removesuffix("_prob") + "_threshold"
        rows[row] = column(threshold(getattr(config, name), scale))
    rows["window"] = column(config.window)
    rows["tie"] = column(np.asarray(config.tie) == "mid")
    rows["residue"] = column(np.asarray(config.residue) == "cancel")
    start = config.init_price if config.fundamental_price is None else config.fundamental_price
    rows["fundamental_price"] = column(start)
    rows["max_quote_qty"] = column(config.max_quote_qty)
    rows["inventory_limit"] = column(-1 if config.inventory_limit is None else config.inventory_limit)
    for name in ("fee", "taker_offset", "taker_fee", "tax", "collar", "tick_size", "quote_latency"):
        rows[name] = column(getattr(config, name))
    rows["rounding"] = column(np.asarray(config.rounding) == "coin")
    rows["reference"] = column(np.asarray(config.reference) == "fundamental")
    rows["regimes"] = column(0 if config.regimes is None else len(config.regimes))
    for name in ("interval", "beat"):
        given = getattr(config, name)
        rows[name] = column(0 if not config.uses_clock else config.num_agents if given is None else given)
    rows["num_agents"] = column(config.num_agents)
    for number in (1, 2, 3):
        rows[f"reserved_{number}"] = column(0)
    return rows


def regime_rows(config: MarketConfig) -> dict[str, np.ndarray]:
    """Return the integers of `struct RegimeParams` by name, int64 `[R]`; -1 where a regime changes nothing."""
    regimes = config.regimes or ()

    def number(name: str, value: Any) -> int:
        return int(threshold(value, _PROBABILITIES[name])) if name in _PROBABILITIES else value

    values = {
        name: [number(name, regime[name]) if name in regime else -1 for regime in regimes] for name in REGIME_FIELDS
    }
    return {name.replace("_prob", "_threshold"): np.array(column, np.int64) for name, column in values.items()}
