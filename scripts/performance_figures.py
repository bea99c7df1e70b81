"""Measure what docs/performance.md states about the CUDA engine, all in one run on one GPU.

    python scripts/performance_figures.py --output docs/benchmarks/performance_h200.json

Beside the suite (`python -m kineticsim_env bench`): presets, slots, and shapes up to their limits; next to the
rates of the paper's kernel and to the ceiling that the hash alone has.
"""

import argparse
import json
from pathlib import Path

import torch
from tqdm import tqdm

from kineticsim_env import MarketConfig, Simulator
from kineticsim_env.benchmarks.backend import Workload
from kineticsim_env.benchmarks.cuda_backends import PaperBlock, hash_ceiling
from kineticsim_env.benchmarks.machine import describe
from kineticsim_env.benchmarks.timing import PeakMemory

STEPS = 500


def seconds(run, repeats: int = 5) -> float:
    """Return the shortest time of some runs on the GPU."""
    run()
    best = float("inf")
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) / 1e3)
    return best


def engine_row(
    name: str, config: MarketConfig, markets: int, steps: int = STEPS, slots: int = 0, own: bool = True
) -> dict:
    """Time one shape of the engine, with a kernel for its own parameters or the one for all."""
    simulator = Simulator(config, markets, engine="cuda", slots=slots)
    if own:
        simulator.specialise()
    taken = seconds(lambda: simulator.engine.launch(0, auctions=steps))
    simulator.check_errors()
    return {
        "what": name,
        "markets": markets,
        "agents": config.num_agents,
        "levels": config.num_levels,
        "slots": slots,
        "steps": steps,
        "specialised": own,
        "events_per_s": markets * config.num_agents * steps / taken,
        "us_per_step": taken / steps * 1e6,
    }


def paper_row(agents: int) -> dict:
    """Time the paper's kernel, and compare its bits with the engine's first."""
    workload, backend = Workload(8192, agents), PaperBlock()
    backend.prepare(workload)
    backend.reset()
    backend.run(STEPS)
    theirs = backend.result()
    simulator = Simulator(workload.config, workload.markets, engine="cuda", seed=workload.seed)
    simulator.specialise()
    simulator.run(STEPS, progress=False)
    for side in ("bid", "ask"):
        if not (getattr(theirs, side) == getattr(simulator, side).cpu().numpy()).all():
            raise SystemExit(f"{agents} agents: the paper's kernel and the engine end with different books")
    taken = seconds(lambda: backend.run(STEPS), 3)
    rate = workload.events / taken
    return {"what": "the paper's kernel", "markets": 8192, "agents": agents, "levels": 128, "events_per_s": rate}


def memory_row() -> dict:
    """Return the peak of device memory over opening, reset and run of 16,384 markets."""

    class Held:
        device, name = "cuda", "CUDA engine"

    peak = PeakMemory(Held())
    simulator = Simulator(MarketConfig(), 16384, engine="cuda")
    simulator.reset(seed=1)
    simulator.run(100, progress=False)
    return {"what": "peak memory", "markets": 16384, "agents": 256, "bytes": peak.bytes()}


def main() -> None:
    """Measure everything, write the file, print one line per row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="the JSON file")
    output = parser.parse_args().output
    paper, trading = (MarketConfig.preset(name) for name in ("paper", "trading"))
    jobs = [memory_row]
    jobs += [lambda a=agents: paper_row(a) for agents in (256, 1024)]
    for own in (True, False):
        for agents in (256, 1024):
            for name, preset in (("paper", paper), ("trading", trading)):
                jobs.append(
                    lambda n=name, p=preset, a=agents, o=own: engine_row(n, p.replace(num_agents=a), 8192, own=o)
                )
        jobs.append(
            lambda o=own: engine_row("trading, one slot", trading.replace(num_agents=256), 8192, slots=1, own=o)
        )
        jobs.append(lambda o=own: engine_row("few markets", paper, 64, own=o))
    for agents in (1, 4, 16, 64, 128, 512, 4096):
        jobs.append(lambda a=agents: engine_row("agents", paper.replace(num_agents=a), 8192, 100))
    for levels in (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192):
        shape = paper.replace(num_levels=levels, init_price=levels // 2)
        jobs.append(lambda c=shape: engine_row("levels", c, 8192, 100))
    for markets in (1, 16, 256, 1024, 4096, 16384, 65536, 1 << 18, 1 << 20):
        jobs.append(lambda m=markets: engine_row("markets", paper, m, 100))
    rows = [job() for job in tqdm(jobs, unit="row")]
    data = {"machine": describe(), "hashes_per_s": hash_ceiling("cuda"), "rows": rows}
    output.write_text(json.dumps(data, indent=1) + "\n")
    for row in rows:
        figure = f"{row['events_per_s'] / 1e9:.1f} G/s" if "events_per_s" in row else f"{row['bytes'] / 1e6:.2f} MB"
        shape = f"M={row['markets']} A={row['agents']} L={row.get('levels', 128)}"
        kind = "" if row.get("specialised", True) else " (kernel for all parameters)"
        print(f"{row['what']}{kind}: {shape}: {figure} {row.get('us_per_step', 0):.3f} us per step")


if __name__ == "__main__":
    main()
