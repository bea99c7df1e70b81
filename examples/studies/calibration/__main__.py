"""`python -m examples.studies.calibration` calibrates a market whose parameters are known, and times each phase.

It writes results.json and the pictures, and fills README.md. The page has two machines:

    python -m examples.studies.calibration --output runs/two_cores
    python -m examples.studies.calibration --simulations 1000000 --held-out 4000 --also runs/two_cores/results.json
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kineticsim_env.calibration import Calibration, calibrate
from kineticsim_env.calibration.command import plain
from kineticsim_env.config import MarketConfig
from kineticsim_env.engines import choose_engine
from kineticsim_env.runtime.options import exit_code, whole
from kineticsim_env.runtime.seeds import run_seed
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics import measure
from kineticsim_env.sweeps.plans import make_plan
from scripts.pages.command import check_place, figures, page_parser, publish
from scripts.pages.markdown import machine

NAME = "calibration"
PRESET = "trading"
OTHER = "news"  # a market that no point of the space is
SPACE = {
    "noise_spread": (6, 20),
    "market_order_prob": {"low": 0.05, "high": 0.5, "scale": "log"},
    "maker_half_spread": (2, 10),
    "init_depth": (1, 40),
}
TRUTH = {"noise_spread": 14, "market_order_prob": 0.2, "maker_half_spread": 5, "init_depth": 10}
STATISTICS = ["volatility", "kurtosis", "autocorrelation(lag=1)", "abs_autocorrelation(lag=[1, 5, 20])"]
STATISTICS += ["variance_ratio(span=[2, 10, 50])", "volume", "volume_deviation", "spread"]
WARM_UP = 100
_ALONE = 1 << 16  # markets of a launch that is timed without statistics


def main(arguments: Sequence[str] | None = None) -> None:
    """Calibrate, or read what was found; fill the page."""
    parser = page_parser(NAME, __doc__)
    parser.add_argument("--simulations", type=whole(100), default=30_000, help="to learn from")
    parser.add_argument("--held-out", type=whole(1), default=300, help="to check with")
    parser.add_argument("--intervals", type=whole(100), default=1000, help="of each market")
    parser.add_argument("--also", type=Path, help="figures of another machine, to put beside")
    options = parser.parse_args(arguments)

    def calibrated() -> dict[str, Any]:
        found, record = run(options.simulations, options.held_out, options.intervals, options.engine)
        found.draw(options.output / "images" / f"{NAME}.png", TRUTH)  # here, as the figures leave the draws out
        found.draw_check(options.output / "images" / f"{NAME}_check.png")
        found.draw_predicted(options.output / "images" / f"{NAME}_predicted.png")
        return record

    check_place(options)
    also = [json.loads(options.also.read_text())] if options.also else []
    record = figures(options, NAME, calibrated)
    record["also"] = also or record.get("also", [])
    publish(options, NAME, record, lambda *_: None)


def run(simulations: int, held_out: int, intervals: int, engine: str) -> tuple[Calibration, dict[str, Any]]:
    """Calibrate a market to statistics of one whose parameters are known; return that, and what the page says of it."""
    config = MarketConfig.preset(PRESET).replace(**TRUTH)
    target = measure(config, intervals, STATISTICS, markets=1, warm_up=WARM_UP, seed=run_seed(1), engine=engine)
    first = min(simulations + held_out, _ALONE)
    seconds = {"simulate": run_alone(first, intervals, engine) * (simulations + held_out) / first}
    began = time.perf_counter()
    importlib.import_module("kineticsim_env.calibration.learning")
    seconds["import of sbi"] = time.perf_counter() - began
    found = calibrate(
        target, SPACE, market=PRESET, warm_up=WARM_UP, simulations=simulations, held_out=held_out, engine=engine
    )
    whole_call = time.perf_counter() - began
    phases = found.seconds
    seconds["statistics"] = max(0.0, phases["simulate"] - seconds["simulate"])
    seconds |= {name: phases[name] for name in ("train", "check", "sample", "predict")}
    seconds["ks.calibrate"] = whole_call
    for name, value in seconds.items():
        print(f"{name:14s} {value:8.2f} s")
    print(found)
    record = {name: value for name, value in plain(found).items() if name != "samples"}
    record |= {"truth": TRUTH, "space": SPACE, "held_out": held_out, "intervals": intervals, "seconds": seconds}
    record |= {"engine": choose_engine(engine)[0], "machine": machine(), "preset": PRESET}
    other = measure(
        MarketConfig.preset(OTHER), intervals, STATISTICS, markets=1, warm_up=WARM_UP, seed=run_seed(2), engine=engine
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it is out of reach, which the page says
        record["other"] = plain(found.of(other))["reach"] | {"preset": OTHER}
    record["mean"] = {name: float(values.mean()) for name, values in found.samples.items()}
    sizes = f"--simulations {simulations} --held-out {held_out} --intervals {intervals}"
    record["command"] = f"python -m examples.studies.{NAME} {sizes}"
    return found, record


def run_alone(markets: int, intervals: int, engine: str) -> float:
    """Return the seconds of a launch without statistics; kernels are compiled before."""
    plan = make_plan(SPACE, intervals, STATISTICS, market=PRESET, design="random", points=markets)
    ((_, config),) = plan.configs(plan.design.rows(0, markets))
    simulator = Simulator(config, markets, engine=engine, seed=0)
    simulator.run(10, progress=False)
    measure(simulator, 10, STATISTICS, progress=False)  # so that what it compiles is there, too
    _wait(simulator.device)
    began = time.perf_counter()
    simulator.run(intervals + WARM_UP, progress=False)
    _wait(simulator.device)
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    sys.exit(exit_code(main))
