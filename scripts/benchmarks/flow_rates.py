"""How many events of a fitted order flow an engine plays per second, beside agents' orders; fills docs/order_flow.md.

    python -m scripts.benchmarks.flow_rates --measure    # on this machine: plays, writes the file and the page
    python -m scripts.benchmarks.flow_rates              # the page, from the file

Every row is the best of some repetitions, in turn in one run: the flow that ships, on two grids and with intervals of a
length, and the preset `news`, whose events are orders of agents on a grid of 128 ticks. On a core torch has one thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

import kineticsim_env as ks
from scripts.machine import describe
from scripts.pages.command import figures_in, file_parser
from scripts.pages.markdown import machine_in, replaced, table, wrapped
from scripts.pages.provenance import ROOT, stamped

PAGE, FILE = ROOT / "docs" / "order_flow.md", ROOT / "docs" / "benchmarks" / "flow_rates.json"
TIMES = 5
MARKETS = {"cpu": (1, 64), "cuda": (1024, 65536)}
EVENTS = {"cpu": 2_000_000, "cuda": 200_000_000}  # of a repetition


def configs() -> dict[str, ks.MarketConfig]:
    """Return the markets that are played, by what the page calls them."""
    flow = ks.OrderFlow.preset("btcusd")
    flows = {f"`btcusd`, {levels} ticks": flow.config(num_levels=levels) for levels in (256, 512)}
    flows["the same, 256 ticks, intervals of 800 ms"] = flow.config(interval_ms=800)
    return {**flows, "`news`": ks.MarketConfig.preset("news")}


def measure() -> dict[str, Any]:
    """Return events per second, by engine, market and number of markets."""
    engine = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    wait = torch.cuda.synchronize if engine == "cuda" else lambda: None
    runs: dict[tuple[str, int], tuple[Any, int]] = {}
    for name, config in configs().items():
        for markets in MARKETS[engine]:
            simulator = ks.Simulator(config, markets, engine=engine, seed=1)
            simulator.run(4)
            simulator.engine.specialise()
            simulator.run(4)
            per_interval = 48 if config.interval_ms else config.events_per_interval  # about as many
            runs[name, markets] = (simulator, max(EVENTS[engine] // (markets * per_interval), 4))
    best = dict.fromkeys(runs, 0.0)
    for _ in tqdm(range(TIMES), desc="rates"):
        for key, (simulator, intervals) in runs.items():
            before = int(simulator.events.sum())
            wait()
            began = time.perf_counter()
            simulator.run(intervals, progress=False)
            wait()
            took = time.perf_counter() - began
            best[key] = max(best[key], (int(simulator.events.sum()) - before) / took)
    found: dict[str, dict[str, float]] = {}
    for (name, markets), rate in best.items():
        found.setdefault(name, {})[str(markets)] = rate
    return stamped("flow_rates", {"machine": describe(), "engine": engine, "events_per_second": found})


def measured_besides(file: Path) -> list[dict[str, Any]]:
    """Return the records of a file, of other engines, and that of this machine's engine, measured now."""
    mine, there = measure(), json.loads(file.read_text()) if file.exists() else []
    return sorted([*(one for one in there if one["engine"] != mine["engine"]), mine], key=lambda one: one["engine"])


def body(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the page's table, and how it was measured."""
    said, heads, rows = [], [], [[name] for name in configs()]
    for record in records:
        rules, where = record["rules"], machine_in(record)
        where = f"one core of {where}" if record["engine"] == "cpu" else f"one {where}"
        said.append(f"{where}, {rules['date']}, commit {rules['commit']}")
        heads += [f"{int(markets):,} markets, {record['engine']}" for markets in MARKETS[record["engine"]]]
        for row in rows:
            rates = record["events_per_second"][row[0]]
            row += [f"{rates[str(markets)] / 1e6:,.1f} M" for markets in MARKETS[record["engine"]]]
    told = wrapped(f"Events per second, the best of {TIMES} ([figures](benchmarks/{FILE.name})): {'; '.join(said)}.")
    return f"{told}\n\n{table(['', *heads], rows, (False, *[True] * len(heads)))}"


def main(words: Sequence[str] | None = None) -> None:
    """Measure, if that is asked for, and write the page."""
    parser = file_parser(__doc__, "play, and write this machine's part of the file", FILE, PAGE)
    options = parser.parse_args(words)
    records = figures_in(options, lambda: measured_besides(options.file))
    options.page.write_text(replaced(options.page.read_text(), "rates", body(records)))
    print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
