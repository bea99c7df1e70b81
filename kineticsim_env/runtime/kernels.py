"""CUDA kernels: compiled when first needed, kept in the cache, loaded once in a process. `load_kernel` is the way in.

Two builders compile the same sources, for the same targets (`build`). Where nvcc is found, torch's loader builds each
variant as a shared library (`nvcc`). Else NVRTC compiles it to a cubin (`nvrtc`); it needs no toolkit and no host
compiler. Either way a kernel is a `CUfunction` in the end, which NVIDIA's `cuda.bindings` describes and launches
(`driver`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, driver, nvcc, nvrtc, private_torch
from kineticsim_env.runtime.cache import notice, obtain
from kineticsim_env.runtime.driver import Kernel

MIN_CAPABILITY = (7, 5)
BUILDERS = ("nvcc", "nvrtc")
BUILDER_VARIABLE = "KINETICSIM_CUDA_BUILDER"
KERNELS = "kernels"  # one is built at a time: torch's loader takes PATH from the environment


class Builder(NamedTuple):
    """One way to compile kernels: `name` is one of `BUILDERS`, `version` (major, minor, ...), `path` nvcc's."""

    name: str
    version: tuple[int, ...]
    path: str = ""

    def __str__(self) -> str:
        """Return what the doctor prints."""
        return f"{self.name} {self.version[0]}.{self.version[1]}{f' ({self.path})' if self.path else ''}"


def gpu_present() -> bool:
    """Return whether this machine has an NVIDIA GPU, be it usable or not."""
    return any(os.path.exists(path) for path in ("/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg"))


def choose_builder(wanted: str | None = None) -> Builder:
    """Return the builder that is wanted, or that KINETICSIM_CUDA_BUILDER names, else nvcc if it can serve, else NVRTC.

    Args:
        wanted: One of `BUILDERS`, whatever the variable says; None if any will do.

    Raises:
        ValueError: If the variable names another one.
        EngineUnavailable: Saying what is missing and how to get it.
    """
    forced = wanted or os.environ.get(BUILDER_VARIABLE)
    if forced is not None and forced not in BUILDERS:
        raise ValueError(f"{BUILDER_VARIABLE}: expected one of {', '.join(BUILDERS)}, got {forced!r}")
    unsuitable = nvcc.unsuitable() if forced != "nvrtc" else "NVRTC was asked for"
    if unsuitable is None:
        path = nvcc.find()
        assert path is not None
        return Builder("nvcc", nvcc.version(path), path)
    if forced == "nvcc":
        raise EngineUnavailable(unsuitable)
    if (version := nvrtc.version()) is not None:
        return Builder("nvrtc", version)
    driver.bindings()  # says if it is they that are missing
    major = (torch.version.cuda or "13").split(".")[0]
    package = "nvidia-cuda-nvrtc" if int(major) >= 13 else f"nvidia-cuda-nvrtc-cu{major}"
    raise EngineUnavailable(f"{unsuitable}, and NVRTC is not found (pip install '{package}=={torch.version.cuda}.*')")


def cuda_unavailable() -> str | None:
    """Return why CUDA cannot be used and what mends it, or None if it can. Initialises CUDA where there is a GPU."""
    if not sys.platform.startswith("linux"):
        return "the CUDA engine needs Linux or WSL"
    if torch.version.cuda is None and not gpu_present():
        return f"no NVIDIA GPU is found, and torch {torch.__version__} is built without CUDA"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA (pip install --force-reinstall torch)"
    if private_torch.is_forked():
        return "this process was forked from one that used CUDA (use the spawn start method)"
    if not torch.cuda.is_available():
        if gpu_present():
            return f"torch's CUDA {torch.version.cuda} finds no usable GPU (nvidia-smi shows the driver; update it)"
        return "no NVIDIA GPU is found"
    capability = max(torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count()))
    if capability < MIN_CAPABILITY:
        return f"the GPU's compute capability is {capability[0]}.{capability[1]}, and 7.5 is needed"
    try:
        choose_builder()
        driver.bindings()
    except EngineUnavailable as error:
        return str(error)
    return None


def load_kernel(
    device: torch.device,
    defines: Mapping[str, int | str],
    source: str = build.KERNEL_SOURCE,
    entry: str = build.ENTRY,
    agents: str = "",
) -> Kernel:
    """Return a variant of a kernel on a device, from this process, from the cache, or compiled now.

    Call it before a CUDA graph is captured: a module cannot be loaded during capture. `source` is the kernel's file
    below `build.cuda_dir()`, `entry` its `extern "C"` name there, and `agents` the text of agents' classes that it
    includes (agents/programs.py).
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    key = (index, source, entry, agents, *sorted(defines.items()))
    return build.loaded(key) or build.once(key, lambda: _load(index, defines, source, entry, agents), KERNELS)


def _load(index: int, defines: Mapping[str, int | str], source: str, entry: str, agents: str) -> Kernel:
    if missing := cuda_unavailable():
        raise EngineUnavailable(missing)
    builder = choose_builder()
    try:
        return _load_with(builder, index, defines, source, entry, agents)
    except EngineUnavailable as error:
        version = nvrtc.version()
        if builder.name == "nvrtc" or version is None or os.environ.get(BUILDER_VARIABLE):
            raise
        notice(f"using NVRTC: {error}")
        return _load_with(Builder("nvrtc", version), index, defines, source, entry, agents)


def _load_with(
    builder: Builder, index: int, defines: Mapping[str, int | str], source: str, entry: str, agents: str
) -> Kernel:
    major, minor = torch.cuda.get_device_capability(index)
    arch = 10 * major + minor
    compiler = (*builder, builder.path and os.stat(builder.path).st_mtime_ns)
    variant = (source, sorted(defines.items()), *([agents] if agents else []))
    key = build.key(torch.__version__, torch.version.cuda, compiler, arch, build.source_hash(), *variant)

    def make(folder: Path) -> bytes:
        notice(f"compiling the CUDA kernel for sm_{arch} with {builder.name}, seconds (cached in {folder.parent})")
        if builder.name == "nvcc":
            return nvcc.build_kernel(arch, defines, folder, builder.path, source, agents)
        return nvrtc.compile_kernel(arch, defines, source, agents)

    with torch.cuda.device(index):
        torch.zeros(1, device="cuda")  # makes the device's primary context, and makes it current
        if builder.name == "nvcc":
            return obtain(f"kernel-sm_{arch}-{key}.so", lambda path, _: Kernel(*nvcc.open_library(path, entry)), make)
        return obtain(f"kernel-sm_{arch}-{key}.cubin", lambda _, image: Kernel(*nvrtc.load_image(image, entry)), make)
