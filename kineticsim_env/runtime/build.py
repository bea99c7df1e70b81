"""Everything that is compiled just in time: where the sources are, with what, into which entry of the cache.

`load_cpu` builds the C++ engine with torch's loader (`cxx`), `load_kernel` the CUDA kernel with NVRTC or nvcc. Nothing
is compiled at import. Results are kept in memory and on disk (`cache`), under keys that name all that they depend on,
KINETICSIM_CXXFLAGS among it: further flags for the C++ engine's compiler and linker, such as a sanitizer's.
"""

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import cuda_driver, cxx
from kineticsim_env.runtime.cache import cache_dir, notice, obtain
from kineticsim_env.runtime.cxx import compiler_version, cpu_unavailable, find_cxx

__all__ = ["cache_dir", "compiler_version", "cpu_unavailable", "find_cxx"]  # for the doctor and others

KERNEL_SOURCE, KERNEL_NAME = "persistent_kernel.cu", "ks_market_kernel"
MIN_CAPABILITY = (7, 5)
CPU_FUNCTIONS = {"ks_cpu_launch": [ctypes.c_void_p], "ks_sizeof_launch": [], "ks_sizeof_params": []}  # all int64

_loaded: dict = {}
_failed: dict = {}
_thread_lock = threading.RLock()


def _renew_lock() -> None:
    """Replace the lock in a forked child: the thread that held it is not there to give it back."""
    global _thread_lock
    _thread_lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_renew_lock)


def cuda_dir() -> Path:
    """Return the folder of the C++ and CUDA sources: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "_cuda"
    return inside if inside.is_dir() else package.parent / "cuda"


def source_hash() -> str:
    """Return the sha256 over names and contents of all source files in `cuda_dir()`."""
    digest = hashlib.sha256()
    root = cuda_dir()
    for path in sorted(root.rglob("*")):
        if path.suffix in (".h", ".cuh", ".cu", ".cpp"):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _once(key: object, make: Callable[[], object]):
    """Return `make()`, called once in this process: a failed compilation takes long and is not tried again either."""
    with _thread_lock:
        if key in _failed:
            raise EngineUnavailable(_failed[key])
        if key not in _loaded:
            try:
                _loaded[key] = make()
            except EngineUnavailable as error:
                _failed[key] = str(error)
                raise
        return _loaded[key]


def _key(*parts: object) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]


# ---- The C++ engine ------------------------------------------------------------------------------------------------


def load_cpu() -> ctypes.CDLL:
    """Return the C++ engine, from this process, from the cache, or built now. Raises EngineUnavailable."""
    return _loaded.get("cpu") or _once("cpu", _load_cpu)


@functools.cache
def _mind_forks() -> None:
    """Give forked children one thread: OpenMP's do not survive, and a child that asked for them would wait for ever."""
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


def _load_cpu() -> ctypes.CDLL:
    missing, command = cpu_unavailable(), find_cxx()
    if missing or command is None:
        raise EngineUnavailable(missing or "no C++ compiler is found")
    _mind_forks()  # now: a child may be forked while this builds
    flags = cxx.BASE_FLAGS + cxx.extra_flags()
    key = _key(torch.__version__, command, compiler_version(command), cxx.cpu_model(), source_hash(), *flags)
    name = f"ks_cpu_{key}"
    return obtain(f"{name}.so", _open_library, lambda folder: _build_cpu(command, folder, name))


def _open_library(path: Path, _content: bytes) -> ctypes.CDLL:
    from _ctypes import dlclose  # not on Windows

    library = ctypes.CDLL(str(path))
    missing = [name for name in CPU_FUNCTIONS if not hasattr(library, name)]
    if missing:
        dlclose(library._handle)  # or the one that is built next, at the same path, would be taken for this one
        raise OSError(f"{', '.join(missing)} not found in it")
    for name, arguments in CPU_FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, ctypes.c_int64
    return library


def _build_cpu(command: str, folder: Path, name: str) -> bytes:
    notice(f"compiling the C++ engine, about 10 s (cached in {folder.parent})")
    started = time.monotonic()
    library = cxx.build_library(command, cuda_dir() / "market_cpu.cpp", cuda_dir(), folder, name)
    notice(f"compiled the C++ engine in {time.monotonic() - started:.0f} s")
    return library


# ---- The CUDA kernel -----------------------------------------------------------------------------------------------


def gpu_present() -> bool:
    """Return whether this machine has an NVIDIA GPU, be it usable or not."""
    return any(os.path.exists(path) for path in ("/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg"))


def find_nvcc() -> str | None:
    """Return nvcc from CUDA_HOME, PATH, pip's nvidia-cuda-nvcc or /usr/local/cuda."""
    folders = [Path(os.environ[name]) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    on_path = shutil.which("nvcc")
    folders += [Path(on_path).parent] if on_path else []
    folders += [folder.parent / "bin" for folder in cuda_driver.library_folders()]
    return next((str(folder / "nvcc") for folder in folders if os.access(folder / "nvcc", os.X_OK)), None)


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
        cuda_driver.load_driver()
    except (OSError, AttributeError) as error:
        return f"the CUDA driver cannot be loaded: {error}"
    if cuda_driver.load_nvrtc() is None and find_nvcc() is None:
        major = torch.version.cuda.split(".")[0]
        package = "nvidia-cuda-nvrtc" if int(major) >= 13 else f"nvidia-cuda-nvrtc-cu{major}"
        return f"neither NVRTC nor nvcc is found (pip install '{package}=={torch.version.cuda}.*')"
    return None


def _target(arch: int, supported: list[int], compiler: str) -> str:
    """Return the target for an architecture: machine code, or PTX for one newer than the compiler."""
    if arch in supported:
        return f"sm_{arch}"
    older = [other for other in supported if other < arch]
    if not older:
        raise EngineUnavailable(f"{compiler} compiles for sm_{min(supported)} and newer, not for this GPU's sm_{arch}")
    return f"compute_{max(older)}"


def compile_kernel(
    arch: int, defines: Mapping[str, int | str], nvcc: str | None = None, source_name: str = KERNEL_SOURCE
) -> bytes:
    """Compile a kernel for sm_`arch` to a cubin, or to PTX if the compiler is too old for it. Needs no GPU.

    Args:
        arch: 90 for compute capability 9.0.
        defines: preprocessor definitions of the variant.
        nvcc: path of the nvcc to use instead of NVRTC.
        source_name: its file below `cuda_dir()`.
    """
    source = cuda_dir() / source_name
    options = ["--std=c++17", "--fmad=false", "-lineinfo", f"-I{cuda_dir()}"]
    options += [f"-D{name}={value}" for name, value in sorted(defines.items())]
    if nvcc is None:
        nvrtc = cuda_driver.load_nvrtc()
        if nvrtc is None:
            raise EngineUnavailable("NVRTC is not found")
        return nvrtc.compile(source, _target(arch, nvrtc.archs, "NVRTC"), options)
    listed = subprocess.run([nvcc, "--list-gpu-code"], check=False, capture_output=True, text=True).stdout
    target = _target(arch, [int(code) for code in re.findall(r"sm_(\d+)\b", listed)] or [arch], nvcc)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "kernel"
        kind = "--cubin" if target.startswith("sm_") else "--ptx"
        escaped = [option.replace(",", "\\,") for option in options]  # to nvcc a comma ends an option
        command = [nvcc, kind, f"-arch={target}", *escaped, str(source), "-o", str(output)]
        run = subprocess.run(command, check=False, capture_output=True, text=True)
        if run.returncode:
            raise EngineUnavailable(f"{nvcc} did not compile {source.name} for {target}:\n{cxx.tail(run.stderr)}")
        return output.read_bytes()


def load_kernel(
    device: torch.device, defines: Mapping[str, int | str], source_name: str = KERNEL_SOURCE, entry: str = KERNEL_NAME
) -> cuda_driver.Kernel:
    """Return a variant of a kernel on a device, from this process, from the cache, or compiled now.

    Call it before a CUDA graph is captured: a module cannot be loaded during capture.

    Args:
        device: the GPU.
        defines: preprocessor definitions of the variant.
        source_name: the kernel's file below `cuda_dir()`.
        entry: its `extern "C"` name in there.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    key = (index, source_name, entry, *sorted(defines.items()))
    return _loaded.get(key) or _once(key, lambda: _load_kernel(index, defines, source_name, entry))


def _load_kernel(index: int, defines: Mapping[str, int | str], source_name: str, entry: str) -> cuda_driver.Kernel:
    if missing := cuda_unavailable():
        raise EngineUnavailable(missing)
    major, minor = torch.cuda.get_device_capability(index)
    arch = 10 * major + minor
    nvrtc = cuda_driver.load_nvrtc()
    nvcc = None if nvrtc else find_nvcc()
    compiler = nvrtc.version if nvrtc else (nvcc, nvcc and os.stat(nvcc).st_mtime_ns)
    variant = (source_name, sorted(defines.items()))
    key = _key(torch.__version__, torch.version.cuda, compiler, arch, source_hash(), *variant)

    def make(folder: Path) -> bytes:
        notice(f"compiling the CUDA kernel for sm_{arch}, a few seconds (cached in {folder.parent})")
        return compile_kernel(arch, defines, nvcc, source_name)

    with torch.cuda.device(index):
        torch.zeros(1, device="cuda")  # makes the device's primary context, and makes it current
        return obtain(f"kernel-sm_{arch}-{key}.cubin", lambda _, image: cuda_driver.Kernel(image, entry), make)
