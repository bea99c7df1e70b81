"""`python -m examples.studies.prediction` measures how far the price of `news` can be predicted from what is public.

It writes results.json and the picture, and fills README.md. It needs scikit-learn.
"""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.studies.prediction.study import predictability, worth
from examples.studies.presets.goals import GOALS
from kineticsim_env import plots
from kineticsim_env.config import MarketConfig
from kineticsim_env.engines import choose_engine
from kineticsim_env.runtime.options import exit_code
from kineticsim_env.statistics import Interval, Mean
from scripts.pages.command import command_of, make_page, page_parser
from scripts.pages.markdown import machine

NAME, PRESET = "prediction", "news"
KINDS = {"line": ("a line", "#9db4c8"), "trees": ("boosted trees", plots.BUY)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or read what was measured; draw, and fill the page."""
    parser = page_parser(NAME, __doc__, 512, "markets to fit in, and as many to judge in", 8)
    options = parser.parse_args(arguments)

    def measure() -> dict[str, Any]:
        began, config = time.perf_counter(), MarketConfig.preset(PRESET)
        found = predictability(config, options.markets, options.engine) | worth(config, options.markets, options.engine)
        return found | {
            "goal": GOALS["R^2"],
            "markets": options.markets,
            "measured": f"{datetime.date.today().isoformat()} with `{command_of(parser, options)}`, "
            f"{choose_engine(options.engine)[0]} engine, {machine()}, in {time.perf_counter() - began:.0f} s",
        }

    make_page(options, NAME, measure, draw)


def draw(folder: Path, found: Mapping[str, Any]) -> None:
    """Draw what is predicted by what is seen, and what it is worth."""

    def explained(axes: Any) -> None:
        views = list(found["views"])
        for shift, (kind, (label, colour)) in zip((-0.2, 0.2), KINDS.items(), strict=True):
            values = [Interval(*found["views"][view][kind]) for view in views]
            low, high = (
                [abs(end - one.value) for one, end in zip(values, ends, strict=True)]
                for ends in ([one.low for one in values], [one.high for one in values])
            )
            at = [place + shift for place in range(len(views))]
            axes.barh(at, [one.value for one in values], height=0.38, color=colour, label=label, xerr=[low, high])
        axes.axvline(found["goal"], color=plots.SELL, lw=1, ls="--", label="at most, of the default market")
        axes.set_yticks(range(len(views)), views, fontsize=8)
        axes.invert_yaxis()
        axes.set(xlabel="R^2 of the next change of the mid, held-out markets")
        axes.legend(fontsize=7)

    def earned(axes: Any) -> None:
        rows = [
            (f"{who[:-1]}, {KINDS[kind][0] if kind in KINDS else 'no prediction'}", Mean(*one["pnl"]))
            for who in ("makers", "traders")
            for kind, one in found[who].items()
        ]
        axes.barh(
            range(len(rows)), [one.mean for _, one in rows], xerr=[one.interval() for _, one in rows], color="#9db4c8"
        )
        axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
        axes.invert_yaxis()
        axes.axvline(0, color=plots.GREY, lw=0.8)
        axes.set(xlabel="liquidated PnL of an episode, ticks x units")

    plots.save_panels(folder / f"{NAME}.png", [explained, earned], columns=2, size=(6.2, 3.4))


if __name__ == "__main__":
    sys.exit(exit_code(main))
