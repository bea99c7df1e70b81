"""The figures of a run: as JSON, and as the table of docs/robustness.md, which is never typed by hand."""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kineticsim_env.runtime import build
from scripts.fuzz.kinds import FRESH, KINDS
from scripts.fuzz.run import Result
from scripts.machine import processor

BLOCKS = {  # of the page, and the kinds whose cases each counts
    "figures": tuple(kind for kind in KINDS if kind not in FRESH),
    "configurations": FRESH,
}
WHAT = {
    "forms": "the same values in other forms",
    "loads": "states to load that no market was ever in",
    "tampering": "writes to live tensors",
    "scenarios": "scenarios, tasks and loads in mid-episode",
    "threads": "several Python threads at once",
    "calls": "everything public with wrong arguments",
    "races": "engine threads under ThreadSanitizer",
    "settings": "markets, tasks, agents, opponents, adapters",
    "tapes": "tapes and LOBSTER's files, followed order by order",
    "formulas": "statistics beside plain NumPy",
    "signals": "Ctrl-C in runs, sweeps and calibrations",
}


def _compiler() -> str:
    found = build.find_cxx()
    if found is None:
        return "none"
    done = subprocess.run([*shlex.split(found), "--version"], check=False, capture_output=True, text=True)
    return done.stdout.splitlines()[0] if done.stdout else found


def facts(result: Result, seed: int, sanitized: bool, arguments: list[str]) -> dict[str, Any]:
    """Return what a run did and on what, for a JSON file."""
    versions = f"NumPy {np.__version__}", f"torch {torch.__version__}"
    return {
        "command": shlex.join(["python", "-m", "scripts.fuzz", *arguments]),
        "date": datetime.date.today().isoformat(),
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "versions": f"Python {platform.python_version()}, {', '.join(versions)}, {_compiler()}",
        "sources": build.source_hash()[:12],
        "sanitizers": sanitized,
        "first seed": seed,
        "seconds": round(result.seconds),
        "cases": result.cases,
        "reports": result.reports,
        "failures": [found.row() for found in result.found],
    }


def table(facts: dict[str, Any], kinds: Sequence[str] = KINDS) -> str:
    """Return the table of some kinds in Markdown."""
    cases = {kind: count for kind, count in facts["cases"].items() if kind in kinds}
    failures = [row["kind"] for row in facts["failures"] if row["kind"] in kinds]
    lines = ["| kind | what | cases | seeds | distinct failures |", "|---|---|---:|---|---:|"]
    for kind, count in cases.items():
        seeds = f"{facts['first seed']} to {facts['first seed'] + count - 1}"
        lines.append(f"| `{kind}` | {WHAT[kind]} | {count:,} | {seeds} | {failures.count(kind)} |")
    lines.append(f"| all | | **{sum(cases.values()):,}** | | **{len(failures)}** |")
    watched = "with" if facts["sanitizers"] else "without"
    lines += [
        "",
        f"Run on {facts['date']}, {facts['machine']}; {facts['versions']}; C++ sources `{facts['sources']}`; {watched} "
        f"sanitizers, which reported {facts['reports']} times; {facts['seconds']} s; `{facts['command']}`.",
    ]
    return "\n".join(lines)


def markers(block: str) -> tuple[str, str]:
    """Return what is before and behind a block of the page."""
    return f"<!-- {block}: begin -->", f"<!-- {block}: end -->"


def write(path: Path, facts: dict[str, Any]) -> None:
    """Replace the blocks of a page of whose kinds there are cases."""
    text = path.read_text()
    for block, kinds in BLOCKS.items():
        if not set(kinds) & set(facts["cases"]):
            continue
        begin, end = markers(block)
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        if not rest or end not in rest:
            raise ValueError(f"{path}: expected a page with {begin} and {end}, got one without")
        text = f"{before}{begin}\n\n{table(facts, kinds)}\n\n{end}{after}"
    path.write_text(text)
