"""Everything that is compiled just in time: where the sources are, with what, into which cache, under which lock.

`load_cpu` builds the C++ engine with torch's loader, `load_kernel` the CUDA kernel with NVRTC or nvcc. Nothing is
compiled at import. Results are kept in memory and in `cache_dir()`, under keys that name all that they depend on.
"""

import contextlib
import ctypes
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import torch

from . import cuda_driver
from .cache import cache_dir, locked, notice, write
from .errors import EngineUnavailable

KERNEL_SOURCE, KERNEL_NAME = "persistent_kernel.cu", "ks_market_kernel"
MIN_CAPABILITY = (7, 5)

_loaded: dict = {}
_failed: dict = {}
_thread_lock = threading.RLock()


def cuda_dir() -> Path:
    """Return the folder of the C++ and CUDA sources: inside an installed package, beside it in a checkout."""
    inside = Path(__file__).parent / "_cuda"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "cuda"


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


def _tail(text: str, lines: int = 25) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])


# ---- The C++ engine ------------------------------------------------------------------------------------------------


def find_cxx() -> str | None:
    """Return the C++ compiler: CXX, else the first of c++, g++ and clang++ that is found."""
    if os.environ.get("CXX"):
        command = os.environ["CXX"]
        return command if shutil.which(shlex.split(command)[0]) else None
    return next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)


def _search_path() -> str:
    """Return PATH with the folders that pip installs ninja to: a venv's is not on it if python is run by its path."""
    folders = [os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)]
    if (spec := importlib.util.find_spec("ninja")) and spec.submodule_search_locations:
        folders.append(os.path.join(spec.submodule_search_locations[0], "data", "bin"))  # pip install --target
    return os.pathsep.join(folders)


def cpu_unavailable() -> str | None:
    """Return what the C++ engine lacks and how to get it, or None. Looks for the tools, but does not run them."""
    if sys.platform == "win32":
        return "the C++ engine needs Linux, macOS or WSL"
    if find_cxx() is None:
        if os.environ.get("CXX"):
            return f"CXX={os.environ['CXX']} is not found; set it to a C++ compiler, or unset it"
        return "no C++ compiler is found (apt install g++, dnf install gcc-c++ or xcode-select --install)"
    if shutil.which("ninja", path=_search_path()) is None:
        return "ninja is not found (pip install ninja)"
    if importlib.util.find_spec("setuptools") is None:
        return "setuptools, which torch's loader imports, is not found (pip install setuptools)"
    return None


def compiler_version(command: str) -> str:
    """Return the first line of `command --version`. Raises EngineUnavailable if it does not run."""
    try:
        run = subprocess.run(
            [*shlex.split(command), "--version"], check=False, capture_output=True, text=True, timeout=60
        )
        output = run.stdout.strip() or run.stderr.strip()
        reason = "" if run.returncode == 0 and output else f"exit status {run.returncode} {_tail(output, 3)}"
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    if reason:
        raise EngineUnavailable(f"the compiler {command} does not run: {reason.strip()}; set CXX to one that does")
    return output.splitlines()[0]


def _cpu_model() -> str:
    """Return what -march=native depends on; a home folder is often shared between unlike machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = ("model name", "flags", "Features", "CPU part")
        return "\n".join(dict.fromkeys(line for line in lines if line.startswith(names)))
    except OSError:
        return platform.processor()


def _extra_flags() -> list[str]:
    """Return what KINETICSIM_CXXFLAGS adds to the compiler's and the linker's flags: a sanitizer, say."""
    return shlex.split(os.environ.get("KINETICSIM_CXXFLAGS", ""))


def _cpu_flags(cxx: str, folder: Path) -> list[str]:
    """Return the flags that this compiler takes: not every one knows -march=native or has OpenMP."""
    flags = ["-O3", "-ffp-contract=off", "-fwrapv"]
    native = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
    probe = folder / "probe.cpp"
    for flag, text in ((native, ""), ("-fopenmp", "#include <omp.h>\n")):
        probe.write_text(text + "int ks_probe() { return 0; }\n")
        command = [*shlex.split(cxx), flag, "-shared", "-fPIC", str(probe), "-o", str(folder / "probe.so")]
        if subprocess.run(command, check=False, capture_output=True).returncode == 0:
            flags.append(flag)
        elif flag == "-fopenmp":
            notice(f"{cxx} has no OpenMP: the C++ engine runs on one core")
    return flags


@contextlib.contextmanager
def _environment(**values: str) -> Generator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def load_cpu() -> ctypes.CDLL:
    """Return the C++ engine, from this process, from the cache, or built now. Raises EngineUnavailable."""
    return _loaded.get("cpu") or _once("cpu", _load_cpu_once)


def _load_cpu_once() -> ctypes.CDLL:
    library = _load_cpu()
    # OpenMP's threads do not survive a fork: a child that asked for them would wait for ever.
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))
    return library


def _load_cpu() -> ctypes.CDLL:
    missing, cxx = cpu_unavailable(), find_cxx()
    if missing or cxx is None:
        raise EngineUnavailable(missing or "no C++ compiler is found")
    key = _key(torch.__version__, cxx, compiler_version(cxx), _cpu_model(), source_hash(), _extra_flags())
    folder = cache_dir() / f"cpu-{key}"
    library, ready = folder / f"ks_cpu_{key}.so", folder / "ready"
    if ready.exists():
        try:
            return ctypes.CDLL(str(library))
        except OSError:  # made on another system that shares this cache, say
            ready.unlink(missing_ok=True)
    with locked(folder):
        if not ready.exists():
            _build_cpu(cxx, folder, library.stem)
            write(ready, b"")
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise EngineUnavailable(f"the C++ engine was built but cannot be loaded: {error}") from error


def _build_cpu(cxx: str, folder: Path, name: str) -> None:
    """Build the library with torch's loader. The caller holds the folder's lock."""
    notice(f"compiling the C++ engine, about 10 s (cached in {folder.parent})")
    started = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)  # what a killed build left: torch would wait for its `lock` file for ever
    folder.mkdir(mode=0o700)
    flags = _cpu_flags(cxx, folder)
    with _environment(PATH=_search_path(), CXX=cxx):
        try:
            from torch.utils.cpp_extension import load  # takes a second, and is only needed here

            load(
                name,
                [str(cuda_dir() / "market_cpu.cpp")],
                extra_cflags=[*flags, *_extra_flags()],
                extra_ldflags=[*(flag for flag in flags if flag == "-fopenmp"), *_extra_flags()],
                extra_include_paths=[str(cuda_dir())],
                build_directory=str(folder),
                with_cuda=False,
                is_python_module=False,
            )
        except (RuntimeError, OSError, ImportError, subprocess.SubprocessError) as error:
            raise EngineUnavailable(f"{cxx} did not build the C++ engine:\n{_tail(str(error))}") from error
    notice(f"compiled the C++ engine in {time.monotonic() - started:.0f} s")


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
            raise EngineUnavailable(f"{nvcc} did not compile {source.name} for {target}:\n{_tail(run.stderr)}")
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
    path = cache_dir() / f"kernel-sm_{arch}-{key}.cubin"
    with torch.cuda.device(index):
        torch.zeros(1, device="cuda")  # makes the device's primary context, and makes it current
        if path.exists():
            try:
                return cuda_driver.Kernel(path.read_bytes(), entry)
            except RuntimeError as error:
                notice(f"compiling again, as {path} cannot be loaded: {error}")
                path.unlink(missing_ok=True)
        with locked(path):
            if not path.exists():
                notice(f"compiling the CUDA kernel for sm_{arch}, a few seconds (cached in {path.parent})")
                write(path, compile_kernel(arch, defines, nvcc, source_name))
        try:
            return cuda_driver.Kernel(path.read_bytes(), entry)
        except RuntimeError as error:
            raise EngineUnavailable(f"the CUDA kernel was compiled but cannot be loaded: {error}") from error
