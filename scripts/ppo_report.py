"""Write docs/ppo_results.md from the results.json files of runs of examples/ppo_market_maker.py.

    python scripts/ppo_report.py runs/cpu runs/gpu_seed1 runs/gpu_seed2 ...

The pictures of the last machine's first run are copied beside the page.
"""

import json
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
LEARNED = "PPO (learned)"
HEAD = """# The learned market maker against scripted ones

<!-- Written by `python scripts/ppo_report.py`; edit that file instead. -->

`examples/ppo_market_maker.py` trains on the seeds `seed * 2^32 + m`, and everyone is compared on held-out ones (from
2^62, with warm starts that no training run has seen) by **liquidated PnL**: cash after the inventory was unwound
through the market at the end of the episode, at most `max_order_qty` units an auction. The scripted makers trade under
the learner's own limits, and their parameters are the best of a grid on training seeds. Intervals are 95%, over
episodes.
"""


def settings(run: dict) -> str:
    """Return what a run is called: by its flag."""
    return "`--fast`" if run["args"].get("fast") else "default"


def row(run: dict) -> str:
    """Return the summary line of one run."""
    last = run["curve"][-1]
    mean, half = run["pnl"][LEARNED]
    others = {name: value for name, value in run["pnl"].items() if name != LEARNED}
    rival, (rival_mean, rival_half) = max(others.items(), key=lambda item: item[1][0])
    apart = "yes" if mean - half > rival_mean + rival_half else "no"
    ahead = f"{run['ahead']['seconds']:.1f} s" if run["ahead"] else "never"
    cells = [settings(run), run["args"]["seed"], run["args"]["num_envs"], f"{last['steps'] / 1e6:.0f} M"]
    cells += [f"{last['seconds']:.1f} s", f"{last['steps'] / last['seconds'] / 1e6:.2f} M", f"{mean:.0f} ± {half:.0f}"]
    cells += [f"{rival}: {rival_mean:.0f} ± {rival_half:.0f}", apart, ahead]
    return f"| {' | '.join(map(str, cells))} |"


def main(folders: list[str]) -> None:
    """Read the runs, write the page, copy the pictures of the first."""
    runs = [json.loads((Path(folder) / "results.json").read_text()) for folder in folders]
    parts = [HEAD]
    for machine in dict.fromkeys(run["machine"] for run in runs):
        chosen = [run for run in runs if run["machine"] == machine]
        parts.append(f"## {machine}\n")
        parts.append(
            "| settings | seed | markets | steps | time | steps/s | learned | best scripted | apart | ahead after |"
        )
        parts.append("|---|---:|---:|---:|---:|---:|---:|---|---|---:|")
        parts += [row(run) for run in chosen]
        parts.append(
            "\nTime and steps/s are of the whole loop: rollout, advantages, updates. The evaluations in between, and "
            "on a GPU the compiling and capturing before, are counted apart. *Ahead after* is that time at the first "
            "evaluation whose agent, on the held-out seeds, has an interval above the best scripted maker's.\n"
        )
        for name in dict.fromkeys(map(settings, chosen)):
            first = next(run for run in chosen if settings(run) == name)
            table = (Path(folders[runs.index(first)]) / "table.md").read_text().strip()
            parts.append(f"Seed {first['args']['seed']}, {name}, in full:\n\n{table}\n")
    parts.append("![learning curve](images/ppo_learning_curve.png)\n\n![one episode](images/ppo_episode.png)\n")
    for name in ("learning_curve", "episode"):
        shutil.copy(Path(folders[runs.index(chosen[0])]) / f"{name}.png", DOCS / "images" / f"ppo_{name}.png")
    (DOCS / "ppo_results.md").write_text("\n".join(parts))
    print(f"wrote {DOCS / 'ppo_results.md'}")


if __name__ == "__main__":
    main(sys.argv[1:])
