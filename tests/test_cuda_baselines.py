"""The CUDA baselines compute the engines' market: on the CPU through a stand-in for CUDA, and on a GPU."""

import ctypes
import functools
import shlex
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from build_helpers import compile_kernel
from test_kernel_build import ARCHS, by_nvcc_too
from thorough import covering, slow

import kineticsim_env as ks
from kineticsim_env.engines.numpy.rules import episode_key, random_words
from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import build, kernels
from scripts.benchmarks import cuda_backends
from scripts.benchmarks.backend import Result, Workload
from scripts.benchmarks.cuda_backends import BaselineLaunch, NaiveCuda, PaperBlock, hash_ceiling, hash_sums

KERNELS = {"naive.cu": "ks_naive_step", "paper_block.cu": "ks_paper_block", "hash_ceiling.cu": "ks_hash_ceiling"}


@functools.cache
def host_compiler() -> str | None:
    """Return a C++ compiler with <barrier> and std::atomic_ref, or None."""
    compiler = build.find_cxx()
    if compiler is None:
        return None
    probe = "#include <atomic>\n#include <barrier>\nfloat x; auto y = std::atomic_ref<float>(x).fetch_add(1);"
    command = [*shlex.split(compiler), "-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    return compiler if subprocess.run(command, input=probe, text=True, capture_output=True).returncode == 0 else None


needs_host = pytest.mark.skipif(host_compiler() is None, reason="no C++20 compiler is found")


class HostKernel:
    """A baseline's kernel compiled for the CPU, with the launch of `kernels.Kernel`."""

    def __init__(self, source: str, entry: str, levels: int):
        together = int("paper" in entry)
        program = f"""
            #include "cuda_on_host.h"
            #define KS_LEVELS {levels}
            #include "{source}"
            extern "C" long host_sizeof() {{ return sizeof(ks::BaselineLaunch); }}
            extern "C" void host_launch(const ks::BaselineLaunch* launch, int grid, int block) {{
              launch_on_host({entry}, *launch, grid, block, {together});
            }}
        """
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/kernel.so"
            command = [*shlex.split(host_compiler()), "-std=c++20", "-O1", "-fwrapv", "-pthread", "-shared", "-fPIC"]
            command += [f"-I{build.cuda_dir()}", f"-I{Path(__file__).parent}", "-x", "c++", "-", "-o", path]
            subprocess.run(command, input=program, text=True, check=True)
            self._library = ctypes.CDLL(path)
        assert self._library.host_sizeof() == ctypes.sizeof(BaselineLaunch)

    def launch(self, grid, block, shared_bytes, arg, stream):
        assert shared_bytes <= 4 * (8 * 1024 + 2)
        self._library.host_launch(ctypes.byref(arg), grid, block)


host_kernel = functools.cache(HostKernel)


class OnHost:
    """Put before a backend: it runs on the CPU."""

    def unavailable(self):
        return None

    def _open(self, levels):
        self._device, self._multiprocessors = torch.device("cpu"), 132
        self._kernel = host_kernel(self._source, self._entry, levels)

    def _stream(self):
        return 0

    def synchronize(self):
        pass


class NaiveOnHost(OnHost, NaiveCuda):
    pass


class PaperOnHost(OnHost, PaperBlock):
    pass


ON_HOST = [pytest.param(NaiveOnHost, marks=needs_host), pytest.param(PaperOnHost, marks=needs_host)]
ON_GPU = [pytest.param(NaiveCuda, marks=pytest.mark.gpu), pytest.param(PaperBlock, marks=pytest.mark.gpu)]


def expected(workload: Workload, engine: str) -> Result:
    sim = ks.Simulator(workload.config, workload.markets, engine=engine, seed=workload.seed)
    sim.run(workload.steps, progress=False)
    values = (sim.bid, sim.ask, sim.last_price, sim.volume, sim.trades)
    return Result(*(value.cpu().numpy().copy() for value in values))


def assert_equal(result: Result, oracle: Result) -> None:
    for name, want in vars(oracle).items():
        got = getattr(result, name)
        assert got.dtype == want.dtype, name
        np.testing.assert_array_equal(got, want, err_msg=name)


def check(backend, workload: Workload, engine: str, pieces=()) -> None:
    """Compare a run in pieces, and one that starts after a reset, with an engine's."""
    want = expected(workload, engine)
    backend.prepare(workload)
    for steps in (*pieces, workload.steps - sum(pieces)):
        backend.run(steps)
    backend.synchronize()
    assert_equal(backend.result(), want)
    backend.reset()
    backend.run(workload.steps)
    backend.synchronize()
    assert_equal(backend.result(), want)
    backend.close()


# M, A, L, steps and the pieces that they are run in
HOST_SHAPES = [(1, 1, 8, 60, ()), (3, 7, 8, 40, (1, 17)), (2, 300, 32, 12, (5,)), (4, 33, 128, 6, (2, 2))]


@covering
@pytest.mark.parametrize("backend", ON_HOST)
@pytest.mark.parametrize("shape", HOST_SHAPES, ids=str)
def test_equals_the_oracle_on_the_cpu(backend, shape):
    markets, agents, levels, steps, pieces = shape
    check(backend(), Workload(markets, agents, levels, steps, seed=5), "numpy", pieces)


@needs_host
@pytest.mark.parametrize(
    "shape",
    [(5, 1023, 1024, 30), *(pytest.param(of, marks=slow) for of in ((70, 256, 128, 120), (33, 65, 64, 500)))],
    ids=str,
)
def test_naive_equals_the_oracle_for_long(shape):
    markets, agents, levels, steps = shape
    check(NaiveOnHost(), Workload(markets, agents, levels, steps, seed=2**40), "numpy", (steps // 3,))


@pytest.mark.parametrize("backend", [*ON_HOST, *ON_GPU])
@pytest.mark.parametrize("levels", [5, 8])
def test_the_papers_worked_case(backend, levels):
    backend, padding = backend(), [0] * (levels - 5)
    inactive = dict.fromkeys(cuda_backends._PARAMETERS, 0) | {"init_price": 2, "init_depth": 1}
    backend.prepare_parameters(2, levels, 0, 0, inactive)
    books = [np.array([side + padding] * 2) for side in ([10, 5, 8, 0, 2], [0, 4, 7, 6, 3])]
    backend.load_book(*books)
    backend.run(1)
    backend.synchronize()
    book = (np.array([side + padding] * 2, np.int32) for side in ([10, 5, 0, 0, 0], [0, 0, 1, 6, 3]))
    want = Result(*book, np.array([2, 2], np.int32), np.array([10, 10]), np.array([1, 1]))
    assert_equal(backend.result(), want)


@needs_host
def test_the_hashes_are_the_models_words():
    sums = np.zeros(5, np.int64)
    struct = BaselineLaunch(markets=5, seed=9, steps=3, agents=21, hashes=sums.ctypes.data)
    host_kernel("baselines/hash_ceiling.cu", "ks_hash_ceiling", 8).launch(1, 256, 0, struct, 0)
    np.testing.assert_array_equal(sums, words_xored(5, 21, 3, 9))


def words_xored(markets: int, agents: int, steps: int, seed: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        key = episode_key(seed + np.arange(markets), np.zeros(markets, np.int64))
        t = np.arange(steps).repeat(agents)
        words = random_words(key[:, None], t[None, :], np.tile(np.arange(agents), steps)[None, :])
    return np.bitwise_xor.reduce(words.astype(np.uint64), axis=1).view(np.int64)


@covering
@pytest.mark.parametrize("source", KERNELS)
@pytest.mark.parametrize(("builder", "arch"), by_nvcc_too(*ARCHS))
def test_compiles(builder, arch, source):
    for levels in (8,) if builder == "nvcc" else (8, 1024):
        image = compile_kernel(builder, arch, {"KS_LEVELS": levels}, f"baselines/{source}")
        assert image.startswith(b"\x7fELF") and KERNELS[source].encode() in image


@needs_host
def test_too_many_levels_are_refused():
    with pytest.raises(EngineUnavailable, match="expected up to 1024 levels, got 2048"):
        PaperOnHost().prepare(Workload(1, 4, 2048))


def test_without_cuda_the_reason_is_said():
    for backend in (NaiveCuda(), PaperBlock()):
        assert backend.unavailable() == kernels.cuda_unavailable()
        if backend.unavailable():
            with pytest.raises(EngineUnavailable):
                backend.prepare(Workload(1))


GPU_SHAPES = [(1, 1, 8, 200), (300, 3, 8, 200), (33, 257, 16, 100), (5, 65, 32, 300), (129, 599, 64, 100)]
GPU_SHAPES += [(300, 256, 128, 500), (31, 33, 256, 200), (65, 511, 512, 100), (64, 601, 1024, 100), (3, 5, 1024, 50)]


@pytest.mark.parametrize("backend", ON_GPU)
@pytest.mark.parametrize("engine", ["cpu", "cuda"])
@pytest.mark.parametrize("shape", GPU_SHAPES, ids=str)
def test_equals_the_engines_on_a_gpu(backend, engine, shape):
    markets, agents, levels, steps = shape
    check(backend(), Workload(markets, agents, levels, steps, seed=3), engine, (1, steps // 3, 7))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(2**17 + 2**14 + 5, 15, 8, 20), (20001, 65, 128, 30)], ids=str)
def test_many_markets(shape):
    """Naive takes larger blocks when there are more than 1024 markets per multiprocessor."""
    markets, agents, levels, steps = shape
    for backend in (NaiveCuda(), PaperBlock()):
        check(backend, Workload(markets, agents, levels, steps), "cuda")


@pytest.mark.gpu
def test_memory_is_what_it_should_be():
    """Both books, and for the paper's kernel the types; naive has the orders too. Nothing is left behind."""
    torch.cuda.synchronize()
    markets, agents, levels = 4096, 256, 128
    for backend, words in ((NaiveCuda(), 4 * levels), (PaperBlock(), 2 * levels + agents)):
        before = torch.cuda.memory_allocated()
        asked = torch.cuda.memory_stats()["requested_bytes.all.current"]  # a block from torch's cache may be larger
        torch.cuda.reset_peak_memory_stats()
        backend.prepare(Workload(markets, agents, levels))
        backend.run(3)
        backend.synchronize()
        used = torch.cuda.memory_stats()["requested_bytes.all.peak"] - asked
        assert 0 <= used - 4 * markets * (words + 6) < 8192
        backend.close()
        assert torch.cuda.memory_allocated() == before


@pytest.mark.gpu
def test_the_ceiling_counts_real_words():
    sums, seconds = hash_sums(torch.device("cuda"), 300, 21, 3, seed=9)
    np.testing.assert_array_equal(sums.cpu().numpy(), words_xored(300, 21, 3, 9))
    assert seconds > 0
    assert 1e9 < hash_ceiling() < 1e14
