"""The recipes of docs/changing.md, followed step by step in a copy of the checkout, and the check that ends each.

An edit is of one step, in a file that the step names; every step has one, or is the command that is run at the end.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from test_package import tracked

from kineticsim_env.runtime import build

ROOT = Path(__file__).parent.parent


def compiled(test):
    """Mark a test that compiles the C++ engine anew, which on a busy machine takes minutes."""
    why = build.cpu_unavailable()
    return pytest.mark.slow(pytest.mark.timeout(1200)(pytest.mark.skipif(why is not None, reason=str(why))(test)))


STATISTIC = {  # by step: the file, what stands there, and what stands there instead; "" is a file that is new
    1: [
        (
            "kineticsim_env/statistics/of_returns.py",
            "def unchanged(",
            '''def mean_size(span: int = 1, price: str = "last") -> Plan:
    """Mean size of returns over `span` intervals, ticks."""
    series, tick = change_of(price, span)
    return Plan((Moments(Made(torch.abs, (series,))),), lambda sums: tick * mean(sums), unit="ticks")


def unchanged(''',
        )
    ],
    2: [
        (
            "docs/statistics.md",
            "| `quantile`, `tail_index`",
            "| `mean_size` | of \\|r\\| | | |\n| `quantile`, `tail_index`",
        )
    ],
    3: [("tests/test_measure.py", '"unchanged": (r', '"mean_size": np.abs(r).mean(),\n        "unchanged": (r')],
}
# A trader that sees how far the mid has gone in the episode, and is paid what its trades make against the mark.
_NUMPY = "kineticsim_env/engines/numpy"
TASK = {
    1: [("docs/environment.md", "## Rewards\n", "## Rewards\n\nA speculator's trades count at the mark after them.\n")],
    2: [("cuda/model/layout.h", "kRoleFundamental = 5 }", "kRoleFundamental = 5, kRoleSpeculator = 6 }")],
    3: [
        (
            "cuda/model/tasks.h",
            "  } else if (role == kRoleExecutor) {\n    reward = execution",
            "  } else if (role == kRoleSpeculator) {\n    reward = money_against(d.before, d.after, d.mark2_after);\n"
            "  } else if (role == kRoleExecutor) {\n    reward = execution",
        ),
        (
            "cuda/model/tasks.h",
            "if (executor) return squash",
            "if (executor || view.role == kRoleSpeculator) return squash",
        ),
    ],
    4: [
        (f"{_NUMPY}/actions.py", "FUNDAMENTAL = range(6)", "FUNDAMENTAL, SPECULATOR = range(7)"),
        (
            f"{_NUMPY}/actions.py",
            "FUNDAMENTAL: trader_choice}",
            "FUNDAMENTAL: trader_choice, SPECULATOR: trader_choice}",
        ),
        (
            f"{_NUMPY}/actions.py",
            "FUNDAMENTAL: trader_action}",
            "FUNDAMENTAL: trader_action, SPECULATOR: trader_action}",
        ),
        (f"{_NUMPY}/rewards.py", "import EXECUTOR, NOISE,", "import EXECUTOR, NOISE, SPECULATOR,"),
        (
            f"{_NUMPY}/rewards.py",
            '        elif task["role"][k] == EXECUTOR:',
            '        elif task["role"][k] == SPECULATOR:\n'
            "            reward[:, k] = money_against(m, k, account, mark2(m, task))\n"
            '        elif task["role"][k] == EXECUTOR:',
        ),
        (f"{_NUMPY}/observations.py", "MAKER, NOISE, TRADER,", "MAKER, NOISE, SPECULATOR, TRADER,"),
        (f"{_NUMPY}/observations.py", "in (TRADER, FUNDAMENTAL)", "in (TRADER, FUNDAMENTAL, SPECULATOR)"),
        (f"{_NUMPY}/observations.py", "    if role == EXECUTOR:\n", "    if role in (EXECUTOR, SPECULATOR):\n"),
    ],
    5: [
        (
            "kineticsim_env/runtime/roles.py",
            "}\nROLES =",
            '    "speculator": RoleSpec("speculation", TRADE, 37),\n}\nROLES =',
        )
    ],
    6: [
        (
            "kineticsim_env/tasks/speculation.py",
            "",
            '''"""`SpeculationTask`: the settings of `KineticSim/Speculation-v0`, and its page."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from kineticsim_env.tasks.base import ForProfit, Task


@dataclasses.dataclass(frozen=True)
class SpeculationTask(ForProfit, Task):
    """A speculator trades, and is paid what its trades make against the mark.

    ## Description

    As `TradingTask`, but for the reward.
    """

    role: ClassVar[str | None] = "speculator"
    replaceable: ClassVar[str | None] = "momentum"
''',
        ),
        (
            "kineticsim_env/tasks/__init__.py",
            "from kineticsim_env.tasks.trading ",
            "from kineticsim_env.tasks.speculation import SpeculationTask\nfrom kineticsim_env.tasks.trading ",
        ),
        ("kineticsim_env/tasks/__init__.py", "TradingTask}", 'TradingTask, "Speculation": SpeculationTask}'),
    ],
    7: [
        (
            f"kineticsim_env/envs/{name}.py",
            f"class Trading{kind}(",
            f"class Speculation{kind}(Market{kind}):\n    task_type = TASKS['Speculation']\n\n\nclass Trading{kind}(",
        )
        for name, kind in (("single", "Env"), ("vector", "VectorEnv"))
    ]
    + [
        (
            f"kineticsim_env/envs/{name}.py",
            "from kineticsim_env.tasks import ExecutionTask",
            "from kineticsim_env.tasks import TASKS, ExecutionTask",
        )
        for name in ("single", "vector")
    ],
    8: [
        (
            "scripts/pages/environments.py",
            "TASKS = {  # page: title, task, id, the example that trains it\n",
            'TASKS = {  # page: title, task, id, the example that trains it\n    "speculation": ("Speculation", '
            'tasks.TASKS["Speculation"], "KineticSim/Speculation-v0", "ppo_trader.py"),\n',
        ),
        (
            "scripts/pages/environments.py",
            "from kineticsim_env.envs import parallel\n",
            "from kineticsim_env import tasks\nfrom kineticsim_env.envs import parallel\n",
        ),
        (
            "docs/environments/index.md",
            "| [Many learners]",
            "| [Speculation](speculation.md) | `KineticSim/Speculation-v0` | trades |\n| [Many learners]",
        ),
        ("docs/environments/index.md", "trading\nmany_learners\n", "trading\nspeculation\nmany_learners\n"),
    ],
}
# A collar that only buys have.
LEVER = {
    1: [("docs/model.md", "## Levers\n", "## Levers\n\n`buy_collar` is a collar that only buys have.\n")],
    2: [
        (
            "kineticsim_env/config.py",
            "        collar: How",
            "        buy_collar: A collar of buys.\n        collar: How",
        ),
        (
            "kineticsim_env/config.py",
            "    tick_size: PerMarket[int] = 1",
            "    buy_collar: PerMarket[int] = 0\n    tick_size: PerMarket[int] = 1",
        ),
        ("kineticsim_env/config.py", '"tax", "collar",', '"tax", "collar", "buy_collar",'),
        ("kineticsim_env/runtime/fields.py", '    "collar": (0,', '    "buy_collar": (0, 32767),\n    "collar": (0,'),
    ],
    3: [("kineticsim_env/engines/parameters.py", '"tax", "collar",', '"tax", "collar", "buy_collar",')],
    4: [
        (
            f"{_NUMPY}/orders.py",
            "    return to_multiple(tick + origin",
            """    buys = m.params["buy_collar"][:, None]
    within = np.minimum(tick, collar_price[:, None] - origin + buys)
    tick = np.where((buys > 0) & ~np.asarray(sells), within, tick)
    return to_multiple(tick + origin""",
        )
    ],
    5: [
        ("cuda/model/layout.h", "  int32_t padding[1];", "  int32_t buy_collar;"),
    ],
    6: [
        (
            "cuda/model/levers.h",
            "  pricing.around_value = ",
            "  const int32_t buys = p.levers.buy_collar;\n"
            "  if (buys > 0) pricing.most = min_of(pricing.most, ticks_above(last, buys));\n"
            "  pricing.around_value = ",
        ),
        (
            "cuda/model/levers.h",
            "  if (p.levers.tick_size == 1) return price;",
            "  if (p.levers.buy_collar > 0 && !side) price = min_of(price, ticks_above(last, p.levers.buy_collar));\n"
            "  if (p.levers.tick_size == 1) return price;",
        ),
        ("cuda/model/levers.h", "| p.levers.collar |", "| p.levers.collar | p.levers.buy_collar |"),
    ],
    7: [("kineticsim_env/engines/variants.py", '"tax", "collar",', '"tax", "collar", "buy_collar",')],
    8: [
        (
            "tests/strategies.py",
            '        "collar": lever',
            '        "buy_collar": lever(0, 1, 4),\n        "collar": lever',
        )
    ],
}
RECIPES = {"A statistic": STATISTIC, "An option of the market": LEVER, "A task": TASK}
SPECULATE = """
import gymnasium
import kineticsim_env as ks
from kineticsim_env import policies
from kineticsim_env.evaluation import evaluate, evaluation_env, format_table

settings = dict(engine="cpu", preset="trading", horizon=5, bank_size=0)
env = gymnasium.make("KineticSim/Speculation-v0", **settings, render_mode="ansi")
env.reset(seed=0)
env.step(env.action_space.sample())
assert env.render().startswith("speculation |"), env.render()
envs = evaluation_env(8, "Speculation", **settings)
print(format_table({"idle": evaluate(policies.Hold(envs.core.task), envs)}, task="Speculation"))
envs = ks.BatchedParallelEnv(3, {"speculator": 2}, action_mask=True, action_type="discrete", **settings)
envs.reset(seed=0)
envs.load_state_dict(envs.state_dict())
"""
PULL = """
import kineticsim_env as ks

market = ks.MarketConfig.preset("trading")
for engine in ("numpy", "cpu"):
    sums = []
    for collar in (0, 1):
        simulator = ks.Simulator(market.replace(buy_collar=collar), 16, engine=engine)
        sums.append(int(simulator.run(100, ("last_price",))["last_price"].sum()))
    print(engine, *sums)
"""


def recipe(title):
    """Return the numbered steps of a recipe."""
    page = (ROOT / "docs" / "changing.md").read_text()
    section = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    steps = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |\Z)", section[1], re.MULTILINE | re.DOTALL)
    return {int(number): " ".join(step.split()) for number, step in steps}


def named(step):
    """Return the files that a step names."""
    links = re.findall(r"\]\(([\w/]+\.md)", step)
    return {*re.findall(r"`([\w/]+\.\w+)`", step), *(f"docs/{link}" for link in links)}


def follow(title, folder):
    """Take every step of a recipe in a copy of the checkout, but for the last."""
    steps = recipe(title)
    assert list(steps) == [*RECIPES[title], len(RECIPES[title]) + 1], "a step without an edit, or the other way round"
    for number, of_step in RECIPES[title].items():
        for name, before, text in of_step:
            if not before:
                (folder / name).write_text(text)
                continue
            assert name in named(steps[number]), f"step {number} does not name {name}"
            source = (folder / name).read_text()
            assert source.count(before) == 1, f"{name}: {before!r} is not there once"
            (folder / name).write_text(source.replace(before, text))


def end(title, folder, **names):
    """Run the command that a recipe ends with, with these names in it."""
    steps = recipe(title)
    [command] = re.findall(r"`(pytest .*?)`", steps[len(steps)])
    for name, meant in names.items():
        command = command.replace(name, meant)
    return run(command, folder)


def run(command, folder):
    """Run a command of pytest in the copy; return its exit code and what it says."""
    words = [sys.executable, "-m", *shlex.split(command), "-q", "-x", "-p", "no:cacheprovider", "-n", "0"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def python(words, folder):
    """Run Python in the copy; return what it prints."""
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the checkout in which all recipes were followed, so that it is compiled once."""
    folder = tmp_path_factory.mktemp("copy")
    for name in tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    for title in RECIPES:
        follow(title, folder)
    layout = folder / "tests" / "test_layout.py"
    layout.write_text(layout.read_text().replace('"trader", "fundamental")', '"trader", "fundamental", "speculator")'))
    assert python(["-c", "import kineticsim_env; print(kineticsim_env.__file__)"], folder).startswith(str(folder))
    return folder


@pytest.mark.slow
def test_a_statistic_is_added_by_its_recipe(copy):
    code, said = end("A statistic", copy)
    assert code == 0, said
    measure = copy / "tests" / "test_measure.py"
    edited = measure.read_text()
    measure.write_text((ROOT / "tests" / "test_measure.py").read_text())
    assert end("A statistic", copy)[0] == 1  # it is noticed that there is no formula
    measure.write_text(edited)


@compiled
def test_a_lever_is_added_by_its_recipe(copy):
    """On the NumPy and the C++ engine, which have to agree on it."""
    code, said = end("An option of the market", copy)
    assert code == 0, said
    numpy, cpu = (line.split()[1:] for line in python(["-c", PULL], copy).splitlines())
    assert numpy == cpu and numpy[0] != numpy[1]


@compiled
def test_a_task_of_a_new_role_is_added_by_its_recipe(copy):
    """On the NumPy and the C++ engine, which have to agree on it."""
    python(["-m", "scripts.pages.environments"], copy)
    code, said = end("A task", copy, NAME="speculator")
    assert code == 0, said
    shown = python(["-c", SPECULATE], copy)
    assert "| policy | liquidated PnL, ticks |" in shown and "| idle | 0 " in shown
    code, said = run("pytest tests/test_documentation.py -k 'environment_has_its_page or current'", copy)
    assert code == 0, said
