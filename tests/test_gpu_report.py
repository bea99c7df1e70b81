import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kineticsim_env.runtime.build import source_hash

ROOT = Path(__file__).parent.parent
REPORT = ROOT / "docs" / "gpu_report.json"


def load_script():
    spec = importlib.util.spec_from_file_location("gpu_report", ROOT / "scripts" / "gpu_report.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_report_is_of_these_sources():
    if not REPORT.exists():
        pytest.skip("docs/gpu_report.json is not there yet: run `make test-gpu` on a GPU")
    report = json.loads(REPORT.read_text())
    assert report["cuda_sha256"] == source_hash(), "cuda/ has changed since: run `make test-gpu` on a GPU"
    assert report["builders"] and all(result["passed"] > 0 for result in report["builders"].values())


def test_check_tells_current_from_stale(tmp_path, capsys):
    script = load_script()
    report = tmp_path / "report.json"
    assert script.check(report) == 1
    assert "not there" in capsys.readouterr().out
    report.write_text(json.dumps({"cuda_sha256": "0" * 64}))
    assert script.check(report) == 1
    assert "stale" in capsys.readouterr().out
    report.write_text(json.dumps({"cuda_sha256": source_hash()}))
    assert script.check(report) == 0
    assert "current" in capsys.readouterr().out


def test_outcomes_of_a_run(pytester_dir):
    script = load_script()
    outcomes = script.Outcomes()
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:timeout", str(pytester_dir)], plugins=[outcomes])
    assert code == 1
    by_test = {name.split("::")[-1]: outcome for name, outcome in outcomes.by_test.items()}
    assert by_test == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_breaks_at_teardown": "failed",
        "test_skips": "skipped",
        "test_expects_to_fail": "xfailed",
        "test_sample_module_missing.py": "skipped",
    }
    assert [name.split("::")[-1] for name in outcomes.forbidden_skips] == ["test_skips"]


def test_outcomes_are_said_once_where_builders_agree():
    both = {"nvcc 13.0": {"a": "passed", "b": "passed"}, "nvrtc 13.0": {"a": "passed", "b": "failed"}}
    assert load_script().same_outcomes(both) == {"a": "passed", "b": {"nvcc 13.0": "passed", "nvrtc 13.0": "failed"}}


def test_a_part_has_the_outcomes_of_one_builder(tmp_path, monkeypatch):
    script = load_script()
    monkeypatch.setattr(script.pytest, "main", lambda arguments, plugins: plugins[0].by_test.update(a="passed") or 0)
    assert script.run_tests(tmp_path / "part.json", []) == 0
    part = json.loads((tmp_path / "part.json").read_text())
    assert part["problems"] == [] and part["passed"] == 1 and part["outcomes"] == {"a": "passed"}


def test_a_run_that_was_cut_short_goes_on(tmp_path, monkeypatch):
    """What ended over these sources is not run again, what failed is; both are in the part of the second run."""
    script, journal = load_script(), tmp_path / "nvcc.jsonl"
    journal.write_text("\n".join([json.dumps(script.conditions()), '["before", "passed"]', '["cut']) + "\n")

    def fake(arguments, plugins):
        left_out = Path(os.environ[script.ENDED_VARIABLE]).read_text().splitlines()
        assert left_out == ["before"]
        for name, failed in (("now", False), ("fails", True)):
            for when in ("setup", "call", "teardown"):
                told = {"nodeid": name, "when": when, "failed": failed and when == "call", "skipped": False}
                plugins[0].pytest_runtest_logreport(SimpleNamespace(**told))
        return pytest.ExitCode.TESTS_FAILED

    monkeypatch.setattr(script.pytest, "main", fake)
    monkeypatch.delenv(script.ENDED_VARIABLE, raising=False)
    script.run_tests(tmp_path / "part.json", [], journal)
    assert script.ENDED_VARIABLE not in os.environ
    part = json.loads((tmp_path / "part.json").read_text())
    assert part["outcomes"] == {"before": "passed", "now": "passed", "fails": "failed"} and part["problems"]
    assert part["from_journal"] == 1
    assert script.ended(journal) == {"before": "passed", "now": "passed"}


@pytest.mark.parametrize(
    "other", [{"cuda_sha256": "0" * 64}, {"gpu": "another"}, {"checkout": []}, {"thorough": "9"}, {"date": "2031"}]
)
def test_outcomes_under_other_conditions_are_none(tmp_path, other):
    """Of another day they are."""
    script, journal = load_script(), tmp_path / "nvcc.jsonl"
    for first in (json.dumps(script.conditions() | other), "cut {"):
        journal.write_text(f'{first}\n["of_other_sources", "passed"]\n')
        found = {"of_other_sources": "passed"} if "date" in other and first != "cut {" else {}
        assert script.ended(journal) == found == script.ended(journal)


def test_a_journal_that_cannot_go_on_becomes_a_report_that_says_so(tmp_path, capsys):
    script, parts = (
        load_script(),
        {"nvcc": '["a", "passed"]\n["b", "xfai', "nvrtc": '["a", "passed"]\n["b", "xfailed"]\n'},
    )
    folder = tmp_path / "journal"
    folder.mkdir()
    for name, lines in parts.items():
        (folder / f"{name}.jsonl").write_text(json.dumps(script.conditions()) + "\n" + lines)
    report = script.cut_short(folder)
    assert report["builders"]["nvcc"] == {"passed": 1, "skipped": 0, "xfailed": 0, "not_run": 1}
    assert report["builders"]["nvrtc"] == {"passed": 1, "skipped": 0, "xfailed": 1, "not_run": 0}
    assert report["outcomes"] == {"a": "passed", "b": {"nvcc": "not run", "nvrtc": "xfailed"}}
    script.write(path := tmp_path / "report.json", report)
    assert script.check(path) == 0
    assert "1 tests have not run with nvcc" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("other", "last", "said"),
    [
        ({}, '["b", "failed"]', "b failed"),
        ({"cuda_sha256": "0"}, "", "another checkout"),
        ({"checkout": []}, "", "another"),
    ],
)
def test_no_report_is_made_of_other_sources_or_failures(tmp_path, other, last, said):
    script = load_script()
    for name in ("nvcc", "nvrtc"):
        first = json.dumps(script.conditions() | other)
        (tmp_path / f"{name}.jsonl").write_text(f'{first}\n["a", "passed"]\n{last}\n')
    with pytest.raises(ValueError, match=said):
        script.cut_short(tmp_path)


def test_a_journal_may_be_of_a_commit_with_the_same_kernels(tmp_path, monkeypatch):
    """What failed there is named, and has not run."""
    script, here = load_script(), ["package", "tests"]
    monkeypatch.setattr(script, "checkout_of", lambda commit=None: ["then"] if commit == "abc" else here)
    for name, last in (("nvcc", "failed"), ("nvrtc", "passed")):
        lines = json.dumps(script.conditions() | {"checkout": ["then"]}), '["a", "passed"]', f'["b", "{last}"]'
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    report = script.cut_short(tmp_path, "abc")
    assert report["failed_there"] == ["b"] and report["of_commit"] == "abc"
    assert report["outcomes"] == {"a": "passed", "b": "not run"}
    assert [builder["not_run"] for builder in report["builders"].values()] == [1, 1]
    with pytest.raises(ValueError, match="another checkout than this one"):
        script.cut_short(tmp_path)


def test_a_commit_s_checkout_is_that_of_its_files():
    script = load_script()
    if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "kineticsim_env", "tests"], check=False).returncode == 0:
        assert script.checkout_of("HEAD") == script.checkout_of()


def test_a_report_of_a_journal_needs_one(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu_report", "--cut-short"])
    with pytest.raises(SystemExit):
        load_script().main()
    assert "expected --journal FOLDER" in capsys.readouterr().err


def test_no_report_is_made_of_one_builder(tmp_path):
    """Nothing would say which tests have not run."""
    script = load_script()
    (tmp_path / "nvcc.jsonl").write_text(json.dumps(script.conditions()) + '\n["a", "passed"]\n')
    with pytest.raises(ValueError, match="two builders.*got 1"):
        script.cut_short(tmp_path)


def test_no_report_is_made_of_two_machines(tmp_path):
    script = load_script()
    for name in ("nvcc", "nvrtc"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(script.conditions() | {"gpu": name}) + "\n")
    with pytest.raises(ValueError, match="different machines"):
        script.cut_short(tmp_path)


def test_tests_that_ended_are_left_out(tmp_path):
    left_out = tmp_path / "ended"
    name = f"tests/test_gpu_report.py::{test_report_is_of_these_sources.__name__}"
    left_out.write_text(name)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/test_gpu_report.py",
    ]
    environment = {**os.environ, load_script().ENDED_VARIABLE: str(left_out)}
    told = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    assert "1 deselected" in told and name not in told


@pytest.fixture
def pytester_dir(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_sample.py").write_text(
        "import pytest\n"
        "def test_passes(): pass\n"
        "def test_fails(): assert False\n"
        "def test_skips(): pytest.skip('no compiler')\n"
        "@pytest.fixture\n"
        "def broken():\n"
        "    yield\n"
        "    raise RuntimeError\n"
        "def test_breaks_at_teardown(broken): pass\n"
        "@pytest.mark.xfail\n"
        "def test_expects_to_fail(): assert False\n"
    )
    (tmp_path / "test_sample_module_missing.py").write_text(
        "import pytest\npytest.importorskip('a_module_that_is_not_there')\n"
    )
    return tmp_path
