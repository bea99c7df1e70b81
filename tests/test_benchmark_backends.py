"""Every backend of the benchmark ends with the oracle's bits, whatever the shape and however a run is cut."""

import importlib.util

import numpy as np
import pytest
import torch
from thorough import covering

from kineticsim_env.config import MarketConfig
from scripts.benchmarks.array_form import ArrayForm
from scripts.benchmarks.backend import Workload
from scripts.benchmarks.engine_backends import Engine
from scripts.benchmarks.jax_backend import JaxScan
from scripts.benchmarks.torch_backends import TorchEager, TorchGraphs
from scripts.benchmarks.torch_compiled import TorchCompile
from scripts.benchmarks.verify import digest, first_difference

# M, A, L: one agent; no makers; no momentum agents; odd everything; more agents than ticks and fewer; sums that share
# an int64 differently.
SHAPES = [(1, 1, 8), (3, 2, 8), (4, 3, 16), (5, 5, 16), (50, 33, 64), (7, 300, 256), (20, 256, 128), (9, 129, 32)]
SHAPES += [(2, 1023, 8), (33, 16, 128)]
PIECES = (1, 2, 25, 40)
GPU_SHAPES = [*SHAPES, (64, 256, 128), (1025, 64, 128), (130, 256, 1024), (12, 31, 4096)]


class Asymmetric(Workload):
    """A market whose numbers are not the defaults: quantities that are no power of two, a price near the edge."""

    @property
    def config(self):
        return MarketConfig(
            num_agents=self.agents, num_levels=self.levels, init_price=2, init_depth=5, max_order_qty=7,
            noise_spread=4, market_order_prob=0.3, maker_half_spread=6, noise=0.5, momentum=0.3, maker=0.2,
        )  # fmt: skip


CPU_BACKENDS = [
    pytest.param(lambda: Engine("numpy"), id="numpy"),
    pytest.param(lambda: Engine("cpu"), id="cpu"),
    pytest.param(lambda: Engine("cpu", threads=1), id="one core"),
    pytest.param(lambda: TorchEager("cpu"), id="eager"),
]


def available(backend):
    if missing := backend.unavailable():
        pytest.skip(missing)
    return backend


def check(backend, workload, pieces=PIECES):
    """Compare with the oracle after each piece of a run, and again after a reset in the middle of it."""
    backend.prepare(workload)
    oracle = Engine("numpy")
    oracle.prepare(workload)
    ends = []
    for attempt in range(2):
        oracle.reset()
        for length in pieces:
            for each in (backend, oracle):
                each.run(length)
            backend.synchronize()
            difference = first_difference(backend.result(), oracle.result())
            assert difference is None, f"attempt {attempt}, after {length} steps: {difference}"
        ends.append(digest(backend.result()))
        backend.run(3)
        backend.reset()
    assert ends[0] == ends[1]
    backend.close()


@covering
@pytest.mark.parametrize("make", CPU_BACKENDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(make, shape):
    check(available(make()), Workload(*shape, steps=40, seed=5))


@covering
@pytest.mark.parametrize("make", CPU_BACKENDS)
@pytest.mark.parametrize("shape", [(11, 50, 8), (6, 129, 64)], ids=str)
def test_other_parameters(make, shape):
    check(available(make()), Asymmetric(*shape, steps=40, seed=2**40))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Workload, Asymmetric])
def test_torch_compile(kind):
    check(available(TorchCompile("cpu")), kind(7, 65, 32, steps=40, seed=3))


@pytest.mark.parametrize(
    "workload",
    [
        Asymmetric(5, 33, 16, steps=40, seed=9),
        pytest.param(Workload(20, 300, 128, steps=40), marks=pytest.mark.slow),
        pytest.param(Workload(1, 1, 8, 40), marks=pytest.mark.slow),
    ],
    ids=["asymmetric", "large", "one agent"],
)
def test_jax(workload):
    # A length for each program that is compiled: one that the loop's unrolling does not divide, and one that it does.
    check(available(JaxScan("cpu")), workload, pieces=(40, 1))


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs JAX")
def test_jax_leaves_its_settings_alone():
    import jax

    before = jax.config.jax_enable_x64
    backend = available(JaxScan("cpu"))
    backend.prepare(Workload(2, 3, 8, steps=1))
    backend.run(1)
    assert jax.config.jax_enable_x64 == before


def test_one_core_gives_the_threads_back():
    backend, before = available(Engine("cpu", threads=1)), torch.get_num_threads()
    backend.prepare(Workload(2, 3, 8))
    backend.run(1)
    assert torch.get_num_threads() == before


def test_a_second_workload_replaces_the_first():
    backend = TorchEager("cpu")
    for shape in ((3, 40, 16), (5, 7, 32), (3, 40, 16)):
        check(backend, Workload(*shape, steps=5), pieces=(5,))
    with pytest.raises(RuntimeError, match="prepare"):
        backend.run(1)


def test_what_is_refused():
    with pytest.raises(ValueError, match="engine: .*got 'gpu'"):
        Engine("gpu")
    with pytest.raises(ValueError, match="threads"):
        Engine("numpy", threads=2)
    with pytest.raises(ValueError, match="device: .*got 'cpu'"):
        TorchGraphs("cpu")
    backend = TorchEager("cpu")
    backend.prepare(Workload(1, 256, 8))
    with pytest.raises(ValueError, match="expected up to 209"):  # 2^31 / 1024
        backend.run(2**31 // 1024)
    assert not np.any(backend.result().volume)


def test_markets_that_the_array_form_does_not_cover():
    class Trading(Workload):
        config = MarketConfig.preset("trading")

    with pytest.raises(ValueError, match="options"):
        ArrayForm.of(Trading(1, 20, 128))


@pytest.mark.gpu
@pytest.mark.parametrize("make", [lambda: Engine("cuda"), TorchEager, TorchGraphs], ids=["ours", "eager", "graphs"])
@pytest.mark.parametrize("shape", GPU_SHAPES, ids=str)
def test_shapes_on_a_gpu(make, shape):
    backend = make()
    assert backend.device == "cuda" and backend.unavailable() is None
    check(backend, Workload(*shape, steps=40, seed=5))


@pytest.mark.gpu
@pytest.mark.parametrize("make", [lambda: Engine("cuda"), TorchEager, TorchGraphs, TorchCompile, JaxScan])
def test_other_parameters_on_a_gpu(make):
    backend = make()
    if isinstance(backend, JaxScan) and backend.device != "cuda":
        pytest.skip("JAX sees no GPU")
    check(backend, Asymmetric(6, 129, 64, steps=40, seed=2**40), pieces=(40, 1))


@pytest.mark.gpu
@pytest.mark.parametrize("make", [TorchCompile, JaxScan])
@pytest.mark.parametrize("shape", [(1, 1, 8), (7, 300, 256), (64, 256, 128), (130, 1024, 1024)], ids=str)
def test_compiled_shapes_on_a_gpu(make, shape):
    backend = make()
    if isinstance(backend, JaxScan) and backend.device != "cuda":
        pytest.skip("JAX sees no GPU")
    check(backend, Workload(*shape, steps=40, seed=5), pieces=(40, 1))
