"""`python -m scripts.pages.execution --markets 1024` measures what blocks cost and risk.

By size, interval and mechanism. It writes docs/execution.md, its picture, and execution.json with every figure, from
which `--results` writes the page again without measuring.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from kineticsim_env.runtime.options import exit_code, whole
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics import mean_and_error
from kineticsim_env.studies import execution as study
from kineticsim_env.studies import execution_learning as learning
from scripts.pages.command import make_page, page_parser
from scripts.pages.execution_text import MIDDLE, REFERENCE, draw, page
from scripts.pages.markdown import measured_on

NAME = "execution"
WEIGHTS = (0.1, 0.5)  # ticks of cost that a tick of deviation is worth
GENERATIONS = 40


def measure(markets: int, generations: int, engine: str) -> dict[str, Any]:
    """Play every executor under every rule, and return every figure of the page."""
    begin = time.perf_counter()
    settings = {rule: study.calibrate(rule, markets, engine) for rule in study.RULES}
    bar = tqdm(study.RULES, unit="rule")
    played = {rule: study.play(rule, markets, engine, settings[rule]) for rule in bar}
    first = next(iter(study.RULES))
    rows = []
    for rule, found in played.items():
        for policy, outcomes in found.items():
            for place, (size, outcome) in enumerate(zip(study.SIZES, outcomes, strict=True)):
                against = {"less_twap": found[REFERENCE][place], "less_continuous": played[first][policy][place]}
                paired = {name: mean_and_error(outcome.each - other.each) for name, other in against.items()}
                rows.append(
                    {"rule": rule, "size": size, "policy": policy, "cost": outcome.cost, "risk": outcome.risk} | paired
                )
    learned = [
        _learn(rule, weight, played[rule], markets, generations, engine)
        for rule in tqdm(study.RULES, unit="rule", disable=not generations)
        for weight in WEIGHTS * bool(generations)
    ]
    given = "" if generations == GENERATIONS else f" --generations {generations}"
    setting = {
        "command": f"python -m scripts.pages.{NAME} --markets {markets}{given}",
        "engine": Simulator(study.market(first), 1, engine=engine, seed=0).engine_name,
        "markets": markets,
        "schedules": {rule: found._asdict() for rule, found in settings.items()},
        "seconds": time.perf_counter() - begin,
    }
    return {"setting": setting | {"measured": measured_on(setting)}, "rows": rows, "learned": learned}


def _learn(
    rule: str, weight: float, played: dict[str, list[study.Outcome]], markets: int, generations: int, engine: str
) -> dict[str, Any]:
    """Learn an executor for a weight of risk, and hold it to the best schedule for that weight."""
    numbers = learning.learn(rule, MIDDLE, weight, generations=generations, engine=engine)
    found = learning.play(rule, MIDDLE, numbers, markets, engine)
    place = study.SIZES.index(MIDDLE)
    goals = {name: at[place].cost.mean + weight * at[place].risk.mean for name, at in played.items()}
    best = min(goals, key=lambda name: goals[name])
    return {
        "rule": rule,
        "weight": weight,
        "numbers": numbers.tolist(),
        "cost": found.cost,
        "risk": found.risk,
        "best": best,
        "less": study.goal_less(found, played[best][place], weight),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the page."""
    parser = page_parser(__doc__, 1024, "episodes of each size and policy", 4)
    parser.add_argument(
        "--generations", type=whole(0), default=GENERATIONS, help="of the search for learned executors; 0 learns none"
    )
    options = parser.parse_args(arguments)
    make_page(
        options,
        NAME,
        lambda: measure(options.markets, options.generations, options.engine),
        lambda folder, found: draw(folder / f"{NAME}.png", found),
        page,
    )


if __name__ == "__main__":
    sys.exit(exit_code(main))
