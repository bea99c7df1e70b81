"""Time a sweep, phase by phase: `python -m scripts.benchmarks.sweep_speed`, as docs/sweeps.md has it.

Kernels are compiled, and everything is run once, before anything is timed.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import kineticsim_env as ks
from kineticsim_env.statistics import DEFAULT
from kineticsim_env.sweeps import batches, plans, store
from kineticsim_env.sweeps.local import choose_devices

SPACE = {
    "noise_spread": (2, 12),
    "market_order_prob": (0.02, 0.2),
    "maker_half_spread": (1, 6),
    "max_order_qty": (2, 8),
}


def phases(points: int, intervals: int, engine: str, device: torch.device, folder: Path) -> dict[str, float]:
    """Return the seconds of each phase of one batch with all points."""
    seconds: dict[str, float] = {}

    def lap(name: str, since: float) -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds[name] = time.perf_counter() - since
        return time.perf_counter()

    now = time.perf_counter()
    plan = plans.make_plan(SPACE, intervals, DEFAULT, design="sobol", points=points)
    now = lap("plan", now)
    plan.check()
    now = lap("check of all points", now)
    found = store.begin(folder, plan)
    now = lap("folder", now)
    rows = plan.design.rows(0, points)
    ((_, config),) = plan.configs(rows)
    now = lap("configs", now)
    seeds = plan.seeds(np.arange(points))
    now = lap("seeds", now)
    simulator = ks.Simulator(config, points, engine=engine, device=device, seed=seeds)
    now = lap("simulator", now)
    simulator.run(intervals, progress=False)
    now = lap("run alone", now)
    simulator.reset(seed=seeds)
    now = time.perf_counter()
    measured = ks.measure(simulator, intervals, DEFAULT, progress=False)
    now = lap("run with statistics", now)
    columns = {"point": np.arange(points), **rows, **measured.columns(errors=False)}
    now = lap("columns", now)
    found.write(0, points, columns)
    lap("store", now)
    return seconds


def whole(points: int, intervals: int, engine: str, device: Any, folder: Path) -> tuple[float, int]:
    """Return the seconds of the whole call, and how many batches it had."""
    now = time.perf_counter()
    found = ks.sweep(
        SPACE, intervals, design="sobol", points=points, folder=folder, engine=engine, device=device, progress=False
    )
    return time.perf_counter() - now, found.batches


def on_several(points: int, intervals: int, folder: Path) -> None:
    """Print how much faster all GPUs of this machine are than the first, and check that results are the same."""
    _, devices = choose_devices("cuda", None)
    seconds, tables = [], []
    for number, chosen in enumerate((devices[0], devices)):
        place = folder / f"on{number}"
        whole(points // 8, intervals, "cuda", chosen, place / "first")  # kernels are loaded on every GPU
        took, batches_of_one = min(whole(points, intervals, "cuda", chosen, place / f"{i}") for i in range(2))
        seconds.append(took)
        tables.append(ks.open_sweep(place / "0").to_pandas().sort_values("point", ignore_index=True))
        names = len(devices) if number else 1
        print(f"{points:,} points on {names} GPU: {took:.3f} s, {batches_of_one} batches")
    same = all(np.allclose(tables[0][name], tables[1][name], rtol=1e-9, equal_nan=True) for name in tables[0])
    print(
        f"{seconds[0] / seconds[1]:.2f} times as fast on {len(devices)} GPUs; results are {'' if same else 'NOT '}equal"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--intervals", type=int, default=1000, help="auctions of 256 agents each")
    parser.add_argument("--engine", default="auto")
    parser.add_argument(
        "--many", type=int, default=1 << 20, help="points that several GPUs share, where there are some"
    )
    parser.add_argument("--repeat", type=int, default=5, help="of which the best is printed")
    options = parser.parse_args()
    engine, (device, *_) = choose_devices(options.engine, None)
    sizes = (options.points, options.intervals, engine, device)
    with tempfile.TemporaryDirectory() as place:
        whole(options.points, min(options.intervals, 400), engine, device, Path(place) / "first")
        parts = [phases(*sizes, Path(place) / f"phases{number}") for number in range(options.repeat)]
        calls = [whole(*sizes, Path(place) / f"whole{number}") for number in range(options.repeat)]
        held = sum(path.stat().st_size for path in (Path(place) / "whole0").iterdir())
    events = options.points * options.intervals * batches.events_of(ks.MarketConfig())[0]
    print(f"{options.points:,} points, {options.intervals:,} auctions each, {events:.3g} events; engine {engine}")
    for name in parts[0]:
        print(f"{name:24s} {1000 * min(part[name] for part in parts):10.1f} ms")
    seconds, number = min(calls)
    print(f"{'ks.sweep, all of it':24s} {1000 * seconds:10.1f} ms, {number} batches, {held / 1e6:.2f} MB on disk")
    print(f"{'memory of the host':24s} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:10.0f} MB at most")

    if engine == "cuda" and torch.cuda.device_count() > 1:
        with tempfile.TemporaryDirectory() as place:
            on_several(options.many, options.intervals, Path(place))


if __name__ == "__main__":
    main()
