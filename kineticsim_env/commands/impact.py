"""`python -m kineticsim_env impact`: block orders in the same markets with and without them.

Every figure is a paired difference between the two (`kineticsim_env.counterfactuals.block_impact`); `fit_impact` fits a
power of the order's size to them.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from kineticsim_env import plots
from kineticsim_env.agents.command_line import market_of
from kineticsim_env.commands.shared import add_market, check_files, choose_markets, without_nan
from kineticsim_env.config import MarketConfig
from kineticsim_env.counterfactuals import BlockImpact, block_impact
from kineticsim_env.counterfactuals.causal import SIDES, Power, fit_power
from kineticsim_env.runtime import memory
from kineticsim_env.runtime.files import replacing
from kineticsim_env.runtime.options import place, whole

_MARKETS = 1024  # unless options say how many
# Bytes of an auction of a market, measured: the series of an arm with its half of the difference, and of the means.
_ARMS_BYTES, _MEANS_BYTES = 45, 20


def add_parser(commands: Any) -> None:
    """Add the command to those of the command line."""
    parser = commands.add_parser(
        "impact",
        help="execute block orders in the same markets with and without them, and say what they did to the price",
        description="Price impact of block orders: paired differences between the same markets with and without them.",
    )
    add_market(parser, "trading", _MARKETS)
    parser.add_argument("--side", default="buy", help="buy or sell (default: buy)")
    parser.add_argument("--blocks", type=whole(1), nargs="+", default=[10, 20, 40, 80], metavar="UNITS", help="sizes")
    parser.add_argument(
        "--per-auction", type=whole(1), default=4, help="units of the order in each auction (default: 4)"
    )
    parser.add_argument("--after", type=whole(1), default=60, help="auctions after the order (default: 60)")
    parser.add_argument("--warmup", type=whole(0), default=100, help="auctions before the order (default: 100)")
    parser.add_argument(
        "--output", type=place, metavar="FILE", help="where the figures go: .json, or .csv with the mean paths"
    )
    parser.add_argument(
        "--plot", type=place, metavar="IMPACT.png", help="where to draw the paths, and the impact by size"
    )
    parser.set_defaults(command=command)


def command(options: argparse.Namespace) -> int:
    """Execute blocks in the same markets with and without them, print what they did, save it and a picture."""
    config = market_of(options.preset, options.set, options.agents)
    check_files({"--output": options.output, "--plot": options.plot})
    if options.output and Path(options.output).suffix not in (".json", ".csv"):
        raise ValueError(f"--output: expected names that end in .json or .csv, got {options.output!r}")
    markets, engine, device = choose_markets(options, config, _MARKETS)
    auctions = -(-max(options.blocks) // options.per_auction) + options.after
    got = f"{auctions} auctions of {markets} markets"
    cell = {"both arms": _ARMS_BYTES}, {"means": _MEANS_BYTES}
    memory.check_run("--blocks, --after, --markets", got, config, 2 * markets, auctions, engine, device, *cell)
    arguments: dict[str, Any] = {"side": options.side, "after": options.after, "num_markets": markets}
    arguments |= {name: getattr(options, name) for name in ("seed", "warmup", "engine", "device")}
    points = measure(config, [(block, options.per_auction) for block in options.blocks], **arguments)
    fit = fit_impact(points)
    rate = f"{options.per_auction} units per auction"
    print(f"{markets:,} markets with and without a {options.side} order, {rate}; ticks\n")
    names = ("at_end", "permanent", "temporary", "shortfall", "impact_cost")
    head = "".join(f"{name:>17s}" for name in names)
    print(f"{'block':>7s} {'filled':>7s} {'share':>6s}  {head}  variance ratio")
    for found in (point.impact for point in points):
        means = (getattr(found, name) for name in names)
        figures = "".join(f"{f'{value.mean:.3f} ± {value.interval():.3f}':>17s}" for value in means)
        shares = f"{found.block:7,d} {found.filled.mean:7.1%} {found.participation.mean:6.1%}"
        print(f"{shares}  {figures}  {found.variance_ratio:14.3f}")
    if fit:
        print(f"\nimpact at the end ~ block^{fit.exponent:.2f}, 95% interval {fit.low:.2f} to {fit.high:.2f}")
    if options.output:
        setting = arguments | {"preset": options.preset, "set": options.set, "exponent": fit._asdict() if fit else None}
        save(Path(options.output), points, setting)
        print(f"figures: {options.output}")
    if options.plot:
        draw_orders(Path(options.plot), points, fit)
        print(f"picture: {options.plot}")
    return 0


class Point(NamedTuple):
    """One order, measured."""

    impact: BlockImpact
    at_end: np.ndarray  # float64 [M]: each market's impact where the order ends


def measure(config: MarketConfig, orders: Iterable[tuple[int, int]], **arguments: Any) -> list[Point]:
    """Measure orders (block, units per auction) one by one, on the same markets; arguments are `block_impact`'s."""
    points = []
    for block, rate in tqdm(list(orders), unit="order", desc="impact"):
        found = block_impact(config, block=block, per_auction=rate, progress=False, **arguments)
        moved = found.arms.difference["mid2"].cpu().numpy()
        points.append(Point(found._replace(arms=None), SIDES[found.side] * moved[:, found.duration - 1] / 2))
    return points


def fit_impact(points: Sequence[Point]) -> Power | None:
    """Fit the impact at the end as a power of the block's size: `counterfactual.causal.fit_power`."""
    return fit_power([point.impact.block for point in points], np.stack([point.at_end for point in points], axis=1))


def save(path: Path, points: Sequence[Point], setting: Mapping[str, Any]) -> None:
    """Write measured orders: JSON with everything, or, where the name ends in .csv, a line per order and auction."""
    if path.suffix == ".csv":
        with replacing(path) as part, part.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("side", "block", "per_auction", "auction", "impact", "interval"))
            for point in points:
                found = point.impact
                for auction, (value, width) in enumerate(zip(found.path, found.path_interval, strict=True)):
                    row = (found.side, found.block, found.per_auction, auction, f"{value:.6g}", f"{width:.6g}")
                    writer.writerow(row)
        return
    rows = []
    for found in (point.impact for point in points):
        paths = {name: getattr(found, name).tolist() for name in ("path", "path_interval")}
        rows.append(found.summary() | {name: [round(value, 6) for value in path] for name, path in paths.items()})
    with replacing(path) as part:
        part.write_text(json.dumps({"setting": dict(setting), "orders": without_nan(rows)}, indent=1) + "\n")


def draw_orders(path: Path, points: Sequence[Point], fit: Power | None) -> None:
    """Write the picture of orders of one rate: their paths, and impact and cost by size."""
    orders = [point.impact for point in points]
    plots.save_panels(path, [partial(_paths, orders), partial(_by_size, orders, fit)], size=(6.0, 4.1))


def _paths(orders: Sequence[BlockImpact], axes: Any) -> None:
    """Draw the mean impact after each auction, one line per order, darker with its size; dots where orders end."""
    from matplotlib import colormaps

    axes.axhline(0, color=plots.GREY, lw=0.8)
    for found, shade in zip(orders, colormaps["viridis_r"](np.linspace(0.08, 0.95, len(orders))), strict=True):
        auctions = np.arange(len(found.path))
        low, high = found.path - found.path_interval, found.path + found.path_interval
        axes.fill_between(auctions, low, high, color=shade, alpha=0.18, lw=0)
        axes.plot(auctions, found.path, color=shade, lw=1.5, label=f"{found.block:,} units in {found.duration}")
        axes.plot(found.duration, found.path[found.duration], "o", ms=5, color=shade)
    axes.set_title(f"Impact on the mid, {orders[0].per_auction} units per auction")
    axes.set(xlabel="auctions since arrival (dot: the order ends)", ylabel="impact, ticks")
    axes.legend(fontsize=8, title="block, auctions", title_fontsize=8, loc="upper right")
    longest = max(found.duration for found in orders)
    axes.set_xlim(-0.02 * longest, 1.35 * longest + 45)


def _by_size(orders: Sequence[BlockImpact], fit: Power | None, axes: Any) -> None:
    blocks = [found.block for found in orders]
    for name, label, colour in (
        ("at_end", "impact on the mid where the order ends", plots.BUY),
        ("impact_cost", "cost against the other arm's mid", plots.SELL),
        ("permanent", "impact that is left", plots.GREY),
    ):
        plots.means(axes, blocks, [getattr(found, name) for found in orders], colour, label, lw=1.4)
    if fit:
        at = np.geomspace(min(blocks), max(blocks), 50)
        label = f"power {fit.exponent:.2f} [{fit.low:.2f}, {fit.high:.2f}]"
        axes.plot(at, fit.factor * at**fit.exponent, ls="--", lw=1.2, color=plots.BUY, label=label)
    axes.axhline(0, color=plots.GREY, lw=0.8)
    axes.set(title="By block size", xlabel="block, units", ylabel="ticks (per unit)", xscale="log")
    plots.plain_ticks(axes.xaxis)
    axes.legend(fontsize=8)
