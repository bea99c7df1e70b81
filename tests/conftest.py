"""What all tests share: GPU tests need a GPU that torch sees; Hypothesis has no deadline (engines compile); windows
open on no screen; without a GPU Triton interprets; each of several workers (pytest-xdist) has a thread of its own.
"""

import collections
import gc
import os
from pathlib import Path

import pytest
import torch
from thorough import THOROUGH, leave_out_what_covers_nothing_new

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX shares a GPU with torch and other workers
# Each capture begins without garbage: a graph of an earlier test, destroyed within it, would end it.
torch.compiler.config.force_cudagraph_gc = True
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # its kernels run on a CPU then; Triton reads it when it is loaded

if "PYTEST_XDIST_WORKER" in os.environ and not THOROUGH:
    torch.set_num_threads(1)  # `make test-all` shares markets among threads, as users do

try:
    from hypothesis import HealthCheck, settings
except ModuleNotFoundError:
    pass
else:
    settings.register_profile(
        "kineticsim", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("kineticsim")


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config, items):
    leave_out_what_covers_nothing_new(config, items)
    if ended := os.environ.get("KINETICSIM_ENDED_TESTS"):  # scripts/gpu_report.py goes on
        names = set(Path(ended).read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in names])
        items[:] = [item for item in items if item.nodeid not in names]
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="torch sees no CUDA GPU")
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(skip)


def pytest_terminal_summary(terminalreporter):
    """Say once for each reason how many tests were skipped for it."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = collections.Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.most_common():
        terminalreporter.line(f"SKIPPED [{count}] {reason}")


def pytest_collection_finish():
    """A collection of garbage takes half a second where it goes through all modules and thousands of tests."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def frames_without_waiting():
    """Nobody looks at the windows."""
    from kineticsim_env.render import viewer

    viewer.RENDER_FPS = 1000


@pytest.fixture(scope="session")
def kernels():
    """The CUDA kernels built for a CPU when first asked for, as libraries with the C++ engine's functions, by name."""
    from build_helpers import kernel_on_host

    class Built(dict):
        def __missing__(self, name):
            self[name] = kernel_on_host(name)
            return self[name]

    return Built()


@pytest.fixture
def twice(kernels, monkeypatch):
    """A function that makes something with the C++ engine, and again with a kernel of `HOST_KERNELS`."""
    from kineticsim_env.runtime import build

    def make(kernel, what):
        with monkeypatch.context() as patch:
            patch.setattr(build, "load_cpu", lambda: kernels[kernel])
            second = what()
        return what(), second

    return make


@pytest.fixture(scope="module")
def one_thread():
    """A few hundred markets are too few to share."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
