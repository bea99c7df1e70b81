"""Shared by the tests of the just-in-time builds: tiny sources, and processes that build them in their own cache."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kineticsim_env import build

ROOT = Path(__file__).parent.parent
TINY_CPU = '#include <cstdint>\nextern "C" int64_t ks_answer() { return 42; }\n'
TINY_KERNEL = """
#include "layout.h"
extern "C" __global__ void ks_market_kernel(const __grid_constant__ ks::Launch launch) {
  extern __shared__ int32_t shared[];
  const int64_t m = blockIdx.x * blockDim.x + threadIdx.x;
  shared[threadIdx.x] = static_cast<int32_t>(m);
  __syncthreads();
  if (m < launch.markets) launch.volume[m] += shared[threadIdx.x] * static_cast<int64_t>(launch.levels) + TINY_ADD;
}
"""
LOAD = "print('answer', build.load_cpu().ks_answer())"
LANES_FLAGS = "-std=c++17 -O1 -ffp-contract=off -fwrapv -Wno-unknown-pragmas -shared -fPIC".split()
needs_compiler = pytest.mark.skipif(build.cpu_unavailable() is not None, reason=str(build.cpu_unavailable()))


def build_lanes(built: Path, include: Path, *flags: str) -> None:
    """Build the CUDA environment step of a market a lane for a CPU, with the headers in `include`."""
    command = [*shlex.split(build.find_cxx() or "c++"), *LANES_FLAGS, *flags, f"-I{include}"]
    subprocess.run([*command, str(Path(__file__).with_name("lanes_on_host.cpp")), "-o", str(built)], check=True)


@pytest.fixture
def sources(tmp_path):
    """A folder of sources that compile in a second."""
    folder = tmp_path / "cuda"
    folder.mkdir()
    (folder / "market_cpu.cpp").write_text(TINY_CPU)
    (folder / "persistent_kernel.cu").write_text(TINY_KERNEL)
    shutil.copy(build.cuda_dir() / "layout.h", folder)
    return folder


def start(sources: Path, code: str, **environment: str) -> subprocess.Popen:
    """Start a Python process that runs `code` with `sources` in place of cuda/."""
    script = "from pathlib import Path\nfrom kineticsim_env import build\n"
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


def run(sources: Path, code: str, **environment: str) -> tuple[str, str, int]:
    """Run a process as `start` does; return its output, its errors and its exit status."""
    process = start(sources, code, **environment)
    try:
        out, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return out, err, process.returncode
