"""`python -m examples.studies.rewards --markets 1024` holds every built-in reward to the score, over grids of policies.

It writes results.json and the picture, and fills README.md, which `--results` does without measuring. What PPO makes of
the rewards is in learning.json (`learning.py`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from examples.studies.rewards.study import GRIDS, Played, Verdict, judge, play, policies_of
from examples.studies.rewards.tables import DEFAULTS, FORMER, row_of
from kineticsim_env import plots
from kineticsim_env.config import MarketConfig
from kineticsim_env.evaluation import HELD_OUT_SEED
from kineticsim_env.runtime.options import exit_code
from scripts.pages.command import make_page, page_parser

NAME, PRESETS = "rewards", ("news", "continuous", "trading")


def figures(task: str, training: Played, held_out: Played) -> dict[str, Any]:
    """Return what the page says of one task in one market, as JSON keeps it."""
    grid = policies_of(task)

    def plain(verdict: Verdict) -> dict[str, Any]:
        return {
            "agrees": verdict.agrees[:3],
            "best": grid[verdict.best],
            "earns": (verdict.earns.mean, verdict.earns.interval()),
            "gap": (verdict.gap.mean, verdict.gap.interval()),
        }

    rewards = []
    for name in held_out.returns:
        row = {"reward": name[0], "mark": name[1], "score": plain(judge(training, held_out, name))}
        if name in held_out.risk:
            row["adjusted"] = plain(judge(training, held_out, name, adjusted=True))
        rewards.append(row | {"returns": held_out.returns[name].mean(1).round(3).tolist()})
    wanted = int(training.score.mean(1).argmax())
    return {
        "rewards": rewards,
        "scores": held_out.score.mean(1).round(3).tolist(),
        "best": {"policy": grid[wanted], "earns": float(held_out.score[wanted].mean())},
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return every figure of the page, as JSON keeps them."""
    found: dict[str, Any] = {}
    bar = tqdm(total=2 * len(PRESETS) * len(GRIDS), unit="grid")
    for preset in PRESETS:
        found[preset] = {}
        for task in GRIDS:
            played = []
            for seed in (0, HELD_OUT_SEED):
                played.append(play(MarketConfig.preset(preset), task, options.markets, options.engine, seed))
                bar.update()
            found[preset][task] = figures(task, *played)
    bar.close()
    return {"markets": options.markets, "found": found}


def draw(folder: Path, found: Mapping[str, Any]) -> None:
    """Write the picture: makers, what the default and what the former default paid them against what they earned."""
    markets = found["found"]

    def panel(axes: Any, preset: str, name: Sequence[str], title: str) -> None:
        figures = markets[preset]["MarketMaking"]
        row, scores = row_of(figures, name), figures["scores"]
        grid = policies_of("MarketMaking")
        for qty, colour in zip(GRIDS["MarketMaking"]["qty"], ("#8fb8de", "#d98a1c", "#0d4377"), strict=True):
            chosen = [i for i, policy in enumerate(grid) if policy["qty"] == qty]
            axes.plot(
                [scores[i] for i in chosen],
                [row["returns"][i] for i in chosen],
                "o",
                ms=3,
                color=colour,
                label=f"{qty:g} units",
            )
        axes.axline((0, 0), slope=1, color=plots.GREY, lw=0.8, zorder=0)
        place, best = grid.index(row["score"]["best"]), grid.index(figures["best"]["policy"])
        axes.plot(scores[best], row["returns"][best], "s", ms=9, mfc="none", color=plots.BUY, label="the score's best")
        axes.plot(scores[place], row["returns"][place], "D", ms=6, mfc="none", color=plots.SELL, label="its best")
        axes.set(title=f"{title}, {preset}", xlabel="mean liquidated PnL", ylabel="mean return, ticks x units")
        axes.legend(fontsize=7)

    plots.save_panels(
        folder / f"{NAME}.png",
        [
            lambda axes, preset=preset, name=name, title=title: panel(axes, preset, name, title)
            for name, title in ((DEFAULTS["MarketMaking"], "Default"), (FORMER["MarketMaking"], "Former default"))
            for preset in markets
        ],
        columns=len(markets),
        size=(4.2, 3.4),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or read what was measured; draw, and fill the page."""
    options = page_parser(NAME, __doc__, 1024, "markets of each policy").parse_args(arguments)
    make_page(options, NAME, lambda: measure(options), draw, indent=None)


if __name__ == "__main__":
    sys.exit(exit_code(main))
