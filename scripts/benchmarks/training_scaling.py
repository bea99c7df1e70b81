"""`--scaling` of `training_rate.py`: the same figures with one, two and more processes, and how they compare."""

import argparse
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def scaling(options: argparse.Namespace) -> dict[str, Any]:
    """Run this file under torchrun with each number of processes; returns figures, and ratios to the first."""
    found: dict[str, Any] = {}
    for processes in options.scaling:
        path = Path(options.output).resolve().with_suffix(f".{processes}.json")
        path.unlink(missing_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
        command += [f"--master-port={port}", "--module", "scripts.benchmarks.training_rate", "--worker"]
        command += ["--output", str(path), "--variants", *options.variants, "--seconds", str(options.seconds)]
        command += ["--engine", options.engine, "--changes", options.changes, "--markets", str(options.markets)]
        command += ["--spread", str(options.spread), *["--weak"] * options.weak]
        try:
            run: dict[str, Any] = {"cwd": ROOT, "stderr": subprocess.PIPE, "text": True, "timeout": options.timeout}
            done = subprocess.run(command, **run)
            complaint = done.stderr[-2500:]
        except subprocess.TimeoutExpired as error:
            complaint = f"took over {options.timeout} s: {str(error.stderr)[-2500:]}"
        found[str(processes)] = json.loads(path.read_text()) if path.exists() else {"failed": complaint}
        path.unlink(missing_ok=True)
        print_scaling(found, options)
    return found


def print_scaling(found: dict[str, Any], options: argparse.Namespace) -> None:
    """Print the last row, with its ratios to the first one, and keep these."""
    processes, row = list(found.items())[-1]
    first = next(iter(found.values()))
    if "failed" in row:
        print(f"{processes} processes FAILED:\n{row['failed']}", flush=True)
        return
    ratios = {}
    for name in ("engine", *options.variants):
        mine, one = (part.get(name) if isinstance(part, dict) else None for part in (row, first))
        if isinstance(mine, dict) and "failed" in mine:
            print(f"{processes} processes, {name} FAILED:\n{mine['failed']}", flush=True)
            continue
        rate, base = (part.get("training") if isinstance(part, dict) else part for part in (mine, one))
        if isinstance(rate, float) and isinstance(base, float):
            ratios[name] = rate / base
            what = "agent-events/s" if name == "engine" else "steps/s"
            print(f"{processes} processes, {name}: {rate / 1e6:,.2f} M {what}, {rate / base:.2f} times", flush=True)
    row["ratios"] = ratios
