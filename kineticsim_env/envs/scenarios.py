"""Domain randomisation: a table of scenarios, of which every episode of every market draws one, on the device.

`make_scenarios` turns what users ask for into an ensemble `MarketConfig`, one row per scenario, checked like any
config. The engines hold its rows; a reset picks one by the episode's own random word (`kScenarioWord`), with warm
starts of its own. By which weights, or which one a caller asks for: scenario_weights.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kineticsim_env.agents.classes import AgentClass
from kineticsim_env.agents.mixes import Mix
from kineticsim_env.config import CLASSES, TEXTS, MarketConfig, make_config, plain_fields
from kineticsim_env.engines.parameters import agent_fields, check_latency, class_counts
from kineticsim_env.runtime.fields import ENSEMBLE_WIDE, INTEGERS
from kineticsim_env.runtime.values import (
    as_float,
    check_array,
    check_count,
    check_dict,
    is_number,
    is_one_of,
    is_whole,
    show,
)
from kineticsim_env.tasks.base import MAY_DIFFER, WHOLE, Task

NUM_SCENARIOS = 256  # if nobody says
MAX_SCENARIOS = 1 << 16
# The ensemble's, and the task's own; of agents that users have added the parameters may differ, see `_check_agents`.
_FIXED = (*(name for name in ENSEMBLE_WIDE if name != "agents"), "max_quote_qty", "inventory_limit")
_OF_TASK = "task."  # before the names of the task's settings
_ROUNDED = (*(name for name in INTEGERS if name not in _FIXED), *(_OF_TASK + name for name in WHOLE))


def make_scenarios(
    randomise: Mapping[str, Any] | MarketConfig,
    config: MarketConfig,
    num_scenarios: int,
    seed: int,
    drawn: Mapping[str, np.ndarray] | None = None,
) -> MarketConfig:
    """Return the table of scenarios as an ensemble, one value per scenario in at least one field.

    Args:
        randomise: As in `EnvSettings`; also parameters of agents that users have written (`"trend_follower.lookback"`).
            Where shares of classes are drawn, all four are scaled to sum to 1. A list of two numbers is refused, as
            JSON makes it of `(8, 20)`.
        config: The market that scenarios differ from.
        num_scenarios: Rows to draw, up to 65536.
        seed: Of the draws.
        drawn: What `draw_task_settings` returned.
    """
    drawn = drawn or {}
    if config.per_market:
        name = next(iter(config.per_market))
        raise ValueError(f"{name}: expected one value for all with randomise, got one value per market")
    if config.population != "fixed":
        raise ValueError(f"population: expected 'fixed' with randomise, got {config.population!r}")
    settings: list[str] = []
    if isinstance(randomise, Mapping):
        settings = [name for name in randomise if _is_of_task(name)]
        randomise = {name: choice for name, choice in randomise.items() if name not in settings}
    if isinstance(randomise, MarketConfig):
        table = randomise
    elif settings and not randomise:  # alike in all but the task
        table = config.replace(init_depth=np.repeat(config.init_depth, check_num_scenarios(num_scenarios)))
    elif isinstance(randomise, Mapping):
        table = _draw(randomise, config, check_num_scenarios(num_scenarios), check_seed(seed))
    else:
        raise TypeError(
            f"randomise: expected a dict such as {{'noise_spread': (6, 20)}} or a MarketConfig, got {show(randomise)}"
        )
    for name in _FIXED:
        if name not in drawn and not np.array_equal(getattr(table, name), getattr(config, name)):
            raise ValueError(f"randomise: expected the config's {name}, {getattr(config, name)}, got another")
    _check_agents(table, config)
    check_latency(table, config)
    if not table.per_market:
        raise ValueError("randomise: expected two scenarios or more, got one: a field with one value per scenario")
    if num_rows(table) > MAX_SCENARIOS:
        raise ValueError(f"randomise: expected up to {MAX_SCENARIOS} scenarios, got {num_rows(table)}")
    for name, values in drawn.items():
        if len(values) != num_rows(table):
            allowed = f"{num_rows(table)}, one per scenario"
            raise ValueError(f"randomise: expected {allowed}, got {len(values)} values of {_OF_TASK}{name}")
    limits = {name: values.astype(np.int64) for name, values in drawn.items() if name == "inventory_limit"}
    return table.replace(**limits)


def draw_task_settings(randomise: Any, task: Task, num_scenarios: int, seed: int) -> dict[str, np.ndarray]:
    """Return the settings of the task that scenarios differ in, float64 `[C]` by name; empty without any.

    They are entries such as `"task.block_qty"` of what `make_scenarios` takes, or of `{"scenarios": {...}}`. Draws of
    the market's fields do not depend on theirs.
    """
    if not isinstance(randomise, Mapping):
        return {}
    is_table = set(randomise) == {"scenarios"}
    given = (
        check_dict("randomise['scenarios']", randomise["scenarios"], "a mapping of fields") if is_table else randomise
    )
    free = [name for name in MAY_DIFFER if hasattr(task, name)]
    generator = np.random.default_rng([check_seed(seed), 1])
    drawn: dict[str, np.ndarray] = {}
    for key, choice in given.items():
        if not _is_of_task(key):
            continue
        name = key.removeprefix(_OF_TASK)
        if name not in free:
            allowed = ", ".join(_OF_TASK + name for name in free)
            raise ValueError(f"randomise: expected, of the task, one of {allowed}, got {show(key)}")
        values = choice if is_table else _values(key, choice, check_num_scenarios(num_scenarios), generator)
        try:
            drawn[name] = task._checked_array(name, values)
        except (TypeError, ValueError) as error:
            raise type(error)(f"randomise: {_OF_TASK}{error}") from error
        if drawn[name].ndim != 1:
            raise ValueError(f"randomise: expected one value of {key} per scenario, got {list(drawn[name].shape)}")
    return drawn


def _is_of_task(name: Any) -> bool:
    return isinstance(name, str) and name.startswith(_OF_TASK)


def check_num_scenarios(rows: Any) -> int:
    """Return how many scenarios to draw."""
    if check_count("num_scenarios", rows, 1) > MAX_SCENARIOS:
        raise ValueError(f"num_scenarios: expected up to {MAX_SCENARIOS}, got {rows}")
    return int(rows)


def check_replaced(table: MarketConfig, slots: Sequence[str | None]) -> None:
    """Refuse scenarios that have fewer agents of a class than learners replace."""
    fewest = class_counts(table, num_rows(table)).min(axis=0)
    for name, count in zip(CLASSES, fewest, strict=True):
        replaced = slots.count(name)
        if count < replaced:
            raise ValueError(
                f"randomise: expected at least {replaced}, as many as learners replace, got a scenario with {count} "
                f"{name} agents"
            )


def check_seed(seed: Any) -> int:
    """Return the seed of the draws."""
    if not is_whole(seed):
        raise TypeError(f"scenario_seed: expected a whole number from 0, got {show(seed)}")
    if seed < 0:
        raise ValueError(f"scenario_seed: expected a whole number from 0, got {show(seed)}")
    return int(seed)


def num_rows(table: MarketConfig) -> int:
    """Return how many scenarios a table has."""
    return next(iter(table.per_market.values()))


def as_table(randomise: Any, agents: Iterable[AgentClass] = ()) -> Any:
    """Return the table where it was given itself, in the spelling that JSON keeps or as a config; else `randomise`.

    The table's classes of agents are the config's, so nothing is imported for a table that was loaded.
    """
    if isinstance(randomise, Mapping) and set(randomise) == {"scenarios"}:
        allowed = "a mapping of fields of MarketConfig"
        given = check_dict("randomise['scenarios']", randomise["scenarios"], allowed)
        fields = {name: value for name, value in given.items() if not _is_of_task(name)}
        if isinstance(fields.get("agents"), Mapping):
            here = {kind.path: kind for kind in agents}
            for key in fields["agents"]:
                if isinstance(key, str) and key not in here:
                    allowed = ", ".join(here) or "none"
                    raise ValueError(f"randomise: expected added agents of the config, {allowed}, got {show(key)}")
            fields["agents"] = {here.get(key, key): made for key, made in fields["agents"].items()}
        return make_config(fields)
    return randomise


def pack_table(table: MarketConfig, drawn: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return a table's fields, and settings of the task, as plain numbers, texts and lists: `{"scenarios": ...}`."""
    return plain_fields(table) | {_OF_TASK + name: values.tolist() for name, values in drawn.items()}


def _draw(randomise: Mapping[str, Any], config: MarketConfig, rows: int, seed: int) -> MarketConfig:
    if not randomise:
        raise ValueError("randomise: expected at least one field, got an empty dict")
    generator = np.random.default_rng(seed)
    fields: dict[str, Any] = {}
    agents, known = dict(config.agents), agent_fields(config)
    free = [*(field for field in config.to_dict() if field not in (*_FIXED, "agents")), *known]
    for name, choice in randomise.items():
        if not is_one_of(name, free):
            counts = [f"{kind.name}.count" for kind in agents]
            reason = ", which all scenarios have alike" if is_one_of(name, ("agents", *counts)) else ""
            raise ValueError(f"randomise: expected one of {', '.join(free)}, got the field {show(name)}{reason}")
        drawn = _values(name, choice, rows, generator)
        if name not in known:
            fields[name] = drawn
            continue
        kind, parameter = known[name]
        try:
            made = {**agents[kind].parameters, parameter: np.reshape(drawn, (rows, 1))}
            agents[kind] = Mix(agents[kind].count, made)
        except ValueError as error:
            raise ValueError(f"randomise: {kind.name}.{error}") from error
    if any(name in CLASSES for name in fields):
        shares = {name: np.broadcast_to(fields.get(name, getattr(config, name)), rows) for name in CLASSES}
        total = np.sum([np.asarray(share, dtype=np.float64) for share in shares.values()], axis=0)
        if not (total > 0).all():
            raise ValueError("randomise: expected a positive sum, got shares of classes that are all 0")
        fields |= {name: np.asarray(share, dtype=np.float64) / total for name, share in shares.items()}
    return config.replace(**fields, agents=agents)


def _check_agents(table: MarketConfig, config: MarketConfig) -> None:
    """Refuse scenarios with other agents than the config's: classes and counts are the same in all."""
    got, allowed = ({kind.name: (kind, made.count) for kind, made in each.agents.items()} for each in (table, config))
    if list(got.items()) != list(allowed.items()):
        said = (", ".join(f"{count} {name}" for name, (_, count) in each.items()) or "none" for each in (got, allowed))
        raise ValueError("randomise: expected the config's added agents, {1}, got {0}".format(*said))


def _values(name: str, choice: Any, rows: int, generator: np.random.Generator) -> Any:
    """Draw one value per scenario."""
    keys = set(choice) if isinstance(choice, Mapping) else set()
    if keys == {"low", "high"}:
        choice = (choice["low"], choice["high"])
    if isinstance(choice, tuple):
        low, high = _range(name, choice)
        if _is_whole(name):
            return generator.integers(low, high, rows, endpoint=True)
        return generator.uniform(low, high, rows)
    values = choice["values"] if keys == {"values"} else choice
    if hasattr(values, "detach"):  # a tensor, without importing torch here
        values = check_array(f"randomise[{name!r}]", values, "(low, high), or a list of values")
    many = isinstance(values, Sequence) and not isinstance(values, (str, bytes, bytearray, memoryview))
    if not keys and many and len(values) == 2 and all(is_number(value) for value in values):
        raise ValueError(
            f"randomise[{name!r}]: expected {{'low': {show(values[0])}, 'high': {show(values[1])}}} and "
            f"{{'values': {show(choice)}}}, got {show(choice)}, a range or two values"
        )
    if (many or (isinstance(values, np.ndarray) and values.ndim)) and len(values):
        if name in CLASSES and not all(is_number(share) and 0 <= as_float(share) < math.inf for share in values):
            raise ValueError(f"randomise[{name!r}]: expected finite numbers from 0, got {show(choice)}")
        return [values[place] for place in generator.integers(0, len(values), rows)]
    raise ValueError(f"randomise[{name!r}]: expected (low, high), or a list of values, got {show(choice)}")


def _is_whole(name: str) -> bool:
    """Return whether a field, a setting of the task or a parameter of added agents is a whole number."""
    return name in _ROUNDED or ("." in name and not _is_of_task(name))


def _range(name: str, choice: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return both ends of a range, as ints where the field is a whole number."""
    if name in TEXTS or len(choice) != 2 or not all(is_number(end) for end in choice):
        allowed = "a list of values" if name in TEXTS else "(low, high), two numbers, or a list of values"
        raise ValueError(f"randomise[{name!r}]: expected {allowed}, got {show(choice)}")
    low, high = choice
    whole = _is_whole(name)
    if not (-(2**31) <= low <= high < 2**31 and (not whole or (int(low) == low and int(high) == high))):
        kind = "whole numbers" if whole else "numbers"
        raise ValueError(f"randomise[{name!r}]: expected two {kind}, low up to high, within 2^31, got {show(choice)}")
    if name in CLASSES and low < 0:
        raise ValueError(f"randomise[{name!r}]: expected numbers from 0, got {show(choice)}")
    return (int(low), int(high)) if whole else (float(low), float(high))
