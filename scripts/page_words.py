"""Count the words of the pages that a person writes: `python -m scripts.page_words` prints them, most words first.

Not counted are fenced code, blocks that cog or another script fills, comments, and pages that are tables of figures.
tests/test_documentation.py holds the pages of the user's path to `MOST_ON_THE_PATH` words each.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PATH = ("Start", "Environments", "Train", "Evaluate", "Custom tasks", "Custom traders", "Market research")
MOST_ON_THE_PATH = 1500
EXACT = ("docs/model.md", "docs/environment.md")  # the rules to the bit, as long as they have to be
TABLES = ("docs/benchmarks/tables.md",)

_FILLED = (
    r"<!-- \[\[\[cog.*?\[\[\[end\]\]\] -->",
    r"<!-- \w+: written by .*?<!-- end -->",
    r"<!-- (\w+): begin -->.*?<!-- \1: end -->",
    r"^```.*?^```$",
    r"<!--.*?-->",
)
_TREE = re.compile(r"^```\{toctree\}\n:caption: (.*?)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def words(text: str) -> int:
    """Return how many words of a page are written by hand."""
    for filled in _FILLED:
        text = re.sub(filled, " ", text, flags=re.DOTALL | re.MULTILINE)
    return len(text.split())


def counted() -> dict[str, int]:
    """Return the words of every page that is written by hand, by its path in the checkout."""
    made = {DOCS / "_build", DOCS / "gallery", DOCS / "studies"}
    pages = [page for folder in (DOCS, ROOT / "examples") for page in folder.rglob("*.md")]
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(page for page in pages if not made & set(page.parents))]
    names = {page.relative_to(ROOT).as_posix(): page for page in sorted(pages)}
    return {name: words(page.read_text()) for name, page in names.items() if name not in TABLES}


def on_the_path() -> list[str]:
    """Return the pages below the captions of a user's path in docs/index.md, the tasks' pages and the two fronts."""
    trees = dict(_TREE.findall((DOCS / "index.md").read_text()))
    lines = [line for caption in PATH for line in trees[caption].splitlines() if line and not line.startswith(":")]
    listed = [re.sub(r".*<(.*)>", r"\1", line) for line in lines if "gallery/" not in line]
    pages = [re.sub(r"docs/studies/(\w+)\.md", r"examples/studies/\1/README.md", f"docs/{page}.md") for page in listed]
    tasks = [f"docs/environments/{page.name}" for page in sorted((DOCS / "environments").glob("*.md"))]
    return ["README.md", "docs/index.md", *pages, *(task for task in tasks if task not in pages)]


if __name__ == "__main__":
    found = counted()
    for name, count in sorted(found.items(), key=lambda item: -item[1]):
        print(f"{count:6,} {name}{'  (on the path)' if name in on_the_path() else ''}")
    total = sum(found.values())
    print(f"{total:6,} in all, {total - sum(found[name] for name in EXACT):,} without {' and '.join(EXACT)}")
