"""One auction from states that no run reaches: every engine, the kernels built for a CPU among them, ends alike.

Numbers that `load_state_dict` refuses are put into the live tensors, as the engines' arithmetic must not depend on what
another part of the package lets through.
"""

import itertools

import pytest
import torch
from build_helpers import HOST_KERNELS
from env_helpers import assert_same, make_cores
from thorough import covering, slow

from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime import build
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.many_learners import slots_of

pytestmark = pytest.mark.skipif(build.cpu_unavailable() is not None, reason="no C++ compiler")
LEVELS, MOST = 32, 2**31
FAR = 2**29 - 200  # an origin with room for what happens next
PREVIOUS_MIDS = (-MOST, 1 - MOST, -(2**30) - 1, -1, 0, 31, 2 * LEVELS - 2, 2**30, MOST - 1)
# On the grid, and with a window off it: from there it jumps to the other end of what origins may be.
LAST_TICKS = (0, 15, LEVELS - 1, 800 - 2**30, 2**30 - 800)
BOOKS = ((), ("bid",), ("ask",), ("bid", "ask"))
VALUES = (-(2**30), 2**30)
OFTEN_BUILT = ("lanes", "warp", "warp with bins and levers", "warp of one slot and rounding")
KERNELS = ["cpu", *(name if name in OFTEN_BUILT else pytest.param(name, marks=slow) for name in HOST_KERNELS)]
KERNELS += [pytest.param("cuda", marks=pytest.mark.gpu)]


def extreme_environment(engine, window, values=VALUES, **levers):
    """One market for each combination, in its extreme state; agents of every class, half of them momentum traders."""
    cases = list(itertools.product(PREVIOUS_MIDS, LAST_TICKS if window else LAST_TICKS[:3], BOOKS, values))
    config = MarketConfig(
        num_levels=LEVELS, init_price=16, num_agents=12, noise=0.25, momentum=0.5, maker=0.0, fundamental=0.25,
        window=window, market_order_prob=0.2, **levers,
    )  # fmt: skip
    task = ManyLearnersTask(horizon=9, bank_size=0, warmup=0, reward="inventory", mark="mid")  # of no fundamental price
    kwargs = {"slots": slots_of(("trader",)), "autoreset_mode": "next_step", "stagger": False, "auctions_per_step": 1}
    [core] = make_cores((config, len(cases), task, ["trader"]), kwargs, (engine,))
    core.reset(3)
    tensors = core.simulator.tensors
    for m, (previous, last, sides, value) in enumerate(cases):
        tensors["prev_mid2"][m], tensors["last_tick"][m], tensors["fundamental_price"][m] = previous, last, value
        # A last price off the grid moves the origin by as much.
        tensors["price_origin"][m] = 0 if 0 <= last < LEVELS else FAR if last < 0 else -FAR
        for side, tick in (("bid", 14), ("ask", 17)):
            tensors[side][m] = 0
            tensors[side][m, tick] = 5 if side in sides else 0
    return core


def step_twice(core):
    """Step with a quote far from the mid, then one at it; the first step meets the extreme state."""
    for side in (-1.0, 1.0):
        actions = torch.full((core.simulator.num_markets, 1, 4), side, device=core.device)
        core._engine.launch(1, auctions=1, actions=actions)


@covering
@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("kernel", KERNELS)
def test_engines_end_alike(kernels, monkeypatch, kernel, window):
    oracle = extreme_environment("numpy", window)
    if kernel in HOST_KERNELS:
        monkeypatch.setattr(build, "load_cpu", lambda: kernels[kernel])
    core = extreme_environment("cuda" if kernel == "cuda" else "cpu", window)
    for each in (oracle, core):
        step_twice(each)
    assert_same([oracle, core], "after two steps")
    assert not oracle.simulator.tensors["error"].any()
    origins = oracle.simulator.tensors["price_origin"]
    if window:
        assert int(origins.max()) > FAR - 600 and int(origins.min()) < 600 - FAR, "the grid jumped that far"


@covering
@pytest.mark.parametrize("rounding", ["even", "coin"])
@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("kernel", ["cpu", "warp and levers", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_prices_of_levers_end_alike(kernels, monkeypatch, kernel, window, rounding):
    values = (1 - MOST, MOST - 1, 7)  # their ticks do not fit an int32 where the origin is far the other way
    levers = {"reference": "fundamental", "tax": 1, "collar": 4, "tick_size": 3, "rounding": rounding}
    oracle = extreme_environment("numpy", window, values, **levers)
    if kernel in HOST_KERNELS:
        monkeypatch.setattr(build, "load_cpu", lambda: kernels[kernel])
    core = extreme_environment("cuda" if kernel == "cuda" else "cpu", window, values, **levers)
    for each in (oracle, core):
        step_twice(each)
        # The oracle cuts a fundamental price that does not walk, too.
        each.simulator.tensors["fundamental_price"].clamp_(-(2**30), 2**30)
    assert_same([oracle, core], "after two steps")
