"""`python -m examples.studies.rewards.learning` trains PPO on several rewards for as many steps: what does it earn?

It writes learning.json, and fills README.md. The learner is that of `examples/ppo_fast.py` with its own settings, of
which only the reward is changed; what counts is the policy at the end.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from gymnasium.spaces import flatdim

from kineticsim_env.config import MarketConfig
from kineticsim_env.evaluation import HELD_OUT_SEED, evaluate, evaluation_env
from kineticsim_env.runtime.files import check_folder, replacing
from kineticsim_env.runtime.options import exit_code, whole
from scripts.pages.blocks import fill
from scripts.pages.command import measurement, page_parser
from scripts.pages.provenance import stamp

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import ppo_fast  # noqa: E402

MARKETS = 256
REWARDS: dict[str, dict[str, Any]] = {
    "edge": {"reward": "edge"},
    "pnl": {"reward": "pnl"},
    "inventory, 0.002": {"reward": "inventory", "inventory_penalty": 0.002},
    "inventory, 0.01": {"reward": "inventory", "inventory_penalty": 0.01},
}
PLACES = {  # preset and task: what is tried there, the former default last
    ("news", "MarketMaking"): ("edge", "pnl", "inventory, 0.002", "inventory, 0.01"),
    ("trading", "MarketMaking"): ("edge", "pnl", "inventory, 0.01"),
    ("news", "Trading"): ("edge", "pnl", "inventory, 0.002"),
}


def train(preset: str, task: str, reward: str, seed: int, options: argparse.Namespace) -> tuple[float, float]:
    """Train once; returns the mean liquidated PnL on held-out seeds, and half of its 95% interval."""
    args = ppo_fast.Args(seed=seed, total_steps=options.steps, track=False, eval_every=2**31)
    market: dict[str, Any] = {"config": MarketConfig.preset(preset), "engine": options.engine}
    torch.manual_seed(seed)
    envs: Any = gym.make_vec(
        f"KineticSim/{task}-v0",
        num_envs=MARKETS,
        output="torch",
        copy=False,
        reward_scale=args.reward_scale,
        **market,
        **REWARDS[reward],
    )
    args.num_envs = envs.num_envs
    sizes = flatdim(envs.single_observation_space), flatdim(envs.single_action_space)
    networks = ppo_fast.ActorCritic(*sizes, args.hidden, args.initial_std).to(envs.device)
    with tempfile.TemporaryDirectory() as folder:
        args.output = Path(folder)
        ppo_fast.train(args, envs, networks, evaluation_env(2, task, **market))
    return evaluate(networks.act, evaluation_env(options.markets, task, **market), HELD_OUT_SEED).pnl_interval()


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and write every figure."""
    parser = page_parser("rewards.learning", __doc__, 1024, "held-out episodes", kept=False)
    parser.add_argument("--steps", type=whole(1, 10**10), default=3_000_000, help="decisions to train for")
    parser.add_argument("--seeds", type=whole(1, 100), default=3, help="training seeds")
    options = parser.parse_args(arguments)
    check_folder("--output", options.output)
    began, rows = time.perf_counter(), []
    for (preset, task), rewards in PLACES.items():
        runs: dict[str, list[tuple[float, float]]] = {reward: [] for reward in rewards}
        for seed in range(1, options.seeds + 1):
            for reward, found in runs.items():
                found.append(train(preset, task, reward, seed, options))
                print(f"{preset} {task} {reward} seed {seed}: {found[-1][0]:.0f} ± {found[-1][1]:.0f}", flush=True)
        for reward, found in runs.items():
            rows.append({"preset": preset, "task": task, "reward": reward, "runs": found})
        sizes = {"steps": options.steps, "markets": options.markets, "parallel": MARKETS}
        record = measurement(options, began) | sizes | {"rows": rows, "rules": stamp("rewards.learning")}
        with replacing(options.output / "learning.json") as part:
            part.write_text(json.dumps(record, indent=1) + "\n")
    fill(options.output, "rewards")


if __name__ == "__main__":
    sys.exit(exit_code(main))
