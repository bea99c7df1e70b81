"""Runs cases in child processes and gathers what they find; a child that dies is a find.

A child is `python -m scripts.fuzz.run KIND FIRST STEP COUNT SECONDS`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch

from scripts.fuzz import kinds
from scripts.fuzz.sanitizers import ROOT, child_environment, report_in

PATIENCE = 4 * kinds.SECONDS  # without a word from a child: it hangs where no timer rings


@dataclasses.dataclass
class Found:
    """A failure: how to repeat it, what it says, and which others are the same one."""

    kind: str
    seed: int
    text: str
    key: tuple[str, ...]
    alone: bool  # whether it fails again when played by itself
    times: int = 1

    def row(self) -> dict[str, Any]:
        """Return it for a JSON file."""
        return {"case": f"{self.kind}:{self.seed}", **dataclasses.asdict(self)}


@dataclasses.dataclass
class Result:
    """What a run of the fuzzer did."""

    cases: dict[str, int]
    found: list[Found]
    seconds: float
    reports: int = 0  # of sanitizers

    def add(self, new: Found) -> bool:
        """Note a failure; returns whether it is the first of its sort."""
        for old in self.found:
            if (old.kind, old.key) == (new.kind, new.key):
                old.times += 1
                return False
        self.found.append(new)
        return True


class _Shard:
    """Every `step`-th case of a kind, in one child after another."""

    def __init__(
        self, kind: str, first: int, step: int, count: int, seconds: float, environment: dict[str, str]
    ) -> None:
        self.kind, self.first, self.step, self.count = kind, first, step, count
        self.stop = time.monotonic() + seconds
        self._where: dict[str, Any] = {"env": environment, "cwd": ROOT}
        self.done = 0

    def run(self, tell: Callable[[str, Any], None]) -> None:
        """Play all cases; `tell` hears "case" and "found"."""
        while self.done < self.count and time.monotonic() < self.stop:
            self._run_child(tell)

    def _run_child(self, tell: Callable[[str, Any], None]) -> None:
        begin, left = self.first + self.done * self.step, max(1.0, self.stop - time.monotonic())
        with tempfile.TemporaryFile("w+") as errors:
            command = self._command(begin, self.step, self.count - self.done, left)
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, **self._where)
            ended, seed = self._listen(child, tell)
            if not ended:
                errors.seek(0)
                said = errors.read()
                report = report_in(said) or f"the process ended with status {child.returncode}"
                if child.returncode == -9:
                    report = f"no word for {PATIENCE} s"
                where = _first_frames(said)
                key = (report.split("==ERROR: ")[-1].split("0x")[0], where)
                tell("found", Found(self.kind, seed, f"{report} {where}".strip(), key, self._dies_alone(seed)))

    def _command(self, *numbers: float) -> list[str]:
        return [sys.executable, "-m", "scripts.fuzz.run", self.kind, *map(str, numbers)]

    def _dies_alone(self, seed: int) -> bool:
        try:
            command = self._command(seed, 1, 1, 60.0)
            done = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE, **self._where)
        except subprocess.TimeoutExpired:
            return True
        return done.returncode != 0

    def _listen(self, child: subprocess.Popen, tell: Callable[[str, Any], None]) -> tuple[bool, int]:
        lines: queue.Queue[str | None] = queue.Queue()
        assert child.stdout is not None
        threading.Thread(target=_read, args=(child.stdout, lines), daemon=True).start()
        ended, seed = False, self.first + self.done * self.step
        while True:
            try:
                line = lines.get(timeout=PATIENCE)
            except queue.Empty:
                child.kill()
                break
            if line is None:
                break
            if line == "end":
                ended = True
                self.stop = 0.0 if self.done < self.count else self.stop
            elif line.startswith("{"):
                told = json.loads(line)
                tell("found", Found(self.kind, told["seed"], told["text"], tuple(told["key"]), told["alone"]))
            else:
                seed = int(line)
                self.done += 1
                tell("case", self.kind)
        child.wait()
        return ended, seed


def _read(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line.strip())
    lines.put(None)


def _first_frames(said: str) -> str:
    """Return the places of our own code in a sanitizer's report."""
    frames = [
        line.split(" in ", 1)[-1] for line in said.splitlines() if line.lstrip().startswith("#") and "/cuda/" in line
    ]
    return "; ".join(Path(frame.split()[-1]).name for frame in frames[:3])


def run(
    counts: dict[str, int],
    first: int,
    *,
    seconds: dict[str, float] | None = None,
    jobs: int = 2,
    sanitized: bool = True,
    tell: Callable[[str, Any], None] = lambda what, value: None,
) -> Result:
    """Play so many cases of each kind from the first seed on, each kind for at most so many seconds.

    `jobs` processes play at a time. `tell` hears of every case ("case", kind) and every new failure ("found", Found).
    """
    result = Result(dict.fromkeys(counts, 0), [], 0.0)
    lock = threading.Lock()

    def note(what: str, value: Any) -> None:
        with lock:
            if what == "case":
                result.cases[value] += 1
                tell(what, value)
            else:
                result.reports += "Sanitizer" in value.text or "runtime error" in value.text
                if result.add(value):
                    tell(what, value)

    began = time.monotonic()
    for kind, count in counts.items():
        environment = child_environment(sanitized and kind != "races")
        limit = 1e9 if seconds is None else seconds[kind]
        shards = [_Shard(kind, first + j, jobs, len(range(j, count, jobs)), limit, environment) for j in range(jobs)]
        threads = [threading.Thread(target=shard.run, args=(note,)) for shard in shards if shard.count]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    result.seconds = time.monotonic() - began
    return result


def play_as_child() -> None:
    """Play the cases FIRST, FIRST + STEP and so on: COUNT of them, or as many as SECONDS allow; tell line by line."""
    kind = sys.argv[1]
    first, step, count = (int(text) for text in sys.argv[2:5])
    stop = time.monotonic() + float(sys.argv[5])
    line = os.dup(1)
    os.dup2(2, 1)  # what the package prints is no report
    warnings.simplefilter("ignore")
    gym.logger.min_level = gym.logger.ERROR  # ty: ignore[invalid-assignment]
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "3")))
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    for number in range(count):
        if time.monotonic() > stop:
            break
        seed = first + number * step
        os.write(line, f"{seed}\n".encode())
        result = kinds.play_and_forget(kind, seed)
        if result is not None:
            failure, alone = result
            told = {"seed": seed, "text": str(failure), "key": list(failure.key), "alone": alone}
            os.write(line, (json.dumps(told) + "\n").encode())
    os.write(line, b"end\n")
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
    os._exit(0)  # without destructors: libraries under a sanitizer do not all end well


if __name__ == "__main__":
    play_as_child()
