"""The file of measurements, and how a backend's rows get into it: prepare, verify, and only then time.

The suite calls it; the report reads the file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime.files import check_file, replacing
from scripts import machine
from scripts.benchmarks import schema, timing, verify
from scripts.benchmarks.backend import Result, Workload
from scripts.pages.provenance import stamp

FORMAT = 1

_RUN_SECONDS = {"cuda": 1.0, "cpu": 0.35}  # what one run may take; a row has its trials and two more
_HALVINGS = 3  # how often a point of the grids' sweep that does not fit in memory is tried with half the markets


@dataclasses.dataclass(frozen=True)
class Point:
    """One measurement of every backend."""

    sweep: str
    workload: Workload
    trials: int = 5


class Measurements:
    """The file, and how one backend's rows get into it."""

    def __init__(self, path: Path, resume: bool, run_seconds: float | None) -> None:
        self.path, self._run_seconds = path, run_seconds
        self.oracle = verify.Oracle()
        self.data: dict[str, Any] = {"format": FORMAT, "machines": [], "unavailable": {}, "refused": [], "rows": []}
        check_file("--output", path)
        if path.exists() and not resume:
            raise ValueError(f"--output: got {str(path)!r}, which is there: add --resume to go on with it")
        if path.exists():
            self.data = load(path)
        here = machine.describe() | {"rules": stamp("benchmarks")}
        parts, machines = here["rules"]["parts"], self.data["machines"]
        rules = [other.get("rules", {}).get("parts", parts) for other in machines]
        known = [at for at, other in enumerate(machines) if machine.same(here, other) and rules[at] == parts]
        self._machine = known[0] if known else len(machines)
        self._here = machines[self._machine] if known else here
        if not known:
            if machines:
                print("note: the file goes on with another machine or other software", file=sys.stderr)
            machines.append(here)

    def has(self, point: Point, backend: Any) -> bool:
        """Say whether the file has the row; one that failed or was wrong is measured again."""
        done = [row for row in self.data["rows"] if row["agrees"]] + self.data["refused"]
        return any(_key(row) == _asked(point, backend) for row in done)

    def is_usable(self, backend: Any) -> bool:
        """Say whether a backend runs here; note why not."""
        reason = backend.unavailable()
        if reason is None:
            self.data["unavailable"].pop(backend.name, None)
        elif not any(row["backend"] == backend.name for row in self.data["rows"]):
            self.data["unavailable"][backend.name] = reason
        return reason is None

    def measure(self, backend: Any, group: Sequence[Point]) -> None:
        """Add the rows of a backend for points of one workload."""
        workload, note = group[0].workload, None
        for halving in range(_HALVINGS + 1):
            try:
                rows, note = self._rows(backend, workload, group), None
                break
            except (MemoryError, torch.OutOfMemoryError):
                rows, note = [], f"out of memory with {workload.markets:,} markets"
                if group[0].sweep != "levels" or halving == _HALVINGS or workload.markets < 2:
                    break
                workload = dataclasses.replace(workload, markets=workload.markets // 2)
            except EngineUnavailable as error:  # a shape beyond a backend's limits
                self.data["refused"] += [self._row(point, backend, workload, notes=str(error)) for point in group]
                self.save()
                return
            except Exception as error:  # one backend that fails does not end the suite
                rows, note = [], f"failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
                break
            finally:
                with contextlib.suppress(Exception):
                    backend.close()
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
        again = {_asked(point, backend) for point in group}
        self.data["rows"] = [row for row in self.data["rows"] if _key(row) not in again]
        self.data["rows"] += rows or [self._row(point, backend, workload, notes=note) for point in group]
        self.save()

    def _rows(self, backend: Any, workload: Workload, group: Sequence[Point]) -> list[dict[str, Any]]:
        memory = timing.PeakMemory(backend)
        compile_seconds = _prepare(backend, workload)
        a_run = self._run_seconds or _RUN_SECONDS[backend.device]
        steps, first_call = timing.affordable_steps(backend, workload.steps, a_run)
        if steps < workload.steps:
            workload = dataclasses.replace(workload, steps=steps)
            backend.close()
            backend.prepare(workload)
        found = self._verify(backend, workload)
        found |= {"compile_seconds": compile_seconds, "first_call_seconds": first_call}
        rows = []
        for point in group:
            seconds = timing.trials(backend, steps, point.trials) if found["agrees"] else []
            rows.append(self._row(point, backend, workload, seconds, **found))
        if found["agrees"]:
            peak = memory.bytes()
            for row in rows:
                row["peak_bytes"] = peak
        return rows

    def _verify(self, backend: Any, workload: Workload) -> dict[str, Any]:
        """Run once from the opening book, and compare; return what a row says about it."""
        if hasattr(backend, "first_difference"):
            difference, oracle = backend.first_difference()
            return {"agrees": difference is None, "first_difference": difference, "oracle": oracle}
        backend.reset()
        backend.run(workload.steps)
        backend.synchronize()
        got = backend.result()
        try:
            expected, oracle = self.oracle.expected(workload)
        except verify.NoOracle as reason:
            return {"agrees": None, "notes": str(reason)}
        difference = verify.first_difference(got, expected)
        found = {"agrees": difference is None, "first_difference": difference, "oracle": oracle}
        return found if difference else found | _statistics(got)

    def _row(
        self, point: Point, backend: Any, workload: Workload, seconds: Sequence[float] = (), **more: Any
    ) -> dict[str, Any]:
        notes = [more.pop("notes", None)]
        if seconds and workload.steps < point.workload.steps:
            notes.append(f"too slow for {point.workload.steps:,} steps")
        if workload.markets < point.workload.markets:
            notes.append(f"out of memory with {point.workload.markets:,} markets")
        row = {
            "sweep": point.sweep,
            "backend": backend.name,
            "markets": workload.markets,
            "agents": workload.agents,
            "levels": workload.levels,
            "steps": workload.steps,
            "trials": len(seconds),
            **_figures(workload, seconds, hasattr(backend, "first_difference")),
            "peak_bytes": None,
            "agrees": None,
            "device": machine.device_name(self._here, backend.device),
            "asked": {"markets": point.workload.markets, "steps": point.workload.steps},
            "machine": self._machine,
            "timer": "events" if timing.uses_events(backend) else "clock",
            "first_difference": None,
            "notes": "; ".join(note for note in notes if note) or None,
            "seconds": list(seconds),
        }
        return row | more

    def add_ceiling(self) -> None:
        """Measure how many random words per second this GPU makes, once per machine."""
        from scripts.benchmarks.cuda_backends import hash_ceiling

        ceilings = self.data.setdefault("ceilings", [])
        if not any(ceiling["machine"] == self._machine for ceiling in ceilings):
            ceilings.append({"machine": self._machine, "hashes_per_s": hash_ceiling("cuda")})
            self.save()

    def finish(self) -> None:
        """Note the clocks after the runs, and write the file."""
        self._here["clocks_after"] = machine.clocks()
        self.save()

    def save(self) -> None:
        """Write the file at once or not at all."""
        with replacing(self.path) as part:
            part.write_text(json.dumps(self.data, indent=1, allow_nan=False) + "\n")


def load(path: str | Path) -> dict[str, Any]:
    """Read a file of measurements.

    Raises:
        ValueError: If it cannot be read or is none, naming the row, the key, what came and what is allowed.
    """
    try:
        data = json.loads(Path(path).read_text())
    except OSError as error:
        raise ValueError(f"{path}: expected measurements, got a file that cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: this is no file of measurements ({error})") from error
    try:
        schema.check(data, FORMAT)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return data


def _prepare(backend: Any, workload: Workload) -> float:
    started = time.perf_counter()
    backend.prepare(workload)
    backend.synchronize()
    return time.perf_counter() - started


def _figures(workload: Workload, seconds: Sequence[float], environment: bool) -> dict[str, Any]:
    """Return the columns that come from the trials, None where there are none."""
    names = ("seconds_median", "seconds_min", "seconds_max", "events_per_s", "us_per_step", "ns_per_event")
    if not seconds:
        return dict.fromkeys((*names, *(["env_steps_per_s"] if environment else [])))
    middle = statistics.median(seconds)
    values = (
        middle,
        min(seconds),
        max(seconds),
        workload.events / middle,
        middle / workload.steps * 1e6,
        middle / workload.events * 1e9,
    )
    rate = {"env_steps_per_s": workload.markets * workload.steps / middle} if environment else {}
    return dict(zip(names, values, strict=True)) | rate


def _statistics(result: Result) -> dict[str, Any]:
    """Return what the report compares between backends."""
    return {
        "mean_last_price": float(result.last_price.mean()),
        "mean_volume": float(result.volume.mean()),
        "mean_trades": float(result.trades.mean()),
        "digest": verify.digest(result),
    }


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    asked = row["asked"]
    return row["sweep"], row["backend"], asked["markets"], row["agents"], row["levels"], asked["steps"]


def _asked(point: Point, backend: Any) -> tuple[Any, ...]:
    asked = point.workload
    return point.sweep, backend.name, asked.markets, asked.agents, asked.levels, asked.steps
