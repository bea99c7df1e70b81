"""Engines agree, bit for bit, where settings of the task differ between markets, slots and episodes."""

import numpy as np
import pytest
from env_helpers import check_agreement, check_cores_agree, clock_environments, environments, make_cores
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thorough import examples

VALUES = {
    "horizon": [1, 2, 5, 9],
    "max_qty": [30, 31, 40],
    "max_target": [1, 7, 40],
    "block_qty": [1, 7, 30],
    "initial_inventory": [-40, -1, 0, 3, 40],
    "inventory_penalty": [0.0, 0.01, 0.3],
    "idle_penalty": [0.0, 0.1],
    "risk_aversion": [0.0, 0.3],
    "leftover_penalty": [0.0, 0.7, 10.0],
}
OF_MARKETS = {"horizon": [1, 2, 5, 9], "inventory_limit": [40, 50, 60]}


@st.composite
def varied(draw, base):
    """An environment of `base` in which some settings of the task differ."""
    (config, markets, task, roles), kwargs, seed, steps = draw(base)
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    config = config.replace(inventory_limit=None)
    forced_qty = min(task.forced_qty, 30, int(np.min(config.max_quote_qty)))  # more than is quoted is refused
    fixed = {"inventory_limit": 40, "max_target": 40, "max_qty": 30, "forced_qty": forced_qty}
    names = draw(st.lists(st.sampled_from([*VALUES, "inventory_limit"]), min_size=1, unique=True))
    drawn = names[: len(names) // 2] if kwargs["randomise"] else []
    arrays = {}
    if kwargs["randomise"]:  # with which a field of the config has one value for all markets
        names = [name for name in names if name != "inventory_limit" or name in drawn]
    for name in names[len(drawn) :]:
        shape = (markets, len(roles)) if draw(st.booleans()) else (1, len(roles))
        if name in OF_MARKETS:
            shape = (markets, 1)
        arrays[name] = generator.choice(VALUES.get(name) or OF_MARKETS[name], shape)
    task = task.replace(**{**fixed, **arrays})
    if drawn:
        ranges = {f"task.{name}": {"values": VALUES.get(name) or OF_MARKETS[name]} for name in drawn}
        kwargs = kwargs | {"randomise": ranges | (kwargs["randomise"] if draw(st.booleans()) else {})}
    return (config, markets, task, roles), kwargs, seed, steps


@settings(max_examples=examples(60))
@given(varied(environments()), st.sampled_from([0.0, 0.0, 0.2]))
def test_engines_agree(environment, bad):
    check_agreement(environment, bad, ("numpy", "cpu"))


@settings(max_examples=examples(40))
@given(varied(clock_environments()), st.sampled_from([0.0, 0.0, 0.2]))
def test_engines_agree_on_the_clock(environment, bad):
    check_agreement(environment, bad, ("numpy", "cpu"))


FEW = settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("kernel", ["warp", "warp with bins"])
@FEW
@given(environment=varied(environments()))
def test_warps_agree(twice, kernel, environment):
    check_cores_agree(twice(kernel, lambda: make_cores(*environment[:2], ("cpu",))[0]), environment, 0.05)


@pytest.mark.parametrize("kernel", ["warp of one slot", "lanes", "lanes and deadlines"])
@FEW
@given(environment=varied(environments(most_slots=1)))
def test_kernels_of_one_slot_agree(twice, kernel, environment):
    check_cores_agree(twice(kernel, lambda: make_cores(*environment[:2], ("cpu",))[0]), environment, 0.05)


# Few, as nearly every one has columns, and so a kernel, of its own.
@pytest.mark.gpu
@settings(max_examples=8)
@given(varied(environments()))
def test_a_gpu_agrees(environment):
    check_agreement(environment, 0.0, ("cpu", "cuda"))


@pytest.mark.gpu
@settings(max_examples=8)
@given(varied(clock_environments()))
def test_a_gpu_agrees_on_the_clock(environment):
    check_agreement(environment, 0.0, ("cpu", "cuda"))
