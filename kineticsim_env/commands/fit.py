"""`python -m kineticsim_env fit`: an order flow of a file of orders, compared with a part that it was not fitted to."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from kineticsim_env.commands.shared import check_files
from kineticsim_env.data.books import between
from kineticsim_env.data.events import OrderEvents
from kineticsim_env.data.lobster import read_lobster
from kineticsim_env.data.orders import read_orders
from kineticsim_env.flow.order_flow import OrderFlow
from kineticsim_env.runtime.options import place, whole

_PAIR = "WHAT=NAME"


def add_parser(commands: Any) -> None:
    """Add the command to those of the command line."""
    parser = commands.add_parser(
        "fit",
        help="fit an order flow to a file of orders",
        description="Fit an order flow to the first part of a file of orders, and compare its markets with the rest. "
        "ks.read_orders and ks.read_lobster say what files may have.",
    )
    parser.add_argument("file", help="order events, CSV or Parquet; with --lobster the message file")
    parser.add_argument("--lobster", metavar="ORDERBOOK.csv", help="LOBSTER's second file, of the same name")
    parser.add_argument("--trades", metavar="FILE", help="trades, where the feed has them in a file of their own")
    for option, what in (("--column", "time, order, kind, side, price or size"), ("--trade-column", "of trades")):
        parser.add_argument(option, action="append", default=[], metavar=_PAIR, help=f"the column that has it: {what}")
    parser.add_argument("--unit", choices=("ns", "us", "ms", "s"), help="of times that are numbers")
    parser.add_argument("--sizes", choices=("change", "remaining"), default="change", help="what a size is of")
    parser.add_argument("--lot", type=float, help="the size of a lot (default: a fifth of the median order)")
    parser.add_argument("--sides-apart", action="store_true", help="fit bids and asks apart: the price drifts then")
    parser.add_argument("--held-out", type=_share, default=0.5, help="share of the time at the end (default: 0.5)")
    parser.add_argument("--markets", type=whole(1, 1000), default=4, help="that are compared (default: 4)")
    parser.add_argument("--seed", type=whole(-(2**63), 2**63 - 1), default=0, help="of the first market (default: 0)")
    parser.add_argument("--output", type=place, metavar="FLOW.json", help="where the table goes")
    parser.add_argument("--plot", type=place, metavar="FLOW.png", help="where to draw the comparison")
    parser.set_defaults(command=command)


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to below 1, got {text}")
    return value


def _pairs(option: str, words: Sequence[str]) -> dict[str, str]:
    found = {}
    for word in words:
        what, equals, name = word.partition("=")
        if not (what and equals and name):
            raise ValueError(f"{option}: expected {_PAIR}, got {word!r}")
        found[what] = name
    return found


def command(options: argparse.Namespace) -> int:
    """Read, fit and compare; save the table and draw the picture."""
    check_files({"--output": options.output, "--plot": options.plot})
    if options.plot and not options.held_out:
        raise ValueError("--plot: expected a share of the file to compare with, got --held-out 0")
    events = _read(options)
    print(events.report)
    first, last = int(events.sessions[0, 0]), int(events.sessions[-1, 1])
    cut = last + 1 - int((last + 1 - first) * options.held_out)
    fitted = between(events, first, cut)
    flow = OrderFlow.fit(fitted, lot=options.lot, symmetric=not options.sides_apart)
    print(f"fitted to {flow.about}, in lots of {flow.lot:g}: one gains {flow.tick_value:g} by one tick")
    if options.held_out:
        held_out = between(events, cut, last + 1)
        found = flow.validate(held_out, fitted=fitted, markets=options.markets, seed=options.seed)
        print(found)
        if options.plot:
            found.draw(options.plot)
            print(f"picture: {options.plot}")
    if options.output:
        flow.save(options.output)
        print(f"table: {options.output}")
    return 0


def _read(options: argparse.Namespace) -> OrderEvents:
    columns, trade_columns = (_pairs(name, given) for name, given in (
        ("--column", options.column), ("--trade-column", options.trade_column)))  # fmt: skip
    if options.lobster:
        others = {"--column": columns, "--trade-column": trade_columns, "--trades": options.trades}
        given = [name for name, value in (others | {"--unit": options.unit}).items() if value]
        if given:
            raise ValueError(f"{given[0]}: expected none with --lobster, whose columns are known")
        return read_lobster(options.file, options.lobster)
    names = {"time", "order", "kind", "side", "price", "size"}
    if not columns.keys() <= names:
        raise ValueError(f"--column: expected some of {sorted(names)}, got {sorted(columns.keys() - names)}")
    more: Any = {**columns, "trades": options.trades, "trade_columns": trade_columns or None}
    return read_orders(options.file, unit=options.unit, sizes=options.sizes, **more)
