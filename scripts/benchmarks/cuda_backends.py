"""The CUDA baselines of `cuda/baselines`: a thread per market, the paper's block per market, and the hash alone.

They are compiled and launched as the engine's kernel is, and their launches take `struct BaselineLaunch`, which is read
from `cuda/baselines/layout.h`. All memory is torch's, so its allocator knows the peak.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from kineticsim_env.engines.parameters import class_counts, parameter_rows
from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, kernels, layout
from scripts.benchmarks.backend import Result, Workload
from scripts.benchmarks.timing import by_events

_TEXT = (build.cuda_dir() / "baselines" / "layout.h").read_text()
LAUNCH_FIELDS = layout.parse_struct(_TEXT, "BaselineLaunch")
BaselineLaunch = layout.structure("BaselineLaunch", LAUNCH_FIELDS, {})
_PARAMETERS = "max_order_qty noise_spread market_order_threshold maker_half_spread first_momentum first_maker".split()


class _CudaBackend:
    """What both baselines share: memory, the opening book, the end state."""

    name: str
    device = "cuda"
    _source: str
    _entry: str
    _levels_first: bool  # whether the book is [L, M]
    _scratch: tuple[str, ...]
    _max_levels: int

    def __init__(self, index: int | None = None) -> None:
        """Take GPU `index`, or torch's current one."""
        self._index = index
        self._tensors: dict[str, torch.Tensor] = {}
        self._struct = BaselineLaunch()

    def unavailable(self) -> str | None:
        """Say why it cannot run here and how to get it, or None."""
        return kernels.cuda_unavailable()

    def prepare(self, workload: Workload) -> None:
        """Allocate and compile for a workload's shapes.

        Raises:
            EngineUnavailable: If there is no CUDA, or the workload has more levels than the kernel can have.
        """
        config = workload.config
        rows = parameter_rows(config, 1, class_counts(config, 1), {})
        parameters = {name: int(values[0]) for name, values in rows.items()}
        self.prepare_parameters(workload.markets, workload.levels, workload.agents, workload.seed, parameters)

    def prepare_parameters(
        self, markets: int, levels: int, agents: int, seed: int, parameters: Mapping[str, int]
    ) -> None:
        """Prepare for parameters by their names in `struct MarketParams`, and grids of any length."""
        if missing := self.unavailable():
            raise EngineUnavailable(missing)
        if levels > self._max_levels:
            raise EngineUnavailable(f"{self.name}: expected up to {self._max_levels} levels, got {levels}")
        self.close()
        self._open(levels)
        self._sizes = {"M": markets, "L": levels, "A": agents}
        self._parameters = parameters
        names = ("bid", "ask", "prev_mid2", "last_tick", "volume", "trades", *self._scratch)
        shapes = {name: LAUNCH_FIELDS[name].shape(self._sizes) for name in names if LAUNCH_FIELDS[name].dims}
        shapes["bid"] = shapes["ask"] = (levels, markets) if self._levels_first else (markets, levels)
        self._struct = BaselineLaunch(markets=markets, seed=seed, agents=agents)
        for name in names:
            tensor = torch.empty(shapes[name], dtype=LAUNCH_FIELDS[name].dtype, device=self._device)
            self._tensors[name] = tensor
            setattr(self._struct, name, tensor.data_ptr())
        for name in _PARAMETERS:
            setattr(self._struct, name, parameters[name])
        if "agent_types" in self._tensors:
            types = self._tensors["agent_types"]
            types.zero_()
            types[:, parameters["first_momentum"] :] = 1
            types[:, parameters["first_maker"] :] = 2
        self.reset()
        self.synchronize()

    def _open(self, levels: int) -> None:
        index = torch.cuda.current_device() if self._index is None else self._index
        self._device = torch.device("cuda", index)
        self._multiprocessors = torch.cuda.get_device_properties(index).multi_processor_count
        self._kernel = kernels.load_kernel(self._device, {"KS_LEVELS": levels}, self._source, self._entry)

    def _stream(self) -> int:
        return torch.cuda.current_stream(self._device).cuda_stream

    def _by_tick(self, side: str) -> torch.Tensor:
        """Return a side of the book as a view `[L, M]`."""
        return self._tensors[side] if self._levels_first else self._tensors[side].T

    def reset(self) -> None:
        """Go back to the opening book at step 0."""
        start, depth = self._parameters["init_price"], self._parameters["init_depth"]
        for name in ("bid", "ask", "volume", "trades"):
            self._tensors[name].zero_()
        self._by_tick("bid")[start - 1] = depth
        self._by_tick("ask")[start + 1] = depth
        self._tensors["prev_mid2"].fill_(2 * start)
        self._tensors["last_tick"].fill_(start)
        self._struct.first_step = 0

    def load_book(self, bid: np.ndarray, ask: np.ndarray) -> None:
        """Replace the books of all markets by int32 `[M, L]`."""
        for side, values in (("bid", bid), ("ask", ask)):
            self._by_tick(side).copy_(torch.from_numpy(np.ascontiguousarray(values.T, dtype=np.int32)))

    def run(self, steps: int) -> None:
        """Advance by `steps` auctions; returns before the device is done."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self._device)

    def result(self) -> Result:
        """Return the end state."""
        host = {name: self._tensors[name].cpu().numpy() for name in ("bid", "ask", "last_tick", "volume", "trades")}
        if self._levels_first:
            host |= {side: np.ascontiguousarray(host[side].T) for side in ("bid", "ask")}
        return Result(host["bid"], host["ask"], host["last_tick"], host["volume"], host["trades"])

    def close(self) -> None:
        """Give memory back."""
        self._tensors = {}
        self._struct = BaselineLaunch()


class NaiveCuda(_CudaBackend):
    """One thread per market, the book in global memory, one launch per step."""

    name = "naive CUDA"
    _source, _entry = "baselines/naive.cu", "ks_naive_step"
    _levels_first, _scratch, _max_levels = True, ("orders",), 8192

    def run(self, steps: int) -> None:
        """Advance by `steps` auctions, one launch each; returns before the device is done."""
        kernel, struct, stream, markets = self._kernel, self._struct, self._stream(), self._sizes["M"]
        block = 32 if markets <= 1024 * self._multiprocessors else 128  # so that few markets use them all
        grid, struct.steps = -(-markets // block), 1
        for _ in range(steps):
            kernel.launch(grid, block, 0, struct, stream)
            struct.first_step += 1


class PaperBlock(_CudaBackend):
    """The paper's kernel after its Algorithm 1: one block per market, one thread per tick, all steps in one launch."""

    name = "paper's kernel"
    _source, _entry = "baselines/paper_block.cu", "ks_paper_block"
    _levels_first, _scratch, _max_levels = False, ("agent_types",), 1024

    def run(self, steps: int) -> None:
        """Advance by `steps` auctions in one launch; returns before the device is done."""
        markets, levels, struct = self._sizes["M"], self._sizes["L"], self._struct
        struct.steps = steps
        self._kernel.launch(markets, levels, 32 * levels + 8, struct, self._stream())  # 8: the best bid and ask
        struct.first_step += steps


def hash_sums(device: torch.device, markets: int, agents: int, steps: int, seed: int = 0) -> tuple[torch.Tensor, float]:
    """Xor the random words of all agents and steps of each market, one thread per market, alone on the GPU.

    Returns:
        int64 `[markets]`, and the seconds that it took at best of five, after a launch to warm up.
    """
    if missing := kernels.cuda_unavailable():
        raise EngineUnavailable(missing)
    kernel = kernels.load_kernel(device, {}, "baselines/hash_ceiling.cu", "ks_hash_ceiling")
    sums = torch.empty(markets, dtype=torch.int64, device=device)
    struct = BaselineLaunch(markets=markets, seed=seed, steps=steps, agents=agents, hashes=sums.data_ptr())
    seconds = []
    with torch.cuda.device(device):
        stream = torch.cuda.current_stream()
        for _ in range(6):
            seconds.append(by_events(lambda: kernel.launch(-(-markets // 256), 256, 0, struct, stream.cuda_stream)))
    return sums, min(seconds[1:])


def hash_ceiling(device: torch.device | str = "cuda") -> float:
    """Measure how many of the model's random words per second a GPU makes when it does nothing else."""
    device = torch.device(device)
    # 8 waves of 2048 threads per multiprocessor (more where one holds fewer): tens of milliseconds per launch.
    markets, agents, steps = 8 * 2048 * torch.cuda.get_device_properties(device).multi_processor_count, 256, 64
    return markets * agents * steps / hash_sums(device, markets, agents, steps)[1]
