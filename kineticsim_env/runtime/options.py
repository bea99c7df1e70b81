"""What the command line takes and how commands end: numbers with their bounds, refusals in one line, exit codes.

The commands, the examples and the scripts are made of these.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import gymnasium

from kineticsim_env.config import MarketConfig
from kineticsim_env.errors import KineticSimError

MOST = 2**31 - 1  # of any count: what an int32 holds
FIELDS = tuple(field.name for field in dataclasses.fields(MarketConfig))  # that --set changes
_OPTION_OF = {"num_markets": "markets", "block": "blocks"}  # arguments of the library with another name than the option
_REFUSALS = (
    *(KineticSimError, gymnasium.error.Error, TypeError, ValueError, ModuleNotFoundError),
    *(OSError, RuntimeError, MemoryError),
)
_SHOWN = 60  # characters of a value that a message repeats


class Parser(argparse.ArgumentParser):
    """A parser that raises what it refuses, for `exit_code` to say in one line as everything else."""

    def error(self, message: str) -> NoReturn:
        """See the class."""
        raise ValueError(message.removeprefix("argument "))


def whole(least: int, most: int = MOST) -> Callable[[str], int]:
    """Return a type of options: whole numbers from `least` to `most`."""
    return _within(int, least, most, f"a whole number from {_power(least)} to {_power(most)}")


def number(least: float, most: float) -> Callable[[str], float]:
    """Return a type of options: numbers from `least` to `most`."""
    return _within(float, least, most, f"a number from {least:g} to {most:g}")


def _within(read: Callable[[str], Any], least: float, most: float, allowed: str) -> Callable[[str], Any]:
    def checked(text: str) -> Any:
        try:
            value = read(text)
        except ValueError:
            raise _refused(text, allowed) from None
        if not least <= value <= most:  # NaN is not
            raise _refused(value, allowed)
        return value

    return checked


def place(text: str) -> str:
    """Return the name of a file or a folder: any but the empty one, which else would mean none, or the folder here."""
    if not text:
        raise _refused(text, "the name of a file or folder")
    return text


def changes_of(words: Sequence[str]) -> dict[str, Any]:
    """Return the fields of `--set field=value`; a value is a number, None, a word, or a list with one per market."""
    changes: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ValueError(f"--set: expected field=value, such as num_agents=64, got {word!r}")
        if name in changes:
            raise ValueError(f"--set: got {name!r} twice")
        try:
            changes[name] = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError):
            changes[name] = text.strip()
    return changes


def exit_code(work: Callable[[], int | None], options: argparse.Namespace | None = None) -> int:
    """Do the work of a command and return its exit code: its own (None is 0), 2 if it is refused, 130 after Ctrl-C.

    Refusals name options as the command line was read.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # so that a terminal without some characters loses no result
    try:
        code = work() or 0
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader has stopped, as in `doctor | head -1`
        return 128 + 13
    except _REFUSALS as error:
        print(f"error: {_in_options(error, options or argparse.Namespace())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        _let_go_of_output()


def _in_options(error: BaseException, options: argparse.Namespace) -> str:
    """Return a message in one line; messages of the library begin with the argument, here with its option."""
    text = " ".join(str(error).split()) or type(error).__name__
    name, colon, rest = text.partition(":")
    field, option = name.partition("[")[0], _OPTION_OF.get(name, name)
    if colon and any(word.partition("=")[0].strip() == field for word in getattr(options, "set", None) or ()):
        return f"--set {text}"  # whatever other option has the field's name
    if colon and option in options:
        return f"--{option.replace('_', '-')}:{rest}"
    return f"--set {text}" if name in FIELDS and "set" in options else text


def _let_go_of_output() -> None:
    """Drop output that cannot be written, which the interpreter would else try to write again at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _power(value: int) -> str:
    """Write the bounds of the integers as powers."""
    return {2**63 - 1: "2^63 - 1", -(2**63): "-2^63", MOST: "2^31 - 1"}.get(value, f"{value}")


def _refused(value: object, allowed: str) -> argparse.ArgumentTypeError:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return argparse.ArgumentTypeError(f"expected {allowed}, got {shown}")
