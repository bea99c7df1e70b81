"""`sweep`: run every point of a space once, wherever there is something to run it on, and keep the results on disk."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env.runtime.values import check_count, check_progress, is_whole, progress_bar, show
from kineticsim_env.statistics import DEFAULT
from kineticsim_env.sweeps import store
from kineticsim_env.sweeps.batches import Pace
from kineticsim_env.sweeps.cluster import Cluster
from kineticsim_env.sweeps.local import Here
from kineticsim_env.sweeps.plans import Plan, make_plan


def sweep(
    space: Any,
    intervals: int,
    statistics: Any = DEFAULT,
    *,
    market: Any = None,
    design: str = "grid",
    points: int | None = None,
    design_seed: int = 0,
    replicates: int = 1,
    warm_up: int = 0,
    seed: int = 0,
    common: bool = True,
    each_market: bool = False,
    folder: str | Path | None = None,
    batch: int | None = None,
    part: str | tuple[int, int] | None = None,
    engine: str = "auto",
    device: Any = None,
    ray: str | None = None,
    progress: bool | None = None,
) -> store.Sweep:
    """Measure the markets of all points of a space, and store the statistics of each.

    What a folder has already is not run again: call it once more with the same arguments after a crash or a kill, and
    it goes on. Memory does not grow with the points. No result depends on the engine, on the number of devices or
    machines, or on where a sweep was interrupted, but for the last digits of what is made of sums.

    Args:
        space: What points differ in: fields of `MarketConfig`, `"preset"`, fields of regimes
            (`"regimes[2].jump_size"`), and of classes that users have written `"class.parameter"` and
            `"class.count"`. What changes nothing in any point is refused, with why. Each has values (a list, or
            `{"values": [...]}`) or a range with both its ends: `(3, 12)`, or `{"low": 3, "high": 12}`, with
            `"scale": "log"` if it is to be uniform in the logarithm, and with `"steps"` in a grid. Where shares of
            classes vary, all four are divided by their sum.
        intervals: How many are measured, of every market.
        statistics: As in `measure`.
        market: What all points have alike: a `MarketConfig`, a preset's name, or a mapping of fields and perhaps
            `"preset"`. None is the preset `"paper"`.
        design: `"grid"`: all combinations, the last name's values fastest. `"random"`. `"sobol"`: a scrambled Sobol
            sequence, best with a power of two of points. `"list"`: point i has the i-th value of every list.
        points: How many, of random points and of a Sobol sequence.
        design_seed: Of these.
        replicates: Markets of each point. With several, a point has the mean over them, and its standard error.
        warm_up: Intervals that are run before.
        seed: Of the markets. Replicate r of every point is seeded `seed + r`, so that points differ by their parameters
            alone (common random numbers).
        common: False gives replicate r of point p the seed `seed + p * replicates + r` instead: independent points.
        each_market: Store each market, by `point` and `replicate`, instead of means.
        folder: Where results go; None is a folder that goes with the returned object.
        batch: Points that are stored together, and at most lost by a kill; None is about a second's work, by the time
            that the batches before took, and at least as many as fill the engine.
        part: `"2/8"` or `(2, 8)` does the second of eight parts, consecutive points each: for jobs that share a folder.
        engine: As in `Simulator`. On CUDA all GPUs are used,
        device: unless one or some are named.
        ray: The address of a cluster of Ray that runs the batches, `"auto"` the one that this machine belongs to,
            `"local"` a new one on this machine; None is none.
        progress: True or False shows or hides the bar; None shows it on sweeps of over two seconds.

    Returns:
        `Sweep`, whose `to_pandas()` has a row per point.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed; nothing was run then, but for what
            only the statistics of a market, or points beyond the first million, show.
    """
    plan = make_plan(
        space, intervals, statistics, market=market, design=design, points=points, design_seed=design_seed,
        replicates=replicates, warm_up=warm_up, seed=seed, common=common, each_market=each_market,
    )  # fmt: skip
    (number, parts), asked = read_part(part), None if batch is None else check_count("batch", batch, 1)
    check_progress(progress)
    if folder is None and part is not None:
        raise ValueError(f"part: expected a folder that all parts share with it, got {show(part)} without one")
    if ray is not None and device is not None:
        raise ValueError(f"device: expected None with ray, got {show(device)}: Ray gives every task its own")
    if ray is not None and (not isinstance(ray, str) or not ray):
        raise TypeError(f"ray: expected None, 'auto', 'local' or a cluster's address, got {show(ray)}")
    found, here = None, (plan.points * (number - 1) // parts, plan.points * number // parts)
    if folder is None or not (store.check_place(folder) / store.PLAN).exists():
        plan.check()
    else:
        found = store.begin(folder, plan)
        found.remove_damaged()
        if not found.missing(*here):
            return found
    with contextlib.ExitStack() as stack:
        if ray is None:
            runner: Here | Cluster = Here(engine, device, plan.own_code)
        else:
            runner = stack.enter_context(contextlib.closing(Cluster(ray, engine)))
        found = store.begin(folder, plan) if found is None else found
        _run(found, plan, runner, here, asked, progress)
    return found


def read_part(part: Any) -> tuple[int, int]:
    """Return which part of how many is done: `(1, 1)` for None."""
    if part is None:
        return 1, 1
    match = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", part) if isinstance(part, str) else None
    given = (int(match[1]), int(match[2])) if match else part
    is_pair = isinstance(given, (tuple, list)) and len(given) == 2 and all(map(is_whole, given))
    if not is_pair or not 1 <= given[0] <= given[1]:
        raise ValueError(f"part: expected 'I/N' with I from 1 to N, such as '2/8', got {show(part)}")
    return int(given[0]), int(given[1])


def _run(
    found: store.Sweep, plan: Plan, runner: Here | Cluster, part: tuple[int, int], asked: int | None, progress: Any
) -> None:
    """Run what is not finished between two points, with a bar, and store it."""
    gaps = found.missing(*part)
    total, left = part[1] - part[0], sum(end - begin for begin, end in gaps)
    pace = Pace(plan, left, runner.engine, runner.workers, runner.threads)
    stopped = 0

    def todo() -> Iterator[tuple[int, int]]:
        for begin, end in gaps:
            while begin < end:
                size = min(asked or pace.points, end - begin)
                yield begin, begin + size
                begin += size

    with progress_bar(progress, "sweep", "point", total, initial=total - left, leave=False) as bar:

        def finished(begin: int, end: int, columns: dict[str, Any], seconds: float) -> None:
            nonlocal stopped
            found.write(begin, end, columns)
            pace.took(end - begin, seconds)
            stopped += len(np.unique(columns["point"][columns["stopped"]]))
            bar.update(end - begin)

        runner.run(plan, todo(), finished)
    if stopped:
        warnings.warn(
            f"sweep: in {stopped} points a market stopped, as quantities or prices left the range of integers; their "
            "statistics are NaN, and `stopped` is True",
            stacklevel=3,
        )
