"""`final_info`, the former name of `account_info`: until the next version it gives the same by that name, and warns."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from markets import FEW_ORDERS

from kineticsim_env.envs.batched import BatchedParallelEnv
from kineticsim_env.envs.parallel import parallel_env
from kineticsim_env.wrappers import RecordEpisodeStatistics

SMALL = {"config": FEW_ORDERS, "horizon": 3, "bank_size": 4, "warmup": 5, "engine": "numpy"}
WARNS = r"final_info= goes with the next version: write account_info="


def of_vector(output="numpy", **changes):
    return gym.make_vec("KineticSim/MarketMaking-v0", num_envs=3, stagger=False, output=output, **SMALL, **changes)


def of_one(**changes):
    return gym.make("KineticSim/MarketMaking-v0", **SMALL, **changes)


def of_agents(**changes):
    return parallel_env({"maker": 2}, **SMALL, **changes)


def of_groups(**changes):
    return BatchedParallelEnv(2, {"maker": 2}, stagger=False, **SMALL, **changes)


ACTIONS = {
    of_vector: lambda env: np.zeros((3, 4), np.float32),
    of_one: lambda env: np.zeros(4, np.float32),
    of_agents: lambda env: {agent: np.zeros(4, np.float32) for agent in env.agents},
    of_groups: lambda env: {"maker": torch.zeros(2, 2, 4)},
}


def renamed(infos):
    """Infos by the present names, on every level."""
    names = {"final_info": "account_info", "_final_info": "_account_info"}
    if isinstance(infos, dict):
        return {names.get(name, name): renamed(value) for name, value in infos.items()}
    return np.asarray(infos).tolist()


@pytest.mark.parametrize("make", ACTIONS)
def test_the_former_name_gives_the_same_by_its_names(make):
    """Over an end; the warning names this line's file, so that Python shows it to whoever wrote the call."""
    with pytest.warns(DeprecationWarning, match=WARNS) as said:
        former = make(final_info=True)
    assert [warning.filename for warning in said] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        present = make(account_info=True)
    for env in (former, present):
        env.reset(seed=5)
    for _ in range(3):
        old, new = (env.step(ACTIONS[make](env))[4] for env in (former, present))
        assert "'final_info'" in str(old)
        assert "'_final_info'" in str(old)
        assert "account_info" not in str(old)
        np.testing.assert_equal(renamed(old), renamed(new))
    ends = (
        renamed(old)["_account_info"] if "_account_info" in renamed(old) else renamed(old)["maker_0"]["_account_info"]
    )
    assert np.all(ends)


def test_states_are_exchanged():
    """What was saved by the former name goes on by the present one, bit for bit, and the other way."""
    with pytest.warns(DeprecationWarning, match=WARNS):
        former = of_vector(final_info=True)
    present = of_vector(account_info=True)
    former.reset(seed=1)
    former.step(np.ones((3, 4), np.float32))
    present.unwrapped.load_state_dict(former.unwrapped.state_dict())
    old, new = (env.step(np.zeros((3, 4), np.float32))[4] for env in (former, present))
    np.testing.assert_equal(renamed(old), renamed(new))
    former.unwrapped.load_state_dict(present.unwrapped.state_dict())


def test_statistics_of_episodes_find_it():
    with pytest.warns(DeprecationWarning, match=WARNS):
        envs = RecordEpisodeStatistics(of_vector("torch", final_info=True))
    envs.reset(seed=1)
    for _ in range(3):
        infos = envs.step(torch.ones(3, 4))[4]
    assert infos["_episode"].all()
    assert torch.equal(infos["episode"]["value"], infos["final_info"]["value"])


def test_off_is_off_and_bad_values_are_named():
    with pytest.warns(DeprecationWarning, match=WARNS):
        envs = of_vector(final_info=False)
    envs.reset(seed=1)
    assert set(envs.step(np.zeros((3, 4), np.float32))[4]) == {"final_obs", "_final_obs"}
    with pytest.raises(TypeError, match="final_info: expected True or False, got 1"):
        of_vector(final_info=1)
    with pytest.raises(TypeError, match="final_info: expected account_info, its present name, alone, got both"):
        of_vector(final_info=True, account_info=True)
