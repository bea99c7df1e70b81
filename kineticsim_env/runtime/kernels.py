"""CUDA kernels: compiled when first needed, kept in the cache, loaded once in a process. `load_kernel` is the way in.

Two builders compile the same sources. Where nvcc is found, torch's loader builds each variant as a shared library. Else
NVRTC compiles it to a cubin; it needs no toolkit and no host compiler. Either way a kernel is a `CUfunction` in the
end, which NVIDIA's `cuda.bindings` describes and launches.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, cxx
from kineticsim_env.runtime.cache import notice, obtain

SOURCE, ENTRY, COPY_ENTRY = "persistent_kernel.cu", "ks_market_kernel", "ks_copy_outputs"
MIN_CAPABILITY = (7, 5)
BUILDERS = ("nvcc", "nvrtc")
BUILDER_VARIABLE = "KINETICSIM_CUDA_BUILDER"
_WRONG_CONTEXT = (201, 400)  # CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE

_Arguments = ctypes.c_void_p * 1


class Builder(NamedTuple):
    """One way to compile kernels: `name` is one of `BUILDERS`, `version` (major, minor), `path` nvcc's."""

    name: str
    version: tuple[int, int]
    path: str = ""

    def __str__(self) -> str:
        """Return what the doctor prints."""
        return f"{self.name} {self.version[0]}.{self.version[1]}{f' ({self.path})' if self.path else ''}"


# ---- What is there -------------------------------------------------------------------------------------------------


def gpu_present() -> bool:
    """Return whether this machine has an NVIDIA GPU, be it usable or not."""
    return any(os.path.exists(path) for path in ("/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg"))


def bindings() -> tuple[Any, Any]:
    """Return the modules `cuda.bindings.driver` and `cuda.bindings.nvrtc`. Raises EngineUnavailable without them."""
    try:
        return importlib.import_module("cuda.bindings.driver"), importlib.import_module("cuda.bindings.nvrtc")
    except ImportError as error:
        raise EngineUnavailable("cuda.bindings is not found (pip install cuda-bindings)") from error


def find_nvcc() -> str | None:
    """Return the nvcc that torch's loader takes: of CUDA_HOME or CUDA_PATH, else on PATH, else in /usr/local/cuda."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    folders = [Path(home) / "bin"] if home else []
    if not home and (on_path := shutil.which("nvcc")):
        return on_path
    folders += [] if home else [Path("/usr/local/cuda/bin")]
    return next((str(folder / "nvcc") for folder in folders if os.access(folder / "nvcc", os.X_OK)), None)


@functools.cache
def nvcc_version(path: str) -> tuple[int, int]:
    """Return nvcc's version, as (13, 0). Raises EngineUnavailable if it does not run."""
    try:
        told = subprocess.run([path, "--version"], check=False, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineUnavailable(f"{path} does not run: {error}") from error
    if (found := re.search(r"release (\d+)\.(\d+)", told)) is None:
        raise EngineUnavailable(f"{path} does not tell its version")
    return int(found[1]), int(found[2])


def driver_version() -> tuple[int, int] | None:
    """Return the newest CUDA that the driver serves, as (13, 0), or None if there is no driver."""
    try:
        code, version = bindings()[0].cuDriverGetVersion()
    except (EngineUnavailable, RuntimeError, OSError):
        return None
    return None if int(code) else (version // 1000, version % 1000 // 10)


def nvrtc_version() -> tuple[int, int] | None:
    """Return NVRTC's version, as (13, 0), or None if there is none."""
    try:
        code, major, minor = bindings()[1].nvrtcVersion()
    except (EngineUnavailable, RuntimeError, OSError):
        return None
    return None if int(code) else (major, minor)


def nvcc_unsuitable() -> str | None:
    """Return why nvcc and torch's loader cannot serve here, or None if they can.

    The loader itself asks for none of this: what it built with a toolkit of another CUDA than torch's, or than the
    driver's, would fail when it is loaded, or launch nothing.
    """
    path = find_nvcc()
    if path is None:
        return "nvcc is not found in CUDA_HOME, on PATH or in /usr/local/cuda"
    if missing := cxx.cpu_unavailable():
        return missing
    try:
        major, minor = nvcc_version(path)
    except EngineUnavailable as error:
        return str(error)
    wanted, driver = torch.version.cuda, driver_version()
    if wanted is None or int(wanted.split(".")[0]) != major:
        return f"nvcc is of CUDA {major}.{minor}, and torch of CUDA {wanted or 'none'}"
    if driver is not None and driver[0] < major:
        return f"nvcc is of CUDA {major}.{minor}, and the driver serves up to {driver[0]}.{driver[1]}"
    return None


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
        raise ValueError(f"{BUILDER_VARIABLE}: got {forced!r}, allowed are {', '.join(BUILDERS)}")
    unsuitable = nvcc_unsuitable() if forced != "nvrtc" else "NVRTC was asked for"
    if unsuitable is None:
        path = find_nvcc()
        assert path is not None
        return Builder("nvcc", nvcc_version(path), path)
    if forced == "nvcc":
        raise EngineUnavailable(unsuitable)
    if (version := nvrtc_version()) is not None:
        return Builder("nvrtc", version)
    bindings()  # says if it is they that are missing
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
    if torch.cuda._is_in_bad_fork():
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
        bindings()
    except EngineUnavailable as error:
        return str(error)
    return None


# ---- Compilation ---------------------------------------------------------------------------------------------------


def _target(arch: int, supported: list[int], compiler: str) -> str:
    """Return the target for an architecture: machine code, or PTX for one newer than the compiler."""
    if arch in supported:
        return f"sm_{arch}"
    older = [other for other in supported if other < arch]
    if not older:
        raise EngineUnavailable(f"{compiler} compiles for sm_{min(supported)} and newer, not for this GPU's sm_{arch}")
    return f"compute_{max(older)}"


def _options(defines: Mapping[str, int | str]) -> list[str]:
    """Return what both builders are told: the rules' rounding, where the headers are, and the variant."""
    named = [f"-D{name}={value}" for name, value in sorted(defines.items())]
    return ["--std=c++17", "--fmad=false", "-lineinfo", f"-I{build.cuda_dir()}", *named]


def compile_with_nvrtc(arch: int, defines: Mapping[str, int | str], source: str = SOURCE) -> bytes:
    """Compile a kernel for sm_`arch` to a cubin, or to PTX if NVRTC is too old for it. Needs no GPU.

    Args:
        arch: 90 for compute capability 9.0.
        defines: preprocessor definitions of the variant.
        source: its file below `build.cuda_dir()`.
    """
    nvrtc, path = bindings()[1], build.cuda_dir() / source

    def call(name: str, *arguments: Any) -> Any:
        code, *results = getattr(nvrtc, name)(*arguments)
        if int(code):
            raise RuntimeError(f"NVRTC: {name}: {code.name}")
        return results[0] if results else None

    def get(part: str) -> bytes:
        buffer = b" " * call(f"nvrtcGet{part}Size", program)
        call(f"nvrtcGet{part}", program, buffer)
        return buffer

    target = _target(arch, call("nvrtcGetSupportedArchs"), "NVRTC")
    options = [os.fsencode(option) for option in (f"--gpu-architecture={target}", *_options(defines))]
    program = call("nvrtcCreateProgram", path.read_bytes(), os.fsencode(path), 0, [], [])
    try:
        (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if int(code):
            log = get("ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
            # A log's first error is the one that matters.
            raise EngineUnavailable(f"NVRTC did not compile {path.name} for {target}: {code.name}\n{log[:4000]}")
        return get("CUBIN" if target.startswith("sm_") else "PTX")
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def build_with_nvcc(
    arch: int, defines: Mapping[str, int | str], folder: Path, nvcc: str, source: str = SOURCE
) -> bytes:
    """Build a kernel for sm_`arch` as a shared library by torch's loader and return it; the arguments as above.

    Args:
        arch: 90 for compute capability 9.0.
        defines: preprocessor definitions of the variant.
        folder: a folder to work in.
        nvcc: which nvcc that is, to ask for its architectures.
        source: its file below `build.cuda_dir()`.
    """
    from torch.utils import cpp_extension

    listed = subprocess.run([nvcc, "--list-gpu-code"], check=False, capture_output=True, text=True).stdout
    target = _target(arch, [int(code) for code in re.findall(r"sm_(\d+)\b", listed)] or [arch], nvcc)
    virtual = f"compute_{target.rpartition('_')[2]}"
    # A name of its own: the loader takes a name that it has built before for built. A comma ends an option of nvcc.
    name = f"ks_kernel_{secrets.token_hex(8)}"
    flags = ["-O3", f"-gencode=arch={virtual},code={target}"]
    flags += [cxx.quote(option.replace(",", "\\,")) for option in _options(defines)]
    with build.on_path(cxx.search_path()):
        try:
            cpp_extension.load(
                name,
                [str(build.cuda_dir() / source)],
                extra_cuda_cflags=flags,
                build_directory=str(folder),
                with_cuda=True,
                is_python_module=False,
            )
        except Exception as error:
            text = cxx.tail(str(error), 40)
            raise EngineUnavailable(f"{nvcc} and torch's loader did not build {source}:\n{text}") from error
    return (folder / f"{name}.so").read_bytes()


# ---- Loading -------------------------------------------------------------------------------------------------------


def load_kernel(
    device: torch.device, defines: Mapping[str, int | str], source: str = SOURCE, entry: str = ENTRY
) -> Kernel:
    """Return a variant of a kernel on a device, from this process, from the cache, or compiled now.

    Call it before a CUDA graph is captured: a module cannot be loaded during capture.

    Args:
        device: the GPU.
        defines: preprocessor definitions of the variant.
        source: the kernel's file below `build.cuda_dir()`.
        entry: its `extern "C"` name in there.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    key = (index, source, entry, *sorted(defines.items()))
    return build.loaded(key) or build.once(key, lambda: _load(index, defines, source, entry))


def _load(index: int, defines: Mapping[str, int | str], source: str, entry: str) -> Kernel:
    if missing := cuda_unavailable():
        raise EngineUnavailable(missing)
    builder = choose_builder()
    try:
        return _load_with(builder, index, defines, source, entry)
    except EngineUnavailable as error:
        version = nvrtc_version()
        if builder.name == "nvrtc" or version is None or os.environ.get(BUILDER_VARIABLE):
            raise
        notice(f"using NVRTC: {error}")
        return _load_with(Builder("nvrtc", version), index, defines, source, entry)


def _load_with(builder: Builder, index: int, defines: Mapping[str, int | str], source: str, entry: str) -> Kernel:
    major, minor = torch.cuda.get_device_capability(index)
    arch = 10 * major + minor
    compiler = (*builder, builder.path and os.stat(builder.path).st_mtime_ns)
    variant = (source, sorted(defines.items()))
    key = build.key(torch.__version__, torch.version.cuda, compiler, arch, build.source_hash(), *variant)

    def make(folder: Path) -> bytes:
        notice(f"compiling the CUDA kernel for sm_{arch} with {builder.name}, seconds (cached in {folder.parent})")
        if builder.name == "nvcc":
            return build_with_nvcc(arch, defines, folder, builder.path, source)
        return compile_with_nvrtc(arch, defines, source)

    with torch.cuda.device(index):
        torch.zeros(1, device="cuda")  # makes the device's primary context, and makes it current
        if builder.name == "nvcc":
            return obtain(f"kernel-sm_{arch}-{key}.so", lambda path, _: Kernel(*_open_library(path, entry)), make)
        return obtain(f"kernel-sm_{arch}-{key}.cubin", lambda _, image: Kernel(*_load_image(image, entry)), make)


def _open_library(path: Path, entry: str) -> tuple[int, int]:
    """Return the functions of a library that nvcc built, on the current device: the kernel, and the one that copies."""
    library = ctypes.CDLL(str(path))
    functions = []
    try:
        for name in (entry, COPY_ENTRY):
            find = getattr(library, f"{name}_function", None)
            function = ctypes.c_void_p()
            if find is None and name == entry:
                raise OSError(f"{entry} not found in it")
            if find is not None and (code := find(ctypes.byref(function))):
                raise RuntimeError(f"cudaGetFuncBySymbol({name}): error {code}")
            functions.append(function.value or 0)
    except (OSError, RuntimeError):
        build.close_library(library)
        raise
    return functions[0], functions[1]


def _load_image(image: bytes, entry: str) -> tuple[int, int]:
    """Return the same of a cubin or of PTX. The module stays loaded: a captured CUDA graph may outlive all objects."""
    driver = bindings()[0]
    module = check(driver.cuModuleLoadData(image if image.endswith(b"\0") else image + b"\0"), "cuModuleLoadData")
    function = check(driver.cuModuleGetFunction(module, entry.encode()), f"cuModuleGetFunction({entry})")
    code, copies = driver.cuModuleGetFunction(module, COPY_ENTRY.encode())
    return int(function), 0 if int(code) else int(copies)


def check(result: tuple[Any, ...], call: str) -> Any:
    """Return what a driver's call gave, or raise RuntimeError with its name."""
    code, *values = result
    if int(code):
        raise RuntimeError(f"{call}: {code.name} ({int(code)})")
    return values[0] if values else None


@functools.cache
def driver_call(name: str) -> int:
    """Return the address of one of the driver's functions, such as cuLaunchKernel, for C++ to call."""
    found = bindings()[0].cuGetProcAddress(name.encode(), 12000, 0)
    return int(check(found[:2], f"cuGetProcAddress({name})"))


class Kernel:
    """A kernel on one device, launched with one struct by value.

    Make it with the device's primary context current.

    Attributes:
        function: Its CUfunction.
        copy_function: That of the kernel that copies outputs, 0 if there is none with it.
        context: The CUcontext that it is of.
        num_registers: Registers per thread.
        local_bytes: Local memory per thread.
        shared_limit: The most dynamic shared memory per block that a launch may ask for.
    """

    def __init__(self, function: int, copy_function: int) -> None:
        """Describe a function, and let it have all the shared memory that there is."""
        driver = bindings()[0]
        attribute, device_attribute = driver.CUfunction_attribute, driver.CUdevice_attribute
        self.function, self.copy_function = function, copy_function
        self._driver, self._handle = driver, driver.CUfunction(function)
        self.num_registers = self._get(attribute.CU_FUNC_ATTRIBUTE_NUM_REGS)
        self.local_bytes = self._get(attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
        self.static_shared_bytes = self._get(attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        device = check(driver.cuCtxGetDevice(), "cuCtxGetDevice")
        optin = device_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        limit = check(driver.cuDeviceGetAttribute(optin, device), "cuDeviceGetAttribute")
        self.shared_limit = limit - self.static_shared_bytes
        # Without this a launch may ask for 48 KiB only. It takes nothing from a launch that asks for less.
        largest = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check(driver.cuFuncSetAttribute(self._handle, largest, self.shared_limit), "cuFuncSetAttribute")
        self.context = check(driver.cuCtxGetCurrent(), "cuCtxGetCurrent")

    def _get(self, attribute: Any) -> int:
        return check(self._driver.cuFuncGetAttribute(attribute, self._handle), "cuFuncGetAttribute")

    def max_blocks_per_sm(self, block: int, shared_bytes: int) -> int:
        """Return how many blocks of this size one multiprocessor holds at a time."""
        call = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        return check(getattr(self._driver, call)(self._handle, block, shared_bytes), call)

    def launch(self, grid: int, block: int, shared_bytes: int, arg: ctypes.Structure, stream: int) -> None:
        """Launch on a stream of this kernel's device and return at once; `arg` is copied before the return.

        Args:
            grid: blocks.
            block: threads per block.
            shared_bytes: dynamic shared memory per block, at most `shared_limit`.
            arg: the kernel's only parameter.
            stream: `torch.cuda.Stream.cuda_stream`.
        """
        # The array is made anew for each launch: two threads may be in here.
        arguments = _Arguments(ctypes.addressof(arg))
        shape = (grid, 1, 1, block, 1, 1, shared_bytes, stream, ctypes.addressof(arguments), 0)
        (code,) = self._driver.cuLaunchKernel(self._handle, *shape)
        if int(code) in _WRONG_CONTEXT:  # a thread that has not used this device yet
            check(self._driver.cuCtxPushCurrent(self.context), "cuCtxPushCurrent")
            try:
                (code,) = self._driver.cuLaunchKernel(self._handle, *shape)
            finally:
                self._driver.cuCtxPopCurrent()
        check((code,), f"cuLaunchKernel(grid {grid}, block {block}, {shared_bytes} bytes shared)")
