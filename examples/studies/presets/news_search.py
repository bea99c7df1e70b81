"""`python -m examples.studies.presets.news_search --seconds 600` looks for markets that meet the goals of a default.

It writes every market tried, best first, to `news_search.json`, and fills README.md. The search is a small evolution:
the best markets so far are mixed and changed a little, and each process measures one at a time.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import torch

from examples.studies.presets.episodes import watch
from examples.studies.presets.goals import choose, judge, score
from examples.studies.presets.rules import errors, explained, fit
from kineticsim_env.config import MarketConfig
from kineticsim_env.evaluation import HELD_OUT_SEED
from kineticsim_env.runtime.files import check_folder
from kineticsim_env.runtime.options import exit_code, whole
from kineticsim_env.simulator import Simulator
from scripts.pages.blocks import fill
from scripts.pages.command import page_parser
from scripts.pages.markdown import machine
from scripts.pages.provenance import stamped

# Field: lowest, highest, and whether it is drawn on a logarithmic scale.
SPACE: dict[str, tuple[float, float, bool]] = {
    "interval": (16, 64, True),  # orders per decision
    "beats": (0.5, 6, True),  # beats per interval
    "noise": (0.05, 0.7, False),  # shares, before they are made to sum to 1
    "momentum": (0.0, 0.15, False),
    "maker": (0.05, 0.6, False),
    "fundamental": (0.1, 0.8, False),
    "noise_spread": (5, 24, True),
    "maker_half_spread": (2, 9, True),
    "taker_offset": (1, 6, True),
    "market_order_prob": (0.002, 0.3, True),
    "max_order_qty": (3, 16, True),
    "kept": (0.1, 0.9, False),  # of what rests, over an interval
    "calm": (0.01, 2.0, True),  # deviation of the fundamental price over an interval, ticks
    "jumps": (0.1, 3.0, True),  # per interval, when there is news
    "jump_size": (3, 16, True),
    "lasting": (3, 60, True),  # intervals between draws of the regime
    "quiet": (1, 3, False),  # quiet regimes for one with news
}
# Found by hand, from the preset "continuous": longer intervals, more noise and makers, news that comes and goes.
START: dict[str, float] = {
    "interval": 48, "beats": 2, "noise": 0.425, "momentum": 0.05, "maker": 0.275, "fundamental": 0.25,
    "noise_spread": 12, "maker_half_spread": 4, "taker_offset": 1, "market_order_prob": 0.01, "max_order_qty": 10,
    "kept": 0.49, "calm": 0.775, "jumps": 1.2, "jump_size": 9, "lasting": 10, "quiet": 2,
}  # fmt: skip
BY_HAND: tuple[dict[str, float], ...] = (
    {}, {"kept": 0.4225}, {"max_order_qty": 12}, {"max_order_qty": 8}, {"interval": 40}, {"jumps": 1.5, "jump_size": 8},
    {"maker": 0.325, "noise": 0.375}, {"fundamental": 0.3, "noise": 0.375}, {"maker_half_spread": 5, "jumps": 1.5},
    {"interval": 60, "jumps": 1.6}, {"quiet": 3, "jumps": 1.7}, {"taker_offset": 2, "kept": 0.56, "jumps": 1.8},
)  # fmt: skip
ELITE, FIRST, STEP = 8, 16, 0.06
MOST = 0.12  # R^2 above which a market is not looked at further


def point_of(value: Mapping[str, float]) -> np.ndarray:
    """Return the point of the unit cube at which fields have these values."""
    scaled = [
        math.log(value[name] / low) / math.log(high / low) if log else (value[name] - low) / (high - low)
        for name, (low, high, log) in SPACE.items()
    ]
    return np.array(scaled)


def config_of(point: np.ndarray) -> MarketConfig:
    """Return the market at a point of the unit cube."""
    value = {}
    for (name, (low, high, log)), part in zip(SPACE.items(), point, strict=True):
        value[name] = low * (high / low) ** part if log else low + (high - low) * part
    interval = round(value["interval"])
    beat = max(1, round(interval / value["beats"]))
    beats = interval / beat
    shares = {name: value[name] for name in ("noise", "momentum", "maker", "fundamental")}
    agents = 40
    counts = {name: round(agents * share / sum(shares.values())) for name, share in shares.items()}
    counts["noise"] += agents - sum(counts.values())
    quiet = {"walk_prob": round(min(1.0, value["calm"] ** 2 / beats), 3), "jump_prob": 0.0}
    jump = round(min(1.0, value["jumps"] / beats), 3)
    news = {"walk_prob": quiet["walk_prob"], "jump_prob": jump, "jump_size": round(value["jump_size"])}
    return MarketConfig(
        arrivals="clock",
        mechanism="continuous",
        interval=interval,
        beat=beat,
        num_agents=agents,
        **{name: count / agents for name, count in counts.items()},
        noise_spread=round(value["noise_spread"]),
        maker_half_spread=round(value["maker_half_spread"]),
        taker_offset=round(value["taker_offset"]),
        market_order_prob=round(value["market_order_prob"], 3),
        max_order_qty=round(value["max_order_qty"]),
        cancel_prob=round(1 - value["kept"] ** (1 / beats), 3),
        walk_prob=quiet["walk_prob"],
        window=16,
        rounding="coin",
        regimes=[quiet] * round(value["quiet"]) + [news],
        regime_switch_prob=round(min(1.0, 1 / (beats * value["lasting"])), 4),
    )


def changed(config: MarketConfig) -> dict[str, Any]:
    """Return the fields in which a market differs from the defaults, as JSON keeps them."""
    plain = MarketConfig().to_dict()
    return {
        name: list(map(dict, value)) if name == "regimes" else value
        for name, value in config.to_dict().items()
        if value != plain[name]
    }


def predictable(config: MarketConfig, markets: int, engine: str) -> float:
    """Return a first R^2 of the next change of the mid, in few markets."""
    signal = fit(*watch(config, markets, engine, 0))
    return float(explained(errors(signal, *watch(config, markets, engine, HELD_OUT_SEED))[:, 0]))


def tried(point: np.ndarray, markets: int, engine: str) -> dict[str, Any] | None:
    """Return a point with its score, market and figures; None if there is no such market, or it is predictable."""
    torch.set_num_threads(1)
    try:
        config = config_of(point)
        if predictable(config, min(markets, 64), engine) > MOST:
            return None
        found = judge(config, choose(config, markets, engine), markets, engine, everyone=False)
    except (ValueError, RuntimeError) as error:  # such as a market that does not let go of inventory
        print(error, file=sys.stderr)
        return None
    return {"score": score(found), "point": point.tolist(), "market": changed(config), "found": found}


def next_point(best: Sequence[Mapping[str, Any]], count: int, generator: np.random.Generator) -> np.ndarray:
    """Return where to look next: near the start at first, then at a mixture of two of the best, changed a little."""
    if count < FIRST or not best:
        near = generator.random() ** 0.5
        return point_of(START) * near + generator.random(len(SPACE)) * (1 - near)
    mother, father = (np.array(best[i]["point"]) for i in generator.integers(0, min(ELITE, len(best)), 2))
    mixed = np.where(generator.random(len(SPACE)) < 0.5, mother, father)
    return np.clip(mixed + STEP * generator.normal(size=len(SPACE)), 0, 1)


def search(options: argparse.Namespace, starts: Sequence[Any]) -> list[dict[str, Any]]:
    """Keep every process at work until the time is over; return all markets that were measured, best first."""
    generator, end = np.random.default_rng(options.seed), time.monotonic() + options.seconds
    waiting, found, count = [np.array(start) for start in starts], [], 0
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        running: set[Future[Any]] = set()
        while time.monotonic() < end or running:
            while len(running) < options.processes and time.monotonic() < end:
                point = waiting.pop(0) if waiting else next_point(found, count, generator)
                running.add(pool.submit(tried, point, options.markets, options.engine))
                count += 1
            done, running = wait(running, return_when=FIRST_COMPLETED)
            found += [one.result() for one in done if one.result()]
            found.sort(key=lambda one: one["score"])
    return found


def brief(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures that `score` looks at."""
    best = found["makers"][found["maker"]]
    return {
        "r2": found["r2"]["1"][0],
        "adverse": found["adverse"][0],
        "random": found["random"]["pnl"],
        "maker": found["maker"],
        "pnl": best["pnl"],
        "sd": best["sd"],
        "trader": max(played["pnl"][0] for played in found["traders"].values()),
        "knowing": {kind: one["times"][0] for kind, one in found["knowing"].items()},
        "spread": found["spread"],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, and write what was found."""
    parser = page_parser("presets.news_search", __doc__, 192, "of each player", engine="cpu", kept=False)
    parser.add_argument("--seconds", type=whole(1, 1 << 20), default=600, help="how long")
    parser.add_argument("--processes", type=whole(1, 256), default=1, help="one core each")
    parser.add_argument("--seed", type=whole(0, 1 << 30), default=0, help="of the search")
    parser.add_argument("--start", type=Path, help="what an earlier search wrote: its best are tried first")
    options = parser.parse_args(arguments)
    check_folder("--output", options.output)
    Simulator(config_of(point_of(START)), 2, engine=options.engine)  # compiled once, before all need it
    known = json.loads(options.start.read_text())["tried"][:ELITE] if options.start else []
    found = search(options, [one["point"] for one in known] or [point_of(START | change) for change in BY_HAND])
    command = f"{parser.prog} --seconds {options.seconds} --markets {options.markets}"
    setting = {"command": f"{command} --processes {options.processes}", "machine": machine()}
    found = [one | {"found": brief(one["found"])} for one in found]
    path = options.output / "news_search.json"
    path.write_text(json.dumps(stamped("presets.news_search", {**setting, "tried": found}), indent=1) + "\n")
    print(f"wrote {path}: {len(found)} markets")
    fill(options.output, "presets")


if __name__ == "__main__":
    sys.exit(exit_code(main))
