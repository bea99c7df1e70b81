"""The command line: `python -m kineticsim_env COMMAND`.

Commands are doctor, simulate, evaluate, sweep, calibrate, fit, play, impact and scorecard; bench says where it is now.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from kineticsim_env import __version__, play
from kineticsim_env.calibration import command as calibrate
from kineticsim_env.commands import evaluate, fit, impact, scorecard, simulate
from kineticsim_env.runtime import doctor
from kineticsim_env.runtime.options import Parser, exit_code
from kineticsim_env.sweeps import command as sweep


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


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="kineticsim_env", description="Ensembles of limit-order-book markets.")
    parser.add_argument("--version", action="version", version=f"kineticsim_env {__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    check = commands.add_parser("doctor", help="say which engines run here, what is missing and how to get it")
    check.set_defaults(command=lambda options: doctor.main())
    for module in (simulate, evaluate, sweep, calibrate, fit, play, impact, scorecard):
        module.add_parser(commands)
    # Goes with the next version. With another prefix than "-", options are words, and any are taken.
    moved = commands.add_parser("bench", help="is `python -m scripts.benchmarks` of a checkout now", **_ANY_WORDS)
    moved.add_argument("words", nargs="*")
    moved.set_defaults(command=_bench)
    return parser


_ANY_WORDS: dict[str, Any] = {"add_help": False, "prefix_chars": "\0"}


def _bench(options: argparse.Namespace) -> NoReturn:
    command = shlex.join(["python", "-m", "scripts.benchmarks", *options.words])
    raise ValueError(f"bench: this is a script of a checkout now: {command}")


if __name__ == "__main__":
    sys.exit(main())
