"""Run the GPU tests and, if all pass, write docs/gpu_report.json: which machine ran which tests over which sources.

`make test-gpu` calls it. Without a GPU, or when a GPU test is skipped for any reason but an optional package that is
not installed, it fails. `--check` runs nothing and says whether the report is of the present sources in cuda/.
"""

import argparse
import datetime
import json
import platform
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from kineticsim_env.runtime.build import source_hash

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "gpu_report.json"


class Outcomes:
    """A pytest plugin that keeps the outcome of every test, and which skips are not for a missing optional package."""

    def __init__(self):
        self.by_test: dict[str, str] = {}
        self.forbidden_skips: dict[str, str] = {}

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


def output(*command: str) -> str | None:
    """Return what a command prints, or None if there is no such command or it fails."""
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def machine() -> dict[str, object]:
    """Return what a reader needs to know of the machine."""
    capability = torch.cuda.get_device_capability()
    drivers = output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    # The nvcc on PATH, if there is one: the kernel itself may be compiled by the NVRTC of torch.
    nvcc = re.search(r"release ([\d.]+)", output("nvcc", "--version") or "")
    return {
        "gpu": torch.cuda.get_device_name(),
        "num_gpus": torch.cuda.device_count(),
        "compute_capability": f"{capability[0]}.{capability[1]}",
        "driver": drivers.splitlines()[0] if drivers else None,
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "nvcc": nvcc[1] if nvcc else None,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def check(path: Path) -> int:
    """Say whether the report at `path` is of the present sources; return 0 if it is, else 1."""
    if not path.exists():
        print(f"{path} is not there: run `make test-gpu` on a machine with a GPU")
        return 1
    current = json.loads(path.read_text())["cuda_sha256"] == source_hash()
    print(f"{path} is current" if current else f"{path} is stale: cuda/ has changed since; run `make test-gpu` again")
    return 0 if current else 1


def main() -> int:
    """Run the GPU tests and write the report; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether the report is current")
    parser.add_argument("--report", type=Path, default=REPORT, help="its path (default: docs/gpu_report.json)")
    parser.add_argument("pytest_args", nargs="*", help="more arguments for pytest, after --")
    args = parser.parse_args()
    if args.check:
        return check(args.report)
    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        print(
            f"make test-gpu: torch {torch.__version__} ({built}) sees no CUDA GPU, so the GPU tests cannot run. "
            "`.venv/bin/python -m kineticsim_env doctor` says what is missing.",
            file=sys.stderr,
        )
        return 1

    before, started, outcomes = source_hash(), time.monotonic(), Outcomes()
    status = pytest.main([str(ROOT / "tests"), "-m", "gpu", *args.pytest_args], plugins=[outcomes])
    seconds = round(time.monotonic() - started, 1)
    counts = Counter(outcomes.by_test.values())
    problems = [f"{name}: skipped ({reason})" for name, reason in outcomes.forbidden_skips.items()]
    if status != pytest.ExitCode.OK:
        problems.append(f"pytest ended with status {int(status)}")
    if not counts["passed"]:
        problems.append("no GPU test passed")
    if source_hash() != before:
        problems.append("cuda/ changed while the tests ran")
    if problems:
        print("make test-gpu: no report is written:", *problems, sep="\n  ", file=sys.stderr)
        return 1

    report = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **machine(),
        "cuda_sha256": before,
        "seconds": seconds,
        "tests": {**{name: counts[name] for name in ("passed", "skipped", "xfailed")}, "outcomes": outcomes.by_test},
    }
    if args.pytest_args:
        report["pytest_args"] = args.pytest_args
    args.report.parent.mkdir(parents=True, exist_ok=True)
    args.report.write_text(json.dumps(report, indent=2) + "\n")
    print(f"make test-gpu: wrote {args.report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
