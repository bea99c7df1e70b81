"""`FlowTable`: the integers of an order flow, and their file. docs/model.md, "Order flow", says what they do.

Fitting is in flow/; a config has a table as its field `flow`, and engines read `numbers_of_engines`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from kineticsim_env.runtime.files import replacing
from kineticsim_env.runtime.values import check_choice, is_number, show

VERSION = 1
# Ticks from the opposite best price at which bands begin, and the first one beyond the last of them.
EDGES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257)
BANDS = len(EDGES) - 1
GROUPS = (0, *[1] * 4, *[2] * 6, *[3] * (BANDS - 11))  # of bands, which have sizes of orders in common
SPREADS = 3  # classes of spread: 1 tick, 2 ticks, more
SIZES = 16  # that an order may have, each as likely
STATES = 5  # of the clock
AFTER = ("nothing", "best price moved", "trade")  # what the event before did, by which the clock's states follow
UNIT = 1 << 22  # of a weight: an event in the mean of the data
SHARE = 1 << 16  # of a probability, but for `jump_hazard`
HAZARD = 1 << 32

# Shapes of the arrays and the ranges of their numbers. Axes: side (bid, ask), life (fleeting, lasting).
FIELDS: dict[str, tuple[tuple[int, ...], int, int]] = {
    "limit": ((2, SPREADS, BANDS), 0, 2**24),
    "cancel": ((2, BANDS), 1, 2**23),
    "market": ((), 0, 2**24),
    "market_same": ((), 0, SHARE),
    "limit_size": ((2, 2, max(GROUPS) + 1, SIZES), 1, 2**20),
    "market_size": ((SIZES,), 1, 2**20),
    "fleeting": ((BANDS,), 0, SHARE),
    "resting": ((2, 2, BANDS), 0, 2**24),
    "jump_hazard": ((), 0, HAZARD - 1),
    "jump_after_trade": ((), 0, SHARE),
    "jump_same": ((), 0, SHARE),
    "jump_traded": ((), 0, SHARE),
    "jump_events": ((), 1, 2**15),
    "jump_size": ((SIZES,), 1, 2**15),
    "gap": ((STATES,), 1, 2**40),
    "follow": ((len(AFTER), STATES, STATES), 0, SHARE),
}

# Of the state of a market's flow, int64 `[9]`, the least and the most of each number, in their order.
STATE = {
    "last_trade": (-1, 1), "last_jump": (-1, 1), "left": (0, FIELDS["jump_events"][2]), "limit": (-(2**31), 2**31),
    "state": (0, STATES - 1), "after": (0, len(AFTER) - 1), "time": (0, 2**62 - 1),
    "now": (0, 2**62 - 1), "events": (0, 2**32 - 1),
}  # fmt: skip
TIME, NOW, EVENTS = (list(STATE).index(name) for name in ("time", "now", "events"))


@functools.cache
def shipped() -> dict[str, Path]:
    """Return the files of the tables that ship, by name."""
    return {path.stem: path for path in sorted((Path(__file__).parent / "flows").glob("*.json"))}


def band_of(distance: np.ndarray) -> np.ndarray:
    """Return the band of a distance, the last one of those beyond; of 0 and below the first."""
    return np.clip(np.searchsorted(EDGES, distance, side="right") - 1, 0, BANDS - 1)


@dataclasses.dataclass(frozen=True, repr=False)
class FlowTable:
    """The order flow of a market as integers; arrays are int64. `UNIT`, `SHARE` and `HAZARD` are their units.

    Attributes:
        limit: `[side, spread, band]`, weights of limit orders, in `UNIT`.
        cancel: `[life, band]`, the weight of each order's cancellation, likewise.
        market: The weight of market orders.
        market_same: The probability that a market order goes the same way as the one before, in `SHARE`.
        limit_size: `[side, life, group of bands, 16]`, lots of a limit order, each as likely.
        market_size: `[16]`, likewise of a market order.
        fleeting: `[band]`, the probability that a limit order is a fleeting one, in `SHARE`.
        resting: `[side, life, band]`, orders that rest at a tick in the mean, in `SHARE`.
        jump_hazard: The probability that a jump begins at an event, in `HAZARD`.
        jump_after_trade: The probability that one begins with a market order, in `SHARE`.
        jump_same: The probability that a jump goes the same way as the one before, in `SHARE`.
        jump_traded: The probability that an order of a jump's flight is traded against, not cancelled, in `SHARE`.
        jump_events: How many events a jump lasts at most.
        jump_size: `[16]`, ticks, each as likely.
        gap: `[state]`, the mean time between events times ln 2, nanoseconds.
        follow: `[after, state, state]`, the probability that the clock's next state is this one or one before it.
        tick: The price of a tick in currency.
        lot: The size of a lot in units of what is traded.
        about: Where it is from: anything that JSON has.
    """

    limit: np.ndarray
    cancel: np.ndarray
    market: int
    market_same: int
    limit_size: np.ndarray
    market_size: np.ndarray
    fleeting: np.ndarray
    resting: np.ndarray
    jump_hazard: int
    jump_after_trade: int
    jump_same: int
    jump_traded: int
    jump_events: int
    jump_size: np.ndarray
    gap: np.ndarray
    follow: np.ndarray
    tick: float = 1.0
    lot: float = 1.0
    about: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def tick_value(self) -> float:
        """What one lot gains by one tick, in currency: PnL, which is in ticks times lots, times this is money."""
        return self.tick * self.lot

    def __repr__(self) -> str:
        """Say where it is from; the numbers are hundreds."""
        return f"{type(self).__name__}({self.about!r}, tick={self.tick:g}, lot={self.lot:g})"

    def __post_init__(self) -> None:
        for name, (shape, low, high) in FIELDS.items():
            array = np.asarray(getattr(self, name))
            if array.shape != shape or array.dtype.kind not in "iu" or array.min() < low or array.max() > high:
                said = f"whole numbers {list(shape)}" if shape else "a whole number"
                raise ValueError(f"{name}: expected {said} from {low} to {high}, got {show(getattr(self, name))}")
            made = array.astype(np.int64)
            made.flags.writeable = False
            object.__setattr__(self, name, made if shape else int(made))
        if (np.diff(self.follow, axis=-1) < 0).any() or (self.follow[..., -1] != SHARE).any():
            raise ValueError(f"follow: expected rows that do not fall and end with {SHARE}, got {show(self.follow)}")
        for name in ("tick", "lot"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name}: expected a number above 0, got {show(getattr(self, name))}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FlowTable) and self.numbers() == other.numbers()

    __hash__ = None  # type: ignore[assignment]  # arrays are compared by value

    def numbers(self) -> dict[str, Any]:
        """Return everything as plain numbers, lists and texts."""
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: x.tolist() if isinstance(x, np.ndarray) else x for name, x in found.items()}

    def save(self, path: str | Path) -> None:
        """Write a JSON file of some kilobytes, a field a line, that a person can read."""
        lines = [f"  {json.dumps(name)}: {json.dumps(x)}" for name, x in {"version": VERSION, **self.numbers()}.items()]
        with replacing(Path(path)) as place:
            Path(place).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Raises:
            ValueError: If the file is of another version, or a number is out of its range.
        """
        given = json.loads(Path(path).read_text(encoding="utf-8"))
        version = given.pop("version", None) if isinstance(given, dict) else None
        if version != VERSION:
            raise ValueError(f"{path}: expected an order flow of version {VERSION}, got {show(version)}")
        return cls.of_numbers(given, str(path))

    @classmethod
    def of_numbers(cls, given: Mapping[str, Any], where: str) -> Self:
        """Return the table of what `numbers` returned; errors of its fields say `where` it is from.

        Raises:
            ValueError: If a field is missing or unknown, or a number is out of its range.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        if names != given.keys():
            raise ValueError(f"{where}: expected the fields {sorted(names)}, got {sorted(given)}")
        arrays = {name: np.array(given[name]) for name, (shape, _, _) in FIELDS.items() if shape}
        made: dict[str, Any] = {**given, **arrays}
        return cls(**made)


def numbers_of_engines(table: FlowTable) -> np.ndarray:
    """Return a table as `struct FlowNumbers` of cuda/model/flow.h: its numbers, and what follows, int64 `[n]`."""
    largest = table.limit_size.max()
    logarithms = np.rint(SHARE * np.log2(1 + np.arange(257) / 256))
    follows = (
        *(table.limit.cumsum(axis=-1), table.limit_size.sum(axis=-1), logarithms),
        *(largest, table.cancel.max(), table.gap.max(), most_at_tick(table), most_orders_at_tick(table)),
    )
    parts = [*(getattr(table, name) for name in FIELDS), *follows]
    return np.concatenate([np.ravel(part) for part in parts]).astype(np.int64)


def checked_flow(name: str, value: Any) -> FlowTable | np.ndarray | None:
    """Return a config's order flow: a table, that of a name, or that of plain numbers; or None.

    Of a sequence, or of what `plain_flow` made of one, an array of each market's table, `[M]`.
    """
    if isinstance(value, Mapping) and value.keys() == {"tables", "of"}:
        tables, of = [_checked_one(name, one) for one in value["tables"]], np.asarray(value["of"])
        if of.dtype.kind != "i" or of.ndim != 1 or not ((of >= 0) & (of < len(tables))).all():
            raise ValueError(
                f"{name}['of']: expected numbers of tables, 0 to {len(tables) - 1}, got {show(value['of'])}"
            )
        value = [tables[place] for place in of]
    if not isinstance(value, (list, tuple, np.ndarray)):
        return None if value is None else _checked_one(name, value)
    if not len(value):
        raise ValueError(f"{name}: expected one order flow, or one per market, got an empty sequence")
    known: dict[Any, FlowTable] = {}  # a name is read once
    found = np.empty(len(value), object)
    for market, one in enumerate(value):
        key = one if isinstance(one, str) else id(one)
        found[market] = known[key] if key in known else known.setdefault(key, _checked_one(name, one))
    found.flags.writeable = False
    return found


def market_fields(flow: FlowTable | str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a market of a flow: 256 ticks that follow the mid, intervals of 48 events or of a length."""
    events = 48 if changes.get("interval_ms") is None else None
    grid = {"num_levels": 256, "window": 32, "beat": 16, "interval": events, **changes}
    middle = {"init_price": grid["num_levels"] // 2} if is_number(grid["num_levels"]) else {}  # else it is refused
    return {"arrivals": "flow", "mechanism": "continuous", "flow": flow, **middle, **grid}


def plain_flow(flow: FlowTable | np.ndarray) -> dict[str, Any]:
    """Return one table, or one per market, as plain numbers, which `checked_flow` reads again."""
    if isinstance(flow, FlowTable):
        return flow.numbers()
    tables, of = tables_of(flow)
    return {"tables": [table.numbers() for table in tables], "of": of.tolist()}


def tables_of(
    flow: FlowTable | np.ndarray | None, known: Sequence[FlowTable] = ()
) -> tuple[list[FlowTable], np.ndarray]:
    """Return the tables that there are, after those that are `known`, and which each market has, int64 `[M]`."""
    tables, places = list(known), {}
    each = [] if flow is None else [flow] if isinstance(flow, FlowTable) else flow
    for table in each:
        if id(table) not in places:
            places[id(table)] = next((place for place, one in enumerate(tables) if one == table), len(tables))
            tables += [table] * (places[id(table)] == len(tables))
    return tables, np.array([places[id(table)] for table in each], np.int64)


def _checked_one(name: str, value: Any) -> FlowTable:
    if isinstance(value, FlowTable):
        return value
    if isinstance(value, str):
        return FlowTable.load(shipped()[check_choice(name, value, shipped())])
    if isinstance(value, Mapping):
        return FlowTable.of_numbers(value, name)
    raise TypeError(f"{name}: expected an OrderFlow, or the name of one that ships, got {show(value)}")


def most_at_tick(table: FlowTable) -> int:
    """Return the most units that a tick can open with."""
    return most_orders_at_tick(table) * int(table.limit_size.max())


def most_orders_at_tick(table: FlowTable) -> int:
    """Return the most orders that a tick can open with."""
    orders = (table.resting + SHARE - 1) // SHARE  # of a side, a life and a band
    return max(int(orders.sum(axis=1).max()), 1)
