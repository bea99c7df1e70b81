"""One task in one market of README.md: how its rows are measured, and what is compared; `__main__.py` asks."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from kineticsim_env import MarketConfig, run_seed
from kineticsim_env.engines import choose_engine
from kineticsim_env.evaluation import (
    HELD_OUT_SEED,
    MEASURES,
    Evaluation,
    confidence_interval,
    evaluate,
    evaluation_env,
)
from kineticsim_env.runtime.files import replacing
from scripts.pages.provenance import stamp

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import linear_policies  # noqa: E402
import ppo_executor  # noqa: E402
import ppo_fast  # noqa: E402
import ppo_trader  # noqa: E402
import tune_scripted_policies as tune  # noqa: E402
from linear_networks import networks_of  # noqa: E402
from ppo_comparison import keep_best, machine_name, save_policy, write_policy  # noqa: E402

NAME = "baselines"
LEARNERS: dict[str, Any] = {"MarketMaking": ppo_fast.Args, "Execution": ppo_executor.Args, "Trading": ppo_trader.Args}
PARTS = tuple(f"{task}:{preset}" for preset in ("news", "trading") for task in LEARNERS)
LEARNED, STACKED = "PPO", "PPO stacked"  # rows of them are of one seed each
MARKET_MAKER = {"num_steps": 64, "fused": False, "bf16": False}  # of ppo_market_maker.py, for every task
FURTHER: dict[str, dict[str, Any]] = {
    "PPO discrete": {"action_type": "discrete"},
    "PPO fast": {"fast": True},
    "PPO float32": MARKET_MAKER,
}
ON_A_GPU = {"num_envs": 16384, "total_steps": 200_000_000}  # more of `MARKET_MAKER`
LINEAR = {"linear": False, "linear, sizes too": True}  # whether it sees the sizes of moves


class Part:
    """One task in one market; every row that is measured has a file of its own, with money market by market."""

    def __init__(self, name: str, options: argparse.Namespace, command: str) -> None:
        """Make the environment of the held-out episodes."""
        self.name, self.options, self.command = name, options, command
        self.task, self.preset = name.split(":")
        self.market = {"config": MarketConfig.preset(self.preset), "engine": options.engine}
        self.held_out = evaluation_env(options.episodes, self.task, **self.market)
        self.engine = self.held_out.simulator.engine_name.split()[0]
        stem = f"{NAME}_{self.task}_{self.preset}_{self.engine}"
        self.file, self.folder = options.runs / f"{stem}.json", options.runs / stem
        self.folder.mkdir(parents=True, exist_ok=True)

    def wanted(self, name: str, group: str | None = None) -> bool:
        """Say whether a row is to be measured: it is not there, and it, or the group that it is of, was asked for."""
        asked = self.options.rows
        return (not asked or name in asked or group in asked) and not self.path(name).exists()

    def path(self, name: str) -> Path:
        """Return the file of a row."""
        return self.folder / f"{name.replace(', ', '_').replace(' ', '_')}.npz"

    def policy_path(self, name: str) -> Path:
        """Return the file of a row's policy."""
        return self.path(name).with_suffix(".safetensors")

    def command_for(self, name: str) -> str:
        """Return the command that measures one row."""
        return f'{self.command} --parts {self.name} --rows "{name}"'

    def row(
        self, name: str, measure: Callable[[], tuple[Evaluation, dict[str, Any]]], group: str | None = None
    ) -> None:
        """Measure a row, if it is wanted, and write its file."""
        if not self.wanted(name, group):
            return
        begin = time.perf_counter()
        result, more = measure()
        told = {
            "name": name,
            "pnl": result.pnl_interval(),
            "seconds": time.perf_counter() - begin,
            "traded": float(result.traded.mean()),
            "inventory": float(result.inventory.mean()),
            **more,
        }
        with replacing(self.path(name)) as part, open(part, "wb") as file:
            np.savez(file, money=result.pnl, told=np.array(json.dumps(told, default=str)))
        print(f"{self.name}, {name}: {show(result.pnl_interval())}, {more.get('note', '')}", flush=True)

    def measure(self) -> None:
        """Measure what is missing, and write the part's file where nothing is missing any more."""
        for name in LINEAR:
            self.row(name, lambda name=name: self.linear(name))
        self.learned(LEARNED, self.options.seeds)
        if self.options.stack > 1:
            self.learned(STACKED, self.options.stack_seeds, stack=self.options.stack)
        for group, changes in FURTHER.items():
            self.learned(group, self.options.further_seeds, **changes)
        self.row("informed", self.informed)
        self.scripted()
        self.compare()

    def training(self, markets: int, **settings: Any) -> Any:
        """Return an environment of the training seeds' warm starts, for `evaluate`."""
        return evaluation_env(markets, self.task, **self.market, **tune.TRAINING, **settings)

    # Rows -------------------------------------------------------------------------------------------------------------

    def scripted(self) -> None:
        """Play every scripted policy with the parameters that were best on training seeds."""
        if self.options.rows and "scripted" not in self.options.rows:
            return
        entry = tune.load(self.task, self.training(2), tune.FOUND, (self.preset, ()))["policies"]
        made, notes = tune.make_all(entry, self.held_out.core.task), tune.notes_of(entry)
        for name, policy in made.items():
            score = entry[name]["score"][0]

            def play(policy: Any = policy, name: str = name, score: float = score) -> tuple[Evaluation, dict[str, Any]]:
                return evaluate(policy, self.held_out, HELD_OUT_SEED), {"note": notes.get(name, ""), "score": score}

            self.row(name, play, "scripted")

    def informed(self) -> tuple[Evaluation, dict[str, Any]]:
        """Play the policy that is told the fundamental price, with the parameters that were best on training seeds."""
        one = tune.load(self.task, self.training(2), tune.FOUND, (self.preset, ()))["informed"]
        told = evaluation_env(self.options.episodes, self.task, see_fundamental=True, **self.market)
        played = evaluate(tune.make_scripted(one, told.core.task), told, HELD_OUT_SEED)
        return played, {"note": tune.notes_of({"informed": one})["informed"], "parameters": one["parameters"]}

    def linear(self, name: str) -> tuple[Evaluation, dict[str, Any]]:
        """Look for a linear policy by CMA-ES, and play it."""
        options, sizes = self.options, LINEAR[name]
        where: dict[str, Any] = {"task": self.task, "preset": self.preset, "sizes": sizes}
        args = linear_policies.Args(
            **where,
            time_limit_minutes=options.linear_minutes,
            generations=options.generations,
            population=options.population,
            markets=options.markets_each,
        )
        args.fill_in(self.held_out.device.type == "cuda")
        envs = self.training(args.population * args.markets)
        features = linear_policies.Features(envs, sizes, run_seed(args.seed))
        found = linear_policies.train(args, envs, features)
        weights = torch.tensor([found["best"]["weights"]], dtype=torch.float64)
        played = evaluate(linear_policies.LinearPolicies(features, weights), self.held_out, HELD_OUT_SEED)
        network = networks_of(features, weights.to(features.device), self.held_out.core.task.max_qty)[0]
        as_network = evaluate(network.act, self.held_out, HELD_OUT_SEED)
        write_policy(self.policy_path(name), network, self.task, self.preset, as_network, self.command_for(name))
        kept = {name: found[name] for name in ("generations", "decisions", "curve")}
        note = f"{weights.numel()} weights, {found['generations']} generations of {args.population} x {args.markets}"
        return played, {**kept, "training": found["seconds"], "note": note}

    def learned(self, group: str, seeds: int, **changes: Any) -> None:
        """Train PPO from each seed with the same buffers and captured programs, and play what it kept."""
        options, names = self.options, {seed: f"{group}, seed {seed}" for seed in range(1, seeds + 1)}
        if not any(self.wanted(name, group) for name in names.values()):
            return
        kind, device = LEARNERS[self.task], choose_engine(options.engine)[1]
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high")
            changes |= ON_A_GPU if group == "PPO float32" else {}
        args = kind(preset=self.preset, engine=options.engine, track=False, eval_envs=options.episodes, **changes)
        args.time_limit_minutes, args.total_steps = options.ppo_minutes, options.steps or args.total_steps
        if options.ppo_markets:
            args.num_envs = options.ppo_markets
        if options.ppo_minutes and not options.steps:
            args.total_steps = 10**12  # the time limit ends it
        args.fill_in(device.type == "cuda")
        market: dict[str, Any] = {**args.market(), "engine": options.engine, "action_type": args.action_type}
        returned: dict[str, Any] = {"output": "torch", "copy": False}
        envs: Any = gym.make_vec(f"KineticSim/{self.task}-v0", num_envs=args.num_envs, **returned, **market)
        held_out = evaluation_env(options.episodes, self.task, action_type=args.action_type, **self.market)
        watched = evaluation_env(max(options.episodes // 8, 1), self.task, **market, **tune.TRAINING)
        envs, held_out, watched = (args.stacked(each) for each in (envs, held_out, watched))
        networks = ppo_fast.networks_for(args, envs)
        trainer = ppo_fast.Trainer(args, envs, networks)
        envs.reset(seed=run_seed(1))
        preparing = trainer.prepare()
        shown = ("num_envs", "num_steps", "gamma", "gae_lambda", "hidden", "reward", "reward_scale", "update_epochs")
        settings = {name: getattr(args, name) for name in (*shown, "inventory_penalty", "stack")}
        settings["updates"] = trainer.how.removeprefix("updates are ")
        for seed, name in names.items():
            args.seed, args.output = seed, self.folder / self.path(name).stem
            args.output.mkdir(parents=True, exist_ok=True)
            torch.manual_seed(seed)
            networks.load_state_dict(ppo_fast.networks_for(args, envs).state_dict())

            def train(name: str = name) -> tuple[Evaluation, dict[str, Any]]:
                curve = ppo_fast.train(args, envs, networks, watched, trainer)
                kept = keep_best(networks, curve, args.output)
                last = curve[-1]
                note = f"{last['steps'] / 1e6:,.1f} M decisions, kept that after {kept['steps'] / 1e6:,.1f} M"
                found = {"training": last["seconds"], "wall": last["wall"], "steps": last["steps"], "kept": kept}
                found |= {"curve": curve, "note": note, "preparing": preparing, "settings": settings}
                played = evaluate(networks.act, held_out, HELD_OUT_SEED)
                save_policy(self.policy_path(name), networks, args, played, self.command_for(name))
                return played, found

            self.row(name, train, group)

    def compare(self) -> None:
        """Write the part's file: all rows, the mean of PPO's seeds, and what it leads others by, episode by episode."""
        names = [f"{LEARNED}, seed {seed}" for seed in range(1, self.options.seeds + 1)]
        if not all(self.path(name).exists() for name in (*LINEAR, *names, "informed")):
            return
        money, rows = {}, {}
        for path in sorted(self.folder.glob("*.npz")):
            with np.load(path) as kept:
                told = json.loads(str(kept["told"]))
                money[told["name"]], rows[told["name"]] = kept["money"], told
        tried = [name for name in rows if "score" in rows[name]]
        if not tried:
            return
        scripted = max(tried, key=lambda name: rows[name]["score"])
        mean = np.mean([money[name] for name in names], axis=0)
        rivals = [*LINEAR, "informed", scripted]
        further = {}
        for group in (STACKED, *FURTHER):
            of = [name for name in rows if name.startswith(f"{group}, ")]
            if of:
                money[group] = np.mean([money[name] for name in of], axis=0)
                rivals.append(group)
                further[group] = together(group, of, money, rows) | {"settings": rows[of[0]]["settings"]}
        stacked = further.pop(STACKED, None)
        if stacked:
            stacked["stack"] = stacked.pop("settings")["stack"]
        found = {
            "part": self.name,
            "engine": self.engine,
            "machine": machine_name(self.held_out.device),
            "date": datetime.date.today().isoformat(),
            "command": self.command,
            "rules": stamp("baselines"),
            "episodes": self.options.episodes,
            "measure": MEASURES[self.task],
            "rows": rows,
            "scripted": scripted,
            "ppo": rows[names[0]]["settings"],
            "learned": together(LEARNED, names, money | {LEARNED: mean}, rows),
            "stacked": stacked,
            "further": further,
            "leads": {rival: confidence_interval(mean - money[rival]) for rival in rivals},
            "seed_leads": {
                rival: {name: confidence_interval(money[name] - money[rival]) for name in names} for rival in rivals
            },
        }
        with replacing(self.file) as part:
            part.write_text(json.dumps(found, indent=1, default=str) + "\n")


def together(group: str, names: Sequence[str], money: Any, rows: Any) -> dict[str, Any]:
    """Return the money of a group, the mean of its seeds market by market, each seed's, and the seconds of one."""
    return {
        "pnl": confidence_interval(money[group]),
        "seeds": [float(money[name].mean()) for name in names],
        "seconds": float(np.mean([rows[name]["wall"] for name in names])),
    }


def show(interval: Sequence[float]) -> str:
    """Return a mean and half of its interval, for the terminal."""
    return f"{interval[0]:.4g} ± {interval[1]:.2g}"
