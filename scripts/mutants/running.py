"""Runs tests on a mutant, in a copy of the tree with a cache of its own. Called by `__main__`."""

import contextlib
import importlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from scripts.mutants.drawing import ROOT

LIMITS = {"Python": 30.0, "cuda": 60.0}  # seconds of a processor for the tests of a mutant, builds among them
TEST_LIMIT = 30  # for one test
WALL_LIMIT = 900  # seconds that all may take on a busy machine


class Limits:
    """Of processor time, as other programs may have the processors: for all tests of a mutant, and for each."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def pytest_runtest_logstart(self) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + TEST_LIMIT, hard))  # ends loops in C++, too

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "teardown" and sum(os.times()[:4]) > self.seconds:
            os._exit(3)  # no test has failed


class Worker:
    """A copy of the tree in a folder, and a process for each run of tests, forked off this one to save imports."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.tree, self.cache = folder, folder / "tree", cache
        self.used = 0.0  # seconds of a processor
        if not self.tree.exists():
            subprocess.run(["git", "clone", "--quiet", ROOT, self.tree], check=True)
            (self.tree / ".venv").symlink_to(ROOT / ".venv")
        subprocess.run(["git", "checkout", "--quiet", "."], cwd=self.tree, check=True)  # what an ended worker has left

    @contextlib.contextmanager
    def mutated(self, mutant: dict) -> Generator[bool]:
        """Put a mutant into the copy; False if its lines are no longer there."""
        path = self.tree / mutant["file"]
        if not path.exists() or (at := _find(path, mutant)) is None:
            yield False
            return
        text, status = path.read_text(), path.stat()
        lines = text.splitlines(keepends=True)
        path.write_text(
            "".join([*lines[:at], *(f"{line}\n" for line in mutant["new"]), *lines[at + len(mutant["old"]) :]])
        )
        now = time.time() + 5  # another time than the bytecode's
        os.utime(path, (now, now))
        try:
            yield True
        finally:
            path.write_text(text)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def run(self, tests: list[str], seconds: float, is_cpp: bool) -> tuple[str, str, int]:
        """Return how tests end (passed, failed, hung or unbuilt), the last test, and how many were run."""
        own_cache = self.folder / "cache"
        shutil.rmtree(own_cache, ignore_errors=True)
        if is_cpp:  # every library is new; it is not to get into the cache of others
            own_cache.mkdir(mode=0o700)
        else:
            shutil.copytree(self.cache, own_cache, ignore=shutil.ignore_patterns("*.lock"))
        (self.folder / "tests.txt").write_text("\n".join(tests))
        log = self.folder / "log.txt"
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            self._be_pytest(log, own_cache, seconds, tests, is_cpp)
        hung = threading.Event()
        timer = threading.Timer(WALL_LIMIT, lambda: (hung.set(), os.killpg(child, signal.SIGKILL)))
        timer.start()
        _, status, usage = os.wait4(child, 0)
        self.used += usage.ru_utime + usage.ru_stime
        timer.cancel()
        with contextlib.suppress(ProcessLookupError):  # what tests have left behind
            os.killpg(child, signal.SIGKILL)
        text = log.read_text(errors="replace")
        text = re.sub(r"(?m)^(tests/.*?) *Fatal Python error.*", r"\1", text)
        begun = re.findall(r"^(tests/\S+::.*?)(?: (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b.*)?$", text, re.M)
        ran = sum(status in ("PASSED", "FAILED", "ERROR") for _, status in begun)
        bad = [name for name, status in begun if status in ("FAILED", "ERROR")]
        if re.search(r"error: .*\n|CalledProcessError", text) and re.search(
            r"did not build|CalledProcessError.*c\+\+", text
        ):
            return "unbuilt", "", ran
        if bad:
            return "failed", bad[0].strip(), ran
        if hung.is_set() or os.waitstatus_to_exitcode(status) == -signal.SIGXCPU:
            return "hung", begun[-1][0].strip() if begun else "(import)", ran
        broken = re.search(r"^ERROR (tests/\S+)", text, re.M) or re.search(
            r"(INTERNALERROR|ImportError while loading)", text
        )
        if broken:
            return "failed", broken[1], ran
        if os.waitstatus_to_exitcode(status) not in (0, 3, 4, 5):  # 4: a test that is gone
            return "failed", f"{begun[-1][0].strip() if begun else '(import)'} (the process ended)", ran
        return "passed", "", ran

    def _be_pytest(self, log: Path, cache: Path, seconds: float, tests: list[str], is_cpp: bool) -> None:
        os.setsid()
        status = 1
        with contextlib.suppress(BaseException):
            out = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.chdir(self.tree)
            os.environ.update(KINETICSIM_CACHE=str(cache), PYTHONPATH=str(self.tree), OMP_WAIT_POLICY="PASSIVE")
            os.environ.update({"KINETICSIM_CXXFLAGS": "-O1"} if is_cpp else {})
            sys.path[:] = [str(self.tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
            for name in [name for name in sys.modules if name.partition(".")[0] in ("scripts", "kineticsim_env")]:
                del sys.modules[name]
            import pytest

            options = ["-x", "-v", "-n0", "-p", "no:cacheprovider", "-p", "no:cov", "--tb=short", "--timeout=0"]
            options += [f"--basetemp={self.folder / 'tmp'}", "-o", "addopts="]
            options += [] if is_cpp or "::" in tests[0] else ["-m", "not slow"]
            status = pytest.main([*options, f"@{self.folder / 'tests.txt'}"], plugins=[Limits(seconds)])
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(int(status))


def _find(path: Path, mutant: dict) -> int | None:
    """Return where a file has the lines that a mutant replaces, nearest to where they were."""
    lines, old = path.read_text().splitlines(), mutant["old"]
    places = [at for at in range(len(lines) - len(old) + 1) if lines[at : at + len(old)] == old]
    return min(places, key=lambda at: abs(at - mutant["at"] + 1), default=None)


def warm_up() -> None:
    """Import what most tests do, but nothing of the package."""
    for name in "torch gymnasium pettingzoo hypothesis pytest numpy xdist _hypothesis_pytestplugin".split():
        importlib.import_module(name)


def try_mutant(worker: Worker, mutant: dict, parts: list[list[str]]) -> dict:
    """Run the tests for a mutant until one fails; return what came out."""
    worker.used, ran, is_cpp = 0.0, 0, mutant["file"].startswith("cuda/")
    outcome = {"outcome": "survived" if parts else "not covered"}
    with worker.mutated(mutant) as there:
        if not there:
            return {"outcome": "gone"}
        for part in parts:
            left = LIMITS["cuda" if is_cpp else "Python"] - worker.used
            if left < 5:
                break
            ended, by, count = worker.run(part, left, is_cpp)
            ran += count
            if ended != "passed":
                outcome = {"outcome": {"unbuilt": "unbuilt"}.get(ended, "killed"), "by": by}
                outcome |= {"how": "hung"} if ended == "hung" else {}
                break
    return outcome | {"ran": ran, "of": sum(map(len, parts)), "seconds": round(worker.used, 1)}
