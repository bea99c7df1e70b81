"""`Opponents`: policies that play further slots of a vector environment's markets, within its step.

The learner has slot 0, and opponents the slots behind it. Each episode of each market draws one policy of every slot's
list. All policies of a list are called with the observations of all markets, and the drawn one's actions are taken: so
nothing depends on which was drawn but the actions, nothing waits for a GPU, and a step can be captured in a CUDA graph.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kineticsim_env.agents.policies import ProgramPolicy
from kineticsim_env.config import MarketConfig
from kineticsim_env.envs.actions import MOST_ACTION, check_actions
from kineticsim_env.errors import MarketError
from kineticsim_env.policies.saved import SavedPolicy
from kineticsim_env.runtime import layout, private_torch
from kineticsim_env.runtime.state_ranges import Ranges
from kineticsim_env.runtime.values import check_callable, check_dict, show
from kineticsim_env.runtime.words import episode_keys, high_halves, numbers_of
from kineticsim_env.simulator import Simulator
from kineticsim_env.tasks.base import Task
from kineticsim_env.tasks.many_learners import check_learner, check_replaceable
from kineticsim_env.zoo.trained_policies import load_for

DRAWN = "opponent"  # the name in saved states of which policies were drawn
_FIRST_WORD = (1 << 30) + 32  # word 2^30 + 32 + k of an episode draws the policy of slot k
_DICT = "a dict of lists of policies by role, such as {'maker': [policy]}"
_LIST = "a list of policies, or for several slots a list of such lists"


# What users give ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class OpponentSlot:
    """One slot, and who may play it."""

    role: str  # the slot's, one of `ROLES`
    name: str  # what errors call the list
    policies: tuple[Any, ...]  # to draw from
    replaces: str | None  # the class of agents whose place it takes; None of one that is added

    def of_rows(self, rows: np.ndarray | slice) -> OpponentSlot:
        """Return the same for these markets, int64 `[n]`: programs may have a parameter of each."""
        policies = [one._of_rows(rows) if isinstance(one, ProgramPolicy) else one for one in self.policies]
        return dataclasses.replace(self, policies=tuple(policies))


def check_opponents(given: Any, config: MarketConfig, replace: str | None) -> tuple[OpponentSlot, ...]:
    """Return the slots behind the learner's, in the order of the dict; none for None.

    For each role, or class of `config.agents`, there is a list of policies, which is one slot, or a list of such lists.
    The learner takes the place of an agent of the class `replace`, if it is not None.
    """
    if given is None:
        return ()
    opponent_slots: list[OpponentSlot] = []
    for called, slots in check_dict("opponents", given, _DICT).items():
        role, replaced = check_learner("opponents", called, config)
        name = f"opponents[{called!r}]"
        lists = _check_list(name, slots)
        nested = isinstance(lists[0], (list, tuple))
        named = [(f"{name}[{place}]", one) for place, one in enumerate(lists)] if nested else [(name, lists)]
        opponent_slots += [OpponentSlot(role, of, _check_policies(of, one, role), replaced) for of, one in named]
        taken = int(replaced == replace)
        check_replaceable(name, f"{len(named)} slots", len(named), taken, replaced, config)
    most = layout.CONSTANTS["kMaxSlots"] - 1
    if not 1 <= len(opponent_slots) <= most:
        raise ValueError(f"opponents: expected 1 to {most} slots, or None, got {len(opponent_slots)}")
    check_programs(opponent_slots)
    with_memory = [policy for opponent in opponent_slots for policy in opponent.policies if _has_memory(policy)]
    for policy in with_memory:
        if sum(policy is other for other in with_memory) > 1:
            raise ValueError(f"opponents: expected a copy for each slot, got the recurrent policy {show(policy)} twice")
    return tuple(opponent_slots)


def check_programs(opponent_slots: Sequence[OpponentSlot]) -> None:
    """Refuse programs beside functions, and lists of several programs to draw from."""
    programs = [isinstance(one, ProgramPolicy) for opponent in opponent_slots for one in opponent.policies]
    if any(programs) and not all(programs):
        raise TypeError("opponents: expected programs (ks.policy) in all slots or functions in all, got both")
    for opponent in opponent_slots if any(programs) else ():
        if len(opponent.policies) > 1:
            raise ValueError(f"{opponent.name}: expected one program, got {len(opponent.policies)} to draw from")


def programs_of(opponent_slots: Sequence[OpponentSlot]) -> dict[int, ProgramPolicy]:
    """Return the programs that play slots behind the learner's, by slot; empty where functions do."""
    found = {slot: opponent.policies[0] for slot, opponent in enumerate(opponent_slots, 1)}
    return {slot: one for slot, one in found.items() if isinstance(one, ProgramPolicy)}


def _check_list(name: str, given: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"{name}: expected {_LIST}, got {type(given).__name__}")
    if not given:
        raise ValueError(f"{name}: expected {_LIST}, got an empty list")
    return given


def _check_policies(name: str, given: Any, role: str) -> tuple[Any, ...]:
    """Return the policies of a list; names of trained ones, as `load_policy` takes them, become these."""
    policies = [
        _trained(f"{name}[{place}]", policy, role) if isinstance(policy, str) else policy
        for place, policy in enumerate(_check_list(name, given))
    ]
    for place, policy in enumerate(policies):
        if not isinstance(policy, ProgramPolicy):
            allowed = "a policy: a function of observations that returns actions, or the name of a trained one"
            check_callable(f"{name}[{place}]", policy, allowed)
    return tuple(policies)


def _trained(name: str, called: str, role: str) -> SavedPolicy:
    policy = load_for(name, called)
    if policy.told.role != role:
        raise ValueError(f"{name}: expected a policy of the role {role}, got {called}, of {policy.told.role}")
    return policy


def _has_memory(policy: Any) -> bool:
    """Return whether a policy is a `RecurrentPolicy`: it has a `reset`."""
    return callable(getattr(policy, "reset", None))


def _of_rows(name: str, policy: Any, rows: torch.Tensor) -> Any:
    """Return the policy of a fork's rows: its own, with a copy of its memory of these markets, int64 `[n]`."""
    if not _has_memory(policy):
        return policy
    if not callable(getattr(policy, "of_rows", None)):
        allowed = "policies that can be forked, as they have no memory or an of_rows(rows) (see RecurrentPolicy)"
        raise TypeError(f"fork: expected {allowed}, got {name} with a reset alone; clone() copies its memory")
    made = policy.of_rows(rows)
    if made is policy or not (callable(made) and _has_memory(made)):
        got = "itself" if made is policy else type(made).__name__
        raise TypeError(f"fork: expected another policy with a reset from {name}.of_rows, got {got}")
    return made


# Playing --------------------------------------------------------------------------------------------------------------


class Opponents:
    """Plays the slots behind the learner's.

    Attributes:
        drawn: Which policy of its list plays each slot in the present episode, int64 `[M, S]`, S = K - 1.
        opponent_slots: Who may play the slots.
    """

    @torch.inference_mode(False)  # tensors made in inference mode cannot be written to outside of it
    def __init__(
        self,
        opponent_slots: tuple[OpponentSlot, ...],
        simulator: Simulator,
        roles: Sequence[str],
        task: Task,
        sees: Callable[[int], torch.Tensor],
    ) -> None:
        """Take the policies; none is called before the first step.

        Roles are those of each slot, the learner's first; `sees` returns what a slot sees, live, float32 `[M, F]`.
        """
        self._simulator, self._roles, self._task = simulator, roles, task
        self._device, self._host = simulator.device, simulator.device.type == "cpu"
        device, markets, slots = self._device, simulator.num_markets, len(roles)
        self._limits = [task.num_choices(role) for role in roles]
        forms = [task.action_form(role) for role in roles]
        sizes = [1 if limit else form.size for form, limit in zip(forms, self._limits, strict=True)]
        self._shapes = [(markets, size)[: 1 if self._limits[0] else 2] for size in sizes]
        self._seen = [sees(slot) for slot in range(1, slots)]
        self._padding = [
            [torch.zeros((markets, max(sizes) - size), device=device)] * (size < max(sizes)) for size in sizes
        ]
        dtype = torch.int64 if self._limits[0] else torch.float32
        self._chosen = torch.zeros((markets, slots, max(sizes)), dtype=dtype, device=device)
        self._memory = self._chosen.new_zeros((3, 0))
        self._retired: list[torch.Tensor] = []  # what captured CUDA graphs may still hold on to
        places = torch.zeros((markets, slots, 1), dtype=torch.int64, device=device)  # of the answers that are taken
        self._places, self._places_drawn = places.expand_as(self._chosen), places[:, 1:, 0]
        self.drawn = torch.zeros((markets, slots - 1), dtype=torch.int64, device=device)
        self._counts, self._first = torch.zeros((2, slots - 1), dtype=torch.int64, device=device)
        self._words = numbers_of(_FIRST_WORD + 1, slots - 1, device)
        self._episode = torch.full((markets,), -1, dtype=torch.int64, device=device)
        self._take(opponent_slots)

    @torch.inference_mode(False)
    def _take(self, opponent_slots: tuple[OpponentSlot, ...]) -> None:
        self.opponent_slots = opponent_slots
        counts = [len(opponent.policies) for opponent in opponent_slots]
        self._names = [f"{opponent.name}[{i}]" for opponent in opponent_slots for i in range(len(opponent.policies))]
        self._slot_of = [slot for slot, count in enumerate(counts, 1) for _ in range(count)]  # of each policy
        self._draws, self._tells = max(counts) > 1, any(map(_has_memory, self._policies()))
        self._counts.copy_(torch.tensor(counts))
        self._first.copy_(1 + self._counts.cumsum(0) - self._counts)  # the place of each slot's first policy
        markets, _, width = self._chosen.shape
        size = markets * (1 + sum(counts)) * width
        if size > self._memory.shape[1]:  # twice what is needed, so that what is retired stays small as lists grow
            self._retired.append(self._memory)
            self._memory = self._memory.new_zeros((3, 2 * size if self._memory.numel() else size))
        # What the learner and each policy want to do, [M, 1 + P, A], and the most and the least that it ever was.
        self._answers, self._most, self._least = self._memory[:, :size].view(3, markets, -1, width).zero_().unbind()
        self._flat = self._answers.view(markets, -1)

    def replace(self, opponent_slots: tuple[OpponentSlot, ...]) -> None:
        """Let other policies play the same slots from now on, in running episodes those at the drawn places."""
        roles, known = (
            [opponent.replaces or opponent.role for opponent in each] for each in (opponent_slots, self.opponent_slots)
        )
        if roles != known:
            raise ValueError(f"opponents: expected slots of the roles {known}, got {roles}: markets keep their slots")
        previous = self._policies()
        self._episode.copy_(self._simulator.tensors["episode"])  # which steps without draws leave behind
        self._take(opponent_slots)
        self.drawn.copy_(torch.where(self.drawn < self._counts, self.drawn, self._draw()))
        everywhere = torch.ones_like(self._episode, dtype=torch.bool)
        self._tell(everywhere, [policy for policy in self._policies() if not any(policy is one for one in previous)])

    def join(self, given: torch.Tensor) -> torch.Tensor:
        """Return what all slots do, `[M, K, A]`: the learner what is given, opponents as drawn; of choices A is 1."""
        records = torch.is_grad_enabled()
        try:  # a Ctrl-C may come as soon as the next line is done
            private_torch.set_grad_enabled(False)
            # On a GPU each operation costs a launch, so there is none for each slot. Policies may keep what they see.
            seen = self._simulator.engine.copies_of([self._seen[slot - 1] for slot in self._slot_of])
            parts = [_in_rows(given), *self._padding[0]]
            for number, (policy, slot) in enumerate(zip(self._policies(), self._slot_of, strict=True)):
                parts += [_in_rows(self._answer(policy, seen[number], slot, number)), *self._padding[slot]]
            torch.cat(parts, 1, out=self._flat)
            if not self._host:  # as `check_actions` looks at values in host memory only
                torch.maximum(self._most, self._answers, out=self._most)  # in which NaN stays
                torch.minimum(self._least, self._answers, out=self._least)
            if self._draws:
                torch.add(self.drawn, self._first, out=self._places_drawn)
                torch.gather(self._answers, 1, self._places, out=self._chosen)
        finally:
            private_torch.set_grad_enabled(records)
        return self._chosen if self._draws else self._answers  # the same shape where each slot has one policy

    def _answer(self, policy: Any, seen: torch.Tensor, slot: int, number: int) -> torch.Tensor:
        """Call a policy with what its slot sees, and check what it returns."""
        name = self._names[number]
        try:
            action = policy(seen)
        except Exception as error:
            error.add_note(f"raised by the policy given as {name}")
            raise
        return check_actions(action, self._shapes[slot], self._device, self._limits[slot], f"actions of {name}")

    def follow(self) -> None:
        """Draw for the markets whose episodes began in a step, and tell policies with a memory."""
        if not (self._draws or self._tells):
            return
        episode = self._simulator.tensors["episode"]
        began = episode != self._episode
        if self._host and not began.any():
            return
        self.begin(began)

    @torch.no_grad()
    def begin(self, mask: torch.Tensor | None = None, *, draw: bool = True) -> None:
        """Draw for episodes that begin, bool `[M]` or None for all, and tell policies with a memory."""
        episode = self._simulator.tensors["episode"]
        began = torch.ones_like(episode, dtype=torch.bool) if mask is None else mask
        if draw and self._draws:
            torch.where(began[:, None], self._draw(), self.drawn, out=self.drawn)
        self._episode.copy_(episode)
        self._tell(began, self._policies())

    def _policies(self) -> list[Any]:
        return [policy for opponent in self.opponent_slots for policy in opponent.policies]

    def _tell(self, began: torch.Tensor, policies: list[Any]) -> None:
        for policy in policies:
            if _has_memory(policy):
                policy.reset(began)

    def _draw(self) -> torch.Tensor:
        """Return what the present episodes draw, int64 `[M, S]`: `(top 32 bits of the word * n) >> 32`."""
        state = self._simulator.tensors
        keys = episode_keys(state["seed"], state["episode"])
        return high_halves(keys[:, None] + self._words) * self._counts >> 32

    # State ------------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise MarketError, naming the policy, if one returned what is no action since the last look at a GPU."""
        if self._host:
            return
        highest = [self._limits[slot] - 1 if self._limits[slot] else float(MOST_ACTION) for slot in self._slot_of]
        high = self._most.new_tensor(highest)[:, None]
        low = torch.zeros_like(high) if self._limits[0] else -high
        good = (self._most[:, 1:] <= high) & (self._least[:, 1:] >= low)  # False for NaN
        bad = (~good.all(2).all(0)).tolist()
        if not any(bad):
            return
        names = [name for name, wrong in zip(self._names, bad, strict=True) if wrong]
        self._memory[1:].zero_()
        said = f"actions of {', '.join(names)}: expected values in its action space, got NaN or others"
        try:
            self._simulator.check_errors()  # which the same actions set
        except MarketError as error:
            raise MarketError(f"{said}; {error}") from error
        raise MarketError(said)

    def check_saved(self, saved: Mapping[str, torch.Tensor]) -> None:
        """Refuse a state in which policies play that there are not."""
        most = self._counts.cpu()
        bad = (saved[DRAWN].cpu() < 0) | (saved[DRAWN].cpu() >= most)
        Ranges({DRAWN: saved[DRAWN].cpu()}).refuse(DRAWN, bad, f"less than the slots' policies, {most.tolist()}")

    def clone(self, simulator: Simulator, sees: Callable[[int], torch.Tensor]) -> Opponents:
        """Return the same for markets like these. Policies with a memory are copied, the others are shared."""
        opponent_slots = tuple(
            dataclasses.replace(
                opponent, policies=tuple(copy.deepcopy(one) if _has_memory(one) else one for one in opponent.policies)
            )
            for opponent in self.opponent_slots
        )
        return Opponents(opponent_slots, simulator, self._roles, self._task, sees)

    def of_rows(self, rows: torch.Tensor) -> tuple[OpponentSlot, ...]:
        """Return the policies of a fork's rows, int64 `[n]`; raises TypeError, naming one whose memory is its own."""
        if not self._tells:
            return self.opponent_slots
        names = iter(self._names)
        return tuple(
            dataclasses.replace(one, policies=tuple(_of_rows(next(names), policy, rows) for policy in one.policies))
            for one in self.opponent_slots
        )

    def go_on(self, opponent_slots: tuple[OpponentSlot, ...]) -> None:
        """Play on with policies of `of_rows` after the state was copied."""
        self.opponent_slots = opponent_slots
        self._episode.copy_(self._simulator.tensors["episode"])

    def take_over(self, other: Opponents) -> None:
        """Go on from where the original of a clone of as many markets is; what is drawn is copied as state is."""
        for name in ("_episode", "_most", "_least"):
            getattr(self, name).copy_(getattr(other, name))


def _in_rows(actions: torch.Tensor) -> torch.Tensor:
    """Return actions or choices of all markets, [M, A], without copying."""
    return actions if actions.dim() == 2 else actions.view(len(actions), -1)
