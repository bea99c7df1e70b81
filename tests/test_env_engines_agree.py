"""The environment step of the NumPy oracle and of the C++ engine: every tensor the same, bit for bit."""

import numpy as np
import pytest
from env_helpers import assert_same, check_agreement, draw_actions, environments, make_cores
from hypothesis import given, settings
from hypothesis import strategies as st

from kineticsim_env.build import cpu_unavailable
from kineticsim_env.config import MarketConfig
from kineticsim_env.env_core import SAME_STEP
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.base import ROLES
from kineticsim_env.tasks.many_learners import slots_of

ENGINES = ("cpu", "numpy")
pytestmark = pytest.mark.skipif(cpu_unavailable() is not None, reason="no C++ compiler")


@settings(max_examples=120)
@given(environments(), st.sampled_from((0.0, 0.0, 0.05)))
def test_engines_agree_on_every_tensor(environment, bad):
    check_agreement(environment, bad, ENGINES)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("reward", ["pnl", "inventory", "asymmetric", "per_unit"])
@pytest.mark.parametrize("mark", ["fundamental", "mid", "liquidation"])
def test_engines_agree_in_the_trading_market(role, reward, mark):
    task = ManyLearnersTask(horizon=12, reward=reward, mark=mark, bank_size=8, max_loss=150.0)
    arguments = (MarketConfig.preset("trading"), 6, task, [role])
    kwargs = {"slots": slots_of((role,)), "autoreset": SAME_STEP, "stagger": True, "auctions_per_step": 2}
    cores = make_cores(arguments, kwargs, ENGINES)
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
