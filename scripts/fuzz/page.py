"""The figures of a run: as JSON, and as the table of docs/robustness.md, which is never typed by hand."""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kineticsim_env.benchmarks.machine import processor
from kineticsim_env.runtime import build
from scripts.fuzz.run import Result

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
WHAT = {
    "forms": "the same values in other forms",
    "loads": "states to load that no market was ever in",
    "tampering": "writes to live tensors",
    "scenarios": "scenarios, tasks and loads in mid-episode",
    "threads": "several Python threads at once",
    "calls": "everything public with wrong arguments",
    "races": "engine threads under ThreadSanitizer",
}


def _compiler() -> str:
    found = build.find_cxx()
    if found is None:
        return "none"
    done = subprocess.run([*shlex.split(found), "--version"], check=False, capture_output=True, text=True)
    return done.stdout.splitlines()[0] if done.stdout else found


def _versions() -> list[str]:
    return [f"NumPy {np.__version__}", f"torch {torch.__version__}"]


def facts(result: Result, seed: int, sanitized: bool, arguments: list[str]) -> dict[str, Any]:
    """Return what a run did and on what, for a JSON file."""
    return {
        "command": shlex.join(["python", "-m", "scripts.fuzz", *arguments]),
        "date": datetime.date.today().isoformat(),
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "versions": ", ".join([f"Python {platform.python_version()}", *_versions(), _compiler()]),
        "sources": build.source_hash()[:12],
        "sanitizers": sanitized,
        "first seed": seed,
        "seconds": round(result.seconds),
        "cases": result.cases,
        "reports": result.reports,
        "failures": [found.row() for found in result.found],
    }


def table(facts: dict[str, Any]) -> str:
    """Return the table in Markdown."""
    failures = [row["kind"] for row in facts["failures"]]
    lines = ["| kind | what | cases | seeds | distinct failures |", "|---|---|---:|---|---:|"]
    for kind, count in facts["cases"].items():
        seeds = f"{facts['first seed']} to {facts['first seed'] + count - 1}"
        lines.append(f"| `{kind}` | {WHAT[kind]} | {count:,} | {seeds} | {failures.count(kind)} |")
    total = sum(facts["cases"].values())
    lines.append(f"| all | | **{total:,}** | | **{len(failures)}** |")
    watched = "with" if facts["sanitizers"] else "without"
    lines += [
        "",
        f"Run on {facts['date']}, {facts['machine']}; {facts['versions']}; C++ sources `{facts['sources']}`; {watched} "
        f"sanitizers, which reported {facts['reports']} times; {facts['seconds']} s; `{facts['command']}`.",
    ]
    return "\n".join(lines)


def write(path: Path, facts: dict[str, Any]) -> None:
    """Replace what is between the markers of a page."""
    text = path.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not rest or END not in rest:
        raise ValueError(f"{path}: got a page without {BEGIN} and {END}, allowed is one with both")
    path.write_text(f"{before}{BEGIN}\n\n{table(facts)}\n\n{END}{after}")
