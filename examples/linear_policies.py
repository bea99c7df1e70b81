"""Linear policies found by CMA-ES: the baseline that a learned policy has to beat.

An action is `clip(W x + b, -1, 1)`, x the environment's own observation, scaled. A market looks the same in a mirror
that swaps buying and selling, and so do these policies: there is one W for both sides, and for sales it is given the
observation's mirror image. The covariance matrix adaptation of the package `cma` (Hansen 2016, "The CMA evolution
strategy: a tutorial") looks for b, then for W and b. A generation is one vector environment, on a GPU one launch
(`linear_networks.py`), every candidate in the same markets; its score is the money of `evaluate`, so no reward and no
discount is chosen. Means are tried on further training seeds, and the best one plays held-out episodes.

    python examples/linear_policies.py --help
    python examples/linear_policies.py --task Trading --preset trading --time-limit-minutes 3
    python examples/linear_policies.py --sizes    # it also sees the sizes of moves and of its inventory
"""

import dataclasses
import itertools
import json
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from linear_networks import money
from ppo_comparison import machine_name
from tqdm import tqdm

from kineticsim_env import MarketConfig, run_seed
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.evaluation import HELD_OUT_SEED, MEASURES, confidence_interval, evaluate, evaluation_env
from kineticsim_env.runtime.options import changes_of

TRAINING = {"warm_seed": 2**61}  # the warm starts of training; evaluations have others
TRIED = 2**31  # seeds of a run, from here on, on which means are tried
SWAPPED = [(bid, bid + 10) for bid in range(10)] + [(37, 38)]  # of bids and of asks: depths, places in queues
TURNED = [21, 22, 23, 24, 25, 30]  # change their sign: last price less mid, moves of the mid, inventory
OWN = {  # what a mirror does to the rest of a learner's own features: swapped, turned
    "maker": ([(33, 35), (34, 36)], []),
    "executor": ([], [33, 34, 36]),
    "trader": ([], [33, 34]),
}


@dataclasses.dataclass
class Args:
    """Look for a linear policy with CMA-ES, and evaluate it on held-out seeds."""

    task: Literal["MarketMaking", "Execution", "Trading"] = "MarketMaking"
    """what to learn"""
    preset: str = EnvSettings.preset
    """the market"""
    set: tuple[str, ...] = ()
    """changes of its fields, such as quote_latency=10"""
    engine: Literal["auto", "cuda", "cpu", "numpy"] = "auto"
    """where the markets run"""
    seed: int = 1
    """seed of CMA-ES, and run r of the training markets (run_seed)"""
    sizes: bool = False
    """features are also the sizes of those that a mirror turns: moves of the mid, inventory"""
    generations: int = 0
    """how many; 0 is as many as the time limit lets, and 100 without one"""
    time_limit_minutes: float = 0.0
    """stop after this long; 0 is no limit"""
    population: int = 0
    """candidates per generation; 0 takes 32 on a CPU and 64 on a GPU"""
    markets: int = 0
    """that each of them plays; 0 takes 32 on a CPU and 512 on a GPU"""
    constants: int = 10
    """generations at the start that look for b alone, from a deviation of 0.5"""
    sigma: float = 0.03
    """deviation of the weights after these"""
    try_every: int = 10
    """generations between trials of the mean"""
    episodes: int = 2048
    """held-out ones, in the end"""
    output: Path = Path("runs/linear_policies")
    """folder of linear.json: weights, curve, money and times"""

    def fill_in(self, on_gpu: bool) -> None:
        """Fill in the values that depend on the machine."""
        self.population = self.population or (64 if on_gpu else 32)
        self.markets = self.markets or (512 if on_gpu else 32)
        self.generations = self.generations or (100_000 if self.time_limit_minutes else 100)


def mirror(role: str, features: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what buys and sells are swapped by, in observations of a role: places int64 `[F]`, signs float64 `[F]`."""
    swapped, turned = OWN[role]
    places, signs = torch.arange(features), torch.ones(features, dtype=torch.float64)
    for one, other in [*SWAPPED, *swapped]:
        if other < features:
            places[one], places[other] = other, one
    signs[[*TURNED, *turned]] = -1.0
    return places, signs


class Features:
    """What W is multiplied with: observations, perhaps some of their sizes, scaled, with a 1 behind, and mirrored.

    Mean and deviation are those under random actions, of observations and their mirror images together.
    """

    def __init__(self, envs: Any, sizes: bool, seed: int) -> None:
        """Play an episode of random actions, and look at what is seen."""
        self.role, self.sizes, self.device = envs.core.roles[0], sizes, envs.device
        width = envs.single_observation_space.shape[0]
        places, signs = mirror(self.role, width)
        self.places, self.signs = places.to(self.device), signs.to(self.device)
        self.turned = (signs < 0).nonzero()[:, 0].to(self.device)
        generator = torch.Generator().manual_seed(seed)
        seen = []

        def act(observation: torch.Tensor) -> torch.Tensor:
            rows = observation[:1024].double()
            seen.append(self.both(rows).flatten(0, 1))
            shape = (len(observation), envs.single_action_space.shape[0])
            return (torch.rand(shape, generator=generator) * 2 - 1).to(self.device)

        evaluate(act, envs, seed)
        whole = torch.cat(seen)
        self.mean, deviation = whole.mean(0), whole.std(0)
        self.scale = torch.where(deviation > 1e-3, deviation, 1.0)  # what never changes is left as it is
        self.number = len(self.mean) + 1

    def both(self, rows: torch.Tensor) -> torch.Tensor:
        """Return features of observations float64 `[..., N, F]` and of their mirror images, `[..., 2, N, F]`."""
        both = torch.stack([rows, rows[..., self.places] * self.signs], dim=-3)
        return torch.cat([both, both[..., self.turned].abs()], dim=-1) if self.sizes else both

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return them scaled, with a 1 behind, `[..., 2, N, number]`."""
        scaled = (self.both(rows) - self.mean) / self.scale
        return torch.cat([scaled, torch.ones_like(scaled[..., :1])], dim=-1)


class LinearPolicies:
    """P linear policies, called with the observations `[P * N, F]` of N markets for each of them, one after another.

    Products are in double, so that actions do not depend on how many policies there are; two rows of weights each:

    - a maker's offset and size, of its bid from what it sees, and of its ask from the mirror image;
    - an executor's aggression and size, from what it sees if it buys, or from the mirror image if it sells;
    - a trader's size, half of what it gets from what it sees less the same from the mirror image, and its aggression,
      from what it sees if that is a buy, else from the mirror image.
    """

    def __init__(self, features: Features, weights: torch.Tensor) -> None:
        """Take weights float64 `[P, 2, number]`."""
        self.features, self.weights = features, weights.to(features.device).mT.contiguous()

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        """Return actions float32 `[P * N, A]`."""
        rows = observation.double().unflatten(0, (len(self.weights), -1))
        seen = self.features(rows)  # [P, 2, N, number]
        outputs = torch.bmm(seen.flatten(1, 2), self.weights).unflatten(1, (2, -1))
        (one, two), (mirrored_one, mirrored_two) = outputs.permute(1, 3, 0, 2).flatten(2)  # [P * N] each
        if self.features.role == "maker":
            parts = [one, mirrored_one, two, mirrored_two]
        elif self.features.role == "executor":
            buys = observation[:, 33] > 0
            parts = [torch.where(buys, one, mirrored_one), torch.where(buys, two, mirrored_two)]
        else:
            size = (one - mirrored_one) / 2
            parts = [size, torch.where(size > 0, two, mirrored_two)]
        return torch.stack(parts, dim=1).clamp(-1.0, 1.0).float()


def score(policies: LinearPolicies, envs: Any, seed: int) -> np.ndarray:
    """Return the mean money of each of P policies, float64 `[P]`, all in the same markets from `seed` on."""
    seeds = seed + np.arange(envs.num_envs // (number := len(policies.weights)), dtype=np.int64)
    return money(policies, envs, np.tile(seeds, number)).reshape(number, -1).mean(1)


def train(args: Args, envs: Any, features: Features, progress: bool = True) -> dict[str, Any]:
    """Search; returns the best weights `[2, number]`, the curve of trials and the seconds that it took.

    Args:
        args: Filled in.
        envs: From `evaluation_env`, of `population * markets` markets and the warm starts of training.
        features: Of them.
        progress: Whether to show the bar.
    """
    try:
        import cma
    except ModuleNotFoundError as error:
        raise SystemExit("it needs the package cma: pip install 'kineticsim-env[train]'") from error

    for number in (1, args.population) if features.device.type == "cuda" else ():  # kernels are compiled before
        money(LinearPolicies(features, torch.zeros(number, 2, features.number, dtype=torch.float64)), envs, 0)
    begin, limit = time.perf_counter(), 60 * args.time_limit_minutes
    constants = 0 if args.task == "Trading" else args.constants  # in a trader's size b cancels
    seed, settings = run_seed(args.seed), {"popsize": args.population, "seed": args.seed, "verbose": -9}
    search = cma.CMAEvolutionStrategy(np.zeros(2), 0.5, settings)

    def whole(points: Any) -> np.ndarray:
        """Return weights `[P, 2, number]` of points of the search: weights, or b alone."""
        points = np.asarray(points)
        if points.shape[1] == 2 * features.number:
            return points.reshape(-1, 2, features.number)
        return np.concatenate([np.zeros((len(points), 2, features.number - 1)), points[..., None]], axis=2)

    best: dict[str, Any] = {"pnl": -np.inf}
    curve: list[dict[str, Any]] = []
    bar = tqdm(total=args.generations, desc="CMA-ES", unit="generation", disable=not progress)
    for generation in itertools.count():
        seconds = time.perf_counter() - begin
        over = generation >= args.generations or bool(limit and seconds >= limit)
        if generation == constants:
            search = cma.CMAEvolutionStrategy(whole([search.mean]).ravel(), args.sigma, settings)
        if over or generation % args.try_every == 0:
            mean = whole([search.mean])
            policy = LinearPolicies(features, torch.from_numpy(mean))
            (pnl, half), seconds = confidence_interval(money(policy, envs, seed + TRIED)), time.perf_counter() - begin
            curve.append({"generation": generation, "seconds": seconds, "pnl": pnl, "half": half})
            bar.set_postfix_str(f"{MEASURES[args.task]}: {pnl:.4g} ± {half:.2g}")
            if pnl > best["pnl"]:
                best = {**curve[-1], "weights": mean[0].tolist()}
        if over:
            break
        candidates = search.ask()
        policies = LinearPolicies(features, torch.from_numpy(whole(candidates)))
        search.tell(candidates, (-score(policies, envs, seed + generation * args.markets)).tolist())
        bar.update()
    bar.close()
    decisions = generation * args.population * args.markets * envs.core.task.horizon
    return {"best": best, "curve": curve, "generations": generation, "decisions": decisions, "seconds": seconds}


def main(args: Args) -> dict[str, Any]:
    """Search, evaluate, and write what was found; returns it."""
    begin = time.perf_counter()
    market = {"engine": args.engine, "config": MarketConfig.preset(args.preset, **changes_of(args.set))}
    args.fill_in(evaluation_env(1, args.task, **market).device.type == "cuda")
    envs = evaluation_env(args.population * args.markets, args.task, **market, **TRAINING)
    features = Features(envs, args.sizes, run_seed(args.seed))
    print(
        f"{args.population} candidates of {2 * features.number} weights, {args.markets} markets each, {envs.simulator}"
    )
    found = train(args, envs, features)
    policy = LinearPolicies(features, torch.tensor([found["best"]["weights"]], dtype=torch.float64))
    held_out = evaluate(policy, evaluation_env(args.episodes, args.task, **market), HELD_OUT_SEED).pnl_interval()
    found |= {
        "task": args.task,
        "args": dataclasses.asdict(args),
        "machine": machine_name(envs.device),
        "pnl": held_out,
        "mean": features.mean.tolist(),
        "scale": features.scale.tolist(),
        "seconds in all": time.perf_counter() - begin,
    }
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "linear.json").write_text(json.dumps(found, indent=1, default=str) + "\n")
    print(
        f"{MEASURES[args.task]}: {held_out[0]:.4g} ± {held_out[1]:.2g} on {args.episodes} held-out episodes, after "
        f"{found['generations']} generations, {found['decisions']:,} decisions, {found['seconds']:.1f} s "
        f"({found['seconds in all']:.1f} s with everything); see {args.output / 'linear.json'}"
    )
    return found


if __name__ == "__main__":
    main(tyro.cli(Args))
