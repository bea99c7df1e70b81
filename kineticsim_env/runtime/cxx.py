"""The C++ compiler: which one, with what flags, and how a library is built with it. `build` is the only caller.

CXX names it as it does for make, so it may have a launcher and flags (`ccache g++ -m64`). KINETICSIM_CXXFLAGS are
further flags, for the compiler and the linker, after the engine's own; sanitizers are switched on by them.

It is called here and not by torch's loader. That would need a process of its own, as it takes PATH and CXX from the
environment and remembers what it has built, also in a child that was forked then. To import torch there takes up to
half as long as to compile.
"""

import contextlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import torch

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime.cache import FULL, no_room, notice

EXTRA_FLAGS = "KINETICSIM_CXXFLAGS"
BASE_FLAGS = ["-O3", "-ffp-contract=off", "-fwrapv"]
_NO_ROOM = 1 << 20  # bytes; a compiler that fails beside so few has failed for want of them
_INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)  # exit statuses after Ctrl-C: of a program, and of a shell's


class CompilerError(EngineUnavailable):
    """A compiler's refusal; `output` is all that it said."""

    def __init__(self, message: str, output: str) -> None:
        """Take what users are told, and all of it."""
        super().__init__(message)
        self.output = output


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


def holds_a_runtime_of_its_own(command: str) -> bool:
    """Return whether what this compiler links has a copy of the C++ library in it. Builds a library of one line.

    Such a copy does not know of exceptions that torch's throws, and one that crosses over ends the process.
    """
    if not sys.platform.startswith("linux"):
        return False
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder, "probe.cpp"), Path(folder, "probe.so")
        source.write_text("int ks_probe(int number) { throw number; }\n")
        build = [*shlex.split(command), *extra_flags(), "-shared", "-fPIC", str(source), "-o", str(built)]
        try:
            subprocess.run(build, check=True, cwd=folder, capture_output=True, timeout=60)
            image = built.read_bytes()
        except (OSError, subprocess.SubprocessError):
            return False  # a build says what is wrong
    return not any(name in image for name in (b"libstdc++.so", b"libc++.so"))  # names of what it needs


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


def build_library(
    command: str,
    sources: Sequence[Path],
    include: Path,
    folder: Path,
    name: str,
    alone: bool = False,
    others: Path | None = None,
) -> bytes:
    """Build a library of `name` in a folder and return it; the sources are compiled at the same time.

    `command` is as `find_cxx` returns it, `include` has the headers, and `others` those of others; `alone` uses neither
    torch nor OpenMP.

    Raises:
        EngineUnavailable: If it cannot be built; a CompilerError where a compiler says why, `cache.Blocked` where the
            disk is full.
    """
    compiler, further, installed = shlex.split(command), extra_flags(), Path(torch.__file__).parent
    try:
        flags = ["-fPIC", *BASE_FLAGS, *_accepted_flags(command, folder, with_openmp=not alone)]
        if further:
            _try_flags([*compiler, *flags, *further], folder, command)
        system = [*([] if alone else [installed / "include"]), *([others] if others else [])]
        headers = [f"-I{include}", *(word for path in system for word in ("-isystem", str(path)))]
        objects = [f"{source.stem}.o" for source in sources]
        _run_all(
            [
                [*compiler, *headers, *flags, *further, "-c", str(source), "-o", built]
                for source, built in zip(sources, objects, strict=True)
            ],
            folder,
            command,
        )
        linked = [] if alone else [f"-L{installed / 'lib'}", "-lc10", "-ltorch_cpu"]
        _run_all([[*compiler, *objects, "-shared", *flags, *further, *linked, "-o", f"{name}.so"]], folder, command)
        return (folder / f"{name}.so").read_bytes()
    except OSError as error:
        if error.errno in FULL:
            raise no_room(f"{command} did not build the C++ engine", folder.parent) from error
        raise EngineUnavailable(f"{command} did not build the C++ engine: {error}") from error


def _run_all(commands: Sequence[Sequence[str]], folder: Path, compiler: str) -> None:
    """Run commands at the same time. If one fails, end the others, and raise EngineUnavailable with what it said."""
    running: list[subprocess.Popen] = []
    outputs: list[BinaryIO] = []
    try:
        for words in commands:
            outputs.append(_output(folder))
            running.append(
                subprocess.Popen(
                    words, cwd=folder, stdin=subprocess.DEVNULL, stdout=outputs[-1], stderr=subprocess.STDOUT
                )
            )
        for process, output in zip(running, outputs, strict=True):
            status = process.wait()
            if status in _INTERRUPTED:  # of which this thread need not have heard
                raise KeyboardInterrupt
            if status:
                output.seek(0)
                text = output.read().decode(errors="replace")
                failed = f"{compiler} did not build the C++ engine (exit status {status})"
                if full := _full_disks(text, folder):
                    raise no_room(failed, *full)
                raise CompilerError(f"{failed}:\n{tail(text)}", text)
    finally:
        for process in running:
            process.terminate()  # not killed: a compiler removes its temporary files
            process.wait()
        for output in outputs:
            output.close()


def _output(folder: Path) -> BinaryIO:
    """Return where a compiler's words go: memory, which a full disk leaves as it is, or where there is none, a file.

    Not a pipe: a child that is forked meanwhile could hold its end open.
    """
    if hasattr(os, "memfd_create"):  # Linux
        return open(os.memfd_create("kineticsim_env-output"), "w+b")
    return tempfile.TemporaryFile(dir=folder)


def _full_disks(text: str, folder: Path) -> list[Path]:
    """Return the folders that a compiler writes to whose disk is full, if that is why it failed.

    It need not say so: linkers write through memory, and are ended by a signal.
    """
    places = [folder.parent, Path(os.environ.get("TMPDIR") or "/tmp")]
    full = []
    for place in places:
        with contextlib.suppress(OSError):
            if shutil.disk_usage(place).free < _NO_ROOM:
                full.append(place)
    return full or [place for place in places if any(os.strerror(code) in text for code in FULL)]


def _try_flags(build: Sequence[str], folder: Path, compiler: str) -> None:
    """Load an empty library of these flags in another process: without its runtime a sanitizer ends the process."""
    (folder / "probe.cpp").write_text("int ks_probe() { return 0; }\n")
    _run_all([[*build, "-shared", "probe.cpp", "-o", "probe.so"]], folder, compiler)
    load = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    _run_all([[sys.executable, "-I", "-S", "-c", load, str(folder / "probe.so")]], folder, compiler)


def _accepted_flags(command: str, folder: Path, with_openmp: bool = True) -> list[str]:
    """Return the flags that this compiler takes: not every one knows -march=native, C++20, or has OpenMP."""
    flags, newest = [], "-std=c++20"  # newer torch's headers need it, older ones and the engine C++17
    native = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
    probe = folder / "probe.cpp"
    openmp = (("-fopenmp", "#include <omp.h>\n"),) if with_openmp else ()
    for flag, text in ((native, ""), (newest, ""), *openmp):
        probe.write_text(text + "int ks_probe() { return 0; }\n")
        compile_probe = [*shlex.split(command), flag, "-shared", "-fPIC", str(probe), "-o", str(folder / "probe.so")]
        if subprocess.run(compile_probe, check=False, capture_output=True).returncode == 0:
            flags.append(flag)
        elif flag == "-fopenmp":
            notice(f"{command} has no OpenMP: the C++ engine runs on one core")
        elif flag == newest:
            flags.append("-std=c++17")
    return flags
