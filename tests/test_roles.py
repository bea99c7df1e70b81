"""The table of roles: it agrees with the engines, and nothing outside it decides by a role's name."""

import ast
import shlex
import subprocess
from pathlib import Path

import pytest
import torch
from build_helpers import needs_compiler

from kineticsim_env.engines.numpy import actions as numpy_actions
from kineticsim_env.envs.core import EnvCore
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.runtime import build, layout
from kineticsim_env.runtime.roles import ROLES, SPECS
from kineticsim_env.tasks import ManyLearnersTask
from kineticsim_env.tasks.many_learners import slots_of

FORMS = """
#include <cstdio>
#include <cstdlib>

#include "model/tasks.h"

int main(int, char** words) {
  for (int role = 0; role < std::atoi(words[1]); ++role) std::printf("%d ", ks::action_form(role));
}
"""
PACKAGE = Path(__file__).parent.parent / "kineticsim_env"
RULES = ("engines/numpy",)  # which states its own
BY_NAME = {"executor", "trader"}  # of the others built-in agents have the names, too


def decisions_by_name(text: str) -> list[int]:
    """Return the lines of a source that compare a role with a name, or have a table with a role's name in it."""
    lines = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            names = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)} & set(ROLES)
            if names and "role" in ast.unparse(node):
                lines.append(node.lineno)
        elif isinstance(node, (ast.Dict, ast.Tuple, ast.List, ast.Set)):
            parts = node.keys if isinstance(node, ast.Dict) else node.elts
            if BY_NAME & {part.value for part in parts if isinstance(part, ast.Constant)}:
                lines.append(node.lineno)
    return lines


def test_only_the_table_decides_by_the_name_of_a_role():
    found = {}
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).as_posix()
        if (
            place != "runtime/roles.py"
            and not place.startswith(RULES)
            and (lines := decisions_by_name(path.read_text()))
        ):
            found[place] = lines
    assert not found


@pytest.mark.parametrize(
    "line", ["if role == 'maker': pass", "x = 'noise' in roles", "x = {'executor': 1}", "FOR = ('maker', 'trader')"]
)
def test_a_decision_by_name_is_found(line):
    assert decisions_by_name(line) == [1]


def test_the_table_has_the_sizes_of_the_layout():
    assert max(spec.action.size for spec in SPECS.values()) == layout.CONSTANTS["kActionSize"]
    assert max(spec.observation_size for spec in SPECS.values()) == layout.CONSTANTS["kObservation"]
    names = {name.upper(): number for name, number in layout.ENUMS["Role"].items()}
    assert {name: getattr(numpy_actions, name) for name in names} == names  # the NumPy engine states its own


@needs_compiler
def test_the_header_says_the_same_of_every_role(tmp_path):
    """The rules' own property of a role, as compiled, beside the table's."""
    source, program = tmp_path / "forms.cpp", tmp_path / "forms"
    source.write_text(FORMS)
    command = shlex.split(build.find_cxx())
    subprocess.run([*command, "-std=c++17", f"-I{build.cuda_dir()}", str(source), "-o", str(program)], check=True)
    said = subprocess.run([str(program), str(len(ROLES))], check=True, capture_output=True, text=True).stdout.split()
    forms = layout.ENUMS["ActionForm"]
    assert [int(number) for number in said] == [forms[SPECS[role].action.name] for role in ROLES]
    assert set(forms) == {spec.action.name for spec in SPECS.values()}


def market(role, action_type="continuous"):
    """Three markets of a learner on the NumPy engine, whose rules are not read from the table."""
    task = ManyLearnersTask(horizon=4, action_type=action_type, bank_size=0, side="buy")
    settings = EnvSettings(preset="trading", engine="numpy", stagger=False, autoreset_mode="DISABLED")
    core = EnvCore(3, task, [role], slots_of((role,)), settings)
    core.reset(seed=5)
    return core


@pytest.mark.parametrize("role", ROLES)
def test_continuous_actions_are_as_the_table_says(role):
    core, form = market(role), SPECS[role].action
    idle = torch.full((3, 1, 4), 0.9)  # behind the role's own numbers nothing is read
    idle[..., : form.size] = torch.tensor(form.idle)
    core.step(actions=idle)
    assert not core.simulator.tensors["quotes"].any() and not core.fills.any()
    core.reset(seed=5)
    core.step(actions=torch.full((3, 1, 4), -0.5))  # orders behind the mid, of which some stand
    seen = core.tensors["observation"][:, 0]
    assert (seen[:, list(form.quantities)] > 0).any(0).all()
    assert not seen[:, SPECS[role].observation_size :].any()


@pytest.mark.parametrize("role", ROLES)
def test_discrete_actions_are_as_the_table_says(role):
    core, last = market(role, "discrete"), SPECS[role].action.num_choices - 1
    for choice, orders, bad in ((0, False, False), (last, True, False), (last + 1, True, True)):
        core.reset(seed=5)
        core.step(choices=torch.full((3, 1), choice))
        errors = core.simulator.tensors["error"]
        assert bool(core.simulator.tensors["quotes"].any()) is orders and bool(errors.all()) is bad
        errors.zero_()


@pytest.mark.parametrize("role", ROLES)
def test_only_the_deadline_of_a_block_terminates(role):
    core = market(role)
    for _ in range(4):
        core.step(actions=torch.zeros((3, 1, 4)))
    assert bool(core.tensors["terminated"].all()) is bool(core.tensors["terminated"].any()) is SPECS[role].has_block
    assert bool(core.tensors["truncated"].all()) is not SPECS[role].has_block
