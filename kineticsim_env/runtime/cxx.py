"""The C++ compiler: which one, with what flags, and how torch's loader is run with it. `build` is the only caller.

CXX names it as it does for make, so it may have a launcher and flags (`ccache g++ -m64`). KINETICSIM_CXXFLAGS are
further flags, for the compiler and the linker, after the engine's own; sanitizers are switched on by them.
"""

import importlib.util
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime.cache import notice

EXTRA_FLAGS = "KINETICSIM_CXXFLAGS"
BASE_FLAGS = ["-O3", "-ffp-contract=off", "-fwrapv"]

# Torch's loader compiles, and loads what it compiled. It does so in a process of its own: it needs another PATH and
# CXX, which threads here and what they fork would see; it remembers what it has built, also in a child that was forked
# then and does not have it; and a library that brings down the process that loads it should not bring down this one.
_LOADER = """
import json, sys
from torch.utils.cpp_extension import load
try:
    load(**json.load(sys.stdin), with_cuda=False, is_python_module=False)
except Exception as error:
    sys.exit(str(error))
"""


def find_cxx() -> str | None:
    """Return the command of the C++ compiler, quoted for a shell: CXX, else the first of c++, g++ and clang++."""
    if wanted := os.environ.get("CXX"):
        try:
            words = [wanted] if shutil.which(wanted) else shlex.split(wanted)  # a path may have spaces
        except ValueError:  # a quote that is not closed
            return None
        if not words or shutil.which(words[0]) is None:
            return None
        if os.sep in words[0]:
            words[0] = os.path.abspath(words[0])  # it is run in another folder
        return shlex.join(words)
    return next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)


def extra_flags() -> list[str]:
    """Return the flags in KINETICSIM_CXXFLAGS. Raises ValueError if they cannot be read."""
    return shlex.split(os.environ.get(EXTRA_FLAGS, ""))


def cpu_unavailable() -> str | None:
    """Return what the C++ engine lacks and how to get it, or None. Looks for the tools, but does not run them."""
    if sys.platform == "win32":
        return "the C++ engine needs Linux, macOS or WSL"
    if find_cxx() is None:
        if os.environ.get("CXX"):
            return f"CXX={os.environ['CXX']!r} is not found; set it to a C++ compiler, or unset it"
        return "no C++ compiler is found (apt install g++, dnf install gcc-c++ or xcode-select --install)"
    try:
        extra_flags()
    except ValueError as error:
        return f"{EXTRA_FLAGS}={os.environ[EXTRA_FLAGS]!r} cannot be read: {error}"
    if shutil.which("ninja", path=search_path()) is None:
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
        reason = "" if run.returncode == 0 and output else f"exit status {run.returncode} {tail(output, 3)}"
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    if reason:
        raise EngineUnavailable(f"the compiler {command} does not run: {reason.strip()}; set CXX to one that does")
    return output.splitlines()[0]


def cpu_model() -> str:
    """Return what -march=native depends on; a home folder is often shared between unlike machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = ("model name", "flags", "Features", "CPU part")
        return "\n".join(dict.fromkeys(line for line in lines if line.startswith(names)))
    except OSError:
        return platform.processor()


def tail(text: str, lines: int = 25) -> str:
    """Return the last lines of a compiler's output."""
    return "\n".join(text.strip().splitlines()[-lines:])


def build_library(command: str, sources: Sequence[Path], include: Path, folder: Path, name: str) -> bytes:
    """Build a library with torch's loader and return it.

    Args:
        command: The compiler, as `find_cxx` returns it.
        sources: The files to compile.
        include: Folder of its headers.
        folder: Folder to work in.
        name: Name of the library.
    """
    flags, extra = BASE_FLAGS + _accepted_flags(command, folder), extra_flags()
    arguments = {
        "name": name,
        "sources": [str(source) for source in sources],
        "extra_cflags": [*flags, *map(quote, extra)],
        "extra_ldflags": [*(flag for flag in flags if flag == "-fopenmp"), *map(quote, extra)],
        "extra_include_paths": [str(include)],
        "build_directory": str(folder),
    }
    # The folder of this process's script is not that of the loader's, and where torch is may have been said in Python.
    modules = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
    environment = {**os.environ, "PATH": search_path(), "PYTHONPATH": modules, "CXX": command}
    if len(shlex.split(command)) > 1 or shlex.quote(command) != command:
        # To torch CXX is one program without arguments, and before it comes ccache if there is one: not twice.
        wrapper = folder / "cxx"
        wrapper.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        wrapper.chmod(0o700)
        environment |= {"CXX": "./cxx", "TORCH_NO_COMPILER_WRAPPER": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _LOADER],
            check=False,
            cwd=folder,
            env=environment,
            input=json.dumps(arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        if done.returncode:
            raise EngineUnavailable(
                f"{command} did not build the C++ engine (exit status {done.returncode}):\n{tail(done.stdout)}"
            )
        return (folder / f"{name}.so").read_bytes()
    except OSError as error:
        raise EngineUnavailable(f"{command} did not build the C++ engine: {error}") from error


def quote(flag: str) -> str:
    """Quote a flag for ninja and the shell that it starts."""
    return shlex.quote(flag).replace("$", "$$")


def _accepted_flags(command: str, folder: Path) -> list[str]:
    """Return the flags that this compiler takes: not every one knows -march=native or has OpenMP."""
    flags = []
    native = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
    probe = folder / "probe.cpp"
    for flag, text in ((native, ""), ("-fopenmp", "#include <omp.h>\n")):
        probe.write_text(text + "int ks_probe() { return 0; }\n")
        compile_probe = [*shlex.split(command), flag, "-shared", "-fPIC", str(probe), "-o", str(folder / "probe.so")]
        if subprocess.run(compile_probe, check=False, capture_output=True).returncode == 0:
            flags.append(flag)
        elif flag == "-fopenmp":
            notice(f"{command} has no OpenMP: the C++ engine runs on one core")
    return flags


def search_path() -> str:
    """Return PATH with the folders that pip installs ninja to: a venv's is not on it if python is run by its path."""
    folders = [os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)]
    if (spec := importlib.util.find_spec("ninja")) and spec.submodule_search_locations:
        folders.append(os.path.join(spec.submodule_search_locations[0], "data", "bin"))  # pip install --target
    return os.pathsep.join(folders)
