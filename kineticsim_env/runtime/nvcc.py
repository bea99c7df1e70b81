"""nvcc, through torch's loader (`torch.utils.cpp_extension.load`): builds a kernel as a shared library."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path

import torch

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, cxx, driver


def find() -> str | None:
    """Return the nvcc that torch's loader takes: of CUDA_HOME or CUDA_PATH, else on PATH, else in /usr/local/cuda."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    folders = [Path(home) / "bin"] if home else []
    if not home and (on_path := shutil.which("nvcc")):
        return on_path
    folders += [] if home else [Path("/usr/local/cuda/bin")]
    return next((str(folder / "nvcc") for folder in folders if os.access(folder / "nvcc", os.X_OK)), None)


@functools.cache
def version(path: str) -> tuple[int, ...]:
    """Return nvcc's version, as (13, 0, 88). Raises EngineUnavailable if it does not run."""
    try:
        told = subprocess.run([path, "--version"], check=False, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineUnavailable(f"{path} does not run: {error}") from error
    if (found := re.search(r"\bV(\d+)\.(\d+)\.(\d+)", told)) is None:
        raise EngineUnavailable(f"{path} does not tell its version")
    return tuple(map(int, found.groups()))


def unsuitable() -> str | None:
    """Return why nvcc and torch's loader cannot serve here, or None if they can.

    The loader itself asks for none of this: what it built with a toolkit of another CUDA than torch's, or than the
    driver's, would fail when it is loaded, or launch nothing.
    """
    path = find()
    if path is None:
        return "nvcc is not found in CUDA_HOME, on PATH or in /usr/local/cuda"
    if missing := cxx.cpu_unavailable():
        return missing
    if shutil.which("ninja", path=search_path()) is None:
        return "ninja is not found (pip install ninja)"
    if importlib.util.find_spec("setuptools") is None:
        return "setuptools, which torch's loader imports, is not found (pip install setuptools)"
    try:
        major, minor = version(path)[:2]
    except EngineUnavailable as error:
        return str(error)
    wanted, served = torch.version.cuda, driver.version()
    if wanted is None or int(wanted.split(".")[0]) != major:
        return f"nvcc is of CUDA {major}.{minor}, and torch of CUDA {wanted or 'none'}"
    if served is not None and served[0] < major:
        return f"nvcc is of CUDA {major}.{minor}, and the driver serves up to {served[0]}.{served[1]}"
    return None


def build_kernel(
    arch: int,
    defines: Mapping[str, int | str],
    folder: Path,
    nvcc: str,
    source: str = build.KERNEL_SOURCE,
    agents: str = "",
) -> bytes:
    """Build a kernel for sm_`arch`, 90 for compute capability 9.0, as a shared library and return it. Needs no GPU.

    Torch's loader does it in `folder`; `nvcc` is the one that it takes, to be asked for its architectures. The others
    are those of `kernels.load_kernel`.
    """
    from torch.utils import cpp_extension

    listed = subprocess.run([nvcc, "--list-gpu-code"], check=False, capture_output=True, text=True).stdout
    target = build.target_of(arch, [int(code) for code in re.findall(r"sm_(\d+)\b", listed)] or [arch], nvcc)
    virtual = f"compute_{target.rpartition('_')[2]}"
    # A name of its own: the loader takes a name that it has built before for built. A comma ends an option of nvcc.
    name = f"ks_kernel_{secrets.token_hex(8)}"
    flags = ["-O3", f"-gencode=arch={virtual},code={target}"]
    options = build.kernel_options(defines)
    if agents:
        (folder / build.AGENTS).write_text(agents, encoding="utf-8")
        options.append(f"-I{folder}")
    flags += [quote(option.replace(",", "\\,")) for option in options]
    with on_path(search_path()):
        try:
            # What stands alone is built and not loaded: that is done once, from the cache. -shared makes it a library.
            built = cpp_extension.load(
                name,
                [str(build.cuda_dir() / source)],
                extra_cuda_cflags=flags,
                extra_ldflags=["-shared"],
                build_directory=str(folder),
                with_cuda=True,
                is_python_module=False,
                is_standalone=True,
            )
        except Exception as error:
            text = cxx.tail(str(error), 40)
            raise EngineUnavailable(f"{nvcc} and torch's loader did not build {source}:\n{text}") from error
    return Path(built).read_bytes()


def quote(flag: str) -> str:
    """Quote a flag for ninja and the shell that it starts."""
    return shlex.quote(flag).replace("$", "$$")


def search_path() -> str:
    """Return PATH with the folders that pip installs ninja to: a venv's is not on it if python is run by its path."""
    folders = [os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)]
    if (spec := importlib.util.find_spec("ninja")) and spec.submodule_search_locations:
        folders.append(os.path.join(spec.submodule_search_locations[0], "data", "bin"))  # pip install --target
    return os.pathsep.join(folders)


@contextlib.contextmanager
def on_path(folders: str) -> Generator[None]:
    """Let PATH be `folders` for a while; threads that start a program meanwhile see it, too."""
    before = os.environ.get("PATH")
    os.environ["PATH"] = folders
    try:
        yield
    finally:
        if before is None:
            del os.environ["PATH"]
        else:
            os.environ["PATH"] = before


def open_library(path: Path, entry: str) -> tuple[int, int]:
    """Return the functions of a library that nvcc built, on the current device: the kernel, and the one that copies."""
    library = ctypes.CDLL(str(path))
    functions = []
    try:
        for name in (entry, build.COPY_ENTRY):
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
