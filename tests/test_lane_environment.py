"""The CUDA environment step of a market a lane, run on a CPU: every tensor the C++ engine's, bit for bit."""

import ctypes
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from env_helpers import assert_same, check_cores_agree, draw_actions, environments, make_cores
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kineticsim_env import build
from kineticsim_env.config import MarketConfig
from kineticsim_env.env_core import SAME_STEP
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.base import ROLES
from kineticsim_env.tasks.many_learners import slots_of

pytestmark = pytest.mark.skipif(build.cpu_unavailable() is not None, reason="no C++ compiler")
FLAGS = "-std=c++17 -O1 -ffp-contract=off -fwrapv -Wno-unknown-pragmas -shared -fPIC -DKS_LANES=128".split()


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The lanes' step as a library with the C++ engine's functions."""
    built = tmp_path_factory.mktemp("lanes") / "lanes.so"
    source = Path(__file__).with_name("lanes_on_host.cpp")
    compiler = shlex.split(build.find_cxx() or "c++")
    subprocess.run([*compiler, *FLAGS, f"-I{build.cuda_dir()}", str(source), "-o", str(built)], check=True)
    return ctypes.CDLL(str(built))


@pytest.fixture
def make_pair(library, monkeypatch):
    """Make an environment twice: on the C++ engine, and on the lanes' step."""

    def make(arguments, kwargs):
        with monkeypatch.context() as patch:
            patch.setattr(build, "load_cpu", lambda: library)
            lanes = make_cores(arguments, kwargs, ("cpu",))
        return make_cores(arguments, kwargs, ("cpu",)) + lanes

    return make


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(environment=environments(most_slots=1), bad=st.sampled_from((0.0, 0.0, 0.05)))
def test_lanes_agree_on_every_tensor(make_pair, environment, bad):
    check_cores_agree(make_pair(*environment[:2]), environment, bad)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("mark", ["fundamental", "mid", "liquidation"])
def test_lanes_agree_in_the_trading_market(make_pair, role, mark):
    task = ManyLearnersTask(horizon=12, mark=mark, bank_size=8, max_loss=150.0)
    kwargs = {"slots": slots_of((role,)), "autoreset": SAME_STEP, "stagger": True, "auctions_per_step": 2}
    cores = make_pair((MarketConfig.preset("trading"), 6, task, [role]), kwargs)
    generator = np.random.default_rng(5)
    for core in cores:
        core.reset(11)
    ended = 0
    for t in range(30):
        actions = draw_actions(cores[0], generator, 0.0)
        for core in cores:
            core.step(**actions)
        assert_same(cores, f"after step {t}")
        ended += int((cores[0].tensors["truncated"] | cores[0].tensors["terminated"]).sum())
    assert ended > 0
    assert int(cores[0].simulator.tensors["volume"].sum()) > 0
