"""The parts that measured pages share: tables, figures with their intervals, line breaks, what it was measured on."""

from __future__ import annotations

import json
import os
import platform
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kineticsim_env.runtime.files import check_folder, replacing
from kineticsim_env.statistics import Interval, Mean, mean_and_error
from scripts.machine import processor


def write_figures(folder: Path, name: str, found: Any, indent: int | None = 1) -> None:
    """Write what a page was made of, which its `--results` reads, beside a folder for its pictures."""
    check_folder("--output", folder / "images")
    (folder / "images").mkdir(parents=True, exist_ok=True)
    with replacing(folder / f"{name}.json") as part:
        part.write_text(json.dumps(found, indent=indent, default=str) + "\n")


def machine_in(record: Mapping[str, Any]) -> str:
    """Return what results were measured on, of their `machine`: the GPU, or the CPU."""
    machine = record["machine"]
    return (machine["gpu"] or machine["cpu"]).removeprefix("NVIDIA ")


def wrapped(paragraph: str) -> str:
    """Break the lines of running text and lists at 120 characters; leave tables, headings, pictures and code."""
    if paragraph.startswith(("|", "#", "!", "<", "```")):
        return paragraph
    lines = paragraph.splitlines() if paragraph.startswith("- ") else [" ".join(paragraph.split())]
    wrapped = [
        textwrap.fill(line, 120, subsequent_indent="  " * line.startswith("- "), break_on_hyphens=False)
        for line in lines
    ]
    return "\n".join(wrapped)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool] = ()) -> str:
    """Return a table in Markdown; `right` says of each column whether it stands at the right, as numbers do."""
    marks = ["---:" if at_right else "---" for at_right in right]
    rule = f"|{'|'.join(marks)}|" if marks else f"| {' | '.join(['---'] * len(heads))} |"
    lines = [f"| {' | '.join(line)} |" for line in (heads, *rows)]
    return "\n".join([lines[0], rule, *lines[1:]])


def replaced(text: str, name: str, body: str) -> str:
    """Return a page with other text between the comment that begins with a name and the next `<!-- end -->`."""
    found, times = re.subn(
        rf"(<!-- {name}: [^>]*-->\n)(?:(?!<!-- ).)*?\n?(<!-- end -->)",
        lambda m: f"{m[1]}{body}\n{m[2]}",
        text,
        flags=re.DOTALL,
    )
    if times != 1:
        raise ValueError(f"{name}: expected one place for it on the page, got {times}")
    return found


def pm(value: Mean, digits: int = 0) -> str:
    """Return a mean with half of its 95% interval; what rounds to zero has no sign."""
    return f"{value.mean:z.{digits}f} ± {value.interval():.{digits}f}"


def plus_minus(interval: Sequence[float], digits: int = 0) -> str:
    """Return a mean and half of its 95% interval, of results that have these two."""
    return f"{interval[0]:,.{digits}f} ± {interval[1]:,.{digits}f}"


def above(value: Any, bound: float = 0.0) -> bool:
    """Return whether a mean with its error, a `Mean` or as results have it, is above a bound by its 95% interval."""
    return Mean(*value).mean - Mean(*value).interval() > bound


def below(value: Any, bound: float = 0.0) -> bool:
    """Return whether it is below a bound by its interval."""
    return Mean(*value).mean + Mean(*value).interval() < bound


def joined(parts: Sequence[str]) -> str:
    """Return texts as a list in a sentence."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def between(value: Interval, digits: int = 0) -> str:
    """Return a value with both ends of its 95% interval; what rounds to zero has no sign."""
    return f"{value.value:z,.{digits}f} ({value.low:z,.{digits}f} to {value.high:z,.{digits}f})"


def means(values: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the means of values over markets, `[M]`, or a list of means of `[M, n]`, as results have them."""
    return {
        name: mean_and_error(of) if of.ndim == 1 else [mean_and_error(column) for column in of.T]
        for name, of in values.items()
    }


def measured_on(setting: Mapping[str, Any]) -> str:
    """Say when, with what command and engine, and on what a page was measured."""
    return (
        f"Measured on {setting['date']} with `{setting['command']}`, {setting['engine']} engine, {setting['machine']}. "
        "The figures are the same on every engine."
    )


def machine() -> str:
    """Return the GPU or processor, and the versions of Python and torch."""
    return f"{_processor()}, Python {platform.python_version()}, torch {torch.__version__}"


def _processor() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{processor()}, {os.cpu_count()} cores"
