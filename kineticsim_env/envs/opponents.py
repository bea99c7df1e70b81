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

import torch

from kineticsim_env.config import MarketConfig
from kineticsim_env.envs.actions import MOST_ACTION, check_actions
from kineticsim_env.errors import MarketError
from kineticsim_env.runtime import layout, private_torch
from kineticsim_env.runtime.roles import SPECS
from kineticsim_env.runtime.saved_states import Ranges
from kineticsim_env.runtime.seeds import EPISODE, GOLDEN
from kineticsim_env.runtime.values import check_callable, check_dict, show
from kineticsim_env.simulator import Simulator
from kineticsim_env.tasks.base import Task
from kineticsim_env.tasks.many_learners import check_learner, check_replaceable

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
        opponent_slots += [OpponentSlot(role, of, _check_policies(of, one), replaced) for of, one in named]
        taken = int(replaced == replace)
        check_replaceable(name, f"{len(named)} slots", len(named), taken, replaced, config)
    most = layout.CONSTANTS["kMaxSlots"] - 1
    if not 1 <= len(opponent_slots) <= most:
        raise ValueError(f"opponents: expected 1 to {most} slots, or None, got {len(opponent_slots)}")
    with_memory = [policy for opponent in opponent_slots for policy in opponent.policies if _has_memory(policy)]
    for policy in with_memory:
        if sum(policy is other for other in with_memory) > 1:
            raise ValueError(f"opponents: expected a copy for each slot, got the recurrent policy {show(policy)} twice")
    return tuple(opponent_slots)


def _check_list(name: str, given: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"{name}: expected {_LIST}, got {type(given).__name__}")
    if not given:
        raise ValueError(f"{name}: expected {_LIST}, got an empty list")
    return given


def _check_policies(name: str, given: Any) -> tuple[Any, ...]:
    for place, policy in enumerate(_check_list(name, given)):
        check_callable(f"{name}[{place}]", policy, "a policy: a function of observations that returns actions")
    return tuple(given)


def _has_memory(policy: Any) -> bool:
    """Return whether a policy is a `RecurrentPolicy`: it has a `reset`."""
    return callable(getattr(policy, "reset", None))


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
        self._simulator, self._roles, self._task, self._sees = simulator, roles, task, sees
        self._device, self._host = simulator.device, simulator.device.type == "cpu"
        device, markets = self._device, simulator.num_markets
        self._limits = [task.num_choices(role) for role in roles]
        if self._limits[0]:
            self._rows = torch.zeros((markets, len(roles)), dtype=torch.int64, device=device)
            self._given = list(self._rows.unbind(1))
        else:
            sizes = [SPECS[role].action.size for role in roles]
            self._rows = torch.zeros((markets, len(roles), max(sizes)), device=device)
            self._given = [self._rows[:, slot, :size] for slot, size in enumerate(sizes)]
        self.drawn = torch.zeros((markets, len(opponent_slots)), dtype=torch.int64, device=device)
        self._counts = torch.zeros(len(opponent_slots), dtype=torch.int64, device=device)
        slots = torch.arange(1, len(roles), device=device)
        self._words = (_FIRST_WORD + 1 + slots) * _signed(GOLDEN)
        self._episode = torch.full((markets,), -1, dtype=torch.int64, device=device)
        self._take(opponent_slots)

    def _take(self, opponent_slots: tuple[OpponentSlot, ...]) -> None:
        self.opponent_slots = opponent_slots
        for place, opponent in enumerate(opponent_slots):
            self._counts[place] = len(opponent.policies)
        self._names = [f"{opponent.name}[{i}]" for opponent in opponent_slots for i in range(len(opponent.policies))]
        self._bad = torch.zeros(len(self._names), dtype=torch.bool, device=self._device)

    def replace(self, opponent_slots: tuple[OpponentSlot, ...]) -> None:
        """Let other policies play the same slots from now on, in running episodes those at the drawn places."""
        roles, known = (
            [opponent.replaces or opponent.role for opponent in each] for each in (opponent_slots, self.opponent_slots)
        )
        if roles != known:
            raise ValueError(f"opponents: expected slots of the roles {known}, got {roles}: markets keep their slots")
        previous = self._policies()
        self._take(opponent_slots)
        self.drawn.copy_(torch.where(self.drawn < self._counts, self.drawn, self._draw()))
        everywhere = torch.ones_like(self._episode, dtype=torch.bool)
        self._tell(everywhere, [policy for policy in self._policies() if not any(policy is one for one in previous)])

    def join(self, given: torch.Tensor) -> torch.Tensor:
        """Return what all slots do, `[M, K, A]` or choices `[M, K]`: the learner what is given, opponents as drawn."""
        records = torch.is_grad_enabled()
        try:  # a Ctrl-C may come as soon as the next line is done
            private_torch.set_grad_enabled(False)
            number = 0
            for slot, opponent in enumerate(self.opponent_slots, 1):
                answers = []
                for policy in opponent.policies:
                    answers.append(self._answer(policy, slot, number))
                    number += 1
                actions = answers[0]
                if len(answers) > 1:
                    drawn = self.drawn[:, slot - 1].view(1, -1, *[1] * (actions.dim() - 1))
                    actions = torch.stack(answers).gather(0, drawn.expand(1, *actions.shape))[0]
                self._given[slot].copy_(actions)
            self._given[0].copy_(given.view(self._given[0].shape))
        finally:
            private_torch.set_grad_enabled(records)
        return self._rows

    def _answer(self, policy: Any, slot: int, number: int) -> torch.Tensor:
        """Call a policy with what its slot sees, and check what it returns."""
        name, limit = self._names[number], self._limits[slot]
        seen = self._sees(slot).clone()  # which it may keep
        try:
            action = policy(seen)
        except Exception as error:
            error.add_note(f"raised by the policy given as {name}")
            raise
        action = check_actions(action, tuple(self._given[slot].shape), self._device, limit, f"actions of {name}")
        if not self._host:  # as `check_actions` looks at values in host memory only
            good = (action >= 0) & (action < limit) if limit else action.abs() <= float(MOST_ACTION)
            self._bad[number].logical_or_(~good.all())
        return action

    def follow(self) -> None:
        """Draw for the markets whose episodes began in a step."""
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
        if draw:
            self.drawn.copy_(torch.where(began[:, None], self._draw(), self.drawn))
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
        key = _mix64(state["seed"] + _signed(GOLDEN) + state["episode"] * _signed(EPISODE))
        top = _shifted(_mix64(key[:, None] + self._words), 32)
        return top * self._counts >> 32

    # State ------------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise MarketError, naming the policy, if one returned what is no action since the last look at a GPU."""
        if self._host or not bool(self._bad.any()):
            return
        names = [name for name, bad in zip(self._names, self._bad.tolist(), strict=True) if bad]
        self._bad.zero_()
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
        """Return the same for markets that are a clone. Policies with a memory are copied, the others are shared."""
        opponent_slots = tuple(
            dataclasses.replace(
                opponent, policies=tuple(copy.deepcopy(one) if _has_memory(one) else one for one in opponent.policies)
            )
            for opponent in self.opponent_slots
        )
        clone = Opponents(opponent_slots, simulator, self._roles, self._task, sees)
        for name in ("drawn", "_episode", "_bad", "_rows"):
            getattr(clone, name).copy_(getattr(self, name))
        return clone


def _signed(number: Any) -> int:
    """Return an unsigned number of 64 bits as the signed one with the same bits, which torch computes with."""
    return (int(number) + 2**63) % 2**64 - 2**63


def _shifted(words: torch.Tensor, places: int) -> torch.Tensor:
    """Shift unsigned words, held in int64, to the right."""
    return (words >> places) & ((1 << (64 - places)) - 1)


def _mix64(words: torch.Tensor) -> torch.Tensor:
    """Return SplitMix64's finaliser of words held in int64; docs/model.md."""
    words = (words ^ _shifted(words, 30)) * _signed(0xBF58476D1CE4E5B9)
    words = (words ^ _shifted(words, 27)) * _signed(0x94D049BB133111EB)
    return words ^ _shifted(words, 31)
