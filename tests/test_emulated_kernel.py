"""The CUDA kernel's own source on an emulated warp (tests/emulated_warp), bit for bit beside the C++ engine; no GPU.

Lanes run in an order drawn anew after every operation of the warp, and shared memory starts full of rubbish: what a GPU
would only show now and then ends with other bits here, or ends the program.
"""

import ctypes
import shlex
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from env_helpers import check_agreement, environments
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import FURTHEST, play_together, plays

import kineticsim_env as ks
from kineticsim_env import build, engines, env_core, simulator
from kineticsim_env.engines import native

HERE = Path(__file__).parent / "emulated_warp"
BINS = {0: FURTHEST, 16: 3, 32: 7, 64: 15, 128: 31}  # and the largest reach that they hold
pytestmark = [
    pytest.mark.skipif(build.cpu_unavailable() is not None, reason="no C++ compiler"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module", params=[0, 1024], ids=["shared memory at 0", "at 1024"])
def library(request, tmp_path_factory):
    """The kernel's source, compiled for a CPU, with the address that shared memory begins at on a device."""
    folder = tmp_path_factory.mktemp("emulated")
    for source in [*build.cuda_dir().glob("*.h"), *build.cuda_dir().glob("*.cuh"), *HERE.iterdir()]:
        shutil.copy(source, folder)
    output, flags = (
        folder / "kernel.so",
        ["-std=c++20", "-O1", "-w", "-fwrapv", "-ffp-contract=off", "-shared", "-fPIC"],
    )
    begin = f"-DKS_SHARED_BEGIN={request.param}"
    command = [*shlex.split(build.find_cxx()), *flags, begin, str(folder / "emulated_kernel.cpp"), "-o", str(output)]
    subprocess.run(command, check=True, cwd=folder)
    return ctypes.CDLL(str(output))


@pytest.fixture(scope="module", autouse=True)
def emulated(library):
    """Make engine `"cuda"` the emulated one, on tensors in host memory."""

    class Emulated(native.CudaEngine):
        def _execute(self, mode, total_auctions):
            task = min(mode, 1)
            self.prepare(task)
            bins = self.force.get("KS_BINS", native.choose_bins(self._reach, self._agents))
            slots = int(self._sizes["K"] > 0)
            library.ks_emulated_launch(ctypes.byref(self._struct), bins, self._options, slots, task)

    def choose_engine(engine, device=None, *, prefer_cpu=""):
        chosen = real_choose("cpu" if engine == "cuda" else engine, device, prefer_cpu=prefer_cpu)
        return (engine, torch.device("cpu")) if engine == "cuda" else chosen

    def make_engine(name, *arguments):
        return Emulated(*arguments) if name == "cuda" else real_make(name, *arguments)

    real_choose, real_make = engines.choose_engine, engines.make_engine
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "current_device", lambda: 0)
        patch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(multi_processor_count=132))
        patch.setattr(build, "load_kernel", lambda device, defines: SimpleNamespace(shared_limit=1 << 20))
        for module in (simulator, env_core):
            patch.setattr(module, "choose_engine", choose_engine)
        patch.setattr(simulator, "make_engine", make_engine)
        yield


@pytest.mark.parametrize("bins", BINS)
@settings(max_examples=8, derandomize=True)
@given(data=st.data())
def test_random_plays(bins, data):
    play_together(data.draw(plays(levels=(8, 32, 128), reach=BINS[bins])), ("cpu", f"cuda KS_BINS={bins}"))


@pytest.mark.parametrize("tile", [1, 3, 32])
@settings(max_examples=6, derandomize=True)
@given(environment=environments())
def test_environments(tile, environment):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "choose_tile", lambda markets, slots, multiprocessors: min(tile, 32 // slots))
        check_agreement(environment, 0.0, ("cpu", "cuda"))


@pytest.mark.parametrize("bins", [0, 16])
def test_a_full_market_keeps_the_book_before_its_last_orders(bins):
    """Lanes that place orders while others still save the book would spoil it."""
    config = ks.MarketConfig(num_levels=32, init_price=16, num_agents=64, max_order_qty=1)
    full = ks.Simulator(config, 6, engine="cuda")
    full.engine.force = {"KS_BINS": bins}
    full.bid[:, 2] = 2**31 - 40
    full.run(30)
    stopped = 0
    for market in range(6):
        one = ks.Simulator(config, 1, engine="cpu", seed=market)
        one.bid[0, 2] = 2**31 - 40
        try:
            for _ in range(30):
                one.run(1)
        except ks.MarketError:
            stopped += 1
        assert torch.equal(full.bid[market], one.bid[0]) and torch.equal(full.ask[market], one.ask[0])
        assert int(full.t[market]) == int(one.t[0])
    assert stopped > 0
