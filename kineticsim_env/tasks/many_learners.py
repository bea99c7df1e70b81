"""`ManyLearnersTask`: the settings of `parallel_env` and of its batched form, where every role may take part."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from kineticsim_env.config import CLASSES, MarketConfig
from kineticsim_env.engines.parameters import class_counts
from kineticsim_env.runtime.layout import CONSTANTS
from kineticsim_env.runtime.values import check_dict, is_one_of, is_whole, show
from kineticsim_env.tasks.base import ROLES, ForBlocks, ForProfit, Task, settings_of
from kineticsim_env.tasks.execution import ExecutionTask, check_block, check_forced

DEFAULT_LEARNERS = {"maker": 2, "momentum": 1, "noise": 1}


@dataclasses.dataclass(frozen=True)
class ManyLearnersTask(ForProfit, ForBlocks, Task):
    """Settings of learners of all roles; each role uses the rows that name it (for profit: all but noise and executor).

    | Parameter | Default | Of | Description |
    |-----------|---------|----|-------------|
    | those of `MarketMakingTask` | | for profit | `horizon`, `max_qty` and so on are everyone's |
    | `max_target` | 40 | noise | most that one has to trade in an episode |
    | `leftover_penalty` | 10 | noise, executor | ticks per unit left untraded |
    | `side`, `block_qty`, `forced_qty`, `risk_aversion` | as in `ExecutionTask`, but blocks of 40 | executor | |
    | `execution_reward` | `"shortfall"` | executor | the `reward` of `ExecutionTask` |

    Numbers of sizes, blocks, targets and penalties, and `initial_inventory`, may be arrays, `[K]` per learner or
    `[M, K]`; `horizon` and `inventory_limit` `[M]`. Observations then end with a column for each that differs.
    """

    block_qty: int = 40
    max_target: int = 40
    execution_reward: str = "shortfall"

    def __post_init__(self) -> None:
        """Check every field, and that forced orders are within its limits."""
        super().__post_init__()
        check_forced(self)


def task_of_all(task: Task, config: MarketConfig) -> ManyLearnersTask:
    """Return a learner's task as one of all roles: what its opponents' roles need beyond it has the defaults.

    Args:
        task: The learner's.
        config: The market with the task's limits: no opponent has more to trade than these leave room for.
    """
    fields = settings_of(ManyLearnersTask)
    shared = {name: getattr(task, name) for name in settings_of(type(task)) if name in fields}
    if isinstance(task, ExecutionTask):
        shared["execution_reward"] = shared.pop("reward")
    limit = None if config.inventory_limit is None else int(np.min(config.inventory_limit))
    shared.setdefault("inventory_limit", limit)
    most = ManyLearnersTask.max_target if limit is None else min(limit, ManyLearnersTask.max_target)
    shared["max_target"] = most
    if not isinstance(task, ForBlocks):
        shared["block_qty"] = min(most, ManyLearnersTask.block_qty)
        shared["forced_qty"] = min(ManyLearnersTask.forced_qty, int(np.min(config.max_quote_qty)))
    return ManyLearnersTask(**shared)


def check_learners(learners: Any, config: MarketConfig, task: ManyLearnersTask) -> tuple[str, ...]:
    """Return the role of every slot, in the order of the dict; raise naming what is wrong.

    Args:
        learners: How many learners of each role; `"maker"`, `"momentum"`, `"noise"` and `"fundamental"` take the
            places of built-in agents, `"executor"` and `"trader"` are added.
        config: The market.
        task: The task's settings.
    """
    check_dict("learners", learners, f"a dict such as {DEFAULT_LEARNERS}")
    roles: list[str] = []
    most_slots = CONSTANTS["kMaxSlots"]
    for role, count in learners.items():
        if not is_one_of(role, ROLES):
            raise ValueError(f"learners: got the role {show(role)}, allowed are {', '.join(map(repr, ROLES))}")
        if not is_whole(count) or count < 0:
            raise ValueError(f"learners[{role!r}]: got {show(count)}, allowed is a whole number from 0")
        if config.population == "fixed" and role in CLASSES:
            most = built_in_agents(config, role)
            if count > most:
                raise ValueError(
                    f"learners[{role!r}]: got {show(count)}, allowed is up to {most}, the built-in {role} agents that "
                    f"can be replaced; a config with a larger share {role!r} or more num_agents has more"
                )
        if count <= most_slots:  # else a list of any length
            roles += [role] * int(count)
    total = sum(map(int, learners.values()))
    if not 1 <= total <= most_slots:
        raise ValueError(f"learners: got {show(total)} in all, allowed is 1 to {most_slots}")
    check_targets(task, roles, task.market_config(config))
    return tuple(roles)


def check_targets(task: Any, roles: Sequence[str], limited: MarketConfig) -> None:
    """Refuse blocks or targets that a market's limits leave no room for."""
    if "noise" in roles and limited.inventory_limit is not None and task.max_target > np.min(limited.inventory_limit):
        raise ValueError(
            f"max_target: got {task.max_target}, allowed with a noise learner is up to the inventory limit, "
            f"{np.min(limited.inventory_limit)}"
        )
    if "executor" in roles:
        check_block(task, limited)


def built_in_agents(config: MarketConfig, role: str) -> int:
    """Return how many built-in agents of a class every market of a fixed population has."""
    rows = max(config.per_market.values(), default=1)
    return int(class_counts(config, rows)[:, CLASSES.index(role)].min())


def slots_of(roles: tuple[str, ...]) -> tuple[str | None, ...]:
    """Return the class of built-in agent that each learner replaces, None for one that is added."""
    return tuple(role if role in CLASSES else None for role in roles)
