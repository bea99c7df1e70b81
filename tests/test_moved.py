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
    statistics: [*statistics.arrays.__all__, "RunSummary"],
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in FORMER.items() for name in names])
def test_former_names_warn_and_are_the_same(module, name):
    with pytest.warns(DeprecationWarning, match=rf"^{module.__name__}.{name} goes with the next version: from") as said:
        found = getattr(module, name)
    assert said[0].filename == __file__
    place = str(said[0].message).split()[-3]
    assert found is getattr(importlib.import_module(place), name)
    assert name not in module.__all__


MODULES = {
    "counterfactual": ("counterfactuals", "Counterfactual"),
    "counterfactual.arms": ("counterfactuals.arms", "Arm"),
    "counterfactual.causal": ("counterfactuals.causal", "fit_power"),
    "counterfactual.impact": ("counterfactuals.impact", "BlockImpact"),
    "envs.counterfactual": ("envs.counterfactual_episodes", "EnvCounterfactual"),
    "scorecard": ("scorecards", "Line"),
}


@pytest.mark.parametrize("former", MODULES)
def test_former_modules_are_imported_and_their_names_warn(former):
    place, name = MODULES[former]
    module = importlib.import_module(f"kineticsim_env.{former}")
    with pytest.warns(DeprecationWarning, match=f"^kineticsim_env.{former}.{name} goes with the next version") as said:
        found = getattr(module, name)
    assert said[0].filename == __file__
    assert found is getattr(importlib.import_module(f"kineticsim_env.{place}"), name)
    with pytest.raises(AttributeError, match="nothing"):
        _ = module.nothing
    assert not hasattr(module, "__file__")


def test_former_names_in_a_from_import_and_functions_hide_no_module():
    """In a process that imports former modules in every form, too; the interpreter looks twice, and may warn twice."""
    lines = """
from kineticsim_env import Rollout
from kineticsim_env.policies import PumpAndDump
import importlib.util
import kineticsim_env as ks
import kineticsim_env.counterfactual, kineticsim_env.scorecard, kineticsim_env.counterfactual.arms
from kineticsim_env import counterfactual, scorecard
from kineticsim_env.envs.counterfactual import EnvCounterfactual
assert callable(ks.counterfactual) and callable(ks.scorecard)
assert counterfactual is ks.counterfactual and scorecard is ks.scorecard
import pkgutil
print([one.name for one in pkgutil.iter_modules(ks.__path__) if callable(getattr(ks, one.name, None))])
"""
    done = subprocess.run([sys.executable, "-W", "default", "-c", lines], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert "from kineticsim_env.simulator import Rollout" in done.stderr
    assert "from kineticsim_env.policies.attackers import PumpAndDump" in done.stderr
    assert "from kineticsim_env.envs.counterfactual_episodes import EnvCounterfactual" in done.stderr


@pytest.mark.parametrize("module", FORMER)
def test_other_names_are_refused_as_usual(module):
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'nothing'"):
        _ = module.nothing
    assert not hasattr(module, "__wrapped__")


@pytest.mark.parametrize(("fields", "has"), [({}, False), ({"collar": 4}, True), ({"rounding": "coin"}, True)])
def test_a_property_that_nothing_asks_for_warns(fields, has):
    with pytest.warns(DeprecationWarning, match="uses_levers goes with the next version") as said:
        assert kineticsim_env.MarketConfig(**fields).uses_levers is has
    assert said[0].filename == __file__
