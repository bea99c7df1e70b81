"""`python -m scripts.benchmarks`: time the engines and the baselines, each verified first.

`python -m scripts.benchmarks report FILE` makes tables and figures of what was measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kineticsim_env.runtime.options import Parser, exit_code, number, place
from scripts.benchmarks import report, suite


def main(argv: Sequence[str] | None = None) -> int:
    """Measure or report; returns the exit code, as the command line's."""
    options = argparse.Namespace()

    def work() -> int:
        _parser().parse_args(argv, options)
        return options.command(options)

    return exit_code(work, options)


def _parser() -> argparse.ArgumentParser:
    measure = Parser(prog="scripts.benchmarks", description="Time the engines and the baselines, each verified first.")
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
    measure.set_defaults(command=command)
    page = measure.add_subparsers(metavar="report").add_parser("report", help="make tables and figures from a file")
    page.add_argument("file", type=place, help="the JSON file")
    page.add_argument("--output", type=place, required=True, metavar="FOLDER", help="where tables and figures go")
    page.set_defaults(command=write_report)
    return measure


def command(options: argparse.Namespace) -> int:
    """Measure the backends, write the file, and print its table."""
    if options.resume and options.output is None:
        raise ValueError("--resume: expected --output with the file to go on with, got none")
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


def write_report(options: argparse.Namespace) -> int:
    """Write the tables and figures of a file of measurements."""
    for path in report.write(options.file, options.output):
        print(path)
    return 0


def _words(text: str | None) -> list[str] | None:
    """Split a list with commas; None stays None."""
    return None if text is None else [word.strip() for word in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
