"""The recipes of docs/architecture.md, followed step by step in a copy of the checkout, and the check that ends each.

An edit is of one step, in a file that the step names; every step has one, or is the command that is run at the end.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from test_package import tracked

ROOT = Path(__file__).parent.parent
STATISTIC = {  # by recipe: the file, what the new text stands before there, and the new text, step by step
    1: [
        (
            "kineticsim_env/statistics/of_returns.py",
            "def unchanged(",
            '''def mean_size(span: int = 1, price: str = "last") -> Plan:
    """Mean size of returns over `span` intervals, ticks."""
    series, tick = change_of(price, span)
    return Plan((Moments(Made(torch.abs, (series,))),), lambda sums: tick * mean(sums), unit="ticks")


''',
        )
    ],
    2: [("docs/statistics.md", "| `quantile`, `tail_index`", "| `mean_size` | of \\|r\\| | | |\n")],
    3: [("tests/test_measure.py", '"unchanged": (r == 0)', '"mean_size": np.abs(r).mean(),\n        ')],
}


def recipe(title):
    """Return the numbered steps of a recipe."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = re.search(rf"^### {title}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    steps = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |\Z)", section[1], re.MULTILINE | re.DOTALL)
    return {int(number): " ".join(step.split()) for number, step in steps}


def named(step):
    """Return the files that a step names."""
    links = re.findall(r"\]\(([\w/]+\.md)", step)
    return {*re.findall(r"`([\w/]+\.\w+)`", step), *(f"docs/{link}" for link in links)}


def follow(title, edits, folder):
    """Take every step of a recipe in a copy of the checkout; return the command that it ends with."""
    for name in tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    steps = recipe(title)
    assert list(steps) == [*edits, len(edits) + 1], "a step without an edit, or an edit without a step"
    for number, of_step in edits.items():
        for name, before, text in of_step:
            assert name in named(steps[number]), f"step {number} does not name {name}"
            source = (folder / name).read_text()
            assert source.count(before) == 1, f"{name}: {before!r} is not there once"
            (folder / name).write_text(source.replace(before, text + before))
    [command] = re.findall(r"`(pytest .*?)`", steps[len(steps)])
    return command


def run(command, folder):
    """Run a command of pytest in the copy."""
    words = [sys.executable, "-m", *shlex.split(command), "-q", "-x", "-p", "no:cacheprovider", "-n", "0"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_statistic_is_added_by_its_recipe(tmp_path):
    done = run(follow("A statistic", STATISTIC, tmp_path), tmp_path)
    assert done.returncode == 0, done.stdout
    code = "import kineticsim_env as ks; print(ks.__file__, ks.statistics.STATISTICS['mean_size'].__doc__)"
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert shown.startswith(str(tmp_path)) and "Mean size" in shown
    measure = tmp_path / "tests" / "test_measure.py"
    measure.write_text((ROOT / "tests" / "test_measure.py").read_text())
    assert run("pytest tests/test_measure.py -k definition", tmp_path).returncode == 1  # without step 3 it is noticed
