"""`python -m scripts.pages.rewards --markets 1024` holds every built-in reward to the score, over grids of policies.

It writes docs/rewards.md, its picture, and rewards.json with every figure, from which `--results` writes the page again
without measuring. What PPO makes of the rewards is read from docs/rewards_learning.json (`rewards_learning.py`).
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from kineticsim_env.config import MarketConfig
from kineticsim_env.evaluation import HELD_OUT_SEED
from kineticsim_env.runtime.options import exit_code
from kineticsim_env.simulator import Simulator
from kineticsim_env.studies.rewards import GRIDS, Played, Verdict, judge, play, policies_of
from scripts.pages.command import make_page, page_parser
from scripts.pages.markdown import machine
from scripts.pages.rewards_text import draw, page

NAME, PRESETS = "rewards", ("news", "continuous", "trading")
LEARNING = Path(__file__).parents[2] / "docs" / "rewards_learning.json"


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
    began, found = time.perf_counter(), {}
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
    return {
        "command": f"python -m scripts.pages.{NAME} --markets {options.markets}",
        "date": datetime.date.today().isoformat(),
        "engine": Simulator(MarketConfig(), 2, engine=options.engine).engine_name,
        "machine": machine(),
        "markets": options.markets,
        "seconds": time.perf_counter() - began,
        "found": found,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the page."""
    options = page_parser(__doc__, 1024, "markets of each policy").parse_args(arguments)
    learned = json.loads(LEARNING.read_text()) if LEARNING.exists() else None
    make_page(
        options,
        NAME,
        lambda: measure(options),
        lambda folder, found: draw(folder / f"{NAME}.png", found),
        lambda found: page(found, learned),
        indent=None,
    )


if __name__ == "__main__":
    sys.exit(exit_code(main))
