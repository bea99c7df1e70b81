"""Measure and write docs/what_learners_do.md: PPO with and without one thing each, all else equal.

    python -m scripts.pages.trainings --measure               # trains all, writes the file and the page
    python -m scripts.pages.trainings --measure --parts risk  # some of it, into the file that there is
    python -m scripts.pages.trainings                         # the page, from the file

Trainings are of the default market; each is a process, so that small ones share a GPU. Every row of a table is scored
on the same held-out episodes, by liquidated money.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from tqdm import tqdm

from kineticsim_env.evaluation import HELD_OUT_SEED, Evaluation, evaluate, evaluation_env
from scripts.machine import describe
from scripts.pages.command import figures_in, file_parser
from scripts.pages.markdown import machine_in, plus_minus, replaced, table, wrapped
from scripts.pages.provenance import ROOT, stamped

PAGE, FILE = ROOT / "docs" / "what_learners_do.md", ROOT / "docs" / "benchmarks" / "trainings.json"
# part: the task, and of each row what is given to the example
FAST, RECURRENT = "ppo_fast", "ppo_recurrent"
PARTS: dict[str, tuple[str, dict[str, tuple[str, dict[str, Any]]]]] = {
    "memory": (
        "MarketMaking",
        {
            "no memory": (RECURRENT, {"memory": "none"}),
            "sees 16 moves": (RECURRENT, {"memory": "stack"}),
            "MinGRU": (RECURRENT, {"memory": "mingru"}),
        },
    ),
    "memory_trading": (
        "Trading",
        {
            "no memory": (RECURRENT, {"memory": "none"}),
            "sees 16 moves": (RECURRENT, {"memory": "stack"}),
            "MinGRU": (RECURRENT, {"memory": "mingru"}),
        },
    ),
    "risk": (
        "MarketMaking",
        {
            "neutral": (FAST, {}),
            **{
                f"inventory_penalty {penalty:g}": (FAST, {"reward": "inventory", "inventory_penalty": penalty})
                for penalty in (0.0, 0.01, 0.03, 0.1, 0.3)
            },
        },
    ),
    "end_of_episode": (
        "MarketMaking",
        {"truncated": (FAST, {}), "unwound and paid": (FAST, {"at_end": "unwind"})},
    ),
}
FIGURES = ("mean", "standard_deviation", "sharpe_ratio", "cvar", "drawdown", "inventory", "final_inventory")


def play(act: Any, task: str, episodes: int, wrapper: Any = None) -> Evaluation:
    """Return what a policy makes on the held-out episodes."""
    envs = evaluation_env(episodes, task)
    return evaluate(act, envs if wrapper is None else wrapper(envs), HELD_OUT_SEED)


def trained(example: str, task: Any, seed: int, settings: Mapping[str, Any], steps: int, episodes: int) -> Evaluation:
    """Train by an example, and play what it learned."""
    sys.path.insert(0, str(ROOT / "examples"))
    on_gpu = torch.cuda.is_available()
    torch.set_float32_matmul_precision("high")
    if example == RECURRENT:
        import ppo_recurrent

        recurrent = ppo_recurrent.Args(seed=seed, task=task, total_steps=steps, **settings)
        recurrent.num_envs = 16384 if on_gpu else 256
        networks, _ = ppo_recurrent.train(recurrent)
        return play(ppo_recurrent.Player(networks), task, episodes, lambda envs: ppo_recurrent.seen_by(recurrent, envs))
    import ppo_fast

    with tempfile.TemporaryDirectory() as folder:
        args = ppo_fast.Args(seed=seed, total_steps=steps, track=False, output=Path(folder), **settings)
        args.fill_in(on_gpu)
        torch.manual_seed(seed)
        envs: Any = gym.make_vec(
            f"KineticSim/{task}-v0", num_envs=args.num_envs, output="torch", copy=False, **args.market()
        )
        networks = ppo_fast.networks_for(args, envs)
        watched = evaluation_env(max(episodes // 8, 1), task, warm_seed=envs.core.task.warm_seed)
        ppo_fast.train(args, envs, networks, watched)
        return play(networks.act, task, episodes)


def row(part: str, name: str, seed: int, steps: int, episodes: int) -> dict[str, Any]:
    """Train one row of one part from one seed; returns its figures."""
    task, rows = PARTS[part]
    example, settings = rows[name]
    figures = trained(example, task, seed, settings, steps, episodes).figures()
    return {key: [figures[key].mean, figures[key].interval()] for key in FIGURES if key in figures}


def measure(parts: Sequence[str], seeds: int, steps: Mapping[str, int], episodes: int, jobs: int) -> dict[str, Any]:
    """Train all rows of some parts, so many at once; returns their figures by part, row and seed."""
    wanted = [(part, name, seed) for part in parts for name in PARTS[part][1] for seed in range(1, seeds + 1)]
    found: dict[str, Any] = {part: {name: [] for name in PARTS[part][1]} for part in parts}

    def ask(entry: tuple[str, str, int]) -> dict[str, Any]:
        part, name, seed = entry
        of = str(steps[PARTS[part][1][name][0]])
        words = [sys.executable, "-m", "scripts.pages.trainings", "--row", part, name, str(seed), of, str(episodes)]
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "TQDM_DISABLE": "1"})
        if done.returncode:
            raise RuntimeError(f"{part}, {name}, seed {seed}: {done.stderr[-2000:]}")
        return json.loads(done.stdout.splitlines()[-1])

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool, tqdm(total=len(wanted), desc="trainings") as bar:
        for entry, figures in zip(wanted, pool.map(ask, wanted), strict=True):
            found[entry[0]][entry[1]].append(figures)
            bar.update()
    return found


def measured_besides(options: argparse.Namespace) -> dict[str, Any]:
    """Return the parts that are asked for, measured now, beside those of the file that were measured likewise."""
    steps = dict(zip((FAST, RECURRENT), options.steps, strict=True))
    how = {"seeds": options.seeds, "steps": steps, "episodes": options.episodes}
    former = json.loads(options.file.read_text()) if options.file.exists() else {"parts": {}}
    kept = former["parts"] if all(former.get(name) == value for name, value in how.items()) else {}
    parts = kept | measure(options.parts, options.seeds, steps, options.episodes, options.jobs)
    return stamped("trainings", {"machine": describe(), **how, "parts": parts})


def body(rows: Mapping[str, Sequence[Mapping[str, Sequence[float]]]]) -> str:
    """Return the table of a part: the mean over seeds of each figure, and each seed's mean."""
    known = [name for name in FIGURES if all(name in one for of in rows.values() for one in of)]
    heads = {
        "mean": "liquidated PnL, ticks",
        "standard_deviation": "its sd",
        "sharpe_ratio": "Sharpe ratio",
        "cvar": "5% CVaR",
        "drawdown": "drawdown",
        "inventory": "mean inventory",
        "final_inventory": "final inventory",
    }
    cells = []
    for name, seeds in rows.items():
        middle = {key: [sum(one[key][place] for one in seeds) / len(seeds) for place in (0, 1)] for key in known}
        digits = {"sharpe_ratio": 2, "inventory": 1, "final_inventory": 1}
        shown = [plus_minus(middle[key], digits.get(key, 0)) for key in known]
        cells.append([name, *shown, " ".join(f"{one['mean'][0]:,.0f}" for one in seeds)])
    return table(("", *(heads[key] for key in known), "each seed's PnL"), cells, (False, *[True] * (len(known) + 1)))


def measured(record: Mapping[str, Any]) -> str:
    """Return how it was measured."""
    rules = record["rules"]
    return wrapped(
        f"[Measured](benchmarks/{FILE.name}) on one {machine_in(record)}, {rules['date']}, commit {rules['commit']}: "
        f"{record['seeds']} seeds of each row, {record['steps'][RECURRENT] / 1e6:,.0f} million decisions of "
        f"`examples/ppo_recurrent.py` or {record['steps'][FAST] / 1e6:,.0f} million of `examples/ppo_fast.py`, "
        f"{record['episodes']:,} held-out episodes, the same for all. ± is half of a 95% interval over episodes, in "
        "the mean over seeds; how far seeds are apart the last column says."
    )


def write(record: Mapping[str, Any], page: Path) -> None:
    """Fill the page."""
    text = replaced(page.read_text(), "measured", measured(record))
    for part, rows in record["parts"].items():
        text = replaced(text, part, body(rows))
    page.write_text(text)


def main(words: Sequence[str] | None = None) -> None:
    """Measure, if that is asked for, and write the page."""
    parser = file_parser(__doc__, "train, and write the file", FILE, PAGE)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="of it (default: all)")
    parser.add_argument("--seeds", type=int, default=3, help="of each row (default: 3)")
    parser.add_argument(
        "--steps", type=int, nargs=2, default=(600_000_000, 100_000_000), help="of fast, and of recurrent"
    )
    parser.add_argument("--episodes", type=int, default=32768, help="held out (default: 32768)")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at once (default: 1)")
    parser.add_argument("--row", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.row:
        part, name, *numbers = options.row
        print(json.dumps(row(part, name, *map(int, numbers))))
        return
    write(figures_in(options, lambda: measured_besides(options)), options.page)
    print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
