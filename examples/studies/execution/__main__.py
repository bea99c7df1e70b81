"""`python -m examples.studies.execution --markets 1024` measures what blocks cost and risk.

By size, pace, price, interval and mechanism. It writes results.json with every figure, and the picture and the blocks
of README.md, which `--results` does without measuring.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from examples.studies.execution import learning, study
from examples.studies.execution.tables import MIDDLE, REFERENCE, draw
from kineticsim_env.runtime.options import exit_code, whole
from kineticsim_env.statistics import mean_and_error
from scripts.pages.command import make_page, page_parser

NAME = "execution"
WEIGHTS = (0.1, 0.5)  # ticks of cost that a tick of deviation is worth
GENERATIONS = 40
GOALS = [learning.Goal(weight, looks) for weight in WEIGHTS for looks in (False, True)]
PRICES = (study.TAKE, study.AT_MID, study.WAIT)  # of pieces, at the finer of the two


def measure(markets: int, generations: int, engine: str) -> dict[str, Any]:
    """Play every executor under every rule, and return every figure of the page."""
    paced, best = _paced(markets, engine)
    settings = {rule: study.calibrate(rule, markets, engine) for rule in study.RULES}
    rows: list[dict[str, Any]] = []
    learned: list[dict[str, Any]] = []
    for rule in tqdm(study.RULES, unit="rule"):
        played = study.play(rule, markets, engine, settings[rule])
        for policy, outcomes in played.items():
            for place, (size, outcome) in enumerate(zip(study.SIZES, outcomes, strict=True)):
                less = mean_and_error(outcome.each - played[REFERENCE][place].each)
                rows.append({"rule": rule, "size": size, "policy": policy} | _of(outcome) | {"less_twap": less})
        learned += _learned(rule, played, markets, generations, engine) if generations else []
    schedules = {rule: found._asdict() for rule, found in settings.items()}
    setting = {"markets": markets, "generations": generations, "schedules": schedules}
    return {"setting": setting, "paced": paced, "best": best, "rows": rows, "learned": learned}


def _of(outcome: study.Outcome) -> dict[str, Any]:
    return {"cost": outcome.cost, "risk": outcome.risk, "time": outcome.time}


def _paced(markets: int, engine: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Compare rules at equal paces; return all rows, and what each rule's best price makes of a pace and a size."""
    kinds = [(study.COARSE, study.TAKE), *((study.FINE, ticks) for ticks in PRICES)]
    first = next(iter(study.RULES))
    rows, best = [], []
    for events in tqdm(study.TIMES, unit="pace"):
        found = {
            (rule, *kind): study.paced(rule, events, *kind, markets, engine) for rule in study.RULES for kind in kinds
        }
        for place, size in enumerate(study.SIZES):
            for (rule, every, ticks), outcomes in found.items():
                at = {"events": events, "size": size, "every": every, "ticks": ticks, "rule": rule}
                less = mean_and_error(outcomes[place].each - found[first, every, ticks][place].each)
                rows.append(at | _of(outcomes[place]) | {"less": less})
            least = {
                rule: min(PRICES, key=lambda ticks, rule=rule: found[rule, study.FINE, ticks][place].cost.mean)
                for rule in study.RULES
            }
            flat = found[first, study.FINE, least[first]][place]
            for rule, ticks in least.items():
                less = mean_and_error(found[rule, study.FINE, ticks][place].each - flat.each)
                best.append({"events": events, "size": size, "rule": rule, "ticks": ticks, "less": less})
    return rows, best


def _learned(
    rule: str, played: dict[str, list[study.Outcome]], markets: int, generations: int, engine: str
) -> list[dict[str, Any]]:
    """Learn executors, and hold each to the best schedule for its weight of risk, and those that look to the others."""
    numbers = learning.learn(rule, MIDDLE, GOALS, generations=generations, engine=engine)
    found = dict(zip(GOALS, learning.play(rule, MIDDLE, numbers, markets, engine), strict=True))
    place, rows = study.SIZES.index(MIDDLE), []
    for values, (goal, outcome) in zip(numbers, found.items(), strict=True):
        goals = {name: at[place].cost.mean + goal.weight * at[place].risk.mean for name, at in played.items()}
        best = min(goals, key=lambda name: goals[name])
        row = {"rule": rule, "weight": goal.weight, "looks": goal.looks, "numbers": values.tolist()} | _of(outcome)
        row |= {"best": best, "less": study.goal_less(outcome, played[best][place], goal.weight)}
        if goal.looks:
            row["less_blind"] = study.goal_less(outcome, found[goal._replace(looks=False)], goal.weight)
        rows.append(row)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the page."""
    parser = page_parser(NAME, __doc__, 1024, "episodes of each size and policy", 4)
    parser.add_argument(
        "--generations", type=whole(0), default=GENERATIONS, help="of the search for learned executors; 0 learns none"
    )
    options = parser.parse_args(arguments)
    make_page(options, NAME, lambda: measure(options.markets, options.generations, options.engine), draw)


if __name__ == "__main__":
    sys.exit(exit_code(main))
