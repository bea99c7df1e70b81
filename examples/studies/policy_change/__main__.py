"""`python -m examples.studies.policy_change` changes the rules of running markets, and says what it did.

It fills README.md and writes its pictures, and results.json with every figure, from which `--results` fills the page
again without measuring.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from examples.studies.policy_change import study
from kineticsim_env import plots
from kineticsim_env.config import MarketConfig
from kineticsim_env.runtime.options import exit_code
from kineticsim_env.statistics import Mean, mean_and_error
from scripts.pages.command import make_page, page_parser

NAME = "policy_change"
BIN = 5  # intervals per point of the pictures
WINDOWS = {"at first": (0, 20), "later": (study.AFTER // 2, study.AFTER)}  # intervals after the change
_COLOURS = ("#0d4377", "#3f8f4f", "#d9661c", "#7a4fa3", "#a05a2c")
_DRAWN = {
    "spread": "spread, ticks",
    "volume": "volume, units per interval",
    "volatility_mid": "volatility of the mid, ticks per interval",
    "error_mid": "error of the mid, ticks",
    "earned": "what the maker earns, ticks x units per interval",
}


def measure(markets: int, engine: str) -> dict[str, Any]:
    """Play every change in every market, and return every figure of the page."""
    markets_of = {"found": study.MARKETS, "others": study.OTHERS}
    with tqdm(total=sum(len(named) for of in markets_of.values() for named in of.values()), unit="market") as bar:

        def figures(config: MarketConfig, drawn: bool) -> dict[str, Any]:
            played = study.play(config, markets, engine)
            bar.update()
            return {name: _of(values, drawn and name in _DRAWN) for name, values in played.items()}

        found = {
            kind: {
                preset: {name: figures(config, kind == "found") for name, config in named.items()}
                for preset, named in of.items()
            }
            for kind, of in markets_of.items()
        }
    setting = {
        "markets": markets,
        "bin": BIN,
        "warmup": study.WARMUP,
        "before": study.BEFORE,
        "windows": WINDOWS,
        "changes": {name: fields for name, fields in study.CHANGES.items() if fields},
        "half_spread": study.HALF_SPREAD,
        "quantity": study.QUANTITY,
    }
    return {"setting": setting} | found


def _of(values: np.ndarray, path: bool) -> dict[str, Any]:
    """Return means of a measure, float64 `[change, seed, interval]`, and of the paired differences a change makes.

    A market's value is its mean over the intervals that have one. `moved` is the last window less the first; `path`
    says whether means over time are kept, for a picture.
    """
    differences = values - values[:1]
    after = {name: slice(study.BEFORE + low, study.BEFORE + high) for name, (low, high) in WINDOWS.items()}
    first, last = after.values()
    binned = differences.reshape(*values.shape[:2], -1, BIN)
    changes = [(place, name) for place, (name, fields) in enumerate(study.CHANGES.items()) if fields]
    return {
        "level": mean_and_error(_mean(values[0, :, study.BEFORE :])),
        "change": {
            change: {name: mean_and_error(_mean(differences[place, :, part])) for name, part in after.items()}
            for place, change in changes
        },
        "moved": {
            change: mean_and_error(_mean(differences[place, :, last]) - _mean(differences[place, :, first]))
            for place, change in changes
        },
        "path": {
            change: [mean_and_error(column) for column in _mean(binned[place]).T] for place, change in changes if path
        },
    }


def _mean(values: np.ndarray) -> np.ndarray:
    """Return means over the last axis, without NaN; NaN where there is nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanmean(values, axis=-1)


def draw(folder: Path, found: Mapping[str, Any]) -> None:
    """Write an event study of each preset: both mechanisms."""
    width = found["setting"]["bin"]
    for preset, both in found["found"].items():
        panels = [lambda axes, one=one, both=both: _paths(axes, both, one, width) for one in _DRAWN]
        plots.save_panels(folder / f"policy_change_{preset}.png", [*panels, _legend], size=(6.2, 3.6))


def _paths(axes: Any, both: Mapping[str, Any], one: str, width: int) -> None:
    for measures, style in zip(both.values(), ("-", "--"), strict=True):
        for (_, path), colour in zip(measures[one]["path"].items(), _COLOURS, strict=True):
            found = [Mean(*value) for value in path]
            middle = np.arange(len(found)) * width + (width - 1) / 2 - study.BEFORE
            mean, half = np.array([value.mean for value in found]), np.array([value.interval() for value in found])
            axes.plot(middle, mean, color=colour, lw=1.3, ls=style)
            axes.fill_between(middle, mean - half, mean + half, color=colour, alpha=0.15, lw=0)
    axes.axvline(-0.5, color=plots.GREY, lw=1, ls=":")
    axes.axhline(0, color=plots.GREY, lw=0.8)
    axes.set(title=f"{_DRAWN[one].split(', ')[0]}, with less without".capitalize(), ylabel=_DRAWN[one].split(", ")[1])
    axes.set_xlabel("intervals since the change")


def _legend(axes: Any) -> None:
    for change, colour in zip((name for name, fields in study.CHANGES.items() if fields), _COLOURS, strict=True):
        axes.plot([], [], color=colour, label=change)
    for mechanism, style in ((study.CONTINUOUS, "-"), (study.CALL, "--")):
        axes.plot([], [], color="black", ls=style, label=mechanism)
    axes.fill_between([], [], [], color=plots.GREY, alpha=0.15, lw=0, label="95% intervals over markets, paired")
    axes.set_axis_off()
    axes.legend(loc="center")


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the page."""
    options = page_parser(NAME, __doc__, 4096, "seeds of each change", 2).parse_args(arguments)
    make_page(options, NAME, lambda: measure(options.markets, options.engine), draw, indent=None)


if __name__ == "__main__":
    sys.exit(exit_code(main))
