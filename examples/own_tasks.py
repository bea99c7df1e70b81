"""Three questions as tasks of one's own, classes of `ks.CustomTask`: trained by PPO, and set beside simple rules.

Inventory near a target that wanders, a trader with a noisy signal, the hedger of an option: docs/question_to_task.md
goes through them. PPO is that of `ppo_market_maker.py`. What a policy is measured by is the sum of what the task pays
in an episode, on episodes that no training has seen.

    python examples/own_tasks.py --tasks MovingTarget --minutes 1
    python examples/own_tasks.py --minutes 0.5 --seeds 3
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tqdm import tqdm

import kineticsim_env as ks
from kineticsim_env.evaluation import HELD_OUT_SEED, confidence_interval, evaluate, evaluation_env

sys.path.insert(0, str(Path(__file__).resolve().parent))

import ppo_market_maker as ppo  # noqa: E402

LOTS = 8  # units that an action of 1 trades: the task's `max_qty`


class MovingTarget(ks.CustomTask):
    """Hold as many units as a target says that wanders by a unit or so per decision, and pay for what trades cost.

    A custodian whose clients come and go, or a tracker of an index, has such a target. Paid is what the account makes
    at the mid, less a penalty that grows with the square of the distance.
    """

    memory = {"target": torch.float32}
    episode_draws = decision_draws = 1

    def begin(self, after, draws):
        return {"target": torch.round(20 * draws.uniform[:, 0] - 10)}

    def update(self, before, after, memory, draws):
        step = torch.floor(5 * draws.uniform[:, 0]) - 2  # -2 to 2, all as likely
        return {"target": (memory.target + step).clamp(-40, 40)}

    def reward(self, before, after, memory):
        made = after.cash - before.cash - (after.fees - before.fees) / 1000
        made = made + after.mid * (after.inventory - before.inventory)  # at the mid after it: what trades cost
        return (made - 0.5 * (after.inventory - memory.target) ** 2) / 100

    def features(self, after, memory):
        return [memory.target / 40, (memory.target - after.inventory) / 10]


class NoisySignal(ks.CustomTask):
    """Trade on an estimate of what the asset is worth whose error, of 8 ticks, is drawn anew in every decision.

    What is paid is the built-in reward. The last four estimates are remembered: their mean is worth more than one.
    """

    memory = {"signals": (torch.float32, (4,))}
    episode_draws, decision_draws = 8, 2

    def noise(self, uniform):
        """Two uniform numbers make a normal one (Box and Muller 1958)."""
        return 8 * torch.sqrt(-2 * torch.log1p(-uniform[..., 0])) * torch.cos(2 * math.pi * uniform[..., 1])

    def begin(self, after, draws):
        worth = (after.fundamental - after.mid).float()
        return {"signals": worth[:, None] + self.noise(draws.uniform.unflatten(-1, (4, 2)))}

    def update(self, before, after, memory, draws):
        newest = (after.fundamental - after.mid).float() + self.noise(draws.uniform)
        return {"signals": torch.cat([memory.signals[:, 1:], newest[:, None]], 1)}

    def features(self, after, memory):
        return memory.signals / 16


class OptionHedger(ks.CustomTask):
    """Hedge 20 calls that were sold at the money and end with the episode: an action says which share of them to hold.

    Paid is the change of all one has (cash, units at the mid, calls at Bachelier's price), less its square: who hedges
    too little pays by risk, who hedges too often by what trades cost.
    """

    calls, volatility, aversion, horizon = 20, 6.0, 0.01, 300  # in `news` the mid moves by 6 ticks in a decision
    memory = {"strike": torch.float64, "liability": torch.float64, "owed": torch.float64}
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def price(self, after, strike):
        """Bachelier (1900): the price and the delta of a call whose underlying has normal increments."""
        left = (self.horizon - after.elapsed).clamp(min=1e-6).sqrt() * self.volatility
        far = (after.mid - strike) / left
        share = torch.special.ndtr(far)
        return (after.mid - strike) * share + left * torch.exp(-far * far / 2) / math.sqrt(2 * math.pi), share

    def begin(self, after, draws):
        return {"strike": after.mid, "liability": self.calls * self.price(after, after.mid)[0]}

    def update(self, before, after, memory, draws):
        liability = self.calls * self.price(after, memory.strike)[0]
        return {"liability": liability, "owed": liability - memory.liability}

    def reward(self, before, after, memory):
        made = after.cash - before.cash + after.inventory * after.mid - before.inventory * before.mid
        made = made - (after.fees - before.fees) / 1000 - memory.owed
        return (made - self.aversion * made * made) / 10

    def features(self, after, memory):
        _, delta = self.price(after, memory.strike)
        return [delta, delta - after.inventory / self.calls, (after.mid - memory.strike) / 50]

    def orders(self, action, view, memory):
        wanted = self.calls * (action[:, 0] + 1) / 2 - view.inventory
        size = (wanted / LOTS).clamp(-1, 1).float()
        return torch.stack([size, torch.ones_like(size)], 1)  # through the mid: at once


# Rules to beat, of observations: a task's own features are the last columns ------------------------------------------


def trade(units: torch.Tensor, aggression: float = 1.0) -> torch.Tensor:
    """Return the built-in action of a trader: signed units, at so much through the mid."""
    size = (units / LOTS).clamp(-1.0, 1.0)
    return torch.stack([size, torch.full_like(size, aggression)], 1)


def follow(seen: torch.Tensor, least: float, aggression: float = 1.0) -> torch.Tensor:
    """Hold all one can on the side of the mean signal, where it is at least so many ticks, else nothing."""
    signal = 16 * seen[:, -4:].mean(1)
    wanted = 40 * torch.sign(signal) * (signal.abs() >= least)
    return trade(wanted - 40 * seen[:, 30], aggression)  # column 30 is the inventory, as a share of its limit


RULES: dict[str, dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "MovingTarget": {
        "do nothing": lambda seen: trade(0 * seen[:, 0]),
        "close the gap at once": lambda seen: trade(10 * seen[:, -1]),
        "close the gap at the mid": lambda seen: trade(10 * seen[:, -1], 0.0),
    },
    "NoisySignal": {
        "do nothing": lambda seen: trade(0 * seen[:, 0]),
        "follow the mean of 4": lambda seen: follow(seen, 0.0, 0.0),
        "follow it from 6 ticks on": lambda seen: follow(seen, 6.0, 0.0),
        "the same, at once": lambda seen: follow(seen, 6.0),
    },
    "OptionHedger": {
        "hedge nothing": lambda seen: torch.full_like(seen[:, :1], -1.0),
        "hold the delta": lambda seen: 2 * seen[:, -3:-2] - 1,
    },
}
TASKS = {task.__name__: task for task in (MovingTarget, NoisySignal, OptionHedger)}
BLIND = "PPO, without the signal"  # a null model: the built-in task of the same pay


def train(task: ks.CustomTask | None, seed: int, args: argparse.Namespace, label: str) -> ppo.ActorCritic:
    """Train PPO on a task for some minutes, or so many updates."""
    settings = ppo.Args(seed=seed, num_envs=args.markets)
    torch.manual_seed(seed)
    envs: Any = gym.make_vec("KineticSim/Trading-v0", num_envs=args.markets, output="torch", custom_task=task)
    sizes = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]
    networks = ppo.ActorCritic(*sizes, settings.hidden, settings.initial_std).to(envs.device)
    optimizer = torch.optim.Adam(networks.parameters(), lr=settings.learning_rate, eps=1e-5)
    observation, _ = envs.reset(seed=ks.run_seed(seed))
    done, began = 0.0, time.perf_counter()
    with tqdm(total=100, unit="%", desc=label) as bar:
        updates = 0
        while done < 1:
            optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - 0.9 * done)
            rollout, observation = ppo.play(settings, envs, networks, observation)
            with torch.no_grad():
                gain = ppo.advantages(rollout, networks.value(observation), settings.gamma, settings.gae_lambda)
            ppo.update(settings, networks, optimizer, rollout, gain)
            updates += 1
            minutes = (time.perf_counter() - began) / 60
            done = min(1.0, updates / args.updates if args.updates else minutes / args.minutes)
            bar.update(round(100 * done) - bar.n)
    envs.close()
    return networks


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Train on a task, and play all policies on the same held-out episodes; returns what each was paid."""
    task = TASKS[name]()
    held_out = evaluation_env(args.episodes, "Trading", custom_task=task)
    policies: dict[str, tuple[Any, Any]] = {rule: (policy, held_out) for rule, policy in RULES[name].items()}
    for seed in range(1, args.seeds + 1):
        policies[f"PPO, seed {seed}"] = train(task, seed, args, f"{name}, seed {seed}").act, held_out
    if name == "NoisySignal":
        blind = evaluation_env(args.episodes, "Trading")
        policies[BLIND] = train(None, 1, args, BLIND).act, blind
    paid = {name: evaluate(policy, envs, HELD_OUT_SEED).episode_return for name, (policy, envs) in policies.items()}
    best = max((rule for rule in RULES[name]), key=lambda rule: paid[rule].mean())
    rows = {
        row: {
            "paid": confidence_interval(found),
            "deviation": float(np.std(found, ddof=1)),
            "lead": confidence_interval(found - paid[best]),  # over the best rule, episode by episode
        }
        for row, found in paid.items()
    }
    return {"task": name, "best_rule": best, "episodes": args.episodes, "rows": rows}


def main(words: Sequence[str] | None = None) -> dict[str, Any]:
    """Train on some tasks, and print what was paid; returns it."""
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--minutes", type=float, default=1.0, help="of each training (default: 1)")
    parser.add_argument("--updates", type=int, default=0, help="of each training, instead of minutes")
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each task (default: 1)")
    parser.add_argument("--markets", type=int, default=16384 if on_gpu else 256, help="that train")
    parser.add_argument("--episodes", type=int, default=16384 if on_gpu else 1024, help="held out (here: %(default)s)")
    args = parser.parse_args(words)
    found = []
    for name in args.tasks:
        found.append(measure(name, args))
        print(f"\n{name}: paid per episode, {args.episodes} held-out episodes, 95% intervals")
        for row, of in found[-1]["rows"].items():
            (mean, half), (lead, about) = of["paid"], of["lead"]
            print(f"  {row:26s} {mean:9.1f} ± {half:5.1f}   over {found[-1]['best_rule']}: {lead:8.1f} ± {about:5.1f}")
    return {"minutes": args.minutes, "markets": args.markets, "tasks": found}


if __name__ == "__main__":
    main()
