"""Draws of whole configurations: every field of a market, every setting of a task, added agents and opponents.

`settings.py`, `tapes.py` and `formulas.py` open what is drawn here once, where `pairs.py` keeps a few things open.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import kineticsim_env as ks
from kineticsim_env.config import PRESETS
from kineticsim_env.runtime.roles import ROLES, action_form
from kineticsim_env.tasks.base import CHOICES, MAY_DIFFER, Task
from kineticsim_env.traders import order_splitter
from scripts.fuzz import pairs


@ks.agent(lean=0, spread=9, units=4, memory={"before": "mid2", "seen": 3}, largest_order=64)
def wanderer(market, own, draw):
    """Orders of both sides at any price, some off the grid, some marketable, out of what it remembers."""
    own.seen += 1 + market.best_bid_qty % 3
    price = own.before // 2 if own.seen % 5 == 0 else market.near_mid(own.lean + draw.offset(own.spread))
    own.before = market.mid2
    return ks.order(draw.offset(1, word=1), price, own.units - draw.below(3), draw.chance(0.1, word=2))


@ks.agent(patience=3, role="maker", informed=True, memory={"state": 12345})
def insider(market, own, draw):
    """Follows the fundamental price with numbers that wrap, in some regimes more than in others."""
    own.state = own.state * 1664525 + 1013904223 + market.t
    if own.state % (own.patience | 1):
        return ks.no_order()
    above = 2 * market.fundamental - market.mid2
    return ks.order(above, market.best_ask - (own.state >> 29), 1 + market.regime + (own.state & 3), market.ret == 0)


AGENTS = (wanderer, insider, order_splitter)
EXTREMES = [-(2**31), -3, 0, 1, 2, 7, 2**31 - 1]
# Values of settings of tasks; of those that are named in CHOICES, all.
SETTINGS: dict[str, list[Any]] = {
    "horizon": [1, 2, 4, 9],
    "max_offset": [1, 4, 10],
    "max_qty": [1, 8],
    "reward_scale": [1.0, 10.0],
    "warmup": [0, 1, 3],
    "bank_size": [0, 1, 2],
    "bank_per_market": [1, 2],
    "warm_seed": [-5, 2**61],
    "inventory_limit": [None, 1, 9, 40],
    "initial_inventory": [-1, 0, 1, 5],
    "inventory_penalty": [0.0, 0.01, 1.0],
    "dampening": [0.0, 0.5, 1.0],
    "idle_penalty": [0.0, 0.1],
    "max_loss": [None, 0.5, 20.0],
    "block_qty": [1, 3, 9],
    "forced_qty": [1, 4],
    "risk_aversion": [0.0, 0.05],
    "leftover_penalty": [0.0, 10.0],
    "max_target": [1, 5, 40],
    "keep": [False, True],
}


def config(rng: np.random.Generator, markets: int | None = None, **changes: Any) -> ks.MarketConfig:
    """Return a small market of any sort, with added agents or without; fields that no market can have are drawn anew.

    With `markets`, some fields have so many values, one per market; `changes` are fields that are said.
    """
    while True:
        try:
            if "agents" not in changes and rng.random() < 0.05:
                return _flow(rng).replace(**changes)
            drawn = _preset(rng) if rng.random() < 0.05 else pairs.random_config(rng, **_further(rng, markets))
            fields: dict[str, Any] = {**drawn.to_dict(), **_ladders(rng, drawn), **changes}
            if "agents" not in changes and rng.random() < 0.5:
                fields["agents"] = _agents(rng, markets)
            return ks.MarketConfig(**fields)
        except ValueError:
            continue


def _ladders(rng: np.random.Generator, drawn: ks.MarketConfig) -> dict[str, int]:
    if not drawn.is_continuous or rng.random() < 0.6:
        return {}
    return {"orders_per_side": int(rng.choice([2, 3, 8]))}


def _flow(rng: np.random.Generator) -> ks.MarketConfig:
    """Return a market of an order flow, which may jump all the time."""
    flow = ks.OrderFlow.preset("btcusd")
    if rng.random() < 0.5:
        flow = dataclasses.replace(flow, jump_hazard=2**30, jump_events=int(rng.choice([1, 9])))
    grid: dict[str, Any] = {"num_levels": 1 << int(rng.integers(3, 8)), "beat": int(rng.choice([1, 7, 30]))}
    grid |= {"interval": int(rng.choice([1, 12])), "window": int(rng.choice([0, 1, 3])), "fee": int(rng.choice([0, 9]))}
    if rng.random() < 0.5:  # of which some are cut short, and some have no event
        length, waits = float(rng.choice([5.0, 40.0, 900.0])), float(rng.choice([0.0, 0.4, 2.2]))
        grid |= {"interval_ms": length, "quote_latency_ms": waits * length}
    if rng.random() < 0.3:
        grid |= {"agents": _agents(rng, None), "agent_prob": float(rng.choice([0.02, 0.5]))}
    try:
        return flow.config(**grid)
    except ValueError:  # agents whose memory begins with what no flow's opening has
        return flow.config(**{name: value for name, value in grid.items() if not name.startswith("agent")})


def _preset(rng: np.random.Generator) -> ks.MarketConfig:
    return ks.MarketConfig.preset(str(rng.choice(list(PRESETS))), max_order_qty=int(rng.choice([1, 5])))


def _further(rng: np.random.Generator, markets: int | None) -> dict[str, Any]:
    pick = rng.choice
    more: dict[str, Any] = {}
    if rng.random() < 0.95:  # 6,000 agents take seconds here
        more["num_agents"] = int(pick([12, 20, 33]))
    values: dict[str, list[Any]] = {
        "max_quote_qty": [1, 50],
        "inventory_limit": [1, 20],
        "fundamental_price": [-40, 0, 300],
        "population": ["multinomial"],
    }
    for name, some in values.items():
        if rng.random() < 0.15:
            more[name] = pick(some).item()
    if markets is not None and rng.random() < 0.4:
        each = {"init_depth": (0, 9), "noise_spread": (0, 13), "max_order_qty": (1, 30), "fee": (-9, 9)}
        for name in rng.choice(list(each), int(rng.integers(1, 4)), replace=False):
            more[str(name)] = rng.integers(*each[str(name)], markets)
    return more


def _agents(rng: np.random.Generator, markets: int | None) -> dict[Any, Any]:
    chosen = [AGENTS[int(i)] for i in rng.permutation(len(AGENTS))[: int(rng.integers(1, len(AGENTS) + 1))]]
    agents = {}
    for kind in chosen:
        count = int(rng.choice([0, 1, 2, 5]))
        shapes: list[tuple[int, ...]] = [(), (count,), *([(markets, 1), (markets, count)] if markets else [])]
        names = [name for name in kind.parameters if rng.random() < 0.4]
        agents[kind] = ks.mix(count, **{n: rng.choice(EXTREMES, shapes[int(rng.integers(len(shapes)))]) for n in names})
    return agents


def task(rng: np.random.Generator, kind: type[Task], markets: int | None = None) -> dict[str, Any]:
    """Return settings of a task; with `markets`, some may be one per market."""
    found: dict[str, Any] = {}
    small = ("horizon", "warmup", "bank_size", "max_target", "block_qty")  # whose defaults take long
    for field in dataclasses.fields(kind):
        if not field.init or not (field.name in small or rng.random() < 0.5):
            continue
        name = "execution_reward" if field.name == "reward" and kind is ks.ExecutionTask else field.name
        values: list[Any] = list(CHOICES.get(name) or SETTINGS[name])
        if kind is ks.ManyLearnersTask and name == "max_loss" and None in values:
            values.remove(None)
        found[field.name] = values[int(rng.integers(len(values)))]
        if markets is not None and name in MAY_DIFFER and name in SETTINGS and rng.random() < 0.1:
            numbers = [value for value in SETTINGS[name] if value is not None]
            found[field.name] = np.asarray(rng.choice(numbers, markets))
    if "forced_qty" in {field.name for field in dataclasses.fields(kind)} and rng.random() < 0.9:
        found["forced_qty"] = int(min(found.get("forced_qty", 4), np.min(found.get("max_qty", 8))))
    return found


def randomised(rng: np.random.Generator, kind: type[Task]) -> dict[str, Any]:
    """Return what `randomise` takes: fields of the market, of the task, or of both."""
    from scripts.fuzz.scenarios import random_table

    found = random_table(rng) if rng.random() < 0.7 else {}
    free = [each.name for each in dataclasses.fields(kind) if each.name in MAY_DIFFER and each.name in SETTINGS]
    for name in rng.permutation(free)[: int(rng.integers(0, 3))]:
        numbers = [value for value in SETTINGS[str(name)] if value is not None]
        found[f"task.{name}"] = {"values": [numbers[int(i)] for i in rng.integers(len(numbers), size=3)]}
    return found or {"fee": (0, 9)}


def opponents(rng: np.random.Generator, discrete: bool, keep: bool, levels: int = 1) -> dict[str, list[Any]]:
    """Return policies for some roles: functions of observations alone; `levels` are those of ladders."""
    roles = [str(role) for role in rng.permutation(ROLES)[: int(rng.integers(1, 3))]]
    found: dict[str, list[Any]] = {}
    for role in roles:
        scales = rng.uniform(0.5, 9, int(rng.integers(1, 4)))
        some = [policy(role, discrete, float(scale), keep, levels) for scale in scales]
        found[role] = [some, [policy(role, discrete, 1.0, keep, levels)]] if rng.random() < 0.2 else some
    return found


def policy(role: str, discrete: bool, scale: float, keep: bool, levels: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a policy whose actions are exact functions of the observation, whatever the engine."""

    def act(observation: torch.Tensor) -> torch.Tensor:
        seen = torch.as_tensor(observation)
        if discrete:
            return (seen[:, 5:9].abs().sum(1) * 1000 * scale).long() % 9
        size = action_form(role, keep, levels).size
        return (torch.cat([seen, seen], 1)[:, :size] * scale).clamp(-1, 1)  # of many levels it may be longer

    return act
