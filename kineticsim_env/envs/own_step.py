"""`OwnStep`: a step with rewards, features or ends of episodes that users wrote, as functions of torch tensors.

`EnvCore` makes one where there are such functions (own_functions.py has what they are given). The engine plays and
scores as ever, but leaves episodes that have ended as they are; then the functions are called, and last those episodes
begin anew, in a launch of its own. All of it is of fixed shapes and waits for nothing, so that it can be captured in a
CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import gymnasium as gym
import numpy as np
import torch

from kineticsim_env.envs.infos import info_of_one, info_of_slots, returns_of
from kineticsim_env.envs.own_functions import After, Function, Moment, Outcome, Own, OwnFunctions
from kineticsim_env.envs.settings import SAME_STEP, EnvSettings
from kineticsim_env.errors import MarketError
from kineticsim_env.runtime import private_torch
from kineticsim_env.simulator import Simulator

_FLOATS, _BOOL = (torch.float32, torch.float64), (torch.bool,)


class _Group:
    """The learners of one role, or an opponent: their functions, and the views that these are given and write to."""

    def __init__(self, role: str, functions: OwnFunctions, slots: slice, many: bool, count: int) -> None:
        """Take the functions of some of `count` slots; `many`: whether there may be several learners of a role."""
        self.role, self.functions, self.slots, self.many, self.count = role, functions, slots, many, count
        self.width = 0  # of the features, once they were called

    def of_slots(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the view [M, n, ...] of rows [M, K, ...], or [M, ...] of the one learner."""
        return rows[:, self.slots] if self.many else rows[:, self.slots.start]

    def known(self, info: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return what is known by name."""
        if self.many:
            return info_of_slots(info, self.count, self.slots)
        return info_of_one(info, self.count, self.slots.start)

    def connect(
        self,
        tensors: Mapping[str, torch.Tensor],
        state: Mapping[str, torch.Tensor],
        before: torch.Tensor,
        size: int,
        events: torch.Tensor | None,
    ) -> None:
        """Make the views; `size` is how many features are built in, `events` what these see of `decision_events`."""
        self.results = {name: self.of_slots(tensors[name]) for name in ("reward", "terminated", "truncated", "over")}
        self.results |= {name: self.of_slots(tensors[name]) for name in ("ended", "idle")}
        self.built_in = self.of_slots(tensors["observation"])[..., :size]
        self.built_in_final = self.of_slots(tensors["final_observation"])[..., :size]
        book = {name: state[name] for name in ("bid", "ask", "price_origin")}
        book |= {"quotes": self.of_slots(state["quotes"]), "observation": self.built_in}
        known = self.known(tensors["info"])
        self.before, self.after = Moment(self.known(before)), After({**known, **book, **self._events(events)})
        flags = {name: self.results[name] for name in ("reward", "terminated", "truncated")}
        flags |= self._events(tensors.get("decision_events"))
        self.outcome = Outcome({**known, **book, **flags})
        self.shape = tuple(self.results["reward"].shape)

    def _events(self, events: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """Return the events of the decision, as what is the market's, by name; empty where there are none."""
        return {} if events is None else {"decision_events": events.unsqueeze(1) if self.many else events}

    def allocate(self, device: torch.device, final: bool) -> None:
        """Allocate observations with the user's features, whose widths are known by now."""
        shape = (*self.shape, self.built_in.shape[-1] + self.width)
        self.observation = torch.zeros(shape, dtype=torch.float32, device=device)
        self.final_observation = torch.zeros_like(self.observation) if final else self.observation
        self.present, self.final = (  # the built-in numbers and the user's
            rows.tensor_split([self.built_in.shape[-1]], dim=-1) for rows in (self.observation, self.final_observation)
        )
        self.sums = torch.zeros_like(self.present[1])  # of all that the features were: NaN and infinity stay in it


class OwnStep:
    """Plays steps with a user's functions.

    Attributes:
        failed: Whether one of them raised, so that the environment has to be reset.
        made: Whether all of them have been called once.
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
        self.failed, self.made, self._host = False, False, info.device.type == "cpu"
        self._groups: dict[str | int, _Group] = {  # by role, and opponents that see as the learner does by slot
            role: _Group(role, functions, slice(first, first + roles.count(role)), own.many, len(roles))
            for role, functions in own.by_role.items()
            for first in (roles.index(role),)
        }
        # Two views without an element in common: torch refuses to write to what an operation reads.
        self._ended_of_learner = tensors["ended"][:, :1] if settings.opponent_slots else None
        self._ended_of_opponents, self._first_ended = tensors["ended"][:, 1:], tensors["ended"][:, 0]
        if settings.opponent_slots and (features := own.by_role[roles[0]].features):
            for slot in (slot for slot, role in enumerate(roles) if slot and role == roles[0]):
                group = _Group(roles[0], OwnFunctions(features=features), slice(slot, slot + 1), False, len(roles))
                self._groups[slot] = group
        self._paid = returns_of(info, len(roles))
        self._reward_by_slot = tensors["reward"].t()
        self._reward_array = tensors["reward"].numpy() if self._host else np.zeros(0)
        self._payers = [(group, pay) for group in self._groups.values() if (pay := group.functions.reward)]
        self._pays, self._keeps_account = own.pays, self.account_info is not info
        self._terminates = any(functions.terminate for functions in own.by_role.values())
        self._looks_back = self._terminates or self._pays  # at what was before
        self._sees = any(functions.features for functions in own.by_role.values())
        self._sums = torch.zeros_like(tensors["reward"])  # of the rewards that functions returned, likewise
        for group in self._groups.values():
            group.connect(tensors, state, self._before, size_of(group.role), self._events)
        self._call_all_once()
        for group in self._groups.values():
            group.allocate(info.device, restart is not None and self._sees)
        self.made = True

    @torch.no_grad()
    def _call_all_once(self) -> None:
        """Find out what the functions return, and refuse what is not allowed, before anything is played."""
        self._before.copy_(self._tensors["info"])
        for group in self._groups.values():
            functions = group.functions
            if functions.terminate:
                self._called(group, "terminate", functions.terminate, (group.before, group.outcome), _BOOL)
            if functions.reward:
                self._called(group, "reward", functions.reward, (group.before, group.outcome), _FLOATS)
            group.width = sum(part.shape[-1] for part in self._features(group))

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
                if self._sees:
                    self._see()
        finally:
            private_torch.set_grad_enabled(records)
        self.failed = False

    def _end_episodes(self) -> None:
        """Ask the functions who terminates. Those who took no part in the decision do not."""
        for group in self._groups.values():
            function = group.functions.terminate
            if function is None:
                continue
            ends = self._called(group, "terminate", function, (group.before, group.outcome), _BOOL)
            ends = ends > group.results["idle"]  # and not idle
            for name in ("terminated", "over", "ended"):
                group.results[name].logical_or_(ends)
            group.results["truncated"].gt_(ends)
        torch.all(self._tensors["ended"], dim=1, out=self._tensors["done"])

    def _pay(self) -> None:
        """Ask the functions for rewards; those who took no part in the decision have none."""
        reward = self._tensors["reward"]
        for group, pay in self._payers:
            group.results["reward"].copy_(self._called(group, "reward", pay, (group.before, group.outcome), _FLOATS))
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
            parts = self._features(group)
            if parts:
                torch.cat(parts, dim=-1, out=added)
                if not self._host:
                    group.sums.add_(added)
                elif not math.isfinite(added.sum()):
                    self._refuse(f"features of a {group.role}", added)

    @torch.no_grad()
    def opened(self, mask: torch.Tensor | None = None) -> None:
        """Follow a reset, of all or of a mask, or a state that was loaded."""
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

    def take_over(self, other: OwnStep) -> None:
        """Go on from where another one of the same functions is."""
        for role, group in self._groups.items():
            if self._sees:
                group.observation.copy_(other._groups[role].observation)
                group.final_observation.copy_(other._groups[role].final_observation)
                group.sums.copy_(other._groups[role].sums)
        self.account_info.copy_(other.account_info)
        self._sums.copy_(other._sums)
        self.failed = other.failed

    # What comes of a function -----------------------------------------------------------------------------------------

    def _features(self, group: _Group) -> list[torch.Tensor]:
        """Return what the functions say of the present, [M, g] or [M, n, g] each."""
        parts = []
        for place, function in enumerate(group.functions.features):
            part = self._called(group, f"features[{place}]", function, (group.after,), _FLOATS, wide=True)
            parts.append(part if part.dim() > len(group.shape) else part.unsqueeze(-1))
        if group.width and sum(part.shape[-1] for part in parts) != group.width:
            found = [part.shape[-1] for part in parts]
            raise ValueError(f"features: expected {group.width} numbers, as before, got {found}")
        return parts

    def _called(
        self,
        group: _Group,
        name: str,
        function: Function,
        given: tuple[Moment, ...],
        dtypes: tuple[torch.dtype, ...],
        wide: bool = False,
    ) -> torch.Tensor:
        """Call a function and check what it returns."""
        of = f"{name} of a {group.role}" if self._own.many else name
        try:
            answer = function(*given)
        except Exception as error:
            if self.made:  # in a step it is the user's own error
                error.add_note(f"raised by the function given as {of}")
                raise
            raise ValueError(f"{of}: the function raised {type(error).__name__}: {error}") from error
        device = self._tensors["info"].device
        if type(answer) is torch.Tensor or isinstance(answer, torch.Tensor):
            shape = tuple(answer.shape)
            fits = shape == group.shape or (wide and shape[:-1] == group.shape and shape[-1] > 0)
            if fits and answer.dtype in dtypes and answer.device == device:
                return answer
            found = f"{answer.dtype} {list(shape)} on {answer.device}"
        else:
            found = type(answer).__name__
        kinds = " or ".join(str(dtype) for dtype in dtypes)
        more = f" or {[*group.shape, 'g']}" if wide else ""
        raise (ValueError if isinstance(answer, torch.Tensor) else TypeError)(
            f"{of}: expected the function to return a tensor {kinds} {list(group.shape)}{more} on {device}, got {found}"
        )

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

    def space(self, role: str, space: gym.spaces.Box) -> gym.spaces.Box:
        """Return a role's observation space with the user's features, which have no bounds."""
        width = self._groups[role].width
        low, high = (
            np.append(bound, np.full(width, value)) for bound, value in ((space.low, -np.inf), (space.high, np.inf))
        )
        return gym.spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
