"""`LiveTask`: the task as an environment plays it, the scenarios that its episodes draw, and their warm starts.

`EnvCore` has one. It makes tables of what users ask for (scenarios.py, task_values.py, warm_starts.py), hands them to
the engine, and changes them while markets run.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kineticsim_env.agents.mixes import with_room
from kineticsim_env.config import MarketConfig
from kineticsim_env.engines.agents import check_width
from kineticsim_env.engines.base import ENV_RESTART, ENV_STEP
from kineticsim_env.envs.opponents import programs_of
from kineticsim_env.envs.scenario_weights import check_weights, shares_of, thresholds_of
from kineticsim_env.envs.scenarios import (
    as_table,
    check_replaced,
    draw_task_settings,
    make_scenarios,
    num_rows,
)
from kineticsim_env.envs.settings import DISABLED, SAME_STEP, EnvSettings
from kineticsim_env.envs.task_values import TaskValues
from kineticsim_env.envs.warm_starts import WarmStarts
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.calls import Uninterrupted, one_at_a_time
from kineticsim_env.simulator import Simulator
from kineticsim_env.tasks.base import CHANGEABLE, MAY_DIFFER, Task
from kineticsim_env.tasks.many_learners import check_targets, with_all_roles


class LiveTask:
    """The task of an environment, and what its episodes draw.

    Attributes:
        task: The settings; of one that differs the largest.
        values: The settings that differ.
        auctions_per_step: Of a decision; where events end decisions the most events.
        extras: Columns that observations have behind all others, names of `tasks.base.EXTRAS` in its order.
        config: The market with the task's limits on slots: what scenarios differ from.
        scenarios: The table of scenarios; None without any.
        warm_starts: What episodes begin from, once `open` was called.
    """

    def __init__(
        self, task: Task, roles: Sequence[str], slots: Sequence[str | None], num_markets: int, settings: EnvSettings
    ) -> None:
        """Check the task, and draw the scenarios; `slots` are the classes that slots replace, or None."""
        config = settings.config
        task = task.of_market(config)
        if isinstance(config.inventory_limit, int) and config.inventory_limit > 0 and hasattr(task, "inventory_limit"):
            task = task.replace(inventory_limit=config.inventory_limit)  # what policies read back
        drawn = draw_task_settings(settings.randomise, task, settings.num_scenarios, settings.scenario_seed)
        self._settings, self._roles, self._slots, self._markets = settings, tuple(roles), tuple(slots), num_markets
        self.auctions_per_step = settings.auctions_per_step
        if task.decides_at_events:
            self.auctions_per_step *= config.events_per_interval
        self._narrowest = self._with_smallest_limits(task, drawn)
        self.values = TaskValues(task, roles, num_markets, drawn, others=self._others(task))
        task = self.values.task
        self._check_drawn(self.values)
        extras = (*settings.extras, *(["decision_events"] if task.decides_at_events else []))
        self.extras = (*extras, *self.values.names)
        begin = layout.observation_length(config.is_continuous, len(extras), config.orders_per_side)
        self.task: Any = task._with_columns(self.values.columns(begin))
        self.config = task.market_config(config)
        self.scenarios: MarketConfig | None = None
        if settings.randomise is not None:
            self.scenarios = self._make_scenarios(settings.randomise, drawn)
            agents = with_room(self.config.agents, self.scenarios.agents)
            self.config = self.config.replace(agents=agents)
        self._drawn: torch.Tensor | None = None  # what scenarios draw of the task,
        self._former_drawn: list[torch.Tensor | None] = []  # and tables that captured CUDA graphs may still use

    def open(self, simulator: Simulator, tensors: Mapping[str, torch.Tensor]) -> None:
        """Give new markets, which have the scenarios, their settings, and run their warm starts."""
        self._connect(simulator, tensors)
        self.warm_starts = WarmStarts(simulator, self.task, self.task.warmup * self.intervals)
        self.use_bank(self.warm_starts.run(self.scenarios))

    def of_rows(self, rows: np.ndarray | slice, simulator: Simulator, tensors: Mapping[str, torch.Tensor]) -> LiveTask:
        """Return the same for markets that are a branch of these, int64 `[n]`, and tensors of their own."""
        made = copy.copy(self)
        made._drawn, made._former_drawn, made._markets = None, [], simulator.num_markets
        made.task, made.values = self.task._of_rows(rows, self._markets), self.values.of_rows(rows)
        made.config, made._narrowest = self.config._of_rows(rows), self._narrowest._of_rows(rows)
        made._settings = dataclasses.replace(
            self._settings,
            config=self._settings.config._of_rows(rows),
            opponent_slots=tuple(opponent.of_rows(rows) for opponent in self._settings.opponent_slots),
        )
        made._connect(simulator, tensors)
        made.warm_starts = self.warm_starts.of_rows(rows, simulator)
        made.hand_over()
        return made

    def _connect(self, simulator: Simulator, tensors: Mapping[str, torch.Tensor]) -> None:
        self._simulator, self._engine, self._tensors = simulator, simulator.engine, tensors
        self._calls = simulator._calls
        if self.values.rows is not None:  # until episodes draw theirs
            tensors["task_values"].copy_(torch.from_numpy(self.values.rows))
            self._bind_drawn()

    # Settings ---------------------------------------------------------------------------------------------------------

    @one_at_a_time
    def set_task(self, **changes: Any) -> None:
        """Change settings of the task; see `BaseMarketEnv.set_task`."""
        for name in changes:
            if name not in CHANGEABLE or not hasattr(self.task, name) or name in self.values.drawn:
                free = [field for field in CHANGEABLE if hasattr(self.task, field) and field not in self.values.drawn]
                raise ValueError(f"set_task: expected one of {', '.join(free)}, got the field {name!r}")
        values = self._values_like(self.task.replace(**changes), self.values.drawn)
        with Uninterrupted():
            self.task, self.values = values.task._with_columns(self.task.columns), values
            if values.rows is not None:
                rows, device = self._tensors["task_values"], self._simulator.device
                for place in (layout.ENUMS["TaskValue"][name] for name in changes if name in MAY_DIFFER):
                    rows[..., place] = torch.from_numpy(values.rows[..., place]).to(device)
            self.hand_over()
        self.prepare_step()

    def task_of_all(self) -> Any:
        """Return the settings of all slots, those of opponents too."""
        return self._others(self.task) or self.task

    def _others(self, task: Any) -> Any:
        """Return a task with the settings that opponents need, None without any."""
        return with_all_roles(task, self._narrowest) if self._settings.opponent_slots else None

    def _with_smallest_limits(self, task: Any, drawn: Mapping[str, np.ndarray]) -> MarketConfig:
        """Return the market with a task's limits, and of limits that scenarios draw the smallest."""
        config, names = self._settings.config, ("inventory_limit", "max_qty")
        smallest = {name: int(drawn[name].min()) for name in names if name in drawn}
        if "inventory_limit" in smallest:
            config = config.replace(inventory_limit=None)  # scenarios have theirs in its place
        return task.replace(**smallest).market_config(config)

    def _check_drawn(self, values: TaskValues) -> None:
        """Refuse settings of scenarios with which some slot has more to trade than a limit leaves room for."""
        if values.drawn:
            limited = self._with_smallest_limits(values.task, values.drawn)
            check_targets(self._others(values.task) or values.task, self._roles, limited)

    def _values_like(self, task: Any, drawn: Mapping[str, np.ndarray]) -> TaskValues:
        """Return settings that differ of another task, or drawn otherwise, with the columns that there are."""
        return TaskValues(task, self._roles, self._markets, drawn, like=self.values, others=self._others(task))

    def _bind_drawn(self) -> None:
        """Let scenarios draw their settings of the task."""
        if self.values.table is None:
            return
        table = torch.from_numpy(self.values.table)
        if self._drawn is not None and self._drawn.shape == table.shape:
            self._drawn.copy_(table)  # a captured CUDA graph keeps its address
        else:
            self._former_drawn.append(self._drawn)
            self._drawn = table.to(self._simulator.device, copy=True)
            self._engine.bind({"scenario_values": self._drawn})

    def hand_over(self) -> None:
        """Hand the settings to the engine."""
        settings = self._settings
        self._engine.set_task(
            self.task_of_all().to_params(
                self._roles,
                autoreset=DISABLED if settings.own and settings.autoreset == SAME_STEP else settings.autoreset,
                stagger=settings.stagger,
                bank_size=self.warm_starts.size,
                bank_owner=self.warm_starts.owner,
                scenarios=self.num_scenarios,
                extras=self.extras,
                value_scale=self.values.scale,
                longest=self.longest,
                learners=1 if programs_of(settings.opponent_slots) else 0,
                unwind=len(self._roles) - len(settings.opponent_slots),
            )
        )

    def prepare_step(self) -> None:
        """Register the step as it is now: for `EagerStep`, and for programs that torch compiles."""
        self._engine.prepare_launcher(ENV_STEP, self.auctions_per_step)
        if self._settings.own and self._settings.autoreset == SAME_STEP:
            self._engine.prepare_launcher(ENV_RESTART)

    def use_bank(self, fresh: dict[str, torch.Tensor]) -> None:
        """Begin episodes from these warm starts; empty is from those that there are."""
        self.warm_starts.use(self.scenarios, fresh)
        self.hand_over()
        self._engine.state_changed()

    @property
    def intervals(self) -> int:
        """How many intervals of the market are one of the config that was given: 1, or all its events."""
        return self._settings.config.events_per_interval if self.task.decides_at_events else 1

    @property
    def longest(self) -> int:
        """How much a decision adds to `elapsed` at most: 1, or events where these end decisions."""
        return self.auctions_per_step if self.task.decides_at_events else 1

    # Scenarios --------------------------------------------------------------------------------------------------------

    @property
    def num_scenarios(self) -> int:
        """How many scenarios there are, 0 for none."""
        return 0 if self.scenarios is None else num_rows(self.scenarios)

    @one_at_a_time
    def set_scenarios(self, randomise: Any) -> None:
        """Replace the scenarios; see `BaseMarketEnv.set_scenarios`."""
        self._check_any("set_scenarios")
        table, values = self.tables_of(randomise)
        self.use_scenarios(table, values, self.warm_starts.run(table))
        self.prepare_step()

    @one_at_a_time
    def set_scenario_weights(self, weights: Any) -> None:
        """Draw scenarios by weights, from each market's next episode on; see `BaseMarketEnv.set_scenario_weights`."""
        self._check_any("set_scenario_weights")
        scenarios = self.num_scenarios
        thresholds = np.zeros(scenarios, np.int64)
        if weights is not None:
            thresholds = thresholds_of(check_weights(weights, scenarios))
        self._engine.check_sizes()
        self._engine.scenario_thresholds.copy_(torch.from_numpy(thresholds))  # in place: captured graphs read it

    def _check_any(self, call: str) -> None:
        if self.scenarios is None:
            raise ValueError(f"{call}: expected an environment made with randomise=..., got one without scenarios")

    @property
    def scenario_weights(self) -> torch.Tensor | None:
        """With which probability an episode draws each scenario, float64 `[S]`; None without scenarios."""
        if self.scenarios is None:
            return None
        return shares_of(self._engine.scenario_thresholds)

    def tables_of(self, randomise: Any) -> tuple[MarketConfig, TaskValues]:
        """Return the table of other scenarios, checked, and the settings that these draw, with the present columns."""
        settings = self._settings
        drawn = draw_task_settings(randomise, self.task, settings.num_scenarios, settings.scenario_seed)
        values = self._values_like(self.task, drawn)
        self._check_drawn(values)
        table = self._make_scenarios(randomise, drawn)
        self._simulator.check_flows(table)
        return table, values

    def _make_scenarios(self, randomise: Any, drawn: Mapping[str, np.ndarray]) -> MarketConfig:
        """Return the table of scenarios; settings of the task are drawn before."""
        randomise = as_table(randomise, self.config.agents)
        if isinstance(randomise, MarketConfig):
            interval = self._settings.config.interval
            if self.task.decides_at_events and randomise.interval not in (interval, 1):  # 1 in saved states
                raise ValueError(f"randomise: expected the config's interval, {interval}, got {randomise.interval}")
            randomise = self.task.market_config(randomise)
        settings = self._settings
        table = make_scenarios(randomise, self.config, settings.num_scenarios, settings.scenario_seed, drawn)
        check_replaced(table, self._slots)
        for kind, made in table.agents.items():
            if self.scenarios is not None:  # before, there is room for whatever they have
                check_width(kind.name, made, self.config.agents[kind].of_each_agent)
        return table

    def use_scenarios(
        self,
        table: MarketConfig,
        values: TaskValues,
        fresh: dict[str, torch.Tensor],
        present: torch.Tensor | None = None,
        agents_present: torch.Tensor | None = None,
    ) -> None:
        """Take over what `tables_of` returned, and warm starts, as `use_bank` takes them.

        Running episodes play on with `present`, int32 `[M, n]`, and `agents_present`, int32 `[M, P]`; None is what they
        have.
        """
        with Uninterrupted():
            self._simulator._set_scenarios(table, present, agents_present)
            self.scenarios, self.values = table, values
            self._bind_drawn()
            self.use_bank(fresh)
