"""`EnvCore`: what the vector, the single and the parallel environment share.

It owns a `Simulator` with slots, the environment's tensors and the warm starts, and makes one launch per step. How
results are handed out (NumPy or torch, copied or live, per agent) is left to those who use it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from kineticsim_env.agents.mixes import with_room
from kineticsim_env.config import MarketConfig
from kineticsim_env.engines import choose_engine
from kineticsim_env.engines.agents import check_width
from kineticsim_env.engines.base import ENV_RESET, ENV_STEP
from kineticsim_env.envs.eager import EagerStep
from kineticsim_env.envs.opponents import DRAWN, Opponents
from kineticsim_env.envs.own_step import OwnStep
from kineticsim_env.envs.saved_states import check_environment_ranges, check_parameters, read_scenarios
from kineticsim_env.envs.scenario_weights import (
    THRESHOLDS,
    check_scenario,
    check_thresholds,
    check_weights,
    thresholds_of,
)
from kineticsim_env.envs.scenarios import (
    as_table,
    check_replaced,
    draw_task_settings,
    make_scenarios,
    num_rows,
    pack_table,
)
from kineticsim_env.envs.settings import DISABLED, MODES, SAME_STEP, EnvSettings
from kineticsim_env.envs.task_values import TaskValues
from kineticsim_env.envs.warm_starts import WarmStarts
from kineticsim_env.runtime import layout, saved_states
from kineticsim_env.runtime.calls import Uninterrupted, one_at_a_time
from kineticsim_env.runtime.checks import check_mask, check_seeds
from kineticsim_env.simulator import Simulator
from kineticsim_env.tasks.base import CHANGEABLE, MAY_DIFFER, WHOLE, Task, observation_size
from kineticsim_env.tasks.many_learners import check_targets, task_of_all

_MARKETS_TO_SPECIALISE = 1024  # a batch for training: seconds of compilation are soon made up for


class EnvCore:
    """M markets with K slots each, and the task that the slots have.

    Attributes:
        simulator: The markets. Its tensors are live; stepping it past the environment is the caller's own affair.
        tensors: The environment's tensors by their names in `struct Launch`, `[M, K, ...]`.
        fills: Units bought and sold in the last decision, int64 `[M, K, 2]`.
        host: Whether the tensors are in host memory.
        extras: Columns that observations have behind all others, names of `tasks.base.EXTRAS` in its order.
        eager: Steps in a few microseconds, where it can.
        own: Plays steps with functions of the user's; None without any, and without opponents.
        opponents: Plays the slots behind the one learner's; None without any.
        learners: How many slots, from the first one on, the user plays.
    """

    @torch.inference_mode(False)  # tensors made in inference mode cannot be written to outside of it
    def __init__(
        self, num_markets: int, task: Task, roles: Sequence[str], slots: Sequence[str | None], settings: EnvSettings
    ) -> None:
        """Open the markets and fill the warm-start bank.

        Args:
            num_markets: M.
            task: The task's settings; its limits on slots are added to the market.
            roles: Of each slot, one of `tasks.base.ROLES`.
            slots: For each slot the class that it replaces, or None; see `Simulator`.
            settings: All that does not depend on the task.
        """
        config = settings.config
        if isinstance(config.inventory_limit, int) and config.inventory_limit > 0 and hasattr(task, "inventory_limit"):
            task = task.replace(inventory_limit=config.inventory_limit)  # what policies read back
        drawn = draw_task_settings(settings.randomise, task, settings.num_scenarios, settings.scenario_seed)
        self.settings, self.roles = settings, tuple(roles)
        self.values = TaskValues(task, roles, num_markets, drawn, others=self._others(task))
        task = self.values.task
        if drawn:
            check_targets(task, roles, task.market_config(config))
        self.extras = (*settings.extras, *self.values.names)
        begin = layout.observation_length(config.is_continuous, len(settings.extras))
        self.task: Any = task._with_columns(self.values.columns(begin))
        self.learners = len(self.roles) - len(settings.seats)
        self.autoreset, self.auctions_per_step = MODES.index(settings.autoreset_mode), settings.auctions_per_step
        if task.horizon * self.auctions_per_step + task.forced_auctions >= 2**32:
            raise ValueError(
                f"horizon: got {task.horizon} decisions of {self.auctions_per_step} auctions, allowed are episodes of "
                "less than 2^32 auctions"
            )
        self._validate, self.closed = settings.validate, False
        prefer_cpu = settings.prefer_cpu
        if not prefer_cpu and num_markets == 1:
            prefer_cpu = "one market is faster there"
        if not prefer_cpu and torch.cuda._is_in_bad_fork():
            prefer_cpu = "this process was forked from one that used CUDA"
        name, device = choose_engine(settings.engine, settings.device, prefer_cpu=prefer_cpu)
        self.config, self._slots = task.market_config(config), tuple(slots)
        self.scenarios: MarketConfig | None = None
        if settings.randomise is not None:
            self.scenarios = self._make_scenarios(settings.randomise, drawn)
            agents = with_room(self.config.agents, self.scenarios.agents)
            self.config = self.config.replace(agents=agents)  # what scenarios differ from
        self.simulator = Simulator(
            self.config, num_markets, engine=name, device=device, slots=slots, validate=self._validate
        )
        if task.horizon * self.auctions_per_step + task.forced_auctions >= self.simulator._end:
            raise ValueError(
                f"horizon: got {task.horizon} decisions of {self.auctions_per_step} intervals, allowed are episodes of "
                "less than 2^32 events"
            )
        if self.scenarios is not None:
            self.simulator._set_scenarios(self.scenarios)
        self._drawn: torch.Tensor | None = None  # what scenarios draw of the task,
        self._former_drawn: list[torch.Tensor | None] = []  # and tables that captured CUDA graphs may still use
        self._connect()
        self._warm_starts = WarmStarts(self.simulator, task)
        self._use_bank(self._warm_starts.run(self.scenarios))
        if settings.own is not None:
            self._engine.launch(ENV_RESET)  # markets of a first episode that nobody plays, to call functions with
        self.own = None if settings.own is None else OwnStep(settings.own, self)
        self.opponents = Opponents(settings.seats, self) if settings.seats else None

    def _connect(self) -> None:
        """Take what belongs to the simulator, and allocate what goes with it."""
        self._calls = self.simulator._calls
        self.device = self.simulator.device
        self.host = self.device.type == "cpu"
        if self.simulator.num_markets >= _MARKETS_TO_SPECIALISE:
            self.simulator.specialise()
        self._engine = self.simulator.engine
        self.eager = EagerStep(self._engine, closed=self._validate)
        self._allocate()

    def _allocate(self) -> None:
        """Allocate the environment's tensors. No two share memory, as torch.compile assumes that they do not."""
        sizes = self.simulator.sizes | {"F": layout.observation_length(self.config.is_continuous, len(self.extras))}
        own, infos = self.settings.own, list(layout.INFO)
        if own is not None and own.pays:
            infos.remove("episode_return")  # of the built-in reward
        self._saved = [*layout.ENV_STATE, *layout.ENV_OUTPUT, *(infos if self.settings.final_info or own else ())]
        self._saved += [] if self.values.rows is None else layout.VALUES
        names = [*self._saved, *layout.ENV_FLAGS]
        self.tensors = layout.LiveTensors(layout.allocate(names, sizes, self.device))
        self.fills = torch.zeros((sizes["M"], sizes["K"], 2), dtype=torch.int64, device=self.device)
        self._engine.bind({**self.tensors, "fills": self.fills})
        self._fill_values()
        self._done = self.tensors["done"].numpy() if self.host else None

    def observation_space(self, role: str) -> gym.spaces.Box:
        """Return a new observation space for a role; see `Task.observation_space`. A user's features have no bounds."""
        space = self._space(role)
        return space if self.own is None else self.own.space(role, space)

    def _space(self, role: str) -> gym.spaces.Box:
        return self.task.observation_space(role, queues=self.config.is_continuous, extras=self.extras)

    def observation_size(self, role: str) -> int:
        """Return how many built-in numbers a role sees."""
        return observation_size(role, self.config.is_continuous, self.extras)

    def seen(
        self, name: str, role: str, slots: slice | int, tensors: Mapping[str, torch.Tensor] | None = None
    ) -> torch.Tensor:
        """Return the view of what slots of a role see, float32 `[M, F]` or `[M, n, F]`.

        Args:
            name: `"observation"`, or `"final_observation"` before any reset.
            role: Theirs.
            slots: Which; all of the role, or the only one.
            tensors: In place of the environment's own, under the same names.
        """
        if self.own is not None:
            return getattr(self.own, name)(role)
        return (self.tensors if tensors is None else tensors)[name][:, slots, : self.observation_size(role)]

    def seen_by_opponent(self, slot: int) -> torch.Tensor:
        """Return the view of what an opponent sees, float32 `[M, F]`, as a learner of its role does."""
        seen = None if self.own is None else self.own.seen_by_opponent(slot)
        if seen is None:
            seen = self.tensors["observation"][:, slot, : self.observation_size(self.roles[slot])]
        return seen

    @property
    def final_info(self) -> torch.Tensor | None:
        """What was known before any reset, float64 `[I, M]`, live; None where it was not asked for."""
        if not self.settings.final_info:
            return None
        return self.tensors["info"] if self.own is None else self.own.final_info

    def setting(self, name: str) -> Any:
        """Return a setting of the task that may differ: one number, or as slots have it now, float64 `[M, K]`, live."""
        if self.values.rows is None:
            return getattr(self.task, name)
        return self.tensors["task_values"][..., layout.ENUMS["TaskValue"][name]]

    def task_of(self, market: int, slot: int) -> Any:
        """Return the task as a slot of a market has it now. Waits for a GPU where settings differ."""
        if self.values.rows is None:
            return self.task
        own = {name: self.setting(name)[market, slot].item() for name in self.values.names}
        return self.task.replace(**{name: int(own[name]) if name in WHOLE else own[name] for name in own})

    # Scenarios and settings -------------------------------------------------------------------------------------------

    @one_at_a_time
    def set_scenarios(self, randomise: Any) -> None:
        """Replace the scenarios: episodes that begin from now on draw one of these; running ones keep theirs.

        Args:
            randomise: As the constructor's argument; an environment made without it has none.
        """
        if self.scenarios is None:
            raise ValueError(
                "set_scenarios: got an environment without scenarios, allowed is one made with randomise=..."
            )
        values = self._values_of(randomise)
        table = self._make_scenarios(randomise, values.drawn)
        self._use_scenarios(table, values, self._warm_starts.run(table))
        self.prepare_step()

    @property
    def num_scenarios(self) -> int:
        """How many scenarios there are, 0 for none."""
        return 0 if self.scenarios is None else num_rows(self.scenarios)

    @one_at_a_time
    def set_scenario_weights(self, weights: Any) -> None:
        """Draw scenarios by weights, from each market's next episode on; see `BaseMarketEnv.set_scenario_weights`."""
        if self.scenarios is None:
            raise ValueError(
                "set_scenario_weights: got an environment without scenarios, allowed is one made with randomise=..."
            )
        scenarios = self.num_scenarios
        thresholds = np.zeros(scenarios, np.int64)
        if weights is not None:
            thresholds = thresholds_of(check_weights(weights, scenarios))
        self._engine.check_sizes()
        self._engine.scenario_thresholds.copy_(torch.from_numpy(thresholds))  # in place: captured graphs read it

    @property
    def scenario_weights(self) -> torch.Tensor | None:
        """With which probability an episode draws each scenario, float64 `[S]`; None without scenarios."""
        if self.scenarios is None:
            return None
        thresholds = self._engine.scenario_thresholds
        alike = torch.from_numpy(thresholds_of(np.ones(len(thresholds)))).to(self.device)
        thresholds = torch.where(thresholds[-1] == 0, alike, thresholds)
        return torch.diff(thresholds, prepend=thresholds.new_zeros(1)).double() / 2.0**32

    def _use_scenarios(
        self,
        table: MarketConfig,
        values: TaskValues,
        fresh: dict[str, torch.Tensor],
        present: torch.Tensor | None = None,
        agents_present: torch.Tensor | None = None,
    ) -> None:
        """Set a table with its warm starts, and perhaps the parameters of running episodes."""
        with Uninterrupted():
            self.simulator._set_scenarios(table, present, agents_present)
            self.scenarios, self.values = table, values
            self._bind_drawn()
            self._use_bank(fresh)

    def _make_scenarios(self, randomise: Any, drawn: Mapping[str, np.ndarray]) -> MarketConfig:
        """Return the table of scenarios; settings of the task are drawn before."""
        randomise = as_table(randomise, self.config.agents)
        if isinstance(randomise, MarketConfig):
            randomise = self.task.market_config(randomise)
        settings = self.settings
        table = make_scenarios(randomise, self.config, settings.num_scenarios, settings.scenario_seed, drawn)
        check_replaced(table, self._slots)
        for kind, made in table.agents.items():
            if self.scenarios is not None:  # before, there is room for whatever they have
                check_width(kind.name, made, self.config.agents[kind].of_each_agent)
        return table

    def _values_of(self, randomise: Any) -> TaskValues:
        """Return settings that differ as a table of scenarios draws them, with the columns that there are."""
        settings = self.settings
        drawn = draw_task_settings(randomise, self.task, settings.num_scenarios, settings.scenario_seed)
        values = self._values_like(self.task, drawn)
        if drawn:
            check_targets(values.task, self.roles, values.task.market_config(settings.config))
        return values

    def _values_like(self, task: Any, drawn: Mapping[str, np.ndarray]) -> TaskValues:
        """Return settings that differ of another task, or drawn otherwise, with the columns that there are."""
        markets = self.simulator.num_markets
        return TaskValues(task, self.roles, markets, drawn, like=self.values, others=self._others(task))

    def _fill_values(self) -> None:
        """Write what settings that differ are until episodes draw theirs."""
        if self.values.rows is not None:
            self.tensors["task_values"].copy_(torch.from_numpy(self.values.rows))
            self._bind_drawn()

    def _bind_drawn(self) -> None:
        """Let scenarios draw their settings of the task."""
        if self.values.table is None:
            return
        table = torch.from_numpy(self.values.table)
        if self._drawn is not None and self._drawn.shape == table.shape:
            self._drawn.copy_(table)  # a captured CUDA graph keeps its address
        else:
            self._former_drawn.append(self._drawn)
            self._drawn = table.to(self.device, copy=True)
            self._engine.bind({"scenario_values": self._drawn})

    def _read_scenarios(self, fields: dict[str, Any]) -> tuple[MarketConfig, TaskValues]:
        """Return the table of scenarios of a saved state, checked as one that a user gives."""
        values = self._values_of({"scenarios": fields})
        return self._make_scenarios({"scenarios": fields}, values.drawn), values

    def _parameters_of_agents(self) -> torch.Tensor:
        """Return the parameters of agents that users have added as markets have them now, int32 `[M, P]`."""
        found = self._engine.agent_parameters()
        assert found is not None
        return found

    def _use_bank(self, fresh: dict[str, torch.Tensor]) -> None:
        """Begin episodes from these warm starts; empty is from those that there are."""
        self._warm_starts.use(self.scenarios, fresh)
        self._hand_over_task()
        self._engine.state_changed()

    def _task_of_all(self) -> Any:
        """Return the settings of all slots, those of opponents too."""
        return self._others(self.task) or self.task

    def _others(self, task: Any) -> Any:
        """Return a task with the settings that opponents need, None without any."""
        return task_of_all(task, task.market_config(self.settings.config)) if self.settings.seats else None

    def _hand_over_task(self) -> None:
        self._engine.set_task(
            self._task_of_all().to_params(
                self.roles,
                autoreset=DISABLED if self.settings.own and self.autoreset == SAME_STEP else self.autoreset,
                stagger=self.settings.stagger,
                bank_size=self._warm_starts.size,
                bank_owner=self._warm_starts.owner,
                scenarios=self.num_scenarios,
                extras=self.extras,
                value_scale=self.values.scale,
            )
        )

    @one_at_a_time
    def set_task(self, **changes: Any) -> None:
        """Change settings of the task from the next step on; a captured CUDA graph keeps those it was captured with.

        Args:
            **changes: Fields of the task that spaces, warm starts and the length of episodes do not depend on.
        """
        for name in changes:
            if name not in CHANGEABLE or not hasattr(self.task, name) or name in self.values.drawn:
                free = [field for field in CHANGEABLE if hasattr(self.task, field) and field not in self.values.drawn]
                raise ValueError(f"set_task: got the field {name!r}, allowed are {', '.join(free)}")
        values = self._values_like(self.task.replace(**changes), self.values.drawn)
        with Uninterrupted():
            self.task, self.values = values.task._with_columns(self.task.columns), values
            if values.rows is not None:
                for place in (layout.ENUMS["TaskValue"][name] for name in changes if name in MAY_DIFFER):
                    self.tensors["task_values"][..., place] = torch.from_numpy(values.rows[..., place]).to(self.device)
            self._hand_over_task()
        self.prepare_step()

    # Reset and step ---------------------------------------------------------------------------------------------------

    @one_at_a_time
    def reset(self, seed: Any = None, mask: Any = None, scenario: Any = None) -> None:
        """Begin an episode: with a seed episode 0, else the next one of the same random stream.

        Args:
            seed: None, an int s (market m is seeded s + m), or one per market.
            mask: bool `[M]`, the markets to reset, at least one; None is all.
            scenario: That of the episodes that begin, for all markets or one per market; -1 or None is drawn.

        Raises:
            MarketError: If an error word was set since the last look; nothing is reset then, and a second call goes
                through.
        """
        self._check_open("reset")
        simulator = self.simulator
        seeds = None if seed is None else check_seeds(seed, simulator.num_markets, self.device)
        chosen = None if mask is None else check_mask("reset_mask", mask, simulator.num_markets, self.device)
        if chosen is not None and not bool(chosen.any()):
            raise ValueError("reset_mask: got no True, allowed is a mask with at least one True, or None for all")
        asked = None
        if scenario is not None:
            asked = check_scenario(scenario, simulator.num_markets, self.num_scenarios, self.device)
        self.check_errors()
        if chosen is not None and self.own is not None:
            self.own.check_whole()
        fresh, counts = None, None
        if seeds is not None:
            fresh = seeds if chosen is None else torch.where(chosen, seeds, simulator.tensors["seed"])
            counts = simulator._draw_counts(fresh)
        bank = {} if counts is None else self._warm_starts.run(self.scenarios, fresh, counts)
        with Uninterrupted():
            if fresh is not None:
                simulator.tensors["seed"].copy_(fresh)
                simulator.tensors["episode"][slice(None) if chosen is None else chosen] = -1  # the launch adds one
                if counts is not None:
                    simulator._take_counts(counts)
                    self._use_bank(bank)
            self._engine.launch(ENV_RESET, reset_mask=chosen, reset_scenario=asked)
            if chosen is None:
                self.fills.zero_()
            else:
                self.fills.masked_fill_(chosen[:, None, None], 0)
        if self.own is not None:
            self.own.opened(chosen)
        if self.opponents is not None:
            self.opponents.begin(chosen)
        self.prepare_step()

    @property
    def launcher(self) -> Any:
        """How a step is launched in a program that torch compiles; see `NativeEngine.launcher`."""
        return self._engine.launcher(ENV_STEP)

    def prepare_step(self) -> None:
        """Register the step as it is now: for `EagerStep`, and for programs that torch compiles."""
        self._engine.prepare_launcher(ENV_STEP, self.auctions_per_step)

    @one_at_a_time
    def step(self, actions: torch.Tensor | None = None, choices: torch.Tensor | None = None) -> None:
        """Play one decision of every market: checked `actions` float32 `[M, K, A]`, or `choices` int64 `[M, K]`.

        Axes of length 1 may be missing, as only the memory is handed on.
        """
        self._check_open("step")
        if self._validate:
            self.check_errors()
        if self._done is not None and self.autoreset == DISABLED and self._done.any():
            market = int(np.argmax(self._done))
            raise gym.error.ResetNeeded(
                f"market {market}: its episode has ended; call reset(options={{'reset_mask': mask}})"
            )
        given: dict[str, Any] = {"actions": actions} if choices is None else {"choices": choices}
        if self.own is None:
            self._engine.launch(ENV_STEP, auctions=self.auctions_per_step, **given)
            return
        self.own.begin()
        ((name, tensor),) = given.items()
        if self.opponents is not None:
            given[name] = tensor = self.opponents.join(tensor)
        if not self._engine.step_at_once(tensor):
            self._engine.launch(ENV_STEP, auctions=self.auctions_per_step, **given)
        self.own.finish()
        if self.opponents is not None:
            self.opponents.follow()

    def check_errors(self) -> None:
        """Raise `MarketError` if an error word is set, or a user's function returned NaN on a GPU, and forget it."""
        if self.opponents is not None:
            self.opponents.check()
        self.simulator.check_errors()
        if self.own is not None:
            self.own.check_numbers()

    def _check_open(self, call: str) -> None:
        if self.closed:
            raise gym.error.ClosedEnvironmentError(f"{call}: the environment was closed; make a new one")

    # State ------------------------------------------------------------------------------------------------------------

    @one_at_a_time
    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return copies of the whole state, the environment's part of it included.

        With scenarios `parameters` are those that each market plays, `scenarios` is the table that its next episode
        draws from, and `scenario_thresholds` are the weights that it draws by, so that a like environment goes on
        whatever its own table is.
        """
        if self.own is not None:
            self.own.check_numbers()
        saved = self.simulator.state_dict() | {name: self.tensors[name].clone() for name in self._saved}
        saved["fills"] = self.fills.clone()
        if self.opponents is not None:
            saved[DRAWN] = self.opponents.drawn.clone()
        saved[saved_states.ABOUT] = saved_states.pack_about(self.about())
        if self.scenarios is not None:
            saved[saved_states.PARAMETERS] = self._engine.parameters().clone()
            if self.simulator.sizes["P"]:
                saved[saved_states.AGENT_PARAMETERS] = self._parameters_of_agents().clone()
            saved[saved_states.SCENARIOS] = saved_states.pack(pack_table(self.scenarios, self.values.drawn))
            saved[THRESHOLDS] = self._engine.scenario_thresholds.clone()
        return saved

    @torch.inference_mode(False)
    @one_at_a_time
    def clone(self) -> EnvCore:
        """Return a second core in the same state; what happens to one does not touch the other.

        Raises:
            MarketError: If an error word was set since the last look.
            gymnasium.error.ClosedEnvironmentError: After `close`.
        """
        self._check_open("clone")
        twin = copy.copy(self)
        twin.simulator = self.simulator.branch()
        twin._drawn, twin._former_drawn = None, []
        twin._connect()
        twin._warm_starts = self._warm_starts.clone(twin.simulator)
        twin._hand_over_task()
        for name, tensor in self.tensors.items():
            twin.tensors[name].copy_(tensor)
        twin.fills.copy_(self.fills)
        if self.settings.own is not None and self.own is not None:
            twin.own = OwnStep(self.settings.own, twin)
            twin.own.take_over(self.own)
        if self.opponents is not None:
            twin.opponents = self.opponents.clone(twin)
        twin.prepare_step()
        return twin

    def about(self) -> dict[str, Any]:
        """Return what a state of this environment is of, as plain numbers, texts and lists."""
        return self.simulator.about() | {
            "task": {"name": type(self.task).__name__, **saved_states.describe(self.task), **self.values.about()},
            "roles": list(self.roles),
            "auctions_per_step": self.auctions_per_step,
            "autoreset_mode": self.settings.autoreset_mode.name,
            "stagger": self.settings.stagger,
            "scenarios": self.scenarios is not None,
            **({"extras": list(self.extras)} if self.extras else {}),
            **({"own": self.settings.own.about()} if self.settings.own else {}),
        }

    @one_at_a_time
    def load_state_dict(self, saved: Mapping[str, torch.Tensor], strict: bool = True) -> None:
        """Take over a state, from any engine or device; a like environment goes on bit for bit.

        Args:
            saved: What `state_dict` returned.
            strict: As in `Simulator.load_state_dict`.

        Raises:
            TypeError, ValueError: As `Simulator.load_state_dict`; the present state is untouched then.
        """
        simulator = self.simulator
        names = [saved_states.PARAMETERS, saved_states.SCENARIOS, THRESHOLDS]
        names += [saved_states.AGENT_PARAMETERS] if simulator.sizes["P"] else []
        of_scenarios = names if self.scenarios is not None else []
        held = {name: self.tensors[name] for name in self._saved} | {"fills": self.fills}
        if self.opponents is not None:
            held[DRAWN] = self.opponents.drawn
        saved_states.check_agents(saved, self.about())
        saved_states.check_names(saved, simulator.tensors, held, of_scenarios)
        differences = saved_states.check_about(saved, self.about(), strict)
        table, values, present, thresholds = self.scenarios, self.values, self._engine.parameters(), None
        agents_present: torch.Tensor | None = None
        if of_scenarios:
            table, values = read_scenarios(saved, self._read_scenarios)
            present = saved_states.take(saved, saved_states.PARAMETERS, present)
            check_parameters(present, self.config, table)
            if simulator.sizes["P"]:
                like = self._parameters_of_agents()
                agents_present = saved_states.take(saved, saved_states.AGENT_PARAMETERS, like)
            like = torch.zeros(num_rows(table), dtype=torch.int64, device=self.device)
            thresholds = saved_states.take(saved, THRESHOLDS, like).clone()
            check_thresholds(thresholds)
        checked = simulator._checked_state(saved, present)
        for name, tensor in held.items():
            checked[name] = self._engine.own_copy(saved_states.take(saved, name, tensor))
        check_environment_ranges(
            checked,
            present,
            self._task_of_all(),
            self.roles,
            [self._space(role) for role in self.roles],
            levels=self.config.num_levels,
            auctions_per_step=self.auctions_per_step,
            scenarios=table is not None,
            values=self.values,
        )
        if self.opponents is not None:
            self.opponents.check_saved(checked)
        counts = simulator._draw_counts(checked["seed"])
        bank: dict[str, torch.Tensor] = {}
        if counts is not None or table != self.scenarios:
            bank = self._warm_starts.run(table, checked["seed"], counts)
        with Uninterrupted():  # from here on nothing can fail
            if table is not None and thresholds is not None:
                self._use_scenarios(table, values, bank, present, agents_present)
                self._engine.scenario_thresholds.copy_(thresholds)
            simulator._take_state(checked, counts)
            if counts is not None:
                self._use_bank(bank)
            for name, tensor in held.items():
                tensor.copy_(checked[name])
            if self.own is not None:
                self.own.opened()
            if self.opponents is not None:
                self.opponents.begin(draw=False)  # no state has the memories of policies
            torch.logical_or(self.tensors["terminated"], self.tensors["truncated"], out=self.tensors["over"])
        self.prepare_step()
        saved_states.warn_of(differences, stacklevel=5)

    def close(self) -> None:
        """Refuse steps and resets from now on, and raise what is left in the error words."""
        self.closed = self.eager.closed = True
        if self.own is not None:
            self.own.check_numbers()
        self.simulator.close()
