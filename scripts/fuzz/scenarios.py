"""Kind `scenarios`: new scenarios, tasks, seeds and loads in the middle of episodes, on both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kineticsim_env.tasks.base import CHANGEABLE, CHOICES
from scripts.fuzz import moves, pairs

aside = pairs.aside


def play(rng: np.random.Generator, engines: tuple[str, ...]) -> None:
    """Make a random sequence of such calls on both engines, and compare after each."""
    pair = pairs.random_env(int(rng.integers(2 * pairs.DIFFERENT)), engines[int(rng.integers(len(engines)))])
    told: list[str] = []
    saved: list[dict[str, Any]] = []
    with pairs.forgetting(pair, told, "scenarios"):
        moves.start_over(pair, rng)
        for _ in range(int(rng.integers(2, 6))):
            told.append(_move(pair, rng, saved))


def _move(pair: pairs.Pair, rng: np.random.Generator, saved: list[dict[str, Any]]) -> str:
    kind, markets = int(rng.integers(9)), pair.under_test.num_envs

    def made(name: str, given: Any, call: Callable[[Any], Any]) -> str:
        return f"{name}({given}) {moves.together(pair, f'{name}({given})', call)[0]}"

    if kind <= 2:
        moves.advance(pair, rng)
        return "step"
    if kind == 3:
        table = random_table(rng)
        return made("set_scenarios", table, lambda env: env.set_scenarios(table))
    if kind == 4:
        changes = random_task(rng)
        return made("set_task", changes, lambda env: env.set_task(**changes))
    if kind == 5:
        saved.append((pair.under_test if rng.random() < 0.5 else pair.oracle).state_dict())
        return "state_dict()"
    if kind == 6 and saved:
        state = saved[int(rng.integers(len(saved)))]
        return made("load_state_dict", "", lambda env: env.load_state_dict(state))
    if kind == 7:
        weights = random_weights(rng)
        return made("set_scenario_weights", weights, lambda env: env.set_scenario_weights(weights))
    mask = rng.random(markets) < 0.5
    seed = [None, int(rng.integers(2**40)), rng.integers(-(2**62), 2**62, markets)][int(rng.integers(3))]
    options: dict[str, Any] = {"reset_mask": mask} if rng.random() < 0.6 else {}
    if rng.random() < 0.4:
        options["scenario"] = [2, -1, rng.integers(-1, 2, markets), rng.integers(-2, 9, markets)][int(rng.integers(4))]
    moves.together(pair, "reset", lambda env: env.reset(seed=seed, options=options))
    return f"reset({seed}, {options})"


def random_weights(rng: np.random.Generator) -> Any:
    """Return what `set_scenario_weights` takes, some of it for a table of another length, or none at all."""
    scenarios = int(rng.integers(1, 8))
    numbers = np.array([0.0, 0.0, 1.0, 1.0, 3.0, 1e-300, 1e300, np.nan, -1.0])
    bad = 0 if rng.random() < 0.8 else 2
    return [None, rng.choice(numbers[: 7 + bad], scenarios), rng.random(scenarios)][int(rng.integers(3))]


def random_table(rng: np.random.Generator) -> dict[str, Any]:
    """Return what `randomise` takes, most of it allowed."""
    pick = rng.choice
    fields: dict[str, Any] = {
        "fee": (0, int(pick([0, 9, 2**20]))),
        "noise_spread": {"values": [int(value) for value in rng.integers(0, 40, int(pick([1, 2, 7])))]},
        "max_order_qty": {"low": 1, "high": int(pick([1, 100, 1000]))},
        "market_order_prob": (0.0, float(pick([0.0, 0.5, 1.0]))),
        "cancel_prob": [0.0, 0.3, 1.0],
        "num_agents": (12, int(pick([12, 40]))),
        "init_depth": (0, int(pick([0, 1, 2**20]))),
        "tie": ["lowest", "mid"],
        "residue": ["rest", "cancel"],
        "fundamental_price": (int(pick([-(2**30), -500, 0, 4])), int(pick([5, 500, 2**30]))),
        "maker_half_spread": (0, int(pick([0, 3, 32767]))),
        "noise": (0.1, 0.6),
        "maker": {"values": [0.0, 0.2]},
        "window": (int(pick([0, 1])), 3),
        "walk_prob": (0.0, 0.4),
        "inventory_limit": {"values": [5, 10]},
        "rounding": ["even", "coin"],
        "reference": ["mid", "fundamental"],
        "taker_offset": (0, int(pick([0, 3, 32767]))),
        "tax": (0, int(pick([1, 40, 32767]))),
        "collar": [0, 1, 6],
        "tick_size": [1, 3, int(pick([8, 64]))],
        "taker_fee": (-9, 50),
        "quote_latency": [0, 3, 2**31 - 1],
        "interval": {"values": [1, 7]},
        "num_levels": {"values": [8, 16]},
    }
    names = rng.choice(list(fields), int(rng.integers(1, 4)), replace=False)
    return {str(name): fields[str(name)] for name in names}


def random_task(rng: np.random.Generator) -> dict[str, Any]:
    """Return what `set_task` takes, most of it allowed."""
    numbers = [0.0, 0.01, 1.0, 10.0, 1e-300, 1e300, 3.0]
    changes: dict[str, Any] = {}
    for name in rng.choice(list(CHANGEABLE), int(rng.integers(1, 3)), replace=False):
        options: list[Any] = list(CHOICES.get(str(name), ("shortfall", "terminal") if name == "reward" else numbers))
        if name == "max_loss":
            options.append(None)
        changes[str(name)] = options[int(rng.integers(len(options)))]
    return changes
