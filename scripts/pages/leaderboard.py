"""Measure and write docs/leaderboard.md: every policy of the zoo, scripted and informed ones, on seeds drawn for it.

    python -m scripts.pages.leaderboard --measure    # draws a seed, plays all, writes the file and the page
    python -m scripts.pages.leaderboard              # the page, from the file

What it plays and what figures it has, `python -m kineticsim_env evaluate` says: it is called once for each task. The
seed is drawn when it is called, so that nothing that is in the zoo by then can have been chosen on it.
"""

from __future__ import annotations

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
from scripts.pages.command import figures_in, file_parser
from scripts.pages.markdown import machine_in, plus_minus, replaced, table, wrapped
from scripts.pages.provenance import ROOT, stamped

PRESET = EnvSettings.preset
PAGE, FILE = ROOT / "docs" / "leaderboard.md", ROOT / "docs" / "benchmarks" / "leaderboard.json"
DRAWN = 2**60  # seeds above HELD_OUT_SEED that may be drawn: no training and no tuning plays them
LEAD, RISKS = "lead over the best scripted one, paired", ("its sd", "Sharpe ratio", "5% CVaR", "final inventory")


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


def kind_of(name: str, in_zoo: bool) -> str:
    """Return what a policy is."""
    if name == "informed":
        return "a rule that is told the fundamental price; no entrant"
    if not in_zoo:
        return "scripted"
    return "linear, CMA-ES" if "/linear" in name else f"PPO of {'choices' if '_discrete' in name else 'numbers'}"


def shown(figure: Mapping[str, float | None], digits: int) -> str:
    """Return a figure with half of its interval, as far as there are these."""
    value, half = figure["value"], figure["half_width"]
    if value is None:
        return "–"
    return f"{value:,.{digits}f}" if half is None else plus_minus((value, half), digits)


def body(found: Mapping[str, Any], task: str) -> str:
    """Return the table of a task, the best first."""
    digits, zoo, rows = 2 if task == "execution" else 0, trained(), []
    for name, figures in sorted(found["results"].items(), key=lambda item: -item[1]["mean"]["value"]):
        over = figures["difference"]  # what the best scripted one made more
        lead = {"value": 0.0 - over["value"], "half_width": over["half_width"]}
        places = {"standard_deviation": digits, "sharpe_ratio": 2, "cvar": digits, "final_inventory": 1}
        rows.append(
            [
                f"**{name}**" if name in zoo else name,
                kind_of(name, name in zoo),
                shown(figures["mean"], digits),
                "" if name == found["policy"] else shown(lead, digits),
                *(shown(figures[figure], count) for figure, count in places.items()),
            ]
        )
    heads = ("policy", "what it is", MEASURES[TASK_WORDS[task]], LEAD, *RISKS)
    return table(heads, rows, (False, False, *[True] * (len(heads) - 2)))


def measured(record: Mapping[str, Any]) -> str:
    """Return how it was measured."""
    rules, what = record["rules"], f"{record['episodes']:,} episodes of each task in `{PRESET}`, the same for all"
    return wrapped(
        f"[Measured](benchmarks/{FILE.name}): {what}; seed {record['seed']}, drawn when it was measured: "
        f"{rules['date']}, commit {rules['commit']}, on one {machine_in(record)}. ± is half of a 95% "
        "interval over episodes."
    )


def write(record: Mapping[str, Any], page: Path) -> None:
    """Fill the page."""
    text = replaced(page.read_text(), "measured", measured(record))
    for task in TASK_WORDS:
        text = replaced(text, task, body(record["tasks"][task], task))
    page.write_text(text)


def main(words: Sequence[str] | None = None) -> None:
    """Measure, if that is asked for, and write the page."""
    parser = file_parser(__doc__, "draw a seed, and play all policies there are", FILE, PAGE)
    parser.add_argument("--episodes", type=int, default=65536, help="of each task (default: 65536)")
    parser.add_argument("--engine", default="auto", help="as in Simulator (default: auto)")
    options = parser.parse_args(words)
    write(figures_in(options, lambda: measure(options.episodes, options.engine)), options.page)
    print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
