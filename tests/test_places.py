"""Arguments in the wrong place: the error says which function takes them."""

import gymnasium as gym
import pytest

import kineticsim_env as ks
from kineticsim_env.evaluation import evaluation_env, evaluation_parallel_env
from kineticsim_env.runtime import places

MARKET, MANY = "KineticSim/MarketMaking-v0", r"gymnasium\.make_vec \(without vectorization_mode\)"


def of_one(**given):
    return gym.make(MARKET, engine="numpy", **given)


def of_many(**given):
    return gym.make_vec(MARKET, num_envs=2, engine="numpy", **given)


@pytest.mark.parametrize(
    ("make", "given", "takers"),
    [
        (lambda **given: evaluation_env(2, **given), {"seed": 1}, "reset, evaluate and Simulator take"),
        (lambda **given: evaluation_parallel_env(2, **given), {"seed": 1}, "reset, evaluate and Simulator take"),
        (of_many, {"output": "torch", "vectorization_mode": "sync"}, f"{MANY} takes"),
        (of_one, {"output": "torch"}, f"{MANY} takes"),
        (of_one, {"autoreset_mode": "SAME_STEP"}, f"{MANY} and BatchedParallelEnv take"),
        (of_one, {"num_envs": 2}, f"{MANY} and BatchedParallelEnv take"),
        (of_one, {"learners": {"maker": 1}}, "parallel_env and BatchedParallelEnv take"),
        (of_one, {"noise_spread": 3}, r"MarketConfig \(the argument config\) takes"),
        (of_one, {"forced_qty": 3}, "parallel_env, BatchedParallelEnv and KineticSim/Execution-v0 take"),
        (of_many, {"disable_env_checker": True}, r"gymnasium\.make takes"),
        (ks.parallel_env, {"render_market": 0}, f"{MANY} takes"),
        (lambda **given: ks.BatchedParallelEnv(2, **given), {"max_cycles": 3}, "parallel_env takes"),
        (lambda **given: ks.MarketConfig.preset("news", **given), {"stagger": False}, f"{MANY} and Batched"),
    ],
)
def test_the_error_names_who_takes_it(make, given, takers):
    name = next(iter(given))
    with pytest.raises(TypeError, match=rf"got the unknown (argument|field) '{name}', which {takers}"):
        make(**given)


@pytest.mark.parametrize("name", ["horizn", "task", "self", "arguments", 3])
def test_what_nobody_takes_has_no_place(name):
    """The catch-all of a signature is no argument."""
    assert places.taken_by(name) == ""


@pytest.mark.parametrize("path", [path for paths in places._TAKERS.values() for path in paths])
def test_all_in_the_table_take_something(path):
    assert len(places._arguments(path)) >= 2
