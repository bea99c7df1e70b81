"""`calibrate`: simulate points of a space, train on their statistics, and ask for the posterior of the target's."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tqdm import tqdm

from kineticsim_env.calibration.targets import Target, read_target
from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.values import (
    check_choice,
    check_count,
    check_dict,
    check_number,
    check_progress,
    is_whole,
    show,
)
from kineticsim_env.sweeps import Sweep, sweep
from kineticsim_env.sweeps.local import choose_devices
from kineticsim_env.sweeps.plans import Plan, make_plan

if TYPE_CHECKING:
    from kineticsim_env.calibration.learning import Check, Learned

_FEWEST = 100  # simulations that a network is trained with
_LEVELS = (0.5, 0.8, 0.95)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What `calibrate` returns: a posterior distribution of parameters. Printed, it is a table.

    Attributes:
        samples: Draws from the posterior by parameter, `[n]` each: whole numbers where the field is one.
        best: Its mode: of the samples the one where it is densest, in the scales of the space. Not its mean.
        target: What was fitted, by column.
        simulated: Of each column, 1% and 99% of the simulations' values.
        check: How far the posterior can be trusted, of points that were held out; None if none were.
        simulations: How many the network was trained with.
        left_out: How many of all were not used, as their market did not define a statistic, or stopped.
        converged: Whether training ended because nothing was gained any more; else more simulations could gain.
        seconds: Wall time of each phase: `"simulate"`, with statistics; `"train"`; `"check"`; `"sample"`.
        posterior: sbi's own object: of normal quantiles of places within the ranges, given standardised statistics.
    """

    samples: dict[str, np.ndarray]
    best: dict[str, Any]
    target: dict[str, float]
    simulated: dict[str, tuple[float, float]]
    check: Check | None
    simulations: int
    left_out: int
    converged: bool
    seconds: dict[str, float]
    posterior: Any
    _plan: Plan
    _learned: Learned
    _places: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, in the order of the space."""
        return tuple(self.samples)

    def interval(self, level: float = 0.9) -> dict[str, tuple[float, float]]:
        """Return both ends of the central interval that holds `level` of the posterior, 0 to 1, per parameter."""
        level = check_number("level", level, 0.0, 1.0)
        ends = ((1 - level) / 2, (1 + level) / 2)
        found = {name: np.quantile(values, ends) for name, values in self.samples.items()}
        return {name: (float(low), float(high)) for name, (low, high) in found.items()}

    def config(self, point: Any = None) -> MarketConfig:
        """Return the market of a point.

        Args:
            point: Values by parameter, or the number of a sample; None is `best`. A row of `to_pandas` is values, too.
        """
        given = self.best if point is None else point.to_dict() if hasattr(point, "to_dict") else point
        if is_whole(given):
            place = check_count("point", given, 0, len(next(iter(self.samples.values()))) - 1)
            given = {name: values[place].item() for name, values in self.samples.items()}
        if not isinstance(given, Mapping) or set(given) != set(self.names):
            raise ValueError(f"point: got {show(point)}, allowed are a sample's number and values of {self._listed()}")
        space = {name: [given[name]] for name in self.names}
        return make_plan(space, 1, ["volatility"], market=dict(self._plan.market), design="list").config(0)

    def of(self, target: Any, samples: int | None = None, seed: int = 0) -> Calibration:
        """Return the posterior of another target, with the network that is there: nothing is simulated or trained.

        Args:
            target: Values of the same statistics, of markets as long and as many; a warning says if they are not.
            samples: How many draws; None is as many as here.
            seed: Of the draws.
        """
        plan = self._plan
        read = read_target(target, plan.statistics, plan.intervals, plan.replicates)
        if read.own not in (None, (plan.intervals, plan.replicates)):
            warnings.warn(
                f"of: the target is of {read.own[1]} markets of {read.own[0]} intervals, and the network has learned "
                f"from {plan.replicates} of {plan.intervals}: the posterior is as wide as these make it",
                stacklevel=2,
            )
        count = len(self._places) if samples is None else check_count("samples", samples, 1)
        return _posterior(self, read.values, count, check_count("seed", seed, 0))

    def to_pandas(self) -> Any:
        """Return the samples as a DataFrame."""
        import pandas

        return pandas.DataFrame(self.samples)

    def table(self) -> str:
        """Return parameters, what was fitted, and what the check found, as text."""
        rows = [("parameter", "best", "mean", "90% within", "range", "recovered")]
        recovered = self.check.recovered if self.check else {}
        for each in self._plan.design.dimensions:
            low, high = self.interval()[each.name]
            found = f"{recovered[each.name]:.2f}" if recovered else "-"
            mean = self.samples[each.name].mean()
            spread, given = f"{low:.4g} to {high:.4g}", f"{each.low:g} to {each.high:g}"
            rows.append((each.name, f"{self.best[each.name]:.4g}", f"{mean:.4g}", spread, given, found))
        lines = _aligned(rows)
        rows = [("statistic", "target", "simulated, 1% to 99%")]
        for name, (low, high) in self.simulated.items():
            rows.append((name, f"{self.target[name]:.4g}", f"{low:.4g} to {high:.4g}"))
        lines += ["", *_aligned(rows), ""]
        unused = f", {self.left_out:,} left out" if self.left_out else ""
        lines.append(f"{self.simulations:,} simulations{unused}; {self._plan.intervals:,} intervals each")
        if self.check:
            covered = ", ".join(f"{self.check.coverage(level):.0%} of {level:.0%}" for level in _LEVELS)
            p_values = ", ".join(f"{name} {value:.2f}" for name, value in self.check.p_values.items())
            lines += [f"coverage of {len(self.check.levels):,} held-out points: {covered}"]
            lines += [f"ranks are uniform, p: {p_values}"]
        return "\n".join(lines)

    def __str__(self) -> str:
        """Return the table."""
        return self.table()

    def __repr__(self) -> str:
        """Name the best point."""
        return f"Calibration({', '.join(f'{name}={value:.4g}' for name, value in self.best.items())})"

    def draw(self, path: Any, truth: Mapping[str, float] | None = None) -> None:
        """Write the picture: the posterior of each parameter and of each pair. Needs matplotlib.

        Args:
            path: Where it goes.
            truth: Parameters to mark besides the best point, where they are known.
        """
        from kineticsim_env.calibration.figures import draw_posterior

        for name in check_dict("truth", {} if truth is None else truth, f"values of {self._listed()}"):
            check_choice("truth", name, self.names)
        draw_posterior(path, self, {} if truth is None else truth)

    def draw_check(self, path: Any) -> None:
        """Write the picture of the check: parameters found again, ranks, and coverage. Needs matplotlib."""
        from kineticsim_env.calibration.figures import draw_check

        if self.check is None:
            raise ValueError("check: got a calibration with held_out=0, allowed is one that was checked")
        draw_check(path, self.check)

    def _listed(self) -> str:
        return ", ".join(self.names)


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
            by name, which are measured by `measure_series`.
        space: What is unknown: fields as in `sweep`, each with a range, `(3, 12)` or `{"low": 3, "high": 12}`, with
            `"scale": "log"` if the logarithm is to be uniform.
        intervals: How many a simulated market has: as many as the target was measured over, so that its statistics are
            as uncertain. None is the length of a target that has one.
        statistics: Which are measured, as in `measure`; None is all of a table. Of a series it is volatility, kurtosis,
            autocorrelations of returns and of their size, variance ratios, and of volume its mean, deviation and
            correlation with volatility.
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
        `Calibration`.

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
            raise ValueError(f"space[{each.name!r}]: got {got}, allowed is a range (low, high) to calibrate within")
    name, (place, *_) = choose_devices(engine, device)
    try:
        from kineticsim_env.calibration import learning
    except ModuleNotFoundError as error:
        missing = f"calibrate: {error.name} is missing: pip install 'kineticsim-env[calibrate]'"
        raise ModuleNotFoundError(missing, name=error.name) from error
    started = time.perf_counter()
    where = {"folder": folder, "engine": engine, "device": device, "ray": ray, "progress": progress}
    unit, rows = _simulated(sweep(space, read.intervals, read.statistics, **arguments, **where), plan, read)
    seconds = {"simulate": time.perf_counter() - started}
    whole = np.all(np.isfinite(rows), axis=1)
    train, held = np.flatnonzero(whole[:simulations]), simulations + np.flatnonzero(whole[simulations:])
    _check_left_out(rows, read, len(train), simulations)
    started = time.perf_counter()
    device = place if name == "cuda" else torch.device("cpu")
    with tqdm(unit="pass", desc="train", delay=0 if progress else 2, disable=progress is False, leave=False) as bar:
        learned = learning.learn(unit[train], rows[train], device, seed, bar)
    seconds["train"] = time.perf_counter() - started
    started = time.perf_counter()
    names = tuple(each.name for each in plan.design.dimensions)
    checked = learning.check(learned, names, unit[held], rows[held], seed) if len(held) else None
    seconds["check"] = time.perf_counter() - started
    low, high = np.quantile(rows[train], (0.01, 0.99), axis=0).tolist()
    simulated = dict(zip(read.values, zip(low, high, strict=True), strict=True))
    about = (len(train), int((~whole).sum()), learned.converged, seconds, learned.posterior, plan, learned)
    empty: dict[str, Any] = {}
    return _posterior(
        Calibration(empty, empty, empty, simulated, checked, *about, np.empty((0, 0))), read.values, samples, seed
    )


def _simulated(found: Sweep, plan: Plan, read: Target) -> tuple[np.ndarray, np.ndarray]:
    """Return places of all points within the unit cube, `[N, d]`, and their statistics, `[N, n]`."""
    table = found.to_arrow(list(read.values))
    rows = np.stack([table.column(name).to_numpy() for name in read.values], 1)
    return plan.design.unit(0, plan.points), rows


def _check_left_out(rows: np.ndarray, read: Target, left: int, simulations: int) -> None:
    """Refuse to learn from too few, and name the statistics that most points do not define."""
    if left >= max(_FEWEST, simulations // 2):
        return
    shares = dict(zip(read.values, 1 - np.isfinite(rows).mean(0), strict=True))
    worst = sorted(shares, key=lambda name: -shares[name])[:3]
    said = ", ".join(f"{name!r} in {shares[name]:.0%}" for name in worst if shares[name] > 0)
    raise ValueError(
        f"statistics: got only {left} of {simulations} points that define all of them, allowed are half, and at least "
        f"{_FEWEST}; undefined: {said}"
    )


def _posterior(given: Calibration, values: dict[str, float], count: int, seed: int) -> Calibration:
    """Return a calibration with the posterior of a target."""
    started = time.perf_counter()
    for name, (low, high) in given.simulated.items():
        if not low <= values[name] <= high:
            warnings.warn(
                f"calibrate: the target's {name} is {values[name]:.4g}, and 98% of the simulations have {low:.4g} to "
                f"{high:.4g}: where simulations are few or none the posterior is a guess",
                stacklevel=3,
            )
    row, learned = np.array(list(values.values())), given._learned
    places = learned.sample(row[None], count, seed)[:, 0]
    densest = places[learned.densities(places[:, None], row[None])[:, 0].argmax()]
    dimensions = given._plan.design.dimensions
    return dataclasses.replace(
        given,
        samples={each.name: each.at(places[:, column]) for column, each in enumerate(dimensions)},
        best={each.name: each.at(densest[column : column + 1])[0].item() for column, each in enumerate(dimensions)},
        target=values,
        seconds={**given.seconds, "sample": time.perf_counter() - started},
        _places=places,
    )


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
