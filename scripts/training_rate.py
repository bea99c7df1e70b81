"""Measure `examples/ppo_fast.py`: environment steps per second of its parts and of the whole, and over several GPUs.

    python scripts/training_rate.py                                       # every variant, on the GPU if there is one
    python scripts/training_rate.py --variants default fast --output rates.json
    python scripts/training_rate.py --scaling 1 2 4                       # processes, one per GPU (CPU: gloo)

A variant that fails is reported with the end of its traceback, and the rest are measured. What is printed is JSON at
the end (and in --output), and a line for each measurement before it.
"""

import argparse
import gc
import json
import os
import socket
import subprocess
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

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))

import ppo_fast as ppo  # noqa: E402
from ppo_comparison import machine_name  # noqa: E402

from kineticsim_env import MarketConfig, Simulator  # noqa: E402
from kineticsim_env.engines import choose_engine  # noqa: E402

VARIANTS: dict[str, dict[str, Any]] = {  # changes to the arguments of the example
    "default": {},
    "default, float32": {"bf16": False},
    "default, not compiled": {"compile": False},
    "default, 16384 markets": {"num_envs": 16384},
    "fast": {"fast": True},
    "fast, not compiled": {"fast": True, "compile": False},
    "fast, 16384 markets": {"fast": True, "num_envs": 16384},
}


def different_markets(markets: int, spread: float) -> MarketConfig:
    """Return the preset `trading`, with two probabilities that differ from market to market by up to the spread."""
    drawn = np.random.default_rng(ppo.RANK).uniform(1 - spread, 1 + spread, (2, markets))
    config = MarketConfig.preset("trading")
    if not spread:
        return config
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


def training_rates(
    changes: dict[str, Any], engine: str, device: torch.device, options: argparse.Namespace
) -> dict[str, Any]:
    """Measure one variant: steps per second of stepping, with inference, and of training; and its phases."""
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    args, seconds = ppo.Args(**changes), options.seconds
    args.fill_in(device.type == "cuda")
    mine = args.num_envs // ppo.RANKS
    config = different_markets(mine, options.spread)
    envs: Any = gym.make_vec(
        "KineticSim/MarketMaking-v0", num_envs=mine, config=config, output="torch", copy=False, engine=engine
    )
    sizes = flatdim(envs.single_observation_space), flatdim(envs.single_action_space)
    trainer = ppo.Trainer(args, envs, ppo.ActorCritic(*sizes, args.hidden, args.initial_std).to(device))
    envs.reset(seed=ppo.RANK * envs.num_envs)
    preparing = trainer.prepare()
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
        "settings": {name: str(value) for name, value in vars(args).items() if name in SHOWN},
    }


SHOWN = "num_envs", "num_steps", "num_minibatches", "update_epochs", "hidden", "bf16", "compile"


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
        Path(options.output).write_text(json.dumps(found))
    if ppo.RANKS > 1:
        dist.destroy_process_group()


def attempt(work: Callable[[], Any]) -> Any:
    """Return what the work returns, or the end of its traceback."""
    try:
        return work()
    except (Exception, SystemExit):
        return {"failed": traceback.format_exc()[-2500:]}


def scaling(options: argparse.Namespace) -> dict[str, Any]:
    """Run this file under torchrun with each number of processes; returns figures, and ratios to the first."""
    found: dict[str, Any] = {}
    for processes in options.scaling:
        path = Path(options.output).with_suffix(f".{processes}.json")
        path.unlink(missing_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
        command += [f"--master-port={port}", __file__, "--worker", "--output", str(path), "--variants"]
        command += [*options.variants, "--seconds", str(options.seconds), "--engine", options.engine]
        command += [
            "--changes",
            options.changes,
            "--markets",
            str(options.markets),
            "--spread",
            str(options.spread),
        ] + ["--weak"] * options.weak
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout)
            complaint = done.stderr[-2500:]
        except subprocess.TimeoutExpired as error:
            complaint = f"took over {options.timeout} s: {str(error.stderr)[-2500:]}"
        found[str(processes)] = json.loads(path.read_text()) if path.exists() else {"failed": complaint}
        path.unlink(missing_ok=True)
        print_scaling(found, options)
    return found


def print_scaling(found: dict[str, Any], options: argparse.Namespace) -> None:
    """Print the last row, with its ratios to the first one, and keep these."""
    processes, row = list(found.items())[-1]
    first = next(iter(found.values()))
    if "failed" in row:
        print(f"{processes} processes FAILED:\n{row['failed']}", flush=True)
        return
    ratios = {}
    for name in ("engine", *options.variants):
        mine, one = (part.get(name) if isinstance(part, dict) else None for part in (row, first))
        if isinstance(mine, dict) and "failed" in mine:
            print(f"{processes} processes, {name} FAILED:\n{mine['failed']}", flush=True)
            continue
        rate, base = (part.get("training") if isinstance(part, dict) else part for part in (mine, one))
        if isinstance(rate, float) and isinstance(base, float):
            ratios[name] = rate / base
            what = "agent-events/s" if name == "engine" else "steps/s"
            print(f"{processes} processes, {name}: {rate / 1e6:,.2f} M {what}, {rate / base:.2f} times", flush=True)
    row["ratios"] = ratios


def main(words: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for, or the words given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS), metavar="NAME")
    parser.add_argument("--changes", default="{}", help='more arguments of the example, as JSON: {"num_envs": 4096}')
    parser.add_argument("--engine", default="auto", help="auto, cuda or cpu (default: auto)")
    parser.add_argument("--seconds", type=float, default=0.5, help="about how long to time each part (default: 0.5)")
    parser.add_argument("--spread", type=float, default=0.1, help="how far the markets' parameters differ (0.1)")
    parser.add_argument("--profile", action="store_true", help="list the longest kernels of each phase")
    parser.add_argument("--scaling", nargs="+", type=int, metavar="N", help="measure with so many processes each")
    parser.add_argument("--weak", action="store_true", help="with --scaling: as many markets in each process")
    parser.add_argument("--markets", type=int, default=65536, help="markets of the engine in --scaling (65536)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that a number of processes may take (300)")
    parser.add_argument("--output", default="training_rate.json", help="the JSON file (default: training_rate.json)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.worker:
        worker(options)
        return
    engine, device = choose_engine(options.engine)
    markets = f"preset trading, market_order_prob and walk_prob within {options.spread:.0%} from market to market"
    found: dict[str, Any] = {"machine": machine_name(device), "markets": markets}
    if options.scaling:
        if options.variants == list(VARIANTS):
            options.variants = ["default", "fast"]
        found["scaling"] = scaling(options)
    else:
        for name in options.variants:
            changes = VARIANTS[name] | json.loads(options.changes)
            row = attempt(lambda changes=changes: training_rates(changes, engine, device, options))
            found[name] = row
            Path(options.output).write_text(json.dumps(found, indent=1) + "\n")
            if "failed" in row:
                print(f"{name} FAILED:\n{row['failed']}", flush=True)
                continue
            rates = "; ".join(
                f"{what.replace('_', ' ')} {row[what] / 1e6:.2f} M steps/s"
                for what in ("step_only", "step_and_inference", "training")
            )
            parts = ", ".join(f"{phase} {value:.2f}" for phase, value in row["ns_per_step"].items())
            print(f"{name}: {rates}\n    ns per step: {parts}; prepared in {row['compile_and_capture_seconds']:.0f} s")
            for phase, kernels in row["kernels"].items():
                print(f"    kernels of {phase}: {json.dumps(kernels)}")
            sys.stdout.flush()
    Path(options.output).write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
