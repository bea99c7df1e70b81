"""The environment step of the NumPy oracle and of the C++ engine: every tensor the same, bit for bit."""

import pytest
from env_helpers import (
    check_agreement,
    check_trading_market,
    clock_environments,
    environments,
    make_cores,
    trading_market,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import covering, examples

from kineticsim_env.runtime.build import cpu_unavailable
from kineticsim_env.tasks.base import ROLES

ENGINES = ("cpu", "numpy")
pytestmark = pytest.mark.skipif(cpu_unavailable() is not None, reason="no C++ compiler")


@settings(max_examples=examples(120))
@given(environments(), st.sampled_from((0.0, 0.0, 0.05)))
def test_engines_agree_on_every_tensor(environment, bad):
    check_agreement(environment, bad, ENGINES)


@settings(max_examples=examples(100))
@given(clock_environments(), st.sampled_from((0.0, 0.0, 0.05)))
def test_engines_agree_on_the_clock(environment, bad):
    check_agreement(environment, bad, ENGINES)


@covering
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("reward", ["pnl", "inventory", "asymmetric", "per_unit", "edge"])
@pytest.mark.parametrize("mark", ["fundamental", "mid", "liquidation"])
def test_engines_agree_in_the_trading_market(role, reward, mark):
    check_trading_market(make_cores(*trading_market(role, reward=reward, mark=mark), ENGINES))
