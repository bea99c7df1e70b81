"""Search for built-in agents whose order events are near half of a sample of real ones; fills docs/order_flow.md.

    python -m scripts.pages.nearest_agents --measure    # searches, plays, writes the file and the page
    python -m scripts.pages.nearest_agents              # the page, from the file

Markets are those of the preset `realistic` with other numbers: the eight that its own search varied
(examples/studies/realistic), or these within wider bounds and six more. What is least is the mean of L1 and
Wasserstein-1 over the 19 scores, to the first half. The second half is what the best is compared with, once.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

import kineticsim_env as ks
from examples.studies import evolution
from examples.studies.realistic import study
from kineticsim_env.data.books import in_lots
from kineticsim_env.data.distances import distances
from kineticsim_env.data.events import OrderEvents
from kineticsim_env.data.measures import DISCRETE, SCORES, shown_by, values_of
from kineticsim_env.data.scores import order_book_scores
from kineticsim_env.flow.validating import cut_times, time_step
from scripts.bitstamp_sample import sample
from scripts.machine import describe
from scripts.pages.command import figures_in, file_parser
from scripts.pages.markdown import replaced, wrapped
from scripts.pages.order_flow import distances as distance_table
from scripts.pages.order_flow import entry, halves, of_agents
from scripts.pages.provenance import ROOT, stamped

PAGE, FILE = ROOT / "docs" / "order_flow.md", ROOT / "docs" / "benchmarks" / "nearest_agents.json"
PRESET, EIGHT, FOURTEEN = "preset `realistic`", "its eight numbers searched", "fourteen numbers searched"
POPULATION, DEVIATION, WORST = 24, 0.15, 2.0  # of CMA-ES in the unit cube; the distance of a market that stops
LEAST_EVENTS, FACT_MARKETS = 1000, 256


class Bounds(NamedTuple):
    """Of a number, and whether its logarithm is searched."""

    low: float
    high: float
    by_logarithm: bool = False

    def at(self, place: float) -> float:
        """Return the number at a place from 0 to 1."""
        if self.by_logarithm:
            return self.low * (self.high / self.low) ** place
        return self.low + place * (self.high - self.low)


SPACES = {
    EIGHT: {
        name: Bounds(low, high) for name, low, high in zip(study.Point._fields, study.LOW, study.HIGH, strict=True)
    },
    FOURTEEN: {
        "switch": Bounds(0.0005, 0.05, True),
        "spread_of_jumps": Bounds(0.0, 1.5),
        "jump_prob": Bounds(0.001, 0.7, True),
        "jump_size": Bounds(1, 16, True),
        "splitters": Bounds(0, 16),
        "size": Bounds(1, 100, True),
        "noise": Bounds(0.05, 0.95),
        "cancel": Bounds(0.02, 0.95),
        "noise_spread": Bounds(1, 64, True),
        "maker_half_spread": Bounds(1, 16, True),
        "market_order_prob": Bounds(0.0005, 0.3, True),
        "max_order_qty": Bounds(1, 400, True),
        "walk_prob": Bounds(0.0, 1.0),
        "momentum": Bounds(0.0, 0.4),
    },
}
_WHOLE = ("noise_spread", "maker_half_spread", "max_order_qty")


def config_of(numbers: Mapping[str, float]) -> ks.MarketConfig:
    """Return a market, of the eight numbers of `study.Point` and of fields that differ from the preset's."""
    market = study.market_of(study.Point(*(numbers[name] for name in study.Point._fields)))
    fields: dict[str, Any] = {name: x for name, x in numbers.items() if name not in study.Point._fields}
    fields |= {name: round(fields[name]) for name in _WHOLE if name in fields}
    if "momentum" in fields:  # the others share the rest as they did
        others = 1 - fields["momentum"]
        fields["noise"] = numbers["noise"] * others
        fields["maker"] = others - fields["noise"]
    return market.replace(**fields)


class Aim:
    """Order events to come near to."""

    def __init__(self, real: OrderEvents, step: int) -> None:
        """Take the data, in the lots of markets, and the step of their times in nanoseconds."""
        self.real, self.step = real, step
        sessions = shown_by("real", real)
        self._wanted = {name: values_of(name, sessions) for name in SCORES}

    def distance(self, config: ks.MarketConfig, seed: int) -> float:
        """Return the mean of L1 and Wasserstein-1 over the scores."""
        try:
            played = cut_times(of_agents(config, self.real, seed), self.step)
        except (ks.MarketError, OverflowError):
            return WORST
        if int((~played.opening).sum()) < LEAST_EVENTS:
            return WORST
        shown, draws = shown_by("simulated", played), np.random.default_rng(0)
        found = [
            distances(one, values_of(name, shown), name in DISCRETE, 0, draws) for name, one in self._wanted.items()
        ]
        return float(np.nan_to_num(np.array(found), nan=WORST).mean())


def search(name: str, first: int, generations: int, finals: int) -> dict[str, Any]:
    """Search one space: points of a Sobol sequence, CMA-ES from the best, then the best of all on seeds of their own.

    Args:
        name: Of the space.
        first: Points of the sequence, a market each.
        generations: Of CMA-ES, a market a candidate; a generation has a seed.
        finals: Candidates that are compared at last, and markets of each.
    """
    fitted, _ = halves(sample())
    aim = Aim(in_lots(fitted, ks.OrderFlow.preset("btcusd").lot), time_step(fitted))
    space = SPACES[name]

    def numbers(place: Sequence[float]) -> dict[str, float]:
        inside = np.clip(place, 0, 1)
        return {key: ends.at(float(x)) for (key, ends), x in zip(space.items(), inside, strict=True)}

    def distance(place: Sequence[float], seed: int) -> float:
        outside = float(np.square(np.array(place) - np.clip(place, 0, 1)).sum())
        return aim.distance(config_of(numbers(place)), seed) + outside

    drawn = torch.quasirandom.SobolEngine(len(space), scramble=True, seed=0).draw(first, dtype=torch.float64).tolist()
    tried = [(distance(place, 1000), place) for place in drawn]
    found, by_generation = evolution.search(min(tried)[1], DEVIATION, POPULATION), []
    for generation in range(generations):
        asked = found.ask()
        values = [distance(place, 2000 + generation) for place in asked]
        found.tell(asked, values)
        tried += [(value, list(place)) for value, place in zip(values, asked, strict=True)]
        by_generation.append(float(np.median(values)))
        print(f"{name}: generation {generation}, {min(values):.3f} to {max(values):.3f}", flush=True)
    last = [list(found.mean), *(place for _, place in sorted(tried)[: finals - 1])]
    means = [float(np.mean([distance(place, 5000 + seed) for seed in range(finals)])) for place in last]
    best = int(np.argmin(means))
    return {
        "numbers": numbers(last[best]),
        "distance": means[best],
        "tried": len(tried),
        "first": min(value for value, _ in tried[:first]),
        "by_generation": by_generation,
    }


def measure(first: int, generations: int, finals: int, markets: int) -> dict[str, Any]:
    """Search in both spaces, and compare what was found, and the preset, with the second half."""
    with concurrent.futures.ProcessPoolExecutor(len(SPACES)) as pool:
        made = {name: pool.submit(search, name, first, generations, finals) for name in SPACES}
        searched = {name: one.result() for name, one in made.items()}
    fitted, held_out = halves(sample())
    lot, step = ks.OrderFlow.preset("btcusd").lot, time_step(held_out)
    real, near = in_lots(held_out, lot), Aim(in_lots(fitted, lot), time_step(fitted))
    configs = {PRESET: ks.MarketConfig.preset("realistic")}
    configs |= {name: config_of(one["numbers"]) for name, one in searched.items()}
    found = {}
    for name, config in configs.items():
        played = [cut_times(of_agents(config, real, seed), step) for seed in range(markets)]
        found[name] = entry([order_book_scores(real, one, resamples=0) for one in played], played)
        found[name]["first_half"] = [near.distance(config, seed) for seed in range(markets)]
        found[name]["inside"] = study.look(config, FACT_MARKETS, engine="cpu", progress=False).inside
        print(f"{name}: {np.mean(found[name]['means'], 0).round(3)}", flush=True)
    size = {"first": first, "generations": generations, "finals": finals, "markets": markets}
    return stamped("nearest_agents", {"machine": describe(), "size": size, "searched": searched, "found": found})


def body(record: Mapping[str, Any]) -> str:
    """Return the page's table, and how it was measured."""
    found, searched, size, rules = (record[name] for name in ("found", "searched", "size", "rules"))
    shown = {f"{name}, {np.mean(one['first_half']):.2f} from the first half": one for name, one in found.items()}
    facts = {name: sum(inside >= 0 for inside in one["inside"].values()) for name, one in found.items()}
    numbers = ", ".join(f"`{name}` {value:.3g}" for name, value in searched[FOURTEEN]["numbers"].items())
    tried = " and ".join(f"{one['tried']:,}" for one in searched.values())
    told = wrapped(
        f"[Measured](benchmarks/{FILE.name}): {tried} markets tried, {size['first']} of them of a Sobol sequence, the "
        f"others of CMA-ES from the best of these; of {size['finals']} candidates the best on {size['finals']} other "
        f"seeds; {size['markets']} markets of it are compared. {rules['date']}, commit {rules['commit']}, on "
        f"{record['machine']['cpu']}. The fourteen: {numbers}."
    )
    of_facts = wrapped(
        f"Of the {len(found[PRESET]['inside'])} facts that were "
        "[asked of `realistic`](../examples/studies/realistic/README.md), "
        f"{facts[PRESET]}, {facts[EIGHT]} and {facts[FOURTEEN]} are met ({FACT_MARKETS} markets)."
    )
    return "\n\n".join([distance_table({"found": shown}), of_facts, told])


def main(words: Sequence[str] | None = None) -> None:
    """Measure, if that is asked for, and write the page."""
    parser = file_parser(__doc__, "search and play, and write the file", FILE, PAGE)
    parser.add_argument("--first", type=int, default=512, help="points of the Sobol sequence (default: 512)")
    parser.add_argument(
        "--generations", type=int, default=100, help=f"of CMA-ES, {POPULATION} markets each (default: 100)"
    )
    parser.add_argument("--finals", type=int, default=8, help="candidates at last, and seeds of each (default: 8)")
    parser.add_argument("--markets", type=int, default=5, help="that are compared (default: 5)")
    options = parser.parse_args(words)
    size = {name: getattr(options, name) for name in ("first", "generations", "finals", "markets")}
    record = figures_in(options, lambda: measure(**size))
    options.page.write_text(replaced(options.page.read_text(), "agents", body(record)))
    print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
