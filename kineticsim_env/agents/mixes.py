"""How many agents of a class there are, and their parameters: `ks.mix`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from kineticsim_env.runtime.values import is_number, show

LOW, HIGH = -(2**31), 2**31 - 1
MOST_AGENTS = 1 << 14  # of a class; their orders of up to 65535 units may be 2^30 units in all


class Fixed(dict[Any, Any]):
    """A mapping that nobody changes; `dict(it)` is an ordinary copy."""

    def _refuse(self, *given: Any, **named: Any) -> Any:
        raise TypeError("expected another ks.mix(...) in config.replace(agents=...), got a change of what is fixed")

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle with what is in it."""
        return Fixed, (dict(self),)


@dataclasses.dataclass(frozen=True, eq=False)
class Mix:
    """So many agents of a class.

    Attributes:
        count: Of every market.
        parameters: Those that are not as declared: an int, or a read-only int32 array `[count]` of each agent, `[M, 1]`
            of each market or `[M, count]` of each agent of each market.
    """

    count: int
    parameters: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Check and keep what was given; see `mix`."""
        count = self.count
        if not is_number(count) or not 0 <= count <= MOST_AGENTS or int(count) != count:
            raise ValueError(f"count: expected a whole number from 0 to {MOST_AGENTS}, got {show(count)}")
        given = {name: _values(name, value, int(count)) for name, value in self.parameters.items()}
        object.__setattr__(self, "count", int(count))
        object.__setattr__(self, "parameters", Fixed(given))
        rows = {name: len(value) for name, value in given.items() if isinstance(value, np.ndarray) and value.ndim == 2}
        if len(set(rows.values())) > 1:
            raise ValueError(f"{', '.join(rows)}: expected values for one number of markets, got {list(rows.values())}")

    def __eq__(self, other: object) -> bool:
        """Compare the count and every parameter."""
        if not isinstance(other, Mix) or self.count != other.count or set(self.parameters) != set(other.parameters):
            return False
        return all(np.array_equal(value, other.parameters[name]) for name, value in self.parameters.items())

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as what it is made of."""
        return Mix, (self.count, dict(self.parameters))

    @property
    def markets(self) -> int | None:
        """How many markets it has parameters for; None if they are alike in all."""
        given = [len(value) for value in self.parameters.values() if isinstance(value, np.ndarray) and value.ndim == 2]
        return next(iter(given), None)

    @property
    def of_each_agent(self) -> bool:
        """Whether agents of a market may have different parameters."""
        return any(isinstance(value, np.ndarray) and value.shape[-1] != 1 for value in self.parameters.values())

    def of_rows(self, rows: np.ndarray | slice) -> Mix:
        """Return a mix for other markets, int64 `[n]`: those of these numbers here."""
        found = {
            name: value[rows] if isinstance(value, np.ndarray) and value.ndim == 2 else value
            for name, value in self.parameters.items()
        }
        return Mix(self.count, found)


def with_room(agents: Mapping[Any, Mix], others: Mapping[Any, Mix]) -> dict[Any, Mix]:
    """Return the same agents, with parameters of each agent where `others` have them, by the same classes.

    Where one parameter of a class is each agent's own, engines keep all of them so.
    """
    found = dict(agents)
    for kind, made in agents.items():
        if not made.of_each_agent and kind in others and others[kind].of_each_agent:
            values = {name: made.parameters.get(name, default) for name, default in kind.parameters.items()}
            own = {name: np.repeat(np.atleast_1d(value), made.count, axis=-1) for name, value in values.items()}
            found[kind] = Mix(made.count, own)
    return found


def mix(count: int, **parameters: Any) -> Mix:
    """Return so many agents of a class, for a config's field `agents`, `{the_class: ks.mix(30)}`.

    Args:
        count: How many, from 0.
        **parameters: Parameters of the class that are not as declared: a whole number, or a sequence of one per agent
            (`lookback=range(4, 34)`), or an array `[M, 1]` of one per market or `[M, count]` of one per agent of each.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed.
    """
    return Mix(count, parameters)


def _values(name: str, given: Any, count: int) -> Any:
    if is_number(given):
        return whole32(name, given)
    allowed = f"one number, [{count}] of each agent, [M, 1] of each market or [M, {count}]"
    try:
        plain = given.detach().cpu() if hasattr(given, "detach") else list(given) if _loose(given) else given
        array = np.asarray(plain)
    except Exception as error:  # ragged lists, and whatever strange objects raise
        raise ValueError(f"{name}: expected {allowed}, got {show(given)}") from error
    if array.ndim == 0:
        return whole32(name, array.item())
    fits = array.shape == (count,) or (array.ndim == 2 and array.shape[1] in (1, count) and len(array))
    if not fits:
        raise ValueError(f"{name}: expected {allowed}, got an array of shape {list(array.shape)}")
    if array.dtype.kind in "iuf":
        good = (array >= LOW) & (array <= HIGH) & (array == np.floor(array))  # False for NaN
    else:
        good = np.zeros(array.shape, bool)
    for value in array[~good].ravel().tolist():  # raises, unless it is a whole number of some other class
        whole32(name, value)
    found = np.array(array, dtype=np.int32)
    found.flags.writeable = False
    return found


def _loose(given: Any) -> bool:
    return not isinstance(given, (np.ndarray, str, bytes, Mapping, Set)) and hasattr(given, "__iter__")


def whole32(name: str, value: Any) -> int:
    """Return a whole number of 32 bits."""
    if not is_number(value) or not LOW <= value <= HIGH or int(value) != value:  # NaN is not
        raise ValueError(f"{name}: expected a whole number of 32 bits, got {show(value)}")
    return int(value)
