"""Write docs/ppo_results.md from the results.json files of runs of the PPO examples.

    python scripts/ppo_report.py runs/cpu_maker runs/gpu_maker1 runs/gpu_executor1 runs/gpu_trader1 ...

The pictures of each task's last machine's first run are copied beside the page.
"""

import dataclasses
import json
import shutil
import sys
from pathlib import Path

from kineticsim_env.evaluation import ENVIRONMENTS, MEASURES

DOCS = Path(__file__).resolve().parent.parent / "docs"
LEARNED = "PPO (learned)"
HEAD = """# Learned traders against scripted ones

<!-- Written by `python scripts/ppo_report.py`; edit that file instead. -->

These are runs of the fast PPO example and of its other two tasks; `examples/ppo_market_maker.py`, which `make demo`
runs, is the same algorithm in one short file. They train on the seeds `run_seed(seed) + m`, and everyone is compared on
held-out ones (from 2^62, with warm starts that no training run has seen). Makers and traders are judged by **liquidated
PnL**: cash after the inventory was unwound through the market at the end of the episode, at most `max_order_qty` units
per auction; executors by what their trades **made against the arrival price**, per unit of the block (minus the
implementation shortfall), what the engine had to execute at the deadline included. Scripted policies trade under the
learner's own limits, and their parameters are the best of a grid on training seeds, which
`python examples/tune_scripted_policies.py` finds again. Intervals are 95%, over episodes; the *lead* is the mean of the
differences to the best scripted policy on the same episodes, where both meet the same noise.

In the tables of runs, time and steps/s are of the whole loop: rollout, advantages, updates. The evaluations in between,
and on a GPU the compiling and capturing before, are counted apart. *Ahead after* is that time at the first evaluation
whose policy leads, on the held-out seeds, by more than its interval.
"""
# Of runs whose record does not say, as they are older than the choice.
ROUNDED_TO_EVEN = """These runs are of markets that round half to even: they are older than the coin that the preset
`"trading"` has now ([what it changes](../examples/studies/presets/README.md#what-was-tried-beside-trading)).
"""
OLDER = "trading"  # what runs played before one could choose
TASKS = {
    "MarketMaking": ("Market making", "examples/ppo_fast.py"),
    "Execution": ("Execution", "examples/ppo_executor.py"),
    "Trading": ("Trading", "examples/ppo_trader.py"),
}


def settings(run: dict) -> str:
    """Return what a run is called: by its flag."""
    return "`--fast`" if run["args"].get("fast") else "default"


def rewards(run: dict) -> str:
    """Say in which settings of the task a run differs from the defaults, as its returns do too."""
    task, args = ENVIRONMENTS[run["task"]].task_type, run["args"]
    defaults = {field.name: field.default for field in dataclasses.fields(task)}
    others = {name: args[name] for name in defaults if args.get(name, defaults[name]) != defaults[name]}
    if args.get("reward") != "inventory":
        others.pop("inventory_penalty", None)
    if not others:
        return "All play the task's default settings.\n"
    played = [f"`{name}={value}`, where the task's default is {defaults[name]}" for name, value in others.items()]
    return f"All play {'; '.join(played)}. Returns are of these rewards.\n"


def row(run: dict) -> str:
    """Return the summary line of one run."""
    last, digits = run["curve"][-1], 3 if run["task"] == "Execution" else 0
    mean, half = run["pnl"][LEARNED]
    rival_mean, rival_half = run["pnl"][run["rival"]]
    lead, lead_half = run["lead"]
    ahead = f"{run['ahead']['seconds']:.1f} s" if run["ahead"] else "never"
    cells = [settings(run), run["args"]["seed"], run["args"]["num_envs"], f"{last['steps'] / 1e6:.0f} M"]
    cells += [f"{last['seconds']:.1f} s", f"{last['steps'] / last['seconds'] / 1e6:.2f} M"]
    cells += [f"{mean:.{digits}f} ± {half:.{digits}f}"]
    cells += [f"{run['rival']}: {rival_mean:.{digits}f} ± {rival_half:.{digits}f}"]
    cells += [f"{lead:.{digits}f} ± {lead_half:.{digits}f}", ahead]
    return f"| {' | '.join(map(str, cells))} |"


def section(task: str, runs: dict[Path, dict]) -> list[str]:
    """Return the lines of one task, and copy its pictures."""
    title, script = TASKS[task]
    parts = [f"## {title}\n"]
    for preset in dict.fromkeys(run["args"].get("preset", OLDER) for run in runs.values()):
        parts.append(f"`python {script} --preset {preset}`, judged by: {MEASURES[task]}.\n")
    parts += list(dict.fromkeys(map(rewards, runs.values())))
    for machine in dict.fromkeys(run["machine"] for run in runs.values()):
        chosen = {folder: run for folder, run in runs.items() if run["machine"] == machine}
        parts.append(f"### {title} on {machine}\n")
        parts.append(
            "| settings | seed | markets | steps | time | steps/s | learned | best scripted | lead | ahead after |"
        )
        parts.append("|---|---:|---:|---:|---:|---:|---:|---|---:|---:|")
        parts += [row(run) for run in chosen.values()]
        parts.append("")
        for name in dict.fromkeys(map(settings, chosen.values())):
            folder, first = next(item for item in chosen.items() if settings(item[1]) == name)
            table = (folder / "table.md").read_text().strip()
            parts.append(f"Seed {first['args']['seed']}, {name}, {first['args']['eval_envs']} episodes:\n\n{table}\n")
    for picture, what in (("learning_curve", "learning curve"), ("episode", "one episode")):
        name = f"ppo_{task.lower()}_{picture}.png"
        shutil.copy(next(iter(chosen)) / f"{picture}.png", DOCS / "images" / name)
        parts.append(f"![{title}: {what}](images/{name})\n")
    return parts


def main(folders: list[str]) -> None:
    """Read the runs, write the page, copy the pictures."""
    runs = {Path(folder): json.loads((Path(folder) / "results.json").read_text()) for folder in folders}
    older = [run.get("rounding", "even") == "even" for run in runs.values()]
    parts = [HEAD, *([ROUNDED_TO_EVEN] if any(older) else [])]
    for task in TASKS:
        chosen = {folder: run for folder, run in runs.items() if run["task"] == task}
        parts += section(task, chosen) if chosen else []
    (DOCS / "ppo_results.md").write_text("\n".join(parts))
    print(f"wrote {DOCS / 'ppo_results.md'}")


if __name__ == "__main__":
    main(sys.argv[1:])
