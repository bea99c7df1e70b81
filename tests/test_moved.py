"""Names that have moved are found where they were, with a warning that says where they are."""

import importlib
import subprocess
import sys

import pytest

import kineticsim_env
from kineticsim_env import policies, statistics

FORMER = {
    kineticsim_env: [
        "AgentClass",
        "BlockImpact",
        "Calibration",
        "Counterfactual",
        "Measured",
        "Mix",
        "Rollout",
        "Sweep",
    ],
    policies: policies.attackers.__all__,
    statistics: statistics.arrays.__all__,
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in FORMER.items() for name in names])
def test_former_names_warn_and_are_the_same(module, name):
    with pytest.warns(DeprecationWarning, match=rf"^{module.__name__}.{name} goes with the next version: from") as said:
        found = getattr(module, name)
    assert said[0].filename == __file__
    place = str(said[0].message).split()[-3]
    assert found is getattr(importlib.import_module(place), name)
    assert name not in module.__all__


def test_former_names_in_a_from_import():
    """The interpreter looks twice, so it may warn twice."""
    line = "from kineticsim_env import Rollout; from kineticsim_env.policies import PumpAndDump"
    done = subprocess.run([sys.executable, "-W", "default", "-c", line], capture_output=True, text=True, check=True)
    assert "from kineticsim_env.simulator import Rollout" in done.stderr
    assert "from kineticsim_env.policies.attackers import PumpAndDump" in done.stderr


@pytest.mark.parametrize("module", FORMER)
def test_other_names_are_refused_as_usual(module):
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'nothing'"):
        _ = module.nothing
    assert not hasattr(module, "__wrapped__")
