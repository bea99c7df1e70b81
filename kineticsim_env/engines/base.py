"""`Engine`: what all engines share: the tensors that they are bound to, and the checks of every launch.

Callers check what users hand over (checks.py) and say what is wrong with it. An engine looks again at what memory
safety depends on: each tensor of a launch is dense, and as large as the launch takes it to be.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kineticsim_env.agents.policies import ProgramPolicy
from kineticsim_env.config import MarketConfig
from kineticsim_env.engines.agents import AgentGroup
from kineticsim_env.engines.slot_policies import SlotPolicies, placed
from kineticsim_env.runtime import layout
from kineticsim_env.runtime.flow_table import FlowTable
from kineticsim_env.runtime.roles import ROLES, action_form

RUN, ENV_STEP, ENV_RESET, ENV_RESTART, OPEN = (
    layout.ENUMS["LaunchMode"][name] for name in ("run", "env_step", "env_reset", "env_restart", "open")
)
NO_COPY = (
    "an engine cannot be copied or pickled; use clone() of an environment, Simulator.branch(), or state_dict() and "
    "load_state_dict()"
)
_INPUTS = frozenset(name for name, field in layout.LAUNCH_FIELDS.items() if field.pointer and field.constant)
_ALIGNMENT = 16  # bytes: engines read four ints or floats at a time


class Engine:
    """A set of tensors, and the launches that change them."""

    name = "none"
    plays_at_once = False  # whether `step_at_once` ever does

    def __init__(self, device: torch.device, sizes: layout.Sizes, tensors: Mapping[str, torch.Tensor]) -> None:
        """Bind the engine to persistent tensors, by their names in `struct Launch`; sizes are M, L, K, N and O."""
        self.device = device
        self._sizes = dict(sizes)
        self._dims = tuple(sizes[name] for name in "MLKNO")
        self._tensors: dict[str, torch.Tensor] = {}
        self._bound: dict[str, int] = {}  # addresses by the names of tensors, 0 where there are no elements
        self._watched: dict[str, torch.Tensor] = {}  # the same tensors, and others that share their memory
        self._addresses: list[int] = []  # of those that are watched,
        self._counts: list[int] = []  # and how many elements each of them has
        self._starts: list[int] = []  # of the same tensors in memory, in rising order,
        self._ends: list[int] = []  # and where each of them ends
        self._task: dict[str, Any] = {}
        self._input, self._action_size = "actions", 0  # of an environment's step, and its least numbers per slot
        tables = ("bank_scalars", "scenario_params", "scenario_thresholds", "scenario_values")
        self._tables = dict.fromkeys(tables, 0)  # rows
        self._fits_task = False  # whether the tables have the rows that the task draws from
        self.slot_policies: SlotPolicies | None = None
        self._known_policies: dict[Any, SlotPolicies] = {}  # whose tensors captured CUDA graphs may still hold on to
        self.outputs: list[torch.Tensor] = []  # of a step of an environment, as its caller gets them
        self.bind(tensors)

    def bind(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Use these tensors from now on; they live as long as the engine."""
        for name, tensor in tensors.items():
            self._tensors[name] = tensor
            self._bound[name] = tensor.data_ptr()
            if name in self._tables:
                self._tables[name], self._fits_task = len(tensor), False
        self.watch(tensors)
        places = sorted((self._bound[name], tensor.nbytes) for name, tensor in self._tensors.items() if tensor.nbytes)
        self._starts = [start for start, _ in places]
        self._ends = [start + size for start, size in places]

    def bound(self, name: str) -> torch.Tensor:
        """Return the tensor that is bound to a field of `struct Launch`, live."""
        return self._tensors[name]

    def watch(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """From now on check that these tensors keep their addresses and sizes."""
        self._watched |= tensors
        self._addresses = list(map(torch.Tensor.data_ptr, self._watched.values()))
        self._counts = list(map(torch.Tensor.numel, self._watched.values()))

    def set_task(self, task: Mapping[str, Any]) -> None:
        """Take over the task's settings by the names of `struct TaskParams`.

        Raises:
            ValueError: If the warm starts or the scenarios are fewer than the task draws from.
        """
        settings = self._task | dict(task)
        scenarios = settings.get("scenarios", 0)
        owned = {"all_markets": 1, "each_market": self._sizes["M"], "each_scenario": scenarios}
        by_number = {number: owned[name] for name, number in layout.ENUMS["BankOwner"].items()}
        owners = by_number[settings.get("bank_owner", 0)]
        needed = {"scenario_params": scenarios, "scenario_thresholds": scenarios}
        needed["scenario_values"] = scenarios if self._tables["scenario_values"] else 0
        for name, rows in {"bank_scalars": owners * settings.get("bank_size", 0), **needed}.items():
            if self._tables[name] < rows:
                raise ValueError(f"{name}: expected {rows} rows, as the task has it, got {self._tables[name]}")
        self._task = settings
        discrete = settings.get("action_type", 0) == layout.ENUMS["ActionType"]["discrete"]
        self._input = "choices" if discrete else "actions"
        keep = bool(settings.get("keep", 0))
        roles = list(settings.get("role", [0]))[: self._sizes["K"]]
        levels = layout.levels_of_ladders(self._sizes)
        self._action_size = max(action_form(ROLES[number], keep, levels).size for number in roles)
        self._fits_task = True

    def launch(
        self, mode: int, *, decisions: int = 1, auctions: int = 1, reach: int = 0, **tensors: torch.Tensor | None
    ) -> None:
        """Run one launch of a mode, `RUN`, `ENV_STEP` and so on; tensors by the names of `struct Launch`.

        `reach` is that of recorded depths, at most 2^31 - 1.
        """
        if mode not in (RUN, OPEN):
            self._check_task(mode, tensors)
        for name, tensor in tensors.items():
            if tensor is not None:
                tensors[name] = self._checked(name, tensor, decisions, decisions * auctions)
        self._launch(mode, decisions, auctions, reach, tensors)

    def _launch(
        self, mode: int, decisions: int, auctions: int, reach: int, tensors: Mapping[str, torch.Tensor | None]
    ) -> None:
        raise NotImplementedError

    def begin_call(self) -> None:
        """Note that a call begins, perhaps in another thread than the last one.

        Raises:
            RuntimeError: If a tensor lies elsewhere by now: nobody ever reads or writes memory that was given back.
        """
        if list(map(torch.Tensor.data_ptr, self._watched.values())) != self._addresses:
            self._refuse_replaced()

    def check_sizes(self) -> None:
        """Check that all tensors have their sizes still, before torch works on them; launches check for themselves.

        Raises:
            RuntimeError: If one has another: a `resize_` that torch refuses leaves the new size behind, without memory.
        """
        if list(map(torch.Tensor.numel, self._watched.values())) != self._counts:
            self._refuse_replaced()

    def _refuse_replaced(self) -> None:
        for (name, tensor), address, count in zip(self._watched.items(), self._addresses, self._counts, strict=True):
            if tensor.data_ptr() != address or tensor.numel() != count:
                raise RuntimeError(f"{name}: its memory was replaced or resized; write into the tensor instead")

    def _check_task(self, mode: int, tensors: Mapping[str, torch.Tensor | None]) -> None:
        if not self._fits_task:
            raise RuntimeError("the scenarios or warm starts were replaced without their task; use env.set_scenarios")
        given = tensors.get("new_quotes") is not None or tensors.get(self._input) is not None
        if mode == ENV_STEP and not given and not self._policies_play_all():
            raise ValueError(f"{self._input}: expected a tensor, as the action type asks for, got None")

    def _checked(self, name: str, tensor: torch.Tensor, decisions: int, auctions: int) -> torch.Tensor:
        """Return a tensor of a launch, or a copy where the engine could not read it in place."""
        width = 0
        if name == "actions":  # rows may be as short as the roles' actions
            width = max(tensor.shape[-1] if tensor.dim() else 0, self._action_size)
        dtype, shape, count = _expected(name, self._dims, decisions, auctions, width)
        # Axes of length 1 may be missing, as only the memory is handed on.
        if tensor.dtype != dtype or tensor.numel() != count or tensor.device != self.device:
            found = f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"
            raise ValueError(f"{name}: expected {dtype} {list(shape)} on {self.device}, got {found}")
        if not tensor.is_contiguous():
            raise ValueError(f"{name}: expected a contiguous tensor, got strides {tensor.stride()}")
        if name not in _INPUTS:
            return tensor
        return tensor.clone() if tensor.data_ptr() % _ALIGNMENT else self.own_copy(tensor)

    def own_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a contiguous tensor, or a copy if it shares memory with those that the engine writes to."""
        start = tensor.data_ptr()
        place = bisect_right(self._ends, start)
        ours = place < len(self._starts) and self._starts[place] < start + tensor.nbytes
        return tensor.clone() if ours else tensor

    def __reduce__(self) -> str:
        """Refuse to be copied or pickled: an engine points at its own tensors."""
        raise TypeError(NO_COPY)

    def step_at_once(self, given: torch.Tensor) -> bool:
        """Play a step of an environment with the fewest checks, if the short way is open; return whether.

        Actions or choices are checked, contiguous, on the engine's device. If not, nothing has happened, and `launch`
        does it or says what is wrong.
        """
        return False

    def roll_out(
        self,
        policy: Mapping[str, int | str],
        decisions: int,
        auctions: int,
        fields: Mapping[str, int | torch.Tensor | None],
        given: Mapping[str, torch.Tensor],
    ) -> None:
        """Play decisions with a policy inside the launch; see `CudaEngine.roll_out`, which alone can."""
        raise NotImplementedError

    def open_flow(self, chosen: torch.Tensor) -> None:
        """Open the books of markets of an order flow, bool `[M]`; all else of them is at its opening."""
        self.launch(OPEN, reset_mask=chosen)

    def restart(self) -> None:
        """Begin the episodes of markets whose last ones have ended, in a launch of its own."""
        self.launch(ENV_RESTART)

    def set_outputs(self, outputs: list[torch.Tensor]) -> None:
        """Set the outputs of an environment's step, as its caller gets them: views of what is bound."""
        self.outputs = outputs

    def copies(self) -> list[torch.Tensor]:
        """Return the outputs of an environment's step as tensors of their own."""
        return Engine.copies_of(self, self.outputs)  # of few tensors in host memory faster than an operator

    def copies_of(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return tensors on the engine's device, whose rows are contiguous, as tensors of their own."""
        return [tensor.clone() for tensor in tensors]

    def launcher(self, mode: int) -> Any:
        """Return how a mode is launched in programs that torch compiles. Raises RuntimeError if it cannot be."""
        raise RuntimeError(f"engine {self.name!r} cannot be compiled by torch: 'cpu' and 'cuda' can")

    def prepare_launcher(self, mode: int, auctions: int = 1) -> None:
        """Get ready for programs that torch compiles; see `NativeEngine.prepare_launcher`."""

    def renew_launchers(self) -> None:
        """Get ready again, after parameters changed, for programs that were compiled before."""

    # What some engines do besides ------------------------------------------------------------------------------

    def check_plays(self, config: MarketConfig) -> None:
        """Refuse a market that the engine cannot play: EngineUnavailable, naming the first field."""

    def set_ensemble(self, config: MarketConfig) -> None:
        """Take over what is one for the ensemble: arrivals, mechanism, the table of regimes."""
        raise NotImplementedError

    def set_flows(self, tables: Sequence[FlowTable]) -> None:
        """Take over order flows, by whose places parameters name them; before these."""
        raise NotImplementedError

    def set_agents(self, groups: Sequence[AgentGroup]) -> None:
        """Take over the classes of agents that users have written, which stay the same; before any parameters."""
        raise NotImplementedError

    def set_agent_parameters(self, table: np.ndarray) -> None:
        """Take over their parameters, int32 `[1, P]` or `[M, P]`, with the next `set_parameters`."""
        raise NotImplementedError

    def set_slot_policies(self, policies: Mapping[int, ProgramPolicy]) -> None:
        """Let policies play slots from now on, in the place of their actions; other slots have actions."""
        made = placed(policies, self._sizes, self.device) if policies else None
        if made is not None:
            known, before = self._known_policies.setdefault(made.key, made), self.slot_policies
            for slot, place in made.places.items():  # who plays on remembers on
                was = None if before is None else before.places.get(slot)
                if before is not None and was is not None and was.policy is place.policy:
                    words = before.tensors["policy_memory"][:, was.memory : was.memory + was.words]
                    made.tensors["policy_memory"][:, place.memory : place.memory + place.words] = words
            for name, tensor in made.tensors.items():  # the same tensors for the same programs, with new numbers
                known.tensors[name].copy_(tensor)
            made = dataclasses.replace(made, tensors=known.tensors)
            self.bind(made.tensors)
        self.slot_policies = made

    def _policies_play_all(self) -> bool:
        """Return whether no slot has actions."""
        return self.slot_policies is not None and len(self.slot_policies.places) == self._sizes["K"]

    def set_parameters(self, rows: Mapping[str, np.ndarray]) -> None:
        """Take over parameter rows: int64 `[1]` or `[M]` by the names of `struct MarketParams`."""
        raise NotImplementedError

    def set_scenarios(
        self,
        rows: Mapping[str, np.ndarray],
        present: torch.Tensor | None = None,
        agents: np.ndarray | None = None,
        agents_present: torch.Tensor | None = None,
        others: torch.Tensor | None = None,
    ) -> None:
        """Take over a table of scenarios; from then on parameters are state, and an episode that begins gets its own.

        All scenarios are as likely then.

        Args:
            rows: The table, int64 `[C]` by the names of `struct MarketParams`.
            present: What markets play until their episodes end, int32 `[M, n]`, checked; if None, what they play now,
                or, the first time, the first scenario.
            agents: Parameters of agents that users have added, int32 `[C, P]`; None without any.
            agents_present: The same of what markets play, int32 `[M, P]`, as `present`.
            others: What markets may come to play besides, as it is written to `live_parameters`, int32 `[any, n]`.
        """
        raise NotImplementedError

    def parameters(self) -> torch.Tensor:
        """Return the parameters of every market, or of all together: int32 `[M, n]` or `[1, n]`."""
        raise NotImplementedError

    def agent_parameters(self) -> torch.Tensor | None:
        """Return those of agents that users have added, int32 `[M, P]`, or `[1, P]` of all; None without any."""
        raise NotImplementedError

    def live_parameters(self) -> dict[str, torch.Tensor]:
        """Return what each market plays of its scenario, live, `[M]` or `[M, n]`, by names of the engine's own."""
        raise NotImplementedError

    def scenario_rows(self) -> torch.Tensor:
        """Return a copy of the table of scenarios, int32 `[C, n]` in host memory."""
        raise NotImplementedError

    @property
    def scenario_thresholds(self) -> torch.Tensor:
        """What scenarios are drawn by, int64 `[C]`, all 0 where they are as likely; live, to be written to."""
        return self._tensors["scenario_thresholds"]

    @torch.inference_mode(False)
    def _uniform_thresholds(self, scenarios: int) -> torch.Tensor:
        """Return thresholds by which all scenarios are as likely: the tensor that there is, if it has as many."""
        thresholds = self._tensors.get("scenario_thresholds")
        if thresholds is None or len(thresholds) != scenarios:
            return torch.zeros(scenarios, dtype=torch.int64, device=self.device)
        return thresholds.zero_()  # a captured CUDA graph keeps its address

    def specialise(self) -> None:
        """Prepare for these very parameters, where that makes an engine faster; see `CudaEngine.specialise`."""

    def state_changed(self) -> None:
        """Note that tensors were changed outside a launch (reset, load_state_dict)."""


@functools.lru_cache(maxsize=256)
def _expected(
    name: str, dims: tuple[int | tuple[int, ...], ...], decisions: int, auctions: int, action_stride: int
) -> tuple[torch.dtype, tuple[int, ...], int]:
    """Return dtype, shape and number of elements of a launch's tensor."""
    sizes = dict(zip("MLKNO", dims, strict=True)) | {"T": decisions, "S": auctions, "action_stride": action_stride}
    field = layout.LAUNCH_FIELDS[name]
    shape = field.shape(sizes)
    return field.dtype, shape, math.prod(shape)


def pack(rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return parameter rows as they are in memory, int32 `[rows, layout.PARAMS_INTS]`; then padding."""
    packed = np.zeros((len(rows["fee"]), layout.PARAMS_INTS), dtype=np.int32)
    for place, name in enumerate(layout.PARAMS_FIELDS):
        packed[:, place] = rows[name]
    return packed


def unpack(packed: np.ndarray) -> dict[str, np.ndarray]:
    """Return rows of parameters, int32 `[rows, layout.PARAMS_INTS]`, by name, int64 `[rows]` each; inverts `pack`."""
    return {name: packed[:, place].astype(np.int64) for place, name in enumerate(layout.PARAMS_FIELDS)}
