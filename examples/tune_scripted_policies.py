"""Search the parameters of the scripted policies that the PPO examples are compared with.

What it finds is `kineticsim_env/zoo/scripted_policies.json`: for each task and market the market's fields, the seeds,
the scores and the best parameters. Every combination of the grids below plays the same whole episodes on training
seeds, with the limits of a learner. It takes about six minutes on two CPU cores; repeat it when the market or a policy
has changed. What the file says of other markets stays.

    python examples/tune_scripted_policies.py
    python examples/tune_scripted_policies.py --preset trading
    python examples/tune_scripted_policies.py --preset continuous --set quote_latency=10 --tasks MarketMaking
    python examples/tune_scripted_policies.py --set orders_per_side=3    # makers with ladders, too
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from kineticsim_env import MarketConfig, policies, run_seed
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.evaluation import MEASURES, evaluation_env, grid_search
from kineticsim_env.runtime.options import changes_of
from kineticsim_env.zoo import SCRIPTED, make_scripted

FOUND = SCRIPTED
COMMAND = "python examples/tune_scripted_policies.py"
SEED = run_seed(1)  # where run 1 trains
TRAINING = {"warm_seed": 2**61}  # the warm starts of training; evaluations have others
DEFAULT = (EnvSettings.preset, ())  # the default market: a preset, and changes of its fields
PAYMENT = ("reward", "mark", "inventory_penalty", "dampening", "idle_penalty", "risk_aversion", "reward_scale")

TICKS = [-6, -4, -2, 0, 4, 10]
GLFT = {
    "gamma": [0.003, 0.01, 0.03, 0.1],
    "kappa": [0.12, 0.15, 0.18, 0.21, 0.25, 0.3, 0.4],
    "arrivals": [0.1, 0.3, 1.0],
}
TREND = {"threshold": [0.5, 1, 2, 4, 8], "position": [8, 20, 40], "ticks": [-2, 0, 4, 10]}
# For each task the policies, and the values to try of each parameter.
GRIDS: dict[str, dict[str, tuple[Any, dict[str, list]]]] = {
    "MarketMaking": {
        "no trade": (policies.NoTrade, {}),
        "random quotes": (policies.RandomQuotes, {}),
        "fixed spread": (policies.FixedSpread, {"half_spread": [2, 3, 4, 5, 6, 7], "qty": [4, 6, 8]}),
        "quiet quotes": (
            policies.QuietQuotes,
            {"half_spread": [4, 5, 6], "limit": [2, 4], "skew": [0.0, 0.06]},
        ),
        "Avellaneda-Stoikov": (
            policies.AvellanedaStoikov,
            {
                "risk": [0.01, 0.02, 0.04, 0.06, 0.08, 0.12],
                "kappa": [0.12, 0.15, 0.18, 0.21, 0.25, 0.3, 0.4],
                "stationary": [True, False],
            },
        ),
        "Guéant-Lehalle-Fernandez-Tapia": (policies.GueantLehalleFernandezTapia, GLFT),
    },
    "Execution": {
        "all at the deadline": (policies.DoNothing, {}),
        "all at once": (policies.ImmediateExecution, {}),  # 10 ticks through the mid
        "random orders": (policies.RandomOrders, {}),
        "resting order": (policies.ImmediateExecution, {"ticks": [-8, -6, -5, -4, -3, -2]}),  # all that is left
        "TWAP": (policies.TimeWeighted, {"ticks": TICKS, "urgent": [1, 5, 15]}),
        "VWAP": (policies.VolumeWeighted, {"ticks": TICKS, "urgent": [1, 5, 15], "slack": [0.1, 0.3]}),
        "Almgren-Chriss": (
            policies.AlmgrenChriss,
            {"ticks": TICKS, "urgent": [1, 5, 15], "risk": [1e-4, 1e-3, 1e-2]},
        ),
    },
    "Trading": {
        "no trade": (policies.Hold, {}),
        "random orders": (policies.RandomTrader, {}),
        "buy and hold": (policies.BuyAndHold, {}),
        "momentum": (policies.MomentumTrader, TREND),
        "mean reversion": (policies.MeanReversionTrader, TREND),
    },
}
# In markets of ladders these as well; those above quote one order per side there, too.
LADDERS: dict[str, dict[str, tuple[Any, dict[str, list]]]] = {
    "MarketMaking": {
        "equal ladder": (
            policies.LadderMaker,
            {"half_spread": [2, 3, 4, 5, 6], "spacing": [1, 2], "skew": [0.0, 0.06], "qty": [4, 8]},
        ),
        "Guéant-Lehalle-Fernandez-Tapia ladder": (policies.GueantLehalleFernandezTapiaLadder, GLFT),
    }
}
# Who is told the fundamental price, and the values to try.
INFORMED: dict[str, tuple[Any, dict[str, list]]] = {
    "MarketMaking": (
        policies.InformedMaker,
        {"half_spread": [0, 1, 2, 4], "margin": [1, 2, 3, 4], "skew": [0.0, 0.06]},
    ),
    "Execution": (
        policies.InformedExecutor,
        {"threshold": [0, 2, 4], "ticks": [-2, 0, 2, 4], "waits": [-8, -5, -3], "urgent": [1, 10]},
    ),
    "Trading": (
        policies.InformedTrader,
        {"threshold": [0.5, 1, 2, 4], "position": [40], "ticks": [-4, -2, 0, 2, 4, 10]},
    ),
}
# Other values in other presets. Where a quote may be late, good makers stand further from the mid than in an auction;
# among many orders and other makers, nearer.
OTHERS: dict[str, dict[str, list]] = {
    "continuous": {"half_spread": [3, 4, 5, 6, 7, 8, 9, 10], "kappa": [0.06, 0.08, 0.1, 0.12, 0.15, 0.18, 0.21]},
    "news": {
        "half_spread": [1, 2, 3, 4],
        "limit": [2, 3, 4, 6],
        "skew": [0.0, 0.03, 0.06],
        "risk": [0.0, 0.005, 0.01, 0.02, 0.04],
        "kappa": [0.25, 0.35, 0.5, 0.7, 1.0],
    },
}


def entry_of(task: str, preset: str = EnvSettings.preset, changes: Sequence[str] = ()) -> str:
    """Return the name of the file's entry for a task in a market."""
    return ", ".join([task, preset, *changes])


def grids(task: str, preset: str, orders_per_side: int = 1) -> dict[str, tuple[Any, dict[str, list]]]:
    """Return the policies of a task, and the values to try of each parameter in a preset."""
    others, ladders = OTHERS.get(preset, {}), LADDERS.get(task, {}) if orders_per_side > 1 else {}
    return {
        name: (make, {key: others.get(key, values) for key, values in grid.items()})
        for name, (make, grid) in (GRIDS[task] | ladders).items()
    }


def market_of(envs: Any) -> dict[str, Any]:
    """Return what the results of scripted policies depend on: the market, and the task without its rewards.

    None of them keeps quotes, so whether actions may makes no difference; nor does it where inventory is unwound, in
    the last step or by the score.
    """
    task = envs.core.task
    settings = {field.name: getattr(task, field.name) for field in dataclasses.fields(task) if field.init} | task.each
    here = {**vars(envs.simulator.config), **settings, "auctions_per_step": envs.core.auctions_per_step}
    return {name: value for name, value in here.items() if name not in (*PAYMENT, "execution_reward", "keep", "at_end")}


def search(task: str, envs: Any, preset: str, command: str = COMMAND) -> dict[str, Any]:
    """Return the file's entry for a task.

    Args:
        task: One of `GRIDS`.
        envs: From `evaluation_env`, with the warm starts of training.
        preset: Whose values to try.
        command: That finds it again.
    """
    tried = grids(task, preset, envs.core.task.orders_per_side)
    chosen = {name: best_of(f"{task}, {name}", make, grid, envs) for name, (make, grid) in tried.items()}
    return {
        "command": command,
        "measure": MEASURES[task],
        "seed": SEED,
        "episodes": envs.num_envs,
        "market": market_of(envs),
        "policies": chosen,
    }


def best_of(what: str, make: Any, grid: dict[str, list], envs: Any) -> dict[str, Any]:
    """Return a policy with the best parameters of a grid, as the file has it."""
    best, rows = grid_search(make, grid, envs, SEED)
    print(f"{what}: {rows[0][1]:.4g} ± {rows[0][2]:.2g} with {best}, best of {len(rows)}", flush=True)
    score = [round(figure, 4) for figure in rows[0][1:]]
    return {"policy": make.__name__, "parameters": best, "best_of": len(rows), "score": score}


def load(task: str, envs: Any, path: Path = FOUND, market: tuple[str, Sequence[str]] = DEFAULT) -> dict[str, Any]:
    """Return the file's entry for a task.

    Args:
        task: One of `GRIDS`.
        envs: An environment of the task, with the warm starts of training.
        path: Of the file.
        market: The preset, and changes of its fields such as `"quote_latency=10"`.

    Raises:
        ValueError: If it is of another market, or of other policies; says which, and the command to run.
    """
    command = command_of(*market)
    try:
        found = json.loads(path.read_text())[entry_of(task, *market)]
        parts = market_of(envs), MarketConfig().to_dict() | dataclasses.asdict(type(envs.core.task)())
        here, defaults = (json.loads(json.dumps(part, default=np.ndarray.tolist)) for part in parts)
        # A field that the file does not name came after it, and is at its default there.
        there = {name: defaults[name] for name in here if name in defaults} | found["market"]
        changed = [name for name in {**there, **here} if here.get(name, "absent") != there.get(name, "absent")]
        asked = grids(task, market[0], envs.core.task.orders_per_side)
        changed += [name for name in asked if name not in found["policies"]]
        make_all(found["policies"], envs.core.task)
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} does not fit: {error!r}; run {command}") from error
    if changed:
        raise ValueError(f"{path} does not fit: it was made with another {', '.join(changed)}; run {command}")
    return found


def make_all(chosen: Mapping[str, Any], task: Any) -> dict[str, policies.Policy]:
    """Return the policies of an entry, by name."""
    return {name: make_scripted(one, task) for name, one in chosen.items()}


def notes_of(chosen: Mapping[str, Any]) -> dict[str, str]:
    """Return what to say of the parameters of an entry's policies."""
    searched = {name: one for name, one in chosen.items() if one["parameters"]}
    return {
        name: ", ".join(f"{key}={value}" for key, value in one["parameters"].items()) + f" (best of {one['best_of']})"
        for name, one in searched.items()
    }


def command_of(preset: str, changes: Sequence[str], *options: str) -> str:
    """Return the command that searches in a market."""
    return " ".join([COMMAND, f"--preset {preset}", *([f"--set {' '.join(changes)}"] if changes else []), *options])


@dataclasses.dataclass
class Args:
    """Search the parameters of scripted policies and write them to a file."""

    preset: str = EnvSettings.preset  # the market
    set: tuple[str, ...] = ()  # changes of its fields, such as quote_latency=10
    tasks: tuple[str, ...] = tuple(GRIDS)  # to search
    engine: str = "auto"  # where the markets run: cuda, cpu, numpy, or the first of these that can
    episodes: int = 1024  # that each combination plays
    output: Path = FOUND  # the file


def main(args: Args) -> None:
    """Search the tasks and write what was found to the file."""
    options = [f"--tasks {' '.join(args.tasks)}"] if args.tasks != tuple(GRIDS) else []
    options += [f"--episodes {args.episodes}"] if args.episodes != Args.episodes else []
    config = MarketConfig.preset(args.preset, **changes_of(args.set))
    found = {}
    for task in args.tasks:
        where: dict[str, Any] = {"engine": args.engine, "config": config, **TRAINING}
        command = command_of(args.preset, args.set, *options)
        entry = search(task, evaluation_env(args.episodes, task, **where), args.preset, command)
        told = evaluation_env(args.episodes, task, see_fundamental=True, **where)
        entry["informed"] = best_of(f"{task}, informed", *INFORMED[task], told)
        found[entry_of(task, args.preset, args.set)] = entry
    written = json.loads(args.output.read_text()) if args.output.exists() else {}
    args.output.write_text(json.dumps(written | found, indent=1, ensure_ascii=False) + "\n")
    print(f"wrote {args.output}")


if __name__ == "__main__":
    main(tyro.cli(Args))
