"""`calibrate`: simulate points of a space, train on their statistics, and ask for the posterior of the target's."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kineticsim_env.calibration.calibrated import Calibration, posterior_of
from kineticsim_env.calibration.predicting import rows_of
from kineticsim_env.calibration.targets import Target, read_target
from kineticsim_env.runtime.values import check_count, check_progress, progress_bar
from kineticsim_env.sweeps import sweep
from kineticsim_env.sweeps.local import choose_devices
from kineticsim_env.sweeps.plans import make_plan

_FEWEST = 100  # simulations that a network is trained with


def calibrate(
    target: Any,
    space: Any,
    intervals: int | None = None,
    statistics: Any = None,
    *,
    market: Any = None,
    simulations: int = 30_000,
    held_out: int = 300,
    replicates: int | None = None,
    warm_up: int = 0,
    samples: int = 10_000,
    seed: int = 0,
    folder: str | Path | None = None,
    engine: str = "auto",
    device: Any = None,
    ray: str | None = None,
    progress: bool | None = None,
) -> Calibration:
    """Find the parameters of a market that fit given statistics, as a posterior distribution.

    Points are drawn from the space, uniformly, and simulated as a sweep; a network learns from their statistics what
    the parameters are (neural posterior estimation, by sbi), and is asked for those of the target. On the same machine
    the CPU gives the same result every time.

    A point whose market does not define one of the statistics (NaN), or stops, is left out. As the target defines all
    of them, its posterior stays what it is.

    Args:
        target: Values of statistics by name, as `measure` names them (of a curve, as many numbers as it has); or what
            `measure` returned, of one group; or a series of prices in whole ticks, `[S]` or `[M, S]`, or several series
            by name, which are measured by `measure_series`; or `OrderEvents`, by `measure_events`.
        space: What is unknown: fields as in `sweep`, each with a range, `(3, 12)` or `{"low": 3, "high": 12}`, with
            `"scale": "log"` if the logarithm is to be uniform.
        intervals: How many a simulated market has: as many as the target was measured over, so that its statistics are
            as uncertain. None is the length of a target that has one; order events do not.
        statistics: Which are measured, as in `measure`; None is all of a table. Of a series it is volatility, kurtosis,
            autocorrelations of returns and of their size, variance ratios, and of volume its mean, deviation and
            correlation with volatility; of order events `event_mean` and `event_share`.
        market: What is known, as in `sweep`.
        simulations: How many points to learn from,
        held_out: and how many more to check it with; 0 is no check.
        replicates: Markets of each point, over which statistics are means; None is 1, or M of a target of M markets.
        warm_up: Intervals that are run before.
        samples: How many draws from the posterior are returned.
        seed: Of everything: points and their markets, the network and the draws.
        folder: Where simulations are stored, as in `sweep`: the same call goes on there, or trains again.
        engine: As in `Simulator`. With CUDA the network is trained on the GPU, too.
        device: As in `sweep`.
        ray: As in `sweep`, of the simulations.
        progress: As in `sweep`.

    Returns:
        `Calibration`. Where no simulation is near the target (`Calibration.reach`) it has neither draws nor a best
        point, and a warning says which statistics are out of reach.

    Raises:
        TypeError, ValueError: Naming the argument, what came and what is allowed; nothing was run then, unless it is
            that fewer than half of the points define all statistics.
        ModuleNotFoundError: If sbi is missing.
    """
    read = read_target(target, statistics, intervals, replicates)
    simulations = check_count("simulations", simulations, _FEWEST)
    held_out, samples = check_count("held_out", held_out, 0), check_count("samples", samples, 1)
    seed = check_count("seed", seed, 0, 2**62)
    check_progress(progress)
    arguments: dict[str, Any] = {
        **{"market": market, "design": "random", "points": simulations + held_out, "design_seed": seed},
        **{"replicates": read.markets, "warm_up": warm_up, "seed": seed, "common": False},
    }
    plan = make_plan(space, read.intervals, read.statistics, **arguments)
    for each in plan.design.dimensions:
        if each.values is not None or not each.low < each.high:
            got = "values" if each.values is not None else f"the range {each.low:g} to {each.high:g}"
            raise ValueError(f"space[{each.name!r}]: expected a range (low, high) to calibrate within, got {got}")
    name, (place, *_) = choose_devices(engine, device, plan.own_code)
    try:
        from kineticsim_env.calibration import checking, learning, reaching
    except ModuleNotFoundError as error:
        missing = f"calibrate: {error.name} is missing: pip install 'kineticsim-env[calibrate]'"
        raise ModuleNotFoundError(missing, name=error.name) from error
    started = time.perf_counter()
    simulated_on = {"engine": engine, "device": device}
    where = {**simulated_on, "folder": folder, "ray": ray, "progress": progress}
    found = sweep(space, read.intervals, read.statistics, **arguments, **where)
    unit, rows = plan.design.unit(0, plan.points), rows_of(found, read.values)
    seconds = {"simulate": time.perf_counter() - started}
    whole = np.all(np.isfinite(rows), axis=1)
    train, held = np.flatnonzero(whole[:simulations]), simulations + np.flatnonzero(whole[simulations:])
    _check_left_out(rows, read, len(train), simulations)
    started = time.perf_counter()
    device = place if name == "cuda" else torch.device("cpu")
    with progress_bar(progress, "train", "pass", None, leave=False) as bar:
        learned = learning.learn(unit[train], rows[train], device, seed, bar)
    seconds["train"] = time.perf_counter() - started
    started = time.perf_counter()
    names = tuple(each.name for each in plan.design.dimensions)
    simulated = reaching.Simulations(unit[train], rows[train], learned.standard, device)
    checked = checking.check(learned, simulated, names, unit[held], rows[held], seed) if len(held) else None
    seconds["check"] = time.perf_counter() - started
    low, high = np.quantile(rows[train], (0.01, 0.99), axis=0).tolist()
    made = Calibration(
        samples={}, best={}, target=read.values, reach=simulated.reach(read.values, plan.design.dimensions),
        predicted=None, simulated=dict(zip(read.values, zip(low, high, strict=True), strict=True)), check=checked,
        simulations=len(train), left_out=int((~whole).sum()), converged=learned.converged, seconds=seconds,
        posterior=learned.posterior,
        _plan=plan, _learned=learned, _simulated=simulated, _draws=samples, _where=simulated_on,
    )  # fmt: skip
    return posterior_of(made, read.values, samples, seed)


def _check_left_out(rows: np.ndarray, read: Target, left: int, simulations: int) -> None:
    """Refuse to learn from too few, and name the statistics that most points do not define."""
    if left >= max(_FEWEST, simulations // 2):
        return
    shares = dict(zip(read.values, 1 - np.isfinite(rows).mean(0), strict=True))
    worst = sorted(shares, key=lambda name: -shares[name])[:3]
    said = ", ".join(f"{name!r} in {shares[name]:.0%}" for name in worst if shares[name] > 0)
    raise ValueError(
        f"statistics: expected half of {simulations} points, and at least {_FEWEST}, that define all of them, got only "
        f"{left}; undefined: {said}"
    )
