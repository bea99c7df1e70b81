"""`CudaEngine`: the persistent kernel on one GPU, in the variant that its markets need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from kineticsim_env.config import MAX_QUOTE_QTY
from kineticsim_env.engines import operators
from kineticsim_env.engines.base import ENV_STEP
from kineticsim_env.engines.native import NativeEngine
from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import kernels, layout

# Agent-events after which the CUDA engine compiles a kernel for its own parameters: about half a second of one H200,
# which the compilation takes too, so that it costs at most as much again as was spent by then.
_WORK_TO_SPECIALISE = 2 * 10**11
_MOST_LANE_ROOM = 64  # ticks: beyond that lanes would walk too far
_LANE_WARPS = 8  # with an environment on each lane, at least so many should fit on a multiprocessor,
_LANE_MARKETS = 128  # and there should be so many environments for each: with fewer, lanes are too slow (measured)
_RESERVED = 1024  # bytes of shared memory that CUDA takes for each block
_BLOCKS = 5  # of an environment on a multiprocessor: KS_BLOCKS in cuda/persistent_kernel.cu


class CudaEngine(NativeEngine):
    """The persistent kernel on one GPU, launched on torch's current stream, without synchronisation."""

    name = "cuda"

    def __init__(self, device: torch.device, sizes: Mapping[str, int], tensors: Mapping[str, torch.Tensor]) -> None:
        """Bind to tensors on a CUDA device; see `NativeEngine`. Kernel variants are compiled when first needed."""
        super().__init__(device, sizes, tensors)
        self._index = torch.cuda.current_device() if device.index is None else device.index
        properties = torch.cuda.get_device_properties(self._index)
        self._multiprocessors = properties.multi_processor_count
        self._shared_memory = getattr(properties, "shared_memory_per_multiprocessor", 0)
        self._plans: dict[int, tuple] = {}
        self._work, self._specialised = 0, False
        self._changing: set[str] = set()  # parameters that were set more than once, to different values
        self._stream: torch.cuda.Stream | None = None  # of the last call
        self._changing_task: set[str] = set()  # settings of the task likewise
        self.force: dict[str, int] = {}  # extra or changed definitions, for tests and measurements
        self._raw_stream = -1  # that of the last call, by its number

    def begin_call(self) -> None:
        """See `Engine.begin_call`; order what this call launches behind the last one, if it comes on another stream."""
        super().begin_call()
        if torch._C._cuda_getCurrentRawStream(self._index) == self._raw_stream:
            return
        stream = torch.cuda.current_stream(self._index)
        # A stream that is captured may not wait for others; torch waits for the whole device before a capture.
        if self._stream is not None and not torch.cuda.is_current_stream_capturing():
            stream.wait_stream(self._stream)
        self._stream, self._raw_stream = stream, stream.cuda_stream

    def _plan(self, rows: Mapping[str, np.ndarray]) -> bool:
        """See `NativeEngine._plan`; a variant without options is used while no market has any."""
        before = getattr(self, "_rows", rows)  # what a reset draws anew is no constant, or each reset would compile
        # Scenarios' values change in a table that stays; the first of them come in another number of rows.
        if self._scenarios is None and len(rows["fee"]) == len(before["fee"]):
            self._changing |= {name for name in layout.PARAMS_FIELDS if not np.array_equal(rows[name], before[name])}
        was = [self._definitions(mode) for mode in (0, 1)] if before is not rows else None
        super()._plan(rows)
        names = ("walk_threshold", "jump_threshold", "cancel_threshold", "window", "tie", "residue")
        self._options = int(any(np.any(rows[name] != 0) for name in names))
        self._reach = max(1, int(rows["noise_spread"].max()), int(rows["maker_half_spread"].max()))
        self._agents = int((rows["first_fundamental"] + rows["num_fundamental"]).max())
        self._plans = {}
        self._work, self._step_work = 0, self._sizes["M"] * self._agents
        return was == [self._definitions(mode) for mode in (0, 1)]

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
        values = ((name, self._rows[name]) for name in layout.PARAMS_FIELDS)
        constants = [
            str(int(value[0])) if np.all(value == value[0]) and name not in self._changing else f"row.{name}"
            for name, value in values
        ]
        return {"KS_PARAMETERS": ",".join(constants), "KS_LEVELS": self._sizes["L"]}

    def set_task(self, task: Mapping[str, Any]) -> None:
        """See `NativeEngine.set_task`; settings that stay as they were first set become constants, too."""
        before = dict(self._task)
        super().set_task(task)
        changed = {name for name, value in task.items() if name in before and before[name] != value}
        fresh = changed - self._changing_task or not before
        self._changing_task |= changed
        if self._specialised and fresh:
            modes = [mode for mode in self._plans if mode != 0]
            self._plans = {mode: plan for mode, plan in self._plans.items() if mode == 0}
            for mode in modes:
                self.prepare(mode)

    def _task_definitions(self) -> dict[str, int | str]:
        """Return what is constant of the task: its integers, as one assignment, and the role that all slots have."""
        constants, defines = [], {}
        for name, value in self._task.items():
            if name in self._changing_task:
                continue
            if not layout.TASK_FIELDS[name].length and isinstance(value, (bool, int, np.integer)):
                constants.append(f"task.{name}={int(value)}")
            elif name == "role" and len(set(value[: self._sizes["K"]])) == 1:
                defines["KS_ROLE"] = int(value[0])
        return defines | ({"KS_TASK_CONSTANTS": ",".join(constants)} if "KS_ROLE" in defines else {})

    def _definitions(self, mode: int) -> dict[str, int | str]:
        """Return the definitions that the kernel for a mode is compiled with."""
        form = self._form_of_environment() if mode else {}
        # With an environment on each lane it is compiled three times as fast with constants, and so only once.
        specialised = self._specialised or "KS_LANES" in form
        return {
            "KS_TASK": int(mode != 0),
            "KS_BINS": choose_bins(self._reach, self._agents),
            "KS_OPTIONS": self._options,
            "KS_SLOTS": min(self._sizes["K"], 2),
            **form,
            **(self._task_definitions() if mode and specialised else {}),
            **(self._own_definitions() if specialised else {}),
            **self.force,
        }

    def prepare(self, mode: int) -> tuple:
        """Compile, or find, the kernel for a mode; returns (kernel, grid, block, shared bytes)."""
        if mode not in self._plans:
            defines = self._definitions(mode)
            self._specialised |= bool(defines.get("KS_LANES"))
            kernel = kernels.load_kernel(torch.device("cuda", self._index), defines)
            self._plans[mode] = (kernel, *self._choose_shape(defines, kernel.shared_limit))
        return self._plans[mode]

    def _form_of_environment(self) -> dict[str, int | str]:
        """Return what makes a step of single slots short: a warp for each of few, with more registers, or a lane."""
        markets, levels, slots = (self._sizes[name] for name in "MLK")
        if slots != 1:
            return {}
        blocks = -(-markets // (layout.CONSTANTS["kMarketsPerBlock"] * self._multiprocessors))  # on a multiprocessor
        if blocks < _BLOCKS:
            return {"KS_SINGLE": 1, "KS_BLOCKS": max(blocks, 2)}
        room = choose_lane_room(self._reach)
        fit = room and self._shared_memory >= _LANE_WARPS * (_RESERVED + lane_bytes(levels, room))
        many = markets >= _LANE_MARKETS * self._multiprocessors
        return {"KS_LANES": room, "KS_BINS": 0} if fit and many and self._are_short() else {}

    def _are_short(self) -> bool:
        """Return whether quantities are so small that most markets' numbers will fit in 16 bits."""
        largest = max(self._task.get("max_qty", 0), self._task.get("forced_qty", 0))
        largest = min(largest, int(self._rows["max_quote_qty"].max()))
        orders = self._growth - self._sizes["K"] * MAX_QUOTE_QTY
        return orders <= layout.CONSTANTS["kNarrowOrders"] and largest <= layout.CONSTANTS["kNarrowQuote"]

    def _choose_shape(self, defines: Mapping[str, int | str], limit: int) -> tuple[int, int, int]:
        """Choose blocks, threads a block and its shared memory: the first shape that fits the device."""
        markets, levels, slots = (self._sizes[name] for name in "MLK")
        constants, lanes = layout.CONSTANTS, layout.CONSTANTS["kWarpLanes"]
        task = defines["KS_TASK"]
        if task and defines.get("KS_LANES"):
            return -(-markets // lanes), lanes, lane_bytes(levels, int(defines["KS_LANES"]))
        full = choose_tile(markets, slots, self._multiprocessors) if task else 1
        # Large books: blocks of one warp, so that as many as fit are on a multiprocessor.
        per_block = constants["kMarketsPerBlock"] if levels <= 1024 else 1
        book, least = 2 * max(levels, lanes), 0
        if task and self._shared_memory:  # a smaller tile, if all warps that registers suffice for fit in then
            room = self._shared_memory // _BLOCKS // 4 // per_block - _RESERVED // 4 // per_block
            row = constants["kDeskInts"] + constants["kDeskSlotInts"] * slots
            fits = (room - 2 * book - constants["kBinInts"]) // row
            full = fits if full > fits >= full // 2 and fits > 0 else full
        for tile, warps in ((full, per_block), (full, 1), (1, 1)):
            ints = book + constants["kBinInts"]
            if task:
                self._struct.tile = tile
                ints += book + tile * (constants["kDeskInts"] + constants["kDeskSlotInts"] * slots)
            least = 4 * ints * warps
            if least <= limit:
                return -(-markets // (tile * warps)), lanes * warps, least
        raise EngineUnavailable(
            f"num_levels: got {levels}, which takes {least} bytes of a GPU's shared memory; this one has {limit} "
            "(engine='cpu' has no such limit)"
        )

    def _execute(self, mode: int, total_auctions: int) -> None:
        if not self._specialised:
            self._work += self._sizes["M"] * self._agents * total_auctions
            # Not while a CUDA graph is captured: no module can be loaded then.
            if self._work > _WORK_TO_SPECIALISE and not torch.cuda.is_current_stream_capturing():
                self.specialise()
        kind = min(mode, 1)
        kernel, grid, block, shared = self._plans.get(kind) or self.prepare(kind)
        # What torch.cuda.current_stream and current_device wrap, without their checks: CUDA is long initialised.
        stream = torch._C._cuda_getCurrentRawStream(self._index)
        if torch._C._cuda_getDevice() == self._index:
            kernel.launch(grid, block, shared, self._struct, stream)
        else:
            with torch.cuda.device(self._index):
                kernel.launch(grid, block, shared, self._struct, stream)

    def _shape(self, mode: int) -> dict[str, int]:
        """See `NativeEngine._shape`."""
        kernel, grid, block, shared = self.prepare(min(mode, 1))
        return {
            "function": kernel.function,
            "copy_function": kernel.copy_function,
            "launch_on_gpu": kernels.launch_address(),
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
        launcher = self._launchers.get(ENV_STEP)
        stream = torch._C._cuda_getCurrentRawStream(self._index)
        if launcher is None or stream != self._raw_stream:
            return False
        if not self._specialised:
            self._work += self._step_work
            if self._work > _WORK_TO_SPECIALISE:
                return False
        code = launcher.step(given.data_ptr(), given.nbytes, given.shape[-1], stream)
        if code > 0:
            raise RuntimeError(f"cuLaunchKernel: error {code}")
        return code == operators.PLAYED


def choose_bins(reach: int, agents: int) -> int:
    """Choose the number of order bins of the CUDA kernel (cuda/warp/order_flow.cuh).

    Args:
        reach: The furthest that an order which is not marketable can lie from the mid, of all markets.
        agents: The most agents of a market.

    Returns:
        The fewest bins that hold both sides, so that there are most copies of each; 0, orders priced one by one, if
        there are too many offsets for bins, or fewer agents than it takes to make up for pricing the bins.
    """
    needed = 2 * (-(-(2 * reach + 2) // 4) * 4)
    bins = next((bins for bins in (16, 32, 64, 128) if needed <= bins), 0)
    return bins if agents > bins else 0


def choose_lane_room(reach: int) -> int:
    """Choose how many ticks around the mid an environment on a lane has room for; 0 if it would be too many.

    Args:
        reach: As for `choose_bins`: orders lie within it, and the mid may be between two ticks.
    """
    room = 2 * reach + 2
    return room if room <= _MOST_LANE_ROOM else 0


def lane_bytes(levels: int, room: int) -> int:
    """Return the shared memory of a warp with an environment on each lane: `lane_ints` in cuda/lane/environment.cuh."""
    lanes, features = layout.CONSTANTS["kWarpLanes"], layout.CONSTANTS["kObservation"]
    row = levels + layout.CONSTANTS["kRowPadding"]
    narrow = lanes * (row // 2 + max(room + 1, features))
    wide = lanes // 2 * (row + max(2 * (room + 1), features))
    return 4 * max(narrow, wide)


def choose_tile(markets: int, slots: int, multiprocessors: int) -> int:
    """Choose how many environments a warp of the CUDA kernel steps.

    So many that all warps run at a time, 20 on every multiprocessor (5 blocks of 4), and no more slots than a warp has
    lanes.
    """
    return min(-(-markets // (20 * multiprocessors)), layout.CONSTANTS["kWarpLanes"] // max(1, slots))
