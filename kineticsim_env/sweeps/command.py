"""`python -m kineticsim_env sweep FILE.toml`: a sweep as a file has it.

The keys of the file are the arguments of `sweep`: `space` and `market` are tables, and `agents` within `market` may be
a list of texts as `--agents` takes them.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kineticsim_env.agents.command_line import agents_of
from kineticsim_env.engines import ENGINES
from kineticsim_env.runtime.options import place
from kineticsim_env.sweeps.space import check_name
from kineticsim_env.sweeps.sweeping import sweep

_NEEDED = ("space", "intervals")
_OVER = ("folder", "part", "engine", "device", "ray")  # options that come before what the file says


def add_parser(commands: Any) -> None:
    """Add the command to those of the command line."""
    parser = commands.add_parser(
        "sweep",
        help="measure markets over a space of their parameters, stored and resumed",
        description="Measure the markets of all points of a space, and store the statistics of each. The same command "
        "again goes on where the last one was stopped.",
    )
    parser.add_argument("file", type=place, metavar="FILE.toml", help="the sweep: docs/sweeps.md has the keys")
    parser.add_argument("--folder", type=place, metavar="FOLDER", help="where results go (default: the file's)")
    parser.add_argument("--part", metavar="I/N", help="do the I-th of N parts, as one of N jobs that share the folder")
    add_places(parser, "run")
    parser.set_defaults(command=command)


def add_places(parser: argparse.ArgumentParser, does: str) -> None:
    """Add the options that say where markets are played; `does` is what help calls it."""
    parser.add_argument("--engine", help=f"{', '.join(ENGINES)} (default: the file's, or auto)")
    parser.add_argument("--device", help="cuda:N, for one GPU (default: the file's, or all)")
    parser.add_argument("--ray", metavar="ADDRESS", help=f"{does} on a cluster of Ray; auto is the one that runs here")


def over(given: dict[str, Any], options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Return what a file says, and in its place what options say."""
    return given | {name: value for name in names if (value := getattr(options, name)) is not None}


def command(options: argparse.Namespace) -> int:
    """Run a sweep, and say where its results are."""
    given = over(read_file(options.file), options, _OVER)
    if "folder" not in given:
        raise ValueError('folder: expected --folder, or folder = "..." in the file, got none')
    started = time.perf_counter()
    try:
        found = sweep(**given)
    except KeyboardInterrupt:
        print(f"what is finished is in {given['folder']}; the same command goes on from there", file=sys.stderr)
        raise
    seconds = time.perf_counter() - started
    about = found.about
    replicates = f", {about['replicates']:,} replicates each" if about["replicates"] > 1 else ""
    after = f" after {about['warm_up']:,} of warm-up" if about["warm_up"] else ""
    print(f"{found.points:,} points of {', '.join(about['space'])} ({about['design']}){replicates}")
    print(f"{about['intervals']:,} intervals{after}: {', '.join(about['statistics'])}")
    print(f"finished: {found.finished:,} of {found.points:,} points, {seconds:.3g} s")
    print(f"folder: {found.folder}")
    return 0


def read_file(path: str | Path) -> dict[str, Any]:
    """Return the arguments of `sweep` that a file has; see `read_arguments`."""
    return read_arguments(path, sweep, _NEEDED)


def read_arguments(path: str | Path, function: Callable[..., Any], needed: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a function that a file has, a market's agents among them.

    Raises:
        ValueError: Naming the file, and the key that nobody knows with the nearest one, or that is missing.
    """
    try:
        given = tomllib.loads(Path(path).read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected TOML, got what is none: {error}") from error
    known = tuple(inspect.signature(function).parameters)
    for name in given:
        check_name(str(path), name, known)
    for name in needed:
        if name not in given:
            raise ValueError(f"{path}: expected a file with {' and '.join(map(repr, needed))}, got no {name!r}")
    market = given.get("market")
    if isinstance(market, dict) and isinstance(market.get("agents"), list):
        given["market"] = market | {"agents": agents_of([str(word) for word in market["agents"]])}
    return given
