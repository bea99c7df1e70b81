"""`python -m scripts.pages.clearing --markets 48` asks how often a market should clear.

It writes docs/clearing.md, its pictures, and clearing.json with every figure, from which `--results` writes the page
again without measuring.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from kineticsim_env.runtime.options import exit_code, whole
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics import mean_and_error
from kineticsim_env.studies import clearing as study
from kineticsim_env.studies import clearing_figures as figures
from kineticsim_env.studies import clearing_learning as learning
from scripts.pages.clearing_text import draw, page
from scripts.pages.command import command_of, make_page, page_parser
from scripts.pages.markdown import measured_on

NAME = "clearing"
GENERATIONS = 30


def measure(options: argparse.Namespace, command: str) -> dict[str, Any]:
    """Play and learn every rule, and return every figure of the page."""
    begin, markets, generations, engine = time.perf_counter(), options.markets, options.generations, options.engine
    fundamental = study.fundamental_path(markets, engine)
    bar = tqdm(study.RULES, unit="rule")
    played = {interval: study.play(interval, markets, engine, fundamental) for interval in bar}
    values = {interval: figures.measures(found) for interval, found in played.items()}
    chosen = {interval: figures.best_cases(found) for interval, found in played.items()}
    numbers = _learn(played, generations, engine)
    for interval, found in values.items():
        found |= learning.play(interval, numbers[interval], markets, engine)
        found |= figures.leads(interval, found)
    places = [
        (r, n, reference, news) for r, reference in enumerate(study.REFERENCES) for n, news in enumerate(study.NEWS)
    ]
    rows = []
    for r, n, reference, news in places:
        for interval, found in values.items():
            row: dict[str, Any] = {"reference": reference, "news": news, "interval": interval}
            for name in found:
                own, flat = found[name][r, n], values[study.CONTINUOUS][name][r, n]
                row[name] = mean_and_error(own)
                row[f"{name}_less"] = mean_and_error(own - flat)  # than under continuous trading, seed by seed
            scripted = {name: study.cases()[best[r, n]] for name, best in chosen[interval].items()}
            row["scripted"] = {name: {"role": case.role, "distance": case.distance} for name, case in scripted.items()}
            row["numbers"] = _numbers(interval, numbers[interval][r, n])
            rows.append(row)
    setting = {
        "command": command,
        "engine": Simulator(study.market(study.CONTINUOUS, 1), engine=engine, seed=0).engine_name,
        "markets": markets,
        "generations": generations,
        "seconds": time.perf_counter() - begin,
    }
    best = {
        name: [
            {"reference": a, "news": b} | _best({i: v[name][r, n] for i, v in values.items()}) for r, n, a, b in places
        ]
        for name in ("error", "cost")
    }
    return {"setting": setting | {"measured": measured_on(setting)}, "rows": rows, "best": best}


def _learn(played: dict[int, study.Played], generations: int, engine: str) -> dict[int, np.ndarray]:
    """Learn every rule, from the scripted slots that were played."""
    numbers = {}
    with tqdm(total=len(played) * (generations + 1), unit="generation") as bar:
        for interval, found in played.items():
            begin, best = (learning.starts(interval, of(found)) for of in (figures.first_cases, figures.best_cases))
            numbers[interval] = learning.learn(interval, begin, best, generations, engine=engine, done=bar.update)
    return numbers


def _numbers(interval: int, numbers: np.ndarray) -> dict[str, dict[str, float]]:
    """Return the numbers of a rule's learned policies in one kind of markets; makers have no use for that of news."""
    found = {}
    for kind, values in zip(learning.kinds(interval), numbers.tolist(), strict=True):
        named = dict(zip(learning.NUMBERS, values, strict=True))
        found[kind.name] = {name: value for name, value in named.items() if kind.role == "informed" or name != "news"}
    return found


def _best(values: dict[int, np.ndarray]) -> dict[str, Any]:
    """Return the rule with the least mean, and those that are not worse at 95%, seed by seed."""
    least = min(values, key=lambda interval: mean_and_error(values[interval]).mean)
    apart = {interval: mean_and_error(value - values[least]) for interval, value in values.items()}
    return {"interval": least, "as_good": [i for i, gap in apart.items() if i == least or gap.mean <= gap.interval()]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the page."""
    parser = page_parser(__doc__, 48, "seeds of each case", 4)
    parser.add_argument(
        "--generations",
        type=whole(1),
        default=GENERATIONS,
        help="of the search for makers and informed slots that learn",
    )
    options = parser.parse_args(arguments)
    command = command_of(parser, options, NAME)
    make_page(options, NAME, lambda: measure(options, command), draw, page)


if __name__ == "__main__":
    sys.exit(exit_code(main))
