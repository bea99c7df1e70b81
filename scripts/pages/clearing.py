"""`python -m scripts.pages.clearing --markets 48` asks how often a market should clear.

It writes docs/clearing.md, its pictures, and clearing.json with every figure, from which `--results` writes the page
again without measuring.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from kineticsim_env.runtime.options import exit_code
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics import mean_and_error
from kineticsim_env.studies import clearing as study
from scripts.pages.clearing_text import draw, page
from scripts.pages.command import make_page, page_parser
from scripts.pages.markdown import measured_on

NAME = "clearing"


def measure(markets: int, engine: str) -> dict[str, Any]:
    """Play every rule, and return every figure of the page."""
    begin = time.perf_counter()
    fundamental = study.fundamental_path(markets, engine)
    bar = tqdm(study.RULES, unit="rule")
    played = {interval: study.play(interval, markets, engine, fundamental) for interval in bar}
    values = {interval: study.measures(found) for interval, found in played.items()}
    chosen = {interval: study.distances(found) for interval, found in played.items()}
    names = list(values[study.CONTINUOUS])
    places = [
        (r, n, reference, news) for r, reference in enumerate(study.REFERENCES) for n, news in enumerate(study.NEWS)
    ]
    rows = []
    for r, n, reference, news in places:
        for interval, found in values.items():
            row: dict[str, Any] = {"reference": reference, "news": news, "interval": interval}
            for name in names:
                own, flat = found[name][r, n], values[study.CONTINUOUS][name][r, n]
                row[name] = mean_and_error(own)
                row[f"{name}_less"] = mean_and_error(own - flat)  # than under continuous trading, seed by seed
            row["distances"] = {name: int(best[r, n]) for name, best in chosen[interval].items()}
            rows.append(row)
    setting = {
        "command": f"python -m scripts.pages.clearing --markets {markets}",
        "engine": Simulator(study.market(study.CONTINUOUS, 1), engine=engine, seed=0).engine_name,
        "markets": markets,
        "seconds": time.perf_counter() - begin,
    }
    best = {
        name: [
            {"reference": a, "news": b} | _best({i: v[name][r, n] for i, v in values.items()}) for r, n, a, b in places
        ]
        for name in ("error", "cost")
    }
    return {"setting": setting | {"measured": measured_on(setting)}, "rows": rows, "best": best}


def _best(values: dict[int, np.ndarray]) -> dict[str, Any]:
    """Return the rule with the least mean, and those that are not worse at 95%, seed by seed."""
    least = min(values, key=lambda interval: mean_and_error(values[interval]).mean)
    apart = {interval: mean_and_error(value - values[least]) for interval, value in values.items()}
    return {"interval": least, "as_good": [i for i, gap in apart.items() if i == least or gap.mean <= gap.interval()]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the page."""
    options = page_parser(__doc__, 48, "seeds of each case", 4).parse_args(arguments)
    make_page(options, NAME, lambda: measure(options.markets, options.engine), draw, page)


if __name__ == "__main__":
    sys.exit(exit_code(main))
