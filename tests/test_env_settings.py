"""`EnvSettings`: what all environments are made with has the same name, default and check in each of them."""

import dataclasses
import importlib.util
import inspect
import sys

import pytest
from gymnasium.vector import AutoresetMode

import kineticsim_env as ks
from kineticsim_env.envs import settings
from kineticsim_env.envs.batched import BatchedParallelEnv
from kineticsim_env.envs.parallel import MarketParallelEnv
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.envs.single import MarketEnv, TradingEnv
from kineticsim_env.envs.vector import MarketVectorEnv, TradingVectorEnv
from kineticsim_env.play.game import Game
from kineticsim_env.runtime import layout
from kineticsim_env.tasks import ExecutionTask, MarketMakingTask, TradingTask
from kineticsim_env.tasks.base import observation_size

DEFAULTS = {field.name: field.default for field in dataclasses.fields(EnvSettings)}
SMALL = {"engine": "numpy", "warmup": 1, "bank_size": 2}


@pytest.mark.parametrize("kind", [MarketVectorEnv, BatchedParallelEnv, MarketEnv, MarketParallelEnv])
def test_constructors_have_its_defaults(kind):
    parameters = inspect.signature(kind).parameters
    shared = DEFAULTS.keys() & parameters
    fixed = {"prefer_cpu", "own", "seats"}  # made of reward, features and terminate, and of opponents
    fixed |= set() if "stagger" in parameters else {"autoreset_mode", "stagger", "validate"}
    assert shared == DEFAULTS.keys() - fixed
    assert {name: parameters[name].default for name in shared} == {name: DEFAULTS[name] for name in shared}


GIVEN = {
    "config": ks.MarketConfig.preset("paper", fee=3),
    "auctions_per_step": 3,
    "randomise": {"fee": (0, 9)},
    "num_scenarios": 5,
    "scenario_seed": 11,
    "final_info": True,
    "engine": "numpy",
}
OF_MANY = {"autoreset_mode": AutoresetMode.NEXT_STEP, "stagger": False, "validate": True}
ONE_MARKET = {"autoreset_mode": AutoresetMode.DISABLED, "stagger": False, "validate": True}


@pytest.mark.parametrize(
    ("make", "more", "wanted"),
    [
        (lambda **given: TradingVectorEnv(2, **given), OF_MANY, OF_MANY),
        (lambda **given: BatchedParallelEnv(2, {"trader": 1}, **given), OF_MANY, OF_MANY),
        (TradingEnv, {}, ONE_MARKET),
        (lambda **given: MarketParallelEnv({"trader": 1}, **given), {}, ONE_MARKET),
    ],
)
def test_constructors_hand_over_what_they_are_given(make, more, wanted):
    settings = make(**GIVEN, **more, warmup=1, bank_size=2).core.settings
    assert {name: getattr(settings, name) for name in (*GIVEN, *wanted)} == GIVEN | wanted


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("config", "paper", r"config: got str, allowed are a MarketConfig, a dict of its fields, None"),
        ("auctions_per_step", 0, r"auctions_per_step: got 0, allowed is 1 to"),
        ("autoreset_mode", "never", r"autoreset_mode: got 'never', allowed are NEXT_STEP, SAME_STEP, DISABLED"),
        ("stagger", 1, r"stagger: got 1, allowed are True and False"),
        ("final_info", 1, r"final_info: got 1, allowed are True and False"),
        ("validate", "no", r"validate: got 'no', allowed are True and False"),
    ],
)
def test_wrong_settings_are_refused(name, value, error):
    with pytest.raises((TypeError, ValueError), match=error):
        EnvSettings(**{name: value})
    with pytest.raises((TypeError, ValueError), match=error):
        TradingVectorEnv(2, **{**SMALL, name: value})


@pytest.mark.parametrize("mode", ["same_step", "SameStep", AutoresetMode.SAME_STEP])
def test_a_mode_may_be_a_name_or_a_value(mode):
    assert EnvSettings(autoreset_mode=mode).autoreset_mode is AutoresetMode.SAME_STEP


def test_modes_have_the_numbers_of_the_header(monkeypatch):
    """Whatever the order of either enum."""
    numbers = {"disabled": 0, "same_step": 1, "next_step": 2}
    monkeypatch.setitem(layout.ENUMS, "Autoreset", numbers)
    described = importlib.util.spec_from_file_location("another_settings", settings.__file__)
    another = importlib.util.module_from_spec(described)
    monkeypatch.setitem(sys.modules, "another_settings", another)
    described.loader.exec_module(another)
    for mode in AutoresetMode:
        assert another.EnvSettings(autoreset_mode=mode).autoreset == numbers[mode.name.lower()]
    assert (another.NEXT_STEP, another.SAME_STEP, another.DISABLED) == (2, 1, 0)


def test_who_plays_plays_the_default_market():
    assert inspect.signature(Game).parameters["preset"].default == EnvSettings.preset


@pytest.mark.parametrize("task", [MarketMakingTask, ExecutionTask, TradingTask])
def test_pages_name_the_default_market(task):
    assert f'`preset` (`"{EnvSettings.preset}"`)' in task.__doc__
    assert f'the default, `"{EnvSettings.preset}"`, is' in MarketVectorEnv.__doc__
    size = (observation_size(task.role, ks.MarketConfig.preset(EnvSettings.preset).is_continuous),)
    assert f"`Box(-1, 1, {size}, float32)`, with" in task.__doc__
