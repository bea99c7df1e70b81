"""`OwnStep`: a step with rewards, features or ends of episodes that users wrote, as functions of torch tensors.

`EnvCore` makes one where there are such functions, or a user's task. The engine plays and scores as ever, but leaves
episodes that have ended as they are; then the functions are called (own_groups.py), and last those episodes begin anew,
in a launch of its own. All of it is of fixed shapes and waits for nothing, so that it can be captured in a CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from kineticsim_env.envs.infos import returns_of
from kineticsim_env.envs.own_functions import Own
from kineticsim_env.envs.own_groups import BOOL, FLOATS, Group
from kineticsim_env.envs.own_state import warned_of
from kineticsim_env.envs.settings import SAME_STEP, EnvSettings
from kineticsim_env.errors import MarketError
from kineticsim_env.runtime import private_torch
from kineticsim_env.simulator import Simulator


class OwnStep:
    """Plays steps with a user's functions.

    Attributes:
        failed: Whether one of them raised, so that the environment has to be reset.
        acts: The roles whose actions are of a space of the user's.
        account_info: What was known before any reset, float64 `[I, M]`.
    """

    @torch.inference_mode(False)  # tensors made in inference mode cannot be written to outside of it
    def __init__(
        self,
        own: Own,
        settings: EnvSettings,
        simulator: Simulator,
        tensors: Mapping[str, torch.Tensor],
        roles: Sequence[str],
        size_of: Callable[[str], int],
    ) -> None:
        """Connect the functions with an environment whose markets have begun an episode, and call each of them once.

        `size_of` returns how many built-in numbers a role sees.
        """
        state, same_step = simulator.tensors, settings.autoreset == SAME_STEP
        self._tensors, self._own = tensors, own
        self._restart = simulator.engine.restart if same_step else None
        restart, info = self._restart, tensors["info"]
        self._before = torch.zeros_like(info)
        # What features see of it: a restart leaves the last decision's for the infos.
        self._events = torch.zeros_like(tensors["decision_events"]) if "decision_events" in tensors else None
        self.account_info = torch.zeros_like(info) if settings.account_info and restart else info
        self.failed, self._host = False, info.device.type == "cpu"
        of = {role: f" of a {role}" if own.many else "" for role in own.by_role}
        self._groups: dict[str | int, Group] = {  # by role, and opponents that see as the learner does by slot
            role: Group(role, functions, slice(first, first + roles.count(role)), own.many, len(roles), of[role])
            for role, functions in own.by_role.items()
            for first in (roles.index(role),)
        }
        # Two views without an element in common: torch refuses to write to what an operation reads.
        self._ended_of_learner = tensors["ended"][:, :1] if settings.opponent_slots else None
        self._ended_of_opponents, self._first_ended = tensors["ended"][:, 1:], tensors["ended"][:, 0]
        if settings.opponent_slots and own.by_role[roles[0]].features:
            functions = own.by_role[roles[0]].of_opponent()
            for slot in (slot for slot, role in enumerate(roles) if slot and role == roles[0]):
                self._groups[slot] = Group(roles[0], functions, slice(slot, slot + 1), False, len(roles), "")
        self.acts = own.acts
        self._paid = returns_of(info, len(roles))
        self._reward_by_slot = tensors["reward"].t()
        self._reward_array = tensors["reward"].numpy() if self._host else np.zeros(0)
        self._payers = [(group, pay) for group in self._groups.values() if (pay := group.functions.reward)]
        self._pays, self._keeps_account = own.pays, self.account_info is not info
        self._terminates = any(functions.terminate for functions in own.by_role.values())
        self._updates = any(functions.of_task("update") for functions in own.by_role.values())
        self._looks_back = self._terminates or self._pays or self._updates  # at what was before
        self._sees = any(functions.features for functions in own.by_role.values())
        self._sums = torch.zeros_like(tensors["reward"])  # of the rewards that functions returned, likewise
        for group in self._groups.values():
            group.connect(tensors, state, self._before, size_of(group.role), self._events)
        self._remembers = any(group.remembers for group in self._groups.values())
        self._episode = state["episode"].clone()  # of which memory is
        self._live_episode = state["episode"]
        with warned_of(own.by_role, info.device):
            self._call_all_once()
        for group in self._groups.values():
            group.allocate(restart is not None and self._sees)
            group.made = True

    @torch.no_grad()
    def _call_all_once(self) -> None:
        """Find out what the functions return, and refuse what is not allowed, before anything is played."""
        self._before.copy_(self._tensors["info"])
        for group in self._groups.values():
            functions = group.functions
            group.begin(torch.ones_like(self._episode, dtype=torch.bool))
            group.update()
            if functions.terminate:
                group.called("terminate", functions.terminate, BOOL)
            if functions.reward:
                group.called("reward", functions.reward, FLOATS)
            group.width = sum(part.shape[-1] for part in group.features())

    # A step -----------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Keep what is known before a decision.

        Raises:
            ResetNeeded: If a function raised in the last step.
        """
        self.check_whole()
        if self._looks_back:
            self._before.copy_(self._tensors["info"])

    def check_whole(self) -> None:
        """Raise ResetNeeded if a function raised: nobody knows what came of that step."""
        if self.failed:
            raise gym.error.ResetNeeded(
                "a function of yours raised, and the rewards of that step are lost; call reset() for all markets, or "
                "load a state"
            )

    def finish(self) -> None:
        """Call the functions after the engine has played, and begin the episodes that the mode says."""
        self.failed = True
        records = torch.is_grad_enabled()
        try:  # a Ctrl-C may come as soon as the next line is done
            private_torch.set_grad_enabled(False)
            if self._updates:
                for group in self._groups.values():
                    group.update()
            if self._remembers and self._restart is None:
                self._begin()  # what NEXT_STEP has reset
            if self._terminates:
                self._end_episodes()
            if self._ended_of_learner is not None:  # a market's episode is its learner's, whatever opponents do
                self._ended_of_opponents.logical_or_(self._ended_of_learner)
                self._tensors["done"].copy_(self._first_ended)
            if self._pays:
                self._pay()
            if self._sees:
                self._see(final=self._restart is not None)
            if self._restart is not None:
                if self._keeps_account:
                    self.account_info.copy_(self._tensors["info"])
                self._restart()
                if self._remembers:
                    self._begin()
                if self._sees:
                    self._see()
        finally:
            private_torch.set_grad_enabled(records)
        self.failed = False

    def _begin(self) -> None:
        """Let tasks remember how episodes begin, of markets in which one has begun since the last look."""
        began = self._live_episode != self._episode
        if self._host and not began.any():
            return
        self._episode.copy_(self._live_episode)
        for group in self._groups.values():
            group.begin(began)

    def _end_episodes(self) -> None:
        """Ask the functions who terminates. Those who took no part in the decision do not."""
        for group in self._groups.values():
            function = group.functions.terminate
            if function is None:
                continue
            ends = group.called("terminate", function, BOOL)
            ends = ends > group.results["idle"]  # and not idle
            for name in ("terminated", "over", "ended"):
                group.results[name].logical_or_(ends)
            group.results["truncated"].gt_(ends)
        torch.all(self._tensors["ended"], dim=1, out=self._tensors["done"])

    def _pay(self) -> None:
        """Ask the functions for rewards; those who took no part in the decision have none."""
        reward = self._tensors["reward"]
        for group, pay in self._payers:
            group.results["reward"].copy_(group.called("reward", pay, FLOATS))
        reward.masked_fill_(self._tensors["idle"], 0.0)
        self._paid.add_(self._reward_by_slot)
        if not self._host:
            self._sums.add_(reward)
        elif not math.isfinite(self._reward_array.sum()):  # in which NaN and infinity stay
            self._refuse("reward", reward)

    def _see(self, final: bool = False) -> None:
        """Write observations with the user's features: before any reset, or as they are."""
        if self._events is not None:
            torch.mul(self._tensors["decision_events"], self._tensors["elapsed"] > 0, out=self._events)
        for group in self._groups.values():
            built_in, added = group.final if final else group.present
            built_in.copy_(group.built_in)  # which a launch without resets leaves as the final one
            parts = group.features()
            if parts:
                torch.cat(parts, dim=-1, out=added)
                if not self._host:
                    group.sums.add_(added)
                elif not math.isfinite(added.sum()):
                    self._refuse(f"features of a {group.role}", added)

    @torch.no_grad()
    def opened(self, mask: torch.Tensor | None = None) -> None:
        """Follow a reset, of all or of a mask."""
        if self._remembers:
            self.failed = True
            self._episode.copy_(self._live_episode)
            began = torch.ones_like(self._episode, dtype=torch.bool) if mask is None else mask
            for group in self._groups.values():
                group.begin(began)
        self._show(mask)

    @torch.no_grad()
    def loaded(self) -> None:
        """Follow a state that was loaded, memory with it."""
        self._episode.copy_(self._live_episode)
        self._show(None)

    def _show(self, mask: torch.Tensor | None) -> None:
        """Write the observations of markets in a mask anew."""
        if not self._sees:
            self.failed = False
            return
        self.failed = True
        kept = [group.observation.clone() for group in self._groups.values()]
        self._see()
        if mask is not None:
            for group, before in zip(self._groups.values(), kept, strict=True):
                others = ~mask.view(-1, *[1] * (before.dim() - 1))
                group.observation.copy_(torch.where(others, before, group.observation))
        self.failed = False

    def live_state(self) -> dict[str, torch.Tensor]:
        """Return what it holds of every market beside what states have, live, markets first."""
        found = {"own account_info": self.account_info.t(), "own sums": self._sums, "own episode": self._episode}
        for role, group in self._groups.items() if self._sees else ():
            for name in ("observation", "final_observation", "sums"):
                found[f"own {role} {name}"] = getattr(group, name)
        return found

    # What comes of a function -----------------------------------------------------------------------------------------

    def _refuse(self, name: str, numbers: torch.Tensor) -> None:
        """Raise ValueError if one is NaN or infinite, as their sum is."""
        finite = torch.isfinite(numbers).reshape(len(numbers), -1).all(1).numpy()
        if not finite.all():
            market = int(np.argmin(finite))
            raise ValueError(f"{name}: expected finite numbers, got {numbers[market].tolist()} for market {market}")

    def check_numbers(self) -> None:
        """Raise MarketError if a function returned NaN or infinity on a GPU since the last look. Waits for it."""
        if self._host:
            return
        sums = [self._sums, *(group.sums.flatten(1) for group in self._groups.values())]
        bad = ~torch.isfinite(torch.cat(sums, dim=1)).all(1)
        if bool(bad.any()):
            market = int(bad.nonzero()[0, 0])
            for numbers in (self._sums, *(group.sums for group in self._groups.values())):
                numbers.zero_()
            raise MarketError(f"market {market}: expected finite numbers, got a custom reward or feature that is not")

    # What environments return ---------------------------------------------------------------------------------------

    def observation(self, role: str) -> torch.Tensor:
        """Return the role's observations, float32 `[M, F]` or `[M, n, F]`, live."""
        return self._groups[role].observation if self._sees else self._groups[role].built_in

    def seen_by_opponent(self, slot: int) -> torch.Tensor | None:
        """Return what an opponent of the learner's role sees with the user's features, `[M, F]`; None of any other."""
        return self._groups[slot].observation if slot in self._groups else None

    def final_observation(self, role: str) -> torch.Tensor:
        """Return those before any reset, likewise."""
        group = self._groups[role]
        return group.final_observation if self._sees else group.built_in_final

    @property
    def memory(self) -> dict[str, torch.Tensor]:
        """What tasks remember, live, by names that saved states have."""
        return {
            f"memory_{role}_{name}": kept for role, group in self._groups.items() for name, kept in group.memory.items()
        }

    # Actions of the user's own ----------------------------------------------------------------------------------------

    def action_space(self, role: str) -> gym.Space | None:
        """Return the space of the user's own actions of a role, None where they are built-in ones."""
        task = self._own.by_role[role].task if role in self.acts else None
        return None if task is None else task.action_space

    @torch.no_grad()
    def orders(self, role: str, actions: Any, name: str = "actions") -> tuple[str, Any]:
        """Return what errors call it, and what actions of a role submit: built-in actions, or order records.

        They are as they came where the role has no actions of the user's own.

        Raises:
            TypeError, ValueError: If the actions are not of the space, naming what came and what is allowed.
        """
        if role not in self.acts:
            return name, actions
        self.check_whole()
        return f"orders of a {role}", self._groups[role].orders(actions, name)

    def space(self, role: str, space: gym.spaces.Box) -> gym.spaces.Box:
        """Return a role's observation space with the user's features, which have no bounds."""
        width = self._groups[role].width
        low, high = (
            np.append(bound, np.full(width, value)) for bound, value in ((space.low, -np.inf), (space.high, np.inf))
        )
        return gym.spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
