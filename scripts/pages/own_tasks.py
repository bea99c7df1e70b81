"""Measure and write the figures of docs/question_to_task.md: examples/own_tasks.py, trained and beside its rules.

python -m scripts.pages.own_tasks --measure    # trains, writes the file and the page
python -m scripts.pages.own_tasks              # the page, from the file
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from examples import own_tasks
from scripts.machine import describe
from scripts.pages.command import figures_in, file_parser
from scripts.pages.markdown import machine_in, plus_minus, replaced, table, wrapped
from scripts.pages.provenance import ROOT, stamped

PAGE, FILE = ROOT / "docs" / "question_to_task.md", ROOT / "docs" / "benchmarks" / "own_tasks.json"


def body(found: Mapping[str, Any]) -> str:
    """Return the table of a task: what each policy was paid in an episode, the best first."""
    rows = sorted(found["rows"].items(), key=lambda item: -item[1]["paid"][0])
    best = found["best_rule"]
    heads = ("policy", "paid per episode", "its deviation", f"over {best}, paired")
    cells = [
        [name, plus_minus(of["paid"], 1), f"{of['deviation']:,.1f}", "" if name == best else plus_minus(of["lead"], 1)]
        for name, of in rows
    ]
    return table(heads, cells, (False, True, True, True))


def measured(record: Mapping[str, Any]) -> str:
    """Return how it was measured."""
    rules = record["rules"]
    return wrapped(
        f"[Measured](benchmarks/{FILE.name}) on one {machine_in(record)}, {rules['date']}, commit {rules['commit']}: "
        f"{record['minutes']:g} minutes of PPO for each seed, {record['tasks'][0]['episodes']:,} episodes that no "
        "training has seen, the same for all rows of a table. ± is half of a 95% interval over episodes."
    )


def write(record: Mapping[str, Any], page: Path) -> None:
    """Fill the page."""
    text = replaced(page.read_text(), "measured", measured(record))
    for found in record["tasks"]:
        text = replaced(text, found["task"], body(found))
    page.write_text(text)


def main(words: Sequence[str] | None = None) -> None:
    """Measure, if that is asked for, and write the page."""
    parser = file_parser(__doc__, "train and play; further words go to examples/own_tasks.py", FILE, PAGE)
    options, further = parser.parse_known_args(words)
    if further and not options.measure:
        parser.error(f"without --measure there is no {further[0]}")
    measure = lambda: stamped("own_tasks", {"machine": describe(), **own_tasks.main(further)})  # noqa: E731
    write(figures_in(options, measure), options.page)
    print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
