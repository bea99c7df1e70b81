"""Saved states of environments: the range of every number in them, in words in docs/environment.md.

`load_state` of state_dict.py calls this after runtime/saved_states.py has checked the market's part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
import torch

from kineticsim_env.config import MAX_PRICE, MAX_STEP_QTY, MarketConfig
from kineticsim_env.engines.parameters import parameter_ranges
from kineticsim_env.envs.scenarios import MAX_SCENARIOS
from kineticsim_env.envs.task_values import TaskValues
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.fields import INTEGERS, microseconds
from kineticsim_env.runtime.roles import SPECS
from kineticsim_env.runtime.saved_states import PARAMETERS, SCENARIOS, unpack
from kineticsim_env.runtime.state_ranges import MAX_MONEY, Ranges, columns
from kineticsim_env.tasks.base import WHOLE, Task

Table = TypeVar("Table")


def check_environment_ranges(
    saved: Mapping[str, torch.Tensor],
    parameters: torch.Tensor,
    task: Task,
    roles: Sequence[str],
    spaces: Sequence[gym.spaces.Box],
    *,
    levels: int,
    auctions_per_step: int,
    longest: int,
    scenarios: bool,
    values: TaskValues,
) -> None:
    """Refuse a state that no environment of this task can be in; the market's part is checked already.

    Tensors are of the right shapes and dtypes; `parameters` are what the markets play, int32 `[M, n]` or `[1, n]`;
    roles and observation spaces are of each slot, `levels` is L, and `values` are the settings that differ.

    Raises:
        ValueError: Naming the tensor, the first number that is out of its range, and the range.
    """
    check = Ranges(saved)
    elapsed, done = saved["elapsed"].long(), saved["done"]
    own = _checked_settings(check, saved, values, task)
    horizon, last = own("horizon")[:, 0] * longest, task.horizon * longest
    check.refuse("elapsed", (elapsed < 0) | (elapsed > horizon), f"0 to {last}")
    check.refuse("done", (elapsed == horizon) & ~done, f"True at the horizon, {last}")
    check.refuse("ended", (done != saved["ended"].all(1))[:, None], "True for all slots just where 'done' is")
    left = (horizon - elapsed) * (auctions_per_step // longest) + task.forced_auctions
    interval = columns(parameters, elapsed.device)["interval"]  # 0 where there is no clock
    end = torch.where(interval > 0, 2**32 // interval.clamp(1) + 1, 2**32)
    check.refuse("t", saved["t"] + left >= end, "so low that the episode ends below 2^32")
    furthest = MAX_PRICE + 4 * levels
    for name in ("mid_history", "arrival2"):
        check.within(name, -furthest, furthest, f"within 2^30 + 4 num_levels = {furthest}")
    moves = saved["mid_history"].long().diff(dim=1).abs() >= 2**31
    check.refuse("mid_history", moves.any(1, keepdim=True), "mids less than 2^31 apart from one decision to the next")
    check.refuse("volume_history", saved["volume_history"] < 0, "0 or more")
    check.refuse("fills", saved["fills"] < 0, "0 or more")
    check.within("prev_value", -MAX_MONEY, MAX_MONEY, "-2^60 to 2^60")
    if "decision_events" in saved:
        check.within("decision_events", 0, longest, f"0 to {longest}")
    if "info" in saved:
        check.refuse("episode_filled", saved["episode_filled"] < 0, "0 or more")
    if "episode_return" in saved:
        check.refuse("episode_return", ~saved["episode_return"].isfinite(), "a finite number")
    if scenarios:
        check.within("scenario", 0, MAX_SCENARIOS - 1, f"0 to {MAX_SCENARIOS - 1}")
    else:
        check.within("scenario", 0, 0, "0, as there are no scenarios")
    row = columns(parameters, elapsed.device)  # what observations are scaled by
    largest, limit = row["max_quote_qty"], row["inventory_limit"].view(-1, 1)
    quotes, has_ladders = saved["quotes"], task.orders_per_side > 1
    quantity = torch.arange(4, device=elapsed.device) % 2 == 1
    standing = quotes.sum(-2, keepdim=True) if has_ladders else quotes  # at both places together
    over = (standing > largest.view(-1, *(1,) * (quotes.dim() - 1))) & quantity
    check.refuse("quotes", over.expand_as(quotes), "quantities up to max_quote_qty")
    over = (limit >= 0) & (saved["inventory"].abs() > limit)
    check.refuse("inventory", over, "within inventory_limit")
    for slot, (role, space) in enumerate(zip(roles, spaces, strict=True)):
        low, high = (torch.from_numpy(bound).to(elapsed.device) for bound in (space.low, space.high))
        for name in ("observation", "final_observation"):
            place = (slice(None), slot, slice(len(low)))
            inside = (saved[name][place] >= low) & (saved[name][place] <= high)  # NaN is not
            check.refuse(name, ~inside, f"in the observation space of a {role}", place)
        if (to_trade := SPECS[role].to_trade) is not None:
            traded, whole = saved["inventory"][:, slot], own(to_trade)[:, slot]
            late = 1 + saved["due"].shape[1] if "due" in saved else 2 if "queue" in saved else 0  # what stood, and came
            most = whole + late * task.orders_per_side * row["max_quote_qty"]
            side = getattr(task, "side", None) if SPECS[role].has_block else None  # "random": the episode draws it
            bad = (traded.abs() > most) | ((traded < 0) & (side == "buy")) | ((traded > 0) & (side == "sell"))
            check.refuse("inventory", bad, f"from nothing to all of the block of a {role}", (slice(None), slot))


def _checked_settings(
    check: Ranges, saved: Mapping[str, torch.Tensor], values: TaskValues, task: Any
) -> Callable[[str], torch.Tensor]:
    """Refuse settings of the task that no market can have; returns a function that finds one, int64 `[M, K]`."""
    places = layout.ENUMS["TaskValue"]
    if values.rows is None:
        shape = saved["inventory"].shape
        return lambda name: torch.full(shape, getattr(task, name, 0), device=saved["inventory"].device)
    found, present = saved["task_values"], torch.from_numpy(values.rows).to(saved["task_values"].device)
    check.refuse("task_values", ~found.isfinite(), "a finite number")
    for name, place in places.items():
        column = found[..., place]
        if name in values.names:
            low, high = values.bounds(name)
            bad = (column < low) | (column > high) | ((column != column.round()) & (name in WHOLE))
            check.refuse("task_values", bad, f"{low:g} to {high:g} as {name}", (..., place))
        elif name != "forced_auctions" or "block_qty" not in values.names:
            bad = column != present[..., place]
            check.refuse("task_values", bad, f"the environment's own {name}", (..., place))
    differs = found[..., places["horizon"]] != found[:, :1, places["horizon"]]
    check.refuse("task_values", differs, "one horizon for all slots of a market", (..., places["horizon"]))
    check.within("opening_value", -MAX_MONEY, MAX_MONEY, "-2^60 to 2^60")
    return lambda name: found[..., places[name]].long()


def read_scenarios(saved: Mapping[str, Any], make: Callable[[dict[str, Any]], Table]) -> Table:
    """Return the table of scenarios of a saved state, which `make` makes of its fields and checks."""
    fields = unpack(SCENARIOS, saved[SCENARIOS])
    if not isinstance(fields, dict):
        raise ValueError(f"state[{SCENARIOS!r}]: expected a dict of fields, got {type(fields).__name__}")
    try:
        return make(fields)
    except (TypeError, ValueError) as error:
        raise ValueError(f"state[{SCENARIOS!r}]: {error}") from error


def check_parameters(packed: torch.Tensor, config: MarketConfig, table: MarketConfig, flows: int) -> None:
    """Refuse parameters, int32 `[M, n]`, that no market of a config's sizes, limits on slots and order flows can have.

    Raises:
        ValueError: Naming the field, the first number that is out of its range, and the range.
    """
    row = columns(packed, packed.device)
    largest = int(np.max(config.max_quote_qty))
    limits = np.asarray(-1 if table.inventory_limit is None else table.inventory_limit)
    regimes = 0 if config.regimes is None else len(config.regimes)
    events = {name: (1, INTEGERS[name][1]) if config.uses_clock else (0, 0) for name in ("interval", "beat")}
    ranges = parameter_ranges(config.num_levels) | {
        "max_quote_qty": (largest, largest),
        "inventory_limit": (int(limits.min()), int(limits.max())),
        "regimes": (regimes, regimes),
        "tick_size": (1, min(64, config.num_levels)),
        "flow": (0, max(0, flows - 1)),
        "interval_us": (microseconds(config.interval_ms or 0),) * 2,
        **events,
    }
    for name, (low, high) in ranges.items():
        bad = (row[name] < low) | (row[name] > high)
        if bool(bad.any()):
            found = row[name][bad][0].item()
            raise ValueError(f"state[{PARAMETERS!r}]: expected {name} from {low} to {high}, got {found}")
    begins = [row[name] for name in ("first_momentum", "first_maker", "first_fundamental")]
    counts = [row[f"num_{name}"] for name in ("noise", "momentum", "maker", "fundamental")]
    interval = row["interval" if config.interval_ms is None else "interval_us"]
    if config.is_continuous and not config.quotes_may_wait and bool((row["quote_latency"] >= interval).any()):
        raise ValueError(f"state[{PARAMETERS!r}]: expected a quote_latency below the interval, got one that is not")
    built_in = row["num_agents"] - config.added_agents  # indices of inactive ones, too
    disorder = built_in * row["max_order_qty"] + config.added_quantity > MAX_STEP_QTY
    for begin, count, end in zip([torch.zeros_like(built_in), *begins], counts, [*begins, built_in], strict=True):
        disorder |= begin + count > end
    if bool(disorder.any()):
        raise ValueError(f"state[{PARAMETERS!r}]: expected counts of a config's agents, got those of no population")
    loose = ((row["walk_threshold"] > 0) | ((row["jump_threshold"] > 0) & (row["jump_size"] > 0))) & (
        row["window"] == 0
    )
    if bool(loose.any()):
        raise ValueError(f"state[{PARAMETERS!r}]: expected a window above 0 where the fundamental moves, got 0")
