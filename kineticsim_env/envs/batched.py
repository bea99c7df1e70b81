"""`BatchedParallelEnv`: thousands of markets with the same learners in each, grouped by role, as torch tensors.

The batched form of `parallel_env`, for training many learners on a GPU: one launch steps all learners of all markets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.envs.action_masks import ActionMasks
from kineticsim_env.envs.actions import check_actions
from kineticsim_env.envs.agent_results import agent_names, joint_state, state_space
from kineticsim_env.envs.arguments import shows_arguments, split, with_task
from kineticsim_env.envs.base import BaseMarketEnv, check_options
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.infos import info_of_slots
from kineticsim_env.envs.own_functions import roles_in
from kineticsim_env.envs.records import are_records, joined
from kineticsim_env.envs.settings import SAME_STEP
from kineticsim_env.runtime.calls import one_at_a_time
from kineticsim_env.runtime.roles import action_length
from kineticsim_env.runtime.values import check_count, check_flag
from kineticsim_env.tasks.many_learners import DEFAULT_LEARNERS, ManyLearnersTask, check_learners

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kineticsim_env.envs.arguments import OfManyMarkets

Groups = dict[str, torch.Tensor]  # by role, in the order of `learners`


@shows_arguments()
class BatchedParallelEnv(BaseMarketEnv):
    """M markets, in each of which the same learners replace built-in agents; `parallel_env` describes the roles.

    A maker of `gymnasium.make_vec` is added to them instead, unless `replace="maker"`; here `replace=False` adds.

    Observations, actions, rewards and flags are dicts by role of tensors on `device`, `[M, n, ...]` for n learners of
    the role. A market's episode is over when those of all its learners are; until then a learner whose own episode has
    ended has no quotes, its actions are not looked at, and its rewards are 0 (`infos["active"]`). Nothing waits for the
    GPU; with `copy=False` a step returns the same tensors every time, and can be captured in a `torch.cuda.CUDAGraph`.

    Attributes:
        num_envs: M.
        group_map: The names of the learners of each role, as `parallel_env` has them.
        single_observation_spaces: Of one learner of each role.
        single_action_spaces: Of one learner of each role.
        state_space: Of `state()` of one market.
    """

    def __init__(
        self,
        num_envs: int,
        learners: Mapping[str, int] | None = None,
        config: MarketConfig | None = None,
        *,
        replace: bool = True,
        **arguments: Unpack[OfManyMarkets],
    ) -> None:
        """Open the markets.

        Args:
            num_envs: M.
            learners: How many learners of each role, as in `parallel_env`.
            config: The market, as in `EnvSettings`.
            replace: As in `parallel_env`; False adds all learners.
            **arguments: Settings of `EnvSettings`, and fields of `ManyLearnersTask`.

        Raises:
            TypeError, ValueError: Naming the argument, what came and what is allowed.
        """
        self.num_envs = check_count("num_envs", num_envs, 1)
        counts = DEFAULT_LEARNERS if learners is None else learners
        settings, task = split(arguments, config)
        learning = roles_in(counts, settings.config)
        settings, task_settings = with_task(settings, ManyLearnersTask, task, learning, None, many=True)
        roles, replaced = check_learners(counts, settings.config, task_settings, replace)
        self._use(EnvCore(self.num_envs, task_settings, roles, replaced, settings))

    def _use(self, core: EnvCore) -> None:
        """Be the environment of a core."""
        self.core, self.num_envs, roles = core, core.simulator.num_markets, core.roles
        self.autoreset_mode = core.settings.autoreset_mode
        self.possible_agents = agent_names(roles)
        self.groups = {role: slice(roles.index(role), roles.index(role) + roles.count(role)) for role in roles}
        self.group_map = {role: self.possible_agents[slots] for role, slots in self.groups.items()}
        self.single_observation_spaces = {role: self.core.observation_space(role) for role in self.groups}
        self.single_action_spaces = {role: self.core.action_space(role) for role in self.groups}
        self.state_space = state_space([self.core.observation_space(role) for role in roles])
        self._copy, self._same_step = core.settings.copy, self.core.autoreset == SAME_STEP
        self._limits = {role: self.core.task.num_choices(role) for role in self.groups}
        self._make_buffers()

    @torch.inference_mode(False)
    def _make_buffers(self) -> None:
        core, shape = self.core, (self.num_envs, len(self.possible_agents))
        discrete = any(self._limits.values())
        self._input = {
            "choices" if discrete else "actions": torch.zeros(
                shape if discrete else (*shape, action_length(core.task.keep, core.task.orders_per_side)),
                dtype=torch.int64 if discrete else torch.float32,
                device=core.device,
            )
        }
        (rows,) = self._input.values()
        self._given = {  # where each role's actions go
            role: rows[:, slots] if self._limits[role] else rows[:, slots, : core.task.action_form(role).size]
            for role, slots in self.groups.items()
        }
        self._active = torch.ones(shape, dtype=torch.bool, device=core.device)
        self._active_by_role = self._by_role(self._active)
        self._over = torch.zeros(self.num_envs, dtype=torch.bool, device=core.device)
        self._observation = {role: core.seen("observation", role, slots) for role, slots in self.groups.items()}
        self._final = {role: core.seen("final_observation", role, slots) for role, slots in self.groups.items()}
        # Tensors of our own: what is done to the core's leaves them as they are.
        self._infos = core.account_info
        self._events = core.tensors["decision_events"].view(-1) if core.task.decides_at_events else None
        self._done = core.tensors["done"].view(-1)
        self._ended, self._elapsed = core.tensors["ended"].view(shape), core.tensors["elapsed"].view(-1)
        self._reward, self._terminated, self._truncated = (
            self._by_role(core.tensors[name].view(shape)) for name in ("reward", "terminated", "truncated")
        )
        self._slot_over = core.tensors["over"].view(shape)
        groups = self.groups if core.settings.action_mask else {}
        self._masks = {role: ActionMasks(core, role, slots) for role, slots in groups.items()}
        core.eager.expect(tuple(rows.shape), rows.dtype)
        self._rows = rows

    def _by_role(self, rows: torch.Tensor) -> Groups:
        return {role: rows[:, slots] for role, slots in self.groups.items()}

    @property
    def fills(self) -> Groups:
        """Units bought and sold in the last decision, int64 `[M, n, 2]`, live."""
        return self._by_role(self.core.fills)

    @one_at_a_time
    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Groups, dict[str, Any]]:
        """Begin episodes; arguments as in `MarketVectorEnv.reset`.

        Returns:
            Observations float32 `[M, n, F]` by role, and `{"active": bool [M, n] by role}`.
        """
        mask, scenario = check_options(options, "reset_mask", "scenario")
        if not self._was_reset and mask is not None:
            raise gym.error.ResetNeeded("reset_mask: expected a first reset of all markets, got a mask")
        if not self._was_reset and seed is None:
            seed = int(np.random.default_rng().integers(2**62))
        self.core.reset(seed, mask, scenario)
        self._was_reset = True
        torch.logical_not(self._ended, out=self._active)
        infos: dict[str, Any] = self._handed_out({"observation": self._observation, **self._of_next_decision()})
        return infos.pop("observation"), infos

    def _of_next_decision(self) -> dict[str, Groups]:
        """Return what the infos of a reset and of a step say of the next decision, live."""
        masks = {role: masks.update() for role, masks in self._masks.items()}
        return {"active": self._active_by_role, **({"action_mask": masks} if masks else {})}

    @one_at_a_time
    def step(self, actions: Mapping[str, Any]) -> tuple[Groups, Groups, Groups, Groups, dict[str, Any]]:
        """Play one decision of all learners of all markets.

        Args:
            actions: For each role float32 `[M, n, A]` in [-1, 1], or int64 `[M, n]`, on `device`, or NumPy; or of
                all roles `ks.OrderRecords`.

        Returns:
            By role: observations float32 `[M, n, F]`, rewards float32 `[M, n]`, terminated and truncated bool `[M, n]`;
            and infos: `active` bool `[M, n]` by role, who acts next; under SAME_STEP `final_obs` float32 `[M, n, F]` by
            role, the observations before any reset, and `_final_obs` bool `[M]`, where a market's episode ended; with
            `action_mask` that of the next decision, by role; with `account_info` that, in all modes: by role, by name,
            float64 `[M, n]`, or `[M, 1]` of the market, and `_account_info` bool `[M]`; where events end decisions
            `decision_events` int32 `[M]`, how many this one had.
        """
        if not self._was_reset:
            raise gym.error.ResetNeeded("step: the environment was never reset; call reset() first")
        if not isinstance(actions, Mapping):
            allowed = f"a dict with one entry for each of {list(self.groups)}"
            raise TypeError(f"actions: expected {allowed}, got {type(actions).__name__}")
        if set(actions) != set(self.groups):
            odd = sorted(set(actions) ^ set(self.groups), key=str)
            raise ValueError(
                f"actions: expected one entry for each of {list(self.groups)}, got missing or unknown roles {odd}"
            )
        named = {role: self.core.submitted(role, actions[role], f"actions[{role!r}]") for role in self.groups}
        if are_records({role: given for role, (_, given) in named.items()}):
            parts = [
                (*named[role], slots, (self.num_envs, slots.stop - slots.start)) for role, slots in self.groups.items()
            ]
            self.core.step_records(**joined(self.core, [(name, at, given, of) for name, given, at, of in parts]))
            return self._results()
        for role, rows in self._given.items():
            name, given = named[role]
            rows.copy_(check_actions(given, rows.shape, self.core.device, self._limits[role], name))
        if self.core.own is not None or not self.core.eager.step(self._rows):
            self.core.step(**self._input)
        return self._results()

    def _results(self) -> tuple[Groups, Groups, Groups, Groups, dict[str, Any]]:
        """Return what a step returns."""
        torch.logical_not(self._ended, out=self._active)
        live = {"observation": self._observation, "reward": self._reward, "terminated": self._terminated}
        live |= {"truncated": self._truncated, **self._of_next_decision()}
        if self._same_step or self._infos is not None:
            # A market whose last episodes ended now was reset, if it is at all; one that stopped in its first decision
            # was not.
            torch.any(self._slot_over, dim=1, out=self._over)
            torch.logical_and(self._over, self._elapsed == 0 if self._same_step else self._done, out=self._over)
            live |= {"over": {"": self._over}} | ({"final_obs": self._final} if self._same_step else {})
        if self._infos is not None:
            live["info"] = {"": self._infos}
        if self._events is not None:
            live["decision_events"] = {"": self._events}
        infos: dict[str, Any] = self._handed_out(live)
        observation, reward, terminated, truncated = (infos.pop(name) for name in tuple(live)[:4])
        over, rows = infos.pop("over", {}), infos.pop("info", {})
        if self._same_step:
            infos["_final_obs"] = over[""]
        if rows:
            known = {role: info_of_slots(rows[""], len(self.core.roles), slots) for role, slots in self.groups.items()}
            key = self.core.settings.account_key
            infos |= {key: known, f"_{key}": over[""]}
        if self._events is not None:
            infos["decision_events"] = infos["decision_events"][""]
        return observation, reward, terminated, truncated, infos

    def state(self, final: bool = False) -> torch.Tensor:
        """Return what all learners of a market see together, float32 `[M, S]`: for centralised critics.

        Args:
            final: Whether before any reset in the last step, as `final_obs`, rather than now.
        """
        return joint_state(self._final if check_flag("final", final) else self._observation)

    def _handed_out(self, live: dict[str, Groups]) -> dict[str, Groups]:
        """Return results as they are returned: copies, all of them made by one call, if copies are asked for."""
        if not self._copy:
            return live
        copies = iter(self.core._engine.copies_of([row for rows in live.values() for row in rows.values()]))
        return {name: {role: next(copies) for role in rows} for name, rows in live.items()}

    def _was_loaded(self) -> None:
        super()._was_loaded()
        torch.logical_not(self._ended, out=self._active)

    @classmethod
    def _around(cls, core: EnvCore) -> BatchedParallelEnv:
        """Return the environment of a core whose markets were reset."""
        made = cls.__new__(cls)
        made._was_reset = True
        made._use(core)
        return made

    def _as_rows(self, core: EnvCore) -> BatchedParallelEnv:
        return self._around(core)

    def _was_cloned(self) -> None:
        kept = self._rows, self._active, self._over
        self._make_buffers()
        for tensor, previous in zip((self._rows, self._active, self._over), kept, strict=True):
            tensor.copy_(previous)

    def close(self) -> None:
        """Raise what is left in the error words."""
        self.core.close()
