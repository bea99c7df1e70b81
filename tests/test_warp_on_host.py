"""The CUDA kernel of a market per warp, on a CPU with a fiber per thread: every tensor is the C++ engine's."""

import pytest
from build_helpers import build_on_host, headers_with_fibers
from env_helpers import check_cores_agree, check_trading_market, environments, make_cores, trading_market
from hypothesis import HealthCheck, given, settings
from strategies import Play, assert_same, make_move, open_simulator, plays

from kineticsim_env.runtime import build
from kineticsim_env.tasks.base import ROLES

pytestmark = pytest.mark.skipif(build.cpu_unavailable() is not None, reason="no C++ compiler")
few_examples = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def twice(kernels, monkeypatch):
    """Make something with the C++ engine, and again with a variant of the kernel."""

    def make(variant, what):
        with monkeypatch.context() as patch:
            patch.setattr(build, "load_cpu", lambda: kernels[variant])
            kernel = what()
        return what(), kernel

    return make


@pytest.mark.parametrize("variant", ["warp", "warp with bins"])
@few_examples
@given(environment=environments())
def test_environments_agree_on_every_tensor(twice, variant, environment):
    first, second = twice(variant, lambda: make_cores(*environment[:2], ("cpu",))[0])
    check_cores_agree([first, second], environment, 0.05)


@few_examples
@given(environment=environments(most_slots=1))
def test_environments_of_one_slot_agree_on_every_tensor(twice, environment):
    first, second = twice("warp of one slot", lambda: make_cores(*environment[:2], ("cpu",))[0])
    check_cores_agree([first, second], environment, 0.05)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("mark", ["fundamental", "liquidation"])
def test_they_agree_in_the_trading_market(twice, role, mark):
    made = twice("warp with bins and rounding", lambda: make_cores(*trading_market(role, mark=mark), ("cpu",))[0])
    check_trading_market(made)


def play_twice(twice, variant, play: Play):
    """Make every move of a play on both, and compare after each."""
    first, second = twice(variant, lambda: open_simulator("cpu", play))
    for number, move in enumerate(play.moves):
        assert_same(make_move(second, move), make_move(first, move), f"move {number} {move}:")


@few_examples
@given(play=plays(levels=(8, 32, 128)))
def test_runs_agree(twice, play):
    play_twice(twice, "warp", play)


@few_examples
@given(play=plays(levels=(64, 128), reach=15))
def test_runs_with_bins_agree(twice, play):
    play_twice(twice, "warp with bins", play)


def test_lanes_that_do_not_wait_are_seen(tmp_path, monkeypatch):
    """Without the wait between reading and writing, a lane reads what another one has already moved."""
    headers = headers_with_fibers(tmp_path)
    text = (headers / "warp" / "market_state.cuh").read_text()
    hasty = text.replace("      __syncwarp();\n      buy[tick] = b;", "      buy[tick] = b;")
    assert hasty != text
    (headers / "warp" / "market_state.cuh").write_text(hasty)
    flags = ("-fno-strict-aliasing", "-DKS_BINS=0", "-DKS_LEVERS=1")
    build_on_host("warp_on_host.cpp", tmp_path / "hasty.so", headers, *flags)
    library, cores = build._open_library(tmp_path / "hasty.so", build.CPU_FUNCTIONS), []
    (config, *rest), kwargs = trading_market("maker")
    for load in (build.load_cpu, lambda: library):
        monkeypatch.setattr(build, "load_cpu", load)
        cores += make_cores((config.replace(window=3), *rest), kwargs, ("cpu",))
    with pytest.raises(AssertionError, match=" is not "):
        check_trading_market(cores)
