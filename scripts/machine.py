"""What a reader of a measurement needs to know of the machine: hardware, driver, versions, clocks.

All that measures calls it: benchmarks, pages, the fuzzers and the GPU report.
"""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from kineticsim_env import __version__
from kineticsim_env.runtime import build

_CLOCKS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.limit", "temperature.gpu")
_PASSING = ("date", "clocks", "clocks_after", "rules")  # differ from call to call on the same machine


def describe() -> dict[str, Any]:
    """Return the machine as it is now; the clocks are those of this moment."""
    gpu = torch.cuda.get_device_properties(0) if torch.cuda.is_available() else None
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpu": gpu.name if gpu else None,
        "compute_capability": f"{gpu.major}.{gpu.minor}" if gpu else None,
        "gpu_memory_bytes": gpu.total_memory if gpu else None,
        "driver": _ask_gpu("driver_version").get("driver_version") if gpu else None,
        "clocks": _ask_gpu(*_CLOCKS) if gpu else {},
        "cpu": processor(),
        "cpu_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "numpy": metadata.version("numpy"),
        "jax": _version("jax"),
        "kineticsim_env": __version__,
        "cuda_sha256": build.source_hash(),
    }


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Say whether two descriptions are of one machine with the same software."""
    names = (set(first) | set(second)) - set(_PASSING)
    return all(first.get(name) == second.get(name) for name in names)


def device_name(machine: dict[str, Any], device: str) -> str:
    """Return what a row calls its device."""
    return machine["gpu" if device == "cuda" else "cpu"]


def clocks() -> dict[str, str]:
    """Return the GPU's clocks, power limit and temperature as the driver states them, empty without a GPU."""
    return _ask_gpu(*_CLOCKS) if torch.cuda.is_available() else {}


def _ask_gpu(*fields: str) -> dict[str, str]:
    if shutil.which("nvidia-smi") is None:
        return {}
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader", "--id=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {}
    return dict(zip(fields, (value.strip() for value in done.stdout.splitlines()[0].split(",")), strict=False))


def processor() -> str:
    """Return what the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
