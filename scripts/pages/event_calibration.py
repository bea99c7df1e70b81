"""Calibrate a market to its own order events; fills docs/order_book_scores.md.

    python -m scripts.pages.event_calibration --measure    # simulates and trains, writes the file and the page
    python -m scripts.pages.event_calibration              # the page, from the file

The market is `continuous` with three parameters that are hidden, and are to be found from what one market of it showed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import kineticsim_env as ks
from kineticsim_env.statistics import distance_to
from scripts.machine import describe
from scripts.pages.command import figures_in, file_parser
from scripts.pages.markdown import replaced, table, wrapped
from scripts.pages.provenance import ROOT, stamped

PAGE, FILE = ROOT / "docs" / "order_book_scores.md", ROOT / "docs" / "benchmarks" / "event_calibration.json"
HIDDEN = {"cancel_prob": 0.45, "maker_half_spread": 4, "market_order_prob": 0.08}
SPACE = {"cancel_prob": (0.2, 0.9), "maker_half_spread": (1, 12), "market_order_prob": (0.01, 0.2)}
INTERVALS, WARM_UP, SIMULATIONS, HELD_OUT, LEVEL = 100, 50, 2000, 300, 0.8
SCORES = [
    "spread",
    "imbalance",
    *(f"{side}_{what}" for side in ("bid", "ask") for what in ("volume_touch", "volume", "limit_depth")),
]


def events_of(seed: int) -> Any:
    """Return the order events of one market with the hidden parameters."""
    simulator = ks.Simulator(ks.MarketConfig.preset("continuous", **HIDDEN), num_markets=1, engine="cpu", seed=seed)
    simulator.run(WARM_UP)
    return simulator.tape(0, intervals=INTERVALS).events()


def found(target: Any, statistics: Any) -> dict[str, Any]:
    """Return what a calibration to a target finds, and how far it is to be trusted."""
    settings: dict[str, Any] = {"market": "continuous", "warm_up": WARM_UP, "engine": "cpu", "seed": 0}
    size = {"simulations": SIMULATIONS, "held_out": HELD_OUT}
    made = ks.calibrate(target, SPACE, INTERVALS, statistics, **settings, **size)
    assert made.check is not None
    return {
        "interval": {name: [float(end) for end in ends] for name, ends in made.interval(0.9).items()},
        "recovered": {name: float(share) for name, share in made.check.recovered.items()},
        "covered": made.check.coverage(LEVEL),
    }


def measure() -> dict[str, Any]:
    """Return what calibrations to means and shares, and to distances, find."""
    real, beside = events_of(1000), events_of(1001)
    distances = distance_to(real, SCORES)
    floor = ks.statistics.measure_events(beside, {"distance": distances})
    how = {
        "means and shares": found(real, None),
        "distances": found(floor, {"distance": distances}),
    }
    return stamped("event_calibration", {"machine": describe(), "events": len(real), "found": how})


def body(record: Mapping[str, Any]) -> str:
    """Return the page's table, and how it was measured."""
    machine, rules, how = record["machine"], record["rules"], record["found"]
    heads = ["parameter, range", "hidden", *(f"{name}: 90% within, recovered" for name in how)]
    rows = []
    for name, (low, high) in SPACE.items():
        cells = []
        for one in how.values():
            begin, end = one["interval"][name]
            cells.append(f"{begin:.2g} to {end:.2g}, {one['recovered'][name]:.2f}")
        rows.append([f"`{name}`, {low} to {high}", str(HIDDEN[name]), *cells])
    told = wrapped(
        f"[Measured](benchmarks/{FILE.name}) on {machine['cpu_cores']} cores of {machine['cpu']}, {rules['date']}, "
        f"commit {rules['commit']}: {record['events']:,} events of one market in {INTERVALS} intervals after "
        f"{WARM_UP}; {SIMULATIONS:,} simulations as long, {HELD_OUT} held out, of which by means and shares "
        f"{how['means and shares']['covered']:.0%} were within the regions of {LEVEL:.0%}; distances of "
        f"{len(SCORES)} scores, whose target is that of another market with the same parameters."
    )
    return f"{table(heads, rows, (False, True, True, True))}\n\n{told}"


def main(words: Sequence[str] | None = None) -> None:
    """Measure, if that is asked for, and write the page."""
    parser = file_parser(__doc__, "simulate and train, and write the file", FILE, PAGE)
    options = parser.parse_args(words)
    found = figures_in(options, measure)
    options.page.write_text(replaced(options.page.read_text(), "event calibration", body(found)))
    print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
