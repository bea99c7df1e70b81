"""Run the GPU tests and, if all pass, write docs/gpu_report.json: which machine ran which tests over which sources.

`make test-gpu` calls it. The tests run once with each builder of kernels that the machine has, nvcc and NVRTC, in
processes of their own at the same time. Without a GPU, or when a GPU test is skipped for any reason but an optional
package that is not installed, it fails. `--check` runs nothing and says whether the report is of the present sources in
cuda/. With `--journal FOLDER` a run that was cut short goes on where it was when it is started again: tests that ended
on the same machine, over the same checkout and as thorough, are not run a second time. `--cut-short` runs nothing and
writes the report of such a journal where it cannot go on: it names the tests that have not run with each builder. With
`--since COMMIT` the journal is of that commit, which had the same cuda/: what failed there is named, and has not run.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import kernels
from kineticsim_env.runtime.build import hash_of, source_hash
from scripts.machine import describe, same

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "gpu_report.json"
ENDED_VARIABLE = "KINETICSIM_ENDED_TESTS"  # names a file of tests that are not to be run


class Outcomes:
    """A pytest plugin that keeps the outcome of every test, and which skips are not for a missing optional package.

    In `journal`, if there is one, it notes each as soon as the test has ended.
    """

    def __init__(self, journal: Path | None = None):
        self.by_test: dict[str, str] = {}
        self.forbidden_skips: dict[str, str] = {}
        self._journal = journal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the outcome of one phase (setup, call, teardown): the worst of the three stands."""
        if report.failed:
            self.by_test[report.nodeid] = "failed"
        elif report.skipped and hasattr(report, "wasxfail"):
            self.by_test[report.nodeid] = "xfailed"
        elif report.skipped:
            self._skip(report.nodeid, report.longrepr)
        elif report.when == "call":
            self.by_test[report.nodeid] = "passed"
        if self._journal and report.when == "teardown":
            forbidden = report.nodeid in self.forbidden_skips
            with self._journal.open("a") as file:
                file.write(
                    json.dumps([report.nodeid, "failed" if forbidden else self.by_test.get(report.nodeid)]) + "\n"
                )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Take a module that could not be collected or skipped itself."""
        if report.failed:
            self.by_test[report.nodeid] = "failed"
        elif report.skipped:
            self._skip(report.nodeid, report.longrepr)

    def _skip(self, name: str, longrepr: object) -> None:
        self.by_test[name] = "skipped"
        reason = str(longrepr[2] if isinstance(longrepr, tuple) else longrepr)
        if "could not import" not in reason:
            self.forbidden_skips[name] = reason


def check(path: Path) -> int:
    """Say whether the report at `path` is of the present sources; return 0 if it is, else 1."""
    if not path.exists():
        print(f"{path} is not there: run `make test-gpu` on a machine with a GPU")
        return 1
    report = json.loads(path.read_text())
    current = report["cuda_sha256"] == source_hash()
    print(f"{path} is current" if current else f"{path} is stale: cuda/ has changed since; run `make test-gpu` again")
    for builder, result in report.get("builders", {}).items():
        if result.get("not_run"):
            print(f"{path}: {result['not_run']} tests have not run with {builder}; run `make test-gpu` again")
    return 0 if current else 1


def builders() -> list[str]:
    """Return the builders that this machine has, as the doctor prints them; or the one that the environment names."""
    found, wanted = [], os.environ.get(kernels.BUILDER_VARIABLE)
    for name in [wanted] if wanted else kernels.BUILDERS:
        try:
            found.append(str(kernels.choose_builder(name)))
        except EngineUnavailable as error:
            print(f"make test-gpu: not with {name}: {error}", file=sys.stderr)
    return found


def checkout_of(commit: str | None = None) -> list[str]:
    """Return hashes of the package and of its tests, as they are, or as a commit has them."""
    if commit is None:
        return [hash_of(ROOT / name, (".py", ".h", ".cuh", ".cpp")) for name in ("kineticsim_env", "tests")]
    with tempfile.TemporaryDirectory() as folder:
        command = ["git", "archive", commit, "kineticsim_env", "tests"]
        packed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
        return [hash_of(Path(folder) / name, (".py", ".h", ".cuh", ".cpp")) for name in ("kineticsim_env", "tests")]


def conditions() -> dict[str, object]:
    """Return what outcomes depend on: the first line of a journal."""
    return {**describe(), "checkout": checkout_of(), "thorough": os.environ.get("KINETICSIM_THOROUGH", "")}


def is_thorough(level: str) -> bool:
    """Say whether KINETICSIM_THOROUGH asks for more than `make test` runs, as tests/thorough.py has it."""
    return level not in ("", "0")


def counted_in(outcomes: dict[str, str]) -> dict[str, int]:
    """Return how many of each of the outcomes that a report may have."""
    counts = Counter(outcomes.values())
    return {name: counts[name] for name in ("passed", "skipped", "xfailed")}


def outcomes_in(lines: list[str]) -> dict[str, str]:
    """Return the outcomes in the lines of a journal; a line that was cut short is none."""
    found = {}
    for line in lines:
        with contextlib.suppress(ValueError):
            name, outcome = json.loads(line)
            found[name] = outcome
    return found


def ended(journal: Path) -> dict[str, str]:
    """Return the outcomes in a journal, which is begun anew if there is none of the present conditions.

    What failed has not ended: it is run again.
    """
    first, *lines = journal.read_text().splitlines() if journal.exists() else [""]
    now = conditions()
    try:
        goes_on = same(json.loads(first), now)
    except ValueError:
        goes_on = False
    if not goes_on:
        journal.write_text(json.dumps(now) + "\n")
        return {}
    return {name: outcome for name, outcome in outcomes_in(lines).items() if outcome != "failed"}


def run_tests(part: Path, pytest_args: list[str], journal: Path | None = None) -> int:
    """Run the GPU tests with the builder that the environment names; write outcomes and problems to `part`."""
    started, outcomes, before = time.monotonic(), Outcomes(journal), ended(journal) if journal else {}
    left_out = part.with_suffix(".ended")
    left_out.write_text("\n".join(before))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENDED_VARIABLE, str(left_out))  # for tests/conftest.py, in this process and in workers
        status = pytest.main([str(ROOT / "tests"), "-m", "gpu", *pytest_args], plugins=[outcomes])
    outcomes.by_test = before | outcomes.by_test
    problems = [f"{name}: skipped ({reason})" for name, reason in outcomes.forbidden_skips.items()]
    if status != pytest.ExitCode.OK and not (before and status == pytest.ExitCode.NO_TESTS_COLLECTED):
        problems.append(f"pytest ended with status {int(status)}")
    if "passed" not in outcomes.by_test.values():
        problems.append("no GPU test passed")
    counted = counted_in(outcomes.by_test)
    counted |= {"from_journal": len(before)} if before else {}  # which the seconds are not of
    seconds = round(time.monotonic() - started, 1)
    part.write_text(
        json.dumps({"problems": problems, "seconds": seconds, **counted, "outcomes": outcomes.by_test}) + "\n"
    )
    return 0


def run_with(found: list[str], pytest_args: list[str], journal: Path | None = None) -> dict[str, dict]:
    """Run the tests with each builder, all at the same time; returns what `run_tests` wrote, by builder."""
    if journal:
        journal.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        parts = {builder: Path(folder) / f"{place}.json" for place, builder in enumerate(found)}
        processes = []
        for builder, part in parts.items():
            name = builder.split()[0]
            command = [sys.executable, "-m", "scripts.gpu_report", "--part", str(part)]
            command += ["--journal", str(journal / f"{name}.jsonl")] if journal else []
            environment = {**os.environ, kernels.BUILDER_VARIABLE: name}
            arguments = [*command, "--", f"--basetemp={part}.tmp", *pytest_args]
            processes.append(subprocess.Popen(arguments, cwd=ROOT, env=environment))
        for process in processes:
            process.wait()
        return {
            builder: json.loads(part.read_text()) if part.exists() else {"problems": ["the tests came to no end"]}
            for builder, part in parts.items()
        }


def cut_short(folder: Path, since: str | None = None) -> dict[str, object]:
    """Return the report of a journal: with a builder the tests have not run that another builder's part has.

    Of tests that no part has nobody knows, so one builder should have come to its end. A journal `since` a commit is of
    its Python; what has failed then has been mended since, and has not run as it is now.

    Raises:
        ValueError: If its parts are of different conditions, not of the present cuda/, or neither of the present
            checkout nor of the commit; or if a test has failed, and there is no commit.
    """
    parts = {path.stem: path.read_text().splitlines() for path in sorted(folder.glob("*.jsonl"))}
    if len(parts) < 2:
        raise ValueError(f"{folder}: expected parts of two builders, of which one may be whole, got {len(parts)}")
    machines = [json.loads(lines[0]) for lines in parts.values()]
    here = {"checkout": checkout_of(since), "cuda_sha256": source_hash()}
    for machine in machines:
        if not same(machine, machines[0]):
            raise ValueError(f"{folder}: its parts are of different machines or checkouts")
        if any(machine[name] != value for name, value in here.items()):
            raise ValueError(f"{folder}: it is of another checkout than {since or 'this one'}")
    by_builder = {name: outcomes_in(lines[1:]) for name, lines in parts.items()}
    failed = {name for outcomes in by_builder.values() for name, outcome in outcomes.items() if outcome == "failed"}
    if failed and since is None:
        raise ValueError(f"{folder}: {', '.join(sorted(failed))} failed")
    every = set().union(*by_builder.values())
    by_builder = {
        builder: {name: outcome for name, outcome in outcomes.items() if name not in failed}
        for builder, outcomes in by_builder.items()
    }
    builders = {
        name: {**counted_in(outcomes), "not_run": len(every - set(outcomes))} for name, outcomes in by_builder.items()
    }
    machine = {name: value for name, value in machines[0].items() if name != "checkout"}
    thorough = is_thorough(machine.pop("thorough"))
    before = {"of_commit": since, "failed_there": sorted(failed)} if since else {}
    outcomes = dict.fromkeys(sorted(failed), "not run") | same_outcomes(by_builder)
    return {**machine, "thorough": thorough, **before, "builders": builders, "outcomes": outcomes}


def same_outcomes(by_builder: dict[str, dict[str, str]]) -> dict[str, object]:
    """Return the outcome of each test, or, where builders differ in it, the outcome with each."""
    names = sorted({name for outcomes in by_builder.values() for name in outcomes})
    result: dict[str, object] = {}
    for name in names:
        of_each = {builder: outcomes.get(name, "not run") for builder, outcomes in by_builder.items()}
        result[name] = next(iter(of_each.values())) if len(set(of_each.values())) == 1 else of_each
    return result


def main() -> int:
    """Run the GPU tests and write the report; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether the report is current")
    parser.add_argument("--report", type=Path, default=REPORT, help="its path (default: docs/gpu_report.json)")
    parser.add_argument("--part", type=Path, help=argparse.SUPPRESS)  # a process that runs the tests with one builder
    parser.add_argument(
        "--journal", type=Path, metavar="FOLDER", help="note outcomes there, and go on from those that are"
    )
    parser.add_argument("--cut-short", action="store_true", help="write the report of the journal as it is")
    parser.add_argument("--since", metavar="COMMIT", help="with --cut-short: the commit that the journal is of")
    parser.add_argument("pytest_args", nargs="*", help="more arguments for pytest, after --")
    args = parser.parse_args()
    if args.check:
        return check(args.report)
    if args.cut_short:
        if args.journal is None:
            parser.error("--cut-short: expected --journal FOLDER with it, got none")
        return write(args.report, cut_short(args.journal, args.since))
    if args.part:
        return run_tests(args.part, args.pytest_args, args.journal)
    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        print(
            f"make test-gpu: torch {torch.__version__} ({built}) sees no CUDA GPU, so the GPU tests cannot run. "
            "`.venv/bin/python -m kineticsim_env doctor` says what is missing.",
            file=sys.stderr,
        )
        return 1

    before, found = source_hash(), builders()
    results = run_with(found, args.pytest_args, args.journal)
    problems = [f"{builder}: {problem}" for builder, result in results.items() for problem in result.pop("problems")]
    if not found:
        problems.append("there is neither nvcc nor NVRTC")
    if source_hash() != before:
        problems.append("cuda/ changed while the tests ran")
    if problems:
        print("make test-gpu: no report is written:", *problems, sep="\n  ", file=sys.stderr)
        return 1

    by_builder = {builder: result.pop("outcomes") for builder, result in results.items()}
    report = {
        **describe(),
        "num_gpus": torch.cuda.device_count(),
        "thorough": is_thorough(os.environ.get("KINETICSIM_THOROUGH", "")),
        "builders": results,
        "outcomes": same_outcomes(by_builder),
    }
    if args.pytest_args:
        report["pytest_args"] = args.pytest_args
    return write(args.report, report)


def write(path: Path, report: dict[str, object]) -> int:
    """Write a report, and return the exit status."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(f"make test-gpu: wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
