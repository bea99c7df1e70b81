"""`ManyLearnersTask`: the settings of `parallel_env` and of its batched form, where every role may take part."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from kineticsim_env.config import CLASSES, MarketConfig
from kineticsim_env.engines.parameters import class_counts
from kineticsim_env.runtime.layout import CONSTANTS
from kineticsim_env.runtime.roles import ROLES, SPECS
from kineticsim_env.runtime.values import check_dict, check_flag, is_one_of, is_whole, show
from kineticsim_env.tasks.base import ForBlocks, ForProfit, Task, settings_of
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


def with_all_roles(task: Task, config: MarketConfig) -> ManyLearnersTask:
    """Return a learner's task as one of all roles: what its opponents' roles need beyond it has the defaults.

    The config has the task's limits: no opponent has more to trade than these leave room for.
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
    return ManyLearnersTask(**shared).of_market(config)


def check_learners(
    learners: Any, config: MarketConfig, task: ManyLearnersTask, replace: bool
) -> tuple[tuple[str, ...], tuple[str | None, ...]]:
    """Return the role of every slot, and the class of agents that it replaces or None; raise naming what is wrong.

    The order is that of the dict, but learners of one role are together, where the first of them is.

    Args:
        learners: How many learners of each role; `"maker"`, `"momentum"`, `"noise"` and `"fundamental"` take the
            places of built-in agents, `"executor"` and `"trader"` are added. The name of a class of `config.agents`
            is so many learners in their places, of the role that the class declares.
        config: The market.
        task: The task's settings.
        replace: Whether they do; False adds all learners.
    """
    check_flag("replace", replace)
    check_dict("learners", learners, f"a dict such as {DEFAULT_LEARNERS}")
    slots: list[tuple[str, str | None]] = []
    most_slots = CONSTANTS["kMaxSlots"]
    for name, count in learners.items():
        role, replaced = check_learner("learners", name, config)
        replaced = replaced if replace else None
        if not is_whole(count) or count < 0:
            raise ValueError(f"learners[{name!r}]: expected a whole number from 0, got {show(count)}")
        check_replaceable(f"learners[{name!r}]", show(count), count, 0, replaced, config)
        if count <= most_slots:  # else a list of any length
            slots += [(role, replaced)] * int(count)
    first = list(dict.fromkeys(role for role, _ in slots))
    slots.sort(key=lambda slot: first.index(slot[0]))
    roles = [role for role, _ in slots]
    total = sum(map(int, learners.values()))
    if not 1 <= total <= most_slots:
        raise ValueError(f"learners: expected 1 to {most_slots} in all, got {show(total)}")
    check_targets(task, roles, task.market_config(config))
    return tuple(roles), tuple(replaced for _, replaced in slots)


def check_learner(what: str, name: Any, config: MarketConfig) -> tuple[str, str | None]:
    """Return the role of a learner by its name in a dict, and the class of agents that it replaces, or None.

    The name is a role, or one of the classes of `config.agents`; errors call the dict `what`.
    """
    added = {kind.name: kind.role for kind in config.agents}
    if not is_one_of(name, (*ROLES, *added)):
        classes = f", and of config.agents {', '.join(map(repr, added))}" if added else ""
        raise ValueError(f"{what}: expected one of {', '.join(map(repr, ROLES))}{classes}, got the role {show(name)}")
    if name in ROLES and name in added:
        raise ValueError(f"{what}: expected another name in config.agents, got {name!r}, which is a role too")
    if name in added:
        return added[name], name
    return name, name if name in CLASSES and not config.is_flow else None  # a flow has no agents


def check_replaceable(
    name: str, got: str, count: int, already: int, replaced: str | None, config: MarketConfig
) -> None:
    """Refuse learners that are more than the agents of the class that they replace, None of learners that are added.

    `already` agents of the class are replaced by others; `name` is the argument and `got` what came, for the message.
    """
    added = {kind.name: made.count for kind, made in config.agents.items()}
    if replaced in added:
        most, whose, how = added[replaced] - already, f"{replaced} agents", "larger ks.mix(...) of them"
    elif replaced is not None and config.population == "fixed":
        most, whose = built_in_agents(config, replaced) - already, f"built-in {replaced} agents"
        how = f"larger share {replaced!r} or more num_agents"
    else:
        return
    if count > most:
        raise ValueError(
            f"{name}: expected up to {most}, the {whose} that can be replaced, got {got}; a config with a {how} has "
            "more"
        )


def check_targets(task: Any, roles: Sequence[str], limited: MarketConfig) -> None:
    """Refuse blocks or targets that a market's limits leave no room for."""
    to_trade = {SPECS[role].to_trade for role in roles}
    limit = limited.inventory_limit
    if "max_target" in to_trade and limit is not None and task.max_target > np.min(limit):
        raise ValueError(
            f"max_target: expected up to the inventory limit, {np.min(limit)}, with a noise learner, got "
            f"{task.max_target}"
        )
    if "block_qty" in to_trade:
        check_block(task, limited)


def built_in_agents(config: MarketConfig, role: str) -> int:
    """Return how many built-in agents of a class every market of a fixed population has."""
    rows = max(config.per_market.values(), default=1)
    return int(class_counts(config, rows)[:, CLASSES.index(role)].min())


def slots_of(roles: tuple[str, ...]) -> tuple[str | None, ...]:
    """Return the class of built-in agent that each role's learner replaces, None for one that is added."""
    return tuple(role if role in CLASSES else None for role in roles)
