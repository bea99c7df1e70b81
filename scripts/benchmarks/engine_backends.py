"""The package's own engines as backends of the suite: one launch per run, through `Simulator`."""

from __future__ import annotations

import torch

from kineticsim_env.engines.cuda import CudaEngine
from kineticsim_env.runtime import build, kernels
from kineticsim_env.simulator import Simulator
from scripts.benchmarks.backend import Result, Workload

_NAMES = {"cuda": "CUDA engine", "cpu": "C++", "numpy": "NumPy"}


class Engine:
    """One of the engines."""

    def __init__(self, engine: str, threads: int | None = None) -> None:
        """Choose `"cuda"`, `"cpu"` or `"numpy"`; `"cpu"` uses so many threads, all that torch uses if None."""
        if engine not in _NAMES:
            raise ValueError(f"engine: expected one of {', '.join(map(repr, _NAMES))}, got {engine!r}")
        if threads is not None and (engine != "cpu" or threads < 1):
            raise ValueError(f"threads: expected 1 or more with 'cpu', got {threads} with engine={engine!r}")
        cores = "" if threads is None else f" {threads} core{'s' * (threads > 1)}"
        self.name = _NAMES[engine] + cores
        self.device = "cuda" if engine == "cuda" else "cpu"
        self._engine, self._threads = engine, threads
        self._simulator: Simulator | None = None

    def unavailable(self) -> str | None:
        """Say why it cannot run here and how to get it, or None."""
        if self._engine == "numpy":
            return None
        return kernels.cuda_unavailable() if self._engine == "cuda" else build.cpu_unavailable()

    def prepare(self, workload: Workload) -> None:
        """Allocate, and compile what the engine needs for these shapes."""
        self.close()
        self._simulator = Simulator(workload.config, workload.markets, engine=self._engine, seed=workload.seed)
        self._seed = workload.seed
        if isinstance(self._simulator.engine, CudaEngine):
            self._simulator.specialise()  # as it does by itself in a long run
            self._simulator.engine.prepare(0)
        self.synchronize()

    def reset(self) -> None:
        """Go back to the opening book at step 0."""
        self._prepared().reset(seed=self._seed)

    def run(self, steps: int) -> None:
        """Advance by `steps` auctions in one launch: `Simulator.run` would cut a long one for its progress bar."""
        simulator, threads = self._prepared(), torch.get_num_threads()
        if self._threads is None:
            simulator.engine.launch(0, auctions=steps)
            return
        torch.set_num_threads(self._threads)
        try:
            simulator.engine.launch(0, auctions=steps)
        finally:
            torch.set_num_threads(threads)

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device == "cuda":
            torch.cuda.synchronize(self._prepared().device)

    def result(self) -> Result:
        """Return the end state."""
        simulator = self._prepared()
        simulator.check_errors()
        names = ("bid", "ask", "last_price", "volume", "trades")
        return Result(**{name: getattr(simulator, name).cpu().numpy().copy() for name in names})

    def close(self) -> None:
        """Give memory back."""
        self._simulator = None

    def _prepared(self) -> Simulator:
        if self._simulator is None:
            raise RuntimeError(f"{self.name}: call prepare first")
        return self._simulator
