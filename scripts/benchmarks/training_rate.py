"""Measure `examples/ppo_fast.py`: environment steps per second of its parts and of the whole, and over several GPUs.

    python -m scripts.benchmarks.training_rate                       # what the pages show, on the GPU if there is one
    python -m scripts.benchmarks.training_rate --variants "news, default" "news, default, float32" --output rates.json
    python -m scripts.benchmarks.training_rate --scaling 1 2 4       # processes, one per GPU (CPU: gloo)

The default market comes first. With the fused update the policy is inside rollouts; "torch.compile" is what there was
before: steps and networks one after another, and updates by autograd. A variant that fails is reported with the end of
its traceback, and the rest are measured. The file is written after each; what is printed ends with it as JSON.
"""

import argparse
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import torch.distributed as dist
from gymnasium.spaces import flatdim

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))

import ppo_fast as ppo  # noqa: E402

from kineticsim_env import MarketConfig, Simulator  # noqa: E402
from kineticsim_env.engines import choose_engine  # noqa: E402
from kineticsim_env.envs.settings import EnvSettings  # noqa: E402
from scripts.benchmarks.training_scaling import scaling  # noqa: E402
from scripts.machine import describe  # noqa: E402
from scripts.pages.provenance import stamp  # noqa: E402

PRESETS = EnvSettings.preset, "trading"
KINDS: dict[str, dict[str, Any]] = {  # changes to the arguments of the example
    "default": {},
    "fast": {"fast": True},
    "default, 16384 markets": {"num_envs": 16384},
    "default, torch.compile": {"fused": False},
    "fast, torch.compile": {"fast": True, "fused": False},
}
FURTHER: dict[str, dict[str, Any]] = {  # which are measured only if they are asked for
    "default, float32": {"bf16": False},
    "default, not compiled": {"fused": False, "compile": False},
    "fast, not compiled": {"fast": True, "fused": False, "compile": False},
    "fast, 16384 markets": {"fast": True, "num_envs": 16384},
}
VARIANTS = {
    f"{preset}, {name}": {"preset": preset, **changes}
    for preset in PRESETS
    for name, changes in (KINDS | FURTHER).items()
}
SHOWN = [f"{preset}, {name}" for preset in PRESETS for name in KINDS]
SCALED = [f"{PRESETS[0]}, {name}" for name in ("default", "fast")]
SETTINGS = "preset", "num_envs", "num_steps", "num_minibatches", "update_epochs", "hidden", "bf16", "compile", "fused"


def markets_of(preset: str, markets: int, spread: float) -> MarketConfig:
    """Return a preset's market, with two probabilities that differ from market to market by up to the spread."""
    config = MarketConfig.preset(preset)
    if not spread:
        return config
    drawn = np.random.default_rng(ppo.RANK).uniform(1 - spread, 1 + spread, (2, markets))
    return config.replace(market_order_prob=config.market_order_prob * drawn[0], walk_prob=config.walk_prob * drawn[1])


def timed(work: Callable[[], Any], device: torch.device, seconds: float) -> float:
    """Return the seconds of one call: the mean over about so many seconds, after calls that are not counted.

    Of several processes it is the same number in all: they start together, and the slowest counts.
    """

    def several(count: int) -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        if ppo.RANKS > 1:
            dist.barrier()
        started = time.perf_counter()
        for _ in range(count):
            work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        longest = torch.tensor(time.perf_counter() - started, device=device)
        if ppo.RANKS > 1:
            dist.all_reduce(longest, op=dist.ReduceOp.MAX)
        return float(longest)

    several(2)
    count = max(1, int(seconds / max(several(2) / 2, 1e-6)))
    return several(count) / count


def random_steps(trainer: ppo.Trainer) -> Callable[[], Any]:
    """Return a call that plays a rollout's length of random actions, captured where there is a GPU."""
    envs = trainer.envs
    actions = torch.zeros(envs.num_envs, 4, device=envs.device)

    def play() -> None:
        for _ in range(trainer.args.num_steps):
            actions.uniform_(-1.0, 1.0)
            envs.step(actions)

    play()
    if envs.device.type != "cuda":
        return play
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        play()
    return graph.replay


def open_trainer(changes: dict[str, Any], engine: str, device: torch.device, spread: float = 0.0) -> ppo.Trainer:
    """Open the example with changed arguments; what earlier ones held is given back first."""
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    args = ppo.Args(**changes)
    args.fill_in(device.type == "cuda")
    mine = args.num_envs // ppo.RANKS
    config = markets_of(args.preset, mine, spread)
    envs: Any = gym.make_vec(
        "KineticSim/MarketMaking-v0", num_envs=mine, config=config, output="torch", copy=False, engine=engine
    )
    sizes = flatdim(envs.single_observation_space), flatdim(envs.single_action_space)
    trainer = ppo.Trainer(args, envs, ppo.ActorCritic(*sizes, args.hidden, args.initial_std).to(device))
    envs.reset(seed=ppo.RANK * envs.num_envs)
    return trainer


def training_rates(
    changes: dict[str, Any], engine: str, device: torch.device, options: argparse.Namespace
) -> dict[str, Any]:
    """Measure one variant: steps per second of stepping, with inference, and of training; and its phases."""
    trainer = open_trainer(changes, engine, device, options.spread)
    args, seconds, preparing = trainer.args, options.seconds, trainer.prepare()
    steps = args.num_envs * args.num_steps
    phases = {name: timed(getattr(trainer, name), device, seconds) for name in ("rollout", "estimate", "learn")}
    whole = timed(lambda: trainer.update(0.0), device, 2 * seconds)
    on_gpu = device.type == "cuda" and options.profile
    kernels = {name: attempt(lambda name=name: kernels_of(getattr(trainer, name))) for name in phases if on_gpu}
    return {
        "step_only": steps / timed(random_steps(trainer), device, seconds),
        "step_and_inference": steps / phases["rollout"],
        "training": steps / whole,
        "phase_ms": {name: 1e3 * value for name, value in phases.items()} | {"update": 1e3 * whole},
        "ns_per_step": {name: 1e9 * value / steps for name, value in phases.items()} | {"update": 1e9 * whole / steps},
        "compile_and_capture_seconds": preparing,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None,
        "kernels": kernels,
        "how": trainer.how,
        "settings": {name: str(value) for name, value in vars(args).items() if name in SETTINGS},
    }


def kernels_of(phase: Callable[[], Any]) -> dict[str, Any]:
    """Return how many kernels a phase runs, and milliseconds and calls of the longest, as far as the profiler knows."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        phase()
        torch.cuda.synchronize()
    rows = sorted(profile.key_averages(), key=lambda row: -row.self_device_time_total)
    rows = [row for row in rows if row.self_device_time_total > 0]
    longest = {row.key[:90]: [row.self_device_time_total / 1e3, row.count] for row in rows[:12]}
    return {"count": sum(row.count for row in rows), "longest_ms_and_calls": longest}


def engine_rate(engine: str, device: torch.device, seconds: float, markets: int, auctions: int = 200) -> float:
    """Return agent-events per second of an ensemble of the preset `paper`, sharded over the processes."""
    mine = markets // ppo.RANKS
    config = MarketConfig.preset("paper")
    simulator = Simulator(config, mine, engine=engine, device=device, seed=ppo.RANK * mine)
    return markets * auctions * int(np.max(config.num_agents)) / timed(lambda: simulator.run(auctions), device, seconds)


def worker(options: argparse.Namespace) -> None:
    """Measure engine and training in one of several processes; the first writes what it found."""
    on_gpu = torch.cuda.is_available() and options.engine in ("auto", "cuda")
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    engine, device = choose_engine(options.engine)
    if ppo.RANKS > 1:
        dist.init_process_group("nccl" if on_gpu else "gloo")
    found: dict[str, Any] = {}
    scale = ppo.RANKS if options.weak else 1
    found["engine"] = attempt(lambda: engine_rate(engine, device, options.seconds, options.markets * scale))
    for name in options.variants:
        changes = dict(VARIANTS[name]) | json.loads(options.changes)
        if options.weak:
            args = ppo.Args(**changes)
            args.fill_in(device.type == "cuda")
            changes["num_envs"] = args.num_envs * scale
        found[name] = attempt(lambda changes=changes: training_rates(changes, engine, device, options))
        if ppo.RANK == 0:
            Path(options.output).write_text(json.dumps(found))  # where a later one takes too long
            print(f"of {ppo.RANKS}: {shown(name, found[name])}", flush=True)
    if ppo.RANKS > 1:
        gc.collect()  # graphs that hold on to NCCL must be gone before it is
        dist.destroy_process_group()


def shown(name: str, row: dict[str, Any]) -> str:
    """Return the lines of a variant."""
    if "failed" in row:
        return f"{name} FAILED:\n{row['failed']}"
    rates = "; ".join(
        f"{what.replace('_', ' ')} {row[what] / 1e6:.2f} M steps/s"
        for what in ("step_only", "step_and_inference", "training")
    )
    parts = ", ".join(f"{phase} {value:.2f}" for phase, value in row["ns_per_step"].items())
    prepared = f"prepared in {row['compile_and_capture_seconds']:.0f} s; {row['how']}"
    kernels = (f"\n    kernels of {phase}: {json.dumps(kernels)}" for phase, kernels in row["kernels"].items())
    return f"{name}: {rates}\n    ns per step: {parts}; {prepared}" + "".join(kernels)


def attempt(work: Callable[[], Any]) -> Any:
    """Return what the work returns, or the end of its traceback."""
    try:
        return work()
    except (Exception, SystemExit):
        return {"failed": traceback.format_exc()[-2500:]}


def main(words: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for, or the words given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", default=None, choices=list(VARIANTS), metavar="NAME")
    parser.add_argument("--changes", default="{}", help='more arguments of the example, as JSON: {"num_envs": 4096}')
    parser.add_argument("--engine", default="auto", help="auto, cuda or cpu (default: auto)")
    parser.add_argument("--seconds", type=float, default=0.5, help="about how long to time each part (default: 0.5)")
    parser.add_argument("--spread", type=float, default=0.0, help="how far the markets' parameters differ (0)")
    parser.add_argument("--profile", action="store_true", help="list the longest kernels of each phase")
    parser.add_argument("--scaling", nargs="+", type=int, metavar="N", help="measure with so many processes each")
    parser.add_argument("--weak", action="store_true", help="with --scaling: as many markets in each process")
    parser.add_argument("--markets", type=int, default=65536, help="markets of the engine in --scaling (65536)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that a number of processes may take (300)")
    parser.add_argument("--output", default="training_rate.json", help="the JSON file (default: training_rate.json)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    options.variants = options.variants or (SCALED if options.scaling else SHOWN)
    if options.worker:
        worker(options)
        return
    engine, device = choose_engine(options.engine)
    differ = f"market_order_prob and walk_prob within {options.spread:.0%} from market to market"
    markets = f"of the preset that a variant names, {differ if options.spread else 'all alike'}"
    found: dict[str, Any] = {"machine": describe(), "rules": stamp("training"), "markets": markets}
    if options.scaling:
        found["scaling"] = scaling(options)
    else:
        for name in options.variants:
            changes = VARIANTS[name] | json.loads(options.changes)
            row = attempt(lambda changes=changes: training_rates(changes, engine, device, options))
            found[name] = row
            Path(options.output).write_text(json.dumps(found, indent=1) + "\n")
            print(shown(name, row), flush=True)
    Path(options.output).write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
