"""The pictures of README.md; `__main__.py` measures what they show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env import plots

# What the published text states, by share of momentum agents.
PAPER_VOLATILITY = {0.0: 0.95, 0.65: 26.90, 0.70: 25.19}
PAPER_VOLUME = {0.0: 169.0, 0.70: 263.3}
PAPER_KURTOSIS, PAPER_KURTOSIS_PEAK = (2.24, 2.92), 26.34
PAPER_ACF, PAPER_ACF_ABS = -0.34, 0.18
STANDARD = 0.15  # the share of momentum agents whose autocorrelations are shown

_MOMENTUM = "share of momentum agents"
_GREEN, _ORANGE = "#2e7d4f", "#d98a1c"


def draw(folder: Path, small: Any, large: Any, coin: Any, plane: Any) -> None:
    """Write the pictures: the sweep at the published size and with many markets, autocorrelations, roundings, plane.

    Each is of a `Sweep`: at the published number of markets, with many, these with `rounding="coin"`, and momentum x
    maker.
    """
    for name, sweep in (("sweep", small), ("ensemble", large)):
        panels = [
            lambda axes, s=sweep: _volatility(axes, s),
            lambda axes, s=sweep: _kurtosis(axes, s),
            lambda axes, s=sweep: _volume(axes, s),
            lambda axes, s=sweep: _autocorrelations(axes, s),
        ]
        plots.save_panels(folder / f"stylised_{name}.png", panels, size=(5.8, 3.9))
    plots.save_panels(
        folder / "stylised_autocorrelation.png",
        [
            lambda axes: _by_mix(axes, large, "acf", "Returns"),
            lambda axes: _by_mix(axes, large, "acf_abs", "|Returns|"),
            lambda axes: _by_mix(axes, large, "acf_abs_late", "|Returns|, second half of the run alone"),
        ],
        columns=3,
        size=(4.9, 3.9),
    )
    _draw_rounding(folder / "stylised_rounding.png", {'"even", the paper\'s': large, '"coin"': coin})
    _draw_plane(folder / "stylised_plane.png", plane)


def _draw_rounding(path: Path, sweeps: dict[str, Any]) -> None:
    """Draw what rounding decides: kurtosis of the median market, |returns| at lag 1, and the end that prices reach."""
    shown = (
        ("kurtosis", "Excess kurtosis, median market", "excess kurtosis"),
        ("acf_abs", "|Returns|, lag 1", "autocorrelation, mean over markets"),
        ("at_top", "Markets that end at the top of the grid", "share of the markets"),
    )

    def curves(axes: Any, name: str, title: str, label: str) -> None:
        axes.axhline(0, color=plots.GREY, lw=0.8)
        for (rounding, sweep), colour in zip(sweeps.items(), (plots.BUY, plots.SELL), strict=True):
            if name == "kurtosis":
                values = [float(np.nanmedian(found)) for found in sweep.values[name]]
            else:
                lag = 1 if name == "acf_abs" else None
                values = [sweep.mean(name, point, lag).mean for point in range(len(sweep.shares))]
            axes.plot(sweep.shares[:, 0], values, marker="o", ms=4, color=colour, label=f"rounding={rounding}")
        axes.set(title=title, xlabel=_MOMENTUM, ylabel=label)
        axes.legend(fontsize=8)

    plots.save_panels(path, [lambda axes, s=one: curves(axes, *s) for one in shown], columns=3, size=(4.9, 3.9))


def _curve(axes: Any, sweep: Any, name: str, label: str, colour: str) -> None:
    values, widths = sweep.means(name)
    axes.errorbar(sweep.shares[:, 0], values, yerr=widths, marker="o", ms=4, capsize=2, color=colour, label=label)


def _published(axes: Any, points: dict[float, float]) -> None:
    axes.plot(list(points), list(points.values()), "kx", ms=9, mew=1.8, label="the paper's text", zorder=5)


def _markets(sweep: Any) -> str:
    return f"{sweep.values['volume'].shape[1]:,} markets per point"


def _volatility(axes: Any, sweep: Any) -> None:
    _curve(axes, sweep, "price_sd", "last price itself", plots.BUY)
    _curve(axes, sweep, "return_sd", "its changes (returns)", _ORANGE)
    _curve(axes, sweep, "mid_sd", "changes of the mid", _GREEN)
    _published(axes, PAPER_VOLATILITY)
    axes.set(
        title=f"Standard deviations, {_markets(sweep)}",
        xlabel=_MOMENTUM,
        ylabel="standard deviation in time, ticks",
        yscale="log",
    )
    axes.legend(fontsize=8)


def _kurtosis(axes: Any, sweep: Any) -> None:
    axes.axhspan(*PAPER_KURTOSIS, color="#dddddd", label="the paper's, at low shares")
    axes.axhline(PAPER_KURTOSIS_PEAK, color="k", ls="--", lw=1, label="the paper's peak, above 0.60")
    found = np.array([sweep.kurtosis(point)[:3] for point in range(len(sweep.shares))]).T
    widths = np.stack([found[0] - found[1], found[2] - found[0]])
    style = {"marker": "o", "ms": 4, "capsize": 2, "color": plots.BUY}
    axes.errorbar(sweep.shares[:, 0], found[0], yerr=widths, label="returns, mean over markets", **style)
    axes.set(title="Excess kurtosis of returns", xlabel=_MOMENTUM, ylabel="excess kurtosis")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_yticks([-1, 0, 1, 3, 10, 30], ["-1", "0", "1", "3", "10", "30"])
    axes.legend(fontsize=8, loc="lower left")


def _volume(axes: Any, sweep: Any) -> None:
    _curve(axes, sweep, "volume", "mean over markets", plots.BUY)
    _published(axes, PAPER_VOLUME)
    axes.set(title="Volume", xlabel=_MOMENTUM, ylabel="units per auction")
    axes.legend(fontsize=8)


def _autocorrelations(axes: Any, sweep: Any) -> None:
    point = sweep.point(STANDARD)
    lags = np.arange(1, sweep.values["acf"].shape[2] + 1)
    axes.axhline(0, color=plots.GREY, lw=0.8)
    for name, label, colour in (("acf", "returns", plots.BUY), ("acf_abs", "|returns|", plots.SELL)):
        found = [sweep.mean(name, point, lag) for lag in lags]
        plots.means(axes, lags, found, colour, label)
    axes.plot([1, 1], [PAPER_ACF, PAPER_ACF_ABS], "kx", ms=9, mew=1.8, label="the paper's text", zorder=5)
    axes.set(title=f"Autocorrelation at momentum {STANDARD:g}", xlabel="lag, auctions", ylabel="autocorrelation")
    axes.set_xticks([1, 5, 10, 15, 20])
    axes.legend(fontsize=8)


def _by_mix(axes: Any, sweep: Any, name: str, title: str) -> None:
    lags = np.arange(1, sweep.values[name].shape[2] + 1)
    axes.axhline(0, color=plots.GREY, lw=0.8)
    colours = ("#444444", "#8fb8de", "#1f6fb4", "#2e7d4f", "#d98a1c", "#c8452f")
    for share, colour in zip((0.0, 0.15, 0.25, 0.3, 0.5, 0.7), colours, strict=True):
        values = [sweep.mean(name, sweep.point(share), lag).mean for lag in lags]
        axes.plot(lags, values, marker="o", ms=3, color=colour, label=f"momentum {share:g}")
    axes.set(title=title, xlabel="lag, auctions", ylabel="autocorrelation, mean over markets")
    axes.set_xticks([1, 5, 10, 15, 20])
    axes.legend(fontsize=8, ncols=2)


def _draw_plane(path: Path, plane: Any) -> None:
    """Draw heat maps of six statistics over both shares; mixes with more than all agents stay white."""
    momentum, maker = (np.unique(column) for column in plane.shares.T)
    at = np.searchsorted(maker, plane.shares[:, 1]), np.searchsorted(momentum, plane.shares[:, 0])

    def heat(axes: Any, values: np.ndarray, title: str, log: bool = False, diverging: bool = False) -> None:
        from matplotlib.colors import CenteredNorm, LogNorm

        grid = np.full((len(maker), len(momentum)), np.nan)
        grid[at] = values
        norm = LogNorm() if log else CenteredNorm() if diverging else None
        image = axes.pcolormesh(momentum, maker, grid, norm=norm, cmap="RdBu_r" if diverging else "viridis")
        axes.figure.colorbar(image, ax=axes)
        axes.set(title=title, xlabel=_MOMENTUM, ylabel="share of makers")
        axes.set_xticks(np.arange(0, 0.71, 0.1))

    def mean(name: str) -> np.ndarray:
        return np.array(plane.means(name)[0])

    first_lag = np.nanmean(plane.values["acf_abs"][:, :, 0], axis=1)
    kurtosis = np.array([np.nanmedian(plane.values["kurtosis"][point]) for point in range(len(plane.shares))])
    plots.save_panels(
        path,
        [
            lambda axes: heat(axes, mean("price_sd"), "Deviation of the price, ticks", log=True),
            lambda axes: heat(axes, mean("return_sd"), "Deviation of returns, ticks"),
            lambda axes: heat(axes, kurtosis, "Excess kurtosis, median market", diverging=True),
            lambda axes: heat(axes, mean("volume"), "Volume, units per auction"),
            lambda axes: heat(axes, first_lag, "Autocorrelation of |returns|, lag 1", diverging=True),
            lambda axes: heat(axes, mean("reached_edge"), "Markets that reached an end of the grid"),
        ],
        columns=3,
        size=(4.7, 3.5),
    )
