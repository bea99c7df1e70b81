"""The compiler's sanitizers: whether they are here, and how a child process gets them."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path

from kineticsim_env.runtime import build

ROOT = Path(__file__).parents[2]
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g -O1"
# A launch whose books have one market fewer than it is told: a read and a write past a tensor's end.
PLANTED = """
import ctypes, torch
import kineticsim_env as ks
sim = ks.Simulator(num_markets=2, engine="cpu")
short = torch.zeros((1, 128), dtype=torch.int32)
sim.engine._struct.bid = short.data_ptr()
sim.engine._library.ks_cpu_launch(ctypes.addressof(sim.engine._struct))
sim.engine._struct.auctions = sim.engine._struct.decisions = 1
sim.engine._struct.env_mode = 0
sim.engine._library.ks_cpu_launch(ctypes.addressof(sim.engine._struct))
print("not seen")
"""


@functools.cache
def runtime(name: str) -> str | None:
    """Return the path of a sanitizer's runtime such as `libasan.so`, if the compiler has one that runs here."""
    compiler = build.find_cxx()
    if platform.system() != "Linux" or compiler is None or build.cpu_unavailable() is not None:
        return None
    command = [*shlex.split(compiler), f"-print-file-name={name}"]
    found = subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(found):
        return None
    quiet = {**os.environ, "LD_PRELOAD": found, "ASAN_OPTIONS": "detect_leaks=0"}
    works = subprocess.run([sys.executable, "-c", ""], env=quiet, check=False, capture_output=True)
    return found if works.returncode == 0 else None


def child_environment(sanitized: bool, threads: int = 3) -> dict[str, str]:
    """Return the environment of a child whose C++ engine, of so many threads, is watched, or is not."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "SDL_VIDEODRIVER": "dummy",
    }
    if not sanitized:
        return environment
    preloaded = [path for path in (runtime("libasan.so"), runtime("libubsan.so")) if path]
    return environment | {
        "LD_PRELOAD": ":".join(preloaded),
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "KINETICSIM_CXXFLAGS": FLAGS,
    }


def build_engine(sanitized: bool) -> None:
    """Build the engine that children will load, so that they do not wait for each other."""
    code = "from kineticsim_env.runtime import build; build.load_cpu()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=child_environment(sanitized), check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"the C++ engine with sanitizers cannot be built or loaded:\n{done.stderr[-3000:]}")


def planted_bug_is_seen() -> str:
    """Run a launch that writes past a tensor's end, watched, and return what was said about it."""
    done = subprocess.run(
        [sys.executable, "-c", PLANTED], env=child_environment(True), check=False, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def report_in(text: str) -> str:
    """Return the heading of a sanitizer's report in what a child wrote, empty without one."""
    for line in text.splitlines():
        if "ERROR: AddressSanitizer" in line or "runtime error:" in line or "WARNING: ThreadSanitizer" in line:
            return line.strip()[:300]
    return ""
