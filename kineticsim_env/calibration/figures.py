"""Pictures of a calibration: the posterior, and the check of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kineticsim_env import plots

if TYPE_CHECKING:
    from kineticsim_env.calibration.checking import Check
    from kineticsim_env.sweeps.space import Dimension

_BINS = 40
_BEST, _TRUE = {"color": plots.BUY, "lw": 1.2}, {"color": plots.SELL, "lw": 1.2, "ls": "--"}


class Posterior(NamedTuple):
    """Samples, their mode, and the true values where they are known, by parameter."""

    samples: Mapping[str, np.ndarray]
    best: Mapping[str, Any]
    truth: Mapping[str, float]


def draw_posterior(path: Any, dimensions: Sequence[Dimension], found: Posterior) -> None:
    """Draw each parameter's posterior on the diagonal, and below it that of each pair, over the whole ranges."""

    def draw(row: int, column: int, axes: Any) -> None:
        if column > row:
            axes.set_visible(False)
        elif column == row:
            _marginal(axes, dimensions[row], found)
        else:
            _pair(axes, dimensions[column], dimensions[row], found)

    panels = [partial(draw, *place) for place in itertools.product(range(len(dimensions)), repeat=2)]
    plots.save_panels(path, panels, columns=len(dimensions), size=(3.4, 2.8))


def _marginal(axes: Any, each: Dimension, found: Posterior) -> None:
    edges = _edges(each)
    axes.hist(found.samples[each.name], edges, density=True, color="#c9d9e8", label="posterior")
    axes.axvline(found.best[each.name], **_BEST, label="best")
    if each.name in found.truth:
        axes.axvline(found.truth[each.name], **_TRUE, label="true")
    axes.set(xlabel=each.name, xlim=(edges[0], edges[-1]), xscale=each.scale, yticks=[])
    plots.plain_ticks(axes.xaxis)
    axes.legend(fontsize=7)


def _pair(axes: Any, x: Dimension, y: Dimension, found: Posterior) -> None:
    axes.hist2d(found.samples[x.name], found.samples[y.name], bins=(_edges(x), _edges(y)), cmap="Blues")
    axes.plot(found.best[x.name], found.best[y.name], "o", color=plots.BUY, ms=5)
    if x.name in found.truth and y.name in found.truth:
        axes.plot(found.truth[x.name], found.truth[y.name], "x", color=plots.SELL, ms=7)
    axes.set(xlabel=x.name, ylabel=y.name, xscale=x.scale, yscale=y.scale)
    plots.plain_ticks(axes.xaxis)
    plots.plain_ticks(axes.yaxis)


def _edges(each: Dimension) -> np.ndarray:
    """Return bins over a range: equal in its scale, and around whole numbers if they are not too many."""
    if each.whole and each.high - each.low < _BINS:
        return np.arange(each.low, each.high + 2) - 0.5
    return (np.geomspace if each.scale == "log" else np.linspace)(each.low, each.high, _BINS + 1)


def draw_predicted(
    path: Any,
    standard: Callable[[np.ndarray], Any],
    simulated: Mapping[str, tuple[float, float]],
    predicted: Mapping[str, tuple[float, float]] | None,
    nearest: Mapping[str, float],
    target: Mapping[str, float],
) -> None:
    """Draw each statistic of the target over the ends of what all simulations show, and those of the posterior.

    `predicted` is None of a target out of reach, which is drawn beside the nearest simulation; `standard` standardises
    rows of statistics.
    """
    names = list(simulated)

    def places(values: Mapping[str, float]) -> np.ndarray:
        return standard(np.array([[values[name] for name in names]])).numpy()[0]

    def draw(axes: Any) -> None:
        at = np.arange(len(names))
        low, high = (places({name: ends[end] for name, ends in simulated.items()}) for end in (0, 1))
        axes.barh(at, high - low, left=low, height=0.7, color="#e6e6e6", label="all simulations, 1% to 99%")
        if predicted is None:
            axes.plot(places(nearest), at, "D", color=plots.BUY, ms=5, label="nearest simulation")
        else:
            low, high = (places({name: ends[end] for name, ends in predicted.items()}) for end in (0, 1))
            axes.barh(at, high - low, left=low, height=0.35, color=plots.BUY, label="of the posterior, 5% to 95%")
        axes.plot(places(target), at, "x", color=plots.SELL, ms=8, mew=2, label="target")
        axes.set_yticks(at, names, fontsize=8)
        axes.invert_yaxis()
        axes.set(xlabel="standardised statistic")
        axes.set_title("What the posterior predicts" if predicted else "Out of reach", fontsize=10)
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.4, -0.12), ncols=3)

    plots.save_panels(path, [draw], columns=1, size=(7.4, 1.6 + 0.32 * len(names)))


def draw_check(path: Any, check: Check) -> None:
    """Draw, per parameter, posterior means against the truth; then the shares of ranks, and the coverage."""

    def recovery(column: int, name: str, axes: Any) -> None:
        axes.plot((0, 1), (0, 1), color=plots.GREY, lw=0.8)
        axes.plot(check.places[:, column], check.means[:, column], "o", ms=2, color=plots.BUY, alpha=0.5)
        axes.set(xlabel=f"true place of {name} in its range", ylabel="posterior mean")
        axes.set_title(f"{check.recovered[name]:.0%} of the variance found again", fontsize=9)

    draws = [*(partial(recovery, *each) for each in enumerate(check.names)), partial(_uniform, check)]
    plots.save_panels(path, draws, columns=min(len(draws), 3), size=(3.8, 3.2))


def _uniform(check: Check, axes: Any) -> None:
    """Draw how far the shares of ranks and levels are from uniform ones, with Kolmogorov and Smirnov's 95% bound."""
    count = len(check.levels)
    at = np.arange(1, count + 1) / count
    axes.fill_between((0, 1), -1.358 / np.sqrt(count), 1.358 / np.sqrt(count), color="#e6e6e6", label="95% if right")
    for column, name in enumerate(check.names):
        ranks = np.sort(check.ranks[:, column]) / check.draws
        axes.step(ranks, at - ranks, lw=1, label=f"rank, {name}")
    levels = np.sort(check.levels)
    axes.step(levels, at - levels, lw=1.5, color="black", label="coverage")
    axes.set(xlabel="share that is expected", ylabel="share found, less expected")
    axes.set_title(f"{count:,} held-out points", fontsize=9)
    axes.legend(fontsize=6)
