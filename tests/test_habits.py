"""What people and CI are told to run exists, and versions are the same wherever they have to be stated twice."""

import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from thorough import leave_out_what_covers_nothing_new, slow

import kineticsim_env
from scripts import setup_env
from scripts.lower_bounds import lower_bounds

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
PREFIX = "Programming Language :: Python :: "
PYTHONS = [line.removeprefix(PREFIX) for line in PROJECT["classifiers"] if line.startswith(PREFIX)]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WORDS = [*WORKFLOWS, ROOT / "CONTRIBUTING.md", ROOT / ".github" / "pull_request_template.md", ROOT / ".ci" / "run",
         ROOT / ".pre-commit-config.yaml"]  # fmt: skip


def jobs(workflow: Path) -> dict:
    return yaml.safe_load(workflow.read_text())["jobs"]


def versions_of(job: dict) -> set[str]:
    """Return the Python versions that a job runs on."""
    asked = {step["with"]["python-version"] for step in job["steps"] if "setup-python" in step.get("uses", "")}
    matrix = job.get("strategy", {}).get("matrix", {})
    if asked == {"${{ matrix.python }}"}:
        return {*matrix["python"], *(row["python"] for row in matrix.get("include", []))}
    return asked


@pytest.mark.parametrize("path", WORDS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_target_exists(path):
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    text = path.read_text()
    named = set(re.findall(r"(?:`|run: |^|^\s+)make ([a-z-]+)", text, re.MULTILINE))
    if path in WORKFLOWS:
        for job in jobs(path).values():
            matrix = job.get("strategy", {}).get("matrix", {})
            named |= {*matrix.get("target", []), *(row["target"] for row in matrix.get("include", []))}
    assert named and named <= targets
    [phony] = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert set(phony.split()) == targets


def test_ci_runs_on_every_python_and_system_that_is_promised():
    assert [f"{major}.{minor}" for major, minor in (setup_env.OLDEST, setup_env.NEWEST)] == [PYTHONS[0], PYTHONS[-1]]
    assert PROJECT["requires-python"] == f">={PYTHONS[0]},<3.{int(PYTHONS[-1].split('.')[1]) + 1}"
    every = [job for workflow in WORKFLOWS for job in jobs(workflow).values()]
    assert all(versions_of(job) <= set(PYTHONS) for job in every)
    [tests] = [job for job in every if "test" in job.get("strategy", {}).get("matrix", {}).get("target", [])]
    assert versions_of(tests) == set(PYTHONS)
    systems = tests["strategy"]["matrix"]["os"]
    assert any("ubuntu" in system for system in systems) and any("macos" in system for system in systems)


def test_ci_runs_every_check():
    text = "".join(workflow.read_text() for workflow in WORKFLOWS)
    ours = (ROOT / ".ci" / "run").read_text()
    for target in ("lint", "test-all", "counts", "docs"):
        assert re.search(rf"\b{target}\b", text) and f"make {target}" in ours


@pytest.mark.skipif(shutil.which("make") is None, reason="no make is found")
def test_make_test_has_a_worker_per_core_where_there_is_xdist():
    words = ["make", "--no-print-directory", "--dry-run", "test", f"VENV_PYTHON={sys.executable}"]
    recipe = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    shown = subprocess.run(["sh", "-c", f"echo {recipe}"], capture_output=True, text=True, check=True).stdout
    workers = "--numprocesses logical --maxprocesses 4 --dist worksteal " if importlib.util.find_spec("xdist") else ""
    assert shown.strip() == f"{sys.executable} -m pytest {workers}-m not slow tests"


def test_one_version_of_this_package():
    version = kineticsim_env.__version__
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    sections = re.findall(r"^## \[(.*?)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[:2] == [("Unreleased", ""), (version, cited["date-released"])] and cited["version"] == version
    assert sections[1][1]


def test_the_changelog_has_the_sections_of_its_form():
    kinds = re.findall(r"^### (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_hooks_are_those_of_make_lint():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    lint = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    for hook in hooks:
        command = hook["entry"].removeprefix(".venv/bin/python ").removesuffix(" --force-exclude")
        assert command in lint


def test_issue_forms_can_be_read():
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        if path.name != "config.yml":
            assert {"name", "description", "body"} <= set(form)
            assert len({part["id"] for part in form["body"]}) == len(form["body"])


@pytest.mark.parametrize(("platform", "wanted"), [("linux", True), ("darwin", False)])
def test_requirements_of_another_system_are_left_out(monkeypatch, platform, wanted):
    monkeypatch.setattr(setup_env.sys, "platform", platform)
    assert ("nvidia-cuda-nvrtc" in setup_env.requirements(["test"])) == wanted


def test_everything_that_is_installed_is_pinned():
    pins = {setup_env.normal(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    parts = {part for parts, _ in setup_env.GOALS.values() for part in parts}
    assert set(setup_env.requirements(sorted(parts))) <= pins


def test_a_group_has_what_the_groups_in_it_have():
    """And each of its own; no name is that of a group and of an extra."""
    groups = PYPROJECT["dependency-groups"]
    assert not groups.keys() & PROJECT["optional-dependencies"].keys()
    for inner, outer in (("checks", "test"), ("test", "mutants"), ("mutants", "lint")):
        assert {"include-group": inner} in groups[outer]
        assert setup_env.requirements([inner]).items() < setup_env.requirements([outer]).items()
    assert setup_env.requirements(["checks"])["pytest"] == ">=8.0" and "pytest" not in setup_env.requirements([])
    assert set(setup_env.requirements(["checks", "train"])) > {"tyro", "matplotlib", "pytest"}


def test_lower_bounds_are_exact_versions_of_the_whole_core():
    bounds = dict(line.split("==") for line in lower_bounds([]))
    stated = {setup_env.normal(re.split("[<>=]", line)[0]): line for line in PROJECT["dependencies"]}
    assert bounds.keys() == stated.keys() and all(f">={version}" in stated[name] for name, version in bounds.items())
    assert all(setup_env.satisfies(version, setup_env.requirements([])[name]) for name, version in bounds.items())


def test_lower_bounds_are_for_the_oldest_python():
    done = subprocess.run([sys.executable, "-m", "scripts.lower_bounds"], cwd=ROOT, capture_output=True, text=True)
    if sys.version_info[:2] == setup_env.OLDEST:
        assert done.returncode == 0 and done.stdout.splitlines() == lower_bounds(["checks"])
    else:
        assert done.returncode == 1 and "make PYTHON=python3.11 lowest" in done.stderr and not done.stdout
    every = [job for workflow in WORKFLOWS for job in jobs(workflow).values()]
    [lowest] = [job for job in every if any(step.get("run") == "make lowest" for step in job["steps"])]
    assert versions_of(lowest) == {PYTHONS[0]}


class Case:
    """What of a collected test `leave_out_what_covers_nothing_new` looks at."""

    def __init__(self, *markers, **params):
        self.nodeid = f"test_x.py::test[{params}]"
        self.callspec = SimpleNamespace(params=params)
        self.markers = [pytest.mark.covering.mark, *markers]

    def get_closest_marker(self, name):
        return next((marker for marker in self.markers if marker.name == name), None)

    def add_marker(self, marker):
        self.markers.append(marker.mark)


def test_cases_that_are_not_slow_cover_each_value_and_slow_ones_each_pair():
    cases = [Case(number=n, letter=x, sign=s) for n in range(4) for x in "ab" for s in "+-"]
    elsewhere = [
        Case(pytest.mark.gpu.mark, number=4, letter="c", sign="+"),
        Case(pytest.mark.slow.mark, number=0, letter="d", sign="+"),
    ]
    items, left_out = [*elsewhere, *cases], []
    hook = SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items))
    leave_out_what_covers_nothing_new(SimpleNamespace(hook=hook), items)
    assert items[:2] == elsewhere and {*items, *left_out} == {*elsewhere, *cases}
    kept = [case.callspec.params for case in items[2:]]
    for one, other in itertools.combinations(("number", "letter", "sign"), 2):
        assert {(each[one], each[other]) for each in kept} == {
            (case.callspec.params[one], case.callspec.params[other]) for case in cases
        }
    assert 8 <= len(kept) < 12 and len(left_out) == 16 - len(kept)
    quick = [case.callspec.params for case in items[2:] if not case.get_closest_marker("slow")]
    assert len(quick) == 4 and all(
        {each[name] for each in quick} == {case.callspec.params[name] for case in cases}
        for name in ("number", "letter", "sign")
    )
    assert not elsewhere[0].get_closest_marker("slow")


@slow
def test_what_is_skipped_is_said_once_for_each_reason():
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_hostile_gpu.py"]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    shown = subprocess.run(words, cwd=ROOT, env=hidden, capture_output=True, text=True, check=True).stdout
    (line,) = re.findall(r"^SKIPPED.*$", shown, re.MULTILINE)
    assert re.fullmatch(r"SKIPPED \[\d{2,}\] torch sees no CUDA GPU", line)
