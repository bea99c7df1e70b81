"""Measure every row of docs/performance.md that needs one machine only, in one run.

    python -m scripts.benchmarks.performance --output docs/benchmarks/performance_h200.json
    python -m scripts.benchmarks.performance --groups training --resume --learning runs/gpu_maker1 runs/gpu_maker1_fast
        --output docs/benchmarks/performance_h200.json
    python -m scripts.benchmarks.performance --groups default --resume --output docs/benchmarks/performance_h200.json
    python -m scripts.benchmarks.performance --take default.json --output docs/benchmarks/performance_h200.json

Beside the suite (`python -m scripts.benchmarks`): the default market; presets, slots, shapes up to their limits, steps
of every task, training, markets on the clock, the C++ engine on this machine's cores; next to the rates of the paper's
kernel and of the hash alone. With `--resume` the file's other rows stay, and with them what they were measured on.
`python -m scripts.pages.performance` writes the page's tables from the file.
`rows()` says what is measured, `performance_kinds.py` and `performance_policies.py` how. `--scale 1024 --seconds 0`
on a machine without a GPU tries it in small on the C++ engine.
"""

import argparse
import gc
import json
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from kineticsim_env.config import PRESETS
from kineticsim_env.envs.settings import EnvSettings
from scripts.benchmarks import performance_kinds, performance_policies
from scripts.benchmarks.performance_kinds import LEAST, ON_GPU
from scripts.benchmarks.performance_policies import makers
from scripts.machine import describe
from scripts.pages.provenance import stamped

GROUPS = "default training engine agents levels markets baselines memory steps python suite tasks learners cpu clock"
GROUPS = GROUPS.split()
MANY = {"maker": 2, "momentum": 1, "noise": 1, "executor": 1}
CALL = {"arrivals": "clock"}
CONTINUOUS = {"arrivals": "clock", "mechanism": "continuous", "rounding": "coin"}
SIZES = 1, 64, 1024, 2112, 4096, 8192, 16384, 65536, 1 << 18  # markets of the default preset
PLAYED = 1024, 16384, 65536  # markets in which networks play
SHAPES = ("trading", 20), ("trading", 64), ("paper", 256)  # presets and agents of markets on the clock
KINDS: dict[str, Any] = {
    name: getattr(module, name)
    for module, names in (
        (performance_kinds, ("Auctions", "Baseline", "Hash", "Memory", "Steps")),
        (performance_policies, ("Rollouts", "Evaluations", "Training")),
    )
    for name in names
}
Row = dict[str, Any]  # group, name, kind, and the arguments of the kind


def rows() -> list[Row]:
    """Return what is measured; a group's names differ."""
    found: list[Row] = []

    def add(group: str, name: str, kind: str, **settings: Any) -> None:
        found.append({"group": group, "name": name, "kind": kind, **settings})

    for row in of_the_default_market():
        add("default", **row)
    for name in ("default", "fast"):
        add("training", name, "Training", variant=f"trading, {name}, torch.compile")
    for own, suffix in ((True, ""), (False, ", parameters not compiled in")):
        for agents in (256, 1024):
            for preset in ("paper", "trading"):
                add("engine", f"{preset}, {agents} agents{suffix}", "Auctions", preset=preset, agents=agents, own=own)
        add("engine", f"trading, 256 agents, one slot{suffix}", "Auctions", preset="trading", slots=1, own=own)
        add("engine", f"paper, 64 markets{suffix}", "Auctions", markets=64, own=own)
    for agents in (1, 4, 16, 64, 128, 512, 4096):
        add("agents", f"{agents}", "Auctions", agents=agents, auctions=100)
    for levels in (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192):
        add("levels", f"{levels}", "Auctions", levels=levels, auctions=100)
    for markets in (1, 16, 256, 1024, 4096, 16384, 65536, 1 << 18, 1 << 20):
        add("markets", f"{markets}", "Auctions", markets=markets, auctions=100)
    for agents in (256, 1024):
        add("baselines", f"the paper's kernel, {agents} agents", "Baseline", backend="PaperBlock", agents=agents)
    add("baselines", "naive CUDA, 256 agents", "Baseline", backend="NaiveCuda", auctions=50)
    add("baselines", "the hash alone", "Hash")
    add("memory", "16384 markets, 256 agents", "Memory")
    for agents, markets in ((64, 1024), (64, 16896), (64, 33792), (64, 65536), (64, 131072), (20, 65536), (256, 65536)):
        add("steps", f"{markets} markets, {agents} agents", "Steps", markets=markets, agents=agents)
        if markets in (16896, 33792, 65536):
            name = f"{markets} markets, {agents} agents, several per warp"
            add("steps", name, "Steps", markets=markets, agents=agents, lanes=0)
    add("steps", "1024 markets, 64 agents, parameters compiled in", "Steps", own=True)
    for copy in (False, True):
        for markets in (1024, 65536):
            add("python", f"{markets} markets, copy={copy}", "Steps", markets=markets, graph=False, copy=copy)
    for graph in (True, False):
        for markets in (1, 64, 1024, 4096, 16384, 65536):
            name = f"{markets} markets, {'graph' if graph else 'Python'}"
            add("suite", name, "Steps", markets=markets, graph=graph, drawn=True)
    for task in ("MarketMaking", "Execution", "Trading"):
        for markets in (1024, 65536):
            add("tasks", f"{task}, {markets} markets", "Steps", markets=markets, task=task)
        add("tasks", f"{task}, 1024 markets, Python", "Steps", task=task, graph=False)
    for name, learners in (("two makers", {"maker": 2}), ("five learners of four roles", MANY)):
        for markets in (1024, 16384):
            add("learners", f"{name}, {markets} markets", "Steps", markets=markets, learners=learners)
        add("learners", f"{name}, 1024 markets, Python", "Steps", learners=learners, graph=False)
    cpu = {"device": "cpu", "markets": 256, "auctions": 100, "threads": 1}
    for preset, agents in (("paper", 256), ("paper", 1024), ("paper", 16), ("trading", 256), ("trading", 20)):
        add("cpu", f"{preset}, {agents} agents, one core", "Auctions", preset=preset, agents=agents, **cpu)
    add("cpu", "paper, 256 agents, 1024 levels, one core", "Auctions", levels=1024, **cpu)
    add("cpu", "paper, 256 agents, two cores", "Auctions", **(cpu | {"threads": 2}))
    add("cpu", "paper, 256 agents, NumPy", "Auctions", **(cpu | {"device": "numpy", "auctions": 10}))
    for task in ("MarketMaking", "Execution", "Trading"):
        add("cpu", f"{task}, 1024 markets, one core", "Steps", task=task, graph=False, device="cpu", threads=1)
    for row in on_the_clock():
        add("clock", **row)
    return found


def of_the_default_market() -> Iterator[Row]:
    """Return the rows of the environments' default market. A graph's steps play three episodes, after three.

    So the steps in which episodes end, and what an execution's deadline costs, have their share of the mean.
    """
    market = {"preset": EnvSettings.preset, "agents": None}
    run = market | {"kind": "Auctions", "auctions": 100}
    step = market | {"kind": "Steps", "own": True, "alike": True, "turns": 8, "episodes": 3}
    called = step | {"graph": False}
    for markets in SIZES:
        yield run | {"name": f"run, {markets} markets", "markets": markets}
        yield step | {"name": f"MarketMaking, {markets} markets", "markets": markets}
    for markets in (1024, 16384, 65536):
        for task in ("Execution", "Trading"):
            yield step | {"name": f"{task}, {markets} markets", "markets": markets, "task": task}
        yield step | {"name": f"five learners, {markets} markets", "markets": markets, "learners": MANY}
    for markets in (1024, 65536):
        for copy in (False, True):
            name = f"MarketMaking, {markets} markets, Python, copy={copy}"
            yield called | {"name": name, "markets": markets, "copy": copy}
        for functions in ("opponents", "programs", "reward"):
            for way, place in ((step, ""), (called, ", Python, copy=False")):
                yield way | {
                    "name": f"{functions}, {markets} markets{place}",
                    "markets": markets,
                    "functions": functions,
                }
    for markets in PLAYED:
        for preset in (EnvSettings.preset, "trading"):
            shape, other = {"preset": preset, "markets": markets}, f"{preset}, " * (preset != EnvSettings.preset)
            if other:
                yield run | shape | {"name": f"{other}run, {markets} markets"}
                yield step | shape | {"name": f"{other}MarketMaking, {markets} markets"}
            yield shape | {"kind": "Rollouts", "name": f"{other}rollout, {markets} markets"}
    for policy in makers():
        yield {"kind": "Evaluations", "name": f"evaluate, {policy}", "policy": policy, "markets": 2048}
    for threads, cores in ((1, "one core"), (2, "two cores")):
        core = {"device": "cpu", "threads": threads}
        yield run | core | {"name": f"run, {cores}", "markets": 256}
        yield called | core | {"name": f"MarketMaking, 1024 markets, {cores}"}


def on_the_clock() -> Iterator[Row]:
    """Return the rows of markets on the clock; calls are beside the same market where each agent comes once."""
    large = {"kind": "Auctions", "markets": 65536, "auctions": 100}
    for preset, agents in SHAPES:
        shape = {"preset": preset, "agents": agents}
        for name, fields in (("continuous", CONTINUOUS), ("call", CALL), ("each", {})):
            yield large | shape | {"name": f"{name}, {preset}, {agents} agents", "fields": fields}
    for preset, agents in SHAPES[1:]:
        shape = {"preset": preset, "agents": agents, "markets": 1 << 18}
        yield large | shape | {"name": f"continuous, {preset}, {agents} agents, 262144 markets", "fields": CONTINUOUS}
    few = {"preset": "trading", "agents": 20, "fields": CONTINUOUS}
    yield large | few | {"name": "continuous, trading, 20 agents, one slot", "slots": 1}
    yield large | few | {"name": "continuous, trading, 20 agents, 1024 markets", "markets": 1024}
    steps = {"kind": "Steps", "agents": 20, "own": True, "alike": True, "turns": 8, "replays": 8}
    for name, fields in (("continuous", CONTINUOUS), ("call", CALL)):
        for markets in (1024, 65536, 1 << 18):
            yield steps | {"name": f"{name}, steps, {markets} markets", "markets": markets, "fields": fields}
    core = {"kind": "Auctions", "preset": "trading", "agents": 20, "markets": 256, "auctions": 100}
    for name, fields in (("continuous", CONTINUOUS), ("call", CALL), ("each", {})):
        own = {"name": f"{name}, trading, 20 agents, one core", "fields": fields}
        yield core | own | {"device": "cpu", "threads": 1}


def chosen(groups: Iterable[str] | None, scale: int = 1) -> list[Row]:
    """Return the rows of some groups, with their markets divided by `scale`; only a GPU has baselines."""
    found = [row for row in rows() if groups is None or row["group"] in groups]
    found = [row for row in found if ON_GPU or row["kind"] not in ("Baseline", "Hash")]
    if scale > 1:
        usual = {"Auctions": 8192, "Steps": 1024, "Training": 65536, "Memory": 16384, "Baseline": 8192}
        found = [row | {"markets": max(1, row.get("markets", usual.get(row["kind"], 1)) // scale)} for row in found]
    return found


def open_row(row: Row) -> Any:
    """Make what a row measures, and run it once: all that it needs is compiled then."""
    return KINDS[row["kind"]](**{name: value for name, value in row.items() if name not in ("group", "name", "kind")})


def forget() -> None:
    """Give memory of closed rows back."""
    gc.collect()
    if ON_GPU:
        torch.cuda.empty_cache()


def measured(row: Row) -> Row:
    """Open, measure and close one row; one that fails says why."""
    try:
        opened = open_row(row)
        figures = opened.measure() | {"digest": opened.digest}
        opened.close()
    except Exception:  # the others are still worth having
        figures = {"failed": traceback.format_exc()[-1500:]}
    opened = None
    forget()
    return row | figures


def learned_row(folder: Path) -> Row:
    """Return when a run of the example was ahead of the best scripted policy, and its rate."""
    run = json.loads((folder / "results.json").read_text())
    last = run["curve"][-1]
    row = {"group": "learning", "name": "fast" if run["args"]["fast"] else "default"}
    row |= {"steps_per_s": last["steps"] / last["seconds"]}
    return row | ({"ahead_wall_s": run["ahead"]["wall"]} if run["ahead"] else {})


def joined(before: Row | None, run: Row, fresh: Iterable[Row]) -> tuple[Row, Row]:
    """Return a file's other rows, each still with the run that measured it, and what marks rows of this run.

    Rows without a mark are of the run at the top of the file, others of the one in "runs" that their "run" names.
    """
    names = {(row["group"], row["name"]) for row in fresh}
    kept = [row for row in before["rows"] if (row["group"], row["name"]) not in names] if before else []
    if before is None or not kept:
        return run | {"rows": []}, {}
    date = run["machine"]["date"]
    named = {row.get("run") for row in kept}
    earlier = {name: one for name, one in before.get("runs", {}).items() if name in named}
    return before | {"runs": earlier | {date: run}, "rows": kept}, {"run": date}


def taken(data: Row, path: Path) -> Row:
    """Return a file's data with the rows of another file in place of its own, each still with its run."""
    other = json.loads(path.read_text())
    runs = {None: {name: part for name, part in other.items() if name not in ("rows", "runs")}} | other.get("runs", {})
    for name, run in runs.items():
        fresh = [
            {key: value for key, value in row.items() if key != "run"}
            for row in other["rows"]
            if row.get("run") == name
        ]
        data, mark = joined(data, run, fresh) if fresh else (data, {})
        data["rows"] += [row | mark for row in fresh]
    return data


def main() -> None:
    """Measure what is asked for; write the file after each row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="the JSON file")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="rows of these groups whose names have one of these")
    parser.add_argument("--resume", action="store_true", help="keep the file's other rows")
    parser.add_argument("--missing", action="store_true", help="with --resume: measure what the file has not")
    parser.add_argument("--take", nargs="+", type=Path, default=[], help="measure nothing: take rows of these files")
    parser.add_argument("--learning", nargs="+", type=Path, default=[], help="finished runs of examples/ppo_fast.py")
    parser.add_argument("--scale", type=int, default=1, help="divide numbers of markets, to try it out")
    parser.add_argument("--seconds", type=float, default=LEAST["seconds"], help="how long a row is measured")
    options = parser.parse_args()
    LEAST["seconds"] = options.seconds
    before = json.loads(options.output.read_text()) if options.resume or options.take else None
    if before and options.take:
        for path in options.take:
            before = taken(before, path)
        options.output.write_text(json.dumps(before, indent=1) + "\n")
        return
    waiting = chosen(options.groups, options.scale)
    waiting = [row for row in waiting if not options.only or any(text in row["name"] for text in options.only)]
    if before and options.missing:
        there = {(row["group"], row["name"]) for row in before["rows"] if "failed" not in row}
        waiting = [row for row in waiting if (row["group"], row["name"]) not in there]
    learned = [learned_row(folder) for folder in options.learning]
    # What presets were when rows were measured: the page says so where they are others by now.
    run = stamped("performance", {"machine": describe(), "presets": PRESETS})
    data, mark = joined(before, run, [*waiting, *learned])
    data["rows"] += [row | mark for row in learned]
    for row in tqdm(waiting, unit="row"):
        data["rows"].append(measured(row) | mark)
        options.output.write_text(json.dumps(data, indent=1) + "\n")
        tqdm.write(json.dumps(data["rows"][-1]))
    options.output.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
