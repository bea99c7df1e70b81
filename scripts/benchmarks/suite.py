"""What is measured, and the loop that does it: `python -m kineticsim_env bench` calls `run_suite`.

For every point and every backend: prepare, verify, and only then time. The file is written after each row, so that a
run that was cut off goes on where it was (`resume`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from kineticsim_env.config import MarketConfig
from scripts.benchmarks.backend import Workload
from scripts.benchmarks.environment_rate import EnvironmentSteps
from scripts.benchmarks.measurements import Measurements, Point

PAPER_SWEEPS = ("markets", "agents", "fixed", "latency")
MARKET_SWEEPS = (*PAPER_SWEEPS, "levels", "steps")
ENV_SWEEPS = ("env markets", "env agents")
SWEEPS = (*MARKET_SWEEPS, *ENV_SWEEPS)

# Beyond the paper's sweeps, backends that say little there for the time that they take.
LEFT_OUT = {
    "levels": ("NumPy", "C++ 1 core", "torch eager", "torch.compile"),
    "steps": ("NumPy", "C++ 1 core", "torch eager", "torch.compile"),
}
SLOW_TO_COMPILE = ("torch.compile",)  # in a quick run at the fixed workload only

_QUICK_RUN_SECONDS = 0.2


def points(sweeps: Sequence[str] | None = None, quick: bool = False) -> list[Point]:
    """Return the points of some sweeps, all if None; `quick` is about a minute on a CPU."""
    unknown = [name for name in sweeps or () if name not in SWEEPS]
    if unknown:
        raise ValueError(f"--sweeps: expected one of {', '.join(SWEEPS)}, got {unknown[0]!r}")
    table = _quick_points() if quick else _points()
    return [point for point in table if sweeps is None or point.sweep in sweeps]


def _points() -> list[Point]:
    fixed = Workload(8192)
    return [
        *(Point("markets", Workload(markets)) for markets in (64, 256, 1024, 4096, 16384)),
        Point("latency", Workload(4096), trials=11),
        *(Point("agents", Workload(8192, agents)) for agents in (16, 64, 256, 1024)),
        Point("fixed", fixed),
        *(Point("levels", Workload(8192, levels=levels)) for levels in (32, 64, 128, 256, 512, 1024, 2048, 4096)),
        *(Point("steps", Workload(8192, steps=steps)) for steps in (1, 10, 100, 1000, 10000)),
        *(Point("env markets", _env_workload(markets, 64)) for markets in (1, 64, 1024, 4096, 16384, 65536)),
        *(Point("env agents", _env_workload(16384, agents)) for agents in (16, 32, 64, 128, 256)),
    ]


def _quick_points() -> list[Point]:
    return [
        *(Point("markets", Workload(markets, steps=100), trials=3) for markets in (16, 64, 256)),
        *(Point("agents", Workload(256, agents, steps=100), trials=3) for agents in (16, 1024)),
        Point("fixed", Workload(256, steps=100), trials=3),
        *(Point("levels", Workload(256, levels=levels, steps=100), trials=3) for levels in (32, 512)),
        Point("env markets", _env_workload(256, 64, steps=100), trials=3),
    ]


def _env_workload(markets: int, agents: int, steps: int = 500) -> Workload:
    return Workload(markets, agents, MarketConfig.preset("trading").num_levels, steps)


def all_backends() -> list[Any]:
    """Return every backend, ours first; those that cannot run here say so themselves.

    Imported here, so that `import kineticsim_env` takes none of them.
    """
    from scripts.benchmarks.cuda_backends import NaiveCuda, PaperBlock
    from scripts.benchmarks.engine_backends import Engine
    from scripts.benchmarks.jax_backend import JaxScan
    from scripts.benchmarks.torch_backends import TorchEager, TorchGraphs
    from scripts.benchmarks.torch_compiled import TorchCompile

    engines = [Engine("cuda"), Engine("cpu"), Engine("cpu", threads=1), Engine("numpy")]
    return [*engines, PaperBlock(), NaiveCuda(), TorchGraphs(), TorchCompile(), TorchEager(), JaxScan()]


def environment_backends() -> list[Any]:
    """Return the ways to step the environment, each with the built-in reward and with one in two lines of Python.

    The C++ engine's only where there is no GPU.
    """
    ways = [("cuda", True), ("cuda", False), *([] if torch.cuda.is_available() else [("cpu", False)])]
    return [EnvironmentSteps(device, graph, own) for device, graph in ways for own in (False, True)]


def run_suite(
    output: str | Path,
    *,
    sweeps: Sequence[str] | None = None,
    backends: Sequence[str] | None = None,
    quick: bool = False,
    resume: bool = False,
    run_seconds: float | None = None,
    table: Sequence[Point] | None = None,
    candidates: Sequence[Any] | None = None,
) -> dict[str, Any]:
    """Measure, and write the file.

    Args:
        output: The JSON file. One that exists is refused, unless `resume`.
        sweeps: Names of `SWEEPS`; all if None.
        backends: Names of backends, whatever their case; all if None.
        quick: Take the points that a CPU measures in about a minute.
        resume: Go on with the file: rows that it has are left.
        run_seconds: What one run may take; a backend that would take longer runs fewer steps.
        table: Points to measure in place of the suite's own.
        candidates: Backends in place of `all_backends()` and `environment_backends()`.

    Returns:
        What the file holds.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else JAX takes most of the GPU
    if run_seconds is not None and not run_seconds > 0:
        raise ValueError(f"--run-seconds: expected a number above 0, got {run_seconds}")
    asked = list(table) if table is not None else points(sweeps, quick)
    known = list(candidates) if candidates is not None else [*all_backends(), *environment_backends()]
    chosen = _choose(known, backends)
    suite = Measurements(Path(output), resume, run_seconds or (_QUICK_RUN_SECONDS if quick else None))
    suite.data["backends"] = [backend.name for backend in known]  # the order of the tables
    usable = [backend for backend in chosen if suite.is_usable(backend)]
    tasks = [(point, backend) for point in asked for backend in usable if _belongs(point, backend, quick)]
    waiting = [task for task in tasks if not suite.has(*task)]
    with tqdm(total=len(tasks), initial=len(tasks) - len(waiting), unit="row", file=sys.stderr) as bar:
        for workload in dict.fromkeys(point.workload for point, _ in waiting):
            for backend in usable:
                group = [point for point, other in waiting if other is backend and point.workload == workload]
                if group:
                    bar.set_description(f"{backend.name}, M={workload.markets} A={workload.agents} L={workload.levels}")
                    suite.measure(backend, group)
                    bar.update(len(group))
    if candidates is None and torch.cuda.is_available() and any(backend.device == "cuda" for backend in usable):
        suite.add_ceiling()
    suite.finish()
    return suite.data


def _choose(candidates: Sequence[Any], names: Sequence[str] | None) -> list[Any]:
    if names is None:
        return list(candidates)
    known = {backend.name.lower(): backend for backend in candidates}
    for name in names:
        if name.lower() not in known:
            allowed = ", ".join(backend.name for backend in candidates)
            raise ValueError(f"--backends: expected one of {allowed}, got {name!r}")
    wanted = {name.lower() for name in names}
    return [backend for name, backend in known.items() if name in wanted]


def _belongs(point: Point, backend: Any, quick: bool) -> bool:
    """Say whether a backend is measured at a point: environments in their sweeps only, and what is left out."""
    if quick and backend.name in SLOW_TO_COMPILE and point.sweep != "fixed":
        return False
    if (point.sweep in ENV_SWEEPS) != hasattr(backend, "first_difference"):
        return False
    return backend.name not in LEFT_OUT.get(point.sweep, ())
