"""`python -m kineticsim_env evaluate`: a policy on held-out episodes, paired with scripted and trained ones."""

from __future__ import annotations

import argparse
import functools
import json
from typing import Any

from kineticsim_env.commands.shared import add_where, check_files, without_nan
from kineticsim_env.engines import choose_engine
from kineticsim_env.envs.settings import EnvSettings
from kineticsim_env.evaluation import HELD_OUT_SEED, Evaluation, difference, evaluate, evaluation_env, format_table
from kineticsim_env.evaluation.entrants import entrant_of, rivals_of
from kineticsim_env.runtime import memory
from kineticsim_env.runtime.files import replacing
from kineticsim_env.runtime.options import place, whole
from kineticsim_env.runtime.values import check_choice, progress_bar
from kineticsim_env.statistics.over_markets import Mean
from kineticsim_env.tasks import TASK_WORDS

_EPISODES = 1024  # unless options say how many
_BYTES = 4000  # of a market, measured: its book, observations, accounts, and warm starts


def add_parser(commands: Any) -> None:
    """Add the command to those of the command line."""
    parser = commands.add_parser(
        "evaluate",
        help="play a policy on held-out episodes, paired with scripted and trained ones",
        description="Play a policy on held-out episodes, and scripted and trained ones in the same.",
    )
    parser.add_argument(
        "who",
        metavar="POLICY",
        help="FILE.py:CLASS, a class of yours, made with the task and called with observations; FILE.safetensors; or "
        "the name of a trained or a scripted policy",
    )
    parser.add_argument("--task", default="market_making", help=f"{', '.join(TASK_WORDS)} (default: market_making)")
    add_where(parser, EnvSettings.preset)
    parser.add_argument("--episodes", type=whole(1), default=_EPISODES, help=f"how many (default: {_EPISODES})")
    seeds = whole(-(2**63), 2**63 - 1)
    parser.add_argument(
        "--seed", type=seeds, default=HELD_OUT_SEED, help="episode m is seeded with this + m (default: 2^62, held out)"
    )
    parser.add_argument(
        "--against", nargs="+", metavar="POLICY", help="whom to pair it with (default: all scripted and trained ones)"
    )
    parser.add_argument("--json", type=place, metavar="FILE", help="where the figures go")
    parser.set_defaults(command=command)


def command(options: argparse.Namespace) -> int:
    """Play them all, print a table with the paired differences, and save the figures."""
    task = TASK_WORDS[check_choice("task", options.task, TASK_WORDS)]
    check_files({"--json": options.json})
    settings = EnvSettings(preset=options.preset)  # which checks it
    engine, device = choose_engine(options.engine, options.device, own_code=bool(settings.config.agents))
    played = entrant_of("policy", options.who, options.task, options.preset)
    others = rivals_of("against", options.against, options.task, options.preset)
    entrants = {entrant.name: entrant for entrant in (*others, played)}
    count = options.episodes * len({(one.action_type, one.see_fundamental) for one in entrants.values()})
    memory.require("--episodes", f"{options.episodes} episodes", {"markets": _BYTES * count}, device)

    @functools.cache
    def envs(action_type: str, see_fundamental: bool) -> Any:
        where: dict[str, Any] = {"engine": engine, "device": device, "config": settings.config}
        shown: dict[str, Any] = {"action_type": action_type, "see_fundamental": see_fundamental}
        return evaluation_env(options.episodes, task, **shown, **where)

    markets = {name: envs(one.action_type, one.see_fundamental) for name, one in entrants.items()}
    made = {name: one.make(markets[name].core.task) for name, one in entrants.items()}  # before any plays
    results: dict[str, Evaluation] = {}
    with progress_bar(None, "evaluate", "policy", len(entrants), leave=False) as bar:
        for name, policy in made.items():
            results[name] = evaluate(policy, markets[name], options.seed)
            bar.update()
    where = f"{options.task} in {options.preset}"
    print(f"{options.episodes:,} episodes of {where}, seed {options.seed}, engine {engine}; ± 95%\n")
    if settings.config.is_flow:
        print(f"One lot gains {settings.config.flow.tick_value:g} by one tick, in the currency of the flow's data.\n")
    notes = {name: entrant.note for name, entrant in entrants.items()}
    print(format_table(results, notes, task, played.name if len(results) > 1 else None))
    if options.json:
        setting = {name: getattr(options, name) for name in ("task", "preset", "episodes", "seed")}
        found = {name: _columns(result, results[played.name]) for name, result in results.items()}
        content = setting | {"engine": engine, "policy": played.name, "results": found}
        with replacing(options.json) as part:
            part.write_text(json.dumps(without_nan(content), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"\nfigures: {options.json}")
    return 0


def _columns(result: Evaluation, played: Evaluation) -> dict[str, dict[str, float]]:
    """Return the figures of a result and what the played policy made more, each with half its interval's width."""
    figures: dict[str, Mean] = result.figures() | {"difference": difference(played, result)}
    return {name: {"value": one.mean, "half_width": one.interval()} for name, one in figures.items()}
