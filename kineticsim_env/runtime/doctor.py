"""`python -m kineticsim_env doctor`: which engines run here, what the others lack and how to get it."""

import contextlib
import importlib.util
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, cache, cxx, driver, kernels, nvcc, nvrtc, prebuilt

OPTIONAL = ("gymnasium", "pettingzoo", "stable_baselines3", "torchrl", "skrl", "matplotlib")


def diagnose() -> dict[str, Any]:
    """Look at this machine; no engine is compiled. `cpu` and `cuda` are None, or what the engine lacks."""
    compiler, compiler_error = _compiler()
    command, cpu_missing = build.find_cxx(), build.cpu_unavailable() or compiler_error
    cuda_missing = kernels.cuda_unavailable()
    # Entries in a folder that cannot be written are used, too; new builds then go to another folder.
    folders = [folder for folder in dict.fromkeys((cache.wanted_dir(), cache.cache_dir())) if folder]
    return {
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} used",
        "torch": f"{torch.__version__} (CUDA {torch.version.cuda or 'none'})",
        "packages": {name: _version(name) for name in OPTIONAL},
        "sources": str(build.cuda_dir()),
        "source_hash": build.source_hash(),
        "cpu": cpu_missing,
        "prebuilt": prebuilt.kind_of_this_processor() if build.is_prebuilt() else None,
        "no_compiler": cxx.cpu_unavailable(),
        "compiler": compiler,
        "own_runtime": bool(command) and cpu_missing is None and cxx.holds_a_runtime_of_its_own(command),
        "cuda": cuda_missing,
        "gpu_present": kernels.gpu_present(),
        "gpus": _gpus() if cuda_missing is None else [],
        "driver": _driver_version(),
        "nvrtc": _numbers(nvrtc.version()),
        "nvcc": nvcc.find(),
        "nvcc_unsuitable": nvcc.unsuitable(),
        "builder": _builder(),
        "cxxflags": os.environ.get(cxx.EXTRA_FLAGS),
        "caches": {str(folder): _cached(folder) for folder in folders},
    }


def report(found: dict[str, Any] | None = None) -> str:
    """Return what `diagnose` finds as text."""
    found = found or diagnose()
    packages = [f"{name} {version}" for name, version in found["packages"].items() if version]
    missing = [name for name, version in found["packages"].items() if not version]
    engine = "cuda" if found["cuda"] is None else "cpu" if found["cpu"] is None else "numpy"
    lines = [
        "kineticsim_env doctor",
        f"  python    {found['python']}",
        f"  system    {found['system']}",
        f"  torch     {found['torch']}",
        f"  packages  {', '.join(packages) or 'none of the optional ones'}",
        *([f"            not installed: {', '.join(missing)}"] if missing else []),
        f"  sources   {found['sources']} (sha256 {found['source_hash'][:12]})",
        *(_cache_line(folder, *counts) for folder, counts in found["caches"].items()),
        "engines",
        f"  numpy     ok, the slow reference (numpy {_version('numpy')})",
        f"  cpu       {_verdict(found['cpu'])}",
        *_prebuilt_lines(found),
        f"            compiler {found['compiler'] or 'not found'}",
        *([f"            {cxx.EXTRA_FLAGS} {found['cxxflags']}"] if found["cxxflags"] else []),
        f"  cuda      {_verdict(found['cuda'])}",
        *(f"            {gpu}" for gpu in found["gpus"]),
        f"            driver {found['driver'] or 'not found'}",
        f"            kernels are compiled by {found['builder']}",
        f"            nvcc {found['nvcc'] or 'not found'}{_why_not(found)}",
        f"            NVRTC {found['nvrtc'] or 'not found'}",
        f'engine="auto" takes {engine}',
    ]
    if found["gpu_present"] and found["cuda"] is not None:
        lines.append(f"WARNING: there is a GPU, but it cannot be used: {found['cuda']}")
    if found["own_runtime"]:
        lines.append(
            "WARNING: the compiler links the C++ library statically, so an error in the C++ engine's operators can end "
            "the process; set CXX to one that does not (CXX=/usr/bin/g++)"
        )
    return "\n".join(lines)


def main() -> int:
    """Print the report. Return 0 if a compiled engine can be used, else 1."""
    found = diagnose()
    print(report(found))
    return 0 if found["cpu"] is None or found["cuda"] is None else 1


def _prebuilt_lines(found: dict[str, Any]) -> list[str]:
    if found["prebuilt"] is None:
        return []
    return [
        f"            prebuilt, for {found['prebuilt']}, as {found['no_compiler']}",
        "            without one there are no traders and policies of your own here, and torch compiles no steps",
    ]


def _verdict(missing: str | None) -> str:
    return "ok" if missing is None else f"unavailable: {missing}"


def _version(name: str) -> str | None:
    if importlib.util.find_spec(name) is None:
        return None
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "(unknown version)"


def _compiler() -> tuple[str | None, str | None]:
    """Return the compiler with its version, and why it does not run."""
    command = build.find_cxx()
    try:
        return (f"{command}: {build.compiler_version(command)}" if command else None), None
    except EngineUnavailable as error:
        return command, str(error)


def _gpus() -> list[str]:
    gpus = []
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        memory = gpu.total_memory / 2**30
        gpus.append(f"cuda:{index} {gpu.name}, sm_{gpu.major}{gpu.minor}, {memory:.0f} GiB")
    return gpus


def _numbers(version: tuple[int, int] | None) -> str | None:
    return f"{version[0]}.{version[1]}" if version else None


def _builder() -> str:
    """Return what compiles kernels here, or why nothing does."""
    try:
        return str(kernels.choose_builder())
    except (EngineUnavailable, ValueError) as error:
        return f"nothing: {error}"


def _why_not(found: dict[str, Any]) -> str:
    return f" ({found['nvcc_unsuitable']})" if found["nvcc"] and found["nvcc_unsuitable"] else ""


def _driver_version() -> str | None:
    if (version := driver.version()) is None:
        return None
    try:
        name = Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        name = "libcuda"
    return f"{name}, for CUDA up to {version[0]}.{version[1]}"


def _cached(folder: Path) -> tuple[int, int, int]:
    """Return the number of builds in a cache, of those among them that will not be used, and the bytes of all files."""
    builds = flawed = size = 0
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            with contextlib.suppress(OSError):  # another process builds, say
                size += path.lstat().st_size
            if path.parent == folder and path.suffix in (".so", ".cubin"):
                builds += 1
                try:
                    cache.read_entry(path)
                except cache.Flawed:
                    flawed += 1
    return builds, flawed, size


def _cache_line(folder: str, builds: int, flawed: int, size: int) -> str:
    text = f"  cache     {folder}: {builds - flawed} builds, {size / 1e6:.1f} MB (delete the folder to build anew)"
    return text + (f"; {flawed} more that cannot be trusted and will be built again" if flawed else "")
