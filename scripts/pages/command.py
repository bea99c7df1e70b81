"""The command of a page that is made of figures: what every one of them takes, and the order of what it does."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kineticsim_env.runtime.files import check_folder
from kineticsim_env.runtime.options import Parser, whole
from kineticsim_env.studies import plots
from scripts.pages.markdown import write_figures, write_page


def page_parser(about: str | None, markets: int, of: str, least: int = 2) -> Parser:
    """Return a parser of `--results`, `--markets`, `--engine` and `--output`, to which a page adds its own.

    Args:
        about: What the command does.
        markets: How many it plays unless told otherwise.
        of: What these are, as help has it.
        least: How few it can do with.
    """
    parser = Parser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="write the page from this file, and measure nothing")
    parser.add_argument("--markets", type=whole(least, 1 << 20), default=markets, help=f"{of} (default: {markets})")
    parser.add_argument("--engine", default="auto", help="as in Simulator; the figures are the same on every engine")
    parser.add_argument("--output", type=Path, default=Path("docs"), help="folder of the page, images/ and the figures")
    return parser


def make_page(
    options: argparse.Namespace,
    name: str,
    measure: Callable[[], Any],
    draw: Callable[[Path, Any], None],
    page: Callable[[Any], str],
    indent: int | None = 1,
) -> None:
    """Measure, or read what was measured; write the figures, the pictures and the page.

    Args:
        options: Of a `page_parser`.
        name: Of the page and of the file of its figures.
        measure: Returns the figures, as JSON can keep them.
        draw: Writes pictures into a folder.
        page: Returns the text.
        indent: Of the file of the figures.
    """
    plots.require_matplotlib()
    check_folder("--output", options.output / "images")
    found = json.loads(options.results.read_text() if options.results else json.dumps(measure(), default=str))
    write_figures(options.output, name, found, indent)
    draw(options.output / "images", found)
    write_page(options.output, name, page(found))
