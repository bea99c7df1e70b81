"""`python -m kineticsim_env simulate`: an ensemble of markets without learners, and its statistics."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from kineticsim_env import plots
from kineticsim_env.agents.command_line import market_of
from kineticsim_env.commands.shared import add_market, check_files, choose_markets
from kineticsim_env.config import plain_fields
from kineticsim_env.runtime import memory
from kineticsim_env.runtime.files import replacing
from kineticsim_env.runtime.layout import SERIES
from kineticsim_env.runtime.options import FIELDS, place, whole
from kineticsim_env.simulator import Simulator
from kineticsim_env.statistics.arrays import spread
from kineticsim_env.statistics.measuring import measure_series
from kineticsim_env.statistics.over_markets import Interval, Mean, bootstrap_interval, mean_and_error

_MARKETS = 1024  # unless options say how many
_BOOK_SAMPLES = 10  # times that a run pauses to look at its books
_MOST_AUCTIONS = 2**32 - 1  # t of a market, where random words would repeat
_BYTES = 16  # of an auction of a market on the host, besides its series: prices as int64, and what is made of them
_MOST_DRAWN = 10**8  # values of resampled markets that a summary spends, about a second
_OF_RETURNS = ("volatility", "kurtosis", "autocorrelation(lag=1)", "abs_autocorrelation(lag=1)")


def add_parser(commands: Any) -> None:
    """Add the command to those of the command line."""
    parser = commands.add_parser(
        "simulate",
        help="run an ensemble, print its statistics, save its series and a picture",
        description="Run an ensemble of markets without learners and print its statistics.",
        epilog=f"Fields of --set: {', '.join(FIELDS)}. "
        "A list such as --set 'noise_spread=[3,6]' gives one value per market.",
    )
    add_market(parser, "paper", _MARKETS)
    parser.add_argument(
        "--auctions", type=whole(1, _MOST_AUCTIONS), default=500, help="auctions of each market (default: 500)"
    )
    parser.add_argument(
        "--warmup", type=whole(0), default=0, help="auctions before those that are counted (default: 0)"
    )
    parser.add_argument("--save", type=place, metavar="RUN.npz", help="where to write the series and the final books")
    parser.add_argument(
        "--plot", type=place, metavar="RUN.png", help="where to draw paths, volume, a book and the returns"
    )
    parser.set_defaults(command=command)


def command(options: argparse.Namespace) -> int:
    """Run an ensemble, print its statistics, save its series and a picture."""
    config = market_of(options.preset, options.set, options.agents)
    check_files({"--save": options.save, "--plot": options.plot})
    if options.auctions + options.warmup > _MOST_AUCTIONS:
        both = f"{options.auctions} auctions and {options.warmup} before them"
        raise ValueError(f"--auctions, --warmup: expected up to 2^32 - 1 together, got {both}")
    markets, engine, device = choose_markets(options, config, _MARKETS)
    record = SERIES if options.save or options.plot else ("last_price", "volume")
    got = f"{options.auctions} auctions of {markets} markets"
    copied = 4 * len(record) if device.type == "cuda" else 0
    cell = {"series": 4 * len(record)}, {"statistics": _BYTES + copied}
    memory.check_run("--auctions, --markets", got, config, markets, options.auctions, engine, device, *cell)
    simulator = Simulator(config, markets, engine=engine, device=device, seed=options.seed)
    simulator.run(1, record, progress=False)  # compiles what is not compiled yet
    simulator.reset(seed=options.seed)
    simulator.run(options.warmup)
    before = _events(simulator)
    series, summary, seconds = _run(simulator, options.auctions, record)
    simulator.check_errors()
    events = _events(simulator) - before
    unit = plots.unit_of_time(config)
    table = summary.table(series["last_price"], series["volume"], unit)
    _print_summary(simulator, options, table, events, seconds)
    host = {name: values.cpu().numpy() for name, values in series.items()}
    if options.save:
        _save(options, simulator, host)
    if options.plot:
        bid, ask = simulator.bid[0].cpu().numpy(), simulator.ask[0].cpu().numpy()
        shown = {name: values for name, values in host.items() if name != "fundamental" or not config.is_flow}
        plots.ensemble(options.plot, shown, bid, ask, int(simulator.price_origin[0]), unit)
        print(f"picture: {options.plot}")
    return 0


def _events(simulator: Simulator) -> float:
    """Return how often an agent came so far, in all markets, or an order of a flow."""
    each = simulator.events if simulator.config.uses_clock else simulator.t * simulator.parameter("num_agents")
    return float(each.sum())


def _run(
    simulator: Simulator, auctions: int, record: Sequence[str]
) -> tuple[dict[str, torch.Tensor], RunSummary, float]:
    """Run with a few pauses to look at the books; return the series, what was seen, and the seconds of the running."""
    summary, seconds, begin = RunSummary(), 0.0, 0
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
    table: Sequence[tuple[str, Mean | Interval]],
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
        if isinstance(value, Interval):
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
    books = {name: getattr(simulator, name).cpu().numpy() for name in ("bid", "ask", "price_origin")}
    arrays: dict[str, Any] = {**series, **books, "config": json.dumps(plain_fields(simulator.config))}
    arrays |= {"seed": options.seed, "warmup": options.warmup}
    with replacing(options.save) as part, part.open("wb") as file:  # open, as NumPy would add .npz to another ending
        np.savez_compressed(file, **arrays)
    print(f"series: {options.save} ({', '.join(series)}: one row per market)")


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class RunSummary:
    """What is printed: `table` of the series of a run, and of its books whenever it paused for `sample_book`."""

    def __init__(self) -> None:
        self._spreads: list[np.ndarray] = []

    def sample_book(self, bid: torch.Tensor, ask: torch.Tensor) -> None:
        """Take the spreads of the books as they stand."""
        self._spreads.append(spread(bid, ask))

    def table(self, last_price: Any, volume: Any, unit: str = "auction") -> list[tuple[str, Mean | Interval]]:
        """Return names and values: means with their errors, and where tails are heavy a bootstrap interval.

        Prices and volumes are int32 `[M, S]`, S of a unit.
        """
        price, volume = (torch.as_tensor(series).cpu() for series in (last_price, volume))
        found = measure_series({"last_price": price}, _OF_RETURNS)
        volatility, kurtosis, correlation, of_sizes = (found[name].value for name in _OF_RETURNS)
        spreads = np.stack(self._spreads) if self._spreads else np.full((1, len(volume)), np.nan)
        seen = ~np.isnan(spreads)
        market_spread = np.where(seen, spreads, 0.0).sum(0) / np.where(seen.any(0), seen.sum(0), np.nan)
        resamples = min(2000, max(100, _MOST_DRAWN // len(volume)))
        return [
            ("volume per market, units", mean_and_error(volume.sum(-1, dtype=torch.int64))),
            (f"{unit}s that traded", mean_and_error((volume > 0).sum(-1))),
            ("last price, ticks", mean_and_error(price[:, -1])),
            ("spread of the book, ticks", mean_and_error(market_spread)),
            ("two-sided books, share", mean_and_error(seen.mean(0))),
            (f"volatility, ticks per {unit}", mean_and_error(volatility)),
            ("excess kurtosis of returns", bootstrap_interval(kurtosis, resamples=resamples)),
            ("autocorrelation of returns", mean_and_error(correlation)),
            ("autocorrelation of |returns|", mean_and_error(of_sizes)),
        ]
