"""The commands of studies, `python -m examples.studies.NAME`: what all of them take, and the order of what they do.

A study is a folder of `examples/studies`: its page README.md, results.json that the page is filled from, and images. A
study of several commands has names with a dot, and a file of results for each: "presets.news" and presets/news.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kineticsim_env import plots
from kineticsim_env.engines import ENGINES, choose_engine
from kineticsim_env.runtime.files import check_folder
from kineticsim_env.runtime.options import Parser, whole
from scripts.pages.blocks import fill
from scripts.pages.markdown import machine, measured_on, write_figures
from scripts.pages.provenance import stamped, without

STUDIES = "examples/studies"


def page_parser(
    name: str,
    about: str | None,
    markets: int | None = None,
    of: str = "",
    least: int = 2,
    *,
    engine: str = "auto",
    kept: bool = True,
) -> Parser:
    """Return a parser of `--results`, `--markets`, `--engine` and `--output`, to which a page adds its own.

    Args:
        name: Of the study, and of its command where it has several.
        about: What the command does.
        markets: How many it plays unless told otherwise; None is no such option.
        of: What these are, as help has it.
        least: How few it can do with.
        engine: Which it takes unless told otherwise.
        kept: Whether the figures are kept in a file, from which `--results` writes the page again.
    """
    command = f"python -m {STUDIES.replace('/', '.')}.{name}"
    parser = Parser(prog=command, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(parser=parser)
    if kept:
        parser.add_argument("--results", type=Path, help="write the page from this file, and measure nothing")
    if markets is not None:
        parser.add_argument("--markets", type=whole(least, 1 << 20), default=markets, help=f"{of} (default: {markets})")
    parser.add_argument("--engine", choices=ENGINES, default=engine, help=f"as in Simulator (default: {engine})")
    folder = Path(STUDIES, name.partition(".")[0])
    parser.add_argument("--output", type=Path, default=folder, help="folder of the page, images/ and the figures")
    return parser


def file_parser(about: str | None, measures: str, file: Path, page: Path) -> argparse.ArgumentParser:
    """Return a parser of `--measure`, `--file` and `--page`: of a page of docs/ that is filled from a file of figures.

    Args:
        about: What the command does.
        measures: What it does to measure, as help has it.
        file: Where the figures are, unless told otherwise.
        page: The page, likewise.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help=measures)
    parser.add_argument("--file", type=Path, default=file, help="of the figures")
    parser.add_argument("--page", type=Path, default=page, help="the page")
    return parser


def figures_in(options: argparse.Namespace, measure: Callable[[], Any]) -> Any:
    """Measure into the file of `file_parser`'s options, if that is asked for; return what is in it."""
    if options.measure:
        options.file.write_text(json.dumps(measure(), indent=1) + "\n")
    return json.loads(options.file.read_text())


def command_of(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    apart: Sequence[str] = ("results", "engine", "output"),
) -> str:
    """Return the command that measures with these options: those that are not the defaults.

    Options that no figure depends on stay `apart`.
    """
    given = {key: value for key, value in vars(options).items() if key not in apart}
    said = [f"--{key.replace('_', '-')} {value}" for key, value in given.items() if value != parser.get_default(key)]
    return " ".join([parser.prog, *said])


def measurement(options: argparse.Namespace, began: float) -> dict[str, Any]:
    """Return what results say of how they were measured, now that they are; `began` is of `time.perf_counter()`."""
    said = {
        "command": command_of(options.parser, options),
        "date": datetime.date.today().isoformat(),
        "engine": choose_engine(options.engine)[0],
        "machine": machine(),
        "seconds": time.perf_counter() - began,
    }
    return said | {"measured": measured_on(said)}


def make_page(
    options: argparse.Namespace,
    name: str,
    measure: Callable[[], Any],
    draw: Callable[[Path, Any], None],
    indent: int | None = 1,
) -> None:
    """Measure, or read what was measured; write the figures and the pictures, and fill the page.

    Args:
        options: Of a `page_parser`.
        name: As in `page_parser`.
        measure: Returns the figures, as JSON can keep them; `measurement` joins them, or their "setting".
        draw: Writes pictures into a folder.
        indent: Of the file of the figures.
    """
    check_place(options)
    publish(options, name, figures(options, name, measure), draw, indent)


def check_place(options: argparse.Namespace) -> None:
    """Refuse what the page could not be drawn with or written to, before anything is measured; makes its folders."""
    plots.require_matplotlib()
    check_folder("--output", options.output / "images")


def figures(options: argparse.Namespace, name: str, measure: Callable[[], Any]) -> Any:
    """Return what was measured, as its file has it: read from `--results`, or measured now, with the rules it is of."""
    if options.results:
        return json.loads(options.results.read_text())
    began, found = time.perf_counter(), measure()
    said = measurement(options, began)
    found = found | {"setting": said | found["setting"]} if "setting" in found else said | found
    return json.loads(json.dumps(stamped(name, found), default=str))


def publish(
    options: argparse.Namespace, name: str, found: Any, draw: Callable[[Path, Any], None], indent: int | None = 1
) -> None:
    """Write the figures and the pictures, and fill the page; the arguments are those of `make_page`."""
    study, _, part = name.partition(".")
    write_figures(options.output, part or "results", found, indent)
    draw(options.output / "images", without(found))
    fill(options.output, study)
