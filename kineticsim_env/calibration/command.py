"""`python -m kineticsim_env calibrate FILE.toml`: a calibration as a file has it.

The keys of the file are the arguments of `calibrate`. `target` is a table of statistics, or the name of a CSV file
whose columns are series.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env import plots
from kineticsim_env.calibration.calibrated import Calibration
from kineticsim_env.calibration.calibrating import calibrate
from kineticsim_env.runtime.files import check_file, replacing
from kineticsim_env.runtime.options import place
from kineticsim_env.sweeps.command import add_places, over, read_arguments

_NEEDED = ("target", "space")
_OVER = ("folder", "engine", "device", "ray")  # options that come before what the file says


def add_parser(commands: Any) -> None:
    """Add the command to those of the command line."""
    parser = commands.add_parser(
        "calibrate",
        help="find the parameters of a market that fit given statistics or prices",
        description="Find the parameters of a market that fit given statistics or prices, as a posterior distribution "
        "learned from simulations, with a check of it.",
    )
    for option, form, does in (
        ("file", "FILE.toml", "the calibration: examples/studies/calibration has it"),
        ("--output", "FILE.json", "where the posterior goes, with its draws"),
        ("--plot", "FILE.png", "where to draw the posterior"),
        ("--plot-check", "FILE.png", "where to draw the check of it"),
        ("--plot-predicted", "FILE.png", "where to draw what the posterior predicts"),
        ("--folder", "FOLDER", "where simulations are stored (default: nowhere)"),
    ):
        parser.add_argument(option, type=place, metavar=form, help=does)
    add_places(parser, "simulate")
    parser.set_defaults(command=command)


def command(options: argparse.Namespace) -> int:
    """Calibrate, print the table, save the posterior and draw it."""
    given = over(read_file(options.file), options, _OVER)
    for option in ("output", "plot", "plot_check", "plot_predicted"):
        path = getattr(options, option)
        if path is not None:
            name = f"--{option.replace('_', '-')}"
            check_file(name, path)
            if option != "output":
                plots.check_picture(name, path)
    if options.plot_check and given.get("held_out") == 0:
        raise ValueError("--plot-check: expected points that are held out, got held_out = 0")
    found = calibrate(**given)
    print(found)
    print(", ".join(f"{phase} {seconds:.3g} s" for phase, seconds in found.seconds.items()))
    if options.output:
        with replacing(options.output) as part:
            part.write_text(json.dumps(plain(found), indent=1) + "\n")
        print(f"posterior: {options.output}")
    drawings = {"plot": found.draw, "plot_check": found.draw_check, "plot_predicted": found.draw_predicted}
    for option, draw in drawings.items():
        path = getattr(options, option)
        if path and option == "plot" and not found.samples:
            print(f"no picture {path}: there is no posterior")
        elif path:
            draw(path)
            print(f"picture: {path}")
    return 0


def plain(found: Calibration) -> dict[str, Any]:
    """Return a calibration as JSON keeps it."""
    check, predicted = found.check, found.predicted
    return {
        "best": found.best,
        "interval90": found.interval(0.9) if found.samples else None,
        "target": found.target,
        "reach": dataclasses.asdict(found.reach) | {"within": found.reach.within, "missed": found.reach.missed},
        "predicted90": predicted.interval(0.9) if predicted else None,
        "predicted_p_values": predicted.p_values if predicted else None,
        **{name: getattr(found, name) for name in ("simulated", "simulations", "left_out", "converged", "seconds")},
        "recovered": check.recovered if check else None,
        "p_values": check.p_values if check else None,
        "coverage": {level: check.coverage(level) for level in (0.5, 0.8, 0.95)} if check else None,
        "out_of_reach": check.out_of_reach if check else None,
        "samples": {name: values.tolist() for name, values in found.samples.items()},
    }


def read_file(path: str | Path) -> dict[str, Any]:
    """Return the arguments of `calibrate` that a file has; see `sweeps.command.read_file`."""
    given = read_arguments(path, calibrate, _NEEDED)
    if isinstance(given["target"], str):
        given["target"] = read_series(given["target"])
    return given


def read_series(path: str | Path) -> dict[str, np.ndarray]:
    """Return the columns of a CSV file by name: series of whole numbers."""
    with Path(path).open(newline="", encoding="utf-8-sig") as file:  # spreadsheets begin their files with a mark
        heads, *rows = [row for row in csv.reader(file) if row] or [[]]
    try:
        columns = [[float(cell) for cell in column] for column in zip(*rows, strict=True)]
        if not columns or len(columns) != len(heads) or len(set(heads)) < len(heads):
            raise ValueError(f"{len(columns)} columns of numbers under {len(heads)} names")
    except ValueError as error:
        raise ValueError(f"target: expected a CSV file of names and whole numbers, got {path} ({error})") from error
    return {name.strip(): np.array(column) for name, column in zip(heads, columns, strict=True)}
