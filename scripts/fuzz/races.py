"""Kind `races`: launches of the C++ engine, written down and made again in a program under ThreadSanitizer.

Several at once, each on its own markets and each with several threads: no race is reported.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shlex
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

import kineticsim_env as ks
from kineticsim_env.engines.native import NativeEngine
from kineticsim_env.runtime import build, layout
from kineticsim_env.runtime.cache import cache_dir
from kineticsim_env.runtime.roles import action_length
from scripts.fuzz import moves, pairs
from scripts.fuzz.kinds import Failure
from scripts.fuzz.sanitizers import report_in, runtime

aside = pairs.aside
HERE = Path(__file__).parent
FLAGS = "-std=c++17 -O1 -g -fwrapv -ffp-contract=off -fsanitize=thread -pthread".split()
_LAUNCHES, _TIMES = 4, 3


def unavailable() -> str:
    """Return why there can be no such cases here, empty if there can."""
    if runtime("libtsan.so") is None or shutil.which("setarch") is None:
        return "no ThreadSanitizer that runs here"
    return ""


@functools.cache
def program(*more: str) -> Path:
    """Build the program, or return the one that is built already."""
    compiler = build.find_cxx() or "c++"
    texts = [path.read_bytes() for path in sorted((HERE / "races.cpp", *HERE.rglob("Parallel.h")))]
    key = hashlib.sha256(
        b"".join([*texts, build.source_hash().encode(), *(flag.encode() for flag in more)])
    ).hexdigest()
    built = cache_dir() / f"races-{key[:16]}"
    if not built.exists():
        includes = [f"-I{HERE / 'on_threads'}", f"-I{build.cuda_dir()}"]
        fresh = built.with_suffix(f".{os.getpid()}")
        command = [*shlex.split(compiler), *FLAGS, *more, *includes, str(HERE / "races.cpp"), "-o", str(fresh)]
        subprocess.run(command, check=True, capture_output=True)
        fresh.rename(built)
    return built


def play(rng: np.random.Generator, engines: tuple[str, ...]) -> None:
    """Write down some launches and make them again."""
    if missing := unavailable():
        raise Failure(f"races: {missing}", key=("races", missing))
    said = make_again([_record(rng) for _ in range(_LAUNCHES)])
    if "ThreadSanitizer" in said or "played" not in said:
        frames = [line.strip() for line in said.splitlines() if line.lstrip().startswith("#0")]
        raise Failure(f"{report_in(said) or said[-300:]} {' '.join(frames[:2])}", key=("races", *frames[:1]))


def make_again(launches: list[bytes], *more: str) -> str:
    """Run the program on launches; returns what it said."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "launches"
        path.write_bytes(struct.pack("<q", len(launches)) + b"".join(launches))
        quiet = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        command = ["setarch", "-R", str(program(*more)), str(path), str(_TIMES)]
        done = subprocess.run(command, env=quiet, check=False, capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr


def _record(rng: np.random.Generator) -> bytes:
    """Write down a launch of some markets or an environment, of a size that several threads share."""
    pair = _pair(rng)
    moves.start(pair, rng)
    thing = pair.under_test
    sim = pairs.simulator_of(thing)
    engine = cast(NativeEngine, sim.engine)
    given, mode, decisions = _arguments(thing, sim, rng)
    launch = layout.Launch()
    ctypes.memmove(ctypes.addressof(launch), ctypes.addressof(engine._struct), ctypes.sizeof(launch))
    launch.env_mode, launch.decisions, launch.auctions = mode, decisions, 10
    launch.growth = 2**31 - 1
    if (actions := given.get("actions")) is not None:
        launch.action_stride = actions.shape[-1]
    return _packed(launch, {"params": engine.parameters(), **engine._tensors, **given})


def _pair(rng: np.random.Generator) -> pairs.Pair:
    number, sort = int(rng.integers(pairs.DIFFERENT)), str(rng.choice(["simulator", "batched", "vector", "random"]))
    if sort == "random":
        return pairs.random_env(number, "cpu")
    mode = {"autoreset_mode": str(rng.choice(pairs.MODES))} if sort == "vector" else {}
    return pairs.pair_of(sort, number, "cpu", **mode)


def _arguments(thing: Any, sim: ks.Simulator, rng: np.random.Generator) -> tuple[dict[str, torch.Tensor], int, int]:
    """Return a launch's further tensors, its mode, and how many decisions it has."""
    markets, slots = sim.num_markets, len(sim.slots)
    if isinstance(thing, ks.Simulator):
        decisions, auctions = int(rng.integers(1, 4)), 10
        given = {
            "new_quotes": torch.from_numpy(moves.quotes_of(sim, rng, decisions, records=False)),
            "fills": torch.zeros((decisions, markets, slots, 2), dtype=torch.int64),
            "value": torch.zeros((decisions, markets, slots), dtype=torch.int64),
        }
        for name in layout.SERIES:
            given[f"series_{name}"] = torch.zeros((markets, decisions * auctions), dtype=torch.int32)
        return given, 0, decisions
    if rng.random() < 0.3:
        return {"reset_mask": torch.from_numpy(rng.random(markets) < 0.7)}, 2, 1
    if thing.core.task.action_type == "discrete":
        return {"choices": torch.from_numpy(rng.integers(0, 15, (markets, slots)))}, 1, 1
    length = action_length(thing.core.task.keep, thing.core.task.orders_per_side)
    return {"actions": torch.from_numpy(rng.uniform(-1, 1, (markets, slots, length)).astype(np.float32))}, 1, 1


def _packed(launch: Any, tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Return a launch in the form that races.cpp reads."""
    parts: list[bytes] = []
    for name, tensor in tensors.items():
        place = getattr(layout.Launch, name).offset
        raw = tensor.contiguous().numpy().tobytes()
        parts.append(struct.pack("<qq", place, len(raw)) + raw)
    given = bytes(launch)
    return struct.pack("<q", len(given)) + given + struct.pack("<q", len(parts)) + b"".join(parts)
