"""`EnvSettings`: what all environments are made with has the same name, default and check in each of them."""

import ast
import dataclasses
import importlib.util
import inspect
import re
import subprocess
import sys
import textwrap
import typing
from pathlib import Path

import pytest
from gymnasium.vector import AutoresetMode

import kineticsim_env as ks
from kineticsim_env.envs import arguments, parallel, settings
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
    fixed = {"prefer_cpu", "own", "opponent_slots", "account_key"}  # made of other arguments
    fixed |= set() if "stagger" in parameters else {"autoreset_mode", "stagger", "copy", "validate"}
    assert shared == DEFAULTS.keys() - fixed
    assert {name: parameters[name].default for name in shared} == {name: DEFAULTS[name] for name in shared}


@pytest.mark.parametrize(
    "kind", [MarketVectorEnv, BatchedParallelEnv, MarketEnv, MarketParallelEnv, ks.parallel_env, parallel.aec_env]
)
def test_what_help_shows_is_whole(kind):
    """Signature and docstring have the same arguments, in the same order; each setting is described as it is there."""
    parameters = inspect.signature(kind).parameters
    text = next(text for text in map(inspect.getdoc, (kind.__init__, kind)) if "Args:" in text)
    listed = text.partition("Args:")[2].partition("Raises:")[0] + "\n"
    entries = dict(re.findall(r"^    \*{0,2}(\w+): (.*\n(?:        .*\n)*)", listed, re.MULTILINE))
    assert list(entries) == list(parameters) and parameters["task"].kind is inspect.Parameter.VAR_KEYWORD
    hints = typing.get_type_hints(kind.__init__ if isinstance(kind, type) else kind)
    assert hints.keys() - {"return"} == set(parameters)
    described = " ".join(inspect.getdoc(EnvSettings).split())
    for name in arguments.OF_MANY.keys() & parameters:
        assert f"{name}: {' '.join(entries[name].split())}" in described, name


def test_a_setting_is_stated_once():
    """No constructor has one in its signature but for `config`, which may be given by position."""
    for kind in (MarketVectorEnv, BatchedParallelEnv, MarketEnv, MarketParallelEnv):
        [tree] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
        init = next(part for part in tree.body if isinstance(part, ast.FunctionDef) and part.name == "__init__")
        own = {argument.arg for argument in (*init.args.args, *init.args.kwonlyargs)}
        assert own & arguments.OF_MANY.keys() == {"config"}
    sources = "".join(path.read_text() for path in Path(settings.__file__).parent.glob("*.py"))
    for line in inspect.getdoc(EnvSettings).partition("Attributes:\n")[2].splitlines():
        described = line.strip().partition(": ")[2] if re.match(r"    \w+: ", line) else line.strip()
        assert len(described) < 40 or sources.count(described) == 1, described


def test_type_checkers_see_every_setting():
    tree = ast.parse(Path(arguments.__file__).read_text())
    kinds = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    one, more = ([part.target.id for part in kinds[name].body[1:]] for name in ("OfOneMarket", "OfManyMarkets"))
    assert one == [name for name in arguments.OF_ONE if name != "config"]
    assert set(one) | set(more) == arguments.OF_MANY.keys() - {"config"}


CHECKED = """
import kineticsim_env as ks
from kineticsim_env.envs.single import TradingEnv
from kineticsim_env.envs.vector import TradingVectorEnv

TradingVectorEnv(4, ks.MarketConfig(), stagger=False, horizon=3, reward="pnl")
TradingEnv(ks.MarketConfig(), auctions_per_step=2, horizon=3)
TradingVectorEnv(4, stagger="no")
TradingEnv(preset=3)
ks.BatchedParallelEnv(4, num_scenarios="many")
"""


@pytest.mark.slow
def test_type_checkers_refuse_settings_of_other_types(tmp_path):
    """And nothing else: fields of the task are arguments like any."""
    pytest.importorskip("ty")
    (tmp_path / "checked.py").write_text(CHECKED)
    root = Path(ks.__file__).parent.parent
    command = [sys.executable, "-m", "ty", "check", "--output-format", "concise", "--python", sys.prefix]
    command += ["--extra-search-path", str(root), str(tmp_path / "checked.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = {int(number): text for number, text in re.findall(r"checked\.py:(\d+):\d+: (.*)", done.stdout)}
    assert set(lines) == {8, 9, 10} and all("invalid-argument-type" in text for text in lines.values()), done.stdout


@pytest.mark.parametrize("make", [lambda **given: TradingVectorEnv(1, **given), TradingEnv, MarketParallelEnv])
@pytest.mark.parametrize("name", ["prefer_cpu", "own", "opponent_slots", "replaces"])
def test_what_is_no_argument_is_refused_by_name(make, name):
    with pytest.raises(
        TypeError, match=f"environment: expected, .* one of horizon.*, got the unknown argument '{name}'"
    ):
        make(**{name: None}, engine="numpy")


@pytest.mark.parametrize("kind", [TradingVectorEnv, TradingEnv, MarketParallelEnv, BatchedParallelEnv])
def test_an_unknown_argument_is_told_the_settings_too(kind):
    """Those of the task alone were listed."""
    with pytest.raises(TypeError, match="expected, for the task, one of horizon.*'enginee'$") as refused:
        kind(**({"num_envs": 1} if "num_envs" in inspect.signature(kind).parameters else {}), enginee="numpy")
    told = str(refused.value).rpartition("for the environment ")[2].partition(", got ")[0].split(", ")
    assert set(told) == DEFAULTS.keys() & inspect.signature(kind).parameters.keys()


@pytest.mark.parametrize("name", ["autoreset_mode", "stagger", "copy", "validate"])
@pytest.mark.parametrize("make", [TradingEnv, MarketParallelEnv])
def test_one_market_has_no_settings_of_many(make, name):
    with pytest.raises(TypeError, match=f"environment: expected, .*, got the unknown argument '{name}'"):
        make(**{name: getattr(EnvSettings, name)}, engine="numpy")


def test_positional_calls_go_on_working():
    config, fields = ks.MarketConfig(num_agents=30), {**SMALL, "horizon": 2}
    made = [TradingVectorEnv(2, config, **fields), TradingEnv(config, **fields)]
    made += [MarketParallelEnv({"trader": 1}, config, **fields), BatchedParallelEnv(2, {"trader": 1}, config, **fields)]
    made += [ks.parallel_env({"trader": 1}, config, **fields)]
    assert [env.core.settings.config.num_agents for env in made] == [30] * 5
    with pytest.raises(TypeError, match="positional"):
        TradingVectorEnv(2, config, "news")


GIVEN = {
    "config": ks.MarketConfig.preset("paper", fee=3),
    "auctions_per_step": 3,
    "randomise": {"fee": (0, 9)},
    "num_scenarios": 5,
    "scenario_seed": 11,
    "account_info": True,
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
        ("config", "paper", r"config: expected a MarketConfig, a dict of its fields or None, got str"),
        ("auctions_per_step", 0, r"auctions_per_step: expected 1 to.*got 0"),
        ("autoreset_mode", "never", r"autoreset_mode: expected one of NEXT_STEP, SAME_STEP, DISABLED, got 'never'"),
        ("stagger", 1, r"stagger: expected True or False, got 1"),
        ("account_info", 1, r"account_info: expected True or False, got 1"),
        ("validate", "no", r"validate: expected True or False, got 'no'"),
        ("copy", None, r"copy: expected True or False, got None"),
        ("action_mask", 1, r"action_mask: expected True or False, got 1"),
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
