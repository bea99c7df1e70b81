"""Count the instructions that the C++ engine executes per auction, by part of the auction.

    python -m scripts.benchmarks.auction_parts

Writes docs/benchmarks/auction_parts.json, of which `python -m scripts.pages.performance` makes a table. valgrind counts
each instruction of the library, and addr2line says which functions it was inlined into; the part is that of the
outermost one that PARTS names. Counts depend on the compiler and on nothing else, so a busy machine gives the same.
"""

from __future__ import annotations

import argparse
import collections
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kineticsim_env.runtime import build
from scripts.benchmarks.instruction_counts import FLAGS, ROOT, library_of, on_one_thread, under_valgrind
from scripts.pages.provenance import stamped

RECORD = ROOT / "docs" / "benchmarks" / "auction_parts.json"
MARKETS, AUCTIONS, WARMUP = 8, 1000, 200

# What is counted: a preset and what differs from it.
WORKLOADS: dict[str, tuple[str, dict]] = {
    "paper, 256 agents": ("paper", {}),
    "paper, 20 agents": ("paper", {"num_agents": 20}),
    "trading, 20 agents": ("trading", {}),
    "trading, 20 agents, rounding even": ("trading", {"rounding": "even"}),
    "trading, 256 agents": ("trading", {"num_agents": 256}),
}

# Functions of cuda/, by part; the first that a chain of calls has, from the outermost on, is where it counts.
PARTS = {
    "cancellation": ("Book::cancel",),
    "fundamental's walk": ("walk_fundamental", "walk_word"),
    "mid and window": ("best_prices", "see_mid", "move_grid", "Book::shift"),
    "agents' random words": ("Words::draw",),
    "agents' orders": ("Orders::",),
    "orders onto the book": ("submit_orders",),
    "clearing over levels": ("::clear(", "Book::would_overflow"),
    "price of the ties": ("clearing_price",),
    "residue": ("cancel_residue",),
    "best prices afterwards": ("end_auction", "Book::find_best"),
}
REST = "the rest"

# Runs in a process of its own, under valgrind.
_WORK = """
import ctypes, json, sys
import torch
import kineticsim_env as ks

switch = ctypes.CDLL(sys.argv[1])
torch.set_num_threads(1)
for name, (preset, changes) in json.loads(sys.argv[2]).items():
    markets = ks.Simulator(ks.MarketConfig.preset(preset, **changes), int(sys.argv[3]), engine="cpu", seed=1)
    markets.run(int(sys.argv[5]), progress=False)
    switch.count(1)
    markets.run(int(sys.argv[4]), progress=False)
    switch.dump(name.encode())
    switch.count(0)
"""


def addresses(text: str, library: str) -> collections.Counter:
    """Return how often each instruction of a library was executed, by its address there, from callgrind's output."""
    names: dict[str, str] = {}
    found: collections.Counter = collections.Counter()
    inside, calls, address = False, False, 0
    for line in text.splitlines():
        if match := re.match(r"(c?ob)=\((\d+)\)(?: (.*))?$", line):
            if match[3]:
                names[match[2]] = match[3]
            if match[1] == "ob":
                inside = library in names[match[2]]
        elif line.startswith("calls="):
            calls = True  # the line after it is the cost of what was called, which is counted where it ran
        elif match := re.match(r"(0x[0-9a-f]+|\+\d+|-\d+|\*) \S+ (\d+)$", line):
            word = match[1]
            address = int(word, 16) if word.startswith("0x") else address + (0 if word == "*" else int(word))
            if inside and not calls:
                found[address] += int(match[2])
            calls = False
    return found


def chains(library: str, where: list[int]) -> dict[int, list[str]]:
    """Return the functions that each instruction was inlined into, the outermost first."""
    command = ["addr2line", "-i", "-f", "-C", "-a", "-e", library]
    done = subprocess.run(command, input="\n".join(map(hex, where)), capture_output=True, text=True, check=True)
    found: dict[int, list[str]] = {}
    lines = iter(done.stdout.splitlines())
    names: list[str] = []
    for line in lines:
        if line.startswith("0x"):
            names = found[int(line, 16)] = []
        else:
            names.insert(0, line)
            next(lines)  # file and line
    return found


def part_of(names: list[str]) -> str:
    """Return the part of an instruction, from the functions it is in, the outermost first."""
    for name in names:
        for part, functions in PARTS.items():
            if any(function in name for function in functions):
                # Words and orders are parts of their own within what submits them.
                if part in ("orders onto the book", "agents' orders"):
                    inner = [other for other in ("agents' random words", "agents' orders") if _is_in(names, other)]
                    return inner[0] if inner else part
                return part
    return REST


def _is_in(names: list[str], part: str) -> bool:
    return any(function in name for name in names for function in PARTS[part])


def count(folder: Path) -> dict[str, dict[str, float]]:
    """Return instructions per auction by workload and part."""
    if build.find_cxx() is None or any(shutil.which(tool) is None for tool in ("valgrind", "addr2line")):
        sys.exit("a C++ compiler, valgrind and addr2line are needed")
    environment = on_one_thread(f"{FLAGS[platform.machine()]} -g")
    library, found = library_of(environment), {}
    arguments = [json.dumps(WORKLOADS), str(MARKETS), str(AUCTIONS), str(WARMUP)]
    texts = under_valgrind(_WORK, arguments, folder, environment, "--dump-instr=yes", "--compress-pos=no")
    for name in WORKLOADS:
        executed = addresses(texts[name], Path(library).name)
        inlined = chains(library, sorted(executed))
        parts: collections.Counter = collections.Counter()
        for address, times in executed.items():
            parts[part_of(inlined[address])] += times
        found[name] = {part: round(parts[part] / (MARKETS * AUCTIONS), 1) for part in (*PARTS, REST)}
    return found


def main(words: list[str] | None = None) -> None:
    """Count and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RECORD, help="the file (default: %(default)s)")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        counts = count(Path(folder))
    compiler = f"{build.compiler_version(build.find_cxx() or '')}, {FLAGS[platform.machine()]}"
    record = {"compiler": compiler, "markets": MARKETS, "auctions": AUCTIONS, "counts": counts}
    record = stamped("auction_parts", record)
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    for name, parts in counts.items():
        print(f"{name}: {sum(parts.values()):,.0f} instructions per auction")
        for part, value in parts.items():
            print(f"  {part}: {value:,.1f}")
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
