"""`python -m scripts.pages.performance` writes the measured tables of docs/performance.md and of README.md.

It reads what `scripts/benchmarks/performance.py` measured, and how four GPUs compare with one, and replaces what stands
between `<!-- NAME: ... -->` and `<!-- end -->`. All other text of the two pages is written by hand.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.pages.markdown import replaced, wrapped
from scripts.pages.performance_clock import clock
from scripts.pages.performance_cpu import cores, parts
from scripts.pages.performance_default import PRESET, changes, default, inside, readme_part
from scripts.pages.performance_rows import Figures, events, load, met, micro, number_table, rate, source
from scripts.pages.performance_training import Trained, earlier, readme_rows, row_of, training, training_rate

ROOT = Path(__file__).resolve().parent.parent.parent
NEEDED = "engine agents levels markets baselines memory steps python suite training learning cpu".split()
PUBLISHED = 44.6e9  # events/s of the authors' own kernel on an H200


def stands(figures: Figures, scaling: Mapping[str, Any], trained: Trained | None = None) -> str:
    """Return "Where it stands"."""
    hashes = figures["baselines", "the hash alone"]["hashes_per_s"]
    theirs = {agents: events(figures, f"the paper's kernel, {agents} agents", "baselines") for agents in (256, 1024)}
    rows = []
    for preset, agents, target, bound in (
        ("paper", 256, 450e9, "hashing and clearing"),
        ("paper", 1024, 600e9, "hashing"),
        ("trading", 256, 0.7, "instructions of cancellation and of four classes"),
        ("trading", 1024, 0.7, "hashing"),
    ):
        found = events(figures, f"{preset}, {agents} agents")
        share = found / events(figures, f"paper, {agents} agents")
        text = rate(found) + (f", {share:.2f} of it" if preset == "trading" else "")
        asked = "0.7 of `paper`" if preset == "trading" else rate(target)
        shown = met(text, (share if preset == "trading" else found) >= target)
        shape = "8,192 markets, " * (preset == "paper") + f"{agents:,} agents, preset `{preset}`"
        rows.append([shape, asked, shown, f"{found / theirs[agents]:.1f}", f"{found / hashes:.2f}", bound])
    few = figures["engine", "paper, 64 markets"]["us_per_auction"]
    steps = figures["steps", "65536 markets, 64 agents"]["steps_per_s"]
    captured = figures["steps", "1024 markets, 64 agents"]["us_per_step"]
    live, copied = (figures["python", f"1024 markets, copy={copy}"]["us_per_step"] for copy in (False, True))
    default, fast = (training_rate(figures, trained or {}, name) for name in ("default", "fast"))
    bound = "rollouts and updates, half each" if row_of(trained or {}, "trading") else "memory traffic of the updates"
    ahead, ahead_fast = (figures["learning", name]["ahead_wall_s"] for name in ("default", "fast"))
    four = scaling["scaling"]["4"]["ratios"]
    core = events(figures, "paper, 256 agents, one core", "cpu")
    cores = events(figures, "paper, 256 agents, two cores", "cpu")
    oracle = events(figures, "paper, 256 agents, NumPy", "cpu")
    memory = figures["memory", "16384 markets, 256 agents"]["bytes"]

    def row(what: str, target: str, found: str, reached: bool, bound: str = "") -> None:
        rows.append([what, target, met(found, reached), "", "", bound])

    row("64 markets, one auction", "0.6 us", micro(few), few <= 0.6, "latency of one warp")
    row(
        "environment steps/s, 65,536 markets, 64 agents",
        "1.5 G",
        rate(steps),
        steps >= 1.5e9,
        "memory and instructions in turn",
    )
    row("one step of 1,024 markets, in a CUDA graph", "4 us", micro(captured), captured <= 4, "latency of one warp")
    row("the same, from Python", "12 us", micro(live), live <= 12, "launches")
    row("the same with `copy=True`", "30 us", micro(copied), copied <= 30, "launches")
    row(
        "training steps/s, CleanRL's settings",
        "50 M",
        rate(default),
        default >= 50e6,
        bound,
    )
    row("training steps/s, the fastest that beats the scripted makers", "100 M", rate(fast), fast >= 1e8, "the same")
    row(
        "until the learner beats Avellaneda-Stoikov, evaluations included, compiling apart",
        "10 s",
        f"{ahead:.1f} s; {ahead_fast:.1f} s with `--fast`",
        max(ahead, ahead_fast) <= 10,
    )
    row(
        "four GPUs, times one: engine; training",
        "3.9; 3.6",
        f"{four['engine']:.2f}; {four['default']:.2f}, or {four['fast']:.2f} with `--fast`",
        four["engine"] >= 3.9 and four["default"] >= 3.6,
        "averaging gradients",
    )
    row("C++ engine, one core, events/s", "300 M", rate(core, 1e6), core >= 300e6, "hashing")
    row(
        "C++ engine, two cores, times NumPy",
        "60",
        f"{cores / oracle:.0f} ({rate(cores, 1e6)} to {rate(oracle)})",
        cores >= 60 * oracle,
    )
    row("memory, 16,384 markets", "17.5 MB", f"{memory / 1e6:.1f} MB", memory <= 17.5e6, "books")
    best = events(figures, "paper, 256 agents")
    groups = {group: source(figures, group) for group in NEEDED}
    main = groups["engine"]
    others = {text: [group for group in NEEDED if groups[group] == text] for text in groups.values() if text != main}
    older = [group for group in NEEDED if not all(row["current"] for (of, _), row in figures.items() if of == group)]
    intro = (
        "One run of `python -m scripts.benchmarks.performance` "
        f"([performance_h200.json](benchmarks/performance_h200.json), {main}), but for four GPUs "
        "([scaling_h200.json](benchmarks/scaling_h200.json)). In it the paper's kernel, "
        f"whose books were compared bit for bit first, does {rate(theirs[256])} events/s with 256 agents and "
        f"{rate(theirs[1024])} with 1,024, and the hash alone does {rate(hashes)}/s."
    )
    for text, measured in others.items():
        intro += f" Rows of {', '.join(f'`{group}`' for group in measured)} are of another run ({text})."
    if older:
        intro += (
            f' In rows of {", ".join(f"`{group}`" for group in older)} `trading` has `rounding="even"`, as it had then.'
        )
    heads = ["what", "target", "reached", "times the paper's kernel", "share of the hash's rate", "bound by"]
    outro = (
        f"The paper's authors measured their own kernel at {PUBLISHED / 1e9} G events/s on an H200; {rate(best)} is "
        f"{best / PUBLISHED:.1f} times that."
    )
    return "\n\n".join([wrapped(intro), number_table(heads, rows), wrapped(outro)])


def sweeps(figures: Figures) -> str:
    """Return the tables of levels, agents and markets."""
    tables = []
    for group, shown in (
        ("levels", (32, 128, 512, 1024, 2048, 4096, 8192)),
        ("agents", (1, 4, 16, 64, 128, 512, 4096)),
        ("markets", (1, 16, 256, 1024, 4096, 16384, 1 << 20)),
    ):
        cells = [rate(events(figures, str(at), group), 1e9) for at in shown]
        tables.append(number_table([group, *(f"{at:,}" for at in shown)], [["events/s", *cells]]))
    return "\n\n".join(tables)


def steps(figures: Figures) -> str:
    """Return how the two shapes of an environment's step compare."""
    shapes = [(64, 16896), (64, 33792), (64, 65536), (20, 65536), (256, 65536)]
    heads = ["", *(f"{agents} agents, {markets:,}" for agents, markets in shapes)]
    rows = []
    for what, suffix in (("several per warp", ", several per warp"), ("one per lane", "")):
        names = [f"{markets} markets, {agents} agents{suffix}" for agents, markets in shapes]
        rows.append([what, *(rate(figures["steps", name]["steps_per_s"]) for name in names)])
    return number_table(heads, rows)


def drawn(figures: Figures) -> str:
    """Return the rates of steps whose actions are drawn in between, and the times of a step from Python."""
    markets = (1, 64, 1024, 4096, 16384, 65536)
    rows = [
        [what, *(rate(figures["suite", f"{at} markets, {name}"]["steps_per_s"]) for at in markets)]
        for what, name in (("in a CUDA graph, steps/s", "graph"), ("from Python, steps/s", "Python"))
    ]
    live, copied = (figures["python", f"1024 markets, copy={copy}"]["us_per_step"] for copy in (False, True))
    whole = figures["suite", "1024 markets, Python"]["us_per_step"]
    text = (
        "From Python a step of few markets costs what it takes Python and torch to ask the GPU for work. With 1,024 "
        f"markets that is {micro(whole)} where actions are drawn in between; by itself a step takes {micro(live)} with "
        f"`copy=False`, and {micro(copied)} with `copy=True`."
    )
    intro = (
        "As in [the suite](benchmarks/README.md), random actions are drawn between the steps, which takes 3 us with "
        "1,024 and 5 to 7 us with 65,536 markets:"
    )
    return "\n\n".join([wrapped(intro), number_table(["markets", *(f"{at:,}" for at in markets)], rows), wrapped(text)])


def readme(figures: Figures, scaling: Mapping[str, Any], trained: Trained) -> str:
    """Return the table of README.md; every number of it stands on the page."""
    both = rate(events(figures, "paper, 256 agents, two cores", "cpu"), 1e6)
    learned = f"{figures['learning', 'default']['ahead_wall_s']:.1f} s"
    before = "until a learned maker beats Avellaneda-Stoikov in `trading`, evaluations included"
    said, rows = readme_part(figures, readme_rows(trained, PRESET))
    rows = [
        *rows,
        [
            "agent-events/s in call auctions, preset `paper`, 256 agents",
            rate(events(figures, "paper, 256 agents")),
            f"{both} (two cores)",
        ],
        [before, learned, ""],
        ["four GPUs, events/s over those of one", f"{scaling['scaling']['4']['ratios']['engine']:.2f}", ""],
    ]
    said = wrapped(f"{said} An agent-event is one order of a built-in agent in one auction.")
    return f"{said}\n\n{number_table(['', 'one H200', 'CPU'], rows)}"


def main(words: Sequence[str] | None = None) -> None:
    """Write the tables of both pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    benchmarks = ROOT / "docs" / "benchmarks"
    parser.add_argument("--figures", type=Path, default=benchmarks / "performance_h200.json", help="what was measured")
    parser.add_argument("--scaling", type=Path, default=benchmarks / "scaling_h200.json", help="over several GPUs")
    parser.add_argument("--training", type=Path, default=benchmarks / "training_h100.json", help="rates of training")
    parser.add_argument(
        "--policies", type=Path, default=benchmarks / "policies_h100.json", help="of policies inside, if any"
    )
    parser.add_argument(
        "--two", type=Path, default=benchmarks / "training_scaling.json", help="of several GPUs, if any"
    )
    parser.add_argument(
        "--parts", type=Path, default=benchmarks / "auction_parts.json", help="what auctions consist of"
    )
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "performance.md", help="the page")
    parser.add_argument("--before", type=Path, default=benchmarks / "before_h200.json", help="measured before")
    parser.add_argument("--log", type=Path, default=ROOT / "docs" / "performance_log.md", help="the log of changes")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md", help="the README")
    options = parser.parse_args(words)
    figures = load(options.figures)
    scaling, trained = (json.loads(path.read_text()) for path in (options.scaling, options.training))
    shared = json.loads(options.two.read_text()) if options.two.exists() else {}
    missing = sorted(set(NEEDED) - {group for group, _ in figures})
    if missing:
        raise SystemExit(
            f"{options.figures}: it has no rows of {', '.join(missing)}; see scripts/benchmarks/performance.py"
        )
    bodies = {
        "default": default(figures),
        "stands": stands(figures, scaling, trained),
        "sweeps": sweeps(figures),
        "steps": steps(figures),
        "drawn": drawn(figures),
        "training": training(trained, shared, earlier(figures), options.training.name),
        "cores": cores(figures),
        "clock": clock(figures),
        "parts": parts(json.loads(options.parts.read_text())),
    }
    if options.policies.exists():
        bodies["default"] += "\n\n" + inside(load(options.policies), options.policies.name)
    text = options.page.read_text()
    for name, body in bodies.items():
        text = replaced(text, name, body)
    first = replaced(options.readme.read_text(), "figures", readme(figures, scaling, trained))
    log = replaced(options.log.read_text(), "changes", changes(figures, load(options.before)))
    options.page.write_text(text)
    options.log.write_text(log)
    options.readme.write_text(first)
    print(f"wrote {options.page}, {options.log} and {options.readme}")


if __name__ == "__main__":
    main()
