"""`parallel_env`: several learners in one market, as a PettingZoo `ParallelEnv`.

| | |
|---|---|
| Creation | `kineticsim_env.parallel_env(learners={"maker": 2, "momentum": 1, "noise": 1, "executor": 1})` |
| Registry | `pettingzoo.make("parallel", "KineticSim/Market-v0", learners=...)`, or `"aec"` |
| Actions | Continuous or discrete |
| Parallel API | Yes |
| Manual control | No |
| Agents | `["maker_0", "maker_1", "momentum_0", "noise_0", "executor_0"]` |
| Action shape | maker (4,), others (2,); discrete: 49 and 15 choices. With `keep`: (6,), (3,), 64 and 16 |
| Action values | [-1, 1] |
| Observation shape | (39,); in call auctions maker, executor, fundamental (37,), others (36,) |
| Observation values | [-1, 1] |
| State shape | 30, and of each agent its shape less 30 |
| State values | [-1, 1] |

A maker, momentum, noise or fundamental learner takes the place of a built-in agent of its class, and stays in its role;
an executor or a trader is added to them. So is every learner with `replace=False`, as a maker of
`gymnasium.make_vec("KineticSim/MarketMaking-v0")` is, unless that has `replace="maker"`: results of the two compare
where both add, or both replace. A **maker** quotes both sides and is paid as in `MarketMakingTask`; a **momentum**
learner trades in the direction of the last return and chooses price and size, paid alike; a **noise** learner has a
random quantity to buy or to sell in the episode, chooses price and size, and pays what its trades cost against the mark
at the decision, and `leftover_penalty` ticks for each unit left at the end; an **executor** has the block of
`ExecutionTask`, and a **trader** is that of `TradingTask`. A **fundamental** learner is a trader that sees what
informed agents see.

**Actions.** Continuous, a maker: as in `MarketMakingTask`; a trader or fundamental learner: as in `TradingTask`; the
others: aggression, from `max_offset` ticks behind the mid (-1) to as many through it (+1), and size from 0 (-1) to
`max_qty` (+1). Discrete, the others: 0 holds, else `1 + 2 * i + j` is an order at (-6, -3, -1, 0, 1, 3, 6)[i] ticks
through the mid of half (j = 0) or all of `max_qty`.

**Observations.** The market's 30 features of `MarketMakingTask` and the agent's own: those of `MarketMakingTask`,
`ExecutionTask` or `TradingTask`; a momentum or noise learner's are a trader's, with the side that it trades on (33),
and for a noise learner what is left to trade, signed, as a share of `max_target` (30). A fundamental learner's are a
trader's, and the fundamental price less the mid, s(half ticks, 16) (36). Under continuous trading, as in the default
market, all end with what is ahead of the agent's bid and ask in their queues (37, 38). With `see_fundamental=True`
every agent sees the fundamental price, likewise, behind all these: rows are (40,), or in call auctions (38,).
Where `decide` ends decisions sooner, the last one's length, from 0 to 1, is behind that.
Ladders (`orders_per_side`) have actions and observations of each level: docs/environment.md.

**Episode end.** Each agent's own: truncation after `horizon` decisions of full length (an executor terminates there,
what is left of its block being forced through the market, and with `at_end="unwind"` so do those that trade for profit,
what they hold being sold); termination when its block is done, or when `max_loss` is set and it has lost as much. An
agent whose episode has ended leaves `agents`, has no quotes any more, and the others
go on.

**Version history.** v0: initial version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import pettingzoo
import torch
from gymnasium.utils import seeding
from pettingzoo import AECEnv, ParallelEnv

from kineticsim_env.config import MarketConfig
from kineticsim_env.envs.actions import check_host_actions, form_of
from kineticsim_env.envs.agent_results import AgentResults, agent_names, state_space
from kineticsim_env.envs.arguments import shows_arguments, shows_arguments_of, split, with_task
from kineticsim_env.envs.base import BaseMarketEnv, generator_seed
from kineticsim_env.envs.batched import BatchedParallelEnv
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.own_functions import roles_in
from kineticsim_env.envs.records import are_records, joined
from kineticsim_env.render import RENDER_FPS, check_render_mode, make_viewer, modes_here, render_with
from kineticsim_env.runtime.calls import one_at_a_time
from kineticsim_env.runtime.checks import engine_input
from kineticsim_env.runtime.orders import OrderRecords
from kineticsim_env.runtime.roles import action_length
from kineticsim_env.runtime.values import check_choice, is_one_of, show
from kineticsim_env.tasks.many_learners import DEFAULT_LEARNERS, ManyLearnersTask, check_learners

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kineticsim_env.envs.arguments import OfOneMarket

if hasattr(pettingzoo, "register"):  # from 1.27 on
    pettingzoo.register("parallel", "KineticSim/Market-v0", "kineticsim_env.envs.parallel:parallel_env")
    pettingzoo.register("aec", "KineticSim/Market-v0", "kineticsim_env.envs.parallel:aec_env")


@shows_arguments(one_market=True)
class MarketParallelEnv(BaseMarketEnv, ParallelEnv):
    """One market in which learners replace built-in agents; the module's page describes it.

    Infos are, for each agent, `inventory`, `cash` (ticks x units), `fees` (thousandths of a tick), and `bought` and
    `sold` in the last decision. With `account_info=True` each step's also have `account_info`, a dict of floats of the
    names in `docs/environment.md`, and `_account_info`, whether the agent's episode ended. With `action_mask=True`
    there is `action_mask`, int8 `[C]`; with `randomise`, `scenario`; where events end decisions, `decision_events`, how
    many the last decision had, 0 after a reset.
    """

    metadata = {
        "name": "kineticsim_market_v0",
        "render_modes": modes_here(),
        "render_fps": RENDER_FPS,
        "is_parallelizable": True,
    }

    def __init__(
        self,
        learners: Mapping[str, int] | None = None,
        config: MarketConfig | None = None,
        *,
        replace: bool = True,
        max_cycles: int | None = None,
        render_mode: str | None = None,
        render_agent: str | None = None,
        **arguments: Unpack[OfOneMarket],
    ) -> None:
        """Open the market.

        Args:
            learners: How many learners of each role, of `"maker"`, `"momentum"`, `"noise"`, `"executor"`,
                `"trader"` and `"fundamental"`; 32 at most. None is two makers, a momentum and a noise learner. The name
                of a class of `config.agents` is so many learners in places of such agents, of the role that the class
                declares; they come behind the other learners of that role. The market must have as many agents of each
                class that is replaced.
            config: The market, as in `EnvSettings`.
            replace: Whether makers, momentum, noise and fundamental learners, and those of classes of `config.agents`,
                take the places of such agents. False adds them, as `replace=None` does where one learns.
            max_cycles: Another name for `horizon`, which it overrides.
            render_mode: `"human"` (a window), `"rgb_array"`, `"ansi"` (text) or None.
            render_agent: Whose orders, inventory and PnL are shown; the first agent's if None.
            **arguments: Settings of `EnvSettings`, and fields of `ManyLearnersTask`.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
        """
        self.render_mode = check_render_mode(render_mode)
        counts = DEFAULT_LEARNERS if learners is None else learners
        settings, task = split(arguments, config, one_market=True)
        learning = roles_in(counts, settings.config)
        settings, task_settings = with_task(
            settings, ManyLearnersTask, task, learning, max_cycles, one_market=True, many=True
        )
        roles, replaced = check_learners(counts, settings.config, task_settings, replace)
        self.possible_agents = agent_names(roles)
        self.core = EnvCore(1, task_settings, roles, replaced, settings)
        self._viewer = make_viewer(self.core, self.render_mode, slot=self._slot_of(render_agent))
        spaces = [self.core.observation_space(role) for role in roles]
        self.observation_spaces = dict(zip(self.possible_agents, spaces, strict=True))
        of_agents = dict(zip(self.possible_agents, roles, strict=True))
        self.action_spaces = {agent: self.core.action_space(role) for agent, role in of_agents.items()}
        self._limits = {agent: self.core.task.num_choices(role) for agent, role in of_agents.items()}
        self._results = self._make_results()
        self.state_space = state_space(spaces)
        self._discrete = self.core.task.action_type == "discrete"
        self._dtype = torch.int64 if self._discrete else torch.float32
        self._np_random: np.random.Generator | None = None

    # PettingZoo's interface -------------------------------------------------------------------------------------------

    def observation_space(self, agent: str) -> gym.Space:
        """Return an agent's observation space, the same object every time."""
        return self.observation_spaces[check_choice("agent", agent, self.possible_agents)]

    def action_space(self, agent: str) -> gym.Space:
        """Return an agent's action space, the same object every time."""
        return self.action_spaces[check_choice("agent", agent, self.possible_agents)]

    @one_at_a_time
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Begin an episode: with a seed the first of its random stream, without one the next.

        Args:
            seed: An int, or None; the first time None draws one.
            options: `{"scenario": s}` is the scenario of the episode, -1 one that is drawn; others are not used.

        Returns:
            Observations and infos by agent.
        """
        generator = self._np_random
        if seed is not None or generator is None:
            generator, _ = seeding.np_random(generator_seed(seed))
        if seed is None and self._np_random is None:
            seed = int(generator.integers(2**62))
        self.core.reset(seed, scenario=options.get("scenario") if isinstance(options, Mapping) else None)
        self._np_random = generator
        self._was_reset = True
        if self._viewer:
            self._viewer.update()
        playing = self._playing()
        return self._results.observations(playing), self._results.infos(playing)

    @one_at_a_time
    def step(self, actions: Mapping[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """Play one decision of all agents.

        Args:
            actions: An action for every living agent; or `ks.OrderRecords` for every one.

        Returns:
            Observations, rewards, terminated, truncated and infos by agent.
        """
        playing = self._playing()
        if not playing:
            raise gym.error.ResetNeeded("step: no agent is alive; call reset() first")
        if not isinstance(actions, Mapping):
            raise TypeError(
                f"actions: expected a dict with one for each of {self.agents}, got {type(actions).__name__}"
            )
        agents = [self.possible_agents[slot] for slot in playing]
        if set(actions) != set(agents):
            odd = sorted(set(actions) ^ set(agents), key=str)
            raise ValueError(f"actions: expected one for each of {agents}, got missing or unknown agents {odd}")
        core, actions = self.core, self._submitted(actions, playing)
        if are_records(actions):
            parts = [(f"actions[{self.possible_agents[slot]!r}]", slot) for slot in playing]
            core.step_records(**joined(core, [(*part, actions[self.possible_agents[part[1]]], ()) for part in parts]))
        else:
            core.step(**{"choices" if self._discrete else "actions": self._check_actions(actions)})
        if self._viewer:
            self._viewer.update()
        reward, terminated, truncated = (
            {self.possible_agents[slot]: row[slot] for slot in playing}
            for row in (core.tensors[name][0].tolist() for name in ("reward", "terminated", "truncated"))
        )
        infos = self._results.infos(playing)
        if core.settings.account_info:
            self._results.add_account(infos, playing)
        return self._results.observations(playing), reward, terminated, truncated, infos

    def state(self) -> np.ndarray:
        """Return what all agents see together: the market's features once, then each agent's own."""
        return self._results.state()

    def render(self) -> Any:
        """Return uint8 `[600, 960, 3]` in the render mode `"rgb_array"`, text in `"ansi"`; None in a window."""
        return render_with(self._viewer, self)

    def close(self) -> None:
        """Close the window, and raise what is left in the error word."""
        self._close()

    # Beyond it --------------------------------------------------------------------------------------------------------

    @property
    def agents(self) -> list[str]:  # ty: ignore[incompatible-property-override]  the core knows who is alive
        """The agents whose episodes run; none before the first reset."""
        return [self.possible_agents[slot] for slot in self._playing()]

    def _playing(self) -> list[int]:
        """Return the slots of the agents whose episodes run."""
        if not self._was_reset:
            return []
        return [slot for slot, ended in enumerate(self.core.tensors["ended"][0].tolist()) if not ended]

    def _was_cloned(self) -> None:
        super()._was_cloned()
        self._results = self._make_results()

    def _as_rows(self, core: EnvCore) -> BatchedParallelEnv:
        return BatchedParallelEnv._around(core)

    def _make_results(self) -> AgentResults:
        return AgentResults(self.core, self.possible_agents, masked=self.core.settings.action_mask)

    def _slot_of(self, agent: str | None) -> int:
        """Return the slot of the agent to be shown."""
        if agent is not None and not is_one_of(agent, self.possible_agents):
            allowed = ", ".join(["None", *self.possible_agents])
            raise ValueError(f"render_agent: expected one of {allowed}, got {show(agent)}")
        return 0 if agent is None else self.possible_agents.index(agent)

    def _submitted(self, actions: Mapping[str, Any], playing: list[int]) -> Mapping[str, Any]:
        """Return what agents submit, where a role's actions are of the user's own space; others as they came."""
        core, found = self.core, dict(actions)
        for role in () if core.own is None else core.own.acts:
            slots = [slot for slot, of in enumerate(core.roles) if of == role]
            names = {slot: self.possible_agents[slot] for slot in slots if slot in playing}
            form = form_of(core.action_space(role))
            rows = {
                slot: engine_input(f"actions[{agent!r}]", actions[agent], *form, core.device)
                for slot, agent in names.items()
            }
            if not rows:
                continue
            spare = next(iter(rows.values()))  # of those whose episodes have ended nobody looks at it
            given = torch.stack([rows.get(slot, spare) for slot in slots]).unsqueeze(0)
            _, of_role = core.submitted(role, given, f"actions of a {role}")
            for slot, agent in names.items():
                place = (0, slot - slots[0])
                records = isinstance(of_role, OrderRecords)
                found[agent] = OrderRecords(of_role.quotes[place]) if records else of_role[place]
        return found

    def _check_actions(self, actions: Mapping[str, Any]) -> torch.Tensor:
        """Return the actions of all agents as one tensor for the engine, or raise."""
        slots = len(self.possible_agents)
        length = action_length(self.core.task.keep, self.core.task.orders_per_side)
        given = torch.zeros((1, slots) if self._discrete else (1, slots, length), dtype=self._dtype)
        rows = given.view(1, slots, -1)
        for slot, agent in enumerate(self.possible_agents):
            if agent not in actions:
                continue  # its episode has ended
            limit = self._limits[agent]
            shape = () if limit else (self.core.task.action_form(self.core.roles[slot]).size,)
            row = check_host_actions(actions[agent], shape, limit, f"actions[{agent!r}]")
            rows[0, slot, : row.size] = torch.from_numpy(row)
        return given.to(self.core.device)


@shows_arguments_of(MarketParallelEnv)
def parallel_env(
    learners: Mapping[str, int] | None = None, config: MarketConfig | None = None, **arguments: Unpack[OfOneMarket]
) -> MarketParallelEnv:
    """Make a market with several learners, a `MarketParallelEnv`."""
    return MarketParallelEnv(learners, config, **arguments)


@shows_arguments_of(MarketParallelEnv)
def aec_env(
    learners: Mapping[str, int] | None = None, config: MarketConfig | None = None, **arguments: Unpack[OfOneMarket]
) -> AECEnv:
    """Make the same market for PettingZoo's agent-by-agent interface."""
    return pettingzoo.utils.conversions.parallel_to_aec(parallel_env(learners, config, **arguments))
