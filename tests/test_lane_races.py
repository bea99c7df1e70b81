"""The CUDA step of a market per lane, with a thread per lane, under ThreadSanitizer."""

import os
import platform
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from build_helpers import build_lanes

from kineticsim_env.runtime import build

TESTS = Path(__file__).parent
FLAGS = ["-DKS_LANES=64", "-DKS_LEVERS=1", "-DKS_THREADS", "-fsanitize=thread", "-g", "-pthread"]
PLAY = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from env_helpers import make_cores, steps_alike, trading_market
from kineticsim_env.runtime import build
library, real = build._open_library(Path(sys.argv[1]), build.CPU_FUNCTIONS), build.load_cpu
for role, changes in (("maker", {}), ("executor", {"max_order_qty": 4000}), ("trader", {"cancel_prob": 0.0})):
    (config, _, task, roles), kwargs = trading_market(role, mark="liquidation")
    arguments = (config.replace(window=3, **changes), 70, task, roles)  # the last of three warps has lanes to spare
    cores = []
    for load in (real, lambda: library):
        build.load_cpu = load
        cores += make_cores(arguments, kwargs, ("cpu",))
    assert len(list(steps_alike(cores, 11, 5, 4))) == 4
print("played")
"""


def sanitizer() -> str | None:
    """Return the path of ThreadSanitizer's runtime, if the compiler has one and it can run here."""
    compiler = build.find_cxx()
    if platform.system() != "Linux" or compiler is None or shutil.which("setarch") is None:
        return None
    command = [*shlex.split(compiler), "-print-file-name=libtsan.so"]
    found = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(found):
        return None
    works = subprocess.run(
        ["setarch", "-R", sys.executable, "-c", ""], env={**os.environ, "LD_PRELOAD": found}, capture_output=True
    )
    return found if works.returncode == 0 else None


def play(folder: Path, runtime: str) -> str:
    """Build the sources in a folder, step environments beside the C++ engine, and return what was printed."""
    library = folder / "lanes.so"
    build_lanes(library, folder, *FLAGS)
    environment = {**os.environ, "LD_PRELOAD": runtime, "OMP_NUM_THREADS": "1", "TSAN_OPTIONS": "exitcode=0"}
    command = ["setarch", "-R", sys.executable, "-c", PLAY, str(library), str(TESTS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    return done.stdout + done.stderr


@pytest.fixture
def sources(tmp_path):
    """The sources in cuda/, with a thread per lane."""
    folder = shutil.copytree(build.cuda_dir(), tmp_path / "cuda")
    shutil.copy(TESTS / "lanes_on_threads.cuh", folder / "lane" / "lanes.cuh")
    return folder


@pytest.mark.slow
@pytest.mark.skipif(build.cpu_unavailable() is not None, reason="no C++ compiler")
def test_lanes_do_not_race(sources):
    runtime = sanitizer()
    if runtime is None:
        pytest.skip("no ThreadSanitizer that runs here")
    build.load_cpu()  # so that the cache has it: under the sanitizer it would not build
    said = play(sources, runtime)
    assert "played" in said and "ThreadSanitizer" not in said, said[-3000:]

    tile = sources / "lane" / "tile.cuh"
    text = tile.read_text()
    # Features are read by other lanes than wrote them.
    tile.write_text(text.replace("    sync_warp();\n    if (wanted ==", "    if (wanted =="))
    assert tile.read_text() != text
    assert "WARNING: ThreadSanitizer: data race" in play(sources, runtime), "a race that is there is seen"
