"""`python -m scripts.pages.execution --markets 1024` measures what blocks cost and risk.

By size, interval and mechanism. It writes docs/execution.md, its picture, and execution.json with every figure, from
which `--results` writes the page again without measuring.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from kineticsim_env.runtime.files import check_folder
from kineticsim_env.runtime.options import Parser, exit_code, whole
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics import mean_and_error
from kineticsim_env.studies import execution as study
from kineticsim_env.studies import execution_learning as learning
from kineticsim_env.studies import plots
from scripts.pages.execution_text import MIDDLE, REFERENCE, draw, page
from scripts.pages.markdown import measured_on, write_figures, write_page

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
    """Measure, or read what was measured; draw, and write the page."""
    parser = Parser(description=__doc__)
    parser.add_argument("--results", type=Path, help="write the page from this file, and measure nothing")
    parser.add_argument("--markets", type=whole(4, 1 << 20), default=1024, help="episodes of each size and policy")
    parser.add_argument(
        "--generations", type=whole(0), default=GENERATIONS, help="of the search for learned executors; 0 learns none"
    )
    parser.add_argument("--engine", default="cpu", help="as in Simulator; the figures are the same on every engine")
    parser.add_argument("--output", type=Path, default=Path("docs"), help="folder of the page, images/ and the figures")
    options = parser.parse_args(arguments)
    plots.require_matplotlib()
    check_folder("--output", options.output / "images")
    if options.results:
        found = json.loads(options.results.read_text())
    else:
        found = json.loads(json.dumps(measure(options.markets, options.generations, options.engine)))
    write_figures(options.output, NAME, found)
    draw(options.output / "images" / f"{NAME}.png", found)
    write_page(options.output, NAME, page(found))


if __name__ == "__main__":
    sys.exit(exit_code(main))
