"""`python -m kineticsim_env scorecard`: a market beside the stylised facts of real ones, and beside null models."""

from __future__ import annotations

import argparse
import json
from typing import Any

from kineticsim_env.agents.command_line import market_of
from kineticsim_env.commands.shared import add_market, check_files, choose_markets
from kineticsim_env.runtime import memory
from kineticsim_env.runtime.files import replacing
from kineticsim_env.runtime.options import place, whole
from kineticsim_env.scorecards import scorecard

_MARKETS = 256  # unless options say how many
_BYTES, _AT_ONCE = 250, 256  # of an auction of a market, measured; of that many at a time, with what is made of them


def add_parser(commands: Any) -> None:
    """Add the command to those of the command line."""
    parser = commands.add_parser(
        "scorecard",
        help="measure a market beside stylised facts of real ones, and null models",
        description="Measure a market and null models beside the stylised facts of real ones, each with its source.",
    )
    add_market(parser, "news", _MARKETS)
    parser.add_argument("--intervals", type=whole(200), default=2000, help="that are measured (default: 2000)")
    parser.add_argument("--warmup", type=whole(0), default=200, help="intervals before these (default: 200)")
    parser.add_argument("--price", default="last", help="whose returns: last or mid (default: last)")
    parser.add_argument(
        "--interval", type=_interval, default="events", help="what one stands for: events or seconds (default: events)"
    )
    parser.add_argument(
        "--aggregate", type=whole(1), nargs="+", default=[1], help="intervals that are taken together (default: 1)"
    )
    parser.add_argument("--output", type=place, metavar="FILE.json", help="where the table goes, with the sources")
    parser.add_argument("--plot", type=place, metavar="CARD.png", help="where to draw it")
    parser.set_defaults(command=command)


def _interval(text: str) -> float | str:
    """Return what an interval stands for; `scorecard` says what is allowed."""
    try:
        return float(text)
    except ValueError:
        return text


def command(options: argparse.Namespace) -> int:
    """Print how a market stands beside the stylised facts of real ones; save the table and draw it."""
    config = market_of(options.preset, options.set, options.agents)
    check_files({"--output": options.output, "--plot": options.plot})
    markets, engine, device = choose_markets(options, config, _MARKETS)
    held = {"statistics": _BYTES * len(options.aggregate)}
    memory.check_run("--markets", f"{markets} markets", config, markets, _AT_ONCE, engine, device, held, {})
    own = {name: getattr(options, name) for name in ("price", "interval", "aggregate", "seed")}
    run: dict[str, Any] = {"markets": markets, "warm_up": options.warmup, "engine": engine, "device": device}
    found = scorecard(config, options.intervals, **run, **own)
    print(found)
    if options.output:
        setting = {name: getattr(options, name) for name in ("preset", "set", "intervals", "warmup")} | own
        with replacing(options.output) as part:
            part.write_text(json.dumps(setting | {"markets": markets, **found.columns()}, indent=1) + "\n")
        print(f"table: {options.output}")
    if options.plot:
        found.draw(options.plot)
        print(f"picture: {options.plot}")
    return 0
