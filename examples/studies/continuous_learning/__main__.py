"""`python -m examples.studies.continuous_learning` trains PPO under continuous trading and says what latency costs it.

The same maker learns where its quotes arrive at once, half an interval late and an interval late, and an executor where
orders arrive at once. It writes results.json and the picture, and fills README.md, which `--results` does without
training.

    python -m examples.studies.continuous_learning
    python -m examples.studies.continuous_learning --episodes 32768 --output runs/page   # on a GPU, in two minutes
    python -m examples.studies.continuous_learning --also examples/studies/continuous_learning/cpu.json --results FILE
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from gymnasium.spaces import flatdim

from examples.studies.continuous_learning.places import patient, worth_of_places
from examples.studies.continuous_learning.tables import draw, trainings
from kineticsim_env import MarketConfig
from kineticsim_env.evaluation import HELD_OUT_SEED, evaluate, evaluation_env
from kineticsim_env.policies import Policy
from kineticsim_env.runtime.options import changes_of, exit_code, number, whole
from scripts.pages.command import check_place, command_of, figures, page_parser, publish

EXAMPLES = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(EXAMPLES))

import ppo_fast  # noqa: E402
from ppo_comparison import snapshot  # noqa: E402

PRESET = MarketConfig.preset("continuous")
INTERVAL = int(PRESET.interval or 0)  # events
LATENCIES = (0, INTERVAL // 2, INTERVAL)
NAME = "continuous_learning"
MAKER = ["--gamma", "0.99"]  # a quote is filled many decisions after it took its place; 0.97 learns slower


def changes(latency: int) -> tuple[str, ...]:
    """Return what a maker's market has besides the preset's fields."""
    return (f"quote_latency={latency}",) if latency else ()


def train(script: str, words: Sequence[str]) -> None:
    """Run an example in a process of its own, as anyone would."""
    paths = [str(EXAMPLES.parent), *filter(None, [os.environ.get("PYTHONPATH")])]  # this package, installed or not
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run([sys.executable, str(EXAMPLES / f"{script}.py"), *words], check=True, env=environment)


def run(script: str, folder: Path, words: Sequence[str], seed: int, change: Sequence[str] = ()) -> dict[str, Any]:
    """Train with an example; returns the figures that it wrote."""
    market = ["--preset", "continuous", *(["--set", *change] if change else [])]
    train(script, [*market, "--seed", str(seed), "--no-track", "--output", str(folder), *words])
    return json.loads((folder / "results.json").read_text())


def learned(folder: Path, envs: Any, hidden: int) -> Policy:
    """Return the policy that an example has left in a folder: the one that it compared."""
    sizes = flatdim(envs.single_observation_space), flatdim(envs.single_action_space)
    networks = ppo_fast.ActorCritic(*sizes, hidden, 1.0).to(envs.device)
    kept = json.loads((folder / "results.json").read_text())["kept"]["steps"]
    networks.load_state_dict(torch.load(snapshot(folder, kept), map_location=envs.device, weights_only=True))
    return networks.act


def look_at(makers: dict[int, dict[str, Any]], runs: Path, engine: str) -> None:
    """Let each maker play held-out episodes under every latency, and with other places; adds to the records."""
    first = makers[LATENCIES[0]]["args"]
    fixed = {name: first[name] for name in ("reward", "inventory_penalty", "reward_scale")} | {"engine": engine}
    for latency in LATENCIES:
        envs = evaluation_env(first["eval_envs"], config=PRESET.replace(**changes_of(changes(latency))), **fixed)
        for trained in LATENCIES:
            policy = learned(runs / f"latency_{trained}", envs, first["hidden"])
            pnl = evaluate(policy, envs, HELD_OUT_SEED).pnl_interval()
            makers[trained].setdefault("under", {})[str(latency)] = pnl
        policy = learned(runs / f"latency_{latency}", envs, first["hidden"])
        makers[latency]["places"] = {
            name: worth_of_places(one, envs, HELD_OUT_SEED)
            for name, one in (("as it learned", policy), ("patient", patient(policy, envs)))
        }


def measure(options: argparse.Namespace, command: str) -> dict[str, Any]:
    """Train, evaluate, and return every figure of the page."""
    given = {"engine": options.engine, "num_envs": options.markets, "total_steps": options.steps}
    given |= {"time_limit_minutes": options.time_limit_minutes, "eval_envs": options.episodes}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value]
    runs, seed = options.runs, options.seed
    makers = {
        latency: run("ppo_fast", runs / f"latency_{latency}", [*MAKER, *words], seed, changes(latency))
        for latency in LATENCIES
    }
    executor = run("ppo_executor", runs / "executor", words, seed)
    look_at(makers, runs, options.engine)
    return {
        "command": command,
        "machine": executor["machine"],
        "interval": INTERVAL,
        "makers": {str(latency): record for latency, record in makers.items()},
        "executor": executor,
    }


WHERE = ("results", "also", "runs", "output")  # options that no figure depends on


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and measure, or read what was measured; draw, and fill the page."""
    parser = page_parser(NAME, __doc__)
    many, machines = whole(0, 1 << 40), "such files of other machines, for the table of trainings"
    parser.add_argument("--also", type=Path, nargs="+", default=[], help=machines)
    parser.add_argument("--steps", type=many, default=0, help="of each training; 0 is the examples' own number")
    parser.add_argument(
        "--time-limit-minutes", type=number(0, 1e6), default=0.0, help="end each training after this; 0 is no limit"
    )
    parser.add_argument("--markets", type=many, default=0, help="that train; 0 is the examples' own number")
    parser.add_argument("--episodes", type=many, default=0, help="of each comparison; 0 is the examples' own number")
    parser.add_argument("--seed", type=many, default=1, help="of the networks and the training markets (default: 1)")
    parser.add_argument(
        "--runs", type=Path, default=Path(f"runs/{NAME}"), help=f"folder of the four trainings (default: runs/{NAME})"
    )
    options = parser.parse_args(arguments)
    check_place(options)
    found = figures(options, NAME, lambda: measure(options, command_of(parser, options, WHERE)))
    others = [json.loads(path.read_text()) for path in options.also]
    found |= {"trainings": [row for one in (found, *others) for row in trainings(one)]}
    publish(options, NAME, found, draw)


if __name__ == "__main__":
    sys.exit(exit_code(main))
