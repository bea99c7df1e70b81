"""Measure and write docs/leaderboard.md: every policy of the zoo, scripted and informed ones, on seeds drawn for it.

    python -m scripts.pages.leaderboard --measure    # draws a seed, plays all, writes the file and the page
    python -m scripts.pages.leaderboard              # the page, from the file

What it plays and what figures it has, `python -m kineticsim_env evaluate` says: it is called once for each task. The
seed is drawn when it is called, so that nothing that is in the zoo by then can have been chosen on it.
"""

from __future__ import annotations

import argparse
import json
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kineticsim_env import cli
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.evaluation import HELD_OUT_SEED, MEASURES
from kineticsim_env.tasks import TASK_WORDS
from kineticsim_env.zoo import scripted, trained
from scripts.machine import describe
from scripts.pages.markdown import plus_minus, replaced, table, wrapped
from scripts.pages.provenance import ROOT, stamped

PRESET = EnvSettings.preset
PAGE, FILE = ROOT / "docs" / "leaderboard.md", ROOT / "docs" / "benchmarks" / "leaderboard.json"
DRAWN = 2**60  # seeds above HELD_OUT_SEED that may be drawn: no training and no tuning plays them
HEADS = ("policy", "lead over the best scripted one, paired", "its sd", "Sharpe ratio", "5% CVaR", "final inventory")


def best_scripted(task: str) -> str:
    """Return the name of the scripted policy that was best where their parameters were searched."""
    known = scripted(TASK_WORDS[task], PRESET)
    return max(known, key=lambda name: known[name]["score"][0])


def measure(episodes: int, engine: str) -> dict[str, Any]:
    """Play all of each task; returns what the page shows."""
    seed, found = HELD_OUT_SEED + secrets.randbelow(DRAWN), {}
    with tempfile.TemporaryDirectory() as folder:
        for task in TASK_WORDS:
            path = Path(folder, f"{task}.json")
            words = [best_scripted(task), "--task", task, "--preset", PRESET, "--json", str(path)]
            if cli.main(["evaluate", *words, "--episodes", str(episodes), "--seed", str(seed), "--engine", engine]):
                raise SystemExit(f"{task}: the evaluation failed")
            found[task] = json.loads(path.read_text())
    return stamped("leaderboard", {"machine": describe(), "seed": seed, "episodes": episodes, "tasks": found})


def kind_of(name: str) -> str:
    """Return what a policy is."""
    if name == "informed":
        return "told the fundamental price: an upper mark, no entrant"
    if name not in trained():
        return "scripted"
    return "linear, CMA-ES" if "/linear" in name else f"PPO of {'choices' if '_discrete' in name else 'numbers'}"


def rows_of(found: Mapping[str, Any], task: str) -> list[list[str]]:
    """Return a row for each policy, the best first."""
    digits = 2 if task == "execution" else 0
    rows = []
    for name, figures in sorted(found["results"].items(), key=lambda item: -item[1]["mean"]["value"]):

        def shown(figure: str, places: int, figures: Mapping[str, Any] = figures) -> str:
            one = figures[figure]
            if one["value"] is None:
                return "–"
            if one["half_width"] is None:
                return f"{one['value']:,.{places}f}"
            return plus_minus((one["value"], one["half_width"]), places)

        lead = figures["difference"]  # of the one that was played over this one
        ahead = "" if name == found["policy"] else plus_minus((-lead["value"] + 0.0, lead["half_width"]), digits)
        label = f"**{name}**" if name in trained() else name
        cells = [shown("standard_deviation", digits), shown("sharpe_ratio", 2), shown("cvar", digits)]
        rows.append([label, kind_of(name), shown("mean", digits), ahead, *cells, shown("final_inventory", 1)])
    return rows


def body(record: Mapping[str, Any], task: str) -> str:
    """Return the table of a task."""
    name, *rest = HEADS
    heads = (name, "what it is", MEASURES[TASK_WORDS[task]], *rest)
    return table(heads, rows_of(record["tasks"][task], task), (False, False, *[True] * (len(heads) - 2)))


def measured(record: Mapping[str, Any]) -> str:
    """Return how it was measured."""
    machine = record["machine"]
    where = machine["gpu"] or machine["cpu"]
    rules, what = record["rules"], f"{record['episodes']:,} episodes of each task in `{PRESET}`, the same for all"
    return wrapped(
        f"[Measured](benchmarks/{FILE.name}): {what}; seed {record['seed']}, drawn when it was measured: "
        f"{rules['date']}, commit {rules['commit']}, on one {where.removeprefix('NVIDIA ')}. ± is half of a 95% "
        "interval over episodes."
    )


def write(record: Mapping[str, Any], page: Path) -> None:
    """Fill the page."""
    text = replaced(page.read_text(), "measured", measured(record))
    for task in TASK_WORDS:
        text = replaced(text, task, body(record, task))
    page.write_text(text)


def main(words: Sequence[str] | None = None) -> None:
    """Measure, if that is asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="draw a seed, and play all policies there are")
    parser.add_argument("--episodes", type=int, default=65536, help="of each task (default: 65536)")
    parser.add_argument("--engine", default="auto", help="as in Simulator (default: auto)")
    parser.add_argument("--file", type=Path, default=FILE, help="of the figures")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page")
    options = parser.parse_args(words)
    if options.measure:
        options.file.write_text(json.dumps(measure(options.episodes, options.engine), indent=1) + "\n")
    write(json.loads(options.file.read_text()), options.page)
    print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
