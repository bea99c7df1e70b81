"""`CudaEngine`: the persistent kernel on one GPU, in the variant that its markets need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kineticsim_env.agents import programs
from kineticsim_env.agents.policies import ProgramPolicy, text_of_policies
from kineticsim_env.engines import operators, variants
from kineticsim_env.engines.agents import AgentGroup
from kineticsim_env.engines.base import ENV_RESTART, ENV_STEP, OPEN, RUN
from kineticsim_env.engines.native import INT32_LIMIT, NativeEngine
from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, driver, kernels, layout, private_torch

# Agent-events after which the CUDA engine compiles a kernel for its own parameters: about two seconds of one H200.
# The compilation takes as long, so it at most doubles the time spent by then.
_WORK_TO_SPECIALISE = 6 * 10**11
# Beside the modes of a launch: runs that record further series, and steps of order records, have kernels of their own,
_SERIES_RUN, _STEP_OF_RECORDS = -1, 99
_ROLLOUTS = 100  # and so has, from this number on, each shape of a policy's network


def _kind(mode: int) -> int:
    """Return which of the kernels plays a mode: 0 for those of runs, 1 for an environment's."""
    return int(mode not in (RUN, OPEN))


def _say_rollout(
    launch: Any,
    decisions: int,
    fields: Mapping[str, int | torch.Tensor | None],
    given: Mapping[str, torch.Tensor],
) -> dict[str, torch.Tensor]:
    """Say in the `struct Launch` of a step how it becomes a rollout, but for the tensors of `fields`; return these."""
    launch.decisions = decisions
    launch.action_stride = given["actions"].shape[-1] if "actions" in given else 0  # of none nothing is read
    tensors = {name: value for name, value in fields.items() if isinstance(value, torch.Tensor)}
    for name in fields.keys() - tensors.keys():
        setattr(launch.rollout, name, fields[name])
    return tensors


class CudaEngine(NativeEngine):
    """The persistent kernel on one GPU, launched on torch's current stream, without synchronisation."""

    name = "cuda"
    plays_at_once = True

    def __init__(self, device: torch.device, sizes: Mapping[str, int], tensors: Mapping[str, torch.Tensor]) -> None:
        """Bind to tensors on a CUDA device; see `NativeEngine`. Kernel variants are compiled when first needed."""
        super().__init__(device, sizes, tensors)
        self._index = torch.cuda.current_device() if device.index is None else device.index
        self._plans: dict[int, tuple] = {}
        self._work, self._specialised = 0, False
        self._changing: set[str] = set()  # parameters that were set more than once, to different values
        self._stream: torch.cuda.Stream | None = None  # of the last call
        self._changing_task: set[str] = set()  # settings of the task likewise
        self.force: dict[str, int] = {}  # extra or changed definitions, for tests and measurements
        self._raw_stream = -1  # that of the last call, by its number
        self._records_further = False  # whether a run has ever recorded further series
        self._late: torch.Tensor | None = None  # lists of markets that lanes leave to whole warps
        self._ticks: torch.Tensor | None = None  # of an order flow, while a kernel plays
        self._agents_text = ""  # what kernels include, where users have added agents,
        self._policies_text = ""  # and where policies of theirs play slots
        self._policies: list[
            tuple[Mapping[str, int | str], int]
        ] = []  # definitions of kernels with policies inside, and words

    @property
    def _events(self) -> int:
        """KS_EVENTS: 0 where each agent comes once, 1 for calls on the clock, 2 for continuous trading."""
        if self._struct.arrivals == layout.ENUMS["Arrivals"]["each"]:
            return 0
        return 1 + int(self._struct.mechanism == layout.ENUMS["Mechanism"]["continuous"])

    def begin_call(self) -> None:
        """See `Engine.begin_call`; if the stream has changed, this call's launches wait for the last call's."""
        super().begin_call()
        if private_torch.current_raw_stream(self._index) == self._raw_stream:
            return
        stream = torch.cuda.current_stream(self._index)
        # A stream that is captured may not wait for others; torch waits for the whole device before a capture.
        if self._stream is not None and not torch.cuda.is_current_stream_capturing():
            stream.wait_stream(self._stream)
        self._stream, self._raw_stream = stream, stream.cuda_stream

    def set_agents(self, groups: Sequence[AgentGroup]) -> None:
        """See `Engine.set_agents`; kernels are compiled with the text of the classes, if there are agents of them."""
        super().set_agents(groups)
        if self._struct.added_agents:
            self._agents_text = programs.text_of_all([group.kind for group in groups])

    def set_slot_policies(self, policies: Mapping[int, ProgramPolicy]) -> None:
        """See `Engine.set_slot_policies`; kernels are compiled with the text of the policies."""
        super().set_slot_policies(policies)
        self._policies_text = text_of_policies(self.slot_policies.different) if self.slot_policies else ""
        self._plans = {mode: plan for mode, plan in self._plans.items() if mode <= 0}

    def _plan(self, rows: Mapping[str, np.ndarray]) -> bool:
        """See `NativeEngine._plan`; a variant without options, or without levers, is used while no market has any."""
        # What a reset draws anew is no constant, else each reset would compile a kernel.
        before = getattr(self, "_rows", rows)
        was = [self._definitions(mode) for mode in (0, 1)] if before is not rows else None  # of captured kernels
        # Scenarios' values change in a table that stays; the first of them come in another number of rows.
        if self._scenarios is None and len(rows["fee"]) == len(before["fee"]):
            self._changing |= {name for name in layout.PARAMS_FIELDS if not np.array_equal(rows[name], before[name])}
        in_place = super()._plan(rows)
        names = ("walk_threshold", "jump_threshold", "cancel_threshold", "window", "tie", "residue")
        self._levers = variants.levers_of(rows)
        self._options = int(self._levers != 0 or any(np.any(rows[name] != 0) for name in names))
        offsets = ("noise_spread", "maker_half_spread", "taker_offset")
        self._reach = max(1, *(max(int(rows[name].max()), self._largest_in_regimes(name)) for name in offsets))
        agents = rows["interval"] if self._events else rows["first_fundamental"] + rows["num_fundamental"]
        self._agents = int(agents.max())  # that come in an interval
        self._plans = {}
        coming = self._agents + (0 if self._events else self._struct.added_agents)
        self._work, self._work_per_auction = 0, self._sizes["M"] * coming
        return in_place and was == [self._definitions(mode) for mode in (0, 1)]

    def specialise(self) -> None:
        """Compile kernels for these very parameters: about a second each for a third more speed, and the same results.

        What differs from market to market is still read for each market. Happens by itself once an engine has had much
        to do (`_WORK_TO_SPECIALISE`).
        """
        if not self._specialised:
            self._specialised, self._launchers = True, {}
            modes, self._plans = list(self._plans), {}
            for mode in modes:  # now: a CUDA graph may be captured next
                self.prepare(mode)

    def _own_definitions(self) -> dict[str, int | str]:
        names = [name for name in layout.PARAMS_FIELDS if name not in self._changing]
        fixed = [(layout.PARAMS_FIELDS[name], self._rows[name]) for name in names]
        constants = [f"p.{field.path}={int(value[0])}" for field, value in fixed if np.all(value == value[0])]
        return {"KS_PARAMETER_CONSTANTS": ",".join(constants), "KS_LEVELS": self._sizes["L"], **self._ladders()}

    def set_task(self, task: Mapping[str, Any]) -> None:
        """See `NativeEngine.set_task`; settings that stay as they were first set become constants, too."""
        before = dict(self._task)
        super().set_task(task)
        changed = {name for name, value in task.items() if name in before and before[name] != value}
        fresh = changed - self._changing_task or not before
        self._changing_task |= changed
        if self._specialised and fresh:
            modes = [mode for mode in self._plans if mode > 0]
            self._plans = {mode: plan for mode, plan in self._plans.items() if mode <= 0}
            for mode in modes:
                self.prepare(mode)

    def _task_definitions(self) -> dict[str, int | str]:
        """Return the task's constants: its integers, as assignments, and the role if all slots have the same."""
        constants, defines = [], {}
        for name, value in self._task.items():
            if name in self._changing_task:
                continue
            if not layout.TASK_FIELDS[name].length and isinstance(value, (bool, int, np.integer)):
                constants.append(f"task.{name}={int(value)}")
            elif name == "role" and len(set(value[: self._sizes["K"]])) == 1:
                defines["KS_ROLE"] = int(value[0])
        return defines | ({"KS_TASK_CONSTANTS": ",".join(constants)} if "KS_ROLE" in defines else {})

    def _own_numbers(self) -> int:
        """Return how many numbers of its own a market's added agents read and write in an auction."""
        stride = self._struct.agent_parameters_stride
        return sum((2 * len(g.kind.memory) + stride * len(g.kind.parameters)) * g.agents for g in self._groups)

    def _ladders(self) -> dict[str, int]:
        """Return how many slots have ladders, and of how many levels."""
        slots, levels = self._sizes["K"], self._struct.orders_per_side
        return {"KS_LADDERS": slots, "KS_LEVELS_OF_LADDERS": levels} if slots and levels > 1 else {}

    def _plan_for(self, mode: int) -> Any:
        """Return the variant and the shape for a mode, a `struct Plan`."""
        largest = max(self._task.get("max_qty", 0), self._task.get("forced_qty", 0))
        return variants.plan_for(
            self._sizes,
            torch.device("cuda", self._index),
            task=int(mode > 0),
            rollout=int(mode >= _ROLLOUTS),
            network_ints=self._policies[mode - _ROLLOUTS][1] if mode >= _ROLLOUTS else 0,
            reach=self._reach,
            agents=self._agents,
            orders=min(self._orders, INT32_LIMIT - 1),
            largest_quote=min(largest, int(self._rows["max_quote_qty"].max())),
            # In a rollout each warp goes on at its own pace, so there are no lists of late markets.
            forced_auctions=0 if mode >= _ROLLOUTS else self._task.get("forced_auctions", 0),
            extras=self._task.get("extras", 0).bit_count(),
            levers=self._levers,
            events=self._events,
            flow=int(bool(self._flows)),
            added_agents=self._struct.added_agents,
            own_numbers=self._own_numbers(),
            lanes=int(self.force.get("KS_LANES", -1)),
            lanes_per_market=int(self.force.get("KS_LANES_PER_MARKET", 0)),
        )

    def _definitions(self, mode: int, plan: Any = None) -> dict[str, int | str]:
        """Return the definitions that the kernel for a mode is compiled with."""
        plan = plan or self._plan_for(mode)
        chosen = variants.definitions(plan)
        # With an environment on each lane it is compiled three times as fast with constants, and so only once.
        specialised = self._specialised or "KS_LANES" in chosen
        common = {
            "KS_TASK": int(mode > 0),
            "KS_SLOTS": 3 if self._sizes["K"] and self._struct.orders_per_side > 1 else min(self._sizes["K"], 2),
            **({"KS_EVENTS": self._events} if self._events else {}),
            **({"KS_AGENTS": self._struct.agent_classes} if self._agents_text else {}),
            **({"KS_PROGRAMS": 1} if mode > 0 and self._policies_text else {}),
            **({"KS_FLOW": 1} if self._flows else {}),
            **({"KS_UNDER_WAY": 1} if "due" in self._tensors else {}),
            **({"KS_SERIES": 1} if mode == _SERIES_RUN else {}),
            **({"KS_INFO": 1} if mode > 0 and "info" in self._tensors else {}),
            **({"KS_VALUES": 1} if mode > 0 and "task_values" in self._tensors else {}),
            **({"KS_SCENARIOS": 1} if mode > 0 and "scenario_thresholds" in self._tensors else {}),
            **({"KS_EXTRAS": extras} if mode > 0 and (extras := self._task.get("extras", 0)) else {}),
            **({"KS_RECORDS": 1} if mode == _STEP_OF_RECORDS else {}),
            **({"KS_KEEP": 1} if mode > 0 and self._task.get("keep", 0) else {}),
            **({"KS_DECIDE": 1} if mode > 0 and self._task.get("decide", 0) else {}),
            **({"KS_UNWIND": 1} if mode > 0 and self._task.get("unwinds", 0) else {}),
            **(self._task_definitions() if mode > 0 and specialised else {}),
            **(self._own_definitions() if specialised else {}),
            **(self._policies[mode - _ROLLOUTS][0] if mode >= _ROLLOUTS else {}),
        }
        if self._events == 2:
            return chosen | common | self.force
        levers = {"KS_LEVERS": self._levers} if self._levers else {}
        return {"KS_OPTIONS": self._options, **chosen, **levers, **common, **self.force}

    def _compiled(self, mode: int, plan: Any = None) -> tuple[dict[str, int | str], dict[str, str]]:
        """Return what the kernel for a mode is compiled of: definitions, and text of users' classes and policies."""
        included = self._agents_text + (self._policies_text if mode > 0 else "")
        return self._definitions(mode, plan), {"agents": included} if included else {}

    def prepare(self, mode: int) -> tuple:
        """Compile, or find, the kernel for a mode; returns (kernel, grid, block, shared bytes)."""
        if mode not in self._plans:
            plan = self._plan_for(mode)
            if not plan.fits:
                raise EngineUnavailable(
                    f"num_levels: got {self._sizes['L']}, which takes {plan.shared} bytes of a GPU's shared memory per "
                    "block, more than this one has (engine='cpu' has no such limit)"
                )
            defines, text = self._compiled(mode, plan)
            self._specialised |= bool(defines.get("KS_LANES"))
            build.begin_operators()  # which are needed soon, while the kernel is compiled
            kernel = kernels.load_kernel(torch.device("cuda", self._index), defines, **text)
            if mode > 0:
                self._struct.tile = plan.tile
            if mode == _SERIES_RUN and not self._records_further:
                self._records_further = True
                self._launchers.pop(RUN, None)  # so that programs that torch compiles have this kernel, too
            if self._struct.flow_table and self._ticks is None:
                shape = (self._sizes["M"], self._sizes["L"], 2)
                self._ticks = torch.empty(shape, dtype=torch.int32, device=self.device)
                self._struct.flow_ticks = self._ticks.data_ptr()
            if plan.deadlines and self._late is None:
                length = layout.CONSTANTS["kDeadlineCounts"] + 4 * self._sizes["M"]
                self._late = torch.zeros(length, dtype=torch.int32, device=self.device)
                self._struct.deadline_lists = self._late.data_ptr()
            self._plans[mode] = (kernel, plan.blocks, plan.threads, plan.shared)
        return self._plans[mode]

    def _execute(self, mode: int, total_auctions: int) -> None:
        if not self._specialised:
            self._work += self._work_per_auction * self._struct.decisions * self._struct.auctions
            # Not while a CUDA graph is captured: no module can be loaded then.
            if self._work > _WORK_TO_SPECIALISE and not torch.cuda.is_current_stream_capturing():
                self.specialise()
        kind = _SERIES_RUN if self._struct.records > 1 else _kind(mode)
        if mode == ENV_STEP and self._struct.new_quotes:
            kind = _STEP_OF_RECORDS
        kernel, grid, block, shared = self._plans.get(kind) or self.prepare(kind)
        stream = private_torch.current_raw_stream(self._index)
        if private_torch.current_device() == self._index:
            kernel.launch(grid, block, shared, self._struct, stream)
        else:
            with torch.cuda.device(self._index):
                kernel.launch(grid, block, shared, self._struct, stream)

    def roll_out(
        self,
        policy: Mapping[str, int | str],
        decisions: int,
        auctions: int,
        fields: Mapping[str, int | torch.Tensor | None],
        given: Mapping[str, torch.Tensor],
    ) -> None:
        """Play decisions of some auctions each, whose actions a policy chooses within the launch.

        Args:
            policy: The definitions of its kernel.
            decisions: T.
            auctions: Of each decision.
            fields: Those of `struct Rollout`. The caller answers for their sizes.
            given: `actions` float32 `[M, K, A]` or `choices` int64 `[M, K]`, which each decision of a network is
                written to.
        """
        self._check_task(ENV_STEP, given)
        mode = self._mode_of(policy, fields)
        kernel, grid, block, shared = self._plans.get(mode) or self.prepare(mode)
        struct = self._struct
        struct.env_mode, struct.auctions, struct.records = ENV_STEP, auctions, 0
        growth = self._growth * self._total(ENV_STEP, 1, auctions)  # of one decision: books are read anew in each
        struct.growth = min(growth, INT32_LIMIT - 1)
        for name, tensor in _say_rollout(struct, decisions, fields, given).items():
            setattr(struct.rollout, name, tensor.data_ptr())
        for name, tensor in given.items():
            setattr(struct, name, self._checked(name, tensor, 1, auctions).data_ptr())
        try:
            with torch.cuda.device(self._index):
                kernel.launch(grid, block, shared, struct, private_torch.current_raw_stream(self._index))
        finally:
            struct.rollout = layout.Rollout()
            for name in given:
                setattr(struct, name, self._bound.get(name))

    def _mode_of(self, policy: Mapping[str, int | str], fields: Mapping[str, int | torch.Tensor | None]) -> int:
        """Return the number of a policy's kernel, beside the modes of launches."""
        networks = fields.get("networks")
        alone = isinstance(networks, torch.Tensor) and len(networks) == 1
        kind = (policy, networks.shape[1] if alone else 0)  # one network may be in shared memory
        if kind not in self._policies:
            self._policies.append(kind)
        return _ROLLOUTS + self._policies.index(kind)

    def describe_rollout(
        self,
        policy: Mapping[str, int | str],
        decisions: int,
        auctions: int,
        fields: Mapping[str, int | torch.Tensor],
        given: Mapping[str, torch.Tensor],
        devices: Sequence[int],
    ) -> tuple[operators.Description, list[dict[str, int]]]:
        """Return what `roll_out` would play, as `describe` does, and `shapes`; tensors stand for others of their form.

        What a rollout writes is state, by names such as `rollout.reward`; `networks` and `seed` are tables.
        """
        shapes = self.shapes(self._mode_of(policy, fields), devices)
        said = self.describe(ENV_STEP, auctions)
        tensors = _say_rollout(said.launch, decisions, fields, given)
        read = {f"rollout.{name}": tensors.pop(name) for name in ("networks", "seed")}
        written = {**given, **{f"rollout.{name}": tensor for name, tensor in tensors.items()}}
        return said._replace(state={**said.state, **written}, tables={**said.tables, **read}), shapes

    def describe(self, mode: int, auctions: int = 1) -> operators.Description:
        """See `NativeEngine.describe`."""
        said = super().describe(mode, auctions)
        kept = {} if self._late is None else {"deadline_lists": self._late}
        scratch = {} if self._ticks is None else {"flow_ticks": self._ticks}
        return said._replace(kept=kept, scratch=scratch)

    def shapes(self, mode: int, devices: Sequence[int]) -> list[dict[str, int]]:
        """See `NativeEngine.shapes`; of rollouts, too, by the numbers of their kernels."""
        kind = mode if mode >= _ROLLOUTS else _kind(mode)
        _, grid, block, shared = self.prepare(kind)
        shape = self._shape(RUN if kind == 0 else ENV_STEP) | {"grid": grid, "block": block, "shared": shared}
        defines, text = self._compiled(kind)
        found = []
        for index in devices:
            kernel = kernels.load_kernel(torch.device("cuda", index), defines, **text)
            own = {"function": kernel.function, "context": int(kernel.context), "device": index}
            found.append(shape | own | {"copy_function": 0, "series_function": 0})
        return found

    def _shape(self, mode: int) -> dict[str, int]:
        kernel, grid, block, shared = self.prepare(_kind(mode))
        further = mode == RUN and self._records_further
        return {
            "function": kernel.function,
            "series_function": self.prepare(_SERIES_RUN)[0].function if further else 0,
            "copy_function": kernel.copy_function,
            "launch_on_gpu": driver.address_of("cuLaunchKernel"),
            "push_context": driver.address_of("cuCtxPushCurrent"),
            "pop_context": driver.address_of("cuCtxPopCurrent"),
            "context": int(kernel.context),
            "device": self._index,
            "grid": grid,
            "block": block,
            "shared": shared,
        }

    def copies(self) -> list[torch.Tensor]:
        """See `Engine.copies`; one kernel copies them all."""
        launcher = self._launchers.get(ENV_STEP)
        return super().copies() if launcher is None else launcher.copies()

    def step_at_once(self, given: torch.Tensor) -> bool:
        """Play a step in one C call; see `Engine.step_at_once`."""
        return self._at_once(ENV_STEP, given.data_ptr(), given.nbytes, given.shape[-1])

    def restart(self) -> None:
        """See `Engine.restart`; in one C call, if that way is open."""
        if not self._at_once(ENV_RESTART, 0, 0, 0):
            super().restart()

    def _at_once(self, mode: int, address: int, size: int, stride: int) -> bool:
        """Launch what is prepared for a mode, with input that lies at an address; return whether."""
        launcher = self._launchers.get(mode)
        stream = private_torch.current_raw_stream(self._index)
        if launcher is None or stream != self._raw_stream:
            return False
        if not self._specialised and self._work > _WORK_TO_SPECIALISE:
            return False  # a launch specialises
        code = launcher.step(address, size, stride, stream)
        if code > 0:
            raise RuntimeError(f"cuLaunchKernel: error {code}")
        if code != operators.PLAYED:
            return False
        if not self._specialised:
            self._work += self._work_per_auction * launcher.auctions
        return True
