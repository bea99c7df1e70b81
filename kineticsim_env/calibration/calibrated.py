"""`Calibration`, which `calibrate` returns: the posterior of a target, from the network that has learned it."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kineticsim_env.calibration.predicting import Predicted, central_interval, predict
from kineticsim_env.calibration.targets import read_target
from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.values import aligned, check_choice, check_count, check_dict, is_whole, show
from kineticsim_env.sweeps.plans import Plan, make_plan

if TYPE_CHECKING:
    from kineticsim_env.calibration.checking import Check
    from kineticsim_env.calibration.learning import Learned
    from kineticsim_env.calibration.reaching import Reach, Simulations

_LEVELS = (0.5, 0.8, 0.95)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What `calibrate` returns: a posterior distribution of parameters. Printed, it is a table.

    Attributes:
        samples: Draws from the posterior by parameter, `[n]` each: whole numbers where the field is one. Empty where
            the target is out of reach.
        best: Its mode: of the samples the one where it is densest, in the scales of the space. Not its mean. Empty
            where the target is out of reach.
        target: What was fitted, by column.
        reach: Whether simulations come near the target, and the nearest of them.
        predicted: What markets of the posterior show, beside the target; None where it is out of reach.
        simulated: Of each column, 1% and 99% of the simulations' values.
        check: How far the posterior can be trusted, of points that were held out; None if none were.
        simulations: How many the network was trained with.
        left_out: How many of all were not used, as their market did not define a statistic, or stopped.
        converged: Whether training ended because nothing was gained any more; else more simulations could gain.
        seconds: Wall time of each phase: `"simulate"`, with statistics; `"train"`; `"check"`; `"sample"`;
            `"predict"`.
        posterior: sbi's own object: of normal quantiles of places within the ranges, given standardised statistics.
    """

    samples: dict[str, np.ndarray]
    best: dict[str, Any]
    target: dict[str, float]
    reach: Reach
    predicted: Predicted | None
    simulated: dict[str, tuple[float, float]]
    check: Check | None
    simulations: int
    left_out: int
    converged: bool
    seconds: dict[str, float]
    posterior: Any
    _plan: Plan
    _learned: Learned
    _simulated: Simulations
    _draws: int
    _where: dict[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, in the order of the space."""
        return tuple(each.name for each in self._plan.design.dimensions)

    def interval(self, level: float = 0.9) -> dict[str, tuple[float, float]]:
        """Return both ends of the central interval that holds `level` of the posterior, 0 to 1, per parameter."""
        return central_interval(self._posterior("interval"), level)

    def config(self, point: Any = None) -> MarketConfig:
        """Return the market of a point.

        Args:
            point: Values by parameter, or the number of a sample; None is `best`. A row of `to_pandas` is values, too.

        Raises:
            ValueError: If a sample or the best point is asked for and the target is out of reach; or naming the point.
        """
        given = point.to_dict() if hasattr(point, "to_dict") else point
        if given is None or is_whole(given):
            samples = self._posterior("config")
            place = None if given is None else check_count("point", given, 0, self._draws - 1)
            given = self.best if place is None else {name: values[place].item() for name, values in samples.items()}
        if not isinstance(given, Mapping) or set(given) != set(self.names):
            raise ValueError(f"point: expected a sample's number or values of {self._listed()}, got {show(point)}")
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
        count = self._draws if samples is None else check_count("samples", samples, 1)
        return posterior_of(self, read.values, count, check_count("seed", seed, 0))

    def to_pandas(self) -> Any:
        """Return the samples as a DataFrame."""
        import pandas

        return pandas.DataFrame(self._posterior("to_pandas"))

    def table(self) -> str:
        """Return parameters, what was fitted, and what the checks found, as text.

        Where the target is out of reach, that is the first line, and the nearest simulation is in the tables.
        """
        lines = [*self._of_parameters(), "", *self._of_statistics(), ""]
        unused = f", {self.left_out:,} left out" if self.left_out else ""
        lines.append(f"{self.simulations:,} simulations{unused}; {self._plan.intervals:,} intervals each")
        if self.check:
            covered = ", ".join(f"{self.check.coverage(level):.0%} of {level:.0%}" for level in _LEVELS)
            p_values = ", ".join(f"{name} {value:.2f}" for name, value in self.check.p_values.items())
            lines += [f"coverage of {len(self.check.levels):,} held-out points: {covered}"]
            lines += [f"ranks are uniform, p: {p_values}"]
            lines += [f"held-out points that would be out of reach as targets: {self.check.out_of_reach:.1%}"]
        return "\n".join(lines)

    def _of_parameters(self) -> list[str]:
        if not self.reach.within:
            rows = [("parameter", "nearest simulation", "range")]
            for each in self._plan.design.dimensions:
                rows.append((each.name, f"{self.reach.nearest[each.name]:.4g}", f"{each.low:g} to {each.high:g}"))
            return [str(self.reach), "no posterior, and no best point", "", *aligned(rows)]
        rows = [("parameter", "best", "mean", "90% within", "range", "recovered")]
        recovered, intervals = self.check.recovered if self.check else {}, self.interval()
        for each in self._plan.design.dimensions:
            low, high = intervals[each.name]
            found = f"{recovered[each.name]:.2f}" if recovered else "-"
            mean = self.samples[each.name].mean()
            spread, given = f"{low:.4g} to {high:.4g}", f"{each.low:g} to {each.high:g}"
            rows.append((each.name, f"{self.best[each.name]:.4g}", f"{mean:.4g}", spread, given, found))
        return aligned(rows)

    def _of_statistics(self) -> list[str]:
        """Return the target beside what the posterior predicts, or beside the nearest simulation."""
        if self.predicted is None:
            rows = [("statistic", "target", "nearest simulation", "simulated, 1% to 99%", "")]
        else:
            rows = [("statistic", "target", "posterior predicts, 5% to 95%", "p", "simulated, 1% to 99%")]
            intervals, p_values = self.predicted.interval(), self.predicted.p_values
        for name, (low, high) in self.simulated.items():
            target, simulated = f"{self.target[name]:.4g}", f"{low:.4g} to {high:.4g}"
            if self.predicted is None:
                out = "out of reach" if name in self.reach.missed else ""
                rows.append((name, target, f"{self.reach.statistics[name]:.4g}", simulated, out))
            else:
                least, most = intervals[name]
                rows.append((name, target, f"{least:.4g} to {most:.4g}", f"{p_values[name]:.2f}", simulated))
        return aligned(rows)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        if not self.reach.within:
            return f"Calibration({self.reach})"
        return f"Calibration({', '.join(f'{name}={value:.4g}' for name, value in self.best.items())})"

    def draw(self, path: Any, truth: Mapping[str, float] | None = None) -> None:
        """Write the picture: the posterior of each parameter and of each pair. Needs matplotlib.

        Args:
            path: Where it goes.
            truth: Parameters to mark besides the best point, where they are known.
        """
        from kineticsim_env.calibration.figures import Posterior, draw_posterior

        for name in check_dict("truth", {} if truth is None else truth, f"values of {self._listed()}"):
            check_choice("truth", name, self.names)
        self._posterior("draw")
        draw_posterior(path, self._plan.design.dimensions, Posterior(self.samples, self.best, truth or {}))

    def draw_predicted(self, path: Any) -> None:
        """Write the picture of what the posterior predicts, or of the nearest simulation, beside the target.

        Needs matplotlib.
        """
        from kineticsim_env.calibration.figures import draw_predicted

        predicted = None if self.predicted is None else self.predicted.interval()
        standard, nearest = self._learned.standard, self.reach.statistics
        draw_predicted(path, standard, self.simulated, predicted, nearest, self.target)

    def draw_check(self, path: Any) -> None:
        """Write the picture of the check: parameters found again, ranks, and coverage. Needs matplotlib."""
        from kineticsim_env.calibration.figures import draw_check

        if self.check is None:
            raise ValueError("check: expected a calibration that was checked, got one with held_out=0")
        draw_check(path, self.check)

    def _listed(self) -> str:
        return ", ".join(self.names)

    def _posterior(self, asked: str) -> dict[str, np.ndarray]:
        """Return the draws."""
        if not self.reach.within:
            raise ValueError(
                f"{asked}: expected a target that simulations come near, got one that is {self.reach}. The nearest "
                "point is reach.nearest, config(found.reach.nearest) its market; a wider space may reach it"
            )
        return self.samples


def posterior_of(given: Calibration, values: dict[str, float], count: int, seed: int) -> Calibration:
    """Return a calibration with the posterior of a target, or without one where no simulation is near it."""
    dimensions = given._plan.design.dimensions
    reach = given._simulated.reach(values, dimensions)
    found = dataclasses.replace(given, target=values, reach=reach, samples={}, best={}, predicted=None, _draws=count)
    if not reach.within:
        warnings.warn(f"calibrate: the target is {reach}. There is no posterior, and no best point", stacklevel=3)
        return found
    started = time.perf_counter()
    row, learned = np.array(list(values.values())), given._learned
    places = learned.sample(row[None], count, seed)[:, 0]
    densest = places[learned.densities(places[:, None], row[None])[:, 0].argmax()]
    samples = {each.name: each.at(places[:, column]) for column, each in enumerate(dimensions)}
    best = {each.name: each.at(densest[column : column + 1])[0].item() for column, each in enumerate(dimensions)}
    seconds = {**given.seconds, "sample": time.perf_counter() - started}
    started = time.perf_counter()
    predicted = predict(given._plan, samples, values, given._where)
    seconds["predict"] = time.perf_counter() - started
    return dataclasses.replace(found, samples=samples, best=best, predicted=predicted, seconds=seconds)
