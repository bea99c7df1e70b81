"""Shared by the tests of the just-in-time builds: tiny sources, and processes that build them in their own cache."""

import contextlib
import hashlib
import io
import os
import pickle
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any
from unittest import mock

import pytest
import torch
from agent_classes import CLASSES, SMALL_CLASSES
from filelock import FileLock
from torch.utils import cpp_extension

from kineticsim_env.agents import programs
from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, cache, nvcc, nvrtc

ROOT = Path(__file__).parent.parent
ENGINE = """
#include <cstdint>
extern "C" int64_t ks_cpu_launch(const void*) { return -1; }
extern "C" int64_t ks_sizeof_launch() { return 8; }
extern "C" int64_t ks_sizeof_params() { return 4; }
"""
OPERATORS = "#include <cstdint>\n" + "".join(
    f'extern "C" int64_t {name}() {{ return 0; }}\n' for name in build.CPU_FUNCTIONS if name not in ENGINE
)
TINY_CPU = ENGINE + 'extern "C" int64_t ks_answer() { return 42; }\n'
TINY_KERNEL = """
#include "launch_host.cuh"
#include "model/layout.h"
extern "C" __global__ void ks_market_kernel(const __grid_constant__ ks::Launch launch) {
  extern __shared__ int32_t shared[];
  const int64_t m = blockIdx.x * blockDim.x + threadIdx.x;
  shared[threadIdx.x] = static_cast<int32_t>(m);
  __syncthreads();
  if (m < launch.markets) launch.volume[m] += shared[threadIdx.x] * static_cast<int64_t>(launch.levels) + TINY_ADD;
}
KS_EXPORT_KERNEL(ks_market_kernel)
"""
LOAD = "print('answer', build.load_cpu().ks_answer())"
HOST_FLAGS = "-std=c++17 -Og -U_FORTIFY_SOURCE -ffp-contract=off -fwrapv -Wno-unknown-pragmas -shared -fPIC".split()
HOST_KERNELS = {  # the source in tests/ and its flags
    "lanes": ["lanes_on_host.cpp", "-DKS_LANES=128"],
    "lanes and deadlines": [
        "lanes_on_host.cpp",
        "-fno-strict-aliasing",
        "-DKS_LANES=128",
        "-DKS_DEADLINES=1",
        "-DKS_BINS=64",
    ],
    "warp": ["warp_on_host.cpp", "-fno-strict-aliasing", "-DKS_BINS=0"],
    "warp with bins": ["warp_on_host.cpp", "-fno-strict-aliasing", "-DKS_BINS=64"],
    "warp of one slot": ["warp_on_host.cpp", "-fno-strict-aliasing", "-DKS_BINS=64", "-DKS_SINGLE=1"],
}
HOST_KERNELS |= {
    f"{name} and {levers}": [*flags, f"-DKS_LEVERS={number}"]
    for name, flags in HOST_KERNELS.items()
    for number, levers in ((1, "rounding"), (2, "levers"))
}
ADDED = {"agents": CLASSES, "small agents": SMALL_CLASSES}  # of agent_classes.py, in their order
_LANES_OF_A_WARP = [flag for flag in HOST_KERNELS["lanes and deadlines"] if "DEADLINES" not in flag]  # only with a text
_WITH_TEXT = HOST_KERNELS | {
    "lanes of a warp": _LANES_OF_A_WARP,
    "lanes of a warp and rounding": [*_LANES_OF_A_WARP, "-DKS_LEVERS=1"],
}
HOST_KERNELS |= {  # with the text of agents' classes
    f"{name} and {kinds}": [*flags, f"-DKS_AGENTS={len(ADDED[kinds])}"]
    for name, flags in _WITH_TEXT.items()
    for kinds in ADDED
    if "-fno-strict-aliasing" in flags
}
_EVENTS = ["events_on_host.cpp", "-fno-strict-aliasing"]
_RECOUNTS = "-DKS_RECOUNTS=1"  # what an order flow's markets keep up to date is counted anew at every event
CLOCK_KERNELS = {  # of markets on the clock alone
    "shared markets": [*_EVENTS, _RECOUNTS, "-DKS_LANES_PER_MARKET=32"],
    "four markets of a warp": [*_EVENTS, _RECOUNTS, "-DKS_LANES_PER_MARKET=8", "-DKS_DEADLINES=1"],
    "eight markets of a warp": [*_EVENTS, _RECOUNTS, "-DKS_LANES_PER_MARKET=4"],  # of order flows
    "markets of lanes": _EVENTS,
    "late markets": [*_EVENTS, "-DKS_DEADLINES=1"],  # of lanes, too
}
LATE_KERNELS = {
    f"late markets and {kinds}": [*CLOCK_KERNELS["late markets"], f"-DKS_AGENTS={len(ADDED[kinds])}"] for kinds in ADDED
}
_ROLLOUTS = ["rollouts_on_host.cpp", "-fno-strict-aliasing", "-DKS_POLICY_INPUTS=39"]
_GAUSSIAN = ["-DKS_POLICY_OUTPUTS=4", "-DKS_POLICY_CATEGORICAL=0", "-DKS_POLICY_TRUNK=0"]
_CATEGORICAL = ["-DKS_POLICY_OUTPUTS=49", "-DKS_POLICY_CATEGORICAL=1", "-DKS_POLICY_TRUNK=1"]
ROLLOUT_KERNELS = {  # with a policy of two layers of 64 inside
    "rollouts on the chip": [*_ROLLOUTS, *_GAUSSIAN, "-DKS_POLICY_ROWS16=1", "-DKS_WARPS=1"],
    "rollouts in float32": [*_ROLLOUTS, *_GAUSSIAN, "-DKS_POLICY_ROWS16=0"],
    "rollouts of choices": [*_ROLLOUTS, *_CATEGORICAL, "-DKS_POLICY_ROWS16=1"],
    "rollouts of shared markets": [*_ROLLOUTS, *_GAUSSIAN, "-DKS_POLICY_ROWS16=1", "-DKS_LANES_PER_MARKET=8"],
}
PROGRAM_KERNELS = {  # with programs in all slots, or a network in one and programs in the others
    "programs on the chip": [*_ROLLOUTS, "-DKS_POLICY=2", "-DKS_POLICY_ROWS16=1"],
    "programs in float32": [*_ROLLOUTS, "-DKS_POLICY=2", "-DKS_POLICY_ROWS16=0"],
    "programs of shared markets": [*_ROLLOUTS, "-DKS_POLICY=2", "-DKS_POLICY_ROWS16=1", "-DKS_LANES_PER_MARKET=8"],
    "several programs": [*_ROLLOUTS, "-DKS_POLICY=2", "-DKS_POLICY_ROWS16=1", "-DKS_SLOTS=2"],
    "several programs of shared markets": [
        *_ROLLOUTS,
        "-DKS_POLICY=2",
        "-DKS_POLICY_ROWS16=0",
        "-DKS_SLOTS=2",
        "-DKS_LANES_PER_MARKET=32",
    ],
    "a network among programs": [*_ROLLOUTS, *_GAUSSIAN, "-DKS_POLICY_ROWS16=1", "-DKS_SLOTS=2"],
    "a network among programs of shared markets": [
        *_ROLLOUTS,
        *_GAUSSIAN,
        "-DKS_POLICY_ROWS16=0",
        "-DKS_SLOTS=2",
        "-DKS_LANES_PER_MARKET=32",
    ],
}
_ALL_KERNELS = HOST_KERNELS | CLOCK_KERNELS | LATE_KERNELS | ROLLOUT_KERNELS | PROGRAM_KERNELS
OTHER = 12345  # another user
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
needs_compiler = pytest.mark.skipif(build.cpu_unavailable() is not None, reason=str(build.cpu_unavailable()))


def builders() -> list:
    """Return a parameter per builder of CUDA kernels, skipped where it is not found."""
    no_nvcc = build.cpu_unavailable() or (None if nvcc.find() else "no nvcc is found")
    return [
        pytest.param("nvrtc", marks=pytest.mark.skipif(nvrtc.version() is None, reason="no NVRTC is found")),
        pytest.param("nvcc", marks=pytest.mark.skipif(no_nvcc is not None, reason=str(no_nvcc))),
    ]


def compile_kernel(
    builder: str, arch: int, defines: dict, source: str = build.KERNEL_SOURCE, agents: str = ""
) -> bytes:
    """Return a kernel as a builder makes it: a cubin, or a shared library. Needs no GPU, and no torch with CUDA.

    Such a torch's loader knows no nvcc and no CUDA libraries: nvcc is named to it, and it links without the libraries.
    """
    if builder == "nvrtc":
        return nvrtc.compile_kernel(arch, defines, source, agents)
    path = nvcc.find()
    assert path is not None
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if torch.version.cuda is None:
            given = {
                "CUDA_HOME": str(Path(path).parents[1]),
                "_prepare_ldflags": lambda flags, *_: flags,
            }
            stack.enter_context(mock.patch.multiple(cpp_extension, **given))
        return nvcc.build_kernel(arch, defines, folder, path, source, agents)


def device_like(**changes: int) -> SimpleNamespace:
    """Return what torch says of an H200, with changes."""
    shared = {"shared_memory_per_block_optin": 227 * 1024, "shared_memory_per_multiprocessor": 228 * 1024}
    return SimpleNamespace(**{"multi_processor_count": 132, **shared, **changes})


def build_on_host(source: str, built: Path, include: Path, *flags: str) -> None:
    """Build a kernel for a CPU: a source of tests/ with the C++ engine's functions, and the headers in `include`."""
    command = [*shlex.split(build.find_cxx() or "c++"), *HOST_FLAGS, *flags, f"-I{include}"]
    subprocess.run([*command, str(Path(__file__).with_name(source)), "-o", str(built)], check=True)


def headers_with_fibers(folder: Path) -> Path:
    """Copy the sources in cuda/ to `folder`, and give the threads of a warp a fiber each; return the copy."""
    copy = Path(shutil.copytree(build.cuda_dir(), folder / "cuda"))
    shutil.copy(Path(__file__).with_name("warp_on_fibers.h"), copy / "warp" / "warp.cuh")
    shutil.copy(Path(__file__).with_name("lanes_on_fibers.h"), copy / "lane" / "lanes.cuh")
    shutil.copy(Path(__file__).with_name("products_on_fibers.h"), copy / "policy" / "products.cuh")
    return copy


def build_kernel_on_host(name: str, folder: Path) -> Path:
    """Build one of the kernels above in a folder."""
    source, *flags = _ALL_KERNELS[name]
    include = build.cuda_dir() if "-fno-strict-aliasing" not in flags else headers_with_fibers(folder)
    if (kinds := ADDED.get(name.rpartition(" and ")[2])) is not None:
        (include / build.AGENTS).write_text(programs.text_of_all(kinds))
    build_on_host(source, folder / "kernel.so", include, *flags)
    return folder / "kernel.so"


def kernel_on_host(name: str) -> Any:
    """Load a kernel for a CPU from the cache, where the first that asks for it builds it from these sources."""
    tests = Path(__file__).parent
    texts = [
        path.read_bytes() for path in sorted((*tests.glob("*.h"), *tests.glob("*.cuh"), *tests.glob("*_host.cpp")))
    ]
    classes = [programs.text_of_all(kinds) for kinds in ADDED.values()]
    compiler = build.compiler_version(build.find_cxx() or "c++")
    flags = _ALL_KERNELS[name]
    key = build.key(name, HOST_FLAGS, flags, compiler, build.source_hash(), *texts, *classes)
    folder = build.cache_dir() / f"kernels_of_tests_{key}"
    folder.mkdir(mode=0o700, exist_ok=True)
    built = folder / "kernel.so"
    with FileLock(folder / "lock"):
        if not built.exists():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                build_kernel_on_host(name, Path(scratch)).rename(built)
    return build._open_library(built, build.CPU_FUNCTIONS)


def build_lanes(built: Path, include: Path, *flags: str) -> None:
    """Build the CUDA environment step of a market per lane for a CPU, with the headers in `include`."""
    build_on_host("lanes_on_host.cpp", built, include, *flags)


@pytest.fixture
def sources(tmp_path):
    """A folder of sources that compile in a second."""
    folder = tmp_path / "cuda"
    (folder / "model").mkdir(parents=True)
    (folder / "market_cpu.cpp").write_text(TINY_CPU)
    (folder / "operators.cpp").write_text(OPERATORS)
    (folder / "persistent_kernel.cu").write_text(TINY_KERNEL)
    for name in ("launch_host.cuh", "model/layout.h"):
        shutil.copy(build.cuda_dir() / name, folder / name)
    return folder


def script(path: Path, body: str) -> Path:
    """Write a shell script that can be run, such as a compiler with another one behind it; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def start(sources: Path, code: str, **environment: str) -> subprocess.Popen:
    """Start a Python process that runs `code` with `sources` in place of cuda/."""
    script = "from pathlib import Path\nfrom kineticsim_env.runtime import build\n"
    script += f"build.cuda_dir = lambda: Path({str(sources)!r})\n"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "KINETICSIM_CACHE": str(sources.parent / "cache"),
        **environment,
    }
    return subprocess.Popen(
        [sys.executable, "-c", script + code],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=sources.parent,
    )


def run_python(sources: Path, code: str, **environment: str) -> tuple[str, str, int]:
    """Run a process as `start` does; return its output, its errors and its exit status."""
    process = start(sources, code, **environment)
    try:
        out, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return out, err, process.returncode


def fork(sources: Path, code: str, out: IO, err: IO, **environment: str) -> int:
    """Run `code` as `start` does, but in a forked child, which has imported torch already and loaded no engine."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(120)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
            os.environ.update({"KINETICSIM_CACHE": str(sources.parent / "cache"), **environment})
            os.chdir(sources.parent)
            build.cuda_dir, build._loaded, build._failed = lambda: sources, {}, {}
            exec(code, {"build": build})
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return child


def wait_until(happened: Callable[[], bool]) -> None:
    """Wait for something, two minutes at most."""
    end = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def run(sources: Path, code: str, **environment: str) -> tuple[str, str, int]:
    """Run `code` as `run_python` does, in such a child."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        _, ended = os.waitpid(fork(sources, code, out, err, **environment), 0)
        texts = [(file.seek(0), file.read().decode())[1] for file in (out, err)]
    return texts[0], texts[1], os.waitstatus_to_exitcode(ended)


def load(sources: Path, **environment: str) -> tuple[str, str, int]:
    """Load the engine of `sources` in this process, which takes half as long as `run`; return the same as that."""
    errors = io.StringIO()
    settings = {"KINETICSIM_CACHE": str(sources.parent / "cache"), **environment}
    with (
        mock.patch.dict(os.environ, settings),
        mock.patch.multiple(build, cuda_dir=lambda: sources, _loaded={}, _failed={}),
        contextlib.chdir(sources.parent),
        contextlib.redirect_stderr(errors),
    ):
        try:
            library: Any = build.load_cpu()
            said = f"answer {library.ks_answer()}\n"
        except EngineUnavailable as error:
            said = str(error)
    return said, errors.getvalue(), 0


def in_child(function: Callable[[], object], user: int | None = None, seconds: float = 120) -> tuple[object, str]:
    """Return what a function returns in a forked child, perhaps as another user, and its errors; a child may not hang.

    An exception comes back as its text.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException), contextlib.redirect_stderr(io.StringIO()) as errors:
            os.close(reader)
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            try:
                result = function()
            except BaseException:
                result = traceback.format_exc()
            os.write(writer, pickle.dumps((result, errors.getvalue())))
            status = 0
        os._exit(status)
    os.close(writer)
    try:
        hangs = not select.select([reader], [], [], seconds)[0]
        if hangs:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert not hangs, f"the child is not done after {seconds} s"
        return pickle.loads(os.read(reader, 1 << 16))
    finally:
        os.close(reader)


def as_user(user, function):
    """Return what a function returns as another user, and its errors."""

    def forget_and_go():
        cache._writable_dir.cache_clear()  # where root can write
        cache._private_dir.cache_clear()
        return function()

    return in_child(forget_and_go, user)


@pytest.fixture
def place(monkeypatch):
    """A folder that other users can get at, with a temporary folder of its own; the cache is its `cache`."""
    folder = Path(tempfile.mkdtemp(prefix="kineticsim-test-")).resolve()
    folder.chmod(0o755)
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o1777)
    (folder / "cache").mkdir(mode=0o755)
    monkeypatch.setenv("KINETICSIM_CACHE", str(folder / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
    yield folder
    shutil.rmtree(folder)


def own_folder(place, user=None) -> Path:
    return place / "tmp" / f"kineticsim_env-{os.getuid() if user is None else user}"


def forge(path, content):
    """Put an entry into a cache, as somebody who knows how would do."""
    path.write_bytes(content)
    digest = path.with_name(path.name + ".sha256")
    digest.write_text(f"{hashlib.sha256(content).hexdigest()}  {path.name}\n")
    return path, digest
