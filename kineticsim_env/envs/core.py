"""`EnvCore`: what the vector, the single and the parallel environment share.

It owns a `Simulator` with slots and the environment's tensors, and makes one launch per step. What episodes are is in
live_task.py, how states are saved and loaded in state_dict.py. How results are returned (NumPy or torch, copied or
live, per agent) is left to those who use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from kineticsim_env.agents.policies import ProgramPolicy
from kineticsim_env.engines import choose_engine
from kineticsim_env.engines.base import ENV_RESET, ENV_STEP
from kineticsim_env.envs.eager import EagerStep
from kineticsim_env.envs.live_task import LiveTask
from kineticsim_env.envs.opponents import Opponents, programs_of
from kineticsim_env.envs.own_functions import Own
from kineticsim_env.envs.own_step import OwnStep
from kineticsim_env.envs.scenario_weights import check_scenario
from kineticsim_env.envs.settings import DISABLED, EnvSettings
from kineticsim_env.runtime import layout, private_torch
from kineticsim_env.runtime.calls import Uninterrupted, one_at_a_time
from kineticsim_env.runtime.checks import check_mask, check_seeds
from kineticsim_env.runtime.orders import OrderRecords, records_of
from kineticsim_env.runtime.roles import action_length
from kineticsim_env.runtime.values import show
from kineticsim_env.simulator import Simulator
from kineticsim_env.tasks.base import WHOLE, Task, observation_size

_MARKETS_TO_SPECIALISE = 1024  # a batch for training: seconds of compilation are soon made up for


class EnvCore:
    """M markets with K slots each, and the task that the slots have.

    Attributes:
        simulator: The markets. Its tensors are live; stepping it past the environment is the caller's own affair.
        live_task: The task, the scenarios and the warm starts of episodes.
        tensors: The environment's tensors by their names in `struct Launch`, `[M, K, ...]`.
        saved: The names of those that saved states have.
        fills: Units bought and sold in the last decision, int64 `[M, K, 2]`.
        host: Whether the tensors are in host memory.
        extras: Columns that observations have behind all others, names of `tasks.base.EXTRAS` in its order.
        eager: Steps in a few microseconds, where it can.
        own: Plays steps with functions of the user's; None without any, and without opponents.
        opponents: Plays the slots behind the one learner's; None without any.
        learners: How many slots, from the first one on, the user plays.
        lets_stand: Whether steps leave markets whose episodes have ended as they stand, under DISABLED autoreset in
            host memory too, where they are refused else.
    """

    lets_stand = False

    @torch.inference_mode(False)  # tensors made in inference mode cannot be written to outside of it
    def __init__(
        self, num_markets: int, task: Task, roles: Sequence[str], slots: Sequence[str | None], settings: EnvSettings
    ) -> None:
        """Open the markets and fill the warm-start bank.

        Roles and `slots`, the classes that slots replace or None, are of each slot; the task's limits join the
        market's.
        """
        self.settings, self.roles = settings, tuple(roles)
        self.live_task = LiveTask(task, self.roles, slots, num_markets, settings)
        self.extras, self.config, task = self.live_task.extras, self.live_task.config, self.task
        self.learners = len(self.roles) - len(settings.opponent_slots)
        self.autoreset, self.auctions_per_step = settings.autoreset, self.live_task.auctions_per_step
        if task.horizon * self.auctions_per_step + task.forced_auctions >= 2**32:
            raise ValueError(
                f"horizon: expected episodes of less than 2^32 auctions, got {task.horizon} decisions of "
                f"{self.auctions_per_step} auctions"
            )
        if task.horizon * self.live_task.longest >= 2**31:
            raise ValueError(
                f"horizon: expected episodes of less than 2^31 events, got {task.horizon} decisions of up to "
                f"{self.auctions_per_step}"
            )
        self._validate, self.closed = settings.validate, False
        prefer_cpu = settings.prefer_cpu
        if not prefer_cpu and num_markets == 1:
            prefer_cpu = "one market is faster there"
        if not prefer_cpu and private_torch.is_forked():
            prefer_cpu = "this process was forked from one that used CUDA"
        own_code = bool(self.config.agents or self.programs)
        name, device = choose_engine(settings.engine, settings.device, prefer_cpu=prefer_cpu, own_code=own_code)
        self.simulator = Simulator(
            self.config, num_markets, engine=name, device=device, slots=slots, validate=self._validate
        )
        if task.horizon * self.auctions_per_step + task.forced_auctions >= self.simulator._end:
            raise ValueError(
                f"horizon: expected episodes of less than 2^32 events, got {task.horizon} decisions of "
                f"{self.auctions_per_step} intervals"
            )
        if self.live_task.scenarios is not None:
            self.simulator._set_scenarios(self.live_task.scenarios)
        self._connect()
        self.live_task.open(self.simulator, self.tensors)
        if settings.own is not None:
            self._engine.launch(ENV_RESET)  # markets of a first episode that nobody plays, to call functions with
        self.own = None if settings.own is None else self._make_own(settings.own)
        self.opponents = None
        self._make_rows()
        if self.programs:
            self.set_slot_policies(self.programs)
        elif settings.opponent_slots:
            self.opponents = Opponents(settings.opponent_slots, self.simulator, self.roles, task, self.seen_by_opponent)

    @property
    def programs(self) -> dict[int, ProgramPolicy]:
        """The opponents that are programs, by slot."""
        return programs_of(self.settings.opponent_slots)

    @torch.inference_mode(False)
    def _make_rows(self) -> None:
        """Make room for the learner's actions beside those of slots that programs play, which nobody looks at."""
        task, shape = self.task, (self.simulator.num_markets, len(self.roles))
        discrete = bool(task.num_choices(self.roles[0]))
        width = () if discrete else (action_length(task.keep, task.orders_per_side),)
        dtype = torch.int64 if discrete else torch.float32
        self.eager.rows = torch.zeros((*shape, *width), dtype=dtype, device=self.device) if self.programs else None

    def _make_own(self, own: Own) -> OwnStep:
        return OwnStep(own, self.settings, self.simulator, self.tensors, self.roles, self.observation_size)

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
        sizes = self.simulator.sizes | {
            "F": layout.observation_length(self.config.is_continuous, len(self.extras), self.config.orders_per_side),
            "I": layout.info_rows(len(self.roles), self.task.keep or self.config.orders_per_side > 1),
        }
        own, infos = self.settings.own, list(layout.INFO)
        if own is not None and own.pays:
            infos.remove("episode_return")  # of the built-in reward
        self.saved: list[str] = [*layout.ENV_STATE, *layout.ENV_OUTPUT]
        self.saved += infos if self.settings.account_info or own else []
        self.saved += [] if self.live_task.values.rows is None else layout.VALUES
        self.saved += layout.EVENTS if self.task.decides_at_events else []
        names = [*self.saved, *layout.ENV_FLAGS]
        self.tensors = layout.LiveTensors(layout.allocate(names, sizes, self.device))
        self.fills = torch.zeros((sizes["M"], sizes["K"], 2), dtype=torch.int64, device=self.device)
        self._engine.bind({**self.tensors, "fills": self.fills})
        self._done = self.tensors["done"].numpy() if self.host else None

    def observation_space(self, role: str) -> gym.spaces.Box:
        """Return a new observation space for a role; see `Task.observation_space`. A user's features have no bounds."""
        space = self.built_in_space(role)
        return space if self.own is None else self.own.space(role, space)

    def action_space(self, role: str) -> Any:
        """Return a new action space for a role, or the user's own."""
        own = None if self.own is None else self.own.action_space(role)
        return self.task.action_space(role) if own is None else own

    def submitted(self, role: str, actions: Any, name: str = "actions") -> tuple[str, Any]:
        """Return what errors call it, and what a role's actions submit, where these are of the user's own space."""
        return (name, actions) if self.own is None else self.own.orders(role, actions, name)

    def built_in_space(self, role: str) -> gym.spaces.Box:
        """Return the space of the built-in numbers that a role sees."""
        return self.task.observation_space(role, queues=self.config.is_continuous, extras=self.extras)

    def observation_size(self, role: str) -> int:
        """Return how many built-in numbers a role sees."""
        return observation_size(role, self.config.is_continuous, self.extras, self.config.orders_per_side)

    def seen(
        self, name: str, role: str, slots: slice | int, tensors: Mapping[str, torch.Tensor] | None = None
    ) -> torch.Tensor:
        """Return the view of what slots of a role see, float32 `[M, F]` of one or `[M, n, F]`.

        `name` is `"observation"`, or `"final_observation"` before any reset; `tensors` stand in for the environment's
        own.
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
    def account_info(self) -> torch.Tensor | None:
        """What was known before any reset, float64 `[I, M]`, live; None where it was not asked for."""
        if not self.settings.account_info:
            return None
        return self.tensors["info"] if self.own is None else self.own.account_info

    @property
    def market_infos(self) -> list[str]:
        """Names of the tensors that infos of an environment of one market have, besides each learner's own."""
        names = ["scenario"] if self.live_task.num_scenarios else []
        return [*names, *(layout.EVENTS if self.task.decides_at_events else ())]

    @property
    def task(self) -> Any:
        """The task's settings; of one that differs the largest."""
        return self.live_task.task

    def setting(self, name: str) -> Any:
        """Return a setting of the task that may differ: one number, or as slots have it now, float64 `[M, K]`, live."""
        if self.live_task.values.rows is None:
            return getattr(self.task, name)
        return self.tensors["task_values"][..., layout.ENUMS["TaskValue"][name]]

    def task_of(self, market: int, slot: int) -> Any:
        """Return the task as a slot of a market has it now. Waits for a GPU where settings differ."""
        if self.live_task.values.rows is None:
            return self.task
        own = {name: self.setting(name)[market, slot].item() for name in self.live_task.values.names}
        return self.task.replace(**{name: int(own[name]) if name in WHOLE else own[name] for name in own})

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
        simulator, live_task = self.simulator, self.live_task
        seeds = None if seed is None else check_seeds(seed, simulator.num_markets, self.device)
        chosen = None if mask is None else check_mask("reset_mask", mask, simulator.num_markets, self.device)
        if chosen is not None and not bool(chosen.any()):
            raise ValueError("reset_mask: expected a mask with at least one True, or None for all, got no True")
        asked = None
        if scenario is not None:
            asked = check_scenario(scenario, simulator.num_markets, live_task.num_scenarios, self.device)
        self.check_errors()
        if chosen is not None and self.own is not None:
            self.own.check_whole()
        everywhere = torch.ones_like(simulator.tensors["seed"], dtype=torch.bool) if chosen is None else chosen
        drawn = None if seeds is None else simulator._population_of(seeds, everywhere)
        bank = {} if drawn is None else live_task.warm_starts.run(live_task.scenarios, drawn)
        with Uninterrupted():
            if seeds is not None:
                simulator.tensors["seed"].copy_(torch.where(everywhere, seeds, simulator.tensors["seed"]))
                simulator.tensors["episode"].masked_fill_(everywhere, -1)  # the launch adds one
                simulator._take_population(drawn)
                if drawn is not None:
                    live_task.use_bank(bank)
            self._engine.launch(ENV_RESET, reset_mask=chosen, reset_scenario=asked)
            if chosen is None:
                self.fills.zero_()
            else:
                self.fills.masked_fill_(chosen[:, None, None], 0)
        if self.own is not None:
            self.own.opened(chosen)
        if self.opponents is not None:
            self.opponents.begin(chosen)
        live_task.prepare_step()

    @property
    def launcher(self) -> Any:
        """How a step is launched in a program that torch compiles; see `NativeEngine.launcher`."""
        return self._engine.launcher(ENV_STEP)

    @one_at_a_time
    def step(self, actions: torch.Tensor | None = None, choices: torch.Tensor | None = None) -> None:
        """Play one decision of every market: checked `actions` float32 `[M, K, A]`, or `choices` int64 `[M, K]`.

        Axes of length 1 may be missing, as only the memory is handed on. Neither is needed where programs play all.
        """
        self._check_plays()
        given: dict[str, Any] = {"actions": actions} if choices is None else {"choices": choices}
        if self.eager.rows is not None:
            given = {name: row if row is None else self.eager.of_all_slots(row) for name, row in given.items()}
        if self.own is None:
            self._engine.launch(ENV_STEP, auctions=self.auctions_per_step, **given)
            return
        self.own.begin()
        ((name, tensor),) = given.items()
        if self.opponents is not None:
            given[name] = tensor = self.opponents.join(tensor)
        if tensor is None or not self._engine.step_at_once(tensor):
            self._engine.launch(ENV_STEP, auctions=self.auctions_per_step, **given)
        self.own.finish()
        if self.opponents is not None:
            self.opponents.follow()

    @one_at_a_time
    def step_records(self, new_quotes: torch.Tensor, order_flags: torch.Tensor | None = None) -> None:
        """Play one decision with checked order records of all slots, in the shapes of `struct Launch` where T is 1."""
        self._check_plays()
        if self.opponents is not None:
            raise TypeError("actions: expected actions in an environment with opponents, got order records")
        if self.own is not None:
            self.own.begin()
        self._engine.launch(ENV_STEP, auctions=self.auctions_per_step, new_quotes=new_quotes, order_flags=order_flags)
        if self.own is not None:
            self.own.finish()

    def _check_plays(self) -> None:
        """Raise where no step can be played now."""
        self._check_open("step")
        if self._validate:
            self.check_errors()
        if self._done is not None and self.autoreset == DISABLED and not self.lets_stand and self._done.any():
            market = int(np.argmax(self._done))
            raise gym.error.ResetNeeded(
                f"market {market}: its episode has ended; call reset(options={{'reset_mask': mask}})"
            )

    @one_at_a_time
    def roll_out(
        self,
        policy: Mapping[str, int | str],
        decisions: int,
        fields: Mapping[str, Any],
        given: Mapping[str, torch.Tensor],
    ) -> None:
        """Play decisions whose actions a policy chooses within the launch; see `CudaEngine.roll_out`."""
        self._check_open("rollout")
        self._engine.roll_out(policy, decisions, self.auctions_per_step, fields, given)

    @one_at_a_time
    def set_slot_policies(self, policies: Mapping[int, ProgramPolicy]) -> None:
        """Let programs play slots, by their numbers, in the launch; others have actions, or the opponents' programs.

        What was remembered stays where a slot has the same program as before; elsewhere memory is 0 until the next
        episode begins. `played` has what they submit.

        Raises:
            TypeError, ValueError: Naming what came and what is allowed; nothing has changed then. If opponents are
                functions, a ladder has more levels than the market's, or parameters are of another number of markets.
        """
        self._check_open("set_slot_policies")
        allowed = f"a dict of programs (ks.policy) by slots 0 to {len(self.roles) - 1}"
        if not isinstance(policies, Mapping):
            raise TypeError(f"policies: expected {allowed}, got {show(policies)}")
        for slot, program in policies.items():
            if type(slot) is not int or not 0 <= slot < len(self.roles):
                raise ValueError(f"policies: expected {allowed}, got the slot {show(slot)}")
            if not isinstance(program, ProgramPolicy):
                raise TypeError(f"policies[{slot}]: expected {allowed}, got {show(program)}")
        if self.opponents is not None and policies:
            raise ValueError(
                "policies: expected an environment without opponents that are functions, got one with them"
            )
        with Uninterrupted():
            self._engine.set_slot_policies(self.programs | dict(policies))
            self.eager.closed = self.closed or self._validate or self.learner_program is not None
            self.live_task.prepare_step()

    @property
    def slot_programs(self) -> dict[int, ProgramPolicy]:
        """The programs that play slots now, by slot."""
        found = self._engine.slot_policies
        return {slot: place.policy for slot, place in found.places.items()} if found is not None else {}

    @property
    def markets_differ(self) -> bool:
        """Whether markets have settings of their own, beside what their episodes draw of scenarios."""
        programs = self.slot_programs.values()
        own = any(isinstance(value, np.ndarray) for one in programs for value in one.parameters.values())
        drawn = self.simulator._population is not None
        return own or drawn or bool(self.task.each or self.simulator.config.per_market)

    @property
    def learner_program(self) -> ProgramPolicy | None:
        """The program that plays the first slot; None where it has actions."""
        found = self._engine.slot_policies  # looked at in every step
        return found.places[0].policy if found is not None and 0 in found.places else None

    @property
    def played(self) -> OrderRecords:
        """What slots with policies submitted in the last decision, of all slots `[M, K, ...]`, live; others have zeros.

        A step of it, `[M]` of the one slot or `[M, n]` of all by role, is the step that was played.
        """
        found = self._engine.slot_policies
        if found is None:
            raise ValueError("played: expected slots with policies, got none")
        quotes, word = found.tensors["played_quotes"], found.tensors["played_flags"]
        return OrderRecords(records_of(quotes, word) if self.config.is_continuous else quotes)

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

    def close(self) -> None:
        """Refuse steps and resets from now on, and raise what is left in the error words."""
        self.closed = self.eager.closed = True
        if self.own is not None:
            self.own.check_numbers()
        self.simulator.close()
