"""The table of a batch as a file of Parquet, which says what it is and shows when it was damaged.

`store.py` writes, finds and reads them. Each column has a digest in the file's metadata, of its values, its sweep and
its points: so a bit that was flipped, and a table that was copied over another one, are found when it is read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kineticsim_env.runtime.files import replacing
from kineticsim_env.runtime.values import load_optional
from kineticsim_env.statistics.plans import column_names, error_columns

_NAME = re.compile(r"batch-(\d{10})-(\d{10})\.parquet")  # the first point, and the first one behind
_EARLIER_NAME = re.compile(r"batch-(\d{8})\.parquet")  # of folders of before: a number, of batches of one size
# What the metadata of a file has: digests of the sweep's plan and of every column, and the points.
_PLAN, _COLUMNS, _POINTS = b"kineticsim_sweep", b"kineticsim_columns", b"kineticsim_points"


class Damaged(ValueError):
    """A file that is not the table of its points: it was damaged, copied from elsewhere, or is of another sweep."""


@dataclasses.dataclass(frozen=True, order=True)
class Batch:
    """Consecutive points that were stored together, and their table."""

    begin: int
    end: int  # the first one behind
    path: Path
    earlier: bool = False  # written by a version without digests of columns, under the names of then


def path_of(place: Path, begin: int, end: int) -> Path:
    """Return the file of the points from `begin` to `end` (without it)."""
    return place / f"batch-{begin:010d}-{end:010d}.parquet"


def find(place: Path, points: int, earlier_size: int | None) -> list[Batch]:
    """Return the batches of a sweep's points in a folder, in order; of an earlier form they have `earlier_size`."""
    found = []
    for entry in os.scandir(place):
        if match := _NAME.fullmatch(entry.name):
            begin, end = int(match[1]), int(match[2])
            if begin < end <= points:
                found.append(Batch(begin, end, place / entry.name))
        elif earlier_size and (match := _EARLIER_NAME.fullmatch(entry.name)):
            begin = int(match[1]) * earlier_size
            if begin < points:
                found.append(Batch(begin, min(begin + earlier_size, points), place / entry.name, earlier=True))
    return sorted(found)


def write(batch: Batch, columns: Mapping[str, Any], plan: str) -> None:
    """Write a table, whole or not at all; `plan` is the digest of the sweep's."""
    arrow, parquet = pyarrow_modules()
    table = arrow.table(dict(columns))
    digests = {name: _digest(batch, plan, name, table.column(name)) for name in table.column_names}
    about = {_PLAN: plan, _POINTS: f"{batch.begin} {batch.end}", _COLUMNS: json.dumps(digests)}
    table = table.replace_schema_metadata({name: text.encode() for name, text in about.items()})
    texts = [field.name for field in table.schema if _is_text(field.type)]  # of which a value comes often
    with replacing(batch.path) as part, part.open("wb") as file:
        parquet.write_table(table, file, compression="zstd", use_dictionary=texts)
        file.flush()
        os.fsync(file.fileno())  # or a name could outlive a power failure that its contents do not


def read(batch: Batch, plan: str, repeat: int, statistics: Iterable[str], columns: list[str] | None = None) -> Any:
    """Return the columns that are asked for of a batch's table, or all, checked; `plan` is the digest of the sweep's.

    A point has `repeat` rows; by the names of `statistics` earlier columns are renamed. Raises Damaged if it is not
    what was written for these points, OSError if the file cannot be read.
    """
    arrow, parquet = pyarrow_modules()
    data = batch.path.read_bytes()  # what cannot be read is no damage
    try:
        file = parquet.ParquetFile(arrow.BufferReader(data))
        about = {name: text.decode() for name, text in (file.schema_arrow.metadata or {}).items()}
        there = file.schema_arrow.names
        now = _renamed(there, statistics) if batch.earlier else there
        wanted = (_with_errors(now) if batch.earlier else now) if columns is None else columns
        places = dict(zip(now, there, strict=True))
        names = [name for name in dict.fromkeys([*wanted, "point"]) if name in places or not batch.earlier]
        table = file.read([places[name] for name in names]).rename_columns(names)
        table.validate(full=True)
        whole = about.get(_PLAN) == plan and table.num_rows == repeat * (batch.end - batch.begin)
        if whole and batch.earlier:
            whole = np.array_equal(table.column("point"), np.repeat(np.arange(batch.begin, batch.end), repeat))
        elif whole:
            digests = json.loads(about[_COLUMNS])
            whole = about[_POINTS] == f"{batch.begin} {batch.end}" and set(digests) == set(there)
            whole = whole and all(digests[name] == _digest(batch, plan, name, table.column(name)) for name in names)
    except Exception as error:  # pyarrow raises what it likes of a damaged file
        raise Damaged(_refusal(batch.path, f"a damaged table ({type(error).__name__})")) from error
    if not whole:
        another = about.get(_PLAN) not in (None, plan)
        raise Damaged(_refusal(batch.path, "a table of another sweep" if another else "a damaged table"))
    for name in set(wanted) - set(table.column_names):  # of errors that earlier versions did not store
        table = table.append_column(name, arrow.array([math.nan] * table.num_rows))
    return table.select(wanted)


def plan_of_file(path: Path) -> str | None:
    """Return the digest of the plan that a file says it is of; None where it does not."""
    arrow, parquet = pyarrow_modules()
    try:
        return (parquet.read_schema(arrow.BufferReader(path.read_bytes())).metadata or {})[_PLAN].decode()
    except Exception:  # pyarrow raises what it likes of a damaged file
        return None


def _refusal(path: Path, got: str) -> str:
    return f"{path}: expected what this sweep has written, got {got}; sweep again to have it anew"


def _digest(batch: Batch, plan: str, name: str, column: Any) -> str:
    """Return a digest of a column: its values, in which sweep, and of which points they are."""
    if column.null_count:
        raise Damaged(f"{name}: got a value that is missing")
    values = json.dumps(column.to_pylist()).encode() if _is_text(column.type) else column.to_numpy().tobytes()
    said = f"{plan} {batch.begin} {batch.end} {name} {column.type} ".encode()
    return hashlib.sha256(said + values).hexdigest()[:16]


def _renamed(names: Iterable[str], statistics: Iterable[str]) -> list[str]:
    """Return the names that columns of before have now: `kurtosis_10` for `kurtosis(span=10)`."""
    longest_first = sorted(statistics, key=len, reverse=True)

    def now(column: str) -> Iterator[str]:
        for name in longest_first:
            match = re.fullmatch(r"(?:\[(?P<label>.*)\])?(?P<error>_error)?", column[len(name) :])
            if column.startswith(name) and match:
                (plain,) = column_names(name, None if match["label"] is None else [match["label"]])
                yield f"{plain}{match['error'] or ''}"
        yield column

    return [next(now(column)) for column in names]


def _with_errors(names: list[str]) -> list[str]:
    """Return the names of a table with all errors behind each value that has one."""
    errors = {name: error_columns(name) for name in names if error_columns(name)[0] in names}
    others = {error for both in errors.values() for error in both}
    return [each for name in names if name not in others for each in (name, *errors.get(name, ()))]


def _is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string")


def pyarrow_modules() -> tuple[Any, Any]:
    """Return pyarrow and its reader of Parquet, or say how they are installed."""
    return of_data("pyarrow"), of_data("pyarrow.parquet")


def of_data(name: str) -> Any:
    """Import a module that is installed with `kineticsim-env[data]`."""
    missing = f"sweep: {name.partition('.')[0]} is missing: pip install 'kineticsim-env[data]'"
    return load_optional(name, missing)
