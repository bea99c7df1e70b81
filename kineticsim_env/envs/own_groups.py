"""`Group`: the learners of one role, or an opponent: the user's functions of them, what these are given, and memory.

`OwnStep` in own_step.py has one of each, and says when which function is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kineticsim_env.envs.actions import SpaceCheck
from kineticsim_env.envs.custom_tasks import Draws, Memory, memory_of
from kineticsim_env.envs.infos import info_of_one, info_of_slots
from kineticsim_env.envs.moments import After, Moment, Outcome
from kineticsim_env.envs.own_functions import Function, OwnFunctions
from kineticsim_env.runtime import private_torch
from kineticsim_env.runtime.values import show
from kineticsim_env.runtime.words import at_time, episode_keys, high_halves, numbers_of

FLOATS, BOOL = (torch.float32, torch.float64), (torch.bool,)
_FIRST_WORD, _WORDS_OF_SLOT = (1 << 30) + (1 << 28), 1 << 20  # of a task's stream: docs/model.md


class Group:
    """The learners of one role, or an opponent: their functions, and the views that these are given and write to.

    Attributes:
        results: Views of what the step writes, by name, `[M]`, or `[M, n]` of n learners: `shape`.
        before: What was known before the decision; `after`: what is known, and `outcome`: with what the task says.
        memory: What the user's task remembers.
        width: How many features the user has, once they were called.
    """

    def __init__(self, role: str, functions: OwnFunctions, slots: slice, many: bool, count: int, called: str) -> None:
        """Take the functions of some of `count` slots; `many`: whether there may be several learners of a role.

        `called` is how errors call the learner, behind the name of a function; empty where there is one.
        """
        self.role, self.functions, self.slots, self.many, self.count = role, functions, slots, many, count
        self._of, self.width, self.made = called, 0, False

    def of_slots(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the view [M, n, ...] of rows [M, K, ...], or [M, ...] of the one learner."""
        return rows[:, self.slots] if self.many else rows[:, self.slots.start]

    def of_markets(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the view [M, 1, ...] of rows [M, ...], or rows themselves of the one learner."""
        return rows.unsqueeze(1) if self.many else rows

    def _known(self, info: torch.Tensor) -> dict[str, torch.Tensor]:
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
        known = self._known(tensors["info"])
        self.before, self.after = Moment(self._known(before)), After({**known, **book, **self._events(events)})
        flags = {name: self.results[name] for name in ("reward", "terminated", "truncated")}
        flags |= self._events(tensors.get("decision_events"))
        self.outcome = Outcome({**known, **book, **flags})
        self.shape, self.device = tuple(self.results["reward"].shape), tensors["info"].device
        self._remember(state)
        shown = [tensors[name] for name in ("info", "observation", "reward", "terminated", "truncated")]
        shown += [state[name] for name in ("bid", "ask", "price_origin", "quotes")]
        shown += [one for one in (before, events, tensors.get("decision_events")) if one is not None]
        self._shown = [*self.memory.__dict__.values(), *shown]  # views count with these

    def _events(self, events: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """Return the events of the decision, as what is the market's, by name; empty where there are none."""
        return {} if events is None else {"decision_events": self.of_markets(events)}

    def allocate(self, final: bool) -> None:
        """Allocate observations with the user's features, whose widths are known by now."""
        shape = (*self.shape, self.built_in.shape[-1] + self.width)
        self.observation = torch.zeros(shape, dtype=torch.float32, device=self.device)
        self.final_observation = torch.zeros_like(self.observation) if final else self.observation
        self.present, self.final = (  # the built-in numbers and the user's
            rows.tensor_split([self.built_in.shape[-1]], dim=-1) for rows in (self.observation, self.final_observation)
        )
        self.sums = torch.zeros_like(self.present[1])  # of all that the features were: NaN and infinity stay in it

    # Memory -----------------------------------------------------------------------------------------------------------

    def _remember(self, state: Mapping[str, torch.Tensor]) -> None:
        """Allocate what the user's task remembers, and find its words."""
        task, self._state = self.functions.task, state
        own_space = None if task is None else task.action_space
        self._space = None if own_space is None else SpaceCheck(own_space, self.device)
        declared = {} if task is None else memory_of("custom_task", task)
        shapes = {name: (dtype, (*self.shape, *more)) for name, (dtype, more) in declared.items()}
        self.memory = Memory(
            {key: torch.zeros(of, dtype=kind, device=self.device) for key, (kind, of) in shapes.items()}
        )
        self._begin, self._update = self.functions.of_task("begin"), self.functions.of_task("update")
        counts = (0, 0) if task is None else (task.episode_draws, task.decision_draws)
        slots = range(self.slots.start, self.slots.stop)
        self._numbers = [
            torch.stack([numbers_of(_FIRST_WORD + slot * _WORDS_OF_SLOT, count, self.device) for slot in slots])
            for count in counts
        ]

    @property
    def remembers(self) -> bool:
        """Whether there is any memory."""
        return len(self.memory) > 0

    def begin(self, began: torch.Tensor) -> None:
        """Let episodes of markets in a mask, bool `[M]`, begin with what the task says; the others' memory stays."""
        if not self.remembers:
            return
        given = {} if self._begin is None else self._returned("begin", self._begin, (self.after, self._draws(0)))
        mask = self.of_markets(began)
        rest = {name: torch.zeros_like(kept) for name, kept in self.memory.items() if name not in given}
        self._take(given | rest, mask)

    def update(self) -> None:
        """Let the task remember the decision, of learners who took part in it."""
        if self._update is None:
            return
        arguments = (self.before, self.outcome, self.memory, self._draws(1))
        self._take(self._returned("update", self._update, arguments), ~self.results["idle"])

    def _take(self, given: Mapping[str, torch.Tensor], mask: torch.Tensor) -> None:
        """Write new values to rows of a mask `[M]`, or `[M, n]`, and leave the others. They may be views of memory."""
        taken = []
        for name, new in given.items():
            kept = self.memory[name]
            taken.append((kept, torch.where(mask.view(*mask.shape, *[1] * (kept.dim() - mask.dim())), new, kept)))
        for kept, new in taken:
            kept.copy_(new)

    def _draws(self, place: int) -> Draws:
        """Return the words of the present episode (0), or of the present decision (1)."""
        numbers = self._numbers[place]
        if not numbers.numel():
            return Draws(numbers.new_zeros((*self.shape, 0)))
        keys = episode_keys(self._state["seed"], self._state["episode"])
        if place:
            keys = keys + at_time(self._state["t"])
        words = high_halves(keys[:, None, None] + numbers)
        return Draws(words if self.many else words[:, 0])

    def _returned(self, name: str, function: Function, given: tuple[Any, ...]) -> dict[str, torch.Tensor]:
        """Call a method that returns what is remembered, and check that."""
        answer = self._asked(name, function, given)
        if not isinstance(answer, Mapping):
            raise TypeError(f"{name}{self._of}: expected a dict of tensors by name, got {type(answer).__name__}")
        for key, new in answer.items():
            if key not in self.memory.__dict__:
                raise ValueError(f"{name}{self._of}: expected names of {', '.join(self.memory)}, got {show(key)}")
            kept = self.memory[key]
            kinds = FLOATS if kept.dtype in FLOATS else (kept.dtype,)
            fits = isinstance(new, torch.Tensor) and new.shape == kept.shape and new.device == kept.device
            if not (fits and new.dtype in kinds):
                allowed = f"{' or '.join(map(str, kinds))} {list(kept.shape)} on {kept.device}"
                raise _refusal(new)(f"{name}{self._of}: expected {key!r} to be {allowed}, got {_described(new)}")
        return dict(answer)

    # Calls ------------------------------------------------------------------------------------------------------------

    def features(self) -> list[torch.Tensor]:
        """Return what the functions say of the present, [M, g] or [M, n, g] each."""
        parts = []
        for place, function in enumerate(self.functions.features):
            of_task = self.functions.is_of_task(function)
            name = "features" if of_task else f"features[{place}]"
            answer = self._asked(name, function, (self.after,))
            several = answer if of_task and isinstance(answer, (list, tuple)) else (answer,)
            for part in several:
                part = self._checked(name, part, FLOATS, wide=True)
                parts.append(part if part.dim() > len(self.shape) else part.unsqueeze(-1))
        if self.width and sum(part.shape[-1] for part in parts) != self.width:
            found = [part.shape[-1] for part in parts]
            raise ValueError(f"features: expected {self.width} numbers, as before, got {found}")
        return parts

    def called(self, name: str, function: Function, dtypes: tuple[torch.dtype, ...]) -> torch.Tensor:
        """Call a function of before and after, and check what it returns: one number per learner."""
        return self._checked(name, self._asked(name, function, (self.before, self.outcome)), dtypes)

    def orders(self, actions: Any, name: str) -> Any:
        """Return what actions of the user's own space submit, which whoever plays it checks."""
        function = self.functions.of_task("orders")
        assert function is not None
        assert self._space is not None
        return self._asked("orders", function, (self._space.checked(actions, self.shape, name), self.after))

    def _asked(self, name: str, function: Function, given: tuple[Any, ...]) -> Any:
        """Call a function; it may write neither to what it is given nor to its task's memory."""
        if self.functions.is_of_task(function) and name not in ("begin", "update"):
            given = (*given, self.memory)
        # What writes to the market does so in its first call; looking each time costs 2 us per call.
        watched = list(self.memory.__dict__.values()) if self.made and name != "orders" else self._shown
        former = [private_torch.version_of(one) for one in watched]
        try:
            answer = function(*given)
        except Exception as error:
            if self.made:  # in a step it is the user's own error
                error.add_note(f"raised by the function given as {name}{self._of}")
                raise
            raise ValueError(f"{name}{self._of}: the function raised {type(error).__name__}: {error}") from error
        found = [private_torch.version_of(one) for one in watched]
        if found != former:
            kept = len(self.memory)
            allowed = "the market to be read, and a clone of it to be written to"
            if found[:kept] != former[:kept]:
                allowed = "memory to be read, and new values to be returned by 'begin' or 'update'"
            raise TypeError(f"{name}{self._of}: expected {allowed}, got a tensor of it that was written to")
        return answer

    def _checked(self, name: str, answer: Any, dtypes: tuple[torch.dtype, ...], *, wide: bool = False) -> torch.Tensor:
        """Return an answer that is a tensor as it has to be; `wide`: it may have one axis more."""
        if isinstance(answer, torch.Tensor):
            shape = tuple(answer.shape)
            fits = shape == self.shape or (wide and shape[:-1] == self.shape and shape[-1] > 0)
            if fits and answer.dtype in dtypes and answer.device == self.device:
                return answer
        kinds = " or ".join(str(dtype) for dtype in dtypes)
        more = f" or {[*self.shape, 'g']}" if wide else ""
        raise _refusal(answer)(
            f"{name}{self._of}: expected the function to return a tensor {kinds} {list(self.shape)}{more} on "
            f"{self.device}, got {_described(answer)}"
        )


def _refusal(answer: Any) -> type[Exception]:
    return ValueError if isinstance(answer, torch.Tensor) else TypeError


def _described(answer: Any) -> str:
    if isinstance(answer, torch.Tensor):
        return f"{answer.dtype} {list(answer.shape)} on {answer.device}"
    return type(answer).__name__
