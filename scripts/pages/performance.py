"""`python -m scripts.pages.performance` writes the measured tables of docs/performance.md and of README.md.

It reads what `scripts/benchmarks/performance.py` measured, and how four GPUs compare with one, and replaces what stands
between `<!-- NAME: ... -->` and `<!-- end -->`. All other text of the two pages is written by hand.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.pages.markdown import wrapped
from scripts.pages.performance_clock import clock, readme_row
from scripts.pages.performance_default import changes, default, readme_part
from scripts.pages.performance_rows import Figures, events, load, met, micro, number_table, rate, source

ROOT = Path(__file__).resolve().parent.parent.parent
NEEDED = "engine agents levels markets baselines memory steps python suite training learning cpu".split()
CORES = "paper, 256 agents", "trading, 20 agents"  # rows of one core that the pages compare
PUBLISHED = 44.6e9  # events/s of the authors' own kernel on an H200


def stands(figures: Figures, scaling: Mapping[str, Any]) -> str:
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
    default, fast = (figures["training", name]["training_steps_per_s"] for name in ("default", "fast"))
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
        "memory traffic of the updates",
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


def training(figures: Figures) -> str:
    """Return the rates of training, those of earlier kernels below."""
    now, fast = (figures["training", name] for name in ("default", "fast"))
    cells = [rate(now["training_steps_per_s"]), rate(fast["training_steps_per_s"]), rate(now["steps_per_s"])]
    rows = [
        ["today's kernel", *cells],
        ["an earlier one ([scaling_h200.json](benchmarks/scaling_h200.json))", "83 M", "156 M", "444 M"],
        ["the one before that ([training_h200.json](benchmarks/training_h200.json))", "71 M", "119 M", "236 M"],
    ]
    return number_table(["training steps/s", "CleanRL's settings", "`--fast`", "environment alone"], rows)


def cores(figures: Figures) -> str:
    """Return the rates of the C++ engine."""
    names = (
        "paper, 256 agents",
        "paper, 1024 agents",
        "paper, 16 agents",
        "paper, 256 agents, 1024 levels",
        "trading, 256 agents",
        "trading, 20 agents",
    )
    heads = ["preset, agents", *(re.sub(r"1024", "1,024", name.replace(" agents", "")) for name in names)]
    cells = [rate(events(figures, f"{name}, one core", "cpu"), 1e6) for name in names]
    both, oracle = (events(figures, f"paper, 256 agents, {what}", "cpu") for what in ("two cores", "NumPy"))
    rates = [figures["cpu", f"{task}, 1024 markets, one core"]["steps_per_s"] for task in ("MarketMaking", "Execution")]
    cpu = figures["cpu", "paper, 256 agents, one core"]["cpu"]
    intro = f"Agent-events per second on one core of the same machine ({cpu}), one thread, the shortest run:"
    outro = (
        f"1,024 environments do {rates[0] / 1e6:.2f} M steps/s on one core (execution {rates[1] / 1e6:.2f} M). On two "
        f"cores the engine does {rate(both, 1e6)} events/s, {both / oracle:.0f} times the NumPy engine in the same run "
        f"({rate(oracle)})."
    )
    return "\n\n".join([wrapped(intro), number_table(heads, [["events/s", *cells]]), wrapped(outro)])


def parts(counts: Mapping[str, Any]) -> str:
    """Return what an auction of the C++ engine consists of, in instructions, and why presets differ per event."""
    found = counts["counts"]
    totals = {name: sum(values.values()) for name, values in found.items()}
    agents = {name: int(re.findall(r"(\d+) agents", name)[0]) for name in found}
    paper, trading = CORES
    own = {
        name: sum(values[part] for part in ("agents' random words", "agents' orders")) for name, values in found.items()
    }
    even = f"{trading}, rounding even"
    rows = [
        [part, *(f"{values[part]:,.0f}" for values in found.values())]
        for part in found[trading]
        if any(values[part] for values in found.values())
    ]
    rows.append(["all", *(f"{total:,.0f}" for total in totals.values())])
    rows.append(["all, per event", *(f"{total / agents[name]:.1f}" for name, total in totals.items())])
    intro = (
        f"**Why `trading` does fewer events/s than `paper`.** An auction of `trading` with 20 agents is "
        f"{totals[trading]:,.0f} instructions, one of `paper` with 256 agents {totals[paper]:,.0f}; per event that is "
        f"{totals[trading] / 20:.0f} and {totals[paper] / 256:.0f}. Agents are {own[trading] / totals[trading]:.0%} of "
        f"the former and {own[paper] / totals[paper]:.0%} of the latter. The rest is the auction's own, and 20 events "
        f"share it instead of 256. In `trading` it is more, too: clearing goes over the ticks of orders up to 14 ticks "
        f"from the mid, where `paper` has 3, and over the whole grid where these do not decide; cancellation takes a "
        f"random word for every two ticks with orders. With 256 agents `trading` is at "
        f"{totals['trading, 256 agents'] / 256:.0f} instructions per event. The coin is "
        f"{totals[trading] / totals[even] - 1:.0%} of an auction."
    )
    outro = (
        "Counted by `python -m scripts.benchmarks.auction_parts` "
        "([auction_parts.json](benchmarks/auction_parts.json)): valgrind counts the instructions that "
        f"{counts['compiler']} made; a part has those of its functions, inlined or not."
    )
    return "\n\n".join([wrapped(intro), number_table(["instructions per auction", *found], rows), wrapped(outro)])


def readme(figures: Figures, scaling: Mapping[str, Any]) -> str:
    """Return the tables of README.md; every number of them stands on the page."""
    core = rate(events(figures, "paper, 1024 agents, one core", "cpu"), 1e6)
    both = rate(events(figures, "paper, 256 agents, two cores", "cpu"), 1e6)
    made = figures["cpu", "MarketMaking, 1024 markets, one core"]["steps_per_s"] / 1e6
    captured = rate(figures["steps", "65536 markets, 64 agents"]["steps_per_s"])
    four = rate(figures["training", "default"]["training_steps_per_s"])
    rows = [
        [
            "agent-events/s, preset `paper`, 256 agents",
            rate(events(figures, "paper, 256 agents")),
            f"{both} (two cores)",
        ],
        ["the same, 1,024 agents", rate(events(figures, "paper, 1024 agents")), f"{core} (one core)"],
        *readme_row(figures),
        ["environment steps/s, 64 agents, in a CUDA graph", captured, f"{made:.2f} M (one core)"],
        ["training steps/s, PPO with 4 epochs", four, ""],
        [
            "until the learned maker beats Avellaneda-Stoikov, evaluations included",
            f"{figures['learning', 'default']['ahead_wall_s']:.1f} s",
            "",
        ],
        ["four GPUs, events/s over those of one", f"{scaling['scaling']['4']['ratios']['engine']:.2f}", ""],
    ]
    text = "An agent-event is one order of one built-in agent in one auction."
    before = "Environments and training in the preset `trading`, and call auctions where nothing else is said:"
    return "\n\n".join([*readme_part(figures), before, number_table(["", "one H200", "CPU"], rows), text])


def replaced(text: str, name: str, body: str) -> str:
    """Return a page with other text between the comment that begins with a name and the next `<!-- end -->`."""
    found, times = re.subn(
        rf"(<!-- {name}: [^>]*-->\n).*?(\n<!-- end -->)", lambda m: f"{m[1]}{body}{m[2]}", text, flags=re.DOTALL
    )
    if times != 1:
        raise ValueError(f"{name}: expected one place for it on the page, got {times}")
    return found


def main(words: Sequence[str] | None = None) -> None:
    """Write the tables of both pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    benchmarks = ROOT / "docs" / "benchmarks"
    parser.add_argument("--figures", type=Path, default=benchmarks / "performance_h200.json", help="what was measured")
    parser.add_argument("--scaling", type=Path, default=benchmarks / "scaling_h200.json", help="over several GPUs")
    parser.add_argument(
        "--parts", type=Path, default=benchmarks / "auction_parts.json", help="what auctions consist of"
    )
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "performance.md", help="the page")
    parser.add_argument("--before", type=Path, default=benchmarks / "before_h200.json", help="measured before")
    parser.add_argument("--log", type=Path, default=ROOT / "docs" / "performance_log.md", help="the log of changes")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md", help="the README")
    options = parser.parse_args(words)
    figures = load(options.figures)
    scaling = json.loads(options.scaling.read_text())
    missing = sorted(set(NEEDED) - {group for group, _ in figures})
    if missing:
        raise SystemExit(
            f"{options.figures}: it has no rows of {', '.join(missing)}; see scripts/benchmarks/performance.py"
        )
    bodies = {
        "default": default(figures),
        "stands": stands(figures, scaling),
        "sweeps": sweeps(figures),
        "steps": steps(figures),
        "drawn": drawn(figures),
        "training": training(figures),
        "cores": cores(figures),
        "clock": clock(figures),
        "parts": parts(json.loads(options.parts.read_text())),
    }
    text = options.page.read_text()
    for name, body in bodies.items():
        text = replaced(text, name, body)
    first = replaced(options.readme.read_text(), "figures", readme(figures, scaling))
    log = replaced(options.log.read_text(), "changes", changes(figures, load(options.before)))
    options.page.write_text(text)
    options.log.write_text(log)
    options.readme.write_text(first)
    print(f"wrote {options.page}, {options.log} and {options.readme}")


if __name__ == "__main__":
    main()
