"""`python -m examples.studies.clearing --markets 48` asks how often a market should clear.

It writes results.json with every figure, and the pictures and the blocks of README.md, which `--results` does without
measuring. `--part prices` measures again how far prices are from the fundamental price, and `--part slots` what slots
earn and blocks cost, of which learning takes most of the time; the other part stays as it was.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from examples.studies.clearing import learning, study
from examples.studies.clearing import prices as pricing
from examples.studies.clearing import scripted as figures
from examples.studies.clearing.tables import draw
from kineticsim_env.runtime.options import exit_code, whole
from kineticsim_env.statistics import mean_and_error
from scripts.pages.command import make_page, measurement, page_parser

NAME = "clearing"
GENERATIONS = 30
TAPED = 4  # seeds of each kind of markets of which tapes are made


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return every figure of the page, by part; a part that is not asked for is that of the file."""
    parts = {"prices": _prices, "slots": _slots}
    if options.part is None:
        return {name: part(options) for name, part in parts.items()}
    kept = json.loads((options.output / "results.json").read_text())
    return {name: part(options) if name == options.part else kept[name] for name, part in parts.items()}


def _prices(options: argparse.Namespace) -> dict[str, Any]:
    """Play every rule without slots; return how far its prices are from the fundamental price."""
    begin, markets, engine = time.perf_counter(), options.markets, options.engine
    values = {interval: pricing.play(interval, markets, engine) for interval in tqdm(study.RULES, unit="rule")}
    names = [price + measure for price in pricing.PRICES for measure in pricing.MEASURES]
    return {
        "setting": measurement(options, begin) | {"markets": markets},
        "rows": list(_rows(values, names)),
        "best": {name: _best_rules(values, name) for name in names},
        "tapes": [
            {"interval": interval} | pricing.gap_to_tapes(interval, min(markets, TAPED), study.EVENTS, engine)
            for interval in study.INTERVALS
        ],
    }


def _slots(options: argparse.Namespace) -> dict[str, Any]:
    """Play and learn every rule with slots; return what these earn, what a block costs, and what books are like."""
    begin, markets, engine = time.perf_counter(), options.markets, options.engine
    played = {interval: study.play(interval, markets, engine) for interval in tqdm(study.RULES, unit="rule")}
    values = {interval: figures.measures(found) for interval, found in played.items()}
    chosen = {interval: figures.best_cases(found) for interval, found in played.items()}
    numbers = _learn(played, options.generations, engine)
    for interval, found in values.items():
        found |= learning.play(interval, numbers[interval], markets, engine)
        found |= figures.leads(interval, found)
    rows = list(_rows(values, ["cost", *(kind.name for kind in learning.kinds(study.CONTINUOUS))]))
    for row, (r, n, interval) in zip(rows, _places(values), strict=True):
        scripted = {name: study.cases()[best[r, n]] for name, best in chosen[interval].items()}
        row["scripted"] = {name: {"role": case.role, "distance": case.distance} for name, case in scripted.items()}
        row["numbers"] = _numbers(interval, numbers[interval][r, n])
    setting = measurement(options, begin) | {"markets": markets, "generations": options.generations}
    return {"setting": setting, "rows": rows, "best": {"cost": _best_rules(values, "cost")}}


def _places(values: Mapping[int, Any]) -> Iterator[tuple[int, int, int]]:
    """Yield the places of a reference and of a pace of news, and a rule, in the order of rows."""
    for r in range(len(study.REFERENCES)):
        for n in range(len(study.NEWS)):
            yield from ((r, n, interval) for interval in values)


def _rows(values: Mapping[int, Mapping[str, np.ndarray]], compared: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield means with their errors; of those compared also less those of continuous trading, seed by seed."""
    news = list(study.NEWS)
    for r, n, interval in _places(values):
        row: dict[str, Any] = {"reference": study.REFERENCES[r], "news": news[n], "interval": interval}
        for name, found in values[interval].items():
            row[name] = mean_and_error(found[r, n])
            if name in compared:
                row[f"{name}_less"] = mean_and_error(found[r, n] - values[study.CONTINUOUS][name][r, n])
        yield row


def _best_rules(values: Mapping[int, Mapping[str, np.ndarray]], name: str) -> list[dict[str, Any]]:
    """Return, by reference and pace of news, the rule with the least mean, and those not worse at 95%, seed by seed."""
    found = []
    for r, reference in enumerate(study.REFERENCES):
        for n, news in enumerate(study.NEWS):
            of = {interval: each[name][r, n] for interval, each in values.items()}
            least = min(of, key=lambda interval: of[interval].mean())
            apart = {interval: mean_and_error(value - of[least]) for interval, value in of.items()}
            as_good = [i for i, gap in apart.items() if i == least or gap.mean <= gap.interval()]
            found.append({"reference": reference, "news": news, "interval": least, "as_good": as_good})
    return found


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


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the page."""
    parser = page_parser(NAME, __doc__, 48, "seeds of each case", 4)
    parser.add_argument(
        "--generations",
        type=whole(1),
        default=GENERATIONS,
        help="of the search for makers and informed slots that learn",
    )
    parser.add_argument("--part", choices=("prices", "slots"), help="measure this, and keep the other of the file")
    options = parser.parse_args(arguments)
    if options.part and not options.results and not (options.output / "results.json").is_file():
        parser.error(f"--part: the other part is kept from {options.output / 'results.json'}, which is not there")
    make_page(options, NAME, lambda: measure(options), draw)


if __name__ == "__main__":
    sys.exit(exit_code(main))
