"""The command line: `python -m kineticsim_env COMMAND`.

Commands are doctor, simulate, sweep, calibrate, play, impact, scorecard and bench.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from kineticsim_env import __version__, play, statistics
from kineticsim_env.agents.command_line import AGENTS, AGENTS_HELP, market_of
from kineticsim_env.benchmarks import report, suite
from kineticsim_env.calibration import command as calibration_command
from kineticsim_env.config import PRESETS, MarketConfig, plain_fields
from kineticsim_env.engines import ENGINES, choose_engine
from kineticsim_env.runtime import doctor, memory
from kineticsim_env.runtime.checks import check_num_markets
from kineticsim_env.runtime.files import check_file, replacing
from kineticsim_env.runtime.layout import SERIES
from kineticsim_env.runtime.options import FIELDS, Parser, exit_code, number, place, whole
from kineticsim_env.scorecard import scorecard as make_scorecard
from kineticsim_env.simulator import Simulator
from kineticsim_env.studies import plots, price_impact, price_impact_figures
from kineticsim_env.sweeps import command as sweeps_command

_BOOK_SAMPLES = 10  # times that a run pauses to look at its books
_ALONE = "one market is faster there"
_MOST_AUCTIONS = 2**32 - 1  # t of a market, where random words would repeat
_SEED = whole(-(2**63), 2**63 - 1)

# Bytes that an auction of a market takes, measured: in `simulate` the returns and their square on the host, besides the
# recorded series; in `impact` the series of an arm with its half of the difference, and of the means on the host.
_STATISTICS_BYTES, _ARMS_BYTES, _MEANS_BYTES = 16, 45, 20
_SCORECARD_BYTES, _SCORECARD_AT_ONCE = 150, 256  # for that many auctions at a time, with what is made of them


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The words after the program's name; those of the process if None.

    Returns:
        The exit code: 0, 1 if the doctor finds no compiled engine, 2 for what the package refuses, 130 after Ctrl-C.
    """
    options = argparse.Namespace()

    def work() -> int:
        _parser().parse_args(argv, options)
        return options.command(options)

    return exit_code(work, options)


def simulate(options: argparse.Namespace) -> int:
    """Run an ensemble, print its statistics, save its series and a picture."""
    config = market_of(options.preset, options.set, options.agents)
    _check_files({"--save": options.save, "--plot": options.plot})
    if options.auctions + options.warmup > _MOST_AUCTIONS:
        both = f"{options.auctions} auctions and {options.warmup} before them"
        raise ValueError(f"--auctions, --warmup: got {both}, allowed is 2^32 - 1 together")
    markets = check_num_markets(config, _markets(options, config))
    record = SERIES if options.save or options.plot else ("last_price", "volume")
    engine, device = choose_engine(options.engine, options.device, prefer_cpu=_ALONE if markets == 1 else "")
    got = f"--auctions, --markets: got {options.auctions} auctions of {markets} markets"
    copied = 4 * len(record) if device.type == "cuda" else 0
    cell = {"series": 4 * len(record)}, {"statistics": _STATISTICS_BYTES + copied}
    memory.check_run(got, config, markets, options.auctions, engine, device, *cell)
    simulator = Simulator(config, markets, engine=engine, device=device, seed=options.seed)
    simulator.run(1, record, progress=False)  # compiles what is not compiled yet
    simulator.reset(seed=options.seed)
    simulator.run(options.warmup)
    series, summary, seconds = _run(simulator, options.auctions, record)
    simulator.check_errors()
    drawn = simulator.rows["interval" if config.uses_clock else "num_agents"]
    events = np.broadcast_to(np.asarray(drawn, dtype=np.float64), (markets,)).sum() * options.auctions
    unit = plots.unit_of_time(config)
    table = summary.table(series["last_price"], series["volume"], unit)
    _print_summary(simulator, options, table, events, seconds)
    host = {name: values.cpu().numpy() for name, values in series.items()}
    if options.save:
        _save(options, simulator, host)
    if options.plot:
        bid, ask = simulator.bid[0].cpu().numpy(), simulator.ask[0].cpu().numpy()
        plots.ensemble(options.plot, host, bid, ask, int(simulator.price_origin[0]), unit)
        print(f"picture: {options.plot}")
    return 0


def impact(options: argparse.Namespace) -> int:
    """Execute blocks in the same markets with and without them, print what they did, save it and a picture."""
    config = market_of(options.preset, options.set, options.agents)
    _check_files({"--output": options.output, "--plot": options.plot})
    if options.output and Path(options.output).suffix not in (".json", ".csv"):
        raise ValueError(f"--output: got {options.output!r}, allowed are names that end in .json or .csv")
    markets = check_num_markets(config, _markets(options, config))
    engine, device = choose_engine(options.engine, options.device, prefer_cpu=_ALONE if markets == 1 else "")
    auctions = -(-max(options.blocks) // options.per_auction) + options.after
    got = f"--blocks, --after, --markets: got {auctions} auctions of {markets} markets"
    cell = {"both arms": _ARMS_BYTES}, {"means": _MEANS_BYTES}
    memory.check_run(got, config, 2 * markets, auctions, engine, device, *cell)
    arguments: dict[str, Any] = {
        "side": options.side,
        "after": options.after,
        "num_markets": markets,
        "seed": options.seed,
        "warmup": options.warmup,
        "engine": options.engine,
        "device": options.device,
    }
    points = price_impact.measure(config, [(block, options.per_auction) for block in options.blocks], **arguments)
    fit = price_impact.fit_power(points)
    print(
        f"{markets:,} markets with and without a {options.side} order, {options.per_auction} units per auction; ticks\n"
    )
    names = ("at_end", "permanent", "temporary", "shortfall", "impact_cost")
    print(
        f"{'block':>7s} {'filled':>7s} {'share':>6s}  " + "".join(f"{name:>17s}" for name in names) + "  variance ratio"
    )
    for found in (point.impact for point in points):
        means = (getattr(found, name) for name in names)
        figures = "".join(f"{f'{value.mean:.3f} ± {value.interval():.3f}':>17s}" for value in means)
        shares = f"{found.block:7,d} {found.filled.mean:7.1%} {found.participation.mean:6.1%}"
        print(f"{shares}  {figures}  {found.variance_ratio:14.3f}")
    if fit:
        print(f"\nimpact at the end ~ block^{fit.exponent:.2f}, 95% interval {fit.low:.2f} to {fit.high:.2f}")
    if options.output:
        setting = arguments | {"preset": options.preset, "set": options.set, "exponent": fit._asdict() if fit else None}
        price_impact.save(Path(options.output), points, setting)
        print(f"figures: {options.output}")
    if options.plot:
        price_impact_figures.draw_orders(Path(options.plot), points, fit)
        print(f"picture: {options.plot}")
    return 0


def scorecard(options: argparse.Namespace) -> int:
    """Print how a market stands beside the stylised facts of real ones; save the table and draw it."""
    config = market_of(options.preset, options.set, options.agents)
    _check_files({"--output": options.output, "--plot": options.plot})
    markets = check_num_markets(config, options.markets if options.markets or config.per_market else 256)
    engine, device = choose_engine(options.engine, options.device, prefer_cpu=_ALONE if markets == 1 else "")
    got = f"--markets: got {markets} markets"
    memory.check_run(got, config, markets, _SCORECARD_AT_ONCE, engine, device, {"statistics": _SCORECARD_BYTES}, {})
    found = make_scorecard(
        config,
        options.intervals,
        markets=markets,
        warm_up=options.warmup,
        price=options.price,
        seed=options.seed,
        engine=engine,
        device=device,
    )
    print(found)
    if options.output:
        setting = {name: getattr(options, name) for name in ("preset", "set", "intervals", "warmup", "price", "seed")}
        with replacing(options.output) as part:
            part.write_text(json.dumps(setting | {"markets": markets, **found.columns()}, indent=1) + "\n")
        print(f"table: {options.output}")
    if options.plot:
        found.draw(options.plot)
        print(f"picture: {options.plot}")
    return 0


def bench(options: argparse.Namespace) -> int:
    """Measure the backends, write the file, and print its table."""
    if options.resume and options.output is None:
        raise ValueError("--resume: got no --output, allowed is one with the file to go on with")
    output = Path(options.output or f"bench-{time.strftime('%Y%m%d-%H%M%S')}.json")
    data = suite.run_suite(
        output,
        sweeps=_words(options.sweeps),
        backends=_words(options.backends),
        quick=options.quick,
        resume=options.resume,
        run_seconds=options.run_seconds,
    )
    print(f"{report.summary(data)}\nmeasurements: {output}")
    return 0


def bench_report(options: argparse.Namespace) -> int:
    """Write the tables and figures of a file of measurements."""
    for path in report.write(options.file, options.output):
        print(path)
    return 0


def _run(
    simulator: Simulator, auctions: int, record: Sequence[str]
) -> tuple[dict[str, torch.Tensor], statistics.RunSummary, float]:
    """Run with a few pauses to look at the books; return the series, what was seen, and the seconds of the running."""
    summary, seconds, begin = statistics.RunSummary(), 0.0, 0
    shape = (simulator.num_markets, auctions)
    series = {name: torch.zeros(shape, dtype=torch.int32, device=simulator.device) for name in record}
    stops = np.unique(np.linspace(0, auctions, min(auctions, _BOOK_SAMPLES) + 1).astype(int))[1:]
    with tqdm(total=auctions, unit=plots.unit_of_time(simulator.config), desc="simulate", delay=2, leave=False) as bar:
        for stop in stops.tolist():
            _synchronize(simulator.device)
            started = time.perf_counter()
            part = simulator.run(stop - begin, record, progress=False)
            _synchronize(simulator.device)
            seconds += time.perf_counter() - started
            for name, values in part.items():
                series[name][:, begin:stop] = values
            summary.sample_book(simulator.bid, simulator.ask)
            bar.update(stop - begin)
            begin = stop
    return series, summary, seconds


def _print_summary(
    simulator: Simulator,
    options: argparse.Namespace,
    table: Sequence[tuple[str, statistics.Mean | statistics.Interval]],
    events: float,
    seconds: float,
) -> None:
    device = torch.cuda.get_device_name(simulator.device) if simulator.device.type == "cuda" else "CPU"
    counted = ((simulator.num_markets, "market"), (options.auctions, plots.unit_of_time(simulator.config)))
    after = f" after {options.warmup:,} of warm-up" if options.warmup else ""
    markets, auctions = (f"{n:,} {word}{'s' * (n > 1)}" for n, word in counted)
    print(f"{markets}, {auctions} each{after}, seed {options.seed}")
    print(f"\n{'mean over markets':32s} {'':>14s}   standard error")
    for name, value in table:
        if isinstance(value, statistics.Interval):
            error = "-" if math.isnan(value.low) else f"95% within {value.low:,.4g} to {value.high:,.4g}"
        else:
            error = "± -" if math.isnan(value.error) else f"± {value.error:.3g}"
        mean = "undefined" if math.isnan(value[0]) else f"{value[0]:,.4f}"
        note = f"   ({value.count:,} markets)" if 0 < value.count < simulator.num_markets else ""
        print(f"{name:32s} {mean:>14s} {error}{note}")
    print(f"\n{events / seconds:.3g} agent-events/s: {events:.3g} in {seconds:.3g} s")
    print(f"engine {simulator.engine_name}, device {simulator.device} ({device})")


def _save(options: argparse.Namespace, simulator: Simulator, series: dict[str, np.ndarray]) -> None:
    """Write the series and what made them; `np.load(path)` reads it."""
    fields = plain_fields(simulator.config)
    arrays: dict[str, Any] = {
        **series,
        "bid": simulator.bid.cpu().numpy(),
        "ask": simulator.ask.cpu().numpy(),
        "price_origin": simulator.price_origin.cpu().numpy(),
        "config": np.array(json.dumps(fields)),
        "seed": np.array(options.seed),
        "warmup": np.array(options.warmup),
    }
    with replacing(options.save) as part, part.open("wb") as file:  # open, as NumPy would add .npz to another ending
        np.savez_compressed(file, **arrays)
    print(f"series: {options.save} ({', '.join(series)}: one row per market)")


def _markets(options: argparse.Namespace, config: MarketConfig) -> int | None:
    """Return how many markets were asked for; None where the lists of --set tell."""
    return options.markets if options.markets is not None or config.per_market else 1024


def _check_files(paths: Mapping[str, str | None]) -> None:
    """Refuse options whose files cannot be written, before a run is made for them; pictures need matplotlib."""
    for name, path in paths.items():
        if path is not None:
            check_file(name, path)
    if paths.get("--plot"):
        plots.check_picture("--plot", str(paths["--plot"]))


def _words(text: str | None) -> list[str] | None:
    """Split a list with commas; None stays None."""
    return None if text is None else [word.strip() for word in text.split(",")]


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="kineticsim_env", description="Ensembles of limit-order-book markets.")
    parser.add_argument("--version", action="version", version=f"kineticsim_env {__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    check = commands.add_parser("doctor", help="say which engines run here, what is missing and how to get it")
    check.set_defaults(command=lambda options: doctor.main())
    run = commands.add_parser(
        "simulate",
        help="run an ensemble, print its statistics, save its series and a picture",
        description="Run an ensemble of markets without learners and print its statistics.",
        epilog=f"Fields of --set: {', '.join(FIELDS)}. "
        "A list such as --set 'noise_spread=[3,6]' gives one value per market.",
    )
    _add_market(run, "paper")
    run.add_argument("--markets", type=whole(1), help="how many (default: 1024, or as many as a list in --set is long)")
    run.add_argument(
        "--auctions", type=whole(1, _MOST_AUCTIONS), default=500, help="auctions of each market (default: 500)"
    )
    run.add_argument("--warmup", type=whole(0), default=0, help="auctions before those that are counted (default: 0)")
    run.add_argument("--seed", type=_SEED, default=0, help="market m is seeded with this + m (default: 0)")
    run.add_argument("--save", type=place, metavar="RUN.npz", help="where to write the series and the final books")
    run.add_argument(
        "--plot", type=place, metavar="RUN.png", help="where to draw paths, volume, a book and the returns"
    )
    run.set_defaults(command=simulate)
    sweeps_command.add_parser(commands)
    calibration_command.add_parser(commands)
    play.add_parser(commands)
    _add_impact(commands)
    _add_scorecard(commands)
    _add_bench(commands)
    return parser


def _add_market(command: argparse.ArgumentParser, preset: str) -> None:
    """Add the options that choose the market and the engine."""
    command.add_argument("--preset", default=preset, help=f"the market: {' or '.join(PRESETS)} (default: {preset})")
    command.add_argument("--engine", default="auto", help=f"{', '.join(ENGINES)} (default: auto)")
    command.add_argument("--device", help="cpu, cuda or cuda:N")
    command.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="change a field of the market"
    )
    command.add_argument("--agents", action="append", default=[], metavar=AGENTS, help=AGENTS_HELP)


def _add_impact(commands: Any) -> None:
    command = commands.add_parser(
        "impact",
        help="execute block orders in the same markets with and without them, and say what they did to the price",
        description="Price impact of block orders: paired differences between the same markets with and without them.",
    )
    _add_market(command, "trading")
    command.add_argument("--side", default="buy", help="buy or sell (default: buy)")
    command.add_argument("--blocks", type=whole(1), nargs="+", default=[10, 20, 40, 80], metavar="UNITS", help="sizes")
    command.add_argument(
        "--per-auction", type=whole(1), default=4, help="units of the order in each auction (default: 4)"
    )
    command.add_argument("--after", type=whole(1), default=60, help="auctions after the order (default: 60)")
    command.add_argument("--warmup", type=whole(0), default=100, help="auctions before the order (default: 100)")
    command.add_argument(
        "--markets", type=whole(1), help="how many (default: 1024, or as many as a list in --set is long)"
    )
    command.add_argument("--seed", type=_SEED, default=0, help="market m is seeded with this + m (default: 0)")
    command.add_argument(
        "--output", type=place, metavar="FILE", help="where the figures go: .json, or .csv with the mean paths"
    )
    command.add_argument(
        "--plot", type=place, metavar="IMPACT.png", help="where to draw the paths, and the impact by size"
    )
    command.set_defaults(command=impact)


def _add_scorecard(commands: Any) -> None:
    command = commands.add_parser(
        "scorecard",
        help="measure a market beside the stylised facts of real ones",
        description="Measure a market beside the stylised facts of real ones, each with its range and its source.",
    )
    _add_market(command, "news")
    command.add_argument("--intervals", type=whole(200), default=2000, help="that are measured (default: 2000)")
    command.add_argument("--warmup", type=whole(0), default=200, help="intervals before these (default: 200)")
    command.add_argument(
        "--markets", type=whole(1), help="how many (default: 256, or as many as a list in --set is long)"
    )
    command.add_argument("--price", default="last", help="whose returns: last or mid (default: last)")
    command.add_argument("--seed", type=_SEED, default=0, help="market m is seeded with this + m (default: 0)")
    command.add_argument("--output", type=place, metavar="FILE.json", help="where the table goes, with the sources")
    command.add_argument("--plot", type=place, metavar="CARD.png", help="where to draw it")
    command.set_defaults(command=scorecard)


def _add_bench(commands: Any) -> None:
    measure = commands.add_parser("bench", help="time the engines and the baselines, each verified first; or report")
    measure.add_argument("--quick", action="store_true", help="small workloads: about a minute on a CPU")
    measure.add_argument(
        "--output", type=place, metavar="FILE", help="the JSON file to write (default: bench-DATE.json)"
    )
    measure.add_argument("--resume", action="store_true", help="go on with the file: leave the rows that it has")
    measure.add_argument("--backends", metavar="A,B", help="only these, by their names in the tables")
    measure.add_argument("--sweeps", metavar="A,B", help=f"only these of: {', '.join(suite.SWEEPS)}")
    measure.add_argument(
        "--run-seconds", type=number(1e-6, 1e6), help="what one run may take; slower backends run fewer steps"
    )
    measure.set_defaults(command=bench)
    page = measure.add_subparsers(metavar="report").add_parser("report", help="make tables and figures from a file")
    page.add_argument("file", type=place, help="the JSON file")
    page.add_argument("--output", type=place, required=True, metavar="FOLDER", help="where tables and figures go")
    page.set_defaults(command=bench_report)


if __name__ == "__main__":
    sys.exit(main())
