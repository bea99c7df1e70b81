"""Policies of slots and order records in the CUDA kernels' templates, on a CPU: every tensor is the C++ engine's."""

import pytest
from build_helpers import CLOCK_KERNELS
from env_helpers import clock_environments, environments, make_cores
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_shared_markets import continuous
from test_slot_programs import check_plays
from thorough import examples

from kineticsim_env.runtime import build

pytestmark = pytest.mark.skipif(build.cpu_unavailable() is not None, reason="no C++ compiler")
few = settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
seeds = st.integers(0, 2**32)


def check(twice, kernel, environment, seed):
    """The C++ engine and the kernel play the same; so does the kernel when it is handed what was played."""
    first, second = twice(kernel, lambda: make_cores(*environment[:2], ("cpu",))[0])
    third = twice(kernel, lambda: make_cores(*environment[:2], ("cpu",))[0])[1]
    check_plays([first, second, third], environment, seed)


@pytest.mark.parametrize("kernel", ["lanes", "lanes and deadlines", "warp of one slot"])
@few
@given(environment=environments(most_slots=1), seed=seeds)
def test_one_slot(twice, kernel, environment, seed):
    check(twice, kernel, environment, seed)


@few
@given(environment=environments(most_slots=4), seed=seeds)
def test_several_slots(twice, environment, seed):
    check(twice, "warp with bins", environment, seed)


@pytest.mark.parametrize("kernel", CLOCK_KERNELS)
@few
@given(environment=clock_environments(), seed=seeds)
def test_continuous_trading(twice, kernel, environment, seed):
    check(twice, kernel, continuous(environment), seed)
