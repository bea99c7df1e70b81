"""Sphinx extension: the pages of examples/studies on the site, and the links to them.

A study's page is the README.md of its folder, with links that lead somewhere in a checkout. The build copies it to
docs/studies, which git ignores, with links that lead to the site's pages.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "examples" / "studies"
_TO_STUDY = re.compile(r"\]\((?:\.\./)+examples/studies/(\w+)/README\.md")


def copy(app: Sphinx, config: Any) -> None:
    """Write docs/studies anew, but for what is current."""
    folder = Path(app.srcdir) / "studies"
    folder.mkdir(exist_ok=True)
    pages = {page.parent.name: on_the_site(page) for page in STUDIES.glob("*/README.md")}
    for stale in {page.stem for page in folder.glob("*.md")} - set(pages):
        (folder / f"{stale}.md").unlink()
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def on_the_site(page: Path) -> str:
    """Return a study's page with the links that it has in docs/studies."""
    text = page.read_text().replace("](images/", f"](../../{page.parent.relative_to(ROOT).as_posix()}/images/")
    text = text.replace("{literalinclude} ../../", "{literalinclude} ../../examples/").replace(
        "](../../../docs/", "](../"
    )
    return re.sub(r"\]\(\.\./(\w+)/README\.md", r"](\1.md", text)


def lead_to_studies(app: Sphinx, docname: str, source: list[str]) -> None:
    """Lead links from other pages to the copies."""
    source[0] = _TO_STUDY.sub(rf"]({'../' * docname.count('/')}studies/\1.md", source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register all of it."""
    app.connect("config-inited", copy)
    app.connect("source-read", lead_to_studies)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
