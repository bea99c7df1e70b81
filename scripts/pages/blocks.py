"""What the generated blocks of a page call, and how they are filled.

A page is a Markdown file that a person writes. Its tables, and numbers within sentences, stand in blocks that cog fills
from the committed results beside the page:

    <!-- [[[cog
    from scripts.pages.blocks import *
    found = results()
    ]]] -->
    <!-- [[[end]]] -->

    Continuous trading is off by <!-- [[[cog say(pm(mean(found["error"]), 2)) ]]] -->
    2.92 ± 0.02
    ticks<!-- [[[end]]] -->, auctions of 4 events by less.

    <!-- [[[cog
    holds(found["error"][0] > found["auctions"][0], "auctions are nearer")
    say(table(("rule", "error"), rows, (False, True)))
    ]]] -->
    <!-- [[[end]]] -->

All blocks of a page share their names. A marker at the beginning of a line would end a paragraph, so within one a word
stands before it. A verdict is written by hand, and guarded by `holds` in a block beside it. `make pages` fills all
pages; `make lint` says which are not current. A page's command measures, writes the results, and fills the page.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

from cogapp import Cog

from kineticsim_env.statistics import Interval, Mean
from scripts.pages.markdown import above, below, between, joined, plus_minus, pm, table, wrapped
from scripts.pages.provenance import notices, renewed, without

__all__ = [
    "Interval", "Mean", "above", "below", "between", "holds", "joined", "mean", "plus_minus", "pm", "results", "say",
    "table", "wrapped",
]  # fmt: skip

STUDIES = Path(__file__).resolve().parents[2] / "examples" / "studies"
_read: set[Path] = set()  # results that the page is made of
_claims: list[str] | None = None  # where a small run keeps the claims that do not hold; None: these are errors
_filled = ""  # study whose page `fill` fills


class Untrue(AssertionError):
    """A page says what its results do not."""


def results(name: str = "results", study: str | None = None) -> Any:
    """Return results beside the page that is filled, or the committed ones where a small run has not made its own.

    Args:
        name: Of the file.
        study: Another one, whose committed results they are.
    """
    folder = Path(_cog().inFile).parent
    path = folder / f"{name}.json"
    committed = STUDIES / (study or _filled or folder.name) / path.name
    path = path if study is None and path.exists() else committed
    _read.add(path)
    return without(json.loads(path.read_text()))


def say(text: str) -> None:
    """Write text into the block: a number, a sentence, a table; paragraphs are apart by an empty line."""
    _cog().outl("\n\n".join(wrapped(part) for part in text.split("\n\n")))


def holds(condition: Any, claim: str) -> None:
    """Refuse to fill a page whose prose says what its results do not.

    Raises:
        Untrue: The condition is not met; the claim is named, and the page has to be edited.
    """
    if condition:
        return
    if _claims is None:
        raise Untrue(f"{_cog().inFile}: it says that {claim}, and its results do not: edit the page")
    _claims.append(claim)


def mean(values: Any) -> Mean:
    """Return a mean with its error, as results have them: `[mean, error, count]`."""
    return Mean(*values)


def fill(folder: Path, study: str) -> None:
    """Fill the blocks of a study's page from the results in a folder; the page is written there if that is not its own.

    Elsewhere the results are somebody's own, of fewer markets maybe: what the prose claims and they do not show is
    printed, where in the study's own folder it is an error.

    Raises:
        CogUserException: A block failed; in the study's own folder, with what no longer holds.
    """
    page, own = folder / "README.md", STUDIES / study / "README.md"
    elsewhere = page.resolve() != own
    if elsewhere:
        shutil.copyfile(own, page)
    _read.clear()
    with _kept(study, elsewhere) as claims:
        Cog().callable_main(["cog", "-r", "--verbosity=0", str(page)])
    made_of = _read | set(folder.glob("*.json"))
    page.write_text(renewed(page.read_text(), set().union(*map(notices, made_of))))
    for claim in claims:
        print(f"{page}: these results do not show that {claim}")
    print(f"wrote {page}")


@contextlib.contextmanager
def _kept(study: str, keep: bool) -> Generator[list[str]]:
    """Keep claims that do not hold, for as long as a study's page is filled."""
    global _claims, _filled
    claims: list[str] = []
    _claims, _filled = claims if keep else None, study
    try:
        yield claims
    finally:
        _claims, _filled = None, ""


def _cog() -> Any:
    """Return the module that cog makes for the page that it works on."""
    return sys.modules["cog"]
