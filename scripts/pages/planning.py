"""Measure and write docs/planning.md: what a planner earns, by what it is let know, and how long forks take.

python -m scripts.pages.planning --measure    # plays, writes the file and the page
python -m scripts.pages.planning              # the page, from the file
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import kineticsim_env as ks
from examples.planner import RolloutPlanner
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.evaluation import HELD_OUT_SEED, Evaluation, difference, evaluate, evaluation_env
from kineticsim_env.zoo.scripted_policies import make_scripted, scripted
from scripts.machine import describe
from scripts.pages.command import figures_in, file_parser
from scripts.pages.markdown import plus_minus, replaced, table, wrapped
from scripts.pages.provenance import ROOT, stamped

PRESET = EnvSettings.preset
PAGE, FILE = ROOT / "docs" / "planning.md", ROOT / "docs" / "benchmarks" / "planning.json"
SEED = HELD_OUT_SEED + ks.run_seed(1000)
BASE, TRAINED = "momentum", f"{PRESET}/trading/ppo"
FIRST = [[0.0, 0.0], *([size, ticks] for size in (-1.0, 1.0) for ticks in (-0.3, 0.2))]  # hold; passive, aggressive
KNOWS = {  # whoever plays, and what it goes by
    BASE: "scripted, the planner's base: observations",
    TRAINED: "trained by PPO: observations",
    "unaware": "planner: its market but for the fundamental price, for which it takes the last price",
    "other futures": "planner: all of its market as it is now",
    "clairvoyant": "planner: all of its market, and all that is to come",
}
PAIRS = {  # what the first made more than the second
    ("clairvoyant", "other futures"): "knowing the future",
    ("other futures", "unaware"): "knowing the fundamental price",
    ("other futures", TRAINED): "planning with all of the present known, over PPO",
    ("unaware", BASE): "planning on a guess, over its base",
}
ROWS = (1, 16, 64)


def unaware(rows: Any) -> None:
    """Put the last price in the place of the fundamental price, which no learner of the task sees."""
    rows.simulator.fundamental_price.copy_(rows.simulator.last_price)


def players(envs: Any, depth: int, futures: int) -> dict[str, Any]:
    """Return who plays, by the names of `KNOWS`."""
    base = make_scripted(scripted("Trading", PRESET)[BASE], envs.core.task)
    how: dict[str, Any] = {"depth": depth, "first": torch.tensor(FIRST)}
    return {
        BASE: base,
        TRAINED: ks.load_policy(TRAINED),
        "unaware": RolloutPlanner(envs, base, futures=futures, guess=unaware, **how),
        "other futures": RolloutPlanner(envs, base, futures=futures, **how),
        "clairvoyant": RolloutPlanner(envs, base, futures=0, **how),
    }


def measure(episodes: int, depth: int, futures: int) -> dict[str, Any]:
    """Play all of them; returns what the page shows."""
    torch.set_num_threads(1)
    envs = evaluation_env(episodes, "Trading", engine="cpu")
    results: dict[str, Evaluation] = {}
    seconds: dict[str, float] = {}
    for name, policy in players(envs, depth, futures).items():
        began = time.perf_counter()
        results[name] = evaluate(policy, envs, SEED)
        seconds[name] = time.perf_counter() - began
        print(f"{name}: {plus_minus(results[name].pnl_interval())}, {seconds[name]:.0f} s", flush=True)
    leads = {pair: difference(*(results[name] for name in pair)) for pair in PAIRS}
    found = {
        "machine": describe(),
        "seed": SEED,
        "setting": {"episodes": episodes, "depth": depth, "futures": futures},
        "results": {name: result.pnl_interval() for name, result in results.items()},
        "leads": [[*pair, lead.mean, lead.interval()] for pair, lead in leads.items()],
        "seconds": seconds,
        "times": times(),
    }
    return stamped("planning", found)


def times() -> dict[str, Any]:
    """Return how long forks, clones and steps take, medians in microseconds."""
    env: Any = gym.make("KineticSim/Trading-v0").unwrapped
    env.reset(seed=0)
    action = np.zeros(2, np.float32)
    found: dict[str, Any] = {"step": median(lambda: env.step(action), 200), "clone": median(env.clone, 50), "rows": {}}
    for n in ROWS:
        rows = env.fork(0, n)
        actions = np.zeros((n, 2), np.float32)
        found["rows"][str(n)] = {
            "the market's own future": median(lambda n=n: env.fork(0, n)),
            "other futures": median(lambda n=n: env.fork(0, n, 2**50)),
            "a step of the rows": median(lambda rows=rows, actions=actions: rows.step(actions), 200),
        }
    return found


def median(call: Callable[[], Any], times: int = 1000) -> float:
    """Return how long a call takes, in microseconds."""
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds[times // 10 :])) * 1e6


def earned(record: Mapping[str, Any]) -> str:
    """Return the tables of what was earned."""
    rows = [[name, KNOWS[name], plus_minus(record["results"][name])] for name in KNOWS]
    who = table(("who", "what it knows", "liquidated PnL, ticks"), rows, (False, False, True))
    leads = {(one, other): plus_minus(lead) for one, other, *lead in record["leads"]}
    rows = [[PAIRS[pair], f"{pair[0]} less {pair[1]}", leads[pair]] for pair in PAIRS]
    worth = table(("worth", "of", "ticks per episode, paired"), rows, (False, False, True))
    setting, machine, rules = record["setting"], record["machine"], record["rules"]
    how = wrapped(
        f"[Measured](benchmarks/{FILE.name}): {setting['episodes']} episodes of `KineticSim/Trading-v0` in `{PRESET}`, "
        f"the same for all, from the seed {record['seed']}; rollouts of {setting['depth']} decisions, "
        f"{len(FIRST)} first actions and the base's own, {setting['futures']} futures each; {rules['date']}, commit "
        f"{rules['commit']}, in {sum(record['seconds'].values()):.0f} seconds on one core of {machine['cpu']}, which "
        "others used too. ± is half of a 95% interval over episodes."
    )
    return f"{who}\n\n{worth}\n\n{how}"


def timed(record: Mapping[str, Any]) -> str:
    """Return the table of how long forks take."""
    found = record["times"]
    rows = [[n, *(f"{value:.0f}" for value in each.values())] for n, each in found["rows"].items()]
    heads = ("rows", *(f"{name}, us" for name in next(iter(found["rows"].values()))))
    said = wrapped(
        "Medians on the same core, of one market of `gymnasium.make`, whose own step takes "
        f"{found['step']:.0f} us there and a `clone()` {found['clone'] / 1000:.1f} ms."
    )
    return f"{table(heads, rows, [True] * len(heads))}\n\n{said}"


def write(record: Mapping[str, Any], page: Path) -> None:
    """Fill the page."""
    text = replaced(page.read_text(), "earned", earned(record))
    page.write_text(replaced(text, "timed", timed(record)))


def main(words: Sequence[str] | None = None) -> None:
    """Measure, if that is asked for, and write the page."""
    parser = file_parser(__doc__, "play them all", FILE, PAGE)
    parser.add_argument("--episodes", type=int, default=64, help="of each (default: 64)")
    parser.add_argument("--depth", type=int, default=8, help="decisions of a rollout (default: 8)")
    parser.add_argument("--futures", type=int, default=8, help="per first action (default: 8)")
    options = parser.parse_args(words)
    write(figures_in(options, lambda: measure(options.episodes, options.depth, options.futures)), options.page)
    print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
